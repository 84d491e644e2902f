"""Crawls with two processes that share a job in a server. Only one process sends requests to each host.

::

    redis-server --appendonly yes --appendfsync always
    trawl crawl examples/shared.py --job redis://127.0.0.1/shared -o pages.jsonl
    trawl worker redis://127.0.0.1/shared --spider examples/shared.py

Run each command in a separate terminal while ``trawl demo`` runs. The worker may also run on another machine. The crawl
creates the job and writes the feed with the items of both processes. You can stop or kill either process and start it
again. With ``--processes 2`` instead of ``--job``, one command does all of this on one machine, including the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import trawl


class Shared(trawl.Spider):
    """Reads the quotes of one host and the books of another, so that each process has a host."""

    name = "shared"
    start_urls = ["http://127.0.0.1:8765/", "http://localhost:8765/books/"]

    def parse(self, response: trawl.Response) -> Iterator[dict[str, Any] | trawl.Request]:
        """Yield the titles on a page, and the request for the next page."""
        titles = response.css("div.quote span.text::text, article.product_pod h3 a::text").getall()
        yield {"url": response.url, "titles": titles}
        yield from response.follow_all(css="li.next a")
