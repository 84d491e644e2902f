"""A session: this process's membership in a job, and the parts that it owns. It follows the results of one script.

The job calls ``share.lua`` to renew the lease, when a step reports that a session has joined or left, and every quarter
of a second while there are other sessions or this session is idle. The script ends sessions whose leases have expired,
and assigns free parts to this session. For these parts it returns a *survey*, which has the number of requests and the
first request of each lane. It reports by how many parts this session exceeds its share, and returns requests that
arrived from other sessions. If a response is lost, nothing counts twice:

* Each call in which the session receives parts has a number, separate from the numbers of steps. If this session has
  not confirmed the number, the script returns the same parts again, in their current state.
* Arrived requests are numbered, and kept until a later call confirms them. The survey of a part includes the requests
  that arrived before the survey. The script returns the number of the last arrival with the survey, so this session
  knows which arrivals the survey includes.
* A read of lanes also returns all earlier arrivals, so it never returns a request that is missing from memory.

This session stops owning a part as soon as it releases the part in memory, although the step that records the release
comes later. If a request is stored in the part in the meantime, the next owner of the part finds it.

Length: the parts of a session, what it knows of others, and its calls follow from the results of one script.
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

__all__ = ["POLL", "JobSession", "OwnedParts", "packed"]

POLL = 0.25  # seconds between two calls of the script while there are other sessions, or this session is idle
STARVED = 0.5  # seconds of idleness before other sessions release parts with pending requests to a session

# Low bits of an arrival order. The other bits have room for 8 years in microseconds since the start of the job.
_SESSION_BITS = 14


class ChangeQueue:
    """The changes that the engine has not read yet."""

    def __init__(self) -> None:
        self._unread: deque[Change] = deque()
        self._some = trio.Event()

    def add(self, change: Change) -> None:
        """Add a change."""
        self._unread.append(change)
        self._some.set()

    def add_items(self, end: int) -> None:
        """Add that the outbox has items up to ``end``, instead of an unread earlier position."""
        if self._unread and isinstance(self._unread[-1], ItemsReceived):
            self._unread.pop()
        self.add(ItemsReceived(end))

    def add_arrived(self, lanes: Sequence[LaneKey], pending: int) -> None:
        """Add that requests arrived in lanes, together with an unread arrival."""
        last = self._unread[-1] if self._unread else None
        if isinstance(last, RequestsReceived):
            self._unread.pop()
            lanes, pending = list(dict.fromkeys([*last.lanes, *lanes])), last.pending + pending
        self.add(RequestsReceived(lanes, pending))

    def take_all(self) -> Sequence[Change]:
        """Return and remove the unread changes."""
        changes = list(self._unread)
        self._unread.clear()
        return changes

    async def take(self, check: Callable[[], None]) -> Change:
        """Wait for the next change, and call ``check`` before each wait. A checkpoint."""
        while not self._unread:
            self._some = trio.Event()
            check()
            await self._some.wait()
        await trio.lowlevel.checkpoint()
        return self._unread.popleft()

    def wake(self) -> None:
        """Let :meth:`take` call its check."""
        self._some.set()


class OwnedParts:
    """The parts that a session owns, and those that it is about to release.

    Attributes:
        owned: The parts, each with the number of the last arrival when the part was received.
        kept: The kept values of each part, by name.
        unclean: Whether the session has received parts that their last owner did not release.
        heard: Number of the last arrival that the session has received.
        takings: Number of the last call in which the session received parts.
    """

    def __init__(self, changes: ChangeQueue) -> None:
        self.owned: dict[int, int] = {}
        self.kept: dict[int, dict[str, bytes]] = {}
        self.unclean: bool = False
        self.heard: int = 0
        self.takings: int = 0
        self._changes = changes
        self._losing: set[int] = set()
        self._giving = 0
        self._follower: JobFrontier | None = None
        # Lanes to pass to the follower when there is one.
        self._gained: tuple[list[tuple[int, Row]], list[HeldLane]] = [], []
        self._arrived: list[Row] = []

    def leased(self) -> Collection[int]:
        """Return the parts with leased requests. These parts can't be released."""
        return () if self._follower is None else self._follower.leased_parts()

    def release(self, parts: Collection[int]) -> int:
        """Stop owning parts, and return the number of their pending requests. :meth:`released` must follow."""
        assert self._follower is not None
        if leased := set(parts).intersection(self.leased()):
            raise ValueError(f"a request of part {min(leased)} is leased")
        if others := set(parts) - self.owned.keys():
            raise ValueError(f"part {min(others)} is not this session's")
        pending = self._follower.parts_released(parts)
        for part in parts:
            del self.owned[part]
            self.kept.pop(part, None)
        self._losing -= set(parts)
        self._giving += len(parts)
        return pending

    def released(self, count: int) -> None:
        """Record that the release of ``count`` parts is stored."""
        self._giving -= count

    def follow(self, follower: JobFrontier) -> None:
        """Pass earlier changes to ``follower`` now, and later changes when they arrive."""
        self._follower = follower
        follower.gained(*self._gained)
        follower.arrived(self._arrived)
        self._gained, self._arrived = ([], []), []

    @property
    def held(self) -> Sequence[HeldLane]:
        """The lanes of held requests. Empty when there is a follower."""
        return self._gained[1]

    def requeued(self, rows: Sequence[Row]) -> None:
        """Record requests that this session has queued again before there is a follower."""
        self._arrived += [row for row in rows if part_in(row[1]) in self.owned]

    def brought_forward(self, due: Mapping[int, int | None]) -> None:
        """Update the times of the first requests of lanes before there is a follower."""
        self._gained[1][:] = [attrs.evolve(lane, due=due.get(lane.number) or lane.due) for lane in self._gained[1]]

    def hear_arrived(self, members: Sequence[bytes]) -> None:
        """Process arrived requests, except requests that this session has already received."""
        rows: list[Row] = []
        for member in members:
            _, number, request = member.split(b":", 2)
            if int(number) <= self.heard:
                continue
            self.heard = int(number)
            row = row_of(request)
            taken_at = self.owned.get(part_in(row[1]))
            # Skip a request that arrived before this session received its part, because the part's survey includes the
            # request.
            if taken_at is not None and self.heard > taken_at:
                rows.append(row)
        if not rows:
            return
        if self._follower is None:
            self._arrived += rows
            return
        self._changes.add_arrived(self._follower.arrived(rows), len(rows))

    def hear_taken(self, last: int, tokens: Sequence[bytes], kept: Sequence[bytes], lanes: Sequence[Any]) -> None:
        """Own the parts that the script assigns, with the survey of their lanes."""
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
        self._changes.add(PartsReceived(parts, found, pending, told, frozenset(unclean)))

    def choose(self, too_many: int, *, is_joined: bool) -> None:
        """Choose the parts to release.

        If a session has joined the job, the chosen parts are a fair sample, so that the new session gets the same
        fraction of the pending requests as of the parts. Otherwise this session has received more parts than its share
        while it was idle, and releases the parts with the fewest requests.
        """
        wanted = too_many - len(self._losing) - self._giving
        if wanted <= 0:
            return
        pending = self._pending()
        rest = sorted(self.owned.keys() - self._losing, key=lambda part: (-pending.get(part, 0), part))
        wanted = min(wanted, len(rest))
        self._lose(_spread(rest, wanted) if is_joined else rest[-wanted:])

    def feed(self, starving: int, working: int) -> None:
        """Choose parts with pending requests to release, because ``starving`` of the ``working`` sessions are idle.

        A hash distributes the hosts at random. With few hosts, or near the end of a job, one session may have many more
        pending requests than other sessions.
        """
        if not starving or self._losing or self._giving:
            return
        pending = self._pending()
        rest = sorted(self.owned.keys() & pending.keys(), key=lambda part: (-pending[part], part))
        if wanted := len(rest) * starving // working:
            # All sessions with pending requests release the same fraction.
            self._lose(_spread(rest, wanted))

    def _pending(self) -> Mapping[int, int]:
        return {} if self._follower is None else self._follower.pending_by_part()

    def _lose(self, parts: Sequence[int]) -> None:
        self._losing.update(parts)
        self._changes.add(PartsRequired(parts))


