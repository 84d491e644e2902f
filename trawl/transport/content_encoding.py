"""Content codings (RFC 9110, 8.4) undone piece by piece.

Theory of operation. Every coding is a :class:`Decoder` that turns bytes into pieces of a bounded size. It is bounded
because zlib and brotli take an output limit. zstandard takes none, but a block makes at most 128 KiB of at least 4
bytes (RFC 8878, 3.1.1.2), so its input is cut small. The input of the others is cut too, because zlib copies what
follows a member once for each member. A few hundred bytes may become thousands of empty members, so every step gives a
piece, an empty one if need be.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Protocol

__all__ = ["INPUT_BYTES", "Decoder", "accept_encoding", "codings_of", "decoders"]

PIECE_BYTES = 65_536
"""The largest piece that zlib or brotli gives at once."""

INPUT_BYTES = 4_096
"""The most that any coding is fed at once."""

ZSTD_INPUT_BYTES = 256
"""The most that zstandard is fed at once: it makes at most 8 MiB of it."""

ZSTD_WINDOW_BYTES = 8 * 1024 * 1024
"""The largest window of a zstd body (RFC 9659, 3)."""


class Decoder(Protocol):
    """One content coding, undone piece by piece."""

    @property
    def is_complete(self) -> bool:
        """True when the input has come to its own end."""
        ...

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the output for ``data``, a piece for each step of bounded work.

        Raises the codec's own error for broken input.

        Args:
            data: At most :data:`INPUT_BYTES`.
        """
        ...


class GzipDecoder:
    """gzip (several members, trailing bytes ignored) and deflate, with or without its zlib wrapper."""

    def __init__(self, window_bits: int) -> None:
        self._window_bits = window_bits
        self._codec = zlib.decompressobj(window_bits)
        self._is_over = False

    @property
    def is_complete(self) -> bool:
        """True when the last member has ended."""
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
        while piece := self._codec.decompress(b"", PIECE_BYTES):  # what a full piece left inside
            yield piece


class DeflateDecoder:
    """``deflate`` as servers mean it: zlib's format (RFC 1950), or the bare one (RFC 1951) that some send for it."""

    def __init__(self) -> None:
        self._start = b""
        self._codec: GzipDecoder | None = None

    @property
    def is_complete(self) -> bool:
        """True when the stream has ended."""
        return self._codec is not None and self._codec.is_complete

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the output for ``data``."""
        if self._codec is None:
            self._start += data
            if len(self._start) < 2:
                return
            head = int.from_bytes(self._start[:2], "big")
            is_zlib = head >> 8 & 0x0F == 8 and head % 31 == 0  # RFC 1950, 2.2
            self._codec, data = GzipDecoder(15 if is_zlib else -15), self._start
        yield from self._codec.feed(data)


class BrotliDecoder:
    """``br`` (RFC 7932), by the ``brotli`` package from 1.2 on, the first with an output limit."""

    def __init__(self) -> None:
        self._codec: Any = importlib.import_module("brotli").Decompressor()

    @property
    def is_complete(self) -> bool:
        """True when the stream has ended."""
        return bool(self._codec.is_finished())

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the output for ``data``."""
        while not self._codec.is_finished():
            piece: bytes = self._codec.process(data, output_buffer_limit=PIECE_BYTES)
            data = b""
            if piece:
                yield piece
            elif self._codec.can_accept_more_data():  # also true while there is output left
                return


class ZstdDecoder:
    """``zstd`` (RFC 8878), by the ``zstandard`` package; several frames make one body."""

    def __init__(self) -> None:
        package: Any = importlib.import_module("zstandard")
        self._package = package.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES)
        self._codec = self._package.decompressobj()

    @property
    def is_complete(self) -> bool:
        """True when the last frame has ended."""
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
    """Return the codings that can be undone here, in the order in which servers are asked for them."""
    found: dict[str, Callable[[], Decoder]] = {"gzip": lambda: GzipDecoder(31), "deflate": DeflateDecoder}
    for coding, package, name, decoder in (
        ("br", "brotli", "Decompressor.can_accept_more_data", BrotliDecoder),
        ("zstd", "zstandard", "ZstdDecompressor", ZstdDecoder),
    ):
        try:
            attrgetter(name)(importlib.import_module(package))
        except (ImportError, AttributeError):  # not installed, or a brotli that can't limit its output
            continue
        found[coding] = decoder
    return found


def accept_encoding() -> str:
    """Return the ``Accept-Encoding`` that names the codings that can be undone here (RFC 9110, 12.5.3)."""
    return ", ".join(decoders())


def codings_of(fields: Sequence[str]) -> list[str]:
    """Return the codings that ``Content-Encoding`` fields name, in the order in which they were applied."""
    names = [name.strip().lower().removeprefix("x-") for field in fields for name in field.split(",")]
    return [name for name in names if name not in {"", "identity"}]
