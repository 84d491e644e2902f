"""The policy and the state of a scope, and the limits in force that they make.

Theory of operation. Four parts may change a scope's limits, and each changes its own field only;
:meth:`ScopeState.apply` puts them together, always in this order::

    configured ─► AutoThrottle or rampup ─► robots.txt ─► RateLimit headers ─► backoff ─► in force

The last three never make it faster. A delay that one of them put in force is a floor, too: jitter only lengthens it
(D12). Windows that pass (recovery, rampup, giving up) take effect when the scope is next looked at, at the instants at
which they ended: :meth:`ScopeState.settle`. Scopes configured alike share one :class:`ScopePolicy`, so a host without
a configuration of its own costs a reference.

AutoThrottle (H01-H12): a host's delay follows its latency. A server that answers in ``latency`` seconds and is to have
N requests at once is asked every ``latency / N`` seconds: that is the *target delay*. After each response the delay
becomes the mean of itself and the target, or the target if that is larger, within the bounds that the user set. Only a
healthy page may lower it: an error page is often quicker than a real one, and following it would speed up a crawl that
hurts its server. So only a response of status 200 that is not a trigger counts as healthy; refusals, errors and cached
pages never speed anything up (H05, H15).

Starting points (target concurrency, longest delay, first delay): polite 1.0, 10 s, 2.0 s; a server that cooperates
4.0, 30 s, 1.0 s; many domains 2.0, 60 s, 1.0 s.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

import attrs
from msgspec.structs import replace

from trawl.http import TimesTotal
from trawl.throttling.backoff import OUTAGE, Backoff, BackoffState, Base
from trawl.throttling.failure_timer import FailureTimer
from trawl.throttling.limits import Limits, lengthening
from trawl.throttling.managers import OnFailure, call_user, ignore_failure, log_failure
from trawl.throttling.rampup import RampupPolicy, RampupState
from trawl.throttling.reasons import LimitName
from trawl.throttling.scope import CONFIGURED, Scope
from trawl.throttling.snapshot import ServerLimit

__all__ = ["AutoThrottle", "ScopePolicy", "ScopeState"]


@attrs.frozen(kw_only=True)
class AutoThrottle:
    """The rule by which delays follow latencies.

    Attributes:
        start_delay: The delay before the first response, in seconds.
        min_delay: The least delay, in seconds.
        max_delay: The longest delay, in seconds; not under the least.
        target_concurrency: Requests to one host wanted in flight on average; above 0. A target, not a cap.

    Raises:
        ValueError: The bounds cross (H06), or the target is not above 0.
    """

    start_delay: float = 5.0
    min_delay: float = 0.0
    max_delay: float = 60.0
    target_concurrency: float = attrs.field(default=1.0, validator=attrs.validators.gt(0))

    def __attrs_post_init__(self) -> None:
        if self.min_delay > self.max_delay:
            raise ValueError(f"min_delay ({self.min_delay:g} s) is above max_delay ({self.max_delay:g} s)")

    @property
    def first_delay(self) -> float:
        """The delay that a host starts with, in seconds (H02)."""
        return min(max(self.min_delay, self.start_delay), self.max_delay)

    def target_delay(self, latency: float) -> float:
        """The delay that ``latency`` (seconds) asks for (H03)."""
        return latency / self.target_concurrency

    def adjusted(self, delay: float, latency: float, *, is_healthy: bool) -> float:
        """The delay after a response (H04-H06).

        Args:
            delay: The delay before it, in seconds.
            latency: From the start of connecting to the headers, in seconds.
            is_healthy: True if it may lower the delay.
        """
        target = self.target_delay(latency)
        wanted = min(max(target, (delay + target) / 2.0, self.min_delay), self.max_delay)
        return wanted if is_healthy or wanted > delay else delay


logger: logging.Logger = logging.getLogger("trawl.throttling")

_MAX_STEPS = 1000
"""Steps back that are taken at once, after a pause: of smaller ones, the rest take windows of their own."""


@attrs.frozen(kw_only=True, eq=False)
class ScopePolicy:
    """The configuration that scopes configured alike share.

    Attributes:
        config: The entry of ``THROTTLING_SCOPES``; empty without one.
        limits: The configured limits.
        backoff: The strategy of backing off.
        rampup: The configuration of rampup; None: off.
        autothrottle: The rule by which the delay follows the latency; None: off.
        give_up_after: Seconds without a good answer after which their pending requests end (B20).
        source: The source of the limits, for explanations.
        manager: The class of their scope managers; None for the default, which keeps nothing.
        failed: Called when one of them fails.
        keeps_delay: True if the user set this scope's own delay: robots.txt then leaves it (D12).
        keeps_concurrency: True if the user set this scope's own concurrency: robots.txt then leaves it (D12).
        is_watched: True if the user set a concurrency or rate that should be reached (I02).
        decides_triggers: True if the user listed this scope's own ``http_codes``, or gave a strategy with its own
            ``is_trigger``: then no other response is a trigger (B14).
    """

    config: Mapping[str, Any]
    limits: Limits
    backoff: Backoff
    rampup: RampupPolicy | None = None
    autothrottle: AutoThrottle | None = None
    give_up_after: float = 900.0
    source: str = CONFIGURED
    manager: Any = None
    failed: OnFailure = ignore_failure
    keeps_delay: bool = attrs.field(init=False)
    keeps_concurrency: bool = attrs.field(init=False)
    is_watched: bool = attrs.field(init=False)
    decides_triggers: bool = attrs.field(init=False)

    @keeps_delay.default
    def _keeps_delay(self) -> bool:
        return "delay" in self.config or "rate" in self.config

    @keeps_concurrency.default
    def _keeps_concurrency(self) -> bool:
        return "concurrency" in self.config

    @is_watched.default
    def _is_watched(self) -> bool:
        return "concurrency" in self.config or "rate" in self.config

    @decides_triggers.default
    def _decides_triggers(self) -> bool:
        return "http_codes" in self.config.get("backoff", ()) or self.backoff.decides_triggers


class ScopeState:
    """The policies' state of one scope. Hot, so mutable and slotted.

    Attributes:
        policy: The configuration that it shares with others.
        auto: The delay that AutoThrottle wants, in seconds; None where it leaves the scope alone.
        last_latency: The latency before this one, for the log.
        rampup: Its rampup; None where it is off.
        robots: The Crawl-delay obeyed, in seconds; 0.0 for none.
        robots_asked: The Crawl-delay as robots.txt has it, in seconds: it may be longer.
        told: The limit that its server tells; None: none, or one whose time is over.
        backoff: The backoff it is in; None: not backing off.
        trigger_source: The last trigger, in words.
        escalated_at: The instant of the last incident.
        triggered_at: The instant of the last trigger.
        good_at: The last good answer.
        failure_timer: The time without a good answer; None if nothing was refused since the last one.
        has_answered: True if anything was ever answered, good or bad.
        passed_at: The last good answer to a request that had been refused before.
        refused: The request that was refused since the last good answer, those left out that are known to fail by
            themselves: "" where there is none, "*" where there are several.
        armed: The instant at which it is due to be settled, as its keeper noted it.
        manager: The user's scope manager, or None.
        made_at: The instant at which the scope was made.
        requests: Requests that came to an end.
        sends: Those that went to the wire.
        used: The amount that they used of the quota, in all.
        first_sent: The first send.
        triggers: Triggers heard.
        steps: Incidents counted.
        hints: Headers obeyed.
        last_hint: The last of them.
        times: The total times of its requests, by stage; None before the first.
        period: The figures that warnings are made of; None before the first period.
    """

    __slots__ = (
        "armed",
        "auto",
        "backoff",
        "escalated_at",
        "failure_timer",
        "first_sent",
        "good_at",
        "has_answered",
        "hints",
        "last_hint",
        "last_latency",
        "made_at",
        "manager",
        "passed_at",
        "period",
        "policy",
        "rampup",
        "refused",
        "requests",
        "robots",
        "robots_asked",
        "sends",
        "steps",
        "times",
        "told",
        "trigger_source",
        "triggered_at",
        "triggers",
        "used",
    )

    def __init__(self, policy: ScopePolicy, now: float = 0.0) -> None:
        self.made_at: float = now
        self.last_latency: float = 0.0
        self.robots: float = 0.0
        self.robots_asked: float = 0.0
        self.told: ServerLimit | None = None
        self.manager: Any = None
        self.requests: int = 0
        self.sends: int = 0
        self.used: float = 0.0
        self.first_sent: float = math.inf
        self.triggers: int = 0
        self.steps: int = 0
        self.hints: int = 0
        self.last_hint: str = ""
        self.times: TimesTotal | None = None
        self.period: Any = None
        self.armed: float = math.inf
        self.has_answered: bool = False
        self.set_policy(policy)
        self.start_afresh()

    def set_policy(self, policy: ScopePolicy) -> None:
        """Start with the values of ``policy``."""
        self.policy: ScopePolicy = policy
        self.auto: float | None = policy.autothrottle.first_delay if policy.autothrottle is not None else None
        self.rampup: RampupState | None = None
        if policy.rampup is not None:
            limits = policy.limits
            slots = min(limits.concurrency, policy.rampup.max_concurrency)
            self.rampup = RampupState(
                policy.rampup, delay=limits.delay, delay_per_slot=limits.delay_per_slot, concurrency=slots
            )
            self.rampup.floor = self.robots

    def start_afresh(self) -> None:
        """Forget triggers and how far it backed off."""
        self.backoff: BackoffState | None = None
        self.trigger_source: str = ""
        self.escalated_at: float = -math.inf
        self.triggered_at: float = -math.inf
        self.good_at: float = -math.inf
        self.failure_timer: FailureTimer | None = None
        self.passed_at: float = -math.inf
        self.refused: str = ""

    # -- what is in force

    def apply(self, scope: Scope) -> bool:
        """Put the parts together on ``scope``. Returns True if that moved a limit."""
        before = (scope.delay, scope.floor, scope.delay_per_slot, scope.concurrency, scope.jitter)
        delay, rest, slots = self._undisturbed(scope.limits)
        scope.delay_limit, scope.delay_source, scope.concurrency_source = self._sources(scope.limits, delay, slots)
        scope.quota_source = self.policy.source
        jitter, floor = scope.limits.jitter, self.wish
        scope.floor_source = self._robots_source() if 0.0 < floor < delay else ""
        told, backoff = self.told, self.backoff
        if told is not None and told.delay > max(delay * jitter[0], floor):
            delay, floor = max(delay, told.delay), told.delay
            scope.delay_limit, scope.delay_source, scope.floor_source = "hint", told.source, ""
        if self.rampup is not None:  # the delay is a limit that was found, so no interval is drawn shorter
            jitter = (1.0, min(lengthening(jitter)[1], lengthening(self.policy.backoff.jitter)[1]))
        if backoff is not None and backoff.is_backing_off(Base(delay, slots)):
            jitter = lengthening(self.policy.backoff.jitter)  # a rest of the user's own is not drawn shorter either
            words = f"backoff step {backoff.steps}: {self.trigger_source}"
            if backoff.delay > delay:
                delay = floor = backoff.delay
                scope.delay_limit, scope.delay_source, scope.floor_source = "backoff", words, ""
            if backoff.is_cut and backoff.concurrency < slots:
                slots, scope.concurrency_source = backoff.concurrency, words
        after = (delay, floor, rest, slots, jitter)
        scope.delay, scope.floor, scope.delay_per_slot, scope.concurrency, scope.jitter = after
        if before == after:
            return False
        if logger.isEnabledFor(logging.DEBUG):
            _tell_move(scope, before[0], before[2], before[3])
        return True

    @property
    def wish(self) -> float:
        """The Crawl-delay in force, in seconds: none where the user set the scope's own delay (D12)."""
        return 0.0 if self.policy.keeps_delay else self.robots

    def base(self, scope: Scope) -> Base:
        """Return the limits that backing off returns to now."""
        delay, _, slots = self._undisturbed(scope.limits)
        return Base(delay, slots)

    def _undisturbed(self, limits: Limits) -> tuple[float, float, float]:
        """Delay, delay per slot and concurrency without the backoff."""
        delay, rest, slots = limits.delay, limits.delay_per_slot, limits.concurrency
        if self.rampup is not None:
            delay, rest, slots = self.rampup.delay, self.rampup.delay_per_slot, self.rampup.concurrency
        elif self.auto is not None:
            delay = self.auto
        if self.robots > 0.0:
            delay = max(delay, self.wish)
            if not self.policy.keeps_concurrency:
                slots = 1.0
        return delay, rest, slots

    def _robots_source(self) -> str:
        words = f"Crawl-delay {self.robots:g} of robots.txt"
        if self.robots < self.robots_asked:
            words += f", which asks for {self.robots_asked:g}; THROTTLING_ROBOTSTXT_MAX_DELAY"
        return words

    def _sources(self, limits: Limits, delay: float, slots: float) -> tuple[LimitName, str, str]:
        configured = self.policy.source
        is_robots = self.wish > 0.0 and delay == self.wish > limits.delay
        mover = "rampup" if self.rampup is not None else "AutoThrottle" if self.auto is not None else configured
        slots_source = configured if slots == limits.concurrency else "robots.txt" if self.robots > 0.0 else mover
        if is_robots:
            return "robots", self._robots_source(), slots_source
        return "delay", mover, slots_source

    # -- time

    def due_at(self) -> float:
        """The next instant at which the passing of time alone moves it; ``inf`` for none."""
        due = math.inf if self.failure_timer is None else self.failure_timer.due_at(self.policy.give_up_after)
        if self.backoff is not None:
            due = min(due, self.backoff.due_at(self.policy.backoff))
        if self.rampup is not None:
            due = min(due, self.rampup.due_at)
        return due

    def should_give_up(self, scope: Scope, now: float) -> bool:
        """Return True if it gave no good answer for so long that it is given up (B20).

        What was not asked can't answer: if requests were pending and it was open for half of that time, but another
        scope, a spent quota or a middleware kept them, that time is left out.
        """
        failure_timer, after = self.failure_timer, self.policy.give_up_after
        if failure_timer is None or failure_timer.due_at(after) > now:
            return False
        is_unasked = (scope.lanes or scope.ahead) and not scope.in_flight
        return not (is_unasked and failure_timer.unasked(now, at_least=after / 2.0))

    def settle(self, scope: Scope, now: float) -> bool:
        """Let every window that is over at ``now`` take effect, except for giving up. Returns True if a limit moved."""
        is_touched = self._ease(scope, now)
        while self.rampup is not None and self.rampup.due_at <= now:
            at, triggers, before = self.rampup.due_at, self.rampup.triggers, self.rampup.limits
            self.rampup.window_over(is_held=self.backoff is not None or scope.held_until > at)
            self.steer(triggers, before)
            if self.rampup.has_fallen_back and self.backoff is None:
                self.fall_back(scope, at)
            is_touched = True
        return is_touched and self.apply(scope)

    def steer(self, triggers: int, before: Mapping[str, float]) -> None:
        """Ask the scope manager for the limits that rampup moves to, from ``before``; its own are the default."""
        rampup = self.rampup
        if self.manager is None or rampup is None or rampup.has_fallen_back:
            return
        wanted = call_user(self.manager, "get_rampup", self.policy.failed, triggers, before, rampup.limits)
        if wanted is not None:
            try:
                rampup.move_to(wanted)
            except (TypeError, ValueError):
                log_failure(self.manager, "get_rampup", self.policy.failed)

    def _ease(self, scope: Scope, now: float) -> bool:
        """Take the steps back that are due. Returns True if there were any."""
        was = self.backoff
        for _ in range(_MAX_STEPS):
            before = self.backoff
            if before is None or before.due_at(self.policy.backoff) > now:
                break
            self.backoff = before.recovered(self.policy.backoff, self.base(scope))
            if self.backoff is None and self.rampup is not None and self.rampup.has_fallen_back:
                self.rampup.take_back()
            if self.backoff is not None and self.backoff.pace == before.pace:
                self.backoff = self.backoff.waiting_from(now)  # the windows that went by lead nowhere either
        else:
            self.backoff = None if self.backoff is None else self.backoff.waiting_from(now)
        return self.backoff is not was

    @property
    def is_outage(self) -> bool:
        """True if rampup met an outage, and leaves the scope to backing off."""
        return self.rampup is not None and self.rampup.has_fallen_back

    def fall_back(self, scope: Scope, now: float) -> None:
        """Take the first step of backing off instead of rampup (C05): there were triggers without a good answer."""
        base = self.base(scope)
        backoff = BackoffState.at(base).escalated(
            self.policy.backoff, base, now, in_flight=scope.in_flight, sent_at=now
        )
        self.backoff = replace(backoff, unanswered=OUTAGE)
        scope.step += 1
        self.steps += 1
        self.escalated_at = now
        logger.warning(
            "%s: an outage, so backing off instead of rampup, step 1: delay %.3g s, concurrency %g, after %s",
            scope.id, self.backoff.delay, self.backoff.concurrency, self.trigger_source,
        )  # fmt: skip

    def is_quiet(self, scope: Scope, now: float) -> bool:
        """Return True if forgetting the scope loses nothing that matters: it is idle and not backing off (I01)."""
        return self.backoff is None and self.failure_timer is None and scope.is_idle(now)


def _tell_move(scope: Scope, delay: float, rest: float, slots: float) -> None:
    """Log what the limits in force were and are, and why."""
    moves = [
        f"{name} {before:.3g}{unit} -> {now:.3g}{unit} ({source})"
        for name, before, now, unit, source in (
            ("delay", delay, scope.delay, " s", scope.delay_source),
            ("delay per slot", rest, scope.delay_per_slot, " s", scope.delay_source),
            ("concurrency", slots, scope.concurrency, "", scope.concurrency_source),
        )
        if before != now
    ]
    if moves:  # else jitter alone has moved
        logger.debug("%s: %s", scope.id, ", ".join(moves))
