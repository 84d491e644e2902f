"""What a simulated crawl can't be allowed to wait for: nothing at all, and a real thread.

On the virtual clock nothing comes from outside: when no task can run and no timer is set, nothing will ever happen.
Under :class:`trawl.testing.clock.VirtualClock` Trio then sleeps, as it does at no other time. Under Trio's own
``MockClock`` it spins, looking at the clock again and again; so it is enough to look at it now and then. And while a
thread of Trio works, the clock jumps to the next timer, however far that is.
"""

from __future__ import annotations

import math
from types import TracebackType

import trio
import trio.testing

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

    def __enter__(self) -> Watchdog:
        trio.lowlevel.add_instrument(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        trio.lowlevel.remove_instrument(self)

    def before_io_wait(self, timeout: float) -> None:
        """Look at what everybody waits for."""
        self._turns += 1
        would_sleep = timeout > 0.0
        if self._turns % THREAD_TURNS and not would_sleep:
            return
        if trio.testing.active_thread_count() and self._guard.error is None:
            self._guard.refuse("a real thread")
        if self._turns % STUCK_TURNS and not would_sleep:
            return
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
