"""The state that the objects of a running crawl share: open requests, the end, and the dispatcher's wakeup."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import trio

from trawl.http import Outcome, Request, Times
from trawl.scheduler import Attempt

if TYPE_CHECKING:
    from trawl.engine.admission import Requirements
    from trawl.engine.direct import FetchWaiter

__all__ = ["RequestTask", "Responder", "State", "Wakeup", "current_attempt", "in_pipelines", "in_steps"]

T = TypeVar("T")


class Wakeup:
    """One task waits for the next change or the next event time. Other tasks report changes.

    A change that comes while no task waits is kept for the next wait, so no change is lost.
    """

    def __init__(self) -> None:
        self._event = trio.Event()
        self._waiting: trio.CancelScope | None = None

    def set(self) -> None:
        """Wake the task that waits for a change."""
        self._event.set()

    def wake_at(self, at: float) -> None:
        """Wake the waiting task at ``at`` or before, because a request may be sent then."""
        waiting = self._waiting
        if waiting is None:
            self._event.set()  # No task is waiting, so the next wait returns at once.
        elif at < waiting.deadline:
            waiting.deadline = at

    async def wait(self, until: float, alarm: trio.CancelScope) -> None:
        """Wait for a change, at most until the event loop time ``until``, when ``alarm`` is cancelled. A checkpoint.

        The alarm is a scope around the caller. One scope serves many waits, because moving a deadline costs less than
        entering a scope, and setting a deadline costs more than comparing it.
        """
        self._waiting = alarm
        if alarm.deadline != until:
            alarm.deadline = until
        try:
            await self._event.wait()
        finally:
            self._waiting = None
            # Between two waits the caller works, and the alarm must not cancel its other awaits.
            if alarm.deadline != math.inf and not alarm.cancel_called:
                alarm.deadline = math.inf
            # Whatever woke it, the caller now checks everything, which covers all changes so far.
            if self._event.is_set():
                self._event = trio.Event()


Responder = Callable[[Request], Awaitable[Outcome]]
"""Produces the outcome of a request without sending it."""


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
    """The task that runs a granted request to its end: its state, and the request as it was when it was granted.

    A middleware may change the request or pass on another one. One task is good for one send. Enter it once, around
    everything that runs for the request.
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
        "skips_limiters",
        "times",
        "url",
    )

    def __init__(self, request: Request) -> None:
        self._scope: trio.CancelScope | None = None
        self.is_cancelled: bool = False
        self.responder: Responder | None = None  # produces the outcome without a send
        self.diverted: Requirements | None = None  # of the request after its middleware; None: as granted
        self.times: Times | None = None  # None if nothing was sent and no responder was used
        self.read_at: float = 0.0  # event loop time at which the body was read or the error came
        self.is_used: bool = False  # the fetcher was called for this attempt, or user code responded
        self.is_responded: bool = False  # user code responded or failed, so that nothing was sent
        self.skips_limiters: bool = False  # it has places only because user code responded, so it took no limiter
        self.is_stopped: bool = False  # not sent, because the attempt was for another request
        self.is_counted: bool = False  # its response was counted as a page
        self.is_decided: bool = False  # it is known whether its response is a page
        self.is_done: bool = False  # it finished by itself, and its outputs are stored
        self.places: trio.Event | None = None  # set when it has its places, or gets none; made when it waits for them
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
        """Make :meth:`cancel` interrupt the task from now on. Call it before a direct fetch may start.

        Most pages never need it, and a scope costs more than all other work for them at that point. A task must exit
        its scopes in reverse order, so don't call this inside another scope of this task.
        """
        if self._scope is None:
            self._scope = trio.CancelScope()
            self._scope.__enter__()
            if self.is_cancelled:
                self._scope.cancel()

    def cancel(self) -> None:
        """End this request alone, at its next checkpoint or as soon as it becomes cancellable."""
        self.is_cancelled = True
        if self._scope is not None:
            self._scope.cancel()

    def differs_from(self, request: Request) -> bool:
        """Return True if ``request`` has another method, URL, body or meta. Headers and cookies do not count."""
        if request.url != self.url or request.method != self._method or request.body != self._body:
            return True
        before = self._meta
        if not request.has_meta:
            return bool(before)
        now = request.meta
        # Compare identity, because == would call a user class or compare arrays element by element.
        return len(now) != len(before) or any(before.get(key, _ABSENT) is not value for key, value in now.items())

    def looks_like(self, request: Request) -> bool:
        """Return True if ``request`` has the same method, URL, body and session."""
        is_same = (request.url, request.method, request.body) == (self.url, self._method, self._body)
        return is_same and request.meta_get("session") == self._meta.get("session")


_NO_META: dict[str, Any] = {}

_ABSENT = object()


current_attempt: ContextVar[Attempt | None] = ContextVar("trawl_attempt", default=None)
"""The attempt of the current task. The fetcher finds its attempt here, and a direct fetch its parent."""

in_pipelines: ContextVar[bool] = ContextVar("trawl_in_pipelines", default=False)
"""True in a task that passes an item through the pipelines. A page may have named the URLs that they fetch."""


