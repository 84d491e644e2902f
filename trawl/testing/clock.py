"""The clock of a simulation, and the order in which its tasks run.

The clock stops while a task can run, and jumps to the next timer when no task can run. Trio calls
``deadline_to_sleep_time`` only when no task is runnable, so this call makes the jump. :class:`trio.testing.MockClock`
jumps one loop iteration later, because it first looks for tasks in :func:`trio.testing.wait_all_tasks_blocked`. That
search takes a fifth of the time of a simulated crawl. With the clock of this module, such tasks wake only when no timer
is left. Then the loop sleeps for a microsecond, and :class:`trawl.testing.guard.GuardInstrument` detects that the crawl
is stuck.

The clock itself wakes the tasks that wait for a simulated response. A cancel scope for each exchange would take a tenth
of the time.

Trio shuffles tasks that become runnable together. But a simulation must produce the same sends for the same seed, even
in a new process. Trio has two private switches for this, which Hypothesis uses through pytest-trio: one sorts a batch
of tasks before the shuffle, and the other is the random generator of the shuffle. Only this module changes these
switches, and it restores both.

The tasks of requests run in the order in which the requests were granted, so that tests can assert the order of
simultaneous sends. The switches belong to the process, so simultaneous simulations share them. The seed of the first
simulation applies, and the last simulation to end restores the switches.
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
"""The name of the Trio tasks that run requests."""


@contextmanager
def seeded_scheduling(seed: int | str) -> Iterator[None]:
    """Run tasks in an order that depends only on ``seed``, for a ``trio.run`` inside the block.

    Raises:
        RuntimeError: If this version of Trio does not have the switches.
    """
    held = _SchedulerState(seed)
    try:
        yield
    finally:
        held.put_back()


@contextmanager
def seeded_scheduling_here(seed: int | str) -> Iterator[None]:
    """Run tasks in a seeded order inside a running Trio program, from the next batch of tasks on. Blocks may overlap.

    Raises:
        RuntimeError: If this version of Trio does not have the switches.
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
    """Sets the switches, and stores their previous state."""

    def __init__(self, seed: int | str) -> None:
        self._module, self._generator = _switches()
        self._was_sorted = getattr(self._module, _SORTED)
        self._was = self._generator.getstate()
        self.blocks = 0
        setattr(self._module, _SORTED, True)
        self._generator.seed(f"trawl:{seed}")
        vars(self._generator)["shuffle"] = self._shuffle

    def _shuffle(self, batch: list[trio.lowlevel.Task]) -> None:
        """Shuffle a batch, but run the tasks of requests in the order of their age. Trio runs a batch from its end."""
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
        raise RuntimeError(f"Trio {trio.__version__} has no private switches for tests: use an older version")
    return module, generator


START = 100_000.0
"""The time at which the clock starts, in seconds. It is large, so that a default of 0.0 is clearly in the past."""

NO_TIMER = 1e-6  # real seconds to sleep when no timer is set
JUMPS = 16  # look for real threads once in this many jumps


class VirtualClock(trio.abc.Clock):
    """A clock that starts at :data:`START`, and jumps to the next timer when no task can run.

    Attributes:
        suspect: Called when no timer is set, and at some of the jumps, to check for errors.
    """

    __slots__ = ("_jumps", "_next", "_now", "_sleepers", "suspect")

    def __init__(self) -> None:
        self.suspect: Callable[[], None] | None = None
        self._now: float = START
        self._jumps = 0
        # A heap of entries: a time, a number, and a list with a task. The list is empty if the task was cancelled.
        self._sleepers: list[tuple[float, int, list[trio.lowlevel.Task]]] = []
        self._next = count().__next__

    def start_clock(self) -> None:
        """Do nothing, because the clock needs no start."""

    def current_time(self) -> float:
        """Return the virtual time, in seconds."""
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Jump to ``deadline``, or to the time of the first sleeper if earlier. Returns the real seconds to sleep."""
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
        """Sleep until the time ``at``, like :func:`trio.sleep_until`. A checkpoint."""
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
    """Sleep until the time ``at`` on the clock of this Trio program. A checkpoint."""
    clock = trio.lowlevel.current_clock()
    if isinstance(clock, VirtualClock):
        await clock.sleep_until(at)
    else:
        await trio.sleep_until(at)
