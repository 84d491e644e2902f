"""``python -m scrapy_as_before``: Scrapy's command, which calls ``start_requests()`` as Scrapy did until 2.18.

Most projects were written for these versions, and trawl calls the method too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from scrapy import Request, Spider
from scrapy.cmdline import execute


def start_requests(self: Spider) -> Iterable[Any]:
    for url in self.start_urls:
        yield Request(url, dont_filter=True)


async def start(self: Spider) -> AsyncIterator[Any]:
    for each in self.start_requests():
        yield each


Spider.start_requests = start_requests
Spider.start = start

if __name__ == "__main__":
    execute()
