"""Books by an item loader, held to a dataclass: texts are cleaned and converted, and what does not fit is kept apart.

::

    pip install "trawl-crawler[loaders]"
    trawl crawl examples/loaded.py

``books.jsonl`` has the books of ``trawl demo``. A book whose page lacks a price, or has one that is no number, is in
``invalid.jsonl`` with its URL and what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from itemloaders.processors import Compose, MapCompose, TakeFirst

import trawl
from trawl.items import InvalidItem
from trawl.loader import ItemLoader

STARS = {"One": 1, "Two": 2, "Three": 3, "Four": 4, "Five": 5}


@dataclass(frozen=True)
class Book:
    """One book."""

    title: str
    price: float
    in_stock: int
    stars: int
    description: str = ""


def price(text: str) -> float | str:
    """A price in pounds; what is no number stays a text, which does not fit."""
    try:
        return float(text.lstrip("£"))
    except ValueError:
        return text


class BookLoader(ItemLoader):
    """What is done to the values of each field: ``_in`` as they are found, ``_out`` when the item is made."""

    default_item_class = dict  # the crawl makes a Book of it
    default_input_processor = MapCompose(str.strip)
    default_output_processor = TakeFirst()

    price_in = MapCompose(str.strip, price)
    in_stock_in = MapCompose(int)
    stars_in = MapCompose(STARS.get)
    description_out = Compose(TakeFirst(), lambda text: text.removesuffix("...more").strip())


class Loaded(trawl.Spider):
    """Reads the page of each book."""

    name = "loaded"
    start_urls = ["http://127.0.0.1:8765/books/"]
    custom_settings = {
        "ITEM_TYPE": Book,
        "INVALID_ITEMS": "keep",
        "FEEDS": {
            "books.jsonl": {"overwrite": True, "item_classes": [Book]},
            "invalid.jsonl": {"overwrite": True, "item_classes": [InvalidItem]},
        },
    }

    def parse(self, response: trawl.Response) -> Iterator[trawl.Request]:
        """The books of a list, and the next list."""
        yield from response.follow_all(css="article.product_pod h3 a", callback=self.parse_book)
        yield from response.follow_all(css="li.next a")

    def parse_book(self, response: trawl.Response) -> dict[str, Any]:
        """One book."""
        loader = BookLoader(response=response)
        loader.add_css("title", "h1::text")
        loader.add_css("price", "p.price_color::text")
        loader.add_css("in_stock", "p.availability", re=r"(\d+) available")
        loader.add_css("stars", "p.star-rating::attr(class)", re=r"star-rating (\w+)")
        loader.add_css("description", "#product_description + p::text")
        return dict(loader.load_item())
