"""A job in a server: numbered steps, one round trip at a time, under a lease.

Theory of operation. One long task, :func:`_serve`, owns the connection. Tasks hand in steps and readings and wait; what
comes while a round trip is under way goes with the next one, as one step of the session::

    what others do ◄────── share.lua, when it is due: :mod:`trawl.frontier.redis.sessions`
    readings ─────────────► next, in the same round trip
    steps of many tasks ──► one numbered step ──► apply.lua ──► ok: memory follows, in the order of the steps

A step has a number, one more than the last. Where an answer was lost, the same step is sent again under the same
number: the server applies it once. A server that has a lower number has lost steps (it was restarted from an older
state), and one that does not know the session has ended it, because its lease was over; both end this process's part,
and the job goes on from what the server has.

While the server is away nothing is lost and nothing ends. Steps wait. What was sent may end, and nothing is sent once
the lease may be over: its deadline is counted from before the call that renewed it, and is nine tenths of its length,
so nothing of this process is on the wire when another may have its parts. After that everything goes on.

Length: the steps that are handed in, the round trips that carry them and the opening share one state and one story.
"""

from __future__ import annotations

import logging
import math
import os
import random
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from secrets import token_hex
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import attrs
import msgspec
import trio

from trawl.errors import JobError, SessionEnded, TrawlError, UsageError
from trawl.frontier.base import LaneKey, OutboxItem
from trawl.frontier.codec import repack, unpack
from trawl.frontier.job import (
    AT_ONCE,
    READ_BYTES,
    SAFE,
    Job,
    LaneHead,
    Lease,
    Outbox,
    Place,
    Row,
    Snapshot,
    Step,
    Written,
    hash_of,
    wall_time,
)
from trawl.frontier.parts import HELD, PARTS, number_in, part_in, part_of_lane, suffixes_digest
from trawl.frontier.redis.client import (
    Address,
    Call,
    Durability,
    StoreAway,
    StoreServer,
    check_server,
    tell_durability,
    told,
)
from trawl.frontier.redis.client import connect as connect_server
from trawl.frontier.redis.layout import (
    FORMAT,
    KEY_BYTES,
    SUBSETS,
    Keys,
    end_of_lane,
    key_of,
    mark_of,
    place_of,
    start_of_lane,
)
from trawl.frontier.redis.line import StoreLine
from trawl.frontier.redis.sessions import Membership, packed

if TYPE_CHECKING:
    from trawl.frontier.stored import StoredFrontier

__all__ = ["RedisJob", "check_head", "kept_of", "open_job", "texts_of"]

logger: logging.Logger = logging.getLogger("trawl.frontier")

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds between two tries to reach a server
_CLOSE_SECONDS = 8.0
_LANES_AT_ONCE = 32
_TOLD = 5  # differences between two processes


class _Batch:
    """Steps and readings of one round trip."""

    __slots__ = ("calls", "done", "new", "readings", "steps", "stirred")

    def __init__(self) -> None:
        self.steps: list[tuple[Step, Callable[[Written], Any]]] = []
        self.new: list[tuple[int, int]] = []  # requests whose marks decide: the number of the step, and of the row
        self.readings: list[tuple[Call, Callable[[Any], Any]]] = []
        self.calls: list[Call] | None = None  # once they are made; the same ones are repeated
        self.done = trio.Event()
        self.stirred = trio.Event()  # it is done, or the server is away

    def end(self) -> None:
        self.done.set()
        self.stirred.set()


