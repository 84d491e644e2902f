"""Requests of hosts that were given up stay in the job: it lists them, and the next run sends them again (B20, C1)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.jobs.site import Runs
from trawl.cli.job import job_command
from trawl.frontier import inspect
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

COUNT = 7
EXACT = {"RANDOMIZE_DOWNLOAD_DELAY": False, "BACKOFF_JITTER": 0, "ROBOTSTXT_OBEY": False}
URLS = [f"http://shop.example/{number}" for number in range(COUNT)]


class Pages(trawl.Spider):
    """Asks a shop for its pages; what fails is an item."""

    name = "pages"

    async def start(self) -> Any:
        for url in URLS:
            yield trawl.Request(url, errback=self.failed)

    def parse(self, response: trawl.Response) -> Any:
        yield {"url": response.url}

    def failed(self, error: trawl.HttpError) -> Any:
        yield {"url": error.request.url, "failed": error.response.status}


class WithoutErrback(Pages):
    async def start(self) -> Any:
        for url in URLS:
            yield trawl.Request(url)


def shop(answer: Callable[[], SimulatedResponse], **host: Any) -> SimulatedWeb:
    web = SimulatedWeb()
    web.add_host("shop.example", handler=lambda request: answer(), **host)
    return web


def down() -> SimulatedResponse:
    return SimulatedResponse(503)


@pytest.mark.parametrize("spider", [Pages, WithoutErrback])
@pytest.mark.parametrize("robots", ["", SimulatedResponse(503)], ids=["page", "robots"])
async def test_b20_the_next_run_sends_what_was_pending_when_its_host_was_given_up(
    tmp_path: Path, autojump_clock: MockClock, spider: type[Pages], robots: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {**EXACT, "ROBOTSTXT_OBEY": True}
    runs = Runs(tmp_path, shop(down, robots=robots), spider, settings)
    for number in (1, 2):
        result = await runs.run()
        assert result.reason == "finished"
        assert result.stats["given_up_count"] == COUNT  # of the last run
        report = inspect.inspect_job(runs.directory)
        assert (report.pending, report.given_up, report.failed) == (COUNT, COUNT, 0)
        assert len(list(inspect.export_pending(runs.directory))) == COUNT
        if spider is Pages:
            assert len(runs.items) == number * COUNT  # an errback is called in each run
    await trio.to_thread.run_sync(job_command, str(runs.directory))
    shown = capsys.readouterr().out
    assert all(url in shown for url in URLS)
    assert "only requests of hosts that were given up are pending" in shown
    runs.down(60.0)
    runs.web = shop(SimulatedResponse)
    result = await runs.run()
    assert sorted(item["url"] for item in runs.items if "failed" not in item) == URLS
    assert "given_up_count" not in result.stats
    assert inspect.inspect_job(runs.directory).pending == 0


async def test_b20_a_setting_drops_them(tmp_path: Path, autojump_clock: MockClock) -> None:
    for spider, failed in ((Pages, 0), (WithoutErrback, COUNT)):
        runs = Runs(tmp_path / spider.name / str(failed), shop(down), spider, {**EXACT, "JOB_KEEP_GIVEN_UP": False})
        runs.directory.parent.mkdir(parents=True)
        await runs.run()
        report = inspect.inspect_job(runs.directory)
        assert (report.pending, report.given_up, report.failed) == (0, 0, failed)
        sent = runs.sent.total()
        await runs.run()
        assert runs.sent.total() == sent
        assert inspect.requeue_failed(runs.directory, runs.now_utc) == failed


async def test_b20_what_a_stop_left_pending_of_a_host_that_was_given_up_is_sent_too(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    class Late(Pages):
        async def start(self) -> Any:
            yield trawl.Request(URLS[0])
            yield trawl.Request(URLS[1], meta={"delay": 2000.0})

    runs = Runs(tmp_path, shop(down), Late, EXACT)
    await runs.run(stop_after=1000.0)  # the second one waits for its own time
    runs.web = shop(SimulatedResponse)
    runs.down(5000.0)
    await runs.run()
    assert sorted(item["url"] for item in runs.items) == URLS[:2]


async def test_a_request_that_is_sent_again_has_all_its_retries(tmp_path: Path, autojump_clock: MockClock) -> None:
    runs = Runs(tmp_path, shop(down), WithoutErrback, EXACT)
    await runs.run()
    runs.web = shop(lambda: SimulatedResponse(500))
    result = await runs.run()
    assert result.stats["retry_max_reached"] == COUNT
    assert inspect.inspect_job(runs.directory).failed == COUNT


def test_d05_a_long_retry_after_loses_nothing(tmp_path: Path) -> None:
    served: dict[int, int] = {}
    zero: list[float] = []

    def answer() -> SimulatedResponse:
        now = trio.current_time()
        zero[:] = zero or [now]
        hour = int((now - zero[0]) // 3600)
        served[hour] = served.get(hour, 0) + 1
        if served[hour] <= 4:
            return SimulatedResponse(latency=0.2)
        return SimulatedResponse(429, headers={"Retry-After": str(int((hour + 1) * 3600 - now + zero[0]) + 1)})

    sim = simulate(Pages, shop(answer), {**EXACT, "JOB_DIR": str(tmp_path / "job")})
    assert sorted(item["url"] for item in sim.items) == URLS
    assert "given_up_count" not in sim.stats
