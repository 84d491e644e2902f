"""Measures the longest step of any task, in seconds of CPU time, because other tasks wait during a step.

The CPU time of this thread is compared with a reference computation that is measured at the same time, because a busy
machine makes both slower. Several attempts exclude a temporary slowdown.
"""

from __future__ import annotations

import time

import trio
from lxml import etree

__all__ = ["TRIES", "Steps", "is_short"]

TRIES = 3
"""Number of attempts if a step takes too long."""

MOST = 50
"""Maximum duration of a step, as a multiple of the reference computation.

Faulty steps took hundreds to thousands of it.
"""

_PIECE = b"<r>" + b"<a b=''/>" * 10_000 + b"</r>"


def is_short(seconds: float) -> bool:
    """Return whether a step was short enough for the current speed of this machine."""
    begun = time.thread_time()
    etree.fromstring(_PIECE)
    sum(number for number in range(100_000))
    return seconds < MOST * (time.thread_time() - begun)


class Steps(trio.abc.Instrument):
    """Measures the steps of a run. Start it with ``trio.lowlevel.add_instrument()``.

    Attributes:
        longest: CPU seconds of the longest step so far.
        count: Number of steps so far.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self.count = 0
        self._begun: float | None = None

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._begun = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._begun is not None:  # otherwise this is the step in which the instrument was added
            self.longest = max(self.longest, time.thread_time() - self._begun)
            self.count += 1
