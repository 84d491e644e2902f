"""A job in a directory with one SQLite database, used by one process at a time.

::

    DIR/lock        held while a process has the job
    DIR/job.db      all data; with job.db-wal and job.db-shm next to it while it is open

Theory of operation. One :class:`Transactions` commits the frontier's steps, the saved values and the outbox in groups.
A task submits a *step* and waits until it is on disk. The first task that submits a step to a new transaction leads the
transaction. It lets other ready tasks submit steps too, waits until the previous transaction has ended, closes the new
transaction to further steps, and runs all steps in a thread. In a busy crawl the transactions are larger, and no task
waits for a timer. SQLite sees a single writer.

A step has two functions. ``run`` changes the database in the thread. When the transaction has ended, ``applied``
receives the result of ``run`` in Trio's thread. The ``applied`` functions are called in the order of the steps, before
any other task runs. So memory always matches the state of the database after a transaction.

If a transaction fails, it is rolled back, and nothing more is written, because memory may then contain changes that are
not on the disk.

This module is imported only when a job in a directory is opened, so that other crawls do not load sqlite3.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, cast

import attrs
import trio

from trawl.blocking import Blocking
from trawl.errors import JobError, UsageError
from trawl.file_sync import make_folder
from trawl.frontier import tables
from trawl.frontier.base import OutboxItem
from trawl.frontier.errors import DATABASE_ERRORS, damage_error, job_error
from trawl.frontier.job import Job, Outbox, Place, Row, Snapshot, Step, StepResult, StepTimes, as_is
from trawl.frontier.lock import LOCK_NAME, JobLock
from trawl.frontier.own_files import check_directory, close_to_others
from trawl.frontier.parts import HELD
from trawl.frontier.tables import DATABASE_NAME, SCHEMA_VERSION, RowCounts

__all__ = ["SqliteJob", "Transactions", "open_job"]

T = TypeVar("T")
U = TypeVar("U")

logger: logging.Logger = logging.getLogger("trawl.frontier")

_WRITTEN = StepResult()


class SqliteJob(Job):
    """A job in a directory. Creating an instance opens the job, and blocks. Use :func:`open_job` instead."""

    directory: Path

    def __init__(self, directory: Path, blocking: Blocking) -> None:
        _make(directory)
        # Lock the job first, so that the database of a job in use is not even opened.
        self._lock = JobLock(directory)
        try:
            try:
                self._connection, is_new = tables.connect(directory)
                try:
                    self._is_older = _prepare(self._connection)
                    kept = tables.read_kept(self._connection)
                    start, end = tables.read_outbox_ends(self._connection)
                    self._lock.clear_error()
                except BaseException:
                    self._connection.close()
                    raise
            except DATABASE_ERRORS as error:
                raise job_error(directory, error) from error
        except BaseException:
            self._lock.release()
            raise
        super().__init__(str(directory), kept, Outbox(start, end), is_new=is_new)
        self.directory: Path = directory
        self.last_error: str = self._lock.last_error
        self.row_counts: RowCounts = RowCounts()
        self.transactions: Transactions = Transactions(self._connection, blocking, directory, self._in_transaction)
        self.step_times: StepTimes = self.transactions.times
        self._blocking = blocking
        self._stored_start = start
        self._stored_end = end
        self._last_position = end  # position of the last item, committed or not; used in transactions
        self._is_open = True

    @property
    def failure(self) -> JobError | None:
        """The error that ended writing; None if there is none."""
        return self.transactions.failure

    def callbacks_folder(self) -> Path:
        """Return the job's directory."""
        return self.directory

    async def apply(self, step: Step, applied: Callable[[StepResult], T]) -> T:
        """Write a step in the next transaction. A checkpoint."""

        def run(connection: sqlite3.Connection) -> tuple[int | None, int]:
            first = tables.write(connection, step, self.row_counts)
            # Spilled items come first, because the request yielded them before the items of this step.
            if step.is_spilled:
                assert step.ended is not None
                self._last_position += tables.take_spilled(connection, step.ended[0], self._last_position)
            if step.items:
                self._last_position += tables.put_items(connection, step.items, self._last_position)
            return first, self._last_position

        def hear(written: tuple[int | None, int]) -> T:
            first, last = written
            if step.items or step.is_spilled:
                self.outbox.added(None if step.is_spilled else step.items, last)
            return applied(StepResult(due={HELD: first}) if step.due_of else _WRITTEN)

        return await self.transactions.execute(run, hear)

    async def read_lanes(self, wanted: Sequence[tuple[int, int]], applied: Callable[[list[list[Row]]], None]) -> None:
        """Read the first records of lanes, which are passed as numbers and limits. A checkpoint."""
        await self.transactions.execute(partial(tables.read_lanes, wanted=wanted), applied, is_writing=False)

    async def read_seen(self, marks: Sequence[bytes], applied: Callable[[set[bytes]], T]) -> T:
        """Read which of ``marks`` were seen. A checkpoint."""
        return await self.transactions.execute(partial(tables.which_are_seen, marks=marks), applied, is_writing=False)

    async def read_due(self, lanes: Sequence[int], now: int) -> list[Row]:
        """Read the first held requests that are due at ``now``, in microseconds since the epoch. A checkpoint."""
        return await self._read(partial(tables.due, now=now))

    async def read_after(self, lane: int, place: Place | None) -> list[Row]:
        """Read the first requests of a lane after a place, or its first ones. A checkpoint."""
        return await self._read(partial(tables.rows_after, lane=lane, place=place))

    async def read_snapshot(self, max_marks: int, now: float) -> Snapshot:
        """Read the initial state of a frontier. A checkpoint."""
        # Check first in a transaction that only reads, because it needs no commit, and a clock is rarely set back.
        if await self._read(partial(tables.is_clock_set_back, now=now)):
            await self.transactions.execute(partial(tables.bring_forward, now=now), as_is)
        return await self._read(partial(tables.read_snapshot, max_marks=max_marks, row_counts=self.row_counts))

    async def requeue_given_up(self, now: float) -> int:
        """Before the frontier is opened, queue again the requests of hosts that were given up. A checkpoint."""
        if not await self._read(tables.has_given_up):
            return 0
        return await self.transactions.execute(partial(tables.requeue, now=now, wanted=tables.GIVEN_UP), as_is)

    async def sync(self) -> None:
        """Write all values kept so far to the disk itself, so that they survive a power cut. A checkpoint."""
        await self.transactions.execute(as_is, as_is, is_synced=True)

    async def aclose(self) -> None:
        """Write the kept values, and release the job for the next process. A checkpoint. Also works if cancelled."""
        if not self._is_open:
            await trio.lowlevel.checkpoint()
            return
        with trio.CancelScope(shield=True):  # shielded only for the time of a commit
            try:
                if self.failure is None:
                    await self.commit()
            finally:
                self._is_open = False
                await self._blocking.run(self._connection.close)  # noqa: ASYNC102 - shielded
                # Write the error before the release, because the next process reads it as soon as it has the lock.
                if self.failure is not None:
                    self._lock.write_error(str(self.failure).removeprefix(f"job {self.directory}: "))
                self._lock.release()

    def damaged(self, detail: str) -> JobError:
        """Return the error for a damaged job, with the location of the damage and the fix."""
        return damage_error(self.directory, detail)

    async def _read_outbox(self, position: int, limit: int) -> Sequence[OutboxItem]:
        return await self._read(partial(tables.read_outbox, position=position, limit=limit))

    async def _read(self, run: Callable[[sqlite3.Connection], T]) -> T:
        return await self.transactions.execute(run, as_is, is_writing=False)

    def _in_transaction(self) -> Callable[[sqlite3.Connection], None]:
        """Return a function for the end of the next transaction. It writes all changes that are not part of a step."""
        changed, unspilled = self._beside()
        start = self.outbox.start

        def run(connection: sqlite3.Connection) -> None:
            for order in unspilled:
                tables.unspill(connection, order)
            for name, blob in changed.items():
                if blob is None:
                    connection.execute("DELETE FROM kept WHERE name = ?", (name,))
                else:
                    connection.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (name, blob))
            if start != self._stored_start:
                connection.execute("DELETE FROM outbox WHERE position <= ?", (start,))
                connection.execute("INSERT OR REPLACE INTO state VALUES ('outbox_start', ?)", (start,))
                self._stored_start = start
            if self._last_position != self._stored_end:
                self._stored_end = self._last_position
                connection.execute("INSERT OR REPLACE INTO state VALUES ('outbox_end', ?)", (self._stored_end,))
            self.row_counts.write(connection)
            if self._is_older:  # an older release can't read the new content, and must not continue the job
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                self._is_older = False

        return run


