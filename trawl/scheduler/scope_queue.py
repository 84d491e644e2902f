"""The queue of one scope: the lanes that wait for it, their order, and the claim.

:mod:`trawl.scheduler.queues` explains how lanes enter the queue and are woken.

The claim prevents the starvation of requests with several scopes. A lane with several scopes is granted only when all
of them are open at the same time. Requests that need only one of these scopes can prevent this forever. So a lane
requests the claim if one of its scopes is closed when it is checked, and others passed it at least ``PASSES`` times
since its turn. The whole scheduler has one *claimant*, so claims can't deadlock. Further lanes wait for the claim in
the order in which they requested it.

A claimed scope grants nothing to *later* lanes (of lower priority, or of equal priority and a later turn) as long as
this could delay the claimant. Earlier lanes and lanes of higher priority are not delayed. So a claim never reverses the
order, and no lane starves behind claims.

A claim ends when the claimant is granted, when its lane is empty, when its origin's gate closes, or when it waits for a
backoff, a quota or a hint. Otherwise one scope would be idle while another is closed for 300 s. If a lane of higher
priority passes the claimant and other lanes wait for the claim, the claimant goes to the end of their queue. Otherwise
requests of high priority could keep the claim with one lane forever.

Passes are counted by the scopes' counters of grants, which include grants of earlier lanes. This is an upper bound, and
costs nothing. It also includes grants while the lane waits for another scope of its own, for example for the delay of
its host. But they lead to a claim only when the lane is checked, which is when the last of its scopes may open.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from trawl.scheduler.attempt import PAGE
from trawl.scheduler.lanes import READY

if TYPE_CHECKING:
    from collections.abc import Callable

    from trawl.scheduler.lanes import Lane
    from trawl.throttling.reasons import Reason
    from trawl.throttling.scope import Scope
    from trawl.throttling.shared import Token

__all__ = ["PASSES", "ROOM_TO_GROW", "ClaimQueue", "ScopeQueue", "Ticket", "TokenQueue"]

PASSES = 8
"""A lane that was passed so many times requests the claim. With two scopes it is then passed at most twice as often;
the promise is 32.
"""


class ClaimQueue:
    """The claimant of the scheduler, and the lanes that wait to be the next.

    Attributes:
        claimant: The lane with the claim, or None.
    """

    __slots__ = ("_line", "claimant")

    def __init__(self) -> None:
        self.claimant: Lane | None = None
        self._line: deque[tuple[Lane, int]] = deque()

    def ask(self, lane: Lane) -> bool:
        """Make ``lane`` the claimant if there is none, otherwise queue it once. Returns True if it is the claimant."""
        if self.claimant is None:
            self.claimant = lane
            lane.is_claiming = True
            return True
        if not lane.is_starving:
            lane.is_starving = True
            # With its turn, because a lane that was granted has a new turn and is skipped.
            self._line.append((lane, lane.turn))
        return False

    def leave(self, lane: Lane) -> None:
        """End the claim."""
        lane.is_claiming = False
        self.claimant = None

    def seat_next(self) -> Lane | None:
        """Make the first lane in the queue the claimant if there is none. Returns the claimant."""
        while self._line and self.claimant is None:
            lane, turn = self._line.popleft()
            if lane.is_starving and lane.turn == turn:
                lane.is_starving = False
                lane.is_claiming = True
                self.claimant = lane
        return self.claimant

    def has_line(self) -> bool:
        """Return True if a lane waits for the claim."""
        while self._line and not (self._line[0][0].is_starving and self._line[0][0].turn == self._line[0][1]):
            self._line.popleft()
        return bool(self._line)


Ticket: TypeAlias = "tuple[bool, int, float, int, int, Lane]"
"""A lane with its rank in a heap: page, negative priority, negative share (0.0 without a quota), turn, version,
lane.
"""

ROOM_TO_GROW = 64
"""A heap is cleaned when it has doubled since it was last cleaned, plus this many entries."""


class ScopeQueue:
    """The lanes that wait for one scope.

    Args:
        scope: The scope.
        prepares: True if lanes wait here to have an attempt prepared; False if they wait for its places.

    Attributes:
        scope: The scope.
        earliest_at: Returns the time at which an amount may be granted, or prepared.
        waiters: A heap of the waiting lanes.
        aside: A heap of the lanes that need more than remains, each with the time at which enough remains.
        refills: The quota's counter of refills when ``aside`` was last checked; -1: check it.
        least: A lower bound of the amounts that lanes here need.
        armed: The time of its timer; ``inf`` for none.
        woken: The lane that was woken last.
        claim: The claimant, if the scope is one of its scopes.
        kept_for: The lane for which the quota is reserved; None if no lane was passed often enough.
        passed: A heap by rank of the lanes that needed more than remained. The quota is reserved for the first.
        peers: If the scope has no quota, heaps of the lanes that share a quota elsewhere, by its scope, largest share
            first.
        several: If the scope has a quota, a heap by rank of the lanes that need other scopes too.
    """

    __slots__ = (
        "_closed",
        "_closed_at",
        "armed",
        "aside",
        "claim",
        "earliest_at",
        "kept_for",
        "least",
        "passed",
        "peers",
        "refills",
        "scope",
        "several",
        "waiters",
        "woken",
    )

    def __init__(self, scope: Scope, *, prepares: bool = False) -> None:
        self.scope: Scope = scope
        self.earliest_at: Callable[[float, float], float] = scope.prepares_at if prepares else scope.earliest_at
        self.waiters: list[Ticket] = []
        self.aside: list[tuple[float, Ticket]] = []
        self.refills: int = -1
        self.least: float = inf
        self.armed: float = inf
        self.woken: Lane | None = None
        self.claim: Lane | None = None
        self.kept_for: Lane | None = None
        self.passed: list[Ticket] = []
        self.peers: dict[str, list[Ticket]] = {}
        self.several: list[Ticket] = []
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
                self._note(self.several, ticket_of(lane, 0.0))
        elif len(lane.scopes) > 1:
            for scope in lane.scopes:
                if scope.quota is not None:
                    self._note(self.peers.setdefault(scope.id, []), ticket_of(lane, lane.share_in(scope)))
        heappush(self.waiters, self.ticket(lane))

    def clear(self) -> None:
        """Remove all waiting lanes, which are queued again."""
        self.waiters, self.aside, self.passed, self.several, self.peers = [], [], [], [], {}
        self.woken = None

    def ticket(self, lane: Lane) -> Ticket:
        """Return the entry of ``lane`` for the heap of this queue."""
        return ticket_of(lane, 0.0 if self.scope.quota is None else lane.share_in(self.scope))

    def withholds(self, lane: Lane) -> bool:
        """Return True if ``lane`` must wait because another lane claims this scope."""
        claim = self.claim
        is_behind = claim is not None and claim is not lane and lane.rank() > claim.rank()
        return is_behind and self.scope.is_tight(prepares=lane.prepares)

    def saves(self, lane: Lane, now: float) -> bool:
        """Return True if the quota is reserved for another lane, which ``lane`` would delay."""
        other, quota = self.kept_for, self.scope.quota
        if other is None or other is lane or quota is None or not quota.sliding or lane.rank() < other.rank():
            return False
        wanted, until = other.amount_in(self.scope), now
        for index, scope in enumerate(other.scopes):
            if scope is not self.scope and (at := scope.earliest_at(now, other.head.amount(index))) < inf:
                until = max(until, at)
        until = max(until, quota.fits_at(wanted, now))
        return quota.fits_at(wanted, now, lane.amount_in(self.scope)) > until

    def fits_at(self, lane: Lane, now: float) -> float:
        """Return when the quota opens for ``lane``: when it fits and is not reserved.

        ``inf`` if the lane with the reservation waits for something else.
        """
        scope = self.scope
        at = self.earliest_at(now, lane.amount_in(scope))
        if at > now:
            # Only once per version, because each check would add another entry.
            if lane.passed_at != lane.version:
                lane.passed_at = lane.version
                self._note(self.passed, ticket_of(lane, 0.0))
            return at
        return self.kept_until(now) if self.saves(lane, now) else now

    def kept_until(self, now: float) -> float:
        """Return the time at which the reserved amount fits; ``inf`` if it fits now."""
        assert self.scope.quota is not None
        assert self.kept_for is not None
        at = self.scope.quota.fits_at(self.kept_for.amount_in(self.scope), now)
        return at if at > now else inf

    def keep(self) -> None:
        """Reserve the quota for the first lane that did not fit, if that lane was passed often enough."""
        passed, quota = self.passed, self.scope.quota
        if quota is None or not quota.sliding:
            return  # all of it returns at once, and then the largest amount is first
        while passed and passed[0][4] != passed[0][5].version:
            heappop(passed)
        if self.kept_for is None and passed and passed[0][5].passes(self.scope) >= PASSES:
            self.kept_for = passed[0][5]
            self.kept_for.is_kept_for = True

    def starved_by(self, lane: Lane, now: float) -> Lane | None:
        """Return a starved lane with several scopes that fits and goes before ``lane`` despite its share; or None."""
        several = self.several
        while several and several[0][4] != several[0][5].version:
            heappop(several)
        if not several or len(lane.scopes) > 1:
            return None
        first = several[0][5]
        is_before = first.rank() < lane.rank() and first.passes(self.scope) >= PASSES
        is_before = is_before and not first.awaits_pages(self.scope)
        return first if is_before and self.fits_at(first, now) <= now else None

    def prefers_woken(self, lane: Lane) -> bool:
        """Return True if another ready lane goes before ``lane`` because of its larger share of the quota."""
        woken = self.woken
        return (
            woken is not None
            and woken is not lane
            and woken.where is READY
            and self.scope.quota is not None
            and self.ticket(woken) < self.ticket(lane)
        )

    def keeps_off(self, lane: Lane, now: float) -> bool:
        """Return True if ``lane`` must wait here although the scope is open."""
        return self.withholds(lane) or self.saves(lane, now) or self.prefers_woken(lane)

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
    """A lane's request for a token of shared scopes, and the queue in which it waits for the token.

    Args:
        scope: The first shared scope.
        lane: The lane.
        number: The number of the ask.
        why: Returns the reason why a token request waits.

    Attributes:
        lane: The lane.
        number: The number of the ask.
        token: The token; None until it is received.
    """

    __slots__ = ("_why", "lane", "number", "token")

    def __init__(self, scope: Scope, lane: Lane, number: int, why: Callable[[int], Reason]) -> None:
        super().__init__(scope)
        self.lane: Lane = lane
        self.number: int = number
        self.token: Token | None = None
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
