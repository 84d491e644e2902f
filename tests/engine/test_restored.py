"""What a stopped crawl leaves in its frontier is taken up by the next one, under the same limits."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.watched_crawl import crawl_with
from trawl.blocking import InlineBlocking
from trawl.engine import Crawl
from trawl.frontier import Frontier, MemoryFrontier
from trawl.http import Outcome, Request, Response
from trawl.scheduler import Attempt
from trawl.settings import Layer, load
from trawl.testing import SimulatedWeb

POLITE = {"DOWNLOAD_DELAY": 5.0, "RANDOMIZE_DOWNLOAD_DELAY": False, "ROBOTSTXT_OBEY": False}


class Five(trawl.Spider):
    """Five pages, and one that is to wait for a minute; a second run starts with nothing."""

    name = "five"
    is_second = False

    async def start(self) -> AsyncGenerator[Any, None]:
        if not self.is_second:
            yield Request("http://a.example/late", meta={"delay": 60.0})
            for i in range(5):
                yield Request(f"http://a.example/{i}")

    def parse(self, response: Response, **kwargs: Any) -> Any:
        return {"url": response.url}


class Sends:
    """When each URL was sent, in order."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}

    def record(self, attempt: Attempt, outcome: Outcome | None, now: float) -> None:
        if outcome is None:
            path = attempt.request.url.rsplit("/", 1)[1]
            assert path not in self.times
            self.times[path] = now


async def crawled(frontier: Frontier, sends: Sends, spider_args: Mapping[str, Any], stop_after: float) -> str:
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.1)

    async def stop(crawl: Crawl) -> None:
        await trio.sleep(stop_after)
        crawl.shutdown()

    result = await crawl_with(
        Five,
        load(Layer("test", POLITE)),
        spider_args=spider_args,
        frontier=frontier,
        transport=web.transport(),
        blocking=InlineBlocking(),
        seed=0,
        watchers=[stop],
        recorder=sends.record,
    )
    return result.reason


async def test_p10_r16_p18_nothing_is_lost_or_sent_early_by_a_stop_and_a_second_run(autojump_clock: MockClock) -> None:
    frontier, sends = MemoryFrontier(), Sends()
    assert await crawled(frontier, sends, {}, stop_after=7.0) == "shutdown"
    assert trio.current_time() == pytest.approx(7.0)  # P18: it did not wait for the delays
    assert list(sends.times) == ["0", "1"]
    statistics = frontier.statistics()
    assert (statistics.pending, statistics.leased) == (4, 0)  # the frontier is whole
    await trio.sleep(3.0)
    assert await crawled(frontier, sends, {"is_second": True}, stop_after=1000.0) == "finished"
    assert list(sends.times) == ["0", "1", "2", "3", "4", "late"]
    assert sends.times["late"] == pytest.approx(60.0)  # P10: neither lost nor delayed again
    assert sends.times["2"] == pytest.approx(10.0)
    assert sends.times["3"] - sends.times["2"] == pytest.approx(5.0)  # R16: what is restored obeys the limits
    assert sends.times["4"] - sends.times["3"] == pytest.approx(5.0)
