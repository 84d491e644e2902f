"""Requests with a time of their own wait on the job's disk, not in memory, however many they are."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.jobs.killing import killed_after
from tests.jobs.site import Linked, Runs
from trawl.engine import Crawl
from trawl.http import Request, Response
from trawl.testing import SimulatedResponse, SimulatedWeb

FREE = {
    "ROBOTSTXT_OBEY": False,
    "DOWNLOAD_DELAY": 0,
    "DOWNLOAD_DELAY_PER_SLOT": 0,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 50,
    "CONCURRENT_REQUESTS": 50,
}
MANY = 600
FEW = 150
"""More than are leased ahead, and what is in flight."""


def site() -> SimulatedWeb:
    """A host with all pages."""
    web = SimulatedWeb()
    web.add_host("a.example")
    return web


def requests_in_memory() -> int:
    """How many requests there are now."""
    gc.collect()
    return sum(isinstance(each, Request) for each in gc.get_objects())


class Patient(Linked):
    """A page that leads to many which are to be sent later."""

    delay = 60.0
    spread = 0.0
    many = MANY

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        yield {"url": response.url}
        if response.url == "http://a.example/":
            for number in range(self.many):
                yield Request(f"http://a.example/{number}", meta={"delay": self.delay + number * self.spread})


async def counted(runs: Runs, at: float) -> tuple[int, int]:
    """How many requests are in memory so many seconds after a run began, and how many are pending."""
    before = requests_in_memory()
    counts: list[tuple[int, int]] = []

    async def watch(crawl: Crawl) -> None:
        await trio.sleep(at)
        counts.append((requests_in_memory() - before, crawl.queued))
        crawl.shutdown()

    await runs.run([watch])
    return counts[0]


async def test_c3_requests_with_a_delay_are_not_in_memory_while_they_wait(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    runs = Runs(tmp_path, site(), Patient, FREE)
    for at in (30.0, 20.0):  # in the next run neither
        in_memory, pending = await counted(runs, at)
        assert in_memory < FEW
        assert pending == MANY


async def test_c3_retries_with_a_delay_are_not_in_memory_while_they_wait(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", handler=lambda request: SimulatedResponse(500 if request.url[-1] != "/" else 200))

    class Failing(Patient):
        delay = 0.0
        many = 300

    settings = {**FREE, "RETRY_DELAY": 500.0, "RETRY_MAX_DELAY": 1000.0, "BACKOFF_HTTP_CODES": []}
    in_memory, pending = await counted(Runs(tmp_path, web, Failing, settings), 100.0)
    assert in_memory < FEW
    assert pending == 300


async def test_p10_requests_with_a_delay_are_sent_when_they_are_due_in_that_order_across_kills(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    class Spread(Patient):
        delay, spread, many = 60.0, 0.5, 100

    (folder := tmp_path / "whole").mkdir()
    runs = Runs(folder, site(), Spread, FREE)
    for number, seconds in enumerate((30.0, 45.0, 10.0)):  # at 30, 75 and 85 s
        await killed_after(runs, seconds, tmp_path / f"album {number}")
    await runs.run()
    expected = [(60.0 - 85.0 + 0.5 * number, f"http://a.example/{number}") for number in range(100)]
    sent = [(time, url) for time, url in runs.times if time > 1.0]
    assert [url for _, url in sent] == [url for _, url in expected[-len(sent) :]]
    assert [time for time, _ in sent] == pytest.approx([time for time, _ in expected[-len(sent) :]], abs=1e-4)
    assert len(sent) > 40
    assert len(runs.urls) == len(set(runs.urls)) == 101


async def test_p10_a_clock_that_was_set_back_lets_no_request_wait_longer_than_it_was_to(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    class Few(Patient):
        delay, spread, many = 60.0, 1.0, 5

    runs = Runs(tmp_path, site(), Few, FREE)
    await runs.run(stop_after=10.0)
    runs.now_utc -= timedelta(days=1)
    await runs.run()
    assert [time for time, _ in runs.times] == pytest.approx([60.0, 61.0, 62.0, 63.0, 64.0], abs=1e-4)


@pytest.mark.parametrize("job", [True, False])
async def test_i11_what_waits_for_its_own_delay_is_told_with_how_many_and_until_when(
    tmp_path: Path, autojump_clock: MockClock, job: bool
) -> None:
    told: list[Any] = []

    async def watch(crawl: Crawl) -> None:
        await trio.sleep(30.0)
        told.extend([(each.count, each.reason.limit, each.reason.until) for each in crawl.waiting()])
        crawl.shutdown()

    began_at = trio.current_time()
    runs = Runs(tmp_path, site(), Patient, FREE)
    runs.settings = {**FREE, "JOB_DIR": str(runs.directory) if job else ""}
    await runs.run([watch])
    assert told == [(MANY, "not_before", pytest.approx(began_at + 60.0, abs=1e-3))]
