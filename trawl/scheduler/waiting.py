"""Where lanes wait, and how they are woken: rooms, timers, and the baton.

Theory of operation. A lane is *ready* (in one heap, by rank) or waits in the *room* of exactly one scope: the one that
opens last. Lanes own no timers: a scope that is shared by 50,000 lanes would wake them all at the same instant for one
to win. The scope's room has one timer, and an opening scope wakes its best lane only. That lane has the room's *baton*,
and whoever handles a lane with a baton (granted, or blocked elsewhere) passes it on while the scope is open. The
invariant:

    W: if a scope is open and lanes wait in its room, one that is no worse than the best of them is ready.

So the best lane that could go is ready, or behind a baton that will be looked at first. Two more rules:

- A scope with a quota is open or closed depending on the amount. Lanes that need more than fits are set aside with the
  time at which it will, and smaller ones may pass (F11). A lane lines up in the room of its first quota even when that
  is open, for there the order is by share (F07); everywhere else it is by turn.
- On a claimed scope, lanes that rank behind the claimant are not woken.

Heaps are cleaned lazily: a record whose version is not its lane's is stale.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from trawl.scheduler.claims import Claims
from trawl.scheduler.lanes import PAGE, READY

if TYPE_CHECKING:
    from trawl.scheduler.lanes import Lane, Rank
    from trawl.throttling.scope import Scope

__all__ = ["Board", "Room", "Ticket"]

Ticket: TypeAlias = "tuple[bool, int, float, int, int, Lane]"
"""A lane's place in a heap: page, minus priority, minus share (0.0 but at a quota), turn, version, and the lane."""

BACKOFF_PATIENCE = 30.0
"""How long, in seconds, a claimant may wait for a backed-off delay before its claim is dropped. Shorter waits are
contention like any other: two scopes that back off for hours would starve those who need both."""

ROOM_TO_GROW = 64
"""A heap is cleaned when it has doubled, and has more than this many records."""


class Room:
    """Who waits for one scope.

    Attributes:
        scope: The scope.
        waiters: A heap of those who wait.
        aside: A heap of those for whom the amount left does not do, each with the instant at which it will.
        refills: The quota's counter of refills when ``aside`` was last looked through.
        least: No lane here needs less than this.
        armed: The instant its timer is set to; ``inf`` for none.
        baton: The lane that was woken last.
        claim: The claimant, if the scope is one of its scopes.
    """

    __slots__ = ("_closed", "_closed_at", "armed", "aside", "baton", "claim", "least", "refills", "scope", "waiters")

    def __init__(self, scope: Scope) -> None:
        self.scope: Scope = scope
        self.waiters: list[Ticket] = []
        self.aside: list[tuple[float, Ticket]] = []
        self.refills: int = -1
        self.least: float = inf
        self.armed: float = inf
        self.baton: Lane | None = None
        self.claim: Lane | None = None
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
        """What the time that a lane waits here is counted by: how long the scope has been closed, in seconds.

        With a quota it is open for one and closed for another: then all the time counts.
        """
        if self.scope.quota is not None:
            return now
        return self._closed + max(0.0, now - self._closed_at)

    def ticket(self, lane: Lane) -> Ticket:
        """The place of ``lane`` among those here."""
        head = lane.queue[0]
        share = 0.0 if self.scope.quota is None else head[1]
        return (lane.kind >= PAGE, head[0], share, lane.turn, lane.version, lane)

    def withholds(self, lane: Lane) -> bool:
        """Whether a claim keeps ``lane`` from this scope."""
        claim = self.claim
        return claim is not None and claim is not lane and lane.rank() > claim.rank() and self.scope.is_tight()

    def prefers_baton(self, lane: Lane) -> bool:
        """Whether, at a quota, another lane that is ready goes before ``lane`` by its share (F07)."""
        baton = self.baton
        return (
            baton is not None
            and baton is not lane
            and baton.where is READY
            and self.scope.quota is not None
            and self.ticket(baton) < self.ticket(lane)
        )

    def keeps_off(self, lane: Lane) -> bool:
        """Whether ``lane`` has to wait here although the scope is open."""
        return self.withholds(lane) or self.prefers_baton(lane)

    def trim(self) -> None:
        """Drop stale tickets off the top."""
        waiters = self.waiters
        while waiters and waiters[0][4] != waiters[0][5].version:
            heappop(waiters)

    def lanes(self) -> list[Lane]:
        """The lanes that wait here, in no order."""
        tickets = [*self.waiters, *(ticket for _, ticket in self.aside)]
        return [ticket[5] for ticket in tickets if ticket[4] == ticket[5].version]


