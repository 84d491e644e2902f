"""The text formats: CSV (RFC 4180), a JSON array (RFC 8259), JSON Lines (jsonlines.org) and XML 1.0.

:func:`trawl.feeds.exporter_format.make_format` creates these formats. Plugins may derive from these classes.
"""

from __future__ import annotations

import csv
import io
import os
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import BinaryIO, Self
from xml.parsers import expat

import attrs
import msgspec

from trawl.feeds.base import CHUNK_BYTES, End, FormatConflict
from trawl.feeds.to_json import JsonValue, to_ascii_json, to_builtins, to_json

__all__ = ["CsvTable", "JsonArray", "JsonLines", "XmlTree"]


@attrs.frozen(kw_only=True)
class CsvTable:
    """Items as rows of a table.

    Attributes:
        columns: The fields of the table, in order; None until the first item decides them.
        encoding: The character encoding. A character that the encoding lacks is written as ``?``. ``utf-8-sig`` writes
            a byte order mark at the start of a file.
        has_header: Whether the first line of a new file contains the names of the columns.
        joint: Separator for joining the values of a list, if no value is a list or a dict; None to write lists as JSON.
    """

    columns: tuple[str, ...] | None = None
    encoding: str = "utf-8"
    has_header: bool = True
    joint: str | None = None

    first = separator = closing = b""

    @property
    def opening(self) -> bytes:
        """The header; empty until the columns are known."""
        if not self.columns:
            return b""
        mark = BOM_UTF8 if self.encoding == "utf-8-sig" else b""
        return mark + (self._line([str(name) for name in self.columns]) if self.has_header else b"")

    def settled(self, names: Iterable[str]) -> Self:
        """Return this format with these columns; unchanged if it already has columns."""
        if self.columns:
            return self
        return attrs.evolve(self, columns=tuple(names) or None)

    def record(self, row: Mapping[str, object]) -> bytes:
        """Encode the item as a line. A missing field gets an empty cell, and a field without a column is left out."""
        if not self.columns:
            raise ValueError("it has no fields, and a table needs columns")
        return self._line([self._cell(row.get(name)) for name in self.columns])

    def end_of(self, file: BinaryIO) -> End:
        """Find the end of the last line, ignoring newlines in quoted fields."""
        file.seek(0)
        if _OTHER.match(file.read(_BEGINNING)):
            raise FormatConflict("it starts like JSON or XML")
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
        """Return this format with the columns of the file."""
        if not self.has_header:
            return self
        file.seek(0)
        text = io.TextIOWrapper(file, "utf-8-sig" if self.encoding == "utf-8" else self.encoding, newline="")
        try:
            names = tuple(next(csv.reader(text), ()))
        except (csv.Error, UnicodeError) as error:
            raise FormatConflict(f"its header can't be read: {error}") from error
        finally:
            text.detach()
        if self.columns and tuple(map(str, self.columns)) != names:
            raise FormatConflict(f"its columns are {','.join(names)}, not {','.join(map(str, self.columns))}")
        return attrs.evolve(self, columns=names)

    def _line(self, cells: list[str]) -> bytes:
        text = io.StringIO()
        csv.writer(text).writerow(cells)
        return text.getvalue().encode("utf-8" if self.encoding == "utf-8-sig" else self.encoding, "replace")

    def _cell(self, value: object) -> str:
        if type(value) is str and value.isascii():
            return value
        if value is None:
            return ""
        return self._written(to_builtins(value))

    def _written(self, plain: JsonValue) -> str:
        if isinstance(plain, list) and self.joint is not None and not any(isinstance(p, list | dict) for p in plain):
            return self.joint.join("" if part is None else str(part) for part in plain)
        if isinstance(plain, list | dict):
            return to_json(plain).decode()
        return "" if plain is None else str(plain)


