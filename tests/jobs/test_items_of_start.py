"""Items of a ``start()`` that gives more than memory is to hold: once in the feed, whenever the process is killed."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.jobs.killing import Photographer, killed_after, put_back
from tests.jobs.site import Runs, site
from trawl.http import Request, Response

LARGE = "x" * 1_100_000
"""More than a callback's items may take of memory: each of them is stored as it comes."""

FREE = {"ROBOTSTXT_OBEY": False, "DOWNLOAD_DELAY": 0, "DOWNLOAD_DELAY_PER_SLOT": 0}


class Giving(trawl.Spider):
    """Gives large items and a small one, with requests and a pause between them."""

    name = "giving"
    items = 4

    async def start(self) -> AsyncIterator[Any]:
        for number in range(self.items):
            yield {"it": number, "text": LARGE if number < 3 else ""}
            yield Request(f"http://a.example/{number or ''}")
            await trio.sleep(0.3)

    def parse(self, response: Response, **kwargs: Any) -> Any:
        return {"it": response.url}


def given(runs: Runs) -> list[Any]:
    """The items of ``start()`` in the feed, as they stand there."""
    return [item["it"] for item in runs.items if isinstance(item["it"], int)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where job and feed are."""
    made = tmp_path / "whole"
    made.mkdir()
    return made


async def test_c1_killed_at_any_step_of_a_long_start_each_of_its_items_is_in_the_feed_once(
    tmp_path: Path, folder: Path, autojump_clock: MockClock
) -> None:
    runs = Runs(folder, site(4), Giving, FREE)
    photographer = Photographer(folder, tmp_path / "album")
    trio.lowlevel.add_instrument(photographer)
    try:
        await runs.run()
    finally:
        trio.lowlevel.remove_instrument(photographer)
    assert given(runs) == [0, 1, 2, 3]
    assert len(photographer.pictures) > 15
    for picture in photographer.pictures[::4]:
        put_back(picture, folder)
        result = await runs.run()
        assert given(runs) == [0, 1, 2, 3], picture
        assert len(runs.items) == result.stats["item_scraped_count"] == 8, picture


async def test_c1_killed_twice_in_a_long_start_each_of_its_items_is_in_the_feed_once(
    tmp_path: Path, folder: Path, autojump_clock: MockClock
) -> None:
    runs = Runs(folder, site(4), Giving, FREE)
    for number in range(2):
        await killed_after(runs, 0.4, tmp_path / f"album {number}")
        assert given(runs) == [0, 1]
    await runs.run()
    assert given(runs) == [0, 1, 2, 3]


async def test_a_start_that_gives_fewer_items_than_before_is_warned_of(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(tmp_path, site(4), Giving, FREE)
    await runs.run(stop_after=0.5)
    assert given(runs) == [0, 1]
    monkeypatch.setattr(Giving, "items", 1)
    with caplog.at_level(logging.WARNING):
        await runs.run()
    assert given(runs) == [0, 1]
    assert "start() gave 1 items fewer than in an earlier run" in caplog.text


class Hushed(Giving):
    """Has its last words under a shield of its own: what is cancelled meanwhile is not heard there."""

    async def start(self) -> AsyncIterator[Any]:
        yield {"it": 0}
        with trio.CancelScope(shield=True):
            await trio.sleep(0.3)


async def test_a_start_that_ends_after_the_crawl_was_cancelled_has_its_items_in_the_next_run(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    runs = Runs(tmp_path, site(1), Hushed, FREE)
    with trio.move_on_after(0.1):
        await runs.run()
    assert given(runs) == []
    await runs.run()
    assert given(runs) == [0]
