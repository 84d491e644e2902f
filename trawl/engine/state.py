"""What the parts of a running crawl share: how much is open, and whether it is ending."""

from __future__ import annotations

import trio

from trawl.engine.pulse import Pulse

__all__ = ["State"]


class State:
    """Counts of one run. Idle is counted, not polled: one up a request admitted, one down when its last output is in.

    Attributes:
        open: Admitted requests that have not ended, and one for ``start()`` while it is read.
        turns: Requests that were granted and whose task has not ended.
        page_turns: Those of them that are pages; the others, robots.txt and direct fetches, are not in ``open``.
        callbacks: Callbacks that run now.
        most_callbacks: At so many, no further page is sent.
        is_reading: ``start()`` has not come to its end, or receivers of ``spider_idle`` are asked.
        reason: Why the crawl is ending; None while it is not.
        pulse: Wakes the dispatcher.
    """

    __slots__ = ("_idle", "callbacks", "is_reading", "most_callbacks", "open", "page_turns", "pulse", "reason", "turns")

    def __init__(self, most_callbacks: int) -> None:
        self.most_callbacks: int = most_callbacks
        self.is_reading: bool = True
        self.open: int = 0
        self.turns: int = 0
        self.page_turns: int = 0
        self.callbacks: int = 0
        self.reason: str | None = None
        self.pulse: Pulse = Pulse()
        self._idle: trio.Event | None = None

    def opened(self, n: int) -> None:
        """``n`` requests were admitted."""
        self.open += n

    def ended(self) -> None:
        """A request has ended, its outputs are in."""
        self.open -= 1
        if self.open <= 1:
            self._nearly_idle()

    def _nearly_idle(self) -> None:
        if not self.open:
            self.pulse.beat()
        if self._idle is not None and self.is_idle:
            self._idle.set()
            self._idle = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is open but ``start()``."""
        return self.open <= self.is_reading

    async def until_idle(self) -> None:
        """Return when nothing is open but ``start()``. A checkpoint."""
        await trio.lowlevel.checkpoint()
        while not self.is_idle:
            self._idle = self._idle or trio.Event()
            await self._idle.wait()

    def turn_began(self, *, is_page: bool) -> None:
        """The task of a granted request is about to start."""
        self.turns += 1
        self.page_turns += is_page

    def turn_ended(self, *, is_page: bool) -> None:
        """The task of a granted request has ended."""
        self.turns -= 1
        self.page_turns -= is_page
        if not self.turns:
            self.pulse.beat()

    @property
    def queued(self) -> int:
        """Admitted requests whose turn has not come, or that wait for another one."""
        return max(0, self.open - self.is_reading - self.page_turns)

    def callback_began(self) -> None:
        """A callback runs."""
        self.callbacks += 1

    def callback_ended(self) -> None:
        """A callback has ended; if that makes room for a page, the dispatcher is told."""
        self.callbacks -= 1
        if self.callbacks == self.most_callbacks - 1:
            self.pulse.beat()

    @property
    def may_page(self) -> bool:
        """Whether a page may be sent: there is room for its callback."""
        return self.callbacks < self.most_callbacks

    def end(self, reason: str) -> None:
        """Begin to end; the first reason stays."""
        if self.reason is None:
            self.reason = reason
        self.pulse.beat()

    def goes_on(self) -> bool:
        """Whether something is open and may be sent: it is neither idle nor ending."""
        return self.open > 0 and self.reason is None

    @property
    def is_ending(self) -> bool:
        """Whether nothing new may be sent."""
        return self.reason is not None