class RedisJob(Job):
    """A job in a server; :func:`open_job` makes it.

    Attributes:
        share: The session.
        serving: The scope of the long task, which is shielded: where all is cancelled, closing the job needs it.
    """

    share: Membership
    decides_seen: bool = True

    def __init__(self, address: Address, opened: _Opened, *, lease: float, replicas: int) -> None:
        super().__init__(address.shown, opened.kept, Outbox(opened.start, opened.end), is_new=opened.is_new)
        self.lease: Lease = Lease()
        self.share = opened.share
        self.was_killed: bool = opened.share.unclean
        self._kept_of = opened.share.kept
        self._keys = Keys(address.job)
        self._begun = opened.begun
        self._step = 0
        self._seen = opened.seen
        self._lease_seconds = lease
        self._replicas = replicas
        self._renew_at = -math.inf
        self._open = _Batch()
        self._running: _Batch | None = None
        self._wanted = trio.Event()
        self._failure: JobError | None = None
        self._requeued: Sequence[tuple[bytes, Row]] = ()
        self._orphans = opened.orphans
        self._given: list[tuple[Sequence[tuple[int, bytes]], Callable[[], None]]] = []
        self._changed_parts: set[int] = set()
        self._has_started = False
        self._is_closing = False
        self._has_ended = trio.Event()
        self.serving: trio.CancelScope = trio.CancelScope()
        self.share.work_for(self)

    @property
    def failure(self) -> JobError | None:
        """The error after which nothing is written any more."""
        return self._failure

    # What the frontier and the feeds ask.

    def number_of(self, lane: LaneKey) -> int:
        """Return a lane's number: its part, and the rest of a hash of its key."""
        return number_in(part_of_lane(lane), hash_of(lane))

    def held_number(self, lane: LaneKey) -> int:
        """Return the number of the lane in which the requests of a lane's part are held."""
        return number_in(part_of_lane(lane), HELD)

    def is_here(self, number: int) -> bool:
        """Return whether the lane of a number is in a part of this session."""
        return part_in(number) in self.share.owned

    def orders_after(self, last: int) -> Callable[[], int]:
        """Return what gives orders of coming, by the time since the job began and the session."""
        return self.share.order

    def follow(self, follower: StoredFrontier) -> None:
        """Have changes told to ``follower``, those since the job was opened at once."""
        self.share.follow(follower)

    async def apply(self, step: Step, applied: Callable[[Written], T]) -> T:
        """Write a step with the next round trip. A checkpoint.

        Raises:
            JobError: The job is another process's now, the server has lost steps, or it is away and this was cancelled.
        """
        result: list[T] = []
        await self._hand_in(lambda batch: batch.steps.append((step, lambda written: result.append(applied(written)))))
        return result[0]

    async def read_lanes(
        self, wanted: Sequence[tuple[int, int]], applied: Callable[[list[list[LaneHead]]], None]
    ) -> None:
        """Read the first records of lanes, each given by its number and a limit. A checkpoint."""
        args: list[bytes | str | int] = []
        for number, limit in wanted:
            args += (start_of_lane(number), end_of_lane(number), limit)

        def hear(answer: list[Any]) -> None:
            found, at = [], 0
            if not answer:  # much has arrived, which was heard of first: the caller asks again
                return
            for _ in wanted:
                rows = []
                for member in answer[at + 1 : at + 1 + answer[at]]:
                    order, _lane, priority, share = place_of(member)
                    rows.append((priority, share, order, member[KEY_BYTES:]))
                found.append(rows)
                at += 1 + len(rows)
            applied(found)

        await self._read_queue(args, hear)

    async def read_due(self, lanes: Sequence[int], now: int) -> list[tuple[Place, bytes]]:
        """Read the first requests of lanes of held ones that are due, in microseconds since 1970. A checkpoint."""
        limit = AT_ONCE // max(1, len(lanes))
        return await self._read_held(
            [(start_of_lane(lane), key_of((0, lane, now + 1, 0.0))[:16], limit) for lane in lanes]
        )

    async def read_snapshot(self, max_marks: int, now: float) -> Snapshot:
        """Read what a frontier begins with: lanes come with :meth:`follow`. A checkpoint."""
        await self._bring_forward(now)
        return Snapshot((), 0, self._seen, () if not self._seen else None)

    async def call(self, script: str, keys: Sequence[str], args: Sequence[bytes | str | int]) -> Any:
        """Run a script of this package on keys of the job, with the next round trip; its answer. A checkpoint.

        Where an answer is lost it is run again, so it must be one that may. Before steps that were handed in with it.

        Raises:
            JobError: The job is this process's no more, or its server refuses.
        """
        return await self._read((script, keys, args), _same)

    async def read_failed(self, limit: int) -> list[bytes]:
        """Read up to ``limit`` failed requests, as they are stored. A checkpoint."""
        found: list[bytes] = await self._read(("failed", [self._keys.failed], [0, limit]), _same)
        return found[::2]

    async def requeue(self, failed: Sequence[tuple[bytes, Row]]) -> None:
        """Queue failed requests again, in one step. A checkpoint."""
        self._requeued = failed
        await self.commit()

    async def aclose(self) -> None:
        """Write what was kept, and give the job free for the next process. A checkpoint; cancelled, it does so too.

        Where the server is away that is given up after a while: the next process waits for the end of the lease.

        Raises:
            JobError: The saved values could not be written.
        """
        with trio.move_on_after(_CLOSE_SECONDS, shield=True):
            try:
                if self._failure is None:
                    await self.commit()
            finally:
                self._is_closing = True
                self._wanted.set()
                await self._has_ended.wait()  # noqa: ASYNC102 - shielded and limited
        if not self._has_ended.is_set():
            raise JobError(f"job {self.name}: its server is away: what was learned last is not stored", self.name)

    def abandon(self) -> None:
        """Let go of the job as a killed process would: nothing more is written. For tests of resuming."""
        self.fail(JobError(f"job {self.name}: abandoned", self.name))

    async def _read_outbox(self, position: int, limit: int) -> Sequence[OutboxItem]:
        answer = await self._read(("items", [self._keys.items], [position + 1, limit, READ_BYTES]), _same)
        items = []
        for number, (place, item) in enumerate(zip(answer[::2], answer[1::2], strict=True), start=position + 1):
            if place != b"%d-0" % number:
                raise self.damaged(f"item {number}, which waits for the feeds, is not there")
            items.append(OutboxItem(number, item))
        return items

    async def _read_queue(self, args: Sequence[bytes | str | int], hear: Callable[[list[Any]], T]) -> T:
        """Read requests, having heard of all that arrived before."""

        def hear_both(answer: list[Any]) -> T:
            self.share.hear_arrived(answer[0])
            return hear(answer[1])

        heard = [self.share.session, self.share.heard]
        return await self._read(("lanes", [self._keys.queue, self._keys.arrivals], [*heard, *args]), hear_both)

    async def _read_held(self, wanted: Sequence[tuple[bytes, bytes, int]]) -> list[tuple[Place, bytes]]:
        answer: list[Any] = []
        while wanted and not answer:
            answer = await self._read_queue([arg for each in wanted for arg in each], _same)
        return [(self._place(each), each[KEY_BYTES:]) for each in answer if isinstance(each, bytes)]

    async def _bring_forward(self, now: float) -> None:
        """Limit waits after the clock was set back, of what is held when the job is opened."""
        changed: dict[int, None] = {}
        todo = [(held.number, start_of_lane(held.number)) for held in self.share.held]
        while todo:
            some, todo = todo[:_LANES_AT_ONCE], todo[_LANES_AT_ONCE:]
            limit = AT_ONCE // len(some)
            found = await self._read_held([(after, end_of_lane(lane), limit) for lane, after in some])
            last = {place[1]: place for place, _ in found}
            counts = Counter(place[1] for place, _ in found)
            todo += [(lane, key_of(last[lane]) + b"\xff") for lane, _ in some if counts[lane] == limit]
            for place, record in found:
                stored = unpack(record)
                if stored.until is not None and stored.until > now + stored.wait + 1.0:
                    until = now + stored.wait
                    row = (place[0], place[1], wall_time(until), 0.0, repack(stored, until=until))
                    await self.apply(Step(ended=place, rows=[row]), _same)
                    changed[place[1]] = None
        if changed:
            self.share.brought_forward((await self.apply(Step(due_of=list(changed)), _same)).due)

    def _place(self, member: bytes) -> Place:
        try:
            return place_of(member)
        except ValueError as error:
            raise self.damaged(str(error)) from error

    # Handing in, and waiting.

    async def _read(self, call: Call, hear: Callable[[Any], T]) -> T:
        result: list[T] = []
        await self._hand_in(lambda batch: batch.readings.append((call, lambda answer: result.append(hear(answer)))))
        return result[0]

    async def _hand_in(self, put: Callable[[_Batch], None]) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        self.check()
        batch = self._open
        put(batch)
        self._wanted.set()
        # What was handed in is carried out: a cancel is heard when it is, or once the server is away.
        with trio.CancelScope(shield=True):
            await batch.stirred.wait()
        if not batch.done.is_set():
            try:
                await batch.done.wait()
            except trio.Cancelled:  # the server is away, and nobody can wait for it any more
                words = f"job {self.name}: its server is away ({self.lease.away_reason}); nothing of it is lost"
                self.fail(JobError(words, self.name))
                raise
        self.check()

    def check(self) -> None:
        """Raise the error after which nothing is written any more, if there is one."""
        if self._failure is not None:
            raise type(self._failure)(str(self._failure), self._failure.directory) from self._failure
        if self.is_over:
            raise JobError(f"job {self.name}: it is closed", self.name)

    def fail(self, error: JobError) -> None:
        """End the writing with an error."""
        if self._failure is None:
            self._failure = error
        self._let_go()
        self.share.wake()
        self._wanted.set()

    def end(self) -> None:
        """Have all that wait go on, as nothing more is done."""
        self._has_ended.set()
        self._let_go()

    def _let_go(self) -> None:
        for batch in (self._running, self._open):
            if batch is not None:
                batch.end()

    # What the session asks.

    def stir(self) -> None:
        """Have the long task look at once whether there is something to do."""
        self._wanted.set()

    def started(self) -> None:
        """Have it written with the next step that ``start()`` has come to its end."""
        self._has_started = True

    async def refresh(self) -> None:
        """Read the saved values of the whole job again. A checkpoint."""
        state = await self._read(("state", self._keys.of_state, []), _same)
        self._kept.update({name: blob for name, blob in kept_of(state[4]).items() if name not in self._changed})

    async def give_back(self, kept: Sequence[tuple[int, bytes]], applied: Callable[[], None]) -> None:
        """Give parts back, each with what is kept of it. A checkpoint."""
        self._given.append((kept, applied))
        await self.commit()

    def _keep_of(self, part: int, name: str, blob: bytes | None) -> None:
        if part not in self.share.owned:
            raise ValueError(f"part {part} is not this session's")
        values = self.share.kept.setdefault(part, {})
        if blob is None:
            values.pop(name, None)
        else:
            values[name] = blob
        self._changed_parts.add(part)

    # The long task.

    async def rounds(self, server: StoreServer) -> StoreAway | None:
        """Do round trips until the job is closed, has failed, or the server is away, which is returned."""
        try:
            while self._failure is None:
                if not await self._anything():
                    break
                await self._round(server)
            if self._failure is None:
                leaves = "unclean" if self.was_killed else "clean"
                await server.run([self.share.call(None, takes=False, leaves=leaves)])
        except StoreAway as away:
            if not self._is_closing:
                return away
        except SessionEnded as error:
            return await self._ended(server, error)
        except JobError as error:
            self.fail(error)
        except (ValueError, TypeError, LookupError) as error:  # something else wrote into the store
            self.fail(self.damaged(f"its server gave what can't be read: {error!r}"))
        self.end()
        return None

    async def _ended(self, server: StoreServer, error: SessionEnded) -> StoreAway | None:
        """Fail, as the session was ended, or as there is no such job any more."""
        try:
            (head,) = await server.run([("head", [self._keys.head], [0])])
        except StoreAway as away:  # asked again once it is back
            return away
        begun = texts_of(head).get("begun")
        if begun == self._begun:
            self.fail(error)
        else:
            found = "has nothing of it" if begun is None else "has another one of this name, which began later"
            words = f"it is gone: its server {found}: restore the server's file, or start again to begin it anew"
            self.fail(JobError(f"job {self.name}: {words}", self.name))
        self._has_ended.set()
        return None

    async def _anything(self) -> bool:
        """Wait until there is something to do; False: the job is closed."""
        while self._running is None:
            if self._open.steps or self._open.readings:
                await trio.lowlevel.checkpoint()  # tasks that are about to run now hand in too
                self._running, self._open = self._open, _Batch()
            elif self._is_closing:
                return False
            elif trio.current_time() >= self._next_look:
                await trio.lowlevel.checkpoint()
                break
            else:
                self._wanted = trio.Event()
                with trio.move_on_at(self._next_look):
                    await self._wanted.wait()
                if self._failure is not None:
                    return False
        return True

    @property
    def _next_look(self) -> float:
        """The instant at which something is to be done even if nobody hands anything in."""
        return min(self._renew_at, self.share.poll_at)

    async def _round(self, server: StoreServer) -> None:
        batch = self._running
        if batch is not None and batch.calls is None:
            batch.calls = self._calls(batch)
        began = trio.current_time()
        renews = began >= self._renew_at
        calls: list[Call] = []
        looks = began >= self._next_look
        if looks:
            calls.append(self.share.call(self._lease_seconds if renews else None, takes=not self._is_closing))
        if batch is not None and batch.calls is not None:
            calls += batch.calls
        answers = await server.run(calls, self._replicas)
        told = answers.pop(0) if looks else None
        if batch is None:
            self._hear_share(told)
        else:
            self._running = batch  # it failed meanwhile, if it is no more
            self._hear(batch, answers, told)
        if renews:
            self._renewed(began)
        if batch is not None:
            self._running = None
            batch.end()

    def _renewed(self, began: float) -> None:
        lease = self.lease
        now = trio.current_time()
        # From before the call: the server counts from when it came there.
        lease.renew(began + SAFE * self._lease_seconds)
        self._renew_at = began + self._lease_seconds / 4.0
        if lease.away_since is not None:
            logger.info("job %s: its server is back after %.0f s", self.name, now - lease.away_since)
            lease.away_since = None

    def went_away(self, why: StoreAway) -> None:
        """Say that the server is away; steps wait, and whoever is cancelled waits no more."""
        self._renew_at = -math.inf
        self.share.was_away = True
        lease, now = self.lease, trio.current_time()
        lease.away_reason = str(why)
        if lease.away_since is None:
            lease.away_since = now
            words = "job %s: its server is away (%s): nothing is stored, and nothing is sent from %.0f s on"
            logger.warning(words, self.name, why, max(0.0, lease.until - now))
        for batch in (self._running, self._open):
            if batch is not None:
                batch.stirred.set()

    def give_up(self, error: TrawlError) -> None:
        """End the job with an error: its server will not have this process any more."""
        self.fail(error if isinstance(error, JobError) else JobError(str(error), self.name))
        self._has_ended.set()

    @property
    def is_over(self) -> bool:
        """True if nothing more is to be done."""
        return self._has_ended.is_set()

    def _calls(self, batch: _Batch) -> list[Call]:
        calls = [call for call, _ in batch.readings]
        if not batch.steps:
            return calls
        changed, unspilled = self._beside()
        keys = self._keys.of_apply
        session = self.share.session
        lanes = b"".join([start_of_lane(lane) for step, _ in batch.steps for lane in step.due_of])
        exported = self.outbox.start if self.share.is_exporter else ""
        args: list[bytes | str | int] = [session, self._step + 1, self.share.heard, exported, lanes]

        def number_of(key: str) -> int:
            keys.append(key)
            return len(keys)

        for number, (step, _) in enumerate(batch.steps):
            new = _write(step, args, self._keys, session, number_of)
            batch.new += [(number, row) for row in new]
        orphans, self._orphans = self._orphans, []
        for spilled in [*[f"{session} {order}" for order in unspilled], *orphans]:
            args += ("U", number_of(self._keys.spilled_by(*spilled.split(" "))), spilled)
        for member, row in self._requeued:
            args += ("Q", member, key_of(row) + row[4])
        self._requeued = ()
        for name, blob in changed.items():
            args += ("D", name) if blob is None else ("K", name, blob)
        self._write_parts(args, batch)
        return [*calls, ("apply", keys, args)]

    def _write_parts(self, args: list[bytes | str | int], batch: _Batch) -> None:
        """Append what is kept of parts, the parts that are given back, and that ``start()`` was read."""
        given, self._given = self._given, []
        parts, self._changed_parts = self._changed_parts, set()
        for part in sorted(parts & self.share.owned.keys()):
            args += ("V", part, packed(self.share.kept.get(part, {})))
        for some, applied in given:
            for part, kept in some:
                args += ("G", part, kept)
            batch.steps.append((_NOTHING, partial(_told, applied)))
        if self._has_started:
            self._has_started = False
            args.append("B")

    def _hear_share(self, told: Any) -> None:
        if told is not None:
            self._hear_end(self.share.hear(told))

    def _hear(self, batch: _Batch, answers: list[Any], told: Any) -> None:
        """Let memory follow: what was told of the job, the readings, and the steps, in the order of their making.

        Where the step was applied in an earlier round trip, whose answer was lost, it was made before the others: a
        part that it gave back may be taken again by now, with what it stored there.
        """
        written = answers.pop() if batch.steps else None
        if written is not None and written[0] not in (b"ok", b"again"):
            raise self.share.ended(written[0])
        is_again = False
        if written is not None and written[0] == b"again":
            is_again = True
            self._hear_step(batch, written)
        self._hear_share(told)
        for (_, hear), answer in zip(batch.readings, answers, strict=True):
            hear(answer)
        if written is None:
            return
        if not is_again:
            self._hear_step(batch, written)
        self.share.hear_arrived(written[4])
        self.share.hear_sessions(int(written[5]))

    def _hear_step(self, batch: _Batch, written: list[Any]) -> None:
        self._step += 1
        _, end, refused, firsts, *_ = written
        seen: dict[int, set[int]] = {}
        for number in refused.split():
            step, row = batch.new[int(number)]
            seen.setdefault(step, set()).add(row)
        lanes = [lane for step, _ in batch.steps for lane in step.due_of]
        due = {lane: self._place(first)[2] if first else None for lane, first in zip(lanes, firsts, strict=True)}
        is_spilled = any(step.is_spilled for step, _ in batch.steps)
        self._hear_end(int(end), None if is_spilled else [item for step, _ in batch.steps for item in step.items])
        for number, (each, applied) in enumerate(batch.steps):
            is_plain = number not in seen and not each.due_of
            applied(_WRITTEN if is_plain else Written(seen.get(number, ()), {lane: due[lane] for lane in each.due_of}))

    def _hear_end(self, end: int, own: Sequence[bytes] | None = ()) -> None:
        """Take in where the items end, of which ``own`` were put in by this session; None: nobody knows how many."""
        if end <= self.outbox.end:
            return
        are_all = own is not None and end - len(own) == self.outbox.end
        self.outbox.added(own if are_all else None, end)
        if not are_all and not self.share.is_alone:
            self.share.hear_end(end)


