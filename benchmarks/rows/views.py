"""The cost of looking at a crawl of 10,000 hosts: panel, metrics, terminal, and the reports of a job's process.

A Trio instrument adds up the processor time of the steps of the view's own tasks, which other programs do not affect.
So the longest step is exact too, and includes no pass of the garbage collector of other tasks.
"""

from __future__ import annotations

import gc
import io
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import trio
from rich.console import Console

import trawl
from benchmarks.bench import Bench
from benchmarks.crawling import loaded, timed
from benchmarks.figures import Figure
from benchmarks.wires import NullTransport
from trawl.cli.view import panel_watcher
from trawl.engine import Crawl, Watcher
from trawl.engine.status import report_status
from trawl.panel import Panel, parse_address
from trawl.telemetry import MetricsServer

__all__ = ["views"]

HOSTS = 10_000
DELAY = 20.0
"""Seconds of delay of each host, so that most hosts wait and 500 pages per second are sent."""

SECONDS = 30.0
"""Seconds of a measurement. All scopes are read within this time."""

KEEPER = "trawl.engine.status.StatusKeeper.run"

READERS = """
import selectors, socket, sys, time
(port, count), (seconds, pause), path = map(int, sys.argv[1:3]), map(float, sys.argv[3:5]), sys.argv[5]
end = time.monotonic() + seconds
def open_one(number):
    one = socket.create_connection(("127.0.0.1", port))
    one.sendall(f"GET {path.replace('NUMBER', str(number))} HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n\\r\\n".encode())
    return one
while pause and time.monotonic() < end:
    with open_one(0) as one:
        while one.recv(65536):
            pass
    time.sleep(pause)
chosen = selectors.DefaultSelector()
for number in range(0 if pause else count):
    chosen.register(open_one(number), selectors.EVENT_READ)
while time.monotonic() < end:
    for key, _ in chosen.select(1.0):
        if not key.fileobj.recv(1 << 20):
            chosen.unregister(key.fileobj)
"""
"""A program that reads the stream of the panel ``count`` times, or requests the metrics again and again."""


class Many(trawl.Spider[Any]):
    """Crawls many hosts. Each page links to the next page of its host."""

    name = "many"
    hosts = HOSTS

    async def start(self) -> AsyncIterator[trawl.Request]:
        """Yield the first two pages of each host, of which one always waits."""
        for number in range(2):
            for host in range(self.hosts):
                yield trawl.Request(f"http://host-{host}.example/{number}")

    def parse(self, response: trawl.Response) -> Iterator[trawl.Request]:
        """Yield the page after the next one."""
        base, _, number = response.url.rpartition("/")
        yield trawl.Request(f"{base}/{int(number) + 2}")


class Share(trio.abc.Instrument):
    """Adds up the processor time of the tasks of a view.

    Attributes:
        seconds: Processor time of the tasks of the view and of the status.
        longest: Longest step of these tasks, in seconds.
    """

    def __init__(self) -> None:
        self.roots: set[trio.lowlevel.Task] = set()
        self._known: dict[trio.lowlevel.Task, bool] = {}
        self._from = 0
        self.seconds = self.longest = self._collecting = 0.0

    def _is_own(self, task: trio.lowlevel.Task) -> bool:
        known = self._known.get(task)
        if known is None:
            parent = task.parent_nursery
            above = parent is not None and self._is_own(parent.parent_task)
            known = self._known[task] = above or task in self.roots or KEEPER in task.name or "keep_status" in task.name
        return known

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        """Forget a task."""
        self._known.pop(task, None)

    def collected(self, phase: str, info: object) -> None:
        """Add the time of a pass of the garbage collector, which frees the objects of all tasks."""
        self._collecting += time.thread_time() * (1 if phase == "stop" else -1)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Start the clock."""
        self._from, self._collecting = time.thread_time_ns(), 0.0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Add a step of an own task."""
        seconds = (time.thread_time_ns() - self._from) / 1e9
        if self._from and self._is_own(task):
            self.seconds += seconds
            self.longest = max(self.longest, seconds - self._collecting)


class _Session:
    """The end of a job's session: receives the reports of a process."""

    def say(self, status: bytes) -> None:
        """Ignore a report."""


def measured(view: Watcher, hosts: int, seconds: float, readers: Sequence[str] = ()) -> Share:
    """Return what a view costs in a crawl of many hosts.

    Args:
        view: The view, as a watcher.
        hosts: Number of hosts.
        seconds: Seconds of the measurement, which starts when each host has had a send.
        readers: Arguments of the program of the readers.
    """
    share = Share()

    async def viewing(crawl: Crawl) -> None:
        share.roots.add(trio.lowlevel.current_task())
        await view(crawl)

    async def measuring(crawl: Crawl) -> None:
        crawl.status()
        while crawl.stats.count("response_count") < hosts:  # noqa: ASYNC110 - an event would cost each page
            await trio.sleep(0.1)
        with reading(seconds, readers):
            await trio.sleep(min(2.0, seconds))  # the readers connect
            gc.callbacks.append(share.collected)
            trio.lowlevel.add_instrument(share)
            await trio.sleep(seconds)
            trio.lowlevel.remove_instrument(share)
            gc.callbacks.remove(share.collected)
        crawl.cancel()

    settings = loaded(DOWNLOAD_DELAY=DELAY, THROTTLING_SCOPE_LIMIT=10 * hosts)
    timed(Many, settings, spider_args={"hosts": hosts}, transport=NullTransport(0.02), watchers=[viewing, measuring])
    return share


@contextmanager
def reading(seconds: float, readers: Sequence[str]) -> Iterator[None]:
    """Run the readers' program, if there are readers."""
    if not readers:
        yield
        return
    port, count, path, pause = readers
    words = [sys.executable, "-c", READERS, port, count, str(seconds + 4.0), pause, path]
    with subprocess.Popen(words) as process:
        try:
            yield
        finally:
            process.kill()


def views(bench: Bench) -> list[Figure]:
    """Return each view's share of a core, and its longest step."""
    hosts, seconds = (100, 2.0) if bench.is_quick else (HOSTS, SECONDS)
    found: list[Figure] = []

    def add(name: str, most: float, view: Watcher, readers: Sequence[str] = ()) -> None:
        share = measured(view, hosts, seconds, readers)
        found.append(Figure(name=name, value=share.seconds / seconds * 100, unit="%", most=most))
        found.append(Figure(name=f"{name}: longest step", value=share.longest * 1e3, unit="ms", most=10.0))

    for count, path in ((1, "/events"), (50, "/events"), (50, "/events?sort=queued&offset=NUMBER")):
        address = parse_address("0")
        panel = Panel(address)
        port = str(address.socket.getsockname()[1])
        other = ", each with another view" if "NUMBER" in path else ""
        name = f"panel, {count} reader{'s' if count > 1 else ''}{other}"
        add(name, 1.5 if count == 1 else 3.0, panel.watch, [port, str(count), path, "0"])
        panel.close()
    server = MetricsServer("0")
    add("metrics, a scrape each second", 1.5, server.watch, [str(server.port), "1", "/metrics", "1"])
    server.close()
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    add("terminal", 1.5, panel_watcher(console))
    add("reports of a job's process", 1.5, partial(report_status, cast("Any", _Session())))
    return found
