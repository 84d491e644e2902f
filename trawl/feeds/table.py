"""Feeds that a library writes: rows gathered, and given to a table in one piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from trawl.blocking import Blocking
from trawl.errors import FeedError
from trawl.feeds.base import NotThisFormat
from trawl.feeds.feed import Feed
from trawl.feeds.item_errors import ItemOrigin
from trawl.feeds.options import FeedOptions
from trawl.feeds.targets import make_folder
from trawl.feeds.to_json import wrong_field

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


class TableFeed(Feed):
    """A feed that is a table of a library's."""

    def __init__(self, options: FeedOptions) -> None:
        """A feed that is not open yet, in the kind of table that the options ask for.

        Raises:
            SettingsError: Its library is not installed.
        """
        super().__init__(options)
        self._table = _table(options)
        self._is_typed = self._table.is_typed
        self._errors: tuple[type[Exception], ...] = (OSError, NotThisFormat, *self._table.errors)
        self._rows: list[AddedRow] = []
        self._given: list[AddedRow] = []  # on their way to the table: a cancel may come before they are there

    @property
    def position(self) -> int:
        """The number of the last row that was written."""
        return self._table.position

    def open(self) -> None:
        """Open the file."""
        self._open_remote()
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
        """Find the row after which to continue."""
        try:
            self._table.locate(position)
        except NotThisFormat as error:
            raise FeedError(f"feed {self.uri}: the file can't be continued: {error}", self.uri) from error
        except self._errors as error:
            raise self._failure(error) from error

    def start(self) -> None:
        """Remove the rows after it."""
        try:
            self._table.start()
        except self._errors as error:
            raise self._failure(error) from error

    def _add(self, fields: Any, origin: ItemOrigin | None) -> int:
        picked = self._options.select_fields(fields)
        if not picked:
            raise ValueError("it has no fields")
        try:
            row, size = self._table.row(picked)
        except Exception as error:
            raise wrong_field(picked, error) from error
        self._rows.append((row, origin or ItemOrigin()))
        return size

    async def flush(self, blocking: Blocking) -> None:
        """Give the table what was added, in one piece. A checkpoint if there is any."""
        while self._rows or self._given:
            if not self._given:
                self._given, self._rows = self._rows, []
            try:
                await blocking.run(self._write)
            except self._errors as error:
                raise self._failure(error) from error

    async def sync(self, blocking: Blocking) -> None:
        """Have all that was added on the disk itself. A checkpoint."""
        await self.flush(blocking)
        try:
            await blocking.run(self._table.sync)
        except self._errors as error:
            raise self._failure(error) from error

    async def finish(self, blocking: Blocking) -> None:
        """Write all that was added and the end, and close. A checkpoint."""
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
        """Close the table as it is."""
        self._table.close()
        if self._remote is not None:
            self._remote.remove_local()

    def abandon(self) -> None:
        """Close the table; a file that was made for it is removed."""
        self._table.remove()
        self.close()

    def _write(self) -> None:
        refused = self._table.write(self._given)
        self._count(len(self._given) - len(refused))
        self._refused += refused
        self._given = []

    def _end(self) -> None:
        if not self.position and not self._options.store_empty:
            self._table.discard()
            if self._remote is not None:
                self._remote.remove_local()
            return
        refused = self._table.finish()
        self._count(-len(refused))
        self._refused += refused
        if self._remote is not None:
            self._remote.upload()


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
