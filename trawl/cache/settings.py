"""The settings of the HTTP cache, and the function that opens it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import trio
from msgspec import Meta, Struct

from trawl.blocking import Blocking
from trawl.errors import UsageError
from trawl.observe import Stats

if TYPE_CHECKING:
    from trawl.cache.cache import Cache, Prepare

__all__ = ["CacheSettings", "open_cache"]

CACHE_CLOSE_GRACE = 5.0
"""Maximum number of seconds for closing the file."""


class CacheSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """The settings of the HTTP cache."""

    httpcache_enabled: Annotated[
        bool, Meta(description="Store responses on disk, and serve requests from there as HTTPCACHE_POLICY allows.")
    ] = False
    httpcache_policy: Annotated[
        str,
        Meta(
            description="`always`: responses never expire, which is useful while you write a spider. `rfc9111`: as in "
            "a browser, with ages and revalidation (needs the extra `cache`). The import paths of Scrapy's "
            "`DummyPolicy` and `RFC2616Policy` also work."
        ),
    ] = "always"
    httpcache_dir: Annotated[
        str,
        Meta(description="Folder of the cache, relative to the working directory. Each spider has a file in it."),
    ] = ".trawl/httpcache"
    httpcache_expiration_secs: Annotated[
        float,
        Meta(
            ge=0,
            title="s",
            description="Age at which a stored response is requested again. 0 means that responses never expire.",
        ),
    ] = 0.0
    httpcache_ignore_http_codes: Annotated[
        tuple[int, ...],
        Meta(description="Status codes of responses that are not stored. Retried ones (RETRY_HTTP_CODES) never are."),
    ] = ()
    httpcache_ignore_schemes: Annotated[
        tuple[str, ...], Meta(description="URL schemes whose responses are not stored.")
    ] = ()
    httpcache_ignore_missing: Annotated[
        bool, Meta(description="Drop requests that are not in the cache, so that nothing is sent.")
    ] = False
    httpcache_gzip: Annotated[bool, Meta(description="Compress bodies on disk.")] = False
    httpcache_always_store: Annotated[
        bool, Meta(description="With `rfc9111`: store every response without `no-store`, to revalidate it later.")
    ] = False
    httpcache_ignore_response_cache_controls: Annotated[
        tuple[str, ...],
        Meta(description="With `rfc9111`: response directives of `Cache-Control` to ignore, for example `no-store`."),
    ] = ()


@asynccontextmanager
async def open_cache(
    settings: CacheSettings,
    *,
    name: str,
    blocking: Blocking,
    now_utc: Callable[[], datetime],
    stats: Stats,
    ignored_statuses: Sequence[int] = (),
    prepare: Prepare | None = None,
    max_body_bytes: int = 0,
) -> AsyncGenerator[Cache | None, None]:
    """Open the cache of a spider, and close it on exit. Yields None if the cache is not enabled.

    Args:
        settings: Settings of the cache.
        name: Name of the spider, which is also the name of the cache's file.
        blocking: Reads and writes the file.
        now_utc: Returns the wall time.
        stats: Statistics of the crawl.
        ignored_statuses: Status codes that are not stored.
        prepare: Adds to a request the headers that the middleware will add later.
        max_body_bytes: Maximum size of a served body; 0 for no limit.

    Raises:
        SettingsError: If ``HTTPCACHE_POLICY`` is unknown, or needs the ``cache`` extra.
        UsageError: If the file can't be opened.
    """
    if not settings.httpcache_enabled:
        yield None
        return
    # Import these modules only for a crawl with a cache, because they need SQLite and the optional package hishel.
    import sqlite3  # noqa: PLC0415

    from trawl.cache.cache import Cache  # noqa: PLC0415
    from trawl.cache.policy import make_policy  # noqa: PLC0415
    from trawl.cache.store import Store  # noqa: PLC0415

    policy = make_policy(settings)
    file = "".join(character if character.isalnum() or character in "-_." else "_" for character in name)
    path = Path(settings.httpcache_dir) / f"{file.lstrip('.') or '_'}.sqlite3"
    try:
        store = await blocking.run(partial(Store, path, compresses=settings.httpcache_gzip))
    except (OSError, sqlite3.Error) as error:
        raise UsageError(f"HTTPCACHE_DIR: the cache {str(path)!r} can't be opened: {error}") from error
    try:
        yield Cache(
            settings,
            policy=policy,
            store=store,
            blocking=blocking,
            now_utc=now_utc,
            stats=stats,
            ignored_statuses=ignored_statuses,
            prepare=prepare,
            max_body_bytes=max_body_bytes,
        )
    finally:
        with trio.move_on_after(CACHE_CLOSE_GRACE, shield=True):
            await blocking.run(store.close)
