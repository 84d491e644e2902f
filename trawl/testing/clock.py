"""The clock of a simulation: it stands still while anything can run, and jumps to the next timer when nothing can.

Trio asks its clock how long to sleep when no task is runnable, and at no other time; that question is the jump.
:class:`trio.testing.MockClock` jumps a turn of Trio's loop later, after it has looked whether a task waits in
:func:`trio.testing.wait_all_tasks_blocked`; for ten thousand pages that is a fifth of the whole time. Here such a task
is woken when no timer is left, and where there is no such task either the loop is told to sleep, for so short a time
that :class:`trawl.testing.watchdog.Watchdog`, which the clock calls, hears of it: nothing will ever happen.

The clock wakes the exchanges of the simulated wire itself, one for each page: a cancel scope for each of their sleeps
would be a tenth of the whole time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

import trio

__all__ = ["VirtualClock", "sleep_until"]

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
