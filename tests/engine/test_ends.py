"""How crawls end: drained, cancelled, failed; and what a second crawl in the same program notices of it: nothing."""

from __future__ import annotations

import math
import traceback
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.watched_crawl import crawl_with
from trawl._run import crawl_with as crawl_with_contained_watchers
from trawl.blocking import InlineBlocking
from trawl.engine import Crawl, ItemReceiver, Watcher
from trawl.engine.leases import Leases
from trawl.errors import FeedError, SettingsError, UsageError
from trawl.frontier import MemoryFrontier
from trawl.http import Request, Response
from trawl.settings import Layer, load
from trawl.testing import SimulatedWeb

FREE = {"DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0, "ROBOTSTXT_OBEY": False}


async def crawled(
    spider: type[trawl.Spider],
    settings: Mapping[str, object] = FREE,
    *,
    watcher: Watcher | None = None,
    receivers: Sequence[ItemReceiver] = (),
) -> trawl.CrawlResult:
    """A crawl of :func:`slow_web` with parts that ``web.crawl`` has no arguments for."""
    return await crawl_with(
        spider,
        load(Layer("test", settings)),
        transport=slow_web().transport(),
        blocking=InlineBlocking(),
        seed=0,
        collect=True,
        watchers=[watcher] if watcher else [],
        receivers=receivers,
    )


class Slow(trawl.Spider):
    """Three pages of ten seconds, one after the other."""

    name = "slow"
    closed_with: str | None = None
    start_urls: tuple[str, ...] = ("http://a.example/1", "http://a.example/2", "http://a.example/3")

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"url": response.url}

    def closed(self, reason: str) -> Any:
        type(self).closed_with = reason


def slow_web() -> SimulatedWeb:
    web = SimulatedWeb()
    web.add_host("a.example", latency=10.0)
    return web


async def test_a_shutdown_sends_nothing_new_and_waits_for_what_is_in_flight(autojump_clock: MockClock) -> None:
    async def stop(crawl: Crawl) -> None:
        await trio.sleep(15)
        crawl.shutdown()

    run = await crawled(Slow, FREE, watcher=stop)
    assert run.reason == "shutdown"
    assert [item["url"] for item in run.items or ()] == ["http://a.example/1", "http://a.example/2"]
    assert run.elapsed == pytest.approx(20, abs=0.1)
    assert Slow.closed_with == "shutdown"


async def test_a_shutdown_waits_no_longer_than_its_limit(autojump_clock: MockClock) -> None:
    async def stop(crawl: Crawl) -> None:
        await trio.sleep(11)
        crawl.shutdown()

    run = await crawled(Slow, {**FREE, "SHUTDOWN_TIMEOUT": 2.0}, watcher=stop)
    assert run.reason == "shutdown"
    assert len(run.items or ()) == 1
    assert run.elapsed == pytest.approx(13, abs=0.1)


class Unhurried:
    """A pipeline that takes ten seconds."""

    async def process_item(self, item: object, spider: trawl.Spider) -> object:
        await trio.sleep(10)
        return item


async def test_a_delay_that_ends_after_a_shutdown_does_not_cut_off_what_is_in_the_pipelines(
    autojump_clock: MockClock,
) -> None:
    async def stop(crawl: Crawl) -> None:
        await trio.sleep(5)
        crawl.shutdown()

    delayed = {**FREE, "DOWNLOAD_DELAY": 15.0, "RANDOMIZE_DOWNLOAD_DELAY": False, "CONCURRENT_REQUESTS_PER_DOMAIN": 4}
    run = await crawled(Slow, {**delayed, "ITEM_PIPELINES": {Unhurried: 1}}, watcher=stop)
    assert run.reason == "shutdown"
    assert [item["url"] for item in run.items or ()] == ["http://a.example/1"]
    assert run.elapsed == pytest.approx(20, abs=0.1)


