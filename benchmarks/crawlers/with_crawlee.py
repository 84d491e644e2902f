"""Crawls the linked pages with Crawlee for Python: ``with_crawlee.py URL FEED``. Prints one line of JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import sys
import time
from datetime import timedelta
from typing import Any

from crawlee import ConcurrencySettings
from crawlee.configuration import Configuration
from crawlee.crawlers import ParselCrawler
from crawlee.storage_clients import MemoryStorageClient

FEED_AT_ONCE = 250_000
"""Number of items read from the dataset at once."""


async def crawled(url: str, feed: str) -> dict[str, Any]:
    """Crawl with storage in memory, which is the fastest storage. Returns the duration."""
    crawler = ParselCrawler(
        concurrency_settings=ConcurrencySettings(min_concurrency=64, max_concurrency=64, desired_concurrency=64),
        configuration=Configuration(log_level="WARNING", purge_on_start=True),
        storage_client=MemoryStorageClient(),
        request_handler_timeout=timedelta(seconds=60),
        configure_logging=False,
    )

    @crawler.router.default_handler  # type: ignore[untyped-decorator]
    async def parse(context: Any) -> None:
        await context.push_data({"url": context.request.url, "title": context.selector.css("title::text").get()})
        await context.enqueue_links()

    began, began_own = time.perf_counter(), time.process_time()
    statistics = await crawler.run([url])
    items = (await crawler.get_data(limit=FEED_AT_ONCE)).items
    with open(feed, "w", encoding="utf-8") as file:  # noqa: ASYNC230 - nothing else runs now
        file.writelines(json.dumps(item) + "\n" for item in items)  # noqa: ASYNC232
    return {
        "pages": statistics.requests_finished,
        "seconds": time.perf_counter() - began,
        "own": time.process_time() - began_own,
        "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    print(json.dumps(asyncio.run(crawled(*sys.argv[1:3]))))
