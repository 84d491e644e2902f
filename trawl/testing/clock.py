"""The clock of a simulation: it stands still while anything can run, and jumps to the next timer when nothing can.

Trio asks its clock how long to sleep when no task is runnable, and at no other time; that question is the jump.
:class:`trio.testing.MockClock` jumps a turn of Trio's loop later, after it has looked whether a task waits in
:func:`trio.testing.wait_all_tasks_blocked`; for ten thousand pages that is a fifth of the whole time. Here such a task
is woken when no timer is left, and where there is no such task either the loop is told to sleep, for so short a time
that :class:`trawl.testing.watchdog.Watchdog` hears of it: nothing will ever happen.
"""

from __future__ import annotations

import math

import trio

__all__ = ["VirtualClock"]

NO_TIMER = 1e-6
"""Real seconds to sleep when no timer is set."""


class VirtualClock(trio.abc.Clock):
    """Begins at 0.0; hours pass in no time."""

    __slots__ = ("_now",)

    def __init__(self) -> None:
        self._now: float = 0.0

    def start_clock(self) -> None:
        """Nothing runs that would have to be started."""

    def current_time(self) -> float:
        """The virtual instant, in seconds."""
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Jump to ``deadline``, the next timer, if there is one; then no real seconds are left until it."""
        if deadline == math.inf:
            return NO_TIMER
        self._now = max(self._now, deadline)
        return 0.0
