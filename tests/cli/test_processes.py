"""``trawl crawl --processes``: several processes as one crawl, which signals, kills and errors leave whole."""

from __future__ import annotations

import math
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
from rich.console import Console

import trawl
from tests.cli.trees import PAGES, SPIDER, WITHIN, assert_whole, pids, site, until_gone, until_items
from trawl.cli import NO_PROCESS, main
from trawl.cli.worker import EndMessage, LeaderProcess, Messages, WorkerPool
from trawl.engine import Crawl
from trawl.http import Response, Times
from trawl.observe import CrawlStatus
from trawl.testing import SimulatedWeb, simulate
from trawl.throttling import ScopeReport, reports_together

__all__ = ["site"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tree.py").write_text(SPIDER, encoding="utf-8")
    return tmp_path


def crawl(folder: Path, site: list[str], *more: str, processes: int = 2) -> subprocess.Popen[str]:
    """Start a crawl by several processes."""
    words = ["crawl", "tree.py", "-a", f"sites={' '.join(site)}", "-a", f"processes={processes}"]
    words += ["--processes", str(processes), *more]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "trawl", *words],
        cwd=folder,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def until_workers(folder: Path) -> list[int]:
    """Return the processes that have crawled pages, when there are two."""
    items = 0
    while len(found := pids(folder)) < 2:
        until_items(folder, items := items + 10)
    return found


@pytest.mark.servers
def test_all_processes_crawl_and_their_summary_adds_up(folder: Path, site: list[str]) -> None:
    _, said = (process := crawl(folder, site, "-o", "items.jsonl")).communicate(timeout=WITHIN)
    assert process.returncode == 0, said
    assert_whole(folder, site)
    assert len(set(pids(folder)) - {process.pid}) == 2
    assert re.search(r"^ ended +finished *$", said, re.M), said
    assert re.search(rf"^ pages +{PAGES * len(site)} *$", said, re.M), said
    assert re.search(rf"^ items +{PAGES * len(site)} *$", said, re.M), said
    assert said.count("ended") == 1
    for host in site:
        assert re.search(rf"^ {re.escape(host.split('/')[2])} +{PAGES} ", said, re.M), said


@pytest.mark.servers
def test_ctrl_c_finishes_what_is_in_flight_and_the_job_goes_on(folder: Path, site: list[str]) -> None:
    process = crawl(folder, site, "-o", "items.jsonl", "--job", "job")
    workers = until_workers(folder)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=WITHIN)
    assert process.returncode == 130, said
    assert re.search(r"^ ended +shutdown *$", said, re.M), said
    for pid in workers:
        until_gone(pid)
    count = (folder / "items.jsonl").read_bytes().count(b"\n")
    assert count < PAGES * len(site)
    without = subprocess.run(
        [sys.executable, "-P", "-m", "trawl", "crawl", "tree.py", "--job", "job"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert without.returncode == 2
    assert "it was made with --processes: give --processes N again" in without.stderr
    _, said = (process := crawl(folder, site, "-o", "items.jsonl", "--job", "job")).communicate(timeout=WITHIN)
    assert process.returncode == 0, said
    assert_whole(folder, site)


@pytest.mark.servers
def test_a_second_signal_cancels_all(folder: Path, site: list[str]) -> None:
    process = crawl(folder, site, "-o", "items.jsonl", "-s", "DOWNLOAD_DELAY=3", "-s", "SHUTDOWN_TIMEOUT=60")
    until_items(folder, 2)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=WITHIN)
    assert process.returncode == 130, said
    for pid in pids(folder):
        until_gone(pid)


@pytest.mark.servers
def test_workers_that_are_killed_are_started_again(folder: Path, site: list[str]) -> None:
    process = crawl(folder, site, "-o", "items.jsonl")
    for pid in until_workers(folder):
        os.kill(pid, signal.SIGKILL)
    _, said = process.communicate(timeout=WITHIN)
    assert process.returncode == 0, said
    assert len(re.findall(r"process [12] has ended \(status -9\): restarting it", said)) == 2
    assert_whole(folder, site)


@pytest.mark.servers
def test_workers_and_server_end_with_a_command_that_is_killed(folder: Path, site: list[str]) -> None:
    process = crawl(folder, site, "-o", "items.jsonl", "--job", "job")
    workers = until_workers(folder)
    process.kill()
    process.communicate()
    for pid in workers:
        until_gone(pid)
    _, said = (process := crawl(folder, site, "-o", "items.jsonl", "--job", "job")).communicate(timeout=WITHIN)
    assert process.returncode == 0, said
    assert_whole(folder, site)


@pytest.mark.servers
@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["-s", "NO_SUCH=1"], (2,), "unknown setting NO_SUCH"),
        (["-s", 'EXTENSIONS={"no.such": 1}'], (1, 2), "no.such"),
        (["--job", "redis://127.0.0.1:1/gone"], (1,), "its server can't be reached"),
        (["tree.py:Tree"], (2,), "--processes is for one spider"),
        (["--processes", "0"], (2,), "--processes"),
    ],
)
def test_an_error_of_the_start_is_told_once(
    folder: Path, site: list[str], words: list[str], status: tuple[int, ...], told: str
) -> None:
    _, said = (process := crawl(folder, site, *words)).communicate(timeout=WITHIN)
    assert process.returncode in status, said
    assert len([line for line in said.splitlines() if told in line]) == 1, said


