"""The attempt: one request from the moment it may wait to its end."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from trawl.frontier import Amounts, LaneKey, Record, ScopeAmounts, lane_key

if TYPE_CHECKING:
    from trawl.scheduler.lanes import Lane
    from trawl.throttling.reasons import Reason
    from trawl.throttling.scope import Scope

__all__ = ["DIRECT", "PAGE", "PASSING", "Attempt", "LaneId", "amounts_of"]

DIRECT, PASSING, PAGE = range(3)
"""Kinds of lanes. Exempt pages are in the lane of those that need no scope."""

LaneId: TypeAlias = "LaneKey | tuple[Any, ...]"
"""The frontier's key for a lane of pages; with the kind for direct fetches, and apart for what is prepared."""


def amounts_of(scopes: ScopeAmounts) -> Amounts:
    """The amounts that a request names.

    Those of scopes without a quota count as well: it may get one while the request waits.
    """
    for _, amount in scopes:
        if amount is not None:
            return tuple([amount for _, amount in scopes])
    return ()


class Attempt:
    """One request from the moment it may wait to its end: what waits, what is granted, what is on its way.

    The scheduler makes the choice by the arguments and fills in the attributes, but for ``task``, which is the
    engine's. One attempt is good for one send.

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
        order: Its rank among equals, less first; None: the order of coming. Attempts of one lane have all one or all
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
        not_before: The instant before which it does not go, as it was pushed last; 0.0: at once.
        granted_at: When it was granted its places; before that, when its preparation started, or ended. A wait at
            the wire is left out.
        left_by: Why it was left though its scopes were open, before it was granted; None: it was not.
        held_by: Which of its scopes opened last before it was granted, and the limit; None: it has one scope or none.
        prepared_for: Seconds for which its middleware ran before it asked for its places; 0.0: it had them from the
            beginning.
        prepared_for: Seconds for which it was prepared: its middleware ran; 0.0: no user code runs before its send.
        throttled: Seconds for which it was first in its line and could not have gone with a free place: see
            :class:`trawl.http.Times`. Known when it is granted.
        sent_at: When it went to the wire; None if it did not (yet).
        is_page: It is a page of the frontier; False for what a waiter waits for: a direct fetch, or robots.txt.
        is_pending: Pushed, and neither granted, refused nor withdrawn.
        is_under_way: It is being prepared, is prepared or was granted, and has not given back.
        is_prepared: Its middleware has run, or no user code runs before its send: it needs nothing but its places.
        is_ahead: Its scopes count it as ahead; not while it is overdue.
        has_places: It is in flight: it has its places.
        has_fetched: Its middleware has fetched something for it before its send, which it would fetch again for
            another attempt: it waits for its places as long as it takes.
        is_vetted: It was asked already if it may go at all.
        task: What its task notes of it; None until that is started.
    """

    __slots__ = (
        "found_at",
        "granted_at",
        "has_fetched",
        "has_places",
        "held_by",
        "is_ahead",
        "is_direct",
        "is_diverted",
        "is_exempt",
        "is_page",
        "is_pending",
        "is_prepared",
        "is_under_way",
        "is_vetted",
        "lane",
        "lane_id",
        "lease",
        "left_by",
        "not_before",
        "order",
        "origin",
        "passes_gate",
        "prepared_for",
        "priority",
        "pushed_at",
        "request",
        "scopes",
        "sent_at",
        "share",
        "slots",
        "steps",
        "task",
        "throttled",
        "waiter",
    )

    def __init__(
        self,
        request: Any,
        scopes: ScopeAmounts,
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
        self.scopes: ScopeAmounts = scopes
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
        self.is_page: bool = waiter is None
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
        self.held_by: tuple[Scope, str] | None = None
        self.throttled: float = 0.0
        self.sent_at: float | None = None
        self.not_before: float = 0.0
        self.is_pending: bool = False
        self.is_vetted: bool = False
        self.is_under_way: bool = False
        self.has_places: bool = False
        self.is_prepared: bool = True
        self.is_ahead: bool = False
        self.has_fetched: bool = False
        self.prepared_for: float = 0.0
        self.task: Any = None  # the engine's own: the scheduler knows neither Trio nor what is above it

    @classmethod
    def of_record(cls, record: Record) -> Attempt:
        """Make the attempt that a leased page waits with."""
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

    def waited(self, seconds: float) -> None:
        """Count a wait at the wire as if it had been one for the attempt: it goes under what its scopes know now."""
        self.granted_at += seconds
        self.throttled += seconds
        if self.lane is not None and self.lane.scopes:
            self.steps = tuple([scope.step for scope in self.lane.scopes])

    @property
    def queued(self) -> float:
        """Seconds that it waited, from when it was found, for others and not for a scope; known when it is granted."""
        found_at = self.granted_at if self.found_at is None else self.found_at
        return self.granted_at - found_at - self.throttled - self.prepared_for

    @property
    def is_preparing(self) -> bool:
        """True while its middleware runs before its send."""
        return self.is_under_way and not self.has_places and not self.is_pending

    def amount(self, index: int) -> float:
        """The amount that it is expected to use of its scope number ``index``; 1.0 where none is named."""
        amount = self.scopes[index][1]
        return 1.0 if amount is None else amount

    __hash__: ClassVar[Any] = object.__hash__  # a compiled class that has an order inherits none

    def __lt__(self, other: Attempt) -> bool:
        return False  # two equal keys in a heap: either may go first

    def __repr__(self) -> str:
        return f"<Attempt {self.request!r} priority={self.priority} scopes={[scope for scope, _ in self.scopes]}>"
