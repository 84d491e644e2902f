"""What is kept between transactions, and what is taken for granted after a kill (C11, P8, R16)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from tests.jobs.killing import killed_after
from tests.jobs.site import Linked, Runs, all_urls, site
from trawl.engine import Crawl
from trawl.http import Response
from trawl.testing import SimulatedResponse, SimulatedWeb

EXACT = {"RANDOMIZE_DOWNLOAD_DELAY": False, "BACKOFF_JITTER": 0, "ROBOTSTXT_OBEY": False}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where job and feed are."""
    made = tmp_path / "whole"
    made.mkdir()
    return made


async def test_r16_after_a_kill_no_send_comes_early(tmp_path: Path, folder: Path, autojump_clock: MockClock) -> None:
    runs = Runs(folder, site(9), settings={**EXACT, "DOWNLOAD_DELAY": 5.0})
    await killed_after(runs, 10.5, tmp_path / "album")
    assert [time for time, _ in runs.times] == [0.0, 5.0, 10.0]
    runs.down(1.0)
    await runs.run()
    first = runs.times[0][0]
    assert first >= 3.5 - 1e-5  # 15.0 on the first run's clock
    assert first <= 3.5 + 5.0
    assert runs.urls == all_urls(9)
    assert runs.sent.total() == 9


@pytest.mark.parametrize("seconds", [3.05, 5.0, 7.3, 8.1])
async def test_a21_a_rate_is_a_ceiling_over_a_kill(
    tmp_path: Path, folder: Path, autojump_clock: MockClock, seconds: float
) -> None:
    settings = {"ROBOTSTXT_OBEY": False, "THROTTLING_SCOPES": {"a.example": {"rate": 2}}}
    runs = Runs(folder, site(30), settings=settings)
    await killed_after(runs, seconds, tmp_path / "album")
    times = [time for time, _ in runs.times]
    runs.down(0.01)
    await runs.run()
    times += [seconds + 0.01 + time for time, _ in runs.times]
    for first, start in enumerate(times):
        assert all(last - first + 1 <= (times[last] - start) * 2.0 + 2.0 + 1e-4 for last in range(first, len(times)))


async def test_p8_a_backoff_that_stops_everything_is_kept(
    tmp_path: Path, folder: Path, autojump_clock: MockClock
) -> None:
    answers = iter([SimulatedResponse(), SimulatedResponse(429, headers={"Retry-After": "200"})])
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.1, handler=lambda request: next(answers, SimulatedResponse()))

    class Two(Linked):
        start_urls: Sequence[str] = ("http://a.example/1", "http://a.example/2")

    runs = Runs(folder, web, Two, settings={**EXACT, "DOWNLOAD_DELAY": 0.5})
    await killed_after(runs, 50.0, tmp_path / "album")
    assert [time for time, _ in runs.times] == [0.0, 1.0]
    await runs.run()
    assert [time for time, _ in runs.times] == [pytest.approx(201.1 - 50.0, abs=1e-3)]


async def test_p8_a_refusal_outlives_a_kill_right_after_it(
    tmp_path: Path, folder: Path, autojump_clock: MockClock
) -> None:
    answers = iter([SimulatedResponse(), SimulatedResponse(429, headers={"Retry-After": "200"})])
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.1, handler=lambda request: next(answers, SimulatedResponse()))

    class Two(Linked):
        start_urls: Sequence[str] = ("http://a.example/1", "http://a.example/2")

    runs = Runs(folder, web, Two, settings=EXACT)
    await killed_after(runs, 1.2, tmp_path / "album")
    assert [time for time, _ in runs.times] == [0.0, 1.0]
    await runs.run()
    assert [time for time, _ in runs.times] == [pytest.approx(201.1 - 1.2, abs=1e-3)]


async def test_statistics_count_what_the_transactions_hold(
    tmp_path: Path, folder: Path, autojump_clock: MockClock
) -> None:
    runs = Runs(folder, site(9), settings={**EXACT, "DOWNLOAD_DELAY": 1.0})
    await killed_after(runs, 3.5, tmp_path / "album")
    result = await runs.run()
    assert result.stats["item_scraped_count"] == 9
    assert result.stats["response_status_count/200"] == 9
    assert result.stats["job_run_count"] == 2


@pytest.mark.parametrize(
    ("answer", "count"),
    [
        (SimulatedResponse(302, headers={"Location": "/target"}), "redirect_count"),
        (SimulatedResponse(503), "backoff_count"),
        (SimulatedResponse(500), "retry_count"),
    ],
)
async def test_what_takes_the_place_of_a_request_is_counted_with_the_step_that_stores_it(
    answer: SimulatedResponse, count: str, tmp_path: Path, folder: Path, autojump_clock: MockClock
) -> None:
    answers = iter([answer])
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.1, handler=lambda request: next(answers, SimulatedResponse()))
    runs = Runs(folder, web, settings={**EXACT, "DOWNLOAD_DELAY": 5.0})
    await killed_after(runs, 0.5, tmp_path / "album")  # nothing else was stored since the answer
    assert runs.sent.total() == 1
    stats = (await runs.run()).stats
    assert stats[count] == 1
    assert stats["response_count"] == runs.sent.total() == 2


async def test_c11_a_page_budget_is_not_overshot_by_a_kill(
    tmp_path: Path, folder: Path, autojump_clock: MockClock
) -> None:
    runs = Runs(folder, site(30), settings={**EXACT, "DOWNLOAD_DELAY": 0.2, "PAGES_PER_DOMAIN": 11})
    for number in range(3):
        await killed_after(runs, 0.75, tmp_path / f"album {number}")
    await runs.run()
    assert len(runs.urls) == len(set(runs.urls)) == 11


class CutsItself(Linked):
    """A callback during which the crawl is cancelled, as by a second Ctrl-C while it computes."""

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"url": response.url}
        assert isinstance(self.crawl, Crawl)
        self.crawl.cancel("cancelled")


async def test_a_page_that_is_cut_off_before_it_is_stored_has_no_items_counted(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    runs = Runs(tmp_path, site(1), CutsItself)
    stats = (await runs.run()).stats
    assert stats.get("item_scraped_count", 0) == len(runs.items) == 0
