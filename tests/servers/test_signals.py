"""``trawl crawl`` as a process of its own, and the signals that end it."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest
import trio

from tests.servers.holding import Holding, serving

pytestmark = pytest.mark.servers

SPIDER = """
import trawl

class Many(trawl.Spider):
    name = "many"
    server = ""
    pages = 100_000

    async def start(self):
        for number in range(int(self.pages)):
            yield trawl.Request(f"{self.server}/{number}")

    def parse(self, response):
        yield {"url": response.url, "text": "one <of> many,\\n" * 40}
"""
SETTINGS = ["ROBOTSTXT_OBEY=false", "CONCURRENT_REQUESTS_PER_DOMAIN=4", "DOWNLOAD_DELAY_PER_SLOT=0"]
PATIENCE = 120.0
"""Seconds after which a test that hangs fails."""

AT_ONCE = 10.0
"""Seconds within which what ends at once has ended on a busy machine; all that it might wait for takes 30 or more."""


class Command:
    """The running command."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self.said = b""

    async def until_said(self, words: bytes) -> None:
        """Return when these words stand on standard error."""
        assert self._process.stderr is not None
        while words not in self.said:
            read = await self._process.stderr.receive_some()
            assert read, f"it ended, saying {self.said.decode()}"
            self.said += read

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def signal_child(self, number: int) -> None:
        """Send a signal to what it has started."""
        pid = self._process.pid
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split():
            os.kill(int(child), number)

    async def status(self) -> int:
        """Its exit status, when it has ended; no traceback was shown."""
        assert self._process.stderr is not None
        async for read in self._process.stderr:
            self.said += read
        assert b"Traceback" not in self.said, self.said.decode()
        return await self._process.wait()


@asynccontextmanager
async def crawling(
    folder: Path,
    server: Holding,
    feeds: Sequence[str] = ("out.jsonl",),
    *,
    delay: float = 0.0,
    options: Sequence[str] = (),
    before: Sequence[str] = (),
    prelude: str = "",
) -> AsyncIterator[Command]:
    """``trawl crawl`` of the server into ``feeds``, ``before`` it another command; killed if it still runs."""
    (folder / "many.py").write_text(prelude + SPIDER, encoding="utf-8")
    settings = [word for setting in [*SETTINGS, f"DOWNLOAD_DELAY={delay}"] for word in ("-s", setting)]
    outputs = [word for feed in feeds for word in ("-O", feed)]
    command = [sys.executable, "-m", "trawl", "crawl", "many.py", "-q", "-a", f"server={server.url}"]
    whole = [*before, *command, *options, *settings, *outputs]
    process = await trio.lowlevel.open_process(whole, cwd=folder, stderr=subprocess.PIPE)
    try:
        with trio.fail_after(PATIENCE):  # noqa: ASYNC100 - what is done inside checks
            yield Command(process)
    finally:
        if process.poll() is None:
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


