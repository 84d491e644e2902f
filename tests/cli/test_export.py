"""``trawl export`` on a job whose crawls are over; tests/cli/test_shared_job.py has it beside processes that work."""

from __future__ import annotations

import logging
import signal
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.jobs.test_shared import EVERYTHING, URL, Fleet
from tests.simulated_store import SimulatedStore
from trawl.cli import main
from trawl.cli.export import copy_items
from trawl.errors import SessionEnded
from trawl.feeds import FeedsSettings
from trawl.frontier.job import Job

pytestmark = pytest.mark.usefixtures("few_parts")


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fleet:
    """Processes in a folder, on a job in a simulated server that the commands reach too."""
    monkeypatch.chdir(tmp_path)
    store = SimulatedStore()
    for name in ("client.connect", "startup.connect_server"):
        monkeypatch.setattr(f"trawl.frontier.redis.{name}", store.connect)
    return Fleet(tmp_path, store)


def work(fleet: Fleet) -> None:
    """Have one process work on the job to its end."""
    trio.run(partial(fleet.work, 0), clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize("follows", [(), ("-f",)])
def test_the_items_of_a_job_are_copied_once(
    fleet: Fleet, capsys: pytest.CaptureFixture[str], follows: tuple[str, ...]
) -> None:
    work(fleet)
    assert main(["export", URL, "-o", "items.jsonl", *follows]) == 0
    assert fleet.items == EVERYTHING
    assert f"{len(EVERYTHING)} items copied" in capsys.readouterr().err
    assert main(["export", URL, "-o", "items.jsonl", *follows]) == 0
    assert fleet.items == EVERYTHING
    assert "0 items copied" in capsys.readouterr().err


def test_an_export_that_can_not_write_leaves_the_items_to_the_next(
    fleet: Fleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work(fleet)
    (tmp_path / "taken").write_text("")
    assert main(["export", URL, "-o", "taken/items.jsonl"]) == 2
    assert "taken/items.jsonl" in capsys.readouterr().err
    assert main(["export", URL, "-o", "items.jsonl"]) == 0
    assert fleet.items == EVERYTHING


def test_an_export_in_whose_place_others_went_on_joins_them_again(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work(fleet)
    ended: list[Job] = []

    async def taken_for_dead_once(job: Job, settings: FeedsSettings, *, follows: bool) -> None:
        if not ended:
            async with trio.open_nursery():
                ended.append(job)
                raise SessionEnded("job history: others have taken over", "history")
        await copy_items(job, settings, follows=follows)

    monkeypatch.setattr("trawl.cli.export.copy_items", taken_for_dead_once)
    monkeypatch.setattr("trawl.cli.worker.REJOIN_AFTER", 0.0)
    assert main(["export", URL, "-o", "items.jsonl", "-f"]) == 0
    assert fleet.items == EVERYTHING
    assert "others have taken over (this is done now)" in capsys.readouterr().err


def test_ctrl_c_ends_a_wait_for_a_job(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(record: logging.LogRecord) -> bool:
        signal.raise_signal(signal.SIGINT)
        return True

    logging.getLogger("trawl.export").addFilter(interrupt)
    try:
        assert main(["export", URL, "-f", "-o", "items.jsonl"]) == 130
    finally:
        logging.getLogger("trawl.export").removeFilter(interrupt)
    assert "there is no job of this name: waiting" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([URL], "there is no feed to export to: give -o FILE"),
        (["-o", "items.jsonl"], "there is no job to export: give its address, redis://HOST/NAME"),
        (["folder", "-o", "items.jsonl"], "its items go to the feeds of `trawl crawl SPIDER --job folder`: run that"),
        ([URL, "-o", "items.jsonl"], "there is no job of this name"),
    ],
)
def test_what_can_not_be_exported_is_said(
    fleet: Fleet, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["export", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
