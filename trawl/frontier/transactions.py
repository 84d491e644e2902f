"""Group commit: steps of many tasks in one transaction, run by one thread at a time.

Theory of operation. A task hands in a *step* and waits until it is on disk. The first task after a batch was closed
leads the next one: it lets all tasks that are about to run hand in theirs, waits for the batch before, closes its own,
and has a thread run all of it in one transaction. The busier the crawl, the larger the batches, and nobody waits for a
timer. To SQLite it is one writer.

A step has two halves. ``run`` works on the database, in the thread. ``applied`` gets its result in Trio's thread, once
the transaction has ended, in the order of the steps and before any other task runs: so memory always matches the
database after some transaction.

A transaction that fails is rolled back, and nothing is written after it: memory might be ahead of the disk.

Only the job in a directory uses it: how steps become transactions has nothing to do with what they write.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import trio

from trawl.blocking import Blocking
from trawl.errors import JobError
from trawl.frontier.errors import DATABASE_ERRORS, job_error

__all__ = ["Transactions"]

T = TypeVar("T")
U = TypeVar("U")


class _Step:
    __slots__ = ("applied", "given", "result", "run")

    def __init__(self, run: Callable[[sqlite3.Connection], Any], applied: Callable[[Any], Any]) -> None:
        self.run = run
        self.applied = applied
        self.given: Any = None
        self.result: Any = None


class _Batch:
    """Steps of one transaction, and the tasks that wait for it. An event and a shield for each would cost 10 µs."""

    __slots__ = ("is_synced", "is_writing", "steps", "waiting")

    def __init__(self, step: _Step, *, is_writing: bool, is_synced: bool) -> None:
        self.steps = [step]
        self.is_writing = is_writing
        self.is_synced = is_synced
        self.waiting: list[trio.lowlevel.Task] = []

    async def ended(self) -> None:
        """Wait until the transaction has ended; a cancel is heard later."""
        self.waiting.append(trio.lowlevel.current_task())
        await trio.lowlevel.wait_task_rescheduled(_not_now)

    def end(self) -> None:
        for task in self.waiting:
            trio.lowlevel.reschedule(task)
        self.waiting.clear()


def _not_now(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED


class Transactions:
    """The transactions of one database.

    Args:
        connection: The database, in autocommit mode; not used by anything else.
        blocking: How blocking work is done.
        directory: The job's directory, for errors.
        beside: Called in Trio's thread just before a transaction that writes; what it gives is run in it, last.

    Attributes:
        committed: How many have been committed.
        failure: The error after which nothing is written any more.
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
        self._open: _Batch | None = None
        self._running: _Batch | None = None
        self.committed: int = 0
        self.failure: JobError | None = None

    async def execute(
        self,
        run: Callable[[sqlite3.Connection], T],
        applied: Callable[[T], U],
        *,
        is_writing: bool = True,
        is_synced: bool = False,
    ) -> U:
        """Run a step in the next transaction; what ``applied`` makes of its result. A checkpoint.

        Cancelling is heard before the step is handed in, and not after: then it is carried out.

        Args:
            run: Works on the database; it raises nothing but SQLite's errors.
            applied: Tells memory of it.
            is_writing: Whether it changes anything; a transaction of steps that don't takes no lock.
            is_synced: Whether the transaction, and all before it, is to be on the disk itself when this returns.

        Raises:
            JobError: The database can't be read or written, now or before; nothing of the transaction was done.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self.check()
        step = _Step(run, applied)
        batch = self._open
        if batch is not None:
            batch.steps.append(step)
            batch.is_writing |= is_writing
            batch.is_synced |= is_synced
            await batch.ended()
        else:
            batch = self._open = _Batch(step, is_writing=is_writing, is_synced=is_synced)
            # It leads for others as well: a cancel of this task must not take their steps along.
            with trio.CancelScope(shield=True):
                await self._lead(batch)
        self.check()
        return cast("U", step.result)

    def check(self) -> None:
        """Raise the error after which nothing is written any more, if there is one."""
        if self.failure is not None:
            raise JobError(str(self.failure), self.failure.directory) from self.failure

    async def _lead(self, batch: _Batch) -> None:
        try:
            await trio.lowlevel.checkpoint()  # tasks that are about to run now hand in too
            # Meanwhile the batch stays open, and grows.
            while self._running is not None:
                await self._running.ended()
            self.check()
            self._open, self._running = None, batch
            beside = self._beside() if batch.is_writing else None
            await self._blocking.run(self._transact, batch.steps, beside, batch.is_synced)
            for step in batch.steps:
                step.result = step.applied(step.given)
        except BaseException as error:
            if self.failure is None:
                self.failure = error if isinstance(error, JobError) else self._broken(error)
            raise
        finally:
            if self._open is batch:
                self._open = None
            if self._running is batch:
                self._running = None
            batch.end()

    def _broken(self, error: BaseException) -> JobError:
        return JobError(f"job {self._directory}: an internal error: {error!r}", str(self._directory))

    def _transact(
        self, steps: list[_Step], beside: Callable[[sqlite3.Connection], None] | None, is_synced: bool
    ) -> None:
        """Run ``steps`` in one transaction, in whatever thread this is."""
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
        except DATABASE_ERRORS as error:
            _roll_back(connection)
            raise job_error(self._directory, error) from error
        except BaseException:
            _roll_back(connection)
            raise
        self.committed += 1


def _roll_back(connection: sqlite3.Connection) -> None:
    """End a transaction that failed; SQLite has rolled back by itself after some errors."""
    if connection.in_transaction:
        with suppress(sqlite3.Error):  # the first error says what is the matter
            connection.execute("ROLLBACK")
