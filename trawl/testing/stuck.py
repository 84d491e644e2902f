"""A simulated crawl that waits for ever is told from one that is slow.

On the virtual clock nothing comes from outside: when every task waits and no timer is set, nothing will ever happen.
Trio would then spin, looking at the clock again and again. So whoever counts turns of its loop without a step of any
task knows.
"""

from __future__ import annotations

import math
from types import TracebackType

import trio

__all__ = ["Stuck", "StuckWatch"]

IDLE_TURNS = 100
"""Turns of Trio's loop without a step of a task; a waiting thread or a signal would have shown by then."""


class Stuck(RuntimeError):
    """A simulated crawl waits for something that will never happen."""


class StuckWatch(trio.abc.Instrument):
    """Cancels ``scope`` when nothing can happen any more; a context manager around the crawl.

    Attributes:
        is_stuck: Whether it did.
    """

    def __init__(self, scope: trio.CancelScope) -> None:
        self.is_stuck = False
        self._scope = scope
        self._idle_turns = 0

    def __enter__(self) -> StuckWatch:
        trio.lowlevel.add_instrument(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        trio.lowlevel.remove_instrument(self)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Some task runs: it is not stuck."""
        self._idle_turns = 0

    def before_io_wait(self, timeout: float) -> None:
        """No task is left to run now."""
        self._idle_turns += 1
        if self._idle_turns < IDLE_TURNS:
            return
        self._idle_turns = 0
        if trio.lowlevel.current_statistics().seconds_to_next_deadline == math.inf:
            self.is_stuck = True
            self._scope.cancel()

    def check(self) -> None:
        """Say so if it was stuck.

        Raises:
            Stuck: It was.
        """
        if self.is_stuck:
            raise Stuck("the simulated crawl waits for what will never happen: every task waits, and no timer is set")
