"""Draws the pictures of the first page and of the README: ``python -m docs._ext.first_page``.

``docs/panel.svg`` is the live panel of a simulated crawl, ``docs/limit.svg`` a crawl that has to find a limit. Both are
narrow: they stand beside a column of text.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import trio
from rich.console import Console

import trawl
from trawl.cli.view import panel, progress_of
from trawl.observe import speed_between
from trawl.testing import Outage, RateLimit, SimulatedWeb, simulate
from trawl.testing.demo import DEMO_HOST, ROBOTS, DemoSite

__all__ = ["PICTURES", "limit_picture", "panel_picture"]

FOLDER = Path(__file__).parents[1]
COLUMNS = 64
SHOWN_AT = 32.0  # seconds after the crawl began
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.S)
"""What rich would have a browser fetch from another site."""
OUTAGE = Outage(30.0, 34.0, status=503)
LIMITED_HOST = "limited.example"


class Quotes(trawl.Spider[Any]):
    """The README's spider, with the pages of authors."""

    name = "quotes"
    start_urls = (f"http://{DEMO_HOST}/",)

    def parse(self, response: trawl.Response) -> Iterator[Any]:
        """Give the quotes of a page or its author, and where to go from it."""
        for text in response.css("span.text::text, h3.author-title::text").getall():
            yield {"text": text}
        yield from response.follow_all(css="small.author + a, li.next a")


class Records(trawl.Spider[Any]):
    """Asks for as many pages as it is let."""

    name = "records"
    start_urls = tuple(f"https://{LIMITED_HOST}/{number}" for number in range(400))

    def parse(self, response: trawl.Response) -> Iterator[Any]:
        """Give the URL."""
        yield {"url": response.url}


def panel_picture() -> str:
    """Return the picture of the panel, with what a request waits for."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)

    async def watch(crawl: Any) -> None:
        await trio.sleep_until(crawl.started_at + SHOWN_AT - 5)
        before = progress_of(crawl)
        await trio.sleep_until(crawl.started_at + SHOWN_AT)
        now = progress_of(crawl)
        console.print(panel("quotes", now, speed_between(before, now)))

    web = SimulatedWeb()
    web.add_host(DEMO_HOST, handler=DemoSite(trio.current_time), robots=ROBOTS, latency=0.2, outages=[OUTAGE])
    simulate(Quotes, web, {"WATCHERS": {watch: 0}})
    picture = console.export_svg(title="trawl crawl quotes.py -O quotes.jsonl", unique_id="panel")
    return FONTS.sub("", picture)


def limit_picture() -> str:
    """Return the picture of a crawl that was told nothing of its server's limit, and finds it."""
    web = SimulatedWeb()
    web.add_host(LIMITED_HOST, latency=0.2, connect=0.1, limit=RateLimit(rate=4.0, burst=5.0))
    sim = simulate(Records, web, {"THROTTLING_SCOPES": {LIMITED_HOST: {"rampup": True}}})
    return sim.plot(title="A simulated crawl that was not told the limit", width=600.0, height=64.0)


PICTURES: dict[str, Callable[[], str]] = {"panel.svg": panel_picture, "limit.svg": limit_picture}
"""What draws each file, by its name in ``docs``."""


if __name__ == "__main__":
    for file, drawn in PICTURES.items():
        (FOLDER / file).write_text(drawn(), "utf-8")
