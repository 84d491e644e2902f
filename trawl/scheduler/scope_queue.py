"""The queue of one scope: the lanes that wait for it, their order, and the reservation.

:mod:`trawl.scheduler.queues` explains how lanes enter the queue and are woken.

Two kinds of requests may starve. A lane with several scopes is granted only when all of them are open at the same time,
and requests that need only one of them can prevent this forever. A large amount fits a sliding quota only if small
amounts do not use all that returns. One rule prevents both: a scope is *reserved* for a lane that was passed too often.
A lane that ranks behind it is granted only if this can't delay it: each limit of the scope decides this for the time at
which the lane with the reservation may be granted, as far as that is known (:meth:`Limit.delays
<trawl.throttling.limit.Limit.delays>`). So a scope stays in use while another scope of that lane is closed for 300 s.

A lane reserves all of its scopes together. Of two lanes with a common scope, the one that ranks first gets its scopes,
unless another scope of it opens much later. The other lane loses its reservation. But as long as its amount fits a
quota only much later, it keeps what it has not lost, because small amounts would use the quota in the meantime. When
that time is near, it reserves all of its scopes again or loses them all. A reservation delays only lanes that rank
behind, and ranks are a total order. So reservations can't deadlock, and no lane starves behind them. A reservation ends
when the lane is granted, when it is empty, when it waits at its origin's gate or (unless it has lost one) for a token
of a shared scope, or when a better lane takes over. Shared scopes are reserved only while the lane has a token for
them, among lanes with tokens.

Passes are counted by the scopes' counters of grants, which include grants of earlier lanes. This is an upper bound, and
costs nothing. It also includes grants while the lane waits for another scope of its own, for example for the delay of
its host. But they lead to a reservation only when the lane is checked, which is when the last of its scopes may open.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from trawl.scheduler.attempt import PAGE
from trawl.scheduler.lanes import READY
from trawl.throttling.limit import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from trawl.scheduler.lanes import Lane
    from trawl.throttling.reasons import Reason
    from trawl.throttling.scope import Scope
    from trawl.throttling.shared import Token

__all__ = ["PASSES", "ROOM_TO_GROW", "ScopeQueue", "Ticket", "TokenQueue"]

PASSES = 8
"""A scope is reserved for a lane that was passed so many times. With two scopes it is then passed at most twice as
often; the promise is 32.
"""


Ticket: TypeAlias = "tuple[bool, int, float, int, int, Lane]"
"""A lane with its rank in a heap: page, negative priority, negative share (0.0 without a quota), turn, version,
lane.
"""

ROOM_TO_GROW = 64
"""A heap is cleaned when it has doubled since it was last cleaned, plus this many entries."""


class ScopeQueue:
    """The lanes that wait for one scope."""

    __slots__ = (
        "_closed",
        "_closed_at",
        "armed",
        "aside",
        "earliest_at",
        "holders",
        "least",
        "passed",
        "peers",
        "prepares",
        "refills",
        "reserved_for",
        "scope",
        "waiters",
        "woken",
    )

    def __init__(self, scope: Scope, *, prepares: bool = False) -> None:
        self.scope: Scope = scope
        self.prepares: bool = prepares  # True if lanes wait here to have an attempt prepared
        # Returns the time at which an amount may be granted, or prepared
        self.earliest_at: Callable[[float, float], float] = scope.prepares_at if prepares else scope.earliest_at
        self.waiters: list[Ticket] = []  # a heap of the waiting lanes
        # A heap of the lanes that need more than remains, each with the time at which enough remains
        self.aside: list[tuple[float, Ticket]] = []
        self.refills: int = -1  # the quota's counter of refills when `aside` was last checked; -1: check it
        self.least: float = inf  # a lower bound of the amounts that lanes here need
        self.armed: float = inf  # the time of its timer; `inf` for none
        self.woken: Lane | None = None  # the lane that was woken last
        # The lane for which the scope is reserved; None if no lane was passed often enough
        self.reserved_for: Lane | None = None
        # This lane, and lanes that lost the scope to it or to an earlier one but keep other reserved scopes
        self.holders: dict[Lane, None] = {}
        # If the scope has a quota, a heap by rank of the lanes that others may pass: by smaller amounts, because theirs
        # did not fit a sliding window, or by larger shares, because they need other scopes too
        self.passed: list[Ticket] = []
        # If the scope has no quota, heaps of the lanes that share a quota elsewhere, by its scope, largest share first
        self.peers: dict[str, list[Ticket]] = {}
        self._closed = 0.0
        self._closed_at = inf

    def close(self, now: float) -> None:
        """Record that the scope is closed since ``now``, or since earlier."""
        self._closed_at = min(self._closed_at, now)

    def open(self, at: float) -> None:
        """Record that the scope is open since ``at``."""
        if self._closed_at < inf:
            self._closed += max(0.0, at - self._closed_at)
            self._closed_at = inf

    def closed_for(self, now: float) -> float:
        """Return the seconds for which the scope was closed so far, from which the wait of a lane is computed.

        With a quota it may be open for one lane and closed for another, so all the time counts.
        """
        if self.scope.quota is not None:
            return now
        return self._closed + max(0.0, now - self._closed_at)

    def add(self, lane: Lane) -> None:
        """Add ``lane``, which waits here."""
        if self.scope.quota is not None:
            # The earlier lanes have left, so their amounts don't count.
            if not self.waiters and not self.aside:
                self.least = inf
            self.least = min(self.least, lane.amount_in(self.scope))
            if len(lane.scopes) > 1:
                self._note(self.passed, ticket_of(lane, 0.0))
        elif len(lane.scopes) > 1:
            for scope in lane.scopes:
                if scope.quota is not None:
                    self._note(self.peers.setdefault(scope.id, []), ticket_of(lane, lane.share_in(scope)))
        heappush(self.waiters, self.ticket(lane))

    def clear(self) -> None:
        """Remove all waiting lanes, which are queued again."""
        self.waiters, self.aside, self.passed, self.peers = [], [], [], {}
        self.woken = None

    def ticket(self, lane: Lane) -> Ticket:
        """Return the entry of ``lane`` for the heap of this queue."""
        return ticket_of(lane, 0.0 if self.scope.quota is None else lane.share_in(self.scope))

    def goes_before(self, holder: Lane, lane: Lane, now: float) -> bool:
        """Return True if the scope stays reserved for ``holder``: it ranks first, or ``lane`` waits much longer."""
        is_far = [each.foreseen_at(now, but=self.scope) > now + PATIENCE for each in (holder, lane)]
        return (is_far[0], holder.rank()) < (is_far[1], lane.rank())

    def blocks(self, lane: Lane, now: float) -> bool:
        """Return True if the scope is reserved for another lane, which ``lane`` could delay."""
        holder, scope = self.reserved_for, self.scope
        if holder is None or holder is lane or holder.kept_until <= now or lane.rank() < holder.rank():
            return False
        until = holder.foreseen_at(now)
        return scope.delays(now, until, lane.amount_in(scope), holder.amount_in(scope), prepares=self.prepares)

    def fits_at(self, lane: Lane, now: float) -> float:
        """Return when the quota opens for ``lane``; ``inf`` while it is reserved for one that waits for others."""
        scope = self.scope
        at = self.earliest_at(now, lane.amount_in(scope))
        if at > now:
            assert scope.quota is not None
            # Only once per version, because each check would add another entry.
            if lane.passed_at != lane.version and scope.quota.sliding:
                lane.passed_at = lane.version
                self._note(self.passed, ticket_of(lane, 0.0))
            return at
        return self.reserved_until(now) if self.blocks(lane, now) else now

    def reserved_until(self, now: float) -> float:
        """Return when the lane with the reservation may be granted; ``inf`` if it waits for other requests."""
        assert self.reserved_for is not None
        at = min(self.reserved_for.foreseen_at(now), self.reserved_for.kept_until)
        return at if at > now else inf

    def starving(self) -> Lane | None:
        """Return the first lane that was passed here too often; None if there is none."""
        passed = self.passed
        while passed and passed[0][4] != passed[0][5].version:
            heappop(passed)
        return passed[0][5] if passed and passed[0][5].passes(self.scope) >= PASSES else None

    def goes_first(self, holder: Lane, lane: Lane, now: float) -> bool:
        """Return True if the lane with the reservation waits here, fits, and goes before a larger share."""
        is_before = holder.where is self and len(holder.scopes) > 1 and holder.rank() < lane.rank()
        return is_before and not holder.awaits_pages(self.scope) and self.fits_at(holder, now) <= now

    def prefers_woken(self, lane: Lane) -> bool:
        """Return True if another ready lane goes before ``lane`` because of its larger share of the quota."""
        woken = self.woken
        return (
            woken is not None
            and woken is not lane
            and self.reserved_for is not lane
            and woken.where is READY
            and self.scope.quota is not None
            and self.ticket(woken) < self.ticket(lane)
        )

    def keeps_off(self, lane: Lane, now: float) -> bool:
        """Return True if ``lane`` must wait here although the scope is open."""
        return self.blocks(lane, now) or self.prefers_woken(lane)

    def lanes(self) -> list[Lane]:
        """Return the lanes that wait here, in no particular order."""
        tickets = [*self.waiters, *(ticket for _, ticket in self.aside)]
        return [ticket[5] for ticket in tickets if ticket[4] == ticket[5].version]

    def _note(self, heap: list[Ticket], ticket: Ticket) -> None:
        """Add an entry to one of the further heaps, and clean the heap if most of its entries are old."""
        heappush(heap, ticket)
        if len(heap) > 2 * (len(self.waiters) + len(self.aside)) + ROOM_TO_GROW:
            heap[:] = [ticket for ticket in heap if ticket[4] == ticket[5].version]
            heapify(heap)


class TokenQueue(ScopeQueue):
    """A lane's request for a token, and its queue in its first shared scope; ``why`` says why a request waits."""

    __slots__ = ("_why", "lane", "number", "token")

    def __init__(self, scope: Scope, lane: Lane, number: int, why: Callable[[int], Reason]) -> None:
        super().__init__(scope)
        self.lane: Lane = lane
        self.number: int = number  # the number of the ask
        self.token: Token | None = None  # the token; None until it is received
        self._why = why

    def add(self, lane: Lane) -> None:
        """Do nothing: the token wakes the lane."""

    def closed_for(self, now: float) -> float:
        """Return ``now``, because all the time counts."""
        return now

    def reason(self) -> Reason:
        """Return the reason why the lane waits."""
        return self._why(self.number)


def ticket_of(lane: Lane, share: float) -> Ticket:
    """Return the entry of ``lane`` for a heap in which it has this share."""
    return (lane.kind >= PAGE, lane.queue[0][0], -share, lane.turn, lane.version, lane)
