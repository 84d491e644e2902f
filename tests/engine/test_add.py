"""Requests that are put into a running crawl from outside: ``crawl.add()`` and ``crawl.stay_open()``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.watched_crawl import crawl_with
from trawl._run import CrawlResult
from trawl.blocking import InlineBlocking
from trawl.engine import Crawl
from trawl.errors import IgnoreRequest
from trawl.settings import Layer, load
from trawl.testing import SimulatedWeb, Simulation

FAST = {
    "ROBOTSTXT_OBEY": False,
    "DOWNLOAD_DELAY": 0.0,
    "DOWNLOAD_DELAY_PER_SLOT": 0.0,
    "RANDOMIZE_DOWNLOAD_DELAY": False,
}
SLOW = {**FAST, "DOWNLOAD_DELAY": 1.0}

Task = Callable[[Crawl], Awaitable[None]]


class Empty(trawl.Spider):
    """It has nothing to start with."""

    name = "empty"

    def parse(self, response: trawl.Response) -> Any:
        return {"url": response.url}


def a_web() -> SimulatedWeb:
    web = SimulatedWeb()
    for host in ("a.example", "b.example"):
        web.add_host(host, latency=0.1)
    return web


def urls(count: int, host: str = "a.example") -> list[str]:
    return [f"http://{host}/{number}" for number in range(count)]


def requests(count: int, host: str = "a.example") -> Iterator[trawl.Request]:
    return (trawl.Request(url) for url in urls(count, host))


async def a_crawl(*tasks: Task, settings: dict[str, Any] = FAST, spider: Any = Empty) -> Simulation:
    """A crawl with these watchers; what one of them raises is raised."""
    failures: list[Exception] = []

    def kept(task: Task) -> Task:
        async def watch(crawl: Crawl) -> None:
            try:
                await task(crawl)
            except Exception as error:
                failures.append(error)
                raise

        return watch

    sim = await a_web().crawl(spider, {**settings, "WATCHERS": {kept(task): place for place, task in enumerate(tasks)}})
    if failures:
        raise failures[0]
    return sim


async def test_what_a_watcher_adds_is_sent_and_parsed(autojump_clock: MockClock) -> None:
    async def adds(crawl: Crawl) -> None:
        await crawl.add(trawl.Request("http://a.example/one"))
        await crawl.add(requests(250))

    sim = await a_crawl(adds)
    assert {item["url"] for item in sim.items} == {"http://a.example/one", *urls(250)}
    assert sim.reason == "finished"


async def test_a_crawl_that_is_kept_open_ends_with_the_block(autojump_clock: MockClock) -> None:
    async def adds(crawl: Crawl) -> None:
        with crawl.stay_open():
            await trio.sleep(100)
            assert crawl.is_idle
            await crawl.add(requests(1))
            await trio.sleep(50)

    sim = await a_crawl(adds)
    assert sim.times("a.example") == [100.0]
    assert (sim.elapsed, sim.reason) == (150.0, "finished")


async def test_a_crawl_with_two_keepers_ends_with_the_last(autojump_clock: MockClock) -> None:
    def keeps(seconds: float) -> Task:
        async def keep(crawl: Crawl) -> None:
            with crawl.stay_open():
                await trio.sleep(seconds)

        return keep

    assert (await a_crawl(keeps(20), keeps(30), keeps(10))).elapsed == 30.0


async def test_a_crawl_that_nobody_keeps_open_ends_and_takes_no_more(autojump_clock: MockClock) -> None:
    told: list[str] = []

    async def adds(crawl: Crawl) -> None:
        try:
            await trio.sleep(5)
        finally:
            with trio.CancelScope(shield=True):
                for try_it in (crawl.add, lambda requests: crawl.stay_open().__enter__()):
                    try:
                        await try_it(requests(1))  # type: ignore[misc]
                    except IgnoreRequest as error:
                        told.append(str(error))

    sim = await a_crawl(adds)
    assert (sim.elapsed, sim.sends) == (0.0, ())
    assert told == ["the crawl is ending, or is over (finished): it takes no more requests"] * 2


async def test_what_is_added_does_not_wait_behind_what_is_pending(autojump_clock: MockClock) -> None:
    class Busy(Empty):
        start_urls = urls(100)

    async def adds(crawl: Crawl) -> None:
        await trio.sleep(10.0)
        await crawl.add(requests(1, "b.example"))

    assert (await a_crawl(adds, settings={**FAST, "DOWNLOAD_DELAY": 0.5}, spider=Busy)).times("b.example") == [10.0]


async def test_adding_waits_while_too_many_are_pending(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trawl.engine.crawl.MAX_PENDING", 20)
    monkeypatch.setattr("trawl.engine.crawl.BATCH", 5)
    taken: list[tuple[float, int]] = []
    most = 0

    async def adds(crawl: Crawl) -> None:
        def given() -> Iterator[trawl.Request]:
            for number, request in enumerate(requests(50)):
                taken.append((trio.current_time() - crawl.started_at, number))
                yield request

        await crawl.add(given())

    async def looks(crawl: Crawl) -> None:
        nonlocal most
        while True:
            most = max(most, crawl.queued)
            await trio.sleep(0.25)

    sim = await a_crawl(adds, looks, settings=SLOW)
    assert len(sim.items) == 50
    assert most <= 24  # one group is added while there are 19
    assert [number for at, number in taken if at == 0.0] == list(range(25))
    assert taken[-1][0] == pytest.approx(20.1)  # the last group is read ahead, and waits


async def test_many_that_add_take_turns_and_hold_the_same_bound(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trawl.engine.crawl.MAX_PENDING", 20)
    most = 0

    async def adds(crawl: Crawl) -> None:
        nonlocal most

        async def one_by_one(caller: int) -> None:
            nonlocal most
            for number in range(10):
                await crawl.add(trawl.Request(f"http://a.example/{caller}/{number}"))
                most = max(most, crawl.queued)

        with crawl.stay_open():
            async with trio.open_nursery() as nursery:
                for caller in range(10):
                    nursery.start_soon(one_by_one, caller)

    sim = await a_crawl(adds, settings=SLOW)
    assert len(sim.items) == 100
    assert most == 20
    callers = [send.url.split("/")[3] for send in sim.sends]
    assert set(callers[:20]) == {str(number) for number in range(10)}  # nobody is passed over


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_an_ending_crawl_tells_who_waits_to_add(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    monkeypatch.setattr("trawl.engine.crawl.MAX_PENDING", 3)
    monkeypatch.setattr("trawl.engine.crawl.BATCH", 1)
    told: list[object] = []

    async def adds(crawl: Crawl) -> None:
        with crawl.stay_open(), trio.CancelScope(shield=True):
            try:
                await crawl.add(requests(100))
            except IgnoreRequest as error:
                told.append((str(error).partition(":")[0], trio.current_time() - crawl.started_at))

    async def ends(crawl: Crawl) -> None:
        await trio.sleep(7.5)
        crawl.cancel() if is_cancelled else crawl.shutdown()

    sim = await a_crawl(adds, ends, settings=SLOW)
    reason = "cancelled" if is_cancelled else "shutdown"
    assert told == [(f"the crawl is ending, or is over ({reason})", 7.5)]
    assert (sim.reason, len(sim.items)) == (reason, 8)


async def test_a_watcher_that_adds_ends_with_the_crawl(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("trawl.engine.crawl.MAX_PENDING", 3)

    async def adds(crawl: Crawl) -> None:
        for number in count():
            await crawl.add(trawl.Request(f"http://a.example/{number}"))

    async def ends(crawl: Crawl) -> None:
        await trio.sleep(3.5)
        crawl.shutdown()

    sim = await a_web().crawl(Empty, {**SLOW, "WATCHERS": {adds: 0, ends: 1}})
    assert (sim.reason, len(sim.items)) == ("shutdown", 4)
    assert "failed" not in caplog.text


async def test_a_cancelled_caller_leaves_what_it_has_stored(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trawl.engine.crawl.MAX_PENDING", 3)
    monkeypatch.setattr("trawl.engine.crawl.BATCH", 2)

    async def adds(crawl: Crawl) -> None:
        with crawl.stay_open():
            with trio.move_on_after(4.5):
                await crawl.add(requests(100))
            await crawl.add(requests(1, "b.example"))  # the next one is not held up

    sim = await a_crawl(adds, settings=SLOW)
    assert 6 <= len(sim.of("a.example")) <= 10
    assert len(sim.of("b.example")) == 1
    assert len(sim.items) == len(sim.sends)
    assert sim.reason == "finished"


async def test_a_watcher_that_begins_before_the_crawl_waits_for_it(autojump_clock: MockClock, tmp_path: Path) -> None:
    settings = {**SLOW, "JOB_DIR": str(tmp_path / "job")}

    async def adds(crawl: Crawl) -> None:
        await crawl.add(requests(6))
        await trio.sleep(2.5)
        crawl.shutdown()

    first = await a_crawl(adds, settings=settings)
    assert len(first.items) == 3

    async def adds_again(crawl: Crawl) -> None:
        await crawl.add(requests(8))

    second = await a_crawl(adds_again, settings=settings)
    assert sorted(item["url"] for item in [*first.items, *second.items]) == urls(8)
    assert second.stats["dupefilter_filtered"] == 6


async def test_a_job_that_had_finished_takes_more(autojump_clock: MockClock, tmp_path: Path) -> None:
    settings = {**FAST, "JOB_DIR": str(tmp_path / "job")}

    async def adds(crawl: Crawl) -> None:
        await crawl.add(requests(2))

    async def adds_more(crawl: Crawl) -> None:
        await crawl.add(requests(4))

    assert len((await a_crawl(adds, settings=settings)).items) == 2
    assert len((await a_crawl(adds_more, settings=settings)).items) == 2


async def test_an_idle_crawl_that_is_kept_open_can_fetch_and_be_waited_for(autojump_clock: MockClock) -> None:
    async def adds(crawl: Crawl) -> None:
        with crawl.stay_open():
            await trio.sleep(10)
            assert (await crawl.fetch(trawl.Request("http://a.example/direct"))).status == 200
            await crawl.add(requests(3))
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(crawl.until_idle)
            assert crawl.stats.get("item_scraped_count") == 3

    assert len((await a_crawl(adds)).sends) == 4


async def test_start_and_what_is_added_come_together(autojump_clock: MockClock) -> None:
    class Numbered(Empty):
        async def start(self) -> AsyncIterator[trawl.Request]:
            for number in range(30):
                yield trawl.Request(f"http://b.example/{number}")

    async def adds(crawl: Crawl) -> None:
        await crawl.add(requests(30))

    sim = await a_crawl(adds, spider=Numbered, settings=SLOW)
    assert {item["url"] for item in sim.items} == {*urls(30), *urls(30, "b.example")}
    assert sim.elapsed < 32


async def test_a_callback_yields_instead_of_adding(autojump_clock: MockClock) -> None:
    class Adding(Empty):
        start_urls = urls(1)

        async def parse(self, response: trawl.Response) -> None:
            with pytest.raises(RuntimeError, match="in a callback, yield the requests"):
                await self.crawl.add(requests(1, "b.example"))
            self.crawl.stats.inc("told")

    assert (await a_crawl(spider=Adding)).stats["told"] == 1


@pytest.mark.parametrize(
    "given", ["http://a.example/", ["http://a.example/"], [None], None, [trawl.Request("http://a.example/"), 1]]
)
async def test_what_is_no_request_is_refused_and_the_crawl_goes_on(autojump_clock: MockClock, given: Any) -> None:
    async def adds(crawl: Crawl) -> None:
        with crawl.stay_open():
            with pytest.raises(TypeError, match=r"add\(\) takes requests, not .*: write trawl.Request\(url\)"):
                await crawl.add(given)
            await crawl.add(requests(1, "b.example"))

    sim = await a_crawl(adds)
    assert [item["url"] for item in sim.items] == ["http://b.example/0"]


async def test_a_request_that_can_not_be_sent_is_dropped_and_told(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def adds(crawl: Crawl) -> None:
        await crawl.add([trawl.Request("ftp://a.example/"), *requests(1)])

    sim = await a_crawl(adds)
    assert len(sim.items) == 1
    assert "<GET ftp://a.example/> from start() or add() is dropped: " in caplog.text


async def test_always_a_checkpoint(autojump_clock: MockClock) -> None:
    async def adds(crawl: Crawl) -> None:
        with trio.testing.assert_checkpoints():
            await crawl.add([])
        with trio.testing.assert_checkpoints():
            await crawl.add(requests(1))

    await a_crawl(adds)


def crawled(*watchers: Task, web: SimulatedWeb) -> Awaitable[CrawlResult]:
    return crawl_with(
        Empty,
        load(Layer("test", FAST)),
        collect=True,
        watchers=watchers,
        transport=web.transport(),
        blocking=InlineBlocking(),
        resolve=web.resolve,
    )


async def test_a_thread_may_add() -> None:
    async def adds(crawl: Crawl) -> None:
        def in_a_thread() -> None:
            for request in (trawl.Request("http://a.example/thread"),):
                trio.from_thread.run(crawl.add, request)

        with crawl.stay_open():
            await trio.to_thread.run_sync(in_a_thread)

    web = SimulatedWeb()
    web.add_host("a.example")
    assert (await crawled(adds, web=web)).items == [{"url": "http://a.example/thread"}]
