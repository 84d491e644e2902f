"""The part of a job's store that is in memory: lanes with their counts, best keys and some records, and fingerprints.

All pending records are in the store. For each lane that is not empty, memory has the number of records, a few of the
records, and the key of the best record that is not in memory. The records in memory can be dropped at any time. So
memory grows with the number of lanes (about 0.6 kB each), not with the number of records. The frontier reads more
records when a decision needs them.

A claimed fingerprint is in memory until it is stored together with its request. The most recently used fingerprints are
also in memory, in two generations. When the younger generation is full, it replaces the older generation. So an average
crawl never looks up a fingerprint in the store, and a large crawl only looks up fingerprints that it has not seen
recently.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterable
from heapq import heapify, heappop, heappush
from typing import TypeAlias

import attrs
import trio

from trawl.frontier.base import LaneKey, Record, SortKey
from trawl.frontier.job import Job, Row

__all__ = ["Bounds", "CachedRecord", "DupeFilter", "LaneCache", "LaneCaches"]


@attrs.frozen(kw_only=True)
class Bounds:
    """Limits of the memory that a job's frontier uses.

    Attributes:
        at_hand: Maximum number of records of one lane, not counting leased records.
        in_all: Maximum number of records of all lanes together. Above this number, the least recently used lane drops
            its records first.
        marks: Number of fingerprints in each of two generations. 131,072 fingerprints take about 12 MB.
    """

    at_hand: int = 64
    in_all: int = 8192
    marks: int = 1 << 17


CachedRecord: TypeAlias = "tuple[SortKey, Record | bytes]"
"""A cached record, as an object or as bytes."""


class DupeFilter:
    """Fingerprints of seen requests, as far as they are in memory.

    Args:
        known: All stored fingerprints; None if there are too many to remember.
        count: Number of fingerprints ever claimed, including stored ones.
        generation: Number of fingerprints in a generation.
        asks: Whether the caller looks up unknown fingerprints in the store. If False, an unknown fingerprint counts as
            new, and the step that stores the request decides whether the fingerprint is new.
    """

    __slots__ = ("_asks", "_claimed", "_generation", "_is_complete", "_old", "_young", "count")

    def __init__(self, known: Iterable[bytes] | None, count: int, generation: int, *, asks: bool = True) -> None:
        self._claimed: set[bytes] = set()
        self._young: set[bytes] = set()
        self._old: set[bytes] = set(known or ())
        self._is_complete = known is not None or not asks
        self._asks = asks
        self._generation = generation
        self.count: int = count

    def claim_many(self, fingerprints: Iterable[bytes]) -> list[bool | None]:
        """Claim fingerprints, and return for each whether it is new; None if :meth:`settle` must decide that later."""
        claimed, young, old = self._claimed, self._young, self._old
        answers: list[bool | None] = []
        for fingerprint in fingerprints:
            if fingerprint in young or fingerprint in claimed:
                answers.append(False)
            elif fingerprint in old:
                self._remember(fingerprint)
                young, old = self._young, self._old  # _remember() may have started a new generation
                answers.append(False)
            else:
                claimed.add(fingerprint)
                self.count += 1
                answers.append(True if self._is_complete else None)
        return answers

    def settle(self, fingerprint: bytes, *, was_stored: bool) -> None:
        """Process the result of a lookup in the store, for a claim that memory could not decide."""
        if was_stored:
            self.withdraw(fingerprint)
            self._remember(fingerprint)

    def withdraw(self, fingerprint: bytes) -> None:
        """Forget a claim whose request was not stored. Stored requests stay marked as seen."""
        if fingerprint in self._claimed:
            self._claimed.remove(fingerprint)
            self.count -= 1

    def stored(self, fingerprint: bytes) -> None:
        """Record that the request with this fingerprint is stored."""
        self._claimed.discard(fingerprint)
        self._remember(fingerprint)

    def _remember(self, fingerprint: bytes) -> None:
        if len(self._young) >= self._generation:
            # The older generation is forgotten. If it is not empty, memory no longer has all fingerprints.
            self._is_complete &= not self._old or not self._asks
            self._old, self._young = self._young, set()
        self._young.add(fingerprint)


class LaneCache:
    """One lane in memory, with the numbers of its pending and leased records.

    Attributes:
        number: Its number in the store.
        at_hand: Heap of the records in memory.
        beyond: Key of the best pending record that is not in memory; None if all are in memory.
        reading: Event that is set when the current read of the lane ends; None if there is none.
    """

    __slots__ = ("at_hand", "beyond", "lane", "leased", "number", "pending", "reading")

    def __init__(self, lane: LaneKey, number: int) -> None:
        self.lane: LaneKey = lane
        self.number: int = number
        self.pending: int = 0
        self.leased: int = 0
        self.at_hand: list[CachedRecord] = []
        self.beyond: SortKey | None = None
        self.reading: trio.Event | None = None

    def best(self) -> SortKey | None:
        """Return the key of the best pending record."""
        if not self.at_hand:
            return self.beyond
        first = self.at_hand[0][0]
        return first if self.beyond is None else min(first, self.beyond)

    def ready(self, wanted: int) -> bool:
        """Return whether the ``wanted`` best records are all in memory."""
        if self.beyond is None:
            return True
        if len(self.at_hand) < wanted:
            return False
        return sum(key < self.beyond for key, _ in self.at_hand) >= wanted


LANES_AT_ONCE = 128
"""Maximum number of further lanes to read together with a requested lane when a job with many lanes starts."""


class LaneCaches:
    """All lanes with pending or leased records.

    Attributes:
        by_lane: The lanes, in arrival order.
        at_hand: Number of records in memory in all lanes.
        unread: Lanes of an earlier process that were not read yet, in arrival order.
    """

    __slots__ = ("_at_hand", "_in_all", "_job", "_leased", "_used", "at_hand", "by_lane", "unread")

    def __init__(self, job: Job, leased: Container[int], bounds: Bounds) -> None:
        self._job = job
        self._leased = leased
        self._at_hand = bounds.at_hand
        self._in_all = bounds.in_all
        self.by_lane: dict[LaneKey, LaneCache] = {}
        self.at_hand: int = 0
        self.unread: dict[LaneKey, None] = {}
        # Lanes with cached records, least recently used first.
        self._used: OrderedDict[LaneCache, None] = OrderedDict()

    def place(self, cache: LaneCache, key: SortKey, record: Record | bytes) -> None:
        """Count one more pending record, and cache it if all better records are cached and the lane has room."""
        cache.pending += 1
        if cache.beyond is None or key < cache.beyond:
            if len(cache.at_hand) < self._at_hand:
                self._hold(cache, key, record)
            else:
                cache.beyond = key

    def take(self, cache: LaneCache, limit: int) -> list[CachedRecord]:
        """Lease up to ``limit`` of the best records that are in memory."""
        taken: list[CachedRecord] = []
        beyond = cache.beyond
        while len(taken) < limit and cache.at_hand and (beyond is None or cache.at_hand[0][0] < beyond):
            taken.append(heappop(cache.at_hand))
        self.at_hand -= len(taken)
        cache.pending -= len(taken)
        cache.leased += len(taken)
        if cache.at_hand:
            self._used.move_to_end(cache)
        else:
            self._used.pop(cache, None)
        return taken

    async def read(self, cache: LaneCache, wanted: int) -> None:
        """Read the ``wanted`` best records of a lane, and a few more, into memory. A checkpoint.

        When this returns, other tasks may have leased the records, so the caller must check again.
        """
        # One read serves all tasks that wait for the lane.
        if cache.reading is not None:
            await cache.reading.wait()
            return
        ahead = max(1, min(self._at_hand, self._in_all // max(1, len(self.by_lane))))
        caches = [cache, *self._others(cache)]
        limits = [ahead + each.leased + 1 for each in caches]  # one more, to find the first uncached record
        limits[0] += wanted
        for each in caches:
            each.reading = trio.Event()

        def applied(found: list[list[Row]]) -> None:
            for each, limit, rows in zip(caches, limits, found, strict=True):
                if self._is_known(each):
                    self._refill(each, rows, are_all=len(rows) < limit)

        asked = [(each.number, limit) for each, limit in zip(caches, limits, strict=True)]
        try:
            await self._job.read_lanes(asked, applied)
        finally:
            for each in caches:
                if each.reading is not None:
                    each.reading.set()
                each.reading = None
                self.forget_if_empty(each)

    def forget_if_empty(self, cache: LaneCache) -> None:
        """Forget a lane without pending or leased records."""
        if not cache.pending and not cache.leased and cache.reading is None and self._is_known(cache):
            del self.by_lane[cache.lane]

    def forget(self, cache: LaneCache) -> None:
        """Forget a lane and its pending records, because another process owns it now."""
        self._drop(cache)
        cache.pending = 0
        del self.by_lane[cache.lane]

    def remove(self, cache: LaneCache, orders: Container[int], count: int) -> None:
        """Remove the ``count`` pending records with these arrival orders from a lane."""
        kept = [each for each in cache.at_hand if each[0][2] not in orders]
        self.at_hand -= len(cache.at_hand) - len(kept)
        heapify(kept)
        cache.at_hand = kept
        if not kept:
            self._used.pop(cache, None)
        cache.pending -= count
        if cache.pending == len(kept):
            cache.beyond = None
        self.forget_if_empty(cache)

    def _is_known(self, cache: LaneCache) -> bool:
        """Return whether a lane is still known, because it may be forgotten during a read."""
        return self.by_lane.get(cache.lane) is cache

    def _others(self, cache: LaneCache) -> list[LaneCache]:
        """Return further lanes to read, in arrival order, because a resumed crawl will need all of them."""
        others: list[LaneCache] = []
        self.unread.pop(cache.lane, None)
        while self.unread and len(others) < LANES_AT_ONCE:
            lane = next(iter(self.unread))
            del self.unread[lane]
            other = self.by_lane.get(lane)
            if other is not None and other.pending and not other.at_hand and other.reading is None:
                others.append(other)
        return others

    def _refill(self, cache: LaneCache, rows: list[Row], *, are_all: bool) -> None:
        """Cache the best rows of a lane that are not leased. If a record is in memory already, its object is kept."""
        known = {key: record for key, record in cache.at_hand if isinstance(record, Record)}
        held: list[CachedRecord] = []
        for order, _, priority, share, blob in rows:
            if order not in self._leased:
                key: SortKey = (priority, share, order)
                held.append((key, known.get(key, blob)))
        self._drop(cache)
        cache.beyond = None
        if not are_all:
            # All records that were read may be leased. In this case, the pending records start after the last one.
            last = rows[-1]
            cache.beyond = held.pop()[0] if held else (last[2], last[3], last[0])
        for key, record in held:
            self._hold(cache, key, record)

    def _drop(self, cache: LaneCache) -> None:
        """Drop a lane's records from memory."""
        cache.beyond = cache.best()
        self.at_hand -= len(cache.at_hand)
        cache.at_hand = []
        self._used.pop(cache, None)

    def _hold(self, cache: LaneCache, key: SortKey, record: Record | bytes) -> None:
        heappush(cache.at_hand, (key, record))
        self._used[cache] = None
        self._used.move_to_end(cache)
        self.at_hand += 1
        while self.at_hand > self._in_all:
            longest_unused = next(iter(self._used))
            if longest_unused is cache:
                break
            self._drop(longest_unused)
