"""The queue of one scope: the lanes that wait for it, and their order; and the claim.

:mod:`trawl.scheduler.queues` tells how lanes come here and are woken.

The claim keeps a request of several scopes from being passed for ever. A lane of several scopes goes only when all are
open at once; traffic that needs only one of them can keep that from ever happening, by places and by delays alone. A
lane that is looked at, finds one of its scopes closed, and was passed at least ``PASSES`` times since its turn asks for
the claim. There is one *claimant* in the whole scheduler, so claims cannot deadlock; lanes that ask while there is one
stand in line, first come, first served.

A claimed scope lets no *later* lane through (one of a lower priority, or of the same and a later turn) while that could
be in the claimant's way. Earlier and better lanes are not held up, so a claim never turns the order round, and nothing
starves behind claims.

A claim ends when the claimant went, when its lane is empty, when its origin's gate closed, or when it waits for a
backoff, a quota or a hint: holding one scope idle through another's block of 300 s would be a defect. When a better
priority passes the claimant and others are in line, it goes to the end of the line, or traffic of a high priority would
keep the claim for ever.

Passes are read off the scopes' counters of grants, earlier lanes included: an upper bound, which costs nothing to keep.
Attempts that go by while a lane's own time has not come (its host's delay, say, when another scope of it is shared) are
counted as well, but lead to a claim only when the lane is looked at, that is, when the last of its times has come.
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
"""A lane that was passed so often asks for the claim. With two scopes it then waits for at most twice as many; the
promise (F12) is 32."""


class ClaimQueue:
    """The claimant of the whole scheduler, and the lanes in line to be the next.

    Attributes:
        claimant: The lane that has the claim, or None.
    """

    __slots__ = ("_line", "claimant")

    def __init__(self) -> None:
        self.claimant: Lane | None = None
        self._line: deque[tuple[Lane, int]] = deque()

    def ask(self, lane: Lane) -> bool:
        """Make ``lane`` the claimant if there is none, else put it in line once. Returns True if it is the claimant."""
        if self.claimant is None:
            self.claimant = lane
            lane.is_claiming = True
            return True
        if not lane.is_starving:
            lane.is_starving = True
            # With its turn: a lane that has gone meanwhile has another one, and is passed over.
            self._line.append((lane, lane.turn))
        return False

    def leave(self, lane: Lane) -> None:
        """Drop the claim."""
        lane.is_claiming = False
        self.claimant = None

    def seat_next(self) -> Lane | None:
        """Make the first in line the claimant, if there is none. Returns the claimant."""
        while self._line and self.claimant is None:
            lane, turn = self._line.popleft()
            if lane.is_starving and lane.turn == turn:
                lane.is_starving = False
                lane.is_claiming = True
                self.claimant = lane
        return self.claimant

    def has_line(self) -> bool:
        """Return True if a lane stands in line."""
        while self._line and not (self._line[0][0].is_starving and self._line[0][0].turn == self._line[0][1]):
            self._line.popleft()
        return bool(self._line)


Ticket: TypeAlias = "tuple[bool, int, float, int, int, Lane]"
"""A lane's rank in a heap: page, minus priority, minus share (0.0 but at a quota), turn, version, and the lane."""

ROOM_TO_GROW = 64
"""A heap is cleaned when it has doubled, and has more than this many records."""


