"""``trawl panel JOB`` and orders to a job that two processes share, in a real server, on the wire and in a browser."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.servers.chromium import open_tab
from tests.servers.rendering import wanted
from tests.servers.stores import running_store
from tests.servers.test_panel import MARKUP, Server, serving
from trawl.cli.job import ServerLink
from trawl.engine.steering import Add, Drop, Pause, Resume, SetLimits, View
from trawl.errors import UsageError
from trawl.frontier.redis.report import inspect_job
from trawl.panel import Panel, parse_address

pytestmark = pytest.mark.servers

PATIENCE = 120.0
"""Seconds to wait for processes, which may be slow."""


@pytest.fixture(autouse=True)
def replies_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trawl.cli.job.REPLY_WITHIN", PATIENCE)


SPIDER = """
import trawl
class Pages(trawl.Spider):
    name = {name!r}
    start_urls = [f"http://127.0.0.{{host}}:{port}/{{page}}" for host in range(2, 8) for page in range(1000)]
    def parse(self, response):
        yield {{"text": {name!r}}}
"""


def until(is_so: Callable[[], Any]) -> Any:
    """Wait for a condition, and return its value."""
    deadline = time.monotonic() + PATIENCE
    while not (found := is_so()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


@contextmanager
def job_of_two(folder: Path, server: Server) -> Iterator[tuple[str, Callable[[], None]]]:
    """Run two processes of a job in a real server. Gives its address, and a function that starts one more."""
    (folder / "pages.py").write_text(SPIDER.format(name=f"pages{MARKUP}", port=server.port), "utf-8")
    running: list[subprocess.Popen[bytes]] = []
    with running_store("valkey", folder) as store:
        url = store.url("job")

        def start() -> None:
            words = ["crawl", "pages.py", "-o", "items.jsonl", "--job", url]
            if running:
                words = ["worker", url, "--spider", "pages.py"]
            more = ["-s", "JOB_LEASE=10", "-s", "DOWNLOAD_DELAY_PER_SLOT=0.3", "-s", "RANDOMIZE_DOWNLOAD_DELAY=false"]
            with (folder / f"log-{len(running)}").open("wb") as log:
                command = [sys.executable, "-m", "trawl", *words, *more]
                running.append(subprocess.Popen(command, cwd=folder, stderr=log, stdin=subprocess.DEVNULL))

        try:
            start()
            until(lambda: b"new" in (folder / "log-0").read_bytes())
            start()
            until(lambda: _working(url) == 2)
            yield url, start
        finally:
            for process in running:
                process.kill()
                process.wait()


def _working(url: str) -> int:
    return sum(session.parts > 0 and session.lease_left > 0 for session in inspect_job(url).sessions)


def _is_quiet(server: Server, host: str = "") -> bool:
    """Return whether a host, or every host, got no request in the last two seconds."""
    return not any(at > time.monotonic() - 2.0 and its.startswith(host) for at, its in server.requested)


def test_orders_reach_all_processes_of_a_job_and_later_ones(tmp_path: Path) -> None:
    with serving() as server, job_of_two(tmp_path, server) as (url, start):
        link = ServerLink(url)
        look = until(lambda: (seen := link.look(View(sort="scope", is_descending=False))).total == 6 and seen)
        hosts = [f"127.0.0.{number}:{server.port}" for number in range(2, 8)]
        assert [row.scope for row in look.rows] == hosts
        assert look.status.queued > 100
        assert until(lambda: link.look(View(text=hosts[3])).rows)[0].scope == hosts[3]
        assert "delay" in until(lambda: "delay" in (words := link.why(hosts[0])[0]) and words)

        with pytest.raises(UsageError, match=r"^THROTTLING_SCOPES.*unknown key 'dealy'"):
            link.effect_of(SetLimits(hosts[0], {"dealy": 1}))
        assert "0.017/s after; its " in link.effect_of(SetLimits(hosts[0], {"delay": 60}))
        assert link.order(SetLimits(hosts[0], {"delay": 60})).startswith("2 processes will execute it")
        until(lambda: _is_quiet(server, "127.0.0.2"))

        # The start requests of the last host are stored last, and those of the dropped host before them.
        until(lambda: dict(inspect_job(url).scopes).get(hosts[-1], 0) > 200)
        before = inspect_job(url).pending
        link.order(Drop(hosts[1]))
        left = until(lambda: (pending := dict(inspect_job(url).scopes)).get(hosts[1], 0) < 3 and pending)
        dropped_at = time.monotonic()
        assert min(left.get(host, 0) for host in hosts[2:]) > 100 < before - sum(left.values())

        link.order(Pause())
        until(lambda: _is_quiet(server))
        start()  # it is paused as well, and knows the limits
        until(lambda: _working(url) == 3)
        link.order(Add([f"http://{hosts[1]}/added"]))
        resumed_at = time.monotonic()
        link.order(Resume())
        busy = {f"127.0.0.{number}" for number in range(3, 8)}
        until(lambda: {host for at, host in server.requested if at > resumed_at} >= busy)
        slow = sorted(at for at, host in server.requested if host == "127.0.0.2" and at > resumed_at)
        assert all(late - early > 50.0 for early, late in pairwise(slow))
        assert sum(host == "127.0.0.3" and at > dropped_at for at, host in server.requested) <= 3


def test_the_page_of_a_job_is_live_and_steers_all_processes(tmp_path: Path) -> None:
    wanted()
    with serving() as server, job_of_two(tmp_path, server) as (url, _):
        trio.run(_look_and_pause, server, url)


async def _look_and_pause(server: Server, url: str) -> None:
    address = parse_address("0")
    async with open_tab() as tab, trio.open_nursery() as nursery:
        nursery.start_soon(Panel(address).show_job, "job", ServerLink(url))
        await tab.open(address.url)
        await tab.until("status_ && status_.pages > 10 && document.querySelectorAll('#rows tr').length == 6")
        count = await tab.js("status_.pages")
        await tab.until(f"status_.pages > {count}")
        assert await tab.js("spider.textContent") == f"pages{MARKUP}"
        await tab.until("document.querySelectorAll('#items li').length > 3")
        await tab.js("pause.click()")
        await tab.until("ask.open && asktext.textContent.includes('will wait until the crawl is resumed')")
        await tab.js("document.querySelector('dialog button').click()")
        await tab.until("state.textContent.startsWith('paused')")
        await trio.to_thread.run_sync(until, partial(_is_quiet, server))
        assert tab.logs == []
        nursery.cancel_scope.cancel()
    address.socket.close()


def test_a_crawl_of_several_processes_has_one_panel(tmp_path: Path) -> None:
    with serving() as server:
        (tmp_path / "pages.py").write_text(SPIDER.format(name="pages", port=server.port), "utf-8")
        command = [sys.executable, "-m", "trawl", "crawl", "pages.py", "--processes", "2", "--panel", "0"]
        with (tmp_path / "log").open("wb") as log:
            crawl = subprocess.Popen(command, cwd=tmp_path, stderr=log, stdin=subprocess.DEVNULL)
        try:
            page = until(lambda: re.search(r"panel: (\S+)\n", (tmp_path / "log").read_text("utf-8")))[1]

            def event() -> Any:
                with urllib.request.urlopen(f"{page}events", timeout=PATIENCE) as stream:
                    return json.loads(stream.readline().removeprefix(b"data: "))

            status, table, *_ = until(lambda: (seen := event())[0]["pages"] > 5 and seen[1]["total"] == 6 and seen)
            assert (status["spider"], len(table["rows"])) == ("pages", 6)
        finally:
            crawl.terminate()
            try:
                crawl.wait(PATIENCE)
            finally:
                crawl.kill()
