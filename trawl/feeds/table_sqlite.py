"""Items as rows of a SQLite table, whose columns are the fields of the items, added as they come.

Each flush is one transaction, so a killed crawl leaves whole rows. Rows are numbered: a job cuts the table back to the
last one that it has recorded. Text, numbers and NULL are stored as such; nested values are JSON.

Other programs may have the database open. Each transaction begins with the table as it is by then: columns and rows
that others have added are kept. Only a job has its table to itself, or cutting it back would lose rows of others.

Only ``trawl.feeds.feed`` imports this module, when a feed needs it: most crawls need no SQLite.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from trawl.feeds.base import FeedState, FormatConflict
from trawl.feeds.files import RefusedItem
from trawl.feeds.item_errors import listed
from trawl.feeds.options import FeedOptions
from trawl.feeds.table import AddedRow, Row, TableFile
from trawl.feeds.to_json import legal_text, to_builtins, to_json
from trawl.file_sync import sync_folder

__all__ = ["SqliteTable"]

_LARGEST = 2**63
_ROW_NUMBERS = frozenset({"rowid", "oid", "_rowid_"})
_BUSY = 5.0  # seconds that others who have the file open may hold up a write
_AGAIN = 0.05  # seconds until what SQLite does not wait for by itself is tried again


class SqliteTable(TableFile):
    """A table of a database, which may have others."""

    errors: tuple[type[Exception], ...] = (OSError, FormatConflict, sqlite3.Error)

    def __init__(self, options: FeedOptions) -> None:
        """The table ``table`` of a file; one that is made has columns for the feed's fields from the start."""
        super().__init__(options)
        self._bare = options.arguments.get("table", "items")
        self._name = _quoted(self._bare)
        self._fields = [written for _, written in options.fields or ()]
        self._is_new = False
        self._is_named = False  # its name is on the disk
        self._keep = 0
        self._is_cut = False
        self._columns: dict[str, str] = {}  # by the name in lower case, as SQLite compares them
        self._database: sqlite3.Connection | None = None

    def column(self, name: str) -> str:
        """Return a name that SQLite takes."""
        return legal_text(name).replace("\0", "")

    def value(self, value: object) -> str | int | float | None:
        """Return a value that SQLite has; a list or a dict as JSON."""
        plain = to_builtins(value)
        if isinstance(plain, bool):
            return int(plain)
        if isinstance(plain, int):
            return plain if -_LARGEST <= plain < _LARGEST else str(plain)
        if isinstance(plain, list | dict):
            return to_json(plain).decode()
        return plain

    def _open_at(self, path: Path) -> None:
        """Open the database, or make it."""
        self._is_new = not path.exists()
        self._database = sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
        self._begin_wal()
        # A checkpoint, which a reader can hold up, is then not needed for what was committed to be on the disk.
        self._run(f"PRAGMA synchronous = {'FULL' if self._options.is_of_job else 'NORMAL'}")
        self._columns = self._columns_now()

    def locate(self, state: FeedState | None) -> None:
        """Find the row to go on after."""
        last = self._last() if self._columns else 0
        self._is_cut = state is not None
        self._keep = state.position if state is not None else 0 if self._options.overwrite else last
        if self._keep > last:
            raise FormatConflict(
                f"its table {self._bare} has {last} rows, not the {self._keep} that were written to it"
            )

    def start(self) -> None:
        """Remove the rows behind it; a table that is written anew is made anew."""
        self.position = self._keep
        with self._transaction():
            if self._options.overwrite and not self.position and self._columns:
                self._run(f"DROP TABLE {self._name}")
                self._columns = {}
            elif self._is_cut and self._columns:
                self._run(f"DELETE FROM {self._name} WHERE {self._number} > ?", (self.position,))
            if not self._columns and self._fields:
                self._add_columns({_lower(name): name for name in self._fields})

    def insert(self, rows: Sequence[AddedRow]) -> Sequence[RefusedItem]:
        """Insert rows in one transaction; return those that the table can't take."""
        refused: list[RefusedItem] = []
        with self._transaction():
            last = self._last() if self._columns else 0
            if self._options.is_of_job and last > self.position:
                raise FormatConflict(f"another program writes to its table {self._bare}, which a job has to itself")
            self.position = max(last, self.position)
            for row, origin in rows:
                try:
                    self._insert(row)
                except (ValueError, OverflowError) as error:
                    refused.append((origin, error))
                except sqlite3.Error as error:
                    if not _is_of_the_row(error):
                        raise
                    refused.append((origin, ValueError(str(error))))
        return refused

    def sync(self) -> None:
        """Move all into the file itself, and the file to the disk."""
        self._run("PRAGMA wal_checkpoint(FULL)")
        if not self._is_named:
            sync_folder(self.path.parent)
            self._is_named = True

    def _finish(self) -> None:
        """Leave one file behind, and close it."""
        self.sync()
        self._run("PRAGMA wal_checkpoint(TRUNCATE)")
        self._close()

    def _close(self) -> None:
        """Close the database."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _discard(self) -> None:
        """Close the database, and delete it if it was made for this feed, and nobody else uses it by now."""
        is_unused = self._is_new and self._is_unused()
        self._close()
        if is_unused:
            self.path.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Close the database, and delete it if it was made for this feed."""
        self._discard()
        self.close()

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._database is None:
            raise sqlite3.ProgrammingError("the database is not open")
        return self._database

    @property
    def _number(self) -> str:
        """The name of the row number: one that is not a column (SQLite, ROWIDs)."""
        return next((name for name in sorted(_ROW_NUMBERS, reverse=True) if name not in self._columns), "_rowid_")

    def _run(self, statement: str, values: Iterable[Any] = ()) -> list[Any]:
        return self._connection.execute(statement, tuple(values)).fetchall()

    def _begin_wal(self) -> None:
        """Switch to WAL: a kill then leaves the last whole transaction, and nobody waits for a disk."""
        until = time.monotonic() + _BUSY
        while True:
            try:
                self._run("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                # Another begins it at the same time, which SQLite does not wait for.
                if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > until:
                    raise
                time.sleep(_AGAIN)
            else:
                return

    @contextmanager
    def _transaction(self) -> Generator[None, None, None]:
        """Run one transaction, which begins with the columns that exist by then."""
        known, position = self._columns, self.position
        self._run("BEGIN IMMEDIATE")
        try:
            self._columns = self._columns_now()
            yield
            self._run("COMMIT")
        except BaseException:
            self._columns, self.position = known, position
            if self._connection.in_transaction:
                self._run("ROLLBACK")
            raise

    def _columns_now(self) -> dict[str, str]:
        return {_lower(name): name for _, name, *_ in self._run(f"PRAGMA table_info({self._name})")}

    def _is_unused(self) -> bool:
        """Return whether the database holds only this table, without a row, and nobody else has it open."""
        if self._database is None:
            return True
        with suppress(sqlite3.Error):
            self._run("PRAGMA busy_timeout = 0")
            self._run("PRAGMA journal_mode = DELETE")  # refused while anybody else has it open
            [(others,)] = self._run("SELECT count(*) FROM sqlite_master WHERE name != ?", (self._bare,))
            return not others and not (self._columns_now() and self._last())
        return False

    def _last(self) -> int:
        [(last,)] = self._run(f"SELECT max({self._number}) FROM {self._name}")
        return last or 0

    def _insert(self, row: Row) -> None:
        """Insert one row, with the columns that it needs, or nothing of it."""
        new = {_lower(name): name for name in row if _lower(name) not in self._columns}
        if not new:
            self._insert_values(row)
            return
        self._check_room(new)
        known = self._columns
        self._run("SAVEPOINT one_row")
        try:
            self._add_columns(new)
            self._insert_values(row)
        except BaseException:
            self._columns = known
            if self._connection.in_transaction:  # some errors end all of it
                self._run("ROLLBACK TO one_row")
            raise
        self._run("RELEASE one_row")

    def _insert_values(self, row: Row) -> None:
        values = {_lower(name): value for name, value in row.items()}
        if len(values) < len(row):
            self._tell_of_case(row)
        names = ", ".join([self._number, *(_quoted(self._columns[name]) for name in values)])
        marks = ", ".join("?" * (len(values) + 1))
        number = self.position + 1
        self._run(f"INSERT INTO {self._name} ({names}) VALUES ({marks})", (number, *values.values()))
        self.position: int = number

    def _check_room(self, new: Mapping[str, str]) -> None:
        """Refuse a row whose fields the table can't have columns for."""
        most = self._connection.getlimit(sqlite3.SQLITE_LIMIT_COLUMN)
        if new and len(self._columns) + len(new) > most:
            has, more = len(self._columns), listed(new.values())
            raise ValueError(f"a SQLite table has at most {most} columns; this one has {has}, and the item adds {more}")
        if new.keys() & _ROW_NUMBERS and not _ROW_NUMBERS - self._columns.keys() - new.keys():
            raise ValueError("its fields take all the names that SQLite has for a row's number: rowid, oid and _rowid_")

    def _add_columns(self, new: Mapping[str, str]) -> None:
        if not self._columns:
            self._run(f"CREATE TABLE {self._name} ({', '.join(map(_quoted, new.values()))})")
        else:
            for name in new.values():
                self._run(f"ALTER TABLE {self._name} ADD COLUMN {_quoted(name)}")
        self._columns = {**self._columns, **new}

    def _tell_of_case(self, row: Row) -> None:
        last = {_lower(name): name for name in row}
        for name in row:
            if (kept := last[_lower(name)]) != name:
                self._warn(name, f"is left out: to SQLite it is the same column as {kept!r}")


def _is_of_the_row(error: sqlite3.Error) -> bool:
    """Say whether only this row can't be written: it is too long, or a constraint of the table refuses it."""
    if isinstance(error, sqlite3.IntegrityError | sqlite3.DataError):
        return True
    return isinstance(error, sqlite3.InterfaceError)  # a value that can't be bound


def _lower(name: str) -> str:
    return name.encode().lower().decode()  # ASCII letters only, as SQLite does


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