async def open_job(directory: str | PathLike[str], blocking: Blocking) -> SqliteJob:
    """Open the job in ``directory``, which is created if it is missing. A checkpoint.

    Raises:
        JobError: If another process is using the job, or the job is damaged, has a newer version, or can't be written.
        UsageError: If ``directory`` is not a directory, or contains other files.
    """
    return await blocking.run(SqliteJob, Path(directory), blocking)


def _prepare(connection: sqlite3.Connection) -> bool:
    """Check that the database can be written, remove spilled items, and return whether an older release created it."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute("BEGIN IMMEDIATE")
    # Check that the database can be written. This is not committed.
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("ROLLBACK")
    if connection.execute("SELECT 1 FROM spilled LIMIT 1").fetchone():
        # The requests that yielded these items are pending again, and will yield them again.
        connection.execute("DELETE FROM spilled")
    return bool(version < SCHEMA_VERSION)


def _make(directory: Path) -> None:
    """Create the directory if it is missing, and raise an error if it contains files that do not belong to a job."""
    try:
        make_folder(directory, 0o700)  # requests contain cookies, tokens and passwords
        names = [path.name for path in directory.iterdir()]
    except FileExistsError as error:
        raise UsageError(f"job {directory}: it is not a directory") from error
    except NotADirectoryError as error:
        raise UsageError(f"job {directory}: a part of its path is not a directory") from error
    except OSError as error:
        raise job_error(directory, error) from error
    strangers = [name for name in names if name != LOCK_NAME]
    if strangers and DATABASE_NAME not in strangers:
        raise UsageError(f"job {directory}: it contains other files ({min(strangers)}): give a new or empty directory")
    with suppress(OSError):
        # A kill during creation leaves an empty database, but the user may expect data in it.
        if not (directory / DATABASE_NAME).stat().st_size:
            words = "job %s: its %s is empty, as after a kill before the first write: the job starts again"
            logger.warning(words, directory, DATABASE_NAME)
    close_to_others(directory, is_empty=not names)
    check_directory(directory)


@attrs.define(eq=False)
class _Step:
    run: Callable[[sqlite3.Connection], Any]
    applied: Callable[[Any], Any]
    given: Any = None
    result: Any = None


class _Transaction:
    """The steps of one transaction, and the tasks that wait for it.

    An event and a cancel scope per task would cost 10 µs.
    """

    __slots__ = ("is_synced", "is_writing", "steps", "waiting")

    def __init__(self, step: _Step, *, is_writing: bool, is_synced: bool) -> None:
        self.steps = [step]
        self.is_writing = is_writing
        self.is_synced = is_synced
        self.waiting: list[trio.lowlevel.Task] = []

    async def ended(self) -> None:
        """Wait until the transaction has ended. A cancellation takes effect after that."""
        self.waiting.append(trio.lowlevel.current_task())
        await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)

    def end(self) -> None:
        for task in self.waiting:
            trio.lowlevel.reschedule(task)
        self.waiting.clear()


class Transactions:
    """The transactions of one database, which is in autocommit mode and is used by no other object.

    ``beside`` is called in Trio's thread just before a transaction that writes. It returns a function that runs at the
    end of the transaction. ``failure`` is the error that ended writing.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        blocking: Blocking,
        directory: object,
        beside: Callable[[], Callable[[sqlite3.Connection], None]],
    ) -> None:
        self._connection = connection
        self._blocking = blocking
        self._directory = directory
        self._beside = beside
        self._open: _Transaction | None = None
        self._running: _Transaction | None = None
        self.committed: int = 0
        self.failure: JobError | None = None
        self.times: StepTimes = StepTimes()

    async def execute(
        self,
        run: Callable[[sqlite3.Connection], T],
        applied: Callable[[T], U],
        *,
        is_writing: bool = True,
        is_synced: bool = False,
    ) -> U:
        """Run a step in the next transaction, and return the value of ``applied``. A checkpoint.

        A cancellation takes effect only before the step is submitted. After that, the step is always carried out. If
        this raises JobError, the transaction made no change.

        Args:
            run: Reads or changes the database. It must raise only errors of SQLite.
            applied: Updates memory with the result.
            is_writing: Whether ``run`` changes the database. If not, the database is not locked for writing.
            is_synced: Whether this transaction and all earlier ones must be on the disk itself when this returns.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self.check()
        step = _Step(run, applied)
        transaction = self._open
        if transaction is not None:
            transaction.steps.append(step)
            transaction.is_writing |= is_writing
            transaction.is_synced |= is_synced
            await transaction.ended()
        else:
            transaction = self._open = _Transaction(step, is_writing=is_writing, is_synced=is_synced)
            # This task leads the transaction for other tasks too, so if it is cancelled, their steps must still be
            # carried out.
            with trio.CancelScope(shield=True):
                await self._lead(transaction)
        self.check()
        return cast("U", step.result)

    def check(self) -> None:
        """Raise the error that ended writing, if there is one."""
        if self.failure is not None:
            raise JobError(str(self.failure), self.failure.directory) from self.failure

    async def _lead(self, transaction: _Transaction) -> None:
        try:
            await trio.lowlevel.checkpoint()  # first let other ready tasks submit their steps
            # Other tasks can join this transaction until the running transaction ends.
            while self._running is not None:
                await self._running.ended()
            self.check()
            self._open, self._running = None, transaction
            self.times.begin(trio.current_time())
            beside = self._beside() if transaction.is_writing else None
            await self._blocking.run(self._transact, transaction.steps, beside, transaction.is_synced)
            for step in transaction.steps:
                step.result = step.applied(step.given)
        except BaseException as error:
            if self.failure is None:
                words = f"job {self._directory}: an internal error: {error!r}"
                self.failure = error if isinstance(error, JobError) else JobError(words, str(self._directory))
            raise
        finally:
            if self._open is transaction:
                self._open = None
            if self._running is transaction:
                self._running = None
                self.times.end(trio.current_time())
            transaction.end()

    def _transact(
        self, steps: list[_Step], beside: Callable[[sqlite3.Connection], None] | None, is_synced: bool
    ) -> None:
        """Run ``steps`` in one transaction, in a worker thread."""
        connection = self._connection
        try:
            if is_synced:
                connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN" if beside is None else "BEGIN IMMEDIATE")
            for step in steps:
                step.given = step.run(connection)
            if beside is not None:
                beside(connection)
            connection.execute("COMMIT")
            if is_synced:
                connection.execute("PRAGMA synchronous = NORMAL")
            self.committed += 1
        except DATABASE_ERRORS as error:
            raise job_error(self._directory, error) from error
        finally:
            if connection.in_transaction:  # it failed; after some errors, SQLite has already rolled it back
                with suppress(sqlite3.Error):  # the first error describes the cause
                    connection.execute("ROLLBACK")
