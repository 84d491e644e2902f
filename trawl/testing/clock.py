"""The clock of a simulation: it stands still while anything can run, and jumps to the next timer when nothing can.

Trio asks its clock how long to sleep when no task is runnable, and at no other time; that question is the jump.
:class:`trio.testing.MockClock` jumps a turn of Trio's loop later, after it has looked whether a task waits in
:func:`trio.testing.wait_all_tasks_blocked`; for ten thousand pages that is a fifth of the whole time. Here such a task
is woken when no timer is left, and where there is no such task either the loop is told to sleep, for so short a time
that :class:`trawl.testing.watchdog.Watchdog`, which the clock calls, hears of it: nothing will ever happen.

The clock wakes the exchanges of the simulated wire itself, one for each page: a cancel scope for each of their sleeps
would be a tenth of the whole time.

The order in which Trio runs its tasks, made a function of a seed.

Trio shuffles the tasks that become runnable together, so that no program comes to rely on an order. A simulation has to
give the same sends for the same seed, in a new process too. Trio has two private switches for that, which Hypothesis
uses through pytest-trio: whether a batch of tasks is sorted before it is shuffled, and the generator that shuffles it.
This is the one module that touches them; it puts both back.

Among themselves the tasks of requests run in the order in which they were granted: what goes to the wire at one instant
goes in the order of the choice, so that a test may assert it (F07, F12).

They belong to the process, not to one run of Trio: crawls that are simulated side by side in one program share them,
the first one's seed counts, and the last one to end puts them back.
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
    """Run tasks in an order that depends on ``seed`` alone, until the block ends. To be put around ``trio.run``.

    Raises:
        RuntimeError: This Trio does not have the switches any more.
    """
    held = _SeededScheduling(seed)
    try:
        yield
    finally:
        held.put_back()


@contextmanager
def seeded_scheduling_here(seed: int | str) -> Iterator[None]:
    """The same inside a running Trio program, from the next batch of tasks on.

    Where blocks overlap, the first one's seed counts, and the last one to end puts the switches back.

    Raises:
        RuntimeError: This Trio does not have the switches any more.
    """
    held = _shared.get()
    if held is None:
        held = _SeededScheduling(seed)
        _shared.set(held)
    held.blocks += 1
    try:
        yield
    finally:
        held.blocks -= 1
        if not held.blocks:
            _shared.set(None)
            held.put_back()


class _SeededScheduling:
    """The switches while they are set, and how they were."""

    def __init__(self, seed: int | str) -> None:
        self._module, self._generator = _switches()
        self._was_sorted = getattr(self._module, _SORTED)
        self._was = self._generator.getstate()
        self.blocks = 0
        setattr(self._module, _SORTED, True)
        self._generator.seed(f"trawl:{seed}")
        vars(self._generator)["shuffle"] = self._shuffle

    def _shuffle(self, batch: list[trio.lowlevel.Task]) -> None:
        """Shuffle a batch that is sorted by age and run from its end; the oldest of the requests' tasks runs first."""
        if len(batch) < 2:
            return
        requests = reversed([task for task in batch if task.name == _REQUEST])
        random.Random.shuffle(self._generator, batch)
        batch[:] = [next(requests) if task.name == _REQUEST else task for task in batch]

    def put_back(self) -> None:
        vars(self._generator).pop("shuffle", None)
        setattr(self._module, _SORTED, self._was_sorted)
        self._generator.setstate(self._was)


_shared: trio.lowlevel.RunVar[_SeededScheduling | None] = trio.lowlevel.RunVar("trawl_seeded_scheduling", None)


def _switches() -> tuple[object, random.Random]:
    """The module of Trio that has the switches, and its generator."""
    module = getattr(getattr(trio, "_core", None), "_run", None)
    generator = getattr(module, _GENERATOR, None)
    if not isinstance(getattr(module, _SORTED, None), bool) or not isinstance(generator, random.Random):
        raise RuntimeError(f"Trio {trio.__version__} can't be seeded: its private switches for tests are gone")
    return module, generator


NO_TIMER = 1e-6
"""Real seconds to sleep when no timer is set."""

JUMPS = 16
"""Of so many jumps, one is looked at: a real thread would see hours pass."""


class VirtualClock(trio.abc.Clock):
    """Begins at 0.0; hours pass in no time.

    Attributes:
        suspect: Called when no timer is set, and at some of the jumps, before the loop of Trio goes on.
    """

    __slots__ = ("_jumps", "_next", "_now", "_sleepers", "suspect")

    def __init__(self) -> None:
        self.suspect: Callable[[], None] | None = None
        self._now: float = 0.0
        self._jumps = 0
        self._sleepers: list[tuple[float, int, list[trio.lowlevel.Task]]] = []  # in turn; no task: it was cancelled
        self._next = count().__next__

    def start_clock(self) -> None:
        """Nothing runs that would have to be started."""

    def current_time(self) -> float:
        """The virtual instant, in seconds."""
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Jump to ``deadline``, or to who sleeps until earlier, if there is either; then no real seconds are left."""
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
    """Sleep until the instant ``at`` on whatever clock this runs. A checkpoint."""
    clock = trio.lowlevel.current_clock()
    if isinstance(clock, VirtualClock):
        await clock.sleep_until(at)
    else:
        await trio.sleep_until(at)
