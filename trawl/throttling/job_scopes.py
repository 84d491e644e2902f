"""Snapshots of scopes for a job, and scopes that continue from a snapshot.

Only the throttle imports this module, the only one that reads and writes the private state of other modules.

Theory of operation. Times are stored as wall time and converted when they are read, so time in which no process ran
passes like any other. A window or hold that ended in between has no effect, and quiet windows take their steps back.
There are two exceptions. The time without a good response after which a host is given up counts only while requests
were sent to it. And if a machine's clock was set back, the remaining wait is never longer than when the state was
stored.
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
from trawl.throttling.snapshot import (
    QuotaAllowance,
    QuotaSnapshot,
    ScopeSnapshot,
    SendSnapshot,
    ThrottleSnapshot,
)

if TYPE_CHECKING:
    from trawl.clock import WallClock
    from trawl.throttling.scope_table import ScopeTable

__all__ = ["Clock", "JobScopes", "moved", "scope_snapshot", "snapshot_of", "split", "with_ahead"]

Clock = Callable[[float], float]
"""Converts a time of one clock to the other clock; keeps infinities."""

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
    """Return the state of all scopes that is worth storing for a later run.

    Args:
        scopes: The current scopes, and their page budgets.
        job_scopes: The scopes of an earlier run that were not created again.
        given_up: The times at which scopes were given up, in epoch seconds.
        wall: The wall clock, to convert times.
        now: The event loop time.
        next_in: Seconds until the next state is stored; None if this is the last one.
    """
    states: dict[str, ScopeSnapshot] = {}
    answered: list[str] = []
    for each in job_scopes:
        kept, left = each.left(now)
        states.update(kept)
        answered += left
    for scope in scopes:
        snapshot = scope_snapshot(scope, now, wall.to_epoch)
        if snapshot == _ANSWERED:
            answered.append(scope.id)
        elif snapshot != _NOTHING:
            known = states.get(scope.id)
            if known is not None:
                closed = known.closed | snapshot.closed
                snapshot = msgspec.structs.replace(snapshot, quota=snapshot.quota or known.quota, closed=closed)
            states[scope.id] = snapshot
    return ThrottleSnapshot(
        at=wall.to_epoch(now),
        unknown_until=_unknown_until(job_scopes) if next_in is None else wall.to_epoch(now + next_in),
        scopes=states,
        answered=tuple(answered),
        given_up=dict(given_up),
        pages=scopes.pages.counts(),
    )


def _unknown_until(job_scopes: Collection[JobScopes]) -> float:
    """Return the end of the period in which an earlier run may have sent through scopes that were not created again."""
    return max([each.unknown_until for each in job_scopes], default=-math.inf)


def scope_snapshot(scope: Scope, now: float, to_epoch: Clock) -> ScopeSnapshot:
    """Return the state of a scope that is worth storing, or an empty one. Times are wall times."""
    state: ScopeState = scope.state
    limits = scope.limits
    configured = (limits.delay, limits.delay_per_slot, limits.concurrency)
    auto, rule, rampup = state.auto, state.policy.autothrottle, state.rampup
    has_moved = rampup is not None and (rampup.delay, rampup.delay_per_slot, rampup.concurrency) != configured
    has_learned = auto is not None and rule is not None and auto != rule.first_delay
    is_failing = state.backoff is not None or state.recent.failure_timer is not None
    return ScopeSnapshot(
        pace=_pace(scope, now, to_epoch),
        quota=_quota(scope, now, to_epoch),
        backoff=None if state.backoff is None else state.backoff.moved(to_epoch),
        failing_for=math.inf if state.recent.failure_timer is None else now - state.recent.failure_timer.since,
        trigger_source=state.recent.trigger_source if is_failing else "",
        good_at=to_epoch(state.recent.good_at) if is_failing else -math.inf,
        has_answered=state.has_answered,
        refused=state.recent.refused,
        robots=0.0 if scope.is_idle(now) else state.wish,
        auto=auto if has_learned else None,
        last_latency=state.last_latency if has_learned else 0.0,
        learned=rampup.learned(configured)
        if rampup is not None and (has_moved or rampup.approach.refused is not None or rampup.has_fallen_back)
        else None,
        told=None if state.told is None or state.told.until <= now else state.told.moved(to_epoch),
        closed={limit.name: (to_epoch(at), at - now) for limit in scope.others if (at := limit.stored(now)) > now},
    )


def _pace(scope: Scope, now: float, to_epoch: Clock) -> SendSnapshot | None:
    traffic, longest, held = scope.traffic, scope.effective.longest, scope.held
    has_spacing = longest > 0.0 and traffic.last_sent + longest > now
    is_held = held.until > now
    if not has_spacing and not is_held:
        return None
    reason = held.because if is_held else None
    return SendSnapshot(
        sent_at=to_epoch(traffic.last_sent) if has_spacing else -math.inf,
        slots=tuple([to_epoch(at) for at in _resting(scope, now)]),
        held_until=to_epoch(held.until) if is_held else -math.inf,
        held_for=held.until - now if is_held else 0.0,
        held_limit=reason.limit if reason else "hint",
        held_source=reason.source if reason else "",
    )


def _resting(scope: Scope, now: float) -> tuple[float, ...]:
    """Return the last sends of the slots that still rest at ``now``."""
    rest, slots = scope.effective.delay_per_slot * scope.effective.jitter[1], scope.traffic.slots
    return () if rest <= 0.0 or slots is None else tuple([at for at in slots.sent_at if at + rest > now])


def _quota(scope: Scope, now: float, to_epoch: Clock) -> QuotaSnapshot | None:
    snapshot = scope.quota.snapshot(now) if scope.quota is not None else None
    return None if snapshot is None else snapshot.moved(to_epoch)


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

    For a state of another machine, whose clock may be wrong: the remaining waits are the same as when it was stored.
    """
    by = at - snapshot.at

    def clock(instant: float) -> float:
        return instant + by

    scopes = {}
    for id, scope in snapshot.scopes.items():
        pace = scope.pace
        if pace is not None:
            slots = tuple([clock(sent_at) for sent_at in pace.slots])
            ends = {"sent_at": clock(pace.sent_at), "held_until": clock(pace.held_until)}
            pace = msgspec.structs.replace(pace, slots=slots, **ends)
        scopes[id] = msgspec.structs.replace(
            scope,
            pace=pace,
            quota=None if scope.quota is None else scope.quota.moved(clock),
            told=None if scope.told is None else scope.told.moved(clock),
            backoff=None if scope.backoff is None else scope.backoff.moved(clock),
            good_at=clock(scope.good_at),
            closed={key: (clock(until), seconds) for key, (until, seconds) in scope.closed.items()},
        )
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

    Args:
        snapshot: The stored state.
        now: The event loop time.
        wall: The wall clock, to convert times.
        pages: The page budgets, which continue from the state's counts at once.
        max_scopes: The maximum number of scopes. Scopes that were not created for the most runs are dropped first, then
            the first ones.
    """

    __slots__ = ("_answered", "_closed", "_from_epoch", "_quotas", "_scopes", "_to_epoch", "_unknown_until")

    def __init__(
        self, snapshot: ThrottleSnapshot, now: float, wall: WallClock, pages: PageBudgets, max_scopes: int
    ) -> None:
        pages.restore(snapshot.pages)
        self._scopes = dict(list(snapshot.scopes.items())[-max_scopes:])
        self._answered = dict.fromkeys(snapshot.answered[-max_scopes:])
        self._quotas: dict[str, QuotaSnapshot] = {}  # of scopes whose quota is not set yet
        self._closed: dict[str, dict[str, float]] = {}  # event loop times of limits that are not set yet, by scope
        self._unknown_until = min(wall.from_epoch(snapshot.unknown_until), now)
        self._from_epoch = wall.from_epoch
        self._to_epoch = wall.to_epoch

    @property
    def unknown_until(self) -> float:
        """End of the period with possibly unrecorded sends, in epoch seconds; ``-inf`` if there were none."""
        return self._to_epoch(self._unknown_until)

    def left(self, now: float) -> tuple[Mapping[str, ScopeSnapshot], tuple[str, ...]]:
        """Return the states that no scope has restored yet, and the scopes that once responded."""
        rest = {id: ScopeSnapshot(quota=quota) for id, quota in self._quotas.items()}
        for id, closed in self._closed.items():
            times = {key: (self._to_epoch(until), until - now) for key, until in closed.items() if until > now}
            if times:
                rest[id] = msgspec.structs.replace(rest.get(id, _NOTHING), closed=times)
        return self._scopes | rest, tuple(self._answered)

    def restore_quota(self, scope: Scope, now: float) -> None:
        """Count the amount that an earlier run spent of a quota that was just set, maybe at run time.

        The spent amount may be outside of a shorter window (of the settings). It still counts under a longer window
        that is set again later.
        """
        snapshot = self._quotas.get(scope.id)
        if snapshot is None or scope.quota is None:
            return
        left = scope.quota.restore(snapshot.moved(self._from_epoch), now)
        if left.spent and snapshot.window > scope.quota.window:
            self._quotas[scope.id] = left.moved(self._to_epoch)
        else:
            del self._quotas[scope.id]

    def restore_closed(self, scope: Scope) -> None:
        """Close the limits of a scope that an earlier run left closed, also limits that are set at run time."""
        closed = self._closed.get(scope.id)
        if closed is None:
            return
        for limit in scope.others:
            if limit.name in closed:
                limit.restore(closed.pop(limit.name))
        if not closed:
            del self._closed[scope.id]

    def restore(self, scope: Scope, now: float) -> bool:
        """Restore the state of a scope that was just created. Returns True if there was a state."""
        snapshot = self._scopes.pop(scope.id, None)
        state: ScopeState = scope.state
        if scope.id in self._answered:
            del self._answered[scope.id]
            state.has_answered = True
        if snapshot is not None:
            self._pace(scope, snapshot.pace or SendSnapshot(), now)
            if snapshot.quota is not None:
                self._quotas[scope.id] = snapshot.quota
                self.restore_quota(scope, now)
            if snapshot.closed:
                self._closed[scope.id] = {key: self._closed_until(snapshot, key, now) for key in snapshot.closed}
                self.restore_closed(scope)
            self._learned(scope, state, snapshot)
            self._failing(scope, state, snapshot, now)
            if snapshot.told is not None:
                told = snapshot.told.moved(self._from_epoch)
                if told.until > now:
                    sent_at, heard_at = min(told.sent_at, now), min(told.heard_at, now)
                    state.told = msgspec.structs.replace(told, sent_at=sent_at, heard_at=heard_at)
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
        """Hold a scope that another crawl created for as long as its state requires. That crawl restores the rest."""
        self._answered.pop(scope.id, None)
        snapshot = self._scopes.pop(scope.id, None)
        pace = snapshot.pace if snapshot is not None and snapshot.pace is not None else SendSnapshot()
        sent_at = max(min(self._from_epoch(pace.sent_at), now), self._unknown_until)
        held_until = min(self._from_epoch(pace.held_until), now + pace.held_for)
        ends = {"": held_until, "delay": sent_at + scope.effective.longest}
        if snapshot is not None:
            ends |= {key: self._closed_until(snapshot, key, now) for key in snapshot.closed}
        limit = max(ends, key=ends.__getitem__)
        if (until := ends[limit]) > now:
            source = "" if limit else pace.held_source
            scope.hold(until, Reason(scope.id, limit or pace.held_limit, until, source or "the job's last run"))

    def _closed_until(self, snapshot: ScopeSnapshot, key: str, now: float) -> float:
        until, seconds = snapshot.closed[key]
        return min(self._from_epoch(until), now + seconds)  # a clock that was set back must not make it longer

    def _take_for_sent(self, scope: Scope) -> None:
        """Assume a send in every slot at the last possible time, because the run was killed after storing its state."""
        at = self._unknown_until
        slots = scope.effective.concurrency
        is_small = scope.effective.delay_per_slot > 0.0 and slots <= _MAX_SLOTS
        scope.traffic.restore(at, (at,) * int(slots) if is_small else ())

    def _pace(self, scope: Scope, pace: SendSnapshot, now: float) -> None:
        # min(): after a clock was set back, sends seem to be in the future.
        slots = [min(self._from_epoch(at), now) for at in pace.slots]
        scope.traffic.restore(min(self._from_epoch(pace.sent_at), now), tuple(slots))
        until = min(self._from_epoch(pace.held_until), now + pace.held_for)
        if until > now:
            scope.hold(until, Reason(scope.id, pace.held_limit, until, pace.held_source))

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
        state.recent.good_at = min(self._from_epoch(snapshot.good_at), now)
        if snapshot.failing_for < math.inf:
            state.recent.failure_timer = FailureTimer(now - snapshot.failing_for)
        if snapshot.backoff is not None:
            backoff = snapshot.backoff.moved(lambda at: min(self._from_epoch(at), now))
            full = state.base(scope).concurrency  # the settings may have changed
            slots = min(backoff.concurrency, full) if backoff.is_cut else full
            state.backoff = msgspec.structs.replace(backoff, full=full, concurrency=slots)
            state.recent.triggered_at = backoff.quiet_from
            state.settle(scope, now)
