"""One JSON array of all items (RFC 8259)."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping
from typing import BinaryIO, Self

import attrs
import msgspec

from trawl.feeds.base import CHUNK_BYTES, End, NotThisFormat
from trawl.feeds.plain import to_ascii_json, to_json

__all__ = ["JsonArray"]


@attrs.frozen(kw_only=True)
class JsonArray:
    """Items as the elements of one array.

    Attributes:
        indent: Characters a level; with 0 an item takes one line.
        is_ascii: Whether all other characters are escaped.
    """

    indent: int = 0
    is_ascii: bool = False

    name = "json"
    columns = None
    opening = b"["
    first = b"\n"
    separator = b",\n"
    closing = b"\n]\n"

    def settled(self, names: Iterable[str]) -> Self:
        """Itself: any fields fit."""
        return self

    def record(self, row: Mapping[str, object]) -> bytes:
        """The item's object; no newline inside a text is ever raw, so its lines can be indented."""
        text = to_ascii_json(row) if self.is_ascii else to_json(row)
        if not self.indent:
            return text
        margin = b" " * self.indent
        return margin + msgspec.json.format(text, indent=self.indent).replace(b"\n", b"\n" + margin)

    def end_of(self, file: BinaryIO) -> End:
        """After the last whole element of the array."""
        scan = _Scan()
        file.seek(0)
        while chunk := file.read(CHUNK_BYTES):
            scan.feed(chunk)
        scan.finish()
        return End(scan.last_end)

    def continued(self, file: BinaryIO) -> Self:
        """Itself: an array says nothing about its elements."""
        return self


# Whatever is no bracket, texts as a whole; then one bracket, or an array or object with no other inside.
_PLAIN = rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+'
_TOKEN = re.compile(rb"(%b)(\{%b\}|\[%b\]|[\[\]{}])" % (_PLAIN, _PLAIN, _PLAIN), re.DOTALL)
_SPACE = b" \t\r\n"


class _Scan:
    """Counts brackets outside of texts. What stands at depth 1, between them, may be commas only."""

    def __init__(self) -> None:
        self.last_end = 0
        self._depth = 0
        self._start = 0  # the place in the file of the first byte of what is carried, or of the next chunk
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
        """Check what has no bracket after it."""
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
            raise NotThisFormat("something follows its array")
        if self._depth == 0 and (between.strip(_SPACE) or token[:1] not in (b"[", b"")):
            raise NotThisFormat("it holds no array")
        inside = token[1:-1] if self._depth == 0 else between
        if self._depth <= 1 and inside.strip(_SPACE + b","):
            raise NotThisFormat("its array holds other things than objects")