ENDS = """
    async def start(self):
        while not os.path.exists("ends") or os.path.getsize("ends") < 3:  # until the other one is given up
            await trio.sleep(0.02)
        async for request in super().start():
            yield request

if os.environ["LEADER"] != str(os.getpid()):
    try:
        os.mkdir("living")
    except FileExistsError:
        with open("ends", "a") as file:
            file.write(".")
        os.kill(os.getpid(), 9)
"""
"""All workers but the first are killed at their start."""


@pytest.mark.servers
@pytest.mark.parametrize(
    ("living", "status", "told"),
    [(True, 0, "the others continue without it"), (False, 1, "no process is left")],
)
def test_a_worker_that_never_starts_is_given_up_and_a_crawl_without_workers_ends(
    folder: Path, site: list[str], living: bool, status: int, told: str
) -> None:
    (folder / "tree.py").write_text(SPIDER + ENDS, encoding="utf-8")
    if not living:
        (folder / "living").mkdir()
    (folder / "sitecustomize.py").write_text("import os\nos.environ.setdefault('LEADER', str(os.getpid()))\n")
    words = ["crawl", "tree.py", "-a", f"sites={' '.join(site)}", "--processes", "2", "-o", "items.jsonl"]
    process = subprocess.run(
        [sys.executable, "-P", "-m", "trawl", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=2 * WITHIN,
        check=False,
    )
    assert process.returncode == status, process.stderr
    assert re.search(rf"process [12] ends again and again \(status -9\): {told}", process.stderr), process.stderr
    if living:
        assert_whole(folder, site)


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["crawl", "tree.py", "--processes", "2"], "processes"),
        (["crawl", "tree.py", "--processes", "2", "--job", "redis://localhost/x"], "redis"),
        (["worker", "redis://localhost/x"], "redis"),
        (["job", "redis://localhost/x"], "redis"),
    ],
)
def test_a_client_that_is_not_installed_is_named_with_its_extra(
    words: list[str],
    extra: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, "coredis", None)
    assert main(words) == 2
    assert f"coredis: pip install 'trawl-crawler[{extra}]'" in capsys.readouterr().err


def test_messages_are_put_together_from_any_pieces() -> None:
    ended = EndMessage("finished", [ScopeReport(scope="a", allowed=math.inf, limited={"delay": 2.0})])
    left, right = socket.socketpair()
    with left:
        leader = LeaderProcess(right.detach())
        leader.ended(ended.reason, ended.scopes)
        came = left.recv(1 << 16)
        assert left.recv(1) == b""
    for size in (1, 7, len(came)):
        messages = Messages()
        assert [one for at in range(0, len(came), size) for one in messages.feed(came[at : at + size])] == [ended]


def test_a_crawl_that_joins_its_job_again_counts_what_its_workers_did_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = WorkerPool(["worker"], 1, "redis://store.example/job", None, Console())
    told: list[int] = []

    async def run(self: WorkerPool, worker: Any, crawl: Crawl) -> None:
        worker.now = CrawlStatus(pages=worker.now.pages + 5)
        worker.ended = EndMessage("finished", [])
        told.append(self.status(crawl).pages - crawl.stats.count("response_count"))

    class Nothing(trawl.Spider):
        name = "nothing"
        start_urls = ("http://a.example/",)

        def parse(self, response: Response) -> None: ...

    monkeypatch.setattr(WorkerPool, "_run", run)
    web = SimulatedWeb()
    web.add_host("a.example")
    for _ in range(2):
        simulate(Nothing, web, {"WATCHERS": {pool.watch: 0}})
    assert told == [5, 5]


