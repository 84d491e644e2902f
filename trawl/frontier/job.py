"""A job: the stored state of a crawl, as the frontier, the feeds and the engine see it, in any store.

A job is stored in a directory (:mod:`trawl.frontier.sqlite`) or in a server (:mod:`trawl.frontier.redis`). Both modules
derive from :class:`Job`, and :mod:`trawl.frontier.job_frontier` is the frontier for both. Everything is written in
*steps* (:class:`Step`). A step is stored completely or not at all. Memory is updated with the results of steps and
reads in the order in which the store carried them out. The next step also writes the kept values and the positions of
the feeds. That costs nothing, and these values then match the acknowledgements in the same step.

Several processes may share a job in a server (:mod:`trawl.frontier.parts`). Then the result of a step names the
requests that were already seen, and the frontier's memory also receives requests from other processes
(:meth:`Job.follow`).

An item enters the outbox in the step that acknowledges its request. It leaves the outbox in the step that stores a
later position of the feeds. The last items are also in memory, because the writer of the feeds reads them soon after
they are stored.

A request with its own earliest time is *held*. It is stored in a separate lane for held requests, ordered by time.
In the field for the priority, its row has the wall time, in microseconds, before which the request must not be sent. So
held requests are not in memory, and they do not block the requests behind them. When a request is due, it moves into
its own lane.

Length: the job, the changes that it passes to a store and the results that the store returns are described together.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import blake2b
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import attrs
import msgspec
import trio

from trawl.errors import JobError
from trawl.frontier.base import LaneKey, OutboxItem
from trawl.frontier.parts import HELD
from trawl.throttling.shared import SharedScopeClient

if TYPE_CHECKING:
    from trawl.frontier.job_frontier import JobFrontier
    from trawl.frontier.redis.sessions import JobSession
    from trawl.http import Request

__all__ = [
    "AT_ONCE",
    "LAST_ORDER",
    "READ_BYTES",
    "SAFE",
    "SLOW",
    "HeldLane",
    "Job",
    "Outbox",
    "Place",
    "Row",
    "SessionLease",
    "Snapshot",
    "Step",
    "StepResult",
    "StepTimes",
    "as_is",
    "hash_of",
    "wall_time",
]

T = TypeVar("T")

AT_ONCE = 1000  # maximum number of requests that one step moves out of the lanes of held requests
LAST_ORDER = 1 << 62  # largest arrival order, half of the range of 64 bits
SLOW = 1.0  # seconds without a response after which the store is reported as the reason for waiting
TAIL_BYTES = 1 << 20  # maximum bytes of items that are kept in memory
READ_BYTES = 1 << 20  # number of bytes after which a read of items stops

# The fraction of a lease that a process uses. The rest is a margin, because two clocks may differ in speed.
SAFE = 0.9

Row: TypeAlias = "tuple[int, int, int, float, bytes]"
"""Arrival order, number of the lane, negated priority, negated share, encoded record."""

Place: TypeAlias = "tuple[int, int, int, float]"
"""Where a record is stored (arrival order, lane, negated priority, negated share)."""


def wall_time(until: float) -> int:
    """Return the stored priority of a held request: ``until`` (seconds since the epoch) in microseconds, rounded up."""
    # Add one for the truncated fraction and one for the rounding of the product, so that the result is never too early.
    return int(until * 1e6) + 2


def hash_of(lane: LaneKey) -> int:
    """Return a hash of a lane's key, as a signed 64-bit number."""
    digest = blake2b(msgspec.msgpack.encode(lane), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


@attrs.frozen
class Snapshot:
    """State of the store when a frontier is opened.

    Attributes:
        lanes: For each lane the number of its records and its first record, in arrival order of the first records.
        last_order: The largest absolute value of an arrival order.
        seen: Number of fingerprints that were seen.
        marks: The fingerprints that were seen; None if there are too many to remember.
        held: Lanes of held requests.
    """

    lanes: Sequence[tuple[int, Row]]
    last_order: int
    seen: int
    marks: Sequence[bytes] | None
    held: Sequence[HeldLane] = ()


@attrs.define
class Step:
    """Changes that are made together.

    Attributes:
        ended: Place of the record to remove; None if none is removed.
        failed: Why the removed request failed, and the wall time of the failure in seconds since the epoch; None if the
            request did not fail.
        rows: Requests to store.
        marks: For each row the fingerprint that this step marks as seen; None if duplicates of the row are wanted.
        is_successor: Whether the only row replaces ``ended``. Such a row is stored even if its fingerprint was seen.
        moved: Requests to move. Each entry has the current place, and the new lane, negated priority and negated share.
        dropped: Places of requests to remove.
        emptied: Lanes to empty. Each entry has the number of a lane, and the places of its leased requests, which stay.
        due_of: Lanes of held requests. The result contains the time of the first request in each lane.
        items: Items for the outbox.
        is_spilled: Whether the spilled items of ``ended`` enter the outbox, before ``items``.
        spilled: Items of a request that has not ended, each with the request's arrival order and the item's number.
        requeued: Failed requests to queue again. Each entry has the stored failed request and its new row. Only in a
            server.
        given_back: Parts to release to other sessions, each with its kept values. Only in a server.
    """

    ended: Place | None = None
    failed: tuple[str, float] | None = None
    rows: Sequence[Row] = ()
    marks: Sequence[bytes | None] = ()
    is_successor: bool = False
    moved: Sequence[tuple[Place, tuple[int, int, float]]] = ()
    dropped: Sequence[Place] = ()
    emptied: Sequence[tuple[int, Sequence[Place]]] = ()
    due_of: Sequence[int] = ()
    items: Sequence[bytes] = ()
    is_spilled: bool = False
    spilled: Sequence[tuple[int, int, bytes]] = ()
    requeued: Sequence[tuple[bytes, Row]] = ()
    given_back: Sequence[tuple[int, bytes]] = ()


@attrs.frozen
class StepResult:
    """The result of a step.

    Attributes:
        seen: Indexes of the rows that were not stored because their fingerprints had been seen before.
        due: Time of the first request in each lane of ``due_of``, as in :func:`wall_time`; None for an empty lane.
    """

    seen: Collection[int] = ()
    due: Mapping[int, int | None] = {}


@attrs.frozen
class HeldLane:
    """A lane of held requests. ``due`` is the time of the first, as returned by :func:`wall_time`."""

    number: int
    count: int
    due: int


class Outbox:
    """The last items, and the positions of the last item that the feeds have written and of the last stored item."""

    __slots__ = ("_tail", "_tail_bytes", "end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start: int = start
        self.end: int = end
        self._tail: deque[OutboxItem] = deque()
        self._tail_bytes = 0

    def added(self, items: Sequence[bytes] | None, end: int) -> None:
        """Add a step's ``items``, the last one at position ``end``. If None, they must be read from the store."""
        if items is None:
            # Spilled items are not in memory. Drop all items, because `after` needs items without gaps.
            self._tail.clear()
            self._tail_bytes = 0
        else:
            self._tail.extend([OutboxItem(end - len(items) + n, item) for n, item in enumerate(items, start=1)])
            self._tail_bytes += sum(map(len, items))
            while self._tail_bytes > TAIL_BYTES:
                self._tail_bytes -= len(self._tail.popleft().item)
        self.end = end

    def after(self, position: int, limit: int) -> list[OutboxItem] | None:
        """Return up to ``limit`` items after ``position`` from memory; None if they must be read from the store."""
        if position >= self.end:
            return []
        if not self._tail or self._tail[0].position > position + 1:
            return None
        first = position + 1 - self._tail[0].position
        return [self._tail[i] for i in range(first, min(first + limit, len(self._tail)))]

    def done(self, position: int) -> None:
        """Forget the items up to ``position``, which the feeds have written. The position never decreases."""
        if not self.start <= position <= self.end:
            raise ValueError(f"the feeds can't be at {position}: the outbox goes from {self.start} to {self.end}")
        self.start = position
        while self._tail and self._tail[0].position <= position:
            self._tail_bytes -= len(self._tail.popleft().item)


class StepTimes:
    """The seconds that the last step took, and the event loop time at which the current step was started, if any."""

    __slots__ = ("began_at", "last")

    def __init__(self) -> None:
        self.last: float = 0.0
        self.began_at: float | None = None

    def begin(self, now: float) -> None:
        """Record that a step starts. A step that is sent again keeps its first start time."""
        if self.began_at is None:
            self.began_at = now

    def end(self, now: float) -> None:
        """Record that the current step has ended."""
        if self.began_at is not None:
            self.last, self.began_at = now - self.began_at, None

    def text(self, now: float) -> str:
        """Return the durations in words."""
        current = 0.0 if self.began_at is None else now - self.began_at
        still = f", and this one has taken {current:.1f} s so far" if current >= max(SLOW, self.last) else ""
        return f"the last step took {self.last:.2g} s{still}"


class SessionLease:
    """The time until which this process certainly owns a job, and its places in shared scopes.

    Attributes:
        until: Event loop time, in seconds, at which the lease may end.
        away_since: Event loop time, in seconds, at which the server stopped responding; None while it responds.
        away_reason: Why the server does not respond, as a message.
        asked_at: Event loop time, in seconds, of the first call without a response; None if there is none.
    """

    def __init__(self) -> None:
        self.until: float = -math.inf
        self.asked_at: float | None = None
        self.away_since: float | None = None
        self.away_reason: str = ""
        self._job_until = -math.inf
        self._places_until = math.inf
        self._scopes: set[trio.CancelScope] = set()
        self._renewed = trio.Event()

    def renew(self, until: float) -> None:
        """Extend the lease, and the deadlines of the calls that run under it."""
        self._job_until = until
        self._apply()

    def hold_places(self, until: float) -> None:
        """Set the time until which this process certainly has its places in shared scopes; infinity without places."""
        if until != self._places_until:
            self._places_until = until
            self._apply()

    def _apply(self) -> None:
        until = self.until = min(self._job_until, self._places_until)
        for scope in self._scopes:
            scope.deadline = until
        # Wake the waiting tasks, which check `until` again. Tasks that start waiting later wait for the next renewal.
        self._renewed.set()
        self._renewed = trio.Event()

    def went_away(self, now: float, reason: str) -> bool:
        """Record that the server does not respond. Returns True if this was not known yet."""
        self.away_reason = reason
        if self.away_since is not None:
            return False
        self.away_since = now if self.asked_at is None else self.asked_at
        return True

    def why(self, now: float) -> str:
        """Return why steps or requests wait for the server now; "" if nothing is wrong."""
        sends = "nothing is sent" if now >= self.until else f"nothing is sent after {self.until - now:.0f} s"
        if self.away_since is None:
            waited = 0.0 if self.asked_at is None else now - self.asked_at
            if waited >= SLOW:
                return f"it has not responded for {waited:.0f} s, {sends}"
            if now >= self._job_until:
                return "nothing is sent until the lease is renewed"
            return "" if now < self.until else "nothing is sent: it does not respond about the shared scopes"
        return f"away for {now - self.away_since:.0f} s, {sends}: {self.away_reason}"

    async def hold(self, call: Callable[[], Any]) -> Any:
        """Await ``call()``, after a renewal if the lease has ended. Return None if the lease ends during the call."""
        # Check in a loop, because the lease may have ended again when this task runs.
        while trio.current_time() >= self.until:
            await self._renewed.wait()
        with trio.CancelScope(deadline=self.until) as scope:
            self._scopes.add(scope)
            try:
                return await call()
            finally:
                self._scopes.discard(scope)
        return None


class Job:
    """An open job. The frontier's steps also store its values and items.

    Methods that read or write the store raise JobError if that fails, or has failed before. A value that must survive
    the process is *kept* under a name. The next step writes it, and the next process reads it when it opens the job::

        job = await open_job(directory, blocking)                             trawl.frontier.sqlite
        frontier = await open_frontier(job, spider, wall, depth_first=...)    trawl.frontier.job_frontier
        ...                                       the crawl; frontier.aclose() commits and leaves the job open
        await job.aclose()                        last

        job.kept["throttle"]                      the value that the last process kept, read when the job was opened
        job.before_commit(save)                   save() is called just before each step, which stores what it keeps
        job.keep("throttle", blob)                written with the next step
        job.keep("feeds", positions); job.outbox_done(17)      both or neither survive a kill

    Attributes:
        name: Its location, for messages: the directory, or the address without the password.
        directory: Its directory; None for a job in a server.
        is_new: Whether this process has created the job, so that nothing was kept or stored before.
        last_error: Why the last process could not write to the job; "" if it could.
        was_killed: Whether the previous process may have sent requests, until just now, that it did not record. A run
            that stores its learned state before it ends sets this to False.
        lease: The time until which this process certainly owns the job; None if this process owns the job until it
            closes the job.
        line: Client for the scopes that the processes of the job share; None for a job in a directory.
        outbox: Items that the feeds have not written yet.
        session: This process's session; None for a job in a directory.
        step_times: The durations of its steps.
        storing: Requests that a pending step ends or replaces, by arrival order. The step is not stored yet.
    """

    name: str
    directory: Path | None = None
    is_new: bool
    last_error: str = ""
    was_killed: bool = False
    lease: SessionLease | None = None
    session: JobSession | None = None
    line: SharedScopeClient | None = None

    def __init__(self, name: str, kept: dict[str, bytes], outbox: Outbox, *, is_new: bool) -> None:
        self.name: str = name
        self.is_new: bool = is_new
        self.outbox: Outbox = outbox
        self.step_times: StepTimes = StepTimes()
        self.storing: dict[int, Request] = {}
        self._kept = kept
        self._kept_of: dict[int, dict[str, bytes]] = {}
        self._changed: dict[str, bytes | None] = {}
        self._unspilled: list[int] = []
        self._hooks: list[Callable[[], None]] = []

    @property
    def failure(self) -> JobError | None:
        """The error that ended writing; None if there is none."""
        raise NotImplementedError

    @property
    def kept(self) -> Mapping[str, bytes]:
        """The current saved values, by name."""
        return MappingProxyType(self._kept)

    @property
    def outbox_end(self) -> int:
        """Position of the last item stored in the outbox; 0 if there was none."""
        return self.outbox.end

    @property
    def outbox_start(self) -> int:
        """Position of the last item that the feeds have written, as passed to the last call of :meth:`outbox_done`."""
        return self.outbox.start

    @property
    def is_alone(self) -> bool:
        """Whether no other process is known to work on the job now."""
        return self.session is None or self.session.is_alone

    @property
    def is_lease_lost(self) -> bool:
        """Whether other processes own the job now, because a callback blocked this process for too long."""
        return False

    def callbacks_folder(self) -> Path:
        """Return the folder in which processes of this machine record their running callbacks. Blocks.

        Raises JobError if other users may write to it, and OSError.
        """
        raise NotImplementedError

    async def requeue_given_up(self, now: float) -> int:
        """Before the frontier is opened, queue again the requests of hosts that were given up, and return their number.

        A checkpoint. If another process works on the job, that process has already queued them, and this returns 0.
        ``now`` is in seconds since the epoch.
        """
        raise NotImplementedError

    def kept_of(self, part: int) -> Mapping[str, bytes]:
        """Return the current saved values of a part, by name. Only for a job with a :attr:`session`."""
        return MappingProxyType(self._kept_of.get(part, {}))

    def keep(self, name: str, blob: bytes | None, part: int | None = None) -> None:
        """Store ``blob`` under ``name`` with the next step, or forget the name if ``blob`` is None. Does not wait.

        ``part`` is the part of this session to which the value belongs; None if it belongs to the whole job.
        """
        if part is not None:
            self._keep_of(part, name, blob)
            return
        if blob is None:
            self._kept.pop(name, None)
        else:
            self._kept[name] = blob
        self._changed[name] = blob

    async def refresh(self) -> None:
        """Read the saved values of the whole job again, because another process may have changed them. A checkpoint."""
        await trio.lowlevel.checkpoint()

    def _keep_of(self, part: int, name: str, blob: bytes | None) -> None:
        raise ValueError("a job in a directory has no parts")

    def before_commit(self, hook: Callable[[], None]) -> None:
        """Call ``hook`` just before steps are written, in Trio's thread. ``hook`` may call :meth:`keep`.

        All acknowledgements in these steps happened before the call. ``hook`` must be quick, because a step is written
        every few pages. It must not raise an exception, because the job would then stop writing.
        """
        self._hooks.append(hook)

    def unspill(self, order: int) -> None:
        """With the next step, remove the spilled items of a request that will be sent again. Does not wait."""
        self._unspilled.append(order)

    decides_seen: bool = False
    """Whether the result of a step names the seen requests. If True, unknown fingerprints need no lookup."""

    def number_of(self, lane: LaneKey) -> int:
        """Return a lane's number. It is a hash of the lane's key, so no table of lanes is needed."""
        return hash_of(lane)

    def held_number(self, lane: LaneKey) -> int:
        """Return the number of the lane that stores a lane's held requests."""
        return HELD

    def is_here(self, number: int) -> bool:
        """Return whether the lane with this number is in a part of this session. Always true in a directory."""
        return True

    def orders_after(self, last: int) -> Callable[[], int]:
        """Return a function that returns increasing arrival orders. ``last`` is the largest stored arrival order."""
        return count(last + 1).__next__

    def follow(self, follower: JobFrontier) -> None:
        """Pass earlier changes of a shared job to ``follower`` now, and later changes when they arrive."""

    async def apply(self, step: Step, applied: Callable[[StepResult], T]) -> T:
        """Write a step, and return the value of ``applied``. The step is on disk when this returns. A checkpoint.

        ``applied`` updates memory with the result. It is called in the order of the steps, before any other task runs.
        A cancellation takes effect only before the step is submitted, or while the store is unreachable. Otherwise the
        step is carried out. If this raises JobError, no change of the step was made.
        """
        raise NotImplementedError

    async def read_lanes(self, wanted: Sequence[tuple[int, int]], applied: Callable[[list[list[Row]]], None]) -> None:
        """Read the first records of lanes, in order with the steps. Each lane is passed as its number and a limit."""
        raise NotImplementedError

    async def read_after(self, lane: int, place: Place | None) -> list[Row]:
        """Read the first :data:`AT_ONCE` requests of a lane after a place, or its first ones. A checkpoint."""
        raise NotImplementedError

    async def read_seen(self, marks: Sequence[bytes], applied: Callable[[set[bytes]], T]) -> T:
        """Read which of ``marks`` were seen, in order with the steps, and return the value of ``applied``."""
        raise NotImplementedError

    async def read_due(self, lanes: Sequence[int], now: int) -> list[Row]:
        """Read the first held requests of ``lanes`` that are due at ``now``, in microseconds since the epoch."""
        raise NotImplementedError

    async def read_snapshot(self, max_marks: int, now: float) -> Snapshot:
        """Read the initial state of a frontier, without fingerprints if there are more than ``max_marks``.

        A checkpoint. If the clock was set back to ``now`` (seconds since the epoch) while a request was held, the
        request waits no longer than the wait that was stored with it.
        """
        raise NotImplementedError

    async def commit(self) -> None:
        """Write all values kept so far. They are in the store when this returns. A checkpoint."""
        await self.apply(Step(), as_is)

    async def sync(self) -> None:
        """Write all values kept so far to the disk itself, so that they survive a power cut. A checkpoint."""
        await self.commit()

    async def give(self, items: Sequence[bytes]) -> None:
        """Put items of ``start()`` into the outbox. They belong to no request, and are stored when this returns."""
        await self.apply(Step(items=items), as_is)

    async def outbox_after(self, position: int, limit: int) -> Sequence[OutboxItem]:
        """Return up to ``limit`` items after ``position``, in order. Empty if there are none yet. A checkpoint."""
        found = self.outbox.after(position, limit)
        if found is None:
            return await self._read_outbox(position, limit)
        await trio.lowlevel.checkpoint()
        return found

    def outbox_done(self, position: int) -> None:
        """With the next step, forget the items up to ``position``, which the feeds have written. Does not wait."""
        self.outbox.done(position)

    async def aclose(self) -> None:
        """Write the kept values, and release the job for the next process. A checkpoint. Also works if cancelled."""
        raise NotImplementedError

    def damaged(self, detail: str) -> JobError:
        """Return the error for a damaged job, with the location of the damage and the fix."""
        words = f"job {self.name}: it is damaged ({detail}). Nothing was overwritten: continue with an earlier copy"
        return JobError(words, self.name)

    async def _read_outbox(self, position: int, limit: int) -> Sequence[OutboxItem]:
        raise NotImplementedError

    def _beside(self) -> tuple[dict[str, bytes | None], list[int]]:
        """Return the values that changed since the last step, and the orders of requests that lose spilled items."""
        # Call the hooks first, because they may call keep(), and this step should store those values too.
        for hook in self._hooks:
            hook()
        changed, self._changed = self._changed, {}
        unspilled, self._unspilled = self._unspilled, []
        return changed, unspilled


def as_is(answer: T) -> T:
    """Return the store's response unchanged. For steps that need no update of memory."""
    return answer
