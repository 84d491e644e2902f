"""Throttle by server: names that lead to one IP address share its limits.

Use it for a broad crawl, where hundreds of shops live on one machine. Two ways:

- :class:`PerAddress`: the setting ``CONCURRENT_REQUESTS_PER_IP``. The address takes the place of the host.
- :class:`HostAndAddress`: a manager that charges both, so that a shop keeps its limit and the machine has one besides.

Names are looked up when their first request is scheduled, once a crawl, and the request goes to the address that it was
charged to. A name that does not resolve keeps its host as its scope.
"""

from __future__ import annotations

from typing import Any

import trawl
from trawl.throttling import Scopes, ThrottlingManager, add_scope


class Shops(trawl.Spider):
    """Takes the titles of the shops' first pages."""

    name = "shops"
    start_urls = ["https://books.toscrape.com/", "https://quotes.toscrape.com/"]

    def parse(self, response: trawl.Response) -> dict[str, str | None]:
        """The title of a page."""
        return {"url": response.url, "title": response.css("title::text").get()}


class PerAddress(Shops):
    """Two requests at once to one address, a delay of 0.5 s between any two, however many names it has.

    An address is configured by itself: ``"THROTTLING_SCOPES": {"192.0.2.7": {"delay": 2.0}}``.
    """

    name = "per address"
    custom_settings = {
        "CONCURRENT_REQUESTS_PER_IP": 2,
        "DOWNLOAD_DELAY": 0.5,
    }


class AddressManager(ThrottlingManager):
    """The default scopes, and the server's address."""

    def __init__(self, crawl: Any) -> None:
        self._crawl = crawl

    @classmethod
    def from_crawler(cls, crawl: object) -> AddressManager:
        """A manager that can ask the crawl for addresses."""
        return cls(crawl)

    async def get_scopes(self, request: trawl.Request) -> Scopes:
        """The host, and its address where it has one: ``server:192.0.2.7``."""
        host = await super().get_scopes(request)
        address = await self._crawl.address_of(host)
        return add_scope(host, f"server:{address}") if address else host


class HostAndAddress(Shops):
    """One request a second to each shop, and four a second to the machine that they share."""

    name = "host and address"
    custom_settings = {
        "THROTTLING_MANAGER": AddressManager,
        "DOWNLOAD_DELAY": 1.0,
        "THROTTLING_SCOPES": {"server:192.0.2.7": {"rate": 4}},
    }
