"""Limits for each proxy in addition to the limits of the site, so that more proxies do not mean a faster pace.

Use this recipe with a pool of proxies that have their own limits. A request counts toward its site and its proxy, and
is sent when both allow it. The meta key ``proxy`` names the proxy of a request.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from itertools import cycle
from urllib.parse import urlsplit

import trawl
from trawl.throttling import Scopes, ThrottlingManager, add_scope

PROXIES = ["http://a.proxy.example:8080", "http://b.proxy.example:8080"]


class ProxyManager(ThrottlingManager):
    """Adds the scope of the proxy to the default scopes."""

    async def get_scopes(self, request: trawl.Request) -> Scopes:
        """Return the host, and ``proxy:NAME`` if the request uses a proxy."""
        host, proxy = await super().get_scopes(request), request.meta.get("proxy")
        return add_scope(host, f"proxy:{urlsplit(proxy).hostname}") if proxy else host


class Rotating(trawl.Spider):
    """Sends each page through the next proxy."""

    name = "rotating"
    sites = ("https://books.toscrape.com", "https://quotes.toscrape.com")
    custom_settings = {
        "THROTTLING_MANAGER": ProxyManager,
        "THROTTLING_SCOPES": {
            "books.toscrape.com": {"concurrency": 8, "delay": 0.25, "delay_per_slot": 0.0},
            "quotes.toscrape.com": {"concurrency": 8, "delay": 0.25, "delay_per_slot": 0.0},
            "proxy:a.proxy.example": {"concurrency": 2},
            "proxy:b.proxy.example": {"rate": 1.0},
        },
    }

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        """Yield requests for the first ten pages of each site, through rotating proxies."""
        proxies = cycle(PROXIES)
        for page in range(1, 11):
            for site in self.sites:
                yield trawl.Request(f"{site}/page/{page}/", meta={"proxy": next(proxies)})

    def parse(self, response: trawl.Response) -> dict[str, str | None]:
        """Return the title of a page."""
        return {"url": response.url, "title": response.css("title::text").get()}
