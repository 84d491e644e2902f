"""Feeds that a library writes: rows gathered, and given to a table in one piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from trawl.blocking import Blocking
from trawl.errors import FeedError
from trawl.feeds.base import FeedReport, NotThisFormat
from trawl.feeds.item_errors import ItemOrigin
from trawl.feeds.item_filter import ItemFilter
from trawl.feeds.options import FeedOptions
from trawl.feeds.stored_items import StoredItem
from trawl.feeds.targets import RemoteFile, make_folder, open_store
from trawl.feeds.to_json import written_fields, wrong_field

__all__ = ["AddedRow", "RefusedRow", "Row", "Table", "TableFeed"]

Row = dict[str, Any]

AddedRow = tuple[Row, ItemOrigin]
"""A row, and where it came from."""

RefusedRow = tuple[ItemOrigin, Exception]
"""Where a row came from that can't be written, and why it can't."""


class Table(Protocol):
    """A file of rows, written by a library. All methods but :meth:`row` block."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """Exceptions of its library."""
        ...

    @property
    def is_typed(self) -> bool:
        """True if it has column types for times, decimals and bytes."""
        ...

    @property
    def position(self) -> int:
        """Number of rows written for good, or the number of the last."""
        ...

    def row(self, fields: Mapping[str, object]) -> tuple[Row, int]:
        """Return an item's fields as they will be written, and about how many bytes these are.

        Raises:
            Exception: A value in it can't be written.
        """
        ...

    def open(self, path: Path, *, overwrite: bool) -> None:
        """Open the file, or make it; no row in it has changed."""
        ...

    def locate(self, position: int | None) -> None:
        """Find where to go on: after ``position``; None: after all that is there."""
        ...

    def start(self) -> None:
        """Remove what is behind that."""
        ...

    def write(self, rows: Sequence[AddedRow]) -> Sequence[RefusedRow]:
        """Write rows, all or none. Returns those that it can never write, of earlier calls too."""
        ...

    def sync(self) -> None:
        """Have them on the disk itself."""
        ...

    def finish(self) -> Sequence[RefusedRow]:
        """Write the rest and the end, and close; return the rows that can't be written."""
        ...

    def close(self) -> None:
        """Close it as it is. A second call does nothing."""
        ...

    def remove(self) -> None:
        """Close it and remove what was made for it."""
        ...

    def discard(self) -> None:
        """Close it, without a row, and leave no file for it."""
        ...


