"""The reasons why requests wait. They are computed from the queues, and only when a caller asks."""

from __future__ import annotations

from collections.abc import Callable, Generator
from math import inf
from typing import TYPE_CHECKING, TypeAlias, cast

import attrs

from trawl.http import host_scope
from trawl.scheduler.attempt import PAGE, Attempt
from trawl.scheduler.lanes import READY, Lane, OriginGate
from trawl.scheduler.scope_queue import ScopeQueue, TokenQueue
from trawl.throttling.reasons import Reason

if TYPE_CHECKING:
    from trawl.frontier import LaneKey
    from trawl.scheduler.scheduler import Scheduler
    from trawl.throttling.scope import Scope

__all__ = [
    "NO_PAGES",
    "NO_PLACE",
    "ReasonCount",
    "StoredCount",
    "pending_pages",
    "waiting_in_steps",
    "why",
    "why_host",
    "why_next",
    "why_url",
]

ReasonCount: TypeAlias = "tuple[int, Reason]"
"""The number of attempts that wait for a reason."""

StoredCount: TypeAlias = "Callable[[LaneKey], int]"
"""Returns the number of pages of a lane that wait in the frontier, behind those in the scheduler."""

NO_PLACE = Reason("", "places", inf, "CONCURRENT_REQUESTS")
"""Nothing can be sent until a request in flight ends."""

NO_PAGES = Reason("", "callbacks", inf, "CONCURRENT_CALLBACKS")
"""No page can be sent until a callback ends."""

NO_PREPARATION = Reason("", "middleware", inf, "CONCURRENT_REQUESTS")
"""No page can be prepared until the middleware of another page has run."""

_OF_ALL = (NO_PLACE, NO_PAGES, NO_PREPARATION)
"""The reasons that concern all requests, and no scope."""


def why(scheduler: Scheduler, subject: object, now: float) -> Reason | None:
    """Return why a pending attempt, its request, a lane of pages or the scope with an id waits; None if it does not.

    An attempt behind others of its lane has the reason of the best one. A request is searched for among all pending
    attempts. An open scope has the reason of its requests; None if it has no pending requests.
    """
    if isinstance(subject, str):
        return _why_scope(scheduler, subject, now)
    if isinstance(subject, tuple):
        lane = scheduler.lanes.get(subject)
        return None if lane is None else _Reasons(scheduler, now).why(lane)
    attempt = subject if isinstance(subject, Attempt) else _attempt_of(scheduler, subject)
    if attempt is None or not attempt.is_pending:
        return None
    if attempt.lane is None:
        return Reason("", "not_before", attempt.times.not_before, "the request's own delay")
    return _Reasons(scheduler, now).why(attempt.lane)


def why_host(scheduler: Scheduler, host: str, now: float) -> Reason | None:
    """Return why requests to ``host`` wait whose scopes have other names; None if no scope of theirs is closed."""
    reasons = _Reasons(scheduler, now)
    for lane in scheduler.lanes.values():
        if any(_is_for(item[3], host) for item in lane.queue):
            reason = reasons.why(lane)
            if reason is not None and reason not in _OF_ALL:
                return reason
    return None


def why_url(scheduler: Scheduler, url: str, now: float) -> Reason | None:
    """Return why the pending request for ``url`` waits, or else the next page of its host; None if none waits."""
    host, behind = host_scope(url), None
    for lane in scheduler.lanes.values():
        for item in lane.queue:
            if item[3].request.url == url:
                return _Reasons(scheduler, now).why(lane)
        if behind is None and lane.kind == PAGE and any(_is_for(item[3], host) for item in lane.queue):
            behind = lane
    later = next((attempt for attempt in scheduler.later.pending() if attempt.request.url == url), None)
    if later is not None:
        return Reason("", "not_before", later.times.not_before, "the request's own delay")
    return None if behind is None else _Reasons(scheduler, now).why(behind)


def _is_for(attempt: Attempt, host: str) -> bool:
    return host in attempt.request.url and host_scope(attempt.request.url) == host


def why_next(scheduler: Scheduler, attempt: Attempt, now: float) -> Reason | None:
    """Return why the next attempt in the lane of ``attempt`` waits; None if there is none, or it may be sent."""
    lane = None
    if attempt.lane is not None:  # the next one is prepared or waits to be prepared
        lane = scheduler.lanes.get(attempt.lane.id) or scheduler.lanes.get(attempt.options.lane_id)
    return None if lane is None else _Reasons(scheduler, now).why(lane)


def pending_pages(scheduler: Scheduler) -> list[Attempt]:
    """Return every pending page, in no particular order. They are released at the end of a crawl."""
    lined = [ticket[-1] for lane in scheduler.lanes.values() for ticket in lane.queue]
    pending = [attempt for attempt in [*lined, *scheduler.later.pending()] if attempt.is_pending and attempt.is_page]
    return [attempt for attempt in pending if attempt.task is None]


def prepared_attempts(scheduler: Scheduler) -> list[Attempt]:
    """Return every prepared attempt that waits for its places."""
    lined = [ticket[-1] for lane in scheduler.lanes.values() if lane.was_prepared for ticket in lane.queue]
    return [attempt for attempt in lined if attempt.is_pending]


STEP_LANES = 20
"""Number of lanes in one step of :func:`waiting_in_steps`: about 0.2 ms."""


