"""What was spent of a quota is on disk before it is spent: a kill forgets none of it (F01, F02, R16)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.jobs.killing import Photographer, put_back
from tests.jobs.site import Linked, Runs, site
from trawl.engine import Crawl
from trawl.testing import SimulatedWeb

EXACT = {
    "RANDOMIZE_DOWNLOAD_DELAY": False,
    "BACKOFF_JITTER": 0,
    "ROBOTSTXT_OBEY": False,
    "DOWNLOAD_DELAY": 0,
    "DOWNLOAD_DELAY_PER_SLOT": 0,
}


class Costing(Linked):
    """Pages of one host that cost 1, 2 and 3 in turn."""

    name = "costing"
    start_urls = ()

    async def start(self) -> Any:
        for number in range(24):
            yield trawl.Request(
                f"http://a.example/{number}", meta={"throttling_scopes": {"api": float(1 + number % 3), "pace": None}}
            )

    def parse(self, response: trawl.Response, **kwargs: Any) -> Any:
        yield {"url": response.url}


def price(url: str) -> float:
    return float(1 + int(url.rpartition("/")[2]) % 3)


def costing(folder: Path, quota: Mapping[str, Any], **web: Any) -> Runs:
    made = SimulatedWeb()
    made.add_host("a.example", latency=0.1, **web)
    scopes = {"api": dict(quota), "pace": {"delay": 0.25}}
    return Runs(folder, made, Costing, settings={**EXACT, "THROTTLING_SCOPES": scopes})


async def killed_after(runs: Runs, seconds: float, album: Path) -> None:
    """Run for so long; what a kill leaves then is what the next run finds."""
    folder = runs.directory.parent
    async with trio.open_nursery() as nursery:

        async def kill() -> None:
            await trio.sleep(seconds)
            shutil.copytree(folder, album)
            nursery.cancel_scope.cancel()

        nursery.start_soon(kill)
        await runs.run()
        nursery.cancel_scope.cancel()
    put_back(album, folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where job and feed are."""
    made = tmp_path / "whole"
    made.mkdir()
    return made


@pytest.mark.parametrize("sliding", [False, True])
@pytest.mark.parametrize("seconds", [0.05, 0.3, 1.3, 2.1, 2.9])
async def test_a_kill_forgets_nothing_that_was_spent(
    tmp_path: Path, folder: Path, seconds: float, sliding: bool, autojump_clock: MockClock
) -> None:
    runs = costing(folder, {"quota": 20, "window": 1000.0, "sliding": sliding})
    await killed_after(runs, seconds, tmp_path / "album")
    spent = [(at, price(url)) for at, url in runs.times]
    assert spent
    runs.down(5.0)
    result = await runs.run()
    assert result.reason == "finished"
    again = [(seconds + 5.0 + at, price(url)) for at, url in runs.times]
    for start, _ in spent + again:
        assert sum(amount for at, amount in spent + again if start <= at < start + 1000.0) <= 20.0
    # One allowance is lost at most: here the price of one request, and what was on its way.
    used = sum(amount for at, amount in spent + again if at < 900.0)
    assert used >= 20.0 - 3.0 - 3.0 - 2.0


