"""The longest step of any task, in seconds of CPU: how long others wait for one that does not give way.

CPU and not wall time, and of this thread, held against a piece of work that is measured then and there: a machine that
is busy with other things makes both longer. What it lengthens at one moment it does not at each of several tries.
"""

from __future__ import annotations

import time

import trio
from lxml import etree

__all__ = ["TRIES", "Steps", "is_short"]

TRIES = 3
"""How often what takes too long is tried again."""

MOST = 50
"""Pieces of work that a step may take: it took hundreds to thousands."""

_PIECE = b"<r>" + b"<a b=''/>" * 10_000 + b"</r>"


def is_short(seconds: float) -> bool:
    """Whether a step took about as long as it should, as fast as this machine is now."""
    begun = time.thread_time()
    etree.fromstring(_PIECE)
    sum(number for number in range(100_000))
    return seconds < MOST * (time.thread_time() - begun)


class Steps(trio.abc.Instrument):
    """Watches a run from ``trio.lowlevel.add_instrument()`` on.

    Attributes:
        longest: Of the longest step so far, in seconds of CPU.
        count: Steps so far.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self.count = 0
        self._begun: float | None = None

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._begun = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._begun is not None:  # else it is the one that the instrument was added in
            self.longest = max(self.longest, time.thread_time() - self._begun)
            self.count += 1
