"""The content of a frontier in memory: fingerprints, and the records of each lane, which are packed if there are many.

This is a separate module, because it is compiled. The frontier is not compiled, because users subclass it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from types import FunctionType, MethodType

import msgspec

from trawl.frontier.base import LaneKey, Record, ScopeAmounts, SortKey
from trawl.http import Request
from trawl.http.request import FINGERPRINT_BYTES, Callback

__all__ = ["FingerprintSet", "LaneQueue", "RecordEncoder"]

MAX_CALLBACKS = 256
"""Maximum number of distinct callbacks in packed requests. Requests with other callbacks are not packed."""

_FUNCTIONS = (FunctionType, MethodType)

_encode = msgspec.msgpack.Encoder().encode

_decode = msgspec.msgpack.Decoder().decode

_CUT = 32  # number of empty places up to which a list is not shortened


class LaneQueue:
    """Records of one lane that are not leased. They share the scopes and lane of the first.

    Nearly all records of a lane have the same priority and arrive in order. They are in a list, which takes eight bytes
    per record and needs no sort keys. Records with another priority, and records that return to an old place, are in a
    heap. The best record is the next one of the list or the next one of the heap. With ``newest_first``, later records
    go first, and have smaller orders.
    """

    __slots__ = ("_heap", "_last", "_left", "_newest_first", "_packer", "_queue", "_rank", "_scopes", "_site", "lane")

    def __init__(self, record: Record, packer: RecordEncoder, *, newest_first: bool = False) -> None:
        self._newest_first = newest_first
        self._packer = packer
        self._scopes = record.scopes
        self.lane: LaneKey = record.lane
        self._rank = (-record.request.priority, -record.share)
        self._site = record.request.url[: record.request.url.find("/", 8) + 1]  # all URLs start with it
        self._queue: list[Record | bytes | None] = [record]
        self._last = record.order  # order of the latest record at the end of the queue
        self._left = 0  # empty places at the front of the queue
        self._heap: list[tuple[int, float, int, Record | bytes]] | None = None

    def add(self, record: Record, *, is_packed: bool = False) -> None:
        """Add a record, as bytes if ``is_packed`` and it can be packed."""
        if record.scopes == self._scopes:
            # Use one tuple for all records. Otherwise each pending request would keep its own equal tuple in memory.
            record.scopes = self._scopes
        record.lane = self.lane
        if not record.request.url.startswith(self._site):
            self._site = ""
        rank = _rank(record)
        queue = self._queue
        if not queue:
            self._rank = rank
            self._last = record.order
            queue.append(record)
        elif rank == self._rank and (record.order < self._last) is self._newest_first:
            self._last = record.order
            queue.append(self._held(record) if is_packed else record)
        else:
            if self._heap is None:
                self._heap = []
            heappush(self._heap, (*rank, record.order, self._held(record) if is_packed else record))

    def best(self) -> SortKey | None:
        """Return the key of the best record; None if there is none."""
        first = self._first()
        heap = self._heap
        if first is None:
            return heap[0][:3] if heap else None
        key = (*self._rank, first.order)
        return heap[0][:3] if heap and heap[0] < key else key

    def take(self, limit: int) -> list[Record]:
        """Remove and return up to ``limit`` records, best first."""
        taken: list[Record] = []
        while len(taken) < limit:
            first = self._first()
            heap = self._heap
            if heap and (first is None or heap[0] < (*self._rank, first.order)):
                taken.append(self._record(heappop(heap)[3]))
            elif first is None:
                break
            else:
                taken.append(first)
                self._drop_first()
        return taken

    def __len__(self) -> int:
        return len(self._queue) - self._left + (len(self._heap) if self._heap else 0)

    def remove(self, is_wanted: Callable[[str], bool]) -> int:
        """Remove the records of the URLs that ``is_wanted`` selects by their site, and return their number."""
        before = len(self)
        if not self._site:
            url_of = self._packer.url_of
            self._queue = [held for held in self._queue[self._left :] if not is_wanted(url_of(held))]
            self._heap = [item for item in self._heap or () if not is_wanted(url_of(item[3]))]
            heapify(self._heap)
            self._left = 0
        elif is_wanted(self._site):
            self._queue, self._heap, self._left = [], None, 0
        return before - len(self)

    def has(self, request: Request) -> bool:
        """Return whether the lane has this request object, or a packed request with equal values. Slow."""
        url = request.url.encode(errors="replace")
        for held in self._all_held():
            if isinstance(held, bytes):
                if url in held and _is_like(self._record(held).request, request):
                    return True
            elif held.request is request:
                return True
        return False

    def _all_held(self) -> Iterator[Record | bytes]:
        yield from (held for held in self._queue if held is not None)
        yield from (item[3] for item in self._heap or ())

    def _held(self, record: Record) -> Record | bytes:
        """Return a record as bytes if it can be packed, otherwise the record."""
        packed = self._packer.pack(record) if record.scopes is self._scopes else None
        return record if packed is None else packed

    def _record(self, held: Record | bytes) -> Record:
        return self._packer.unpack(held, self._scopes, self.lane) if isinstance(held, bytes) else held

    def _first(self) -> Record | None:
        if not self._queue:
            return None
        place = -1 if self._newest_first else self._left
        first = self._queue[place]
        if isinstance(first, bytes):
            first = self._queue[place] = self._record(first)
        return first

    def _drop_first(self) -> None:
        queue = self._queue
        if self._newest_first:
            queue.pop()
            return
        # Remove the record but leave its place empty, because moving all later records would cost more.
        queue[self._left] = None
        self._left += 1
        if self._left == len(queue) or (self._left > _CUT and self._left * 2 > len(queue)):
            del queue[: self._left]
            self._left = 0


def _rank(record: Record) -> tuple[int, float]:
    return -record.request.priority, -record.share


def _is_like(one: Request, other: Request) -> bool:
    return (one.url, one.method, one.body, one.callback, one.extras()) == (
        *(other.url, other.method, other.body, other.callback),
        other.extras(),
    )


class RecordEncoder:
    """Encodes records as bytes. A record then takes 200 bytes instead of 450, and the garbage collector skips it.

    Unpacking returns an equal record, but another object. So a request is packed only if its class is :class:`Request`
    and all its values are strings, numbers or bytes. For example, a list in its meta may be shared with other objects.
    """

    __slots__ = ("_callbacks", "_numbers")

    def __init__(self) -> None:
        self._numbers: dict[Callback | None, int] = {None: 0}
        self._callbacks: list[Callback | None] = [None]

    def pack(self, record: Record) -> bytes | None:
        """Return the record as bytes; None if it can't be packed."""
        request = record.request
        if type(request) is not Request or not record.is_ordinary:
            return None
        values = request.plain_values()
        if values is None:
            return None
        try:
            callback = self._numbers.get(request.callback) or self._number(request.callback)
            errback = self._numbers.get(request.errback) or self._number(request.errback)
            if callback is None or errback is None:
                return None
            return _encode((record.order, record.found_at, record.fingerprint, callback, errback, *values))
        except (OverflowError, ValueError, TypeError):  # large integer, surrogate, unhashable callback
            return None

    def unpack(self, packed: bytes, scopes: ScopeAmounts, lane: LaneKey) -> Record:
        """Return the record of bytes that :meth:`pack` returned."""
        order, found_at, fingerprint, callback, errback, *values = _decode(packed)
        request = Request.of_plain_values(self._callbacks[callback], self._callbacks[errback], values)
        return Record.ordinary(request, scopes, lane, fingerprint, order, found_at)

    def url_of(self, held: Record | bytes | None) -> str:
        """Return the URL of a record, perhaps packed."""
        if held is None:
            return ""
        url: str = _decode(held)[5] if isinstance(held, bytes) else held.request.url
        return url

    def _number(self, callback: Callback | None) -> int | None:
        """Return the number of a callback; None for a callable that may be a new object for each request."""
        if callback is None:
            return 0
        if len(self._callbacks) == MAX_CALLBACKS or type(callback) not in _FUNCTIONS:
            return None
        self._callbacks.append(callback)
        self._numbers[callback] = number = len(self._callbacks) - 1
        return number


