"""Snapshots of scopes for a job, and scopes that continue from a snapshot.

Only the throttle imports this module, the only one that reads and writes the private state of other modules.

Theory of operation. Times are stored as wall time and converted when they are read, so time in which no process ran
passes like any other. A window or hold that ended in between has no effect, and quiet windows take their steps back.
There are two exceptions. The time without a good response after which a host is given up counts only while requests
were sent to it. And if a machine's clock was set back, the state counts as stored now, so no remaining wait is longer
than when it was stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from trawl.throttling.failure_timer import FailureTimer
from trawl.throttling.policy import ScopeState
from trawl.throttling.quota import PageBudgets
from trawl.throttling.reasons import Reason
from trawl.throttling.scope import Scope
from trawl.throttling.snapshot import QuotaAllowance, QuotaSnapshot, ScopeSnapshot, SendSnapshot, ThrottleSnapshot

if TYPE_CHECKING:
    from trawl.clock import WallClock
    from trawl.throttling.scope_table import ScopeTable

__all__ = ["JobScopes", "moved", "scope_snapshot", "snapshot_of", "split", "with_ahead"]

_NOTHING = ScopeSnapshot()
_ANSWERED = ScopeSnapshot(has_answered=True)

_MAX_SLOTS = 1000
"""Maximum number of slots with assumed send times. A scope with more slots is not slowed down by its slots."""


def snapshot_of(
    scopes: ScopeTable,
    job_scopes: Collection[JobScopes],
    given_up: Mapping[str, float],
    wall: WallClock,
    now: float,
    next_in: float | None,
) -> ThrottleSnapshot:
    """Return the state worth storing, also of scopes not created again. The next follows in ``next_in`` seconds."""
    states: dict[str, ScopeSnapshot] = {}
    answered: list[str] = []
    for each in job_scopes:
        kept, left = each.left(now)
        states.update(kept)
        answered += left
    for scope in scopes:
        snapshot = scope_snapshot(scope, now)
        if snapshot == _ANSWERED:
            answered.append(scope.id)
        elif snapshot != _NOTHING:
            snapshot, known = snapshot.moved(wall.to_epoch), states.get(scope.id, _NOTHING)
            quota, times = snapshot.quota or known.quota, known.times | snapshot.times
            states[scope.id] = msgspec.structs.replace(snapshot, quota=quota, times=times)
    if next_in is None:  # an earlier run may have sent through scopes that were not created again
        unknown_until = max([each.unknown_until for each in job_scopes], default=-math.inf)
    else:
        unknown_until = wall.to_epoch(now + next_in)
    return ThrottleSnapshot(
        at=wall.to_epoch(now),
        unknown_until=unknown_until,
        scopes=states,
        answered=tuple(answered),
        given_up=dict(given_up),
        pages=scopes.pages.counts(),
    )


def scope_snapshot(scope: Scope, now: float) -> ScopeSnapshot:
    """Return the state of a scope that is worth storing, or an empty one. Times are event loop times."""
    state: ScopeState = scope.state
    limits = scope.limits
    configured = (limits.delay, limits.delay_per_slot, limits.concurrency)
    auto, rule, rampup = state.auto, state.policy.autothrottle, state.rampup
    has_moved = rampup is not None and (rampup.delay, rampup.delay_per_slot, rampup.concurrency) != configured
    has_learned = auto is not None and rule is not None and auto != rule.first_delay
    is_failing = state.backoff is not None or state.recent.failure_timer is not None
    return ScopeSnapshot(
        pace=_pace(scope, now),
        quota=None if scope.quota is None else scope.quota.snapshot(now),
        backoff=state.backoff,
        failing_for=math.inf if state.recent.failure_timer is None else now - state.recent.failure_timer.since,
        trigger_source=state.recent.trigger_source if is_failing else "",
        good_at=state.recent.good_at if is_failing else -math.inf,
        has_answered=state.has_answered,
        refused=state.recent.refused,
        robots=0.0 if scope.is_idle(now) else state.wish,
        auto=auto if has_learned else None,
        last_latency=state.last_latency if has_learned else 0.0,
        learned=rampup.learned(configured)
        if rampup is not None and (has_moved or rampup.approach.refused is not None or rampup.has_fallen_back)
        else None,
        told=None if state.told is None or state.told.until <= now else state.told,
        times=_later({limit.name: limit.stored(now) for limit in scope.numbered}, now),
    )


def _later(times: Mapping[str, tuple[float, ...]], now: float) -> dict[str, tuple[float, ...]]:
    """Return the times of limits that are later than ``now``, without limits that have none."""
    later = {key: tuple([at for at in each if at > now]) for key, each in times.items()}
    return {key: each for key, each in later.items() if each}


def _pace(scope: Scope, now: float) -> SendSnapshot | None:
    traffic, longest, held = scope.traffic, scope.effective.longest, scope.held
    has_spacing = longest > 0.0 and traffic.last_sent + longest > now
    is_held = held.until > now
    if not has_spacing and not is_held:
        return None
    reason = held.because if is_held else None
    rest, slots = scope.effective.delay_per_slot * scope.effective.jitter[1], traffic.slots
    return SendSnapshot(
        sent_at=traffic.last_sent if has_spacing else -math.inf,
        slots=() if rest <= 0.0 or slots is None else tuple([at for at in slots.sent_at if at + rest > now]),
        held_until=held.until if is_held else -math.inf,
        held_limit=reason.limit if reason else "hint",
        held_source=reason.source if reason else "",
    )


def with_ahead(snapshot: ThrottleSnapshot, ahead: QuotaAllowance) -> ThrottleSnapshot:
    """Return the state of a killed run. Amounts that it may have spent after storing the state count as spent."""
    scopes = dict(snapshot.scopes)
    for id, amount in ahead.amounts.items():
        scope = scopes.get(id, _ANSWERED if id in snapshot.answered else _NOTHING)
        quota = scope.quota or QuotaSnapshot()
        quota = msgspec.structs.replace(quota, unknown=quota.unknown + amount, unknown_at=ahead.until)
        scopes[id] = msgspec.structs.replace(scope, quota=quota)
    return msgspec.structs.replace(snapshot, scopes=scopes)


def moved(snapshot: ThrottleSnapshot, at: float) -> ThrottleSnapshot:
    """Return the same state as if it had been stored at the wall time ``at``.

    For a state of another machine or a clock that was set back: the remaining waits are the same as when it was stored.
    """
    by = at - snapshot.at

    def clock(instant: float) -> float:
        return instant + by

    scopes = {id: scope.moved(clock) for id, scope in snapshot.scopes.items()}
    return msgspec.structs.replace(snapshot, at=at, unknown_until=clock(snapshot.unknown_until), scopes=scopes)


def split(snapshot: ThrottleSnapshot, part_of: Callable[[str], int | None]) -> dict[int | None, ThrottleSnapshot]:
    """Divide a state by the partitions that its scopes belong to."""
    parts: dict[int | None, dict[str, Any]] = {}

    def fields_of(id: str) -> dict[str, Any]:
        part = part_of(id)
        if part not in parts:
            parts[part] = {"scopes": {}, "answered": [], "given_up": {}, "pages": {}}
        return parts[part]

    for name in ("scopes", "given_up", "pages"):
        for id, value in getattr(snapshot, name).items():
            fields_of(id)[name][id] = value
    for id in snapshot.answered:
        fields_of(id)["answered"].append(id)
    return {
        part: msgspec.structs.replace(snapshot, **fields | {"answered": tuple(fields["answered"])})
        for part, fields in parts.items()
    }


class JobScopes:
    """A job's states of scopes, restored only when each scope is created, so that a start with 100,000 of them is fast.

    Of more than ``max_scopes``, those that were not created for the most runs are dropped first, then the first ones.
    """

    __slots__ = ("_answered", "_from_epoch", "_scopes", "_to_epoch", "_unknown_until", "_unset")

    def __init__(
        self, snapshot: ThrottleSnapshot, now: float, wall: WallClock, pages: PageBudgets, max_scopes: int
    ) -> None:
        if snapshot.at > wall.to_epoch(now):
            snapshot = moved(snapshot, wall.to_epoch(now))
        pages.restore(snapshot.pages)
        self._scopes = dict(list(snapshot.scopes.items())[-max_scopes:])
        self._answered = dict.fromkeys(snapshot.answered[-max_scopes:])
        self._unset: dict[str, ScopeSnapshot] = {}  # in event loop times, for limits of scopes that are not set yet
        self._unknown_until = min(wall.from_epoch(snapshot.unknown_until), now)
        self._from_epoch = wall.from_epoch
        self._to_epoch = wall.to_epoch

    @property
    def unknown_until(self) -> float:
        """End of the period with possibly unrecorded sends, in epoch seconds; ``-inf`` if there were none."""
        return self._to_epoch(self._unknown_until)

    def left(self, now: float) -> tuple[Mapping[str, ScopeSnapshot], tuple[str, ...]]:
        """Return the states that no scope has restored yet, and the scopes that once responded."""
        rest = {}
        for id, unset in self._unset.items():
            left = msgspec.structs.replace(unset, times=_later(unset.times, now))
            if left != _NOTHING:
                rest[id] = left.moved(self._to_epoch)
        return self._scopes | rest, tuple(self._answered)

    def restore_limits(self, scope: Scope, now: float) -> None:
        """Count what an earlier run recorded for the quota and the numbered limits that are set, maybe at run time.

        The amount spent of the quota may be outside of a shorter window (of the settings). It still counts under a
        longer window that is set again later.
        """
        unset = self._unset.pop(scope.id, None)
        if unset is None:
            return
        quota, times = unset.quota, dict(unset.times)
        if quota is not None and scope.quota is not None:
            left = scope.quota.restore(quota, now)
            quota = left if left.spent and quota.window > scope.quota.window else None
        for limit in scope.numbered:
            if limit.name in times:
                limit.restore(times.pop(limit.name), now)
        if quota is not None or times:
            self._unset[scope.id] = ScopeSnapshot(quota=quota, times=times)

    def restore(self, scope: Scope, now: float) -> bool:
        """Restore the state of a scope that was just created. Returns True if there was a state."""
        snapshot = self._scopes.pop(scope.id, None)
        state: ScopeState = scope.state
        if scope.id in self._answered:
            del self._answered[scope.id]
            state.has_answered = True
        if snapshot is not None:
            snapshot = snapshot.moved(self._from_epoch)
            pace = snapshot.pace or SendSnapshot()
            scope.traffic.restore(pace.sent_at, pace.slots)
            if pace.held_until > now:
                scope.hold(pace.held_until, Reason(scope.id, pace.held_limit, pace.held_until, pace.held_source))
            self._unset[scope.id] = ScopeSnapshot(quota=snapshot.quota, times=snapshot.times)
        self.restore_limits(scope, now)
        if snapshot is not None:
            self._learned(scope, state, snapshot)
            self._failing(scope, state, snapshot, now)
            if snapshot.told is not None and snapshot.told.until > now:
                state.told = snapshot.told
            state.apply(scope)
        # The offsets drawn by jitter in the previous run are unknown, and so is how far a rate was behind its grid, so
        # its next send may have come at once. The quota is not checked, because everything spent of it is recorded.
        last_sent, shortest = scope.traffic.last_sent, 0.0 if scope.spacing.step else scope.effective.shortest
        opens_at = max(scope.held.until, last_sent + shortest)
        if self._unknown_until > -math.inf and opens_at <= self._unknown_until:
            self._take_for_sent(scope)
        if snapshot is not None and (until := scope.traffic.last_sent + snapshot.robots) > now:
            scope.hold(until, Reason(scope.id, "robots", until, f"Crawl-delay {snapshot.robots:g} of robots.txt"))
        return snapshot is not None

    def hold(self, scope: Scope, now: float) -> None:
        """Hold a scope that another crawl created, and restore its numbered limits. That crawl restores the rest."""
        self._answered.pop(scope.id, None)
        snapshot = self._scopes.pop(scope.id, _NOTHING).moved(self._from_epoch)
        self._unset.setdefault(scope.id, ScopeSnapshot(times=snapshot.times))  # it may have been held before
        self.restore_limits(scope, now)
        pace = snapshot.pace or SendSnapshot()
        until, limit, source = pace.held_until, pace.held_limit, pace.held_source
        spaced = max(pace.sent_at, self._unknown_until) + scope.effective.longest
        if spaced > until:
            until, limit, source = spaced, "delay", ""
        if until > now:
            scope.hold(until, Reason(scope.id, limit, until, source or "the job's last run"))

    def _take_for_sent(self, scope: Scope) -> None:
        """Assume a send in every slot at the last possible time, because the run was killed after storing its state."""
        at = self._unknown_until
        slots = scope.effective.concurrency
        is_small = scope.effective.delay_per_slot > 0.0 and slots <= _MAX_SLOTS
        scope.traffic.restore(at, (at,) * int(slots) if is_small else ())

    def _learned(self, scope: Scope, state: ScopeState, snapshot: ScopeSnapshot) -> None:
        limits, rule = scope.limits, state.policy.autothrottle
        if snapshot.auto is not None and rule is not None:
            state.auto = min(max(snapshot.auto, rule.min_delay), rule.max_delay)
            state.last_latency = snapshot.last_latency
        learned = snapshot.learned
        configured = (limits.delay, limits.delay_per_slot, limits.concurrency)
        if learned is not None and state.rampup is not None and learned.configured == configured:
            state.rampup.restore(learned)

    def _failing(self, scope: Scope, state: ScopeState, snapshot: ScopeSnapshot, now: float) -> None:
        state.has_answered |= snapshot.has_answered
        state.recent.refused = snapshot.refused
        state.recent.trigger_source = snapshot.trigger_source
        state.recent.good_at = snapshot.good_at
        if snapshot.failing_for < math.inf:
            state.recent.failure_timer = FailureTimer(now - snapshot.failing_for)
        if snapshot.backoff is not None:
            backoff = snapshot.backoff.moved(lambda at: min(at, now))
            full = state.base(scope).concurrency  # the settings may have changed
            slots = min(backoff.concurrency, full) if backoff.is_cut else full
            state.backoff = msgspec.structs.replace(backoff, full=full, concurrency=slots)
            state.recent.triggered_at = backoff.quiet_from
            state.settle(scope, now)
