"""Scopes that the crawls of one event loop share, so that two crawls of one site keep one limit together.

Scopes that several processes of a job share are in :mod:`trawl.throttling.shared`, not here.

Each crawl has its own throttle, table and scheduler. They share the scope itself: its places, sends, draws, quota and
the state of its policies. No two schedulers decide at once, because they run in one thread without an await between a
decision and taking the place. A crawl that may have opened a scope, or changed its limits, notifies the scope's other
*holders*, the engines of the other crawls. Trio runs their dispatchers in random order, so each gets its turn equally
often. Priorities, shares of a quota and reservations order only the requests of one crawl.

If a job's last run stored a scope, its state is restored when the job's crawl makes the scope. If another crawl has
already made it, that crawl's state stays.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from trawl.throttling.limits import TABLE

if TYPE_CHECKING:
    from trawl.throttling.limits import Limits
    from trawl.throttling.outcomes import GivenUpScopes
    from trawl.throttling.policy import ScopePolicy
    from trawl.throttling.scope import Scope
    from trawl.throttling.scope_table import CrawlDelays

__all__ = ["CommonScopes", "ScopeHolder", "may_be_common", "stricter"]


class ScopeHolder(Protocol):
    """A crawl that shares scopes with others, and is notified when another crawl changes them."""

    @property
    def name(self) -> str:
        """The name of its spider."""

    def opened(self, scope: Scope, now: float) -> None:
        """Check the requests that wait for ``scope`` here, because another crawl released a place or sent a request."""

    def changed(self, scope: Scope, now: float) -> None:
        """Apply the limits of ``scope``, which another crawl has changed."""

    def arm(self, scope: Scope) -> None:
        """Schedule the next event of ``scope``, because the crawl that had scheduled it has ended."""


def may_be_common(policy: ScopePolicy, *, has_job: bool) -> bool:
    """Return True if several crawls may share a scope of this policy, because no part of it belongs to one crawl."""
    limits = policy.limits
    return policy.manager is None and limits.pages == inf and not (has_job and limits.quota < inf)


def stricter(ours: Limits, theirs: Limits) -> Limits:
    """Return limits that satisfy both: the stricter numbers, the slower quota, and the jitter of the longer delay."""
    slower = ours if ours.delay >= theirs.delay else theirs
    tighter = ours if _quota_rate(ours) <= _quota_rate(theirs) else theirs
    numbers: dict[str, Any] = {row.key: row.stricter(getattr(ours, row.key), getattr(theirs, row.key)) for row in TABLE}
    numbers["quota"] = tighter.quota
    return attrs.evolve(slower, **numbers, window=tighter.window, sliding=tighter.sliding)


def _quota_rate(limits: Limits) -> float:
    return limits.quota / limits.window if limits.quota < inf and limits.window > 0.0 else inf


class CommonScopes:
    """The scopes that the crawls of one event loop share, by id."""

    def __init__(self, crawl_delays: CrawlDelays, given_up: GivenUpScopes) -> None:
        self.crawl_delays: CrawlDelays = crawl_delays
        self.given_up: GivenUpScopes = given_up
        self.crawls: int = 0  # number of crawls that hold scopes here
        self._scopes: dict[str, tuple[Scope, tuple[ScopeHolder, ...]]] = {}

    def get(self, id: str) -> Scope | None:
        """Return the scope with an id; None if no crawl has made it."""
        found = self._scopes.get(id)
        return None if found is None else found[0]

    def join(self, scope: Scope, holder: ScopeHolder) -> None:
        """Add ``holder`` to the holders of ``scope``, which it has made or got from here."""
        _, others = self._scopes.get(scope.id, (scope, ()))
        self._keep(scope, (*others, holder))

    def leave(self, scope: Scope, holder: ScopeHolder) -> None:
        """Remove ``holder``, which has forgotten the scope or ended. Without holders, the scope is dropped."""
        found = self._scopes.get(scope.id)
        if found is None or holder not in found[1]:
            return
        others = tuple([each for each in found[1] if each is not holder])
        self._keep(scope, others)
        if others:
            scope.state.armed = inf
            others[0].arm(scope)

    def _keep(self, scope: Scope, holders: tuple[ScopeHolder, ...]) -> None:
        if holders:
            self._scopes[scope.id] = scope, holders
        else:
            del self._scopes[scope.id]
        scope.holders = holders if len(holders) > 1 else ()  # a single crawl has no other crawls to notify
