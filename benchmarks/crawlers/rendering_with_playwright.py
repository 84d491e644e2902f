"""Renders pages with scrapy-playwright: ``rendering_with_playwright.py URL PAGES CHROMIUM``. Prints a line of JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy_playwright.page import PageMethod

URL, PAGES, CHROMIUM = sys.argv[1], int(sys.argv[2]), sys.argv[3]

HANDLER = "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"


def is_blocked(request: Any) -> bool:
    """Return True for the kinds that trawl does not fetch by default."""
    return request.resource_type in ("image", "media", "font")


SETTINGS = {
    "DOWNLOAD_HANDLERS": {"http": HANDLER, "https": HANDLER},
    "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
    "PLAYWRIGHT_LAUNCH_OPTIONS": {"executable_path": CHROMIUM, "args": ["--no-sandbox"]},
    "PLAYWRIGHT_MAX_PAGES_PER_CONTEXT": 4,
    "PLAYWRIGHT_ABORT_REQUEST": is_blocked,
    "CONCURRENT_REQUESTS": 4,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 4,
    "DOWNLOAD_DELAY": 0,
    "LOG_LEVEL": "WARNING",
    "ROBOTSTXT_OBEY": False,
    "TELNETCONSOLE_ENABLED": False,
}


class Rendered(scrapy.Spider):  # type: ignore[misc]
    """Yields the items of each page."""

    name = "rendered"

    async def start(self) -> AsyncIterator[Any]:
        """Yield the requests."""
        for number in range(PAGES):
            meta = {"playwright": True, "playwright_page_methods": [PageMethod("wait_for_selector", ".item")]}
            yield scrapy.Request(f"{URL}/page/{number}", meta=meta)

    def parse(self, response: Any) -> Iterator[Any]:
        """Yield the number of items."""
        yield {"url": response.url, "items": len(response.css(".item"))}


def main() -> None:
    """Crawl and print the result."""
    found: list[Any] = []

    def keep(item: Any) -> None:
        found.append(item)

    process = CrawlerProcess(SETTINGS)
    crawler = process.create_crawler(Rendered)
    crawler.signals.connect(keep, signal=scrapy.signals.item_scraped, weak=False)
    process.crawl(crawler)
    began = time.perf_counter()
    process.start()
    pages = len({item["url"] for item in found if item["items"] == 10})
    print(json.dumps({"pages": pages, "seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    main()
