"""The scheduler: chooses the next request, for all its scopes at once, or the time before which none may be sent.

Pure: no clock, no Trio. The caller passes the time to :meth:`Scheduler.grant`, and starts the returned attempt before
its next await. If nothing is returned, it sleeps until :meth:`Scheduler.next_event`. It reports every change
(:meth:`~Scheduler.push`, :meth:`~Scheduler.withdraw`, :meth:`~Scheduler.sent`, :meth:`~Scheduler.give_back`,
:meth:`~Scheduler.changed`, :meth:`~Scheduler.opened`, :meth:`~Scheduler.close_gate`, :meth:`~Scheduler.open_gate`) and
calls :meth:`Scheduler.grant` again.

The order: direct fetches before pages, then by priority. Lanes of equal priority take turns, and within a lane the
oldest request is first. :mod:`trawl.scheduler.queues` explains how lanes wait and are woken, and
:mod:`trawl.scheduler.scope_queue` how requests with several scopes are kept from starving.

If user code runs before sends, a request is first in one lane and then in another. In the first it waits to be
*prepared*: its middleware runs, and it takes nothing. In the second it waits for its places
(:meth:`~Scheduler.prepared`), as other requests do in their only lane. So a request holds nothing while its middleware
awaits, and delays only the preparation of other pages.

A middleware that responds by itself may have sent a request as soon as it was called, so its response counts as sent
when the preparation started (:meth:`~Scheduler.responded`). Therefore a scope is *careful* (:attr:`Scope.is_careful`)
until middleware has awaited something and then sent the request: it prepares requests only as fast as they could be
sent.

Length: one object decides for all lanes and places. Queues, starvation and explanations are in their own modules.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING, cast

from trawl.scheduler.attempt import DIRECT, PAGE, PASSING, Attempt, LaneId
from trawl.scheduler.lanes import READY, Lane, OriginGate, Refused
from trawl.scheduler.queues import LaneQueues, LaterQueue, Preparations
from trawl.scheduler.reasons import (
    NO_PAGES,
    NO_PLACE,
    NO_PREPARATION,
    ReasonCount,
    StoredCount,
    waiting_in_steps,
    why,
    why_host,
    why_next,
    why_url,
)
from trawl.scheduler.scope_queue import PASSES, ScopeQueue
from trawl.throttling.scope import MAX_LEAD, MIN_LEAD

if TYPE_CHECKING:
    from trawl.frontier import LaneKey, SortKey
    from trawl.throttling.common import ScopeHolder
    from trawl.throttling.reasons import Reason
    from trawl.throttling.scope import Scope

__all__ = ["CAUTION", "Refused", "Scheduler", "reconsider"]

CAUTION = 16.0
"""Number of requests of a scope that user code must send after awaiting something to be assumed never to respond.

