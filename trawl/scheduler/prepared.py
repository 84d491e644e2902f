"""The prepared grants: their middleware has run, and they wait for their places.

Only the scheduler imports it: it is a part of the scheduler's state, kept apart from its decisions.

One is looked at when it comes, when its instant has come, and when something has changed in a scope that it waits for.
To look at all of them at each change would cost a thousandfold where a thousand hosts are crawled at once. Of those
that wait for the same things only the first is looked at, as in a lane: else a thousand direct fetches of one host cost
a minute.

One that waits for a place is passed ``PASSES`` times by others that came later and need a scope of its own too, and
then by none that could be in its way, so a grant of several scopes does not starve. One that waits for an instant may
be passed any number of times: others do not make that instant later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from trawl.scheduler.scope_queue import PASSES, ROOM_TO_GROW

if TYPE_CHECKING:
    from trawl.scheduler.grant import Grant
    from trawl.throttling.scope import Scope

__all__ = ["PreparedQueue"]

_Line: TypeAlias = "dict[Grant, None]"


class _Group:
    """Prepared grants that wait for the same things, by age, and the scopes that they don't wait for."""

    __slots__ = ("elsewhere", "grants")

    def __init__(self) -> None:
        self.grants: _Line = {}
        self.elsewhere: Sequence[Scope] = ()

    def first(self) -> Grant:
        return next(iter(self.grants))


