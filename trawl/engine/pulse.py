"""Wakes the dispatcher: many changes of one instant are one wake."""

from __future__ import annotations

import math

import trio

__all__ = ["Pulse"]


class Pulse:
    """One task waits for the next change or the next instant; any other says that something changed.

    A beat that comes while nobody waits is kept for the next wait, so none is lost.
    """

    __slots__ = ("_event", "_waiting")

    def __init__(self) -> None:
        self._event = trio.Event()
        self._waiting: trio.CancelScope | None = None

    def beat(self) -> None:
        """Say that something changed."""
        self._event.set()

    def beat_before(self, at: float) -> None:
        """Say that something may go at the instant ``at``: who waits now wakes then, and not before."""
        waiting = self._waiting
        if waiting is None:
            self._event.set()  # nobody waits: the next one to wait looks first
        elif at < waiting.deadline:
            waiting.deadline = at

    async def wait(self, until: float, alarm: trio.CancelScope) -> None:
        """Wait for a beat, at the longest until the instant ``until`` of the run clock (seconds). A checkpoint.

        Args:
            until: When ``alarm`` is cancelled; no later than that, and only while this waits.
            alarm: A scope around the caller. One serves many waits: moving a deadline costs less than entering a scope,
                and setting one costs more than looking.
        """
        self._waiting = alarm
        if alarm.deadline != until:
            alarm.deadline = until
        try:
            await self._event.wait()
        finally:
            self._waiting = None
            if alarm.deadline != math.inf and not alarm.cancel_called:
                alarm.deadline = math.inf
            if self._event.is_set():
                self._event = trio.Event()
