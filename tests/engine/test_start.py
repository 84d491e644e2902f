"""start() is read under back-pressure."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.watched_crawl import crawl_with
from trawl.blocking import InlineBlocking
from trawl.engine import Crawl
from trawl.engine.fetcher import ScopeLimiters
from trawl.frontier import LaneKey, MemoryFrontier, PushResult, Record
from trawl.http import Request, Response
from trawl.settings import Layer, load
from trawl.testing import SimulatedWeb

FREE = {
    "DOWNLOAD_DELAY": 0.0,
    "DOWNLOAD_DELAY_PER_SLOT": 0.0,
    "ROBOTSTXT_OBEY": False,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 4,
}


class Endless(trawl.Spider):
    name = "endless"
    most_ahead = 0
    read = 0
    parsed = 0

    async def start(self) -> AsyncGenerator[Any, None]:
        cls = type(self)
        while True:
            cls.read += 1
            cls.most_ahead = max(cls.most_ahead, cls.read - cls.parsed)
            yield Request(f"http://a.example/{cls.read}")

    def parse(self, response: Response, **kwargs: Any) -> Any:
        type(self).parsed += 1
        if self.parsed == 200:
            raise trawl.CloseSpider("enough")


async def test_an_endless_start_is_read_no_further_than_needed(autojump_clock: MockClock) -> None:  # C3
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.1)

    class Run(Endless):
        pass

    run = await web.crawl(Run, settings={**FREE, "CONCURRENT_REQUESTS": 4})
    assert run.reason == "enough"
    assert Run.most_ahead <= 4 + 2
    assert run.elapsed == pytest.approx(200 / 4 * 0.1, rel=0.05)  # and no place stood empty meanwhile


@pytest.mark.interpreted
async def test_a_start_of_throttled_hosts_is_read_up_to_the_bound(  # C3
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trawl.engine.start_requests.MAX_PENDING", 50)
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.1)

    class Run(Endless):
        pass

    run = await web.crawl(Run, settings={**FREE, "DOWNLOAD_DELAY": 1.0})
    assert run.reason == "enough"
    assert 45 <= Run.most_ahead <= 55


async def test_start_is_read_on_while_it_sleeps_between_requests(autojump_clock: MockClock) -> None:
    class Sleeps(trawl.Spider):
        name = "sleeps"

        async def start(self) -> AsyncGenerator[Any, None]:
            for i in range(3):
                yield Request(f"http://a.example/{i}")
                await trio.sleep(5)
            yield {"done": True}

        def parse(self, response: Response, **kwargs: Any) -> Any:
            return {"url": response.url}

    web = SimulatedWeb()
    web.add_host("a.example", latency=0.1)
    run = await web.crawl(Sleeps, settings=FREE)
    assert [send.time for send in run.sends] == pytest.approx([0, 5, 10])
    assert run.items[-1] == {"done": True}


async def test_a_deadline_around_a_yield_in_start_does_not_reach_the_engine(autojump_clock: MockClock) -> None:
    class Impatient(trawl.Spider):
        name = "impatient"

        async def start(self) -> AsyncGenerator[Any, None]:
            with trio.move_on_after(0.01):
                for i in range(5):
                    yield Request(f"http://a.example/{i}")
                await trio.sleep(60)

        def parse(self, response: Response, **kwargs: Any) -> Any:
            return {"url": response.url}

    web = SimulatedWeb()
    web.add_host("a.example", latency=0.1)
    run = await web.crawl(Impatient, settings={**FREE, "CONCURRENT_REQUESTS": 1})
    assert run.reason == "finished"
    assert len(run.items) == 5


async def test_a_deadline_around_a_yield_in_start_does_not_reach_the_look_up_in_a_cache(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    class Impatient(trawl.Spider):
        name = "impatient"

        async def start(self) -> AsyncGenerator[Any, None]:
            with trio.move_on_after(0.0):
                for i in range(5):
                    yield Request(f"http://a.example/{i}")

        def parse(self, response: Response, **kwargs: Any) -> Any:
            return {"url": response.url}

    web = SimulatedWeb()
    web.add_host("a.example", latency=0.1)
    run = await web.crawl(Impatient, settings={**FREE, "HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path)})
    assert run.reason == "finished"
    assert len(run.items) == 5


class Remote(MemoryFrontier):
    """One of a user's own, which waits."""

    async def push_many(self, records: Sequence[Record]) -> PushResult:
        await trio.sleep(0.1)
        return await super().push_many(records)


class Distant(MemoryFrontier):
    """One of a user's own, which takes a second to lease requests."""

    async def lease_many(self, lane: LaneKey, limit: int) -> list[Record]:
        await trio.sleep(1.0)
        return await super().lease_many(lane, limit)


async def test_nothing_is_sent_that_was_being_leased_when_the_crawl_was_told_to_end(autojump_clock: MockClock) -> None:
    class One(trawl.Spider):
        name = "one"
        start_urls = ("http://a.example/",)

        def parse(self, response: Response, **kwargs: Any) -> Any:
            return {"url": response.url}

    async def stop(crawl: Crawl) -> None:
        await trio.sleep(0.5)
        crawl.shutdown()

    web = SimulatedWeb()
    web.add_host("a.example", latency=0.1)
    run = await crawl_with(
        One,
        load(Layer("test", FREE)),
        transport=web.transport(),
        blocking=InlineBlocking(),
        frontier=Distant(),
        watchers=[stop],
    )
    assert (run.reason, run.stats.get("request_count", 0)) == ("shutdown", 0)