class PreparedQueue:
    """Prepared grants, in the order of coming, and what each of them waits for."""

    __slots__ = (
        "_bound",
        "_group_of",
        "_groups",
        "_lines",
        "_next",
        "_numbers",
        "_passes",
        "_timers",
        "_to_look",
        "_waiting",
        "_waits",
    )

    def __init__(self) -> None:
        self._numbers: dict[Grant, int] = {}
        self._waits: dict[Grant, int] = {}  # the number of its wait, which a timer is for
        self._next = count().__next__
        self._to_look: _Line = {}
        self._waiting: dict[Scope, _Line] = {}
        self._lines: dict[Scope, _Line] = {}  # of those that wait for a place
        self._passes: dict[Grant, int] = {}  # how often each of these was passed
        self._groups: dict[object, _Group] = {}
        self._group_of: dict[Grant, tuple[object, _Group]] = {}
        self._timers: list[tuple[float, int, Grant]] = []
        self._bound = ROOM_TO_GROW

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Grant]:
        return iter(self._numbers)

    def __contains__(self, grant: object) -> bool:
        return grant in self._numbers

    @property
    def is_stirred(self) -> bool:
        """True if one is to be looked at."""
        return bool(self._to_look)

    def add(self, grant: Grant, group_key: object = None) -> None:
        """Take ``grant`` in; it is looked at next, or behind those of its group, which wait for the same.

        ``group_key`` is what these have in common; None: it has a group of its own.
        """
        key = grant if group_key is None else group_key
        group = self._groups.setdefault(key, _Group())
        group.grants[grant] = None
        self._group_of[grant] = key, group
        self._numbers[grant] = self._next()
        for scope in group.elsewhere:
            scope.elsewhere += 1
        if len(group.grants) == 1:
            self._to_look[grant] = None

    def discard(self, grant: Grant) -> None:
        """Forget ``grant``: it goes on, or has ended. Others behind it are looked at when its scopes are stirred."""
        key, group = self._group_of.pop(grant)
        was_first = group.first() is grant
        del group.grants[grant]
        for scope in group.elsewhere:
            scope.elsewhere -= 1
        if not group.grants:
            del self._groups[key]
        elif was_first:
            self._to_look[group.first()] = None
        del self._numbers[grant]
        self._to_look.pop(grant, None)
        self._passes.pop(grant, None)
        self._stop_waiting(grant)

    def look(self, grant: Grant) -> None:
        """Have ``grant`` looked at: what it waits for may have come."""
        self._to_look[grant] = None

    def stir(self, scope: Scope) -> None:
        """Note that something changed in ``scope``: those that wait for it are looked at again."""
        self._to_look.update(self._waiting.get(scope, ()))

    def to_look(self, now: float) -> list[Grant]:
        """Return those to be looked at at ``now``: direct fetches first, then who came first.

        Each of them is to be discarded, or put to wait; those that are neither are looked at again.
        """
        timers = self._timers
        while timers and timers[0][0] <= now:
            _, number, grant = heappop(timers)
            if self._waits.get(grant) == number:
                self._to_look[grant] = None
        return sorted(self._to_look, key=self._rank)

    def kept_in(self, grant: Grant) -> Scope | None:
        """Return the scope where ``grant`` is kept off by another one before it that waits for a place; None: none is.

        That one was passed often. As a claim, that lets through who can't be in its way: there is a place to spare, and
        no delay to wait for.
        """
        assert grant.lane is not None
        rank, passes = self._rank(grant), self._passes
        for scope in grant.lane.scopes:
            if scope in self._lines and scope.is_tight(begun=0):
                for other in self._lines[scope]:
                    if passes.get(other, 0) >= PASSES and self._rank(other) < rank:
                        return scope
        return None

    def passed(self, grant: Grant) -> None:
        """Note that ``grant`` gets its places: it passes those before it that wait for a place in its scopes."""
        assert grant.lane is not None
        rank = self._rank(grant)
        others = {other: None for scope in grant.lane.scopes for other in self._lines.get(scope, ())}
        for other in others:
            if self._rank(other) < rank:
                self._passes[other] = self._passes.get(other, 0) + 1

    def wait_for_place(self, grant: Grant, full: Sequence[Scope] = ()) -> Sequence[Scope]:
        """Have ``grant`` wait until something changes in one of its scopes; few pass it there meanwhile.

        ``full`` are those that it waits for; empty: all of them. Returns those that it waits for no more, where others
        may begin.
        """
        assert grant.lane is not None
        left = self._wait(grant, grant.lane.scopes, full or grant.lane.scopes)
        for scope in grant.lane.scopes:
            self._lines.setdefault(scope, {})[grant] = None
        return left

    def wait_until(self, grant: Grant, until: float, scopes: Sequence[Scope]) -> Sequence[Scope]:
        """Have ``grant`` wait until the instant ``until``, or until something changes in one of ``scopes``.

        Returns those of its scopes that it waits for no more, where others may begin.
        """
        left = self._wait(grant, scopes, scopes)
        timers = self._timers
        heappush(timers, (until, self._waits[grant], grant))
        if len(timers) > self._bound:
            timers[:] = [timer for timer in timers if self._waits.get(timer[2]) == timer[1]]
            heapify(timers)
            self._bound = 2 * len(timers) + ROOM_TO_GROW
        return left

    def next_at(self) -> float:
        """The instant at which the next one is to be looked at; ``inf`` for none."""
        timers = self._timers
        while timers and self._waits.get(timers[0][2]) != timers[0][1]:
            heappop(timers)
        return timers[0][0] if timers else inf

    def _rank(self, grant: Grant) -> tuple[bool, int]:
        return not grant.is_direct, self._numbers[grant]

    def _wait(self, grant: Grant, scopes: Sequence[Scope], closed: Sequence[Scope]) -> Sequence[Scope]:
        assert grant.lane is not None
        self._to_look.pop(grant, None)
        self._stop_waiting(grant)
        self._waits[grant] = self._next()
        for scope in scopes:
            self._waiting.setdefault(scope, {})[grant] = None
        _, group = self._group_of[grant]
        before, number = group.elsewhere, len(group.grants)
        if not before and len(grant.lane.scopes) == len(closed):
            return ()
        group.elsewhere = [scope for scope in grant.lane.scopes if scope not in closed]
        for scope in before:
            scope.elsewhere -= number
        for scope in group.elsewhere:
            scope.elsewhere += number
        return [scope for scope in group.elsewhere if scope not in before]

    def _stop_waiting(self, grant: Grant) -> None:
        assert grant.lane is not None
        if self._waits.pop(grant, None) is None:
            return
        for scope in grant.lane.scopes:
            for lines in (self._waiting, self._lines):
                line = lines.get(scope)
                if line is not None:
                    line.pop(grant, None)
                    if not line:
                        del lines[scope]
