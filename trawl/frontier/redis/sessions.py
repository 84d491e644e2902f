"""A session: this process's membership in a job and the parts that it owns, as reported by one script.

``share.lua`` is called when the lease must be renewed, when a step reports that a session has joined or left, and every
quarter of a second while there are other sessions or this one is idle. It ends sessions whose leases have expired,
hands out free parts with a survey of their lanes, reports how many parts this session has above its share, and returns
requests that arrived from other sessions. A lost response never makes anything count twice:

* Takings of parts have their own numbers, separate from the steps. The script repeats a taking that this session has
  not confirmed, in its current state.
* Arrivals are numbered, and kept until a later call confirms them. The survey of a part contains the requests that
  arrived before it. The number of the last arrival at that time shows which requests it contains.
* A read of lanes also returns all earlier arrivals, so it never contains a request that memory does not know.

A part stops being ours as soon as it is released here, although the step that records this comes later. Requests that
are stored in the part in between are found by its next owner.

Only a job in a server has a session. This module keeps the news from other sessions separate from the steps that the
job writes.

Length: one object follows the results of one script in order.
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
from trawl.frontier.base import Counts, LaneKey
from trawl.frontier.job import HeldLane, Row, Step, StepResult
from trawl.frontier.parts import (
    Change,
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
"""Seconds between two checks of a job that other sessions work on too."""

STARVED = 0.5
"""Seconds for which a session must be idle before other sessions give it some of their parts with pending requests."""

_SESSION_BITS = 14  # low bits of an arrival order; the others hold 8 years in microseconds since the job started


class JobSession:
    """This process's session in a job in a server: its parts, and the changes that the engine reads.

    ::

        change = await job.session.next_change()      in one task, one after another
        if isinstance(change, PartsRequired):
            ...                                     send nothing more to their hosts, and wait for requests in flight
            await job.session.give_back({part: {"throttle": blob}})

    Args:
        keys: The job's keys.
        number: Number of the session, unique in the job: 1 for the first.
        elapsed: Microseconds since the job started.
        works: Whether the session takes parts.
        exports: Whether the session should write items to feeds.
        shown: The address of the job for messages.

    Attributes:
        began_at: Event loop time, in seconds, at which the first of the current sessions started.
        is_first: Whether no other session worked on the job when this one joined it.
        owned: Its parts, with the number of the last arrival at the time when each was taken.
        exporter: The session that exports the items, the name of its process, and the rest of its lease in
            microseconds.
        heard: Number of the last arrival that was received.
        kept: The kept values of each part, by name.
        unclean: Whether it has taken parts that their owner did not release.
        was_away: Whether the server was unreachable since its last response.
        wish: ``pause``, ``stop``, or "".
        away_because: Why this process could not renew its lease; "" if it does not know.
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
        self.away_because: str = ""
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
        self._gained: tuple[list[tuple[int, Row]], list[HeldLane]] = [], []  # only until there is a follower
        self._arrived: list[Row] = []
        self._changes: deque[Change] = deque()
        self._some = trio.Event()

    # Called by the engine.

    @property
    def is_alone(self) -> bool:
        """Whether no other working session is known."""
        return self._working <= self._works

    @property
    def is_started(self) -> bool:
        """Whether some session has read ``start()`` to its end."""
        return self._start == "done"

    def owns(self, part: int) -> bool:
        """Return whether this session owns a part."""
        return part in self.owned

    def owner_of(self, part: int) -> str:
        """Return the name of the process that owns a part; "" if no owner is known."""
        return self._names.get(self._owners[part].decode(), "") if self._owners else ""

    def changes_so_far(self) -> Sequence[Change]:
        """Return and remove the unread changes. The frontier's counts include them already."""
        changes = list(self._changes)
        self._changes.clear()
        return changes

    async def next_change(self) -> Change:
        """Wait for the next change, which memory includes already, and return it. For one task. A checkpoint.

        Raises:
            JobError: If the job no longer belongs to this process, or its store can't be read or written.
        """
        while not self._changes:
            self._some = trio.Event()
            if self._job is not None:
                self._job.check()
            await self._some.wait()
        await trio.lowlevel.checkpoint()
        return self._changes.popleft()

    def leased_parts(self) -> Collection[int]:
        """Return the parts with leased requests. These parts can't be released."""
        return () if self._follower is None else self._follower.leased_parts()

    async def give_back(self, kept: Mapping[int, Mapping[str, bytes]]) -> int:
        """Release parts, with values for their next owners, in one step. A checkpoint.

        The frontier forgets their lanes.

        Returns:
            The number of requests pending in them, including held requests.

        Raises:
            JobError: If the job no longer belongs to this process, or its store can't be written.
            ValueError: If a part has a leased request or does not belong to this session. No part is released.
        """
        assert self._job is not None
        assert self._follower is not None
        await trio.lowlevel.checkpoint_if_cancelled()
        parts = kept.keys()
        if leased := parts & self._follower.leased_parts():
            raise ValueError(f"a request of part {min(leased)} is leased")
        if others := parts - self.owned.keys():
            raise ValueError(f"part {min(others)} is not this session's")
        pending = self._follower.parts_released(parts)
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
        """Store a description of this session with its next renewal, for processes that look at the job."""
        self._said = words

    def count(self, counts: Callable[[], Counts], others: Callable[[Counts], None]) -> None:
        """Exchange counts with the other sessions, every quarter of a second while there are any.

        Args:
            counts: Returns the current counts of this session.
            others: Receives the counts of all other sessions, including ended sessions.
        """
        self._counts, self._hear_others = counts, others

    async def other_wish(self, known: str) -> str:
        """Wait until the wish for the job's processes differs from ``known``, and return it. A checkpoint.

        Returns:
            ``pause`` to send nothing, ``stop`` to end, or "" to continue.
        """
        await trio.lowlevel.checkpoint()
        while self.wish == known:
            await self._wished.wait()
        return self.wish

    def ask_if_over(self, *, is_idle: bool) -> None:
        """Set whether this session is idle. Only an idle session asks whether the whole job is finished."""
        self._is_over = self._is_over and is_idle
        self._idle_since = min(self._idle_since, trio.current_time()) if is_idle else math.inf
        if is_idle:
            self._polled_at = -math.inf
            if self._job is not None:
                self._job.stir()

    def started(self) -> None:
        """Record with the next step that ``start()`` was read to its end, so that no session reads it again."""
        self._start = "done"
        if self._job is not None:
            self._job.started()

    # Called by the job.

    @property
    def is_exporter(self) -> bool:
        """True if this session exports the items."""
        return self.exporter[0] == str(self.number)

    @property
    def has_more(self) -> bool:
        """True if more news or parts are available at once."""
        return self._more

    @property
    def poll_at(self) -> float:
        """Event loop time, in seconds, of the next call to the script."""
        if self._more:
            return -math.inf
        return self._polled_at + POLL if self._is_idle or not self.is_alone else math.inf

    def order(self) -> int:
        """Return the next arrival order. It is unique among sessions, and in all of them it grows with time."""
        now = self._began + int(trio.current_time() * 1e6)
        self._last_order = max(self._last_order + 1, now)
        return self._last_order << _SESSION_BITS | self.number % (1 << _SESSION_BITS)

    def work_for(self, job: RedisJob) -> None:
        """Set the open job that this session notifies of changes."""
        self._job = job

    def follow(self, follower: JobFrontier) -> None:
        """Pass changes to ``follower`` from now on, and the changes so far at once, without an event for the engine."""
        self._follower = follower
        follower.gained(*self._gained)
        follower.arrived(self._arrived)
        self._gained, self._arrived = ([], []), []

    @property
    def held(self) -> Sequence[HeldLane]:
        """The lanes of held requests, until there is a follower."""
        return self._gained[1]

    def requeued(self, rows: Sequence[Row]) -> None:
        """Record requests that this session has queued again, until there is a follower."""
        self._arrived += [row for row in rows if part_in(row[1]) in self.owned]

    def brought_forward(self, due: Mapping[int, int | None]) -> None:
        """Update the times of the first requests of lanes, until there is a follower."""
        self._gained[1][:] = [attrs.evolve(lane, due=due.get(lane.number) or lane.due) for lane in self._gained[1]]

    def wake(self) -> None:
        """Wake :meth:`next_change`, so that it checks whether the job has failed."""
        self._some.set()

    def call(self, lease: float | None, *, takes: bool, leaves: str = "") -> Call:
        """Return the call of the script that reports on the job.

        Args:
            lease: Seconds for which to renew the lease; None to leave it.
            takes: Whether to take parts, if this session works.
            leaves: ``"clean"`` or ``"unclean"`` if the session leaves all its parts, depending on whether its last
                sends are stored; "" if it stays.
        """
        length, said = ("", b"") if lease is None else (int(lease * 1e6), self._said)
        takes = takes and self._works
        flags = [int(flag) for flag in (takes, self._exports, self._is_idle and not self._is_over)]
        starves = takes and trio.current_time() - self._idle_since >= STARVED
        args = [self.number, self._takings, length, *flags, self.heard, said, leaves]
        args += [int(self.was_away), int(starves), self._count(), self._moved]
        return "share", self._keys.of_share, args

    def renewal(self, lease: float) -> Call:
        """Return a call that only renews the lease. Its response need not be processed.

        For the thread that renews the lease while the event loop is blocked.
        """
        args: list[bytes | str | int] = [self.number, self._takings, int(lease * 1e6), 0, int(self._exports), 0]
        args += [self.heard, b"", "", 0, 0, "", self._moved]
        return "share", self._keys.of_share, args

    def _count(self) -> str:
        if self._counts is None:
            return ""
        self._counted = self._counts()
        return " ".join(map(str, self._counted))

    def hear(self, answer: Sequence[Any]) -> int:
        """Process the script's response, and return the position of the last item.

        Raises:
            SessionEnded: If another session ended this one, or the server has lost its last steps.
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
        """Return the error for a session that was ended by others."""
        shown = self._shown
        if status == b"behind":
            words = "its server was restarted from an older state and has lost steps of this process"
            return SessionEnded(f"job {shown}: {words}: start it again to continue from the server's state", shown)
        because = f" ({self.away_because})" if self.away_because else ""
        words = f"this process was away for too long{because}, and others have taken over: start it again to join them"
        return SessionEnded(f"job {shown}: {words}", shown)

    def hear_arrived(self, members: Sequence[bytes]) -> None:
        """Process arrived requests, except known ones."""
        rows: list[Row] = []
        for member in members:
            _, number, request = member.split(b":", 2)
            if int(number) <= self.heard:
                continue
            self.heard = int(number)
            row = row_of(request)
            taken_at = self.owned.get(part_in(row[1]))
            # If the part was taken later, its survey contains this request already.
            if taken_at is not None and self.heard > taken_at:
                rows.append(row)
        if not rows:
            return
        if self._follower is None:
            self._arrived += rows
            return
        self._tell_arrived(self._follower.arrived(rows), len(rows))

    def hear_sessions(self, sessions: int) -> None:
        """Update the number of sessions. If it has changed, the session checks the job at once."""
        self._more |= sessions != self._sessions
        self._sessions = sessions

    def hear_end(self, end: int) -> None:
        """Report that the outbox has items of other sessions."""
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
        """Choose the parts to release.

        A session that has joined gets the same fraction of the pending requests as of the parts. A session that took
        parts beyond its share while it was idle releases its emptiest parts.
        """
        wanted = too_many - len(self._losing) - self._giving
        if wanted <= 0:
            return
        pending = self._pending()
        rest = sorted(self.owned.keys() - self._losing, key=lambda part: (-pending.get(part, 0), part))
        wanted = min(wanted, len(rest))
        self._lose(_spread(rest, wanted) if is_joined else rest[-wanted:])

    def _feed(self, starving: int) -> None:
        """Choose parts with pending requests for sessions that have been idle for a while.

        The hash distributes hosts at random. With few hosts, or near the end of a job, one session may have many more
        than others.
        """
        if not starving or self._is_idle or self._losing or self._giving:
            return
        pending = self._pending()
        rest = sorted(self.owned.keys() & pending.keys(), key=lambda part: (-pending[part], part))
        if wanted := len(rest) * starving // self._working:  # all sessions with pending requests give the same share
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
        if isinstance(last, RequestsReceived):  # the engine has not read the last change, so merge both
            self._changes.pop()
            lanes, pending = list(dict.fromkeys([*last.lanes, *lanes])), last.pending + pending
        self._tell(RequestsReceived(lanes, pending))

    def _tell(self, change: Change) -> None:
        self._changes.append(change)
        self._some.set()


def _spread(parts: Sequence[int], count: int) -> list[int]:
    """Return ``count`` of the parts, evenly spread from first to last."""
    return [parts[(2 * n + 1) * len(parts) // (2 * count)] for n in range(count)]


def packed(kept: Mapping[str, bytes]) -> bytes:
    """Return the kept values of a part in stored form."""
    return msgspec.msgpack.encode(kept) if kept else b""
