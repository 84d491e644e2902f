"""A scope's state as a value, and a scope that goes on from one.

Theory of operation. Instants are stored as wall time and converted when they are read, so that time in which no
process ran passes like any other: a window that ended meanwhile is over, a hold that ended meanwhile holds no more,
and quiet windows take their steps back. Two things do not count that time. Trouble: whether a host was without a good
answer for so long that it is given up (B20) is a matter of the time that it was asked. And a machine's clock that was
set back: what is left to wait is never more than it was when the state was stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

import attrs
import msgspec

from trawl.throttling.backoff import Standing
from trawl.throttling.explain import LimitName, Reason
from trawl.throttling.patience import Patience
from trawl.throttling.policy import ScopePolicy
from trawl.throttling.quota import Ledger
from trawl.throttling.scope import Scope
from trawl.throttling.state import Ahead, PaceState, QuotaState, ScopeState, ThrottleState, TroubleState

if TYPE_CHECKING:
    from trawl.clock import WallClock
    from trawl.throttling.scope_table import Table

__all__ = ["Clock", "Restored", "scope_state", "state_of", "with_ahead"]

Clock = Callable[[float], float]
"""From an instant of one clock to the same of the other; infinities stay."""

_NOTHING = ScopeState()
_ANSWERED = ScopeState(has_answered=True)

_MOST_SLOTS = 1000
"""Slots whose times are made up; a scope with more is not slowed by its slots."""


def state_of(
    scopes: Table,
    restored: Restored | None,
    given_up: Mapping[str, float],
    wall: WallClock,
    now: float,
    next_in: float | None,
) -> ThrottleState:
    """What is worth knowing of all scopes in a later run.

    Args:
        scopes: Those there are, and their page budgets.
        restored: Those of an earlier run that were not made again.
        given_up: When scopes were given up, in epoch seconds.
        wall: For instants.
        now: The instant, on the run clock.
        next_in: Seconds until the next state is stored; None: this is the last one.
    """
    kept, left = restored.left() if restored is not None else ({}, ())
    states, answered = dict(kept), list(left)
    for scope in scopes:
        state = scope_state(scope, now, wall.to_epoch)
        if state == _ANSWERED:
            answered.append(scope.id)
        elif state != _NOTHING:
            known = states.get(scope.id)
            states[scope.id] = msgspec.structs.replace(state, quota=known.quota) if known and not state.quota else state
    return ThrottleState(
        at=wall.to_epoch(now),
        unknown_until=-math.inf if next_in is None else wall.to_epoch(now + next_in),
        scopes=states,
        answered=tuple(answered),
        given_up=dict(given_up),
        pages=scopes.pages.counts(),
    )


def scope_state(scope: Scope, now: float, to_epoch: Clock) -> ScopeState:
    """What is worth knowing of a scope in a later run; the empty state where nothing is. Instants are wall time."""
    policy: ScopePolicy = scope.policy
    limits = scope.limits
    configured = (limits.delay, limits.delay_per_slot, limits.concurrency)
    auto, rule, ramp = policy.auto, policy.kind.autothrottle, policy.ramp
    has_moved = ramp is not None and (ramp.delay, ramp.delay_per_slot, ramp.concurrency) != configured
    has_learned = auto is not None and rule is not None and auto != rule.first_delay
    has_trouble = policy.standing is not None or policy.patience is not None
    return ScopeState(
        pace=_pace(scope, now, to_epoch),
        quota=_quota(scope, now, to_epoch),
        trouble=None if policy.standing is None else _standing(policy.standing, TroubleState, to_epoch),
        trouble_for=math.inf if policy.patience is None else now - policy.patience.since,
        trigger_source=policy.trigger_source if has_trouble else "",
        good_at=to_epoch(policy.good_at) if has_trouble else -math.inf,
        has_answered=policy.has_answered,
        refused=policy.refused,
        robots=0.0 if scope.is_idle(now) else policy.wish,
        auto=auto if has_learned else None,
        last_latency=policy.last_latency if has_learned else 0.0,
        learned=ramp.learned(configured) if ramp is not None and (has_moved or ramp.refused is not None) else None,
    )


def _pace(scope: Scope, now: float, to_epoch: Clock) -> PaceState | None:
    has_spacing = scope.longest > 0.0 and scope.last_sent + scope.longest > now
    is_held = scope.held_until > now
    if not has_spacing and not is_held:
        return None
    reason = scope.hold_reason if is_held else None
    return PaceState(
        sent_at=to_epoch(scope.last_sent) if has_spacing else -math.inf,
        slots=tuple([to_epoch(at) for at in scope.resting(now)]),
        held_until=to_epoch(scope.held_until) if is_held else -math.inf,
        held_for=scope.held_until - now if is_held else 0.0,
        held_limit=reason.limit if reason else "hint",
        held_source=reason.source if reason else "",
    )


def _quota(scope: Scope, now: float, to_epoch: Clock) -> QuotaState | None:
    state = scope.quota.state(now) if scope.quota is not None else None
    return None if state is None else _moved(state, to_epoch)


def _moved(state: QuotaState, clock: Clock) -> QuotaState:
    charges = tuple([(clock(at), amount) for at, amount in state.charges])
    return msgspec.structs.replace(
        state, ends_at=clock(state.ends_at), charges=charges, unknown_at=clock(state.unknown_at)
    )


def with_ahead(state: ThrottleState, ahead: Ahead) -> ThrottleState:
    """The state of a run that was killed, with all counted as spent that it may have spent since it stored that."""
    scopes = dict(state.scopes)
    for id, amount in ahead.amounts.items():
        scope = scopes.get(id, _ANSWERED if id in state.answered else _NOTHING)
        quota = scope.quota or QuotaState()
        quota = msgspec.structs.replace(quota, unknown=quota.unknown + amount, unknown_at=ahead.until)
        scopes[id] = msgspec.structs.replace(scope, quota=quota)
    return msgspec.structs.replace(state, scopes=scopes)


def _standing(standing: Standing, kind: type[TroubleState], clock: Clock) -> TroubleState:
    fields = attrs.asdict(standing)
    return kind(**fields | {name: clock(fields[name]) for name in ("quiet_from", "good_at", "eased_at")})


class Restored:
    """States of an earlier run, each waiting for its scope to be made again: a start with 100,000 costs nothing.

    Args:
        state: What was stored.
        now: The instant now, on the run clock.
        wall: Converts wall time.
        pages: The page budgets, which count on from the state's at once.
        most: Scopes remembered; of more, those go first that were not made again for the most runs, or else first.
    """

    __slots__ = ("_answered", "_from_epoch", "_quotas", "_scopes", "_stored_at", "_to_epoch", "_unknown_until")

    def __init__(self, state: ThrottleState, now: float, wall: WallClock, pages: Ledger, most: int) -> None:
        pages.take_up(state.pages)
        self._scopes = dict(list(state.scopes.items())[-most:])
        self._answered = dict.fromkeys(state.answered[-most:])
        self._quotas: dict[str, QuotaState] = {}  # of scopes whose quota is not set again yet
        self._stored_at = min(wall.from_epoch(state.at), now)
        self._unknown_until = min(wall.from_epoch(state.unknown_until), now)
        self._from_epoch = wall.from_epoch
        self._to_epoch = wall.to_epoch

    def left(self) -> tuple[Mapping[str, ScopeState], tuple[str, ...]]:
        """What no scope has taken up: the states, and the scopes that once answered."""
        quotas = {id: ScopeState(quota=quota) for id, quota in self._quotas.items()}
        return self._scopes | quotas, tuple(self._answered)

    def take_up_quota(self, scope: Scope, now: float) -> None:
        """Count what an earlier run spent of a quota that was just set for a scope: one of run time is set late.

        By a shorter window, of the settings say, it may be over that runs on by the one which is set again.
        """
        state = self._quotas.get(scope.id)
        if state is None or scope.quota is None:
            return
        left = scope.quota.take_up(_moved(state, self._from_epoch), now)
        if left.spent and state.window > scope.quota.window:
            self._quotas[scope.id] = _moved(left, self._to_epoch)
        else:
            del self._quotas[scope.id]

    def take_up(self, scope: Scope, now: float) -> bool:
        """Let a scope that was made just now go on from its state; whether there was anything to take up."""
        state = self._scopes.pop(scope.id, None)
        policy: ScopePolicy = scope.policy
        if scope.id in self._answered:
            del self._answered[scope.id]
            policy.has_answered = True
        if state is not None:
            self._pace(scope, state.pace or PaceState(), now)
            if state.quota is not None:
                self._quotas[scope.id] = state.quota
                self.take_up_quota(scope, now)
            self._learned(scope, policy, state)
            self._trouble(scope, policy, state, now)
            policy.apply(scope)
        # What the run before had drawn is not known; nor is its quota asked, of which all that was spent is.
        opens_at = max(scope.held_until, scope.last_sent + scope.shortest)
        if self._unknown_until > -math.inf and opens_at <= self._unknown_until:
            self._take_for_sent(scope)
        if state is not None and (until := scope.last_sent + state.robots) > now:
            scope.hold(until, Reason(scope.id, "robots", until, f"Crawl-delay {state.robots:g} of robots.txt"))
        return state is not None

    def _take_for_sent(self, scope: Scope) -> None:
        """A kill came after the state was stored: who may have sent meanwhile is taken to have, in every slot."""
        at = self._unknown_until
        is_small = scope.delay_per_slot > 0.0 and scope.concurrency <= _MOST_SLOTS
        scope.take_up(at, (at,) * int(scope.concurrency) if is_small else ())

    def _pace(self, scope: Scope, pace: PaceState, now: float) -> None:
        slots = [min(self._from_epoch(at), now) for at in pace.slots]
        scope.take_up(min(self._from_epoch(pace.sent_at), now), tuple(slots))
        until = min(self._from_epoch(pace.held_until), now + pace.held_for)
        if until > now:
            limit = cast("LimitName", pace.held_limit)
            scope.hold(until, Reason(scope.id, limit, until, pace.held_source))

    def _learned(self, scope: Scope, policy: ScopePolicy, state: ScopeState) -> None:
        limits, rule = scope.limits, policy.kind.autothrottle
        if state.auto is not None and rule is not None:
            policy.auto = min(max(state.auto, rule.min_delay), rule.max_delay)
            policy.last_latency = state.last_latency
        learned = state.learned
        configured = (limits.delay, limits.delay_per_slot, limits.concurrency)
        if learned is not None and policy.ramp is not None and learned.configured == configured:
            policy.ramp.take_up(learned)

    def _trouble(self, scope: Scope, policy: ScopePolicy, state: ScopeState, now: float) -> None:
        policy.has_answered |= state.has_answered
        policy.refused = state.refused
        policy.trigger_source = state.trigger_source
        policy.good_at = min(self._from_epoch(state.good_at), now)
        policy.patience = Patience(now - state.trouble_for) if state.trouble_for < math.inf else None
        if state.trouble is not None:
            fields = msgspec.structs.asdict(state.trouble)
            for name in ("quiet_from", "good_at", "eased_at"):
                fields[name] = min(self._from_epoch(fields[name]), now)
            full = policy.base(scope).concurrency  # the settings may have changed meanwhile
            is_cut = state.trouble.concurrency < state.trouble.full
            slots = min(state.trouble.concurrency, full) if is_cut else full
            policy.standing = Standing(**fields | {"full": full, "concurrency": slots})
            policy.triggered_at = fields["quiet_from"]
            policy.settle(scope, now)
