"""Progress as a line of the log, once a minute, where there is no live panel."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from trawl.cli.view import CrawlView, progress_of
from trawl.observe import pace, progress_line

__all__ = ["log_watcher"]

logger: logging.Logger = logging.getLogger("trawl.progress")


def log_watcher(interval: float) -> Callable[[CrawlView], Awaitable[None]]:
    """A watcher that logs a line every ``interval`` seconds of the run clock, until it is cancelled."""

    async def watch(crawl: CrawlView) -> None:
        earlier = progress_of(crawl)
        while True:
            await trio.sleep(interval)
            now = progress_of(crawl)
            logger.info("%s", progress_line(now, pace(earlier, now)))
            earlier = now

    return watch