class OtherSessions:
    """The other sessions of a job, as far as a session knows them.

    Attributes:
        working: Number of sessions that take parts, this session included.
        is_led: Whether a command has started processes for the job, and leads them.
        exporter: The number of the session that exports the items, the name of its process, and the remaining time of
            its lease in microseconds.
        moved: Number of the last known change of owners.
    """

    def __init__(self) -> None:
        self.working: int = 1
        self.is_led: bool = False
        self.exporter: tuple[str, str, int] = ("", "", 0)
        self.moved: int = 0
        self._owners: Sequence[bytes] = ()
        self._names: Mapping[str, str] = {}
        self._sessions = 1
        self._counts: Callable[[], Counts] | None = None
        self._hear: Callable[[Counts], None] = lambda others: None
        self._counted = Counts()

    def owner_of(self, part: int) -> str:
        """Return the name of the process that owns a part; "" if no owner is known."""
        return self._names.get(self._owners[part].decode(), "") if self._owners else ""

    def hear_owners(self, moved: bytes, owners: Sequence[bytes], names: Sequence[bytes]) -> None:
        """Update the owners of all parts, unless they are still the known ones."""
        if owners:
            self.moved, self._owners, self._names = int(moved), owners, texts_of(names)

    def hear_sessions(self, sessions: int) -> bool:
        """Update the number of sessions. Returns True if it has changed."""
        has_changed, self._sessions = sessions != self._sessions, sessions
        return has_changed

    def count(self, counts: Callable[[], Counts], others: Callable[[Counts], None]) -> None:
        """Exchange counts with other sessions, every quarter of a second while there are other sessions.

        ``others`` receives the counts of all other sessions, including ended sessions.
        """
        self._counts, self._hear = counts, others

    def counted(self) -> str:
        """Return the current counts of this session for the script; "" if it has none."""
        if self._counts is None:
            return ""
        self._counted = self._counts()
        return " ".join(map(str, self._counted))

    def hear_counts(self, counts: bytes) -> None:
        """Report the counts of all other sessions, from the counts of all."""
        if self._counts is not None:
            told = zip(map(int, counts.split()), self._counted, strict=True)
            self._hear(Counts(*[together - own for together, own in told]))


