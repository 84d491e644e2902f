"""Items as rows of a SQLite table, whose columns are the fields that items have, as they come.

Each flush is one transaction, so a crawl that is killed leaves whole rows. The row numbers are counted up: a job cuts
the table back to the last one that it has recorded. Text, numbers and NULL are stored as such; what is nested is JSON.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trawl.feeds.base import NotThisFormat
from trawl.feeds.plain import legal_text, to_json, to_plain
from trawl.feeds.table import Row

__all__ = ["SqliteTable"]

logger: logging.Logger = logging.getLogger("trawl.feeds")

_LARGEST = 2**63
_BUSY = 5.0  # seconds that a reader of the file may hold up a write
_ROW_BYTES = 50


class SqliteTable:
    """A table of a database, which may have others."""

    errors: tuple[type[Exception], ...] = (sqlite3.Error,)

    def __init__(self, name: str = "items", fields: Sequence[str] = ()) -> None:
        """The table of this name; one that is made has columns for ``fields`` from the start."""
        self.position: int = 0
        self._name = _quoted(name)
        self._bare = name
        self._fields = fields
        self._told: set[str] = set()
        self._path = Path()
        self._is_new = False
        self._overwrites = False
        self._keep: int | None = 0
        self._columns: dict[str, str] = {}  # by the name in lower case, as SQLite compares them
        self._database: sqlite3.Connection | None = None

    def row(self, fields: Mapping[str, object]) -> tuple[Row, int]:
        """The values that SQLite has."""
        row = {legal_text(str(name)).replace("\0", ""): _value(value) for name, value in fields.items()}
        return row, sum([_ROW_BYTES + len(value) for value in row.values() if isinstance(value, str)], _ROW_BYTES)

    def open(self, path: Path, *, overwrite: bool) -> None:
        """Open the database, or make it."""
        self._path, self._overwrites, self._is_new = path, overwrite, not path.exists()
        self._database = sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
        self._run("PRAGMA journal_mode = WAL")  # a kill leaves the last whole transaction, and nobody waits for a disk
        self._run("PRAGMA synchronous = NORMAL")
        self._columns = {_lower(name): name for _, name, *_ in self._run(f"PRAGMA table_info({self._name})")}

    def locate(self, position: int | None) -> None:
        """Find the row to go on after."""
        last = self._last() if self._columns else 0
        if position is not None and position > last:
            raise NotThisFormat(f"its table {self._bare} has {last} rows, not the {position} that were written to it")
        self._keep = position if position is not None else 0 if self._overwrites else last

    def start(self) -> None:
        """Remove the rows behind it; a table that is written anew is made anew."""
        self.position = self._keep or 0
        if not self.position and self._columns:
            self._run(f"DROP TABLE {self._name}")
            self._columns = {}
        elif self._columns:
            self._run(f"DELETE FROM {self._name} WHERE {self._number} > ?", (self.position,))
        if not self._columns and self._fields:
            self._add_columns({_lower(name): name for name in self._fields})

    def write(self, rows: Sequence[Row]) -> None:
        """Insert rows in one transaction."""
        self._run("BEGIN IMMEDIATE")
        known, position = dict(self._columns), self.position
        try:
            for row in rows:
                self._insert(row)
            self._run("COMMIT")
        except BaseException:
            self._columns, self.position = known, position
            if self._open.in_transaction:
                self._run("ROLLBACK")
            raise

    def sync(self) -> None:
        """Move all into the file itself, and the file to the disk."""
        self._run("PRAGMA wal_checkpoint(FULL)")

    def finish(self) -> None:
        """Leave one file behind, and close it."""
        self._run("PRAGMA wal_checkpoint(TRUNCATE)")
        self.close()

    def close(self) -> None:
        """Close the database."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def remove(self) -> None:
        """Close the database, and delete it if it was made for this feed."""
        self.close()
        if self._is_new:
            self._path.unlink(missing_ok=True)

    def discard(self) -> None:
        """Close the database, and delete it if it was made for this feed: it may have other tables."""
        self.remove()

    @property
    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            raise sqlite3.ProgrammingError("the database is not open")
        return self._database

    @property
    def _number(self) -> str:
        """What the number of a row is called: a name that is no column (SQLite, ROWIDs)."""
        return next((name for name in ("rowid", "oid", "_rowid_") if name not in self._columns), "_rowid_")

    def _run(self, statement: str, values: Iterable[Any] = ()) -> list[Any]:
        return self._open.execute(statement, tuple(values)).fetchall()

    def _last(self) -> int:
        [(last,)] = self._run(f"SELECT max({self._number}) FROM {self._name}")
        return last or 0

    def _insert(self, row: Row) -> None:
        new = {_lower(name): name for name in row if _lower(name) not in self._columns}
        self._add_columns(new)
        if not self._columns:
            return  # an item without a field, before there is a table
        values = {_lower(name): value for name, value in row.items()}
        if len(values) < len(row):
            self._tell_of_case(row)
        names = ", ".join([self._number, *(_quoted(self._columns[name]) for name in values)])
        marks = ", ".join("?" * (len(values) + 1))
        self.position += 1
        self._run(f"INSERT INTO {self._name} ({names}) VALUES ({marks})", (self.position, *values.values()))


    def _add_columns(self, new: Mapping[str, str]) -> None:
        if not self._columns and new:
            self._run(f"CREATE TABLE {self._name} ({', '.join(map(_quoted, new.values()))})")
        elif new:
            for name in new.values():
                self._run(f"ALTER TABLE {self._name} ADD COLUMN {_quoted(name)}")
        self._columns.update(new)

    def _tell_of_case(self, row: Row) -> None:
        last = {_lower(name): name for name in row}
        for name in row:
            if (kept := last[_lower(name)]) != name and name not in self._told:
                self._told.add(name)  # once a name
                logger.warning(
                    "feed %s: field %r is left out: to SQLite it is the same column as %r", self._path, name, kept
                )


def _value(value: object) -> str | int | float | None:
    plain = to_plain(value)
    if isinstance(plain, bool):
        return int(plain)
    if isinstance(plain, int):
        return plain if -_LARGEST <= plain < _LARGEST else str(plain)
    if isinstance(plain, list | dict):
        return to_json(plain).decode()
    return plain


def _lower(name: str) -> str:
    return name.encode().lower().decode()  # ASCII letters only, as SQLite does


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