def _write(
    step: Step, args: list[bytes | str | int], keys: Keys, session: int, number_of: Callable[[str], int]
) -> list[int]:
    """Append a step's operations, as ``apply.lua`` reads them. Returns the rows that it refuses if they were seen."""
    new = []
    if step.ended is not None:
        if step.failed is None:
            args += ("E", key_of(step.ended))
        else:
            reason = step.failed[0].encode()
            args += ("F", key_of(step.ended), repr(step.failed[1]), len(reason).to_bytes(4, "big") + reason)
    for index, row in enumerate(step.rows):
        fingerprint = step.marks[index] if step.marks else None
        if fingerprint is None:
            args += ("A", key_of(row) + row[4])
            continue
        subset, mark = mark_of(fingerprint)
        if step.is_successor:
            args += ("S", number_of(keys.seen(subset)), mark, "A", key_of(row) + row[4])
        else:
            args += ("N", number_of(keys.seen(subset)), mark, key_of(row) + row[4])
            new.append(index)
    for place, (lane, priority, share) in step.moved:
        args += ("M", key_of(place), key_of((place[0], lane, priority, share)))
    for order, _, item in step.spilled:
        args += ("P", number_of(keys.spilled_by(session, order)), order, item)
    if step.is_spilled and step.ended is not None:
        args += ("T", number_of(keys.spilled_by(session, step.ended[0])), step.ended[0])
    for item in step.items:
        args += ("I", item)
    return new


