"""What the core chooses among: grants, and the lanes that line them up.

An *grant* is one request with what the choice needs to know of it. A *lane* holds the grants that need the same scopes
and the same origin; its best grant stands for all of them. Pages and direct fetches (a callback in the middle waits for
them) are in lanes of their own, and so are direct fetches that pass a closed gate (robots.txt itself).

Closed gates of origins: a lane whose origin's robots.txt is not read yet waits for it, and no other lane does.

The chooser knows that a gate is closed and nothing of why. Whoever closed it (the engine, which then asks for
robots.txt) opens it when the rules are known, or keeps it closed with a time when the server failed.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from trawl.frontier import Amounts, LaneKey, Record, Scopes, lane_key
from trawl.throttling.explain import Reason

if TYPE_CHECKING:
    from trawl.http import Times
    from trawl.scheduler.scope_queue import ScopeQueue
    from trawl.throttling.scope import Scope

__all__ = [
    "PAGE",
    "PASSING",
    "READY",
    "Grant",
    "Lane",
    "LaneId",
    "OriginGate",
    "Rank",
    "Refused",
    "amounts_of",
]


class OriginGate:
    """The closed gate of one origin.

    Attributes:
        origin: Whose it is.
        reason: What a waiting lane is told.
        lanes: The lanes that came to it, in the order of coming; some may be empty by now.
    """

    __slots__ = ("lanes", "origin", "reason")

    def __init__(self, origin: str) -> None:
        self.origin: str = origin
        self.reason: Reason = Reason(origin, "gate", inf, "robots.txt")
        self.lanes: dict[Lane, None] = {}

    def waiting(self) -> list[Lane]:
        """The lanes that still wait here, in the order of coming."""
        return [lane for lane in self.lanes if lane.where is self]

    def closed_for(self, now: float) -> float:
        """What the time that a lane waits here is counted by: it is closed as long as it is there."""
        return now

    def best_priority(self) -> int:
        """The highest priority that waits here; 0 when nothing does."""
        return max((lane.head.priority for lane in self.waiting()), default=0)


Rank: TypeAlias = "tuple[bool, int, int]"
"""What orders lanes, the least first: direct before page, then minus priority, then the turn."""

LaneId: TypeAlias = "LaneKey | tuple[LaneKey, int]"
"""The frontier's key for a lane of pages; with the kind for the others."""

DIRECT, PASSING, PAGE = range(3)
"""Kinds of lanes. Exempt pages are in the lane of those that need no scope."""

READY = "ready"
"""Where a lane is that will be looked at at the next choice."""


def amounts_of(scopes: Scopes) -> Amounts:
    """The amounts that a request names.

    Those of scopes without a quota count as well: it may get one while the request waits.
    """
    for _, amount in scopes:
        if amount is not None:
            return tuple([amount for _, amount in scopes])
    return ()


