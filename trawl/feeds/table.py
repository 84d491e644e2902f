"""Files that a library writes: rows gathered, and given to a table in one piece."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trawl.errors import FeedError
from trawl.feeds.files import FeedFile, RefusedItem
from trawl.feeds.item_errors import ItemOrigin
from trawl.feeds.options import FeedOptions
from trawl.feeds.storages import make_folder
from trawl.feeds.to_json import wrong_field

__all__ = ["AddedRow", "Row", "TableFile", "make_table"]

Row = dict[str, Any]

AddedRow = tuple[Row, ItemOrigin]
"""A row, and where it came from."""


class TableFile(FeedFile):
    """A file of rows, written by a library."""

    def __init__(self, options: FeedOptions) -> None:
        """A file that is not open yet.

        Raises:
            SettingsError: Its library is not installed, or does not know an option.
        """
        super().__init__(options)
        self._rows: list[AddedRow] = []
        self._given: list[AddedRow] = []  # on their way to the table: a cancel may come before they are there

    @abstractmethod
    def row(self, fields: Mapping[str, object]) -> tuple[Row, int]:
        """Return an item's fields as they will be written, and about how many bytes these are. This does not block.

        Raises:
            Exception: A value in it can't be written.
        """

    @abstractmethod
    def insert(self, rows: Sequence[AddedRow]) -> Sequence[RefusedItem]:
        """Write rows, all or none. Returns those that it can never write, of earlier calls too."""

    @abstractmethod
    def _open_at(self, path: Path) -> None:
        """Open the file at a path, or make it; no row in it has changed."""

    def add(self, fields: Mapping[str, object], origin: ItemOrigin | None) -> int:
        """Make a row of an item."""
        picked = self._options.select_fields(fields)
        if not picked:
            raise ValueError("it has no fields")
        try:
            row, size = self.row(picked)
        except Exception as error:
            raise wrong_field(picked, error) from error
        self._rows.append((row, origin or ItemOrigin()))
        return size

    @property
    def is_staged(self) -> bool:
        """True if some of what was handed to :meth:`write` is not written yet."""
        return bool(self._given)

    def stage(self, *, is_last: bool = False) -> bool:
        """Hand what was added to :meth:`write`, in one piece; False if all is written."""
        if not self._given:
            self._given, self._rows = self._rows, []
        return bool(self._given)

    def write(self) -> None:
        """Give the table what is staged."""
        refused = self.insert(self._given)
        self.records += len(self._given)
        self._given = []
        self._refuse(refused)

    def _refuse(self, refused: Sequence[RefusedItem]) -> None:
        self.records: int = self.records - len(refused)
        self.refused: list[RefusedItem] = [*self.refused, *refused]

    def _open(self) -> None:
        path = self._options.path
        if path is None:
            raise FeedError(f"feed {self.uri}: {self._options.format} is written to files only", self.uri)
        make_folder(path.parent)
        self._open_at(path)


def make_table(options: FeedOptions) -> TableFile:
    """Make the table of a format; imported here, because most crawls write none.

    Raises:
        SettingsError: Its library is not installed, or does not know an option.
    """
    if options.format == "sqlite":
        from trawl.feeds.table_sqlite import SqliteTable  # noqa: PLC0415

        return SqliteTable(options)
    from trawl.feeds.table_parquet import ParquetTable  # noqa: PLC0415

    return ParquetTable(options)
