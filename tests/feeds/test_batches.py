"""Feeds in batches: by count, by size, by time in the name; continued, and exactly once with a job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.feeds.fake_job import FakeJob
from tests.feeds.fakes import ROWS, STARTED_UTC, left_in, opened, states_of, write_all
from tests.feeds.test_outbox import Mortal, run_until_killed
from trawl.blocking import InlineBlocking, ThreadBlocking
from trawl.errors import FeedError, SettingsError
from trawl.feeds import FeedMapping, FeedsSettings, FeedState, open_feeds

Numbers = list[dict[str, str]]


def numbers(count: int) -> Numbers:
    return [{"n": str(number)} for number in range(count)]


def contents(folder: Path) -> dict[str, Numbers]:
    return {path.name: json.loads(path.read_bytes()) for path in sorted(folder.iterdir())}


async def test_a_new_file_is_begun_after_so_many_items(tmp_path: Path, autojump_clock: MockClock) -> None:
    await write_all(await opened(tmp_path / "%(name)s-%(batch)05d.json", batch_item_count=2), numbers(5))
    assert contents(tmp_path) == {
        "quotes-00001.json": numbers(5)[:2],
        "quotes-00002.json": numbers(5)[2:4],
        "quotes-00003.json": numbers(5)[4:],
    }


async def test_no_empty_batch_follows_a_full_one(tmp_path: Path, autojump_clock: MockClock) -> None:
    await write_all(await opened(tmp_path / "%(batch_id)d.json", batch_item_count=2), numbers(4))
    assert list(contents(tmp_path)) == ["1.json", "2.json"]


async def test_a_new_file_is_begun_after_so_many_bytes(tmp_path: Path, autojump_clock: MockClock) -> None:
    await write_all(await opened(tmp_path / "%(batch)d.json", batch_bytes=15), numbers(5))
    assert [len(rows) for rows in contents(tmp_path).values()] == [2, 2, 1]


async def test_a_batch_that_is_continued_is_as_full_as_it_was(tmp_path: Path) -> None:
    settings = FeedsSettings(feeds={str(tmp_path / "%(batch)d.jsonl"): {"batch_bytes": 20}})
    states: dict[str, FeedState] = {}
    for number in numbers(5):
        feeds = await open_feeds(
            settings,
            InlineBlocking(),
            spider_name="x",
            started_utc=STARTED_UTC,
            states=states,
        )
        await feeds.start()
        await feeds.put(number)
        await feeds.sync()
        [feed] = feeds.all
        states = states_of(feeds)
        feed.close()
    assert {name: (tmp_path / name).stat().st_size for name in left_in(tmp_path)} == {
        "1.jsonl": 20,
        "2.jsonl": 20,
        "3.jsonl": 10,
    }


async def test_the_setting_holds_for_feeds_that_say_nothing_themselves(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    feeds = await open_feeds(
        FeedsSettings(
            feeds={str(tmp_path / "%(batch)d.json"): {}, str(tmp_path / "all.json"): {"batch_item_count": 0}},
            feed_export_batch_item_count=1,
        ),
        InlineBlocking(),
        spider_name="x",
        started_utc=STARTED_UTC,
    )
    await write_all(feeds, numbers(2))
    assert list(contents(tmp_path)) == ["1.json", "2.json", "all.json"]


async def test_the_time_in_a_name_is_that_of_the_batch(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with await opened(tmp_path / "%(batch_time)s.json", batch_item_count=1) as feeds:
        for row in numbers(2):
            await feeds.put(row)
            await trio.sleep(90)
    assert list(contents(tmp_path)) == ["2025-01-01T12-30-00+00-00.json", "2025-01-01T12-31-30+00-00.json"]


async def test_a_feed_that_does_not_overwrite_begins_behind_the_batches_that_are_there(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    for _ in range(2):
        await write_all(await opened(tmp_path / "%(batch)d.json", batch_item_count=1), numbers(2))
    assert list(contents(tmp_path)) == ["1.json", "2.json", "3.json", "4.json"]
    await write_all(await opened(tmp_path / "%(batch)d.json", batch_item_count=3, overwrite=True), numbers(2))
    assert contents(tmp_path)["1.json"] == numbers(2)


async def test_the_first_item_of_each_batch_tells_its_columns(tmp_path: Path, autojump_clock: MockClock) -> None:
    rows = [{"a": "1"}, {"b": "2"}]
    await write_all(await opened(tmp_path / "%(batch)d.csv", batch_item_count=1), rows)
    assert (tmp_path / "2.csv").read_text() == "b\n2\n"


async def test_batches_need_a_name_that_tells_them_apart(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"needs %\(batch\)05d or %\(batch_time\)s in its path"):
        await opened(tmp_path / "all.json", batch_item_count=2)


async def test_a_report_counts_all_batches(tmp_path: Path, autojump_clock: MockClock) -> None:
    feeds = await opened(tmp_path / "%(batch)d.json", batch_item_count=2)
    await write_all(feeds, numbers(5))
    assert [feed.records for feed in feeds.all] == [5]


async def test_batches_are_written_from_threads(tmp_path: Path) -> None:
    settings = FeedsSettings(feeds={str(tmp_path / "%(batch_time)s-%(batch)d.json"): {"batch_item_count": 1}})
    feeds = await open_feeds(settings, ThreadBlocking(), spider_name="x", started_utc=STARTED_UTC)
    await write_all(feeds, numbers(3))
    assert len(contents(tmp_path)) == 3


@pytest.mark.parametrize("name", ["json", "csv"])
async def test_c7_killed_at_any_write_each_item_is_in_one_batch_once(
    tmp_path: Path, autojump_clock: MockClock, name: str
) -> None:
    options: FeedMapping = {"batch_item_count": 2}
    for steps in range(1, 60, 2):
        folder = tmp_path / f"{steps}"
        path = folder / f"%(batch)d.{name}"
        job = FakeJob()
        if await run_until_killed(job, path, options, Mortal(steps, is_half=steps % 4 == 1)):
            break
        assert await run_until_killed(job.killed(), path, options, InlineBlocking())
        if name == "json":
            assert contents(folder) == {"1.json": ROWS[:2], "2.json": ROWS[2:]}
        else:
            assert sorted(file.name for file in folder.iterdir()) == ["1.csv", "2.csv"]
    assert steps > 10


async def test_a_job_refuses_batches_that_are_named_by_their_time(tmp_path: Path, autojump_clock: MockClock) -> None:
    with pytest.raises(FeedError, match=r"can't be a feed of a job: the times of batches"):
        await run_until_killed(FakeJob(), tmp_path / "%(batch_time)s.json", {"batch_item_count": 1}, InlineBlocking())
