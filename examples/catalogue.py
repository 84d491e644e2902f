"""Crawls the shop of ``trawl demo`` by rules. Each rule selects links, and may name the callback for their pages.

::

    trawl crawl examples/catalogue.py -O catalogue.jsonl

This spider finds the same books as ``books.py``, but no callback follows links.
"""

from __future__ import annotations

from dataclasses import dataclass

import trawl
from trawl import LinkExtractor, Rule


@dataclass(frozen=True)
class Book:
    """One book."""

    title: str
    price: float
    shelf: str


class Catalogue(trawl.CrawlSpider[Book]):
    """Follows the lists, and reads each book."""

    name = "catalogue"
    start_urls = ["http://127.0.0.1:8765/books/"]
    allowed_domains = ["127.0.0.1"]
    custom_settings = {"CONCURRENT_REQUESTS_PER_DOMAIN": 4, "DOWNLOAD_DELAY": 0.25}
    rules = [
        Rule(LinkExtractor(restrict_css="li.next")),
        Rule(LinkExtractor(restrict_css="article.product_pod h3"), callback="parse_book"),
    ]

    def parse_book(self, response: trawl.Response) -> Book:
        """Return one book."""
        price = response.xpath("//th[.='Price (incl. tax)']/following-sibling::td/text()").get("0")
        return Book(
            title=response.css("h1::text").get(""),
            price=float(price.lstrip("£")),
            shelf=response.css("ul.breadcrumb li:nth-child(3) a::text").get(""),
        )
