"""The queues in which lanes wait, the timers of the scopes, and the rule by which lanes are woken.

Only the scheduler imports it. It is the scheduler's state, separate from its decisions.

Theory of operation. A lane is *ready* (in one heap, by rank) or waits in the *queue* of exactly one scope, the one that
opens last. Lanes have no timers, because a scope of 50,000 lanes would wake all of them to grant one. The scope's queue
has one timer, and a scope that opens wakes only its best lane. The queue remembers the *woken* lane. When that lane is
granted or waits elsewhere, the queue wakes the next lane if the scope is open. The invariant:

    W: if a scope is open and lanes wait in its queue, a lane that is at least as good as the best of them is ready.

So the best lane that may be granted is ready, or waits behind a woken lane that is checked first. Three more rules:

- A scope with a quota is open or closed depending on the amount. Lanes that need more than remains are set aside with
the time at which enough remains, and lanes with smaller amounts may pass. A lane waits in the queue of each of its
quotas in turn, even if they are open, because there the order is by share. In all other queues the order is by turn,
but lanes that share a quota exchange their turns: a turn of one of them goes to the lane in that queue with the largest
share. So together they have as many turns as before, and use them by share. A lane with several scopes that has
reserved them goes before larger shares.
- In a reserved scope (:mod:`trawl.scheduler.scope_queue`), lanes that could delay the lane with the reservation are not
woken, or are set aside. A quota is reserved for the first lane set aside, so that this lane is granted one window later
at the latest, even if small amounts use all that returns. A fixed window needs this only for lanes with several scopes:
its whole amount returns at once, and then the largest amount is first.

Heaps are cleaned lazily: an entry is old if its version is not its lane's version.

Requests with a later time of their own do not wait in lanes but in :class:`LaterQueue`, so that they delay no request
behind them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING

from trawl.scheduler.attempt import PAGE
from trawl.scheduler.lanes import READY
from trawl.scheduler.scope_queue import ROOM_TO_GROW, ScopeQueue, Ticket
from trawl.throttling.limit import PATIENCE

if TYPE_CHECKING:
    from trawl.scheduler.attempt import Attempt
    from trawl.scheduler.lanes import Lane
    from trawl.throttling.scope import Scope

__all__ = ["LaneQueues", "LaterQueue", "Preparations"]


class LaterQueue:
    """Attempts that may not be granted before a time of their own, ordered by this time and then by arrival."""

    __slots__ = ("heap",)

    def __init__(self) -> None:
        # The attempts; empty if none waits here. Some may have been withdrawn.
        self.heap: list[tuple[float, int, Attempt]] = []

    def add(self, attempt: Attempt, not_before: float, order: int) -> None:
        """Keep ``attempt``, whose rank among equals is ``order``, until ``not_before``."""
        heappush(self.heap, (not_before, order, attempt))

    def due(self, now: float) -> Iterator[tuple[Attempt, int]]:
        """Remove and yield the attempts that are due, each with its order. Withdrawn attempts are dropped."""
        heap = self.heap
        while heap and heap[0][0] <= now:
            _, order, attempt = heappop(heap)
            if attempt.is_pending:
                yield attempt, order

    def next_at(self) -> float:
        """Return the time at which the next attempt is due; ``inf`` if there is none."""
        heap = self.heap
        while heap and not heap[0][2].is_pending:
            heappop(heap)
        return heap[0][0] if heap else inf

    def pending(self) -> list[Attempt]:
        """Return the attempts that wait here, by time."""
        return [attempt for _, _, attempt in sorted(self.heap, key=lambda item: item[:2]) if attempt.is_pending]


class LaneQueues:
    """The ready lanes, the queues of the scopes, and the timers."""

    __slots__ = (
        "_bound",
        "_prepares",
        "_tiebreak",
        "_timer_bound",
        "ready",
        "scope_queues",
        "timers",
    )

    def __init__(self, *, prepares: bool = False) -> None:
        self._prepares = prepares
        self.ready: list[Ticket] = []  # a heap of the lanes that are checked next
        self.scope_queues: dict[str, ScopeQueue] = {}  # the queues by scope id
        # A heap of the times at which scopes are checked. Some may be old.
        self.timers: list[tuple[float, int, ScopeQueue]] = []
        self._tiebreak = count().__next__
        self._bound = ROOM_TO_GROW
        self._timer_bound = ROOM_TO_GROW

    def queue_of(self, scope: Scope) -> ScopeQueue:
        """Return the queue of ``scope``. Creates it if needed."""
        queue = self.scope_queues.get(scope.id)
        if queue is None:
            queue = self.scope_queues[scope.id] = ScopeQueue(scope, prepares=self._prepares)
        return queue

    def close_queue(self, scope: Scope) -> None:
        """Remove the queue of a scope that no lane needs any more."""
        queue = self.scope_queues.pop(scope.id, None)
        if queue is not None:
            queue.armed = inf

    def is_needed(self, scope: Scope) -> bool:
        """Return True if a lane waits in the queue of ``scope``, or has reserved it or other scopes with it."""
        queue = self.scope_queues.get(scope.id)
        return queue is not None and bool(queue.holders or queue.lanes())

    # -- lanes move

    def enter(self, lane: Lane, now: float, after: Scope | None = None) -> None:
        """Make ``lane`` ready, or have it wait at its next quota after the scope ``after``."""
        scope = lane.quota_after(after) if lane.kind >= PAGE or not self._prepares else None
        if scope is None:
            self.make_ready(lane, now)
            return
        queue = self.queue_of(scope)
        self._wait(lane, queue, now)
        self.wake(queue, now)

    def line_up_anew(self, scope: Scope, lanes: Iterable[Lane], now: float) -> None:
        """Order by share those of ``lanes`` that need ``scope``, which has just got a quota."""
        queue = self.queue_of(scope)
        mine = [lane for lane in lanes if scope in lane.scopes]
        waited = [lane for lane in mine if lane.where is queue]
        queue.clear()
        for lane in mine:
            # A lane with one scope had no quota before at which it could be passed.
            lane.count_passes()
            if lane.where is READY or lane in waited:
                self._wait(lane, self.queue_of(lane.quota_after(None) or scope), now)
            elif isinstance(lane.where, ScopeQueue):
                self._wait(lane, lane.where, now)
        for each in {scope: None for lane in mine for scope in lane.scopes if scope.quota is not None}:
            self.wake(self.queue_of(each), now)

    def make_ready(self, lane: Lane, now: float) -> None:
        """Have ``lane`` checked at the next choice."""
        if lane.where is not None and lane.where is not READY:
            lane.leave(now)
        lane.version += 1
        lane.where = READY
        lane.ready_at = now
        ready = self.ready
        heappush(ready, (lane.kind >= PAGE, lane.queue[0][0], 0.0, lane.turn, lane.version, lane))
        if len(ready) > self._bound:
            ready[:] = [ticket for ticket in ready if ticket[4] == ticket[5].version]
            heapify(ready)
            self._bound = 2 * len(ready) + ROOM_TO_GROW

    def block(self, lane: Lane, queue: ScopeQueue, until: float, now: float) -> None:
        """Have ``lane`` wait for a scope until ``until``; if that is not after ``now``, for another lane."""
        if until > now:
            queue.close(now)
        else:
            queue.open(now)
        self._wait(lane, queue, now)
        if now < until < queue.armed:
            self._arm(queue, until)

    def wake_next(self, lane: Lane, now: float) -> None:
        """Wake the next lanes instead of ``lane``, which is no longer ready."""
        for scope in lane.scopes:
            queue = self.scope_queues.get(scope.id)
            if queue is not None and queue.woken is lane:
                queue.woken = None
                self.wake(queue, now)

    def reserve(self, lane: Lane, now: float) -> None:
        """Reserve all scopes of a lane that was passed too often, unless one is reserved for a better lane.

        Its shared scopes only while it has a token for them, or needs none to be prepared. A lane that has lost a scope
        by this keeps its others only while one of them is a quota that is far away.
        """
        has_all = lane.has_token or self._prepares
        queues = [self.queue_of(scope) for scope in lane.scopes if has_all or not scope.is_shared]
        if all(queue.reserved_for is lane for queue in queues):
            return
        others = [(each, other) for each in queues if (other := each.reserved_for) is not None and other is not lane]
        if any(other.kept_until > now and queue.goes_before(other, lane, now) for queue, other in others):
            if not self._keeps_quota(lane, now) and self.let_go(lane):
                self._wake_all(lane, now)
            return
        for queue in queues:
            queue.reserved_for = lane
            queue.holders[lane] = None
            queue.refills = -1  # compute the times of the lanes set aside again
        lane.kept_until = inf
        for other in {other: None for _, other in others}:
            if not self._keeps_quota(other, now):
                self.let_go(other)
            self._wake_all(other, now)

    def let_go(self, lane: Lane) -> bool:
        """End the reservation of ``lane``. Returns True if it had one, so that the caller must wake its queues."""
        if not lane.kept_until:
            return False
        lane.kept_until = 0.0
        for scope in lane.scopes:
            queue = self.scope_queues.get(scope.id)
            if queue is None or lane not in queue.holders:
                continue
            del queue.holders[lane]
            if queue.reserved_for is lane:
                queue.reserved_for = None
                queue.refills = -1  # check the lanes that were set aside for it
        return True

    def wake_others(self, queue: ScopeQueue, now: float) -> None:
        """Wake the queues that are reserved for the holders of ``queue``, because these may wait longer now.

        Holders that have lost it wait for a quota that is far away, so only a time later than that matters to them.
        """
        is_near = queue.scope.quota is None and queue.scope.foreseen_at(now, 1.0) <= now + PATIENCE
        for lane in [queue.reserved_for] if is_near else list(queue.holders):
            for scope in lane.scopes if lane is not None else ():
                other = self.scope_queues.get(scope.id)
                if other is not None and other is not queue and other.reserved_for is lane:
                    other.refills = -1
                    self.wake(other, now)

    # -- scopes open

    def wake(self, queue: ScopeQueue, now: float) -> None:
        """Restore W for one scope, and set its timer."""
        if not queue.waiters and not queue.aside:
            return
        scope = queue.scope
        # With the least amount: if that does not fit, none does.
        until = queue.earliest_at(now, queue.least if scope.quota is not None else 1.0)
        if until > now:
            queue.close(now)
            self._arm(queue, until)
            # Check prepared requests whose time to be sent is now far away, so that they are put back.
            if scope.traffic.ahead and not self._prepares and scope.is_far(until, now):
                for lane in queue.lanes():
                    if lane.was_prepared:
                        self.make_ready(lane, now)
            return
        queue.open(now)
        if queue.passed and (starving := queue.starving()) is not None:
            self.reserve(starving, now)
        if queue.reserved_for is not None and queue.reserved_for.kept_until < inf:
            self.reserve(queue.reserved_for, now)  # it takes back what it has lost, or loses this scope too
        if queue.aside:
            self._bring_back(queue, now)
        before = queue.woken
        queue.woken = best = self._best(queue, now)
        if scope.quota is not None and before is not None and best not in {None, before} and before.where is READY:
            self._wait(before, queue, now)  # it waits behind a larger share that was added
            self.wake_next(before, now)
        # The scope is open, so only lanes that were set aside still wait for a time.
        self._arm(queue, queue.aside[0][0] if queue.aside else inf)

    def advance(self, now: float) -> None:
        """Wake the scopes that open at or before ``now``."""
        timers = self.timers
        while timers and timers[0][0] <= now:
            until, _, queue = heappop(timers)
            if queue.armed == until:
                queue.armed = inf
                queue.open(until)  # since then it waited for a place
                self.wake(queue, now)

    def next_timer(self) -> float:
        """Return the time at which the next scope must be checked; ``inf`` if there is none."""
        timers = self.timers
        while timers and timers[0][2].armed != timers[0][0]:
            heappop(timers)
        return timers[0][0] if timers else inf

    # -- inside

    def _keeps_quota(self, lane: Lane, now: float) -> bool:
        """Return True if a quota stays reserved for a lane that has lost a scope: its amount fits only much later."""
        kept = [scope for scope in lane.scopes if self.queue_of(scope).reserved_for is lane]
        fits_at = [scope.quota.fits_at(lane.amount_in(scope), now) for scope in kept if scope.quota is not None]
        until = max(fits_at, default=-inf) - PATIENCE
        if until <= now:
            return False
        lane.kept_until = until
        return True

    def _wake_all(self, lane: Lane, now: float) -> None:
        for scope in lane.scopes:
            self.wake(self.queue_of(scope), now)

    def _wait(self, lane: Lane, queue: ScopeQueue, now: float) -> None:
        lane.leave(now)
        lane.wait_for(queue, now)
        queue.add(lane)

    def _best(self, queue: ScopeQueue, now: float) -> Lane | None:
        """Make the best lane ready that the open scope allows. Returns this lane, or None if none may be granted.

        This is the woken lane if it is ready and no lane that fits is better.
        """
        waiters, scope = queue.waiters, queue.scope
        while True:
            woken = queue.woken
            ready = woken if woken is not None and woken.where is READY else None
            if not waiters:
                return ready
            ticket = waiters[0]
            lane = ticket[5]
            if ticket[4] != lane.version:
                heappop(waiters)
                continue
            # W holds already, because the woken lane is ready and at least as good as the best that waits.
            if ready is not None and queue.ticket(ready) <= ticket:
                return ready
            if scope.pages is not None and lane.awaits_pages(scope):
                self._set_aside(queue, inf)
                continue
            holder = queue.reserved_for
            if scope.quota is None:
                if holder is not None and queue.blocks(lane, now):
                    return ready  # lanes behind it also rank behind the holder
            elif (until := queue.fits_at(lane, now)) > now:
                self._set_aside(queue, until)
                continue
            elif holder is not None and holder is not lane and queue.goes_first(holder, lane, now):
                lane = holder
            # The entry of a holder stays in the heap, and is old when the lane moves.
            if lane is ticket[5]:
                heappop(waiters)
            if queue.peers:
                lane = self._of_largest_share(queue, lane, now)
            self.enter(lane, now, scope)
            # If it waits at another quota, this may have woken a better lane here.
            if lane.where is READY and queue.woken is woken:
                return lane

    def _of_largest_share(self, queue: ScopeQueue, lane: Lane, now: float) -> Lane:
        """Choose the lane for the turn of ``lane`` in a queue without a quota: the largest share of a common quota."""
        best = lane
        for scope in lane.scopes if not lane.kept_until else ():
            peers = queue.peers.get(scope.id)
            while peers and scope in best.scopes:
                peer = peers[0][5]
                if peers[0][4] != peer.version:
                    heappop(peers)
                elif peer is best or peer.share_in(scope) <= best.share_in(scope) or peer.awaits_pages(queue.scope):
                    break
                elif self.queue_of(scope).earliest_at(now, peer.amount_in(scope)) > now:
                    self.enter(peer, now)  # it does not fit, so it waits at its quota
                else:
                    best = peer
        if best is not lane:
            best.turn, lane.turn = lane.turn, best.turn
            self._wait(lane, queue, now)
        return best

    def _set_aside(self, queue: ScopeQueue, until: float) -> None:
        heappush(queue.aside, (until, heappop(queue.waiters)))

    def _bring_back(self, queue: ScopeQueue, now: float) -> None:
        """Return lanes that were set aside to the waiters: those that are due, or all if the quota was refilled.

        Other limits may have held back lanes behind a reservation, so all of them return then too.
        """
        quota = queue.scope.quota
        is_held_back = queue.reserved_for is not None and len(queue.scope.in_force) > 1
        if quota is None or quota.refills != queue.refills or is_held_back:
            for _, ticket in queue.aside:
                heappush(queue.waiters, ticket)
            queue.aside.clear()
        while queue.aside and queue.aside[0][0] <= now:
            heappush(queue.waiters, heappop(queue.aside)[1])
        queue.refills = -1 if quota is None else quota.refills

    def _arm(self, queue: ScopeQueue, until: float) -> None:
        if until == queue.armed:
            return
        queue.armed = until
        # An older timer stays in the heap. It is old if its time is not ``armed``.
        if until == inf:
            return
        timers = self.timers
        heappush(timers, (until, self._tiebreak(), queue))
        if len(timers) > self._timer_bound:
            timers[:] = [timer for timer in timers if timer[2].armed == timer[0]]
            heapify(timers)
            self._timer_bound = 2 * len(timers) + ROOM_TO_GROW


class Preparations(LaneQueues):
    """The same for lanes whose attempts wait to be prepared, and what is known about the user code for this."""

    __slots__ = ("ahead", "awaits", "caution", "has_user_code", "overdue", "running")

    def __init__(self) -> None:
        super().__init__(prepares=True)
        # True if user code runs before each send, so that requests are prepared before they wait for their places. The
        # engine sets it.
        self.has_user_code: bool = False
        self.awaits: bool = False  # True if user code has awaited something before a send
        # Number of requests of a scope that user code must send, each after awaiting something, before it is assumed
        # never to respond. The engine sets it.
        self.caution: float = 0.0
        self.running: int = 0  # number of pages whose middleware runs
        self.ahead: int = 0  # number of pages that are being prepared, or are prepared and have no places yet
        # A heap of the times at which attempts have taken much longer than others. Some may be old.
        self.overdue: list[tuple[float, int, Attempt]] = []

    def next_overdue(self) -> float:
        """Return the time at which the next attempt is overdue; ``inf`` if there is none."""
        overdue = self.overdue
        while overdue and not (overdue[0][2].is_ahead and overdue[0][2].is_preparing):
            heappop(overdue)
        return overdue[0][0] if overdue else inf
