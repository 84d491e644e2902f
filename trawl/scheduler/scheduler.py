"""The scheduler: chooses the request that goes next, all its scopes at once, or the instant before which none may.

Pure: no clock, no Trio. The caller has the time, asks :meth:`Scheduler.grant`, starts what comes out with no await in
between (R18), and sleeps until :meth:`Scheduler.next_event` when nothing does. It reports every change
(:meth:`~Scheduler.push`, :meth:`~Scheduler.withdraw`, :meth:`~Scheduler.sent`, :meth:`~Scheduler.give_back`,
:meth:`~Scheduler.changed`, :meth:`~Scheduler.opened`, :meth:`~Scheduler.close_gate`, :meth:`~Scheduler.open_gate`) and
asks again.

The order: direct fetches before pages, then by priority, then lanes in turn, and inside a lane the oldest first (F12).
:mod:`trawl.scheduler.queues` tells how lanes wait and are woken, :mod:`trawl.scheduler.scope_queue` how requests of
several scopes are kept from starving.

Where a user's own code runs before the send, a grant has two steps: :meth:`Scheduler.grant` begins it, and its
middleware runs; then it asks for its places (:meth:`~Scheduler.place`), and gets them at once, or by
:meth:`~Scheduler.take_places` at its instant less the time to connect. So what a middleware awaits holds nothing, and
keeps nothing from going that it may wait for: others' pages only begin later for it.

A middleware that responds itself has asked the server by then. So in a guarded scope (:meth:`Scope.guard`) a grant has
its places when it begins, and a response counts as sent at that instant (:meth:`~Scheduler.responded`). It loses them
again (:meth:`~Scheduler.step_back`) if its middleware fetches something, or takes long: others may be waiting for what
it waits for.

Length: one object decides over all lanes and places; what could stand apart (queues, starvation, explanations) does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from heapq import heappop
from itertools import count
from math import inf
from typing import TYPE_CHECKING

from trawl.scheduler.grant import DIRECT, PAGE, PASSING, Grant, LaneId
from trawl.scheduler.lanes import READY, Lane, OriginGate, Refused
from trawl.scheduler.prepared import PreparedQueue
from trawl.scheduler.queues import BACKOFF_PATIENCE, LaneQueues, LaterQueue
from trawl.scheduler.reasons import (
    NO_BEGINNING,
    NO_PAGES,
    NO_PLACE,
    ReasonCount,
    StoredCount,
    waiting_in_steps,
    why,
    why_host,
    why_next,
)
from trawl.scheduler.scope_queue import PASSES, ScopeQueue, TokenQueue
from trawl.throttling.scope import MAX_LEAD, MAX_PREPARATION

if TYPE_CHECKING:
    from trawl.frontier import LaneKey, SortKey
    from trawl.throttling.common import ScopeHolder
    from trawl.throttling.reasons import Reason
    from trawl.throttling.scope import Scope

__all__ = ["Refused", "Scheduler", "reconsider"]


def reconsider(scheduler: Scheduler, scope: Scope, now: float) -> None:
    """Have the best grant of every lane that waits for ``scope`` vetted at the next choice, before the scope is asked.

    Without it they would be refused when the scope opens, which a backoff may put off for minutes.
    """
    queue = scheduler.queues.scope_queues.get(scope.id)
    for lane in queue.lanes() if queue is not None else ():
        lane.head.is_vetted = False
        scheduler.queues.make_ready(lane, now)


class Scheduler:
    """Lanes, scopes and places of one crawl.

    Args:
        scope_of: The scope of an id, made on demand at an instant.
        places: Requests in flight at most, over all; ``inf`` for no limit. May be set while the crawl runs.
        depth_first: Inside a lane the newest goes first, instead of the oldest.
        vet: Says why a grant may not go at all now, or None; asked when it is first looked at, and when it is to go.

    Attributes:
        places: Requests in flight at most.
        pending: Grants that wait.
        pending_direct: Those of them that are direct.
        in_flight: Those that were granted their places, and have not given them back.
        begins_without_places: Grants begin without their places: what their middleware awaits is awaited before they
            take them. May be set.
        has_middleware: Users' middleware runs before the send, which may respond instead of the wire. May be set.
        entered: Those that have places while their middleware runs, each with the instant at which it loses them.
        stepped_back: Told of a grant that is about to lose its places.
        begun: Those that have begun, and have no places yet.
        begun_direct: Those of them that are direct.
        prepared: Those of them that wait for their places.
        places_pages: True if prepared pages were given places when places were taken last; False: only direct fetches
            were.
        pages_left: No page begins without places while so many grants have begun or are in flight: no more pages are
            wanted. ``inf``: any number are. May be set.
        grants: The number ever granted.
        looks: Lanes ever looked at.
        queues: The ready and the waiting lanes, for explanations and tests, to be read only; so are the next three.
        lanes: The lanes that have something pending.
        later: What waits for a time of its own.
        closed: The closed gates, by origin.
        holder: The crawl, as others know it that have scopes in common with it; None: none has.
        left_by: Why the last choice left a ready lane: no place, or callbacks that run; None: it left none.
    """

    __slots__ = (
        "_next_order",
        "_next_turn",
        "_now",
        "_scope_of",
        "_sign",
        "_vet",
        "begins_without_places",
        "begun",
        "begun_direct",
        "closed",
        "entered",
        "grants",
        "has_middleware",
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
        "places_pages",
        "prepared",
        "queues",
        "stepped_back",
    )

    def __init__(
        self,
        scope_of: Callable[[str, float], Scope],
        *,
        places: float,
        depth_first: bool = False,
        vet: Callable[[Grant, float], str | None] | None = None,
    ) -> None:
        self.places: float = places
        self.pending: int = 0
        self.pending_direct: int = 0
        self.in_flight: int = 0
        self.begun: int = 0
        self.begun_direct: int = 0
        self.prepared: PreparedQueue = PreparedQueue()
        self.places_pages: bool = True
        self.pages_left: float = inf
        self.grants: int = 0
        self.looks: int = 0
        self._scope_of = scope_of
        self.begins_without_places: bool = False
        self.has_middleware: bool = False
        self.entered: dict[Grant, float] = {}
        self.stepped_back: Callable[[Grant], None] = _ignore
        self._vet = vet
        self._sign = -1 if depth_first else 1
        self._next_order = count(1).__next__
        self._next_turn = count(1).__next__
        self._now = -inf
        self.queues: LaneQueues = LaneQueues()
        self.lanes: dict[LaneId, Lane] = {}
        self.later: LaterQueue = LaterQueue()
        self.closed: dict[str, OriginGate] = {}
        self.left_by: Reason | None = None
        self.holder: ScopeHolder | None = None

    # -- requests come and go

    def push(self, grant: Grant, now: float, not_before: float = 0.0) -> None:
        """Take ``grant`` in; it does not go before the instant ``not_before``, and holds up no other until then.

        Raises:
            ValueError: The grant is pending or under way already.
        """
        if grant.is_pending or grant.is_under_way:
            raise ValueError(f"{grant!r} is here already")
        grant.pushed(now, not_before)
        self.pending += 1
        self.pending_direct += grant.is_direct
        order = self._sign * self._next_order()
        if not_before > now:
            self.later.add(grant, not_before, order)
        else:
            self._line_up(grant, order, now)

    def grant(self, now: float, *, pages: bool = True) -> Grant | Refused | None:
        """The best grant that may go at ``now``, with a place and its scopes taken; None when there is none.

        Where grants begin without their places, it is the best that may begin. With ``pages`` false only direct grants
        go. A :class:`Refused` comes out instead of a grant that may not go.
        """
        is_full = self.is_full() if self.begins_without_places else self.in_flight >= self.places
        if is_full and not self._may_begin_direct():
            self.left_by = self.full_by() if self.queues.ready else None
            return None
        self._now = now
        self.queues.advance(now)
        if self.later.next_at() <= now:
            for grant, order in self.later.due(now):
                self._line_up(grant, order, now)
        ready = self.queues.ready
        while ready:
            ticket = ready[0]
            lane = ticket[5]
            # Stale: the lane has gone elsewhere since.
            if ticket[4] != lane.version:
                heappop(ready)
                continue
            # Direct fetches rank before pages, so behind this one there is none.
            if ticket[0] and (is_full or not pages):
                self.left_by = self.full_by() if is_full else NO_PAGES
                return None
            if self.in_flight >= self.places and self.has_middleware and lane.is_guarded:
                self.left_by = NO_PLACE
                return None
            heappop(ready)
            self.looks += 1
            if (verdict := self._look(lane, now)) is not None:
                return verdict
        self.left_by = None
        return None

    def sent(self, grant: Grant, now: float, due_at: float = -inf) -> None:
        """Note that ``grant`` went to the wire at ``now``, and might have gone at ``due_at``. Safe to call twice."""
        if not grant.is_under_way or grant.sent_at is not None:
            return
        grant.sent_at = self._now = now
        lane = grant.lane
        assert lane is not None
        # Until now nobody knew when its scopes open again: spacing counts from the send.
        lane.sent(grant, now, due_at)
        self._wake(lane, now)

    def reached(self, grant: Grant, now: float) -> None:
        """Note that ``grant`` comes to the wire: users' middleware has run, and has not responded."""
        lane = grant.lane
        assert lane is not None
        self.entered.pop(grant, None)
        if lane.kind != PASSING:  # robots.txt says nothing of the pages
            for scope in lane.reached(grant, now):
                self.changed(scope, now)

    def responded(self, grant: Grant, at: float, now: float) -> None:
        """Note that user code responded to ``grant``, which has its places, so it counts as sent at ``at``."""
        lane = grant.lane
        assert lane is not None
        self.entered.pop(grant, None)
        grant.sent_at, self._now = at, now
        lane.responded(grant, at)
        self._wake(lane, now)

    def step_back(self, grant: Grant, now: float) -> None:
        """Take the places of ``grant`` away if its middleware runs: it asks for them again when that has run."""
        if self.entered.pop(grant, None) is None:
            return
        self.stepped_back(grant)
        lane = grant.lane
        assert lane is not None
        grant.has_places = False
        self.in_flight -= 1
        self.begun += 1
        self.begun_direct += grant.is_direct
        lane.step_back(grant)
        self._wake(lane, now)

    def step_back_late(self, now: float) -> None:
        """Take the places away of those whose middleware has run for long."""
        for grant in [grant for grant, until in self.entered.items() if until <= now]:
            self.step_back(grant, now)

    def give_back(self, grant: Grant, now: float) -> None:
        """Give the places of ``grant`` back: its body is read, or it failed. Safe to call twice."""
        if not grant.is_under_way:
            return
        self.entered.pop(grant, None)
        grant.is_under_way = False
        self._now = now
        lane = grant.lane
        assert lane is not None
        if grant.has_places:
            grant.has_places = False
            self.in_flight -= 1
            lane.give_back(grant, now)
        else:
            self.begun -= 1
            self.begun_direct -= grant.is_direct
            self._wait_no_more(grant)
            lane.begin_no_more(grant)
        self._wake(lane, now)

    # -- places of what has begun without

    def place(self, grant: Grant, now: float, *, pages: bool = True) -> bool:
        """Give ``grant``, which has begun and is about to be sent, its places, or have it wait for them.

        Returns True if it has them; False: :meth:`take_places` says when it goes on.
        """
        lane = grant.lane
        assert lane is not None
        lane.wait_for_places(grant, now)
        self.prepared.add(grant, self._group_key(grant))
        # Behind those that wait already: they are looked at in their order.
        if len(self.prepared) > 1 or self.in_flight >= self.places or not (pages or grant.is_direct):
            return False
        if self._objection(grant, now) is not None or self._place_at(lane, grant, now)[0] > now:
            return False
        self._place(grant, now)
        return True

    def take_places(self, now: float, *, pages: bool = True) -> list[Grant]:
        """Take the places of prepared grants that are free; returns the grants that go on, with places or without.

        Direct fetches first, then who came first. One whose instant has not come waits for it; a page that is not to go
        for long, or at all, goes on without places, and is not sent; but one whose middleware has fetched something
        waits as long as it takes. With ``pages`` false only direct grants get theirs.
        """
        self.places_pages = pages
        going: list[Grant] = []
        while self.in_flight < self.places and (grants := self.prepared.to_look(now)):
            for grant in grants:
                if self.in_flight >= self.places or not (pages or grant.is_direct):
                    return going
                if self._goes_on(grant, now):
                    going.append(grant)
        return going

    def _goes_on(self, grant: Grant, now: float) -> bool:
        """Give ``grant`` its places, if they are free, or let it go without; False: it waits."""
        lane, prepared = grant.lane, self.prepared
        assert lane is not None
        if prepared.kept_in(grant) is not None:
            prepared.wait_for_place(grant)
            return False
        if self._objection(grant, now) is None:
            at, last = self._place_at(lane, grant, now)
            if at <= now:
                self._place(grant, now)
                return True
            if at == inf:
                self._wake_behind(prepared.wait_for_place(grant, last), now)
                return False
            # By when another one may begin: else what is sent back might begin again at once.
            is_closed = now + MAX_LEAD < lane.begins_at(grant, now) < inf
            if grant.is_direct or grant.has_fetched or not is_closed:
                self._wake_behind(prepared.wait_until(grant, at, last), now)
                return False
        self._wait_no_more(grant)
        self._wake(lane, now)  # those behind it
        return True

    def _group_key(self, grant: Grant) -> object:
        """Return what prepared grants have in common that wait for the same, however long; None: a group of its own."""
        return grant.lane_id, grant.has_fetched

    def _place_at(self, lane: Lane, grant: Grant, now: float) -> tuple[float, tuple[Scope, ...]]:
        """Return the instant for the places of a prepared ``grant``, and what opens last (:meth:`Lane.place_at`)."""
        return lane.place_at(grant, now)

    def token_queue_of(self, grant: Grant, now: float) -> TokenQueue | None:
        """Return the ask whose token a prepared ``grant`` waits for; None: it needs none, or waits for something else.

        A plain scheduler asks for no tokens.
        """
        return None

    def _place(self, grant: Grant, now: float) -> None:
        assert grant.lane is not None
        self.prepared.passed(grant)
        self._wait_no_more(grant)
        self.begun -= 1
        self.begun_direct -= grant.is_direct
        self.in_flight += 1
        waited_from = grant.granted_at
        grant.lane.place(grant, now)
        if waited_from < now and all(scope.waits.opened_at < now for scope in grant.lane.scopes):
            grant.left_by = NO_PLACE if self.places_pages else NO_PAGES
        self._wake(grant.lane, now)

    def _wake_behind(self, scopes: Sequence[Scope], now: float) -> None:
        """Wake those that may begin in ``scopes``, because a prepared grant waits for another scope of its own."""
        for scope in scopes:
            if (queue := self.queues.scope_queues.get(scope.id)) is not None:
                self.queues.wake(queue, now)
            self._tell_holders(scope, now)

    def _tell_holders(self, scope: Scope, now: float) -> None:
        for holder in scope.holders:
            if holder is not self.holder:
                holder.opened(scope, now)

    def _wait_no_more(self, grant: Grant) -> None:
        if grant in self.prepared:
            self.prepared.discard(grant)
            assert grant.lane is not None
            grant.lane.wait_no_more()

    # -- what is pending, taken out again

    def withdraw(self, grant: Grant, now: float | None = None) -> bool:
        """Take a pending grant out again (its waiter was cancelled); returns True if it was pending."""
        if not grant.is_pending:
            return False
        now = self._now if now is None else now
        self._leave(grant)
        lane = grant.lane
        # One further behind stays in the heap: it is dropped when it comes to the front.
        if lane is not None and lane.queue[0][3] is grant:
            lane.drop_head()
            self._settle(lane, now)
        return True

    def withdraw_worst(self, lane: LaneKey, max_number: int) -> list[Grant]:
        """Take up to ``max_number`` of the worst pages of a lane out again, its best excepted."""
        found = self.lanes.get(lane)
        if found is None:
            return []
        grants = found.drop_worst(max_number)
        for grant in grants:
            self._leave(grant)
        return grants

    def leave(self, now: float) -> None:
        """Have the scopes count no lane of this crawl any more: it has ended, and others may hold them."""
        for lane in self.lanes.values():
            lane.need_no_more(now)
        self.lanes.clear()

    # -- what else changes

    def opened(self, scope: Scope, now: float) -> bool:
        """Note that another crawl, which holds ``scope`` too, gave a place back or sent. True: a lane waits for it."""
        self.prepared.stir(scope)
        queue = self.queues.scope_queues.get(scope.id)
        if queue is not None:
            self.queues.wake(queue, now)
        self.queues.check_kept(scope, now)
        return queue is not None or scope.prepared > 0

    def changed(self, scope: Scope, now: float) -> None:
        """Note that limits of ``scope`` moved: its waiting lanes are looked at again at once (I12, P13)."""
        self._now = now
        self.prepared.stir(scope)
        if scope.quota is not None and scope.quota.is_late:
            scope.quota.is_late = False
            self.queues.line_up_anew(scope, self.lanes.values(), now)
        queue = self.queues.scope_queues.get(scope.id)
        if queue is not None:
            # It was woken under the old limits, and those aside were set aside under them (-1: look through all).
            queue.woken = None
            queue.refills = -1
            self.queues.wake(queue, now)
        self.queues.check_kept(scope, now)

    def gate_of(self, origin: str) -> OriginGate | None:
        """The closed gate of ``origin``; None when it is open."""
        return self.closed.get(origin)

    def close_gate(self, origin: str, reason: Reason | None = None) -> None:
        """Let nothing of ``origin`` go but direct grants that pass it; ``reason`` is what those who wait are told."""
        gate = self.closed.setdefault(origin, OriginGate(origin))
        if reason is not None:
            gate.reason = reason
        claimant = self.queues.claims.claimant
        if claimant is not None and claimant.origin == origin and claimant.kind != PASSING:
            self.queues.end_claim(claimant, self._now)

    def open_gate(self, origin: str, now: float) -> None:
        """Let what waits for ``origin`` go on, in the order of coming. Safe to call when it is open."""
        self._now = now
        gate = self.closed.pop(origin, None)
        for lane in gate.waiting() if gate is not None else ():
            self.queues.enter(lane, now)

    def waiting_at(self, origin: str) -> list[Grant]:
        """Return the grants that wait for the gate of ``origin``, the highest priority first."""
        gate = self.closed.get(origin)
        return [] if gate is None else gate.grants()

    # -- what can be asked

    def next_event(self, now: float) -> float:
        """The instant at which :meth:`grant` may have something new; ``inf`` when only a change can help.

        While no place is free it is ``inf``: a deadline that has passed would make the caller spin.
        """
        if not self.begins_without_places:
            return inf if self.in_flight >= self.places else min(self.queues.next_timer(), self.later.next_at())
        places_at = self.prepared.next_at() if self.in_flight < self.places else inf
        places_at = min(places_at, next(iter(self.entered.values()), inf))
        if self.is_full() and not self._may_begin_direct():
            return places_at
        return min(places_at, self.queues.next_timer(), self.later.next_at())

    def is_full(self) -> bool:
        """Return True if no page may go, or begin, because no place is free.

        Where they begin without, the middleware of as many may run as there are places; those that wait for an instant
        of their own run none, and may be many. While all places are taken none begins that would have to wait behind
        another.
        """
        is_taken = self.in_flight >= self.places
        if not self.begins_without_places:
            return is_taken
        if self.begun - len(self.prepared) >= self.places or self.in_flight + self.begun >= self.pages_left:
            return True
        return is_taken and bool(self.prepared)

    def full_by(self) -> Reason:
        """Return why no page may go, or begin, where :meth:`is_full` says so."""
        return NO_PLACE if self.in_flight >= self.places else NO_BEGINNING

    def _may_begin_direct(self) -> bool:
        """Return True if a direct fetch may begin though no page may: those that have begun may wait for it."""
        return self.begins_without_places and self.pending_direct > 0

    def has_ready(self) -> bool:
        """Return False if it is certain that no lane waits to be looked at now."""
        return bool(self.queues.ready)

    def buffered(self, lane: LaneKey) -> int:
        """Count the pages that wait in a lane; those that were pushed with a later time are not among them yet."""
        found = self.lanes.get(lane)
        return 0 if found is None else len(found.queue)

    def head(self, lane: LaneKey) -> SortKey | None:
        """The key of the best page that waits in a lane; None when none does."""
        found = self.lanes.get(lane)
        return None if found is None else found.queue[0][:3]

    def why(self, subject: object, now: float) -> Reason | None:
        """Explain why a grant, its request, a lane of pages, or a scope (by its id) waits; None: it does not."""
        return why(self, subject, now)

    def why_host(self, host: str, now: float) -> Reason | None:
        """Explain why a pending request to ``host`` waits, whatever its scopes are; None: nothing holds one up."""
        return why_host(self, host, now)

    def why_next(self, grant: Grant, now: float) -> Reason | None:
        """Explain why the next grant in the lane of ``grant`` waits; None: there is none, or nothing holds it up."""
        return why_next(self, grant, now)

    def waiting_in_steps(
        self, clock: Callable[[], float], stored: StoredCount | None = None
    ) -> Generator[None, None, list[ReasonCount]]:
        """Group the pending grants by the reason for which they wait, and yield after each step."""
        return waiting_in_steps(self, clock, stored)

    # -- inside

    def _line_up(self, grant: Grant, order: int, now: float) -> None:
        lane = self.lanes.get(grant.lane_id)
        if lane is None:
            scope_of = self._scope_of
            scopes = () if grant.is_exempt else tuple([scope_of(id, now) for id, _ in grant.scopes])
            if self.has_middleware:
                for scope in scopes:
                    scope.guard()
            elif self.begins_without_places:
                for scope in scopes:
                    scope.begins_without_places = True
            kind = PAGE if not grant.is_direct else PASSING if grant.passes_gate else DIRECT
            lane = self.lanes[grant.lane_id] = Lane(grant.lane_id, scopes, grant.origin, kind)
            lane.need(tuple([amount for _, amount in grant.scopes]) if lane.scopes else (), now)
            lane.add(grant, order)
            lane.take_turn(self._next_turn())
            if not (self.closed and self._waits_at_gate(lane, now)):
                self.queues.enter(lane, now)
        # At a gate its rank does not matter: all lanes go on when that opens.
        elif lane.add(grant, order) and not isinstance(lane.where, OriginGate):
            self.queues.enter(lane, now)  # a better head: to be looked at again
            # It went to the queue of its quota; if another scope had woken it, the next lane is woken there (W).
            if lane.where is not READY:
                self.queues.wake_next(lane, now)

    def _waits_at_gate(self, lane: Lane, now: float) -> bool:
        """Return True if the gate of a lane's origin is closed; the lane then waits there."""
        if lane.kind == PASSING:
            return False
        gate = self.closed.get(lane.origin)
        if gate is None:
            return False
        lane.wait_for(gate, now)
        gate.lanes[lane] = None
        return True

    def _look(self, lane: Lane, now: float) -> Grant | Refused | None:
        """Grant a ready lane's best grant, or send the lane to wait."""
        queues = self.queues
        if self.closed and self._waits_at_gate(lane, now):
            queues.end_claim(lane, now)
            if lane.is_kept_for:
                queues.let_go(lane)
                self._wake(lane, now)
            queues.wake_next(lane, now)
            return None
        grant = lane.queue[0][3]
        is_vetted = grant.is_vetted
        if not is_vetted and (reason := self._objection(grant, now)) is not None:
            return self._refuse(lane, grant, reason, now)
        queue, until = self._obstacle(lane, grant, now)
        if queue is not None:
            queues.block(lane, queue, until, now)
            queues.wake_next(lane, now)
            return None
        if is_vetted and (reason := self._objection(grant, now)) is not None:  # rules may have changed while it waited
            return self._refuse(lane, grant, reason, now)
        return self._take(lane, grant, now)

    def _objection(self, grant: Grant, now: float) -> str | None:
        grant.is_vetted = True
        return None if self._vet is None or grant.passes_gate else self._vet(grant, now)

    def _refuse(self, lane: Lane, grant: Grant, reason: str, now: float) -> Refused:
        self._leave(grant)
        lane.drop_head()
        self._settle(lane, now)
        return Refused(grant, reason)

    def _obstacle(self, lane: Lane, grant: Grant, now: float) -> tuple[ScopeQueue | None, float]:
        """Return the queue that ``lane`` has to wait in, and the instant its scope opens; no queue: it may go.

        It is the scope that opens last, "full" counting as never. A lane that contention has kept off too often, with
        all that is in its way being contention, asks for the claim.
        """
        at: ScopeQueue | None = None
        worst = now
        is_contention, may_claim, scope_queues = True, len(lane.scopes) > 1, self.queues.scope_queues
        for index, scope in enumerate(lane.scopes):
            amount = 1.0 if scope.quota is None else grant.amount(index)
            # It may be in common with another crawl, whose grants begin without.
            self.begins_without_places |= scope.begins_without_places
            until = scope.gate(now, amount)
            if until > now:
                if may_claim and scope.is_shut(now, amount, BACKOFF_PATIENCE):
                    is_contention = False
                if until > worst:
                    worst = until
                    at = self.queues.queue_of(scope)
            elif scope_queues and (queue := scope_queues.get(scope.id)) is not None and queue.keeps_off(lane, now):
                is_contention = is_contention and not queue.saves(lane, now)
                at = at or queue
            elif scope.begins_without_places and lane.kind == PAGE and (until := scope.begins_at(now, amount)) > now:
                if worst < until < inf:
                    worst, at = until, None
                at = at or self.queues.queue_of(scope)
        if at is not None and may_claim:
            if not is_contention:
                self.queues.end_claim(lane, now)
            elif not lane.is_claiming and lane.passes() >= PASSES:
                self.queues.claim(lane)
        return at, worst

    def _take(self, lane: Lane, grant: Grant, now: float) -> Grant:  # noqa: PLR0912 - each call costs at each grant
        queues, scope_queues = self.queues, self.queues.scope_queues
        # Before the head goes: the rank that this grant had is compared with the claimant's.
        rank = lane.rank() if queues.claims.claimant is not None else None
        self._leave(grant)
        lane.drop_head()
        lane.version += 1
        lane.where = None
        self.grants += 1
        # It was ready before this instant, and no place or no callback was free then.
        grant.left_by = self.left_by if lane.ready_at < now else None
        if self.begins_without_places and not (self.has_middleware and lane.is_guarded):
            self.begun += 1
            self.begun_direct += grant.is_direct
            lane.begin(grant, now)
        else:
            self.in_flight += 1
            lane.grant(grant, now)
            if self.has_middleware:
                self.entered[grant] = now + MAX_PREPARATION
        grant.is_under_way = True
        if grant.is_exempt:
            # It takes none of its scopes, but its answer may be a trigger for them (B19).
            grant.steps = tuple([self._scope_of(id, now).step for id, _ in grant.scopes])
        if lane.is_kept_for:
            queues.let_go(lane)
        if lane.is_claiming or lane.is_starving:
            queues.end_claim(lane, now)
        elif rank is not None:
            queues.yield_claim(lane, rank, now)
        for scope in lane.scopes:
            if scope_queues and (queue := scope_queues.get(scope.id)) is not None and queue.woken is lane:
                queue.woken = None  # it will have a new turn, others may be before it then
        if lane.queue:
            lane.take_turn(self._next_turn())
            queues.enter(lane, now)
        else:
            self._retire(lane, now)
        # Last: the lane itself stands where it belongs by now, and is among those that may be woken.
        for scope in lane.scopes:
            if scope_queues and (queue := scope_queues.get(scope.id)) is not None:
                queues.wake(queue, now)
            if queues.keeping:
                queues.check_kept(scope, now)
        return grant

    def _wake(self, lane: Lane, now: float) -> None:
        queues, scope_queues = self.queues, self.queues.scope_queues
        for scope in lane.scopes:
            if scope_queues and (queue := scope_queues.get(scope.id)) is not None:
                queues.wake(queue, now)
            if queues.keeping:
                queues.check_kept(scope, now)
            if scope.prepared:
                self.prepared.stir(scope)
            if scope.holders:
                self._tell_holders(scope, now)

    def _leave(self, grant: Grant) -> None:
        grant.is_pending = False
        self.pending -= 1
        self.pending_direct -= grant.is_direct

    def _settle(self, lane: Lane, now: float) -> None:
        """Put a lane that has lost its head where it belongs, and wake others instead: its rank has changed."""
        queues = self.queues
        was_kept_for = lane.is_kept_for
        if was_kept_for:
            queues.let_go(lane)
        if not lane.queue:
            self._retire(lane, now)
        elif not isinstance(lane.where, OriginGate):
            queues.enter(lane, now)
        queues.wake_next(lane, now)
        if was_kept_for:
            self._wake(lane, now)

    def _retire(self, lane: Lane, now: float) -> None:
        """Forget an empty lane, and the queues that are no longer needed."""
        queues = self.queues
        lane.need_no_more(now)
        del self.lanes[lane.id]
        queues.end_claim(lane, now)
        for scope in lane.scopes:
            # A scope in common counts other crawls' lanes too, which are in their own queues.
            if not scope.lanes or (scope.holders and not queues.is_needed(scope)):
                queues.close_queue(scope)


def _ignore(grant: Grant) -> None:
    """Hear of a grant that loses its places; nobody else does."""
