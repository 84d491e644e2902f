"""What a simulated crawl can't be allowed to wait for: nothing at all, and a real thread.

On the virtual clock nothing comes from outside: when no task can run and no timer is set, nothing will ever happen.
Under :class:`trawl.testing.clock.VirtualClock` Trio then sleeps, as it does at no other time; the clock says so before,
and which turns of Trio's loop are to be looked at. Under Trio's own ``MockClock`` it spins, looking at the clock again
and again; so it is enough to look at it now and then. And while a thread of Trio works, the clock jumps to the next
timer, however far that is.
"""

from __future__ import annotations

import math
from types import TracebackType

import trio
import trio.testing

from trawl.testing.clock import VirtualClock
from trawl.testing.guard import Guard

__all__ = ["Stuck", "Watchdog"]

THREAD_TURNS, STUCK_TURNS = 16, 256
"""Of so many turns of Trio's loop, one is looked at; a millisecond has about fifty."""


class Stuck(RuntimeError):
    """A simulated crawl waits for something that will never happen."""


class Watchdog(trio.abc.Instrument):
    """Ends the crawl of a guard when it waits for what will not, or must not, happen; a context manager around it.

    Attributes:
        is_stuck: Whether every task waited and no timer was set.
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
        """Look at the turn that begins, and at no other: to hear of each is a fiftieth of the time of a page."""
        self._look_for_threads()
        trio.lowlevel.add_instrument(self)

    def before_io_wait(self, timeout: float) -> None:
        """Look at what everybody waits for."""
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
        """Say so if it was stuck.

        Raises:
            Stuck: It was.
        """
        if self.is_stuck:
            raise Stuck("the simulated crawl waits for what will never happen: every task waits, and no timer is set")
