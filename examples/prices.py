"""Stores the prices of ``trawl demo``'s books in SQLite, and finds changes between crawls.

::

    trawl crawl examples/prices.py
    trawl crawl examples/prices.py -s DATABASE=shop.sqlite -O changed.csv

The database has a row for each price that a book has had. The pipeline drops items whose price is already stored, so
the feed of the second crawl contains only changes since the first crawl.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import trio

import trawl
from trawl.middleware import MiddlewareCrawl

TABLE = "CREATE TABLE IF NOT EXISTS prices (url TEXT, title TEXT, price REAL, since TEXT, PRIMARY KEY (url, since))"


@dataclass(frozen=True)
class Price:
    """The price of a book, in pounds."""

    url: str
    title: str
    price: float


class Database:
    """Stores prices. SQLite blocks, so each statement runs in a thread, one at a time."""

    def __init__(self, crawl: MiddlewareCrawl) -> None:
        self.crawl = crawl
        self.turn = trio.Lock()  # only one thread at a time may run a transaction

    @classmethod
    def from_crawler(cls, crawl: MiddlewareCrawl) -> Self:
        """Return the pipeline of a crawl."""
        return cls(crawl)

    async def open_spider(self) -> None:
        """Open the database before the first request."""
        await self.crawl.blocking.run(self.connect)

    def connect(self) -> None:
        """Open the database, so that any thread may use the connection. Runs in a thread."""
        self.connection = sqlite3.connect(self.crawl.settings["DATABASE"], check_same_thread=False)
        self.connection.execute(TABLE)

    async def process_item(self, item: Price) -> Price:
        """Store a new price. Drop a known price."""
        async with self.turn:
            if not await self.crawl.blocking.run(self.keep, item, self.crawl.now_utc().isoformat()):
                raise trawl.DropItem(f"{item.title} still costs {item.price}", log_level="DEBUG")
        return item

    def keep(self, item: Price, since: str) -> bool:
        """Store a price if it is new. Returns True if it is new. Runs in a thread."""
        last = "SELECT price FROM prices WHERE url = ? ORDER BY since DESC LIMIT 1"
        with self.connection:  # the block is a transaction
            if self.connection.execute(last, (item.url,)).fetchone() == (item.price,):
                return False
            row = (item.url, item.title, item.price, since)
            self.connection.execute("INSERT INTO prices VALUES (?, ?, ?, ?)", row)
        return True

    async def close_spider(self) -> None:
        """Close the database, even if the crawl was stopped."""
        await self.crawl.blocking.run(self.connection.close)


class Prices(trawl.Spider[Price]):
    """Reads the lists of books. The pages of the books are not needed."""

    name = "prices"
    start_urls = ["http://127.0.0.1:8765/books/"]
    own_settings = {"DATABASE": "prices.sqlite"}
    custom_settings = {"ITEM_PIPELINES": {Database: 300}}

    def parse(self, response: trawl.Response) -> Iterator[Price | trawl.Request]:
        """Yield the books of a list, and the request for the next list."""
        for book in response.css("article.product_pod"):
            link = book.css("h3 a")
            price = book.css("p.price_color::text").get("").lstrip("£")
            yield Price(response.urljoin(link.attrib["href"]), link.attrib["title"], float(price))
        yield from response.follow_all(css="li.next a")
