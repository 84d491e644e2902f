"""Direct fetches: a response in the middle of a callback.

A direct fetch is an attempt in the same lanes as pages, so the same scopes limit it. It is not in the frontier, because
after a kill the page whose callback fetches is repeated. It ranks before pages, because the waiting callback holds
memory. The limit on running callbacks does not apply to it, or callbacks that wait for direct fetches would wait
forever.

Beyond ``DIRECT_FETCHES_LIMIT``, direct fetches wait in order of arrival until one ends, because an error would make the
spider fail when it is busiest. A fetch that a middleware or a manager starts during another fetch needs no room,
because the other one could not finish before it. For the same reason, a task that holds a tab of the browser may fetch
a page with meta ``browser`` while all tabs are in use. It gets one more tab at a time.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext

import trio

from trawl.browser.pool import HeldTab, current_tab
from trawl.engine.admission import Admission, not_before
from trawl.engine.context import CrawlContext
from trawl.engine.leases import forget_the_last
from trawl.engine.state import current_attempt, in_pipelines
from trawl.errors import IgnoreRequest, UnsupportedScheme
from trawl.http import FETCHED_SCHEMES, Outcome, Request, Response, scheme_of
from trawl.http.notes import note, notes_of
from trawl.scheduler import Attempt, Scheduler

__all__ = ["DirectFetcher"]


class FetchWaiter:
    """Waits for the outcome of one direct fetch."""

    __slots__ = ("_event", "attempt", "outcome", "parent")

    def __init__(self, parent: Attempt | None) -> None:
        self._event = trio.Event()
        self.parent: Attempt | None = parent  # in whose task user code started the fetch; None outside such tasks
        self.attempt: Attempt  # also that of its redirect or retry; set before anything else knows the waiter
        self.outcome: Outcome | None = None  # the response or error

    @property
    def is_waiting(self) -> bool:
        """True until the fetch is granted or has ended."""
        return self.outcome is None and self.attempt.task is None

    def deliver(self, outcome: Outcome) -> None:
        """Store the outcome, and wake the waiting task."""
        self.outcome = outcome
        self._event.set()

    async def wait(self) -> Outcome:
        """Wait for the outcome, and return it. A checkpoint."""
        await self._event.wait()
        assert self.outcome is not None
        return self.outcome


class DirectFetcher:
    """Makes the direct fetches of one crawl."""

    def __init__(self, context: CrawlContext, admission: Admission, scheduler: Scheduler) -> None:
        self._admission = admission
        self._scheduler = scheduler
        self._state = context.state
        self._room = trio.CapacityLimiter(context.values.engine.direct_fetches_limit)

    async def fetch(self, request: Request) -> Response:
        """Return the response to ``request``, of any status, after redirects and retries. A checkpoint.

        Cancelling withdraws the request, or drops its connection. If the crawl ends while the fetch waits, the callback
        that started it is cancelled, and its page returns to the frontier. Raises DownloadError without a response,
        TypeError for another object, and IgnoreRequest if robots.txt or a middleware refuses the request, if the crawl
        has not started or is over, or if it is ending and no callback started the fetch.
        """
        if not isinstance(request, Request):
            raise TypeError(f"fetch() takes a Request, not {type(request).__name__}: {request!r:.100}")
        if scheme_of(request.url) not in FETCHED_SCHEMES:
            raise UnsupportedScheme("only http and https are fetched", url=request.url, method=request.method)
        state = self._state
        if not (state.open or state.is_ending or (state.keepers and state.is_begun)):
            raise IgnoreRequest(f"{request!r}: the crawl has not begun, or is over")
        waiter = FetchWaiter(current_attempt.get())
        if waiter.parent is not None:
            request.depth = waiter.parent.request.depth
            if request is not waiter.parent.request and not notes_of(request).is_sub_request:
                forget_the_last([request], waiter.parent.request)
        elif not in_pipelines.get():
            self._admission.note_start(request)
        outcome = await self._outcome(request, waiter)
        if outcome.response is None:
            assert outcome.error is not None
            raise outcome.error
        return outcome.response

    async def _outcome(self, request: Request, waiter: FetchWaiter) -> Outcome:
        # A fetch by the middleware of a robots.txt passes the gate too, because the gate opens only after both.
        passes_gate = waiter.parent is not None and waiter.parent.options.passes_gate
        while True:
            tab = _tab_for(request, waiter.parent)
            # A manager may fetch to name scopes, even with the same tab, so the lock is acquired afterwards.
            waiter.attempt = await self._admission.direct_attempt(request, waiter, passes_gate=passes_gate)
            async with self._let_in(waiter.parent) if tab is None else tab.lock:
                if tab is None or tab.is_open:  # otherwise, the task has closed it meanwhile
                    return await self._queued(waiter)

    async def _queued(self, waiter: FetchWaiter) -> Outcome:
        """Queue a fetch, and wait for its outcome."""
        attempt = waiter.attempt
        request = attempt.request
        self._state.waiters[waiter] = None
        if attempt.is_sub_request:
            self._admission.count_sub_request(attempt, 1)
        try:
            # The host may have moved to another process while this fetch waited.
            self._admission.check_ours(request, attempt.scopes)
            await self._admission.line_up(attempt, not_before(request))
            # give_up() may have run before this waiter was added.
            if self._state.is_ending and waiter.is_waiting:
                self._give_up(waiter)
            return await waiter.wait()
        finally:
            del self._state.waiters[waiter]
            if attempt.is_sub_request:
                self._admission.count_sub_request(waiter.attempt, -1)
            # Cancelled: no task waits for the fetch any more.
            if waiter.outcome is None:
                self._withdraw(waiter.attempt)

    def _let_in(self, parent: Attempt | None) -> AbstractAsyncContextManager[object]:
        """Return the limiter for a fetch of ``parent``: none if that is a direct fetch or still in its middleware.

        Fetches of callbacks may fill all the room while they wait for a lock that ``parent`` holds.
        """
        is_on_its_way = parent is not None and (not parent.is_page or not parent.task.is_decided)
        return nullcontext() if is_on_its_way else self._room

    def give_up(self) -> None:
        """End fetches that were not sent, and the callbacks that wait for them, because the crawl sends nothing new."""
        for waiter in list(self._state.waiters):
            if waiter.is_waiting:
                self._give_up(waiter)

    def _give_up(self, waiter: FetchWaiter) -> None:
        self._withdraw(waiter.attempt)
        if waiter.parent is not None:
            waiter.parent.task.cancel()
        # Outside callbacks the fetch raises an error. So it does in a pipeline, which is shielded from its callback's
        # scope.
        request = waiter.attempt.request
        waiter.deliver(Outcome(request, error=IgnoreRequest(f"{request!r}: the crawl is ending")))

    def _withdraw(self, attempt: Attempt) -> None:
        if attempt.task is not None:
            attempt.task.cancel()
        else:
            self._scheduler.withdraw(attempt, trio.current_time())
            self._state.wakeup.set()


def _tab_for(request: Request, parent: Attempt | None) -> HeldTab | None:
    """Note if the page of ``request`` gets a tab at once. Return the tab that the task holds; None without."""
    is_page = bool(request.meta_get("browser"))
    tab = current_tab() if is_page else None
    # A page that waits for its middleware, or for a request of its own, keeps its tab.
    has_page = parent is not None and (parent.keeps_page or parent.is_sub_request or notes_of(parent.request).has_tab)
    note(request, has_tab=is_page and (has_page or tab is not None))  # it may be a copy of a request whose page got one
    return tab
