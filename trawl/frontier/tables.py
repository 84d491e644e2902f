"""A job's database: its tables and version, the functions that open it, and all SQL for its tables.

The setting ``synchronous`` is NORMAL, not FULL. With a write-ahead log, NORMAL means that a transaction has been passed
to the operating system when its commit returns, so killing the process loses nothing. A power cut or a kernel crash can
lose the last few transactions. It never loses only a part of a transaction, and if it loses a transaction, it also
loses all later transactions. The pages fetched in the lost transactions are then fetched again. FULL would prevent
this, but it would add one ``fsync`` to each commit, which takes 1 to 10 ms on common disks. FULL is used only for a
commit on which other files depend.

The content of a job's directory is not trusted. The schema must be exactly trawl's, because a trigger or a view would
run with trawl's statements. SQL functions in a schema are disabled, and no extension can be loaded.

Each function on the tables runs inside a transaction. Another program may have changed the database, and a silent loss
is worse than an error. So the functions that read also check for missing rows, and check the types of values, which
SQLite does not enforce. These checks take almost no time.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from trawl.errors import HostGivenUp, JobError, UsageError
from trawl.file_sync import check_journal
from trawl.frontier.base import OutboxItem
from trawl.frontier.errors import malformed
from trawl.frontier.job import AT_ONCE, LAST_ORDER, READ_BYTES, HeldLane, Place, Row, Snapshot, Step, wall_time
from trawl.frontier.own_files import check_directory, check_file
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
    "rows_after",
    "take_spilled",
    "unspill",
    "which_are_seen",
    "write",
]

DATABASE_NAME = "job.db"

SCHEMA_VERSION = 2
"""Version of the schema. It is increased with each change that an older release of trawl can't handle.

