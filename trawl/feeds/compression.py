"""Compressed feeds: each flush is an independent piece, so that the file is complete between any two flushes.

A gzip file may have several members (RFC 1952, 2.2), and a Zstandard file several frames (RFC 8878, 3.1). A
decompressor concatenates their contents. So a feed's position is the end of a piece, in compressed bytes. A file can be
truncated and continued there. The closing of a format is a small separate piece, which the next flush overwrites. Small
pieces compress badly, so items are collected up to :data:`PIECE_BYTES` before they are written.
"""

from __future__ import annotations

import gzip
import io
import tempfile
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, BinaryIO, Self, cast

import attrs

from trawl.errors import SettingsError
from trawl.feeds.base import CHUNK_BYTES, FormatConflict

__all__ = ["COMPRESSIONS", "PIECE_BYTES", "Compression", "Content", "make_compression"]

COMPRESSIONS: Mapping[str, str] = {"gz": "gz", "gzip": "gz", "zst": "zst", "zstd": "zst"}
"""File name extensions of compressed feeds, and the compression method of each."""

PIECE_BYTES = 1 << 16  # number of bytes of records that are collected before they are written as one piece
_SPOOL_BYTES = 1 << 20


@attrs.frozen
class Compression:
    """A compression method, with functions for one piece. ``decompressor`` makes objects with zlib's interface."""

    name: str
    compress: Callable[[bytes], bytes]
    decompressor: Callable[[], Any]
    error: type[Exception]


class Content:
    """The content of a feed's file, compressed or not. A context manager that leaves the feed's file open."""

    def __init__(self, reader: io.BufferedReader, compression: Compression | None) -> None:
        """Read the content from ``reader``, which is detached from its file when the block ends."""
        self._reader = reader
        # Maps positions in the content to positions in the compressed file, at the ends of the compressed pieces. None
        # if the file is not compressed.
        self._ends: dict[int, int] | None = None
        self.file: BinaryIO = reader  # the content; if it is compressed, without a truncated last piece
        if compression is None:
            self.size_bytes: int = reader.seek(0, io.SEEK_END)  # of the file, without a truncated last piece
            return
        try:
            self._decompress(compression)
        except BaseException:
            self._close()
            raise

    def position_of(self, position: int) -> int:
        """Return the position in the file for one in the content; FormatConflict if it is inside a compressed piece."""
        if self._ends is None:
            return position
        if position not in self._ends:
            raise FormatConflict("another program has compressed it, in pieces that do not end where records end")
        return self._ends[position]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def _close(self) -> None:
        if self.file is not self._reader:
            self.file.close()
        self._reader.detach()

    def _decompress(self, compression: Compression) -> None:
        """Decompress piece by piece, into a temporary file if the content is large."""
        self.file = content = cast(BinaryIO, tempfile.SpooledTemporaryFile(_SPOOL_BYTES))  # noqa: SIM115 - closed by _close()
        ends, packed_end, rest = {0: 0}, 0, b""
        self._reader.seek(0)
        try:
            while rest := rest or self._reader.read(CHUNK_BYTES):
                piece, size = compression.decompressor(), 0
                while rest:
                    size += len(rest)
                    content.write(piece.decompress(rest))
                    rest = piece.unused_data if piece.eof else self._reader.read(CHUNK_BYTES)
                    if piece.eof:
                        packed_end += size - len(rest)
                        # Keep the first piece that ends here in the content, because later pieces without content can
                        # be dropped.
                        ends.setdefault(content.tell(), packed_end)
                        break
        except compression.error as error:
            raise FormatConflict(f"it is not compressed as {compression.name}: {error}") from error
        content.truncate(max(ends))
        self._ends, self.size_bytes = ends, packed_end


def make_compression(name: str) -> Compression | None:
    """Return the compression method with this name (see :data:`COMPRESSIONS`); None for ""."""
    if not name:
        return None
    if name == "gz":
        return Compression(
            name, partial(gzip.compress, compresslevel=6, mtime=0), partial(zlib.decompressobj, wbits=31), zlib.error
        )
    try:
        import zstandard  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise SettingsError(
            "a feed in .zst needs the extra zstd: pip install 'trawl-crawler[zstd]'", "FEEDS"
        ) from error
    return Compression(
        name, zstandard.compress, lambda: zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError
    )
