"""Limits for each proxy, beside those of the site: a site is not asked faster because more proxies ask it.

Use it with a pool of proxies, each with a limit of its own. A request is charged to its site and to its proxy; it goes
when both allow. The proxy of a request is the one that its meta key ``proxy`` names.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from itertools import cycle
from urllib.parse import urlsplit

import trawl
from trawl.throttling import Scopes, ThrottlingManager, add_scope

PROXIES = ["http://a.proxy.example:8080", "http://b.proxy.example:8080"]


class ProxyManager(ThrottlingManager):
    """The default scopes, and the proxy's."""

    async def get_scopes(self, request: trawl.Request) -> Scopes:
        """The host, and ``proxy:NAME`` where the request goes through one."""
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
        """The first ten pages of each site, the proxies in turns."""
        proxies = cycle(PROXIES)
        for page in range(1, 11):
            for site in self.sites:
                yield trawl.Request(f"{site}/page/{page}/", meta={"proxy": next(proxies)})

    def parse(self, response: trawl.Response) -> dict[str, str | None]:
        """The title of a page."""
        return {"url": response.url, "title": response.css("title::text").get()}
