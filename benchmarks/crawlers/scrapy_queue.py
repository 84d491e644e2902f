"""Measures a push and a pop in Scrapy's scheduler: ``scrapy_queue.py DOMAINS``. Prints one line of JSON."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from typing import Any

import scrapy
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import AsyncCrawlerProcess

REQUESTS = 50_000
POPS = 2_000
"""With many domains, a pop takes more than a millisecond."""

TOLD: dict[str, float] = {}


class Idle(scrapy.Spider):  # type: ignore[misc]
    """Sends no requests. The benchmark calls the scheduler directly, with the downloader of a real crawl."""

    name = "idle"
    domains = 0

    async def start(self) -> Any:
        """Measure, and yield no requests."""
        await asyncio.sleep(0)
        scheduler = Scheduler.from_crawler(self.crawler)
        scheduler.open(self)
        requests = [
            scrapy.Request(f"http://host-{number % self.domains}.example/page/{number}") for number in range(REQUESTS)
        ]
        gc.collect()
        gc.freeze()
        began = time.process_time()
        for request in requests:
            scheduler.enqueue_request(request)
        pushed = time.process_time()
        for _ in range(POPS):
            scheduler.next_request()
        ended = time.process_time()
        TOLD["push"] = (pushed - began) / REQUESTS * 1e6
        TOLD["pop"] = (ended - pushed) / POPS * 1e6
        for request in ():
            yield request


def main() -> None:
    """Measure and print the result."""
    process = AsyncCrawlerProcess({"LOG_LEVEL": "ERROR", "TELNETCONSOLE_ENABLED": False})
    process.crawl(Idle, domains=int(sys.argv[1]))
    process.start()
    print(json.dumps(TOLD))


if __name__ == "__main__":
    main()
