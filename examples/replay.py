"""Runs a spider on recorded pages: crawl a site once, and then replay the traffic without a network.

::

    pip install "trawl-crawler[warc]"
    trawl crawl examples/replay.py -s WARC_FILE=books.warc.gz -s DEPTH_LIMIT=2 -O books.jsonl
    python examples/replay.py books-00001.warc.gz

The first crawl uses ``trawl demo``. The second command runs the spider on the recorded responses, on a virtual clock,
in milliseconds, and prints the items. If you have changed the spider, it also prints the URLs that are not in the
recording.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import trawl
from trawl.testing import SimulatedWeb, simulate


class Books(trawl.Spider):
    """Reads lists of books."""

    name = "replayed"
    start_urls = ["http://127.0.0.1:8765/books/"]

    def parse(self, response: trawl.Response) -> Iterator[dict[str, Any] | trawl.Request]:
        """Yield the books of a list, and the request for the next list."""
        for book in response.css("article.product_pod"):
            yield {
                "title": book.css("h3 a::attr(title)").get(),
                "price": book.css("p.price_color::text").get(),
                "in_stock": bool(book.css("p.instock")),
            }
        yield from response.follow_all(css="li.next a")


def replay(*archives: str) -> None:
    """Run the spider on the responses in these archives."""
    sim = simulate(Books, SimulatedWeb.from_warc(*archives), {"DEPTH_LIMIT": 2})
    for item in sim.items:
        print(json.dumps(item, ensure_ascii=False))
    for send in sim.sends:
        if send.status == 404 and not send.url.endswith("/robots.txt"):
            print(f"not in the archive: {send.url}", file=sys.stderr)


if __name__ == "__main__":
    replay(*sys.argv[1:])
