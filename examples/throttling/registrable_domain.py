"""Throttle a site as a whole, whatever its subdomain: ``forums.bbc.co.uk`` counts as ``bbc.co.uk``.

Use it where one organisation answers under many names (blogs, shops, language editions): by default each name is a
scope of its own, and fifty of them would be asked fifty times as fast.

The Public Suffix List that tldextract brings says where an organisation's own name begins; the network is not touched.
What has no such name (an address, ``localhost``, ``co.uk`` itself) keeps its host.
"""

from __future__ import annotations

from tldextract import TLDExtract

import trawl
from trawl.throttling import Scopes, ThrottlingManager


class DomainManager(ThrottlingManager):
    """The registrable domain of a request is its scope."""

    def __init__(self) -> None:
        self._extract = TLDExtract(suffix_list_urls=(), cache_dir=None)

    async def get_scopes(self, request: trawl.Request) -> Scopes:
        """``bbc.co.uk`` for ``https://forums.bbc.co.uk/``; the host where there is none."""
        name = self._extract(request.url)
        if name.domain and name.suffix:
            return f"{name.domain}.{name.suffix}"
        return await super().get_scopes(request)


class Forums(trawl.Spider):
    """Takes the titles of pages on many names of one site."""

    name = "forums"
    start_urls = ["https://www.bbc.co.uk/", "https://forums.bbc.co.uk/", "https://news.bbc.co.uk/"]
    allowed_domains = ["bbc.co.uk"]
    custom_settings = {"THROTTLING_MANAGER": DomainManager, "DOWNLOAD_DELAY": 1.0}

    def parse(self, response: trawl.Response) -> dict[str, str | None]:
        """The title of a page."""
        return {"url": response.url, "title": response.css("title::text").get()}
