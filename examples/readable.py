"""Saves the readable text of pages as Markdown, without menus and scripts, for a language model or a search index.

::

    pip install "trawl-crawler[markdown]"
    trawl crawl examples/readable.py -a url=http://127.0.0.1:8765/books/ -s DEPTH_LIMIT=2 -O pages.jsonl

The spider crawls ``trawl demo``. Each line is a page with URL, title and text. Links in the text are absolute, so they
still work when the text is used elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from markdownify import markdownify

import trawl

NOT_READ = "title, script, style, noscript, template, nav, header, footer, aside, form, svg, iframe"


def readable(response: trawl.Response) -> str:
    """Return the main part of a page as Markdown, or its whole body if no part is marked as the main part."""
    page = trawl.Selector(text=response.text, type="html")
    for part in page.css(NOT_READ):
        part.drop()
    for link in page.css("a[href]"):
        link.root.set("href", response.urljoin(link.attrib["href"]))
    [main] = (page.css("main") or page.css("article") or page.css("body"))[:1] or [page]
    return str(markdownify(main.get(), heading_style="ATX", strip=["img"])).strip()


class Readable(trawl.Spider):
    """Reads the pages of one site."""

    name = "readable"

    def __init__(self, url: str = "http://127.0.0.1:8765/books/", **arguments: Any) -> None:
        super().__init__(**arguments)
        self.start_urls = [url]
        self.allowed_domains = [urlsplit(url).hostname or ""]

    def parse(self, response: trawl.Response) -> Iterator[dict[str, Any] | trawl.Request]:
        """Yield a page's text, and requests for the pages that it links to."""
        yield {"url": response.url, "title": response.css("title::text").get(), "text": readable(response)}
        yield from response.follow_all(css="a")
