"""Items as rows of a Parquet file, written in row groups.

A Parquet file is valid only once its end is written. So it is written beside its place, and moved there when it is
whole: a crawl that is killed leaves the earlier file. The columns and their types follow from the first row group.

Only ``trawl.feeds.feed`` imports this module, when a feed needs it: pyarrow is an extra, and slow to import.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from trawl.errors import SettingsError
from trawl.feeds.base import FeedState, FormatConflict
from trawl.feeds.files import RefusedItem
from trawl.feeds.item_errors import listed
from trawl.feeds.options import FeedOptions
from trawl.feeds.table import AddedRow, Row, TableFile
from trawl.feeds.to_json import legal_text, to_builtins, to_json
from trawl.file_sync import replace_file, sync_content

__all__ = ["ParquetTable"]

_LARGEST = 2**63
_KEPT = frozenset({str, int, float, bool, bytes, datetime, date, Decimal})
"""Types that Arrow has a type for."""


class ParquetTable(TableFile):
    """A Parquet file."""

    is_typed: bool = True

    def __init__(self, options: FeedOptions) -> None:
        """A file that is not open yet, with the feed's fields, or those of the items of its first row group."""
        super().__init__(options)
        try:
            import pyarrow  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra, and slow to import
            import pyarrow.parquet  # type: ignore[import-untyped]  # noqa: PLC0415
        except ImportError as error:
            raise SettingsError("a parquet feed needs the extra parquet: trawl-crawler[parquet]", "FEEDS") from error
        self._arrow: Any = pyarrow
        self.errors: tuple[type[Exception], ...] = (OSError, FormatConflict, pyarrow.ArrowException)
        self._unfit: tuple[type[Exception], ...] = (pyarrow.ArrowException, TypeError, ValueError, OverflowError)
        self._fields = tuple(written for _, written in options.fields or ())
        self._group_rows = options.arguments.get("row_group_size", 10_000)
        schema = options.arguments.get("schema", {})
        self._types = {name: self._type(name, kind) for name, kind in schema.items()}
        self._group: list[AddedRow] = []  # rows that make no whole group yet
        self._unfit_rows: list[RefusedItem] = []
        self._schema: Any = None
        self._writer: Any = None

    def value(self, value: object) -> Any:
        """Return text, a number, a time, bytes, or a list of them; anything else as JSON."""
        if type(value) is str:
            return legal_text(value)
        if type(value) is int:
            return _readable(value)
        if value is None or type(value) in _KEPT:
            return value
        if type(value) is list and all(part is None or type(part) in _KEPT for part in value):
            return [self.value(part) for part in value]
        plain = to_builtins(value)
        if isinstance(plain, list) and not any(isinstance(part, list | dict) for part in plain):
            return [self.value(part) for part in plain]
        return to_json(plain).decode() if isinstance(plain, list | dict) else plain

    def _open_at(self, path: Path) -> None:
        """See that the file can be written, beside its place."""
        if not self._options.overwrite and path.exists() and path.stat().st_size:
            raise FormatConflict("it is there already, and a parquet file can't be continued; overwrite it")
        self._beside.open("wb").close()

    def locate(self, state: FeedState | None) -> None:
        """Nothing: a file begins where it begins."""

    def start(self) -> None:
        """Nothing: what is at its place stays there until the file is whole."""

    def insert(self, rows: Sequence[AddedRow]) -> Sequence[RefusedItem]:
        """Keep rows, and write those that make whole groups; return those of them that have none of the columns."""
        self._group += rows
        self.position += len(rows)
        while len(self._group) >= self._group_rows:
            group, self._group = self._group[: self._group_rows], self._group[self._group_rows :]
            self._write_group(group)
        return self._taken_refused()

    def sync(self) -> None:
        """Nothing: what is not whole is not to be gone on with."""

    def _finish(self) -> None:
        """Write the last group and the end, and move the file to its place."""
        if self._group or self._writer is None:
            self._write_group(self._group)
        self._writer.close()
        self._writer = None
        sync_content(self._beside)
        replace_file(self._beside, self.path)
        self._refuse(self._taken_refused())

    def _close(self) -> None:
        """Remove the file beside the place: without its end nothing in it can be read."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            with suppress(*self.errors):  # for example of a full disk: the file is not whole anyway
                writer.close()
        if self._path is not None:
            self._beside.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Remove what was written."""
        self.close()

    def _discard(self) -> None:
        """Remove what was written, and what was there before."""
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
                why = f"it has none of the columns {listed(self._schema.names)}, which the first row group has told"
                self._unfit_rows.append((origin, ValueError(f"{why}, but {listed(row)}")))
        rows = [row for row in rows if not row.keys().isdisjoint(known)]
        for name in {name for row in rows for name in row if name not in known}:
            self._warn(name, "has no column and is left out: it was in no item of the first row group")
        arrays = [self._array([row.get(field.name) for row in rows], field) for field in self._schema]
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))

    def _found(self, rows: list[Row]) -> Any:
        """Return the schema that fits all rows of the first group."""
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
            self._warn(field.name, f"is not always {field.type}, and left out where it is not: say so in `schema`")
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


def _readable(value: int) -> int:
    """Return a number that can be written as text, which it is where the others of its column don't fit a type.

    Raises:
        ValueError: It has more digits than Python makes text of.
    """
    if not -_LARGEST <= value < _LARGEST:
        str(value)
    return value


def _text(value: Any) -> str:
    plain = to_builtins(value)
    return plain if isinstance(plain, str) else to_json(plain).decode()
