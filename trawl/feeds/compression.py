"""Compressed feeds: each flush is a piece that ends by itself, so that a file is whole between any two of them.

A gzip file may have several members (RFC 1952, 2.2), a Zstandard file several frames (RFC 8878, 3.1), whose contents
are read one after the other. So a feed's position is the end of a piece, in compressed bytes; a file can be cut there
and continued, and the closing of a format is a small piece of its own that the next flush overwrites. Small pieces
compress badly: items gather up to :data:`PIECE_BYTES` before they are written.
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
"""The endings that say how a feed is compressed, and the way that each means."""

PIECE_BYTES = 1 << 16
"""Bytes of records that gather before they are written as one piece."""

_SPOOL_BYTES = 1 << 20


@attrs.frozen
class Compression:
    """A compression method.

    Attributes:
        name: Its ending.
        compress: Makes one piece of some bytes, or of none, for a file without content: zero bytes can't be unpacked.
        decompressor: Makes a decompressor of one piece, with the interface of zlib's objects.
        error: The exception that this raises.
    """

    name: str
    compress: Callable[[bytes], bytes]
    decompressor: Callable[[], Any]
    error: type[Exception]


class Content:
    """The content of a feed's file while it is read, compressed or not. Leaving closes neither file for good.

    Attributes:
        file: The content: of a compressed file, that of its whole pieces; a broken end is left out.
        size_bytes: Bytes of the file that are content, or whole pieces of it.
    """

    def __init__(self, reader: io.BufferedReader, compression: Compression | None) -> None:
        """Read from ``reader``, which is detached at the end.

        Raises:
            FormatConflict: It is not compressed in this way.
        """
        self._reader = reader
        self._ends: dict[int, int] | None = None  # where each piece ends: bytes of content to bytes of the file
        self.file: BinaryIO = reader
        if compression is None:
            self.size_bytes: int = reader.seek(0, io.SEEK_END)
            return
        try:
            self._decompress(compression)
        except BaseException:
            self._close()
            raise

    def position_of(self, position: int) -> int:
        """Return where a position in the content is in the file.

        Raises:
            FormatConflict: It is within a compressed piece, so the file can't be cut there.
        """
        if self._ends is None:
            return position
        if position not in self._ends:
            raise FormatConflict("it was compressed by something else, in pieces that do not end where records end")
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
        """Read piece by piece, into a file of its own once it is large."""
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
                        ends.setdefault(content.tell(), packed_end)  # nothing is lost with a piece without content
                        break
        except compression.error as error:
            raise FormatConflict(f"it is not compressed as {compression.name}: {error}") from error
        content.truncate(max(ends))
        self._ends, self.size_bytes = ends, packed_end


def make_compression(name: str) -> Compression | None:
    """Make the method that :data:`COMPRESSIONS` names; None for "".

    Raises:
        SettingsError: It needs an extra that is not installed.
    """
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
