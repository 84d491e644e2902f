"""Reads books with an item loader that cleans and converts values. A dataclass validates the items.

::

    pip install "trawl-crawler[loaders]"
    trawl crawl examples/loaded.py

``books.jsonl`` has the books of ``trawl demo``. If the page of a book has no valid price, the book is written to
``invalid.jsonl`` instead, with its URL and the error.
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
    """Return a price in pounds. A value that is not a number stays a string, which is not valid."""
    try:
        return float(text.lstrip("£"))
    except ValueError:
        return text


class BookLoader(ItemLoader):
    """The processors of each field: ``_in`` for the extracted values, and ``_out`` for the value in the item."""

    default_item_class = dict  # the crawl converts the dict to a Book
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
        """Yield requests for the books of a list, and for the next list."""
        yield from response.follow_all(css="article.product_pod h3 a", callback=self.parse_book)
        yield from response.follow_all(css="li.next a")

    def parse_book(self, response: trawl.Response) -> dict[str, Any]:
        """Return one book."""
        loader = BookLoader(response=response)
        loader.add_css("title", "h1::text")
        loader.add_css("price", "p.price_color::text")
        loader.add_css("in_stock", "p.availability", re=r"(\d+) available")
        loader.add_css("stars", "p.star-rating::attr(class)", re=r"star-rating (\w+)")
        loader.add_css("description", "#product_description + p::text")
        return dict(loader.load_item())
