"""Writes metrics of a running crawl for Prometheus, to a file for the textfile collector of node_exporter.

::

    trawl crawl examples/metrics.py -O quotes.jsonl -s METRICS_FILE=trawl.prom

The spider crawls ``trawl demo``. node_exporter reads all files in its ``--collector.textfile.directory``. Most counts
come from the statistics of the crawl. The number of times that a site asked the crawl to slow down comes from events.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import trio

import trawl
from trawl.engine import Crawl
from trawl.events import ScopeBackedOff


class Metrics:
    """Writes the file every ``METRICS_SECONDS``, and again at the end."""

    def __init__(self) -> None:
        self.refusals: Counter[str] = Counter()

    async def watch(self, crawl: Crawl) -> None:
        """Write the file until the crawl ends. If this fails, trawl logs the error, and the crawl continues."""
        with crawl.events(ScopeBackedOff) as events:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.write_now_and_then, crawl)
                async for event in events:
                    self.refusals[event.scope] += 1
                nursery.cancel_scope.cancel()  # stop writing, because the crawl has ended
            await self.write(crawl)

    async def write_now_and_then(self, crawl: Crawl) -> None:
        """Write the file until cancelled."""
        while True:
            await self.write(crawl)
            await trio.sleep(crawl.settings["METRICS_SECONDS"])

    async def write(self, crawl: Crawl) -> None:
        """Replace the file with a new one."""
        text = "".join(f"{line}\n" for line in self.lines(crawl))
        await crawl.blocking.run(replace, Path(crawl.settings["METRICS_FILE"]), text)

    def lines(self, crawl: Crawl) -> Iterator[str]:
        """Yield the current values in Prometheus's text format."""
        yield f"trawl_queued {crawl.queued}"
        yield f"trawl_in_flight {crawl.in_flight}"
        yield f"trawl_items_total {crawl.stats.count('item_scraped_count')}"
        for status, count in crawl.stats.starting("response_status_count/").items():
            yield f'trawl_responses_total{{status="{status}"}} {count}'
        for scope, count in sorted(self.refusals.items()):
            yield f'trawl_backoffs_total{{scope="{scope}"}} {count}'


def replace(path: Path, text: str) -> None:
    """Write a file in one step, so that other programs never read an incomplete file."""
    fresh = path.with_suffix(".part")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, path)


class Watched(trawl.Spider):
    """Reads quotes."""

    name = "watched"
    start_urls = ["http://127.0.0.1:8765/"]
    own_settings = {"METRICS_FILE": "trawl.prom", "METRICS_SECONDS": 15.0}
    custom_settings = {"WATCHERS": {Metrics: 0}}

    def parse(self, response: trawl.Response) -> Iterator[dict[str, str | None] | trawl.Request]:
        """Yield the quotes of a page, and the request for the next page."""
        for quote in response.css("div.quote"):
            yield {"text": quote.css("span.text::text").get(), "author": quote.css("small.author::text").get()}
        yield from response.follow_all(css="li.next a")