Version 2 added a separate lane for held requests, and counts of rows. In a job of version 1, the first transaction sets
version 2.
"""

APPLICATION_ID = 0x7472776C  # the bytes "trwl"
BUSY_SECONDS = 5.0  # time to wait for another program that locks the database, before an error is raised
CACHE_BYTES = 16 << 20  # size of SQLite's cache in memory
LOG_PAGES = 4000  # number of 4 KiB pages in the write-ahead log at which SQLite copies them to the database
_HEADER_BYTES = 100  # size of the header of a database, which is larger

_TABLES = (
    # A pending request, leased or not. `ord` is its arrival order. The index sorts the requests of a lane.
    "CREATE TABLE request (ord INTEGER PRIMARY KEY, lane INTEGER NOT NULL, priority INTEGER NOT NULL,"
    " share REAL NOT NULL, record BLOB NOT NULL)",
    "CREATE INDEX request_lane ON request (lane, priority, share)",
    # A failed request. It is kept, so that it can be queued again.
    "CREATE TABLE failed (ord INTEGER PRIMARY KEY, lane INTEGER NOT NULL, failed_at REAL NOT NULL,"
    " reason TEXT NOT NULL, record BLOB NOT NULL)",
    "CREATE TABLE seen (fingerprint BLOB PRIMARY KEY) WITHOUT ROWID",
    # Items of requests that have not ended are in `spilled`, and items of ended requests are in `outbox`.
    "CREATE TABLE spilled (ord INTEGER, n INTEGER, item BLOB NOT NULL, PRIMARY KEY (ord, n)) WITHOUT ROWID",
    "CREATE TABLE outbox (position INTEGER PRIMARY KEY, item BLOB NOT NULL)",
    "CREATE TABLE kept (name TEXT PRIMARY KEY, blob BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE state (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
)


def connect(directory: Path) -> tuple[sqlite3.Connection, bool]:
    """Open the job's database for writing. Return the connection, and whether this call has created the database.

    Raises:
        sqlite3.Error: If the database can't be opened, read or written.
        JobError: If the job has a newer version, or another program has changed it.
        UsageError: If the database is not a job.
    """
    _look_at_file(directory)
    with _opened(str(directory / DATABASE_NAME)) as connection:
        tables: int = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        # Nothing was committed if the file is new or its first process was killed early.
        is_new = not tables and not _pragma(connection, "application_id")
        if is_new:
            connection.execute("PRAGMA journal_mode = WAL")
            _create(connection)
        _check(connection, directory)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
    return connection, is_new


def connect_to_read(directory: Path) -> sqlite3.Connection:
    """Open the job's database for reading, while another process may be using it.

    To read a database, SQLite creates files next to it, and it removes them only if it has write access. A database
    without a log is not in use, so it is opened with write access, although nothing is written. If files can't be
    created, for example on a read-only disk, the database is opened as immutable. Raises the errors of :func:`connect`.
    """
    path = directory / DATABASE_NAME
    if not path.is_file():
        raise UsageError(f"job {directory}: there is no job in this directory")
    _look_at_file(directory)
    mode = "ro"
    if not _log_of(directory).exists():
        mode = "rw" if os.access(directory, os.W_OK, effective_ids=True) else "ro&immutable=1"
    with _opened(f"{path.absolute().as_uri()}?mode={mode}", is_uri=True) as connection:
        connection.execute("PRAGMA query_only = ON")
        _check(connection, directory)
    return connection


def _look_at_file(directory: Path) -> None:
    """Raise an error for a file that other users may write, that SQLite would overwrite, or that is a link.

    SQLite treats an empty or very short file as a new database, and deletes its log.
    """
    database, log = directory / DATABASE_NAME, _log_of(directory)
    check_directory(directory)
    for ending in ("", "-wal", "-shm", "-journal"):
        check_file(directory, directory / f"{DATABASE_NAME}{ending}")
    try:
        check_journal(database)
    except OSError as error:
        raise JobError(f"job {directory}: {error}", str(directory)) from error
    if database.is_file() and 0 < database.stat().st_size < _HEADER_BYTES:
        raise malformed(f"it has {database.stat().st_size} bytes, less than an empty database")
    try:
        is_lost = log.stat().st_size > 0 and (not database.exists() or not database.stat().st_size)
    except FileNotFoundError:
        return
    if is_lost:
        raise malformed("the database is empty, but its log is not")


def _log_of(directory: Path) -> Path:
    return directory / f"{DATABASE_NAME}-wal"


@contextmanager
def _opened(place: str, *, is_uri: bool = False) -> Iterator[sqlite3.Connection]:
    """Open a database, and close it if the block fails."""
    # Several threads use the connection, one at a time. sqlite3's own check would refuse all but one thread.
    connection = sqlite3.connect(place, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=is_uri)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA cache_size = {-(CACHE_BYTES >> 10)}")
        yield connection
    except BaseException:
        connection.close()
        raise


def _create(connection: sqlite3.Connection) -> None:
    with connection:  # which commits at the end of the block, or rolls back
        connection.execute("BEGIN IMMEDIATE")
        for statement in _TABLES:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _check(connection: sqlite3.Connection, directory: Path) -> None:
    path = directory / DATABASE_NAME
    if _pragma(connection, "application_id") != APPLICATION_ID:
        raise UsageError(f"job {directory}: {path.name} is not a job of trawl: give a new or empty directory")
    version = _pragma(connection, "user_version")
    if version < 1:
        raise malformed(f"its version is {version}")
    if version > SCHEMA_VERSION:
        raise JobError(
            f"job {directory}: a newer trawl wrote it (version {version}; this one reads {SCHEMA_VERSION}):"
            " continue with that release, or use a new directory",
            str(directory),
        )
    rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    if {row[0] for row in rows} != set(_TABLES):
        raise JobError(
            f"job {directory}: its tables differ from trawl's: another program has changed it", str(directory)
        )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


_INSERT = "INSERT INTO request (ord, lane, priority, share, record) VALUES (?, ?, ?, ?, ?)"

_FIRST = "SELECT ord, lane, priority, share, record FROM request WHERE lane = ? ORDER BY priority, share, ord LIMIT ?"


class RowCounts:
    """Counts of requests and fingerprints, stored with each transaction and compared at the start to detect lost rows.

    A job of an earlier release has no stored counts yet.
    """

    __slots__ = ("_stored", "requests", "seen")

    def __init__(self) -> None:
        self.requests: int = 0
        self.seen: int = 0
        self._stored = (0, 0)

    def compare(self, connection: sqlite3.Connection, requests: int, seen: int) -> None:
        """Set the counts to the counted rows. Raises an error if they differ from those of the last transaction."""
        counted = {"requests": requests, "seen": seen}
        names = {"requests": "pending requests", "seen": "seen fingerprints"}
        for name, value in connection.execute("SELECT name, value FROM state WHERE name IN ('requests', 'seen')"):
            if value != counted[name]:
                raise malformed(f"it has {counted[name]} {names[name]} and had {value}")
        self.requests, self.seen = requests, seen

    def write(self, connection: sqlite3.Connection) -> None:
        """Store the counts. Call this method at the end of a transaction."""
        now = (self.requests, self.seen)
        if now != self._stored:
            rows = [("requests", self.requests), ("seen", self.seen)]
            connection.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", rows)
            self._stored = now


def read_kept(connection: sqlite3.Connection) -> dict[str, bytes]:
    """Return the saved values by name."""
    kept: dict[str, bytes] = dict(connection.execute("SELECT name, blob FROM kept"))
    for name, blob in kept.items():
        if type(name) is not str or type(blob) is not bytes:
            raise malformed(f"its saved value {name!r} is not bytes")
    return kept


def read_outbox_ends(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the positions of the last item that the feeds have written and of the last item in the outbox.

    Checks that the first and last items exist. If items between them are missing, reading them raises the error.
    """
    state = dict(connection.execute("SELECT name, value FROM state"))
    start, end = state.get("outbox_start", 0), state.get("outbox_end", 0)
    if type(start) is not int or type(end) is not int or not 0 <= start <= end < LAST_ORDER:
        raise malformed(f"its items can't be numbered from {start!r} to {end!r}")
    first, last = connection.execute("SELECT min(position), max(position) FROM outbox").fetchone()
    if (first, last) != ((None, None) if start == end else (start + 1, end)):
        raise malformed(f"items {start + 1} to {end} should wait for the feeds, but {first} to {last} do")
    return start, end


