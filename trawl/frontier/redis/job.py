"""A job in a server: numbered steps, one round trip at a time, under a lease.

Theory of operation. One long task, :meth:`RedisJob.serve`, owns the connection. Tasks hand in steps and readings and
wait; what comes while a round trip is under way goes with the next one, as one step of the partition::

    steps of many tasks ──► one numbered step ──► apply.lua ──► ok: memory follows, in the order of the steps
    readings ─────────────► before it, in the same round trip
    the lease ────────────► renewed a few times within its length

A step has a number, one more than the last. Where an answer was lost, the same step is sent again under the same
number: the server applies it once. A server that has a lower number has lost steps (it was restarted from an older
state), and one with another epoch has been given to another process; both end this process's part, and the job goes on
from what the server has.

While the server is away nothing is lost and nothing ends. Steps wait. What was sent may end, and nothing is sent once
the lease may be over: its deadline is counted from before the call that renewed it, and is nine tenths of its length,
so nothing of this process is on the wire when another may have the job. After that everything goes on.

Length: the steps that are handed in, the round trips that carry them and the opening share one state and one story.
"""

from __future__ import annotations

import logging
import math
import os
import random
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, TypeAlias, TypeVar

import attrs
import trio

from trawl.errors import JobError, TrawlError, UsageError
from trawl.frontier.base import OutboxItem
from trawl.frontier.codec import repack, unpack
from trawl.frontier.job import (
    AT_ONCE,
    HELD,
    READ_BYTES,
    Job,
    LaneHead,
    Lease,
    Outbox,
    Place,
    Row,
    Snapshot,
    Step,
    wall_time,
)
from trawl.frontier.redis.client import Address, Call, Durability, StoreAway, StoreServer, check_server
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

__all__ = ["RedisJob", "check_head", "kept_of", "open_job"]

logger: logging.Logger = logging.getLogger("trawl.frontier")

T = TypeVar("T")

_SAFE = 0.9  # of a lease: clocks of two machines run at different speeds, by far less than this
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds between two tries to reach a server
_CLOSE_SECONDS = 8.0
_LANES_AT_ONCE = 200
_EPOCH = 1 << 40  # orders of one owner; a later owner's are all larger


class _Batch:
    """Steps and readings of one round trip."""

    __slots__ = ("calls", "done", "readings", "steps", "stirred")

    def __init__(self) -> None:
        self.steps: list[tuple[Step, Callable[[int | None], Any]]] = []
        self.readings: list[tuple[Call, Callable[[Any], Any]]] = []
        self.calls: list[Call] | None = None  # once they are made; the same ones are repeated
        self.done = trio.Event()
        self.stirred = trio.Event()  # it is done, or the server is away

    def end(self) -> None:
        self.done.set()
        self.stirred.set()


