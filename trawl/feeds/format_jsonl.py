"""JSON Lines: one JSON value a line (jsonlines.org; newline is LF, no byte order mark)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import BinaryIO, Self

import attrs
import msgspec

from trawl.feeds.base import CHUNK_BYTES, End, NotThisFormat
from trawl.feeds.plain import to_ascii_json, to_json

__all__ = ["JsonLines"]


@attrs.frozen(kw_only=True)
class JsonLines:
    """Items as JSON, one a line.

    Attributes:
        is_ascii: Whether all other characters are escaped.
    """

    is_ascii: bool = False

    name = "jsonl"
    columns = None
    opening = b""
    first = b""
    separator = b""
    closing = b""

    def settled(self, names: Iterable[str]) -> Self:
        """Itself: any fields fit."""
        return self

    def record(self, row: Mapping[str, object]) -> bytes:
        """The item's line, newline included."""
        return (to_ascii_json(row) if self.is_ascii else to_json(row)) + b"\n"

    def end_of(self, file: BinaryIO) -> End:
        """After the last newline; or after a last line that lacks only its newline."""
        file.seek(0)
        if file.read(CHUNK_BYTES).lstrip()[:1] not in (b"", b"{"):
            raise NotThisFormat("its first line is no JSON object")
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

    def continued(self, file: BinaryIO) -> Self:
        """Itself: a file says nothing about its lines."""
        return self


def _is_whole(line: bytes) -> bool:
    """Whether a line without a newline is an object; no beginning of an object is one."""
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
