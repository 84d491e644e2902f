"""When which scope moves by itself: the end of a window, or of the patience with it.

Theory of operation. A scope is due at one instant, which is noted with its policy (``armed``); the heap remembers every
instant that was ever noted, and what does not agree with the note is stale. A host that refuses and answers by turns
notes two instants each time, and the patience with it may last for weeks: so the stale ones are thrown out whenever
they could be half of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trawl.throttling.scope import Scope
    from trawl.throttling.table import Table

__all__ = ["Due"]

_ROOM_TO_GROW = 64


class Due:
    """The instants at which the scopes of a table are due.

    Args:
        scopes: The table.
    """

    __slots__ = ("_bound", "_heap", "_order", "_scopes")

    def __init__(self, scopes: Table) -> None:
        self._scopes = scopes
        self._heap: list[tuple[float, int, str]] = []
        self._order = 0
        self._bound = _ROOM_TO_GROW

    def __len__(self) -> int:
        """How many instants are remembered, stale ones included."""
        return len(self._heap)

    def next_at(self) -> float:
        """The first of them, which may be stale; ``inf`` for none."""
        return self._heap[0][0] if self._heap else inf

    def arm(self, scope: Scope) -> None:
        """Note anew when ``scope`` is due."""
        at = scope.policy.due_at(scope)
        if at == scope.policy.armed:
            return
        scope.policy.armed = at
        if at < inf:
            self._order += 1
            heappush(self._heap, (at, self._order, scope.id))
            if len(self._heap) > self._bound:
                self._throw_out()

    def passed(self, now: float) -> Iterator[Scope]:
        """The scopes that are due at ``now``, one by one, no longer armed: arm each anew."""
        while self._heap and self._heap[0][0] <= now:
            at, _, id = heappop(self._heap)
            scope = self._scopes.get(id)
            if scope is not None and scope.policy.armed == at:
                scope.policy.armed = inf
                yield scope

    def _throw_out(self) -> None:
        kept = {}
        for entry in self._heap:
            scope = self._scopes.get(entry[2])
            if scope is not None and scope.policy.armed == entry[0]:
                kept[entry[2]] = entry
        self._heap[:] = kept.values()
        heapify(self._heap)
        self._bound = 2 * len(self._heap) + _ROOM_TO_GROW
