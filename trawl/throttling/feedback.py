"""What one answer does to one scope.

The order is fixed, and each part changes its own field only:

1. windows that are over take effect (``ScopePolicy.settle``);
2. the quota is corrected by what was really consumed;
3. a trigger counts towards its incident, and rampup or backoff takes its step; or a good answer is noted;
4. holds: nothing before the backoff's delay, nothing before what a header asks for;
5. AutoThrottle adjusts its delay;
6. the parts are put together (``ScopePolicy.apply``).
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

from trawl.http import body_bytes
from trawl.throttling.backoff import Backoff, Standing
from trawl.throttling.explain import Reason
from trawl.throttling.patience import Patience
from trawl.throttling.policy import ScopePolicy
from trawl.throttling.said import figure
from trawl.throttling.scope import Scope
from trawl.throttling.signals import Signal

if TYPE_CHECKING:
    from trawl.http import Outcome

__all__ = ["adjust", "correct", "good", "lengthened", "step_at_start", "trigger"]

logger: logging.Logger = logging.getLogger("trawl.throttling")

_BELIEVABLE = 366 * 86_400.0
"""Seconds. A wish beyond a year is a mistake, and capping it is not worth a line in the log."""


def correct(scope: Scope, signal: Signal, now: float, *, expected: float | None, sent_at: float | None) -> bool:
    """Correct the quota of ``scope`` (F04); whether there was anything to correct.

    Args:
        scope: The scope.
        signal: What was told about it.
        now: The instant.
        expected: What was charged at the send; None: nothing was.
        sent_at: The send.
    """
    if signal.consumed is not None:
        difference = signal.consumed - (expected or 0.0)
        scope.policy.used += difference
        scope.charge(difference, now, sent_at)
    if signal.remaining is not None:
        scope.set_remaining(signal.remaining, now)
    return signal.consumed is not None or signal.remaining is not None


def trigger(
    scope: Scope,
    policy: ScopePolicy,
    signal: Signal,
    outcome: Outcome,
    now: float,
    *,
    step: int | None,
    granted_at: float,
    factor: float,
) -> None:
    """Take a trigger in.

    Args:
        scope: The scope.
        policy: Its policies.
        signal: What was told about it.
        outcome: The answer.
        now: The instant.
        step: The scope's step when the request was granted; None where it did not take the scope.
        granted_at: When it was granted.
        factor: What a hold that a header asks for is lengthened by, for jitter; at least 1.
    """
    is_new = step == scope.step if step is not None else granted_at >= policy.stepped_at
    policy.triggers += 1
    policy.triggered_at = now
    if policy.patience is None:
        policy.patience = Patience(now, lead=max(0.0, now - granted_at))
    patience = policy.patience
    is_robots = outcome.request.url.endswith("/robots.txt")  # it is asked again at a pace of its own, which counts
    patience.refused(granted_at, is_paced=is_robots)
    what = describe(outcome)
    if is_new:
        policy.trigger_source = what
    ramp = policy.ramp
    if ramp is not None and not ramp.has_fallen_back:
        if is_new:
            before = ramp.limits
            if ramp.triggered(now):
                policy.steer(ramp.triggers, before)
            _count_incident(scope, policy, now)
        policy.apply(scope)
        if outcome.sent_at is None:  # no send, from which the delay could count
            until = now + scope.interval()
            scope.hold(until, Reason(scope.id, "delay", until, f"rampup: {what}"))
    else:
        _back_off(scope, policy, outcome, now, is_new=is_new)
    if signal.delay:
        _obey(scope, policy, patience, signal, now, what, factor)
    _put_off(scope, policy, patience, now)
    patience.quiet(now + scope.quiet_for(now))


def _put_off(scope: Scope, policy: ScopePolicy, patience: Patience, now: float) -> None:
    """Hold the scope until the end of the patience, where that is the time of the last try (B20)."""
    standing, until = policy.standing, max(now, scope.held_until)
    if standing is None:  # rampup moves it: its falls double the delay at the most
        until = max(until, scope.last_sent + scope.interval())
        following, mover = 2.0 * scope.longest, "rampup"
    else:
        strategy, mover = policy.kind.backoff, f"backoff step {standing.steps}"
        following = Backoff.slower(strategy, standing.delay, policy.base(scope).delay)  # a guess: no other is asked
        following *= max(1.0, strategy.jitter[1])
    last = patience.put_off(until, following, policy.kind.give_up_after)
    if last > until:
        source = f"{mover}: {policy.trigger_source}; the last try before it is given up"
        scope.hold(last, Reason(scope.id, "backoff", last, source))


def _count_incident(scope: Scope, policy: ScopePolicy, now: float) -> None:
    scope.step += 1
    policy.steps += 1
    policy.stepped_at = now


def _back_off(scope: Scope, policy: ScopePolicy, outcome: Outcome, now: float, *, is_new: bool) -> None:
    base = policy.base(scope)
    standing = policy.standing or Standing.at(base)
    if is_new:
        sent_at = outcome.sent_at if outcome.sent_at is not None else outcome.started_at
        strategy = policy.kind.backoff
        standing = standing.stepped(strategy, base, now, in_flight=scope.in_flight, sent_at=sent_at)
        _count_incident(scope, policy, now)
        # The first step of a trouble is news; but the failure of one page, which is told with the page, is no trouble.
        news = 1 if outcome.error is None else 2
        logger.log(
            logging.WARNING if standing.steps == news else logging.INFO,
            "%s: backing off, step %d: delay %.3g s, concurrency %g, after %s",
            scope.id, standing.steps, standing.delay, standing.concurrency, outcome.error or policy.trigger_source,
        )  # fmt: skip
    else:
        standing = standing.again(now)
    policy.standing = standing
    policy.apply(scope)
    quiet = scope.interval()
    if policy.manager is not None:
        about = (outcome.response, outcome.error, quiet)
        wanted = figure(policy.manager, "get_delay", policy.kind.failed, *about, is_finite=True)
        quiet = quiet if wanted is None else max(0.0, wanted)
    if quiet > 0.0:
        source = f"backoff step {standing.steps}: {policy.trigger_source}"
        scope.hold(now + quiet, Reason(scope.id, "backoff", now + quiet, source))


def _obey(
    scope: Scope, policy: ScopePolicy, patience: Patience, signal: Signal, now: float, what: str, factor: float
) -> None:
    """Hold the scope for what a header (or a manager) asks, capped (D01, D05)."""
    wanted, most = signal.delay or 0.0, policy.kind.backoff.max_delay
    delay = min(wanted, most) * factor
    header = signal.header or "the throttling manager"
    source = f"{header}, {what}"
    if wanted > most:
        source = f"{source}; capped at {most:g} s"
        if wanted <= _BELIEVABLE:
            logger.info("%s: %s asks for %g s after %s; capped at %g s", scope.id, header, wanted, what, most)
    else:
        patience.asked(now, now + delay)
    policy.hints += 1
    policy.last_hint = source
    scope.hold(now + delay, Reason(scope.id, "hint", now + delay, source))


def lengthened(scope: Scope, policy: ScopePolicy, seed: int | str) -> float:
    """What a hold that a header asks for is multiplied by: jitter lengthens it, never shortens (B06, R10)."""
    spread = policy.kind.backoff.jitter[1] - 1.0
    if spread <= 0.0:
        return 1.0
    return 1.0 + spread * random.Random(f"{seed}:{scope.id}:hint {policy.hints}").random()


def step_at_start(scope: Scope, policy: ScopePolicy, signal: Signal, now: float) -> None:
    """Take what the manager says before the first send: a delay only holds, exhausted takes one step (E10)."""
    if signal.delay:
        source = "get_initial_backoff of the throttling manager"
        scope.hold(now + signal.delay, Reason(scope.id, "hint", now + signal.delay, source))
    elif signal.is_trigger:
        base = policy.base(scope)
        standing = policy.standing or Standing.at(base)
        policy.standing = standing.stepped(policy.kind.backoff, base, now, in_flight=1, sent_at=now)
        policy.trigger_source = "exhausted at the start, says the throttling manager"
        _count_incident(scope, policy, now)
        policy.apply(scope)


def good(policy: ScopePolicy, now: float, *, was_refused: bool = False) -> bool:
    """Note a good answer, of a request that had been refused before or of another; whether it may start a recovery."""
    policy.good_at = now
    if was_refused:
        policy.passed_at = now
    policy.patience = None
    policy.refused = ""
    standing = policy.standing
    if standing is not None:
        policy.standing = standing.answered(now)
        return policy.standing is not standing
    if policy.ramp is not None and policy.ramp.has_fallen_back:
        policy.ramp.has_fallen_back = False
    return False


def adjust(scope: Scope, policy: ScopePolicy, outcome: Outcome, *, is_trigger: bool, debug: bool) -> bool:
    """Let AutoThrottle follow the latency of an answer; whether its delay moved."""
    auto, rule, response, latency = policy.auto, policy.kind.autothrottle, outcome.response, outcome.latency
    if auto is None or rule is None or response is None or latency is None or policy.ramp is not None:
        return False
    if outcome.request.meta_get("autothrottle_dont_adjust_delay"):
        return False
    policy.auto = rule.adjusted(auto, latency, is_healthy=response.status == 200 and not is_trigger)
    if debug:
        logger.info(
            "slot: %s | conc: %d | latency: %.0f ms, last %.0f ms | target: %.0f ms | delay: %.0f -> %.0f ms | "
            "size: %d bytes",
            scope.id, scope.in_flight, latency * 1000, policy.last_latency * 1000, rule.target_delay(latency) * 1000,
            auto * 1000, policy.auto * 1000, body_bytes(response),
        )  # fmt: skip
    policy.last_latency = latency
    return policy.auto != auto


def describe(outcome: Outcome) -> str:
    """An answer in a few words: "429 of https://a.example/"."""
    url = outcome.request.url
    if outcome.response is not None:
        return f"{outcome.response.status} of {url}"
    return f"{type(outcome.error).__name__} of {url}"