class ScopeQueue:
    """The lanes that wait for one scope.

    Args:
        scope: The scope.
        prepares: Lanes wait here to have an attempt prepared; False: for its places.

    Attributes:
        scope: The scope.
        earliest_at: Returns when an amount may be granted, or prepared.
        waiters: A heap of the waiting lanes.
        aside: A heap of the lanes that need more than is left, each with the instant at which it will.
        refills: The quota's counter of refills when ``aside`` was last looked through.
        least: No lane here needs less than this.
        armed: The instant its timer is set to; ``inf`` for none.
        woken: The lane that was woken last.
        claim: The claimant, if the scope is one of its scopes.
        kept_for: The lane that the quota is kept for; None: none was passed often enough.
        passed: A heap of the lanes that needed more than was left, by rank: the quota is kept for the first.
        peers: Of a queue without a quota: heaps of the lanes that share one, by its scope, the largest share first.
        several: Of a queue with a quota: a heap of the lanes that need other scopes as well, by rank.
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
        """Note that the scope is closed, since ``now`` unless it was before."""
        self._closed_at = min(self._closed_at, now)

    def open(self, at: float) -> None:
        """Note that the scope is open, since the instant ``at``."""
        if self._closed_at < inf:
            self._closed += max(0.0, at - self._closed_at)
            self._closed_at = inf

    def closed_for(self, now: float) -> float:
        """Return the clock by which a lane's wait here is counted: the seconds for which the scope was closed.

        With a quota it is open for one and closed for another: then all the time counts.
        """
        if self.scope.quota is not None:
            return now
        return self._closed + max(0.0, now - self._closed_at)

    def add(self, lane: Lane) -> None:
        """Let ``lane`` wait here."""
        if self.scope.quota is not None:
            # Those that were here are gone, and with them the least that they asked for.
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
        """Forget the waiting lanes: all of them are lined up anew."""
        self.waiters, self.aside, self.passed, self.several, self.peers = [], [], [], [], {}
        self.woken = None

    def ticket(self, lane: Lane) -> Ticket:
        """The rank of ``lane`` among those here."""
        return ticket_of(lane, 0.0 if self.scope.quota is None else lane.share_in(self.scope))

    def withholds(self, lane: Lane) -> bool:
        """Return True if a claim keeps ``lane`` from this scope."""
        claim = self.claim
        return claim is not None and claim is not lane and lane.rank() > claim.rank() and self.scope.is_tight()

    def saves(self, lane: Lane, now: float) -> bool:
        """Return True if the quota is kept for another lane, which would have to wait longer if ``lane`` went."""
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
        """Return the instant at which the quota lets ``lane`` through: it fits, or the lane it is kept for goes.

        ``inf`` if that one waits for something else.
        """
        scope = self.scope
        at = self.earliest_at(now, lane.amount_in(scope))
        if at > now:
            # Once for each of its versions: each look would add another ticket.
            if lane.passed_at != lane.version:
                lane.passed_at = lane.version
                self._note(self.passed, ticket_of(lane, 0.0))
            return at
        return self.kept_until(now) if self.saves(lane, now) else now

    def kept_until(self, now: float) -> float:
        """Return the instant at which the amount fits that the quota is kept for; ``inf``: it fits by now."""
        assert self.scope.quota is not None
        assert self.kept_for is not None
        at = self.scope.quota.fits_at(self.kept_for.amount_in(self.scope), now)
        return at if at > now else inf

    def keep(self) -> None:
        """Keep the quota for the first of those it did not do for, if that was passed often enough."""
        passed, quota = self.passed, self.scope.quota
        if quota is None or not quota.sliding:
            return  # all of it comes back at once, and the largest is first then
        while passed and passed[0][4] != passed[0][5].version:
            heappop(passed)
        if self.kept_for is None and passed and passed[0][5].passes(self.scope) >= PASSES:
            self.kept_for = passed[0][5]
            self.kept_for.is_kept_for = True

    def starved_by(self, lane: Lane, now: float) -> Lane | None:
        """A lane of several scopes that was passed too often, and fits, where ``lane`` of one would go by its share."""
        several = self.several
        while several and several[0][4] != several[0][5].version:
            heappop(several)
        if not several or len(lane.scopes) > 1:
            return None
        first = several[0][5]
        is_before = first.rank() < lane.rank() and first.passes(self.scope) >= PASSES
        return first if is_before and self.fits_at(first, now) <= now else None

    def prefers_woken(self, lane: Lane) -> bool:
        """Return True if, at a quota, another lane that is ready goes before ``lane`` by its share (F07)."""
        woken = self.woken
        return (
            woken is not None
            and woken is not lane
            and woken.where is READY
            and self.scope.quota is not None
            and self.ticket(woken) < self.ticket(lane)
        )

    def keeps_off(self, lane: Lane, now: float) -> bool:
        """Return True if ``lane`` has to wait here although the scope is open."""
        return self.withholds(lane) or self.saves(lane, now) or self.prefers_woken(lane)

    def lanes(self) -> list[Lane]:
        """The lanes that wait here, in no order."""
        tickets = [*self.waiters, *(ticket for _, ticket in self.aside)]
        return [ticket[5] for ticket in tickets if ticket[4] == ticket[5].version]

    def _note(self, heap: list[Ticket], ticket: Ticket) -> None:
        """Keep a ticket in a heap besides that of those who wait, which is cleaned when most of it is stale."""
        heappush(heap, ticket)
        if len(heap) > 2 * (len(self.waiters) + len(self.aside)) + ROOM_TO_GROW:
            heap[:] = [ticket for ticket in heap if ticket[4] == ticket[5].version]
            heapify(heap)


class TokenQueue(ScopeQueue):
    """A lane's ask for shared scopes, and the queue that it waits in for the token.

    Args:
        scope: The first of the shared scopes.
        lane: The lane.
        number: The number of the ask.
        why: Explains what such an ask waits for.

    Attributes:
        lane: The lane.
        number: The number of the ask.
        token: The token, when it has come.
    """

    __slots__ = ("_why", "lane", "number", "token")

    def __init__(self, scope: Scope, lane: Lane, number: int, why: Callable[[int], Reason]) -> None:
        super().__init__(scope)
        self.lane: Lane = lane
        self.number: int = number
        self.token: Token | None = None
        self._why = why

    def add(self, lane: Lane) -> None:
        """Let the lane wait here: its token wakes it."""

    def closed_for(self, now: float) -> float:
        """Return the clock by which the wait here is counted: all the time counts."""
        return now

    def reason(self) -> Reason:
        """Return the reason for which the lane waits."""
        return self._why(self.number)


def ticket_of(lane: Lane, share: float) -> Ticket:
    """The rank of ``lane`` in a heap in which its share is this."""
    return (lane.kind >= PAGE, lane.queue[0][0], -share, lane.turn, lane.version, lane)
