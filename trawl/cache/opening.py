"""Opens the cache of a spider, if its crawl is to have one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from trawl.blocking import Blocking
from trawl.cache.policy import policy_named
from trawl.cache.settings import CacheSettings
from trawl.errors import UsageError
from trawl.observe import Stats

if TYPE_CHECKING:
    from trawl.cache.cache import Cache, Dress

__all__ = ["open_cache"]

CLOSE_GRACE = 5.0
"""Seconds that closing the file may take."""


@asynccontextmanager
async def open_cache(
    settings: CacheSettings,
    *,
    name: str,
    blocking: Blocking,
    now_utc: Callable[[], datetime],
    stats: Stats,
    unkept: Sequence[int] = (),
    dress: Dress | None = None,
) -> AsyncGenerator[Cache | None, None]:
    """The cache of a spider, open; None where it is not enabled. Leaving closes it.

    Args:
        settings: The settings of the cache.
        name: The spider's: its file is named after it.
        blocking: How the file is read and written.
        now_utc: Wall time.
        stats: Where it counts.
        unkept: Statuses that are not kept.
        dress: Adds to a request what the middleware will add.

    Raises:
        SettingsError: ``HTTPCACHE_POLICY`` names no policy, or one that needs what is not installed.
        UsageError: The file can't be opened.
    """
    if not settings.httpcache_enabled:
        yield None
        return
    # No crawl without a cache reads these, and SQLite.
    from trawl.cache.cache import Cache  # noqa: PLC0415
    from trawl.cache.store import Error, Store  # noqa: PLC0415

    policy = policy_named(settings)
    file = "".join(character if character.isalnum() or character in "-_." else "_" for character in name)
    path = Path(settings.httpcache_dir) / f"{file.lstrip('.') or '_'}.sqlite3"
    try:
        store = await blocking.run(partial(Store, path, compresses=settings.httpcache_gzip))
    except (OSError, Error) as error:
        raise UsageError(f"HTTPCACHE_DIR: the cache {str(path)!r} can't be opened: {error}") from error
    try:
        yield Cache(
            settings,
            policy=policy,
            store=store,
            blocking=blocking,
            now_utc=now_utc,
            stats=stats,
            unkept=unkept,
            dress=dress,
        )
    finally:
        with trio.move_on_after(CLOSE_GRACE, shield=True):
            await blocking.run(store.close)
