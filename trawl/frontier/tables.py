"""A job's database: its tables, its version, how it is opened, and the SQL on its tables.

``synchronous`` is NORMAL, not FULL. With a write-ahead log that means that a transaction is on disk, as far as this
process can put it there, when its commit returns: killing the process loses nothing. What a power cut or a kernel crash
can take are the last transactions as a whole, never a part of one and never an earlier one: pages fetched in those
seconds are fetched again. FULL would add one ``fsync`` to each commit, 1 to 10 ms on common disks, to save that. It
is FULL for the commits that something outside of the database counts on.

Nothing that a job's directory holds is trusted: the schema must be ours to the letter (a trigger or a view would run
with our commands), functions in a schema are off, and no extension can be loaded.

Each function on the tables is a part of a transaction. Values that are read are checked as far as that costs next to
nothing: their types, which SQLite does not enforce, and whether rows are missing. Another program may have changed the
database, and a silent loss is worse than an error.

Length: all SQL on the tables is read, and checked against their form, in one place.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from trawl.errors import HostGivenUp, JobError, UsageError
from trawl.file_sync import check_journal
from trawl.frontier.base import OutboxItem
from trawl.frontier.errors import malformed
from trawl.frontier.job import AT_ONCE, LAST_ORDER, READ_BYTES, HeldLane, Row, Snapshot, Step, wall_time
from trawl.frontier.own_files import check_file
from trawl.frontier.parts import HELD
from trawl.frontier.record_format import repack, requeued_row, unpack

__all__ = [
    "APPLICATION_ID",
    "DATABASE_NAME",
    "GIVEN_UP",
    "SCHEMA_VERSION",
    "RowCounts",
    "bring_forward",
    "connect",
    "connect_to_read",
    "due",
    "has_given_up",
    "is_clock_set_back",
    "put_items",
    "read_kept",
    "read_lanes",
    "read_outbox",
    "read_outbox_ends",
    "read_snapshot",
    "requeue",
    "take_spilled",
    "unspill",
    "which_are_seen",
    "write",
]

DATABASE_NAME = "job.db"
"""The database in a job's directory."""

SCHEMA_VERSION = 2
"""Goes up with every change that an older trawl could not work with.

2: requests that wait for a time of their own are in a lane of their own, and rows are counted. A job of version 1
becomes one with its first transaction.
"""

APPLICATION_ID = 0x7472776C
"""Marks the file as ours: ``trwl``."""

BUSY_SECONDS = 5.0
"""How long another program may hold the database before that is an error."""

CACHE_BYTES = 16 << 20
"""Cache of SQLite in memory."""

LOG_PAGES = 4000
"""Pages of 4 KiB in the write-ahead log before they are copied to the database."""

_HEADER_BYTES = 100
"""A database has more."""

_TABLES = (
    # A pending request, leased or not. `ord` is its order of coming; with the index it is the order of its lane.
    "CREATE TABLE request (ord INTEGER PRIMARY KEY, lane INTEGER NOT NULL, priority INTEGER NOT NULL,"
    " share REAL NOT NULL, record BLOB NOT NULL)",
    "CREATE INDEX request_lane ON request (lane, priority, share)",
    # A request that ended in an error, so that it can be queued again.
    "CREATE TABLE failed (ord INTEGER PRIMARY KEY, lane INTEGER NOT NULL, failed_at REAL NOT NULL,"
    " reason TEXT NOT NULL, record BLOB NOT NULL)",
    "CREATE TABLE seen (fingerprint BLOB PRIMARY KEY) WITHOUT ROWID",
    # Items of requests that have not ended, and of those that have.
    "CREATE TABLE spilled (ord INTEGER, n INTEGER, item BLOB NOT NULL, PRIMARY KEY (ord, n)) WITHOUT ROWID",
    "CREATE TABLE outbox (position INTEGER PRIMARY KEY, item BLOB NOT NULL)",
    "CREATE TABLE kept (name TEXT PRIMARY KEY, blob BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE state (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
)


