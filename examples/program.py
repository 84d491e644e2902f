"""Two spiders in one program. They crawl at the same time, and one task receives their items while they run.

::

    python examples/program.py

Run ``trawl demo`` first. The program prints each item as a line of JSON, and at the end a summary of each crawl. Ctrl-C
ends both crawls. Both spiders crawl the same site, and share its limits.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import trio

import trawl


class Quotes(trawl.Spider):
    """Reads the quotes with the tag "love"."""

    name = "love"
    start_urls = ["http://127.0.0.1:8765/tag/love/"]

    def parse(self, response: trawl.Response) -> Iterator[dict[str, Any] | trawl.Request]:
        """Yield the quotes of a page, and the request for the next page."""
        for quote in response.css("div.quote"):
            yield {"author": quote.css("small.author::text").get(), "text": quote.css("span.text::text").get()}
        yield from response.follow_all(css="li.next a")


class Books(trawl.Spider):
    """Reads the books of poetry."""

    name = "poetry"
    start_urls = ["http://127.0.0.1:8765/books/shelf/poetry/"]

    def parse(self, response: trawl.Response) -> Iterator[dict[str, Any] | trawl.Request]:
        """Yield the books of a page, and the request for the next page."""
        for book in response.css("article.product_pod"):
            yield {"title": book.css("h3 a::attr(title)").get(), "price": book.css("p.price_color::text").get()}
        yield from response.follow_all(css="li.next a")


async def read(spider: type[trawl.Spider], settings: dict[str, Any], outbox: trio.MemorySendChannel[Any]) -> None:
    """Run a spider, and send its items to a channel. The crawl waits while the channel is full."""
    async with outbox, trawl.open_crawl(spider, settings) as crawl:
        async for item in crawl:
            await outbox.send({"spider": spider.name, **item})
    if crawl.result is not None:
        pages = crawl.result.stats.get("response_count", 0)
        print(f"{spider.name}: {crawl.result.reason}, {pages} pages in {crawl.result.elapsed:.0f} s", file=sys.stderr)


async def main(*spiders: type[trawl.Spider], **settings: Any) -> None:
    """Run spiders at the same time, and print their items."""
    outbox, inbox = trio.open_memory_channel[Any](0)
    async with trio.open_nursery() as nursery, inbox:
        async with outbox:  # each crawl has a clone of the channel, so the channel ends when the last crawl ends
            for spider in spiders:
                nursery.start_soon(read, spider, settings, outbox.clone())
        async for item in inbox:
            print(json.dumps(item, ensure_ascii=False))


if __name__ == "__main__":
    trio.run(partial(main, Quotes, Books, DEPTH_LIMIT=3))
