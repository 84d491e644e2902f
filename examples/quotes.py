"""Quotes and their authors from the site that ``trawl demo`` serves on this machine.

::

    trawl crawl examples/quotes.py -O quotes.jsonl
    trawl crawl examples/quotes.py -O love.jsonl -a tag=love

The spider has one callback for quotes and one for authors. Many pages link to the same author, whose page is requested
only once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass

import trawl


@dataclass(frozen=True)
class Quote:
    """A quote."""

    text: str
    author: str
    tags: list[str]


@dataclass(frozen=True)
class Author:
    """The author of quotes."""

    name: str
    born: str
    place: str


class Quotes(trawl.Spider):
    """Follows "Next" from page to page, and each author's link."""

    name = "quotes"
    allowed_domains = ["127.0.0.1"]
    custom_settings = {"THROTTLING_SCOPES": {"127.0.0.1:8765": {"concurrency": 2, "delay": 0.5}}}

    tag = ""
    """``-a tag=NAME``: only the quotes with this tag."""

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        """Yield a request for the first page, of all quotes or of one tag."""
        path = f"/tag/{self.tag}/" if self.tag else "/"
        yield trawl.Request(f"http://127.0.0.1:8765{path}")

    def parse(self, response: trawl.Response) -> Iterator[Quote | trawl.Request]:
        """Yield the quotes of a page, and requests for their authors and the next page."""
        for quote in response.css("div.quote"):
            yield Quote(
                text=quote.css("span.text::text").get("").strip("“”"),
                author=quote.css("small.author::text").get(""),
                tags=quote.css("a.tag::text").getall(),
            )
        yield from response.follow_all(css="li.next a")
        yield from response.follow_all(css="small.author + a", callback=self.parse_author)

    def parse_author(self, response: trawl.Response) -> Author:
        """Return one author."""
        return Author(
            name=response.css("h3.author-title::text").get("").strip(),
            born=response.css("span.author-born-date::text").get(""),
            place=response.css("span.author-born-location::text").get("").removeprefix("in "),
        )
