"""A job: what outlives a crawl's process, as the frontier, the feeds and the engine see it, wherever it is stored.

Two stores hold jobs: a directory (:mod:`trawl.frontier.sqlite`) and a server (:mod:`trawl.frontier.redis`). Each is a
:class:`Job`, and :mod:`trawl.frontier.job_frontier` is the frontier above either. Everything is written in *steps*
(:class:`Step`): a step is in the store whole, or not at all, and steps are applied in their order. A reading has its
place among them. Values that are kept, and the positions of the feeds, are written with whatever step comes next: that
costs nothing, and they are never newer or older than the acknowledgements they belong to.

A job in a server may be shared by several processes (:mod:`trawl.frontier.parts`). Then a step says which of its
requests were new, and the frontier's memory hears of others' requests (:meth:`Job.follow`).

An item enters the outbox with the step that acknowledges its request, and leaves it with the one that stores how far
the feeds have come. The last ones are in memory too, because the writer of the feeds asks for them at once.

A request with a time of its own is *held*: it is stored in a lane that no other is in, ordered by its time. In place of
the priority it has the wall time in microseconds before which it may not be sent. So held requests are not in memory,
and hold up nobody behind them. When its time has come, a request moves into its own lane.

Length: what goes into a store, what it answers, and the job that both go through are one vocabulary.
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
from trawl.throttling.shared import Line

if TYPE_CHECKING:
    from trawl.frontier.job_frontier import JobFrontier
    from trawl.frontier.redis.sessions import JobSession

__all__ = [
    "AT_ONCE",
    "LAST_ORDER",
    "READ_BYTES",
    "SAFE",
    "HeldLane",
    "Job",
    "Outbox",
    "Place",
    "Row",
    "SessionLease",
    "Snapshot",
    "Step",
    "StepResult",
    "as_is",
    "hash_of",
    "wall_time",
]

T = TypeVar("T")

AT_ONCE = 1000
"""Requests that are let in by one step."""

LAST_ORDER = 1 << 62
"""Orders of coming end there, half of what 64 bits hold."""

TAIL_BYTES = 1 << 20
"""Bytes of the items that came last and are kept in memory."""

SAFE = 0.9
"""The part of a lease that is used: clocks of two machines run at different speeds, by far less than this."""

READ_BYTES = 1 << 20
"""Bytes after which a reading of items stops."""

Row: TypeAlias = "tuple[int, int, int, float, bytes]"
"""Order, lane, minus priority, minus share, record."""

Place: TypeAlias = "tuple[int, int, int, float]"
"""Where a record is stored: its order, lane, minus priority and minus share."""


def wall_time(until: float) -> int:
    """Return the value stored as priority for a wall time in seconds since 1970, rounded up."""
    # One for the fraction that is cut off, one for the rounding of the product: never earlier than asked.
    return int(until * 1e6) + 2


def hash_of(lane: LaneKey) -> int:
    """Return a hash of a lane's key, as a number of 64 bits with a sign."""
    digest = blake2b(msgspec.msgpack.encode(lane), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


@attrs.frozen
class Snapshot:
    """State of the store when a frontier is opened.

    Attributes:
        lanes: How many records each lane has, and its first, in the order of the firsts' coming.
        last_order: The largest order of coming, without its sign.
        seen: How many fingerprints were seen.
        marks: These fingerprints, or None where they are many.
        held: Lanes of requests that wait for a time of their own.
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
        ended: Where the record is that goes, if one does.
        failed: Why it failed, and the wall time in seconds since 1970; None: it has not.
        rows: Requests to store.
        marks: Of each of them its fingerprint, which is seen from now on; None: duplicates of it are wanted.
        is_successor: The one row takes the place of ``ended``: it is stored even where its fingerprint was seen.
        moved: Requests that go to another place: where each is, and the new lane, minus priority and minus share.
        due_of: Lanes of held requests of which is asked when the first may go.
        items: Items for the outbox.
        is_spilled: Whether the items that ``ended`` has spilled come before them.
        spilled: Items of a request that has not ended: its order, a number, and the item.
        requeued: Only in a server: failed requests that are queued again, each as it is stored, and its row.
        given_back: Only in a server: parts that other sessions may have from then on, each with what is kept of it.
    """

    ended: Place | None = None
    failed: tuple[str, float] | None = None
    rows: Sequence[Row] = ()
    marks: Sequence[bytes | None] = ()
    is_successor: bool = False
    moved: Sequence[tuple[Place, tuple[int, int, float]]] = ()
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
        seen: The numbers of its rows, from 0, that were not stored: their fingerprints were seen before.
        due: Of each lane in ``due_of`` the time of its first request, as :func:`wall_time` has it; None: it is empty.
    """

    seen: Collection[int] = ()
    due: Mapping[int, int | None] = {}


@attrs.frozen
class HeldLane:
    """A lane of held requests.

    Attributes:
        number: Its number.
        count: How many they are.
        due: The time of the first, as :func:`wall_time` has it.
    """

    number: int
    count: int
    due: int


class Outbox:
    """Positions of the outbox, and its last items.

    Attributes:
        start: The position up to which the feeds have it.
        end: The position of the last item that is in for good.
    """

    __slots__ = ("_tail", "_tail_bytes", "end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start: int = start
        self.end: int = end
        self._tail: deque[OutboxItem] = deque()
        self._tail_bytes = 0

    def added(self, items: Sequence[bytes] | None, end: int) -> None:
        """Update memory once a step is stored: ``items`` are the last up to ``end``; None: they must be read."""
        if items is None:
            # The tail has no gaps, as `after` counts in it; the spilled items were never in memory.
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
        """Forget the items up to ``position``, which the feeds have.

        Raises:
            ValueError: There is no such item yet, or a later one was given before.
        """
        if not self.start <= position <= self.end:
            raise ValueError(f"the feeds can't be at {position}: the outbox goes from {self.start} to {self.end}")
        self.start = position
        while self._tail and self._tail[0].position <= position:
            self._tail_bytes -= len(self._tail.popleft().item)


class SessionLease:
    """The time for which a job, and the places of shared scopes, are surely this process's.

    Attributes:
        until: The instant on the run clock at which it may be over.
        away_since: Since when the server does not answer, on the run clock; None: it answers.
        away_reason: Why, in words.
    """

    def __init__(self) -> None:
        self.until: float = -math.inf
        self.away_since: float | None = None
        self.away_reason: str = ""
        self._job_until = -math.inf
        self._places_until = math.inf
        self._scopes: set[trio.CancelScope] = set()
        self._renewed = trio.Event()

    def renew(self, until: float) -> None:
        """Prolong it, and the deadlines of what runs under it."""
        self._job_until = until
        self._apply()

    def hold_places(self, until: float) -> None:
        """Say until when places of shared scopes are surely this process's; infinity: it has none."""
        if until != self._places_until:
            self._places_until = until
            self._apply()

    def _apply(self) -> None:
        until = self.until = min(self._job_until, self._places_until)
        for scope in self._scopes:
            scope.deadline = until
        # Those that wait look at `until` anew; whoever comes later waits for the next renewal.
        self._renewed.set()
        self._renewed = trio.Event()

    def why(self, now: float) -> str:
        """Say why nothing is stored now; "" while the server answers."""
        if self.away_since is None:
            return "" if now < self.until else "nothing is sent: it does not answer for the shared scopes"
        sends = "nothing is sent" if now >= self.until else f"nothing is sent from {self.until - now:.0f} s on"
        return f"away for {now - self.away_since:.0f} s, {sends}: {self.away_reason}"

    async def hold(self, call: Callable[[], Any]) -> Any:
        """Await ``call()`` under the lease, waiting for it where it is over. Returns None if it ended meanwhile."""
        # Asked again: it may be over once more by the time this task runs.
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
    """An open job. It keeps values and items in its store, in the frontier's steps.

    The frontier and this are two views of one store. A value that is to survive the process is *kept* under a name: it
    is written with the next step, whatever that is for, and read again when the job is opened.

    ::

        job = await open_job(directory, blocking)                             trawl.frontier.sqlite
        frontier = await open_frontier(job, spider, wall, depth_first=...)    trawl.frontier.job_frontier
        ...                                       the crawl; frontier.aclose() commits and leaves the job open
        await job.aclose()                        last of all

        job.kept["throttle"]                      what the last process kept, read when the job was opened
        job.before_commit(save)                   save() is called just before each step; what it keeps is in it
        job.keep("throttle", blob)                written with the next step
        job.keep("feeds", positions); job.outbox_done(17)      both or neither survive a kill

    Attributes:
        name: Where it is, as people are told: its directory, or its address without the password.
        directory: Its directory; None for one in a server.
        is_new: It has just been made: nothing was kept or stored before.
        last_error: Why the last process could not write to it; "" where it could.
        was_killed: What the process before sent last is not known, and may have been sent until now. A run that ends,
            and stores what it learned, sets this to False.
        lease: The time for which it is surely this process's; None: until it is closed.
        line: Grants what several processes that work on it share; None: none but this one does.
        outbox: Its items that are on their way to the feeds.
        session: This process's session; None: it is this process's alone, as one in a directory is.
    """

    name: str
    directory: Path | None = None
    is_new: bool
    last_error: str = ""
    was_killed: bool = False
    lease: SessionLease | None = None
    session: JobSession | None = None
    line: Line | None = None

    def __init__(self, name: str, kept: dict[str, bytes], outbox: Outbox, *, is_new: bool) -> None:
        self.name: str = name
        self.is_new: bool = is_new
        self.outbox: Outbox = outbox
        self._kept = kept
        self._kept_of: dict[int, dict[str, bytes]] = {}
        self._changed: dict[str, bytes | None] = {}
        self._unspilled: list[int] = []
        self._hooks: list[Callable[[], None]] = []

    @property
    def failure(self) -> JobError | None:
        """The error after which nothing is written any more."""
        raise NotImplementedError

    @property
    def kept(self) -> Mapping[str, bytes]:
        """The saved values by name, up to date."""
        return MappingProxyType(self._kept)

    @property
    def outbox_end(self) -> int:
        """The position of the last item that is in the outbox for good; 0 when there was none."""
        return self.outbox.end

    @property
    def outbox_start(self) -> int:
        """The position that :meth:`outbox_done` last told."""
        return self.outbox.start

    async def requeue_given_up(self, now: float) -> int:
        """Queue the requests of hosts that were given up again, before the frontier is opened. Returns how many.

        A checkpoint. Another process that works on the job has done it already: then none are queued.

        Args:
            now: The wall time, in seconds since 1970.

        Raises:
            JobError: The store can't be written, or a request in it can't be read.
        """
        raise NotImplementedError

    def kept_of(self, part: int) -> Mapping[str, bytes]:
        """Return the saved values of a part by name, up to date; only with :attr:`session`."""
        return MappingProxyType(self._kept_of.get(part, {}))

    def keep(self, name: str, blob: bytes | None, part: int | None = None) -> None:
        """Have ``blob`` written under ``name`` with the next step; None forgets the name. Waits for nothing.

        Args:
            name: Its name.
            blob: The value.
            part: The part that it is of, one that this session owns; None: the value is the whole job's.
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
        """Read the saved values of the whole job again, which another process may have changed. A checkpoint.

        Raises:
            JobError: They can't be read.
        """
        await trio.lowlevel.checkpoint()

    def _keep_of(self, part: int, name: str, blob: bytes | None) -> None:
        raise ValueError("a job in a directory has no parts")

    def before_commit(self, hook: Callable[[], None]) -> None:
        """Have ``hook`` called just before steps are written, in Trio's thread; it may call :meth:`keep`.

        The acknowledgements that are written are all from before the call. It must be quick, as steps come with every
        few pages, and must not fail: a failure ends the job's writing.
        """
        self._hooks.append(hook)

    def unspill(self, order: int) -> None:
        """Have the spilled items of a request that will be sent again removed with the next step. Waits for nothing."""
        self._unspilled.append(order)

    decides_seen: bool = False
    """Whether a step says which of its requests were seen, so that memory need not ask for what it does not know."""

    def number_of(self, lane: LaneKey) -> int:
        """Return a lane's number: a hash of its key, so that no table of lanes is needed."""
        return hash_of(lane)

    def held_number(self, lane: LaneKey) -> int:
        """Return the number of the lane in which a lane's requests are held."""
        return HELD

    def is_here(self, number: int) -> bool:
        """Return whether the lane of a number is in a part of this session: always, where there are no others."""
        return True

    def orders_after(self, last: int) -> Callable[[], int]:
        """Return what gives orders of coming, each larger than those before; ``last`` is the largest that is stored."""
        return count(last + 1).__next__

    def follow(self, follower: JobFrontier) -> None:
        """Tell ``follower`` of each change of a shared job before anybody else hears of it, of those so far at once."""

    async def apply(self, step: Step, applied: Callable[[StepResult], T]) -> T:
        """Write a step; on disk when it returns. A checkpoint.

        Cancelling is heard before the step is handed in. After that it is carried out, unless the store is away.

        Args:
            step: What is to be written.
            applied: Tells memory what came of it, in the order of the steps and before any other task runs.

        Returns:
            The value of ``applied``.

        Raises:
            JobError: The store can't be written, now or before; nothing of the step was done.
        """
        raise NotImplementedError

    async def read_lanes(self, wanted: Sequence[tuple[int, int]], applied: Callable[[list[list[Row]]], None]) -> None:
        """Read the first records of lanes, each given by its number and a limit, in their place among the steps.

        Raises:
            JobError: The store can't be read.
        """
        raise NotImplementedError

    async def read_seen(self, marks: Sequence[bytes], applied: Callable[[set[bytes]], T]) -> T:
        """Read which of ``marks`` were seen, in its place among the steps.

        Returns:
            The value of ``applied``.

        Raises:
            JobError: The store can't be read.
        """
        raise NotImplementedError

    async def read_due(self, lanes: Sequence[int], now: int) -> list[Row]:
        """Read the first requests of lanes of held ones that are due at ``now``, in microseconds since 1970.

        Raises:
            JobError: The store can't be read.
        """
        raise NotImplementedError

    async def read_snapshot(self, max_marks: int, now: float) -> Snapshot:
        """Read what a frontier begins with. A checkpoint.

        Args:
            max_marks: Of more fingerprints than this none is read.
            now: Seconds since 1970. Where the clock was set back since a request was held, no wait is longer than when
                its request was stored.

        Raises:
            JobError: The store can't be read.
        """
        raise NotImplementedError

    async def commit(self) -> None:
        """Have everything kept so far written; in the store when it returns. A checkpoint.

        Raises:
            JobError: It can't be written.
        """
        await self.apply(Step(), as_is)

    async def sync(self) -> None:
        """Have everything kept so far on the disk itself, where a power cut leaves it too. A checkpoint.

        Raises:
            JobError: It can't be written.
        """
        await self.commit()

    async def give(self, items: Sequence[bytes]) -> None:
        """Put items that came of no request, those of ``start()``, into the outbox; in the store when it returns.

        Raises:
            JobError: They can't be written.
        """
        await self.apply(Step(items=items), as_is)

    async def outbox_after(self, position: int, limit: int) -> Sequence[OutboxItem]:
        """Return up to ``limit`` items after ``position``, in order; none if there is none yet. A checkpoint.

        Raises:
            JobError: They can't be read.
        """
        found = self.outbox.after(position, limit)
        if found is None:
            return await self._read_outbox(position, limit)
        await trio.lowlevel.checkpoint()
        return found

    def outbox_done(self, position: int) -> None:
        """Forget the items up to ``position``, which are written, with the next step. Waits for nothing.

        Raises:
            ValueError: There is no such item yet, or a later one was given before.
        """
        self.outbox.done(position)

    async def aclose(self) -> None:
        """Write what was kept, and give the job free for the next process. A checkpoint; cancelled, it does so too.

        Raises:
            JobError: The saved values could not be written.
        """
        raise NotImplementedError

    def damaged(self, detail: str) -> JobError:
        """Make the error that says that the job is damaged, where, and what to do."""
        words = f"job {self.name}: it is damaged ({detail}). Nothing was overwritten: go on with a copy made before"
        return JobError(words, self.name)

    async def _read_outbox(self, position: int, limit: int) -> Sequence[OutboxItem]:
        raise NotImplementedError

    def _beside(self) -> tuple[dict[str, bytes | None], list[int]]:
        """Return the values that changed since the last step, and the orders whose spilled items go, for this one."""
        # Before the values are taken: what a hook keeps is in this very step.
        for hook in self._hooks:
            hook()
        changed, self._changed = self._changed, {}
        unspilled, self._unspilled = self._unspilled, []
        return changed, unspilled


def as_is(answer: T) -> T:
    """Return what the store answered: memory need not hear of it."""
    return answer
