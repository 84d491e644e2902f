"""Wakes the dispatcher: many changes of one instant are one wake."""

from __future__ import annotations

import trio

__all__ = ["Pulse"]


class Pulse:
    """One task waits for the next change or the next instant; any other says that something changed.

    A beat that comes while nobody waits is kept for the next wait, so none is lost.
    """

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = trio.Event()

    def beat(self) -> None:
        """Say that something changed."""
        self._event.set()

    async def wait(self, until: float) -> None:
        """Wait for a beat, at the longest until the instant ``until`` of the run clock (seconds). A checkpoint."""
        with trio.CancelScope(deadline=until):
            await self._event.wait()
        if self._event.is_set():
            self._event = trio.Event()