MAX_IN_SET = 1 << 15
"""Maximum number of fingerprints in the set, where each takes 97 bytes."""

BUCKETS = 1 << 15
"""Number of byte strings for all further fingerprints. With ten million of them, a lookup takes 1 µs."""


class FingerprintSet:
    """The set of claimed fingerprints.

    The first fingerprints are in a set, which has the fastest lookup. All further fingerprints are concatenated in
    buckets of bytes and take about 20 bytes each. In each full pass, the garbage collector visits each object of a set
    (40 ms for a million objects), but it does not traverse bytes.
    """

    __slots__ = ("_buckets", "_count", "_first")

    def __init__(self) -> None:
        self._first: set[bytes] = set()
        self._buckets: list[bytearray] = []  # created when the set is full
        self._count = 0  # number of fingerprints in the buckets

    def __len__(self) -> int:
        return len(self._first) + self._count

    def add(self, marks: Iterable[bytes]) -> list[bool]:
        """Add fingerprints, and return for each whether it was new."""
        first, buckets = self._first, self._buckets
        are_new = []
        for mark in marks:
            is_new = mark not in first
            if is_new and buckets:
                bucket = buckets[hash(mark) % BUCKETS]
                is_new = mark not in bucket or _place(bucket, mark) < 0
                if is_new:
                    bucket += mark
                    self._count += 1
            elif is_new:
                first.add(mark)
                if len(first) == MAX_IN_SET:
                    buckets += [bytearray() for _ in range(BUCKETS)]
            are_new.append(is_new)
        return are_new

    def discard(self, marks: Iterable[bytes]) -> None:
        """Remove ``marks``. Unknown marks are ignored."""
        for mark in marks:
            if mark in self._first:
                self._first.remove(mark)
            elif self._buckets:
                bucket = self._buckets[hash(mark) % BUCKETS]
                if (place := _place(bucket, mark)) >= 0:
                    del bucket[place : place + FINGERPRINT_BYTES]
                    self._count -= 1


def _place(bucket: bytearray, mark: bytes) -> int:
    """Return the index of a fingerprint in its bucket; -1 if it is missing. Ignores matches that span two."""
    place = bucket.find(mark)
    while place % FINGERPRINT_BYTES and place > 0:
        place = bucket.find(mark, place + 1)
    return place
