"""Renders a page that loads more quotes while you scroll, and reads the quotes from the rendered page.

::

    trawl crawl examples/rendered.py -O quotes.jsonl
    trawl crawl examples/rendered.py -O quotes.jsonl -a pages=3

The page is http://127.0.0.1:8765/scroll of ``trawl demo``. Chromium is needed: ``trawl version --browser`` says how to
get it. ``scroll.py`` reads the same quotes from the API behind the page, which is faster. Prefer that whenever a page
has an API: ``trawl fetch http://127.0.0.1:8765/scroll --browser --requests`` shows it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TypedDict

import trawl
from trawl.browser import BrowserPage


class Quote(TypedDict):
    """A quote."""

    text: str
    author: str


class Rendered(trawl.Spider[Quote]):
    """Scrolls to the end of the page before it reads the quotes."""

    name = "rendered"
    url = "http://127.0.0.1:8765/scroll"
    custom_settings = {"BROWSER_TIMEOUT": 60.0}

    pages = "0"
    """``-a pages=NUMBER``: how often to scroll at most, as a string; 0 until nothing more is loaded."""

    async def start(self) -> AsyncIterator[trawl.Request]:
        """Request the page. It is ready when it has a quote."""
        yield trawl.Request(self.url, meta={"browser": trawl.Page(wait_for=".quote", run="scroll")})

    async def scroll(self, page: BrowserPage) -> None:
        """Scroll until the page has no more quotes. Each scroll sends one request, at the pace of the site."""
        seen, scrolls = 0, 0
        while (now := len((await page.html()).split('class="quote"'))) > seen:
            seen, scrolls = now, scrolls + 1
            if scrolls == int(self.pages):
                return
            await page.scroll()
            await page.settled()

    def parse(self, response: trawl.Response) -> Iterator[Quote]:
        """Yield the quotes of the rendered page."""
        for quote in response.css(".quote"):
            text, _, author = quote.css("::text").get("").rpartition(" by ")
            yield {"text": text.strip("“”"), "author": author}
