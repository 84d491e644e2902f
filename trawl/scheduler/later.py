"""Entries with a time of their own: they wait apart from the lanes, so that they hold up nobody behind them (P9)."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trawl.scheduler.lanes import Entry

__all__ = ["Later"]


class Later:
    """Entries that may not go before an instant, soonest first, then in the order of coming."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Entry]] = []

    def add(self, entry: Entry, not_before: float, order: int) -> None:
        """Keep ``entry``, whose place among equals is ``order``, until the instant ``not_before``."""
        heappush(self._heap, (not_before, order, entry))

    def due(self, now: float) -> Iterator[tuple[Entry, int]]:
        """Take out those whose time has come, each with its order; those that were withdrawn are dropped."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            _, order, entry = heappop(heap)
            if entry.is_pending:
                yield entry, order

    def next_at(self) -> float:
        """The instant at which the next one is due; ``inf`` for none."""
        heap = self._heap
        while heap and not heap[0][2].is_pending:
            heappop(heap)
        return heap[0][0] if heap else inf

    def pending(self) -> list[Entry]:
        """Those that wait here, soonest first."""
        return [entry for _, _, entry in sorted(self._heap, key=lambda item: item[:2]) if entry.is_pending]