class Grant:
    """One request from the moment it may wait for its turn to its end: what waits, what is granted, what is on its way.

    The scheduler makes the choice by the first group of attributes and fills in the second; the rest is the engine's,
    set while the request's task runs. One grant is good for one send.

    Args:
        request: What is to be sent; the scheduler does not look into it.
        scopes: Scope ids, sorted, each with its expected amount (None: not named, counts 1.0).
        origin: The origin whose gate (robots.txt) it waits for.
        priority: Higher goes first.
        is_direct: Goes before pages, whatever its priority: a callback waits for it.
        is_exempt: Takes no scope (``dont_throttle``); it still counts for the crawl's places.
        is_diverted: Its scopes and origin are those of what its middleware last made of its request.
        passes_gate: Does not wait for its origin's gate: it is what opens it. Implies ``is_direct``.
        share: The first amount that it names: the larger goes first in a lane, if a lane has several.
        order: Its place among equals, less first; None: the order of coming. Grants of one lane have all one or all
            none.
        lease: The frontier's record of a page; None for a direct fetch.
        lane_id: The lane that it lines up in; None: it is made of the other arguments.
        waiter: Gets the outcome of a direct fetch; None for a page.
        found_at: When it was found, where that was before it is pushed.

    Attributes:
        lane: The lane it is or was in.
        slots: While it is in flight, its slot number in each of its scopes, in their order.
        steps: Each scope's backoff step when it was granted, in the order of ``scopes``.
        found_at: When it was found, on the run clock; unless it is given, when it was pushed first.
        pushed_at: When it was pushed last.
        granted_at: When it was granted.
        left_by: Why it was left though its scopes were open, before it was granted; None: it was not.
        throttled: Seconds for which it was first in its line and could not have gone with a free place: see
            :mod:`trawl.http.times`. Known when it is granted.
        sent_at: When it went to the wire; None if it did not (yet).
        is_pending: Pushed, and neither granted, refused nor withdrawn.
        is_in_flight: Granted, and its places not given back.
        is_vetted: It was asked already if it may go at all.

        cancel_scope: Its task's own: cancelling it ends this request and no other. None until the task is started.
        original: Its request as it was then, before the middleware.
        responder: Answers it instead of the wire; None: it is sent.
        diverted: What the request needs that its middleware has made of it; None: nothing else than was granted.
        times: Where its time went so far; None where nothing was sent, nor answered instead of the wire.
        read_at: When the body had been read, or the error came; None before.
        is_used: The transport was asked.
        is_stopped: It was not sent, because it was granted for another request.
        is_counted: Its response was counted as a page.
        is_decided: It is known if it was one.
        is_done: It ended by itself, its outputs are stored.
    """

    __slots__ = (
        "cancel_scope",
        "diverted",
        "found_at",
        "granted_at",
        "is_counted",
        "is_decided",
        "is_direct",
        "is_diverted",
        "is_done",
        "is_exempt",
        "is_in_flight",
        "is_pending",
        "is_stopped",
        "is_used",
        "is_vetted",
        "lane",
        "lane_id",
        "lease",
        "left_by",
        "not_before",
        "order",
        "origin",
        "original",
        "passes_gate",
        "priority",
        "pushed_at",
        "read_at",
        "request",
        "responder",
        "scopes",
        "sent_at",
        "share",
        "slots",
        "steps",
        "throttled",
        "times",
        "waiter",
    )

    def __init__(
        self,
        request: Any,
        scopes: Scopes,
        *,
        origin: str = "",
        priority: int = 0,
        is_direct: bool = False,
        is_exempt: bool = False,
        is_diverted: bool = False,
        passes_gate: bool = False,
        share: float = 0.0,
        order: int | None = None,
        lease: Any = None,
        lane_id: LaneId | None = None,
        waiter: Any = None,
        found_at: float | None = None,
    ) -> None:
        self.request: Any = request
        self.scopes: Scopes = scopes
        self.origin: str = origin
        self.priority: int = priority
        self.is_direct: bool = is_direct or passes_gate
        self.is_exempt: bool = is_exempt
        self.is_diverted: bool = is_diverted
        self.passes_gate: bool = passes_gate
        self.share: float = share
        self.order: int | None = order
        self.lease: Any = lease
        self.waiter: Any = waiter
        self.found_at: float | None = found_at
        if lane_id is None:
            key = lane_key(scopes, origin, amounts_of(scopes), is_exempt=is_exempt)
            lane_id = key if not self.is_direct else (key, PASSING if passes_gate else DIRECT)
        self.lane_id: LaneId = lane_id
        self.lane: Lane | None = None
        self.slots: tuple[int, ...] = ()
        self.steps: tuple[int, ...] = ()
        self.pushed_at: float = -inf
        self.granted_at: float = -inf
        self.left_by: Reason | None = None
        self.throttled: float = 0.0
        self.sent_at: float | None = None
        self.not_before: float = 0.0
        self.is_pending: bool = False
        self.is_vetted: bool = False
        self.is_in_flight: bool = False
        # The engine's own. Typed as Any, because the scheduler knows neither Trio nor what is above it.
        self.cancel_scope: Any = None
        self.original: Any = None
        self.responder: Any = None
        self.diverted: Any = None
        self.times: Times | None = None
        self.read_at: float | None = None
        self.is_used: bool = False
        self.is_stopped: bool = False
        self.is_counted: bool = False
        self.is_decided: bool = False
        self.is_done: bool = False

    @classmethod
    def of_record(cls, record: Record) -> Grant:
        """Make the grant that a leased page waits with."""
        return cls(
            record.request,
            record.scopes,
            origin=record.origin,
            priority=record.request.priority,
            is_exempt=record.is_exempt,
            is_diverted=record.is_diverted,
            share=record.share,
            order=record.order,
            lease=record,
            lane_id=record.lane,
            found_at=record.found_at,
        )

    @property
    def is_page(self) -> bool:
        """Whether it is a page of the frontier; otherwise somebody waits for it: a direct fetch, or robots.txt."""
        return self.waiter is None

    def pushed(self, now: float, not_before: float) -> None:
        """Note that it waits from ``now`` on, and does not go before the instant ``not_before``."""
        self.is_pending = True
        self.is_vetted = False
        self.lane = None
        self.sent_at = None
        self.not_before = not_before
        self.pushed_at = now
        if self.found_at is None:
            self.found_at = now

    @property
    def queued(self) -> float:
        """Seconds that it waited, from when it was found, for others and not for a scope; known when it is granted."""
        found_at = self.granted_at if self.found_at is None else self.found_at
        return self.granted_at - found_at - self.throttled

    def amount(self, index: int) -> float:
        """What it is expected to use of its scope number ``index``; 1.0 where none is named."""
        amount = self.scopes[index][1]
        return 1.0 if amount is None else amount

    def __lt__(self, other: Grant) -> bool:
        return False  # two equal keys in a heap: either may go first

    def __repr__(self) -> str:
        return f"<Grant {self.request!r} priority={self.priority} scopes={[scope for scope, _ in self.scopes]}>"


