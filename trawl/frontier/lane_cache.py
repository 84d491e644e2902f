"""The mirror of a job's store in memory: its lanes, with counts, best keys and a few records, and fingerprints.

Everything pending is in the store. Memory holds, for each lane that is not empty, a count, the key of the best
record that is not in memory, and a few records, which can be dropped at any time. So memory grows with the lanes (about
0.6 kB each), never with the records. More of them are read when a decision needs them.

A claimed fingerprint is in memory until its request is stored, and is stored in the same step. Beside those, the
fingerprints used last are kept in two generations: when the younger is full it replaces the older. So a crawl of common
size never asks the store for one, and a large crawl only for those that it has not met for a while.

Only ``trawl.frontier.job_frontier`` imports this module; together they would be too long to read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterable
from heapq import heappop, heappush
from typing import TypeAlias

import attrs
import trio

from trawl.frontier.base import LaneKey, Record, SortKey
from trawl.frontier.job import Job, Row

__all__ = ["Bounds", "CachedRecord", "DupeFilter", "LaneCache", "LaneCaches"]


@attrs.frozen(kw_only=True)
class Bounds:
    """Limits of the memory that a job's frontier takes.

    Attributes:
        at_hand: Records of one lane, besides those that are leased.
        in_all: The same of all lanes together; lanes that were not used for the longest time lose theirs first.
        marks: Fingerprints in each of two generations; 131,072 of them take about 12 MB.
    """

    at_hand: int = 64
    in_all: int = 8192
    marks: int = 1 << 17


CachedRecord: TypeAlias = "tuple[SortKey, Record | bytes]"
"""A record at hand, as it was pushed, or its bytes."""


class DupeFilter:
    """Fingerprints of requests seen before, as far as memory knows them.

    Args:
        known: All fingerprints that are stored, or None where they are too many to remember.
        count: How many are stored.
        generation: How many a generation holds.
        asks: The store is asked for those that memory does not know; otherwise they are taken for new, and the step
            that stores their requests decides.

    Attributes:
        count: Fingerprints ever claimed, those that are stored included.
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
        """Claim fingerprints. Returns of each whether it was new; None: tell :meth:`settle` what the store says."""
        claimed, young, old = self._claimed, self._young, self._old
        answers: list[bool | None] = []
        for fingerprint in fingerprints:
            if fingerprint in young or fingerprint in claimed:
                answers.append(False)
            elif fingerprint in old:
                self._remember(fingerprint)
                young, old = self._young, self._old  # a new generation may have begun
                answers.append(False)
            else:
                claimed.add(fingerprint)
                self.count += 1
                answers.append(True if self._is_complete else None)
        return answers

    def settle(self, fingerprint: bytes, *, was_stored: bool) -> None:
        """Take the store's answer to a claim that memory could not decide."""
        if was_stored:
            self.withdraw(fingerprint)
            self._remember(fingerprint)

    def withdraw(self, fingerprint: bytes) -> None:
        """Forget a claim whose request was not stored; one that was stays."""
        if fingerprint in self._claimed:
            self._claimed.remove(fingerprint)
            self.count -= 1

    def stored(self, fingerprint: bytes) -> None:
        """Note that its request is stored, and the claim with it."""
        self._claimed.discard(fingerprint)
        self._remember(fingerprint)

    def _remember(self, fingerprint: bytes) -> None:
        if len(self._young) >= self._generation:
            # Those of the older generation are forgotten, so memory does not know all from here on.
            self._is_complete &= not self._old or not self._asks
            self._old, self._young = self._young, set()
        self._young.add(fingerprint)


class LaneCache:
    """One lane as memory knows it.

    Attributes:
        lane: Which.
        number: Its number in the store.
        pending: Records that are stored and not leased.
        leased: Records that are leased.
        at_hand: A heap of the records in memory.
        beyond: The key of the best pending record that is not at hand; None: all are.
        reading: Set when a reading of the lane that is on its way has ended; None: there is none.
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
        """Return whether its ``wanted`` best records are all in memory."""
        if self.beyond is None:
            return True
        if len(self.at_hand) < wanted:
            return False
        return sum(key < self.beyond for key, _ in self.at_hand) >= wanted


LANES_AT_ONCE = 128
"""Lanes that are read with the one that is asked for, when a job of many lanes begins."""


class LaneCaches:
    """All lanes that have something pending or leased.

    Args:
        job: Where their records are read. Leased ones are still there, and are skipped.
        leased: The orders of the records that are leased.
        bounds: How many records are kept at hand.

    Attributes:
        by_lane: The lanes, in the order of coming.
        at_hand: Records at hand in all lanes.
        unread: Lanes of an earlier process that were not asked for yet, in their order.
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
        self._used: OrderedDict[LaneCache, None] = OrderedDict()  # those with records at hand, the longest unused first

    def place(self, cache: LaneCache, key: SortKey, record: Record | bytes) -> None:
        """Count one more pending record; cache it if it is among the best and there is room."""
        cache.pending += 1
        if cache.beyond is None or key < cache.beyond:
            if len(cache.at_hand) < self._at_hand:
                self._hold(cache, key, record)
            else:
                cache.beyond = key

    def take(self, cache: LaneCache, limit: int) -> list[CachedRecord]:
        """Lease up to ``limit`` of the best records, as far as they are in memory."""
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

        Somebody else may have taken them when it returns: look again.

        Raises:
            JobError: The store can't be read.
        """
        # One reading serves all who wait for the lane.
        if cache.reading is not None:
            await cache.reading.wait()
            return
        ahead = max(1, min(self._at_hand, self._in_all // max(1, len(self.by_lane))))
        caches = [cache, *self._others(cache)]
        limits = [ahead + each.leased + 1 for each in caches]  # the one more says where the rest begins
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
        """Forget a lane with nothing pending or leased."""
        if not cache.pending and not cache.leased and cache.reading is None and self._is_known(cache):
            del self.by_lane[cache.lane]

    def forget(self, cache: LaneCache) -> None:
        """Forget a lane with all that is pending in it: it is another process's now."""
        self._drop(cache)
        cache.pending = 0
        del self.by_lane[cache.lane]

    def _is_known(self, cache: LaneCache) -> bool:
        """Return whether a lane was not forgotten meanwhile."""
        return self.by_lane.get(cache.lane) is cache

    def _others(self, cache: LaneCache) -> list[LaneCache]:
        """Return lanes to read along: a crawl that resumes will ask for all, in their order."""
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
        """Cache the best rows of a lane; a record in memory stays the same object."""
        known = {key: record for key, record in cache.at_hand if isinstance(record, Record)}
        held: list[CachedRecord] = []
        for order, _, priority, share, blob in rows:
            if order not in self._leased:
                key: SortKey = (priority, share, order)
                held.append((key, known.get(key, blob)))
        self._drop(cache)
        cache.beyond = None
        if not are_all:
            # All that was read is leased: what is not begins behind the last of it.
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
