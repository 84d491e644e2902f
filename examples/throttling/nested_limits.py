"""Limits within a limit: at most 24 requests at once to books, 16 to quotes, and 32 to both together.

Use this recipe if sites share a machine or an agreement. Each site may get many requests while the others are idle, but
all sites together must not exceed the common limit. The scopes of a request are its own site and the shared scope.
"""

from __future__ import annotations

from collections.abc import Iterator

import trawl
from trawl.throttling import Scopes, ThrottlingManager, add_scope

SHARED = "toscrape.com"


class SharedManager(ThrottlingManager):
    """Adds the scope ``toscrape.com`` to the default scopes for every name below it."""

    async def get_scopes(self, request: trawl.Request) -> Scopes:
        """Return the host, and the scope that it shares with the other hosts."""
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
        """Yield requests for the links of a page."""
        yield from response.follow_all(css="a")