If the user code is a function around ``fetch`` and has never responded, one request is enough. More would be safer, but
would slow the start of each host behind such functions, which rarely respond.
"""


def reconsider(scheduler: Scheduler, scope: Scope, now: float) -> None:
    """Have the best attempt of every lane that waits for ``scope`` vetted at the next choice, before asking the scope.

    Otherwise they would be refused only when the scope opens, which may take minutes in a backoff.
    """
    for queues in (scheduler.queues, scheduler.preparations):
        queue = queues.scope_queues.get(scope.id)
        for lane in queue.lanes() if queue is not None else ():
            lane.head.is_vetted = False
            queues.make_ready(lane, now)


class Scheduler:
    """The lanes, scopes and places of one crawl."""

    __slots__ = (
        "_next_order",
        "_next_turn",
        "_now",
        "_scope_of",
        "_vet",
        "closed",
        "grants",
        "holder",
        "in_flight",
        "lanes",
        "later",
        "left_by",
        "looks",
        "pages_left",
        "pending",
        "pending_direct",
        "places",
        "preparations",
        "queues",
        "sub_requests",
    )

    def __init__(
        self,
        # Returns the scope of an id. Creates it at an event loop time if needed.
        scope_of: Callable[[str, float], Scope],
        *,
        # Maximum number of requests in flight; `inf` for no limit. May be changed during the crawl.
        places: float,
        depth_first: bool = False,  # whether the newest request of a lane is first, instead of the oldest
        # Returns why an attempt may not be sent at all, or None. Called when it is first checked and before its grant.
        vet: Callable[[Attempt, float], str | None] | None = None,
    ) -> None:
        self.places: float = places  # requests in flight at most
        self.pending: int = 0  # number of pending attempts
        self.pending_direct: int = 0  # number of pending direct attempts
        self.in_flight: int = 0  # number of attempts that have places
        self.sub_requests: int = 0  # number of these attempts that rendered pages have made
        # Maximum number of pages that are ahead or in flight when another page is prepared; `inf`: no limit. May be
        # set.
        self.pages_left: float = inf
        self.grants: int = 0  # number of grants so far
        self.looks: int = 0  # number of lanes checked so far
        self._scope_of = scope_of
        self._vet = vet
        self._next_order = (count(-1, -1) if depth_first else count(1)).__next__
        self._next_turn = count(1).__next__
        self._now = -inf
        # The ready and the waiting lanes. This attribute and the next four are for explanations and tests, and are only
        # read there.
        self.queues: LaneQueues = LaneQueues()
        # The same for lanes whose attempts wait to be prepared, and what is known about user code
        self.preparations: Preparations = Preparations()
        self.lanes: dict[LaneId, Lane] = {}  # the lanes with pending attempts
        self.later: LaterQueue = LaterQueue()  # attempts with a later time of their own
        self.closed: dict[str, OriginGate] = {}  # the closed gates by origin
        # The reason why the last choice granted nothing of a ready lane: no free place, or running callbacks; None if
        # it left no ready lane
        self.left_by: Reason | None = None
        # This crawl, for other crawls that have scopes in common with it; None if there are none
        self.holder: ScopeHolder | None = None

    # -- requests come and go

    def push(self, attempt: Attempt, now: float, not_before: float = 0.0) -> None:
        """Add ``attempt``. It is not granted before ``not_before``, and delays no other attempt until then.

        Raises:
            ValueError: If the attempt is already pending or under way.
        """
        if attempt.is_pending or attempt.is_under_way:
            raise ValueError(f"{attempt!r} is here already")
        attempt.pushed(now, not_before)
        self.pending += 1
        self.pending_direct += not attempt.is_page
        order = self._next_order()
        if not_before > now:
            self.later.add(attempt, not_before, order)
        else:
            self._line_up(attempt, order, now)

    def grant(self, now: float, *, pages: bool = True) -> Attempt | Refused | None:
        """Return the best attempt that may be sent at ``now``, with its place and scopes taken; None: none.

        The returned attempt may also be the best one to prepare. Then it has no task and no places. If ``pages`` is
        false, only direct attempts are returned. Returns :class:`Refused` for an attempt that may not be sent.
        """
        is_full, preparations = self.in_flight >= self.places, self.preparations
        if is_full and not preparations.has_user_code:
            self.left_by = NO_PLACE if self.queues.ready else None
            return None
        self._now = now
        if self.queues.timers:
            self.queues.advance(now)
        if preparations.has_user_code:
            self._count_overdue(now)
            preparations.advance(now)
        if self.later.heap:
            for attempt, order in self.later.due(now):
                self._line_up(attempt, order, now)
        if not (self.queues.ready or preparations.ready):
            self.left_by = None
            return None
        has_no_page = is_full or self.in_flight - self.sub_requests >= self.pages_left
        queues, no_pages = self.queues, NO_PLACE if has_no_page else None if pages else NO_PAGES
        left_by: Reason | None = None
        while True:
            ready = queues.ready
            while ready:
                ticket = ready[0]
                lane = ticket[5]
                # The lane has moved since this entry was made.
                if ticket[4] != lane.version:
                    heappop(ready)
                    continue
                # Direct fetches rank before pages, so none is behind this one. They need a place to be sent, but none
                # to be prepared.
                if no_pages is not None and (ticket[0] or (is_full and queues is not preparations)):
                    left_by = left_by or no_pages
                    break
                heappop(ready)
                self.looks += 1
                if (verdict := self._look(lane, now)) is not None:
                    return verdict
            if queues is preparations or not preparations.ready:
                self.left_by = left_by
                return None
            queues, no_pages = preparations, self.preparing_full_by() or (None if pages else NO_PAGES)

    def sent(self, attempt: Attempt, now: float, due_at: float = -inf) -> None:
        """Record that ``attempt`` was sent at ``now``, and could have been sent at ``due_at``. Safe to call twice."""
        if not attempt.is_under_way or attempt.times.sent_at is not None:
            return
        attempt.times.sent_at = self._now = now
        lane = attempt.lane
        assert lane is not None
        # Only now it is known when its scopes open again, because spacing counts from the send.
        lane.sent(attempt, now, due_at)
        self._wake(lane, now)

    def give_back(self, attempt: Attempt, now: float) -> None:
        """Release the places of ``attempt``, whose body is read or which failed. Safe to call twice."""
        if not attempt.is_under_way:
            return
        attempt.is_under_way = False
        self._now = now
        lane = attempt.lane
        assert lane is not None
        if attempt.has_places:
            attempt.has_places = False
            self.in_flight -= 1
            self.sub_requests -= attempt.is_sub_request
            lane.give_back(attempt, now)
        else:
            if attempt.is_pending:
                self.withdraw(attempt, now)
            else:
                self.preparations.running -= attempt.is_page
                for scope in lane.scopes:
                    scope.traffic.release(attempt.times.granted_at)
            self._ahead_no_more(attempt)
        self._wake(lane, now)

    def give_back_rest(self, attempt: Attempt, now: float) -> None:
        """Release the place in the scope ``browser``, because the page of ``attempt`` is closed. Safe to call twice."""
        if not attempt.keeps_page:
            return
        attempt.keeps_page = False
        self._now = now
        lane = attempt.lane
        assert lane is not None
        lane.give_back(attempt, now, is_rest=True)
        self._wake(lane, now)

    def prepared(self, attempt: Attempt, now: float, *, pages: bool = True) -> bool:
        """Have ``attempt``, whose middleware has run, wait for its places. Returns True if it was checked at once."""
        lane = attempt.lane
        assert lane is not None
        self._note_prepared(attempt, lane, now)
        attempt.is_pending = True
        attempt.is_vetted = False
        self.pending += 1
        self.pending_direct += not attempt.is_page
        self._line_up(attempt, self._next_order(), now)
        ready, running = self.queues.ready, self.preparations.running
        if running or len(ready) != 1 or self.in_flight >= self.places or (attempt.is_page and not pages):
            return False
        if (lane := ready[0][5]).where is not READY or lane.head is not attempt:
            return False
        heappop(ready)
        self.looks += 1
        return self._look(lane, now) is not None

    def needs_token(self, attempt: Attempt) -> bool:
        """Return True if a response of user code needs a token of the job's store to count; never here."""
        return False

    def responded(self, attempt: Attempt, now: float) -> None:
        """Count a response of user code to ``attempt`` as sent when its preparation started, or when its token came."""
        lane = attempt.lane
        assert lane is not None
        if attempt.is_pending or not attempt.is_under_way:  # the crawl is ending
            return
        if not attempt.has_places:
            self.preparations.running -= attempt.is_page
            self.preparations.ahead -= attempt.is_page
            self.in_flight += 1
            self.sub_requests += attempt.is_sub_request
        self.preparations.caution = CAUTION
        lane.responded(attempt)
        self.sent(attempt, attempt.times.granted_at)
        self._now = now
        self._wake(lane, now)

    def fetches(self, attempt: Attempt, now: float) -> None:
        """Record that the middleware of ``attempt`` makes a fetch, which must not wait until the middleware has run."""
        lane = attempt.lane
        if lane is not None and attempt.is_ahead and attempt.is_preparing and lane.is_careful:
            lane.count_no_more(attempt)
            for scope in lane.scopes:
                self._wake_preparations(scope, now)

    def _note_prepared(self, attempt: Attempt, lane: Lane, now: float) -> None:
        started_at = attempt.times.granted_at
        attempt.times.granted_at = now
        attempt.times.prepared_for = prepared_for = now - started_at
        self.preparations.awaits |= prepared_for > MIN_LEAD
        self.preparations.running -= attempt.is_page
        for scope in lane.scopes:
            scope.traffic.release(started_at)
            if lane.kind != PASSING and scope.let_through_one(prepared_for):
                self._let_direct_go(scope, now)
        if lane.kind == PAGE and not attempt.is_ahead:
            lane.count_ahead(attempt)

    def _let_direct_go(self, scope: Scope, now: float) -> None:
        """Prepare the direct fetches that waited for ``scope``, which is no longer careful."""
        queue = self.preparations.scope_queues.get(scope.id)
        for lane in queue.lanes() if queue is not None else ():
            if lane.kind < PAGE:
                self.preparations.make_ready(lane, now)
        self._wake_preparations(scope, now)

    def _ahead_no_more(self, attempt: Attempt) -> None:
        self.preparations.ahead -= attempt.is_page
        if attempt.is_ahead:
            assert attempt.lane is not None
            attempt.lane.count_no_more(attempt)

    def _count_overdue(self, now: float) -> None:
        """Stop counting as ahead attempts that take much longer in their middleware than others: they may hang."""
        while self.preparations.next_overdue() <= now:
            attempt = heappop(self.preparations.overdue)[2]
            assert attempt.lane is not None
            attempt.lane.count_no_more(attempt)
            for scope in attempt.lane.scopes:
                self._wake_preparations(scope, now)

    def _tell_holders(self, scope: Scope, now: float) -> None:
        for holder in scope.holders:
            if holder is not self.holder:
                holder.opened(scope, now)

    # -- what is pending, taken out again

    def withdraw(self, attempt: Attempt, now: float | None = None) -> bool:
        """Remove an attempt whose waiter was cancelled. Returns True if it was pending."""
        if not attempt.is_pending:
            return False
        now = self._now if now is None else now
        self._leave(attempt)
        lane = attempt.lane
        if lane is not None and lane.elsewhere:
            lane.wait_elsewhere(-1)
        # Another attempt than the best stays in the heap, and is dropped when it reaches the front.
        if lane is not None and lane.queue[0][3] is attempt:
            lane.drop_head()
            self._settle(lane, now)
        return True

    def withdraw_worst(self, lane: LaneKey, max_number: int) -> list[Attempt]:
        """Remove up to ``max_number`` of the worst pages of a lane, but not its best."""
        found = self.lanes.get(lane)
        if found is None:
            return []
        attempts = found.drop_worst(max_number)
        for attempt in attempts:
            self._leave(attempt)
        return attempts

    def leave(self, now: float) -> None:
        """Have the scopes stop counting lanes of this crawl, which has ended; other crawls may use the scopes."""
        for lane in self.lanes.values():
            lane.need_no_more(now)
        self.lanes.clear()

    # -- what else changes

    def opened(self, scope: Scope, now: float) -> bool:
        """Record a send or a released place of another crawl in ``scope``. Returns True if a lane waits for it."""
        is_awaited = False
        for queues in (self.queues, self.preparations):
            queue = queues.scope_queues.get(scope.id)
            if queue is not None:
                is_awaited = True
                queues.wake(queue, now)
                if queue.holders:
                    queues.wake_others(queue, now)
        return is_awaited

    def changed(self, scope: Scope, now: float) -> None:
        """Record that limits of ``scope`` changed, and check its waiting lanes again at once."""
        self._now = now
        if scope.quota is not None and scope.quota.is_late:
            scope.quota.is_late = False
            for queues in (self.queues, self.preparations):
                lanes = [lane for lane in self.lanes.values() if self._queues_of(lane) is queues]
                queues.line_up_anew(scope, lanes, now)
        for queues in (self.queues, self.preparations):
            queue = queues.scope_queues.get(scope.id)
            if queue is not None:
                # The old limits decided which lane was woken and which were set aside. -1: check all again.
                queue.woken = None
                queue.refills = -1
                queues.wake(queue, now)
                if queue.holders:
                    queues.wake_others(queue, now)

    def gate_of(self, origin: str) -> OriginGate | None:
        """Return the closed gate of ``origin``; None if it is open."""
        return self.closed.get(origin)

    def close_gate(self, origin: str, reason: Reason | None = None) -> None:
        """Grant nothing of ``origin`` except requests that pass its gate. Waiting requests get ``reason``."""
        gate = self.closed.setdefault(origin, OriginGate(origin))
        if reason is not None:
            gate.reason = reason

    def open_gate(self, origin: str, now: float) -> None:
        """Let the lanes that wait for ``origin`` continue in the order of their arrival. Safe if it is open."""
        self._now = now
        gate = self.closed.pop(origin, None)
        for lane in gate.waiting() if gate is not None else ():
            self._queues_of(lane).enter(lane, now)

    def waiting_at(self, origin: str) -> list[Attempt]:
        """Return the attempts that wait for the gate of ``origin``, by falling priority."""
        gate = self.closed.get(origin)
        return [] if gate is None else gate.attempts()

    # -- what can be asked

    def next_event(self, now: float) -> float:
        """Return the time at which :meth:`grant` may return something new; ``inf`` if only a change can help.

        Without a free place it is ``inf``, because the caller would spin on a time in the past.
        """
        preparations, is_full = self.preparations, self.in_flight >= self.places
        at = inf if is_full else self.queues.next_timer()
        if self.later.heap and (preparations.has_user_code or not is_full):
            at = min(at, self.later.next_at())
        return min(at, preparations.next_timer(), preparations.next_overdue()) if preparations.has_user_code else at

    def preparing_full_by(self) -> Reason | None:
        """Return why no page may be prepared, whatever its scopes are; None if one may.

        As many middlewares may run as there are places. While all places are taken, no page is prepared that would wait
        behind another prepared page, or whose middleware seems to await nothing.
        """
        is_taken, preparations = self.in_flight >= self.places, self.preparations
        pages = self.in_flight - self.sub_requests + preparations.ahead
        if preparations.running >= self.places or pages >= self.pages_left:
            return NO_PLACE if is_taken else NO_PREPARATION
        return NO_PLACE if is_taken and (not preparations.awaits or preparations.ahead > preparations.running) else None

    def full_by(self, lane: Lane) -> Reason | None:
        """Return why nothing in ``lane`` may be sent or prepared, whatever its scopes are; None if it may."""
        if lane.prepares:
            return self.preparing_full_by() if lane.kind == PAGE else None
        return NO_PLACE if self.in_flight >= self.places else None

    def has_ready(self) -> bool:
        """Return False if certainly no lane needs to be checked now."""
        return bool(self.queues.ready or self.preparations.ready)

    def buffered(self, lane: LaneKey) -> int:
        """Return the number of pages that wait in a lane, without pages that were pushed with a later time."""
        found = self.lanes.get(lane)
        return 0 if found is None else len(found.queue)

    def head(self, lane: LaneKey) -> SortKey | None:
        """Return the sort key of the best page that waits in a lane; None if none waits."""
        found = self.lanes.get(lane)
        return None if found is None else found.queue[0][:3]

    def pending_of(self, scope_id: str, stored: StoredCount) -> int:
        """Return the number of pending attempts with this scope, and of its further pages in the frontier."""
        lanes = [lane for lane in self.lanes.values() if any(scope.id == scope_id for scope in lane.scopes)]
        pages = [lane for lane in lanes if lane.kind == PAGE and not lane.was_prepared]
        return sum([len(lane.queue) for lane in lanes]) + sum([stored(cast("LaneKey", lane.id)) for lane in pages])

    def why(self, subject: object, now: float) -> Reason | None:
        """Return why an attempt, its request, a lane of pages or the scope with an id waits; None if it does not."""
        return why(self, subject, now)

    def why_host(self, host: str, now: float) -> Reason | None:
        """Return why a pending request to ``host`` waits, whatever its scopes are; None if none waits."""
        return why_host(self, host, now)

    def why_next(self, attempt: Attempt, now: float) -> Reason | None:
        """Return why the next attempt in the lane of ``attempt`` waits; None if there is none, or it may be sent."""
        return why_next(self, attempt, now)

    def why_url(self, url: str, now: float) -> Reason | None:
        """Return why the pending request for ``url`` waits, or else the next page of its host; None if none waits."""
        return why_url(self, url, now)

    def waiting_in_steps(
        self,
        clock: Callable[[], float],
        stored: StoredCount | None = None,
        by_scope: dict[str, int] | None = None,
    ) -> Generator[None, None, list[ReasonCount]]:
        """Group the pending attempts by the reason why they wait. Yields after each step."""
        return waiting_in_steps(self, clock, stored, by_scope)

    # -- inside

    def _line_up(self, attempt: Attempt, order: int, now: float) -> None:
        options = attempt.options
        lane_id = options.lane_id if attempt.task is None else ("prepared", options.lane_id)
        lane = self.lanes.get(lane_id)
        if lane is None:
            scope_of = self._scope_of
            scopes = () if attempt.is_exempt else tuple([scope_of(id, now) for id, _ in attempt.scopes])
            kind = PAGE if attempt.is_page else PASSING if options.passes_gate else DIRECT
            lane = self.lanes[lane_id] = Lane(lane_id, scopes, options.origin, kind)
            lane.was_prepared = attempt.task is not None
            lane.prepares = self.preparations.has_user_code and not lane.was_prepared
            if lane.prepares and self.preparations.caution:
                for scope in scopes:
                    if scope.traffic.caution < 0.0:
                        scope.traffic.caution = self.preparations.caution
            lane.need(tuple([amount for _, amount in attempt.scopes]) if lane.scopes else (), now)
            lane.add(attempt, order)
            lane.take_turn(self._next_turn())
            if not (self.closed and self._waits_at_gate(lane, now)):
                (self.preparations if lane.prepares else self.queues).enter(lane, now)
        # At a gate its rank does not matter, because all lanes continue when the gate opens.
        elif lane.add(attempt, order) and not isinstance(lane.where, OriginGate):
            queues = self.preparations if lane.prepares else self.queues
            queues.enter(lane, now)  # it has a new best attempt
            # It entered the queue of its quota. If another scope had woken it, wake the next lane there (W).
            if lane.where is not READY:
                queues.wake_next(lane, now)

    def _queues_of(self, lane: Lane) -> LaneQueues:
        return self.preparations if lane.prepares else self.queues

    def _waits_at_gate(self, lane: Lane, now: float) -> bool:
        """Return True if the gate of a lane's origin is closed. Then the lane waits there."""
        if lane.kind == PASSING:
            return False
        gate = self.closed.get(lane.origin)
        if gate is None:
            return False
        lane.wait_for(gate, now)
        gate.lanes[lane] = None
        return True

    def _look(self, lane: Lane, now: float) -> Attempt | Refused | None:
        """Grant or prepare a ready lane's best attempt, or send the lane to wait."""
        queues = self.preparations if lane.prepares else self.queues
        if self.closed and self._waits_at_gate(lane, now):
            if queues.let_go(lane):
                self._wake(lane, now)
            queues.wake_next(lane, now)
            return None
        attempt = lane.queue[0][3]
        is_vetted = attempt.is_vetted
        if not is_vetted and (reason := self._objection(attempt, now)) is not None:
            return self._refuse(lane, attempt, reason, now)
        # A callback or middleware waits for a direct fetch, so prepare it at once unless this may count as a send.
        is_free = lane.prepares and lane.kind < PAGE and not lane.is_careful
        queue, until = (None, now) if is_free else self._obstacle(lane, attempt, now)
        if queue is not None:
            if lane.was_prepared and lane.kind == PAGE and not attempt.has_fetched and queue.scope.is_far(until, now):
                return self._refuse(lane, attempt, "deferred", now)
            queues.block(lane, queue, until, now)
            queues.wake_next(lane, now)
            if until <= now and lane.kept_until:
                queues.wake(queue, now)  # the lane that kept it off may have lost its reservation
            if lane.elsewhere:  # its other scopes no longer count it as ahead
                for scope in lane.scopes:
                    self._wake_preparations(scope, now)
            return None
        if (
            is_vetted and (reason := self._objection(attempt, now)) is not None
        ):  # rules may have changed while it waited
            return self._refuse(lane, attempt, reason, now)
        return self._take(lane, attempt, now)

    def _objection(self, attempt: Attempt, now: float) -> str | None:
        attempt.is_vetted = True
        return None if self._vet is None or attempt.options.passes_gate else self._vet(attempt, now)

    def _refuse(self, lane: Lane, attempt: Attempt, reason: str, now: float) -> Refused:
        self._leave(attempt)
        lane.drop_head()
        if lane.was_prepared:
            attempt.is_under_way = False
            self._ahead_no_more(attempt)
        self._settle(lane, now)
        if lane.was_prepared:
            self._wake(lane, now)
        return Refused(attempt, reason)

    def _obstacle(self, lane: Lane, attempt: Attempt, now: float) -> tuple[ScopeQueue | None, float]:
        """Return the queue in which ``lane`` must wait and the time at which its scope opens; no queue if it may go.

        This is the queue of the scope that opens last. A full scope opens last of all. The scopes of a lane that others
        passed too often are reserved.
        """
        at: ScopeQueue | None = None
        worst = now
        queues = self.preparations if lane.prepares else self.queues
        scope_queues = queues.scope_queues
        for index, scope in enumerate(lane.scopes):
            amount = 1.0 if scope.quota is None else attempt.amount(index)
            until = scope.prepares_at(now, amount) if lane.prepares else scope.earliest_at(now, amount)
            if until > now:
                if until > worst:
                    worst = until
                    at = queues.queue_of(scope)
            elif scope.pages is not None and lane.awaits_pages(scope):
                at = at or queues.queue_of(scope)
            elif scope_queues and (queue := scope_queues.get(scope.id)) is not None and queue.keeps_off(lane, now):
                at = at or queue
        if at is not None and len(lane.scopes) > 1 and lane.passes() >= PASSES:
            queues.reserve(lane, now)
        return at, worst

    def _take(self, lane: Lane, attempt: Attempt, now: float) -> Attempt:  # noqa: PLR0912 - each call costs at each attempt
        queues = self.preparations if lane.prepares else self.queues
        scope_queues = queues.scope_queues
        self._leave(attempt)
        lane.drop_head()
        lane.version += 1
        lane.where = None
        self.grants += 1
        # It was ready earlier, but no place was free or too many callbacks ran.
        attempt.times.left_by = (self.left_by if lane.ready_at < now else None) or (
            attempt.times.left_by if lane.was_prepared else None
        )
        if lane.prepares:
            self.preparations.running += attempt.is_page
            self.preparations.ahead += attempt.is_page
            lane.prepare(attempt, now)
            if attempt.is_ahead:
                at = now + max([scope.patience for scope in lane.scopes], default=MAX_LEAD)
                heappush(self.preparations.overdue, (at, self.grants, attempt))
        else:
            self.in_flight += 1
            self.sub_requests += attempt.is_sub_request
            self.preparations.ahead -= lane.was_prepared and attempt.is_page
            lane.grant(attempt, now)
        attempt.is_under_way = True
        if attempt.is_exempt:
            # It takes none of its scopes, but its response may be a trigger for them.
            attempt.steps = tuple([self._scope_of(id, now).step for id, _ in attempt.scopes])
        if lane.kept_until:
            queues.let_go(lane)
        for scope in lane.scopes if scope_queues else ():
            if (queue := scope_queues.get(scope.id)) is not None and queue.woken is lane:
                queue.woken = None  # it gets a new turn, so others may rank before it
        if lane.queue:
            lane.take_turn(self._next_turn())
            queues.enter(lane, now)
        else:
            self._retire(lane, now)
        # Last, because the lane itself is now in the right place and may be woken.
        for scope in lane.scopes:
            if scope_queues and (queue := scope_queues.get(scope.id)) is not None:
                queues.wake(queue, now)
                if queue.holders:
                    queues.wake_others(queue, now)
            if queues is not self.preparations and self.preparations.scope_queues:
                self._wake_preparations(scope, now)
        return attempt

    def _wake_preparations(self, scope: Scope, now: float) -> None:
        preparations = self.preparations
        if (queue := preparations.scope_queues.get(scope.id)) is not None:
            queue.refills = -1  # fewer are ahead, so a larger amount may fit
            preparations.wake(queue, now)
            if queue.holders:
                preparations.wake_others(queue, now)

    def _wake(self, lane: Lane, now: float) -> None:
        queues, scope_queues = self.queues, self.queues.scope_queues
        for scope in lane.scopes:
            if scope_queues and (queue := scope_queues.get(scope.id)) is not None:
                queues.wake(queue, now)
                if queue.holders:
                    queues.wake_others(queue, now)
            if self.preparations.scope_queues:
                self._wake_preparations(scope, now)
            if scope.holders:
                self._tell_holders(scope, now)

    def _leave(self, attempt: Attempt) -> None:
        attempt.is_pending = False
        self.pending -= 1
        self.pending_direct -= not attempt.is_page

    def _settle(self, lane: Lane, now: float) -> None:
        """Move a lane that lost its best attempt, which changes its rank, and wake others."""
        queues = self._queues_of(lane)
        had_reserved = queues.let_go(lane)
        if not lane.queue:
            self._retire(lane, now)
        elif not isinstance(lane.where, OriginGate):
            queues.enter(lane, now)
        queues.wake_next(lane, now)
        if had_reserved:
            self._wake(lane, now)

    def _retire(self, lane: Lane, now: float) -> None:
        """Remove an empty lane, and queues that are no longer needed."""
        queues = self.preparations if lane.prepares else self.queues
        lane.need_no_more(now)
        del self.lanes[lane.id]
        for scope in lane.scopes if queues.scope_queues else ():
            # A common scope also counts lanes of other crawls, which are in the queues of those crawls.
            is_counted = bool(scope.holders) or self.preparations.has_user_code
            if not scope.waits.lanes or (is_counted and not queues.is_needed(scope)):
                queues.close_queue(scope)
