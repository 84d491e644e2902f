"""What a simulated crawl can't be allowed to wait for: nothing at all, and a real thread.

On the virtual clock nothing comes from outside: when every task waits and no timer is set, nothing will ever happen.
Trio would then spin, looking at the clock again and again. So whoever counts turns of its loop without a step of any
task knows. And while a thread of Trio works, the clock jumps to the next timer, however far that is.
"""

from __future__ import annotations

import math
from types import TracebackType

import trio
import trio.testing

from trawl.testing.guard import Guard

__all__ = ["Stuck", "Watchdog"]

IDLE_TURNS = 100
"""Turns of Trio's loop without a step of a task; a signal would have shown by then."""


class Stuck(RuntimeError):
    """A simulated crawl waits for something that will never happen."""


class Watchdog(trio.abc.Instrument):
    """Ends the crawl of a guard when it waits for what will not, or must not, happen; a context manager around it.

    Attributes:
        is_stuck: Whether every task waited and no timer was set.
    """

    def __init__(self, guard: Guard) -> None:
        self.is_stuck = False
        self._guard = guard
        self._idle_turns = 0

    def __enter__(self) -> Watchdog:
        trio.lowlevel.add_instrument(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        trio.lowlevel.remove_instrument(self)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Note that some task runs: the crawl is not stuck."""
        self._idle_turns = 0

    def before_io_wait(self, timeout: float) -> None:
        """Look at what everybody waits for: no task is left to run now."""
        if trio.testing.active_thread_count() and self._guard.error is None:
            self._guard.refuse("a real thread")
            self._guard.scope.cancel()
        self._idle_turns += 1
        if self._idle_turns < IDLE_TURNS:
            return
        self._idle_turns = 0
        if trio.lowlevel.current_statistics().seconds_to_next_deadline == math.inf:
            self.is_stuck = True
            self._guard.scope.cancel()

    def check(self) -> None:
        """Say so if it was stuck.

        Raises:
            Stuck: It was.
        """
        if self.is_stuck:
            raise Stuck("the simulated crawl waits for what will never happen: every task waits, and no timer is set")
