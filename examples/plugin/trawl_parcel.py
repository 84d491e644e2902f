"""A package of its own that adds to trawl: a middleware, a feed's format, a frontier, a watcher and a word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import typer

from trawl.engine import Crawl
from trawl.events import ItemScraped
from trawl.feeds import FeedOptions
from trawl.feeds.formats import JsonLines
from trawl.frontier import MemoryFrontier, PushResult, Record
from trawl.http import Fetch, Outcome, Request


def stamped(fetch: Fetch) -> Fetch:
    """Middleware: says in each request that this package is there."""

    async def send(request: Request) -> Outcome:
        request.headers["X-Parcel"] = "1"
        return await fetch(request)

    return send


@attrs.frozen(kw_only=True)
class UrlLines(JsonLines):
    """A feed's format: the URL of each item, and nothing else, a line each."""

    name = "urls"

    def record(self, row: Mapping[str, object]) -> bytes:
        """The item's line."""
        return f"{row.get('url', '')}\n".encode()


def url_lines(options: FeedOptions) -> UrlLines:
    """The format of one feed."""
    return UrlLines()


class CountingFrontier(MemoryFrontier):
    """A frontier that counts what it is given."""

    pushed = 0

    async def push_many(self, records: Sequence[Record]) -> PushResult:
        """Store them."""
        self.pushed += len(records)
        return await super().push_many(records)


def counting_frontier(settings: Mapping[str, Any]) -> CountingFrontier:
    """A frontier for one crawl."""
    return CountingFrontier(depth_first=settings["DEPTH_FIRST"])


async def tally(crawl: Crawl) -> None:
    """Watcher: counts items by their page's status, in the statistics."""
    with crawl.events(ItemScraped) as events:
        async for event in events:
            if event.response is not None:
                crawl.stats.inc(f"parcel/{event.response.status}")


app: typer.Typer = typer.Typer(help="Say what is in the parcel.")


@app.command()
def parcel(name: str = "you") -> None:
    """Say what is in the parcel."""
    print(f"a middleware, a format, a frontier, a watcher and a word, for {name}")
