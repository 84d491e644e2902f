"""Statistics of a scope for the table at the end: counts, and the limits that its pending requests waited for."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from trawl.http import Times, TimesTotal
from trawl.throttling.explain import ScopeReport
from trawl.throttling.policy import ScopeState
from trawl.throttling.scope import Scope

if TYPE_CHECKING:
    from trawl.scheduler.grant import Grant

__all__ = ["account", "add_parsing", "add_times", "add_wasted_send", "report_of", "reports_of"]


def account(state: ScopeState, grant: Grant, charged: float | None) -> None:
    """Count a request that came to its end.

    Args:
        state: Of its scope.
        grant: The request.
        charged: What it was expected to use of the quota; None: nothing.
    """
    state.requests += 1
    if grant.sent_at is not None and not grant.is_exempt:
        state.sends += 1
        state.first_sent = min(state.first_sent, grant.sent_at)
        state.used += charged or 0.0


def add_wasted_send(scopes: Iterable[Scope], sent_at: float) -> None:
    """Count a send that met a dead connection: it goes to the wire again, at once or in another turn."""
    for scope in scopes:
        state: ScopeState = scope.state
        state.sends += 1
        state.first_sent = min(state.first_sent, sent_at)
        if state.rampup is not None:
            state.rampup.sends += 1  # the delay in force has let it through


def add_times(scopes: Iterable[Scope], times: Times) -> None:
    """Add the times of a request to those of each scope that it took."""
    for scope in scopes:
        state: ScopeState = scope.state
        if state.times is None:
            state.times = TimesTotal()
        state.times.add(times)


def add_parsing(scopes: Iterable[Scope], seconds: float) -> None:
    """Add what the callback of such a request took."""
    for scope in scopes:
        state: ScopeState = scope.state
        if state.times is not None:
            state.times.parsing += seconds


def limited_by(scope: Scope, now: float) -> dict[str, float]:
    """Seconds that its requests waited for it, by limit; those that wait at ``now`` are counted up to then."""
    limited, since = dict(scope.waits.limited), scope.waits.since
    if scope.lanes > scope.stopped and -math.inf < since < now:
        reason = scope.reason(now, scope.min_amount)
        if reason.limit:
            limited[reason.limit] = limited.get(reason.limit, 0.0) + now - since
    if stopped := scope.stopped_for(now):
        limited["gate"] = stopped
    return limited


def rate_in_force(scope: Scope) -> float:
    """Sends a second that the limits in force allow, of what is sent on average; ``inf`` where nothing bounds them."""
    rate = 1.0 / scope.delay if scope.delay > 0.0 else math.inf
    if scope.delay_per_slot > 0.0 and scope.concurrency < math.inf:
        rate = min(rate, scope.concurrency / scope.delay_per_slot)
    quota, state = scope.quota, scope.state
    if quota is not None and quota.window > 0.0:
        amount = state.used / state.sends if state is not None and state.sends else scope.min_amount
        rate = min(rate, quota.quota / quota.window / amount if amount > 0.0 else math.inf)
    return rate


def allowed_rate(scope: Scope, rate: float) -> float:
    """Sends a second that the limits allowed between the first and the last, where ``rate`` were sent: never less.

    It is what was allowed when these went, with the delays that were drawn and the amounts that were asked. What is in
    force counts where there was nothing yet that could have been kept waiting.
    """
    if scope.waits.owed > 0.0:
        return max(scope.waits.gaps / scope.waits.owed, rate)
    in_force = rate_in_force(scope)
    return in_force if in_force >= rate else math.inf


def report_of(scope: Scope, now: float) -> ScopeReport:
    """Return the figures of a scope so far."""
    state: ScopeState = scope.state
    span = scope.last_sent - state.first_sent
    rate = (state.sends - 1) / span if state.sends > 1 and span > 0.0 else 0.0
    return ScopeReport(
        scope=scope.id,
        requests=state.requests,
        sends=state.sends,
        rate=rate,
        allowed=allowed_rate(scope, rate),
        delay=scope.delay,
        concurrency=scope.concurrency,
        limited=limited_by(scope, now),
        times=Times() if state.times is None else state.times.mean(),
        triggers=state.triggers,
        steps=state.steps,
        hints=state.hints,
        last_hint=state.last_hint,
    )


def reports_of(scopes: Iterable[Scope], now: float) -> list[ScopeReport]:
    """Return the figures of all scopes that had a request, or have one that waits, the busiest first."""
    reports = [report_of(scope, now) for scope in scopes if scope.state.requests or scope.stopped_for(now)]
    return sorted(reports, key=lambda report: (-report.requests, report.scope))
