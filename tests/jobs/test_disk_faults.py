"""What becomes of a crawl when its job's disk fails in the middle: it ends with that error, and goes on later (C1)."""

from __future__ import annotations

import json
import logging
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

import trawl.frontier.job
from tests.jobs.site import Runs, all_urls, site
from trawl.cli import main
from trawl.errors import JobError
from trawl.feeds.targets import FileTarget
from trawl.frontier.looking import export_pending
from trawl.frontier.schema import connect

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
        patched.setattr(trawl.frontier.job, "connect", small)
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


async def test_c7_a_job_whose_last_items_are_not_in_its_feed_is_not_finished(
    tmp_path: Path,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(self: FileTarget, position: int, content: memoryview) -> int:
        raise OSError(28, "No space left on device")

    runs = Runs(tmp_path, site(1), settings=FAST)
    with monkeypatch.context() as patched:
        patched.setattr(FileTarget, "write", full)
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
