"""A cap on what a crawl spends: at most 100 credits an hour at an API that tells the price of a request afterwards.

Use it with any service that bills by request. Each request names what it will probably cost; that much is taken
from the quota when it is sent. ``X-Actual-Cost`` of the answer corrects it, in both directions. When nothing is left,
what waits goes on with the next window.
"""

from __future__ import annotations

import trawl
from trawl.throttling import ScopeBackoff, Scopes, ThrottlingManager, add_scope, update_scope_backoff

PLAIN, RENDERED = 1.0, 5.0


class CostManager(ThrottlingManager):
    """The default scopes, and what a request costs in the scope ``cost``."""

    async def get_scopes(self, request: trawl.Request) -> Scopes:
        """The host, and ``cost`` with the estimate."""
        estimate = RENDERED if "render=1" in request.url else PLAIN
        return add_scope(await super().get_scopes(request), "cost", estimate)

    async def get_response_backoff(self, response: trawl.Response) -> ScopeBackoff:
        """What backs off by default, and what the request really cost."""
        backoff = await super().get_response_backoff(response)
        cost = response.headers.get("X-Actual-Cost")
        return backoff if cost is None else update_scope_backoff(backoff, "cost", consumed=float(cost))


class Renderer(trawl.Spider):
    """Has pages rendered, as many as the budget allows."""

    name = "renderer"
    start_urls = [f"https://api.toscrape.com/?page={page}&render=1" for page in range(60)]
    custom_settings = {
        "ROBOTSTXT_OBEY": False,  # an API that is paid for; its robots.txt would be billed too
        "THROTTLING_MANAGER": CostManager,
        "THROTTLING_SCOPES": {
            "cost": {"quota": 100, "window": 3600.0},
            "api.toscrape.com": {"delay": 0.0, "delay_per_slot": 0.0},
        },
    }

    def parse(self, response: trawl.Response) -> dict[str, str]:
        """What the API answers."""
        return {"url": response.url, "text": response.text}