_FIELD = rb'(?:"(?:[^"]++|"")*+"[^,\n]*+|[^",\n][^,\n]*+)?+'
# The usual line: every quoted field ends on the same line.
_WHOLE_LINE = re.compile(rb"%b(?:,%b)*+\n" % (_FIELD, _FIELD))
_OTHER = re.compile(rb'\s*+(?:\{"[^\n]*\}\r?\n|\[\s*+[{\]]|<\?xml\s)')
_BEGINNING = 1 << 16
_QUOTED_FIELD = re.compile(rb'(?:^|,)"')


def _is_quoted_after(line: bytes, is_quoted: bool) -> bool:
    """Return whether a quoted field continues after the end of ``line``.

    A quote opens a quoted field only if it is the first byte of the field (RFC 4180, 2.5).
    """
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
        # Two quotes stand for one quote character in the field, and the field continues.
        is_quoted = line[at + 1 : at + 2] == b'"'
        at += 2 if is_quoted else 1


class _AnyFields:
    """Base of formats whose items may have any fields, so that neither the first item nor the file sets columns."""

    __slots__ = ()

    columns = None

    def settled(self, names: Iterable[str]) -> Self:
        """Return this format, because it writes any fields."""
        return self

    def continued(self, file: BinaryIO) -> Self:
        """Return this format, because the file does not restrict its items."""
        return self


@attrs.frozen(kw_only=True)
class JsonArray(_AnyFields):
    """Items as the elements of one array.

    Attributes:
        indent: Spaces per level; 0 writes an item on one line.
        is_ascii: Whether to escape all characters outside of ASCII.
    """

    indent: int = 0
    is_ascii: bool = False

    opening = b"["
    first = b"\n"
    separator = b",\n"
    closing = b"\n]\n"

    def record(self, row: Mapping[str, object]) -> bytes:
        """Encode the item as an object. Each line can be indented, because newlines in strings are escaped."""
        text = to_ascii_json(row) if self.is_ascii else to_json(row)
        if not self.indent:
            return text
        margin = b" " * self.indent
        return margin + msgspec.json.format(text, indent=self.indent).replace(b"\n", b"\n" + margin)

    def end_of(self, file: BinaryIO) -> End:
        """Find the last whole element of the array."""
        scan = _Reader()
        file.seek(0)
        while chunk := file.read(CHUNK_BYTES):
            scan.feed(chunk)
        scan.finish()
        return End(scan.last_end)


# A token is a bracket, or a whole array or object without nested arrays and objects. The text before it may contain
# brackets only in strings.
_PLAIN = rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+'
_TOKEN = re.compile(rb"(%b)(\{%b\}|\[%b\]|[\[\]{}])" % (_PLAIN, _PLAIN, _PLAIN), re.DOTALL)
_SPACE = b" \t\r\n"


class _Reader:
    """Finds the end of an array's last whole element. Between elements, only commas and white space are allowed."""

    def __init__(self) -> None:
        self.last_end = 0
        self._depth = 0
        # Position in the file of the text in `_carried`, or of the next chunk if `_carried` is empty.
        self._start = 0
        self._carried = b""
        self._is_closed = False

    def feed(self, chunk: bytes) -> None:
        text = self._carried + chunk
        if self._start == 0 and text.startswith(BOM_UTF8):
            text = b" " * len(BOM_UTF8) + text[len(BOM_UTF8) :]
        at = 0
        while token := _TOKEN.match(text, at):
            self._check(token[1], token[2])
            at = token.end()
            self._meet(token[2], self._start + at)
        self._carried = text[at:]
        self._start += at

    def finish(self) -> None:
        """Check the text after the last bracket."""
        self._check(self._carried, b"")

    def _meet(self, token: bytes, end: int) -> None:
        if token in b"[{":
            self._depth += 1
        elif token in b"]}":
            self._depth -= 1
        if self._depth == 1 and token != b"[":
            self.last_end = end
        self._is_closed = self._depth == 0

    def _check(self, between: bytes, token: bytes) -> None:
        if self._is_closed and (token or between.strip(_SPACE)):
            raise FormatConflict("something follows its array")
        if self._depth == 0 and (between.strip(_SPACE) or token[:1] not in (b"[", b"")):
            raise FormatConflict("it contains no array")
        inside = token[1:-1] if self._depth == 0 else between
        if self._depth <= 1 and inside.strip(_SPACE + b","):
            raise FormatConflict("its array contains values that are not objects")


