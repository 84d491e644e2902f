"""A history: a shared job on real stores, with random faults of workers, stores and connections.

Workers are ``trawl`` commands in separate processes, and each connects through its own proxy. One worker writes the
feed. It is killed and started like the others.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from tests.histories.chain import Chain
from tests.histories.checker import Found, check, read_keys, read_records
from tests.histories.networks import Networks
from tests.histories.proxy import Wire
from tests.histories.site import Site, serving
from tests.histories.world import LEASE
from tests.servers.stores import StoreProcess

__all__ = ["FAULTS", "History", "run_history"]

PATIENCE = 120.0
"""Maximum seconds for the job to finish after the last fault."""

LOST = 100_000
"""Maximum bytes that a store loses if it does not wait for its disk."""

JOB = "history"
FEEDS = 0
"""Number of the worker that writes the feed."""


@attrs.frozen(kw_only=True)
class History:
    """The plan of a history.

    Attributes:
        hosts: The addresses of the site.
        pages: Number of pages of each host.
        workers: Number of workers at the start, in addition to the worker that writes the feed.
        faults: The names of the faults, in order.
        pause: Average seconds between two faults.
        seed: The seed of the random numbers.
        networks: The workers' own networks; None if all use the network of this machine.
        settings: Further settings of the crawl, ``NAME=VALUE``.
        exports: Whether ``trawl export`` writes the feed, without sending requests. Otherwise, a crawl writes it.
    """

    hosts: Sequence[str]
    pages: int
    workers: int = 2
    faults: Sequence[str]
    pause: float
    seed: int
    networks: Networks | None = None
    settings: Sequence[str] = ()
    exports: bool = False


class Workers:
    """The processes of a history."""

    def __init__(self, history: History, folder: Path, site: Site, nursery: trio.Nursery, port: int) -> None:
        self.port = port
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.wires: dict[int, Wire] = {}
        self._folder = folder
        self._start = site.world.start
        self._networks = history.networks
        self._settings = history.settings
        self._exports = history.exports
        self._address = "127.0.0.1" if history.networks is None else history.networks.store
        self._nursery = nursery
        self._last = FEEDS

    async def start(self, number: int | None = None) -> None:
        """Start the worker with this number, or a new worker if ``number`` is None. A checkpoint."""
        if number is None:
            self._last += 1
            number = self._last
        wire = self.wires.get(number)
        if wire is None:
            wire = self.wires[number] = Wire(self.port, self._address)
            await self._nursery.start(wire.serve)
        self._run(number, wire)

    def _run(self, number: int, wire: Wire) -> None:
        spider = str(Path(__file__).with_name("spider.py"))
        job = f"redis://{self._address}:{wire.port}/{JOB}"
        if number == FEEDS and self._exports:
            words = ["export", job, "-f", "-s", f"JOB_LEASE={LEASE}"]
        else:
            words = ["crawl", spider, "--job", job, "-a", f"start={self._start}"]
        words += ["-o", "items.jsonl"] if number == FEEDS else []
        words += [word for setting in self._settings for word in ("-s", setting)]
        where = [] if self._networks is None else self._networks.command(number)
        with open(self._folder / f"log-{number}", "ab") as log:
            self.processes[number] = subprocess.Popen(
                [*where, sys.executable, "-m", "trawl", *words],
                cwd=self._folder,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
                stderr=log,
                stdout=log,
                stdin=subprocess.DEVNULL,
            )

    async def end(self, number: int, how: int) -> None:
        """Send a signal that ends a worker, and wait for its end. A checkpoint."""
        process = self.processes.pop(number)
        process.send_signal(how)
        await trio.to_thread.run_sync(process.wait)  # the site must continue, because its times are measured

    def kill_all(self) -> None:
        """Kill all running workers."""
        for process in self.processes.values():
            process.kill()
            process.wait()

    def said(self, number: int) -> str:
        """Return the last output of a worker."""
        return (self._folder / f"log-{number}").read_text(encoding="utf-8")[-3000:]

    def alive(self) -> list[int]:
        """Return the numbers of the running workers."""
        return [number for number, process in self.processes.items() if process.poll() is None]

    async def until_begun(self, site: Site) -> None:
        """Wait until the site has received some requests. A checkpoint."""
        with trio.fail_after(PATIENCE):
            while len(site.hits) < 10:  # noqa: ASYNC110 - processes tell nobody
                assert self.alive(), self.said(self._last)
                await trio.sleep(0.05)

    async def keep_up(self) -> None:
        """Restart workers that end with status 1, because the store was unreachable at their start.

        Raises:
            AssertionError: If a worker ends in another way.
        """
        while True:
            await trio.sleep(0.1)
            for number, process in list(self.processes.items()):
                if process.poll():
                    said = self.said(number)
                    assert process.returncode == 1, f"worker {number}: {process.returncode}: {said}"
                    assert re.search("is away|can't be reached|is a replica", said), said
                    await self.start(number)

    async def until_all_ended(self) -> None:
        """Wait until all workers have ended with status 0. A checkpoint."""
        while any(process.poll() != 0 for process in self.processes.values()):  # noqa: ASYNC110 - keep_up() starts more
            await trio.sleep(0.1)


@attrs.frozen(kw_only=True)
class Stage:
    """The objects that faults act on."""

    workers: Workers
    store: StoreProcess | Chain
    rng: random.Random
    networks: Networks | None


async def run_history(history: History, folder: Path, store: StoreProcess | Chain) -> tuple[Found, Counter[str]]:
    """Run a history. Returns the findings, and the number of faults by kind.

    Args:
        history: The plan.
        folder: The working directory of the workers.
        store: The store of the job.

    Raises:
        TooSlowError: If the job did not finish in time.
    """
    done: Counter[str] = Counter()
    async with serving(history.hosts, history.pages) as site, _workers(history, folder, site, store.port) as workers:
        stage = Stage(workers=workers, store=store, rng=random.Random(history.seed), networks=history.networks)
        if not history.exports:  # an export needs an existing job
            await workers.start(FEEDS)
        for _ in range(history.workers):
            await workers.start()
        await workers.until_begun(site)
        if history.exports:
            await workers.start(FEEDS)
        for fault in history.faults:
            await trio.sleep(stage.rng.expovariate(1.0 / history.pause))
            if len(workers.alive()) < 2:
                break
            await FAULTS[fault](stage)
            done[fault] += 1
        with trio.fail_after(PATIENCE):
            await workers.until_all_ended()
    records = read_records(folder / "items.jsonl")
    return check(site.world.urls, site.hits, records, read_keys(workers.port, JOB)), done


@asynccontextmanager
async def _workers(history: History, folder: Path, site: Site, port: int) -> AsyncIterator[Workers]:
    async with trio.open_nursery() as nursery:
        workers = Workers(history, folder, site, nursery, port)
        nursery.start_soon(workers.keep_up)
        try:
            yield workers
        finally:
            workers.kill_all()
        nursery.cancel_scope.cancel()


# The faults.


async def _kill(stage: Stage) -> None:
    """Kill a random worker, and start a new worker."""
    number = stage.rng.choice(stage.workers.alive())
    await stage.workers.end(number, signal.SIGKILL)
    await stage.workers.start(number)


async def _leave(stage: Stage) -> None:
    """Stop a worker, but not the last, which must finish the job."""
    others = [number for number in stage.workers.alive() if number != FEEDS]
    if len(others) > 1:
        await stage.workers.end(stage.rng.choice(others), signal.SIGTERM)


async def _join(stage: Stage) -> None:
    """Start one more worker."""
    await stage.workers.start()


async def _stop(stage: Stage) -> None:
    """Freeze a worker, for less or more than a lease."""
    process = stage.workers.processes[stage.rng.choice(stage.workers.alive())]
    process.send_signal(signal.SIGSTOP)
    await trio.sleep(stage.rng.uniform(0.3, 2.0) * LEASE)
    process.send_signal(signal.SIGCONT)


async def _cut(stage: Stage) -> None:
    """Refuse a worker's connections to the store, for less or more than a lease."""
    wire = stage.workers.wires[stage.rng.choice(stage.workers.alive())]
    wire.cut()
    await trio.sleep(stage.rng.uniform(0.1, 2.0) * LEASE)
    wire.mend()


