"""The records of one lane in memory, best first, at eight bytes each.

Almost all records of a lane have one priority and come in their order. Those stand in a list, which needs no key for
each. What comes with another priority, or goes back to an old place, is kept in a heap beside it; the best is the
better of the two heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from trawl.frontier.base import Record, SortKey

__all__ = ["Line"]

_CUT = 32  # a list with fewer empty places is not worth being cut


class Line:
    """One lane's records that are not leased.

    Args:
        record: The first of them. What later ones share with it (scopes, origin) is kept once.
        newest_first: Records of later orders, which are smaller numbers, come first.
    """

    __slots__ = ("_heap", "_left", "_newest_first", "_origin", "_queue", "_rank", "_scopes")

    def __init__(self, record: Record, *, newest_first: bool = False) -> None:
        self._newest_first = newest_first
        self._scopes = record.scopes
        self._origin = record.origin
        self._rank = _rank(record)
        self._queue: list[Record | None] = [record]
        self._left = 0  # places at the front of the queue whose records have gone
        self._heap: list[tuple[int, float, int, Record]] | None = None

    def add(self, record: Record) -> None:
        """Take a record in."""
        if record.scopes == self._scopes:
            record.scopes = self._scopes
        record.origin = self._origin
        rank = _rank(record)
        last = self._queue[-1] if self._queue else None
        if last is None:
            self._rank = rank
            self._queue.append(record)
        elif rank == self._rank and (record.order < last.order) is self._newest_first:
            self._queue.append(record)
        else:
            if self._heap is None:
                self._heap = []
            heappush(self._heap, (*rank, record.order, record))

    def best(self) -> SortKey | None:
        """The key of the best record; None when there is none."""
        first = self._first()
        heap = self._heap
        if first is None:
            return heap[0][:3] if heap else None
        key = (*self._rank, first.order)
        return heap[0][:3] if heap and heap[0] < key else key

    def take(self, most: int) -> list[Record]:
        """Take up to ``most`` records out, best first."""
        taken: list[Record] = []
        while len(taken) < most:
            first = self._first()
            heap = self._heap
            if heap and (first is None or heap[0] < (*self._rank, first.order)):
                taken.append(heappop(heap)[3])
            elif first is None:
                break
            else:
                taken.append(first)
                self._drop_first()
        return taken

    def __len__(self) -> int:
        return len(self._queue) - self._left + (len(self._heap) if self._heap else 0)

    def __iter__(self) -> Iterator[Record]:
        yield from (record for record in self._queue if record is not None)
        yield from (item[3] for item in self._heap or ())

    def _first(self) -> Record | None:
        if not self._queue:
            return None
        return self._queue[-1 if self._newest_first else self._left]

    def _drop_first(self) -> None:
        queue = self._queue
        if self._newest_first:
            queue.pop()
            return
        queue[self._left] = None
        self._left += 1
        if self._left == len(queue) or (self._left > _CUT and self._left * 2 > len(queue)):
            del queue[: self._left]
            self._left = 0


def _rank(record: Record) -> tuple[int, float]:
    return -record.request.priority, -record.share
