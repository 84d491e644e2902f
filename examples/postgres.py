"""Stores books in PostgreSQL, with a pipeline that runs the statements in a thread.

::

    pip install "psycopg[binary]"
    createdb books
    trawl crawl examples/postgres.py -s POSTGRES=postgresql:///books

The spider crawls ``trawl demo``. The table has a row for each book, and the next crawl updates this row. psycopg's
asynchronous API needs asyncio, so it does not work with Trio. This pipeline calls the blocking API in a thread instead,
and the crawl continues in the meantime. If the server needs a password, keep it in ``~/.pgpass``.
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
    """A book and its price in pounds."""

    url: str
    title: str
    price: float


class Postgres:
    """Stores books in a table.

    If the server is unreachable, the item is lost and counted as ``item_error_count``. For the next item, the pipeline
    connects again.
    """

    connection: Any

    def __init__(self, crawl: MiddlewareCrawl) -> None:
        self.crawl = crawl
        self.turn = trio.Lock()  # only one thread at a time may use the connection

    @classmethod
    def from_crawler(cls, crawl: MiddlewareCrawl) -> Self:
        """Return the pipeline of a crawl."""
        return cls(crawl)

    async def open_spider(self) -> None:
        """Connect before the first request. If this fails, the crawl sends no requests."""
        await self.crawl.blocking.run(self.connect)

    def connect(self) -> None:
        """Connect, and create the table. Runs in a thread."""
        import psycopg  # noqa: PLC0415 - so that this file can be loaded without it

        self.connection = psycopg.connect(self.crawl.settings["POSTGRES"], autocommit=True, connect_timeout=10)
        self.connection.execute(TABLE)

    async def process_item(self, item: Book) -> Book:
        """Write a book. The page of the book counts as done only after that."""
        async with self.turn:
            await self.crawl.blocking.run(self.write, item, self.crawl.now_utc().isoformat())
        return item

    def write(self, item: Book, seen: str) -> None:
        """Write one row. Runs in a thread."""
        if self.connection.closed:
            self.connect()
        self.connection.execute(ROW, (item.url, item.title, item.price, seen))

    async def close_spider(self) -> None:
        """Disconnect, even if the crawl was stopped."""
        await self.crawl.blocking.run(self.connection.close)


class PostgresBooks(trawl.Spider[Book]):
    """Reads the lists of books."""

    name = "postgres"
    start_urls = ["http://127.0.0.1:8765/books/"]
    own_settings = {"POSTGRES": "postgresql:///books"}
    custom_settings = {"ITEM_PIPELINES": {Postgres: 300}}

    def parse(self, response: trawl.Response) -> Iterator[Book | trawl.Request]:
        """Yield the books of a list, and the request for the next list."""
        for book in response.css("article.product_pod"):
            link, price = book.css("h3 a"), book.css("p.price_color::text").get("")
            yield Book(response.urljoin(link.attrib["href"]), link.attrib["title"], float(price.lstrip("£")))
        yield from response.follow_all(css="li.next a")
