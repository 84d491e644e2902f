"""A job: a directory with one database, used by one process at a time.

::

    DIR/lock        held while a process has the job
    DIR/job.db      everything; with job.db-wal and job.db-shm beside it while it is open

The frontier (``trawl.frontier.sqlite``), the saved values and the outbox share one :class:`Transactions`. Values, and
the positions of the feeds, are written with whatever transaction comes next: that costs nothing, and they are never
newer or older than the acknowledgements they belong to.

An item enters the outbox with the transaction that acknowledges its request, and leaves it with the one that stores how
far the feeds have come. The last ones are cached, because the writer of the feeds asks for them at once.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from types import MappingProxyType

import trio

from trawl.blocking import Blocking
from trawl.durable import make_folder
from trawl.errors import UsageError
from trawl.frontier.base import OutboxItem
from trawl.frontier.errors import DATABASE_ERRORS, job_error, malformed
from trawl.frontier.lock import LOCK_NAME, JobLock
from trawl.frontier.schema import BUSY_SECONDS, DATABASE_NAME, SCHEMA_VERSION, connect
from trawl.frontier.tables import RowCounts, read_kept, read_outbox_ends
from trawl.frontier.transactions import Transactions

__all__ = ["Job", "OutboxTable", "open_job"]

TAIL_BYTES = 1 << 20
"""Bytes of the items that came last and are kept in memory."""

READ_BYTES = 1 << 20
"""Bytes after which a reading from the database stops."""


class OutboxTable:
    """Positions of the outbox, and its last items.

    Two threads meet here, never at once: ``add`` and ``drop`` run inside a transaction; the others in Trio's thread.

    Args:
        start: The position up to which the feeds have it.
        end: The position of the last item.

    Attributes:
        start: The position up to which the feeds have it.
        end: The position of the last item that is in for good.
    """

    __slots__ = ("_added", "_tail", "_tail_bytes", "end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start: int = start
        self.end: int = end
        self._added = end
        self._tail: deque[OutboxItem] = deque()
        self._tail_bytes = 0

    def add(
        self, connection: sqlite3.Connection, order: int, items: Sequence[bytes], *, is_spilled: bool
    ) -> list[OutboxItem] | None:
        """In a transaction: put a request's items in, those it spilled first.

        Returns what :meth:`added` is to be told: the items, or None where they are too many to be looked at here.
        """
        if is_spilled:
            moved = connection.execute(
                "INSERT INTO outbox (position, item) SELECT ? + n, item FROM spilled WHERE ord = ? ORDER BY n",
                (self._added, order),
            ).rowcount
            connection.execute("DELETE FROM spilled WHERE ord = ?", (order,))
            self._added += moved
        entries = [OutboxItem(self._added + n, item) for n, item in enumerate(items, start=1)]
        self._added += len(entries)
        connection.executemany("INSERT INTO outbox VALUES (?, ?)", [(each.position, each.item) for each in entries])
        return None if is_spilled else entries

    def added(self, entries: list[OutboxItem] | None, end: int) -> None:
        """Update memory once the transaction has ended: the items up to ``end`` are stored."""
        self.end = end
        if entries is None:
            self._tail.clear()
            self._tail_bytes = 0
            return
        self._tail.extend(entries)
        self._tail_bytes += sum(len(each.item) for each in entries)
        while self._tail_bytes > TAIL_BYTES:
            self._tail_bytes -= len(self._tail.popleft().item)

    @property
    def next_position(self) -> int:
        """The position of the last item put in, committed or not; for use in a transaction."""
        return self._added

    def after(self, position: int, limit: int) -> list[OutboxItem] | None:
        """Return up to ``limit`` items after ``position`` from memory; None if they must be read from disk."""
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

    @staticmethod
    def read(connection: sqlite3.Connection, position: int, limit: int) -> list[OutboxItem]:
        """Read up to ``limit`` items after ``position`` from the database, fewer if they are large.

        Raises:
            sqlite3.DatabaseError: One of them is not there, or is not bytes.
        """
        found: list[OutboxItem] = []
        size = 0
        rows = connection.execute(
            "SELECT position, item FROM outbox WHERE position > ? ORDER BY position LIMIT ?", (position, limit)
        )
        for row in rows:
            if row[0] != position + len(found) + 1 or type(row[1]) is not bytes:
                raise malformed(f"item {position + len(found) + 1}, which waits for the feeds, is not there")
            found.append(OutboxItem(*row))
            size += len(found[-1].item)
            if size >= READ_BYTES:
                break
        rows.close()
        return found


logger: logging.Logger = logging.getLogger("trawl.frontier")

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Job:
    """An open job; :func:`open_job` makes it. It keeps values and items on disk, in the frontier's transactions.

    The frontier and this are two views of one database. A value that is to survive the process is *kept* under a name:
    it is written with the next transaction, whatever that is for, and read again when the job is opened.

    ::

        job = await open_job(directory, blocking)                             takes the lock
        frontier = await open_frontier(job, spider, wall, depth_first=...)    trawl.frontier.sqlite
        ...                                       the crawl; frontier.aclose() commits and leaves the job open
        await job.aclose()                        last of all

        job.kept["throttle"]                      what the last process kept, read when the job was opened
        job.before_commit(save)                   save() is called just before each transaction; what it keeps is in it
        job.keep("throttle", blob)                written with the next transaction
        job.keep("feeds", positions); job.outbox_done(17)      both or neither survive a kill

    Attributes:
        directory: Where it is.
        is_new: It has just been made: nothing was kept or stored before.
        last_error: Why the last process could not write to it; "" where it could.
        transactions: Its transactions, shared with the frontier.
        outbox: Its items that are on their way to the feeds.
        row_counts: How many rows its tables have.
    """

    def __init__(self, directory: Path, opened: _Opened, blocking: Blocking) -> None:
        self.directory: Path = directory
        self.is_new: bool = opened.is_new
        self.last_error: str = opened.lock.last_error
        self.outbox: OutboxTable = OutboxTable(opened.outbox_start, opened.outbox_end)
        self.row_counts: RowCounts = RowCounts()
        self.transactions: Transactions = Transactions(opened.connection, blocking, directory, self._beside)
        self._connection = opened.connection
        self._is_older = opened.is_older
        self._lock = opened.lock
        self._blocking = blocking
        self._kept = opened.kept
        self._changed: dict[str, bytes | None] = {}
        self._also: list[Callable[[sqlite3.Connection], object]] = []
        self._stored_start = opened.outbox_start
        self._stored_end = opened.outbox_end
        self._hooks: list[Callable[[], None]] = []
        self._is_open = True

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

    def keep(self, name: str, blob: bytes | None) -> None:
        """Have ``blob`` written under ``name`` with the next transaction; None forgets the name. Waits for nothing."""
        if blob is None:
            self._kept.pop(name, None)
        else:
            self._kept[name] = blob
        self._changed[name] = blob

    def before_commit(self, hook: Callable[[], None]) -> None:
        """Have ``hook`` called just before each transaction, in Trio's thread; it may call :meth:`keep`.

        The acknowledgements that the transaction holds are all from before the call. It must be quick, as a transaction
        comes with every few pages, and must not fail: a failure ends the job's writing.
        """
        self._hooks.append(hook)

    def run_in_next(self, run: Callable[[sqlite3.Connection], object]) -> None:
        """Have ``run`` called inside the next transaction, for what nobody waits for. Waits for nothing."""
        self._also.append(run)

    async def commit(self) -> None:
        """Have everything kept so far written; on disk when it returns. A checkpoint.

        Raises:
            JobError: It can't be written.
        """
        await self.transactions.execute(_nothing, _nothing)

    async def sync(self) -> None:
        """Have everything kept so far on the disk itself, where a power cut leaves it too. A checkpoint.

        Raises:
            JobError: It can't be written.
        """
        await self.transactions.execute(_nothing, _nothing, is_synced=True)

    async def give(self, items: Sequence[bytes]) -> None:
        """Put items that came of no request, those of ``start()``, into the outbox; on disk when it returns.

        Raises:
            JobError: They can't be written.
        """

        def run(connection: sqlite3.Connection) -> tuple[list[OutboxItem] | None, int]:
            return self.outbox.add(connection, 0, items, is_spilled=False), self.outbox.next_position

        await self.transactions.execute(run, lambda added: self.outbox.added(*added))

    async def outbox_after(self, position: int, limit: int) -> Sequence[OutboxItem]:
        """Return up to ``limit`` items after ``position``, in order; none if there is none yet. A checkpoint.

        Raises:
            JobError: They can't be read.
        """
        found = self.outbox.after(position, limit)
        if found is None:
            return await self.transactions.execute(
                lambda connection: OutboxTable.read(connection, position, limit), lambda items: items, is_writing=False
            )
        await trio.lowlevel.checkpoint()
        return found

    def outbox_done(self, position: int) -> None:
        """Forget the items up to ``position``, which are written, with the next transaction. Waits for nothing.

        Raises:
            ValueError: There is no such item yet, or a later one was given before.
        """
        self.outbox.done(position)

    async def aclose(self) -> None:
        """Write what was kept, and give the job free for the next process. A checkpoint; cancelled, it does so too.

        Raises:
            JobError: The saved values could not be written.
        """
        if not self._is_open:
            await trio.lowlevel.checkpoint()
            return
        with trio.CancelScope(shield=True):  # a disk limits it, as it limits each commit
            try:
                if self.transactions.failure is None:
                    await self.commit()
            finally:
                self._is_open = False
                await self._blocking.run(self._connection.close)  # noqa: ASYNC102 - shielded
                if self.transactions.failure is not None:
                    self._lock.write_error(str(self.transactions.failure).removeprefix(f"job {self.directory}: "))
                self._lock.release()

    def abandon(self) -> None:
        """Let go of the job as a killed process would: nothing more is written. For tests of resuming."""
        self._is_open = False
        self._connection.close()
        self._lock.release()

    def _beside(self) -> Callable[[sqlite3.Connection], None]:
        """Return a function that writes, at the end of the next transaction, what changed besides its steps."""
        for hook in self._hooks:
            hook()
        changed, self._changed = self._changed, {}
        also, self._also = self._also, []
        start = self.outbox.start

        def write(connection: sqlite3.Connection) -> None:
            for run in also:
                run(connection)
            for name, blob in changed.items():
                if blob is None:
                    connection.execute("DELETE FROM kept WHERE name = ?", (name,))
                else:
                    connection.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (name, blob))
            self._write_outbox(connection, start)
            self.row_counts.write(connection)
            if self._is_older:  # an older release must not continue it: it could not read all of it
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                self._is_older = False

        return write

    def _write_outbox(self, connection: sqlite3.Connection, start: int) -> None:
        if start != self._stored_start:
            connection.execute("DELETE FROM outbox WHERE position <= ?", (start,))
            connection.execute("INSERT OR REPLACE INTO state VALUES ('outbox_start', ?)", (start,))
            self._stored_start = start
        end = self.outbox.next_position
        if end != self._stored_end:
            connection.execute("INSERT OR REPLACE INTO state VALUES ('outbox_end', ?)", (end,))
            self._stored_end = end


async def open_job(directory: str | PathLike[str], blocking: Blocking, *, busy_seconds: float = BUSY_SECONDS) -> Job:
    """Open the job in ``directory``, which is created if it is missing. A checkpoint.

    Args:
        directory: New, empty, or with a job in it.
        blocking: How blocking work is done.
        busy_seconds: How long another program may hold the database before that is an error.

    Raises:
        JobError: Another process is using it; or it is damaged, of a newer version, or can't be written.
        UsageError: It is not a directory, or holds other files.
    """
    path = Path(directory)
    return Job(path, await blocking.run(_Opened, path, busy_seconds), blocking)


class _Opened:
    """State read from the disk while a job is opened. The constructor blocks."""

    def __init__(self, directory: Path, busy_seconds: float) -> None:
        _make(directory)
        self.lock: JobLock = JobLock(directory)
        try:
            try:
                self.connection: sqlite3.Connection
                self.is_new: bool
                self.connection, self.is_new = connect(directory, busy_seconds=busy_seconds)
                try:
                    self._read()
                    self.lock.clear_error()
                except BaseException:
                    self.connection.close()
                    raise
            except DATABASE_ERRORS as error:
                raise job_error(directory, error) from error
        except BaseException:
            self.lock.release()
            raise

    def _read(self) -> None:
        connection = self.connection
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        self.is_older: bool = version < SCHEMA_VERSION
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")  # can it be written? Nothing is, until a commit
        connection.execute("ROLLBACK")
        if connection.execute("SELECT 1 FROM spilled LIMIT 1").fetchone():
            connection.execute("DELETE FROM spilled")  # the requests come back, and will give these items again
        self.kept: dict[str, bytes] = read_kept(connection)
        self.outbox_start: int
        self.outbox_end: int
        self.outbox_start, self.outbox_end = read_outbox_ends(connection)


def _make(directory: Path) -> None:
    """Create the directory if it is missing, and refuse one with other content than a job's."""
    try:
        make_folder(directory, 0o700)  # requests hold cookies, tokens and passwords
        names = [path.name for path in directory.iterdir()]
    except FileExistsError as error:
        raise UsageError(f"job {directory}: it is not a directory") from error
    except NotADirectoryError as error:
        raise UsageError(f"job {directory}: a part of its path is not a directory") from error
    except OSError as error:
        raise job_error(directory, error) from error
    strangers = [name for name in names if name != LOCK_NAME]
    if strangers and DATABASE_NAME not in strangers:
        raise UsageError(f"job {directory}: it holds other files ({min(strangers)}): give a new or empty directory")
    _tell_of_empty(directory / DATABASE_NAME)
    _close(directory, is_empty=not names)


def _tell_of_empty(database: Path) -> None:
    """Warn of an empty database, which a kill leaves while a job is created: it may have been more than that."""
    with suppress(OSError):
        if not database.stat().st_size:
            words = "job %s: its %s is empty, as a kill leaves it before anything was stored: the job begins anew"
            logger.warning(words, database.parent, database.name)


def _close(directory: Path, *, is_empty: bool) -> None:
    """Take others' permissions from an empty directory of ours; warn of one that others may read."""
    with suppress(OSError):
        status = directory.stat()
        mode = stat.S_IMODE(status.st_mode)
        if not mode & _OTHERS:
            return
        if is_empty and status.st_uid == os.geteuid():
            directory.chmod(mode & ~_OTHERS)
        else:
            logger.warning(
                "job %s: others on this machine may read it, with the cookies and passwords in it: "
                "`chmod 700 %s` keeps them out",
                directory,
                directory,
            )


def _nothing(given: object) -> None:
    """Do nothing: the step only causes a transaction."""
