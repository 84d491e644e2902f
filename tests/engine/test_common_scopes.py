"""Two crawls of one event loop keep the limits of the scopes that they share, together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.watched_crawl import crawl_with
from trawl._run import _COMMON
from trawl.blocking import InlineBlocking
from trawl.engine import Crawl
from trawl.errors import UsageError
from trawl.http import Fetch, Outcome
from trawl.settings import Layer, load
from trawl.testing import SimulatedResponse, SimulatedWeb
from trawl.transport import TransportSettings

A = "http://a.example"
EXACT = {"ROBOTSTXT_OBEY": False, "RANDOMIZE_DOWNLOAD_DELAY": False}


def spider(number: int, pages: int) -> type[trawl.Spider[Any]]:
    class Pages(trawl.Spider[Any]):
        name = f"pages{number}"
        start_urls = [f"{A}/{number}/{page}" for page in range(pages)]

        def parse(self, response: Any) -> Any:
            yield {"url": response.url}

    return Pages


class Wire:
    """Two crawls on one web; notes when each send goes to the wire and ends."""

    def __init__(self, web: SimulatedWeb) -> None:
        self.web = web
        self.sent: list[tuple[float, str]] = []
        self.in_flight: set[Any] = set()
        self.most = 0
        self.results: dict[int, Any] = {}

    async def crawl(
        self, number: int, settings: Mapping[str, object], pages: int = 20, seed: int = 0, **parts: Any
    ) -> None:
        def note(attempt: Any, outcome: Any, now: float) -> None:
            if attempt in self.in_flight:  # its end, without an outcome where it was cancelled
                self.in_flight.remove(attempt)
                return
            self.sent.append((now, attempt.request.url))
            self.in_flight.add(attempt)
            self.most = max(self.most, len(self.in_flight))

        values = load(Layer("settings", {"ROBOTSTXT_OBEY": False, "DOWNLOAD_DELAY_PER_SLOT": 0, **settings}))
        begun_at = trio.current_time()
        self.results[number] = await crawl_with(
            spider(number, pages),
            values,
            transport=self.web.transport(values.of(TransportSettings), seed=0, begun_at=begun_at),
            blocking=InlineBlocking(),
            resolve=self.web.resolve,
            seed=seed,
            recorder=note,
            **parts,
        )

    @property
    def gaps(self) -> list[float]:
        return [later[0] - earlier[0] for earlier, later in zip(self.sent, self.sent[1:], strict=False)]


def a_web(latency: float = 0.3, refuses: str = "") -> SimulatedWeb:
    """A host; it answers 429 once, to the first request for the URL ``refuses``."""
    web, refusals = SimulatedWeb(), [SimulatedResponse(429, "", {"Retry-After": "30"})]

    def answer(request: Any) -> SimulatedResponse:
        return refusals.pop() if request.url == refuses and refusals else SimulatedResponse()

    web.add_host("a.example", latency=latency, handler=answer)
    return web


@pytest.mark.parametrize("seed", range(5))
async def test_two_crawls_of_a_host_never_send_closer_than_the_delay(autojump_clock: MockClock, seed: int) -> None:
    wire = Wire(a_web())
    async with trio.open_nursery() as nursery:
        for number in range(2):
            nursery.start_soon(wire.crawl, number, {"DOWNLOAD_DELAY": 1.0}, 20, seed)
    assert len(wire.sent) == 40
    assert min(wire.gaps) >= 0.5  # jitter is half
    assert 30 < wire.sent[-1][0] - wire.sent[0][0] < 50
    first = [url for _, url in wire.sent[:20]]
    assert {url.split("/")[3] for url in first} == {"0", "1"}


async def test_two_crawls_of_a_host_never_pass_its_places(autojump_clock: MockClock) -> None:
    wire = Wire(a_web(latency=1.0))
    settings: dict[str, object] = {"THROTTLING_SCOPES": {"a.example": {"concurrency": 3}}, "DOWNLOAD_DELAY": 0}
    async with trio.open_nursery() as nursery:
        for number in range(2):
            nursery.start_soon(wire.crawl, number, settings)
    assert (wire.most, len(wire.sent)) == (3, 40)
    assert wire.sent[-1][0] - wire.sent[0][0] == pytest.approx(13.0)  # no place was left free


@pytest.mark.parametrize("delay", [0, 0.2])
@pytest.mark.parametrize("concurrency", [1, 3])
async def test_two_crawls_of_a_host_never_pass_its_places_where_a_middleware_of_one_awaits(
    autojump_clock: MockClock, concurrency: int, delay: float
) -> None:
    def middleware(fetch: Fetch) -> Fetch:
        async def send(request: trawl.Request) -> Outcome:
            await trio.sleep(0.7)
            return await fetch(request)

        return send

    wire = Wire(a_web(latency=1.0))
    settings = {"THROTTLING_SCOPES": {"a.example": {"concurrency": concurrency}}, "DOWNLOAD_DELAY": delay}
    with trio.fail_after(200.0):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wire.crawl, 0, {**settings, "DOWNLOADER_MIDDLEWARES": {middleware: 560}}, 20)
            nursery.start_soon(wire.crawl, 1, settings, 40)
    assert (wire.most, len(wire.sent)) == (concurrency, 60)
    assert wire.sent[-1][0] - wire.sent[0][0] <= 60.0 / concurrency + 2.0
    assert {result.reason for result in wire.results.values()} == {"finished"}


@pytest.mark.parametrize("sliding", [False, True])
async def test_two_crawls_of_a_host_spend_one_quota(autojump_clock: MockClock, sliding: bool) -> None:
    wire = Wire(a_web())
    scopes = {"a.example": {"quota": 5, "window": 10.0, "sliding": sliding}}
    async with trio.open_nursery() as nursery:
        for number in range(2):
            nursery.start_soon(wire.crawl, number, {"THROTTLING_SCOPES": scopes, "DOWNLOAD_DELAY": 0})
    assert len(wire.sent) == 40
    times = [at for at, _ in wire.sent]
    assert min(later - earlier for earlier, later in zip(times, times[5:], strict=False)) >= 10.0 - 1e-6


async def test_the_stricter_of_two_delays_is_in_force(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    wire = Wire(a_web())
    async with trio.open_nursery() as nursery:
        for number, delay in enumerate((0.5, 2.0)):
            nursery.start_soon(wire.crawl, number, {**EXACT, "DOWNLOAD_DELAY": delay}, 10)
    assert min(wire.gaps[1:]) >= 2.0 - 1e-6
    assert "the settings of two crawls differ" in caplog.text


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(
    "mover",
    [
        {"THROTTLING_SCOPES": {"a.example": {"rampup": True}}, "DOWNLOAD_DELAY": 0.5},
        {"AUTOTHROTTLE_ENABLED": True, "DOWNLOAD_DELAY": 0.1},
    ],
)
async def test_a_crawl_that_moves_its_pace_goes_no_faster_than_the_fixed_one_of_another(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, mover: dict[str, object], first: int
) -> None:
    wire = Wire(a_web(latency=0.1))
    settings: list[dict[str, object]] = [
        {**EXACT, **mover, "AUTOTHROTTLE_START_DELAY": 0.1},
        {**EXACT, "DOWNLOAD_DELAY": 0.5},
    ]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wire.crawl, first, settings[first], 60)
        begun_at = trio.current_time()
        await trio.sleep(0.1)
        nursery.start_soon(wire.crawl, 1 - first, settings[1 - first], 60)
    assert min(gap for gap, (at, _) in zip(wire.gaps, wire.sent, strict=False) if at > begun_at + 0.1) >= 0.5 - 1e-6
    assert ("no rampup" in caplog.text) == (first == 0 and "AUTOTHROTTLE_ENABLED" not in mover)


async def test_a_crawl_that_shares_nothing_keeps_limits_of_its_own(autojump_clock: MockClock) -> None:
    wire = Wire(a_web())
    alone = {**EXACT, "DOWNLOAD_DELAY": 1.0, "THROTTLING_SHARED": False}
    async with trio.open_nursery() as nursery:
        for number in range(2):
            nursery.start_soon(wire.crawl, number, alone, 10)
    assert wire.sent[-1][0] == pytest.approx(9.0)


async def test_a_cancelled_crawl_leaves_its_places_to_the_other(autojump_clock: MockClock) -> None:
    wire = Wire(a_web(latency=5.0))
    settings: dict[str, object] = {"THROTTLING_SCOPES": {"a.example": {"concurrency": 1}}, "DOWNLOAD_DELAY": 0}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wire.crawl, 1, settings, 4)
        with trio.move_on_after(7.0):
            await wire.crawl(0, settings, 100)
    assert wire.results[1].stats["item_scraped_count"] == 4
    assert wire.most == 1
    assert math.isfinite(wire.sent[-1][0])


async def test_why_names_the_crawl_that_shares_the_limit(autojump_clock: MockClock) -> None:
    wire, heard = Wire(a_web(latency=5.0)), list[str]()

    async def ask(crawl: Any) -> None:
        await trio.sleep(1.0)
        reason = crawl.why("a.example")
        heard.append("" if reason is None else reason.text(trio.current_time()))
        heard.extend(waiting.reason.text(trio.current_time()) for waiting in crawl.waiting())

    settings: dict[str, object] = {"THROTTLING_SCOPES": {"a.example": {"concurrency": 1}}, "DOWNLOAD_DELAY": 0}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(wire.crawl, 0, settings, 3, watchers=[ask]))
        nursery.start_soon(wire.crawl, 1, settings, 3)
    assert heard == ["a.example all slots are busy (THROTTLING_SCOPES['a.example']; shared with pages1)"] * 2
    alone = Wire(a_web(latency=5.0))
    heard.clear()
    await alone.crawl(0, settings, 3, watchers=[ask])
    assert heard == ["a.example all slots are busy (THROTTLING_SCOPES['a.example'])"] * 2


async def test_a_backoff_that_one_crawl_meets_keeps_the_other_quiet(autojump_clock: MockClock) -> None:
    web = a_web(refuses=f"{A}/0/0")
    wire = Wire(web)
    async with trio.open_nursery() as nursery:
        for number in range(2):
            nursery.start_soon(wire.crawl, number, {**EXACT, "DOWNLOAD_DELAY": 1.0}, 5)
    sent = dict(reversed([(url, at) for at, url in wire.sent]))
    told_at = sent[f"{A}/0/0"] + 0.3
    assert not [at for at, _ in wire.sent if told_at < at < told_at + 30]
    assert len([url for _, url in wire.sent if url == f"{A}/0/0"]) == 2


async def test_what_one_crawl_learned_is_gone_when_no_crawl_is_left(autojump_clock: MockClock) -> None:
    web = a_web(refuses=f"{A}/0/0")
    wire = Wire(web)
    await wire.crawl(0, {**EXACT, "RETRY_ENABLED": False}, 1)
    begun_at = trio.current_time()
    await wire.crawl(1, EXACT, 1)
    assert wire.sent[-1] == (begun_at, f"{A}/1/0")


async def test_crawls_with_jobs_keep_one_limit_and_go_on_with_their_last_hold(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    wire = Wire(a_web())
    exact: dict[str, object] = {**EXACT, "DOWNLOAD_DELAY": 2.0}
    for seconds in (7.0, 1000.0):
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                for number in range(2):
                    nursery.start_soon(wire.crawl, number, {**exact, "JOB_DIR": str(tmp_path / str(number))}, 5)
    assert len(wire.sent) >= 10
    assert min(wire.gaps) >= 2.0 - 1e-6


async def test_a_job_restores_its_bandwidth_in_a_host_that_a_crawl_without_one_has_made(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    limited = {**EXACT, "THROTTLING_SCOPES": {"a.example": {"bandwidth": 0.1}}, "JOB_DIR": str(tmp_path / "job")}
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.3, body=b"x" * 100)
    await Wire(web).crawl(0, {**limited, "CLOSESPIDER_PAGECOUNT": 1})
    wire = Wire(web)
    with trio.move_on_after(60.0):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wire.crawl, 1, EXACT, 2)
            await trio.sleep(0.1)
            nursery.start_soon(wire.crawl, 0, limited)
    assert [url for _, url in wire.sent] == [f"{A}/1/0"]


async def test_a_quota_that_a_job_counts_is_each_crawls_own(autojump_clock: MockClock, tmp_path: Path) -> None:
    wire = Wire(a_web())
    scopes = {"a.example": {"quota": 5, "window": 100.0}}
    async with trio.open_nursery() as nursery:
        for number in range(2):
            settings = {"THROTTLING_SCOPES": scopes, "DOWNLOAD_DELAY": 0, "JOB_DIR": str(tmp_path / str(number))}
            nursery.start_soon(wire.crawl, number, settings, 5)
    assert wire.sent[-1][0] - wire.sent[0][0] < 100


@pytest.mark.parametrize("first", [0, 1])
async def test_a_quota_set_while_crawls_with_jobs_run_is_left_to_who_stays(
    autojump_clock: MockClock, tmp_path: Path, first: int
) -> None:
    wire = Wire(a_web())

    async def limit(crawl: Any) -> None:
        await trio.sleep(3.0)
        crawl.throttling.set("a.example", quota=100, window=60)

    async with trio.open_nursery() as nursery:
        for number, pages in ((0, 5), (1, 20)):
            settings = {**EXACT, "DOWNLOAD_DELAY": 1.0, "JOB_DIR": str(tmp_path / str(number))}
            watchers = [limit] if number == first else []
            nursery.start_soon(partial(wire.crawl, number, settings, pages, watchers=watchers))
    assert len(wire.sent) == 25
    assert wire.sent[-1][0] - wire.sent[0][0] < 60


@pytest.mark.parametrize("seed", range(5))
async def test_three_crawls_that_come_and_go_keep_the_delay_of_a_host(autojump_clock: MockClock, seed: int) -> None:
    wire = Wire(a_web())

    async def later(number: int, seconds: float) -> None:
        await trio.sleep(seconds)
        await wire.crawl(number, {"DOWNLOAD_DELAY": 1.0}, 10, seed)

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(later, number, number * 4.3)
    assert len(wire.sent) == 30
    assert min(wire.gaps) >= 0.5


async def test_a_crawl_that_can_not_begin_holds_no_scope_in_common(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=1.0)

    async def fails(crawl: Crawl) -> None:
        await trio.sleep(1)
        broken = {"SESSIONS": {"visitor": {"throttling": {"delay": 60.0}}}, "WATCHERS": {"no.such.watcher": 1}}
        with pytest.raises(UsageError):
            await crawl_with(
                spider(2, 1), load(Layer("test", broken)), transport=web.transport(), blocking=InlineBlocking()
            )
        common = _COMMON.get()
        assert common is not None
        assert [*common._scopes] == ["a.example"]

    values = load(Layer("test", EXACT))
    run = await crawl_with(
        spider(1, 3), values, transport=web.transport(), blocking=InlineBlocking(), watchers=[fails], collect=True
    )
    assert len(run.items or ()) == 3