class RedisJob(Job):
    """A job in a server; :func:`open_job` makes it."""

    def __init__(self, address: Address, opened: _Opened, *, lease: float, replicas: int) -> None:
        super().__init__(address.shown, opened.kept, Outbox(opened.start, opened.end), is_new=opened.is_new)
        self.lease: Lease = Lease()
        self.was_killed: bool = opened.was_killed
        self._keys = Keys(address.job)
        self._epoch = opened.epoch
        self._step = opened.step
        self._seen = opened.seen
        self._lease_seconds = lease
        self._replicas = replicas
        self._renew_at = -math.inf
        self._open = _Batch()
        self._running: _Batch | None = None
        self._wanted = trio.Event()
        self._failure: JobError | None = None
        self._requeued: Sequence[tuple[bytes, Row]] = ()
        self._is_closing = False
        self._has_ended = trio.Event()
        for order in opened.spilled:
            self.unspill(order)

    @property
    def failure(self) -> JobError | None:
        """The error after which nothing is written any more."""
        return self._failure

    # What the frontier and the feeds ask.

    async def apply(self, step: Step, applied: Callable[[int | None], T]) -> T:
        """Write a step with the next round trip. A checkpoint.

        Raises:
            JobError: The job is another process's now, the server has lost steps, or it is away and this was cancelled.
        """
        result: list[T] = []
        await self._hand_in(lambda batch: batch.steps.append((step, lambda first: result.append(applied(first)))))
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
            for _ in wanted:
                rows = []
                for member in answer[at + 1 : at + 1 + answer[at]]:
                    order, _lane, priority, share = place_of(member)
                    rows.append((priority, share, order, member[KEY_BYTES:]))
                found.append(rows)
                at += 1 + len(rows)
            applied(found)

        await self._read(("lanes", [self._keys.queue], args), hear)

    async def read_seen(self, marks: Sequence[bytes], applied: Callable[[set[bytes]], None]) -> set[bytes]:
        """Read which of ``marks`` were seen. A checkpoint."""
        keys: dict[str, int] = {}
        args: list[bytes | str | int] = []
        for mark in marks:
            subset, number = mark_of(mark)
            args += (keys.setdefault(self._keys.seen(subset), len(keys) + 1), number)

        def hear(answer: list[Any]) -> set[bytes]:
            seen = {mark for mark, is_seen in zip(marks, answer, strict=True) if is_seen}
            applied(seen)
            return seen

        return await self._read(("seen", list(keys), args), hear)

    async def read_due(self, now: int) -> list[tuple[Place, bytes]]:
        """Read the first held requests that are due at ``now``, in microseconds since 1970. A checkpoint."""
        return await self._read_held(key_of((0, HELD, now + 1, 0.0))[:16])

    async def read_snapshot(self, max_marks: int, now: float) -> Snapshot:
        """Read what a frontier begins with. A checkpoint."""
        after, lanes, held = b"", [], 0
        while True:
            found = await self._read(("survey", [self._keys.queue], [after, _LANES_AT_ONCE]), _same)
            for count, first in zip(found[::2], found[1::2], strict=True):
                order, lane, priority, share = self._place(first)
                if lane == HELD:
                    held = count
                else:
                    lanes.append((count, (lane, priority, share, order, first[KEY_BYTES:])))
                after = first[:8] + b"\xff" * (KEY_BYTES - 7)
            if len(found) < 2 * _LANES_AT_ONCE:
                break
        lanes.sort(key=lambda lane: abs(lane[1][3]))
        due = await self._bring_forward(now) if held else None
        marks = () if not self._seen else None
        return Snapshot(lanes, self._epoch * _EPOCH, self._seen, marks, held, due)

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
        self._fail(JobError(f"job {self.name}: abandoned", self.name))

    async def _read_outbox(self, position: int, limit: int) -> Sequence[OutboxItem]:
        answer = await self._read(("items", [self._keys.items], [position + 1, limit, READ_BYTES]), _same)
        items = []
        for number, (place, item) in enumerate(zip(answer[::2], answer[1::2], strict=True), start=position + 1):
            if place != b"%d-0" % number:
                raise self.damaged(f"item {number}, which waits for the feeds, is not there")
            items.append(OutboxItem(number, item))
        return items

    async def _read_held(self, below: bytes, after: bytes = start_of_lane(HELD)) -> list[tuple[Place, bytes]]:
        answer = await self._read(("lanes", [self._keys.queue], [after, below, AT_ONCE]), _same)
        return [(self._place(member), member[KEY_BYTES:]) for member in answer[1:]]

    async def _bring_forward(self, now: float) -> int | None:
        """Limit waits after the clock was set back. Returns the time of the first that is held."""
        after = start_of_lane(HELD)
        while held := await self._read_held(end_of_lane(HELD), after):
            after = key_of(held[-1][0]) + b"\xff"
            for place, record in held:
                stored = unpack(record)
                if stored.until is not None and stored.until > now + stored.wait + 1.0:
                    until = now + stored.wait
                    row = (place[0], HELD, wall_time(until), 0.0, repack(stored, until=until))
                    await self.apply(Step(ended=place, rows=[row]), _same)
        return await self.apply(Step(moved=()), _same)

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
        self._check()
        batch = self._open
        put(batch)
        self._wanted.set()
        with trio.CancelScope(shield=True):
            await batch.stirred.wait()
        if not batch.done.is_set():
            try:
                await batch.done.wait()
            except trio.Cancelled:  # the server is away, and nobody can wait for it any more
                words = f"job {self.name}: its server is away ({self.lease.away_reason}); nothing of it is lost"
                self._fail(JobError(words, self.name))
                raise
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise JobError(str(self._failure), self._failure.directory) from self._failure

    def _fail(self, error: JobError) -> None:
        if self._failure is None:
            self._failure = error
        for batch in (self._running, self._open):
            if batch is not None:
                batch.end()
        self._wanted.set()

    # The long task.

    async def rounds(self, server: StoreServer) -> StoreAway | None:
        """Do round trips until the job is closed, has failed, or the server is away, which is returned."""
        try:
            while self._failure is None:
                if not await self._anything():
                    break
                await self._round(server)
            if self._failure is None:
                left_by = "killed" if self.was_killed else ""
                await server.run([("drop", [self._keys.partition], [self._epoch, left_by])])
        except StoreAway as away:
            if not self._is_closing:
                return away
        except JobError as error:
            self._fail(error)
        except (ValueError, TypeError, LookupError) as error:  # something else wrote into the store
            self._fail(self.damaged(f"its server gave what can't be read: {error!r}"))
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
            elif trio.current_time() >= self._renew_at:
                break
            else:
                self._wanted = trio.Event()
                with trio.move_on_at(self._renew_at):
                    await self._wanted.wait()
                if self._failure is not None:
                    return False
        return True

    async def _round(self, server: StoreServer) -> None:
        batch = self._running
        if batch is not None and batch.calls is None:
            batch.calls = self._calls(batch)
        began = trio.current_time()
        renews = began >= self._renew_at
        calls: list[Call] = [] if batch is None or batch.calls is None else batch.calls
        renewing: list[Call] = []
        if renews:
            renewing = [("renew", [self._keys.partition], [self._epoch, int(self._lease_seconds * 1e6)])]
        answers = await server.run([*renewing, *calls], self._replicas)
        if renews:
            taken, *owner = answers.pop(0)
            if not taken:
                raise self._fenced(owner[0])
            self._renewed(began)
        if batch is not None:
            self._running = batch  # it failed meanwhile, if it is no more
            self._hear(batch, answers)
            self._running = None
            batch.end()

    def _renewed(self, began: float) -> None:
        lease = self.lease
        now = trio.current_time()
        lease.renew(began + _SAFE * self._lease_seconds)
        self._renew_at = began + self._lease_seconds / 4.0
        if lease.away_since is not None:
            logger.info("job %s: its server is back after %.0f s", self.name, now - lease.away_since)
            lease.away_since = None

    def went_away(self, why: StoreAway) -> None:
        """Say that the server is away; steps wait, and whoever is cancelled waits no more."""
        self._renew_at = -math.inf
        lease, now = self.lease, trio.current_time()
        lease.away_reason = str(why)
        if lease.away_since is None:
            lease.away_since = now
            words = "job %s: its server is away (%s): nothing is stored, and nothing is sent from %.0f s on"
            logger.warning(words, self.name, why, max(0.0, lease.until - now))
        for batch in (self._running, self._open):
            if batch is not None:
                batch.stirred.set()

    @property
    def is_over(self) -> bool:
        """True if nothing more is to be done."""
        return self._has_ended.is_set()

    def _fenced(self, worker: object) -> JobError:
        other = _text(worker) or "nobody"
        words = f"job {self.name}: it is not this process's any more ({other} has it): this one was away for too long"
        return JobError(words, self.name)

    def _calls(self, batch: _Batch) -> list[Call]:
        calls = [call for call, _ in batch.readings]
        if not batch.steps:
            return calls
        changed, unspilled = self._beside()
        keys = self._keys.all
        args: list[bytes | str | int] = [self._epoch, self._step + 1, self.outbox.start]

        def number_of(key: str) -> int:
            keys.append(key)
            return len(keys)

        for step, _ in batch.steps:
            _write(step, args, self._keys, number_of)
        for order in unspilled:
            args += ("U", number_of(self._keys.spilled_by(order)), order)
        for member, row in self._requeued:
            args += ("Q", member, key_of(row) + row[4])
        self._requeued = ()
        for name, blob in changed.items():
            args += ("D", name) if blob is None else ("K", name, blob)
        return [*calls, ("apply", keys, args)]

    def _hear(self, batch: _Batch, answers: list[Any]) -> None:
        """Let memory follow: the readings, which were made before the step, and the steps in their order.

        Where the step was applied in an earlier round trip, whose answer was lost, the readings were made after it.
        """
        written = answers.pop() if batch.steps else None
        if written is not None and written[0] not in (b"ok", b"again"):
            if written[0] == b"fenced":
                raise self._fenced(written[1])
            lost = self._step - int(written[1])
            raise JobError(
                f"job {self.name}: its server was restarted from an older state and has lost {lost} steps: start the"
                f" crawl again; it goes on from what the server has",
                self.name,
            )
        if written is not None and written[0] == b"again":
            self._hear_step(batch, written)
            written = None
        for (_, hear), answer in zip(batch.readings, answers, strict=True):
            hear(answer)
        if written is not None:
            self._hear_step(batch, written)

    def _hear_step(self, batch: _Batch, written: list[Any]) -> None:
        self._step += 1
        end = int(written[1])
        first = self._place(written[2])[2] if written[2] else None
        if any(step.is_spilled for step, _ in batch.steps):
            self.outbox.added(None, end)
        elif end > self.outbox.end:
            self.outbox.added([item for step, _ in batch.steps for item in step.items], end)
        for _, applied in batch.steps:
            applied(first)


