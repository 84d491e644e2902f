"""Chaos: a crawl of several processes with two random faults, restarted like a service until its job has finished.

The faults are in callbacks (:mod:`tests.soak.chaos_spider`) or in the parts of a crawl: the command, a worker, the
server, the shell that guards it, the network. The checker of the histories judges the site's log and the feed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import attrs
import trio

from tests.histories.checker import Found, check, read_records
from tests.histories.proxy import Wire
from tests.histories.site import Site, serving
from tests.histories.world import LEASE, World
from tests.servers.stores import StoreProcess
from tests.soak.chaos_spider import CALLBACKS, MEMORY

__all__ = ["FAULTS", "Draw", "draw", "run_chaos"]

PATIENCE = 300.0
"""Maximum seconds for a job, on a busy machine."""

MOST_STARTS = 20
"""Maximum number of starts of the command."""

BASE_MEMORY = 150
"""MiB of a process without eaten memory."""


@attrs.frozen
class Draw:
    """Two faults.

    Attributes:
        faults: Their names.
        seed: The seed of their times and pages.
        is_remote: Whether the job is in a server of the user, behind a relay.
    """

    faults: Sequence[str]
    seed: int
    is_remote: bool


def draw(seed: int) -> Draw:
    """Draw two faults that can happen in the same crawl."""
    rng = random.Random(seed)
    while True:
        faults = rng.sample([*CALLBACKS, *FAULTS], 2)
        is_remote = "network" in faults or rng.random() < 0.3
        if not (is_remote and "guard" in faults):
            return Draw(faults, seed, is_remote)


class Command:
    """The command ``trawl crawl --processes``, started again whenever it ends before its job has finished.

    Attributes:
        relay: The relay to the server; None if the command starts the server.
        store: The server; None if the command starts it.
    """

    def __init__(self, folder: Path, job: str, faults: Mapping[str, str], start: str) -> None:
        self.relay: Wire | None = None
        self.store: StoreProcess | None = None
        self._folder = folder
        self._words = ["crawl", str(Path(__file__).with_name("chaos_spider.py")), "--job", job, "--processes", "3"]
        self._words += ["-o", "items.jsonl", "-a", f"start={start}", "-a", f"faults={json.dumps(faults)}"]
        self._words += ["-s", f"MEMUSAGE_LIMIT_MB={BASE_MEMORY + (MEMORY >> 20)}"]
        self._words += ["-s", "MEMUSAGE_CHECK_INTERVAL_SECONDS=0.5"]
        self._process: subprocess.Popen[bytes] | None = None
        self._is_killed = False

    async def run(self) -> None:
        """Run the command until it ends with status 0. A checkpoint.

        Raises:
            AssertionError: If it ends with another status, and was not killed by a fault.
        """
        for _ in range(MOST_STARTS):
            self._is_killed = False
            self._process = self._started()
            # The site must continue, because its times are measured.
            status = await trio.to_thread.run_sync(self._process.wait, abandon_on_cancel=True)
            if status == 0:
                return
            assert self._is_killed, f"status {status}: {self.log[-5000:]}"
        raise AssertionError(f"no end after {MOST_STARTS} starts: {self.log[-5000:]}")

    def _started(self) -> subprocess.Popen[bytes]:
        with open(self._folder / "log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "trawl", *self._words],
                cwd=self._folder,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def log(self) -> str:
        """What all starts have logged."""
        return (self._folder / "log").read_text(encoding="utf-8", errors="replace")

    def end(self) -> None:
        """Kill the command and its children."""
        for pid, _ in [*self.children(), *([(self._process.pid, "")] if self._process is not None else [])]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def kill(self) -> None:
        """Kill the command, and nothing else."""
        assert self._process is not None
        self._is_killed = True
        self._process.kill()

    def children(self, parent: int | None = None) -> Iterator[tuple[int, str]]:
        """Yield the process ids and command lines of the children and grandchildren of the command."""
        if self._process is None:
            return
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, IndexError):
                above = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                if above == (parent or self._process.pid):
                    yield int(path.name), (path / "cmdline").read_text().replace("\0", " ")
                    if parent is None:
                        yield from self.children(int(path.name))

    def kill_child(self, words: str, rng: random.Random) -> None:
        """Kill a child with these words in its command line, if there is one."""
        found = [pid for pid, line in self.children() if line.startswith(words) or f" -m trawl {words} " in line]
        if found:
            os.kill(rng.choice(sorted(found)), signal.SIGKILL)


async def _guard(command: Command, rng: random.Random) -> None:
    command.kill_child("/bin/sh", rng)


async def _server(command: Command, rng: random.Random) -> None:
    if command.store is None:
        server = next((line.partition(" ")[0] for _, line in command.children() if "-server " in line[:300]), None)
        if server is not None and not server.endswith("sh"):
            command.kill_child(server, rng)
        return
    await trio.to_thread.run_sync(command.store.kill)
    await trio.sleep(rng.uniform(0.0, LEASE))
    await trio.to_thread.run_sync(command.store.start)


async def _leader(command: Command, rng: random.Random) -> None:
    command.kill()


async def _worker(command: Command, rng: random.Random) -> None:
    command.kill_child("worker", rng)


async def _network(command: Command, rng: random.Random) -> None:
    assert command.relay is not None
    rng.choice([command.relay.cut, command.relay.stall, command.relay.mute])()
    await trio.sleep(rng.uniform(0.2, 1.5) * LEASE)
    command.relay.drop()
    command.relay.mend()


FAULTS: Mapping[str, Callable[[Command, random.Random], Awaitable[None]]] = {
    "guard": _guard,
    "server": _server,
    "leader": _leader,
    "worker": _worker,
    "network": _network,
}
"""The faults of the parts of a crawl, by name."""


def leaves(world: World) -> list[str]:
    """Return the pages without links, so that a page that fails hides no other page."""
    half = range(len(world.hosts) // 2, len(world.hosts))
    return [
        world.url(host, f"/{page}")
        for host in half
        for page in range(world.pages // 2, world.pages)
        if not [link for link in world.links(host, f"/{page}") if "/r/" in link]
    ]


async def run_chaos(chosen: Draw, hosts: Sequence[str], pages: int, folder: Path, store: StoreProcess | None) -> Found:
    """Run a job with two faults to its end. Returns the findings. A page that must fail counts as found if it failed.

    Args:
        chosen: The faults.
        hosts: The addresses of the site.
        pages: Number of pages of each host.
        folder: The working directory.
        store: The server of a remote job; None if the command starts its own server.

    Raises:
        AssertionError: If the command ends with an error, or other pages have failed.
        TooSlowError: If the job did not finish in time.
    """
    rng = random.Random(chosen.seed)
    async with serving(hosts, pages) as site, trio.open_nursery() as nursery:
        urls = rng.sample(leaves(site.world), len(CALLBACKS))
        faults = {url: name for url, name in zip(urls, CALLBACKS, strict=True) if name in chosen.faults}
        job = str(folder / "job")
        relay = None
        if store is not None:
            relay = Wire(store.port)
            await nursery.start(relay.serve)
            job = f"redis://127.0.0.1:{relay.port}/chaos"
        command = Command(folder, job, faults, site.world.start)
        command.relay, command.store = relay, store
        try:
            with trio.fail_after(PATIENCE):
                async with trio.open_nursery() as running:
                    for name in chosen.faults:
                        if name in FAULTS:
                            running.start_soon(_strike, name, command, site, rng)
                    await command.run()
        finally:
            command.end()
        shown = await trio.to_thread.run_sync(_shown, job)
        nursery.cancel_scope.cancel()
    fatal = {url for url, name in faults.items() if name in ("kills", "exits", "holds")}
    assert "finished" in shown["state"], (shown, command.log[-5000:])
    assert int(shown["failed"].split()[0]) == len(fatal), (shown, command.log[-5000:])
    return check(site.world.urls - fatal, site.hits, read_records(folder / "items.jsonl"), {})


async def _strike(name: str, command: Command, site: Site, rng: random.Random) -> None:
    """Let a fault happen some time after the first requests."""
    while len(site.hits) < 10:  # noqa: ASYNC110 - the processes report nothing to this test
        await trio.sleep(0.05)
    await trio.sleep(rng.uniform(0.0, 3.0))
    await FAULTS[name](command, rng)


def _shown(job: str) -> dict[str, str]:
    """Return what ``trawl job`` prints, by label."""
    words = [sys.executable, "-m", "trawl", "job", job]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    return {label: text for line in lines if line[:1] != " " for label, _, text in [line.partition(" ")]}
