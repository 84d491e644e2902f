"""Ends a simulated crawl that waits for nothing, or for a real thread.

On the virtual clock nothing comes from outside: when no task can run and no timer is set, nothing will ever happen.
With :class:`trawl.testing.clock.VirtualClock`, Trio sleeps only then; the clock announces the turns of Trio's loop to
check. With Trio's ``MockClock`` the loop spins, so a check now and then is enough. While a thread of Trio works, the
clock would jump to the next timer, however far that is.
"""

from __future__ import annotations

import math
from types import TracebackType

import trio
import trio.testing

from trawl.testing.clock import VirtualClock
from trawl.testing.guard import Guard

__all__ = ["Stuck", "Watchdog"]

THREAD_TURNS, STUCK_TURNS = 16, 256  # one of this many turns of Trio's loop (50 a millisecond) is checked


class Stuck(RuntimeError):
    """A simulated crawl waits for something that will never happen."""


class Watchdog(trio.abc.Instrument):
    """A context manager around a simulated crawl; ends it through its guard.

    Attributes:
        is_stuck: Every task waited and no timer was set.
    """

    def __init__(self, guard: Guard) -> None:
        self.is_stuck: bool = False
        self._guard = guard
        self._turns = 0
        self._clock: VirtualClock | None = None

    def __enter__(self) -> Watchdog:
        clock = trio.lowlevel.current_clock()
        if isinstance(clock, VirtualClock):
            self._clock = clock
            clock.suspect = self._look
        else:
            trio.lowlevel.add_instrument(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._clock is None:
            trio.lowlevel.remove_instrument(self)
        else:
            self._clock.suspect = None

    def _look(self) -> None:
        """Check this turn only: an instrument in every turn would take 2 % of the time of a page."""
        self._look_for_threads()
        trio.lowlevel.add_instrument(self)

    def before_io_wait(self, timeout: float) -> None:
        """Check the state of all tasks."""
        if self._clock is not None:
            trio.lowlevel.remove_instrument(self)
            if timeout > 0.0:
                self._look_whether_stuck()
            return
        self._turns += 1
        if self._turns % THREAD_TURNS:
            return
        self._look_for_threads()
        if not self._turns % STUCK_TURNS:
            self._look_whether_stuck()

    def _look_for_threads(self) -> None:
        if trio.testing.active_thread_count() and self._guard.error is None:
            self._guard.refuse("a real thread")

    def _look_whether_stuck(self) -> None:
        now = trio.lowlevel.current_statistics()
        if not now.tasks_runnable and now.seconds_to_next_deadline == math.inf:
            self.is_stuck = True
            self._guard.scope.cancel()

    def check(self) -> None:
        """Raise an error if the crawl was stuck.

        Raises:
            Stuck: It was.
        """
        if self.is_stuck:
            raise Stuck("the simulated crawl can't go on: every task waits, and no timer is set")