@attrs.frozen(kw_only=True)
class _Opened:
    """State of a job when it is taken."""

    is_new: bool
    begun: str
    share: Membership
    seen: int
    start: int
    end: int
    kept: dict[str, bytes]
    orphans: list[str]


def _told(applied: Callable[[], None], _: Written) -> None:
    applied()


_WRITTEN = Written()
_NOTHING = Step()

Connect: TypeAlias = "Callable[[Address], AbstractAsyncContextManager[StoreServer]]"


@attrs.frozen(kw_only=True)
class _Part:
    """The part of a process in a job.

    Attributes:
        lease: The length of its lease, in seconds.
        exports: It copies the items to feeds.
        works: It sends requests.
        terms: What it must have in common with others that work on the job, as digests by name.
    """

    lease: float
    exports: bool
    works: bool
    terms: Mapping[str, str]


@asynccontextmanager
async def open_job(
    address: Address,
    durability: Durability = "always",
    *,
    lease: float = 15.0,
    connect: Connect | None = None,
    exports: bool = True,
    works: bool = True,
    terms: Mapping[str, str] = MappingProxyType({}),
) -> AsyncGenerator[RedisJob, None]:
    """Hold a job in a server for one run; enter and leave the block in one task.

    Several processes may hold it, and share its parts. One of them exports its items: if a process that was killed did,
    another that is to do it waits for the end of that one's lease.

    Args:
        address: Where it is; it is made if there is none.
        durability: What the server is to be set up for; checked, and said in the log.
        lease: The length of the lease, in seconds.
        connect: Makes the connection; None: through coredis.
        exports: This process copies the items to feeds.
        works: This process sends requests: it takes parts.
        terms: What it must have in common with others that work on the job, as digests by name.

    Raises:
        JobError: Another process exports the items, and this one is to; the server does not answer, or can't keep what
            ``durability`` asks for.
        UsageError: coredis is not installed; others work on the job on other terms.
    """
    raised: Exception | None = None
    part = _Part(lease=lease, exports=exports, works=works, terms=terms)
    async with trio.open_nursery() as nursery:
        try:
            job: RedisJob = await nursery.start(partial(_serve, address, durability, part, connect or connect_server))
            job.line = StoreLine(address, token_hex(8), life=lease, lease=job.lease, connect=connect or connect_server)
            try:
                yield job
            finally:
                try:
                    await job.aclose()  # noqa: ASYNC102 - shielded and limited
                finally:
                    job.serving.cancel()
                    job.end()
        except Exception as error:  # raised outside of the nursery, which would put it into a group
            raised = error
        nursery.cancel_scope.cancel()
    if raised is not None:
        raise raised


