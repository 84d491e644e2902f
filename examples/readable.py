"""Pages as Markdown, for a language model or a search index: what is read of a page, without its menus and scripts.

::

    pip install "trawl-crawler[markdown]"
    trawl crawl examples/readable.py -a url=http://127.0.0.1:8765/books/ -s DEPTH_LIMIT=2 -O pages.jsonl

The site is that of ``trawl demo``. Each line is a page: its URL, its title, and its text. Links in the text are
whole, so that it can be quoted by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from markdownify import markdownify

import trawl

NOT_READ = "title, script, style, noscript, template, nav, header, footer, aside, form, svg, iframe"


def readable(response: trawl.Response) -> str:
    """The main part of a page as Markdown; all of its body where it marks none."""
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
        """A page's text, and the pages that it links to."""
        yield {"url": response.url, "title": response.css("title::text").get(), "text": readable(response)}
        yield from response.follow_all(css="a")