class Polling:
    """The time of a session's next call to the script, and its idleness.

    Attributes:
        has_more: True if the script has more changes or parts for this session and should be called again immediately.
        idle_since: Event loop time since which this session is idle; ``inf`` if it is not.
        is_over: True if the whole job is finished.
    """

    def __init__(self) -> None:
        self.has_more: bool = False
        self.idle_since: float = math.inf
        self.is_over: bool = False
        self._called_at = -math.inf

    @property
    def is_idle(self) -> bool:
        """True if this session is idle."""
        return self.idle_since < math.inf

    def set_idle(self, *, is_idle: bool) -> None:
        """Set whether this session is idle, and call the script at once if it is."""
        self.is_over = self.is_over and is_idle
        self.idle_since = min(self.idle_since, trio.current_time()) if is_idle else math.inf
        if is_idle:
            self._called_at = -math.inf

    def heard(self, *, has_more: bool) -> None:
        """Record the response of a call."""
        self._called_at, self.has_more = trio.current_time(), has_more

    def next_at(self, *, is_alone: bool) -> float:
        """Return the event loop time of the next call."""
        if self.has_more or self._called_at == -math.inf:
            return -math.inf
        return self._called_at + POLL if self.is_idle or not is_alone else math.inf

    def soon(self) -> None:
        """Call the script at once."""
        self._called_at = -math.inf


class Inbox:
    """The orders and questions that the store has for the processes of a job, one per line, and this session's replies.

    ``orders`` or ``asks`` is "" if there are none.
    """

    def __init__(self) -> None:
        self.orders: str = ""
        self.asks: str = ""
        self._replies = b""
        self._changed = trio.Event()

    def hear(self, orders: str, asks: str) -> None:
        """Update the orders and questions."""
        if (orders, asks) != (self.orders, self.asks):
            self.orders, self.asks = orders, asks
            self._changed.set()
            self._changed = trio.Event()

    async def other_orders(self, known: str) -> str:
        """Wait until the orders differ from ``known``, and return them. A checkpoint."""
        await trio.lowlevel.checkpoint()
        while self.orders == known:
            await self._changed.wait()
        return self.orders

    async def questions(self) -> str:
        """Wait until there are questions, and return them. A checkpoint."""
        await trio.lowlevel.checkpoint()
        while not self.asks:
            await self._changed.wait()
        return self.asks

    def reply(self, replies: bytes) -> None:
        """Store the replies to all questions with the next call of the script."""
        self._replies = replies

    def take_replies(self) -> bytes:
        """Return and forget the replies that are not stored yet."""
        replies, self._replies = self._replies, b""
        return replies


class ArrivalOrders:
    """Arrival orders, which are unique in a job, and increase with time in all sessions.

    ``elapsed`` is in microseconds since the job started.
    """

    def __init__(self, number: int, elapsed: int) -> None:
        self._number = number % (1 << _SESSION_BITS)
        self._began = elapsed - int(trio.current_time() * 1e6)
        self._last = 0

    def next(self) -> int:
        """Return the next arrival order."""
        now = self._began + int(trio.current_time() * 1e6)
        self._last = max(self._last + 1, now)
        return self._last << _SESSION_BITS | self._number


