"""Base of files that a library writes. Rows are collected and passed to the library together."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trawl.feeds.files import FeedFile, RefusedItem
from trawl.feeds.item_errors import ItemOrigin
from trawl.feeds.options import FeedOptions
from trawl.feeds.storages import make_folder
from trawl.feeds.to_json import legal_text, wrong_field

__all__ = ["AddedRow", "Row", "TableFile"]

logger: logging.Logger = logging.getLogger("trawl.feeds")

_ROW_BYTES = 50

Row = dict[str, Any]

AddedRow = tuple[Row, ItemOrigin]
"""A row and its origin."""


class TableFile(FeedFile):
    """A file of rows, written by a library."""

    def __init__(self, options: FeedOptions) -> None:
        """Create a file that is not open yet.

        Raises:
            SettingsError: If the file's library is not installed, or does not support an option.
        """
        super().__init__(options)
        self._path: Path | None = None  # None until the file is opened
        self._warned: set[str] = set()
        self._rows: list[AddedRow] = []
        self._given: list[AddedRow] = []  # rows staged for write(), which a cancellation may delay

    @property
    def path(self) -> Path:
        """The path of the file.

        Raises:
            ValueError: If the file is not open.
        """
        if self._path is None:
            raise ValueError("the file is not open")
        return self._path

    @abstractmethod
    def value(self, value: object) -> Any:
        """Return a value in the form in which it will be written. Does not block.

        Raises:
            Exception: If the value can't be written.
        """

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