def _write(step: Step, args: list[bytes | str | int], keys: Keys, number_of: Callable[[str], int]) -> None:
    """Append a step's operations, as ``apply.lua`` reads them."""
    if step.ended is not None:
        if step.failed is None:
            args += ("E", key_of(step.ended))
        else:
            reason = step.failed[0].encode()
            args += ("F", key_of(step.ended), repr(step.failed[1]), len(reason).to_bytes(4, "big") + reason)
    for row in step.rows:
        args += ("A", key_of(row) + row[4])
    for mark in step.marks:
        subset, number = mark_of(mark)
        args += ("S", number_of(keys.seen(subset)), number)
    for place, (lane, priority, share) in step.moved or ():
        args += ("M", key_of(place), key_of((place[0], lane, priority, share)))
    for order, _, item in step.spilled:
        args += ("P", number_of(keys.spilled_by(order)), order, item)
    if step.is_spilled and step.ended is not None:
        args += ("T", number_of(keys.spilled_by(step.ended[0])), step.ended[0])
    for item in step.items:
        args += ("I", item)


@attrs.frozen(kw_only=True)
class _Opened:
    """State of a job when it is taken."""

    is_new: bool
    was_killed: bool
    epoch: int
    step: int
    seen: int
    start: int
    end: int
    kept: dict[str, bytes]
    spilled: list[int]


