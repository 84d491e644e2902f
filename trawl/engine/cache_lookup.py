"""Requests that are answered without the wire: looked up before they are lined up, so that they wait for nobody.

A cache's answer costs the server nothing, so it takes no place, waits for no scope and asks no robots.txt. That has to
be known before a request stands in a lane, behind others that do wait; and looking up takes time, so it has to be done
while the request holds nothing. Before a grant is pushed to the scheduler (by :class:`~trawl.scheduler.Prefetcher`; as
a redirect or a retry; as a direct fetch), :class:`CacheLookup` is asked. What is answered stands here until the
dispatcher starts it, a bounded number at once; its task passes the middleware like any other, down to where the wire
would be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import trio

from trawl.engine.limits import CrawlLimits
from trawl.engine.state import RequestTask, Responder, State
from trawl.frontier import Record
from trawl.scheduler import Grant, Lane

if TYPE_CHECKING:
    from trawl.cache.cache import Cache

__all__ = ["MAX_AT_ONCE", "MAX_READY", "CacheLookup", "NoCache"]

MAX_AT_ONCE = 16
"""Pages that are answered without the wire at once, their callbacks included."""

MAX_READY = 64
"""Pages that wait for that; while it are so many, no more are leased from the frontier."""


class NoCache:
    """The lookup of a crawl without a cache: every request is sent, and nothing waits here."""

    __slots__ = ()

    has_cache: ClassVar[bool] = False

    @property
    def is_full(self) -> bool:
        """False: nothing waits here."""
        return False

    async def aside(self, records: Sequence[Record]) -> Sequence[Record]:
        """Return ``records``: all have to be sent."""
        return records

    async def took(self, grant: Grant) -> bool:
        """Return False: the grant has to be pushed to the scheduler."""
        return False

    def start(self, nursery: trio.Nursery, run: Callable[[Grant], Awaitable[None]]) -> None:
        """Start nothing."""

    def pending(self) -> list[Grant]:
        """Return no pages."""
        return []

    def take_out(self, goes: Callable[[Grant], bool]) -> list[Grant]:
        """Take out nothing."""
        return []


class CacheLookup(NoCache):
    """Requests that are answered without the wire.

    Args:
        cache: Says which those are.
        limits: Says whether another page may be had.
        state: Its wakeup wakes the dispatcher.
    """

    has_cache = True

    __slots__ = ("_cache", "_direct", "_limits", "_nowhere", "_pages", "_running", "_state")

    def __init__(self, cache: Cache, *, limits: CrawlLimits, state: State) -> None:
        self._cache = cache
        self._limits = limits
        self._state = state
        self._pages: deque[tuple[Grant, Responder]] = deque()
        self._direct: deque[tuple[Grant, Responder]] = deque()
        self._running = 0
        # What is answered here takes no place, and whoever asks a grant for its lane's scopes finds none.
        self._nowhere = Lane(((), ""), ())

    @property
    def is_full(self) -> bool:
        """True if no more pages are to be looked up for now."""
        return len(self._pages) >= MAX_READY

    async def aside(self, records: Sequence[Record]) -> Sequence[Record]:
        """Those of ``records`` that have to be sent. Cancelling loses the leases of all of them, as leasing does."""
        answers = await self._cache.find([record.request for record in records])
        missed = []
        for record, answer in zip(records, answers, strict=True):
            if answer is None:
                missed.append(record)
            else:
                self._take(Grant.of_record(record), answer)
        return missed

    async def took(self, grant: Grant) -> bool:
        """Take a grant that is answered here. Returns False if it has to be pushed to the scheduler."""
        if grant.passes_gate or self._state.is_ending:
            return False
        answer = (await self._cache.find([grant.request]))[0]
        if answer is None:
            return False
        self._take(grant, answer)
        self._state.wakeup.set()
        return True

    def start(self, nursery: trio.Nursery, run: Callable[[Grant], Awaitable[None]]) -> None:
        """Start the tasks of as many as may be answered now; direct fetches are waited for, and always may."""
        while self._direct:
            self._start(*self._direct.popleft(), nursery, run)
        while self._pages and self._running < MAX_AT_ONCE and self._state.may_page and self._limits.may_page:
            self._start(*self._pages.popleft(), nursery, run)

    def pending(self) -> list[Grant]:
        """The pages that were not started, for the end of a crawl; they are no longer here."""
        grants = [grant for grant, _ in self._pages]
        self._pages.clear()
        return grants

    def take_out(self, goes: Callable[[Grant], bool]) -> list[Grant]:
        """Take out the pages that were not started and of which ``goes`` says so."""
        gone = [grant for grant, _ in self._pages if goes(grant)]
        if gone:
            self._pages = deque([page for page in self._pages if page[0] not in gone])
        return gone

    def _take(self, grant: Grant, answer: Responder) -> None:
        grant.lane = self._nowhere
        (self._pages if grant.is_page else self._direct).append((grant, answer))

    def _start(
        self, grant: Grant, answer: Responder, nursery: trio.Nursery, run: Callable[[Grant], Awaitable[None]]
    ) -> None:
        grant.task = task = RequestTask(grant.request)
        task.responder = answer
        if grant.is_page:
            self._running += 1
            # Before it runs: no place bounds how many of these pages are under way.
            self._limits.answered(grant)
        self._state.task_began(is_page=grant.is_page)
        nursery.start_soon(self._run, grant, run)

    async def _run(self, grant: Grant, run: Callable[[Grant], Awaitable[None]]) -> None:
        try:
            await run(grant)
        finally:
            self._running -= grant.is_page
            if self._pages:
                self._state.wakeup.set()
