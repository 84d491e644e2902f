"""How a crawl is doing, for Prometheus: a watcher that writes a file which node_exporter's textfile collector reads.

::

    trawl crawl examples/metrics.py -O quotes.jsonl -s METRICS_FILE=trawl.prom

The site is that of ``trawl demo``; node_exporter reads the folder of its ``--collector.textfile.directory``. Counts
come from the statistics. Events tell what happens when it happens: here, that a site wants us to be slower.
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
    """Writes the file each ``METRICS_SECONDS``, and once more at the end."""

    def __init__(self) -> None:
        self.refusals: Counter[str] = Counter()

    async def watch(self, crawl: Crawl) -> None:
        """Run beside the crawl; what fails here is logged, and the crawl goes on."""
        with crawl.events(ScopeBackedOff) as events:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.write_now_and_then, crawl)
                async for event in events:
                    self.refusals[event.scope] += 1
                nursery.cancel_scope.cancel()  # the crawl is over
            await self.write(crawl)

    async def write_now_and_then(self, crawl: Crawl) -> None:
        """Write the file until cancelled."""
        while True:
            await self.write(crawl)
            await trio.sleep(crawl.settings["METRICS_SECONDS"])

    async def write(self, crawl: Crawl) -> None:
        """Put a whole new file in the place of the old one."""
        text = "".join(f"{line}\n" for line in self.lines(crawl))
        await crawl.blocking.run(replace, Path(crawl.settings["METRICS_FILE"]), text)

    def lines(self, crawl: Crawl) -> Iterator[str]:
        """The figures as they are now, in Prometheus's text format."""
        yield f"trawl_queued {crawl.queued}"
        yield f"trawl_in_flight {crawl.in_flight}"
        yield f"trawl_items_total {crawl.stats.count('item_scraped_count')}"
        for status, count in crawl.stats.starting("response_status_count/").items():
            yield f'trawl_responses_total{{status="{status}"}} {count}'
        for scope, count in sorted(self.refusals.items()):
            yield f'trawl_backoffs_total{{scope="{scope}"}} {count}'


def replace(path: Path, text: str) -> None:
    """Write a file so that who reads it never meets half of it."""
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
        """The quotes of a page, and the next page."""
        for quote in response.css("div.quote"):
            yield {"text": quote.css("span.text::text").get(), "author": quote.css("small.author::text").get()}
        yield from response.follow_all(css="li.next a")