async def _serve(
    address: Address,
    durability: Durability,
    part: _Part,
    connect: Connect,
    *,
    task_status: trio.TaskStatus[RedisJob],
) -> None:
    """Open the job, and do its round trips, connecting again whenever the server was away."""
    with trio.CancelScope() as scope:
        job: RedisJob | None = None
        pause = _FIRST_PAUSE
        while job is None or not job.is_over:
            raised: TrawlError | None = None
            away: StoreAway | None = None
            try:
                async with connect(address) as server:
                    try:
                        facts = await server.facts()
                        if job is None:
                            job = await _open(server, facts, address, durability, part)
                            job.serving, scope.shield = scope, True
                            task_status.started(job)
                        job.share.run_id = facts.get("run_id", "")
                        away = await job.rounds(server)
                    except (JobError, UsageError) as error:
                        raised = error
                    except StoreAway as error:
                        away = error
            except StoreAway as error:
                away = error
            if job is None:
                raise raised or JobError(f"job {address.shown}: its server can't be reached: {away}", address.shown)
            if raised is not None:
                job.give_up(raised)
            if away is not None:
                if job.lease.away_since is None:
                    pause = _FIRST_PAUSE
                job.went_away(away)
                await trio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2.0 * pause, _LONGEST_PAUSE)