def urls(feed: Path) -> list[str]:
    """The pages that a feed has records of; every line of it is a whole record."""
    text = feed.read_text(encoding="utf-8")
    assert text.endswith("\n")
    return [json.loads(line)["url"] for line in text.splitlines()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_first_signal_lets_what_is_in_flight_end(tmp_path: Path, number: signal.Signals) -> None:
    async with serving(at_once=3) as server, crawling(tmp_path, server) as command:
        await server.until_asked(3 + 4)
        command.signal(number)
        await command.until_said(b"sending nothing new, waiting for 4 in flight")
        server.release()
        assert await command.status() == 130
        assert sorted(urls(tmp_path / "out.jsonl")) == [f"{server.url}/{n}" for n in range(7)]
        assert len(server.asked) == 7


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
async def test_the_second_signal_ends_the_crawl_at_once(tmp_path: Path, first: signal.Signals) -> None:
    async with serving(at_once=3) as server, crawling(tmp_path, server) as command:
        await server.until_asked(3 + 4)
        command.signal(first)
        await command.until_said(b"send it again to stop at once")
        begun = trio.current_time()
        command.signal(signal.SIGINT)
        assert await command.status() == 130
        assert trio.current_time() - begun < AT_ONCE
        answered = {f"{server.url}{path}" for path in server.asked[:3]}  # connections race: which three is not said
        assert set(urls(tmp_path / "out.jsonl")) == answered


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_does_not_wait_for_a_delay(tmp_path: Path, number: signal.Signals) -> None:
    feed = tmp_path / "out.jsonl"
    async with serving() as server, crawling(tmp_path, server, delay=60.0) as command:
        await server.until_asked(1)
        while not feed.exists() or not feed.stat().st_size:  # noqa: ASYNC110 - another process's file tells no event
            await trio.sleep(0.01)
        begun = trio.current_time()
        command.signal(number)
        assert await command.status() == 130
        assert trio.current_time() - begun < AT_ONCE
        assert urls(feed) == [f"{server.url}/0"]
        assert len(server.asked) == 1


async def test_two_signals_during_a_delay_do_not_wait_for_what_hangs(tmp_path: Path) -> None:
    async with serving(at_once=0) as server, crawling(tmp_path, server, delay=60.0) as command:
        await server.until_asked(1)
        begun = trio.current_time()
        command.signal(signal.SIGTERM)
        await command.until_said(b"waiting for 1 in flight")
        command.signal(signal.SIGTERM)
        assert await command.status() == 130
        assert trio.current_time() - begun < PATIENCE / 2  # the delay is a minute, and what is in flight hangs


@pytest.mark.parametrize("at_once", [math.inf, 1], ids=["one signal", "two signals"])
async def test_p18_a_job_that_is_stopped_in_a_delay_of_a_minute_lacks_nothing(tmp_path: Path, at_once: float) -> None:
    job = ["--job", "job", "-a", "pages=12", "-o", "out.jsonl"]
    async with serving(at_once) as server:
        first, delay = (1, 60.0) if at_once > 1 else (2, 0.0)  # all wait for the delay, or the second one hangs
        async with crawling(tmp_path, server, (), delay=delay, options=job) as command:
            await server.until_asked(first)
            begun = trio.current_time()
            command.signal(signal.SIGTERM)
            if at_once == 1:
                await command.until_said(b"send it again to stop at once")
                command.signal(signal.SIGTERM)
            assert await command.status() == 130
            assert trio.current_time() - begun < PATIENCE / 2
        server.release()
        async with crawling(tmp_path, server, (), options=job) as command:
            assert await command.status() == 0
        assert sorted(urls(tmp_path / "out.jsonl")) == sorted(f"{server.url}/{number}" for number in range(12))


async def test_a_terminal_that_is_closed_drains_the_crawl(tmp_path: Path) -> None:
    async with serving(at_once=3) as server, crawling(tmp_path, server) as command:
        await server.until_asked(3 + 4)
        command.signal(signal.SIGHUP)
        await command.until_said(b"SIGHUP: sending nothing new, waiting for 4 in flight")
        command.signal(signal.SIGHUP)  # the kernel's and the shell's
        server.release()
        assert await command.status() == 130
        assert len(urls(tmp_path / "out.jsonl")) == 7


LOADS = """
import sys, time
print("loading", file=sys.stderr, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("early", [False, True], ids=["while it runs", "while its spider is loaded"])
async def test_the_first_process_of_a_container_heeds_sigterm(tmp_path: Path, early: bool) -> None:
    alone = ["unshare", "--pid", "--fork", "--kill-child"]
    try:
        await trio.run_process([*alone, "true"], capture_stderr=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no process may be the first of its namespace here")
    async with serving() as server, crawling(tmp_path, server, before=alone, prelude=LOADS * early) as command:
        if early:
            await command.until_said(b"loading")
        else:
            await server.until_asked(10)
        begun = trio.current_time()
        command.signal_child(signal.SIGTERM)
        assert await command.status() == 130
        assert trio.current_time() - begun < PATIENCE / 2  # loading takes ten minutes


IMPORTS = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path, target=None):
        if name == "trawl.cli.app":
            os.kill(os.getpid(), signal.SIGTERM)

sys.meta_path.insert(0, Finder())
from trawl.cli import main
sys.exit(main(["version"]))
"""


def test_sigterm_ends_the_command_while_it_is_imported() -> None:
    ended = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")


async def test_a_kill_leaves_whole_records(tmp_path: Path) -> None:
    """C7: each feed is a whole file of its format, whatever instant it comes at."""
    feeds = ["out.jsonl", "out.json", "out.csv", "out.xml"]
    async with serving() as server, crawling(tmp_path, server, feeds) as command:
        await server.until_asked(300)
        command.signal(signal.SIGKILL)
        assert await command.status() == -signal.SIGKILL
    counts = {
        "out.jsonl": len(urls(tmp_path / "out.jsonl")),
        "out.json": len(json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))),
        "out.xml": len(ElementTree.fromstring((tmp_path / "out.xml").read_text(encoding="utf-8"))),
    }
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        records = list(csv.DictReader(file))
    assert {record["text"] for record in records} == {"one <of> many,\n" * 40}
    counts["out.csv"] = len(records)
    assert min(counts.values()) > 100
