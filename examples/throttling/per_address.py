"""Throttle by server: names with the same IP address share its limits.

Use this recipe for a broad crawl, in which hundreds of shops are on one machine. There are two ways:

- :class:`PerAddress`: the setting ``CONCURRENT_REQUESTS_PER_IP``. The address replaces the host as the scope.
- :class:`HostAndAddress`: a manager that uses both scopes, so that each shop and the machine have their own limits.

A name is looked up once per crawl, when its first request is scheduled, and the request goes to the address of its
scope. If a name does not resolve, the host remains the scope.
"""

from __future__ import annotations

from typing import Any

import trawl
from trawl.throttling import Scopes, ThrottlingManager, add_scope


class Shops(trawl.Spider):
    """Extracts the titles of the shops' first pages."""

    name = "shops"
    start_urls = ["https://books.toscrape.com/", "https://quotes.toscrape.com/"]

    def parse(self, response: trawl.Response) -> dict[str, str | None]:
        """Return the title of a page."""
        return {"url": response.url, "title": response.css("title::text").get()}


class PerAddress(Shops):
    """At most two requests at once to one address, with a delay of 0.5 s, however many names it has.

    You can also configure an address: ``"THROTTLING_SCOPES": {"192.0.2.7": {"delay": 2.0}}``.
    """

    name = "per address"
    custom_settings = {
        "CONCURRENT_REQUESTS_PER_IP": 2,
        "DOWNLOAD_DELAY": 0.5,
    }


class AddressManager(ThrottlingManager):
    """Adds the server's address to the default scopes."""

    def __init__(self, crawl: Any) -> None:
        self._crawl = crawl

    @classmethod
    def from_crawler(cls, crawl: object) -> AddressManager:
        """Return a manager that can get addresses from the crawl."""
        return cls(crawl)

    async def get_scopes(self, request: trawl.Request) -> Scopes:
        """Return the host, and its address if it has one: ``server:192.0.2.7``."""
        host = await super().get_scopes(request)
        address = await self._crawl.address_of(host)
        return add_scope(host, f"server:{address}") if address else host


class HostAndAddress(Shops):
    """One request per second to each shop, and four per second to the machine that they share."""

    name = "host and address"
    custom_settings = {
        "THROTTLING_MANAGER": AddressManager,
        "DOWNLOAD_DELAY": 1.0,
        "THROTTLING_SCOPES": {"server:192.0.2.7": {"rate": 4}},
    }
