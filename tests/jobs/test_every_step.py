"""C1: killed, or cancelled, at any step of its tasks, a crawl with a job loses nothing and gives nothing twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.feeds.fakes import READERS
from tests.jobs.killing import Canceller, Photographer, put_back
from tests.jobs.site import Linked, Runs
from trawl.http import Request, Response
from trawl.testing import SimulatedResponse, SimulatedWeb

SETTINGS = {
    "CONCURRENT_REQUESTS_PER_DOMAIN": 2,
    "DOWNLOAD_DELAY": 0,
    "DOWNLOAD_DELAY_PER_SLOT": 0,
    "RETRY_DELAY": 0.1,
    "RETRY_TIMES": 5,  # each run asks for a page that answers 500 once
    "BACKOFF_MIN_DELAY": 0.2,
    "SHUTDOWN_TIMEOUT": 1.0,
}
A = "http://a.example/"
ITEMS = sorted(["1", "2", "2, too", "3", "4", "late", "page", "page, later", "page, with more", "start"])


class Everything(Linked):
    """Redirects, retries, a callback that waits between its items, one that fails, a direct fetch, items of start()."""

    name = "everything"

    async def start(self) -> Any:
        yield {"it": "start"}
        yield Request(A)
        yield Request(f"{A}late", callback=self.one, cb_kwargs={"it": "late"}, meta={"delay": 2.0})

    async def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"it": "page"}
        await trio.sleep(0.05)
        yield {"it": "page, later"}
        yield Request(f"{A}1", callback=self.one, cb_kwargs={"it": "1"})
        yield Request(f"{A}redirect", callback=self.one, cb_kwargs={"it": "2"})
        yield Request(f"{A}flaky", callback=self.one, cb_kwargs={"it": "3"})
        more = await self.fetch(Request(f"{A}direct"))
        yield {"it": f"page, with {more.text}"}

    def one(self, response: Response, it: str) -> Any:
        yield {"it": it}
        if it == "2":
            yield {"it": "2, too"}
            yield Request(f"{A}4", callback=self.one, cb_kwargs={"it": "4"})
            raise ValueError("this callback fails at its end")


def web() -> SimulatedWeb:
    """The pages of that spider; one answers 500 at first."""
    asked: Counter[str] = Counter()

    def handler(request: Any) -> SimulatedResponse:
        path = request.url.rsplit("/", 1)[1]
        asked[path] += 1
        if path == "redirect":
            return SimulatedResponse(302, headers={"Location": "/2"}, latency=0.1)
        if path == "flaky" and asked[path] == 1:
            return SimulatedResponse(500, latency=0.1)
        return SimulatedResponse(body="more", latency=0.1)

    made = SimulatedWeb()
    made.add_host("a.example", handler=handler)
    return made


def runs_in(folder: Path, feed: str = "items.jsonl") -> Runs:
    """Runs whose files are all in ``folder``."""
    return Runs(folder, web(), Everything, SETTINGS, feed=feed)


def items_of(runs: Runs) -> list[str]:
    """What the feed holds, sorted."""
    return sorted([row["it"] for row in READERS[runs.feed.suffix[1:]](runs.feed.read_bytes())])


async def pictures_of(runs: Runs, album: Path) -> list[Path]:
    """What a kill at each step of a whole run leaves."""
    photographer = Photographer(runs.directory.parent, album)
    trio.lowlevel.add_instrument(photographer)
    try:
        assert (await runs.run()).reason == "finished"
    finally:
        trio.lowlevel.remove_instrument(photographer)
    assert items_of(runs) == ITEMS
    return photographer.pictures


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where job and feed are."""
    made = tmp_path / "whole"
    made.mkdir()
    return made


