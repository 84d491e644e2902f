"""The prepared grants: their middleware has run, and they wait for their places.

Only the scheduler imports it: it is a part of the scheduler's state, kept apart from its decisions.

One is looked at when it comes, when its instant has come, and when something has changed in a scope that it waits for.
To look at all of them at each change would cost a thousandfold where a thousand hosts are crawled at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trawl.scheduler.grant import Grant
    from trawl.throttling.scope import Scope

__all__ = ["PreparedQueue"]


class PreparedQueue:
    """Prepared grants, in the order of coming, and what each of them waits for."""

    __slots__ = ("_next", "_numbers", "_timers", "_to_look", "_waiting")

    def __init__(self) -> None:
        self._numbers: dict[Grant, int] = {}
        self._next = count().__next__
        self._to_look: dict[Grant, None] = {}
        self._waiting: dict[Scope, dict[Grant, None]] = {}
        self._timers: list[tuple[float, int, Grant]] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Grant]:
        return iter(self._numbers)

    def add(self, grant: Grant) -> None:
        """Take ``grant`` in. It is looked at next, behind those that came before and wait for a scope of its own."""
        self._numbers[grant] = self._next()
        self._look(grant)

    def discard(self, grant: Grant) -> bool:
        """Forget ``grant``: it goes on, or has ended. Returns True if it was here."""
        if self._numbers.pop(grant, None) is None:
            return False
        self._to_look.pop(grant, None)
        self._forget(grant)
        return True

    def stir(self, scope: Scope) -> None:
        """Note that something changed in ``scope``: those that wait for it are looked at again."""
        self._to_look.update(self._waiting.get(scope, ()))

    def looks(self, now: float) -> list[Grant]:
        """Return those to be looked at at ``now``: direct fetches first, then who came first.

        Each of them is to be discarded, or put to wait; those that are neither are looked at again.
        """
        timers = self._timers
        while timers and timers[0][0] <= now:
            _, number, grant = heappop(timers)
            if self._numbers.get(grant) == number:
                self._look(grant)
        return sorted(self._to_look, key=self._rank)

    def wait(self, grant: Grant, scopes: Iterable[Scope], until: float = inf) -> None:
        """Have ``grant`` wait until the instant ``until``, or until something changes in one of ``scopes``."""
        self._to_look.pop(grant, None)
        self._forget(grant)
        for scope in scopes:
            self._waiting.setdefault(scope, {})[grant] = None
        if until < inf:
            heappush(self._timers, (until, self._numbers[grant], grant))

    def next_at(self) -> float:
        """The instant at which the next one is to be looked at; ``inf`` for none."""
        timers = self._timers
        while timers and self._numbers.get(timers[0][2]) != timers[0][1]:
            heappop(timers)
        return timers[0][0] if timers else inf

    def _look(self, grant: Grant) -> None:
        """Have ``grant`` looked at, and those that wait for a scope of its: they may have come before it."""
        assert grant.lane is not None
        self._to_look[grant] = None
        for scope in grant.lane.scopes:
            self.stir(scope)

    def _rank(self, grant: Grant) -> tuple[bool, int]:
        return not grant.is_direct, self._numbers[grant]

    def _forget(self, grant: Grant) -> None:
        assert grant.lane is not None
        for scope in grant.lane.scopes:
            waiting = self._waiting.get(scope)
            if waiting is not None and waiting.pop(grant, self) is None and not waiting:
                del self._waiting[scope]