async def test_a_deadline_around_a_yield_in_start_does_not_reach_a_frontier_that_waits(
    autojump_clock: MockClock,
) -> None:
    class Impatient(trawl.Spider):
        name = "impatient"

        async def start(self) -> AsyncGenerator[Any, None]:
            with trio.move_on_after(0.0):
                for i in range(5):
                    yield Request(f"http://a.example/{i}")

        def parse(self, response: Response, **kwargs: Any) -> Any:
            return {"url": response.url}

    web = SimulatedWeb()
    web.add_host("a.example", latency=0.1)
    settings = load(Layer("test", FREE))
    run = await crawl_with(
        Impatient, settings, transport=web.transport(), blocking=InlineBlocking(), frontier=Remote(), collect=True
    )
    assert run.reason == "finished"
    assert len(run.items or ()) == 5


async def test_context_variables_that_start_sets_are_its_own(autojump_clock: MockClock) -> None:
    step: ContextVar[int | None] = ContextVar("step", default=None)

    class Sets(trawl.Spider):
        name = "sets"

        async def start(self) -> AsyncGenerator[Any, None]:
            for i in range(5):
                step.set(i)
                yield Request(f"http://a.example/{i}")

        def parse(self, response: Response, **kwargs: Any) -> Any:
            return {"step": step.get()}

    web = SimulatedWeb()
    web.add_host("a.example", latency=0.1)
    run = await web.crawl(Sets, settings=FREE)
    assert [item["step"] for item in run.items] == [None] * 5


@pytest.mark.interpreted
async def test_a_place_too_many_for_what_start_gives_ends_the_crawl_and_is_not_its_failure(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: ScopeLimiters, entry: object) -> None:
        raise trio.WouldBlock

    class Single(trawl.Spider):
        name = "single"
        start_urls = ("http://a.example/",)

    monkeypatch.setattr(ScopeLimiters, "take", full)
    with pytest.raises(trio.WouldBlock):
        await SimulatedWeb().crawl(Single, settings=FREE)


async def test_scrapys_older_start_requests_is_read_too(autojump_clock: MockClock) -> None:
    class Older(trawl.Spider):
        name = "older"

        def start_requests(self) -> Iterator[Request]:
            yield Request("http://a.example/1")

        def parse(self, response: Response, **kwargs: Any) -> Any:
            return {"url": response.url}

    web = SimulatedWeb()
    web.add_host("a.example")
    assert len((await web.crawl(Older, settings=FREE)).items) == 1


async def test_start_requests_may_give_those_of_the_class_above_too(autojump_clock: MockClock) -> None:
    class Older(trawl.Spider):
        name = "older"
        start_urls = ("http://a.example/1",)

        def start_requests(self) -> Iterator[Request]:
            yield Request("http://a.example/login")
            yield from super().start_requests()

        def parse(self, response: Response, **kwargs: Any) -> Any:
            return {"url": response.url}

    web = SimulatedWeb()
    web.add_host("a.example")
    items = (await web.crawl(Older, settings=FREE)).items
    assert [item["url"] for item in items] == ["http://a.example/login", "http://a.example/1"]


async def test_duplicate_start_urls_are_fetched_once(autojump_clock: MockClock) -> None:
    class Twice(trawl.Spider):
        name = "twice"
        start_urls = ("http://a.example/", "http://a.example/#top")

        def parse(self, response: Response, **kwargs: Any) -> Any:
            return {"url": response.url}

    web = SimulatedWeb()
    web.add_host("a.example")
    run = await web.crawl(Twice, settings=FREE)
    assert len(run.items) == 1
    assert run.stats["dupefilter_filtered"] == 1


async def test_start_urls_that_are_not_filtered_come_as_often_as_listed_and_again_by_a_link(
    autojump_clock: MockClock,
) -> None:
    class Twice(trawl.Spider):
        name = "twice"
        start_urls = ("http://a.example/", "http://a.example/")

        async def start(self) -> AsyncGenerator[Any, None]:
            yield Request("http://a.example/1")  # a request of its own is filtered
            yield Request("http://a.example/1")
            async for request in super().start():
                yield request

        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield {"url": response.url, "dont_filter": response.request is not None and response.request.dont_filter}
            yield response.follow("/")

    web = SimulatedWeb()
    web.add_host("a.example")
    items = (await web.crawl(Twice, settings={**FREE, "FILTER_START_URLS": False})).items
    assert sorted((item["url"], item["dont_filter"]) for item in items) == [
        ("http://a.example/", False),
        ("http://a.example/", True),
        ("http://a.example/", True),
        ("http://a.example/1", False),
    ]


@pytest.mark.parametrize("kind", ["generator", "coroutine", "list"])
async def test_a_start_that_is_no_async_generator_is_told_what_it_has_to_be(
    kind: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def coroutine() -> list[Request]:
        return []  # pragma: no cover  # never run

    def generator() -> Iterator[Request]:
        yield Request("http://a.example/")  # pragma: no cover  # never run

    class Plain(trawl.Spider):
        name = "plain"

        def start(self) -> Any:
            return coroutine() if kind == "coroutine" else generator() if kind == "generator" else []

    run = await SimulatedWeb().crawl(Plain, settings=FREE, errors="collect")
    assert run.reason == "start_error"
    assert f"`async def` with a `yield` in it; it gave a {kind}" in caplog.text
