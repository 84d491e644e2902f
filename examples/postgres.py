"""Books in PostgreSQL: a pipeline with a database server, whose statements are run in a thread.

::

    pip install "psycopg[binary]"
    createdb books
    trawl crawl examples/postgres.py -s POSTGRES=postgresql:///books

The site is that of ``trawl demo``. There is a row for each book; the next crawl updates it. psycopg's asynchronous half
is for asyncio, which Trio is not, so its other half is called in a thread: the rest of the crawl goes on meanwhile.
Keep a password in ``~/.pgpass``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import trio

import trawl
from trawl.middleware import MiddlewareCrawl

TABLE = """CREATE TABLE IF NOT EXISTS books (
    url TEXT PRIMARY KEY, title TEXT NOT NULL, price NUMERIC NOT NULL, seen TIMESTAMPTZ NOT NULL)"""
ROW = """INSERT INTO books (url, title, price, seen) VALUES (%s, %s, %s, %s)
    ON CONFLICT (url) DO UPDATE SET title = excluded.title, price = excluded.price, seen = excluded.seen"""


@dataclass(frozen=True)
class Book:
    """A book, and what it costs in pounds."""

    url: str
    title: str
    price: float


class Postgres:
    """Keeps books in a table.

    An item that meets a server which is gone is lost, and counted as ``item_error_count``; the next one connects again.
    """

    connection: Any

    def __init__(self, crawl: MiddlewareCrawl) -> None:
        self.crawl = crawl
        self.turn = trio.Lock()  # items of several pages come at once; a connection serves one thread at a time

    @classmethod
    def from_crawler(cls, crawl: MiddlewareCrawl) -> Self:
        """The pipeline of one crawl."""
        return cls(crawl)

    async def open_spider(self) -> None:
        """Connect before the first request: without a database nothing is sent."""
        await self.crawl.blocking.run(self.connect)

    def connect(self) -> None:
        """Connect, and make the table. In a thread."""
        import psycopg  # noqa: PLC0415 - so that all else of this file can be read without it

        self.connection = psycopg.connect(self.crawl.settings["POSTGRES"], autocommit=True, connect_timeout=10)
        self.connection.execute(TABLE)

    async def process_item(self, item: Book) -> Book:
        """Write a book; the page is done when it is written."""
        async with self.turn:
            await self.crawl.blocking.run(self.write, item, self.crawl.now_utc().isoformat())
        return item

    def write(self, item: Book, seen: str) -> None:
        """Write one row. In a thread."""
        if self.connection.closed:
            self.connect()
        self.connection.execute(ROW, (item.url, item.title, item.price, seen))

    async def close_spider(self) -> None:
        """Disconnect, also when the crawl was stopped."""
        await self.crawl.blocking.run(self.connection.close)


class PostgresBooks(trawl.Spider[Book]):
    """Reads the lists of books."""

    name = "postgres"
    start_urls = ["http://127.0.0.1:8765/books/"]
    own_settings = {"POSTGRES": "postgresql:///books"}
    custom_settings = {"ITEM_PIPELINES": {Postgres: 300}}

    def parse(self, response: trawl.Response) -> Iterator[Book | trawl.Request]:
        """The books of a list, and the next list."""
        for book in response.css("article.product_pod"):
            link, price = book.css("h3 a"), book.css("p.price_color::text").get("")
            yield Book(response.urljoin(link.attrib["href"]), link.attrib["title"], float(price.lstrip("£")))
        yield from response.follow_all(css="li.next a")
