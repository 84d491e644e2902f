"""The longest step of any task, in seconds of CPU: how long others wait for one that does not give way.

CPU and not wall time, and of this thread: a machine that is busy with other things makes no step longer.
"""

from __future__ import annotations

import time

import trio


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
