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
        return End(scan.last_end)

    def continued(self, file: BinaryIO) -> Self:
        """Itself: an array says nothing about its elements."""
        return self


_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|["\[\]{}]|[^\s"\[\]{},:]+', re.DOTALL)


class _Scan:
    """Counts brackets outside of texts. Only what stands at depth 1 is looked at: arrays and objects, nothing else."""

    def __init__(self) -> None:
        self.last_end = 0
        self._depth = 0
        self._start = 0  # the place in the file of the first byte of the next chunk, or of what is carried to it
        self._carried = b""
        self._is_closed = False

    def feed(self, chunk: bytes) -> None:
        text = self._carried + chunk
        if self._start == 0 and text.startswith(BOM_UTF8):
            text = b" " * len(BOM_UTF8) + text[len(BOM_UTF8) :]
        self._carried = b""
        for token in _TOKEN.finditer(text):
            found = token[0]
            if found == b'"':  # a text that goes on in the next chunk
                self._check(found)
                self._carried = text[token.start() :]
                break
            self._meet(found, self._start + token.end())
        self._start += len(text) - len(self._carried)

    def _meet(self, token: bytes, end: int) -> None:
        self._check(token)
        if token in b"[{":
            self._depth += 1
        elif token in b"]}":
            self._depth -= 1
            self._is_closed = self._depth == 0
            if self._depth == 1:
                self.last_end = end

    def _check(self, token: bytes) -> None:
        if self._is_closed:
            raise NotThisFormat("something follows its array")
        if self._depth == 0 and token != b"[":
            raise NotThisFormat("it holds no array")
        if self._depth == 1 and token not in (b"[", b"]", b"{", b"}"):
            raise NotThisFormat("its array holds other things than objects")