async def test_a_second_stop_cancels_at_once(autojump_clock: MockClock) -> None:
    async def stop(crawl: Crawl) -> None:
        await trio.sleep(11)
        crawl.shutdown()
        await trio.sleep(1)
        crawl.cancel()

    run = await crawled(Slow, FREE, watcher=stop)
    assert run.reason == "cancelled"
    assert len(run.items or ()) == 1
    assert run.elapsed == pytest.approx(12, abs=0.1)
    assert Slow.closed_with == "cancelled"


async def test_stopping_during_a_long_delay_is_quick(autojump_clock: MockClock) -> None:  # P18
    async def stop(crawl: Crawl) -> None:
        await trio.sleep(20)
        crawl.shutdown()

    run = await crawled(Slow, {**FREE, "DOWNLOAD_DELAY": 60.0}, watcher=stop)
    assert run.elapsed == pytest.approx(20, abs=0.1)
    assert len(run.items or ()) == 1


async def test_a_callback_that_waits_for_a_direct_fetch_does_not_hold_up_a_shutdown(autojump_clock: MockClock) -> None:
    class Asks(Slow):
        async def parse(self, response: Response, **kwargs: Any) -> Any:
            await self.fetch(Request("http://a.example/direct"))
            return {"url": response.url}

    async def stop(crawl: Crawl) -> None:
        await trio.sleep(20)
        crawl.shutdown()

    run = await crawled(Asks, {**FREE, "DOWNLOAD_DELAY": 60.0}, watcher=stop)
    assert run.reason == "shutdown"
    assert run.elapsed == pytest.approx(20, abs=0.1)
    assert run.items == []


async def test_a_callers_cancel_ends_the_crawl_and_closes_the_spider(autojump_clock: MockClock) -> None:
    with trio.move_on_after(15):
        await crawled(Slow)
    assert trio.current_time() == pytest.approx(15, abs=0.1)
    assert Slow.closed_with == "cancelled"


async def test_crawls_run_side_by_side_and_one_after_the_other(autojump_clock: MockClock) -> None:  # C2
    ends = []

    async def one() -> None:
        ends.append(await crawled(Slow))

    for _ in range(2):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one)
            nursery.start_soon(one)
    assert [end.reason for end in ends] == ["finished"] * 4
    assert [len(end.items or ()) for end in ends] == [3] * 4


async def test_a_start_that_fails_is_the_reason_after_what_it_gave(autojump_clock: MockClock) -> None:
    class Fails(Slow):
        async def start(self) -> AsyncGenerator[Any, None]:
            yield Request("http://a.example/1")
            raise LookupError("no more")

    run = await crawled(Fails)
    assert run.reason == "start_error"
    assert len(run.items or ()) == 1


async def test_closing_a_spider_that_fails_or_hangs_does_not_hold_up_the_end(autojump_clock: MockClock) -> None:
    class Hangs(Slow):
        start_urls = ()

        async def closed(self, reason: str) -> Any:
            await trio.sleep_forever()

    run = await crawled(Hangs)
    assert run.reason == "finished"
    assert trio.current_time() == pytest.approx(10, abs=0.1)


async def test_another_stop_does_not_wait_for_the_spider_to_close(autojump_clock: MockClock) -> None:
    class Hangs(Slow):
        async def closed(self, reason: str) -> Any:
            await trio.sleep_forever()

    async def stop(crawl: Crawl) -> None:
        await trio.sleep(11)
        crawl.shutdown()

    crawls: list[Crawl] = []

    async def keep(crawl: Crawl) -> None:
        crawls.append(crawl)

    async def again() -> None:
        await trio.sleep(22)
        crawls[0].cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(again)
        run = await crawl_with(
            Hangs,
            load(Layer("test", FREE)),
            transport=slow_web().transport(),
            blocking=InlineBlocking(),
            watchers=[stop, keep],
        )
    assert run.reason == "shutdown"
    assert trio.current_time() == pytest.approx(22, abs=0.1)  # it would have been 30


def fails() -> None:
    raise ValueError("mine")


