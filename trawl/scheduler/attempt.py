"""An attempt: one request from the time it starts to wait until it ends."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from trawl.frontier import Amounts, LaneKey, Record, ScopeAmounts, lane_key

if TYPE_CHECKING:
    from trawl.scheduler.lanes import Lane
    from trawl.throttling.limit import Limit
    from trawl.throttling.reasons import Reason

__all__ = ["DIRECT", "PAGE", "PASSING", "Attempt", "AttemptOptions", "AttemptTimes", "LaneId", "amounts_of"]

DIRECT, PASSING, PAGE = range(3)
"""The kinds of lanes. Exempt pages share the lane of pages that need no scope."""

LaneId: TypeAlias = "LaneKey | tuple[Any, ...]"
"""The frontier's key of a lane of pages. Lanes of direct fetches add their kind, and prepared attempts have other
lanes.
"""


def amounts_of(scopes: ScopeAmounts) -> Amounts:
    """Return the amounts that a request names; empty if it names none.

    An amount for a scope without a quota counts too, because the scope may get a quota while the request waits.
    """
    for _, amount in scopes:
        if amount is not None:
            return tuple([amount for _, amount in scopes])
    return ()


class AttemptOptions:
    """The arguments of an attempt that decide about its queue and about the receiver of its outcome; never changed."""

    __slots__ = ("is_diverted", "lane_id", "lease", "order", "origin", "passes_gate", "share", "waiter")

    def __init__(
        self,
        origin: str,
        is_diverted: bool,
        passes_gate: bool,
        share: float,
        order: int | None,
        lane_id: LaneId,
        lease: Any,
        waiter: Any,
    ) -> None:
        self.origin: str = origin
        self.is_diverted: bool = is_diverted
        self.passes_gate: bool = passes_gate
        self.share: float = share
        self.order: int | None = order
        self.lane_id: LaneId = lane_id
        self.lease: Any = lease
        self.waiter: Any = waiter


class AttemptTimes:
    """The times at which an attempt was found, granted and sent, its waits, and the reasons for them."""

    __slots__ = (
        "found_at",
        "granted_at",
        "held_by",
        "left_by",
        "not_before",
        "opened_by",
        "prepared_for",
        "sent_at",
        "throttled",
    )

    def __init__(self, found_at: float | None) -> None:
        # Event loop time at which it was found. By default, when it was first pushed; -inf before that.
        self.found_at: float = -inf if found_at is None else found_at
        self.not_before: float = 0.0  # event loop time before which it is not granted; 0.0: none
        # Event loop time at which it got its places. Before that, the time at which its preparation started or ended. A
        # wait just before the send moves it.
        self.granted_at: float = -inf
        self.sent_at: float | None = None  # event loop time of its send; None before that
        # Seconds for which its middleware ran before it waited for places; 0.0 without user code
        self.prepared_for: float = 0.0
        # Seconds for which it was the best of its lane and waited for anything other than a free place
        # (`trawl.http.Times`). Set when it is granted.
        self.throttled: float = 0.0
        # Why it last was not granted although its scopes were open; None: that did not happen
        self.left_by: Reason | None = None
        # The limit of its scopes that opened last before it was granted; None with fewer than two scopes
        self.held_by: Reason | None = None
        self.opened_by: Limit | None = None  # the limit that opened last for it, with one scope; None for none

    @property
    def queued(self) -> float:
        """Seconds since it was found for which it waited behind other requests. Set when it is granted."""
        return self.granted_at - self.found_at - self.throttled - self.prepared_for


class Attempt:
    """One request from the time it starts to wait until it ends. It is pending, then granted, then in flight.

    The scheduler chooses by the arguments and sets the attributes, except ``task``, which the engine sets. One attempt
    allows one send.
    """

    __slots__ = (
        "has_fetched",
        "has_places",
        "is_ahead",
        "is_exempt",
        "is_page",
        "is_pending",
        "is_sub_request",
        "is_under_way",
        "is_vetted",
        "keeps_page",
        "lane",
        "options",
        "priority",
        "request",
        "scopes",
        "slots",
        "steps",
        "task",
        "times",
    )

    def __init__(
        self,
        # The request to send. The scheduler does not read it.
        request: Any,
        scopes: ScopeAmounts,  # sorted scope ids, each with the expected amount; None counts as 1.0
        *,
        origin: str = "",  # the origin whose gate it waits for, which is closed until robots.txt is read
        priority: int = 0,  # a higher priority is sent earlier
        is_direct: bool = False,  # sent before all pages, because a callback waits for it
        is_exempt: bool = False,  # takes no scope (`dont_throttle`), but one of the crawl's places
        is_diverted: bool = False,  # its scopes and origin belong to the request as its middleware changed it last
        is_sub_request: bool = False,  # a rendered page has made it, so that it does not count as a page
        # Does not wait for its origin's gate, because it loads robots.txt. Implies `is_direct`.
        passes_gate: bool = False,
        # The first amount that it names. Within a lane, larger amounts are sent first.
        share: float = 0.0,
        # Its rank among attempts of equal priority and share; lower ranks are sent first. None: in the order in which
        # they are pushed. In one lane, either all attempts have a rank or none has.
        order: int | None = None,
        lease: Any = None,  # the frontier's record of a page; None for a direct fetch
        lane_id: LaneId | None = None,  # the id of its lane; None: made from the other arguments
        waiter: Any = None,  # gets the outcome of a direct fetch; None for a page
        found_at: float | None = None,  # event loop time at which it was found; None: when it is first pushed
    ) -> None:
        self.request: Any = request
        self.scopes: ScopeAmounts = scopes
        self.priority: int = priority
        # True for a page of the frontier; False for a direct fetch or robots.txt
        self.is_page: bool = not (is_direct or passes_gate)
        self.is_exempt: bool = is_exempt
        self.is_sub_request: bool = is_sub_request
        if lane_id is None:
            key = lane_key(scopes, origin, amounts_of(scopes), is_exempt=is_exempt)
            lane_id = key if self.is_page else (key, PASSING if passes_gate else DIRECT)
            if is_sub_request:  # behind others it would wait for their page budget
                lane_id = (lane_id, "sub-request")
        # The other arguments, which decide about its queue and about the receiver of its outcome
        self.options: AttemptOptions = AttemptOptions(
            origin, is_diverted, passes_gate, share, order, lane_id, lease, waiter
        )
        self.times: AttemptTimes = AttemptTimes(found_at)
        self.lane: Lane | None = None  # its lane, also after it left it; None before it is pushed
        # Its slot number in each of its scopes while it is in flight, in the order of `scopes`
        self.slots: tuple[int, ...] = ()
        # The number of backoff steps that each scope had taken when it was granted, in the order of `scopes`
        self.steps: tuple[int, ...] = ()
        self.is_pending: bool = False  # True from the push until it is granted, refused or withdrawn
        self.is_vetted: bool = False  # True if it was already checked whether it may be sent at all
        # True from the start of its preparation, or from its grant, until its places are released
        self.is_under_way: bool = False
        self.has_places: bool = False  # True while it is in flight
        # True while its scopes count it as ahead. They do not count it while it is overdue.
        self.is_ahead: bool = False
        # True if its middleware made a fetch for it. Because another attempt would repeat this fetch, it waits for its
        # places without a limit.
        self.has_fetched: bool = False
        # True if it has released its places except the place in the scope `browser`, because its page is not closed yet
        self.keeps_page: bool = False
        # The engine's state of its task; None before the task starts
        self.task: Any = None  # set and read by the engine

    @classmethod
    def of_record(cls, record: Record) -> Attempt:
        """Make the attempt for a leased page."""
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
        """Record that it waits since ``now``, and is not granted before ``not_before``."""
        self.is_pending = True
        self.is_vetted = False
        self.lane = None
        times = self.times
        times.sent_at = None
        times.not_before = not_before
        if times.found_at == -inf:
            times.found_at = now

    def waited(self, seconds: float) -> None:
        """Count a wait just before the send as a wait for the grant: it is sent by the current state of its scopes."""
        self.times.granted_at += seconds
        self.times.throttled += seconds
        if self.lane is not None and self.lane.scopes:
            self.steps = tuple([scope.step for scope in self.lane.scopes])

    @property
    def last_limit(self) -> tuple[str, str]:
        """The scope that opened last for it, and the name of the limit there; "" for none. Known when it is granted."""
        held_by, opened_by = self.times.held_by, self.times.opened_by
        if held_by is not None:
            return held_by.scope, held_by.limit
        return ("", "") if opened_by is None else (self.scopes[0][0], opened_by.name)

    @property
    def is_preparing(self) -> bool:
        """True while its middleware runs before the send."""
        return self.is_under_way and not self.has_places and not self.is_pending

    def amount(self, index: int) -> float:
        """Return the amount that it is expected to use of its scope number ``index``; 1.0 if it names none."""
        amount = self.scopes[index][1]
        return 1.0 if amount is None else amount

    __hash__: ClassVar[Any] = object.__hash__  # a compiled class with an order does not inherit it

    def __lt__(self, other: Attempt) -> bool:
        return False  # equal keys in a heap: either may come first

    def __repr__(self) -> str:
        return f"<Attempt {self.request!r} priority={self.priority} scopes={[scope for scope, _ in self.scopes]}>"
