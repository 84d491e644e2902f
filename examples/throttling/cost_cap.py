"""A cost limit: at most 100 credits per hour for an API that reports the price of a request in the response.

Use this recipe with any service that bills by request. When a request is sent, its estimated cost is taken from the
quota. The header ``X-Actual-Cost`` of the response then corrects this amount, up or down. When the quota is used up,
pending requests wait for the next window.
"""

from __future__ import annotations

import trawl
from trawl.throttling import ScopeBackoff, Scopes, ThrottlingManager, add_scope, update_scope_backoff

PLAIN, RENDERED = 1.0, 5.0


class CostManager(ThrottlingManager):
    """Adds the cost of a request in the scope ``cost`` to the default scopes."""

    async def get_scopes(self, request: trawl.Request) -> Scopes:
        """Return the host, and ``cost`` with the estimate."""
        estimate = RENDERED if "render=1" in request.url else PLAIN
        return add_scope(await super().get_scopes(request), "cost", estimate)

    async def get_response_backoff(self, response: trawl.Response) -> ScopeBackoff:
        """Return the default backoff, and the real cost of the request."""
        backoff = await super().get_response_backoff(response)
        cost = response.headers.get("X-Actual-Cost")
        return backoff if cost is None else update_scope_backoff(backoff, "cost", consumed=float(cost))


class Renderer(trawl.Spider):
    """Lets a service render pages, as many as the budget allows."""

    name = "renderer"
    start_urls = [f"https://api.toscrape.com/?page={page}&render=1" for page in range(60)]
    custom_settings = {
        "ROBOTSTXT_OBEY": False,  # the API would bill the request for robots.txt
        "THROTTLING_MANAGER": CostManager,
        "THROTTLING_SCOPES": {
            "cost": {"quota": 100, "window": 3600.0},
            "api.toscrape.com": {"delay": 0.0, "delay_per_slot": 0.0},
        },
    }

    def parse(self, response: trawl.Response) -> dict[str, str]:
        """Return the text of a response of the API."""
        return {"url": response.url, "text": response.text}