async def _open(
    server: StoreServer, facts: Mapping[str, str], address: Address, durability: Durability, part: _Part
) -> RedisJob:
    """Check the server, join the job, and read what it begins with."""
    replicas = check_server(facts, address, durability)
    keys = Keys(address.job)
    head: list[bytes | str | int] = [each for pair in _form().items() for each in pair]
    (refused,) = await server.run([("able", [keys.tried], [])])
    if refused:
        command, words = map(_text, refused)
        raise JobError(f"job {address.shown}: the server refuses {command}: {told(words)}", address.shown)
    await server.read_stream(keys.tried, "0", 0.0)  # this user may: the shared scopes will
    try:
        check_head((await server.run([("head", [keys.head], [1, *head])]))[0], address)
        opened = await _join(server, facts.get("run_id", ""), address, keys, part)
    except (ValueError, TypeError, LookupError) as error:
        words = f"job {address.shown}: it is damaged (what is stored in it can't be read: {error!r})"
        raise JobError(words, address.shown) from error
    if opened.share.is_alone:  # those who join others need not be told
        tell_durability(address, durability)
    return RedisJob(address, opened, lease=part.lease, replicas=replicas)


async def _join(server: StoreServer, run_id: str, address: Address, keys: Keys, part: _Part) -> _Opened:
    """Begin a session, and have it take what it is to have."""
    worker = f"{socket.gethostname()}:{os.getpid()}"
    terms = msgspec.json.encode(dict(part.terms)) if part.works else b""
    arguments: list[bytes | str | int] = [worker, int(part.lease * 1e6), int(part.works), terms, run_id]
    ((session, elapsed, others),) = await server.run([("join", keys.of_join, arguments)])
    share = Membership(keys, session, int(elapsed), works=part.works, exports=part.exports, shown=address.shown)
    share.run_id = run_id
    if part.works and (words := _differences(part.terms, others)):
        await server.run([share.call(None, takes=False, leaves="clean")])
        raise UsageError(f"job {address.shown}: {words}")
    if part.exports:
        await _export(server, share, address, part.lease)
    is_first = True
    while is_first or share.has_more:
        is_first = False
        (answer,) = await server.run([share.call(part.lease, takes=True)])
        share.hear(answer)
    (state,) = await server.run([("state", keys.of_state, [])])
    head = texts_of(state[0])
    live = {_text(live) for live in state[5][::2]}
    return _Opened(
        is_new=session == 1,
        begun=head.get("begun", ""),
        share=share,
        seen=int(head.get("marks", "0")),
        start=int(head.get("exported", "0")),
        end=int(head.get("end", "0")),
        kept=kept_of(state[4]),
        orphans=[_text(each) for each in state[7] if _text(each).partition(" ")[0] not in live],
    )