class Patient(trawl.Spider):
    """Has nothing to do for a day."""

    name = "patient"

    async def start(self) -> AsyncIterator[trawl.Request]:
        await trio.sleep(86_400.0)
        for url in self.start_urls:
            yield trawl.Request(url)


@pytest.mark.parametrize("status", [-11, 0])
@pytest.mark.parametrize(("explained", "runs"), [(0, 3), (20, 23)])
def test_ends_that_pages_explain_do_not_count_when_a_worker_is_given_up(
    monkeypatch: pytest.MonkeyPatch, explained: int, runs: int, status: int
) -> None:
    pool = WorkerPool(["worker"], 1, "redis://store.example/job", None, Console())
    begun: list[float] = []

    async def run(self: WorkerPool, worker: Any, crawl: Crawl) -> None:
        begun.append(trio.current_time())
        await trio.sleep(0.1)
        worker.status = status  # 0: of os._exit(0) in a callback

    async def deaths(self: WorkerPool) -> dict[str, bytes]:
        await trio.lowlevel.checkpoint()
        return {"deaths.00": b"%d" % min(len(begun), explained)} if explained else {}

    monkeypatch.setattr(WorkerPool, "_run", run)
    monkeypatch.setattr(WorkerPool, "_deaths", deaths)
    result = simulate(Patient, SimulatedWeb(), {"WATCHERS": {pool.watch: 0}})
    assert result.reason == NO_PROCESS
    assert len(begun) == runs
    assert begun[-1] - begun[0] < runs * 2.5


@pytest.mark.parametrize(
    ("ends", "reason"),
    [
        (["cancelled", "finished"], "cancelled"),  # the spider called engine.close_spider(spider)
        (["shutdown"], "shutdown"),
        (["stopped", "stopped"], NO_PROCESS),
        (["stopped", "finished"], "finished"),  # the leader may reach the store much later
    ],
)
def test_a_crawl_whose_workers_all_ended_with_status_0_ends(
    monkeypatch: pytest.MonkeyPatch, ends: list[str], reason: str
) -> None:
    pool = WorkerPool(["worker"], len(ends), "redis://store.example/job", None, Console())

    async def run(self: WorkerPool, worker: Any, crawl: Crawl) -> None:
        await trio.sleep(float(worker.number))
        worker.ended = EndMessage(ends[worker.number - 1], [])

    monkeypatch.setattr(WorkerPool, "_run", run)
    result = simulate(Patient, SimulatedWeb(), {"WATCHERS": {pool.watch: 0}})
    assert result.reason == reason


def test_a_worker_that_ends_once_an_hour_is_started_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = WorkerPool(["worker"], 1, "redis://store.example/job", None, Console())
    begun: list[float] = []

    async def run(self: WorkerPool, worker: Any, crawl: Crawl) -> None:
        begun.append(trio.current_time())
        await trio.sleep(3600.0)
        worker.status = 1

    async def deaths(self: WorkerPool) -> dict[str, bytes]:
        await trio.lowlevel.checkpoint()
        return {}

    monkeypatch.setattr(WorkerPool, "_run", run)
    monkeypatch.setattr(WorkerPool, "_deaths", deaths)
    simulate(Patient, SimulatedWeb(), {"WATCHERS": {pool.watch: 0}})
    assert len(begun) >= 24
    assert max(later - earlier for earlier, later in pairwise(begun)) < 3602.0


def test_a_scope_that_changed_hands_has_one_row() -> None:
    first = ScopeReport(
        scope="a", requests=10, sends=10, rate=2.0, allowed=4.0, limited={"delay": 1.0}, times=Times(fetching=1.0)
    )
    second = ScopeReport(
        scope="a", requests=30, sends=30, rate=3.0, allowed=math.inf, limited={"delay": 2.0}, times=Times(fetching=2.0)
    )
    start = ScopeReport(scope="a", requests=1, sends=1, times=Times(fetching=0.5))
    (one,) = reports_together([first, second, start])
    assert (one.requests, one.sends, one.limited) == (41, 41, {"delay": 3.0})
    assert one.rate == pytest.approx(40 / (5.0 + 10.0))
    assert one.allowed >= one.rate
    assert one.times.fetching == pytest.approx((10 + 60 + 0.5) / 41)
    assert reports_together([start]) == [start]