def connect(directory: Path) -> tuple[sqlite3.Connection, bool]:
    """Open the job's database for writing, created if missing. Returns whether it was created now, too.

    Raises:
        sqlite3.Error: It can't be opened, read or written.
        JobError: It is of a newer version, or was changed by something else.
        UsageError: It is not a job.
    """
    _look_at_file(directory)
    # One thread at a time uses it, never the same: the check of sqlite3 would only see that they differ.
    connection = sqlite3.connect(
        directory / DATABASE_NAME, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        _configure(connection)
        is_new = _is_empty(connection)
        if is_new:
            connection.execute("PRAGMA journal_mode = WAL")
            _create(connection)
        _check(connection, directory)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
    except BaseException:
        connection.close()
        raise
    return connection, is_new


def connect_to_read(directory: Path) -> sqlite3.Connection:
    """Open the job's database for reading beside the process that may be using it.

    SQLite makes files beside a database to read it, and removes them only with write access: so a job at rest, which
    has no log, is opened for writing, and nothing is written. Where files can't be made, for example on a read-only
    disk, it is opened as immutable.

    Raises:
        sqlite3.Error: It can't be opened or read.
        JobError: It is of a newer version, or was changed by something else.
        UsageError: There is no job.
    """
    path = directory / DATABASE_NAME
    if not path.is_file():
        raise UsageError(f"job {directory}: there is no job in this directory")
    _look_at_file(directory)
    mode = "ro"
    if not _log_of(directory).exists():
        mode = "rw" if os.access(directory, os.W_OK, effective_ids=True) else "ro&immutable=1"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        uri=True,
    )
    try:
        _configure(connection)
        connection.execute("PRAGMA query_only = ON")
        _check(connection, directory)
    except BaseException:
        connection.close()
        raise
    return connection


def _look_at_file(directory: Path) -> None:
    """Refuse a file that SQLite would overwrite, and one that would have it write or delete another file.

    It takes an empty file, or one of a few bytes, for a new database, and deletes the log beside it.
    """
    database, log = directory / DATABASE_NAME, _log_of(directory)
    for ending in ("", "-wal", "-shm", "-journal"):
        check_file(directory, directory / f"{DATABASE_NAME}{ending}", is_private=False)
    try:
        check_journal(database)
    except OSError as error:
        raise JobError(f"job {directory}: {error}", str(directory)) from error
    if database.is_file() and 0 < database.stat().st_size < _HEADER_BYTES:
        raise malformed(f"it has {database.stat().st_size} bytes, less than the least database")
    try:
        is_lost = log.stat().st_size > 0 and (not database.exists() or not database.stat().st_size)
    except FileNotFoundError:
        return
    if is_lost:
        raise malformed("the database is empty, but its log is not")


def _log_of(directory: Path) -> Path:
    return directory / f"{DATABASE_NAME}-wal"