@attrs.frozen
class Refused:
    """A grant that may not go at all; it has left its lane and took nothing.

    Attributes:
        grant: What may not go.
        reason: Why, as ``vet`` said.
    """

    grant: Grant
    reason: str


class Lane:
    """Entries that need the same scopes and origin. Hot, so mutable and slotted; the chooser alone changes it.

    Attributes:
        id: Its key.
        asks: What its requests ask of each of its scopes; None where they name no amount.
        scopes: Its scopes, sorted by id: no policy iterates a set.
        queue: A heap of its grants.
        turn: When it last came to the end of the line: lanes of equal priority take turns.
        version: Moves whenever the lane changes its place, so that what heaps remember of it goes stale.
        where: None (nowhere), READY, the room of the one scope it waits for, or its origin's closed gate.
        held: Seconds for which its first could not have gone with a free place, since the one before it went.
        mark: What it counts ``held`` from, where it waits; when it became ready, where it is that.
        bases: The scopes' grant counters at its turn, for lanes of several scopes or a quota: how often was it passed?
        is_claiming: Whether it is the claimant.
        is_starving: Whether it is in line to be the claimant.
        is_kept_for: Whether a quota is kept for it.
        passed_at: Its version when its room noted that the amount left did not do for it.
    """

    __slots__ = (
        "asks",
        "bases",
        "held",
        "id",
        "is_claiming",
        "is_kept_for",
        "is_starving",
        "kind",
        "mark",
        "origin",
        "passed_at",
        "queue",
        "scopes",
        "turn",
        "version",
        "where",
    )

    def __init__(self, id: LaneId, scopes: tuple[Scope, ...], origin: str = "", kind: int = PAGE) -> None:
        self.id: LaneId = id
        self.asks: Amounts = ()
        self.scopes: tuple[Scope, ...] = scopes
        self.origin: str = origin
        self.kind: int = kind
        self.queue: list[tuple[int, float, int, Grant]] = []
        self.turn: int = 0
        self.version: int = 0
        self.where: str | ScopeQueue | OriginGate | None = None
        self.held: float = 0.0
        self.mark: float = 0.0
        self.bases: list[int] | None = None
        self.is_claiming: bool = False
        self.is_starving: bool = False
        self.is_kept_for: bool = False
        self.passed_at: int = -1

    def __lt__(self, other: Lane) -> bool:
        return False  # two tickets of which one is stale: turns change hands

    @property
    def head(self) -> Grant:
        """Its best grant. The lane must not be empty."""
        return self.queue[0][3]

    def rank(self) -> Rank:
        """Its place among lanes, by its best grant."""
        return (self.kind >= PAGE, self.queue[0][0], self.turn)

    def add(self, grant: Grant, order: int) -> bool:
        """Line ``grant`` up; whether it is the best now."""
        if grant.order is not None:
            order = grant.order
        grant.lane = self
        heappush(self.queue, (-grant.priority, -grant.share, order, grant))
        return self.queue[0][3] is grant

    def drop_head(self) -> None:
        """Remove the best grant, and those behind it that were withdrawn."""
        queue = self.queue
        heappop(queue)
        while queue and not queue[0][3].is_pending:
            heappop(queue)

    def drop_worst(self, most: int) -> list[Grant]:
        """Remove up to ``most`` of the worst pending grants, its best excepted; those that were withdrawn go too."""
        line = sorted([place for place in self.queue if place[3].is_pending])
        keep = max(1, len(line) - most)
        self.queue[:] = line[:keep]  # sorted, it is a heap
        return [place[3] for place in line[keep:]]

    def wait_at(self, where: ScopeQueue | OriginGate, now: float) -> None:
        """Note that it waits there from ``now`` on."""
        self.version += 1
        self.where = where
        self.mark = where.closed_for(now)
        if isinstance(where, OriginGate):
            for scope in self.scopes:
                scope.stop(now)

    def leave(self, now: float) -> None:
        """Count how long the place where it waited was closed, if it waited; to be called before it goes elsewhere."""
        where = self.where
        if where is not None and not isinstance(where, str):
            self.held += max(0.0, where.closed_for(now) - self.mark)
            if isinstance(where, OriginGate):
                for scope in self.scopes:
                    scope.go_on(now)

    def begin(self, asks: Amounts, now: float) -> None:
        """Have its scopes count it: it has something pending, and its requests ask ``asks`` of them."""
        self.asks = asks
        for scope, amount in zip(self.scopes, asks, strict=True):
            scope.need(amount, now)

    def end(self, now: float) -> None:
        """Have them count it no more: it is empty."""
        self.leave(now)
        self.version += 1
        self.where = None
        for scope, amount in zip(self.scopes, self.asks, strict=True):
            scope.need_no_more(amount, now)

    def grant(self, grant: Grant, now: float) -> None:
        """Occupy a place in each of its scopes for ``grant``, which was its first."""
        grant.granted_at = now
        held = self.held
        if grant.not_before:
            began_at = grant.pushed_at if grant.found_at is None else grant.found_at
            held += max(0.0, grant.not_before - began_at)
        if held:
            self.held = 0.0
            waited = now if grant.found_at is None else now - grant.found_at
            grant.throttled = min(held, waited)  # it may have come before one that was held here longer
        else:
            grant.throttled = 0.0
        scopes = self.scopes
        if len(scopes) == 1:  # most lanes have one scope: the loops below cost twice as much
            scope = scopes[0]
            grant.steps = (scope.step,)
            grant.slots = (scope.take(now, grant.amount(0)),)
        else:
            grant.steps = tuple([scope.step for scope in scopes])
            grant.slots = tuple([scope.take(now, grant.amount(index)) for index, scope in enumerate(scopes)])

    def stops(self, grant: Grant, now: float) -> bool:
        """Whether ``grant``, which was granted, must not go to the wire after all: a scope was closed since."""
        return any(scope.stops(grant.slots[index], now, grant.amount(index)) for index, scope in enumerate(self.scopes))

    def sent(self, grant: Grant, now: float) -> None:
        """Tell its scopes that ``grant`` went to the wire."""
        for index, scope in enumerate(self.scopes):
            scope.sent(grant.slots[index], now, grant.amount(index))

    def written(self, grant: Grant, sent_at: float, now: float) -> None:
        """Tell its scopes that the write has ended at ``now`` that began at ``sent_at``."""
        for slot, scope in zip(grant.slots, self.scopes, strict=True):
            scope.written(slot, sent_at, now)

    def give_back(self, grant: Grant, now: float) -> None:
        """Free the places that ``grant`` has."""
        was_sent = grant.sent_at is not None
        for index, scope in enumerate(self.scopes):
            if limit := scope.full:
                scope.waits.opened(now, limit)
            scope.give(grant.slots[index], was_sent=was_sent, amount=grant.amount(index))

    def take_turn(self, turn: int) -> None:
        """Go to the end of the line of equals."""
        self.turn = turn
        if len(self.scopes) > 1 or (self.scopes and self.scopes[0].quota is not None):
            self.count_passes()

    def count_passes(self) -> None:
        """Count from now on how often it is passed."""
        self.bases = [scope.grants for scope in self.scopes]

    def amount_in(self, scope: Scope) -> float:
        """What its best grant is expected to use of one of its scopes."""
        grant = self.queue[0][3]
        return grant.amount(self.scopes.index(scope)) if len(self.scopes) > 1 else grant.amount(0)

    def share_in(self, scope: Scope) -> float:
        """The amount that its best grant names of one of its scopes: the larger goes first (F07); 0.0 for none."""
        return self.queue[0][3].scopes[self.scopes.index(scope)][1] or 0.0

    def quota_after(self, scope: Scope | None) -> Scope | None:
        """The next of its scopes that has a quota, after ``scope``: there it lines up, by its share; None: it has none.

        After None, or a scope that has no quota, it is the first.
        """
        is_after = scope is None or scope.quota is None
        for each in self.scopes:
            if is_after and each.quota is not None:
                return each
            is_after = is_after or each is scope
        return None

    def passes(self, scope: Scope | None = None) -> int:
        """How many others went by, at most, since its turn: in ``scope``, or the largest number over its scopes."""
        if self.bases is None:
            return 0
        if scope is not None:
            return scope.grants - self.bases[self.scopes.index(scope)]
        return max([scope.grants - base for scope, base in zip(self.scopes, self.bases, strict=True)])
