"""A web scraping API: ``https://api.toscrape.com/?url=https://example.com`` counts for the API and for example.com.

Use this recipe with any service that fetches pages for you. The service and the site each have a limit. A request
counts toward both limits, and only the exhausted scope backs off. The API reports the site's status code in
``X-Upstream-Status-Code``. An error without this header comes from the API itself.
"""

from __future__ import annotations

from urllib.parse import parse_qs, urlencode, urlsplit

import trawl
from trawl.throttling import ScopeBackoff, Scopes, ThrottlingManager, add_scope, update_scope_backoff

API = "api.toscrape.com"
EXHAUSTED = {429, 503}
SITES = ("https://example.com", "https://example.org")


def through_api(url: str) -> str:
    """Return the API's URL for fetching ``url``."""
    return f"https://{API}/?{urlencode({'url': url})}"


class ScrapingApiManager(ThrottlingManager):
    """Gives each request two scopes, the API and the target site."""

    def target_of(self, request: trawl.Request) -> str | None:
        """Return the host of the target site; None if the request is not for the API."""
        target = parse_qs(urlsplit(request.url).query).get("url", [""])[0]
        return urlsplit(target).netloc or None

    async def get_scopes(self, request: trawl.Request) -> Scopes:
        """Return the request's own host, and the target's host if the request is for the API."""
        own, target = await super().get_scopes(request), self.target_of(request)
        return add_scope(own, target) if own == API and target else own

    async def get_response_backoff(self, response: trawl.Response) -> ScopeBackoff:
        """Return the exhausted scope, either the API or the target."""
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
        """Return the API's scope, because a failed connection is always a connection to the API."""
        triggered = await super().get_exception_backoff(request, exception)
        return API if triggered and self.target_of(request) else triggered


class ThroughApi(trawl.Spider):
    """Extracts the titles of pages that the API fetches."""

    name = "through api"
    custom_settings = {
        "ROBOTSTXT_OBEY": False,  # the API's robots.txt does not apply to the target sites
        "THROTTLING_MANAGER": ScrapingApiManager,
        "THROTTLING_SCOPES": {API: {"concurrency": 8, "delay": 0.0, "delay_per_slot": 0.0}},
    }
    start_urls = [through_api(f"{site}/{page}") for page in range(5) for site in SITES]

    def parse(self, response: trawl.Response) -> dict[str, str | None]:
        """Return the title of a page."""
        return {"url": response.url, "title": response.css("title::text").get()}
