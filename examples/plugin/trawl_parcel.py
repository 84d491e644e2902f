"""A package that extends trawl with a middleware, a feed format, a frontier, a watcher and a command."""

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
    """Wrap ``fetch`` to add a header to each request. A middleware."""

    async def send(request: Request) -> Outcome:
        request.headers["X-Parcel"] = "1"
        return await fetch(request)

    return send


@attrs.frozen(kw_only=True)
class UrlLines(JsonLines):
    """A feed format with the URL of each item, one per line."""

    name = "urls"

    def record(self, row: Mapping[str, object]) -> bytes:
        """Return the line for an item."""
        return f"{row.get('url', '')}\n".encode()


def url_lines(options: FeedOptions) -> UrlLines:
    """Return the format of one feed."""
    return UrlLines()


class CountingFrontier(MemoryFrontier):
    """A frontier that counts the stored requests."""

    pushed = 0

    async def push_many(self, records: Sequence[Record]) -> PushResult:
        """Store the records."""
        self.pushed += len(records)
        return await super().push_many(records)


def counting_frontier(settings: Mapping[str, Any]) -> CountingFrontier:
    """Return a frontier for one crawl."""
    return CountingFrontier(depth_first=settings["DEPTH_FIRST"])


async def tally(crawl: Crawl) -> None:
    """Count items by the status code of their page in the statistics. A watcher."""
    with crawl.events(ItemScraped) as events:
        async for event in events:
            if event.response is not None:
                crawl.stats.inc(f"parcel/{event.response.status}")


app: typer.Typer = typer.Typer(help="Say what is in the parcel.")


@app.command()
def parcel(name: str = "you") -> None:
    """Print the content of the parcel."""
    print(f"a middleware, a format, a frontier, a watcher and a word, for {name}")
