"""What Scrapy's spider middleware puts around ``start()``, in its newer form and in its older one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import count, islice
from typing import Any

import pytest

import trawl
from trawl.errors import SettingsError
from trawl.http import Request, Response
from trawl.testing import SimulatedWeb, Simulation, simulate

HOST = "http://a.example"
FREE = {"ROBOTSTXT_OBEY": False, "DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0}


class Two(trawl.Spider):
    name = "two"
    start_urls: Iterable[str] = (f"{HOST}/1", f"{HOST}/2")

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        yield {"url": response.url.removeprefix(HOST), "by": response.meta.get("by")}


class OnlyNewer:
    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for request in start:
            yield request.replace(meta={"by": "newer"})


class OnlyOlder:
    closed = False

    def process_start_requests(self, start_requests: Iterable[Request], spider: trawl.Spider) -> Iterator[Request]:
        try:
            for request in start_requests:
                yield request.replace(meta={"by": f"older of {spider.name}"})
            yield Request(f"{HOST}/more")
        finally:
            type(self).closed = True


class Both(OnlyNewer, OnlyOlder):
    """As Scrapy's documentation has it for those that are to run on several of its versions."""


def crawled(hook: Any, spider: type[trawl.Spider] = Two, **settings: object) -> Simulation:
    web = SimulatedWeb()
    web.add_host("a.example")
    return simulate(spider, web, {**FREE, "SPIDER_MIDDLEWARES": {hook: 1}, **settings}, errors="collect")


def found(sim: Simulation) -> list[tuple[str, str | None]]:
    return sorted((item["url"], item["by"]) for item in sim.items)


def test_one_with_process_start_alone_is_put_around_start() -> None:
    assert found(crawled(OnlyNewer)) == [("/1", "newer"), ("/2", "newer")]


def test_one_with_process_start_requests_alone_is_put_around_start() -> None:
    sim = crawled(OnlyOlder)
    assert found(sim) == [("/1", "older of two"), ("/2", "older of two"), ("/more", None)]
    assert (sim.reason, OnlyOlder.closed) == ("finished", True)


def test_of_one_with_both_the_newer_is_used() -> None:
    assert found(crawled(Both)) == [("/1", "newer"), ("/2", "newer")]


def test_the_older_one_may_leave_the_spider_out_and_give_a_list() -> None:
    class Shortens:
        def process_start_requests(self, start_requests: Iterable[Request]) -> list[Request]:
            return list(islice(start_requests, 1))

    class Nothing:
        def process_start_requests(self, start_requests: Iterable[Request]) -> None:
            return None

    assert found(crawled(Shortens)) == [("/1", None)]
    assert found(crawled(Nothing)) == []


def test_the_older_one_takes_start_urls_as_slowly_as_the_crawl() -> None:
    taken: list[str] = []

    class Endless(Two):
        @property
        def start_urls(self) -> Iterator[str]:  # type: ignore[override]
            for n in count():
                taken.append(str(n))
                yield f"{HOST}/{n}"

    sim = crawled(OnlyOlder, Endless, CLOSESPIDER_ITEMCOUNT=3)
    assert sim.reason == "closespider_itemcount"
    assert len(taken) < 100


def test_older_ones_are_put_around_one_another_and_around_start_requests() -> None:
    class Older(Two):
        def start_requests(self) -> Iterator[Request]:
            yield Request(f"{HOST}/asked")

    class Again:
        def process_start_requests(self, start_requests: Iterable[Request]) -> Iterator[Request]:
            for request in start_requests:
                yield request
                yield request.replace(url=f"{request.url}/again")

    web = SimulatedWeb()
    web.add_host("a.example")
    sim = simulate(Older, web, {**FREE, "SPIDER_MIDDLEWARES": {Again: 2, OnlyOlder: 1, OnlyNewer: 3}})
    assert found(sim) == [("/asked", "newer"), ("/asked/again", "newer"), ("/more", "newer")]


def test_a_spider_with_a_start_of_its_own_refuses_the_older_one() -> None:
    class Own(Two):
        async def start(self) -> AsyncIterator[Any]:
            yield Request(f"{HOST}/mine")

    with pytest.raises(SettingsError, match=r"OnlyOlder.process_start_requests can't be put around Own.start\(\)"):
        crawled(OnlyOlder, Own)
    assert found(crawled(Both, Own)) == [("/mine", "newer")]


def test_a_process_start_that_is_no_async_generator_is_refused_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    class Sync:
        def process_start(self, start: Any) -> Iterator[Any]:
            yield from start

    assert crawled(Sync).reason == "start_error"
    assert "Sync.process_start is not an async generator" in caplog.text
