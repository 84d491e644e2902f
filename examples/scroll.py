"""Reads quotes from the JSON API of a page that loads more quotes while you scroll. The spider parses no HTML.

::

    trawl crawl examples/scroll.py -O quotes.jsonl
    trawl crawl examples/scroll.py -O quotes.jsonl -a pages=3

The page is http://127.0.0.1:8765/scroll of ``trawl demo``. The network panel of a browser shows its requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict
from urllib.parse import urlencode

import trawl


class Quote(TypedDict):
    """A quote."""

    text: str
    author: str
    tags: list[str]


class Scroll(trawl.Spider[Quote]):
    """Requests the pages of the API one after the other."""

    name = "scroll"
    api = "http://127.0.0.1:8765/api/quotes"
    start_urls = [f"{api}?page=1"]

    pages = "0"
    """``-a pages=NUMBER``: the maximum number of pages, as a string; 0 for all pages."""

    def parse(self, response: trawl.Response) -> Iterator[Quote | trawl.Request]:
        """Yield the quotes of a page, and the request for the next page."""
        found = response.json()
        for quote in found["quotes"]:
            yield {"text": quote["text"].strip("“”"), "author": quote["author"]["name"], "tags": quote["tags"]}
        if found["has_next"] and found["page"] != int(self.pages):
            yield trawl.Request(f"{self.api}?{urlencode({'page': found['page'] + 1})}")