async def _stall(stage: Stage) -> None:
    """Block all data between a worker and the store, without closing the connection."""
    wire = stage.workers.wires[stage.rng.choice(stage.workers.alive())]
    wire.stall()
    await trio.sleep(stage.rng.uniform(0.1, 2.0) * LEASE)
    wire.mend()


async def _slow(stage: Stage) -> None:
    """Add latency between a worker and the store for a while."""
    wire = stage.workers.wires[stage.rng.choice(stage.workers.alive())]
    wire.delay = stage.rng.uniform(0.01, 0.3)
    await trio.sleep(stage.rng.uniform(0.1, 1.0) * LEASE)
    wire.mend()


async def _pull(stage: Stage) -> None:
    """Disconnect a worker's network link to the store. Data in transit is lost, and neither end notices."""
    assert stage.networks is not None
    number = stage.rng.choice(stage.workers.alive())
    stage.networks.pull(number)
    await trio.sleep(stage.rng.uniform(0.1, 2.0) * LEASE)
    stage.networks.plug(number)


async def _drop(stage: Stage) -> None:
    """End all connections to the store, so that replies are lost."""
    for _ in range(5):
        for wire in stage.workers.wires.values():
            wire.drop()
        await trio.sleep(stage.rng.uniform(0.0, 0.1))