def read_snapshot(connection: sqlite3.Connection, max_marks: int, row_counts: RowCounts) -> Snapshot:
    """Return the state of the database. Its ``marks`` are None if there are more than ``max_marks`` fingerprints."""
    counts = connection.execute("SELECT lane, count(*) FROM request GROUP BY lane").fetchall()
    held = sum(pending for lane, pending in counts if lane == HELD)
    counts = [(lane, pending) for lane, pending in counts if lane != HELD]
    lanes = [(pending, _heads(connection, lane, 1)[0]) for lane, pending in counts]
    # In a depth-first crawl the orders are negative.
    lanes.sort(key=lambda lane: abs(lane[1][0]))
    edges = [
        abs(connection.execute(f"SELECT {edge}(ord) FROM {table}").fetchone()[0] or 0)  # negative if depth-first
        for table in ("request", "failed")
        for edge in ("min", "max")
    ]
    if max(edges) >= LAST_ORDER:
        raise malformed(f"one of its requests has the invalid order {max(edges)}")
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
    """Write a step, except its items. Return the time of the first held request if the step asks for it."""
    if step.ended is not None:
        order = step.ended[0]
        if step.failed is not None:
            statement = "INSERT INTO failed SELECT ord, lane, ?, ?, record FROM request WHERE ord = ?"
            connection.execute(statement, (*reversed(step.failed), order))
        row_counts.requests -= connection.execute("DELETE FROM request WHERE ord = ?", (order,)).rowcount
    if step.rows:
        connection.executemany(_INSERT, step.rows)
        row_counts.requests += len(step.rows)
    marks = [(mark,) for mark in step.marks if mark is not None]
    if marks:
        # Sort the marks, so that neighboring marks are written to the same pages of the tree.
        new = connection.executemany("INSERT OR IGNORE INTO seen VALUES (?)", sorted(marks))
        row_counts.seen += new.rowcount
    if step.spilled:
        connection.executemany("INSERT INTO spilled VALUES (?, ?, ?)", step.spilled)
    if step.moved:
        statement = "UPDATE request SET lane = ?, priority = ?, share = ? WHERE ord = ?"
        connection.executemany(statement, [(*to, place[0]) for place, to in step.moved])
    if step.dropped:
        gone = connection.executemany("DELETE FROM request WHERE ord = ?", [(place[0],) for place in step.dropped])
        row_counts.requests -= gone.rowcount
    for lane, staying in step.emptied:
        statement = "DELETE FROM request WHERE lane = ? AND ord NOT IN (SELECT value FROM json_each(?))"
        gone = connection.execute(statement, (lane, json.dumps([place[0] for place in staying])))
        row_counts.requests -= gone.rowcount
    return _first_due(connection) if step.due_of else None


GIVEN_UP = f"reason LIKE '{HostGivenUp.WORDS}%'"
"""SQL condition for failed requests of hosts that were given up."""


def has_given_up(connection: sqlite3.Connection) -> bool:
    """Return True if there are requests of hosts that were given up."""
    return connection.execute(f"SELECT 1 FROM failed WHERE {GIVEN_UP} LIMIT 1").fetchone() is not None


