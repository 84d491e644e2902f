"""A job whose requests a middleware leads to another host: nothing is lost at a kill, nothing is sent too early."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.jobs.killing import Photographer, put_back
from tests.jobs.site import Runs
from tests.watched_crawl import crawl_with
from trawl.blocking import InlineBlocking
from trawl.engine import Crawl
from trawl.frontier import MemoryFrontier
from trawl.http import Fetch, Outcome, Request, Response
from trawl.settings import Layer, load
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

FREE = {
    "RANDOMIZE_DOWNLOAD_DELAY": False,
    "DOWNLOAD_DELAY": 0.0,
    "DOWNLOAD_DELAY_PER_SLOT": 0.0,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 2,
    "THROTTLING_SCOPES": {"slow.example": {"delay": 5.0}},
}


def handed_on(fetch: Fetch) -> Fetch:
    """Asks the slow host for what the spider asks the fast one for."""

    async def send(request: Request) -> Outcome:
        if request.url.endswith("robots.txt"):
            return await fetch(request)
        return await fetch(request.replace(url=request.url.replace("fast", "slow")))

    return send


class Assigned:
    """The same, in the request itself."""

    def process_request(self, request: Request, spider: Any) -> None:
        if not request.url.endswith("robots.txt"):
            request.url = request.url.replace("fast", "slow")


class Pages(trawl.Spider):
    """Pages of the fast host, found by ``start()``."""

    name = "pages"
    pages = 4

    async def start(self) -> AsyncGenerator[Any, None]:
        for number in range(self.pages):
            yield Request(f"http://fast.example/{number}")

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"url": response.url}


def web_of(asked: list[tuple[float, str]]) -> SimulatedWeb:
    """Both hosts; what the slow one is asked for, and when, is noted."""

    def answer(request: Any) -> SimulatedResponse:
        asked.append((trio.current_time(), request.url.rpartition("/")[2]))
        return SimulatedResponse(latency=0.1)

    web = SimulatedWeb()
    web.add_host("fast.example", latency=0.1)
    web.add_host("slow.example", handler=answer)
    return web


def spaced(asked: list[tuple[float, str]]) -> bool:
    return all(later[0] - sooner[0] >= 5.0 for sooner, later in pairwise(asked))


@pytest.mark.parametrize("middleware", [handed_on, Assigned])
async def test_c1_killed_at_any_step_what_is_led_elsewhere_is_not_lost_and_stays_spaced(
    tmp_path: Path, autojump_clock: MockClock, middleware: Any
) -> None:
    folder = tmp_path / "whole"
    folder.mkdir()
    settings = {**FREE, "DOWNLOADER_MIDDLEWARES": {middleware: 545}}
    asked: list[tuple[float, str]] = []

    def runs() -> Runs:
        asked.clear()
        return Runs(folder, web_of(asked), Pages, settings)

    photographer = Photographer(folder, tmp_path / "album")
    trio.lowlevel.add_instrument(photographer)
    try:
        assert (await runs().run()).reason == "finished"
    finally:
        trio.lowlevel.remove_instrument(photographer)
    assert spaced(asked)
    assert len(asked) == 4
    for picture in photographer.pictures[::4]:
        put_back(picture, folder)
        resumed = runs()
        assert (await resumed.run()).reason == "finished"
        assert resumed.urls == [f"http://slow.example/{number}" for number in range(4)], picture
        assert spaced(asked)


async def test_pages_that_wait_for_another_run_obey_the_robots_txt_that_this_run_is_told_to(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    web = SimulatedWeb()
    web.add_host("fast.example", latency=0.1, robots="User-agent: *\nDisallow: /2")
    settings = {**FREE, "DOWNLOAD_DELAY": 10.0}
    runs = Runs(tmp_path, web, Pages, settings)
    await runs.run(stop_after=5.0, ROBOTSTXT_OBEY=False)
    assert list(runs.sent) == ["http://fast.example/0"]
    result = await runs.run(ROBOTSTXT_OBEY=True)
    assert runs.times[0][1].endswith("/robots.txt")
    assert sorted(url.rpartition("/")[2] for _, url in runs.times[1:]) == ["1", "3"]
    assert result.stats["robots_forbidden"] == 1


def test_pages_that_wait_for_another_run_are_throttled_by_address_where_that_run_is_told_to(tmp_path: Path) -> None:
    class Two(Pages):
        async def start(self) -> AsyncGenerator[Any, None]:
            for number in range(6):
                yield Request(f"http://{'ab'[number % 2]}.example/{number}")

    web = SimulatedWeb()
    for host in "ab":
        web.add_host(f"{host}.example", latency=0.1, address="192.0.2.7")
    settings = {**FREE, "ROBOTSTXT_OBEY": False, "DOWNLOAD_DELAY": 10.0, "JOB_DIR": str(tmp_path)}
    assert len(simulate(Two, web, {**settings, "CLOSESPIDER_TIMEOUT": 5.0}).sends) == 2
    sim = simulate(Two, web, {**settings, "CONCURRENT_REQUESTS_PER_IP": 1})
    assert sim.gaps("192.0.2.7") == [10.0, 10.0, 10.0]


@pytest.mark.parametrize("middleware", [handed_on, Assigned])
async def test_what_waits_for_another_host_is_in_the_frontier_and_not_in_memory(
    autojump_clock: MockClock, middleware: Any
) -> None:
    frontier = MemoryFrontier()
    leased: list[int] = []

    class Many(Pages):
        pages = 500

    async def look(crawl: Crawl) -> None:
        await trio.sleep(4.0)
        leased.append(frontier.statistics().leased)
        crawl.shutdown()

    asked: list[tuple[float, str]] = []
    settings = {**FREE, "ROBOTSTXT_OBEY": False, "DOWNLOADER_MIDDLEWARES": {middleware: 545}}
    result = await crawl_with(
        Many,
        load(Layer("test", settings)),
        transport=web_of(asked).transport(),
        blocking=InlineBlocking(),
        frontier=frontier,
        watchers=[look],
    )
    assert len(asked) == 1
    assert result.stats["diverted_count"] == 500
    assert leased[0] <= 64
    assert frontier.statistics().pending == 499
