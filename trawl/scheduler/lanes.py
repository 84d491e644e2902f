"""Lanes: queues of attempts that wait for the same things, and the closed gates of origins.

A *lane* holds the attempts that need the same scopes and the same origin, so only its best attempt is compared with
those of other lanes. Pages, direct fetches and requests for robots.txt, which pass a closed gate, have separate lanes.

Only lanes of an origin wait at its gate, until its robots.txt is read. The scheduler knows whether a gate is closed,
but not why: the engine closes it, requests robots.txt, and opens it when the rules are known. If the server failed, the
gate stays closed with a time.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import attrs

from trawl.frontier import Amounts
from trawl.scheduler.attempt import PAGE, Attempt, LaneId
from trawl.throttling.limits import EXACT
from trawl.throttling.reasons import Reason
from trawl.throttling.scopes import BROWSER

if TYPE_CHECKING:
    from trawl.scheduler.scope_queue import ScopeQueue
    from trawl.throttling.scope import Scope

__all__ = [
    "READY",
    "Lane",
    "OriginGate",
    "Rank",
    "Refused",
]


class OriginGate:
    """The closed gate of one origin."""

    __slots__ = ("lanes", "origin", "reason")

    def __init__(self, origin: str) -> None:
        self.origin: str = origin
        self.reason: Reason | None = None  # the reason for waiting lanes; None while robots.txt is read
        # The lanes that arrived here, in this order. Some may have left or be empty.
        self.lanes: dict[Lane, None] = {}

    def why(self, now: float) -> Reason:
        """Return the reason why its lanes wait."""
        reason = self.reason
        return reason if reason is not None and reason.until > now else Reason(self.origin, "gate", inf, "robots.txt")

    def waiting(self) -> list[Lane]:
        """Return the lanes that still wait here, in the order in which they arrived."""
        return [lane for lane in self.lanes if lane.where is self]

    def closed_for(self, now: float) -> float:
        """Return the seconds for which the gate was closed, up to a constant: an existing gate is always closed."""
        return now

    def attempts(self) -> list[Attempt]:
        """Return the attempts that wait here, by falling priority."""
        attempts = [entry[3] for lane in self.waiting() for entry in sorted(lane.queue)]
        return sorted(attempts, key=lambda attempt: -attempt.priority)


Rank: TypeAlias = "tuple[bool, int, int]"
"""The order of lanes, smallest first: direct fetches before pages, then the negative priority, then the turn."""

READY = "ready"
"""The ``where`` of a lane that is checked at the next choice."""


@attrs.frozen
class Refused:
    """An attempt that may not be sent. It has left its lane and holds nothing."""

    attempt: Attempt
    reason: str  # the reason that `vet` returned


class Lane:
    """Attempts that need the same scopes and origin. Only the scheduler changes it."""

    __slots__ = (
        "asks",
        "bases",
        "closed_before",
        "elsewhere",
        "has_token",
        "id",
        "kept_until",
        "kind",
        "origin",
        "passed_at",
        "prepares",
        "queue",
        "ready_at",
        "scopes",
        "throttled",
        "turn",
        "version",
        "was_prepared",
        "where",
    )

    def __init__(self, id: LaneId, scopes: tuple[Scope, ...], origin: str = "", kind: int = PAGE) -> None:
        self.id: LaneId = id
        # The amount that its requests need of each of its scopes; None for a scope for which they name none
        self.asks: Amounts = ()
        self.scopes: tuple[Scope, ...] = scopes  # its scopes, sorted by id
        self.origin: str = origin  # the origin whose gate its attempts wait for
        self.kind: int = kind  # the kind of its attempts: DIRECT, PASSING or PAGE
        self.queue: list[tuple[int, float, int, Attempt]] = []  # a heap of its attempts
        self.turn: int = 0  # increases each time it goes behind the other lanes of equal priority, which take turns
        self.version: int = 0  # increases whenever the lane moves, which makes older entries of it in heaps invalid
        # READY, the queue of the scope it waits for, its origin's closed gate, or None while it is in none of them
        self.where: str | ScopeQueue | OriginGate | None = None
        # Seconds for which its best attempt waited for anything other than a free place, since the grant before
        self.throttled: float = 0.0
        self.closed_before: float = 0.0  # the `closed_for` of what it waits for, in seconds, when the wait started
        self.ready_at: float = 0.0  # event loop time at which it became ready
        # The scopes' counters of grants at its turn, to count how often it is passed. Only for lanes with several
        # scopes or a quota.
        self.bases: list[int] | None = None
        self.has_token: bool = False  # True if it has a token of its shared scopes that may be used now
        # Time until which the reservation of its scopes counts although it has lost one; `inf` if it has lost none; 0.0
        # without a reservation
        self.kept_until: float = 0.0
        self.passed_at: int = -1  # its version when its queue found that the remaining amount is too small for it
        # True if its attempts wait to be prepared, because user code must still run for them; False if they wait for
        # their places
        self.prepares: bool = False
        self.was_prepared: bool = False  # True if user code has run for its attempts
        # Number of its prepared attempts that its scopes do not count as ahead, because they wait for another of its
        # scopes
        self.elsewhere: int = 0

    __hash__: ClassVar[Any] = object.__hash__  # a compiled class that has an order inherits none

    def __lt__(self, other: Lane) -> bool:
        return False  # two entries of which one is old, because turns change

    @property
    def head(self) -> Attempt:
        """Its best attempt. The lane must not be empty."""
        return self.queue[0][3]

    @property
    def is_careful(self) -> bool:
        """True if user code may respond to its attempts. Then they are prepared only as fast as they could be sent."""
        return any(scope.is_careful for scope in self.scopes)

    def rank(self) -> Rank:
        """Its rank among lanes, by its best attempt."""
        return (self.kind >= PAGE, self.queue[0][0], self.turn)

    def add(self, attempt: Attempt, order: int) -> bool:
        """Add ``attempt``. Returns True if it is now the best."""
        options = attempt.options
        if options.order is not None:
            order = options.order
        attempt.lane = self
        heappush(self.queue, (-attempt.priority, -options.share, order, attempt))
        if self.elsewhere:
            self.wait_elsewhere(1)
        return self.queue[0][3] is attempt

    def drop_head(self) -> None:
        """Remove the best attempt, and withdrawn ones behind it."""
        queue = self.queue
        heappop(queue)
        while queue and not queue[0][3].is_pending:
            heappop(queue)

    def drop_worst(self, max_number: int) -> list[Attempt]:
        """Remove up to ``max_number`` of the worst pending attempts, but not the best, and all withdrawn ones."""
        line = sorted([item for item in self.queue if item[3].is_pending])
        keep = max(1, len(line) - max_number)
        self.queue[:] = line[:keep]  # sorted, it is a heap
        return [item[3] for item in line[keep:]]

    def wait_for(self, where: ScopeQueue | OriginGate, now: float) -> None:
        """Record that it waits at ``where`` since ``now``."""
        self.version += 1
        self.where = where
        self.closed_before = where.closed_for(now)
        if self.was_prepared:
            self.wait_elsewhere(sum(item[3].is_pending for item in self.queue))
        if isinstance(where, OriginGate):
            for scope in self.scopes:
                scope.waits.wait_at_gate(now)

    def leave(self, now: float) -> None:
        """Count for how long what it waited for was closed. Call this before it moves."""
        where = self.where
        if self.elsewhere:
            self.wait_elsewhere(-self.elsewhere)
        if where is not None and not isinstance(where, str):
            self.throttled += max(0.0, where.closed_for(now) - self.closed_before)
            if isinstance(where, OriginGate):
                for scope in self.scopes:
                    scope.waits.wait_at_gate(now, -1)

    def need(self, asks: Amounts, now: float) -> None:
        """Have its scopes count it as pending, with the amounts ``asks``."""
        self.asks = asks
        for scope, amount in zip(self.scopes, asks, strict=True):
            scope.waits.need(amount, now, ahead=scope.traffic.ahead)

    def need_no_more(self, now: float) -> None:
        """Have its scopes stop counting it, because it is empty."""
        self.leave(now)
        self.version += 1
        self.where = None
        for scope, amount in zip(self.scopes, self.asks, strict=True):
            scope.waits.need_no_more(amount, now)

    def grant(self, attempt: Attempt, now: float) -> None:
        """Take each of its scopes for ``attempt``, which was its best."""
        if attempt.is_ahead:
            self.count_no_more(attempt)
        if self.throttled or attempt.times.not_before:
            self._count_throttled(attempt, now)
        self._take(attempt, now)

    def prepare(self, attempt: Attempt, now: float) -> None:
        """Start to prepare ``attempt``, which was its best. While its middleware runs, it holds nothing."""
        if self.throttled or attempt.times.not_before:
            self._count_throttled(attempt, now)
        attempt.times.granted_at = now
        # A direct fetch may be needed by a request that is counted as ahead. So count it only if it may count as a
        # send.
        if self.kind == PAGE or self.is_careful:
            self.count_ahead(attempt)
            for scope in self.scopes:
                if scope.is_careful:
                    scope.traffic.start_preparing(now)

    def count_ahead(self, attempt: Attempt) -> None:
        """Have its scopes count ``attempt`` as ahead."""
        attempt.is_ahead = True
        for scope, amount in self._amounts(attempt):
            scope.traffic.add_ahead(amount)

    def count_no_more(self, attempt: Attempt) -> None:
        """Have its scopes stop counting ``attempt`` as ahead: it gets its places, ends without them, or is overdue."""
        attempt.is_ahead = False
        for scope, amount in self._amounts(attempt):
            scope.traffic.drop_ahead(amount)

    def responded(self, attempt: Attempt) -> None:
        """Take each of its scopes for ``attempt``, to which user code responded, as of the start of its preparation."""
        for scope in self.scopes:
            scope.responded()
        if not attempt.has_places:
            if attempt.is_ahead:
                self.count_no_more(attempt)
            self._take(attempt, attempt.times.granted_at)

    def wait_elsewhere(self, n: int) -> None:
        """Have ``n`` more of its attempts counted as ahead only by the scope that they wait for."""
        if self.kind < PAGE:
            return
        self.elsewhere += n
        for scope, ask in zip(self.scopes, self.asks, strict=True):
            if scope is getattr(self.where, "scope", None):
                scope.traffic.prepared += n
            else:
                scope.traffic.ahead -= n
                scope.traffic.ahead_amount -= n * (1.0 if ask is None else ask)

    def _count_throttled(self, attempt: Attempt, now: float) -> None:
        """Set for how long ``attempt`` waited for anything other than a free place."""
        held, times = self.throttled, attempt.times
        self.throttled = 0.0
        if self.was_prepared:
            times.throttled += min(held, now - times.granted_at)
            return
        if times.not_before:
            held += max(0.0, times.not_before - times.found_at)
        times.throttled = min(held, now - times.found_at)  # it may have been found after the wait started

    def _take(self, attempt: Attempt, now: float) -> None:
        attempt.times.granted_at = now
        attempt.has_places = True
        scopes = self.scopes
        if attempt.is_exempt:  # it takes none
            return
        if len(scopes) == 1:  # most lanes have one scope: the loops below cost twice as much
            scope = scopes[0]
            attempt.steps = (scope.step,)
            amount = attempt.scopes[0][1]
            attempt.slots = (scope.take(now, 1.0 if amount is None else amount),)
            attempt.times.opened_by = scope.waits.opened_by
        else:
            attempt.steps = tuple([scope.step for scope in scopes])
            amounts = self._amounts(attempt)
            attempt.slots = tuple([scope.take(now, amount) for scope, amount in amounts])
            if scopes:
                last = max(scopes, key=_opened_at)
                limit = last.waits.opened_by
                attempt.times.held_by = None if limit is None else Reason(last.id, limit.name, inf, limit.source)

        if attempt.is_sub_request:  # it never becomes a page
            for scope in scopes:
                if scope.pages is not None:
                    scope.pages.under_way -= 1

    def awaits_pages(self, scope: Scope) -> bool:
        """Return True if its best attempt must wait, because ``scope`` is open only for requests of rendered pages."""
        pages = scope.pages
        return (
            pages is not None
            and pages.sub_requests > 0
            and not self.queue[0][3].is_sub_request
            and pages.is_awaited_with(scope.traffic.ahead if self.prepares else 0)
        )

    def _amounts(self, attempt: Attempt) -> list[tuple[Scope, float]]:
        """Return its scopes, each with the amount that ``attempt`` is expected to use."""
        return [(scope, attempt.amount(index)) for index, scope in enumerate(self.scopes)]

    def opens_at(self, attempt: Attempt, now: float) -> float:
        """Return when ``attempt`` may be written; ``inf``: it needs another grant (:meth:`Scope.opens_at`)."""
        # Not strict, because an exempt attempt has scope ids but its lane has no scopes.
        at = -inf
        for slot, scope, (_, amount) in zip(attempt.slots, self.scopes, attempt.scopes, strict=False):
            if (opens_at := scope.opens_at(slot, now, 1.0 if amount is None else amount)) > at:
                at = opens_at
        return at

    def forget_lead(self) -> None:
        """Have its scopes grant nothing early until they have measured their lead again."""
        for scope in self.scopes:
            scope.traffic.lead = 0.0

    def sent(self, attempt: Attempt, now: float, due_at: float = -inf) -> None:
        """Record the send of ``attempt`` in its scopes, which all let it through from ``due_at`` on.

        They use one random number together for their next intervals. Several independent ones would lower the rate.
        """
        draw: float | None = None
        for slot, scope, (_, amount) in zip(attempt.slots, self.scopes, attempt.scopes, strict=False):
            scope.sent(slot, now, 1.0 if amount is None else amount, attempt.times.granted_at, due_at)
            if len(self.scopes) > 1 and scope.is_spaced and scope.effective.jitter != EXACT:
                draw = scope.traffic.draw(draw)

    def written(self, attempt: Attempt, sent_at: float, now: float) -> None:
        """Record in its scopes that the write that started at ``sent_at`` ended at ``now``."""
        for slot, scope in zip(attempt.slots, self.scopes, strict=True):
            scope.written(slot, sent_at, now)

    def give_back(self, attempt: Attempt, now: float, *, is_rest: bool = False) -> None:
        """Release the places of ``attempt``: all except that in the scope ``browser``, or (``is_rest``) only that."""
        was_sent = attempt.times.sent_at is not None
        for slot, scope, (_, amount) in zip(attempt.slots, self.scopes, attempt.scopes, strict=False):
            if (scope.id == BROWSER) is is_rest:
                scope.give(slot, was_sent=was_sent, amount=1.0 if amount is None else amount, now=now)
            elif not is_rest:
                attempt.keeps_page = True

    def take_turn(self, turn: int) -> None:
        """Go behind the other lanes of equal priority."""
        self.turn = turn
        if len(self.scopes) > 1 or (self.scopes and self.scopes[0].quota is not None):
            self.count_passes()

    def count_passes(self) -> None:
        """Start to count how often it is passed."""
        self.bases = [scope.grants for scope in self.scopes]

    def foreseen_at(self, now: float, but: Scope | None = None) -> float:
        """Return when its best attempt may be granted, as far as time decides, by its scopes except ``but``."""
        scopes = [scope for scope in self.scopes if scope is not but]
        return max([scope.foreseen_at(now, self.amount_in(scope)) for scope in scopes], default=now)

    def amount_in(self, scope: Scope) -> float:
        """Return the amount that its best attempt is expected to use of ``scope``."""
        attempt = self.queue[0][3]
        return attempt.amount(self.scopes.index(scope)) if len(self.scopes) > 1 else attempt.amount(0)

    def share_in(self, scope: Scope) -> float:
        """Return the amount that its best attempt names for ``scope``, its share; 0.0 if it names none."""
        return self.queue[0][3].scopes[self.scopes.index(scope)][1] or 0.0

    def quota_after(self, scope: Scope | None) -> Scope | None:
        """Return the next of its scopes after ``scope`` that has a quota, where it waits by its share; None: none.

        After None or a scope without a quota, this is its first scope with a quota.
        """
        is_after = scope is None or scope.quota is None
        for each in self.scopes:
            if is_after and each.quota is not None:
                return each
            is_after = is_after or each is scope
        return None

    def passes(self, scope: Scope | None = None) -> int:
        """Return an upper bound of how often it was passed since its turn: in ``scope``, or the largest number."""
        if self.bases is None:
            return 0
        if scope is not None:
            return scope.grants - self.bases[self.scopes.index(scope)]
        return max([scope.grants - base for scope, base in zip(self.scopes, self.bases, strict=True)])


def _opened_at(scope: Scope) -> float:
    return scope.waits.opened_at