def requeue(connection: sqlite3.Connection, now: float, wanted: str = "true") -> int:
    """Queue failed requests again, as if they had never been sent, and return their number.

    The rows must not have been counted yet. ``wanted`` is an SQL condition for the requests.
    """
    rows = connection.execute(f"SELECT ord, lane, record FROM failed WHERE {wanted} ORDER BY ord")
    requeued = (requeued_row(order, lane, unpack(record), now) for order, lane, record in rows)
    queued = max(connection.executemany(_INSERT, requeued).rowcount, 0)
    connection.execute(f"DELETE FROM failed WHERE {wanted}")
    connection.execute("UPDATE state SET value = value + ? WHERE name = 'requests'", (queued,))
    return queued


def put_items(connection: sqlite3.Connection, items: Sequence[bytes], last: int) -> int:
    """Put items into the outbox after position ``last``, and return their number."""
    rows = list(enumerate(items, start=last + 1))
    connection.executemany("INSERT INTO outbox VALUES (?, ?)", rows)
    return len(rows)


def take_spilled(connection: sqlite3.Connection, order: int, last: int) -> int:
    """Move the spilled items of a request into the outbox after position ``last``, and return their number."""
    moved = connection.execute(
        "INSERT INTO outbox (position, item) SELECT ? + n, item FROM spilled WHERE ord = ? ORDER BY n", (last, order)
    ).rowcount
    unspill(connection, order)
    return moved


def read_outbox(connection: sqlite3.Connection, position: int, limit: int) -> list[OutboxItem]:
    """Return up to ``limit`` items after ``position`` from the outbox, or fewer if the items are large."""
    found: list[OutboxItem] = []
    size = 0
    rows = connection.execute(
        "SELECT position, item FROM outbox WHERE position > ? ORDER BY position LIMIT ?", (position, limit)
    )
    for row in rows:
        if row[0] != position + len(found) + 1 or type(row[1]) is not bytes:
            raise malformed(f"item {position + len(found) + 1}, which waits for the feeds, is missing")
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
    """Return the first records of each lane, up to the lane's limit in ``wanted``."""
    return [_heads(connection, *each) for each in wanted]


def rows_after(connection: sqlite3.Connection, lane: int, place: Place | None) -> list[Row]:
    """Return the first requests of a lane after a place, or its first ones."""
    if place is None:
        return _heads(connection, lane, AT_ONCE)
    order, _, priority, share = place
    statement = _FIRST.replace("lane = ?", "lane = ? AND (priority, share, ord) > (?, ?, ?)")
    return connection.execute(statement, (lane, priority, share, order, AT_ONCE)).fetchall()


def _heads(connection: sqlite3.Connection, lane: int, limit: int) -> list[Row]:
    heads: list[Row] = connection.execute(_FIRST, (lane, limit)).fetchall()
    for order, _, priority, share, record in heads:
        if type(record) is not bytes:
            raise malformed(f"its request {order} is not bytes")
        if type(priority) is not int or type(share) is not float:
            raise malformed(f"its request {order} has the priority {priority!r} and the share {share!r}")
    return heads


def which_are_seen(connection: sqlite3.Connection, marks: Sequence[bytes]) -> set[bytes]:
    """Return the ``marks`` that were seen before."""
    statement = "SELECT 1 FROM seen WHERE fingerprint = ?"
    return {mark for mark in marks if connection.execute(statement, (mark,)).fetchone() is not None}


def due(connection: sqlite3.Connection, now: int) -> list[Row]:
    """Return the first held requests that are due at ``now``, in microseconds since the epoch."""
    statement = _FIRST.replace("lane = ?", "lane = ? AND priority <= ?")
    return connection.execute(statement, (HELD, now, AT_ONCE)).fetchall()


def _first_due(connection: sqlite3.Connection) -> int | None:
    """Return the time of the first held request; None if there is none."""
    (first,) = connection.execute("SELECT min(priority) FROM request WHERE lane = ?", (HELD,)).fetchone()
    if first is not None and type(first) is not int:
        raise malformed(f"a request has the invalid time {first!r}")
    return first


def is_clock_set_back(connection: sqlite3.Connection, now: float) -> bool:
    """Return whether the newest held request was stored after ``now``, which is in seconds since the epoch."""
    statement = "SELECT record FROM request WHERE lane = ? ORDER BY abs(ord) DESC LIMIT 1"
    row = connection.execute(statement, (HELD,)).fetchone()
    if row is None:
        return False
    stored = unpack(row[0])
    return stored.until is not None and stored.until - stored.wait > now + 1.0


def bring_forward(connection: sqlite3.Connection, now: float) -> None:
    """If the clock was set back to ``now``, let no held request wait longer than the wait that was stored with it."""
    last = -(2**63)
    # Sort by arrival order, which does not change. This loop changes the times, so if the requests were sorted by time,
    # some would be read twice.
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
