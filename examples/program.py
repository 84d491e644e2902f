"""Two spiders in one program: they crawl side by side, and their items come to one place while they run.

::

    python examples/program.py

beside a ``trawl demo`` prints each item as a line of JSON, and at the end how each crawl went. Ctrl-C ends both. They
ask one site, and keep its limits together.
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
    """The quotes that are tagged with love."""

    name = "love"
    start_urls = ["http://127.0.0.1:8765/tag/love/"]

    def parse(self, response: trawl.Response) -> Iterator[dict[str, Any] | trawl.Request]:
        """The quotes of a page, and the next page."""
        for quote in response.css("div.quote"):
            yield {"author": quote.css("small.author::text").get(), "text": quote.css("span.text::text").get()}
        yield from response.follow_all(css="li.next a")


class Books(trawl.Spider):
    """The books of poetry."""

    name = "poetry"
    start_urls = ["http://127.0.0.1:8765/books/shelf/poetry/"]

    def parse(self, response: trawl.Response) -> Iterator[dict[str, Any] | trawl.Request]:
        """The books of a page, and the next page."""
        for book in response.css("article.product_pod"):
            yield {"title": book.css("h3 a::attr(title)").get(), "price": book.css("p.price_color::text").get()}
        yield from response.follow_all(css="li.next a")


async def read(spider: type[trawl.Spider], settings: dict[str, Any], outbox: trio.MemorySendChannel[Any]) -> None:
    """Run a spider, and hand on its items. The crawl waits for whoever takes them."""
    async with outbox, trawl.open_crawl(spider, settings) as crawl:
        async for item in crawl:
            await outbox.send({"spider": spider.name, **item})
    if crawl.result is not None:
        pages = crawl.result.stats.get("response_count", 0)
        print(f"{spider.name}: {crawl.result.reason}, {pages} pages in {crawl.result.elapsed:.0f} s", file=sys.stderr)


async def main(*spiders: type[trawl.Spider], **settings: Any) -> None:
    """Run spiders side by side, and print what they find."""
    outbox, inbox = trio.open_memory_channel[Any](0)
    async with trio.open_nursery() as nursery, inbox:
        async with outbox:  # a clone each: the channel ends with the last of them
            for spider in spiders:
                nursery.start_soon(read, spider, settings, outbox.clone())
        async for item in inbox:
            print(json.dumps(item, ensure_ascii=False))


if __name__ == "__main__":
    trio.run(partial(main, Quotes, Books, DEPTH_LIMIT=3))
