"""A job's store that is slow is named as what pages wait for, and does not count as the time of their callbacks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.jobs.site import Linked, site
from tests.watched_crawl import crawl_with
from trawl._run import CrawlResult
from trawl.blocking import InlineBlocking
from trawl.engine import Crawl
from trawl.frontier.job import SLOW, SessionLease, StepTimes
from trawl.http import Response
from trawl.settings import Layer, load
from trawl.spiders import Spider

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

FAST = {"ROBOTSTXT_OBEY": False, "DOWNLOAD_DELAY": 0.0, "CONCURRENT_REQUESTS_PER_DOMAIN": 16}


class SlowDisk(InlineBlocking):
    """Each call takes a while, from ``starts_at`` on."""

    __slots__ = ("seconds", "starts_at")

    def __init__(self, seconds: float, starts_at: float = 0.0) -> None:
        self.seconds = seconds
        self.starts_at = starts_at

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run ``function(*args)`` after a pause."""
        if trio.current_time() >= self.starts_at:
            await trio.sleep(self.seconds)
        return function(*args)


async def crawl(
    folder: Path,
    disk: SlowDisk,
    watcher: Callable[[Crawl], Awaitable[None]],
    spider: type[Spider] = Linked,
    **more: Any,
) -> CrawlResult:
    settings = {"JOB_DIR": str(folder / "job"), **FAST, **more}
    web = site(63)
    values = load(Layer("test", settings))
    return await crawl_with(spider, values, transport=web.transport(), blocking=disk, seed=0, watchers=[watcher])


async def nothing(crawl: Crawl) -> None:
    await trio.lowlevel.checkpoint()


async def test_pages_that_wait_for_their_step_have_the_reason_store(tmp_path: Path, autojump_clock: MockClock) -> None:
    seen: list[tuple[int, str]] = []

    class All(Linked):
        start_urls = tuple(f"http://a.example/{n or ''}" for n in range(63))

    async def look(crawl: Crawl) -> None:
        disk.starts_at = trio.current_time() + 0.5
        await trio.sleep(10.0)
        assert crawl.queued
        seen.extend((group.count, group.reason.text(trio.current_time())) for group in crawl.waiting())
        request = next(iter(crawl._context.open_job.storing))
        reason = crawl.why(request)
        assert reason is not None
        seen.append((0, reason.limit))

    disk = SlowDisk(60.0, 1e9)
    result = await crawl(tmp_path, disk, look, All, CONCURRENT_CALLBACKS=4)
    assert result.reason == "finished"
    (count, words), of_one = seen
    pages, _, rest = words.removeprefix("store (").partition(" ")
    assert rest.startswith("pages wait for their steps to be stored; the last step took ")
    assert "this one has taken " in rest
    assert count > int(pages) >= 4  # the requests behind them wait for their places
    assert of_one == (0, "store")


async def test_callbacks_that_run_are_named_as_such(tmp_path: Path, autojump_clock: MockClock) -> None:
    seen: list[list[str]] = []

    class Slow(Linked):
        async def parse(self, response: Response, **kwargs: Any) -> Any:
            for output in Linked.parse(self, response):
                yield output
            await trio.sleep(5.0)

    async def look(crawl: Crawl) -> None:
        await trio.sleep(8.0)
        seen.append([group.reason.limit for group in crawl.waiting()])

    await crawl(tmp_path, SlowDisk(0.0), look, Slow, CONCURRENT_CALLBACKS=1, CONCURRENT_REQUESTS_PER_DOMAIN=1)
    assert seen == [["callbacks"]]


async def test_a_crawl_that_is_ending_says_so(tmp_path: Path, autojump_clock: MockClock) -> None:
    seen: list[str] = []

    async def look(crawl: Crawl) -> None:
        disk.starts_at = trio.current_time() + 0.5
        await trio.sleep(5.0)
        crawl.shutdown()
        await trio.sleep(1.0)
        seen.extend(group.reason.text(trio.current_time()) for group in crawl.waiting())
        reason = crawl.why("a.example")
        assert reason is not None
        seen.append(reason.limit)

    disk = SlowDisk(20.0, 1e9)
    await crawl(tmp_path, disk, look)
    words, limit = seen
    assert words.startswith("the crawl is ending (shutdown; ")
    assert "wait for their steps to be stored" in words
    assert limit == "ending"


@pytest.mark.parametrize("kind", ["items", "requests"])
async def test_the_time_of_a_callback_excludes_the_wait_for_the_store(
    tmp_path: Path, autojump_clock: MockClock, kind: str
) -> None:
    class Many(trawl.Spider):
        name = "many"
        start_urls = ("http://a.example/",)

        def parse(self, response: Response) -> Iterator[object]:
            if kind == "items":
                yield from ({"n": n} for n in range(5000))
            elif response.url.endswith("/"):
                yield from (trawl.Request(f"http://a.example/{n}?{n}", callback=self.end) for n in range(500))

        def end(self, response: Response) -> None:
            """Do nothing."""

    async def look(crawl: Crawl) -> None:
        disk.starts_at = trio.current_time()
        await trio.lowlevel.checkpoint()

    disk = SlowDisk(3.0, 1e9)
    result = await crawl(tmp_path, disk, look, Many, FEEDS={str(tmp_path / "o.jsonl"): {}})
    assert result.elapsed > 3.0
    assert result.stats.get("parsing_seconds", 0.0) < 1.0


def test_a_store_that_does_not_respond_is_not_reported_as_shared_scopes() -> None:
    lease = SessionLease()
    lease.renew(100.0)
    assert lease.why(50.0) == ""
    lease.asked_at = 96.0
    assert lease.why(96.5) == ""
    assert lease.why(98.0) == "it has not responded for 2 s, nothing is sent after 2 s"
    assert lease.why(103.0) == "it has not responded for 7 s, nothing is sent"
    lease.asked_at = None
    assert lease.why(103.0) == "nothing is sent until the lease is renewed"
    lease.renew(200.0)
    lease.hold_places(110.0)
    assert lease.why(111.0) == "nothing is sent: it does not respond about the shared scopes"


def test_a_step_that_is_repeated_counts_from_its_first_attempt() -> None:
    times = StepTimes()
    times.begin(1.0)
    times.begin(4.0)
    times.end(6.0)
    assert times.text(7.0) == "the last step took 5 s"
    times.begin(10.0)
    assert times.text(10.0 + SLOW) == "the last step took 5 s"
    assert times.text(16.0) == "the last step took 5 s, and this one has taken 6.0 s so far"
