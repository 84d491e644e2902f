"""Quotes from the JSON behind a page that loads more as one scrolls: no HTML at all.

::

    trawl crawl examples/scroll.py -O quotes.jsonl
    trawl crawl examples/scroll.py -O quotes.jsonl -a pages=3

The page is http://127.0.0.1:8765/scroll of ``trawl demo``; the network panel of a browser shows what it asks for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict
from urllib.parse import urlencode

import trawl


class Quote(TypedDict):
    """What somebody said."""

    text: str
    author: str
    tags: list[str]


class Scroll(trawl.Spider[Quote]):
    """Asks for one page of the API after the other, while there are more."""

    name = "scroll"
    api = "http://127.0.0.1:8765/api/quotes"
    start_urls = [f"{api}?page=1"]

    pages = "0"
    """``-a pages=NUMBER``: at most so many; 0: all. Arguments are texts."""

    def parse(self, response: trawl.Response) -> Iterator[Quote | trawl.Request]:
        """The quotes of a page, and the next page."""
        found = response.json()
        for quote in found["quotes"]:
            yield {"text": quote["text"].strip("“”"), "author": quote["author"]["name"], "tags": quote["tags"]}
        if found["has_next"] and found["page"] != int(self.pages):
            yield trawl.Request(f"{self.api}?{urlencode({'page': found['page'] + 1})}")