Connect: TypeAlias = "Callable[[Address], AbstractAsyncContextManager[StoreServer]]"


@asynccontextmanager
async def open_job(
    address: Address, durability: Durability = "always", *, lease: float = 15.0, connect: Connect | None = None
) -> AsyncGenerator[RedisJob, None]:
    """Hold a job in a server for one run; enter and leave the block in one task.

    If a process that was killed had the job, this waits for the end of its lease.

    Args:
        address: Where it is; it is made if there is none.
        durability: What the server is to be set up for; checked, and said in the log.
        lease: The length of the lease, in seconds.
        connect: Makes the connection; None: through coredis.

    Raises:
        JobError: Another process has it; the server does not answer, or can't keep what ``durability`` asks for.
        UsageError: coredis is not installed.
    """
    raised: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            job: RedisJob = await nursery.start(partial(_serve, address, durability, lease, connect or connect_server))
            try:
                yield job
            finally:
                await job.aclose()  # noqa: ASYNC102 - shielded and limited
        except Exception as error:  # raised outside of the nursery, which would put it into a group
            raised = error
        nursery.cancel_scope.cancel()
    if raised is not None:
        raise raised


async def _serve(
    address: Address,
    durability: Durability,
    lease: float,
    connect: Connect,
    *,
    task_status: trio.TaskStatus[RedisJob],
) -> None:
    """Open the job, and do its round trips, connecting again whenever the server was away."""
    job: RedisJob | None = None
    pause = _FIRST_PAUSE
    while job is None or not job.is_over:
        raised: TrawlError | None = None
        away: StoreAway | None = None
        try:
            async with connect(address) as server:
                try:
                    if job is None:
                        job = await _open(server, address, durability, lease)
                        task_status.started(job)
                    away = await job.rounds(server)
                except (JobError, UsageError) as error:
                    raised = error
                except StoreAway as error:
                    away = error
        except StoreAway as error:
            away = error
        if job is None:
            raise raised or JobError(f"job {address.shown}: its server can't be reached: {away}", address.shown)
        if away is not None:
            if job.lease.away_since is None:
                pause = _FIRST_PAUSE
            job.went_away(away)
            await trio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2.0 * pause, _LONGEST_PAUSE)