class Board:
    """Who is ready, who waits where, and when a scope is to be looked at.

    Attributes:
        ready: A heap of the lanes that are looked at next.
        rooms: The rooms that there are, by scope.
        claims: The claimant and the line.
    """

    __slots__ = ("_bound", "_tiebreak", "_timer_bound", "_timers", "claims", "ready", "rooms")

    def __init__(self) -> None:
        self.ready: list[Ticket] = []
        self.rooms: dict[str, Room] = {}
        self.claims: Claims = Claims()
        self._timers: list[tuple[float, int, Room]] = []
        self._tiebreak = count().__next__
        self._bound = ROOM_TO_GROW
        self._timer_bound = ROOM_TO_GROW

    def room(self, scope: Scope) -> Room:
        """The room of ``scope``, made when it is first needed."""
        room: Room | None = scope.waiting
        if room is None:
            room = scope.waiting = self.rooms[scope.id] = Room(scope)
        return room

    def close_room(self, scope: Scope) -> None:
        """Forget the room of a scope that no lane needs any more."""
        if scope.waiting is not None:
            scope.waiting.armed = inf
            scope.waiting = None
            del self.rooms[scope.id]

    # -- lanes move

    def enter(self, lane: Lane, now: float) -> None:
        """Have ``lane`` looked at: at the next choice, or when its turn comes at its quota."""
        for scope in lane.scopes:
            if scope.quota is not None:
                room = self.room(scope)
                self._wait(lane, room, now)
                self.wake(room, now)
                return
        self.make_ready(lane, now)

    def make_ready(self, lane: Lane, now: float) -> None:
        """Have ``lane`` looked at at the next choice."""
        lane.leave(now)
        lane.version += 1
        lane.where = READY
        lane.mark = now
        ready = self.ready
        heappush(ready, (lane.kind >= PAGE, lane.queue[0][0], 0.0, lane.turn, lane.version, lane))
        if len(ready) > self._bound:
            ready[:] = [ticket for ticket in ready if ticket[4] == ticket[5].version]
            heapify(ready)
            self._bound = 2 * len(ready) + ROOM_TO_GROW

    def block(self, lane: Lane, room: Room, until: float, now: float) -> None:
        """Have ``lane`` wait for a scope that opens at ``until``; at or before ``now``: for a claim or a baton."""
        if until > now:
            room.close(now)
        else:
            room.open(now)
        self._wait(lane, room, now)
        if now < until < room.armed:
            self._arm(room, until)

    def pass_on(self, lane: Lane, now: float) -> None:
        """Pass on the batons of a lane that is not ready any more."""
        for scope in lane.scopes:
            room = scope.waiting
            if room is not None and room.baton is lane:
                room.baton = None
                self.wake(room, now)

    # -- scopes open

    def wake(self, room: Room, now: float) -> None:
        """Restore W for one scope, and set its timer."""
        if not room.waiters and not room.aside:
            return
        scope = room.scope
        if room.claim is not None:
            self._doubt(room, now)
        until = scope.gate(now, room.least if scope.quota is not None else 1.0)
        if until > now:
            room.close(now)
            self._arm(room, until)
            return
        room.open(now)
        if room.aside:
            self._bring_back(room, now)
        baton = room.baton
        if baton is not None and baton.where is READY:
            room.trim()
            if not room.waiters or room.ticket(baton) <= room.waiters[0]:
                self._arm(room, room.aside[0][0] if room.aside else inf)
                return
        room.baton = self._best(room, now)
        self._arm(room, room.aside[0][0] if room.aside else inf)

    def let_time_pass(self, now: float) -> None:
        """Wake the scopes whose time has come."""
        timers = self._timers
        while timers and timers[0][0] <= now:
            until, _, room = heappop(timers)
            if room.armed == until:
                room.armed = inf
                room.open(until)  # the time since then it waited for a place
                self.wake(room, now)

    def next_timer(self) -> float:
        """The instant at which the next scope is to be looked at; ``inf`` for none."""
        timers = self._timers
        while timers and timers[0][2].armed != timers[0][0]:
            heappop(timers)
        return timers[0][0] if timers else inf

    def timer_count(self) -> int:
        """How many timers are kept, stale ones included: for tests."""
        return len(self._timers)

    # -- claims

    def claim(self, lane: Lane) -> None:
        """Ask for the claim for a lane that was passed too often."""
        if self.claims.ask(lane):
            self._mark(lane)

    def end_claim(self, lane: Lane, now: float) -> None:
        """Take ``lane`` out of the line or the seat; then the next is seated, and those who were kept off are woken."""
        if not lane.is_claiming:
            lane.is_starving = False
            return
        self.claims.leave(lane)
        for scope in lane.scopes:
            room = scope.waiting
            if room is not None and room.claim is lane:
                room.claim = None
                room.refills = -1  # whom the claim set aside comes back
        if (following := self.claims.seat_next()) is not None:
            self._mark(following)
            if following.where is not READY:
                self.make_ready(following, now)  # its claim may be gone; is its obstacle still one?
        for scope in lane.scopes:
            if scope.waiting is not None:
                self.wake(scope.waiting, now)

    def yield_claim(self, lane: Lane, rank: Rank, now: float) -> None:
        """Send the claimant to the end of the line when ``lane``, of a better priority, goes by it and others wait.

        ``rank`` is what the lane had when it went.
        """
        claimant = self.claims.claimant
        if (
            claimant is not None
            and claimant is not lane
            and rank[:2] < claimant.rank()[:2]
            and any(scope.waiting is not None and scope.waiting.claim is claimant for scope in lane.scopes)
            and self.claims.has_line()
        ):
            self.end_claim(claimant, now)
            self.claims.ask(claimant)

    # -- inside

    def _wait(self, lane: Lane, room: Room, now: float) -> None:
        lane.leave(now)
        lane.wait_at(room, now)
        if room.scope.quota is not None:
            if not room.waiters and not room.aside:
                room.least = inf
            room.least = min(room.least, lane.amount_in(room.scope))
        heappush(room.waiters, room.ticket(lane))

    def _best(self, room: Room, now: float) -> Lane | None:
        """Make the best lane ready that the open scope lets through; who it is, or None when nobody may go."""
        waiters, scope = room.waiters, room.scope
        while waiters:
            ticket = waiters[0]
            lane = ticket[5]
            if ticket[4] != lane.version:
                heappop(waiters)
                continue
            if room.claim is not None and room.withholds(lane):
                if room.claim.where is room:
                    self.make_ready(room.claim, now)
                    return room.claim
                if scope.quota is None:
                    return None  # whoever is behind it ranks behind the claimant too
                self._set_aside(room, inf)
                continue
            if scope.quota is not None and (fits_at := scope.gate(now, lane.amount_in(scope))) > now:
                self._set_aside(room, fits_at)
                continue
            heappop(waiters)
            lined_up_at = lane.quota_scope()
            if lined_up_at is None or lined_up_at is scope:
                self.make_ready(lane, now)
            else:
                self.enter(lane, now)
            if lane.where is READY:
                return lane
        return None

    def _set_aside(self, room: Room, until: float) -> None:
        heappush(room.aside, (until, heappop(room.waiters)))

    def _bring_back(self, room: Room, now: float) -> None:
        """Put those set aside back among the waiters whose time has come, or all when room was made otherwise."""
        quota = room.scope.quota
        if quota is None or quota.refills != room.refills:
            for _, ticket in room.aside:
                heappush(room.waiters, ticket)
            room.aside.clear()
        while room.aside and room.aside[0][0] <= now:
            heappush(room.waiters, heappop(room.aside)[1])
        room.refills = -1 if quota is None else quota.refills

    def _doubt(self, room: Room, now: float) -> None:
        """Drop the claim on a scope that is closed for longer than contention lasts."""
        claimant = room.claim
        if (
            claimant is not None
            and claimant.where is not READY
            and room.scope.is_shut(now, claimant.amount_in(room.scope), BACKOFF_PATIENCE)
        ):
            self.end_claim(claimant, now)

    def _mark(self, lane: Lane) -> None:
        for scope in lane.scopes:
            self.room(scope).claim = lane

    def _arm(self, room: Room, until: float) -> None:
        if until == room.armed:
            return
        room.armed = until
        if until == inf:
            return
        timers = self._timers
        heappush(timers, (until, self._tiebreak(), room))
        if len(timers) > self._timer_bound:
            timers[:] = [timer for timer in timers if timer[2].armed == timer[0]]
            heapify(timers)
            self._timer_bound = 2 * len(timers) + ROOM_TO_GROW
