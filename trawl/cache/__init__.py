"""HTTP cache on disk. It serves stored responses (by RFC 9111, or always) before the throttle is involved.

The cache itself is in :mod:`trawl.cache.cache`, which only a crawl with a cache imports.
"""

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

CACHE_CLOSE_GRACE = 5.0  # maximum seconds for closing the file


class CacheSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """The settings of the HTTP cache.

    Attributes:
        httpcache_enabled: Store responses on disk, and serve requests from there as HTTPCACHE_POLICY allows.
        httpcache_policy: ``always``: responses never expire, which is useful while you write a spider. ``rfc9111``: as
            in a browser, with ages and revalidation (needs the extra ``cache``). The import paths of Scrapy's
            ``DummyPolicy`` and ``RFC2616Policy`` also work.
        httpcache_dir: Folder of the cache, relative to the working directory. Each spider has a file in it.
        httpcache_expiration_secs: Age at which a stored response is requested again. 0 means that responses never
            expire.
        httpcache_ignore_http_codes: Status codes of responses that are not stored. Retried ones (RETRY_HTTP_CODES)
            never are.
        httpcache_ignore_schemes: URL schemes whose responses are not stored.
        httpcache_ignore_missing: Drop requests that are not in the cache, so that nothing is sent.
        httpcache_gzip: Compress bodies on disk.
        httpcache_always_store: With ``rfc9111``: store every response without ``no-store``, to revalidate it later.
        httpcache_ignore_response_cache_controls: With ``rfc9111``: response directives of ``Cache-Control`` to ignore,
            for example ``no-store``.
    """

    httpcache_enabled: bool = False
    httpcache_policy: str = "always"
    httpcache_dir: str = ".trawl/httpcache"
    httpcache_expiration_secs: Annotated[float, Meta(ge=0, title="s")] = 0.0
    httpcache_ignore_http_codes: tuple[int, ...] = ()
    httpcache_ignore_schemes: tuple[str, ...] = ()
    httpcache_ignore_missing: bool = False
    httpcache_gzip: bool = False
    httpcache_always_store: bool = False
    httpcache_ignore_response_cache_controls: tuple[str, ...] = ()


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
