"""Crawls the linked pages with Scrapy: ``with_scrapy.py URL FEED``. Prints one line of JSON."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess

SETTINGS = {
    "CONCURRENT_REQUESTS": 64,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 64,
    "DOWNLOAD_DELAY": 0,
    "LOG_LEVEL": "WARNING",
    "ROBOTSTXT_OBEY": False,
    "TELNETCONSOLE_ENABLED": False,
}


class Pages(scrapy.Spider):  # type: ignore[misc]
    """Yields each page's title, and follows every link."""

    name = "pages"

    def parse(self, response: Any) -> Iterator[Any]:
        """Yield the title, and requests for the links."""
        yield {"url": response.url, "title": response.css("title::text").get()}
        yield from response.follow_all(css="a")


def main() -> None:
    """Crawl and print the result."""
    url, feed = sys.argv[1:3]
    process = CrawlerProcess({**SETTINGS, "FEEDS": {feed: {"format": "jsonlines", "overwrite": True}}})
    crawler = process.create_crawler(Pages)
    process.crawl(crawler, start_urls=[url])
    began, began_own = time.perf_counter(), time.process_time()
    process.start()
    told = {
        "pages": crawler.stats.get_value("response_received_count"),
        "seconds": time.perf_counter() - began,
        "own": time.process_time() - began_own,
        "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
