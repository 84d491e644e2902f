"""The real crawl on a simulated web, for commands that start Trio themselves."""

from __future__ import annotations

from typing import Any

import trio

from trawl._run import crawl_with
from trawl.blocking import InlineBlocking
from trawl.testing import SimulatedWeb
from trawl.transport import TransportSettings

WITHOUT_DELAY = ("-s", "DOWNLOAD_DELAY=0", "-s", "DOWNLOAD_DELAY_PER_SLOT=0")
"""Options without delays, because the clock is real."""

QUICK = (*WITHOUT_DELAY, "-s", "RETRY_ENABLED=false")
"""Options without delays and retries."""

FOLLOWER = """
import trawl


class Pages(trawl.Spider):
    name = "pages"
    start_urls = ["http://a.example/"]

    def parse(self, response):
        yield {"url": response.url}
        yield from response.follow_all(css="a")
"""
"""A spider that yields one item per page and follows all links."""


def crawl_on(web: SimulatedWeb) -> Any:
    """Return a ``crawl_with`` that uses ``web`` as its transport."""

    async def crawl(spider: Any, settings: Any, **options: Any) -> Any:
        transport = web.transport(settings.of(TransportSettings), seed=0, begun_at=trio.current_time())
        options.pop("handle_signals", None)
        return await crawl_with(
            spider, settings, transport=transport, blocking=InlineBlocking(), resolve=web.resolve, seed=0, **options
        )

    return crawl