@pytest.mark.parametrize("feed", ["items.jsonl", "items.json", "items.csv", "items.xml"])
async def test_c1_c7_killed_at_any_step_nothing_is_lost_and_nothing_is_twice(
    tmp_path: Path, folder: Path, autojump_clock: MockClock, feed: str
) -> None:
    pictures = await pictures_of(runs_in(folder, feed), tmp_path / "album")
    assert len(pictures) > 20
    for picture in pictures if feed == "items.jsonl" else pictures[:: len(pictures) // 8]:
        put_back(picture, folder)
        runs = runs_in(folder, feed)
        runs.down(1.0)
        result = await runs.run()
        assert result.reason == "finished", picture
        assert items_of(runs) == ITEMS, picture
        assert result.stats["item_scraped_count"] == len(ITEMS), picture


async def test_c1_killed_at_any_step_of_a_run_with_an_item_limit_nothing_beyond_it_is_lost(
    tmp_path: Path, folder: Path, autojump_clock: MockClock
) -> None:
    runs = limited(folder, 4)
    photographer = Photographer(folder, tmp_path / "album")
    trio.lowlevel.add_instrument(photographer)
    try:
        assert (await runs.run()).reason == "closespider_itemcount"
    finally:
        trio.lowlevel.remove_instrument(photographer)
    assert len(items_of(runs)) == 4
    for picture in photographer.pictures[::3]:
        put_back(picture, folder)
        counted = (await limited(folder, 3).run()).stats["item_scraped_count"]
        assert len(items_of(runs)) == counted, picture
        result = await runs_in(folder).run()
        assert items_of(runs) == ITEMS, picture
        assert result.stats["item_scraped_count"] == len(ITEMS), picture


def limited(folder: Path, most: int) -> Runs:
    """Runs that end when so many items were delivered."""
    return Runs(folder, web(), Everything, {**SETTINGS, "CLOSESPIDER_ITEMCOUNT": most})


async def test_c1_killed_twice_all_the_same(tmp_path: Path, folder: Path, autojump_clock: MockClock) -> None:
    for first in (await pictures_of(runs_in(folder), tmp_path / "album"))[3::9]:
        put_back(first, folder)
        for picture in (await pictures_of(runs_in(folder), tmp_path / f"{first.name} again"))[::7]:
            put_back(picture, folder)
            runs = runs_in(folder)
            assert (await runs.run()).reason == "finished", picture
            assert items_of(runs) == ITEMS, picture


async def cancelled_at(tmp_path: Path, step: int) -> bool:
    """Cancel a run at one step, and resume it; whether it came so far."""
    runs = runs_in(tmp_path)
    canceller = Canceller(step)
    trio.lowlevel.add_instrument(canceller)
    try:
        with canceller.scope:
            await runs.run()
    finally:
        trio.lowlevel.remove_instrument(canceller)
    if canceller.steps < step:
        return False
    result = await runs.run()
    assert result.reason == "finished"
    assert items_of(runs) == ITEMS
    assert result.stats["item_scraped_count"] == len(ITEMS)
    return True


async def test_c1_cancelled_at_some_steps_of_a_run_with_an_item_limit_each_run_gives_what_it_counts(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    step = 1
    while True:
        canceller = Canceller(step)
        (folder := tmp_path / f"{step}").mkdir()
        trio.lowlevel.add_instrument(canceller)
        try:
            with canceller.scope:
                await limited(folder, 4).run()
        finally:
            trio.lowlevel.remove_instrument(canceller)
        if canceller.steps < step:
            break
        runs = limited(folder, 3)
        counted = (await runs.run()).stats["item_scraped_count"]
        assert len(items_of(runs)) == counted <= 4 + 3
        result = await runs_in(folder).run()
        assert items_of(runs) == ITEMS
        assert result.stats["item_scraped_count"] == len(ITEMS)
        step += 9
    assert step > 50


async def _cancelled_everywhere(tmp_path: Path, every: int) -> None:
    step = 1
    while True:
        if not await cancelled_at(tmp_path / f"{step}", step):
            break
        step += every
    assert step > 100


async def test_c1_cancelled_at_some_steps_nothing_is_lost_and_nothing_is_twice(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    await _cancelled_everywhere(tmp_path, every=9)


@pytest.mark.sweep
async def test_c1_cancelled_at_every_step_nothing_is_lost_and_nothing_is_twice(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    await _cancelled_everywhere(tmp_path, every=1)
