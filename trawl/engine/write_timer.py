"""The times at which a job stores its knowledge of hosts. Only :mod:`trawl.engine.job` imports this module.

A transaction stores the state once it is due. If no transaction comes by then, the job makes one.
"""

from __future__ import annotations

import math

import trio

__all__ = ["INTERVAL", "LONGEST_QUIET", "WriteTimer"]

INTERVAL = 2.0
"""Minimum seconds between two writes of the knowledge of hosts."""

LONGEST_QUIET = 60.0
"""Maximum seconds between two writes. After a kill, scopes that may have sent in that time wait as if they had."""

_BYTES_A_SECOND = 500_000.0  # average rate of writes if the state is large


class WriteTimer:
    """Decides when a state is stored: some time after the last one, less often while nothing changes."""

    def __init__(self) -> None:
        self._stored_at = 0.0
        self._due_at = 0.0
        self._next_at = math.inf
        self._quiet = 0.0
        self._is_quiet = False
        self._wanted = trio.Event()
        self._alarm = trio.CancelScope()

    def is_due(self, now: float) -> bool:
        """Return True if a transaction at ``now`` should store the state."""
        return now >= self._due_at

    def want(self) -> None:
        """Request a transaction when the state is due, because something has changed."""
        self._wanted.set()

    def hurry(self, size_bytes: int) -> None:
        """Store the state as soon as its size allows."""
        if self._next_at < math.inf:
            self._due_at = min(self._due_at, self._stored_at + size_bytes / _BYTES_A_SECOND)

    def stored(self, now: float, size_bytes: int) -> float:
        """Record that the state is stored. Returns the seconds until the next time if nothing else is written."""
        interval = max(INTERVAL, size_bytes / _BYTES_A_SECOND)
        self._quiet = min(2.0 * self._quiet, max(interval, LONGEST_QUIET)) if self._is_quiet else interval
        self._is_quiet = False
        self._stored_at = now
        self._due_at = now + interval
        self._next_at = self._alarm.deadline = now + self._quiet
        return self._quiet

    def stop(self) -> None:
        """Store nothing any more."""
        self._due_at = self._next_at = math.inf

    async def until_due(self) -> None:
        """Return when a transaction must be made for the state. A checkpoint."""
        while True:
            # stored() moves this deadline whenever a transaction has stored the state.
            with trio.CancelScope(deadline=self._next_at) as self._alarm:
                await self._wanted.wait()
                await trio.sleep_until(self._due_at)
            was_wanted, self._wanted = self._wanted.is_set(), trio.Event()
            # Another transaction may have stored the state since and moved both times.
            if trio.current_time() >= (self._due_at if was_wanted else self._next_at):
                self._is_quiet = not was_wanted
                return
