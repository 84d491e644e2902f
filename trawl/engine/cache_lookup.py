"""Requests that need no send: the cache is searched before they enter a lane.

A cached response costs the server nothing, so it takes no place, waits for no scope and needs no robots.txt. The crawl
must know this before the request enters a lane, where it would wait behind other requests. So :class:`CacheLookup` is
called before an attempt goes to the scheduler: by :class:`~trawl.scheduler.Prefetcher`, and for redirects, retries and
direct fetches. Requests with a stored response stay here until the dispatcher starts them, a bounded number at a time.
Their tasks run the middleware as usual, but the stored response replaces the send.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import trio

from trawl.engine.limits import CrawlLimits
from trawl.engine.state import RequestTask, Responder, State
from trawl.frontier import Record
from trawl.scheduler import Attempt, Lane

if TYPE_CHECKING:
    from trawl.cache.cache import Cache

__all__ = ["MAX_AT_ONCE", "MAX_READY", "CacheLookup", "NoCache"]

MAX_AT_ONCE = 16
"""Number of pages that are processed at the same time without a send, including their callbacks."""

MAX_READY = 64
"""Number of such pages that may wait to start. At this number, no more requests are leased from the frontier."""


class NoCache:
    """Lookup of a crawl without a cache: every request is sent, and no request waits here."""

    has_cache: ClassVar[bool] = False

    @property
    def is_full(self) -> bool:
        """False, because no request waits here."""
        return False

    async def aside(self, records: Sequence[Record]) -> Sequence[Record]:
        """Return ``records``, because all of them must be sent."""
        return records

    async def took(self, attempt: Attempt) -> bool:
        """Return False, because the attempt must be pushed to the scheduler."""
        return False

    def start(self, nursery: trio.Nursery, run: Callable[[Attempt], Awaitable[None]]) -> None:
        """Start nothing."""

    def pending(self) -> list[Attempt]:
        """Return no pages."""
        return []

    def take_out(self, goes: Callable[[Attempt], bool]) -> list[Attempt]:
        """Remove nothing, and return no pages."""
        return []


class CacheLookup(NoCache):
    """Requests whose response is in the cache."""

    has_cache = True

    def __init__(self, cache: Cache, *, limits: CrawlLimits, state: State) -> None:
        self._cache = cache
        self._limits = limits
        self._state = state
        self._pages: deque[tuple[Attempt, Responder]] = deque()
        self._direct: deque[tuple[Attempt, Responder]] = deque()
        self._running = 0
        # Requests with a stored response take no place, so their lane has no scopes.
        self._nowhere = Lane(((), ""), ())

    @property
    def is_full(self) -> bool:
        """True if no more pages should be looked up for now."""
        return len(self._pages) >= MAX_READY

    async def aside(self, records: Sequence[Record]) -> Sequence[Record]:
        """Return the records that must be sent. Cancelling loses the leases of all ``records``, as leasing does."""
        answers = await self._cache.find([record.request for record in records])
        missed = []
        for record, answer in zip(records, answers, strict=True):
            if answer is None:
                missed.append(record)
            else:
                self._take(Attempt.of_record(record), answer)
        return missed

    async def took(self, attempt: Attempt) -> bool:
        """Take an attempt whose response is stored. Returns False if the attempt must be pushed to the scheduler."""
        if attempt.options.passes_gate or self._state.is_ending:
            return False
        answer = (await self._cache.find([attempt.request]))[0]
        if answer is None:
            return False
        self._take(attempt, answer)
        self._state.wakeup.set()
        return True

    def start(self, nursery: trio.Nursery, run: Callable[[Attempt], Awaitable[None]]) -> None:
        """Start as many tasks as the limits allow now. Direct fetches always start, because callbacks wait for them."""
        while self._direct:
            self._start(*self._direct.popleft(), nursery, run)
        while self._pages and self._running < MAX_AT_ONCE and self._state.may_page and self._limits.may_page:
            self._start(*self._pages.popleft(), nursery, run)

    def pending(self) -> list[Attempt]:
        """Remove and return the pages that were not started, at the end of a crawl."""
        attempts = [attempt for attempt, _ in self._pages]
        self._pages.clear()
        return attempts

    def take_out(self, goes: Callable[[Attempt], bool]) -> list[Attempt]:
        """Remove and return the pages that were not started and for which ``goes`` returns True."""
        gone = [attempt for attempt, _ in self._pages if goes(attempt)]
        if gone:
            self._pages = deque([page for page in self._pages if page[0] not in gone])
        return gone

    def _take(self, attempt: Attempt, answer: Responder) -> None:
        attempt.lane = self._nowhere
        (self._pages if attempt.is_page else self._direct).append((attempt, answer))

    def _start(
        self, attempt: Attempt, answer: Responder, nursery: trio.Nursery, run: Callable[[Attempt], Awaitable[None]]
    ) -> None:
        attempt.task = task = RequestTask(attempt.request)
        task.responder = answer
        if attempt.is_page:
            self._running += 1
            # Count the page before its task runs, because no place bounds the number of these pages.
            self._limits.answered(attempt)
        self._state.task_began(is_page=attempt.is_page)
        nursery.start_soon(self._run, attempt, run)

    async def _run(self, attempt: Attempt, run: Callable[[Attempt], Awaitable[None]]) -> None:
        try:
            await run(attempt)
        finally:
            self._running -= attempt.is_page
            if self._pages:
                self._state.wakeup.set()