class JobSession:
    """This process's session in a job in a server: its parts, and the changes that the engine reads.

    Attributes:
        number: Number of the session, unique in the job. The first session has number 1.
        began_at: Event loop time, in seconds, at which the first of the current sessions started.
        works: Whether the session takes parts. The leader of other processes does not.
        is_first: Whether no other session worked on the job when this session joined the job.
        pending: Number of pending requests of the whole job when this session joined the job.
        order: Returns the next arrival order.
        was_away: Whether the server has been unreachable since the script's last response.
        away_because: Why this process could not renew its lease; "" if the reason is unknown.
    """

    def __init__(self, keys: Keys, number: int, elapsed: int, *, works: bool, exports: bool, shown: str) -> None:
        self.number: int = number
        self.works: bool = works
        self.began_at: float = trio.current_time()
        self.is_first: bool = False
        self.pending: int = 0
        self.was_away: bool = False
        self.away_because: str = ""
        self._keys = keys
        self._exports = exports
        self._shown = shown
        self._start = ""
        self._said = b""
        self._changes = ChangeQueue()
        self.parts: OwnedParts = OwnedParts(self._changes)
        self.others: OtherSessions = OtherSessions()
        self.polling: Polling = Polling()
        self.order: Callable[[], int] = ArrivalOrders(number, elapsed).next
        self.inbox: Inbox = Inbox()
        self._job: RedisJob | None = None

    # Methods that the engine calls.

    @property
    def is_alone(self) -> bool:
        """True if this session does not know of another session that sends requests or leads processes."""
        return self.others.working <= self.works and not self.others.is_led

    @property
    def is_started(self) -> bool:
        """Whether some session has read ``start()`` to its end."""
        return self._start == "done"

    def owns(self, part: int) -> bool:
        """Return whether this session owns a part."""
        return part in self.parts.owned

    def changes_so_far(self) -> Sequence[Change]:
        """Return and remove the unread changes. The frontier already includes them."""
        return self._changes.take_all()

    async def next_change(self) -> Change:
        """Wait for the next change and return it. The frontier already includes it. Only one task may call this.

        A checkpoint. Raises JobError if this session has ended, or the job's store can't be used.
        """
        assert self._job is not None
        return await self._changes.take(self._job.check)

    async def give_back(self, kept: Mapping[int, Mapping[str, bytes]]) -> int:
        """Release parts in one step, and return the number of their pending requests, including held requests.

        The values are stored for the next owners. The frontier forgets the lanes of these parts. A checkpoint. Raises
        ValueError if a part has a leased request or does not belong to this session; then no part is released.
        """
        assert self._job is not None
        await trio.lowlevel.checkpoint_if_cancelled()
        pending = self.parts.release(kept.keys())

        def applied(_: StepResult) -> None:
            self.parts.released(len(kept))

        await self._job.apply(Step(given_back=[(part, packed(values)) for part, values in kept.items()]), applied)
        return pending

    def say(self, words: bytes) -> None:
        """With the next renewal, store a description of this session for processes that inspect the job."""
        self._said = words

    def reply(self, replies: bytes) -> None:
        """Store the replies to all questions as soon as possible."""
        self.inbox.reply(replies)
        self._look_soon()

    async def order_all(self, key: str, line: str) -> None:
        """Add an order to the list of the job, so that all its processes execute it. A checkpoint.

        It replaces an earlier order with the same key. ``line`` has a number and the key before the order.
        """
        assert self._job is not None
        await self._job.order(key, line)
        self._look_soon()

    def order_at(self, elapsed: int) -> int:
        """Return the arrival order of a time, in microseconds since the start of the job."""
        return elapsed << _SESSION_BITS

    def _look_soon(self) -> None:
        self.polling.soon()
        if self._job is not None:
            self._job.stir()

    def ask_if_over(self, *, is_idle: bool) -> None:
        """Set whether this session is idle. Only an idle session asks the server whether the whole job is finished."""
        self.polling.set_idle(is_idle=is_idle)
        if is_idle and self._job is not None:
            self._job.stir()

    def started(self) -> None:
        """With the next step, record that ``start()`` was read to its end, so that no session reads it again."""
        self._start = "done"
        if self._job is not None:
            self._job.started()

    # Methods that the job calls.

    @property
    def is_exporter(self) -> bool:
        """True if this session exports the items."""
        return self.others.exporter[0] == str(self.number)

    @property
    def poll_at(self) -> float:
        """Event loop time, in seconds, of the next call to the script."""
        return self.polling.next_at(is_alone=self.is_alone and not self.inbox.asks)

    def work_for(self, job: RedisJob) -> None:
        """Set the open job that this session notifies of changes."""
        self._job = job

    def wake(self) -> None:
        """Wake :meth:`next_change`, so that it checks whether the job has failed."""
        self._changes.wake()

    def call(self, lease: float | None, *, takes: bool, leaves: str = "") -> Call:
        """Return the call of the script that reports on the job.

        ``lease`` is in seconds; None to leave it unchanged. ``leaves`` is "" if the session stays. If it leaves the
        job, ``leaves`` is ``"clean"`` if its last sends are stored, otherwise ``"unclean"``.
        """
        length, said = ("", b"") if lease is None else (int(lease * 1e6), self._said)
        takes, polling = takes and self.works, self.polling
        flags = [int(flag) for flag in (takes, self._exports, polling.is_idle and not polling.is_over)]
        starves = takes and trio.current_time() - polling.idle_since >= STARVED
        args = [self.number, self.parts.takings, length, *flags, self.parts.heard, said, leaves]
        args += [int(self.was_away), int(starves), self.others.counted(), self.others.moved]
        args.append(self.inbox.take_replies())
        return "share", self._keys.of_share, args

    def renewal(self, lease: float) -> Call:
        """Return a call that only renews the lease, for a thread. Its response need not be processed."""
        args: list[bytes | str | int] = [self.number, self.parts.takings, int(lease * 1e6), 0, int(self._exports), 0]
        args += [self.parts.heard, b"", "", 0, 0, "", self.others.moved, b""]
        return "share", self._keys.of_share, args

    def hear(self, answer: Sequence[Any]) -> int:
        """Process the script's response, and return the position of the last item. Raises SessionEnded."""
        if answer[0] != b"ok":
            raise self.ended(answer[0])
        _, takings, last, arrived, more, working, too_many, start, over, end, exporter, name, left, *taken = answer
        *taken, orders, starving, counts, moved, owners, names, asks = taken
        parts, others, polling = self.parts, self.others, self.polling
        others.hear_owners(moved, owners, names)
        polling.heard(has_more=bool(more))
        self.was_away = False
        is_joined = working > others.working
        others.working = int(working)
        others.exporter = exporter.decode(), name.decode("utf-8", "replace"), int(left)
        parts.hear_arrived(arrived)
        if self._start not in (start.decode(), "done"):
            self._start = start.decode()
            if self._start == str(self.number):
                self._changes.add(StartReceived())
        self.inbox.hear(orders.decode("utf-8", "replace"), asks.decode("utf-8", "replace"))
        if int(takings) > parts.takings:
            parts.takings = int(takings)
            parts.hear_taken(int(last), *taken)
        parts.choose(int(too_many), is_joined=is_joined)
        if not polling.is_idle:
            parts.feed(int(starving), others.working)
        others.hear_counts(counts)
        # Until the processes of a leader have left, their receivers of ``spider_idle`` may add requests.
        if over and polling.is_idle and not polling.is_over and (self.works or not others.working):
            polling.is_over = True
            self._changes.add(JobFinished())
        return int(end)

    def ended(self, status: bytes) -> SessionEnded:
        """Return the error for a session that the server or another session has ended."""
        shown = self._shown
        if status == b"behind":
            words = "its server was restarted from an older state and has lost steps of this process"
            return SessionEnded(f"job {shown}: {words}: start it again to continue from the server's state", shown)
        because = f" ({self.away_because})" if self.away_because else ""
        words = f"this process was away for too long{because}, and others have taken over: start it again to join them"
        return SessionEnded(f"job {shown}: {words}", shown)

    def hear_sessions(self, sessions: int) -> None:
        """Update the number of sessions. If it has changed, the script is called again immediately."""
        self.polling.has_more |= self.others.hear_sessions(sessions)

    def hear_end(self, end: int) -> None:
        """Notify the engine that the outbox has items of other sessions, if this session exports items."""
        if self.is_exporter:
            self._changes.add_items(end)


def _spread(parts: Sequence[int], count: int) -> list[int]:
    """Return ``count`` of the parts, spread evenly over the list."""
    return [parts[(2 * n + 1) * len(parts) // (2 * count)] for n in range(count)]


def packed(kept: Mapping[str, bytes]) -> bytes:
    """Return the kept values of a part in stored form."""
    return msgspec.msgpack.encode(kept) if kept else b""
