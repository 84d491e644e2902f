"""The policy and the state of a scope, and the effective limits that follow from them.

Five parts may change a scope's limits, and each changes only its own field. :meth:`ScopeState.apply` combines them,
always in this order::

    configured ─► AutoThrottle or rampup ─► robots.txt ─► RateLimit headers ─► backoff ─► effective

The last three never make a scope faster. A delay set by one of them is also a minimum, because jitter only lengthens
it. Windows that pass (recovery, rampup, giving up) take effect when the scope is next checked, as of the times at which
they ended: :meth:`ScopeState.settle`. Scopes with the same configuration share one :class:`ScopePolicy`, so a host
without its own configuration costs only a reference.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

import attrs
from msgspec.structs import replace

from trawl.throttling.backoff import OUTAGE, Backoff, BackoffState, Base
from trawl.throttling.failure_timer import RecentOutcomes
from trawl.throttling.limits import CONFIGURED, EffectiveLimits, Limits, lengthening
from trawl.throttling.managers import OnFailure, call_user, ignore_failure, log_failure
from trawl.throttling.rampup import RampupPolicy, RampupState
from trawl.throttling.reasons import ScopeTotals
from trawl.throttling.scope import Scope
from trawl.throttling.snapshot import ServerLimit

__all__ = ["AutoThrottle", "ScopePolicy", "ScopeState"]


@attrs.frozen(kw_only=True)
class AutoThrottle:
    """The rule by which the delay of a host follows its latency.

    Only a healthy page, one with status code 200 that is not a trigger, may lower the delay. An error page is often
    faster than a real one, and following it would speed up a crawl that harms its server.

    Raises:
        ValueError: If ``min_delay`` is above ``max_delay``, or the target is not above 0.
    """

    start_delay: float = 5.0  # the delay before the first response, in seconds
    min_delay: float = 0.0  # minimum delay, in seconds
    max_delay: float = 60.0  # maximum delay, in seconds; at least the minimum
    # Average number of requests in flight to one host to aim for; above 0. A target, not a limit.
    target_concurrency: float = attrs.field(default=1.0, validator=attrs.validators.gt(0))

    def __attrs_post_init__(self) -> None:
        if self.min_delay > self.max_delay:
            raise ValueError(f"min_delay ({self.min_delay:g} s) is above max_delay ({self.max_delay:g} s)")

    @property
    def first_delay(self) -> float:
        """The delay that a host starts with, in seconds."""
        return min(max(self.min_delay, self.start_delay), self.max_delay)

    def target_delay(self, latency: float) -> float:
        """Return the target delay for ``latency``, both in seconds."""
        return latency / self.target_concurrency

    def adjusted(self, delay: float, latency: float, *, is_healthy: bool) -> float:
        """Return the delay after a response whose headers came ``latency`` seconds after the start of connecting."""
        target = self.target_delay(latency)
        wanted = min(max(target, (delay + target) / 2.0, self.min_delay), self.max_delay)
        return wanted if is_healthy or wanted > delay else delay


logger: logging.Logger = logging.getLogger("trawl.throttling")

_NUMBERS = 5  # the first fields of EffectiveLimits: those that are not names and sources

_MAX_STEPS = 1000
"""Maximum number of steps back taken at once after a pause. Further steps, if they are small, wait for new windows."""


def _computed(rule: Callable[[ScopePolicy], bool]) -> Any:
    return attrs.field(init=False, default=attrs.Factory(rule, takes_self=True))


@attrs.frozen(kw_only=True, eq=False)
class ScopePolicy:
    """The configuration that scopes configured alike share."""

    config: Mapping[str, Any]  # the entry of `THROTTLING_SCOPES`; empty without one
    limits: Limits
    backoff: Backoff
    rampup: RampupPolicy | None = None  # None if it is off
    autothrottle: AutoThrottle | None = None  # the rule by which the delay follows the latency; None if it is off
    give_up_after: float = 900.0  # seconds without a good response after which the pending requests of a scope end
    source: str = CONFIGURED  # the source of the limits, for explanations
    manager: Any = None  # the class of their scope managers; None for the default, which has no state
    failed: OnFailure = ignore_failure  # called when a scope manager fails
    # True if the user set this scope's own delay, which takes precedence over robots.txt.
    keeps_delay: bool = _computed(lambda policy: "delay" in policy.config or "rate" in policy.config)
    # True if the user set this scope's own concurrency, which takes precedence over robots.txt.
    keeps_concurrency: bool = _computed(lambda policy: "concurrency" in policy.config)
    # True if the user set a concurrency or rate that should be reached.
    is_watched: bool = _computed(lambda policy: "concurrency" in policy.config or "rate" in policy.config)
    # True if the user configured this scope's own `http_codes`, or a strategy with its own `is_trigger`. Then no other
    # response is a trigger.
    decides_triggers: bool = _computed(
        lambda policy: "http_codes" in policy.config.get("backoff", ()) or policy.backoff.decides_triggers
    )


@attrs.define(eq=False, weakref_slot=False)
class ScopeState:
    """The policies' state of one scope. Hot, so mutable and slotted."""

    policy: ScopePolicy  # the configuration that it shares with other scopes
    made_at: float = 0.0  # event loop time at which the scope was created
    last_latency: float = 0.0  # the previous latency, in seconds, for the log
    robots: float = 0.0  # the Crawl-delay obeyed, in seconds; 0.0 for none
    robots_asked: float = 0.0  # the Crawl-delay in robots.txt, in seconds, which may be longer
    told: ServerLimit | None = None  # the limit that its server announced; None if there is none, or if it has ended
    manager: Any = None  # the user's scope manager; None for the default
    totals: ScopeTotals = attrs.field(factory=ScopeTotals)  # for reports. No decision follows from them.
    period: Any = None  # the statistics for warnings; None before the first period
    armed: float = math.inf  # event loop time at which it is due, as stored by `ScopeTimers`; `inf` if it is not armed
    has_answered: bool = False  # True if there was ever a response, good or bad
    auto: float | None = None  # AutoThrottle's delay, in seconds; None if AutoThrottle does not apply to the scope
    rampup: RampupState | None = None  # None if it is off
    backoff: BackoffState | None = None  # None if it is not backing off
    # The latest triggers and good responses, which decide about backoff, retries and giving up.
    recent: RecentOutcomes = attrs.field(factory=RecentOutcomes)

    def __attrs_post_init__(self) -> None:
        self.set_policy(self.policy)

    def set_policy(self, policy: ScopePolicy) -> None:
        """Start with the values of ``policy``."""
        self.policy = policy
        self.auto = policy.autothrottle.first_delay if policy.autothrottle is not None else None
        self.rampup = None
        if policy.rampup is not None:
            limits = policy.limits
            slots = min(limits.concurrency, policy.rampup.max_concurrency)
            self.rampup = RampupState(
                policy.rampup, delay=limits.delay, delay_per_slot=limits.delay_per_slot, concurrency=slots
            )
            self.rampup.floor = self.robots

    def start_afresh(self) -> None:
        """Forget triggers and backoff."""
        self.backoff, self.recent = None, RecentOutcomes()

    def apply(self, scope: Scope) -> bool:
        """Combine the parts and set the limits of ``scope``. Returns True if a limit changed."""
        before, after = scope.effective, self._effective(scope.limits)
        if before == after:
            return False
        scope.arrange(after)
        if before[:_NUMBERS] == after[:_NUMBERS]:
            return False
        if logger.isEnabledFor(logging.DEBUG):
            _tell_move(scope.id, before, after)
        return True

    def _effective(self, limits: Limits) -> EffectiveLimits:
        """Return the limits in force, and their sources."""
        delay, rest, slots = self._undisturbed(limits)
        name, source, slots_source = self._sources(limits, delay, slots)
        jitter, floor = limits.jitter, self.wish
        floor_source = self._robots_source() if 0.0 < floor < delay else ""
        told, backoff = self.told, self.backoff
        if told is not None and told.delay > max(delay * jitter[0], floor):
            delay, floor = max(delay, told.delay), told.delay
            name, source, floor_source = "hint", told.source, ""
        if self.rampup is not None:  # the delay is a measured limit, so no interval is drawn shorter
            jitter = (1.0, min(lengthening(jitter)[1], lengthening(self.policy.backoff.jitter)[1]))
        if backoff is not None and backoff.is_backing_off(Base(delay, slots)):
            jitter = lengthening(self.policy.backoff.jitter)  # a configured delay per slot is not drawn shorter either
            words = f"backoff step {backoff.steps}: {self.recent.trigger_source}"
            if backoff.delay > delay:
                delay = floor = backoff.delay
                name, source, floor_source = "backoff", words, ""
            if backoff.is_cut and backoff.concurrency < slots:
                slots, slots_source = backoff.concurrency, words
        return EffectiveLimits(
            slots, delay, rest, jitter, floor, name, source, floor_source, slots_source, self.policy.source
        )

    @property
    def wish(self) -> float:
        """The effective Crawl-delay, in seconds; 0.0 if the user set the scope's own delay."""
        return 0.0 if self.policy.keeps_delay else self.robots

    def base(self, scope: Scope) -> Base:
        """Return the limits that backing off currently returns to."""
        delay, _, slots = self._undisturbed(scope.limits)
        return Base(delay, slots)

    def _undisturbed(self, limits: Limits) -> tuple[float, float, float]:
        """Return delay, delay per slot and concurrency without the backoff."""
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

    def _sources(self, limits: Limits, delay: float, slots: float) -> tuple[str, str, str]:
        configured = self.policy.source
        is_robots = self.wish > 0.0 and delay == self.wish > limits.delay
        mover = "rampup" if self.rampup is not None else "AutoThrottle" if self.auto is not None else configured
        slots_source = configured if slots == limits.concurrency else "robots.txt" if self.robots > 0.0 else mover
        if is_robots:
            return "robots", self._robots_source(), slots_source
        return "delay", mover, slots_source

    def due_at(self) -> float:
        """Return the next event loop time at which it changes by the passing of time alone; ``inf`` for none."""
        timer = self.recent.failure_timer
        due = math.inf if timer is None else timer.due_at(self.policy.give_up_after)
        if self.backoff is not None:
            due = min(due, self.backoff.due_at(self.policy.backoff))
        if self.rampup is not None:
            due = min(due, self.rampup.window.due_at)
        return due

    def should_give_up(self, scope: Scope, now: float) -> bool:
        """Return True if it gave no good response for so long that it must be given up.

        A host without requests can't respond. If requests were pending and the scope was open for half of that time,
        but another scope, an exhausted quota or a middleware delayed them, that time does not count.
        """
        failure_timer, after = self.recent.failure_timer, self.policy.give_up_after
        if failure_timer is None or failure_timer.due_at(after) > now:
            return False
        is_unasked = (scope.waits.lanes or scope.traffic.ahead) and not scope.traffic.in_flight
        return not (is_unasked and failure_timer.unasked(now, at_least=after / 2.0))

    def settle(self, scope: Scope, now: float) -> bool:
        """Apply all windows that ended by ``now``, except for giving up. Returns True if a limit changed."""
        is_touched = self._ease(scope, now)
        while self.rampup is not None and self.rampup.window.due_at <= now:
            at, triggers, before = self.rampup.window.due_at, self.rampup.window.triggers, self.rampup.limits
            self.rampup.window_over(is_held=self.backoff is not None or scope.held.until > at)
            self.steer(triggers, before)
            if self.rampup.has_fallen_back and self.backoff is None:
                self.fall_back(scope, at)
            is_touched = True
        return is_touched and self.apply(scope)

    def steer(self, triggers: int, before: Mapping[str, float]) -> None:
        """Call the scope manager for the limits that rampup moves to from ``before``. Rampup's own are the default."""
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
                # The windows that passed would not change anything either.
                self.backoff = self.backoff.waiting_from(now)
        else:
            self.backoff = None if self.backoff is None else self.backoff.waiting_from(now)
        return self.backoff is not was

    @property
    def is_outage(self) -> bool:
        """True if rampup recognized an outage, and leaves the scope to backoff."""
        return self.rampup is not None and self.rampup.has_fallen_back

    def fall_back(self, scope: Scope, now: float) -> None:
        """Take the first step of backoff instead of rampup, because there were triggers without a good response."""
        base = self.base(scope)
        backoff = BackoffState.at(base).escalated(
            self.policy.backoff, base, now, in_flight=scope.traffic.in_flight, sent_at=now
        )
        self.backoff = replace(backoff, unanswered=OUTAGE)
        scope.step += 1
        self.totals.steps += 1
        self.recent.escalated_at = now
        logger.warning(
            "%s: an outage, so backing off instead of rampup, step 1: delay %.3g s, concurrency %g, after %s",
            scope.id, self.backoff.delay, self.backoff.concurrency, self.recent.trigger_source,
        )  # fmt: skip

    def is_quiet(self, scope: Scope, now: float) -> bool:
        """Return True if forgetting the scope loses nothing that matters, because it is idle and not backing off."""
        return self.backoff is None and self.recent.failure_timer is None and scope.is_idle(now)


def _tell_move(id: str, before: EffectiveLimits, after: EffectiveLimits) -> None:
    """Log the previous and the current limits of a scope, and the reasons."""
    moves = [
        f"{name} {was:.3g}{unit} -> {now:.3g}{unit} ({source})"
        for name, was, now, unit, source in (
            ("delay", before.delay, after.delay, " s", after.delay_source),
            ("delay per slot", before.delay_per_slot, after.delay_per_slot, " s", after.delay_source),
            ("concurrency", before.concurrency, after.concurrency, "", after.concurrency_source),
        )
        if was != now
    ]
    if moves:  # otherwise only the jitter has changed
        logger.debug("%s: %s", id, ", ".join(moves))
