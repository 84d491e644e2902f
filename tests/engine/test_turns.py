"""Callbacks that compute for long take turns: what else is to be done is done between two of them."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.watched_crawl import crawl_with
from trawl.blocking import InlineBlocking
from trawl.engine import Crawl
from trawl.http import Request, Response
from trawl.settings import Layer, load
from trawl.testing import SimulatedResponse, SimulatedWeb

HOSTS = 20


@pytest.mark.parametrize(("seconds", "most"), [(0.02, 3), (0.001, HOSTS)])
async def test_timers_go_off_between_callbacks_that_compute(
    autojump_clock: MockClock, seconds: float, most: int
) -> None:
    late: list[float] = []

    class Busy(trawl.Spider):
        name = "busy"
        start_urls = [f"http://host{number}.example/" for number in range(HOSTS)]

        def parse(self, response: Response, **kwargs: Any) -> Any:
            autojump_clock.jump(seconds)
            return response.follow_all(css="a")

    async def beat(crawl: Crawl) -> None:
        while True:
            due = trio.current_time() + 0.001
            await trio.sleep_until(due)
            late.append(trio.current_time() - due)

    web = SimulatedWeb()
    for number in range(HOSTS):
        web.add_host(f"host{number}.example", latency=0.5)
        web.add_page(f"http://host{number}.example/", links=["/1"])
        web.add_page(f"http://host{number}.example/1")
    settings = load(Layer("test", {"DOWNLOAD_DELAY": 0, "ROBOTSTXT_OBEY": False, "CONCURRENT_REQUESTS": 64}))
    result = await crawl_with(Busy, settings, transport=web.transport(), blocking=InlineBlocking(), watchers=[beat])
    assert result.stats["request_count"] == 2 * HOSTS
    second = late[len(late) // 2 :]
    assert max(second) <= most * seconds + 1e-6


async def test_pages_that_wait_for_their_turn_are_bounded(autojump_clock: MockClock) -> None:
    sent = parsed = most = 0

    class Busy(trawl.Spider):
        name = "busy"
        start_urls = ["http://a.example/"]

        def parse(self, response: Response, **kwargs: Any) -> Any:
            nonlocal parsed
            autojump_clock.jump(0.02)
            parsed += 1
            if response.url == self.start_urls[0]:
                yield from [Request(f"http://a.example/{number}") for number in range(300)]

    def handler(request: Request) -> SimulatedResponse:
        nonlocal sent, most
        sent += 1
        most = max(most, sent - parsed)
        return SimulatedResponse()

    web = SimulatedWeb()
    web.add_host("a.example", handler=handler, latency=0.001)
    limits = {"CONCURRENT_REQUESTS": 8, "CONCURRENT_REQUESTS_PER_DOMAIN": 8, "CONCURRENT_CALLBACKS": 2}
    free = {"DOWNLOAD_DELAY": 0, "DOWNLOAD_DELAY_PER_SLOT": 0, "ROBOTSTXT_OBEY": False}
    run = await web.crawl(Busy, settings={**limits, **free})
    assert run.stats["response_count"] == parsed == 301
    assert most <= 8 + 2
