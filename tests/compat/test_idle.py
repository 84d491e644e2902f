"""Scrapy's signal spider_idle: who hears it may give more requests, keep the crawl open, or end it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.watched_crawl import crawl_with
from trawl import signals
from trawl.blocking import InlineBlocking
from trawl.exceptions import CloseSpider, DontCloseSpider
from trawl.http import Request, Response
from trawl.settings import Layer, load
from trawl.testing import SimulatedWeb, Simulation, simulate

HOST = "http://a.example"
FREE = {"ROBOTSTXT_OBEY": False, "DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0}


class Queued(trawl.Spider):
    """As scrapy-redis does it: batches out of a queue, and never an end by itself."""

    name = "queued"
    batches: list[list[str]] = [["/1", "/2"], [], ["/3"]]

    @classmethod
    def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Any:
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.given = [list(batch) for batch in cls.batches]
        crawler.signals.connect(spider.spider_idle, signal=signals.spider_idle)
        return spider

    given: list[list[str]]

    def spider_idle(self) -> None:
        if not self.given:
            return
        for path in self.given.pop(0):
            self.crawler.engine.crawl(Request(f"{HOST}{path}"))
        raise DontCloseSpider

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        yield {"url": response.url}


def web() -> SimulatedWeb:
    made = SimulatedWeb()
    made.add_host("a.example", latency=1.0)
    return made


def sends(sim: Simulation) -> list[tuple[float, str]]:
    return [(send.time, send.url.removeprefix(HOST)) for send in sim.sends]


def test_a_spider_that_is_fed_when_it_is_idle_runs_as_it_was_written_for_scrapy() -> None:
    sim = simulate(Queued, web(), {**FREE, "CONCURRENT_REQUESTS_PER_DOMAIN": 2})
    # The two are answered at 1.0; then the queue is empty once, and is asked again after five seconds, as in Scrapy.
    assert sends(sim) == [(0.0, "/1"), (0.0, "/2"), (6.0, "/3")]
    assert (sim.reason, sim.elapsed, len(sim.items)) == ("finished", 7.0, 3)


def test_nothing_is_idle_before_start_has_ended_and_its_pages_are_done_with_their_callbacks() -> None:
    class Late(Queued):
        batches = [["/late"]]

        async def start(self) -> Any:
            yield Request(f"{HOST}/first")
            await trio.sleep(100.0)

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            if response.url.endswith("/first"):
                await trio.sleep(200.0)
                yield response.follow("/linked")

    assert sends(simulate(Late, web(), FREE)) == [(0.0, "/first"), (201.0, "/linked"), (202.0, "/late")]


def test_it_ends_at_once_where_nobody_says_otherwise_and_what_was_given_was_seen_already() -> None:
    class Seen(Queued):
        start_urls = (f"{HOST}/1",)
        asked = 0

        def spider_idle(self) -> None:
            type(self).asked += 1
            self.crawler.engine.crawl(Request(f"{HOST}/1"))

    sim = simulate(Seen, web(), FREE)
    assert (sim.reason, sim.elapsed, Seen.asked) == ("finished", 1.0, 1)
    assert sim.stats["dupefilter_filtered"] == 1


def test_what_is_given_keeps_the_crawl_open_without_another_word() -> None:
    class Given(Queued):
        def spider_idle(self) -> None:
            for path in self.given.pop(0) if self.given else ():
                self.crawler.engine.crawl(Request(f"{HOST}{path}"), self)  # the spider too: Scrapy's older form

    assert sends(simulate(Given, web(), FREE | {"CONCURRENT_REQUESTS_PER_DOMAIN": 2})) == [(0.0, "/1"), (0.0, "/2")]


@pytest.mark.parametrize(("words", "reason"), [([CloseSpider("enough")], "enough"), ([], "finished")])
def test_a_reason_given_when_idle_is_the_reason_of_the_end(words: list[Exception], reason: str) -> None:
    class Ends(Queued):
        def spider_idle(self) -> None:
            for word in words:
                raise word

    sim = simulate(Ends, web(), FREE)
    assert (sim.reason, sim.elapsed) == (reason, 0.0)


def test_who_wants_it_kept_open_is_stronger_than_who_wants_it_ended() -> None:
    class Both(Queued):
        asked = 0

        @classmethod
        def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Any:
            spider = super().from_crawler(crawler, *args, **kwargs)
            crawler.signals.connect(spider.over, signal=signals.spider_idle)
            return spider

        def over(self) -> None:
            raise CloseSpider("over")

        def spider_idle(self) -> None:
            type(self).asked += 1
            if self.asked < 3:
                raise DontCloseSpider

    sim = simulate(Both, web(), FREE)
    assert (sim.reason, sim.elapsed, Both.asked) == ("over", 10.0, 3)


def test_a_receiver_that_fails_is_logged_and_the_crawl_ends(caplog: pytest.LogCaptureFixture) -> None:
    class Fails(Queued):
        def spider_idle(self) -> None:
            self.crawler.engine.crawl("http://a.example/")  # type: ignore[arg-type]

    assert simulate(Fails, web(), FREE, errors="collect").reason == "finished"
    assert "a receiver of spider_idle failed" in caplog.text
    assert "engine.crawl() takes a Request, not 'http://a.example/'" in caplog.text


def test_a_receiver_may_be_async_and_fetch() -> None:
    class Asks(Queued):
        async def spider_idle(self) -> None:  # type: ignore[override]
            if not self.given:
                return
            self.given.clear()
            answer = await self.fetch(Request(f"{HOST}/queue"))
            self.crawler.engine.crawl(answer.follow("/found"))
            await trio.sleep(3.0)

    assert sends(simulate(Asks, web(), FREE)) == [(0.0, "/queue"), (4.0, "/found")]


def test_one_that_is_connected_while_the_crawl_runs_is_heard() -> None:
    class Connects(trawl.Spider):
        name = "connects"
        start_urls = (f"{HOST}/1",)
        asked = 0

        def parse(self, response: Response, **kwargs: Any) -> None:
            if not self.asked:
                self.crawler.signals.connect(self.idle, signal=signals.spider_idle)

        def idle(self) -> None:
            type(self).asked += 1
            if self.asked == 1:
                self.crawler.engine.crawl(Request(f"{HOST}/2"))

    assert sends(simulate(Connects, web(), FREE)) == [(0.0, "/1"), (1.0, "/2")]
    assert Connects.asked == 2


def test_outside_the_signal_a_request_is_refused_with_what_to_write(caplog: pytest.LogCaptureFixture) -> None:
    class Elsewhere(Queued):
        batches = []
        start_urls = (f"{HOST}/1",)

        def parse(self, response: Response, **kwargs: Any) -> Any:
            self.crawler.engine.crawl(response.follow("/2"))

    assert simulate(Elsewhere, web(), FREE, errors="collect").stats["spider_exceptions"] == 1
    assert "engine.crawl() is for receivers of the signal spider_idle: yield the request" in caplog.text


def test_a_crawl_that_is_kept_open_ends_at_once_when_it_is_told_to() -> None:
    class Open(Queued):
        def spider_idle(self) -> None:
            assert self.crawl.is_idle
            raise DontCloseSpider

    sim = simulate(Open, web(), {**FREE, "CLOSESPIDER_TIMEOUT": 12.0})
    assert (sim.reason, sim.elapsed) == ("closespider_timeout", 12.0)


class Slow(Queued):
    batches = [["/given"]]

    async def spider_idle(self) -> None:  # type: ignore[override]
        if self.given:
            self.crawler.engine.crawl(Request(f"{HOST}{self.given.pop()[0]}"))
            await trio.sleep(100.0)


async def test_what_was_given_before_the_crawl_was_ended_is_kept_by_its_job(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stop(crawl: Any) -> None:
        await trio.sleep(50.0)
        crawl.shutdown()

    job = {**FREE, "JOB_DIR": str(tmp_path / "job")}
    first = await run(Slow, job, [stop])
    assert (first.reason, first.elapsed, first.stats.get("response_count")) == ("shutdown", 50.0, None)
    monkeypatch.setattr(Slow, "batches", [])
    second = await run(Slow, job)
    assert (second.reason, second.stats["response_count"]) == ("finished", 1)


async def test_a_job_of_which_nothing_is_pending_asks_in_its_next_run(
    autojump_clock: MockClock, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "trawl")
    job = {**FREE, "JOB_DIR": str(tmp_path / "job")}
    first = await run(Queued, job)
    assert (first.reason, first.stats["response_count"]) == ("finished", 3)
    monkeypatch.setattr(Queued, "batches", [["/3", "/4"]])
    second = await run(Queued, job)
    assert (second.reason, second.stats["response_count"]) == ("finished", 4)  # /3 was seen in the run before
    assert "run 2, 0 requests pending; the last run ended: finished" in caplog.text
    assert "is finished" not in caplog.text


async def run(spider: type[trawl.Spider[Any]], settings: dict[str, Any], watchers: Any = ()) -> Any:
    served = web()
    values = load(Layer("test", settings))
    return await crawl_with(spider, values, transport=served.transport(), blocking=InlineBlocking(), watchers=watchers)
