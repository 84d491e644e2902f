"""Warnings about a configuration that cannot have its intended effect. Each is given once.

Only the throttle imports this module, which warns and decides nothing.

At the start: a key that matches no host. :mod:`trawl.settings.hidden` handles settings that other settings hide. During
the crawl: robots.txt against configuration, direct fetches that pile up, and, after five minutes, a limit that is never
reached and AutoThrottle's blind spots. The first log line on backing off ends with the setting that decides it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from trawl.http import host_scope, normalize_url
from trawl.http.notes import notes_of
from trawl.passwords import without_passwords
from trawl.throttling.policy import AutoThrottle, ScopeState
from trawl.throttling.reasons import Reason
from trawl.throttling.scope import Scope
from trawl.throttling.scopes import is_mistaken

if TYPE_CHECKING:
    from trawl.http import Outcome
    from trawl.throttling.outcomes import Granted
    from trawl.throttling.scope_table import CrawlDelays, ScopePolicies
    from trawl.throttling.settings import ThrottlingSettings

__all__ = ["PERIOD", "ConfigWarnings", "ScopeStats", "WhyNext"]

logger: logging.Logger = logging.getLogger("trawl.throttling")

WhyNext = Callable[[Any, float], "Reason | None"]
"""Returns why the next request with the scopes of an attempt waits, or without such a request any other; None: none.
"""

PERIOD = 300.0  # seconds that a condition must last before it causes a warning

_NEAR_ZERO = 0.01
_REACHED = 0.9
_QUICK = 1.1  # factor on the latency of the first period: pages up to it count as equally fast
_TOO_FEW = "too few requests at once"
_OTHERS = "its requests wait for something else"
_ENOUGH = 20  # minimum responses in a period for a conclusion
_HOSTS = 10_000  # maximum number of remembered warnings


@attrs.define(eq=False, weakref_slot=False)
class ScopeStats:
    """The statistics of one scope in the current period. Hot, so mutable and slotted."""

    began_at: float
    sends: int
    limited: dict[str, float]
    waited_elsewhere: float
    looks: int = 0
    crowded: int = 0
    crowded_by: Reason | None = None
    peak: int = 0
    busy: float = 0.0
    latency: float = 0.0
    items: int = 0
    auto_min: float = math.inf
    auto_max: float = 0.0
    elsewhere: dict[str, float] = attrs.field(factory=dict)
    # From here on, the values continue in the next period.
    given: set[str] = attrs.field(factory=set)
    first_items: float | None = None
    first_latency: float = 0.0
    held_by: Reason | None = None

    @classmethod
    def started(cls, scope: Scope, now: float, before: ScopeStats | None = None) -> ScopeStats:
        """Return the statistics of a period that starts, after the one ``before``."""
        started = cls(now, scope.state.totals.sends, dict(scope.waits.limited), scope.waits.elsewhere)
        if before is not None:
            for name in ("given", "first_items", "first_latency", "held_by"):
                setattr(started, name, getattr(before, name))
        return started

    def waited(self, scope: Scope, attempt: Granted, next_by: Reason | None) -> None:
        """Record the cause for which the last request waited, if it was not the scope, and that of the next one."""
        seconds = scope.waits.elsewhere - self.waited_elsewhere
        self.waited_elsewhere += seconds
        if seconds > 0.0:
            words = _words(_obstacle(scope, attempt) or self.held_by)
            self.elsewhere[words] = self.elsewhere.get(words, 0.0) + seconds
        self.held_by = None if next_by is None or next_by.scope == scope.id else next_by
        # Requests of the crawl wait for a place, so more requests of this scope may be waiting in start() or in pages.
        if not scope.waits.lanes and self.held_by is not None:
            self.crowded += 1
            self.crowded_by = self.held_by

    def reason(self, scope: Scope, seconds: float) -> str:
        """Return the cause for which requests waited most of a period of ``seconds``, or :data:`_TOO_FEW`."""
        now = scope.waits.limited
        spent = {limit: each - self.limited.get(limit, 0.0) for limit, each in now.items()} | self.elsewhere
        idle = _words(self.crowded_by) if self.crowded > self.looks / 2.0 else _TOO_FEW
        spent[idle] = spent.get(idle, 0.0) + max(seconds - sum(spent.values()), 0.0)
        return max(sorted(spent), key=lambda limit: spent[limit])


def _obstacle(scope: Scope, attempt: Granted) -> Reason | None:
    """Return the last cause for which a request waited, other than ``scope``; None if unknown."""
    held_by = attempt.times.held_by
    return attempt.times.left_by or (None if held_by is None or held_by.scope == scope.id else held_by)


def _words(reason: Reason | None) -> str:
    return _OTHERS if reason is None else attrs.evolve(reason, until=math.inf).text(0.0)


class ConfigWarnings:
    """Logs the warnings of one crawl."""

    def __init__(self, settings: ThrottlingSettings, *, max_requests: float) -> None:
        self.has_watches: bool = False  # True if a scope is watched
        self._settings = settings
        self._max_requests = max_requests
        self._has_manager = settings.throttling_manager != type(settings)().throttling_manager
        self._given: dict[str, None] = {}

    def at_start(self, policies: ScopePolicies) -> None:
        """Warn about methods that are never called, and about keys that match no host."""
        for sentence in self._settings.mistyped_methods():
            logger.warning("%s", sentence)
        for id, _ in policies.configured():
            if is_mistaken(id, may_be_proxy=self._has_manager) and self._is_first(f"url {id}"):
                logger.warning(
                    "THROTTLING_SCOPES[%r] matches no host: a key is the name of one scope, such as %r, not a "
                    "pattern or a URL; name each host, or give the requests of all of them one scope by meta "
                    "throttling_scopes or a manager's get_scopes()",
                    id, _host_meant(id),
                )  # fmt: skip

    def named_by_url(self, id: str) -> None:
        """Warn about a new scope that is named like a site's URL, because the host's limits do not apply to it."""
        if is_mistaken(id, may_be_proxy=True) and self._is_first(f"url {id}"):
            logger.warning(
                "the scope %r is named as a URL, so that it has none of the host's limits; name it %r in meta "
                "throttling_scopes, or in the manager's get_scopes()",
                id, _host_meant(id),
            )  # fmt: skip

    def backoff_advice(self, outcome: Outcome) -> str:
        """Return the setting that prevents slowing down after such an outcome; "" except for the first time."""
        if not self._is_first("backoff"):
            return ""
        setting = "BACKOFF_HTTP_CODES" if outcome.error is None else "BACKOFF_EXCEPTIONS"
        words = f"all requests to it slow down; {setting} says what counts as a refusal, [] turns it off"
        if outcome.response is not None and outcome.response.status not in self._settings.backoff_http_codes:
            words = "all requests to it slow down, because it says when to come back"
        if outcome.request.meta_get("proxy") and not notes_of(outcome.request).through:
            words += "; proxies of ROTATING_PROXY_LIST back off one by one"
        return f" ({words})"

    def differs_from_robots(self, scope: Scope, delay: float) -> None:
        """Warn if the user's own delay or concurrency for a scope differs from its Crawl-delay."""
        kept, policy = [], scope.state.policy
        if policy.keeps_delay and scope.limits.delay != delay:
            kept.append(f"a delay of {scope.limits.delay:g} s")
        if policy.keeps_concurrency and scope.limits.concurrency != 1:
            kept.append(f"a concurrency of {scope.limits.concurrency:g}")
        if delay > 0.0 and kept and self._is_first(f"robots {scope.id}"):
            logger.warning(
                "%s: robots.txt asks for a Crawl-delay of %g s, one request at a time; %s sets %s, which is kept",
                scope.id, delay, policy.source, " and ".join(kept),
            )  # fmt: skip

    def robots_capped(self, scope: Scope) -> None:
        """Warn once if a Crawl-delay is longer than the configured maximum."""
        state: ScopeState = scope.state
        if state.wish < state.robots_asked and state.wish and self._is_first(f"capped {scope.id}"):
            logger.warning(
                "%s: robots.txt asks for a Crawl-delay of %g s, which is reduced to %g s by"
                " THROTTLING_ROBOTSTXT_MAX_DELAY; raise that to obey it",
                scope.id, state.robots_asked, state.robots,
            )  # fmt: skip

    def host_left_out(self, attempt: Granted, crawl_delays: CrawlDelays) -> None:
        """Warn if a request's scopes omit its host, whose Crawl-delay then has no effect on the request."""
        host = host_scope(attempt.request.url)
        delay = crawl_delays.of(host)
        if not delay or attempt.is_exempt or any(id == host for id, _ in attempt.scopes):
            return
        if self._is_first(f"left out {host}"):
            logger.warning(
                "%s: robots.txt asks for a Crawl-delay of %g s, but the scopes of %s leave the host out: "
                "it is not obeyed; add the host to them",
                host, delay, without_passwords(attempt.request.url),
            )  # fmt: skip

    def waiting_direct(self, count: int) -> None:
        """Warn once about direct fetches that pile up."""
        threshold = self._settings.delayed_requests_warn_threshold
        if count >= threshold and self._is_first("direct"):
            logger.warning(
                "%d direct fetches wait for their scopes (DELAYED_REQUESTS_WARN_THRESHOLD = %d): "
                "callbacks fetch more than the limits allow; fetch less, or raise the limits",
                count, threshold,
            )  # fmt: skip

    def look(self, scope: Scope, attempt: Granted, outcome: Outcome, now: float, why_next: WhyNext) -> None:
        """Record an outcome, and evaluate the period when it ends."""
        state: ScopeState = scope.state
        period: ScopeStats | None = state.period
        if period is None:
            period = state.period = ScopeStats.started(scope, now)
            self.has_watches = True
        period.waited(scope, attempt, why_next(attempt, now))
        period.looks += 1
        period.peak = max(period.peak, scope.traffic.in_flight)
        if outcome.sent_at is not None:
            period.busy += outcome.ended_at - outcome.sent_at
        period.latency += outcome.latency or 0.0
        if state.auto is not None:
            period.auto_min, period.auto_max = min(period.auto_min, state.auto), max(period.auto_max, state.auto)
        if now - period.began_at >= PERIOD:
            self._judge(scope, period, now - period.began_at)
            state.period = ScopeStats.started(scope, now, period)

    def _judge(self, scope: Scope, period: ScopeStats, seconds: float) -> None:
        state: ScopeState = scope.state
        reason = period.reason(scope, seconds)
        wanted = state.policy.config.get("concurrency")
        if wanted is not None and period.peak < min(wanted, self._max_requests):
            self._once(
                period, "concurrency",
                "%s: its concurrency of %d is not reached (%d at most in %.0f s); what holds it up: %s",
                scope.id, wanted, period.peak, seconds, reason,
            )  # fmt: skip
        rate = state.policy.config.get("rate")
        reached = (state.totals.sends - period.sends) / seconds
        if rate is not None and reached < rate * _REACHED:
            self._once(
                period, "rate", "%s: its rate of %g/s is not reached (%.3g/s in %.0f s); what holds it up: %s",
                scope.id, rate, reached, seconds, reason,
            )  # fmt: skip
        if state.auto is not None and state.policy.autothrottle is not None:
            self._blind_spots(scope, state.policy.autothrottle, period, seconds, reason)

    def _blind_spots(self, scope: Scope, rule: AutoThrottle, period: ScopeStats, seconds: float, reason: str) -> None:
        if period.auto_min >= rule.max_delay:
            self._once(
                period, "maximum", "%s: AutoThrottle's delay is stuck at its maximum, %g s", scope.id, rule.max_delay
            )
        if period.auto_max <= _NEAR_ZERO:
            self._once(period, "zero", "%s: AutoThrottle's delay is near zero: %.3g s", scope.id, period.auto_max)
        reached = period.busy / seconds
        if reason != _TOO_FEW and reached < rule.target_concurrency / 2.0:
            self._once(
                period, "target", "%s: AutoThrottle's target concurrency of %g is not reached (%.2g on average); "
                "what holds it up: %s", scope.id, rule.target_concurrency, reached, reason,
            )  # fmt: skip
        self._soft_blocks(scope, period)

    def _soft_blocks(self, scope: Scope, period: ScopeStats) -> None:
        """Warn about pages that stay fast but have fewer and fewer items: a block with status code 200."""
        if period.looks < _ENOUGH:
            return
        items, latency = period.items / period.looks, period.latency / period.looks
        if period.first_items is None:
            period.first_items, period.first_latency = items, latency
        elif items < period.first_items / 2.0 and latency <= period.first_latency * _QUICK:
            self._once(
                period, "items",
                "%s: %.2g items a response, after %.2g at first, and the pages stay quick: is it blocking us?",
                scope.id, items, period.first_items,
            )  # fmt: skip

    def _once(self, period: ScopeStats, name: str, words: str, *facts: object) -> None:
        if name not in period.given:
            period.given.add(name)
            logger.warning(words, *facts)

    def _is_first(self, name: str) -> bool:
        if name in self._given:
            return False
        self._given[name] = None
        if len(self._given) > _HOSTS:
            del self._given[next(iter(self._given))]
        return True


def _host_meant(id: str) -> str:
    """Return the host that a URL names, with its port; an example if it names none."""
    try:
        return host_scope(normalize_url(id)) or "a.example"
    except ValueError:
        return "a.example"
