"""``crawl_with`` for tests: an exception of a watcher ends the crawl and is raised, so that its assertions count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from trawl._run import CrawlResult
from trawl._run import crawl_with as crawl_with_contained_watchers
from trawl.engine import Crawl, Watcher
from trawl.settings import Settings
from trawl.spiders import Spider

__all__ = ["crawl_with"]


async def crawl_with(
    spider: type[Spider[Any]], settings: Settings, *, watchers: Sequence[Watcher] = (), **options: Any
) -> CrawlResult:
    """Crawl with the arguments of :func:`trawl._run.crawl_with`, and raise the first exception of a watcher."""
    failures: list[BaseException] = []

    def raising(watcher: Watcher) -> Watcher:
        async def watch(crawl: Crawl) -> None:
            try:
                await watcher(crawl)
            except (Exception, pytest.fail.Exception) as error:
                failures.append(error)
                crawl.cancel()

        return watch

    result = await crawl_with_contained_watchers(
        spider, settings, watchers=[raising(watcher) for watcher in watchers], **options
    )
    if failures:
        raise failures[0]
    return result
