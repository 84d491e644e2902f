"""Items as rows of a SQLite table or of a Parquet file.

A SQLite table has a column for each field of the items. A column is added when its field first appears. Each flush is
one transaction, so a killed crawl leaves whole rows. Rows are numbered, so that a job can remove the rows after the
last recorded row. Strings, numbers and NULL are stored unchanged, and nested values as JSON. Other programs may have
the database open. Each transaction first reads the current columns and the last row, so that columns and rows that
other programs have added are kept. Only a job needs a table to which no other program writes, because it may remove the
last rows of the table.

A Parquet file is written in row groups, and is valid only after its end was written. So the rows are written to a
temporary file in the same folder. When the temporary file is complete, it replaces the file at the destination. If the
crawl is killed, the earlier file stays. The first row group decides the columns and their types.

Only ``trawl.feeds.feed`` imports this module, and only for a feed with tables, because most crawls do not need SQLite.

Length: the two kinds of tables share their base, which collects rows and passes them to the library together.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from abc import abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from trawl.errors import SettingsError
from trawl.feeds.base import FeedState, FormatConflict
from trawl.feeds.files import FeedFile, RefusedItem
from trawl.feeds.item_errors import ItemOrigin, listed
from trawl.feeds.options import FeedOptions
from trawl.feeds.storages import make_folder
from trawl.feeds.to_json import legal_text, to_builtins, to_json, wrong_field
from trawl.file_sync import check_journal, replace_file, sync_content, sync_folder

__all__ = ["AddedRow", "ParquetTable", "Row", "SqliteTable", "TableFile"]

logger: logging.Logger = logging.getLogger("trawl.feeds")

_ROW_BYTES = 50

Row = dict[str, Any]

AddedRow = tuple[Row, ItemOrigin]  # a row and its origin


class TableFile(FeedFile):
    """A file of rows, written by a library."""

    def __init__(self, options: FeedOptions) -> None:
        """Create a file that is not open yet."""
        super().__init__(options)
        self._path: Path | None = None  # None until the file is opened
        self._warned: set[str] = set()
        self._rows: list[AddedRow] = []
        self._given: list[AddedRow] = []  # rows staged for write(), which a cancellation may delay

    @property
    def path(self) -> Path:
        """The path of the open file."""
        if self._path is None:
            raise ValueError("the file is not open")
        return self._path

    @abstractmethod
    def value(self, value: object) -> Any:
        """Return a value in the form in which it will be written; raise any error if it can't. Does not block."""

    def column(self, name: str) -> str:
        """Return the name of a field's column."""
        return legal_text(name)

    @abstractmethod
    def insert(self, rows: Sequence[AddedRow]) -> Sequence[RefusedItem]:
        """Write all rows, or none if an error is raised, and return refused rows, including rows of earlier calls."""

    @abstractmethod
    def _open_path(self, path: Path) -> None:
        """Open or create the file at a path, without changing its rows."""

    def add(self, fields: Mapping[str, object], origin: ItemOrigin | None) -> int:
        """Add the row of an item."""
        picked = self._options.select_fields(fields)
        if not picked:
            raise ValueError("it has no fields")
        try:
            row = {self.column(str(name)): self.value(value) for name, value in picked.items()}
        except Exception as error:
            raise wrong_field(picked, error) from error
        self._rows.append((row, origin or ItemOrigin()))
        return sum([_ROW_BYTES + len(value) for value in row.values() if isinstance(value, str)], _ROW_BYTES)

    @property
    def is_staged(self) -> bool:
        """True if :meth:`write` has not yet written everything that was staged."""
        return bool(self._given)

    def stage(self, *, is_last: bool = False) -> bool:
        """Stage all added rows for :meth:`write`, and return whether there are any."""
        if not self._given:
            self._given, self._rows = self._rows, []
        return bool(self._given)

    def write(self) -> None:
        """Write the staged rows to the table."""
        refused = self.insert(self._given)
        self.records += len(self._given)
        self._given = []
        self._refuse(refused)

    def _refuse(self, refused: Sequence[RefusedItem]) -> None:
        self.records: int = self.records - len(refused)
        self.refused: list[RefusedItem] = [*self.refused, *refused]

    def _warn(self, name: str, what: str) -> None:
        """Log a problem with a field, once for each name."""
        if name not in self._warned:
            self._warned.add(name)
            logger.warning("feed %s: field %r %s", self._path, name, what)

    def _open(self) -> None:
        path = self._options.path
        assert path is not None  # the options refuse a table on standard output
        make_folder(path.parent)
        self._path = path
        self._open_path(path)


