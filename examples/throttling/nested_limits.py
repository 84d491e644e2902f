"""Limits within a limit: 24 requests at once to books, 16 to quotes, and no more than 32 to both together.

Use it where sites share a machine, or an agreement: each may have much while the others are idle, and together they may
not have more than the whole. The scopes of a request are its own site and the one they share.
"""

from __future__ import annotations

from collections.abc import Iterator

import trawl
from trawl.throttling import Scopes, ThrottlingManager, add_scope

SHARED = "toscrape.com"


class SharedManager(ThrottlingManager):
    """The default scopes, and ``toscrape.com`` for every name below it."""

    async def get_scopes(self, request: trawl.Request) -> Scopes:
        """The host, and what it shares with its sisters."""
        host = await super().get_scopes(request)
        return add_scope(host, SHARED) if isinstance(host, str) and host.endswith(f".{SHARED}") else host


FREE = {"delay": 0.0, "delay_per_slot": 0.0}


class BooksAndQuotes(trawl.Spider):
    """Follows every link on both sites."""

    name = "books and quotes"
    start_urls = ["https://books.toscrape.com/", "https://quotes.toscrape.com/"]
    allowed_domains = [SHARED]
    custom_settings = {
        "CONCURRENT_REQUESTS": 32,
        "THROTTLING_MANAGER": SharedManager,
        "THROTTLING_SCOPES": {
            SHARED: {"concurrency": 32, **FREE},
            "books.toscrape.com": {"concurrency": 24, **FREE},
            "quotes.toscrape.com": {"concurrency": 16, **FREE},
        },
    }

    def parse(self, response: trawl.Response) -> Iterator[trawl.Request]:
        """Where to go from a page."""
        yield from response.follow_all(css="a")