def _differences(terms: Mapping[str, str], others: Sequence[bytes]) -> str:
    """Say what differs between a process and one that works on the job already; "" for nothing."""
    for name, blob in zip(others[::2], others[1::2], strict=True):
        theirs = msgspec.json.decode(blob, type=dict[str, str]) if blob else {}
        differing = sorted(key for key in {*terms, *theirs} if terms.get(key) != theirs.get(key))
        if differing:
            what = f"{', '.join(differing[:_TOLD])}{' and more' if len(differing) > _TOLD else ''}"
            return f"{_text(name)} works on it, and differs in {what}: start this one with the same, or end that one"
    return ""


async def _export(server: StoreServer, share: Membership, address: Address, lease: float) -> None:
    """Have the session export the items. Where another does that may be killed, wait for the end of its lease."""
    until = -math.inf
    while True:
        (answer,) = await server.run([share.call(lease, takes=False)])
        share.hear(answer)
        if share.is_exporter:
            return
        _, name, left = share.exporter
        its_until = trio.current_time() + left / 1e6
        if until == -math.inf:
            until = its_until
            words = "job %s: %s has it; if that was killed, its lease is over in %.0f s: waiting"
            logger.warning(words, address.shown, name, max(0.0, left / 1e6))
        elif its_until > until + lease / 20.0:  # it has prolonged its lease: it lives
            break
        await trio.sleep(min(max(left / 1e6, 0.0) + 0.05, lease / 4.0))
    await server.run([share.call(None, takes=False, leaves="clean")])
    words = f"another process is using it ({name}): wait for its end, or join it without feeds"
    raise JobError(f"job {address.shown}: {words}", address.shown)


def kept_of(flat: Sequence[Any]) -> dict[str, bytes]:
    """Return the saved values by name."""
    return {_text(name): bytes(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}


def texts_of(flat: Sequence[Any]) -> dict[str, str]:
    """Return texts by name."""
    return {_text(name): _text(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}


def check_head(flat: Sequence[Any], address: Address) -> None:
    """Raise an error if a job is not of the form that this release writes.

    Raises:
        JobError: It is of another form.
        UsageError: There is no job.
    """
    head = texts_of(flat)
    shown = address.shown
    if not head:
        raise UsageError(f"job {shown}: there is no job of this name")
    for name, value in _form().items():
        if head.get(name) != str(value):
            words = f"its {name} is {head.get(name)!r}, and this release knows {value}"
            raise JobError(f"job {shown}: another release of trawl wrote it ({words}): go on with that one", shown)


def _form() -> Mapping[str, int | str]:
    """Return the form of a job that its head has to state."""
    return {"format": FORMAT, "parts": PARTS, "subsets": SUBSETS, "suffixes": suffixes_digest()}


def _same(found: T) -> T:
    return found


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
