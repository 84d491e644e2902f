"""C7: with items that a feed can't take, a killed job gives and counts each of the others, and each loss, once."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.feeds.fakes import read_csv
from tests.jobs.killing import Photographer, put_back
from tests.jobs.site import Linked, Runs, all_urls, site
from trawl.errors import DropItem
from trawl.http import Response

PAGES = 6


class Pipeline:
    """Drops some items, and fails on others."""

    def process_item(self, item: Any, spider: Any) -> Any:
        if "drop" in item:
            raise DropItem("not wanted")
        if "fail" in item:
            raise ValueError("a pipeline fails")
        return item


class TwoKinds(Linked):
    """Gives on each page an item that has the columns, one that has none of them, and one that can't be stored."""

    name = "kinds"

    async def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"url": response.url}
        yield {"author": response.url}
        yield {"url": object()}
        yield {"drop": 1}
        yield {"fail": 1}
        await trio.sleep(0.01 * len(response.url) * (response.url[-1] in "24"))
        for request in response.follow_all(css="a"):
            yield request


async def test_c7_killed_at_any_step_each_item_is_written_or_lost_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    folder = tmp_path / "whole"
    folder.mkdir()
    settings = {
        "DOWNLOAD_DELAY": 0,
        "DOWNLOAD_DELAY_PER_SLOT": 0,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 4,
        "ITEM_PIPELINES": {Pipeline: 100},
    }
    runs = Runs(folder, site(PAGES), TwoKinds, settings, feed="items.csv")
    photographer = Photographer(folder, tmp_path / "album")
    trio.lowlevel.add_instrument(photographer)
    try:
        assert (await runs.run()).reason == "finished"
    finally:
        trio.lowlevel.remove_instrument(photographer)
    pictures = photographer.pictures
    assert len(pictures) > 10
    for picture in pictures:
        put_back(picture, folder)
        result = await runs.run()
        rows = read_csv(runs.feed.read_bytes())
        assert sorted(row["url"] for row in rows) == sorted(all_urls(PAGES)), picture
        counts = {key: n for key, n in result.stats.items() if "item" in key}
        assert counts == {
            "item_scraped_count": PAGES,
            "item_lost_count": 2 * PAGES,
            "feed_item_errors": 2 * PAGES,
            "item_dropped_count": PAGES,
            "item_error_count": PAGES,
        }, picture


class Wide(Linked):
    """Gives on each page an item, and one that a SQLite table finds out only as it writes that it can't take."""

    name = "wide"

    async def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"url": response.url}
        yield {f"field{number}": 1 for number in range(2001)}
        for request in response.follow_all(css="a"):
            yield request


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
async def test_c7_when_another_feed_ends_the_run_what_a_table_refuses_is_counted_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    pages = 3
    settings = {"DOWNLOAD_DELAY": 0, "DOWNLOAD_DELAY_PER_SLOT": 0}
    runs = Runs(tmp_path, site(pages), Wide, settings, feed="items.sqlite")
    first = await runs.run(FEEDS={str(runs.feed): {}, "/dev/full": {"format": "jsonl"}})
    assert first.reason == "feed_error"
    result = await runs.run()
    with closing(sqlite3.connect(runs.feed)) as database:
        rows = database.execute("SELECT url FROM items").fetchall()
    assert sorted(row[0] for row in rows) == sorted(all_urls(pages))
    counts = {key: n for key, n in result.stats.items() if "item" in key}
    assert counts == {"item_scraped_count": pages, "item_lost_count": pages, "feed_item_errors": pages}


class Steps(trio.abc.Instrument):
    """Counts the steps of all tasks."""

    def __init__(self) -> None:
        self.seen = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count one."""
        self.seen += 1


async def test_c4_a_callback_that_gives_items_which_can_not_be_written_lets_others_go_on(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    steps = Steps()
    took: list[int] = []

    class Many(Linked):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            before = steps.seen
            for _ in range(1000):
                yield {"url": object()}
            took.append(steps.seen - before)

    trio.lowlevel.add_instrument(steps)
    try:
        result = await Runs(tmp_path, site(1), Many).run()
    finally:
        trio.lowlevel.remove_instrument(steps)
    assert result.stats["item_lost_count"] == 1000
    assert took[0] >= 9