class TableFeed:
    """One feed that is a table.

    Attributes:
        uri: Where it goes.
        records: Items written in this run.
    """

    def __init__(self, options: FeedOptions) -> None:
        """A feed that is not open yet, in the kind of table that the options ask for.

        Raises:
            SettingsError: Its library is not installed.
        """
        self.uri: str = options.uri
        self.records: int = 0
        self._options = options
        self._item_filter = options.item_filter
        self._table = _table(options)
        self._errors: tuple[type[Exception], ...] = (OSError, NotThisFormat, *self._table.errors)
        self._remote: RemoteFile | None = None
        self._refused: list[RefusedRow] = []
        self._rows: list[AddedRow] = []
        self._given: list[AddedRow] = []  # on their way to the table: a cancel may come before they are there

    @property
    def place(self) -> str:
        """Where it goes, however it was spelled: the absolute path."""
        return self._options.place

    @property
    def item_filter(self) -> ItemFilter:
        """Which items it takes."""
        return self._item_filter

    @property
    def columns(self) -> tuple[str, ...] | None:
        """None: the file itself says which it has."""
        return None

    @property
    def position(self) -> int:
        """The number of the last row that was written."""
        return self._table.position

    @property
    def batch(self) -> tuple[int, int] | None:
        """None: it is one file."""
        return None

    @property
    def report(self) -> FeedReport:
        """What was written so far."""
        return FeedReport(self.uri, self._options.format, self.records, self.position)

    def open(self) -> None:
        """Open what it goes to; nothing in it has changed.

        Raises:
            FeedError: It can't be opened for writing, or is something else.
        """
        if self._options.is_remote:
            self._remote = open_store(self._options)
            self._options = self._remote.options
        path = self._options.path
        if path is None:
            raise FeedError(f"feed {self.uri}: {self._options.format} is written to files only", self.uri)
        try:
            make_folder(path.parent)
            self._table.open(path, overwrite=self._options.overwrite)
        except NotThisFormat as error:
            raise FeedError(f"feed {self.uri}: {error}", self.uri) from error
        except self._errors as error:
            raise self._failure(error) from error

    def locate(
        self,
        position: int | None = None,
        columns: Sequence[str] | None = None,
        batch: tuple[int, int] | None = None,
    ) -> None:
        """Find where to go on; nothing changes yet.

        Raises:
            FeedError: There are fewer rows than ``position`` says.
        """
        try:
            self._table.locate(position)
        except NotThisFormat as error:
            raise FeedError(f"feed {self.uri}: the file can't be continued: {error}", self.uri) from error
        except self._errors as error:
            raise self._failure(error) from error

    def start(self) -> None:
        """Remove the rows behind that.

        Raises:
            FeedError: It can't be written.
        """
        try:
            self._table.start()
        except self._errors as error:
            raise self._failure(error) from error

    def add(self, item: object, origin: ItemOrigin | None = None) -> int:
        """Take an item; return about how many bytes it takes, 0 if this feed does not want it.

        Raises:
            ValueError: It can't be written: the text names the field.
            Exception: Its own library, or the feed's filter, failed on it.
        """
        if not self._item_filter.takes(item):
            return 0
        return self._add(written_fields(item, is_typed=self._table.is_typed), origin)

    def add_stored(self, stored: StoredItem, origin: ItemOrigin | None = None) -> int:
        """Take an item out of a job's outbox, as :meth:`add` takes an item.

        Raises:
            ValueError: As there.
        """
        return self._add(stored.fields, origin) if self._item_filter.takes_stored(stored) else 0

    def _add(self, fields: Mapping[str, object], origin: ItemOrigin | None) -> int:
        picked = self._options.select_fields(fields)
        if not picked:
            raise ValueError("it has no fields")
        try:
            row, size = self._table.row(picked)
        except Exception as error:
            raise wrong_field(picked, error) from error
        self._rows.append((row, origin or ItemOrigin()))
        return size

    def take_refused(self) -> Sequence[RefusedRow]:
        """Return the items that the table could not take as it was written."""
        refused, self._refused = self._refused, []
        return refused

    async def flush(self, blocking: Blocking) -> None:
        """Give the table what was added, in one piece. A checkpoint if there is any.

        Raises:
            FeedError: It can't be written.
        """
        while self._rows or self._given:
            if not self._given:
                self._given, self._rows = self._rows, []
            try:
                await blocking.run(self._write)
            except self._errors as error:
                raise self._failure(error) from error

    async def sync(self, blocking: Blocking) -> None:
        """Have all that was added on the disk itself. A checkpoint.

        Raises:
            FeedError: It can't be written.
        """
        await self.flush(blocking)
        try:
            await blocking.run(self._table.sync)
        except self._errors as error:
            raise self._failure(error) from error

    async def finish(self, blocking: Blocking) -> None:
        """Write all that was added and the end, and close. A checkpoint.

        Raises:
            FeedError: It can't be written.
        """
        try:
            await self.flush(blocking)
            await blocking.run(self._end)
        except self._errors as error:
            await blocking.run(self.close)  # noqa: ASYNC120 - a cancel then says more than the error
            raise self._failure(error) from error
        except FeedError:
            await blocking.run(self.close)  # noqa: ASYNC120 - as above
            raise

    def close(self) -> None:
        """Close the table as it is; what was added and not flushed is lost. Blocks."""
        self._table.close()
        if self._remote is not None:
            self._remote.remove_local()

    def abandon(self) -> None:
        """Close it before it was started; what was made for it goes again. Blocks."""
        self._table.remove()
        self.close()

    def _write(self) -> None:
        refused = self._table.write(self._given)
        self.records += len(self._given) - len(refused)
        self._refused += refused
        self._given = []

    def _end(self) -> None:
        if not self.position and not self._options.store_empty:
            self._table.discard()
            if self._remote is not None:
                self._remote.remove_local()
            return
        refused = self._table.finish()
        self.records -= len(refused)
        self._refused += refused
        if self._remote is not None:
            self._remote.upload()

    def _failure(self, error: Exception) -> FeedError:
        return FeedError(f"feed {self.uri}: {error}", self.uri)


def _table(options: FeedOptions) -> Table:
    """The table of a format; imported here, because most crawls write none."""
    columns = None if options.fields is None else tuple(written for _, written in options.fields)
    if options.format == "sqlite":
        from trawl.feeds.table_sqlite import SqliteTable  # noqa: PLC0415

        table = options.arguments.get("table", "items")
        return SqliteTable(table, columns or (), is_of_job=options.is_of_job)
    from trawl.feeds.table_parquet import ParquetTable  # noqa: PLC0415

    arguments = options.arguments
    return ParquetTable(
        columns=columns, group=arguments.get("row_group_size", 10_000), schema=arguments.get("schema", {})
    )
