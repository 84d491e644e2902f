"""The state that the objects of a running crawl share: how much is open, if it is ending, what wakes the dispatcher."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import trio

from trawl.http import Outcome, Request, Times
from trawl.scheduler import Grant

if TYPE_CHECKING:
    from trawl.engine.admission import Requirements
    from trawl.engine.direct import FetchWaiter

__all__ = ["RequestTask", "Responder", "State", "Waiter", "Wakeup", "current_grant", "in_pipelines", "in_steps"]

T = TypeVar("T")


class Wakeup:
    """One task waits for the next change or the next instant; any other says that something changed.

    A change that comes while nobody waits is kept for the next wait, so none is lost.
    """

    __slots__ = ("_event", "_waiting")

    def __init__(self) -> None:
        self._event = trio.Event()
        self._waiting: trio.CancelScope | None = None

    def set(self) -> None:
        """Say that something changed."""
        self._event.set()

    def wake_at(self, at: float) -> None:
        """Say that something may go at the instant ``at``: who waits now wakes then, and not before."""
        waiting = self._waiting
        if waiting is None:
            self._event.set()  # nobody waits: the next one to wait looks first
        elif at < waiting.deadline:
            waiting.deadline = at

    async def wait(self, until: float, alarm: trio.CancelScope) -> None:
        """Wait for a change, at the longest until the instant ``until`` of the run clock (seconds). A checkpoint.

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
            # Between two waits the caller works: the alarm must not cancel what it awaits there.
            if alarm.deadline != math.inf and not alarm.cancel_called:
                alarm.deadline = math.inf
            # The caller looks now, whatever has woken it: all that was set so far is seen to by that.
            if self._event.is_set():
                self._event = trio.Event()


Responder = Callable[[Request], Awaitable[Outcome]]
"""Answers a request instead of the wire."""


class Waiter(Protocol):
    """Gets the outcome of a direct fetch, or of a robots.txt, instead of a callback.

    Attributes:
        grant: The grant that it waits for; None before it is made.
        parent: The grant in whose task it was asked for; None: in none.
    """

    grant: Grant | None
    parent: Grant | None

    def deliver(self, outcome: Outcome) -> None:
        """Take the outcome; must not wait."""
        ...