async def test_a_kill_after_any_step_forgets_nothing_that_was_spent(
    tmp_path: Path, folder: Path, autojump_clock: MockClock
) -> None:
    runs = costing(folder, {"quota": 9, "window": 1000.0}, connect=0.05, keep_alive=0.0)
    sent: list[float] = []

    class Counting(Photographer):
        def after_task_step(self, task: trio.lowlevel.Task) -> None:
            super().after_task_step(task)
            while len(sent) < len(self.pictures):
                sent.append(0.0)
            sent[-1] = sum(price(url) for _, url in runs.times)  # at the latest step that leaves this picture

    album = tmp_path / "album"
    album.mkdir()
    photographer = Counting(folder, album)
    trio.lowlevel.add_instrument(photographer)
    await runs.run(stop_after=2.5)
    trio.lowlevel.remove_instrument(photographer)
    pictures = [(picture, spent) for picture, spent in zip(photographer.pictures, sent, strict=True) if spent]
    assert len(pictures) > 10
    for picture, spent in pictures[:: max(1, len(pictures) // 12)]:
        put_back(picture, folder)
        await runs.run(stop_after=20.0)
        now = sum(price(url) for _, url in runs.times)
        assert spent + now <= 9.0, f"{picture}: {spent} and then {now}"


async def test_a_second_kill_adds_to_the_first(tmp_path: Path, folder: Path, autojump_clock: MockClock) -> None:
    runs = costing(folder, {"quota": 20, "window": 1000.0})
    spent: list[float] = []
    for number in range(6):
        await killed_after(runs, 0.4, tmp_path / f"album {number}")
        spent += [price(url) for _, url in runs.times]
        runs.down(1.0)
    assert sum(spent) <= 20.0
    assert len(spent) >= 4


async def test_what_an_earlier_run_spent_of_a_scope_that_is_not_used_is_not_forgotten(
    tmp_path: Path, folder: Path, autojump_clock: MockClock
) -> None:
    runs = costing(folder, {"quota": 6, "window": 1000.0})
    await killed_after(runs, 1.3, tmp_path / "first")
    assert sum(price(url) for _, url in runs.times) >= 4.0
    first = sum(price(url) for _, url in runs.times)
    await runs.run(stop_after=0.0)  # nothing goes, and the scope may not even be made
    assert runs.times == [] or first + sum(price(url) for _, url in runs.times) <= 6.0
    first += sum(price(url) for _, url in runs.times)
    await killed_after(runs, 3.0, tmp_path / "second")
    assert first + sum(price(url) for _, url in runs.times) <= 6.0


async def test_a_clean_stop_counts_to_the_letter(folder: Path, autojump_clock: MockClock) -> None:
    runs = Runs(folder, site(30), settings={**EXACT, "THROTTLING_SCOPES": {"a.example": {"quota": 8, "window": 50.0}}})
    await runs.run(stop_after=0.15)
    first = len(runs.times)
    assert 0 < first < 8
    await runs.run()
    times = [time for time, _ in runs.times]
    assert len([time for time in times if time < 49.0]) == 8 - first
    assert len(runs.urls) == 30


async def test_a_job_paces_a_quota_as_a_crawl_without_one_does(folder: Path, autojump_clock: MockClock) -> None:
    limits: list[dict[str, Any]] = [
        {"quota": 5, "window": 10.0},
        {"quota": 5, "window": 10.0, "sliding": True, "delay": 1.0},
        {"quota": 1000, "window": 1.0, "delay": 0.5},
    ]
    for number, limit in enumerate(limits):
        made = folder / str(number)
        made.mkdir()
        runs = Runs(made, site(20), settings={**EXACT, "THROTTLING_SCOPES": {"a.example": limit}})
        await runs.run()
        with_job = [time for time, _ in runs.times]
        runs = Runs(made, site(20), settings={**EXACT, "THROTTLING_SCOPES": {"a.example": limit}, "JOB_DIR": ""})
        await runs.run(FEEDS={})
        assert with_job == [time for time, _ in runs.times]


async def test_slow_connections_spend_nothing_that_is_not_stored(
    tmp_path: Path, folder: Path, autojump_clock: MockClock
) -> None:
    runs = costing(folder, {"quota": 6, "window": 1000.0}, connect=90.0)
    await killed_after(runs, 200.0, tmp_path / "album")
    first = [price(url) for _, url in runs.times]
    assert first
    runs.down(100.0)
    await runs.run(stop_after=400.0)
    assert sum(first) + sum(price(url) for _, url in runs.times) <= 6.0


class Late(Linked):
    """Whose quota is set while it runs."""

    name = "late"
    start_urls = ("http://a.example/",)

    def parse(self, response: trawl.Response, **kwargs: Any) -> Iterator[Any]:
        self.crawl.throttling.set("a.example", quota=4, window=1000.0)
        yield from super().parse(response, **kwargs)


async def test_a_quota_that_is_set_while_the_crawl_runs_survives_a_kill(
    tmp_path: Path, folder: Path, autojump_clock: MockClock
) -> None:
    runs = Runs(
        folder, site(30), Late, settings={**EXACT, "THROTTLING_SCOPES": {"a.example": {"quota": 100, "window": 1000.0}}}
    )
    await killed_after(runs, 0.45, tmp_path / "album")
    assert len(runs.times) == 4
    runs.down(1.0)
    runs.settings = {**EXACT, "THROTTLING_SCOPES": {"a.example": {"quota": 4, "window": 1000.0}}}
    await runs.run(stop_after=500.0)
    assert runs.times == []


async def test_a_quota_that_the_program_sets_anew_in_each_run_survives_a_kill(
    tmp_path: Path, folder: Path, autojump_clock: MockClock
) -> None:
    async def limit(crawl: Crawl) -> None:
        crawl.throttling.set("a.example", quota=4, window=1000.0)

    runs = Runs(folder, site(30), settings=EXACT)
    async with trio.open_nursery() as nursery:

        async def kill() -> None:
            await trio.sleep(0.25)
            shutil.copytree(folder, tmp_path / "album")
            nursery.cancel_scope.cancel()

        nursery.start_soon(kill)
        await runs.run([limit])
    put_back(tmp_path / "album", folder)
    spent = len(runs.times)
    assert spent == 4
    runs.down(1.0)
    await runs.run([limit], stop_after=500.0)
    assert runs.times == []


@pytest.mark.parametrize("sliding", [False, True])
@pytest.mark.parametrize("window", [0.5, 1000.0])
async def test_a_quota_of_the_program_survives_a_kill_also_beside_a_window_of_the_settings(
    tmp_path: Path, folder: Path, window: float, sliding: bool, autojump_clock: MockClock
) -> None:
    async def limit(crawl: Crawl) -> None:
        crawl.throttling.set("a.example", quota=4, window=100.0, sliding=sliding)

    scopes = {"a.example": {"quota": 100, "window": window, "sliding": sliding}}
    runs = Runs(folder, site(30), settings={**EXACT, "THROTTLING_SCOPES": scopes})
    async with trio.open_nursery() as nursery:

        async def kill() -> None:
            await trio.sleep(30.0)
            shutil.copytree(folder, tmp_path / "album")
            nursery.cancel_scope.cancel()

        nursery.start_soon(kill)
        await runs.run([limit])
    put_back(tmp_path / "album", folder)
    assert len(runs.times) == 4
    runs.down(20.0)
    await runs.run([limit], stop_after=60.0)
    assert runs.times[0][0] == pytest.approx(50.0, abs=0.2)
    assert len(runs.times) == 4


@pytest.mark.parametrize("quota", [{}, {"quota": 50, "window": 100.0}])
async def test_r16_a_slot_rests_over_a_kill_whatever_quota_there_is(
    tmp_path: Path, folder: Path, quota: Mapping[str, Any], autojump_clock: MockClock
) -> None:
    limits = {"delay_per_slot": 1.5, "delay": 0.1, **quota}
    runs = Runs(folder, site(9), settings={**EXACT, "THROTTLING_SCOPES": {"a.example": limits}})
    await killed_after(runs, 0.35, tmp_path / "album")
    assert [at for at, _ in runs.times] == [0.0]
    await runs.run()
    assert 0.35 + runs.times[0][0] >= 1.5
