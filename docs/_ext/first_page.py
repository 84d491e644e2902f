"""Draws ``docs/panel.svg``, the live panel in a simulated crawl: ``python -m docs._ext.panel_picture``."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trio
from rich.console import Console

import trawl
from trawl.cli.view import panel, progress_of
from trawl.observe import speed_between
from trawl.testing import Outage, SimulatedWeb, simulate
from trawl.testing.demo import DEMO_HOST, ROBOTS, DemoSite

__all__ = ["PICTURE", "drawn"]

PICTURE = Path(__file__).parents[1] / "panel.svg"
SHOWN_AT = 12.0  # seconds after the crawl began
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.S)
"""What rich would have a browser fetch from another site."""
OUTAGE = Outage(10.0, 14.0, status=503)


class Quotes(trawl.Spider[Any]):
    """The README's spider, with the links to authors."""

    name = "quotes"
    start_urls = (f"http://{DEMO_HOST}/",)

    def parse(self, response: trawl.Response) -> Iterator[Any]:
        """Give the quotes of a page, and where to go from it."""
        for quote in response.css("div.quote"):
            yield {"text": quote.css("span.text::text").get()}
        yield from response.follow_all(css="small.author + a, li.next a")


def drawn() -> str:
    """Return the picture."""
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True)

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


if __name__ == "__main__":
    PICTURE.write_text(drawn(), "utf-8")
