"""Reads all books of the shop that ``trawl demo`` serves: eighty-six records, from lists and book pages.

::

    trawl crawl examples/books.py -O books.csv
    trawl crawl examples/books.py -O first.json -s DEPTH_LIMIT=1

Some data of a book is only in the list. It is passed to the callback of the book's page with ``cb_kwargs``. If a page
fails, its errback is called.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import trawl

STARS = ("", "One", "Two", "Three", "Four", "Five")


class Books(trawl.Spider):
    """Reads each list of twenty books, and the page of each book."""

    name = "books"
    start_urls = ["http://127.0.0.1:8765/books/"]
    allowed_domains = ["127.0.0.1"]
    custom_settings = {"CONCURRENT_REQUESTS_PER_DOMAIN": 4, "DOWNLOAD_DELAY": 0.25}  # four requests per second

    def parse(self, response: trawl.Response) -> Iterator[trawl.Request]:
        """Yield a request for each book of a list, and for the next list."""
        for book in response.css("article.product_pod"):
            rating = book.css("p.star-rating::attr(class)").get("").split()[-1]
            yield response.follow(
                book.css("h3 a::attr(href)").get(""),
                self.parse_book,
                errback=self.missed,
                cb_kwargs={"stars": STARS.index(rating)},
            )
        yield from response.follow_all(css="li.next a")

    async def parse_book(self, response: trawl.Response, stars: int) -> dict[str, object]:
        """Return one book. A callback may also be async."""
        facts = dict(zip(response.css("table th::text").getall(), response.css("table td::text").getall(), strict=True))
        in_stock = re.search(r"\d+", facts["Availability"])
        return {
            "upc": facts["UPC"],
            "title": response.css("h1::text").get(),
            "category": response.css("ul.breadcrumb li:nth-child(3) a::text").get(),
            "price": float(facts["Price (incl. tax)"].lstrip("£")),
            "in_stock": int(in_stock[0]) if in_stock else 0,
            "stars": stars,
            "url": response.url,
        }

    def missed(self, error: Exception) -> None:
        """Log that a book is missing, and why."""
        self.logger.warning("no record: %s", error)
