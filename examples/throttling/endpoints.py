"""Limits for each endpoint of an API: 12.5 requests per second to the fast endpoint, one every 5 s to the slow one.

Use this recipe if the documentation of an API specifies limits by path. The endpoints share no limits, so while one
endpoint waits, the other continues. A scope's id may be any string. A scope that is not a host has only the limits that
you configure for it.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import trawl
from trawl.throttling import Scopes, ThrottlingManager

API = "api.toscrape.com"


class EndpointManager(ThrottlingManager):
    """Requests to the API count toward their endpoint. All other requests have the default scopes."""

    async def get_scopes(self, request: trawl.Request) -> Scopes:
        """Return ``api.toscrape.com/fast-endpoint`` for ``https://api.toscrape.com/fast-endpoint?page=3``."""
        url = urlsplit(request.url)
        if url.hostname != API:
            return await super().get_scopes(request)
        return f"{API}/{url.path.split('/')[1]}"


class Endpoints(trawl.Spider):
    """Reads pages of both endpoints."""

    name = "endpoints"
    start_urls = [
        f"https://{API}/{path}?page={page}" for page in range(10) for path in ("fast-endpoint", "slow-endpoint")
    ]
    custom_settings = {
        "CONCURRENT_REQUESTS": 1000,
        "RANDOMIZE_DOWNLOAD_DELAY": False,
        "THROTTLING_MANAGER": EndpointManager,
        "THROTTLING_SCOPES": {
            f"{API}/fast-endpoint": {"concurrency": 1000, "delay": 0.08},
            f"{API}/slow-endpoint": {"delay": 5.0},
        },
    }

    def parse(self, response: trawl.Response) -> dict[str, str]:
        """Return the text of a response of an endpoint."""
        return {"url": response.url, "text": response.text}