async def _kill_the_store(stage: Stage) -> None:
    """Kill the store, and restart it from its file."""
    await trio.to_thread.run_sync(stage.store.kill)
    await trio.sleep(stage.rng.uniform(0.0, 1.0))
    await trio.to_thread.run_sync(stage.store.start)


async def _cut_the_power(stage: Stage) -> None:
    """Cut the power of the store. Its file keeps a part of the data that it has not confirmed yet."""
    assert isinstance(stage.store, StoreProcess)
    for wire in stage.workers.wires.values():
        wire.mute()
    confirmed = stage.store.written
    await trio.sleep(stage.rng.uniform(0.0, 0.3))
    await trio.to_thread.run_sync(stage.store.cut_power, confirmed, stage.rng)
    for wire in stage.workers.wires.values():
        wire.drop()
        wire.mend()


async def _lose(stage: Stage) -> None:
    """Cut the power of a store that has confirmed data before writing it to disk."""
    assert isinstance(stage.store, StoreProcess)
    lost = min(stage.store.written // 2, LOST)
    await trio.to_thread.run_sync(stage.store.cut_power, stage.store.written - lost, stage.rng)


async def _fail_over(stage: Stage) -> None:
    """Kill the store while its replica lags behind. The replica replaces it."""
    assert isinstance(stage.store, Chain)
    workers = stage.workers
    await trio.to_thread.run_sync(stage.store.fail_over, stage.rng.uniform(0.0, 0.5))
    workers.port = stage.store.port
    for wire in workers.wires.values():
        wire.target = workers.port
        wire.drop()


FAULTS: Mapping[str, Callable[[Stage], Awaitable[None]]] = {
    "kill": _kill,
    "leave": _leave,
    "join": _join,
    "stop": _stop,
    "cut": _cut,
    "stall": _stall,
    "slow": _slow,
    "pull": _pull,
    "drop": _drop,
    "kill the store": _kill_the_store,
    "cut the power": _cut_the_power,
    "lose": _lose,
    "fail over": _fail_over,
}
"""The kinds of faults by name."""