@attrs.frozen(kw_only=True)
class JsonLines(_AnyFields):
    """Items as JSON, one per line.

    Attributes:
        is_ascii: Whether to escape all characters outside of ASCII.
    """

    is_ascii: bool = False

    opening = first = separator = closing = b""

    def record(self, row: Mapping[str, object]) -> bytes:
        """Encode the item as a line, with its newline."""
        return (to_ascii_json(row) if self.is_ascii else to_json(row)) + b"\n"

    def end_of(self, file: BinaryIO) -> End:
        """Find the end of the last whole line. A last line that lacks only its newline is whole."""
        file.seek(0)
        if file.read(CHUNK_BYTES).lstrip()[:1] not in (b"", b"{"):
            raise FormatConflict("its first line is not a JSON object")
        size = file.seek(0, os.SEEK_END)
        tail = b""
        start = size
        while start and b"\n" not in tail:
            step = min(CHUNK_BYTES, start)
            start -= step
            file.seek(start)
            tail = file.read(step) + tail
        whole, newline, half = tail.rpartition(b"\n")
        position = start + len(whole) + len(newline)
        if half.strip() and _is_whole(half):
            return End(size, b"\n")
        return End(position)


def _is_whole(line: bytes) -> bool:
    """Return whether a line without a newline is a whole object. A truncated object would be invalid JSON."""
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


@attrs.frozen(kw_only=True)
class XmlTree(_AnyFields):
    """Items as elements under one root.

    If the name of a field is not an XML name, its element has a valid name, and the attribute ``name`` contains the
    name of the field. Characters that XML 1.0 does not allow (2.2) are removed.

    Attributes:
        root: The name of the root element.
        element: The name of an item's element.
        indent: Spaces per level; 0 writes an item without line breaks.
        encoding: The character encoding. A character that the encoding lacks is written as a character reference.
    """

    root: str = "items"
    element: str = "item"
    indent: int = 0
    encoding: str = "utf-8"

    first = b"\n"
    separator = b"\n"

    @property
    def opening(self) -> bytes:
        """The declaration (2.8) and the root's start tag."""
        return f'<?xml version="1.0" encoding="{self.encoding}"?>\n<{self.root}>'.encode("ascii")

    @property
    def closing(self) -> bytes:
        """The root's end tag."""
        return f"\n</{self.root}>\n".encode("ascii")

    def record(self, row: Mapping[str, object]) -> bytes:
        """Encode the item as an element."""
        plain = {str(name): to_builtins(value) for name, value in row.items()}
        return self._element(self.element, "", plain, 1).encode(self.encoding, "xmlcharrefreplace")

    def end_of(self, file: BinaryIO) -> End:
        """Find the last whole element under the root."""
        head = file.read(len(self.opening)) if file.seek(0) == 0 else b""
        if self.opening.startswith(head) and head != self.opening:
            return End()
        scan = _XmlReader(self.root)
        file.seek(0)
        while not scan.is_broken and (chunk := file.read(CHUNK_BYTES)):
            scan.feed(chunk)
        scan.finish()
        size = file.seek(0, os.SEEK_END)
        # New elements overwrite the closing tag of the root. So after a write that was cut short, the file is invalid
        # only near its end: the start of a new tag, then the rest of the old closing tag.
        if scan.is_broken and scan.broken_at < size - len(self.closing):
            raise FormatConflict(f"it is not well-formed at byte {scan.broken_at}")
        return End(scan.end_in(file))

    def continued(self, file: BinaryIO) -> Self:
        """Return this format, if the file has the same encoding."""
        file.seek(0)
        declared = re.match(rb"<\?xml[^>]*?encoding=[\"']([A-Za-z0-9._-]+)", file.read(CHUNK_BYTES))
        named = declared[1].decode().lower() if declared else "utf-8"
        if named.replace("_", "-") != self.encoding.lower().replace("_", "-"):
            raise FormatConflict(f"it is in {named}, not in {self.encoding}")
        return self

    def _element(self, name: str, attribute: str, value: JsonValue, level: int) -> str:
        """Return one element and its content."""
        margin = " " * (self.indent * level)
        if isinstance(value, dict):
            inner = [self._element(*_named(key), part, level + 1) for key, part in value.items()]
        elif isinstance(value, list):
            inner = [self._element("value", "", part, level + 1) for part in value]
        else:
            return f"{margin}<{name}{attribute}>{'' if value is None else _escape(str(value))}</{name}>"
        if self.indent and inner:
            inner = ["", *inner, margin]
        return f"{margin}<{name}{attribute}>{(chr(10) if self.indent else '').join(inner)}</{name}>"