class State:
    """Counts of one run. Idle is counted, not polled: one more per admitted request, one less after its last output."""

    def __init__(self, most_callbacks: int) -> None:
        self.most_callbacks: int = most_callbacks  # number of running callbacks at which no further page is sent
        self.finishing: int = 0  # number of callbacks that have ended and whose step is not stored yet
        self.is_paused: bool = False  # no page is sent
        self.is_reading: bool = False  # start() or receivers of spider_idle may add requests
        self.is_begun: bool = False  # the state of an earlier run is restored, so that requests may be added
        self.is_over: bool = False  # no more requests are accepted
        self.keepers: int = 0  # number of blocks that keep the crawl from ending while nothing is open
        self.open: int = 0  # number of admitted requests that have not ended, plus one while start() is read
        self.tasks: int = 0  # number of granted requests whose task has not ended
        self.page_tasks: int = 0  # those of pages; robots.txt and direct fetches are not in `open`
        self.callbacks: int = 0  # number of running callbacks
        self.reason: str | None = None  # why the crawl is ending; None while it is not
        self.dropped: dict[str, int] = {}  # hosts, with the arrival order below which their pages are dropped
        self.waiters: dict[FetchWaiter, None] = {}  # direct fetches that have room and no outcome yet
        self.wakeup: Wakeup = Wakeup()  # wakes the dispatcher
        self._ending: trio.Event = trio.Event()
        self._idle: trio.Event | None = None
        self._room: trio.Event | None = None
        self._low = 1  # at this number of open requests or fewer, a task may wait for the end of a request

    def reading_began(self) -> None:
        """Count ``start()`` or a call of ``spider_idle`` as one open request, just before it starts."""
        self.is_reading = True
        self.open += 1

    def reading_ended(self) -> None:
        """Stop counting it as open, and wake the dispatcher."""
        self.is_reading = False
        self.ended()
        self.wakeup.set()

    def admitted(self, n: int) -> None:
        """Count ``n`` admitted requests as open."""
        self.open += n

    def ended(self, n: int = 1) -> None:
        """Count ``n`` requests as ended, after their last output, or as gone: already seen, or of another process."""
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
        """Wake all tasks in :meth:`until_room`. Each of them checks again."""
        self._low = 1
        if self._room is not None:
            self._room.set()
            self._room = None

    @property
    def is_idle(self) -> bool:
        """True if nothing except ``start()`` is open."""
        return self.open <= self.is_reading

    async def until_idle(self) -> None:
        """Return when nothing except ``start()`` is open. A checkpoint."""
        await trio.lowlevel.checkpoint()
        while not self.is_idle:
            if self._idle is None:  # other tasks may wait as well
                self._idle = trio.Event()
            await self._idle.wait()

    @property
    def may_add(self) -> bool:
        """True if the crawl accepts requests from outside its pages."""
        return not self.is_over and self.reason is None

    async def until_room(self, most: int) -> None:
        """Return when fewer than ``most`` requests are open, or when no more may be added. A checkpoint."""
        await trio.lowlevel.checkpoint()
        while self.may_add and (not self.is_begun or self.open >= most):
            self._low = max(self._low, most - 1)
            if self._room is None:
                self._room = trio.Event()
            await self._room.wait()

    def begin(self) -> None:
        """Accept requests from now on."""
        self.is_begun = True
        self._look_for_room()

    def close(self) -> None:
        """Accept no more requests, because the crawl has ended."""
        self.is_over = True
        self._look_for_room()

    def task_began(self, *, is_page: bool) -> None:
        """Count the task of a granted request, just before it starts."""
        self.tasks += 1
        self.page_tasks += is_page

    def task_ended(self, *, is_page: bool) -> None:
        """Count the task of a granted request as ended."""
        self.tasks -= 1
        self.page_tasks -= is_page
        if not self.tasks:
            self.wakeup.set()

    @property
    def queued(self) -> int:
        """Number of admitted requests that are not running or wait for another grant."""
        return max(0, self.open - self.is_reading - self.page_tasks)

    def callback_began(self) -> None:
        """Count a running callback."""
        self.callbacks += 1

    def callback_ended(self) -> None:
        """Count an ended callback. If that makes room for a page, wake the dispatcher."""
        self.callbacks -= 1
        if self.callbacks == self.most_callbacks - 1:
            self.wakeup.set()

    @property
    def may_page(self) -> bool:
        """True if a page may be sent, because there is room for its callback and the crawl is not paused."""
        return self.callbacks < self.most_callbacks and not self.is_paused

    def pause(self, *, is_paused: bool) -> None:
        """Stop sending pages if ``is_paused``, or resume."""
        self.is_paused = is_paused
        self.wakeup.set()

    def end(self, reason: str) -> None:
        """Start to end the crawl. The first reason is kept."""
        if self.reason is None:
            self.reason = reason
        self._ending.set()
        self._look_for_room()
        self.wakeup.set()

    async def until_ending(self) -> None:
        """Return when :meth:`end` was called. A checkpoint."""
        await self._ending.wait()

    def is_running(self) -> bool:
        """Return True if requests are open or may be added, and the crawl is not ending."""
        return (self.open > 0 or self.keepers > 0) and self.reason is None

    @property
    def is_ending(self) -> bool:
        """True if nothing new may be sent."""
        return self.reason is not None
