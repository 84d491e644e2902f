"""Takes requests in: refuses what may not be fetched, claims what is new, asks for its scopes, stores it.

The claim comes before the scopes are asked for, because a manager's ``get_scopes`` may await: two tasks that found the
same link at once must not both push it. A claim whose request is not pushed after all is given back.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence

import trio

from trawl.engine.handed_on import forget_the_last
from trawl.engine.state import State
from trawl.engine.turn import Waiter
from trawl.events import Events, RequestDropped, RequestScheduled
from trawl.frontier import Frontier, MemoryFrontier, Record
from trawl.http import Request, Response, fingerprint
from trawl.observe import Stats
from trawl.scheduler import Admission, Entry, Heads
from trawl.scheduler.lanes import amounts_of
from trawl.throttling import Throttle

__all__ = ["Intake", "Prepare", "not_before", "page_entry"]

logger: logging.Logger = logging.getLogger("trawl.intake")


FOUND_TO = 0.001
"""Seconds: requests that are found within so many share one instant, and its memory."""

Prepare = Callable[[Request, Response | None], None]
"""What is done to a request when it is let in, given the page that it was found on, if there is one."""


class Intake:
    """Admission of one crawl: the rules, the seen set, the scopes and the frontier behind one call.

    Attributes:
        never_waits: No call here waits for anything, so none can be cancelled half-way.
    """

    def __init__(
        self,
        *,
        admission: Admission,
        frontier: Frontier,
        heads: Heads,
        throttle: Throttle,
        stats: Stats,
        state: State,
        origin_of: Callable[[Request], str],
        is_durable: bool = False,
        prepare: Prepare | None = None,
        events: Events | None = None,
    ) -> None:
        self._events = Events() if events is None else events
        self._admission = admission
        self._frontier = frontier
        self._heads = heads
        self._throttle = throttle
        self._stats = stats
        self._state = state
        self._origin_of = origin_of
        self._is_durable = is_durable
        self._abandoned: list[Record] = []
        self._found_at = -math.inf
        self._prepare = prepare
        self.never_waits: bool = type(frontier) is MemoryFrontier and throttle.charging.never_waits

    async def push(
        self, requests: Sequence[Request], *, depth: int, is_start: bool = False, source: Response | None = None
    ) -> bool:
        """Take in the requests found at ``depth`` links from the start, on ``source``, and store those that are new.

        Whether one of them may go before what could go until now.
        """
        if source is not None:
            forget_the_last(requests, source.request)
        records = await self.admit(requests, depth=depth, is_start=is_start, source=source)
        if not records:
            return False
        self._state.opened(len(records))
        await self._frontier.push_many(records)
        return self._stored(records)

    async def finish(
        self,
        lease: Record,
        requests: Sequence[Request],
        *,
        depth: int,
        items: Callable[[], Sequence[bytes]] = tuple,
        failure: str | None = None,
        source: Response | None = None,
    ) -> None:
        """End a lease and store what came of it, in one step.

        Args:
            lease: What has ended.
            requests: What its callback found, at ``depth`` links from the start.
            depth: In links.
            items: Gives the items that go with the acknowledgement; called just before that.
            failure: Why it counts as failed.
            source: What its callback found them on.
        """
        forget_the_last(requests, lease.request if source is None or source.request is None else source.request)
        records = await self.admit(requests, depth=depth, source=source) if requests else []
        if records:
            self._state.opened(len(records))
        await trio.lowlevel.checkpoint_if_cancelled()  # here, or a page that is not acknowledged has its items counted
        await self._frontier.acknowledge(lease, records, items(), failure)
        if records:
            self._stored(records)
        self._state.ended()

    def restore(self) -> None:
        """Take up what an earlier run has left in the frontier; it passes the throttle like any other."""
        if self._stats.get("private_addresses_allowed"):
            self._admission.open_addresses()
        self._state.opened(self._frontier.statistics().pending)
        self._heads.restored(self._frontier.lanes())

    def abandon(self, lease: Record) -> None:
        """Note a lease whose request was not finished: the crawl is ending, or is cancelled."""
        self._abandoned.append(lease)

    async def give_back(self, entries: Iterable[Entry]) -> None:
        """Give back what was abandoned, and the leases of ``entries`` that were not granted: the frontier is whole."""
        leases = [*self._abandoned, *[entry.lease for entry in entries]]
        self._abandoned.clear()
        if leases:
            await self._frontier.release(leases)

    def begin_at(self, request: Request) -> None:
        """Take note of a request that the user's own code makes, not that of a page."""
        if self._admission.begin_at(request):
            self._stats.set("private_addresses_allowed", 1)  # a job that goes on later may not read start() again

    async def direct_entry(self, request: Request, waiter: Waiter, *, passes_gate: bool = False) -> Entry:
        """The core's entry for a request that never enters the frontier.

        Raises:
            Exception: Whatever a user's manager raises when it is asked for the scopes.
        """
        if self._prepare is not None:
            self._prepare(request, None)
        scopes = self._throttle.scopes_of_nowait(request)
        if scopes is None:
            scopes = await self._throttle.scopes_of(request)
        return Entry(
            request,
            scopes,
            origin=self._origin_of(request),
            priority=request.priority,
            is_direct=True,
            is_exempt=bool(request.meta_get("dont_throttle")),
            passes_gate=passes_gate,
            waiter=waiter,
        )

    async def admit(
        self, requests: Sequence[Request], *, depth: int, is_start: bool = False, source: Response | None = None
    ) -> list[Record]:
        """The records of those requests that are let in; the others are counted under their reason."""
        admitted = []
        for request in requests:
            if is_start:  # what a user starts from, and where that redirects to, is wanted by its name
                request.meta["is_start_request"] = True
                self.begin_at(request)
            refusal = self._admission.refusal(request, depth=depth)
            if refusal is not None:
                self._stats.inc(refusal)
                if RequestDropped in self._events.wanted:
                    self._events.tell(RequestDropped(request, refusal))
                if is_start:
                    logger.error("%r from start() is dropped: %s", request, refusal.replace("_", " "))
                continue
            request.depth = depth
            admitted.append(request)
        if not admitted:
            return []
        prints = [None if request.dont_filter else fingerprint(request) for request in admitted]
        claimed = [mark for mark in prints if mark is not None]
        fresh = iter(await self._frontier.claim_many(claimed) if claimed else ())
        records = []
        for request, mark in zip(admitted, prints, strict=True):
            if mark is not None and not next(fresh):
                self._stats.inc("dupefilter_filtered")
                if RequestDropped in self._events.wanted:
                    self._events.tell(RequestDropped(request, "dupefilter_filtered"))
                continue
            record = await self._record(request, mark, source)
            if record is not None:
                records.append(record)
                if RequestScheduled in self._events.wanted:
                    self._events.tell(RequestScheduled(request))
        return records

    async def redirected(self, lease: Record, request: Request) -> Record | str:
        """The record of a redirect's target, or why it ends here.

        A target that was seen already ends as a duplicate, unless it is in its own chain: a page that sets a cookie and
        redirects to itself is no loop yet.
        """
        depth = lease.request.depth
        refusal = self._admission.refusal(request, depth=depth)
        if refusal is not None:
            return refusal
        request.depth = depth
        mark = None if request.dont_filter else fingerprint(request)
        if mark is not None and not (await self._frontier.claim_many([mark]))[0] and not _in_chain(mark, request):
            return "dupefilter_filtered"
        return await self._record(request, mark) or "scope_errors"

    def _stored(self, records: Sequence[Record]) -> bool:
        may_go = self._heads.pushed(records)
        if may_go:  # where the frontier waited for a disk, the dispatcher has looked before
            self._state.pulse.beat()
        return may_go

    async def _record(self, request: Request, mark: bytes | None, source: Response | None = None) -> Record | None:
        try:
            if self._prepare is not None:
                self._prepare(request, source)
            until = not_before(request)
            scopes = self._throttle.scopes_of_nowait(request)
            if scopes is None:
                scopes = await self._throttle.scopes_of(request)
        except Exception:
            logger.exception("%r is dropped: its meta, or the manager, names no right scopes or delay", request)
            self._stats.inc("scope_errors")
            if mark is not None:
                await self._frontier.disclaim([mark])
            return None
        origin = self._origin_of(request)
        amounts = amounts_of(scopes)
        if not amounts:
            record = Record(request, scopes, origin, mark, until)
        else:
            share = next(amount for amount in amounts if amount is not None)  # the larger goes first (F07)
            record = Record(request, scopes, origin, mark, until, share, amounts)
        now = trio.current_time()
        if now - self._found_at > FOUND_TO:
            self._found_at = now
        record.found_at = self._found_at
        if not self._is_durable or self.can_be_stored(record):
            return record
        self._stats.inc("unstorable_requests")
        if mark is not None:
            await self._frontier.disclaim([mark])
        return None

    def can_be_stored(self, record: Record) -> bool:
        """Whether the job can store a request; if not, that is said. Without a job everything can."""
        reason = self._frontier.refusal(record) if self._is_durable else None
        if reason is not None:
            logger.error("%r is dropped, because the job can't store it: %s", record.request, reason)
        return reason is None


def page_entry(record: Record) -> Entry:
    """The core's entry for a leased record."""
    request = record.request
    return Entry(
        request,
        record.scopes,
        origin=record.origin,
        priority=request.priority,
        is_exempt=bool(request.meta_get("dont_throttle")),
        lease=record,
        share=record.share,
        amounts=record.amounts,
        order=record.order,
        found_at=record.found_at,
    )


def not_before(request: Request) -> float:
    """The instant before which meta ``delay`` (seconds from now) holds a request; 0.0 for none.

    Raises:
        ValueError: It is no number of seconds, or one that never ends.
        TypeError: It is nothing like a number.
    """
    delay = request.meta_get("delay")
    if not delay:
        return 0.0
    if not math.isfinite(seconds := float(delay)):
        raise ValueError(f"meta delay is a number of seconds, not {delay!r}")
    return trio.current_time() + seconds


def _in_chain(mark: bytes, request: Request) -> bool:
    """Whether ``mark`` is the fingerprint of a URL that redirected, step by step, to ``request``."""
    return any(fingerprint(request.replace(url=url)) == mark for url in request.meta_get("redirect_urls", ()))
