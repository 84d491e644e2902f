"""The frontier of a crawl without a job. Its queues and fingerprints are lost when the process ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf

from trawl.frontier.base import FrontierStatistics, LaneKey, PushResult, Record, SortKey
from trawl.frontier.lane_queue import FingerprintSet, LaneQueue, RecordEncoder
from trawl.http import Request, host_scope

__all__ = ["MemoryFrontier"]

PACKED_FROM = 1_000
"""Number of records above which further records are packed. With fewer, the saved memory is not worth 3 µs a record."""


class MemoryFrontier:
    """Pending requests in memory.

    Its methods do not wait, so they are not checkpoints. The caller must have its own checkpoints.

    Args:
        depth_first: Whether the newest of several records with equal priority goes first, instead of the oldest.
        packed_from: Number of pending records above which a further record is stored as bytes, if it can be restored
            exactly.
    """

    __slots__ = ("_held", "_lanes", "_leased", "_next_order", "_packed_from", "_packer", "_pending", "_seen", "_sign")

    def __init__(self, *, depth_first: bool = False, packed_from: int = PACKED_FROM) -> None:
        self._packed_from = packed_from
        self._packer = RecordEncoder()
        self._lanes: dict[LaneKey, LaneQueue] = {}
        self._held: list[tuple[float, int, Record]] = []
        self._seen = FingerprintSet()
        self._sign = -1 if depth_first else 1
        self._next_order = count(1).__next__
        self._pending = 0
        self._leased = 0

    async def claim_many(self, fingerprints: Sequence[bytes]) -> list[bool]:
        """Mark ``fingerprints`` as seen, and return for each whether it was new."""
        return self._seen.add(fingerprints)

    async def disclaim(self, fingerprints: Iterable[bytes]) -> None:
        """Forget claims whose requests were not pushed after all."""
        self._seen.discard(fingerprints)

    def refusal(self, record: Record) -> str | None:
        """Return None, because memory stores every record."""
        return None

    async def push_many(self, records: Sequence[Record]) -> PushResult:
        """Store ``records`` in this order. All of them are pending here."""
        for record in records:
            record.order = self._sign * self._next_order()
            self._store(record)
        return PushResult(records)

    async def lease_many(self, lane: LaneKey, limit: int) -> list[Record]:
        """Lease up to ``limit`` records of a lane, best first."""
        line = self._lanes.get(lane)
        if line is None:
            return []
        leases = line.take(limit)
        if len(leases) < limit or not line:
            del self._lanes[lane]
        self._pending -= len(leases)
        self._leased += len(leases)
        return leases

    async def spill(self, lease: Record, items: Sequence[bytes]) -> None:
        """Raise an error, because without a job the items go directly to the feeds.

        Raises:
            ValueError: Always.
        """
        raise ValueError("a frontier in memory has no outbox for items")

    async def acknowledge(
        self, lease: Record, outputs: Sequence[Record] = (), items: Sequence[bytes] = (), failure: str | None = None
    ) -> PushResult:
        """End a lease and store the requests that it yielded. A failure is not recorded.

        Raises:
            ValueError: If there are items. Without a job, items go directly to the feeds.
        """
        if items:
            raise ValueError("a frontier in memory has no outbox for items")
        self._leased -= 1
        return await self.push_many(outputs)

    async def replace(self, lease: Record, record: Record) -> bool:
        """Replace a leased record with ``record``.

        It is leased immediately, and sorted after records of equal priority.
        """
        record.order = self._next_order()
        return True

    async def release(self, leases: Iterable[Record]) -> None:
        """Release leases. Each record returns to its old place in its lane, or is held until its earliest time."""
        for lease in leases:
            self._leased -= 1
            self._store(lease)

    async def drop(self, host: str, leases: Sequence[Record], starts: Callable[[int, int], None]) -> int:
        """Remove the pending records of a host and ``leases``, and return their number."""

        def is_gone(url: str) -> bool:
            return host_scope(url) == host

        before = self._pending
        for lane, line in list(self._lanes.items()):
            self._pending -= line.remove(is_gone)
            if not line:
                del self._lanes[lane]
        held = [each for each in self._held if not is_gone(each[2].request.url)]
        self._pending -= len(self._held) - len(held)
        self._held = held
        heapify(held)
        self._leased -= len(leases)
        count = before - self._pending + len(leases)
        starts(count, self._next_order())
        return count

    def next_due(self) -> float:
        """Return the event loop time at which the first held record is due; infinity if there is none."""
        return self._held[0][0] if self._held else inf

    async def wake(self, now: float) -> Sequence[LaneKey]:
        """Move due held records into their lanes, and return these lanes."""
        lanes: dict[LaneKey, None] = {}
        while self._held and self._held[0][0] <= now:
            lanes[self._add_to_lane(heappop(self._held)[2])] = None
        return list(lanes)

    def held_until(self, request: Request) -> float | None:
        """Return the event loop time until which this request object is held; None if it is not held."""
        return next((until for until, _, record in self._held if record.request is request), None)

    def lanes(self) -> Sequence[LaneKey]:
        """Return the lanes with records that are not leased."""
        return list(self._lanes)

    def best(self, lane: LaneKey) -> SortKey | None:
        """Return the key of a lane's best record that is not leased."""
        line = self._lanes.get(lane)
        return None if line is None else line.best()

    def pending_in(self, lane: LaneKey) -> int:
        """Return the number of a lane's records that are not leased."""
        return len(self._lanes.get(lane, ()))

    def lane_of(self, request: Request) -> LaneKey | None:
        """Return the lane in which this request object is pending and not leased; None if there is none.

        Packed requests are compared by their values.
        """
        return next((lane for lane, line in self._lanes.items() if line.has(request)), None)

    def statistics(self) -> FrontierStatistics:
        """Return the current counts."""
        return FrontierStatistics(self._pending, self._leased, len(self._seen), len(self._lanes), len(self._held))

    async def aclose(self) -> None:
        """Do nothing, because nothing is open."""

    def _store(self, record: Record) -> None:
        self._pending += 1
        if record.not_before:
            heappush(self._held, (record.not_before, record.order, record))
        else:
            self._add_to_lane(record)

    def _add_to_lane(self, record: Record) -> LaneKey:
        lane = record.lane
        line = self._lanes.get(lane)
        if line is None:
            self._lanes[lane] = LaneQueue(record, self._packer, newest_first=self._sign < 0)
        else:
            line.add(record, is_packed=self._pending > self._packed_from)
        return lane
