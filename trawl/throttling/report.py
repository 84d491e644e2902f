"""Figures of a scope for the table at the end: counts, and what its pending requests waited for.

What limited a scope is sampled: at each answer with something still pending, the limit that will be in the way when its
place is free is noted, and the time up to the next look is put on its account. What lies past the instant at which it
was to open is the time on the wire of the request that went then: it counts for the spacing or the quota, where that is
what opens the scope again, and for the slots, where a full one had to be waited for. Up to its grant there was a place
for it: where it came later than the scope opened, something else was waited for, and that time is not the scope's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from trawl.http import Times, TimesTotal
from trawl.throttling.explain import ScopeReport
from trawl.throttling.policy import ScopePolicy
from trawl.throttling.scope import Scope

if TYPE_CHECKING:
    from trawl.throttling.sent import Sent

__all__ = ["account", "add_parsing", "add_times", "add_vain_send", "allowed_rate", "report_of", "reports_of"]


def account(scope: Scope, policy: ScopePolicy, entry: Sent, now: float, slot: int) -> float:
    """Count a request that came to its end and is about to give ``slot`` back, and what its scope waits for next.

    Returns:
        Seconds that it waited since the last look for something else than this scope.
    """
    policy.requests += 1
    if entry.sent_at is not None and not entry.is_exempt:
        policy.sends += 1
        policy.first_sent = min(policy.first_sent, entry.sent_at)
    opened_at = min(now, policy.seen_until) if policy.seen_limit else policy.seen_at
    elsewhere = max(0.0, entry.granted_at - max(opened_at, policy.seen_at)) if policy.seen_lanes else 0.0
    limit, until, is_spacing = scope.obstacle_after(now, slot) if scope.lanes else ("", now, False)
    if policy.seen_limit:
        if not limit and scope.lanes and scope.grants == policy.seen_grants and policy.seen_until > now:
            limit, until = policy.seen_limit, policy.seen_until  # two places at a time, and nobody has them yet
        _charge(policy, now, limit if is_spacing else "concurrency", entry.granted_at)
    policy.seen_at, policy.seen_limit, policy.seen_until, policy.seen_grants = now, limit, until, scope.grants
    policy.seen_lanes = scope.lanes
    return elsewhere


def add_vain_send(scopes: Iterable[Scope], sent_at: float) -> None:
    """Count a send that met a dead connection: it goes to the wire again, at once or in another turn."""
    for scope in scopes:
        policy: ScopePolicy = scope.policy
        policy.sends += 1
        policy.first_sent = min(policy.first_sent, sent_at)
        if policy.ramp is not None:
            policy.ramp.sends += 1  # the delay in force has let it through


def add_times(scopes: Iterable[Scope], times: Times) -> None:
    """Add the times of a request to those of each scope that it took."""
    for scope in scopes:
        policy: ScopePolicy = scope.policy
        if policy.times is None:
            policy.times = TimesTotal()
        policy.times.add(times)


def add_parsing(scopes: Iterable[Scope], seconds: float) -> None:
    """Add what the callback of such a request took."""
    for scope in scopes:
        policy: ScopePolicy = scope.policy
        if policy.times is not None:
            policy.times.parsing += seconds


def _charge(policy: ScopePolicy, now: float, rest: str, granted_at: float) -> None:
    """Put the time since the last look on account; what lies past the end of that limit, and the grant, on ``rest``."""
    limited = policy.limited
    if limited is None:
        limited = policy.limited = {}
    until = min(now, policy.seen_until)
    limit = policy.seen_limit
    since = max(policy.seen_at, granted_at) if limit == "concurrency" else policy.seen_at
    limited[limit] = limited.get(limit, 0.0) + max(0.0, until - since)
    since = max(until, granted_at)
    if now > since:
        limited[rest] = limited.get(rest, 0.0) + now - since


def allowed_rate(scope: Scope) -> float:
    """Sends a second that the limits in force allow; ``inf`` where nothing bounds them."""
    rate = 1.0 / scope.delay if scope.delay > 0.0 else math.inf
    if scope.delay_per_slot > 0.0 and scope.concurrency < math.inf:
        rate = min(rate, scope.concurrency / scope.delay_per_slot)
    quota = scope.quota
    if quota is not None and quota.window > 0.0:
        rate = min(rate, quota.quota / quota.window)
    return rate


def report_of(scope: Scope, now: float) -> ScopeReport:
    """What a scope did so far."""
    policy: ScopePolicy = scope.policy
    if policy.seen_limit and scope.lanes:
        _charge(policy, now, "concurrency", now if scope.grants == policy.seen_grants else policy.seen_at)
        policy.seen_at = now
    span = scope.last_sent - policy.first_sent
    return ScopeReport(
        scope=scope.id,
        requests=policy.requests,
        sends=policy.sends,
        rate=(policy.sends - 1) / span if policy.sends > 1 and span > 0.0 else 0.0,
        allowed=allowed_rate(scope),
        delay=scope.delay,
        concurrency=scope.concurrency,
        limited=dict(policy.limited or {}),
        times=Times() if policy.times is None else policy.times.mean(),
        triggers=policy.triggers,
        steps=policy.steps,
        hints=policy.hints,
        last_hint=policy.last_hint,
    )


def reports_of(scopes: Iterable[Scope], now: float) -> list[ScopeReport]:
    """What all of them did, the busiest first; those that never had a request left out."""
    reports = [report_of(scope, now) for scope in scopes if scope.policy.requests]
    return sorted(reports, key=lambda report: (-report.requests, report.scope))
