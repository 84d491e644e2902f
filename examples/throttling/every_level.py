"""Requests count toward every level of their host: ``a.b.toscrape.com``, ``b.toscrape.com`` and ``toscrape.com``.

Use this recipe if a whole site has a limit, and a part of it has a stricter limit. A request is sent when all of its
levels allow it, and then takes a slot in each of them.

Each level is a host, so it starts with the settings for domains. With the defaults, the whole of ``toscrape.com`` gets
one request at a time. Configure more for the upper levels in ``THROTTLING_SCOPES``, as in ``nested_limits.py``.
"""

from __future__ import annotations

from itertools import accumulate

from tldextract import TLDExtract

import trawl
from trawl.throttling import Scopes, ThrottlingManager


class LevelsManager(ThrottlingManager):
    """The scopes of a request are its registrable domain and every name below it, down to its host."""

    def __init__(self) -> None:
        self._extract = TLDExtract(suffix_list_urls=(), cache_dir=None)

    async def get_scopes(self, request: trawl.Request) -> Scopes:
        """Return the levels of the host, widest first; only the host if it has no levels."""
        name = self._extract(request.url)
        if not name.domain or not name.suffix:
            return await super().get_scopes(request)
        labels = [label for label in reversed(name.subdomain.split(".")) if label]
        return list(accumulate(labels, lambda above, label: f"{label}.{above}", initial=f"{name.domain}.{name.suffix}"))


class Levels(trawl.Spider):
    """Extracts the titles of pages on three levels of one site."""

    name = "levels"
    start_urls = ["https://toscrape.com/", "https://b.toscrape.com/", "https://a.b.toscrape.com/"]
    custom_settings = {"THROTTLING_MANAGER": LevelsManager}

    def parse(self, response: trawl.Response) -> dict[str, str | None]:
        """Return the title of a page."""
        return {"url": response.url, "title": response.css("title::text").get()}
