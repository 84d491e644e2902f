"""A job in a server. It sends numbered steps, makes one round trip at a time, and owns its hosts under a lease.

Theory of operation. :mod:`trawl.frontier.redis.startup` starts one task that owns the connection, the *connection
task*. Other tasks submit steps and reads, and wait for the results. Steps and reads that are submitted during a round
trip are sent in the next round trip, in which all these steps are combined to one step of the session::

    other sessions ◄────── share.lua, when it is due: :mod:`trawl.frontier.redis.sessions`
    reads ────────────────► next, in the same round trip
    steps of many tasks ──► one numbered step ──► apply.lua ──► ok: memory is updated in the order of the steps

Steps are numbered consecutively. If a response is lost, the same step is sent again under the same number, and the
server applies it only once. If the server's last number is lower than expected, the server was restarted from an older
state and has lost steps. If the server does not know the session, the session's lease has expired and the server has
ended the session. In both cases this process stops working on the job, and the job continues from the state in the
server.

While the server is unreachable, no data is lost and the crawl does not end. Steps wait. Requests in flight may finish,
but nothing is sent when the lease may have expired. The deadline is nine tenths of the lease after the start of the
call that renewed the lease. So this process has no requests in flight when another process may take over its parts.
When the server responds again, the crawl continues.

Length: the methods that submit steps and the methods that send them share one state.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio

from trawl.errors import HostGivenUp, JobError, SessionEnded, TrawlError
from trawl.frontier.base import LaneKey, OutboxItem
from trawl.frontier.job import (
    AT_ONCE,
    READ_BYTES,
    SAFE,
    Job,
    Outbox,
    Place,
    Row,
    SessionLease,
    Snapshot,
    Step,
    StepResult,
    as_is,
    hash_of,
    wall_time,
)
from trawl.frontier.parts import HELD, number_in, part_in, part_of_lane
from trawl.frontier.record_format import repack, requeued_row, unpack
from trawl.frontier.redis.client import Address, Call, StoreConnectionError, StoreServer
from trawl.frontier.redis.layout import (
    KEY_BYTES,
    Keys,
    end_of_lane,
    failed_parts,
    kept_of,
    key_of,
    mark_of,
    place_of,
    row_of,
    start_of_lane,
    text_of,
    texts_of,
)
from trawl.frontier.redis.sessions import JobSession, packed
from trawl.frontier.running_callbacks import state_folder

if TYPE_CHECKING:
    from trawl.frontier.job_frontier import JobFrontier
    from trawl.frontier.redis.lease_keeper import LeaseKeeper

__all__ = ["RedisJob"]

logger: logging.Logger = logging.getLogger("trawl.frontier")

T = TypeVar("T")

_CLOSE_SECONDS = 8.0
_GIVEN_UP = HostGivenUp.WORDS.encode()
_LANES_AT_ONCE = 32
_WRITTEN = StepResult()


class _QueueEntry(Generic[T]):
    """A submitted step or read, and the result that ``applied`` returned for the response."""

    __slots__ = ("applied", "result", "what")

    def __init__(self, what: Any, applied: Callable[[Any], T]) -> None:
        self.what = what
        self.applied = applied
        self.result: T


class _Pipeline:
    """The steps and reads of one round trip, and the tasks that wait for it. Redis calls this a pipeline.

    Submitted work is always carried out. If a waiting task is cancelled, the cancellation takes effect when the work is
    done, or when the server becomes unreachable. A shielded cancel scope and an event for each task would cost more
    than all other work for a step.
    """

    __slots__ = ("_is_away", "_is_done", "_waiting", "calls", "new", "readings", "steps")

    def __init__(self) -> None:
        self.steps: list[_QueueEntry[Any]] = []
        self.new: list[tuple[int, int]] = []  # indexes (step, row) of rows that are stored only if their marks are new
        self.readings: list[_QueueEntry[Any]] = []
        self.calls: list[Call] | None = None  # set only once, because a repeated round trip sends the same calls
        self._waiting: list[trio.lowlevel.Task] = []
        self._is_away = False
        self._is_done = False

    async def ended(self) -> None:
        """Wait until the round trip is done or the job has ended. A checkpoint."""
        task = trio.lowlevel.current_task()
        # If the server becomes unreachable, the task wakes and waits again, so that a pending cancellation is
        # delivered.
        while not self._is_done:
            self._waiting.append(task)
            try:
                await trio.lowlevel.wait_task_rescheduled(self._cancelled)
            except BaseException:
                self._waiting.remove(task)
                raise

    def end(self) -> None:
        """Wake all waiting tasks."""
        self._is_done = True
        self._wake()

    def went_away(self) -> None:
        """Allow cancelled tasks to stop waiting, because the server is unreachable."""
        self._is_away = True
        self._wake()

    def _cancelled(self, _: object) -> trio.lowlevel.Abort:
        return trio.lowlevel.Abort.SUCCEEDED if self._is_away else trio.lowlevel.Abort.FAILED

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            trio.lowlevel.reschedule(task)


class _RoundTrips:
    """The submitted work: that of the next round trip (``open``) and of the round trip in progress.

    Attributes:
        renew_at: Event loop time, in seconds, of the next renewal of the lease.
        has_ended: Set when the job has ended.
    """

    def __init__(self) -> None:
        self.open: _Pipeline = _Pipeline()
        self.running: _Pipeline | None = None
        self.renew_at: float = -math.inf
        self.has_ended: trio.Event = trio.Event()
        self._wanted = trio.Event()

    def stir(self) -> None:
        """Wake :meth:`idle`."""
        self._wanted.set()

    async def idle(self, until: float) -> None:
        """Wait for work, until an event loop time at most. A checkpoint."""
        self._wanted = trio.Event()
        with trio.move_on_at(until):
            await self._wanted.wait()

    def let_go(self) -> None:
        """Wake all waiting tasks, because the job has ended or failed."""
        for pipeline in self._pipelines():
            pipeline.end()

    def went_away(self) -> None:
        """Let cancelled tasks stop waiting, and renew the lease when the server responds again."""
        self.renew_at = -math.inf
        for pipeline in self._pipelines():
            pipeline.went_away()

    def _pipelines(self) -> list[_Pipeline]:
        return [self.open] if self.running is None else [self.running, self.open]


class RedisJob(Job):
    """A job in a server, created by :func:`~trawl.frontier.redis.startup.open_job` from the result of ``state.lua``.

    Attributes:
        keeper: Renews the lease while the event loop is blocked; None in a simulation.
        serving: The shielded cancel scope of the connection task. Closing the job needs this task even if the crawl is
            cancelled.
    """

    session: JobSession
    decides_seen: bool = True

    def __init__(
        self, address: Address, session: JobSession, state: Sequence[Any], *, lease: float, replicas: int
    ) -> None:
        head = texts_of(state[0])
        outbox = Outbox(int(head.get("exported", "0")), int(head.get("end", "0")))
        super().__init__(address.shown, kept_of(state[4]), outbox, is_new=session.number == 1)
        self.lease: SessionLease = SessionLease()
        self.session = session
        self.was_killed: bool = session.parts.unclean
        self._kept_of = session.parts.kept
        self._address = address
        self._keys = Keys(address.job)
        self._begun = head.get("begun", "")
        session.inbox.orders = head.get("orders", "")
        self._step = 0
        self._seen = int(head.get("marks", "0"))
        self._lease_seconds = lease
        self._replicas = replicas
        self._trips = _RoundTrips()
        self._failure: JobError | None = None
        live = {text_of(session) for session in state[5][::2]}
        # Spilled items to remove. The requests of ended sessions are pending again, and will yield these items again.
        self._orphans = [each for each in map(text_of, state[7]) if each.partition(" ")[0] not in live]
        self._changed_parts: set[int] = set()
        self._has_started = False
        self._is_closing = False
        self.serving: trio.CancelScope = trio.CancelScope()
        self.keeper: LeaseKeeper | None = None
        self.session.work_for(self)

    @property
    def failure(self) -> JobError | None:
        """The error that ended writing; None if there is none."""
        return self._failure

    # Methods that the frontier and the feeds call.

    def number_of(self, lane: LaneKey) -> int:
        """Return a lane's number, which consists of its part and bits of a hash of its key."""
        return number_in(part_of_lane(lane), hash_of(lane))

    def held_number(self, lane: LaneKey) -> int:
        """Return the number of the lane of held requests in a lane's part."""
        return number_in(part_of_lane(lane), HELD)

    def is_here(self, number: int) -> bool:
        """Return whether the lane with this number is in a part of this session."""
        return part_in(number) in self.session.parts.owned

    def orders_after(self, last: int) -> Callable[[], int]:
        """Return a function that returns arrival orders, made of the time since the job started and the session."""
        return self.session.order

    def follow(self, follower: JobFrontier) -> None:
        """Pass the changes since the job was opened to ``follower`` now, and all later changes when they arrive."""
        self.session.parts.follow(follower)

    async def apply(self, step: Step, applied: Callable[[StepResult], T]) -> T:
        """Write a step with the next round trip. A checkpoint.

        Raises JobError also if another process owns the job now, if the server has lost steps, or if this call is
        cancelled while the server is unreachable.
        """
        return await self._submit(step, applied)

    async def read_lanes(self, wanted: Sequence[tuple[int, int]], applied: Callable[[list[list[Row]]], None]) -> None:
        """Read the first records of lanes, which are passed as numbers and limits. A checkpoint."""
        args: list[bytes | str | int] = []
        for number, limit in wanted:
            args += (start_of_lane(number), end_of_lane(number), limit)

        def hear(answer: list[Any]) -> None:
            found, at = [], 0
            if not answer:  # the call returned only arrivals, because there are many; the caller reads again
                return
            for _ in wanted:
                found.append([row_of(member) for member in answer[at + 1 : at + 1 + answer[at]]])
                at += 1 + len(found[-1])
            applied(found)

        await self._read_queue(args, hear)

    async def read_due(self, lanes: Sequence[int], now: int) -> list[Row]:
        """Read the first held requests that are due at ``now``, in microseconds since the epoch. A checkpoint."""
        limit = AT_ONCE // max(1, len(lanes))
        wanted = [(start_of_lane(lane), key_of((0, lane, now + 1, 0.0))[:16], limit) for lane in lanes]
        return await self._read_held(wanted)

    async def read_after(self, lane: int, place: Place | None) -> list[Row]:
        """Read the first requests of a lane after a place, or its first ones. A checkpoint."""
        start = start_of_lane(lane) if place is None else key_of(place) + b"\xff"
        return await self._read_held([(start, end_of_lane(lane), AT_ONCE)])

    async def read_snapshot(self, max_marks: int, now: float) -> Snapshot:
        """Read the initial state of a frontier. :meth:`follow` passes the lanes later. A checkpoint."""
        await self._bring_forward(now)
        return Snapshot((), 0, self._seen, () if not self._seen else None)

    async def read_failed(self, limit: int, after: int = 0) -> list[bytes]:
        """Read up to ``limit`` failed requests in stored form. Skip the first ``after`` of them. A checkpoint."""
        found: list[bytes] = await self._read(("failed", [self._keys.failed], [after, limit]), as_is)
        return found[::2]

    async def requeue_failed(self, now: float, *, are_given_up: bool = False) -> list[Row]:
        """Queue failed requests, or only those of given-up hosts, again as if never sent, and return their rows.

        ``now`` is in seconds since the epoch. A checkpoint.
        """
        rows: list[Row] = []
        others = 0
        while found := await self.read_failed(AT_ONCE, others):
            wanted = [member for member in found if not are_given_up or failed_parts(member)[0].startswith(_GIVEN_UP)]
            others += len(found) - len(wanted)
            requeued = []
            for member in wanted:
                order, lane, _, _ = self._place(member)
                requeued.append((member, requeued_row(order, lane, unpack(failed_parts(member)[1]), now)))
            if requeued:
                await self.apply(Step(requeued=requeued), as_is)
                rows += [row for _, row in requeued]
        return rows

    async def requeue_given_up(self, now: float) -> int:
        """Before the frontier is opened, queue again the requests of hosts that were given up. A checkpoint."""
        if not (self.session.is_first or self.session.is_alone):
            return 0
        rows = await self.requeue_failed(now, are_given_up=True)
        self.session.parts.requeued(rows)
        return len(rows)

    async def aclose(self) -> None:
        """Write the kept values, and release the job for the next process. A checkpoint. Also works if cancelled.

        If the server is unreachable, this gives up after 8 seconds. The next process then waits until the lease ends.
        """
        with trio.move_on_after(_CLOSE_SECONDS, shield=True):
            try:
                if self._failure is None:
                    await self.commit()
            finally:
                self._is_closing = True
                self._trips.stir()
                await self._trips.has_ended.wait()  # noqa: ASYNC102 - shielded and limited
        if not self._trips.has_ended.is_set():
            raise JobError(f"job {self.name}: its server is away: the latest state is not stored", self.name)

    async def _read_outbox(self, position: int, limit: int) -> Sequence[OutboxItem]:
        answer = await self._read(("items", [self._keys.items], [position + 1, limit, READ_BYTES]), as_is)
        items = []
        for number, (place, item) in enumerate(zip(answer[::2], answer[1::2], strict=True), start=position + 1):
            if place != b"%d-0" % number:
                raise self.damaged(f"item {number}, which waits for the feeds, is missing")
            items.append(OutboxItem(number, item))
        return items

    async def _read_queue(self, args: Sequence[bytes | str | int], hear: Callable[[list[Any]], T]) -> T:
        """Read requests. All earlier arrivals are processed before ``hear`` receives these requests."""

        def hear_both(answer: list[Any]) -> T:
            self.session.parts.hear_arrived(answer[0])
            return hear(answer[1])

        heard = [self.session.number, self.session.parts.heard]
        return await self._read(("lanes", [self._keys.queue, self._keys.arrivals], [*heard, *args]), hear_both)

    async def _read_held(self, wanted: Sequence[tuple[bytes, bytes, int]]) -> list[Row]:
        answer: list[Any] = []
        while wanted and not answer:
            answer = await self._read_queue([arg for each in wanted for arg in each], as_is)
        return [(*self._place(each), each[KEY_BYTES:]) for each in answer if isinstance(each, bytes)]

    async def _bring_forward(self, now: float) -> None:
        """If the clock was set back, shorten the waits of the requests that are held when the job is opened."""
        changed: dict[int, None] = {}
        todo = [(held.number, start_of_lane(held.number)) for held in self.session.parts.held]
        while todo:
            some, todo = todo[:_LANES_AT_ONCE], todo[_LANES_AT_ONCE:]
            limit = AT_ONCE // len(some)
            found = await self._read_held([(after, end_of_lane(lane), limit) for lane, after in some])
            last = {row[1]: row for row in found}
            counts = Counter(row[1] for row in found)
            todo += [(lane, key_of(last[lane]) + b"\xff") for lane, _ in some if counts[lane] == limit]
            for row in found:
                stored = unpack(row[4])
                if stored.until is not None and stored.until > now + stored.wait + 1.0:
                    until = now + stored.wait
                    sooner = (row[0], row[1], wall_time(until), 0.0, repack(stored, until=until))
                    await self.apply(Step(ended=row[:4], rows=[sooner]), as_is)
                    changed[row[1]] = None
        if changed:
            self.session.parts.brought_forward((await self.apply(Step(due_of=list(changed)), as_is)).due)

    def _place(self, member: bytes) -> Place:
        try:
            return place_of(member)
        except ValueError as error:
            raise self.damaged(str(error)) from error

    # Methods that submit work and wait until it is done.

    async def _read(self, call: Call, hear: Callable[[Any], T]) -> T:
        """Run a script that only reads in the next round trip, before the steps of that round trip."""
        return await self._submit(call, hear)

    async def _submit(self, what: Step | Call, applied: Callable[[Any], T]) -> T:
        """Add a step or a read to the open pipeline, and wait until it is done."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self.check()
        given = _QueueEntry(what, applied)
        pipeline = self._trips.open
        (pipeline.steps if isinstance(what, Step) else pipeline.readings).append(given)
        self._trips.stir()
        try:
            await pipeline.ended()
        except trio.Cancelled:  # the server is unreachable, and this task was cancelled
            words = f"job {self.name}: its server is away ({self.lease.away_reason}); none of its data is lost"
            self.fail(JobError(words, self.name))
            raise
        self.check()
        return given.result

    def check(self) -> None:
        """Raise the error that ended writing, if there is one."""
        if self._failure is not None:
            raise type(self._failure)(str(self._failure), self._failure.directory) from self._failure
        if self.is_over:
            raise JobError(f"job {self.name}: it is closed", self.name)

    def fail(self, error: JobError) -> None:
        """End writing with an error."""
        if self._failure is None:
            self._failure = error
        self._trips.let_go()
        self.session.wake()
        self._trips.stir()

    def end(self) -> None:
        """Wake all waiting tasks, because the job has ended."""
        self._trips.has_ended.set()
        self._trips.let_go()

    def callbacks_folder(self) -> Path:
        """Return the directory of the server if it was started for this job, or else a folder of this user. Blocks."""
        if self._address.is_own:
            return Path(self._address.options["unix_socket_path"]).resolve().parent.parent
        return state_folder(self.name)

    @property
    def is_lease_lost(self) -> bool:
        """Whether the lease has ended because the event loop was blocked."""
        return self.keeper is not None and self.keeper.is_lost

    # Methods that the session calls.

    def stir(self) -> None:
        """Wake the connection task, so that it checks for work."""
        self._trips.stir()

    async def order(self, key: str, line: str) -> None:
        """Add an order to the list of orders to the job's processes. A checkpoint."""
        await self._read(("order", [self._keys.head], [key, line, 1]), as_is)

    def started(self) -> None:
        """Record with the next step that ``start()`` was read to its end."""
        self._has_started = True

    async def refresh(self) -> None:
        """Read the saved values of the whole job again. A checkpoint."""
        state = await self._read(("state", self._keys.of_state, []), as_is)
        self._kept.update({name: blob for name, blob in kept_of(state[4]).items() if name not in self._changed})

    def _keep_of(self, part: int, name: str, blob: bytes | None) -> None:
        if part not in self.session.parts.owned:
            raise ValueError(f"part {part} is not this session's")
        values = self.session.parts.kept.setdefault(part, {})
        if blob is None:
            values.pop(name, None)
        else:
            values[name] = blob
        self._changed_parts.add(part)

    # Methods of the connection task.

    async def rounds(self, server: StoreServer) -> StoreConnectionError | None:
        """Make round trips until the job is closed or has failed. Return the error if the server is unreachable."""
        try:
            while self._failure is None:
                if not await self._anything():
                    break
                await self._round(server)
            if self._failure is None:
                leaves = "unclean" if self.was_killed else "clean"
                await server.run([self.session.call(None, takes=False, leaves=leaves)])
        except StoreConnectionError as away:
            if not self._is_closing:
                return away
        except SessionEnded as error:
            return await self._ended(server, error)
        except JobError as error:
            self.fail(error)
        except (ValueError, TypeError, LookupError) as error:  # another program wrote into the store
            self.fail(self.damaged(f"its server sent an unreadable response: {error!r}"))
        self.end()
        return None

    async def _ended(self, server: StoreServer, error: SessionEnded) -> StoreConnectionError | None:
        """Set the job's failure, because the server has ended the session or no longer has the job."""
        try:
            (head,) = await server.run([("head", [self._keys.head], [0])])
        except StoreConnectionError as away:  # this method is called again when the server responds
            return away
        begun = texts_of(head).get("begun")
        if begun == self._begun:
            self.fail(error)
        else:
            found = "does not have it" if begun is None else "has another job of this name, which started later"
            words = f"it is gone: its server {found}: restore the server's file, or start again with a new job"
            self.fail(JobError(f"job {self.name}: {words}", self.name))
        self._trips.has_ended.set()
        return None

    async def _anything(self) -> bool:
        """Wait until there is work, and return True. Return False if the job is closed or has failed."""
        trips = self._trips
        while trips.running is None:
            if trips.open.steps or trips.open.readings:
                await trio.lowlevel.checkpoint()  # first let other ready tasks submit work for this round trip
                trips.running, trips.open = trips.open, _Pipeline()
            elif self._is_closing:
                return False
            elif trio.current_time() >= self._next_look:
                await trio.lowlevel.checkpoint()
                break
            else:
                await trips.idle(self._next_look)
                if self._failure is not None:
                    return False
        return True

    @property
    def _next_look(self) -> float:
        """Event loop time, in seconds, of the next round trip if no work is submitted earlier."""
        return min(self._trips.renew_at, self.session.poll_at)

    async def _round(self, server: StoreServer) -> None:
        pipeline = self._trips.running or _Pipeline()  # an empty one only renews the lease or calls the script
        if pipeline.calls is None:
            pipeline.calls = self._calls(pipeline)
        began = trio.current_time()
        if self.lease.asked_at is None:
            self.lease.asked_at = began
        if pipeline.steps:
            self.step_times.begin(began)
        renews = began >= self._trips.renew_at
        looks = began >= self._next_look
        calls = pipeline.calls
        if looks:
            look = self.session.call(self._lease_seconds if renews else None, takes=not self._is_closing)
            calls = [look, *calls]
        answers = await server.run(calls, self._replicas)
        self.lease.asked_at = None
        self._hear(pipeline, answers, answers.pop(0) if looks else None)
        self.step_times.end(trio.current_time())
        if renews:
            self._renewed(began)
        self._trips.running = None
        pipeline.end()

    def _renewed(self, began: float) -> None:
        lease = self.lease
        now = trio.current_time()
        # Count the lease from the start of the call, because the server counts it from a later time, when it receives
        # the call.
        lease.renew(began + SAFE * self._lease_seconds)
        self._trips.renew_at = began + self._lease_seconds / 4.0
        if lease.away_since is not None:
            logger.info("job %s: its server is back after %.0f s", self.name, now - lease.away_since)
            lease.away_since = None

    def went_away(self, why: StoreConnectionError) -> None:
        """Record that the server is unreachable. Steps wait, and cancelled tasks stop waiting."""
        self._trips.went_away()
        self.session.was_away = True
        lease, now = self.lease, trio.current_time()
        if lease.went_away(now, str(why)):
            words = "job %s: its server is away (%s): nothing is stored, and nothing is sent after %.0f s"
            logger.warning(words, self.name, why, max(0.0, lease.until - now))

    def give_up(self, error: TrawlError) -> None:
        """End the job with an error, because its server no longer accepts this process."""
        self.fail(error if isinstance(error, JobError) else JobError(str(error), self.name))
        self._trips.has_ended.set()

    @property
    def is_over(self) -> bool:
        """True if the job has ended in this process."""
        return self._trips.has_ended.is_set()

    def _calls(self, pipeline: _Pipeline) -> list[Call]:
        calls = [given.what for given in pipeline.readings]
        if not pipeline.steps:
            return calls
        changed, unspilled = self._beside()
        keys = self._keys.of_apply
        own = self.session.number
        lanes = b"".join([start_of_lane(lane) for given in pipeline.steps for lane in given.what.due_of])
        exported = self.outbox.start if self.session.is_exporter else ""
        args: list[bytes | str | int] = [own, self._step + 1, self.session.parts.heard, exported, lanes]

        def number_of(key: str) -> int:
            keys.append(key)
            return len(keys)

        for number, given in enumerate(pipeline.steps):
            new = _write(given.what, args, self._keys, own, number_of)
            pipeline.new += [(number, row) for row in new]
        orphans, self._orphans = self._orphans, []
        for spilled in [*[f"{own} {order}" for order in unspilled], *orphans]:
            args += ("U", number_of(self._keys.spilled_by(*spilled.split(" "))), spilled)
        for name, blob in changed.items():
            args += ("D", name) if blob is None else ("K", name, blob)
        parts, self._changed_parts = self._changed_parts, set()
        for part in sorted(parts & self.session.parts.owned.keys()):
            args += ("V", part, packed(self.session.parts.kept.get(part, {})))
        if self._has_started:
            self._has_started = False
            args.append("B")
        return [*calls, ("apply", keys, args)]

    def _hear(self, pipeline: _Pipeline, answers: list[Any], told: Any) -> None:
        """Update memory with changes of the job, with reads and with steps, in the order in which they happened.

        If the response of an earlier round trip was lost, its step happened before the reads and the changes, so the
        step is processed first. For example, the step may have released a part that this session has taken again,
        together with requests that the step stored in the part.
        """
        written: Any = answers.pop() if pipeline.steps else None
        if written is not None and written[0] not in (b"ok", b"again"):
            raise self.session.ended(written[0])
        is_again = written is not None and written[0] == b"again"
        if is_again:
            self._hear_step(pipeline, written)
        if told is not None:
            self._hear_end(self.session.hear(told))
        for given, answer in zip(pipeline.readings, answers, strict=True):
            given.result = given.applied(answer)
        if written is None:
            return
        if not is_again:
            self._hear_step(pipeline, written)
        self.session.parts.hear_arrived(written[4])
        self.session.hear_sessions(int(written[5]))

    def _hear_step(self, pipeline: _Pipeline, written: list[Any]) -> None:
        self._step += 1
        _, end, refused, firsts, *_ = written
        seen: dict[int, set[int]] = {}
        for number in refused.split():
            step, row = pipeline.new[int(number)]
            seen.setdefault(step, set()).add(row)
        lanes = [lane for given in pipeline.steps for lane in given.what.due_of]
        due = {lane: self._place(first)[2] if first else None for lane, first in zip(lanes, firsts, strict=True)}
        steps = [given.what for given in pipeline.steps]
        is_spilled = any(step.is_spilled for step in steps)
        self._hear_end(int(end), None if is_spilled else [item for step in steps for item in step.items])
        for number, given in enumerate(pipeline.steps):
            its = given.what.due_of
            is_plain = number not in seen and not its
            written_now = _WRITTEN if is_plain else StepResult(seen.get(number, ()), {lane: due[lane] for lane in its})
            given.result = given.applied(written_now)

    def _hear_end(self, end: int, own: Sequence[bytes] | None = ()) -> None:
        """Process the position of the last item. ``own`` are this session's items up to there; None if unknown."""
        if end <= self.outbox.end:
            return
        are_all = own is not None and end - len(own) == self.outbox.end
        self.outbox.added(own if are_all else None, end)
        if not are_all and not self.session.is_alone:
            self.session.hear_end(end)


def _write(
    step: Step, args: list[bytes | str | int], keys: Keys, session: int, number_of: Callable[[str], int]
) -> list[int]:
    """Append a step's operations for ``apply.lua``, and return the indexes of rows to store only if they are new."""
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
    args += _removals(step)
    for order, _, item in step.spilled:
        args += ("P", number_of(keys.spilled_by(session, order)), order, item)
    if step.is_spilled and step.ended is not None:
        args += ("T", number_of(keys.spilled_by(session, step.ended[0])), step.ended[0])
    args += [arg for item in step.items for arg in ("I", item)]
    args += [arg for member, row in step.requeued for arg in ("Q", member, key_of(row) + row[4])]
    args += [arg for part, kept in step.given_back for arg in ("G", part, kept)]
    return new


def _removals(step: Step) -> list[bytes]:
    """Return the operations that remove the dropped requests of a step."""
    found: list[bytes] = []
    for place in step.dropped:
        found += (b"R", key_of(place), key_of(place) + b"\xff")
    for lane, staying in step.emptied:
        start = start_of_lane(lane)
        for key in sorted(map(key_of, staying)):
            found += (b"R", start, key)
            start = key + b"\xff"
        found += (b"R", start, end_of_lane(lane))
    return found
