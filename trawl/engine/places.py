"""The places of scopes as Trio's own locks, beside the core's counters.

The core decides who goes; a scope's :class:`trio.CapacityLimiter` is the lock that would raise if the core were wrong,
and what Trio's introspection shows. It is taken on behalf of the entry, never waited on, made at a scope's first send
and dropped when nothing of the scope is in flight (838 bytes a scope; a crawl may know 100,000 of them), but for a few:
to make one for each page of a delayed host costs more than all else that is done with it.
"""

from __future__ import annotations

import math

import trio

from trawl.scheduler import Entry
from trawl.throttling import Scope

__all__ = ["Places"]

MOST_KEPT = 256
"""Limiters up to which one is kept that has nothing in flight."""


class Places:
    """Capacity limiters of the scopes that have something in flight, and of a few that had."""

    __slots__ = ("_limiters",)

    def __init__(self) -> None:
        self._limiters: dict[str, trio.CapacityLimiter] = {}

    def take(self, entry: Entry) -> None:
        """Take one place in each scope for ``entry``.

        Raises:
            trio.WouldBlock: The core granted what the limits do not allow: a defect of trawl.
        """
        for scope in _scopes(entry):
            limiter = self._limiters.get(scope.id)
            if limiter is None:
                limiter = self._limiters[scope.id] = trio.CapacityLimiter(_tokens(scope))
            elif limiter.total_tokens != scope.concurrency:
                limiter.total_tokens = _tokens(scope)
            limiter.acquire_on_behalf_of_nowait(entry)

    def give_back(self, entry: Entry) -> None:
        """Give the places of ``entry`` back."""
        for scope in _scopes(entry):
            limiter = self._limiters[scope.id]
            limiter.release_on_behalf_of(entry)
            if len(self._limiters) > MOST_KEPT and not limiter.borrowed_tokens:
                del self._limiters[scope.id]

    def resize(self, scope: Scope) -> None:
        """Follow a scope's changed concurrency; what is in flight stays."""
        limiter = self._limiters.get(scope.id)
        if limiter is not None:
            limiter.total_tokens = _tokens(scope)

    def borrowed(self, scope_id: str) -> int:
        """How many places of a scope are taken."""
        limiter = self._limiters.get(scope_id)
        return 0 if limiter is None else limiter.borrowed_tokens


def _tokens(scope: Scope) -> float:
    return scope.concurrency if scope.concurrency == math.inf else max(1, int(scope.concurrency))


def _scopes(entry: Entry) -> tuple[Scope, ...]:
    assert entry.lane is not None
    return entry.lane.scopes
