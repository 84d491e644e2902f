"""What becomes of a crawl when its job's disk fails in the middle: it ends with that error, and goes on later (C1)."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

import trawl.frontier.tables
from tests.jobs.site import Linked, Runs, all_urls, site
from trawl.cli import main
from trawl.errors import JobError
from trawl.feeds.storages import FileStorage
from trawl.frontier.inspect import export_pending
from trawl.frontier.tables import connect

FAST = {"CONCURRENT_REQUESTS_PER_DOMAIN": 4, "DOWNLOAD_DELAY": 0, "DOWNLOAD_DELAY_PER_SLOT": 0, "ROBOTSTXT_OBEY": False}


async def test_c1_a_disk_that_fills_up_ends_the_crawl_and_with_room_it_goes_on(
    tmp_path: Path,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def small(directory: Path, **options: Any) -> tuple[sqlite3.Connection, bool]:
        connection, is_new = connect(directory, **options)
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection, is_new

    runs = Runs(tmp_path, site(150), settings=FAST)
    with monkeypatch.context() as patched:
        patched.setattr(trawl.frontier.tables, "connect", small)
        with pytest.raises(JobError, match="the disk is full"):
            await runs.run()
    sent = runs.sent.total()
    pending = {json.loads(line)["url"] for line in export_pending(runs.directory)}
    assert 0 < sent < 150
    assert main(["job", str(runs.directory)]) == 0
    assert "state    stopped: the disk is full. Nothing is lost" in capsys.readouterr().out
    with caplog.at_level(logging.INFO):
        assert (await runs.run()).reason == "finished"
    assert "the last run ended: the disk is full." in caplog.text
    assert main(["job", str(runs.directory)]) == 0
    assert "state    finished" in capsys.readouterr().out
    assert runs.urls == all_urls(150)
    again = {url for url, times in runs.sent.items() if times > 1}
    assert again <= pending


async def test_a_full_disk_is_told_once_where_start_meets_it(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def small(directory: Path, **options: Any) -> tuple[sqlite3.Connection, bool]:
        connection, is_new = connect(directory, **options)
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection, is_new

    class Listed(Linked):
        start_urls: Sequence[str] = [f"http://a.example/{number}" for number in range(2000)]

    runs = Runs(tmp_path, site(1), Listed, settings=FAST)
    with monkeypatch.context() as patched:
        patched.setattr(trawl.frontier.tables, "connect", small)
        with pytest.raises(JobError, match="the disk is full"):
            await runs.run()
    assert "start() failed" not in caplog.text


async def test_c7_a_job_whose_last_items_are_not_in_its_feed_is_not_finished(
    tmp_path: Path,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(self: FileStorage, position: int, content: memoryview) -> int:
        raise OSError(28, "No space left on device")

    runs = Runs(tmp_path, site(1), settings=FAST)
    with monkeypatch.context() as patched:
        patched.setattr(FileStorage, "write", full)
        assert (await runs.run()).reason == "feed_error"
    assert main(["job", str(runs.directory)]) == 0
    assert "state    nothing is pending, but 1 item is not in the feeds yet: run it again" in capsys.readouterr().out
    with caplog.at_level(logging.INFO):
        await runs.run()
    assert "items that wait for its feeds: 1" in caplog.text
    assert "is finished" not in caplog.text
    assert runs.urls == all_urls(1)
    assert main(["job", str(runs.directory)]) == 0
    assert "state    finished\n" in capsys.readouterr().out


@pytest.mark.parametrize("step", ["write", "sync"])
async def test_c7_a_batch_that_the_disk_has_no_room_for_ends_the_run_with_that_error_alone(
    tmp_path: Path,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    step: str,
) -> None:
    does = getattr(FileStorage, step)

    def full(self: FileStorage, *given: Any) -> Any:
        if self.path.name == "items-003.jsonl":
            raise OSError(28, "No space left on device")
        return does(self, *given)

    runs = Runs(tmp_path, site(9), settings=FAST)
    feeds = {str(tmp_path / "items-%(batch)03d.jsonl"): {"batch_item_count": 2}, str(runs.feed): {}}
    with monkeypatch.context() as patched:
        patched.setattr(FileStorage, step, full)
        assert (await runs.run(FEEDS=feeds)).reason == "feed_error"
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert errors == [
        f"feed {tmp_path / 'items-003.jsonl'}: No space left on device;"
        " nothing is lost: put that right, and start the job again"
    ]
    assert (await runs.run(FEEDS=feeds)).stats["item_scraped_count"] == 9
    rows = batches_in(tmp_path)
    assert [len(urls) for urls in rows] == [2, 2, 2, 2, 1]
    assert sorted([url for urls in rows for url in urls]) == sorted(runs.urls) == sorted(all_urls(9))


def batches_in(folder: Path) -> list[list[str]]:
    """The URLs in each batch."""
    batches = sorted(folder.glob("items-*.jsonl"))
    return [[json.loads(line)["url"] for line in batch.read_text().splitlines()] for batch in batches]