async def _open(server: StoreServer, address: Address, durability: Durability, lease: float) -> RedisJob:
    """Check the server, take the job, and read what it begins with."""
    replicas = check_server(await server.facts(), address, durability)
    keys = Keys(address.job)
    try:
        return await _open_checked(server, address, keys, lease, replicas)
    except (ValueError, TypeError, LookupError) as error:
        words = f"job {address.shown}: it is damaged (what is stored in it can't be read: {error!r})"
        raise JobError(words, address.shown) from error


async def _open_checked(server: StoreServer, address: Address, keys: Keys, lease: float, replicas: int) -> RedisJob:
    head: list[bytes | str | int] = ["format", FORMAT, "partitions", 1, "subsets", SUBSETS]
    check_head((await server.run([("head", [keys.head], [1, *head])]))[0], address)
    worker = f"{socket.gethostname()}:{os.getpid()}"
    taken = await _take(server, keys, address, worker, lease)
    epoch, step, seen, end, start, was_given = [int(number) for number in taken]
    (state,) = await server.run([("state", keys.all, [])])
    opened = _Opened(
        is_new=epoch == 1,
        was_killed=epoch > 1 and not was_given,
        epoch=epoch,
        step=step,
        seen=seen,
        start=start,
        end=end,
        kept=kept_of(state[6]),
        spilled=[int(order) for order in state[7]],
    )
    return RedisJob(address, opened, lease=lease, replicas=replicas)


async def _take(server: StoreServer, keys: Keys, address: Address, worker: str, lease: float) -> list[Any]:
    """Take the partition. Where another has it, wait once for the end of its lease, which it may not prolong."""
    owner, left = "", 0.0
    for is_last in (False, True):
        (answer,) = await server.run([("own", [keys.partition], [worker, int(lease * 1e6)])])
        if answer[0]:
            return list(answer[1:])
        owner, left = _text(answer[1]), int(answer[2]) / 1e6
        if not is_last:
            words = "job %s: %s has it; if that was killed, its lease is over in %.0f s: waiting"
            logger.warning(words, address.shown, owner, left)
            await trio.sleep(left + 0.05)
    raise JobError(f"job {address.shown}: another process is using it ({owner}): wait for its end", address.shown)


def kept_of(flat: Sequence[Any]) -> dict[str, bytes]:
    """Return the saved values by name."""
    return {_text(name): bytes(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}


def check_head(flat: Sequence[Any], address: Address) -> None:
    """Raise an error if a job is not of the form that this release writes.

    Raises:
        JobError: It is of another form.
        UsageError: There is no job.
    """
    head = {_text(name): _text(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}
    shown = address.shown
    if not head:
        raise UsageError(f"job {shown}: there is no job of this name")
    expected = {"format": FORMAT, "partitions": 1, "subsets": SUBSETS}
    for name, value in expected.items():
        if head.get(name) != str(value):
            words = f"its {name} is {head.get(name)!r}, and this release knows {value}"
            raise JobError(f"job {shown}: another release of trawl wrote it ({words}): go on with that one", shown)


def _same(found: T) -> T:
    return found


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
