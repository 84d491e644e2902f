"""Throttle a site as a whole, whatever its subdomain: ``forums.bbc.co.uk`` counts as ``bbc.co.uk``.

Use this recipe if one organization has many names (blogs, shops, language editions). By default, each name is a
separate scope, so fifty names would get fifty times as many requests.

The Public Suffix List in tldextract determines the registrable domain, without network access. Hosts without a
registrable domain (an address, ``localhost``, ``co.uk`` itself) keep the host as their scope.
"""

from __future__ import annotations

from tldextract import TLDExtract

import trawl
from trawl.throttling import Scopes, ThrottlingManager


class DomainManager(ThrottlingManager):
    """Returns the registrable domain of a request as its scope."""

    def __init__(self) -> None:
        self._extract = TLDExtract(suffix_list_urls=(), cache_dir=None)

    async def get_scopes(self, request: trawl.Request) -> Scopes:
        """Return ``bbc.co.uk`` for ``https://forums.bbc.co.uk/``; the host if there is no registrable domain."""
        name = self._extract(request.url)
        if name.domain and name.suffix:
            return f"{name.domain}.{name.suffix}"
        return await super().get_scopes(request)


class Forums(trawl.Spider):
    """Extracts the titles of pages on many names of one site."""

    name = "forums"
    start_urls = ["https://www.bbc.co.uk/", "https://forums.bbc.co.uk/", "https://news.bbc.co.uk/"]
    allowed_domains = ["bbc.co.uk"]
    custom_settings = {"THROTTLING_MANAGER": DomainManager, "DOWNLOAD_DELAY": 1.0}

    def parse(self, response: trawl.Response) -> dict[str, str | None]:
        """Return the title of a page."""
        return {"url": response.url, "title": response.css("title::text").get()}
