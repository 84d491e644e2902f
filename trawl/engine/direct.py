"""Direct fetches: a response in the middle of a callback.

A direct fetch is a grant of the same lanes as every page, so the same scopes hold for it; it is never in the
frontier, because a kill repeats the page whose callback asked. It ranks before pages (the callback that waits holds
memory), and the bound on running callbacks does not stop it, or callbacks that wait for direct fetches would wait for
ever.

At most ``DIRECT_FETCHES_LIMIT`` of them wait for their turn or are on their way. Further fetches wait until one ends,
first come first served, instead of being refused: a task that fetches waits anyway, and an error would make the
spider fail when it is busiest. One that is asked for on the way of another (by a middleware or a manager, for a token,
before its send or after it) is let in at once: the other one could not end before it.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext

import trio

from trawl.engine.admission import Admission, not_before
from trawl.engine.context import CrawlContext
from trawl.engine.leases import forget_the_last
from trawl.engine.state import current_grant, in_pipelines
from trawl.errors import IgnoreRequest, UnsupportedScheme
from trawl.http import FETCHED_SCHEMES, Outcome, Request, Response, scheme_of
from trawl.scheduler import Grant, Scheduler

__all__ = ["DirectFetcher"]


class FetchWaiter:
    """Waits for the outcome of one direct fetch.

    Attributes:
        grant: Its grant in the scheduler, or that of the redirect or retry that took its place.
        parent: The grant in whose task it was asked for: by a callback, middleware, pipeline or manager; None: in none.
        outcome: What became of it.
    """

    __slots__ = ("_event", "grant", "outcome", "parent")

    def __init__(self, parent: Grant | None) -> None:
        self._event = trio.Event()
        self.parent: Grant | None = parent
        self.grant: Grant | None = None
        self.outcome: Outcome | None = None

    @property
    def is_waiting(self) -> bool:
        """True until it is granted or has come to an end."""
        return self.outcome is None and (self.grant is None or self.grant.task is None)

    def deliver(self, outcome: Outcome) -> None:
        """Take the outcome, and wake who waits for it."""
        self.outcome = outcome
        self._event.set()

    async def wait(self) -> Outcome:
        """The outcome, when it is there. A checkpoint."""
        await self._event.wait()
        assert self.outcome is not None
        return self.outcome


class DirectFetcher:
    """Makes the direct fetches of one crawl.

    Args:
        context: Says how many may wait or be on their way at once, and if the crawl is ending.
        admission: Makes their grants, and has them wait for their turn.
        scheduler: Has them wait for their turn.
    """

    __slots__ = ("_admission", "_room", "_scheduler", "_state")

    def __init__(self, context: CrawlContext, admission: Admission, scheduler: Scheduler) -> None:
        self._admission = admission
        self._scheduler = scheduler
        self._state = context.state
        self._room = trio.CapacityLimiter(context.engine.direct_fetches_limit)

    async def fetch(self, request: Request) -> Response:
        """The response to ``request``, of any status, after redirects and retries. A checkpoint.

        Cancelling withdraws it, or drops its connection. When the crawl ends while it waits, the callback that asked is
        cancelled, and its page is given back.

        Raises:
            DownloadError: There is no response.
            IgnoreRequest: It is refused by robots.txt or a middleware, or the crawl is ending and no callback asked, or
                it has not begun.
            TypeError: It is no request.
        """
        if not isinstance(request, Request):
            raise TypeError(f"fetch() takes a Request, not {type(request).__name__}: {request!r:.100}")
        if scheme_of(request.url) not in FETCHED_SCHEMES:
            raise UnsupportedScheme("only http and https are fetched", url=request.url, method=request.method)
        state = self._state
        if not (state.open or state.is_ending or (state.keepers and state.is_begun)):
            raise IgnoreRequest(f"{request!r}: the crawl has not begun, or is over")
        waiter = FetchWaiter(current_grant.get())
        if waiter.parent is not None:
            request.depth = waiter.parent.request.depth
            if request is not waiter.parent.request:
                forget_the_last([request], waiter.parent.request)
        elif not in_pipelines.get():
            self._admission.note_start(request)
        # For a robots.txt, whose middleware waits for it, it passes the gate too: that opens when both are read.
        passes_gate = waiter.parent is not None and waiter.parent.passes_gate
        # A manager may fetch to name scopes.
        waiter.grant = grant = await self._admission.direct_grant(request, waiter, passes_gate=passes_gate)
        async with self._let_in(waiter.parent):
            self._state.waiters[waiter] = None
            try:
                self._admission.check_ours(request, grant.scopes)  # it may have changed hands while this one waited
                await self._admission.line_up(grant, not_before(request))
                # give_up() went through the others before this one was among them.
                if self._state.is_ending and waiter.is_waiting:
                    self._give_up(waiter)
                outcome = await waiter.wait()
            finally:
                del self._state.waiters[waiter]
                # Cancelled: nobody waits for it any more.
                if waiter.outcome is None:
                    self._withdraw(waiter)
        if outcome.response is None:
            assert outcome.error is not None
            raise outcome.error
        return outcome.response

    def _let_in(self, parent: Grant | None) -> AbstractAsyncContextManager[object]:
        """The limiter of a fetch that ``parent`` asks for: none, if that is a direct fetch, or still in its middleware.

        What its callback fetches may wait at a lock for what this one is for, with all the room taken.
        """
        is_on_its_way = parent is not None and (parent.is_direct or not parent.task.is_decided)
        return nullcontext() if is_on_its_way else self._room

    def give_up(self) -> None:
        """The crawl sends nothing new: end what waits for direct fetches that have not been sent, its callbacks too."""
        for waiter in list(self._state.waiters):
            if waiter.is_waiting:
                self._give_up(waiter)

    def _give_up(self, waiter: FetchWaiter) -> None:
        assert waiter.grant is not None
        self._withdraw(waiter)
        if waiter.parent is not None:
            waiter.parent.task.cancel()
        # Outside callbacks, and in a pipeline, which is shielded from its callback's scope, it is an error.
        request = waiter.grant.request
        waiter.deliver(Outcome(request, error=IgnoreRequest(f"{request!r}: the crawl is ending")))

    def _withdraw(self, waiter: FetchWaiter) -> None:
        grant = waiter.grant
        if grant is None:
            return
        if grant.task is not None:
            grant.task.cancel()
        else:
            self._scheduler.withdraw(grant, trio.current_time())
            self._state.wakeup.set()
