"""A crawl says when only start() may go on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any, ClassVar

import pytest
import trio
from trio.testing import MockClock

import trawl
from trawl.engine import Crawl
from trawl.http import Fetch, Outcome, Request, Response
from trawl.testing import SimulatedWeb, simulate

FREE = {"DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0, "ROBOTSTXT_OBEY": False}


class Phases(trawl.Spider):
    name = "phases"

    async def start(self) -> AsyncGenerator[Any, None]:
        for n in range(3):
            yield Request(f"http://a.example/{n}")
        await self.crawl.until_idle()
        assert self.crawl.is_idle
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
    assert said[4] == pytest.approx(20.8)  # two callbacks of 10 s, one after the other, and two pages
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


class Fed(trawl.Spider):
    """Is given its requests by a channel, and ends when that does."""

    name = "fed"
    given: trio.MemoryReceiveChannel[str]

    async def start(self) -> AsyncGenerator[Any, None]:
        async for url in self.given:
            yield Request(url)

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        yield {"url": response.url, "at": self.crawl.elapsed}


async def test_start_is_fed_by_a_channel_and_nothing_is_lost(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.5)
    send, receive = trio.open_memory_channel[str](2)

    async def feed() -> None:
        async with send:
            for n in range(50):
                await send.send(f"http://a.example/{n}")
            await trio.sleep(1000.0)  # the crawl has been idle for a long time
            await send.send("http://a.example/late")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed)
        sim = await web.crawl(Fed, FREE, given=receive)
    assert (sim.reason, len(sim.items)) == ("finished", 51)
    assert sim.items[-1] == {"url": "http://a.example/late", "at": 1000.5}  # sent when it was given


async def test_callbacks_may_feed_start_and_it_ends_when_nothing_is_pending(autojump_clock: MockClock) -> None:
    class Loop(Fed):
        """What its callbacks find goes through the queue; when nothing is pending and the queue is empty, it ends."""

        async def start(self) -> AsyncGenerator[Any, None]:
            while True:
                try:
                    yield Request(self.given.receive_nowait())
                except trio.WouldBlock:
                    if self.crawl.is_idle:
                        return
                    await self.crawl.until_idle()

        def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
            yield {"url": response.url}
            number = int(response.url.rpartition("/")[2])
            for found in (number * 2, number * 2 + 1):
                if found < 32:
                    send.send_nowait(f"http://a.example/{found}")

    web = SimulatedWeb()
    web.add_host("a.example", latency=0.5)
    send, receive = trio.open_memory_channel[str](100)
    send.send_nowait("http://a.example/1")
    sim = await web.crawl(Loop, FREE, given=receive)
    assert sorted(int(item["url"].rpartition("/")[2]) for item in sim.items) == list(range(1, 32))
    assert sim.reason == "finished"


def test_a_spider_that_is_idle_asks_for_more_or_ends() -> None:
    class Asks(trawl.Spider):
        name = "asks"
        batches = [["/1", "/2"], ["/3"], []]

        async def start(self) -> AsyncGenerator[Any, None]:
            for batch in self.batches:
                for path in batch:
                    yield Request(f"http://a.example{path}")
                await self.crawl.until_idle()
                yield {"idle": self.crawl.elapsed}

        def parse(self, response: Response, **kwargs: Any) -> None:
            return None

    web = SimulatedWeb()
    web.add_host("a.example", latency=1.0)
    assert simulate(Asks, web, FREE).items == [{"idle": 2.0}, {"idle": 3.0}, {"idle": 3.0}]


def test_a_callback_that_waits_for_the_crawl_to_be_idle_is_told_that_it_never_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Waits(trawl.Spider):
        name = "waits"
        start_urls = ("http://a.example/",)

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            await self.crawl.until_idle()

    web = SimulatedWeb()
    web.add_host("a.example")
    assert simulate(Waits, web, FREE, errors="collect").stats["spider_exceptions"] == 1
    assert "until_idle() waits for ever in the callback of <GET http://a.example/>: ask in start()" in caplog.text


def test_what_waits_in_a_users_middleware_is_queued_still_and_not_in_flight() -> None:
    seen: list[tuple[int, int]] = []

    async def look(crawl: Crawl) -> None:
        for _ in range(4):
            await trio.sleep(2.0)
            seen.append((crawl.queued, crawl.in_flight))

    def waits(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            await trio.sleep(3.0 if "direct" not in request.url else 2.0)
            return await fetch(request)

        return send

    class Counts(trawl.Spider):
        name = "counts"
        start_urls = ("http://a.example/",)
        custom_settings: ClassVar[Any] = {"WATCHERS": {look: 1}, "DOWNLOADER_MIDDLEWARES": {waits: 560}}

        async def parse(self, response: Response, **kwargs: Any) -> None:
            await self.fetch(Request("http://a.example/direct"))

    web = SimulatedWeb()
    web.add_host("a.example", latency=2.0)
    assert simulate(Counts, web, FREE).stats["request_count"] == 2
    assert seen == [(1, 0), (0, 1), (0, 0), (0, 1)]  # prepared, sent, the fetch is prepared, it is sent


def test_what_is_queued_counts_pages_only_whatever_else_is_on_its_way() -> None:
    seen: list[tuple[int, int]] = []
    free: dict[str, Any] = {"dont_obey_robotstxt": True}

    async def look(crawl: Crawl) -> None:
        await trio.sleep(1.0)
        seen.append((crawl.queued, crawl.in_flight))

    class Counts(trawl.Spider):
        name = "counts"
        custom_settings: ClassVar[Any] = {"WATCHERS": {look: 1}}

        async def start(self) -> AsyncGenerator[Any, None]:
            yield Request("http://a.example/", self.beside, meta=free)
            for n in range(19):
                yield Request(f"http://slow.example/{n}")

        async def beside(self, response: Response, **kwargs: Any) -> None:
            async with trio.open_nursery() as nursery:
                for n in range(6):
                    nursery.start_soon(self.fetch, Request(f"http://side{n}.example/", meta=free))

        def parse(self, response: Response, **kwargs: Any) -> None:
            """Nothing is wanted of these."""

    web = SimulatedWeb()
    web.add_host("a.example")
    for host in ("slow.example", *[f"side{n}.example" for n in range(6)]):
        web.add_host(host, latency=5.0)
    simulate(Counts, web, {**FREE, "ROBOTSTXT_OBEY": True})
    assert seen == [(19, 7)]  # robots.txt of slow.example and six direct fetches are in flight
