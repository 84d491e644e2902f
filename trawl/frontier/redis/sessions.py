"""A session: this process's membership in a job, and the parts that it owns, as one script tells it.

``share.lua`` is asked when the lease is to be renewed, when a step tells that a session has come or gone, and each
quarter of a second while other sessions are there, or this one has nothing to do. It ends sessions whose leases are
over, hands out free parts with a survey of their lanes, says how many parts are too many here, and brings what arrived.
Nothing of it counts twice where an answer is lost:

* Takings of parts are numbered, apart from the steps. One that was not heard of is told again, as it is then.
* Arrivals are numbered, and are there until a later call says that they were heard. A part's survey has those that came
  before it; they are told apart by the number of the last arrival at that time.
* A reading of lanes brings all that arrived before it, so it never shows a request that memory does not know.

A part is not ours from the moment at which it is given back here, though the step that says so comes later: what is
stored in it meanwhile is found by its next owner.

Only the job in a server has one: what it hears of others is kept apart from the steps that it writes.

Length: what one script tells is one object, which follows it in one order.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
import trio

from trawl.errors import SessionEnded
from trawl.frontier.base import LaneKey
from trawl.frontier.job import HeldLane, Row, Step, StepResult
from trawl.frontier.parts import (
    Change,
    Counts,
    ItemsReceived,
    JobFinished,
    PartsReceived,
    PartsRequired,
    RequestsReceived,
    StartReceived,
    is_held,
    part_in,
)
from trawl.frontier.redis.client import Call
from trawl.frontier.redis.layout import Keys, row_of, texts_of

if TYPE_CHECKING:
    from trawl.frontier.job_frontier import JobFrontier
    from trawl.frontier.redis.job import RedisJob

__all__ = ["POLL", "JobSession", "packed"]

POLL = 0.25
"""Seconds between two looks at a job that others work on too."""

STARVED = 0.5
"""Seconds for which a session has had nothing to do when others give it some of what is pending with them."""

_SESSION_BITS = 14  # of an order; the others are microseconds since the job began: 8 years


class JobSession:
    """This process's session in a job in a server: its parts, and the changes that whoever crawls reads.

    ::

        change = await job.session.next_change()      in one task, one after the other
        if isinstance(change, PartsRequired):
            ...                                     let nothing more go to their hosts, wait for what is under way
            await job.session.give_back({part: {"throttle": blob}})

    Args:
        keys: The job's keys.
        number: The number of the session: 1 for the first of the job. No two have the same.
        elapsed: Microseconds since the job began.
        works: Whether it takes parts.
        exports: Whether it is to write the items to feeds.
        shown: The job, for messages.

    Attributes:
        began_at: When the first of the sessions that work on the job now began, on the run clock.
        is_first: No other session worked on the job when this one joined it.
        owned: Its parts, each with the number of the last arrival when it was taken.
        exporter: Who exports the items: the session, the name of its process, and microseconds of its lease.
        heard: The number of the last arrival that was heard.
        kept: What is kept of each part.
        unclean: It has taken parts that no owner gave back.
        was_away: The server was away since it was last heard.
        wish: ``pause``, ``stop``, or "".
    """

    def __init__(self, keys: Keys, number: int, elapsed: int, *, works: bool, exports: bool, shown: str) -> None:
        self.number: int = number
        self.began_at: float = trio.current_time()
        self.is_first: bool = False
        self.owned: dict[int, int] = {}
        self.exporter: tuple[str, str, int] = ("", "", 0)
        self.heard: int = 0
        self.kept: dict[int, dict[str, bytes]] = {}
        self.unclean: bool = False
        self.was_away: bool = False
        self._keys = keys
        self._works = works
        self._exports = exports
        self._shown = shown
        self._began = elapsed - int(trio.current_time() * 1e6)
        self._last_order = 0
        self._takings = 0
        self._working = 1
        self._sessions = 1
        self._start = ""
        self._end = 0
        self._more = False
        self._losing: set[int] = set()
        self._giving = 0
        self._idle_since = math.inf
        self._is_over = False
        self._said = b""
        self._moved = 0
        self._owners: Sequence[bytes] = ()
        self._names: Mapping[str, str] = {}
        self._counts: Callable[[], Counts] | None = None
        self._hear_others: Callable[[Counts], None] = lambda others: None
        self._counted = Counts()
        self.wish: str = ""
        self._wished = trio.Event()
        self._polled_at = -math.inf
        self._job: RedisJob | None = None
        self._follower: JobFrontier | None = None
        self._gained: tuple[list[tuple[int, Row]], list[HeldLane]] = [], []  # until there is a follower
        self._arrived: list[Row] = []
        self._changes: deque[Change] = deque()
        self._some = trio.Event()

    # What the engine asks.

    @property
    def is_alone(self) -> bool:
        """No other session that works is there, as far as is known."""
        return self._working <= self._works

    @property
    def is_started(self) -> bool:
        """``start()`` was read to its end, by whichever session."""
        return self._start == "done"

    def owns(self, part: int) -> bool:
        """Return whether a part is this session's."""
        return part in self.owned

    def owner_of(self, part: int) -> str:
        """Return the name of the process that has a part, as far as is known; "" where nobody has it."""
        return self._names.get(self._owners[part].decode(), "") if self._owners else ""

    def changes_so_far(self) -> Sequence[Change]:
        """Take out the changes that nobody has read yet: what they brought is in the frontier's counts."""
        changes = list(self._changes)
        self._changes.clear()
        return changes

    async def next_change(self) -> Change:
        """Wait for the next change, which memory has followed already. For one task. A checkpoint.

        Raises:
            JobError: The job is this process's no more, or its store can't be read or written.
        """
        while not self._changes:
            self._some = trio.Event()
            if self._job is not None:
                self._job.check()
            await self._some.wait()
        await trio.lowlevel.checkpoint()
        return self._changes.popleft()

    def leased_parts(self) -> Collection[int]:
        """Return the parts with requests that are leased: these can't be given back."""
        return () if self._follower is None else self._follower.leased_parts()

    async def give_back(self, kept: Mapping[int, Mapping[str, bytes]]) -> int:
        """Give parts back, each with values that its next owner reads, in one step. A checkpoint.

        The frontier forgets their lanes.

        Returns:
            How many requests were pending in them, held ones included.

        Raises:
            JobError: The job is this process's no more, or its store can't be written.
            ValueError: A request of one of them is leased, or one is not this session's. None is given back.
        """
        assert self._job is not None
        assert self._follower is not None
        await trio.lowlevel.checkpoint_if_cancelled()
        parts = kept.keys()
        if leased := parts & self._follower.leased_parts():
            raise ValueError(f"a request of part {min(leased)} is leased")
        if others := parts - self.owned.keys():
            raise ValueError(f"part {min(others)} is not this session's")
        pending = self._follower.gave_back(parts)
        for part in parts:
            del self.owned[part]
            self.kept.pop(part, None)
        self._losing -= parts
        self._giving += len(parts)

        def applied(_: StepResult) -> None:
            self._giving -= len(parts)

        await self._job.apply(Step(given_back=[(part, packed(values)) for part, values in kept.items()]), applied)
        return pending

    def say(self, words: bytes) -> None:
        """Have what this session says of itself stored with its next renewal, for those who look at the job."""
        self._said = words

    def count(self, counts: Callable[[], Counts], others: Callable[[Counts], None]) -> None:
        """Have what this session counts told to the others, and what they have counted to this one.

        That is each quarter of a second while others are there.

        Args:
            counts: Gives what this session has counted so far.
            others: Is called with what all others have, those included that are gone.
        """
        self._counts, self._hear_others = counts, others

    async def other_wish(self, known: str) -> str:
        """Wait until the job's processes are told to do something else than ``known``. A checkpoint.

        Returns:
            ``pause``: to send nothing; ``stop``: to end; "": to go on.
        """
        await trio.lowlevel.checkpoint()
        while self.wish == known:
            await self._wished.wait()
        return self.wish

    def ask_if_over(self, *, is_idle: bool) -> None:
        """Say whether this session has nothing to do, or has something again: only then it asks whether all is over."""
        self._is_over = self._is_over and is_idle
        self._idle_since = min(self._idle_since, trio.current_time()) if is_idle else math.inf
        if is_idle:
            self._polled_at = -math.inf
            if self._job is not None:
                self._job.stir()

    def started(self) -> None:
        """Have it written with the next step that ``start()`` has come to its end: no session reads it again."""
        self._start = "done"
        if self._job is not None:
            self._job.started()

    # What the job asks.

    @property
    def is_exporter(self) -> bool:
        """True if it has the items' export."""
        return self.exporter[0] == str(self.number)

    @property
    def has_more(self) -> bool:
        """True if there is more to be heard or taken at once."""
        return self._more

    @property
    def poll_at(self) -> float:
        """The instant on the run clock at which it wants to hear of the job."""
        if self._more:
            return -math.inf
        return self._polled_at + POLL if self._is_idle or not self.is_alone else math.inf

    def order(self) -> int:
        """Return the next order of coming: no two sessions give the same, and theirs grow alike."""
        now = self._began + int(trio.current_time() * 1e6)
        self._last_order = max(self._last_order + 1, now)
        return self._last_order << _SESSION_BITS | self.number % (1 << _SESSION_BITS)

    def work_for(self, job: RedisJob) -> None:
        """Tell what changes to a job that is open now."""
        self._job = job

    def follow(self, follower: JobFrontier) -> None:
        """Have changes told to ``follower``, those so far at once: they are no news to anybody else."""
        self._follower = follower
        follower.gained(*self._gained)
        follower.arrived(self._arrived)
        self._gained, self._arrived = ([], []), []

    @property
    def held(self) -> Sequence[HeldLane]:
        """The lanes of held requests, as long as nobody follows."""
        return self._gained[1]

    def requeued(self, rows: Sequence[Row]) -> None:
        """Note requests that this session has queued again, as long as nobody follows."""
        self._arrived += [row for row in rows if part_in(row[1]) in self.owned]

    def brought_forward(self, due: Mapping[int, int | None]) -> None:
        """Note when the first request of lanes may go, as long as nobody follows."""
        self._gained[1][:] = [attrs.evolve(lane, due=due.get(lane.number) or lane.due) for lane in self._gained[1]]

    def wake(self) -> None:
        """Have :meth:`next_change` look whether the job has failed."""
        self._some.set()

    def call(self, lease: float | None, *, takes: bool, leaves: str = "") -> Call:
        """Return the call that hears of the job.

        Args:
            lease: Seconds for which it is renewed; None: it is not.
            takes: Whether it takes parts, where it may.
            leaves: ``"clean"``, ``"unclean"``: how it leaves its parts, all of them; "": it stays.
        """
        length, said = ("", b"") if lease is None else (int(lease * 1e6), self._said)
        takes = takes and self._works
        flags = [int(flag) for flag in (takes, self._exports, self._is_idle and not self._is_over)]
        starves = takes and trio.current_time() - self._idle_since >= STARVED
        args = [self.number, self._takings, length, *flags, self.heard, said, leaves]
        args += [int(self.was_away), int(starves), self._count(), self._moved]
        return "share", self._keys.of_share, args

    def _count(self) -> str:
        if self._counts is None:
            return ""
        self._counted = self._counts()
        return " ".join(map(str, self._counted))

    def hear(self, answer: Sequence[Any]) -> int:
        """Take in its answer. Returns the position of the last item.

        Raises:
            SessionEnded: The session was ended by another, or the server has lost its last steps.
        """
        if answer[0] != b"ok":
            raise self.ended(answer[0])
        _, takings, last, arrived, more, working, too_many, start, over, end, exporter, name, left, *taken = answer
        *taken, wish, starving, counts, moved, owners, names = taken
        if owners:
            self._moved, self._owners, self._names = int(moved), owners, texts_of(names)
        self._polled_at = trio.current_time()
        self.was_away = False
        self._more = bool(more)
        is_joined = working > self._working
        self._working = int(working)
        self.exporter = exporter.decode(), name.decode("utf-8", "replace"), int(left)
        self.hear_arrived(arrived)
        self._hear_start(start.decode())
        self._hear_wish(wish.decode("utf-8", "replace"))
        if int(takings) > self._takings:
            self._takings = int(takings)
            self._hear_taken(int(last), *taken)
        self._choose(int(too_many), is_joined=is_joined)
        self._feed(int(starving))
        if self._counts is not None:
            told = zip(map(int, counts.split()), self._counted, strict=True)
            self._hear_others(Counts(*[together - own for together, own in told]))
        if over and self._is_idle and not self._is_over:
            self._is_over = True
            self._tell(JobFinished())
        return int(end)

    def ended(self, status: bytes) -> SessionEnded:
        """Return the error that says how a session has ended without its doing."""
        shown = self._shown
        if status == b"behind":
            words = "its server was restarted from an older state and has lost steps of this process"
            return SessionEnded(f"job {shown}: {words}: start it again, to go on from what the server has", shown)
        words = "this process was away for too long, and others go on in its place: start it again to join them"
        return SessionEnded(f"job {shown}: {words}", shown)

    def hear_arrived(self, members: Sequence[bytes]) -> None:
        """Take in what arrived, as far as it is news."""
        rows: list[Row] = []
        for member in members:
            _, number, request = member.split(b":", 2)
            if int(number) <= self.heard:
                continue
            self.heard = int(number)
            row = row_of(request)
            taken_at = self.owned.get(part_in(row[1]))
            # The survey of a part that was taken later has this request already.
            if taken_at is not None and self.heard > taken_at:
                rows.append(row)
        if not rows:
            return
        if self._follower is None:
            self._arrived += rows
            return
        self._tell_arrived(self._follower.arrived(rows), len(rows))

    def hear_sessions(self, sessions: int) -> None:
        """Take in how many sessions are there: where they have changed, it looks at the job at once."""
        self._more |= sessions != self._sessions
        self._sessions = sessions

    def hear_end(self, end: int) -> None:
        """Tell that others' items are in the outbox."""
        if self.is_exporter:
            if self._changes and isinstance(self._changes[-1], ItemsReceived):
                self._changes.pop()
            self._tell(ItemsReceived(end))

    def _hear_wish(self, wish: str) -> None:
        if wish != self.wish:
            self.wish = wish
            self._wished.set()
            self._wished = trio.Event()

    def _hear_start(self, start: str) -> None:
        if self._start not in (start, "done"):
            self._start = start
            if start == str(self.number):
                self._tell(StartReceived())

    def _hear_taken(self, last: int, tokens: Sequence[bytes], kept: Sequence[bytes], lanes: Sequence[Any]) -> None:
        parts, unclean = [], []
        for token, blob in zip(tokens, kept, strict=True):
            part = int(token.rstrip(b"!"))
            parts.append(part)
            self.owned[part] = last
            if token.endswith(b"!"):
                unclean.append(part)
            if blob:
                self.kept[part] = msgspec.msgpack.decode(blob, type=dict[str, bytes])
        self.unclean |= bool(unclean)
        rows: list[tuple[int, Row]] = []
        held: list[HeldLane] = []
        for count, first in zip(lanes[::2], lanes[1::2], strict=True):
            row = row_of(first)
            if is_held(row[1]):
                held.append(HeldLane(row[1], count, row[2]))
            else:
                rows.append((count, row))
        rows.sort(key=lambda row: abs(row[1][0]))
        if self._follower is None:
            self._gained[0].extend(rows)
            self._gained[1].extend(held)
            return
        found = self._follower.gained(rows, held)
        pending = sum(count for count, _ in rows) + sum(lane.count for lane in held)
        told = {part: dict(self.kept[part]) for part in parts if part in self.kept}
        self._tell(PartsReceived(parts, found, pending, told, frozenset(unclean)))

    def _choose(self, too_many: int, *, is_joined: bool) -> None:
        """Name the parts that are to be given back.

        To a session that has joined as much goes of what is pending as of the parts themselves. Who took parts beyond
        its share, as it had nothing to do, gives back the emptiest.
        """
        wanted = too_many - len(self._losing) - self._giving
        if wanted <= 0:
            return
        pending = self._pending()
        rest = sorted(self.owned.keys() - self._losing, key=lambda part: (-pending.get(part, 0), part))
        wanted = min(wanted, len(rest))
        self._lose(_spread(rest, wanted) if is_joined else rest[-wanted:])

    def _feed(self, starving: int) -> None:
        """Name parts with something pending for sessions that have had nothing to do for a while.

        The hash deals out hosts as dice do: of few hosts, or towards the end of a job, one session may have many more.
        """
        if not starving or self._is_idle or self._losing or self._giving:
            return
        pending = self._pending()
        rest = sorted(self.owned.keys() & pending.keys(), key=lambda part: (-pending[part], part))
        if wanted := len(rest) * starving // self._working:  # all that have something give as much
            self._lose(_spread(rest, wanted))

    @property
    def _is_idle(self) -> bool:
        return self._idle_since < math.inf

    def _pending(self) -> Mapping[int, int]:
        return {} if self._follower is None else self._follower.pending_by_part()

    def _lose(self, parts: Sequence[int]) -> None:
        self._losing.update(parts)
        self._tell(PartsRequired(parts))

    def _tell_arrived(self, lanes: Sequence[LaneKey], pending: int) -> None:
        last = self._changes[-1] if self._changes else None
        if isinstance(last, RequestsReceived):  # nobody has read it yet: one for both
            self._changes.pop()
            lanes, pending = list(dict.fromkeys([*last.lanes, *lanes])), last.pending + pending
        self._tell(RequestsReceived(lanes, pending))

    def _tell(self, change: Change) -> None:
        self._changes.append(change)
        self._some.set()


def _spread(parts: Sequence[int], count: int) -> list[int]:
    """Return so many of the parts, evenly from the first to the last."""
    return [parts[(2 * n + 1) * len(parts) // (2 * count)] for n in range(count)]


def packed(kept: Mapping[str, bytes]) -> bytes:
    """Return the values that are kept of a part as they are stored."""
    return msgspec.msgpack.encode(kept) if kept else b""
