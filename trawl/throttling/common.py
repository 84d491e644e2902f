"""Scopes that the crawls of one event loop have in common, so that two crawls of one site keep one limit together.

Nothing here is about a job that several processes share: its scopes are those of :mod:`trawl.throttling.shared`.

Theory of operation. Each crawl has its own throttle, table of scopes and scheduler. What they have in common is the
scope itself: its places, sends, draws, quota and what the policies learned. A table that makes a scope asks
:class:`CommonScopes` first, and gets the one that another crawl has made. Each scheduler decides on it for its own
lanes, with queues of its own, and no two decide at once: they run in one thread, and between a decision and the place
taken there is no await. A place that one crawl gives back, or a send by which spacing counts again, may open the scope
for another: the scheduler tells every other *holder* of the scope. That is the other crawl's engine, which wakes its
best lane and its dispatcher. A change of limits is told to all in the same way.

What opens at an instant opens for all, and Trio runs their dispatchers in an order that it draws: each crawl gets its
turn as often as any other. Priorities, shares of a quota and claims order the requests of one crawl.

A scope is one crawl's own where it has a budget of pages, which is a crawl's, where the user's scope manager keeps its
state, which knows that crawl, and where a job counts what is spent of its quota. A scope that a job's last run stored
goes on from there where the job's crawl makes it; where another crawl has made it, that crawl's state stays.

Of different settings for one scope the stricter ones are in force: see :func:`stricter`.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from trawl.throttling.limits import Limits
    from trawl.throttling.outcomes import GivenUpScopes
    from trawl.throttling.policy import ScopePolicy
    from trawl.throttling.scope import Scope
    from trawl.throttling.scope_table import CrawlDelays

__all__ = ["CommonScopes", "ScopeHolder", "may_be_common", "stricter"]


class ScopeHolder(Protocol):
    """A crawl that has scopes in common with others: told of what another one does to them."""

    @property
    def name(self) -> str:
        """The name of its spider."""

    def opened(self, scope: Scope, now: float) -> None:
        """Look at what waits for ``scope`` here: another crawl released a place, or sent."""

    def changed(self, scope: Scope, now: float) -> None:
        """Follow the limits of ``scope``, which another crawl has moved."""

    def arm(self, scope: Scope) -> None:
        """Note when ``scope`` is due: the crawl that had noted it has left."""


def may_be_common(policy: ScopePolicy, *, has_job: bool) -> bool:
    """Return True if a scope of this policy may be of several crawls: nothing in it belongs to one of them."""
    limits = policy.limits
    return policy.manager is None and limits.pages == inf and not (has_job and limits.quota < inf)


def stricter(ours: Limits, theirs: Limits) -> Limits:
    """Return limits that keep both: fewer places, longer delays, the quota of fewer a second.

    Jitter is that of the longer delay.
    """
    slower = ours if ours.delay >= theirs.delay else theirs
    tighter = ours if _quota_rate(ours) <= _quota_rate(theirs) else theirs
    return attrs.evolve(
        slower,
        concurrency=min(ours.concurrency, theirs.concurrency),
        delay_per_slot=max(ours.delay_per_slot, theirs.delay_per_slot),
        quota=tighter.quota,
        window=tighter.window,
        sliding=tighter.sliding,
    )


def _quota_rate(limits: Limits) -> float:
    return limits.quota / limits.window if limits.quota < inf and limits.window > 0.0 else inf


class CommonScopes:
    """The scopes that the crawls of one event loop have in common, by id.

    Args:
        crawl_delays: What robots.txt asks for, whichever crawl has read it.
        given_up: The scopes that are given up.

    Attributes:
        crawls: The number of crawls that hold scopes here.
    """

    def __init__(self, crawl_delays: CrawlDelays, given_up: GivenUpScopes) -> None:
        self.crawl_delays: CrawlDelays = crawl_delays
        self.given_up: GivenUpScopes = given_up
        self.crawls: int = 0
        self._scopes: dict[str, tuple[Scope, tuple[ScopeHolder, ...]]] = {}

    def get(self, id: str) -> Scope | None:
        """The scope of an id, if a crawl has made it."""
        found = self._scopes.get(id)
        return None if found is None else found[0]

    def join(self, scope: Scope, holder: ScopeHolder) -> None:
        """Have ``holder`` hold ``scope``, which it has made or got from here."""
        _, others = self._scopes.get(scope.id, (scope, ()))
        self._keep(scope, (*others, holder))

    def leave(self, scope: Scope, holder: ScopeHolder) -> None:
        """Have ``holder`` hold it no more: it has forgotten the scope, or has ended. The last one drops it."""
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
        scope.holders = holders if len(holders) > 1 else ()  # one crawl alone tells nobody