_LARGEST = 2**63
_ROW_NUMBERS = frozenset({"rowid", "oid", "_rowid_"})
_BUSY = 5.0  # seconds to wait for another program that locks the file
_AGAIN = 0.05  # seconds between attempts, for an error after which SQLite itself does not wait
_KEPT = frozenset({str, int, float, bool, bytes, datetime, date, Decimal})  # Python types for which Arrow has a type


class SqliteTable(TableFile):
    """A table of a database. The database may also have other tables."""

    errors: tuple[type[Exception], ...] = (OSError, FormatConflict, sqlite3.Error)

    def __init__(self, options: FeedOptions) -> None:
        """Create the file. If the options name the feed's fields, a new table has their columns from the start."""
        super().__init__(options)
        self._bare = options.arguments.get("table", "items")
        self._name = _quoted(self._bare)
        self._fields = [written for _, written in options.fields or ()]
        self._is_new = False
        self._is_named = False  # whether the folder was synced, so that the new file survives a power failure
        self._keep = 0
        self._is_cut = False
        # Names of the columns, by the name in lower case, because SQLite ignores case.
        self._columns: dict[str, str] = {}
        self._database: sqlite3.Connection | None = None

    def column(self, name: str) -> str:
        """Return a name that SQLite accepts."""
        return legal_text(name).replace("\0", "")

    def value(self, value: object) -> str | int | float | None:
        """Return a value of one of SQLite's types. A list or a dict is returned as JSON."""
        plain = to_builtins(value)
        if isinstance(plain, bool):
            return int(plain)
        if isinstance(plain, int):
            return plain if -_LARGEST <= plain < _LARGEST else str(plain)
        if isinstance(plain, list | dict):
            return to_json(plain).decode()
        return plain

    def _open_path(self, path: Path) -> None:
        """Open or create the database."""
        self._is_new = not path.exists()
        check_journal(path)
        self._database = sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
        self._begin_wal()
        # A job needs FULL, because its commits must be on the disk. A checkpoint of the log also writes them to the
        # disk, but a reader can delay the checkpoint.
        self._run(f"PRAGMA synchronous = {'FULL' if self._options.is_of_job else 'NORMAL'}")
        self._columns = self._columns_now()

    def locate(self, state: FeedState | None) -> None:
        """Find the last row to keep."""
        last = self._last() if self._columns else 0
        self._is_cut = state is not None
        self._keep = state.position if state is not None else 0 if self._options.overwrite else last
        if self._keep > last:
            raise FormatConflict(
                f"its table {self._bare} has {last} rows, not the {self._keep} that were written to it"
            )

    def start(self) -> None:
        """Remove the rows after the last row to keep, or drop the table if the feed overwrites."""
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
        """Insert rows in one transaction, and return the rows that the table can't store."""
        refused: list[RefusedItem] = []
        with self._transaction():
            last = self._last() if self._columns else 0
            if self._options.is_of_job and last > self.position:
                raise FormatConflict(f"another program writes to its table {self._bare}, which only the job may write")
            self.position = max(last, self.position)
            for row, origin in rows:
                try:
                    self._insert(row)
                except (ValueError, OverflowError) as error:
                    refused.append((origin, error))
                except (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError) as error:
                    # Only this row is too long, violates a constraint of the table, or has a value of another type.
                    refused.append((origin, ValueError(str(error))))
        return refused

    def sync(self) -> None:
        """Copy the log into the database file, and sync the file and its name to the disk."""
        self._run("PRAGMA wal_checkpoint(FULL)")
        if not self._is_named:
            sync_folder(self.path.parent)
            self._is_named = True

    def _finish(self) -> None:
        """Copy the log into the database, so that only one file remains, and close the database."""
        self.sync()
        self._run("PRAGMA wal_checkpoint(TRUNCATE)")
        self._close()

    def _close(self) -> None:
        """Close the database."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _discard(self) -> None:
        """Close the database, and delete it if it was created for this feed and no other program uses it."""
        is_unused = self._is_new and self._is_unused()
        self._close()
        if is_unused:
            self.path.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Close the database, and delete it if it was created for this feed."""
        self._discard()
        self.close()

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._database is None:
            raise sqlite3.ProgrammingError("the database is not open")
        return self._database

    @property
    def _number(self) -> str:
        """A name for the row number that is not the name of a column (SQLite, ROWIDs)."""
        return next((name for name in sorted(_ROW_NUMBERS, reverse=True) if name not in self._columns), "_rowid_")

    def _run(self, statement: str, values: Iterable[Any] = ()) -> list[Any]:
        return self._connection.execute(statement, tuple(values)).fetchall()

    def _begin_wal(self) -> None:
        """Switch to a write-ahead log. A kill then leaves whole transactions, and commits do not wait for the disk."""
        until = time.monotonic() + _BUSY
        while True:
            try:
                self._run("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                # Another program changes the journal mode at the same time. SQLite itself does not wait for that.
                if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > until:
                    raise
                time.sleep(_AGAIN)
            else:
                return

    @contextmanager
    def _transaction(self) -> Generator[None, None, None]:
        """Run one transaction. It first reads the current columns."""
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
        """Return whether the database has no other table and no rows, and no other program has it open."""
        if self._database is None:
            return True
        with suppress(sqlite3.Error):
            self._run("PRAGMA busy_timeout = 0")
            self._run("PRAGMA journal_mode = DELETE")  # fails while another program has the database open
            [(others,)] = self._run("SELECT count(*) FROM sqlite_master WHERE name != ?", (self._bare,))
            return not others and not (self._columns_now() and self._last())
        return False

    def _last(self) -> int:
        [(last,)] = self._run(f"SELECT max({self._number}) FROM {self._name}")
        return last or 0

    def _insert(self, row: Row) -> None:
        """Insert one row and add its new columns. If the row can't be inserted, no column is added."""
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
            if self._connection.in_transaction:  # after some errors the whole transaction has ended
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
        """Raise ValueError if the table can't have columns for the new fields of a row."""
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


def _lower(name: str) -> str:
    return name.encode().lower().decode()  # change only ASCII letters, like SQLite


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class ParquetTable(TableFile):
    """A Parquet file."""

    is_typed: bool = True

    def __init__(self, options: FeedOptions) -> None:
        """Create the file. Its columns are the fields in the options, or else of the first row group."""
        super().__init__(options)
        try:
            import pyarrow  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra, and slow to import
            import pyarrow.parquet  # type: ignore[import-untyped]  # noqa: PLC0415
        except ImportError as error:
            raise SettingsError(
                "a parquet feed needs the extra parquet: pip install 'trawl-crawler[parquet]'", "FEEDS"
            ) from error
        self._arrow: Any = pyarrow
        self.errors: tuple[type[Exception], ...] = (OSError, FormatConflict, pyarrow.ArrowException)
        self._unfit: tuple[type[Exception], ...] = (pyarrow.ArrowException, TypeError, ValueError, OverflowError)
        self._fields = tuple(written for _, written in options.fields or ())
        self._group_rows = options.arguments.get("row_group_size", 10_000)
        schema = options.arguments.get("schema", {})
        self._types = {name: self._type(name, kind) for name, kind in schema.items()}
        self._group: list[AddedRow] = []  # rows of an incomplete group
        self._unfit_rows: list[RefusedItem] = []
        self._schema: Any = None
        self._writer: Any = None

    def value(self, value: object) -> Any:
        """Return a string, a number, a time, bytes, or a list of these. Any other value is returned as JSON."""
        if type(value) is str:
            return legal_text(value)
        if type(value) is int and not -_LARGEST <= value < _LARGEST:
            str(value)  # ValueError if it has too many digits for a string, because its column may have strings
        if value is None or type(value) in _KEPT:
            return value
        if type(value) is list and all(part is None or type(part) in _KEPT for part in value):
            return [self.value(part) for part in value]
        plain = to_builtins(value)
        if isinstance(plain, list) and not any(isinstance(part, list | dict) for part in plain):
            return [self.value(part) for part in plain]
        return to_json(plain).decode() if isinstance(plain, list | dict) else plain

    def _open_path(self, path: Path) -> None:
        """Check that the temporary file can be written."""
        if not self._options.overwrite and path.exists() and path.stat().st_size:
            raise FormatConflict("it exists, and a parquet file can't be continued; overwrite it")
        self._beside.open("wb").close()

    def locate(self, state: FeedState | None) -> None:
        """Do nothing, because a Parquet file is always written from its start."""

    def start(self) -> None:
        """Do nothing, because the file at the destination stays until the new file is complete."""

    def insert(self, rows: Sequence[AddedRow]) -> Sequence[RefusedItem]:
        """Add rows and write complete groups. Return the refused rows, which have none of the columns."""
        self._group += rows
        self.position += len(rows)
        while len(self._group) >= self._group_rows:
            group, self._group = self._group[: self._group_rows], self._group[self._group_rows :]
            self._write_group(group)
        return self._taken_refused()

    def sync(self) -> None:
        """Do nothing, because an incomplete file can't be continued."""

    def _finish(self) -> None:
        """Write the last group and the end of the file, and move the file to its destination."""
        if self._group or self._writer is None:
            self._write_group(self._group)
        self._writer.close()
        self._writer = None
        sync_content(self._beside)
        replace_file(self._beside, self.path)
        self._refuse(self._taken_refused())

    def _close(self) -> None:
        """Remove the temporary file, which can't be read without its end."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            with suppress(*self.errors):  # ignore errors such as a full disk, because the file is removed anyway
                writer.close()
        if self._path is not None:
            self._beside.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Remove the temporary file."""
        self.close()

    def _discard(self) -> None:
        """Remove the temporary file and the file at the destination."""
        self._close()
        self.path.unlink(missing_ok=True)

    @property
    def _beside(self) -> Path:
        return self.path.with_name(f"{self.path.name}.part")

    def _taken_refused(self) -> Sequence[RefusedItem]:
        refused, self._unfit_rows = self._unfit_rows, []
        self.position: int = self.position - len(refused)
        return refused

    def _write_group(self, added: list[AddedRow]) -> None:
        rows = [row for row, _ in added]
        if self._writer is None:
            self._schema = self._found(rows)
            self._writer = self._arrow.parquet.ParquetWriter(self._beside, self._schema)
        known = set(self._schema.names)
        for row, origin in added:
            if row.keys().isdisjoint(known):
                why = f"it has none of the columns {listed(self._schema.names)} of the first row group"
                self._unfit_rows.append((origin, ValueError(f"{why}, but {listed(row)}")))
        rows = [row for row in rows if not row.keys().isdisjoint(known)]
        for name in {name for row in rows for name in row if name not in known}:
            self._warn(name, "has no column and is left out: it was in no item of the first row group")
        arrays = [self._array([row.get(field.name) for row in rows], field) for field in self._schema]
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))

    def _found(self, rows: list[Row]) -> Any:
        """Return a schema for the rows of the first group."""
        names = self._fields or tuple(dict.fromkeys([name for row in rows for name in row])) or tuple(self._types)
        fields = []
        for name in names:
            kind = self._types.get(name) or self._fitting([row.get(name) for row in rows])
            fields.append(self._arrow.field(name, kind))
        return self._arrow.schema(fields)

    def _fitting(self, values: list[Any]) -> Any:
        try:
            kind = self._arrow.array(values).type
        except self._unfit:
            return self._arrow.string()
        is_unknown = kind == self._arrow.null() or kind == self._arrow.list_(self._arrow.null())
        return self._arrow.string() if is_unknown else kind

    def _array(self, values: list[Any], field: Any) -> Any:
        if field.type == self._arrow.string():
            values = [value if value is None or isinstance(value, str) else _text(value) for value in values]
        try:
            return self._arrow.array(values, type=field.type)
        except self._unfit:
            self._warn(field.name, f"is not always {field.type}, and left out otherwise: set its type in `schema`")
            return self._arrow.array([self._or_none(value, field.type) for value in values], type=field.type)

    def _or_none(self, value: Any, kind: Any) -> Any:
        try:
            self._arrow.array([value], type=kind)
        except self._unfit:
            return None
        return value

    def _type(self, name: str, kind: str) -> Any:
        unit = kind.removeprefix("timestamp[").removesuffix("]")
        try:
            if unit != kind:
                return self._arrow.timestamp(unit, tz="UTC")
            return self._arrow.type_for_alias(kind)
        except ValueError as error:
            raise SettingsError(f"a parquet feed's schema: {name}: Arrow has no type {kind!r}", "FEEDS") from error


def _text(value: Any) -> str:
    plain = to_builtins(value)
    return plain if isinstance(plain, str) else to_json(plain).decode()
