"""Direct fetches: a response in the middle of a callback.

A direct fetch is a grant of the same lanes as every page, so the same scopes hold for it; it is never in the
frontier, because a kill repeats the page whose callback asked. It ranks before pages (the callback that waits holds
memory), and the bound on running callbacks does not stop it, or callbacks that wait for direct fetches would wait for
ever.

At most ``DIRECT_FETCHES_LIMIT`` of them wait for their turn or are on their way. Whoever asks for more waits to be let
in, first come first served, rather than being refused: a task that fetches waits anyway, and an error would make the
spider fail when it is busiest. One that is asked for on the way of another (by a middleware or a manager, for a token)
is let in at once: the other one could not end before it.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext

import trio

from trawl.engine.admission import Admission, not_before
from trawl.engine.state import State, Turn, current_turn, in_pipelines
from trawl.errors import IgnoreRequest, UnsupportedScheme
from trawl.http import FETCHED_SCHEMES, Outcome, Request, Response, scheme_of
from trawl.scheduler import Grant, Scheduler

__all__ = ["DirectFetches"]


class Answer:
    """What one direct fetch waits for.

    Attributes:
        grant: Its grant in the core, or that of the redirect or retry that took its place.
        turn: The turn that sends it; None while it waits.
        parent: The turn whose callback asked; None outside callbacks.
        outcome: What became of it.
    """

    __slots__ = ("_event", "grant", "outcome", "parent", "turn")

    def __init__(self, parent: Turn | None) -> None:
        self._event = trio.Event()
        self.parent: Turn | None = parent
        self.turn: Turn | None = None
        self.grant: Grant | None = None
        self.outcome: Outcome | None = None

    def deliver(self, outcome: Outcome) -> None:
        """Take the outcome, and wake who waits for it."""
        self.outcome = outcome
        self._event.set()

    async def wait(self) -> Outcome:
        """The outcome, when it is there. A checkpoint."""
        await self._event.wait()
        assert self.outcome is not None
        return self.outcome


class DirectFetches:
    """The direct fetches of one crawl.

    Args:
        admission: Makes their grants, and has them wait for their turn.
        scheduler: Where they wait for their turn.
        state: Whether the crawl is ending.
        most: So many wait or are on their way at once.
    """

    __slots__ = ("_admission", "_room", "_scheduler", "_state", "_waiting")

    def __init__(
        self,
        *,
        admission: Admission,
        scheduler: Scheduler,
        state: State,
        most: int,
    ) -> None:
        self._admission = admission
        self._scheduler = scheduler
        self._state = state
        self._room = trio.CapacityLimiter(most)
        self._waiting: dict[Answer, None] = {}

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
        if not self._state.open and not self._state.is_ending:
            raise IgnoreRequest(f"{request!r}: the crawl has not begun, or is over")
        answer = Answer(current_turn.get())
        if answer.parent is not None:
            request.depth = answer.parent.grant.request.depth
        elif not in_pipelines.get():
            self._admission.begin_at(request)
        answer.grant = grant = await self._admission.direct_grant(request, answer)  # a manager may fetch to name scopes
        async with self._let_in(answer.parent):
            self._waiting[answer] = None
            try:
                await self._admission.line_up(grant, not_before(request))
                if self._state.is_ending and answer.turn is None:
                    self._give_up(answer)
                outcome = await answer.wait()
            finally:
                del self._waiting[answer]
                if answer.outcome is None:
                    self._withdraw(answer)
        if outcome.response is None:
            assert outcome.error is not None
            raise outcome.error
        return outcome.response

    def _let_in(self, parent: Turn | None) -> AbstractAsyncContextManager[object]:
        """What a fetch goes through that ``parent`` asks for: nothing, if that is a direct fetch itself."""
        return nullcontext() if parent is not None and parent.grant.is_direct else self._room

    def give_up(self) -> None:
        """The crawl sends nothing new: end what waits for direct fetches that have not been sent, its callbacks too."""
        for answer in list(self._waiting):
            if answer.turn is None and answer.outcome is None:
                self._give_up(answer)

    def _give_up(self, answer: Answer) -> None:
        assert answer.grant is not None
        self._withdraw(answer)
        if answer.parent is not None:
            answer.parent.cancel_scope.cancel()
        # Outside callbacks, and in a pipeline, which is shielded from its callback's scope, it is an error.
        request = answer.grant.request
        answer.deliver(Outcome(request, error=IgnoreRequest(f"{request!r}: the crawl is ending")))

    def _withdraw(self, answer: Answer) -> None:
        if answer.turn is not None:
            answer.turn.cancel_scope.cancel()
        elif answer.grant is not None:
            self._scheduler.withdraw(answer.grant, trio.current_time())
            self._state.wakeup.set()
