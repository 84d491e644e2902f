"""A spider that gets URLs from a queue while it runs. Here the queue is a table in SQLite.

::

    trawl crawl examples/fed.py -s ALLOW_PRIVATE_ADDRESSES=true
    sqlite3 queue.sqlite "INSERT INTO queue (url) VALUES ('http://127.0.0.1:8765/')"

The first command waits for URLs until it is stopped. Its setting also allows URLs of ``trawl demo`` on this machine.
The second command, in another terminal, adds a URL. The crawl writes the result to the row of the URL. A row has no
result if the crawl was killed or if robots.txt disallows the URL. The next crawl requests the URLs of these rows again.
Run only one crawl per queue, because two crawls would request the same URLs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing

import trio

import trawl
from trawl.exceptions import DownloadError

TABLE = """CREATE TABLE IF NOT EXISTS queue (
    number INTEGER PRIMARY KEY, url TEXT NOT NULL, taken INTEGER DEFAULT 0, status INTEGER, title TEXT, error TEXT)"""
TAKE = """UPDATE queue SET taken = 1
    WHERE number IN (SELECT number FROM queue WHERE NOT taken ORDER BY number LIMIT 100) RETURNING number, url"""
ANSWER = "UPDATE queue SET status = ?, title = ?, error = ? WHERE number = ?"
AGAIN = "UPDATE queue SET taken = 0 WHERE status IS NULL AND error IS NULL"


class Fed(trawl.Spider):
    """Requests the URLs in the queue, and writes the results to the queue."""

    name = "fed"
    custom_settings = {"ALLOW_PRIVATE_ADDRESSES": False}  # URLs in the queue must not lead to the local network
    own_settings = {"QUEUE": "queue.sqlite", "QUEUE_SECONDS": 5.0}

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        """Yield requests for the URLs in the queue, forever. trawl reads another one only when it can send requests."""
        await self.ask(TABLE)
        await self.ask(AGAIN)
        while True:
            for number, url in await self.ask(TAKE):
                try:
                    yield trawl.Request(url, errback=self.failed, cb_kwargs={"number": number}, dont_filter=True)
                except ValueError as error:
                    await self.ask(ANSWER, None, None, str(error), number)
            await trio.sleep(self.settings["QUEUE_SECONDS"])

    async def parse(self, response: trawl.Response, number: int) -> None:
        """Write the result of a page."""
        await self.ask(ANSWER, response.status, response.css("title::text").get(), None, number)

    async def failed(self, error: trawl.HttpError | DownloadError) -> None:
        """Write the error. Either the status code is an error, or there was no response."""
        status = error.response.status if isinstance(error, trawl.HttpError) else None
        await self.ask(ANSWER, status, None, str(error), error.request.cb_kwargs["number"])

    async def ask(self, statement: str, *values: object) -> list[tuple[int, str]]:
        """Run a statement in a thread, because SQLite blocks, and return its rows."""
        return await self.crawl.blocking.run(self.ask_now, statement, values)

    def ask_now(self, statement: str, values: tuple[object, ...]) -> list[tuple[int, str]]:
        """Run a statement, and return its rows. Called in a thread."""
        with closing(sqlite3.connect(self.settings["QUEUE"])) as connection, connection:
            return connection.execute(statement, values).fetchall()
