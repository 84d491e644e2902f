"""One crawl by two processes, which share a job in a server: each host is sent to by one, and is never asked faster.

::

    redis-server --appendonly yes --appendfsync always
    trawl crawl examples/shared.py --job redis://127.0.0.1/shared -o pages.jsonl
    trawl worker redis://127.0.0.1/shared --spider examples/shared.py

Each in a terminal of its own, beside a ``trawl demo``; the worker may as well be on another machine. The crawl makes
the job and writes the feed, of what both found. Either may be stopped, or killed, and started again. With
``--processes 2`` in place of ``--job`` one command does all of it on one machine, the server included.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import trawl


class Shared(trawl.Spider):
    """Reads the quotes of one host and the books of another: a host each for two processes."""

    name = "shared"
    start_urls = ["http://127.0.0.1:8765/", "http://localhost:8765/books/"]

    def parse(self, response: trawl.Response) -> Iterator[dict[str, Any] | trawl.Request]:
        """What a page has most of, and the next page."""
        titles = response.css("div.quote span.text::text, article.product_pod h3 a::text").getall()
        yield {"url": response.url, "titles": titles}
        yield from response.follow_all(css="li.next a")
