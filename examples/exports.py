"""One crawl with several feeds: by item class, by a condition, in batches, compressed, and as a table.

::

    trawl crawl examples/exports.py
    trawl crawl examples/exports.py -a folder=quotes

The spider crawls ``trawl demo``. ``authors.csv`` has the authors, in the configured columns. ``quotes-00001.jsonl.gz``
and the following files have a hundred quotes each. ``short.json`` has the quotes that fit on a card. ``all.sqlite`` has
both kinds of items in one table. Even if the crawl is killed, all files contain only whole records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import trawl


@dataclass(frozen=True)
class Quote:
    """A quote."""

    author: str
    text: str
    tags: list[str]


@dataclass(frozen=True)
class Author:
    """The author of quotes."""

    author: str
    born: str


def is_short(item: Quote | Author) -> bool:
    """Return whether an item fits on a card."""
    return isinstance(item, Quote) and len(item.text) <= 80


class Exports(trawl.Spider[Quote | Author]):
    """Reads quotes, and their authors."""

    name = "exports"
    start_urls = ["http://127.0.0.1:8765/"]
    folder = "."
    """``-a folder=PATH``: the folder of the files. A feed's path can contain any attribute of the spider."""

    custom_settings = {
        "FEEDS": {
            "%(folder)s/authors.csv": {
                "overwrite": True,
                "item_classes": [Author],
                "fields": {"author": "name", "born": "date of birth"},
            },
            "%(folder)s/quotes-%(batch)05d.jsonl.gz": {"item_classes": [Quote], "batch_item_count": 100},
            "%(folder)s/short.json": {"overwrite": True, "item_filter": is_short, "fields": ["text"], "indent": 2},
            "%(folder)s/all.sqlite": {"overwrite": True, "item_export_kwargs": {"table": "found"}},
        },
    }

    def parse(self, response: trawl.Response) -> Iterator[Quote | trawl.Request]:
        """Yield the quotes of a page, and requests for their authors and the next page."""
        for quote in response.css("div.quote"):
            yield Quote(
                author=quote.css("small.author::text").get(""),
                text=quote.css("span.text::text").get("").strip("“”"),
                tags=quote.css("a.tag::text").getall(),
            )
        yield from response.follow_all(css="small.author + a", callback=self.parse_author)
        yield from response.follow_all(css="li.next a")

    def parse_author(self, response: trawl.Response) -> Author:
        """Return one author."""
        name, born = response.css("h3.author-title::text"), response.css("span.author-born-date::text")
        return Author(name.get("").strip(), born.get(""))
