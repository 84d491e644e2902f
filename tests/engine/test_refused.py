"""Requests that may not go at all take no place, so that nothing but the dispatcher itself limits them."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import trio
from trio.testing import MockClock

import trawl
from tests.watched_crawl import crawl_with
from trawl.engine import Crawl
from trawl.events import RequestDropped
from trawl.http import Request, Response
from trawl.settings import Layer, load
from trawl.testing import SimulatedWeb
from trawl.transport import TransportSettings

PAGES = 3_000


class Forbidden(trawl.Spider):
    name = "forbidden"

    async def start(self) -> AsyncGenerator[Request, None]:
        yield Request("http://a.example/")

    def parse(self, response: Response) -> object:
        for number in range(PAGES):
            yield Request(f"http://a.example/private/{number}")


async def test_a_crawl_that_is_cancelled_does_not_refuse_the_rest_first(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", robots="User-agent: *\nDisallow: /private/")
    settings = load(Layer("test", {"DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0}))
    seen: list[Crawl] = []

    with trio.CancelScope() as scope:

        async def watch(crawl: Crawl) -> None:
            seen.append(crawl)
            with crawl.events(RequestDropped) as events:
                async for _ in events:
                    scope.cancel()

        transport = web.transport(settings.of(TransportSettings))
        await crawl_with(Forbidden, settings, transport=transport, watchers=[watch])
    assert scope.cancelled_caught
    assert 1 <= seen[0].stats.count("robots_forbidden") < PAGES // 2
