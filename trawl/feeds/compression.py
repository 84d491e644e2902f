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
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, BinaryIO, Protocol, Self, cast

import attrs

from trawl.errors import SettingsError
from trawl.feeds.base import CHUNK_BYTES, NotThisFormat

__all__ = ["COMPRESSIONS", "PIECE_BYTES", "Compression", "Content", "Decompressed", "make_compression"]

COMPRESSIONS: Mapping[str, str] = {"gz": "gz", "gzip": "gz", "zst": "zst", "zstd": "zst"}
"""The endings that say how a feed is compressed, and the way that each means."""

PIECE_BYTES = 1 << 16
"""Bytes of records that gather before they are written as one piece."""

_FEWEST = 1 << 20


class Decompressor(Protocol):
    """Unpacks one piece: the interface of zlib's decompression objects, which zstandard has too."""

    @property
    def eof(self) -> bool:
        """True once the end of the piece was found."""
        ...

    @property
    def unused_data(self) -> bytes:
        """Bytes given that lie behind the end."""
        ...

    def decompress(self, data: bytes) -> bytes:
        """Decompress ``data``."""
        ...


@attrs.frozen
class Decompressed:
    """The content of a compressed file.

    Attributes:
        file: The content of its whole pieces; to be closed.
        ends: Where each piece ends: bytes of content to bytes of the file.
        size_bytes: Where the last whole piece ends in the file.
    """

    file: BinaryIO
    ends: Mapping[int, int]
    size_bytes: int


class Content:
    """The content of a feed's file while it is looked at, compressed or not. Leaving closes neither file for good."""

    def __init__(self, reader: io.BufferedReader, compression: Compression | None) -> None:
        """Look at what ``reader`` reads; it is detached at the end."""
        self._reader = reader
        self._decompressed = compression and _unpacked_or_detached(compression, reader)

    @property
    def file(self) -> BinaryIO:
        """The content."""
        return self._decompressed.file if self._decompressed else self._reader

    def position_of(self, position: int) -> int:
        """Return where a position in the content is in the file.

        Raises:
            NotThisFormat: It is within a compressed piece, so the file can't be cut there.
        """
        if not self._decompressed:
            return position
        if position not in self._decompressed.ends:
            raise NotThisFormat("it was compressed by something else, in pieces that do not end where records end")
        return self._decompressed.ends[position]

    @property
    def size_bytes(self) -> int:
        """Bytes of the file that are content, or whole pieces of it."""
        return self._decompressed.size_bytes if self._decompressed else self._reader.seek(0, io.SEEK_END)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._decompressed:
            self._decompressed.file.close()
        self._reader.detach()


def _unpacked_or_detached(compression: Compression, reader: io.BufferedReader) -> Decompressed:
    try:
        return compression.decompressed(reader)
    except BaseException:
        reader.detach()
        raise


class Compression(Protocol):
    """A compression method."""

    def pack(self, content: bytes) -> bytes:
        """Compress ``content`` as one piece; no bytes give no bytes."""
        ...

    @property
    def nothing(self) -> bytes:
        """A piece without content, which a file without any holds: zero bytes can not be decompressed."""
        ...

    def decompressed(self, file: BinaryIO) -> Decompressed:
        """Decompress the whole pieces of ``file``, from its beginning; a broken end is left out.

        Raises:
            NotThisFormat: It is not compressed in this way.
        """
        ...


class _Compression(ABC):
    """Common part of both methods."""

    name: str

    def pack(self, content: bytes) -> bytes:
        return self._packed(content) if content else b""

    @property
    def nothing(self) -> bytes:
        return self._packed(b"")

    def decompressed(self, file: BinaryIO) -> Decompressed:
        """Read piece by piece, into a file of its own once it is large."""
        content = cast(BinaryIO, tempfile.SpooledTemporaryFile(_FEWEST))  # noqa: SIM115 - handed to the caller
        ends, packed_end, rest = {0: 0}, 0, b""
        file.seek(0)
        try:
            while rest := rest or file.read(CHUNK_BYTES):
                piece, size = self._piece(), 0
                while rest:
                    size += len(rest)
                    content.write(piece.decompress(rest))
                    rest = piece.unused_data if piece.eof else file.read(CHUNK_BYTES)
                    if piece.eof:
                        packed_end += size - len(rest)
                        ends.setdefault(content.tell(), packed_end)  # nothing is lost with a piece without content
                        break
        except self._errors() as error:
            content.close()
            raise NotThisFormat(f"it is not compressed as {self.name}: {error}") from error
        content.truncate(max(ends))
        return Decompressed(content, ends, packed_end)

    @abstractmethod
    def _packed(self, content: bytes) -> bytes:
        """Compress ``content``, which is not empty, as one piece."""

    @abstractmethod
    def _piece(self) -> Decompressor:
        """Make a decompressor of one piece."""

    @abstractmethod
    def _errors(self) -> tuple[type[Exception], ...]:
        """Return the exceptions it raises for bytes that are no piece."""


class _Gzip(_Compression):
    name = "gz"

    def _packed(self, content: bytes) -> bytes:
        return gzip.compress(content, 6, mtime=0)

    def _piece(self) -> Decompressor:
        return zlib.decompressobj(wbits=31)

    def _errors(self) -> tuple[type[Exception], ...]:
        return (zlib.error,)


class _Zstandard(_Compression):
    name = "zst"

    def __init__(self) -> None:
        try:
            import zstandard  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise SettingsError("a feed in .zst needs the extra zstd: trawl-crawler[zstd]", "FEEDS") from error
        self._library: Any = zstandard

    def _packed(self, content: bytes) -> bytes:
        packed: bytes = self._library.ZstdCompressor().compress(content)
        return packed

    def _piece(self) -> Decompressor:
        piece: Decompressor = self._library.ZstdDecompressor().decompressobj()
        return piece

    def _errors(self) -> tuple[type[Exception], ...]:
        return (self._library.ZstdError,)


def make_compression(name: str) -> Compression | None:
    """Make the method that :data:`COMPRESSIONS` names; None for "".

    Raises:
        SettingsError: It needs an extra that is not installed.
    """
    if not name:
        return None
    return _Gzip() if name == "gz" else _Zstandard()