@pytest.mark.parametrize("after", [0.0, 15.0])
async def test_a_watcher_that_fails_is_logged_from_its_own_line_on_and_the_crawl_continues(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, after: float
) -> None:
    async def broken(crawl: Crawl) -> None:
        await trio.sleep(after)
        fails()

    run = await crawl_with_contained_watchers(
        Slow,
        load(Layer("test", FREE)),
        transport=slow_web().transport(),
        blocking=InlineBlocking(),
        watchers=[broken],
        collect=True,
    )
    assert (run.reason, len(run.items or ()), run.stats["watcher_exceptions"]) == ("finished", 3, 1)
    [told] = [record for record in caplog.records if record.exc_info]
    assert told.getMessage().endswith("broken failed; the crawl goes on without it")
    assert told.exc_info is not None
    assert [frame.name for frame in traceback.extract_tb(told.exc_info[2])] == ["broken", "fails"]


async def test_an_assertion_in_a_watcher_of_a_test_fails_the_test(autojump_clock: MockClock) -> None:
    async def asserts(crawl: Crawl) -> None:
        await trio.sleep(5)
        assert crawl.in_flight == 100

    with pytest.raises(AssertionError):
        await crawled(Slow, watcher=asserts)
    assert trio.current_time() < 10


class BrokenSink:
    """A sink whose writer fails after a second."""

    def put_nowait(self, item: object, page: str = "") -> None:
        raise trio.WouldBlock

    async def put(self, item: object, page: str = "") -> None:
        await trio.sleep(100)
        raise FeedError("the disk is full")

    async def write(self) -> None:
        await trio.sleep(15)
        raise FeedError("the disk is full")

    def close(self) -> None:
        """Nothing to close."""


async def test_a_feed_that_fails_ends_the_crawl_with_feed_error(autojump_clock: MockClock) -> None:
    run = await crawled(Slow, receivers=[BrokenSink()])
    assert run.reason == "feed_error"
    assert "disk is full" in str(run.error)
    assert run.elapsed == pytest.approx(15, abs=0.1)


class StuckSink:
    """A sink whose writer takes so many seconds to end."""

    def __init__(self, seconds: float = math.inf) -> None:
        self.seconds = seconds

    def put_nowait(self, item: object, page: str = "") -> None:
        """Take it."""

    async def put(self, item: object, page: str = "") -> None:
        await trio.lowlevel.checkpoint()

    async def write(self) -> None:
        await trio.sleep(self.seconds)

    def close(self) -> None:
        """Nothing to close."""


async def test_a_writer_that_hangs_has_its_time_from_the_first_cancel_on(autojump_clock: MockClock) -> None:
    async def stop(crawl: Crawl) -> None:
        for _ in range(3):
            await trio.sleep(4)
            crawl.cancel()

    run = await crawled(Slow, receivers=[StuckSink()], watcher=stop)
    assert "not closed within 10 s" in str(run.error)
    assert run.elapsed == pytest.approx(14, abs=0.1)


async def test_a_writer_that_holds_up_a_crawl_that_has_ended_is_cut_off_by_a_cancel(autojump_clock: MockClock) -> None:
    async def stop(crawl: Crawl) -> None:
        await trio.sleep(1000)
        crawl.cancel()

    run = await crawled(Slow, receivers=[StuckSink(3000)], watcher=stop)
    assert run.reason == "feed_error"
    assert run.elapsed == pytest.approx(1010, abs=0.1)


@pytest.mark.parametrize("at", [15, 1000])  # while it drains after a shutdown; while only the writer runs
async def test_a_callers_cancel_gives_a_writer_that_hangs_its_time_whatever_the_crawl_does(
    autojump_clock: MockClock, at: float
) -> None:
    async def stop(crawl: Crawl) -> None:
        await trio.sleep(12)
        crawl.shutdown()

    with trio.move_on_after(at) as scope:
        await crawled(Slow, receivers=[StuckSink(3000)], watcher=stop)
    assert scope.cancelled_caught
    assert trio.current_time() == pytest.approx(at + 10, abs=0.1)