async def in_steps(steps: Generator[None, None, T]) -> T:
    """Run a generator and return its value, with a checkpoint after each of its steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
        await trio.lowlevel.checkpoint()


class RequestTask:
    """The task that carries a granted request to its end: what it notes, and the request as it was when it was granted.

    A middleware may change the request, or hand on another. One task is good for one send. Enter it once, around all
    that carries the request.

    Attributes:
        is_cancelled: :meth:`cancel` was called.
        url: The URL of the request as it was.
        responder: Answers it instead of the wire; None: it is sent.
        diverted: What the request needs that its middleware has made of it; None: nothing else than was granted.
        times: Where its time went so far; None where nothing was sent, nor answered instead of the wire.
        read_at: When the body had been read, or the error came; None before.
        is_used: The fetcher was asked to send it, or user code responded: one grant is good for one send.
        is_responded: User code responded to it, or failed, instead of the wire.
        is_stopped: It was not sent, because it was granted for another request.
        is_counted: Its response was counted as a page.
        is_decided: It is known if it was one.
        is_done: It ended by itself, its outputs are stored.
        places: Set when it has its places, or gets none; made when it waits for them.
    """

    __slots__ = (
        "_body",
        "_meta",
        "_method",
        "_scope",
        "diverted",
        "is_cancelled",
        "is_counted",
        "is_decided",
        "is_done",
        "is_responded",
        "is_stopped",
        "is_used",
        "places",
        "read_at",
        "responder",
        "times",
        "url",
    )

    def __init__(self, request: Request) -> None:
        self._scope: trio.CancelScope | None = None
        self.is_cancelled: bool = False
        self.responder: Responder | None = None
        self.diverted: Requirements | None = None
        self.times: Times | None = None
        self.read_at: float | None = None
        self.is_used: bool = False
        self.is_responded: bool = False
        self.is_stopped: bool = False
        self.is_counted: bool = False
        self.is_decided: bool = False
        self.is_done: bool = False
        self.places: trio.Event | None = None
        self.url: str = request.url
        self._method = request.method
        self._body = request.body
        self._meta = dict(request.meta) if request.has_meta else _NO_META

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self._scope is not None and bool(self._scope.__exit__(kind, error, trace))

    def make_cancellable(self) -> None:
        """Let :meth:`cancel` interrupt it from now on: what follows may ask for a direct fetch, or is one.

        Most pages never do, and a scope costs more than all else that is done for them at once. Scopes are left in the
        reverse order in which they were entered, so don't call this inside another one of this task's.
        """
        if self._scope is None:
            self._scope = trio.CancelScope()
            self._scope.__enter__()
            if self.is_cancelled:
                self._scope.cancel()

    def cancel(self) -> None:
        """End this request and no other: at its next checkpoint, or as soon as it takes cancels."""
        self.is_cancelled = True
        if self._scope is not None:
            self._scope.cancel()

    def differs_from(self, request: Request) -> bool:
        """Tell if ``request`` has another method, URL, body or meta; its headers and cookies do not count."""
        if request.url != self.url or request.method != self._method or request.body != self._body:
            return True
        before = self._meta
        if not request.has_meta:
            return bool(before)
        now = request.meta
        # The very values: who compares them by == asks a user's class, or an array, what equal means.
        return len(now) != len(before) or any(before.get(key, _ABSENT) is not value for key, value in now.items())

    def looks_like(self, request: Request) -> bool:
        """Tell if ``request`` asks for the same: by its method, URL and body, in the same session."""
        is_same = (request.url, request.method, request.body) == (self.url, self._method, self._body)
        return is_same and request.meta_get("session") == self._meta.get("session")


_NO_META: dict[str, Any] = {}

_ABSENT = object()


current_grant: ContextVar[Grant | None] = ContextVar("trawl_grant", default=None)
"""The grant whose task this is: the fetcher finds what it sends by it, and a direct fetch its parent."""

in_pipelines: ContextVar[bool] = ContextVar("trawl_in_pipelines", default=False)
"""True in a task that takes an item through the pipelines: what they fetch, a page may have named."""


class State:
    """Counts of one run. Idle is counted, not polled: one up a request admitted, one down when its last output is in.

    Attributes:
        open: Admitted requests that have not ended, and one for ``start()`` while it is read.
        tasks: Requests that were granted and whose task has not ended.
        page_tasks: Those of them that are pages; the others, robots.txt and direct fetches, are not in ``open``.
        callbacks: Callbacks that run now.
        finishing: Those of them that have ended and wait until that is stored.
        most_callbacks: At so many, no further page is sent.
        is_paused: No page is sent.
        is_reading: Requests come from ``start()``, or from receivers of ``spider_idle``, and more may come.
        is_begun: What an earlier run has left is taken up, so that requests may be added.
        is_over: No more requests are taken in.
        keepers: Blocks that keep the crawl from ending while nothing is open.
        waiters: The direct fetches that were let in and have no outcome yet.
        reason: Why the crawl is ending; None while it is not.
        wakeup: Wakes the dispatcher.
    """

    __slots__ = (
        "_ending",
        "_idle",
        "_low",
        "_room",
        "callbacks",
        "finishing",
        "is_begun",
        "is_over",
        "is_paused",
        "is_reading",
        "keepers",
        "most_callbacks",
        "open",
        "page_tasks",
        "reason",
        "tasks",
        "waiters",
        "wakeup",
    )

    def __init__(self, most_callbacks: int) -> None:
        self.most_callbacks: int = most_callbacks
        self.finishing: int = 0
        self.is_paused: bool = False
        self.is_reading: bool = False
        self.is_begun: bool = False
        self.is_over: bool = False
        self.keepers: int = 0
        self.open: int = 0
        self.tasks: int = 0
        self.page_tasks: int = 0
        self.callbacks: int = 0
        self.reason: str | None = None
        self.waiters: dict[FetchWaiter, None] = {}
        self.wakeup: Wakeup = Wakeup()
        self._ending: trio.Event = trio.Event()
        self._idle: trio.Event | None = None
        self._room: trio.Event | None = None
        self._low = 1  # with so many open, or fewer, somebody may wait for the end of a request

    def reading_began(self) -> None:
        """``start()`` or a round of ``spider_idle`` is about to begin: it counts as one open request."""
        self.is_reading = True
        self.open += 1

    def reading_ended(self) -> None:
        """It has come to its end; the dispatcher is told."""
        self.is_reading = False
        self.ended()
        self.wakeup.set()

    def admitted(self, n: int) -> None:
        """``n`` requests were admitted."""
        self.open += n

    def ended(self) -> None:
        """A request has ended, its outputs are in."""
        self.open -= 1
        if self.open <= self._low:
            self._is_low()

    def left(self, n: int) -> None:
        """``n`` admitted requests are not this crawl's: they were seen after all, or another process has them."""
        self.open -= n
        if self.open <= self._low:
            self._is_low()

    def _is_low(self) -> None:
        if self.open <= 0:
            self.wakeup.set()
        if self._idle is not None and self.is_idle:
            self._idle.set()
            self._idle = None
        if self._room is not None:
            self._look_for_room()

    def _look_for_room(self) -> None:
        """Wake whoever waits in :meth:`until_room`: it looks for itself."""
        self._low = 1
        if self._room is not None:
            self._room.set()
            self._room = None

    @property
    def is_idle(self) -> bool:
        """True if nothing is open but ``start()``."""
        return self.open <= self.is_reading

    async def until_idle(self) -> None:
        """Return when nothing is open but ``start()``. A checkpoint."""
        await trio.lowlevel.checkpoint()
        while not self.is_idle:
            if self._idle is None:  # another task may wait as well
                self._idle = trio.Event()
            await self._idle.wait()

    @property
    def may_add(self) -> bool:
        """True if the crawl takes requests in that no page has given."""
        return not self.is_over and self.reason is None

    async def until_room(self, most: int) -> None:
        """Return when fewer than ``most`` requests are open, or when none may be added any more. A checkpoint."""
        await trio.lowlevel.checkpoint()
        while self.may_add and (not self.is_begun or self.open >= most):
            self._low = max(self._low, most - 1)
            if self._room is None:
                self._room = trio.Event()
            await self._room.wait()

    def begin(self) -> None:
        """Requests may be added from now on."""
        self.is_begun = True
        self._look_for_room()

    def close(self) -> None:
        """No request may be added from now on: the crawl has come to its end."""
        self.is_over = True
        self._look_for_room()

    def task_began(self, *, is_page: bool) -> None:
        """The task of a granted request is about to start."""
        self.tasks += 1
        self.page_tasks += is_page

    def task_ended(self, *, is_page: bool) -> None:
        """The task of a granted request has ended."""
        self.tasks -= 1
        self.page_tasks -= is_page
        if not self.tasks:
            self.wakeup.set()

    @property
    def queued(self) -> int:
        """Admitted requests that have not begun, or wait for another grant."""
        return max(0, self.open - self.is_reading - self.page_tasks)

    def callback_began(self) -> None:
        """A callback runs."""
        self.callbacks += 1

    def callback_ended(self) -> None:
        """A callback has ended; if that makes room for a page, the dispatcher is told."""
        self.callbacks -= 1
        if self.callbacks == self.most_callbacks - 1:
            self.wakeup.set()

    @property
    def may_page(self) -> bool:
        """True if a page may be sent: there is room for its callback, and the crawl is not paused."""
        return self.callbacks < self.most_callbacks and not self.is_paused

    def pause(self, *, is_paused: bool) -> None:
        """Send no pages until this is taken back."""
        self.is_paused = is_paused
        self.wakeup.set()

    def end(self, reason: str) -> None:
        """Begin to end; the first reason stays."""
        if self.reason is None:
            self.reason = reason
        self._ending.set()
        self._look_for_room()
        self.wakeup.set()

    async def until_ending(self) -> None:
        """Return when :meth:`end` was called. A checkpoint."""
        await self._ending.wait()

    def is_running(self) -> bool:
        """Tell if something is open and may be sent, or may be added: the crawl is neither over nor ending."""
        return (self.open > 0 or self.keepers > 0) and self.reason is None

    @property
    def is_ending(self) -> bool:
        """True if nothing new may be sent."""
        return self.reason is not None