def waiting_in_steps(
    scheduler: Scheduler,
    clock: Callable[[], float],
    stored: StoredCount | None = None,
    by_scope: dict[str, int] | None = None,
) -> Generator[None, None, list[ReasonCount]]:
    """Group the pending attempts by the reason why they wait. Yields after each step.

    The reason is computed for each lane, because two lanes in the queue of one scope may have different reasons: one
    may have a second scope that opens later. An attempt that moves between two steps may be counted twice or not at
    all. ``clock`` is called once per step, ``stored`` counts the further pages of a lane in the frontier, and
    ``by_scope`` receives the number of pending attempts of each scope.
    """
    reasons = _Reasons(scheduler, clock())
    groups: dict[Reason, int] = {}
    for number, lane in enumerate(list(scheduler.lanes.values()), 1):
        if number % STEP_LANES == 0:
            yield
            reasons.now = clock()
        if scheduler.lanes.get(lane.id) is not lane:
            continue  # it became empty since the last step
        reason = reasons.why(lane)
        if reason is None and by_scope is None:
            continue
        size = len(lane.queue)
        if stored and lane.kind == PAGE and not lane.was_prepared:
            size += stored(cast("LaneKey", lane.id))
        if reason is not None:
            groups[reason] = groups.get(reason, 0) + size
        if by_scope is not None:
            for scope in lane.scopes:
                by_scope[scope.id] = by_scope.get(scope.id, 0) + size
    later = scheduler.later.pending()
    if later:
        first_at = min([attempt.times.not_before for attempt in later])
        groups[Reason("", "not_before", first_at, "the request's own delay")] = len(later)
    yield
    return [(count, reason) for reason, count in groups.items()]


class _Reasons:
    """The reasons why lanes wait at one time. Each scope is asked once per amount."""

    __slots__ = ("_known", "_of_prepared", "_scheduler", "now")

    def __init__(self, scheduler: Scheduler, now: float) -> None:
        self._scheduler = scheduler
        # The event loop time. It may be moved between two steps.
        self.now: float = now
        self._known: dict[tuple[str, float], Reason] = {}
        self._of_prepared: dict[Scope, Reason] | None = None

    def why(self, lane: Lane) -> Reason | None:
        """Return why the best attempt of a lane waits, by the scope that opens last; None if it may be sent."""
        scheduler, where = self._scheduler, lane.where
        if isinstance(where, OriginGate):
            return where.why(self.now)
        if isinstance(where, TokenQueue):
            return where.reason()
        if where is READY and (full_by := scheduler.full_by(lane)) is not None:
            return full_by  # its scopes are checked only when a place is free
        last: Scope | None = None
        opens_at = self.now
        for scope in lane.scopes:
            until = scope.earliest_at(self.now, lane.amount_in(scope))
            if until > opens_at:
                last, opens_at = scope, until
        if last is not None:
            return self._of_scope(last, lane.amount_in(last))
        for scope in lane.scopes:
            if lane.awaits_pages(scope) and scope.pages is not None:
                return scope.pages.reason(scope, self.now, inf)
        if isinstance(where, ScopeQueue) and where.blocks(lane, self.now):
            return _reserved(where, self.now)
        return self._of_all(lane)

    def _of_all(self, lane: Lane) -> Reason | None:
        """Return why a lane waits although its scopes are open."""
        where = lane.where
        if (full_by := self._scheduler.full_by(lane)) is not None:
            return full_by
        if lane.prepares and lane.kind == PAGE and isinstance(where, ScopeQueue):
            return self._of_preparation(where.scope)
        return NO_PAGES if lane.kind == PAGE and self._scheduler.left_by is NO_PAGES else None

    def _of_preparation(self, scope: Scope) -> Reason:
        """Return why no other page of ``scope`` is prepared: a prepared one waits, or the middleware of others runs."""
        if self._of_prepared is None:
            self._of_prepared = {}
            for lane in self._scheduler.lanes.values():
                reason = self.why(lane) if lane.was_prepared else None
                for each in lane.scopes if reason is not None else ():
                    # A reason of another scope does not count, because the pages behind it may not need that scope.
                    if reason is not None and reason.scope in ("", each.id):
                        self._of_prepared.setdefault(each, reason)
        return self._of_prepared.get(scope) or Reason(scope.id, "middleware")

    def _of_scope(self, scope: Scope, amount: float) -> Reason:
        key = (scope.id, amount if scope.quota is not None else 1.0)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _reason(self._scheduler, scope, self.now, amount)
        return known


def _reserved(queue: ScopeQueue, now: float) -> Reason:
    """Return why a lane waits at a scope that is reserved for another one."""
    assert queue.reserved_for is not None
    if len(queue.reserved_for.scopes) > 1:
        return Reason(queue.scope.id, "claim", inf, "a request of several scopes goes first")
    return Reason(queue.scope.id, "quota", queue.reserved_until(now), "a larger amount goes first")


def _reason(scheduler: Scheduler, scope: Scope, now: float, amount: float) -> Reason:
    """Return why a scope is closed, with the names of the other crawls that share it."""
    reason = scope.reason(now, amount)
    others = [holder.name for holder in scope.holders if holder is not scheduler.holder]
    return attrs.evolve(reason, shared_with=tuple(others)) if others and reason.limit else reason


def _why_scope(scheduler: Scheduler, scope_id: str, now: float) -> Reason | None:
    reasons = _Reasons(scheduler, now)
    others: Reason | None = None
    for lane in scheduler.lanes.values():
        for scope in lane.scopes:
            if scope.id == scope_id:
                reason = _reason(scheduler, scope, now, lane.amount_in(scope))
                if reason.limit:
                    return reason
                others = others or reasons.why(lane)
    return None if others in _OF_ALL else others


def _attempt_of(scheduler: Scheduler, request: object) -> Attempt | None:
    for lane in scheduler.lanes.values():
        for item in lane.queue:
            if item[3].request is request:
                return item[3]
    return next((attempt for attempt in scheduler.later.pending() if attempt.request is request), None)
