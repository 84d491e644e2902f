"""Wakes the dispatcher: many changes of one instant are one wake."""

from __future__ import annotations

import math

import trio

__all__ = ["Pulse"]


class Pulse:
    """One task waits for the next change or the next instant; any other says that something changed.

    A beat that comes while nobody waits is kept for the next wait, so none is lost.
    """

    __slots__ = ("_event", "_until")

    def __init__(self) -> None:
        self._event = trio.Event()
        self._until = -math.inf  # nobody waits

    def beat(self) -> None:
        """Say that something changed."""
        self._event.set()

    def beat_before(self, at: float) -> None:
        """Say that something may go at the instant ``at``; who waits no longer than that anyway is not woken."""
        if at < self._until:
            self._event.set()

    async def wait(self, until: float) -> None:
        """Wait for a beat, at the longest until the instant ``until`` of the run clock (seconds). A checkpoint."""
        self._until = until
        try:
            if until == math.inf:
                await self._event.wait()
            else:
                with trio.CancelScope(deadline=until):
                    await self._event.wait()
        finally:
            self._until = -math.inf
        if self._event.is_set():
            self._event = trio.Event()