def _configure(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute(f"PRAGMA cache_size = {-(CACHE_BYTES >> 10)}")


def _is_empty(connection: sqlite3.Connection) -> bool:
    """Return whether nothing was ever written: it is new, or its maker was killed before the first transaction."""
    tables: int = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return not tables and not _pragma(connection, "application_id")


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in _TABLES:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _check(connection: sqlite3.Connection, directory: Path) -> None:
    path = directory / DATABASE_NAME
    if _pragma(connection, "application_id") != APPLICATION_ID:
        raise UsageError(f"job {directory}: {path.name} is not a job of trawl: give a new or empty directory")
    version = _pragma(connection, "user_version")
    if version < 1:
        raise malformed(f"it has no version, but {version}")
    if version > SCHEMA_VERSION:
        raise JobError(
            f"job {directory}: a newer trawl wrote it (version {version}; this one knows {SCHEMA_VERSION}):"
            " go on with that one, or in a new directory",
            str(directory),
        )
    rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    if {row[0] for row in rows} != set(_TABLES):
        raise JobError(
            f"job {directory}: its tables are not those that trawl makes: something changed it", str(directory)
        )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


_FIRST = "SELECT ord, lane, priority, share, record FROM request WHERE lane = ? ORDER BY priority, share, ord LIMIT ?"


class RowCounts:
    """Counts of rows, stored with each transaction and compared when the job is opened: lost rows are noticed.

    A job of an earlier release has none yet.

    Attributes:
        requests: Requests, leased or not.
        seen: Fingerprints.
    """

    __slots__ = ("_stored", "requests", "seen")

    def __init__(self) -> None:
        self.requests: int = 0
        self.seen: int = 0
        self._stored = (0, 0)

    def compare(self, connection: sqlite3.Connection, requests: int, seen: int) -> None:
        """Begin with counted rows.

        Raises:
            sqlite3.DatabaseError: It is not what the last transaction left.
        """
        counted = {"requests": requests, "seen": seen}
        names = {"requests": "pending requests", "seen": "seen fingerprints"}
        for name, value in connection.execute("SELECT name, value FROM state WHERE name IN ('requests', 'seen')"):
            if value != counted[name]:
                raise malformed(f"it has {counted[name]} {names[name]} and had {value}")
        self.requests, self.seen = requests, seen

    def write(self, connection: sqlite3.Connection) -> None:
        """Store the counts; called last in a transaction."""
        now = (self.requests, self.seen)
        if now != self._stored:
            rows = [("requests", self.requests), ("seen", self.seen)]
            connection.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", rows)
            self._stored = now


def read_kept(connection: sqlite3.Connection) -> dict[str, bytes]:
    """Read the saved values by name.

    Raises:
        sqlite3.DatabaseError: One of them is not bytes.
    """
    kept: dict[str, bytes] = dict(connection.execute("SELECT name, blob FROM kept"))
    for name, blob in kept.items():
        if type(name) is not str or type(blob) is not bytes:
            raise malformed(f"what it kept as {name!r} is not bytes")
    return kept


def read_outbox_ends(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the position up to which the feeds have the outbox, and that of its last item.

    Raises:
        sqlite3.DatabaseError: Its first items, or its last, are not there. Items missing between are found when they
            are read.
    """
    state = dict(connection.execute("SELECT name, value FROM state"))
    start, end = state.get("outbox_start", 0), state.get("outbox_end", 0)
    if type(start) is not int or type(end) is not int or not 0 <= start <= end < LAST_ORDER:
        raise malformed(f"its items can't be numbered from {start!r} to {end!r}")
    first, last = connection.execute("SELECT min(position), max(position) FROM outbox").fetchone()
    if (first, last) != ((None, None) if start == end else (start + 1, end)):
        raise malformed(f"items {start + 1} to {end} are to wait for the feeds, and {first} to {last} do")
    return start, end


def read_snapshot(connection: sqlite3.Connection, max_marks: int, row_counts: RowCounts) -> Snapshot:
    """Read the state of the database; ``marks`` is None if there are more than ``max_marks``.

    Raises:
        sqlite3.DatabaseError: It is not as the last transaction left it.
    """
    counts = connection.execute("SELECT lane, count(*) FROM request GROUP BY lane").fetchall()
    held = sum(pending for lane, pending in counts if lane == HELD)
    counts = [(lane, pending) for lane, pending in counts if lane != HELD]
    lanes = [(pending, _heads(connection, lane, 1)[0]) for lane, pending in counts]
    # Depth first, orders are negative.
    lanes.sort(key=lambda lane: abs(lane[1][0]))
    edges = [
        abs(connection.execute(f"SELECT {edge}(ord) FROM {table}").fetchone()[0] or 0)  # depth first, they are negative
        for table in ("request", "failed")
        for edge in ("min", "max")
    ]
    if max(edges) >= LAST_ORDER:
        raise malformed(f"one of its requests has the order {max(edges)}")
    seen: int = connection.execute("SELECT count(*) FROM seen").fetchone()[0]
    row_counts.compare(connection, held + sum(pending for pending, _ in lanes), seen)
    marks = None
    if seen <= max_marks:
        marks = [row[0] for row in connection.execute("SELECT fingerprint FROM seen")]
        if not all(type(mark) is bytes for mark in marks):
            raise malformed("its seen fingerprints are not bytes")
    first = _first_due(connection)
    return Snapshot(lanes, max(edges), seen, marks, () if first is None else (HeldLane(HELD, held, first),))


def write(connection: sqlite3.Connection, step: Step, row_counts: RowCounts) -> int | None:
    """Write a step, but for items that come into the outbox.

    Returns the time of the first request that is held, if it is asked for; None: there is none.
    """
    if step.ended is not None:
        _end(connection, step.ended[0], step.failed, row_counts)
    if step.rows:
        statement = "INSERT INTO request (ord, lane, priority, share, record) VALUES (?, ?, ?, ?, ?)"
        connection.executemany(statement, step.rows)
        row_counts.requests += len(step.rows)
    marks = [(mark,) for mark in step.marks if mark is not None]
    if marks:
        # Sorted: neighbours go to the same pages of the tree.
        new = connection.executemany("INSERT OR IGNORE INTO seen VALUES (?)", sorted(marks))
        row_counts.seen += new.rowcount
    if step.spilled:
        connection.executemany("INSERT INTO spilled VALUES (?, ?, ?)", step.spilled)
    if step.moved:
        statement = "UPDATE request SET lane = ?, priority = ?, share = ? WHERE ord = ?"
        connection.executemany(statement, [(*to, place[0]) for place, to in step.moved])
    return _first_due(connection) if step.due_of else None


def _end(connection: sqlite3.Connection, order: int, failed: tuple[str, float] | None, row_counts: RowCounts) -> None:
    """Remove a request; with the reason of a failure and its wall time, move it to the failed ones."""
    if failed is not None:
        connection.execute(
            "INSERT INTO failed SELECT ord, lane, ?, ?, record FROM request WHERE ord = ?",
            (failed[1], failed[0], order),
        )
    row_counts.requests -= connection.execute("DELETE FROM request WHERE ord = ?", (order,)).rowcount


GIVEN_UP = f"reason LIKE '{HostGivenUp.WORDS}%'"
"""The condition for failed requests of hosts that were given up."""


def has_given_up(connection: sqlite3.Connection) -> bool:
    """Return True if there are requests of hosts that were given up."""
    return connection.execute(f"SELECT 1 FROM failed WHERE {GIVEN_UP} LIMIT 1").fetchone() is not None


def requeue(connection: sqlite3.Connection, now: float, wanted: str = "true") -> int:
    """Queue failed requests again, as if they had never been tried. Returns how many.

    Args:
        connection: In a transaction; the rows were not counted yet.
        now: The wall time, in seconds since 1970.
        wanted: The condition for them.
    """
    rows = connection.execute(f"SELECT ord, lane, record FROM failed WHERE {wanted} ORDER BY ord")
    queued = connection.executemany(
        "INSERT INTO request (ord, lane, priority, share, record) VALUES (?, ?, ?, ?, ?)",
        (requeued_row(order, lane, unpack(record), now) for order, lane, record in rows),
    ).rowcount
    connection.execute(f"DELETE FROM failed WHERE {wanted}")
    connection.execute("UPDATE state SET value = value + ? WHERE name = 'requests'", (max(queued, 0),))
    return max(queued, 0)


def put_items(connection: sqlite3.Connection, items: Sequence[bytes], last: int) -> int:
    """Put items into the outbox after position ``last``. Returns how many."""
    rows = list(enumerate(items, start=last + 1))
    connection.executemany("INSERT INTO outbox VALUES (?, ?)", rows)
    return len(rows)


def take_spilled(connection: sqlite3.Connection, order: int, last: int) -> int:
    """Move the spilled items of a request into the outbox, after position ``last``. Returns how many."""
    moved = connection.execute(
        "INSERT INTO outbox (position, item) SELECT ? + n, item FROM spilled WHERE ord = ? ORDER BY n", (last, order)
    ).rowcount
    unspill(connection, order)
    return moved


def read_outbox(connection: sqlite3.Connection, position: int, limit: int) -> list[OutboxItem]:
    """Read up to ``limit`` items after ``position`` from the outbox, fewer if they are large.

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


def unspill(connection: sqlite3.Connection, order: int) -> None:
    """Remove the spilled items of a request that will be sent again."""
    connection.execute("DELETE FROM spilled WHERE ord = ?", (order,))


def read_lanes(connection: sqlite3.Connection, wanted: Sequence[tuple[int, int]]) -> list[list[Row]]:
    """Read the first records of each lane, as many as are wanted of it."""
    return [_heads(connection, *each) for each in wanted]


def _heads(connection: sqlite3.Connection, lane: int, limit: int) -> list[Row]:
    heads: list[Row] = connection.execute(_FIRST, (lane, limit)).fetchall()
    for order, _, priority, share, record in heads:
        if type(record) is not bytes:
            raise malformed(f"its request {order} is not bytes")
        if type(priority) is not int or type(share) is not float:
            raise malformed(f"its request {order} has the priority {priority!r} and the share {share!r}")
    return heads


def which_are_seen(connection: sqlite3.Connection, marks: Sequence[bytes]) -> set[bytes]:
    """Return those of ``marks`` that were seen."""
    statement = "SELECT 1 FROM seen WHERE fingerprint = ?"
    return {mark for mark in marks if connection.execute(statement, (mark,)).fetchone() is not None}


def due(connection: sqlite3.Connection, now: int) -> list[Row]:
    """Read the first requests that are due at ``now``, in microseconds since 1970."""
    statement = (
        "SELECT ord, lane, priority, share, record FROM request WHERE lane = ? AND priority <= ?"
        " ORDER BY priority, share, ord LIMIT ?"
    )
    return connection.execute(statement, (HELD, now, AT_ONCE)).fetchall()


def _first_due(connection: sqlite3.Connection) -> int | None:
    """Return the time of the first held request; None if there is none."""
    (first,) = connection.execute("SELECT min(priority) FROM request WHERE lane = ?", (HELD,)).fetchone()
    if first is not None and type(first) is not int:
        raise malformed(f"a request may go at {first!r}")
    return first


def is_clock_set_back(connection: sqlite3.Connection, now: float) -> bool:
    """Return whether the newest held request was stored later than ``now``, in seconds since 1970."""
    statement = "SELECT record FROM request WHERE lane = ? ORDER BY abs(ord) DESC LIMIT 1"
    row = connection.execute(statement, (HELD,)).fetchone()
    if row is None:
        return False
    stored = unpack(row[0])
    return stored.until is not None and stored.until - stored.wait > now + 1.0


def bring_forward(connection: sqlite3.Connection, now: float) -> None:
    """Limit waits after the clock was set back to ``now``: none is longer than when its request was stored."""
    last = -(2**63)
    # By the order, which stays as it is: by the time, which is changed here, some would be read twice.
    statement = "SELECT ord, record FROM request WHERE lane = ? AND ord > ? ORDER BY ord LIMIT ?"
    while rows := connection.execute(statement, (HELD, last, AT_ONCE)).fetchall():
        last = rows[-1][0]
        changed = []
        for order, record in rows:
            stored = unpack(record)
            if stored.until is not None and stored.until > now + stored.wait:
                until = now + stored.wait
                changed.append((wall_time(until), repack(stored, until=until), order))
        connection.executemany("UPDATE request SET priority = ?, record = ? WHERE ord = ?", changed)
