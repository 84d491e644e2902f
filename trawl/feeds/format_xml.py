"""XML 1.0: one element an item, its fields inside, the parts of a list as ``<value>`` elements."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import BinaryIO, Self
from xml.parsers import expat

import attrs

from trawl.feeds.base import CHUNK_BYTES, End, NotThisFormat
from trawl.feeds.plain import Plain, to_plain

__all__ = ["XmlTree"]


@attrs.frozen(kw_only=True)
class XmlTree:
    """Items as elements under one root.

    A field whose name is no XML name is written under a name that is one, with its own in the attribute ``name``.
    Characters that XML 1.0 cannot hold (2.2) are dropped.

    Attributes:
        root: The name of the outermost element.
        element: The name of an item's element.
        indent: Characters a level; with 0 an item is not broken into lines.
        encoding: The character encoding; what it lacks is written as a character reference.
    """

    root: str = "items"
    element: str = "item"
    indent: int = 0
    encoding: str = "utf-8"

    name = "xml"
    columns = None
    first = b"\n"
    separator = b"\n"

    @property
    def opening(self) -> bytes:
        """The declaration (2.8) and the root's start."""
        return f'<?xml version="1.0" encoding="{self.encoding}"?>\n<{self.root}>'.encode("ascii")

    @property
    def closing(self) -> bytes:
        """The root's end."""
        return f"\n</{self.root}>\n".encode("ascii")

    def settled(self, names: Iterable[str]) -> Self:
        """Itself: any fields fit."""
        return self

    def record(self, row: Mapping[str, object]) -> bytes:
        """The item's element."""
        plain = {str(name): to_plain(value) for name, value in row.items()}
        return self._element(self.element, "", plain, 1).encode(self.encoding, "xmlcharrefreplace")

    def end_of(self, file: BinaryIO) -> End:
        """After the last whole element under the root."""
        head = file.read(len(self.opening)) if file.seek(0) == 0 else b""
        if self.opening.startswith(head) and head != self.opening:
            return End()
        scan = _Scan(self.root)
        file.seek(0)
        while not scan.is_broken and (chunk := file.read(CHUNK_BYTES)):
            scan.feed(chunk)
        scan.finish()
        size = file.seek(0, os.SEEK_END)
        # A write that was cut off leaves a part of a tag before a part of the old closing, never more than that.
        if scan.is_broken and scan.broken_at < size - len(self.closing):
            raise NotThisFormat(f"it is not well-formed at byte {scan.broken_at}")
        return End(scan.end_in(file))

    def continued(self, file: BinaryIO) -> Self:
        """Itself, if the file is in the same encoding."""
        file.seek(0)
        declared = re.match(rb"<\?xml[^>]*?encoding=[\"']([A-Za-z0-9._-]+)", file.read(CHUNK_BYTES))
        named = declared[1].decode().lower() if declared else "utf-8"
        if named.replace("_", "-") != self.encoding.lower().replace("_", "-"):
            raise NotThisFormat(f"it is in {named}, not in {self.encoding}")
        return self

    def _element(self, name: str, attribute: str, value: Plain, level: int) -> str:
        """One element and all inside it."""
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


# XML 1.0, 2.3, without the colon, which would need a namespace, and without what is not ASCII, for plain tools.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, 2.2
_TEXT = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}  # a raw CR would be read as LF (XML 1.0, 2.11)
_SPECIAL = re.compile(r"[&<>\r]")


def _named(key: str) -> tuple[str, str]:
    """An element name for a field, and the attribute that keeps the field's own name where they differ."""
    if _NAME.match(key):
        return key, ""
    name = _NOT_IN_NAMES.sub("_", key) or "_"
    own = _escape(key).replace('"', "&quot;").replace("\n", "&#10;").replace("\t", "&#9;")
    return (name if _NAME.match(name) else f"_{name}"), f' name="{own}"'


def _escape(text: str) -> str:
    legal = text if text.isascii() and text.isprintable() else _ILLEGAL.sub("", text)
    return _SPECIAL.sub(lambda found: _TEXT[found[0]], legal) if _SPECIAL.search(legal) else legal


class _Scan:
    """Follows a document with expat and remembers where the last whole element right under the root began and ended."""

    def __init__(self, root: str) -> None:
        self._start = 0
        self._last: tuple[int, int] | None = None  # the places of its first and its last tag
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
                raise NotThisFormat("it is not an XML document of items") from None
            self.is_broken = True
            self.broken_at = self._parser.ErrorByteIndex

    def finish(self) -> None:
        """Let expat look at what it put off because it ended within a chunk."""
        with suppress(expat.ExpatError):  # the document has no end: it was cut off, which is what is looked for
            self._parser.Parse(b"", True)

    def _started(self, name: str, attributes: object) -> None:
        if self._depth == 0 and name != self._root:
            raise NotThisFormat(f"its root is <{name}>, not <{self._root}>")
        if self._depth == 1:
            self._start = self._parser.CurrentByteIndex
        self._depth += 1

    def _ended(self, name: str) -> None:
        self._depth -= 1
        if self._depth == 1:
            self._last = self._start, self._parser.CurrentByteIndex

    def end_in(self, file: BinaryIO) -> int:
        """Where that element ends, in bytes; 0 if there is none."""
        if self._last is None:
            return 0
        first, last = self._last
        tag = _tag_at(file, first)
        if not tag.endswith(b"/>"):  # of an empty element's one tag, expat tells the end as the place of the last tag
            first, tag = last, _tag_at(file, last)
        return first + len(tag)


_TAG = re.compile(rb"""<[^<>"']*(?:"[^"]*"[^<>"']*|'[^']*'[^<>"']*)*>""")


def _tag_at(file: BinaryIO, start: int) -> bytes:
    """The tag that begins at byte ``start``."""
    file.seek(start)
    tag = _TAG.match(file.read(CHUNK_BYTES))
    if tag is None:
        raise NotThisFormat(f"the tag at byte {start} is too long")
    return tag[0]
