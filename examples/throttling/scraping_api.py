"""A web scraping API: ``https://api.toscrape.com/?url=https://example.com`` counts for the API and for example.com.

Use it with any service that fetches pages for you. Its own limit is one thing, the patience of the site behind it
another: both are charged, and only the one that is exhausted backs off. The API passes the site's status on in
``X-Upstream-Status-Code``; an error without it is the API's own.
"""

from __future__ import annotations

from urllib.parse import parse_qs, urlencode, urlsplit

import trawl
from trawl.throttling import ScopeBackoff, Scopes, ThrottlingManager, add_scope, update_scope_backoff

API = "api.toscrape.com"
EXHAUSTED = {429, 503}
SITES = ("https://example.com", "https://example.org")


def through_api(url: str) -> str:
    """The URL that has the API fetch ``url``."""
    return f"https://{API}/?{urlencode({'url': url})}"


class ScrapingApiManager(ThrottlingManager):
    """The API and the site behind it are two scopes of one request."""

    def target_of(self, request: trawl.Request) -> str | None:
        """The host that the API is asked to fetch from, if it is."""
        target = parse_qs(urlsplit(request.url).query).get("url", [""])[0]
        return urlsplit(target).netloc or None

    async def get_scopes(self, request: trawl.Request) -> Scopes:
        """The request's own host, and the target's where it is for the API."""
        own, target = await super().get_scopes(request), self.target_of(request)
        return add_scope(own, target) if own == API and target else own

    async def get_response_backoff(self, response: trawl.Response) -> ScopeBackoff:
        """The one of the two that is exhausted."""
        assert response.request is not None
        target = self.target_of(response.request)
        if target is None:
            return await super().get_response_backoff(response)
        upstream = response.headers.get("X-Upstream-Status-Code")
        status, scope = (response.status, API) if upstream is None else (int(upstream), target)
        return (
            update_scope_backoff(None, scope, delay=self.get_response_delay(response)) if status in EXHAUSTED else None
        )

    async def get_exception_backoff(self, request: trawl.Request, exception: Exception) -> ScopeBackoff:
        """A connection that fails is the API's, never the target's."""
        triggered = await super().get_exception_backoff(request, exception)
        return API if triggered and self.target_of(request) else triggered


class ThroughApi(trawl.Spider):
    """Takes the titles of pages that the API fetches."""

    name = "through api"
    custom_settings = {
        "ROBOTSTXT_OBEY": False,  # the API's robots.txt says nothing of the sites behind it
        "THROTTLING_MANAGER": ScrapingApiManager,
        "THROTTLING_SCOPES": {API: {"concurrency": 8, "delay": 0.0, "delay_per_slot": 0.0}},
    }
    start_urls = [through_api(f"{site}/{page}") for page in range(5) for site in SITES]

    def parse(self, response: trawl.Response) -> dict[str, str | None]:
        """The title of a page."""
        return {"url": response.url, "title": response.css("title::text").get()}
