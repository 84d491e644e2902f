"""Draws the pictures of the first page and of the README: ``python -m docs._ext.first_page``.

``docs/panel.svg`` shows the live panel of the README's crawl, ``docs/limit.svg`` a crawl that finds a server's limit.
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
from trawl.cli.view import panel
from trawl.testing import DemoSite, RateLimit, SimulatedWeb, simulate
from trawl.testing.demo import ROBOTS

__all__ = ["PICTURES", "limit_picture", "panel_picture"]

FOLDER = Path(__file__).parents[1]
COLUMNS = 64
SHOWN_AT = 5.0
"""Seconds after the start of the crawl at which the panel is drawn."""
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.S)
"""Font declarations, for which the browser would load fonts from another site."""
LIMITED_HOST = "limited.example"


def readme_spider() -> type[trawl.Spider[Any]]:
    """Return the spider of the README."""
    text = (FOLDER.parent / "README.md").read_text("utf-8")
    namespace: dict[str, Any] = {"__name__": "quotes"}
    exec(text.partition("```python\n")[2].partition("```")[0], namespace)
    spider: type[trawl.Spider[Any]] = namespace["Quotes"]
    return spider


class Records(trawl.Spider[Any]):
    """Requests 400 pages as fast as the limits allow."""

    name = "records"
    start_urls = tuple(f"https://{LIMITED_HOST}/{number}" for number in range(400))

    def parse(self, response: trawl.Response) -> Iterator[Any]:
        """Yield the URL."""
        yield {"url": response.url}


def panel_picture() -> str:
    """Return a picture of the panel while the README's spider crawls the demo site."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)

    async def watch(crawl: Any) -> None:
        crawl.status()  # the rates count from the first status
        await trio.sleep_until(crawl.started_at + SHOWN_AT)
        console.print(panel(crawl.status()))

    web, site = SimulatedWeb(), DemoSite()
    web.add_host(site.host, handler=site, robots=ROBOTS, latency=0.1)
    simulate(readme_spider(), web, {"WATCHERS": {watch: 0}})
    picture = console.export_svg(title="trawl crawl quotes.py -O quotes.jsonl", unique_id="panel")
    return FONTS.sub("", picture)


def limit_picture() -> str:
    """Return a picture of a crawl that finds the limit of its server."""
    web = SimulatedWeb()
    web.add_host(LIMITED_HOST, latency=0.2, connect=0.1, limit=RateLimit(rate=4.0, burst=5.0))
    sim = simulate(Records, web, {"THROTTLING_SCOPES": {LIMITED_HOST: {"rampup": True}}})
    return sim.plot(title="A simulated crawl. The server allows 4 requests per second", width=600.0, height=64.0)


PICTURES: dict[str, Callable[[], str]] = {"panel.svg": panel_picture, "limit.svg": limit_picture}
"""The function that draws each file, by the file's name in ``docs``."""


if __name__ == "__main__":
    for file, drawn in PICTURES.items():
        (FOLDER / file).write_text(drawn(), "utf-8")
