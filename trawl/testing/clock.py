"""The clock of a simulation, and the order in which its tasks run.

The clock stands still while a task can run, and jumps to the next timer when none can. Trio calls
``deadline_to_sleep_time`` only when no task is runnable; that call is the jump. :class:`trio.testing.MockClock` jumps
one turn of Trio's loop later, after a check for :func:`trio.testing.wait_all_tasks_blocked`, which takes a fifth of the
time of a simulated crawl. Here such a task is woken when no timer is left. Without one, the loop sleeps for an instant,
so that :class:`trawl.testing.guard.GuardInstrument` notices that nothing will ever happen.

The clock wakes the exchanges of the simulated wire itself: a cancel scope for each would take a tenth of the time.

Trio shuffles tasks that become runnable together. A simulation has to give the same sends for the same seed, in a new
process too. Trio has two private switches for that, which Hypothesis uses through pytest-trio: sorting a batch of tasks
before the shuffle, and the generator that shuffles. Only this module changes them, and it restores both.

The tasks of requests run in the order in which they were granted, so that tests may assert the order of sends at one
instant. The switches belong to the process: crawls that are simulated side by side share them, the first one's seed
counts, and the last one to end restores them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import count

import trio

__all__ = ["VirtualClock", "seeded_scheduling", "seeded_scheduling_here", "sleep_until"]

_SORTED = "_ALLOW_DETERMINISTIC_SCHEDULING"
_GENERATOR = "_r"

_REQUEST = "trawl.engine.worker.Worker.run"
"""The name of a request's task."""


@contextmanager
def seeded_scheduling(seed: int | str) -> Iterator[None]:
    """Run tasks in an order that depends on ``seed`` alone, within the block. Put it around ``trio.run``.

    Raises:
        RuntimeError: This version of Trio does not have the switches.
    """
    held = _SchedulerState(seed)
    try:
        yield
    finally:
        held.put_back()


@contextmanager
def seeded_scheduling_here(seed: int | str) -> Iterator[None]:
    """Do the same inside a running Trio program, from the next batch of tasks on; blocks may overlap.

    Raises:
        RuntimeError: This version of Trio does not have the switches.
    """
    held = _shared.get()
    if held is None:
        held = _SchedulerState(seed)
        _shared.set(held)
    held.blocks += 1
    try:
        yield
    finally:
        held.blocks -= 1
        if not held.blocks:
            _shared.set(None)
            held.put_back()


class _SchedulerState:
    """The switches while they are set, and their former state."""

    def __init__(self, seed: int | str) -> None:
        self._module, self._generator = _switches()
        self._was_sorted = getattr(self._module, _SORTED)
        self._was = self._generator.getstate()
        self.blocks = 0
        setattr(self._module, _SORTED, True)
        self._generator.seed(f"trawl:{seed}")
        vars(self._generator)["shuffle"] = self._shuffle

    def _shuffle(self, batch: list[trio.lowlevel.Task]) -> None:
        """Shuffle a batch, which Trio runs from its end, with the requests' tasks in the order of their age."""
        if len(batch) < 2:
            return
        requests = reversed([task for task in batch if task.name == _REQUEST])
        random.Random.shuffle(self._generator, batch)
        batch[:] = [next(requests) if task.name == _REQUEST else task for task in batch]

    def put_back(self) -> None:
        vars(self._generator).pop("shuffle", None)
        setattr(self._module, _SORTED, self._was_sorted)
        self._generator.setstate(self._was)


_shared: trio.lowlevel.RunVar[_SchedulerState | None] = trio.lowlevel.RunVar("trawl_seeded_scheduling", None)


def _switches() -> tuple[object, random.Random]:
    """Return Trio's module with the switches, and its generator."""
    module = getattr(getattr(trio, "_core", None), "_run", None)
    generator = getattr(module, _GENERATOR, None)
    if not isinstance(getattr(module, _SORTED, None), bool) or not isinstance(generator, random.Random):
        raise RuntimeError(f"Trio {trio.__version__} has no private switches for tests any more: use an older one")
    return module, generator


START = 100_000.0
"""The first instant, in seconds: an instant that is missing somewhere, or 0.0, is then seen to be long ago."""

NO_TIMER = 1e-6  # real seconds to sleep when no timer is set
JUMPS = 16  # one of this many jumps is checked for a real thread, for which hours would pass


class VirtualClock(trio.abc.Clock):
    """A clock that starts at :data:`START`, and jumps to the next timer when nothing is left to do.

    Attributes:
        suspect: Called when no timer is set, and at some of the jumps.
    """

    __slots__ = ("_jumps", "_next", "_now", "_sleepers", "suspect")

    def __init__(self) -> None:
        self.suspect: Callable[[], None] | None = None
        self._now: float = START
        self._jumps = 0
        self._sleepers: list[tuple[float, int, list[trio.lowlevel.Task]]] = []  # in turn; no task: it was cancelled
        self._next = count().__next__

    def start_clock(self) -> None:
        """Do nothing: the clock needs no start."""

    def current_time(self) -> float:
        """The virtual instant, in seconds."""
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Jump to ``deadline``, or to the first sleeper if that is earlier. Returns the real seconds to sleep."""
        sleepers = self._sleepers
        at = min(deadline, sleepers[0][0]) if sleepers else deadline
        self._jumps += 1
        if self.suspect is not None and (at == math.inf or not self._jumps % JUMPS):
            self.suspect()
        if at == math.inf:
            return NO_TIMER
        self._now = max(self._now, at)
        while sleepers and sleepers[0][0] <= self._now:
            for task in heappop(sleepers)[2]:
                trio.lowlevel.reschedule(task)
        return 0.0

    async def sleep_until(self, at: float) -> None:
        """Sleep until the instant ``at``, as :func:`trio.sleep_until` does. A checkpoint."""
        if at <= self._now:
            await trio.lowlevel.checkpoint()
            return
        sleeping = [trio.lowlevel.current_task()]
        heappush(self._sleepers, (at, self._next(), sleeping))

        def wake(_: object) -> trio.lowlevel.Abort:
            sleeping.clear()
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(wake)


async def sleep_until(at: float) -> None:
    """Sleep until the instant ``at`` on the clock of this Trio program. A checkpoint."""
    clock = trio.lowlevel.current_clock()
    if isinstance(clock, VirtualClock):
        await clock.sleep_until(at)
    else:
        await trio.sleep_until(at)
