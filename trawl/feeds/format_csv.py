"""Comma-separated values (RFC 4180): one line of column names, then one record an item, lines ended by CR LF."""

from __future__ import annotations

import csv
import io
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping
from typing import BinaryIO, Self

import attrs

from trawl.feeds.base import End, NotThisFormat
from trawl.feeds.plain import Plain, to_json, to_plain

__all__ = ["CsvTable"]


@attrs.frozen(kw_only=True)
class CsvTable:
    """Items as rows of a table.

    Attributes:
        columns: The fields of the table, in order; None until the first item tells them.
        encoding: The character encoding; what it lacks is written as ``?``. ``utf-8-sig`` begins a file with a byte
            order mark.
        has_header: Whether a new file begins with the names of the columns.
        joint: What lists of plain values are joined with; None writes them as JSON.
    """

    columns: tuple[str, ...] | None = None
    encoding: str = "utf-8"
    has_header: bool = True
    joint: str | None = None

    name = "csv"
    first = b""
    separator = b""
    closing = b""

    @property
    def opening(self) -> bytes:
        """The names of the columns; nothing before they are known."""
        if not self.columns:
            return b""
        mark = BOM_UTF8 if self.encoding == "utf-8-sig" else b""
        return mark + (self._line([str(name) for name in self.columns]) if self.has_header else b"")

    def settled(self, names: Iterable[str]) -> Self:
        """This format with these columns, unless it has some."""
        if self.columns:
            return self
        return attrs.evolve(self, columns=tuple(names) or None)

    def record(self, row: Mapping[str, object]) -> bytes:
        """The item's line; a field that it lacks is empty, and a field that has no column is left out.

        Raises:
            ValueError: There are no columns: this is the first item, and has no field.
            Exception: As for any format.
        """
        if not self.columns:
            raise ValueError("it has no field, and a table needs columns")
        return self._line([self._cell(row.get(name)) for name in self.columns])

    def end_of(self, file: BinaryIO) -> End:
        """After the last newline that stands outside of quotes."""
        file.seek(0)
        if _OTHER.match(file.read(_BEGINNING)):
            raise NotThisFormat("it begins as JSON or XML do")
        file.seek(0)
        position = end = 0
        is_quoted = False
        for line in file:
            position += len(line)
            if is_quoted or (b'"' in line and not _WHOLE_LINE.fullmatch(line)):
                is_quoted = _is_quoted_after(line, is_quoted)
            if not is_quoted and line.endswith(b"\n"):
                end = position
        return End(end)

    def continued(self, file: BinaryIO) -> Self:
        """This format with the columns of the file."""
        if not self.has_header:
            return self
        file.seek(0)
        text = io.TextIOWrapper(file, self._reading, newline="")
        try:
            names = tuple(next(csv.reader(text), ()))
        except (csv.Error, UnicodeError) as error:
            raise NotThisFormat(f"its header can't be read: {error}") from error
        finally:
            text.detach()
        if self.columns and tuple(map(str, self.columns)) != names:
            raise NotThisFormat(f"its columns are {','.join(names)}, not {','.join(map(str, self.columns))}")
        return attrs.evolve(self, columns=names)

    @property
    def _reading(self) -> str:
        return "utf-8-sig" if self.encoding == "utf-8" else self.encoding

    def _line(self, cells: list[str]) -> bytes:
        text = io.StringIO()
        csv.writer(text).writerow(cells)
        return text.getvalue().encode("utf-8" if self.encoding == "utf-8-sig" else self.encoding, "replace")

    def _cell(self, value: object) -> str:
        if type(value) is str and value.isascii():
            return value
        if value is None:
            return ""
        return self._written(to_plain(value))

    def _written(self, plain: Plain) -> str:
        if isinstance(plain, list) and self.joint is not None and not any(isinstance(p, list | dict) for p in plain):
            return self.joint.join("" if part is None else str(part) for part in plain)
        if isinstance(plain, list | dict):
            return to_json(plain).decode()
        return "" if plain is None else str(plain)


_FIELD = rb'(?:"(?:[^"]++|"")*+"[^,\n]*+|[^",\n][^,\n]*+)?+'
_WHOLE_LINE = re.compile(rb"%b(?:,%b)*+\n" % (_FIELD, _FIELD))  # the usual case, in one step
_OTHER = re.compile(rb'\s*+(?:\{"[^\n]*\}\r?\n|\[\s*+[{\]]|<\?xml\s)')
_BEGINNING = 1 << 16
_QUOTED_FIELD = re.compile(rb'(?:^|,)"')


def _is_quoted_after(line: bytes, is_quoted: bool) -> bool:
    """Whether a quoted field is open at the end of ``line``; a quote opens one only at its start (RFC 4180, 2.5)."""
    at = 0
    while True:
        if not is_quoted:
            opened = _QUOTED_FIELD.search(line, at)
            if opened is None:
                return False
            at = opened.end()
        at = line.find(b'"', at)
        if at < 0:
            return True
        is_quoted = line[at + 1 : at + 2] == b'"'  # a doubled quote stands for one, and the field goes on
        at += 2 if is_quoted else 1