# Names of XML 1.0 (2.3), but only in ASCII, for simple tools, and without colons, which would need a namespace.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, 2.2
_TEXT = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}  # a parser reads an unescaped CR as LF (XML 1.0, 2.11)
_SPECIAL = re.compile(r"[&<>\r]")


def _named(key: str) -> tuple[str, str]:
    """Return an element name for a field, and an attribute with the field's name if the two names differ."""
    if _NAME.match(key):
        return key, ""
    name = _NOT_IN_NAMES.sub("_", key) or "_"
    own = _escape(key).replace('"', "&quot;").replace("\n", "&#10;").replace("\t", "&#9;")
    return (name if _NAME.match(name) else f"_{name}"), f' name="{own}"'


def _escape(text: str) -> str:
    legal = text if text.isascii() and text.isprintable() else _ILLEGAL.sub("", text)
    return _SPECIAL.sub(lambda found: _TEXT[found[0]], legal) if _SPECIAL.search(legal) else legal


class _XmlReader:
    """Parses a document with expat, and records where the last whole child element of the root starts and ends."""

    def __init__(self, root: str) -> None:
        self._start = 0
        self._last: tuple[int, int] | None = None  # positions of the start tag and end tag of the last whole element
        self.is_broken = False
        self.broken_at = 0
        self._root = root
        self._depth = 0
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._started
        self._parser.EndElementHandler = self._ended

    def feed(self, chunk: bytes) -> None:
        try:
            self._parser.Parse(chunk, False)
        except expat.ExpatError:
            if not self._depth:
                raise FormatConflict("it is not an XML document of items") from None
            self.is_broken = True
            self.broken_at = self._parser.ErrorByteIndex

    def finish(self) -> None:
        """Make expat parse the data that it has not parsed yet."""
        with suppress(expat.ExpatError):  # raised for a truncated document, which is expected here
            self._parser.Parse(b"", True)

    def _started(self, name: str, attributes: object) -> None:
        if self._depth == 0 and name != self._root:
            raise FormatConflict(f"its root is <{name}>, not <{self._root}>")
        if self._depth == 1:
            self._start = self._parser.CurrentByteIndex
        self._depth += 1

    def _ended(self, name: str) -> None:
        self._depth -= 1
        if self._depth == 1:
            self._last = self._start, self._parser.CurrentByteIndex

    def end_in(self, file: BinaryIO) -> int:
        """Return the position after the last whole child element, in bytes; 0 if there is none."""
        if self._last is None:
            return 0
        first, last = self._last
        tag = _tag_at(file, first)
        # For an element that is a single empty tag, expat reports the end of this tag as the position of the end tag.
        if not tag.endswith(b"/>"):
            first, tag = last, _tag_at(file, last)
        return first + len(tag)


_TAG = re.compile(rb"""<[^<>"']*(?:"[^"]*"[^<>"']*|'[^']*'[^<>"']*)*>""")


def _tag_at(file: BinaryIO, start: int) -> bytes:
    """Return the tag that starts at byte ``start``."""
    file.seek(start)
    tag = _TAG.match(file.read(CHUNK_BYTES))
    if tag is None:
        raise FormatConflict(f"the tag at byte {start} is too long")
    return tag[0]
