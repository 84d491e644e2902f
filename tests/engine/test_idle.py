"""A crawl says when only start() may go on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any

import trio

import trawl
from trawl.http import Request, Response
from trawl.testing import SimulatedWeb, simulate

FREE = {"DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0, "ROBOTSTXT_OBEY": False}


class Phases(trawl.Spider):
    name = "phases"

    async def start(self) -> AsyncGenerator[Any, None]:
        for n in range(3):
            yield Request(f"http://a.example/{n}")
        while not self.crawl.is_idle:  # noqa: ASYNC110 - what the guide shows
            await trio.sleep(1.0)
        assert (self.crawl.queued, self.crawl.in_flight) == (0, 0)
        yield {"at": self.crawl.elapsed}
        yield Request("http://a.example/last")

    async def parse(self, response: Response, **kwargs: Any) -> AsyncGenerator[Any, None]:
        assert not self.crawl.is_idle
        await trio.sleep(10.0)
        if response.url.endswith("/0"):
            yield response.follow("/linked")
        yield {"url": response.url}


def test_start_may_wait_until_all_before_has_ended_callbacks_too() -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.4)
    sim = simulate(Phases, web, FREE)
    said = [item.get("at", item.get("url", "")) for item in sim.items]
    assert sim.stats.get("spider_exceptions") is None
    assert said[4:] == [said[4], "http://a.example/last"]
    assert said[4] == 21.0  # two callbacks of 10 s, one after the other, and two pages; asked each second
    assert set(said[:4]) == {f"http://a.example/{name}" for name in (0, 1, 2, "linked")}


def test_what_is_queued_is_without_start_itself() -> None:
    class Counts(trawl.Spider):
        name = "counts"

        async def start(self) -> AsyncGenerator[Any, None]:
            yield {"queued": self.crawl.queued, "idle": self.crawl.is_idle}
            yield Request("http://a.example/")
            await trio.sleep(100.0)
            yield {"queued": self.crawl.queued}

        def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
            yield {"queued": self.crawl.queued}

    web = SimulatedWeb()
    web.add_host("a.example")
    assert simulate(Counts, web, FREE).items == [{"queued": 0, "idle": True}, {"queued": 0}, {"queued": 0}]
