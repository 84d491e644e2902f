"""Incremental decoders of content codings (RFC 9110, 8.4), which return chunks of a bounded size.

zlib and brotli accept an output limit. zstandard has no such limit, but its input consists of blocks of at least 4
bytes, and a block has at most 128 KiB of output (RFC 8878, 3.1.1.2), so the input is cut into small parts. The input of
the other decoders is cut too, because zlib copies the remaining input once for each gzip member. A small input may
contain many empty members, so every step yields a chunk, even if the chunk is empty.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Protocol

__all__ = ["INPUT_BYTES", "Decoder", "accept_encoding", "codings_of", "decoders"]

PIECE_BYTES = 65_536
"""Maximum number of bytes that one call of zlib or brotli returns."""

INPUT_BYTES = 4_096
"""Maximum number of bytes that are passed to a decoder in one call."""

ZSTD_INPUT_BYTES = 256
"""Maximum number of bytes that are passed to zstandard in one call. Their output is at most 8 MiB."""

ZSTD_WINDOW_BYTES = 8 * 1024 * 1024
"""Maximum window of a zstd body, in bytes (RFC 9659, 3)."""


class Decoder(Protocol):
    """Incremental decoder of one content coding."""

    @property
    def is_complete(self) -> bool:
        """True if the input has ended properly."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the output for ``data``, one chunk for each step of bounded work. Raises the codec's own error.

        ``data`` has at most :data:`INPUT_BYTES` bytes.
        """


class GzipDecoder:
    """Decoder of gzip (several members, trailing bytes ignored) and deflate (with or without the zlib wrapper)."""

    def __init__(self, window_bits: int) -> None:
        self._window_bits = window_bits
        self._codec = zlib.decompressobj(window_bits)
        self._is_over = False

    @property
    def is_complete(self) -> bool:
        """True if the last member has ended."""
        return self._codec.eof

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the output for ``data``."""
        while data and not self._is_over:
            if self._codec.eof:
                self._is_over = self._window_bits < 16 or data[0] != 0x1F
                if self._is_over:
                    return
                self._codec = zlib.decompressobj(self._window_bits)
            piece = self._codec.decompress(data, PIECE_BYTES)
            yield piece
            data = self._codec.unused_data if self._codec.eof else self._codec.unconsumed_tail
        while piece := self._codec.decompress(b"", PIECE_BYTES):  # output still buffered in the decompressor
            yield piece


class DeflateDecoder:
    """``deflate`` as servers send it: in zlib's format (RFC 1950), or sometimes in the raw format (RFC 1951)."""

    def __init__(self) -> None:
        self._start = b""
        self._codec: GzipDecoder | None = None

    @property
    def is_complete(self) -> bool:
        """True if the stream has ended."""
        return self._codec is not None and self._codec.is_complete

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the output for ``data``."""
        if self._codec is None:
            self._start += data
            if len(self._start) < 2:
                return
            head = int.from_bytes(self._start[:2], "big")
            is_zlib = head >> 8 & 0x0F == 8 and head % 31 == 0  # method and checksum of zlib (RFC 1950, 2.2)
            self._codec, data = GzipDecoder(15 if is_zlib else -15), self._start
        yield from self._codec.feed(data)


class BrotliDecoder:
    """``br`` (RFC 7932), with the ``brotli`` package. Needs version 1.2, the first with an output limit."""

    def __init__(self) -> None:
        self._codec: Any = importlib.import_module("brotli").Decompressor()

    @property
    def is_complete(self) -> bool:
        """True if the stream has ended."""
        return bool(self._codec.is_finished())

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the output for ``data``."""
        while not self._codec.is_finished():
            piece: bytes = self._codec.process(data, output_buffer_limit=PIECE_BYTES)
            data = b""
            if piece:
                yield piece
            elif self._codec.can_accept_more_data():  # also true while the decoder has output, so check it last
                return


class ZstdDecoder:
    """``zstd`` (RFC 8878), with the ``zstandard`` package. A body may have several frames."""

    def __init__(self) -> None:
        package: Any = importlib.import_module("zstandard")
        self._package = package.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES)
        self._codec = self._package.decompressobj()

    @property
    def is_complete(self) -> bool:
        """True if the last frame has ended."""
        return bool(self._codec.eof)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the output for ``data``."""
        for start in range(0, len(data), ZSTD_INPUT_BYTES):
            rest = data[start : start + ZSTD_INPUT_BYTES]
            while rest:
                if self._codec.eof:
                    self._codec = self._package.decompressobj()
                yield self._codec.decompress(rest)
                rest = self._codec.unused_data if self._codec.eof else b""


def decoders() -> dict[str, Callable[[], Decoder]]:
    """Return the decoders of supported codings, in the order of ``Accept-Encoding``."""
    found: dict[str, Callable[[], Decoder]] = {"gzip": lambda: GzipDecoder(31), "deflate": DeflateDecoder}
    for coding, package, name, decoder in (
        ("br", "brotli", "Decompressor.can_accept_more_data", BrotliDecoder),
        ("zstd", "zstandard", "ZstdDecompressor", ZstdDecoder),
    ):
        try:
            attrgetter(name)(importlib.import_module(package))
        except (ImportError, AttributeError):  # not installed, or the version of brotli has no output limit
            continue
        found[coding] = decoder
    return found


def accept_encoding() -> str:
    """Return the value of ``Accept-Encoding`` with the supported codings (RFC 9110, 12.5.3)."""
    return ", ".join(decoders())


def codings_of(fields: Sequence[str]) -> list[str]:
    """Return the codings in ``Content-Encoding`` headers, in the order in which they were applied."""
    names = [name.strip().lower().removeprefix("x-") for field in fields for name in field.split(",")]
    return [name for name in names if name not in {"", "identity"}]
