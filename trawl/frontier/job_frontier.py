"""The frontier of a job. The job's store has all requests, and memory has the few that the next decisions need.

Leases are not stored. A request stays in the store until it is acknowledged, and when a job is opened, every request in
the store is pending. So leasing writes nothing. If a process ends while it has leased a request, the request is pending
again. The number of leases and the time of the oldest lease are saved for :mod:`trawl.frontier.inspect`.

Methods that use the store raise JobError if the store can't be read or written, or a record in it can't be used.

Length: all methods change the store and then the same data in memory, and so do the changes of other sessions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf

import attrs
import msgspec
import trio

from trawl.clock import WallClock
from trawl.errors import JobError
from trawl.frontier.base import FrontierStatistics, LaneKey, PushResult, Record, SortKey, host_of_lane
from trawl.frontier.job import (
    AT_ONCE,
    LAST_ORDER,
    HeldLane,
    Job,
    Place,
    Row,
    Snapshot,
    Step,
    StepResult,
    as_is,
    wall_time,
)
from trawl.frontier.lane_cache import Bounds, DupeFilter, LaneCache, LaneCaches
from trawl.frontier.parts import is_held, part_in
from trawl.frontier.record_format import RecordFormat, unpack
from trawl.frontier.sections import LEASES
from trawl.http import Request, host_scope

__all__ = ["JobFrontier", "open_frontier"]

_LANES_AT_ONCE = 16  # maximum number of lanes of held requests in one read
_ALL = range(-LAST_ORDER, LAST_ORDER)  # all arrival orders
_NONE_STORED = PushResult(())  # the result of a page without new links


class JobFrontier:
    """The pending requests of a job, created by :func:`open_frontier`.

    A call that needs the store is a checkpoint. :meth:`lease_many` and :meth:`claim_many` need the store only for
    records and fingerprints that are not in memory.
    """

    def __init__(
        self,
        job: Job,
        record_format: RecordFormat,
        wall: WallClock,
        found: Snapshot,
        *,
        depth_first: bool,
        bounds: Bounds,
    ) -> None:
        self._job = job
        self._format = record_format
        self._wall = wall
        self._sign = -1 if depth_first else 1
        self._next_order = job.orders_after(found.last_order)
        self._dupe_filter = DupeFilter(found.marks, found.seen, bounds.marks, asks=not job.decides_seen)
        self._leased: dict[int, tuple[LaneCache, float, Place]] = {}  # in order of leasing
        self.caches: LaneCaches = LaneCaches(job, self._leased, bounds)
        self._spilled: dict[int, int] = {}
        self._pending = 0
        self._held: dict[int, HeldLane] = {}
        self._next_due = inf
        self._successors: dict[int, Place] = {}  # records that replace others in a step that is not stored yet
        self._moving = trio.Lock()  # taken while due records move into their lanes, and while records are dropped
        self._dropping: set[LaneKey] = set()
        self._has_dropped = trio.Event()
        self._told: bytes | None = None
        job.before_commit(self._tell)
        self.gained(found.lanes, found.held)
        job.follow(self)

    async def claim_many(self, fingerprints: Sequence[bytes]) -> list[bool]:
        """Mark ``fingerprints`` as seen, and return for each whether it was new."""
        answers = self._dupe_filter.claim_many(fingerprints)
        if None not in answers:
            return [answer is not False for answer in answers]
        asked = [mark for mark, answer in zip(fingerprints, answers, strict=True) if answer is None]

        def applied(stored: set[bytes]) -> set[bytes]:
            for mark in asked:
                self._dupe_filter.settle(mark, was_stored=mark in stored)
            return stored

        try:
            known = await self._job.read_seen(asked, applied)
        except BaseException:
            for mark, new in zip(fingerprints, answers, strict=True):
                if new is not False:
                    self._dupe_filter.withdraw(mark)
            raise
        return [new is not False and mark not in known for mark, new in zip(fingerprints, answers, strict=True)]

    async def disclaim(self, fingerprints: Iterable[bytes]) -> None:
        """Forget claims whose requests were not pushed after all."""
        for fingerprint in fingerprints:
            self._dupe_filter.withdraw(fingerprint)

    def refusal(self, record: Record) -> str | None:
        """Return why ``record`` can't be stored; None if it can be stored."""
        try:
            record.stored = self._format.encode(record, trio.current_time())
        except ValueError as error:
            return str(error)
        return None

    async def push_many(self, records: Sequence[Record]) -> PushResult:
        """Store ``records`` and their marks in this order. A checkpoint."""
        rows, marks = self._rows(records, self._sign)

        def applied(written: StepResult) -> PushResult:
            return self._stored(records, rows, written)

        return await self._job.apply(Step(rows=rows, marks=marks), applied)

    async def lease_many(self, lane: LaneKey, limit: int) -> list[Record]:
        """Lease up to ``limit`` records of a lane, best first."""
        while lane in self._dropping:
            await self._has_dropped.wait()
        while (cache := self.caches.by_lane.get(lane)) is not None and cache.pending:
            wanted = min(limit, cache.pending)
            if cache.ready(wanted):
                return self._take(cache, wanted)
            # When the read ends, another task may lease the records first, so check again.
            await self.caches.read(cache, wanted)
            while lane in self._dropping:
                await self._has_dropped.wait()
        return []

    async def spill(self, lease: Record, items: Sequence[bytes]) -> None:
        """Store items of a request that has not ended. A checkpoint."""
        order = lease.order
        n = self._spilled.get(order, 0)
        self._spilled[order] = n + len(items)
        rows = [(order, i, item) for i, item in enumerate(items, start=n + 1)]
        await self._job.apply(Step(spilled=rows), as_is)

    async def acknowledge(
        self, lease: Record, outputs: Sequence[Record] = (), items: Sequence[bytes] = (), failure: str | None = None
    ) -> PushResult:
        """End a lease and store its results in one step. A checkpoint."""
        order = lease.order
        place = self._place_of(lease)
        # On most pages every link was seen before, so there are no outputs.
        rows, marks = self._rows(outputs, self._sign) if outputs else ((), ())
        # A reason from a server may contain an unpaired surrogate, which can't be stored.
        words = None if failure is None else failure.encode(errors="backslashreplace").decode()
        failed = None if words is None else (words, self._now_epoch())
        is_spilled = self._spilled.pop(order, 0) > 0

        def applied(written: StepResult) -> PushResult:
            self._ended(order)
            return self._stored(outputs, rows, written) if outputs else _NONE_STORED

        step = Step(ended=place, failed=failed, rows=rows, marks=marks, items=items, is_spilled=is_spilled)
        self._job.storing[order] = lease.request
        try:
            return await self._job.apply(step, applied)
        finally:
            del self._job.storing[order]

    async def replace(self, lease: Record, record: Record) -> bool:
        """Replace a leased record with ``record``, which is leased immediately. A checkpoint."""
        order = lease.order
        place = self._place_of(lease)
        rows, marks = self._rows([record], 1, is_leased=True)

        def applied(_: StepResult) -> bool:
            self._ended(order)
            if record.fingerprint is not None:
                self._dupe_filter.stored(record.fingerprint)
            record.stored = None
            if not self._job.is_here(rows[0][1]):
                return False
            cache = self._cache_of(record.lane)
            cache.leased += 1
            self._leased[record.order] = cache, self._now_epoch(), rows[0][:4]
            return True

        self._job.storing[order] = lease.request
        self._successors[record.order] = rows[0][:4]
        try:
            return await self._job.apply(Step(ended=place, rows=rows, marks=marks, is_successor=True), applied)
        finally:
            del self._job.storing[order], self._successors[record.order]

    def _place_of(self, lease: Record) -> Place:
        known = self._leased.get(lease.order)
        if known is None:
            raise ValueError(f"{lease!r} is not leased")
        return known[2]

    async def release(self, leases: Iterable[Record]) -> None:
        """Release leases. Each record returns to its old place in its lane. Leases that have ended are skipped.

        A checkpoint if a record must be held, or while records of its lane are dropped.
        """
        leases = list(leases)
        while any(lease.lane in self._dropping for lease in leases):
            await self._has_dropped.wait()
        now = trio.current_time()
        later: list[tuple[Place, tuple[int, int, float]]] = []
        for lease in leases:
            known = self._leased.get(lease.order)
            if known is None:
                continue
            cache, _, place = known
            if self._spilled.pop(lease.order, 0):
                self._job.unspill(lease.order)
            # Hold the record in the store until its earliest time. After a failure the store can't be written, so the
            # record stays in memory.
            if lease.not_before > now and self._job.failure is None:
                later.append((place, (self._job.held_number(lease.lane), self._wall_time(lease), 0.0)))
                continue
            del self._leased[lease.order]
            cache.leased -= 1
            self.caches.place(cache, (*place[2:], place[0]), lease)
            self._pending += 1
        if later:

            def applied(_: StepResult) -> None:
                for place, (number, until, _share) in later:
                    self._ended(place[0])
                    self._hold(number, until)

            await self._job.apply(Step(moved=later), applied)

    async def drop(self, host: str, leases: Sequence[Record], starts: Callable[[int, int], None]) -> int:
        """Remove the pending records of a host and ``leases`` in one step, and return their number. A checkpoint."""
        async with self._moving:
            hosts = {lane: host_of_lane(lane) for lane in self.caches.by_lane}
            mixed = {lane: self.caches.by_lane[lane].number for lane, its in hosts.items() if not its}
            self._dropping = {lane for lane, its in hosts.items() if its == host}
            try:
                found: dict[int, dict[int, Place]] = {}
                busy: set[int] = set()
                for lane, number in mixed.items():
                    self._dropping.add(lane)
                    found[number] = await self._places_of(host, number, busy)
                    if not found[number]:  # the crawl continues with the lanes of other hosts
                        self._let_go({lane})
                number = self._job.held_number(((host,), f"//{host}"))
                found[number] = await self._places_of(host, number, busy)
                # Lanes of the host may have been found meanwhile.
                self._dropping |= {lane for lane in self.caches.by_lane if host_of_lane(lane) == host}
                return await self._drop(host, leases, found, starts, busy)
            finally:
                self._let_go(self._dropping)

    def _let_go(self, lanes: Collection[LaneKey]) -> None:
        """Allow leases of ``lanes`` again."""
        self._dropping = self._dropping.difference(lanes)
        self._has_dropped.set()
        self._has_dropped = trio.Event()

    async def _places_of(self, host: str, number: int, busy: set[int]) -> dict[int, Place]:
        """Return the places of a host's records in a lane of several hosts, by order, and add leased ones to ``busy``.

        The store still has the leased records, which may end during the read. A checkpoint.
        """
        found: dict[int, Place] = {}
        place: Place | None = None
        while True:
            busy.update(self._leased, self._successors)
            rows = await self._job.read_after(number, place)
            for row in rows:
                place = row[:4]
                try:
                    its = host_scope(unpack(row[4]).url)
                except (ValueError, TypeError) as error:
                    raise self._damaged(row[0], str(error)) from error
                if its == host:
                    found[row[0]] = place
            if len(rows) < AT_ONCE:
                return found

    async def _drop(
        self,
        host: str,
        leases: Sequence[Record],
        found: Mapping[int, Mapping[int, Place]],
        starts: Callable[[int, int], None],
        busy: Collection[int],
    ) -> int:
        """Remove ``leases``, the records of ``found`` that are not in ``busy``, and all records of the host's lanes.

        The host's lanes have no records of other hosts. No lease of these lanes may start.
        """
        gone = {lease.order for lease in leases}
        leased = {order: known[2] for order, known in self._leased.items()} | self._successors
        places = {
            number: {order: place for order, place in its.items() if order not in leased and order not in busy}
            for number, its in found.items()
            if self._job.is_here(number)
        }
        whole = [cache for lane, cache in self.caches.by_lane.items() if host_of_lane(lane) == host]
        staying = [place for order, place in leased.items() if order not in gone]
        held = [number for number in places if number in self._held]
        step = Step(
            dropped=[*[place for its in places.values() for place in its.values()], *[leased[order] for order in gone]],
            emptied=[(cache.number, [place for place in staying if place[1] == cache.number]) for cache in whole],
            due_of=held,
        )
        starts(len(gone) + sum(cache.pending for cache in whole) + sum(map(len, places.values())), self._next_order())

        def applied(written: StepResult) -> int:
            before = self._pending
            for order in gone:
                self._ended(order)
            by_lane = self.caches.by_lane  # a lane may have been forgotten, and found again, before this step
            for cache in [by_lane[each.lane] for each in whole if each.lane in by_lane]:
                self._pending -= cache.pending
                self.caches.remove(cache, _ALL, cache.pending)
            lanes = {cache.number: cache for cache in by_lane.values()}
            for number, its in places.items():
                if number in lanes:
                    self.caches.remove(lanes[number], its, len(its))
                elif number in self._held:
                    self._held[number] = attrs.evolve(self._held[number], count=self._held[number].count - len(its))
                else:
                    continue
                self._pending -= len(its)
            self._look_at_held(written.due)
            return before - self._pending + len(gone)

        return await self._job.apply(step, applied)

    def next_due(self) -> float:
        """Return the event loop time at which the first held record is due; infinity if there is none."""
        return self._next_due

    async def wake(self, now: float) -> Sequence[LaneKey]:
        """Move some of the due held records into their lanes, and return these lanes. A checkpoint."""
        async with self._moving:
            wall = int(self._wall.to_epoch(now) * 1e6)
            # Records in the remaining lanes stay due, so the caller calls this again immediately.
            due_of = [number for number, held in self._held.items() if held.due <= wall][:_LANES_AT_ONCE]
            found = await self._job.read_due(due_of, wall)
            read_at = trio.current_time()
            woken = [(row, self._decoded(row[0], row[4], read_at)) for row in found]
            numbers = {lane: self._job.number_of(lane) for lane in dict.fromkeys(record.lane for _, record in woken)}
            moved = [(row[:4], (numbers[record.lane], *_key(record)[:2])) for row, record in woken]

            def applied(written: StepResult) -> None:
                for row, record in woken:
                    held = self._held.get(row[1])
                    if held is not None:  # None if the lane's part was released during the step
                        self._held[row[1]] = attrs.evolve(held, count=held.count - 1)
                        self.caches.place(self._cache_of(record.lane), _key(record), record)
                self._look_at_held(written.due)

            await self._job.apply(Step(moved=moved, due_of=due_of), applied)
            return list(numbers)

    def _look_at_held(self, due: Mapping[int, int | None]) -> None:
        """Set the times of the first records in lanes of held records, and forget empty lanes."""
        for number, first in due.items():
            held = self._held.pop(number, None)
            if held is not None and first is not None:
                self._held[number] = attrs.evolve(held, due=first)
        self._next_due = self._first_due()

    def _first_due(self) -> float:
        return min([self._instant(held.due) for held in self._held.values()], default=inf)

    def held_until(self, request: Request) -> float | None:
        """Return None, because held records are only in the store."""
        return None

    def lanes(self) -> Sequence[LaneKey]:
        """Return the lanes with records that are not leased."""
        return [cache.lane for cache in self.caches.by_lane.values() if cache.pending]

    def best(self, lane: LaneKey) -> SortKey | None:
        """Return the key of a lane's best record that is not leased."""
        cache = self.caches.by_lane.get(lane)
        return None if cache is None else cache.best()

    def pending_in(self, lane: LaneKey) -> int:
        """Return the number of a lane's records that are not leased."""
        cache = self.caches.by_lane.get(lane)
        return 0 if cache is None else cache.pending

    def lane_of(self, request: Request) -> LaneKey | None:
        """Return the lane in which this request object is cached; None if it is not in memory."""
        for lane, cache in self.caches.by_lane.items():
            if any(isinstance(held, Record) and held.request is request for _, held in cache.at_hand):
                return lane
        return None

    def statistics(self) -> FrontierStatistics:
        """Return the current counts."""
        lanes = sum(cache.pending > 0 for cache in self.caches.by_lane.values())
        held = sum(held.count for held in self._held.values())
        return FrontierStatistics(self._pending, len(self._leased), self._dupe_filter.count, lanes, held)

    async def aclose(self) -> None:
        """Write everything. The job stays open. A checkpoint."""
        if self._job.failure is None:
            await self._job.commit()

    # The job calls the methods below. It always calls gained(), but the other methods only if the job is shared.

    def gained(self, lanes: Sequence[tuple[int, Row]], held: Sequence[HeldLane]) -> list[LaneKey]:
        """Add lanes of earlier processes or other sessions, and return their keys."""
        found = []
        now = trio.current_time()
        for pending, (order, number, priority, share, blob) in lanes:
            record = self._decoded(order, blob, now)
            lane = record.lane
            if lane in self.caches.by_lane:
                raise self._damaged(order, "it is stored in a wrong lane")
            cache = self.caches.by_lane[lane] = LaneCache(lane, number)
            self.caches.place(cache, (priority, share, order), record)
            cache.pending = pending
            if pending > 1:
                cache.beyond = (priority, share, order + 1)  # a lower bound; the next read finds the real key
            self.caches.unread[lane] = None
            self._pending += pending
            found.append(lane)
        for each in held:
            self._held[each.number] = each
            self._pending += each.count
            self._next_due = min(self._next_due, self._instant(each.due))
        return found

    def arrived(self, rows: Sequence[Row]) -> list[LaneKey]:
        """Add requests that other sessions have stored, and return the keys of their lanes."""
        lanes: dict[LaneKey, None] = {}
        now = trio.current_time()
        for order, number, priority, share, blob in rows:
            if is_held(number):
                self._hold(number, priority)
                continue
            record = self._decoded(order, blob, now)
            self.caches.place(self._cache_of(record.lane), (priority, share, order), record)
            self._pending += 1
            lanes[record.lane] = None
        return list(lanes)

    def leased_parts(self) -> Collection[int]:
        """Return the parts with requests that are leased."""
        return {part_in(cache.number) for cache in self.caches.by_lane.values() if cache.leased}

    def parts_released(self, parts: Collection[int]) -> int:
        """Forget the lanes of ``parts``, none of which is leased, and return the number of their pending requests."""
        pending = 0
        for cache in [cache for cache in self.caches.by_lane.values() if part_in(cache.number) in parts]:
            pending += cache.pending
            self.caches.forget(cache)
        for number in [number for number in self._held if part_in(number) in parts]:
            pending += self._held.pop(number).count
        self._next_due = self._first_due()
        self._pending -= pending
        return pending

    def pending_by_part(self) -> Mapping[int, int]:
        """Return the number of requests in each part that has any, including leased requests."""
        counts: Counter[int] = Counter()
        for cache in self.caches.by_lane.values():
            counts[part_in(cache.number)] += cache.pending + cache.leased
        for held in self._held.values():
            counts[part_in(held.number)] += held.count
        return counts

    def _rows(
        self, records: Sequence[Record], sign: int, *, is_leased: bool = False
    ) -> tuple[list[Row], list[bytes | None]]:
        """Return the rows and fingerprints to store for ``records``, and set their arrival orders."""
        now = trio.current_time()
        blobs = [record.stored if record.stored is not None else self._format.encode(record, now) for record in records]
        rows: list[Row] = []
        for record, blob in zip(records, blobs, strict=True):
            assert isinstance(blob, bytes)
            record.order = sign * self._next_order()
            if record.found_at is None:
                record.found_at = now
            lane = record.lane
            cache = self.caches.by_lane.get(lane)
            number = self._job.number_of(lane) if cache is None else cache.number
            # Hold a record until its earliest time. But a record that replaces a leased record is leased here, and the
            # scheduler waits for its earliest time.
            if record.not_before > now and not (is_leased and self._job.is_here(number)):
                rows.append((record.order, self._job.held_number(lane), self._wall_time(record), 0.0, blob))
            else:
                rows.append((record.order, number, -record.request.priority, -record.share, blob))
        return rows, [record.fingerprint for record in records]

    def _stored(self, records: Sequence[Record], rows: Sequence[Row], written: StepResult) -> PushResult:
        """Add the records that are now pending here."""
        seen: list[Record] = []
        elsewhere: list[Record] = []
        is_here = self._job.is_here
        for index, (record, row) in enumerate(zip(records, rows, strict=True)):
            record.stored = None
            if index in written.seen:
                assert record.fingerprint is not None
                self._dupe_filter.settle(record.fingerprint, was_stored=True)
                seen.append(record)
                continue
            if record.fingerprint is not None:
                self._dupe_filter.stored(record.fingerprint)
            if not is_here(row[1]):
                elsewhere.append(record)
            elif is_held(row[1]):
                self._hold(row[1], row[2])
            else:
                self.caches.place(self._cache_of(record.lane), _key(record), record)
                self._pending += 1
        if not seen and not elsewhere:
            return PushResult(records)
        others = {id(record) for record in (*seen, *elsewhere)}
        return PushResult([record for record in records if id(record) not in others], seen, elsewhere)

    def _hold(self, number: int, until: int) -> None:
        """Count one more held record."""
        held = self._held.get(number)
        self._held[number] = (
            HeldLane(number, 1, until) if held is None else HeldLane(number, held.count + 1, min(held.due, until))
        )
        self._pending += 1
        self._next_due = min(self._next_due, self._instant(until))

    def _wall_time(self, record: Record) -> int:
        return wall_time(self._wall.to_epoch(record.not_before))

    def _instant(self, until: int) -> float:
        """Return the event loop time at which a record that is held until a wall time is certainly due."""
        return self._wall.from_epoch((until + 1) / 1e6)

    def _ended(self, order: int) -> None:
        """Forget a leased record that was removed from the store."""
        cache = self._leased.pop(order)[0]
        cache.leased -= 1
        self.caches.forget_if_empty(cache)

    def _cache_of(self, lane: LaneKey) -> LaneCache:
        cache = self.caches.by_lane.get(lane)
        if cache is None:
            cache = self.caches.by_lane[lane] = LaneCache(lane, self._job.number_of(lane))
        return cache

    def _take(self, cache: LaneCache, limit: int) -> list[Record]:
        taken = self.caches.take(cache, limit)
        now = trio.current_time()
        try:
            leases = [held if isinstance(held, Record) else self._decoded(key[2], held, now) for key, held in taken]
        except JobError:
            cache.leased -= len(taken)
            for key, held in taken:
                self.caches.place(cache, key, held)
            raise
        since = self._wall.to_epoch(now)
        for lease, (key, _) in zip(leases, taken, strict=True):
            self._leased[lease.order] = cache, since, (key[2], cache.number, *key[:2])
        self._pending -= len(leases)
        return leases

    def _decoded(self, order: int, blob: bytes, now: float) -> Record:
        try:
            record = self._format.decode(blob, now)
        except (ValueError, LookupError, TypeError) as error:
            raise self._damaged(order, str(error)) from error
        record.order = order
        return record

    def _damaged(self, order: int, why: str) -> JobError:
        name = self._job.name
        what_to_do = "add what the spider lacks, or continue with an earlier copy of the job"
        return JobError(f"job {name}: its request {order} can't be used: {why}; {what_to_do}", name)

    def _tell(self) -> None:
        """Save the number of leases and the oldest lease with each step, for :mod:`trawl.frontier.inspect`."""
        told = b""
        if self._leased and self._job.is_alone:
            order, (_, since, _) = next(iter(self._leased.items()))
            told = msgspec.msgpack.encode((len(self._leased), order, since))
        if told != self._told:
            self._told = told
            self._job.keep(LEASES, told)

    def _now_epoch(self) -> float:
        return self._wall.to_epoch(trio.current_time())


async def open_frontier(
    job: Job, spider: object, wall: WallClock, *, depth_first: bool = False, bounds: Bounds | None = None
) -> JobFrontier:
    """Open the frontier of a job, with all requests of earlier processes, leased or not. A checkpoint.

    The job stays open when the frontier is closed. The default bounds limit the memory to about 50 MB.
    """
    bounds = bounds or Bounds()
    found = await job.read_snapshot(bounds.marks, wall.to_epoch(trio.current_time()))
    return JobFrontier(job, RecordFormat(spider, wall), wall, found, depth_first=depth_first, bounds=bounds)


def _key(record: Record) -> SortKey:
    return -record.request.priority, -record.share, record.order
