"""A job's database: its tables, its version, and how it is opened.

``synchronous`` is NORMAL, not FULL. With a write-ahead log that means that a transaction is on disk, as far as this
process can put it there, when its commit returns: killing the process loses nothing. What a power cut or a kernel crash
can take are the last transactions as a whole, never a part of one and never an earlier one: pages fetched in those
seconds are fetched again. FULL would add one ``fsync`` to each commit, 1 to 10 ms on common disks, to save that. It
is FULL for the commits that something outside of the database counts on.

Nothing that a job's directory holds is trusted: the schema must be ours to the letter (a trigger or a view would run
with our commands), functions in a schema are off, and no extension can be loaded.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from trawl.errors import JobError, UsageError
from trawl.frontier.errors import malformed

__all__ = ["APPLICATION_ID", "DATABASE_NAME", "SCHEMA_VERSION", "connect", "connect_to_read"]

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


def connect(directory: Path, *, busy_seconds: float = BUSY_SECONDS) -> tuple[sqlite3.Connection, bool]:
    """Open the job's database for writing, created if missing. Returns whether it was created now, too.

    Raises:
        sqlite3.Error: It can't be opened, read or written.
        JobError: It is of a newer version, or was changed by something else.
        UsageError: It is not a job.
    """
    _look_at_file(directory)
    # One thread at a time uses it, never the same: the check of sqlite3 would only see that they differ.
    connection = sqlite3.connect(
        directory / DATABASE_NAME, timeout=busy_seconds, isolation_level=None, check_same_thread=False
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
    """Refuse a file that SQLite would overwrite.

    It takes an empty file, or one of a few bytes, for a new database, and deletes the log beside it.
    """
    database, log = directory / DATABASE_NAME, _log_of(directory)
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
