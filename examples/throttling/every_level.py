"""Charge a request to every level of its host: ``a.b.toscrape.com``, ``b.toscrape.com`` and ``toscrape.com``.

Use it where a limit holds for a whole site and a tighter one for a part of it. A request is sent when all of its levels
allow it, and it takes a slot in all of them or in none.

Each level is a host, so each starts from the settings for domains: with the defaults the whole of ``toscrape.com`` gets
one request at a time. Give the upper levels more in ``THROTTLING_SCOPES``; ``nested_limits.py`` does.
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
        """The levels of the host, the widest first; the host where it has none."""
        name = self._extract(request.url)
        if not name.domain or not name.suffix:
            return await super().get_scopes(request)
        labels = [label for label in reversed(name.subdomain.split(".")) if label]
        return list(accumulate(labels, lambda above, label: f"{label}.{above}", initial=f"{name.domain}.{name.suffix}"))


class Levels(trawl.Spider):
    """Takes the titles of pages on three levels of one site."""

    name = "levels"
    start_urls = ["https://toscrape.com/", "https://b.toscrape.com/", "https://a.b.toscrape.com/"]
    custom_settings = {"THROTTLING_MANAGER": LevelsManager}

    def parse(self, response: trawl.Response) -> dict[str, str | None]:
        """The title of a page."""
        return {"url": response.url, "title": response.css("title::text").get()}
