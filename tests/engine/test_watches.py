"""Time, items that do not come, and memory: limits that no event reaches."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from trawl.engine import EngineSettings
from trawl.engine.limits import CrawlLimits
from trawl.engine.state import State
from trawl.engine.watchers import MEBIBYTE, held_bytes, limit_watchers
from trawl.errors import SettingsError
from trawl.http import Request, Response
from trawl.observe import Stats
from trawl.scheduler import Scheduler
from trawl.testing import SimulatedWeb

FREE: Mapping[str, object] = {"DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0, "ROBOTSTXT_OBEY": False}


class Endless(trawl.Spider):
    """One page after the other, without end; an item for the first five."""

    name = "endless"

    async def start(self) -> AsyncGenerator[Any, None]:
        number = 0
        while True:
            number += 1
            yield Request(f"http://a.example/{number}")

    def parse(self, response: Response, **kwargs: Any) -> Any:
        if int(response.url.rsplit("/", 1)[1]) <= 5:
            yield {"url": response.url}


def web() -> SimulatedWeb:
    made = SimulatedWeb()
    made.add_host("a.example", latency=1.5)
    return made


async def test_a_crawl_ends_when_its_time_is_over_and_sends_nothing_after_it(autojump_clock: MockClock) -> None:
    run = await web().crawl(Endless, settings={**FREE, "CLOSESPIDER_TIMEOUT": 10.0})
    assert run.reason == "closespider_timeout"
    assert max(send.time for send in run.sends) < 10.0
    assert run.elapsed == pytest.approx(10.5)  # what was on the wire has ended
    assert run.sends[-1].status == 200


async def test_a_crawl_ends_at_the_instant_when_its_time_is_over(autojump_clock: MockClock) -> None:
    busy = SimulatedWeb()
    busy.add_host("a.example", latency=0.0625)
    run = await busy.crawl(Endless, settings={**FREE, "CLOSESPIDER_TIMEOUT": 10.0})
    assert run.elapsed == 10.0
    assert run.sends[-1].time == 10.0 - 0.0625


async def test_a_crawl_that_gives_no_items_for_so_long_ends(autojump_clock: MockClock) -> None:
    run = await web().crawl(Endless, settings={**FREE, "CLOSESPIDER_TIMEOUT_NO_ITEM": 4.0})
    assert run.reason == "closespider_timeout_no_item"
    assert len(run.items) == 5
    assert max(send.time for send in run.sends) < 5 * 1.5 + 4.0
    assert run.elapsed == pytest.approx(12.0)


@pytest.mark.long
async def test_a_crawl_that_never_gives_an_item_ends_that_long_after_it_began(autojump_clock: MockClock) -> None:
    class Barren(Endless):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            return None

    run = await web().crawl(Barren, settings={**FREE, "CLOSESPIDER_TIMEOUT_NO_ITEM": 4.0})
    assert run.reason == "closespider_timeout_no_item"
    assert run.elapsed == pytest.approx(4.5)


async def test_memory_beyond_the_limit_ends_the_crawl_and_is_told(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    run = await web().crawl(Endless, settings={**FREE, "MEMUSAGE_LIMIT_MB": 1, "MEMUSAGE_WARNING_MB": 0.5})
    assert run.reason == "memusage_exceeded"
    assert run.stats["memusage/limit_reached"] == 1
    assert run.stats["memusage/max"] >= run.stats["memusage/startup"] > MEBIBYTE
    assert "MEMUSAGE_LIMIT_MB is 1" in caplog.text


class Growing:
    """A process that holds a MiB more each time it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> int:
        self.asked += 1
        return self.asked * MEBIBYTE


class FakeCrawl:
    """What a watcher sees of a crawl: its statistics, and how to end it."""

    def __init__(self) -> None:
        self.stats = Stats()
        self.ended: tuple[str, float] | None = None

    def shutdown(self, reason: str) -> None:
        self.ended = (reason, trio.current_time())


async def test_memory_is_measured_again_and_again_and_warned_about_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    settings = EngineSettings(memusage_limit_mb=10, memusage_warning_mb=3, memusage_check_interval_seconds=5)
    limits = CrawlLimits(settings, state=State(1), scheduler=Scheduler(_no_scope, places=1), changed=_nothing)
    crawl: Any = FakeCrawl()
    with caplog.at_level(logging.WARNING):
        for watcher in limit_watchers(settings, limits, Growing()):
            await watcher(crawl)
    assert crawl.ended == ("memusage_exceeded", 40.0)  # 11 MiB, each five seconds one more, the third at once
    assert crawl.stats.get("memusage/startup") == 2 * MEBIBYTE
    assert crawl.stats.get("memusage/max") == 11 * MEBIBYTE
    assert caplog.text.count("MEMUSAGE_WARNING_MB") == 1


def _no_scope(id: str, now: float) -> Any:
    raise LookupError(id)


def _nothing(scope: object, now: float) -> None:
    """Nobody waits."""


def test_a_system_that_does_not_tell_its_memory_is_no_place_to_limit_it() -> None:
    with pytest.raises(SettingsError, match="MEMUSAGE_LIMIT_MB: this system"):
        limit_watchers(EngineSettings(memusage_limit_mb=100), None, lambda: None)  # type: ignore[arg-type]
    assert limit_watchers(EngineSettings(), None, lambda: None) == []  # type: ignore[arg-type]


def test_what_this_process_holds_grows_with_what_it_takes() -> None:
    before = held_bytes()
    taken = bytearray(64 * MEBIBYTE)
    after = held_bytes()
    assert before is not None
    assert after is not None
    assert after - before > 32 * MEBIBYTE
    del taken


def test_where_there_is_no_proc_the_largest_figure_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trawl.engine.watchers._STATM", type("Gone", (), {"read_text": _refused})())
    held_now = held_bytes()
    assert held_now is not None
    assert held_now > 5 * MEBIBYTE


def _refused(*_: object) -> str:
    raise FileNotFoundError