async def test_a_shutdown_after_the_last_page_has_its_limit_too(autojump_clock: MockClock) -> None:
    class Single(Slow):
        start_urls = ("http://a.example/1",)

    async def fetches_and_stops(crawl: Crawl) -> None:
        async def stop() -> None:
            await trio.sleep(11)  # the page has ended
            crawl.shutdown()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop)
            await trio.sleep(5)
            await crawl.fetch(Request("http://a.example/2"))

    settings = {**FREE, "CONCURRENT_REQUESTS_PER_DOMAIN": 2, "SHUTDOWN_TIMEOUT": 2}
    run = await crawled(Single, settings, watcher=fetches_and_stops)
    assert len(run.items or ()) == 1
    assert run.elapsed == pytest.approx(13, abs=0.1)


class ClosedFrontier(MemoryFrontier):
    """Tells that it was closed."""

    is_closed = False

    async def aclose(self) -> None:
        self.is_closed = True


async def test_a_crawl_that_can_not_be_put_together_closes_its_frontier(autojump_clock: MockClock) -> None:
    frontier = ClosedFrontier()
    settings = load(Layer("test", {**FREE, "WATCHERS": {"no.such.watcher": 1}}))
    with pytest.raises(UsageError):
        await crawl_with(Slow, settings, transport=slow_web().transport(), blocking=InlineBlocking(), frontier=frontier)
    assert frontier.is_closed


def test_a_spider_is_bound_to_one_crawl_only() -> None:
    spider = Slow()
    with pytest.raises(RuntimeError, match="not running"):
        _ = spider.crawl


class Refuses:
    """A pipeline that can't be opened."""

    def open_spider(self, spider: trawl.Spider) -> None:
        raise ConnectionError("no database")


async def test_a_pipeline_that_can_not_be_opened_is_the_error_of_the_crawl(autojump_clock: MockClock) -> None:
    with pytest.raises(ConnectionError, match="no database"):
        await crawled(Slow, {**FREE, "ITEM_PIPELINES": {Refuses: 1}})


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("allowed_domains", "a.example"),
        ("allowed_domains", ["http://a.example/"]),
        ("handle_httpstatus_list", 404),
        ("handle_httpstatus_list", "404"),
    ],
)
async def test_a_spiders_attribute_of_a_wrong_kind_is_refused_in_one_sentence(
    attribute: str, value: object, autojump_clock: MockClock
) -> None:
    spider = type("Wrong", (Slow,), {attribute: value})
    with pytest.raises(UsageError, match=rf"slow: {attribute} "):
        await crawled(spider)


@pytest.mark.parametrize("wrong", ["ITEM_PIPELINES", "DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES", "EXTENSIONS"])
@pytest.mark.parametrize("is_job", [False, True])
async def test_a_crawl_of_which_a_part_cannot_be_made_leaves_the_feeds_as_they_were(
    wrong: str, is_job: bool, autojump_clock: MockClock, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    out.write_bytes(b'[\n{"of": "yesterday"}\n]\n')  # noqa: ASYNC240
    job = {"JOB_DIR": str(tmp_path / "job")} if is_job else {}
    with pytest.raises(SettingsError, match=f"^{wrong}"):
        await crawled(Slow, {**FREE, **job, "FEEDS": {str(out): {"overwrite": True}}, wrong: {"no.such.Part": 1}})
    assert out.read_bytes() == b'[\n{"of": "yesterday"}\n]\n'  # noqa: ASYNC240
    assert (await crawled(Slow, {**FREE, **job, "FEEDS": {str(out): {"overwrite": True}}})).reason == "finished"
    assert b"yesterday" not in out.read_bytes()  # noqa: ASYNC240


@pytest.mark.interpreted
async def test_abandoned_pages_return_at_the_end_although_an_earlier_call_was_cancelled() -> None:
    released: list[list[object]] = []

    class Frontier:
        async def release(self, leases: list[object]) -> None:
            await trio.lowlevel.checkpoint()
            released.append(leases)

    context: Any = SimpleNamespace(frontier=Frontier(), stats=None, state=None, open_job=SimpleNamespace(deaths=None))
    unused: Any = None
    leases = Leases(context, unused, unused)
    one: Any = object()
    leases.abandon(one)
    with trio.CancelScope() as scope:
        scope.cancel()
        await leases.give_back(())
    await leases.give_back(())
    await leases.give_back(())
    assert released == [[one]]
