"""Commands on a job in a real server that processes work on: ``worker``, ``export``, ``job``, ``top``."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.trees import SPIDER, WITHIN, assert_whole, pids, site, until_items
from tests.servers.stores import StoreProcess, running_store
from trawl.cli import main

__all__ = ["site"]

pytestmark = pytest.mark.servers

TRAWL = [sys.executable, "-P", "-m", "trawl"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    with running_store("valkey", tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture
def url(store: StoreProcess, tmp_path: Path) -> str:
    """The address of a job for one test."""
    (tmp_path / "tree.py").write_text(SPIDER, encoding="utf-8")
    return store.url(tmp_path.name)


BOTH = ("-a", "processes=2")
"""Nothing is sent before two processes are there."""


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start a command."""
    return subprocess.Popen(
        [*TRAWL, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def worker(folder: Path, url: str, site: list[str], *words: str) -> subprocess.Popen[str]:
    """Start a worker."""
    return start(folder, "worker", url, "--spider", "tree.py", "-a", f"sites={' '.join(site)}", *words)


def said(process: subprocess.Popen[str], status: int = 0) -> str:
    """Wait for the end of a command. Returns what it printed."""
    out, err = process.communicate(timeout=WITHIN)
    assert process.returncode == status, err
    return out + err


Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command that is soon over, in this process. Returns what it printed."""

    def run(*words: str, status: int | None = 0) -> str:
        monkeypatch.chdir(tmp_path)
        found = main(words)
        printed = "".join(capsys.readouterr())
        assert status in (found, None), printed
        return printed

    return run


def test_items_of_workers_are_exported_once_over_kills_of_all(
    tmp_path: Path, url: str, site: list[str], run: Run
) -> None:
    export = ("export", url, "-f", "-o", "items.jsonl")
    exporting = start(tmp_path, *export)
    workers = [worker(tmp_path, url, site, *BOTH) for _ in range(2)]
    until_items(tmp_path, 40)
    exporting.kill()
    exporting.communicate()
    exporting = start(tmp_path, *export)
    until_items(tmp_path, 100)
    workers[0].kill()
    workers[0].communicate()
    workers[0] = worker(tmp_path, url, site, *BOTH)
    for each in workers:
        said(each)
    assert re.search(r"\d+ items copied", said(exporting))
    assert_whole(tmp_path, site)
    assert len(pids(tmp_path)) >= 2
    assert "0 items copied" in run(*export)


def test_what_came_so_far_is_exported_without_following(tmp_path: Path, url: str, site: list[str], run: Run) -> None:
    working = worker(tmp_path, url, site, "-s", "CLOSESPIDER_PAGECOUNT=20")
    said(working)
    assert "20 items copied" in run("export", url, "-o", "items.jsonl")
    assert (tmp_path / "items.jsonl").read_bytes().count(b"\n") >= 20
    assert "finished" not in run("job", url)


def test_workers_are_shown_paused_resumed_and_stopped(tmp_path: Path, url: str, site: list[str], run: Run) -> None:
    delay = 1.0
    options = ("-s", f"DOWNLOAD_DELAY={delay}", "-s", "JOB_LEASE=1.5", *BOTH)
    workers = [worker(tmp_path, url, site, *options) for _ in range(2)]
    deadline = time.monotonic() + WITHIN
    while len(re.findall(r"/1024 +[1-9]", shown := run("job", url, "--workers", status=None))) < 2:
        assert time.monotonic() < deadline, shown  # of a job that is not there yet nothing is shown
    assert re.search(r"^ +all +", shown, re.M), shown
    assert "delay" in run("job", url, "--why")
    assert "waiting for" in run("top", url)
    run("job", url, "--pause")
    assert "paused: `trawl job JOB --resume` continues it" in run("job", url)
    before, at = -1, 0.0
    while time.monotonic() < at + 2.0 * delay:  # nothing has come for so long
        assert time.monotonic() < deadline
        count = (tmp_path / "pids").read_bytes().count(b"\n")
        if count > before:
            before, at = count, time.monotonic()
    run("job", url, "--resume")
    while (tmp_path / "pids").read_bytes().count(b"\n") == before:
        assert time.monotonic() < deadline
    run("job", url, "--stop")
    for each in workers:
        assert re.search(r"^ ended +stopped *$", said(each), re.M)
    assert "stopped: `trawl job JOB --resume` continues it" in run("job", url)
    assert "no process works on it" in run("job", url, "--workers")


def test_ctrl_c_ends_an_export_and_the_next_goes_on(tmp_path: Path, url: str, site: list[str], run: Run) -> None:
    exporting = start(tmp_path, "export", url, "-f", "-o", "items.jsonl")
    working = worker(tmp_path, url, site)
    until_items(tmp_path, 20)
    exporting.send_signal(signal.SIGINT)
    said(exporting, 130)
    said(working)
    run("export", url, "-o", "items.jsonl")
    assert_whole(tmp_path, site)


def test_one_process_exports_at_a_time(tmp_path: Path, url: str, site: list[str], run: Run) -> None:
    first = worker(tmp_path, url, site, "-s", "DOWNLOAD_DELAY=2", "-s", "JOB_LEASE=1.5")
    exporting = start(tmp_path, "export", url, "-f", "-o", "items.jsonl", "-s", "JOB_LEASE=1.5")
    until_items(tmp_path, 1)
    told = run("export", url, "-f", "-o", "other.jsonl", "-s", "JOB_LEASE=1.5", status=1)
    assert "another process is using it" in told
    first.kill()
    exporting.kill()
    first.communicate()
    exporting.communicate()


def test_a_worker_takes_its_spider_from_the_job_once_there_is_one(tmp_path: Path, url: str, site: list[str]) -> None:
    arguments = ("-a", f"sites={' '.join(site)}", *BOTH)
    waiting = start(tmp_path, "worker", url, *arguments)
    assert waiting.stderr is not None
    assert "waiting until a crawl creates it" in waiting.stderr.readline()
    leading = start(tmp_path, "crawl", "tree.py", "--job", url, "-o", "items.jsonl", *arguments)
    said(waiting)
    said(leading)
    assert_whole(tmp_path, site)
    assert {waiting.pid, leading.pid} == set(pids(tmp_path))
    (tmp_path / "other.py").write_text(SPIDER.replace("Tree", "Another"), encoding="utf-8")
    told = "several spiders are named 'tree'; give one of other.py:Another, tree.py:Tree with --spider"
    assert told in said(start(tmp_path, "worker", url), 2)
    (tmp_path / "empty").mkdir()
    assert "no spider has that name here: use --spider" in said(start(tmp_path / "empty", "worker", url), 2)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["export", "URL"], "there is no feed to export to: give -o FILE"),
        (["export", "URL", "-o", "items.jsonl"], "there is no job of this name"),
        (["export", "-o", "items.jsonl"], "there is no job to export: give its address"),
        (["export", "job", "-o", "items.jsonl"], "its items go to the feeds of `trawl crawl SPIDER --job job`"),
        (["worker", "--spider", "tree.py"], "there is no job to join: give its address"),
        (["worker", "job", "--spider", "tree.py"], "is in a directory"),
        (["job", "job", "--workers"], "there is no job in this directory"),
        (["job", "URL", "--pause"], "there is no job of this name"),
        (["top", "URL"], "there is no job of this name"),
    ],
)
def test_what_can_not_be_done_is_refused_in_one_line(url: str, run: Run, words: list[str], told: str) -> None:
    line = run(*[url if word == "URL" else word for word in words], status=2)
    assert told in line
    assert line.count("\n") == 1


def test_other_settings_or_code_are_refused_while_others_work(
    tmp_path: Path, url: str, site: list[str], run: Run
) -> None:
    first = worker(tmp_path, url, site, "-s", "DOWNLOAD_DELAY=2", "-s", "JOB_LEASE=1.5")
    deadline = time.monotonic() + WITHIN
    while not pids(tmp_path):
        assert time.monotonic() < deadline
    told = said(worker(tmp_path, url, site, "-s", "DOWNLOAD_DELAY=0.1", "-s", "JOB_LEASE=1.5"), 2)
    assert (
        "differs in DOWNLOAD_DELAY: start this one with equal values, or end that one; if that one was killed, wait"
        in told
    )
    with open(tmp_path / "tree.py", "a", encoding="utf-8") as file:
        file.write("\n# another version\n")
    slow = ("-s", "DOWNLOAD_DELAY=2", "-s", "JOB_LEASE=1.5")
    assert "the spider's code" in said(worker(tmp_path, url, site, *slow), 2)
    first.kill()
    first.communicate()
    time.sleep(1.6)
    again = worker(tmp_path, url, site, "-s", "DOWNLOAD_DELAY=0.01", "-s", "JOB_LEASE=1.5")
    said(again)
    run("export", url, "-o", "items.jsonl")
    assert_whole(tmp_path, site)
