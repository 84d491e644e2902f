"""Warnings about configurations that can't do what they say, each given once.

At the start: a concurrency above the cap on all (A11), a key that fits no host. While it runs: robots.txt against
configuration (D09, D12), direct fetches that pile up (F10), and, after five minutes, a limit that is never reached
(I02) and AutoThrottle's blind spots (H16).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from trawl.http import host_scope
from trawl.throttling.policy import ScopePolicy
from trawl.throttling.scope import Scope
from trawl.throttling.scopes import is_address, is_host_like, is_mistaken

if TYPE_CHECKING:
    from trawl.http import Outcome
    from trawl.throttling.explain import Reason, Sent
    from trawl.throttling.scope_table import CrawlDelays, Kinds
    from trawl.throttling.settings import ThrottlingSettings

__all__ = ["PERIOD", "Alarms", "Watch", "WhyNext"]

logger: logging.Logger = logging.getLogger("trawl.throttling")

WhyNext = Callable[[Any, float], "Reason | None"]
"""Says what the next request waits for that has the scopes of this one; None: nothing, or there is none."""

PERIOD = 300.0
"""Seconds that something must last before it is worth a warning."""

_NEAR_ZERO = 0.01
_BUSY = 0.9  # of the looks with something pending: then it is not for lack of requests
_REACHED = 0.9
_QUICK = 1.1  # times the latency of the first period: pages that stay as quick as they were
_TOO_FEW = "too few requests at once"
_OTHERS = "its requests wait for something else"
_ENOUGH = 20  # answers in a period that a figure may be drawn from
_HOSTS = 10_000  # hosts whose warning was given, as far as that is remembered


class Watch:
    """What one scope did in the current period. Hot, so mutable and slotted."""

    __slots__ = (
        "auto_max",
        "auto_min",
        "began_at",
        "busy",
        "elsewhere",
        "first_items",
        "first_latency",
        "given",
        "held_by",
        "items",
        "latency",
        "limited",
        "looks",
        "peak",
        "pending",
        "sends",
        "waited_elsewhere",
    )

    def __init__(self) -> None:
        self.given: set[str] = set()
        self.first_items: float | None = None
        self.first_latency: float = 0.0
        self.items: int = 0
        self.held_by: Reason | None = None

    def begin(self, scope: Scope, policy: ScopePolicy, now: float) -> None:
        """Start a period."""
        self.began_at: float = now
        self.looks: int = 0
        self.pending: int = 0
        self.peak: int = 0
        self.busy: float = 0.0
        self.latency: float = 0.0
        self.items = 0
        self.sends: int = policy.sends
        self.auto_min: float = math.inf
        self.auto_max: float = 0.0
        self.limited: dict[str, float] = dict(scope.waits.limited)
        self.elsewhere: dict[str, float] = {}
        self.waited_elsewhere: float = scope.waits.elsewhere

    def waited(self, scope: Scope, left_by: Reason | None, held_by: Reason | None) -> None:
        """Note what the last request waited for, other than the scope, and what the next one waits for.

        Args:
            scope: The scope.
            left_by: Why it was left though its scopes were open; None: it was not.
            held_by: What else than the scope the next one waits for; None: nothing.
        """
        reason, seconds = left_by or self.held_by, scope.waits.elsewhere - self.waited_elsewhere
        self.waited_elsewhere += seconds
        if seconds > 0.0 and reason is not None:
            words = attrs.evolve(reason, until=math.inf).text(0.0)
            self.elsewhere[words] = self.elsewhere.get(words, 0.0) + seconds
        self.held_by = held_by

    def reason(self, scope: Scope) -> str:
        """What the requests of the scope waited for most in this period, of its own limits and of all others."""
        now = scope.waits.limited
        spent = {limit: seconds - self.limited.get(limit, 0.0) for limit, seconds in now.items()} | self.elsewhere
        return max(sorted(spent), key=lambda limit: spent[limit], default=_OTHERS)


class Alarms:
    """Gives the warnings of one crawl.

    Args:
        settings: What is configured.
        most: The cap on requests in flight in all; ``inf`` for none.

    Attributes:
        has_watches: Some scope is watched.
    """

    def __init__(self, settings: ThrottlingSettings, *, most: float) -> None:
        self.has_watches: bool = False
        self._settings = settings
        self._most = most
        self._given: dict[str, None] = {}

    def at_start(self, kinds: Kinds) -> None:
        """Warn of concurrencies above the cap on all requests in flight (A11), and of keys that fit no host."""
        per_domain = self._settings.concurrent_requests_per_domain
        if per_domain > self._most:
            logger.warning(
                "CONCURRENT_REQUESTS_PER_DOMAIN is %d, above CONCURRENT_REQUESTS = %g, which caps it",
                per_domain, self._most,
            )  # fmt: skip
        for sentence in self._settings.mistyped_methods():
            logger.warning("%s", sentence)
        for id, kind in kinds.configured():
            concurrency = kind.config.get("concurrency", 0)
            if concurrency > self._most:
                logger.warning(
                    "THROTTLING_SCOPES[%r] has concurrency %d, above CONCURRENT_REQUESTS = %g, which caps it",
                    id, concurrency, self._most,
                )  # fmt: skip
            if is_mistaken(id):
                logger.warning(
                    "THROTTLING_SCOPES[%r] fits no host: a key is the name of one scope, such as 'a.example', no "
                    "pattern and no URL; name each host, or name a scope that meta throttling_scopes or a manager's "
                    "get_scopes() gives to the requests of all of them",
                    id,
                )  # fmt: skip
        if self._settings.concurrent_requests_per_ip:  # I05: addresses are looked up in the configuration, not names
            hosts = [id for id, _ in kinds.configured() if is_host_like(id) and not is_address(id)]
            if hosts:
                logger.warning(
                    "CONCURRENT_REQUESTS_PER_IP throttles by address: THROTTLING_SCOPES of host names are not used "
                    "(%s); name the address, or give scopes in meta",
                    ", ".join(map(repr, hosts)),
                )  # fmt: skip

    def differs_from_robots(self, scope: Scope, policy: ScopePolicy, delay: float) -> None:
        """Warn where the user's own delay or concurrency for a scope is not what its Crawl-delay asks for (D12)."""
        kept = []
        if policy.kind.keeps_delay and scope.limits.delay != delay:
            kept.append(f"a delay of {scope.limits.delay:g} s")
        if policy.kind.keeps_concurrency and scope.limits.concurrency != 1:
            kept.append(f"a concurrency of {scope.limits.concurrency:g}")
        if delay > 0.0 and kept and self._is_first(f"robots {scope.id}"):
            logger.warning(
                "%s: robots.txt asks for a Crawl-delay of %g s, one request at a time; %s sets %s, which stays",
                scope.id, delay, policy.kind.source, " and ".join(kept),
            )  # fmt: skip

    def host_left_out(self, entry: Sent, crawl_delays: CrawlDelays) -> None:
        """Warn where a request's scopes leave out its host, whose Crawl-delay then holds nobody (D09)."""
        host = host_scope(entry.request.url)
        delay = crawl_delays.of(host)
        if not delay or entry.is_exempt or any(id == host for id, _ in entry.scopes):
            return
        if self._is_first(f"left out {host}"):
            logger.warning(
                "%s: robots.txt asks for a Crawl-delay of %g s, but the scopes of %s leave the host out: "
                "it is not obeyed",
                host, delay, entry.request.url,
            )  # fmt: skip

    def waiting_direct(self, count: int) -> None:
        """Warn once of direct fetches that pile up (F10)."""
        most = self._settings.delayed_requests_warn_threshold
        if count >= most and self._is_first("direct"):
            logger.warning(
                "%d direct fetches wait for their scopes (DELAYED_REQUESTS_WARN_THRESHOLD = %d): "
                "callbacks ask for more than the limits allow",
                count, most,
            )  # fmt: skip

    def items(self, policy: ScopePolicy | None, count: int) -> None:
        """Count items that came from a scope's responses; no policy: it has no scope of its own."""
        if policy is not None and policy.watch is not None:
            policy.watch.items += count

    def look(
        self,
        scope: Scope,
        policy: ScopePolicy,
        entry: Sent,
        outcome: Outcome,
        now: float,
        why_next: WhyNext,
    ) -> None:
        """Note an answer, and judge the period when it is over.

        Args:
            scope: The scope.
            policy: Its policies.
            entry: What was answered.
            outcome: The answer.
            now: The instant.
            why_next: Says why the next request waits that has the same scopes.
        """
        if policy.auto is None and not policy.kind.is_watched:
            return
        watch: Watch | None = policy.watch
        if watch is None:
            watch = policy.watch = Watch()
            self.has_watches = True
            watch.begin(scope, policy, now)
        held_by = why_next(entry, now) if scope.lanes else None
        watch.waited(scope, entry.left_by, None if held_by is None or held_by.scope == scope.id else held_by)
        watch.looks += 1
        watch.pending += bool(scope.lanes)
        watch.peak = max(watch.peak, scope.in_flight)
        if outcome.sent_at is not None:
            watch.busy += outcome.ended_at - outcome.sent_at
        watch.latency += outcome.latency or 0.0
        if policy.auto is not None:
            watch.auto_min, watch.auto_max = min(watch.auto_min, policy.auto), max(watch.auto_max, policy.auto)
        if now - watch.began_at >= PERIOD:
            self._judge(scope, policy, watch, now)
            watch.begin(scope, policy, now)

    def _judge(self, scope: Scope, policy: ScopePolicy, watch: Watch, now: float) -> None:
        seconds = now - watch.began_at
        is_demanded = watch.looks > 0 and watch.pending >= _BUSY * watch.looks
        reason = watch.reason(scope) if is_demanded else _TOO_FEW
        self._not_reached(scope, policy, watch, seconds, reason)
        if policy.auto is not None:
            self._blind_spots(scope, policy, watch, seconds, is_demanded=is_demanded)

    def _not_reached(self, scope: Scope, policy: ScopePolicy, watch: Watch, seconds: float, reason: str) -> None:
        config = policy.kind.config
        wanted = config.get("concurrency")
        if wanted is not None and watch.peak < min(wanted, self._most):
            self._once(
                watch, "concurrency",
                "%s: its concurrency of %d is not reached (%d at most in %.0f s); what holds it up: %s",
                scope.id, wanted, watch.peak, seconds, reason,
            )  # fmt: skip
        rate = config.get("rate")
        reached = (policy.sends - watch.sends) / seconds
        if rate is not None and reached < rate * _REACHED:
            self._once(
                watch, "rate", "%s: its rate of %g/s is not reached (%.3g/s in %.0f s); what holds it up: %s",
                scope.id, rate, reached, seconds, reason,
            )  # fmt: skip

    def _blind_spots(
        self, scope: Scope, policy: ScopePolicy, watch: Watch, seconds: float, *, is_demanded: bool
    ) -> None:
        rule = policy.kind.autothrottle
        if rule is None:
            return
        if watch.auto_min >= rule.max_delay:
            self._once(
                watch, "maximum", "%s: AutoThrottle's delay is stuck at its maximum, %g s", scope.id, rule.max_delay
            )
        if watch.auto_max <= _NEAR_ZERO:
            self._once(watch, "zero", "%s: AutoThrottle's delay is near zero: %.3g s", scope.id, watch.auto_max)
        reached = watch.busy / seconds
        if is_demanded and reached < rule.target_concurrency / 2.0:
            self._once(
                watch, "target", "%s: AutoThrottle's target concurrency of %g is not reached (%.2g on average); "
                "what holds it up: %s", scope.id, rule.target_concurrency, reached, watch.reason(scope),
            )  # fmt: skip
        self._soft_blocks(scope, watch)

    def _soft_blocks(self, scope: Scope, watch: Watch) -> None:
        """Pages that stay quick and carry less and less: a block that says 200."""
        if watch.looks < _ENOUGH:
            return
        items, latency = watch.items / watch.looks, watch.latency / watch.looks
        if watch.first_items is None:
            watch.first_items, watch.first_latency = items, latency
        elif items < watch.first_items / 2.0 and latency <= watch.first_latency * _QUICK:
            self._once(
                watch, "items",
                "%s: %.2g items a response, after %.2g at first, and the pages stay quick: is it blocking us?",
                scope.id, items, watch.first_items,
            )  # fmt: skip

    def _once(self, watch: Watch, name: str, words: str, *facts: object) -> None:
        if name not in watch.given:
            watch.given.add(name)
            logger.warning(words, *facts)

    def _is_first(self, name: str) -> bool:
        if name in self._given:
            return False
        self._given[name] = None
        if len(self._given) > _HOSTS:
            del self._given[next(iter(self._given))]
        return True
