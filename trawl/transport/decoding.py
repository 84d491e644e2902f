"""Bodies decompressed as they come, in pieces of bounded size, so that a bomb stops at the limit (RFC 9110, 8.4).

Theory of operation: every coding is a :class:`Decoder` that turns bytes into pieces of a bounded size. :class:`Body`
runs what came through the codings, last applied first, and counts the bytes before the first and after each of them:
the first count above the limit ends it, however much the rest of the input would still have become.

A piece is bounded because zlib and brotli take an output limit. zstandard takes none, but a block makes at most 128 KiB
of at least 4 bytes (RFC 8878, 3.1.1.2), so the input is cut small.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from trawl.errors import BodyTooLarge, DownloadError, ResponseBroken

__all__ = ["Body", "accept_encoding", "codings_of"]

PIECE_BYTES = 65_536
"""The most that zlib or brotli gives at once."""

ZSTD_INPUT_BYTES = 256
"""The most that zstandard is fed at once: it makes 8 MiB of it at the worst."""

ZSTD_WINDOW_BYTES = 8 * 1024 * 1024
"""The largest window of a zstd body (RFC 9659, 3)."""

MOST_PIECES = 1_000
"""Pieces of a body that are kept apart: a server may send one byte at a time, and each piece costs 40 more."""

MOST_CODINGS = 5
"""Codings on top of one another that are undone; nobody honest uses more than two."""


class Decoder(Protocol):
    """One coding, undone piece by piece."""

    @property
    def is_complete(self) -> bool:
        """Whether the input has come to its own end."""
        ...

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What ``data`` adds, in pieces of bounded size. Raises the codec's own error for broken input."""
        ...


class Zlib:
    """gzip (several members, trailing rubbish ignored) and deflate, with or without its zlib wrapper."""

    def __init__(self, window_bits: int) -> None:
        self._window_bits = window_bits
        self._codec = zlib.decompressobj(window_bits)

    @property
    def is_complete(self) -> bool:
        """Whether the last member has ended."""
        return self._codec.eof

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What ``data`` adds."""
        while data:
            if self._codec.eof:
                if self._window_bits < 16 or data[0] != 0x1F:
                    return
                self._codec = zlib.decompressobj(self._window_bits)
            piece = self._codec.decompress(data, PIECE_BYTES)
            yield piece
            data = self._codec.unused_data if self._codec.eof else self._codec.unconsumed_tail
        while piece := self._codec.decompress(b"", PIECE_BYTES):  # what a full piece left inside
            yield piece


class Deflate:
    """``deflate`` as servers mean it: zlib's format (RFC 1950), or the bare one (RFC 1951) that some send for it."""

    def __init__(self) -> None:
        self._start = b""
        self._codec: Zlib | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the stream has ended."""
        return self._codec is not None and self._codec.is_complete

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What ``data`` adds."""
        if self._codec is None:
            self._start += data
            if len(self._start) < 2:
                return
            head = int.from_bytes(self._start[:2], "big")
            is_zlib = head >> 8 & 0x0F == 8 and head % 31 == 0  # RFC 1950, 2.2
            self._codec, data = Zlib(15 if is_zlib else -15), self._start
        yield from self._codec.feed(data)


class Brotli:
    """``br`` (RFC 7932), by the ``brotli`` package from 1.2 on, the first with an output limit."""

    def __init__(self) -> None:
        self._codec: Any = importlib.import_module("brotli").Decompressor()

    @property
    def is_complete(self) -> bool:
        """Whether the stream has ended."""
        return bool(self._codec.is_finished())

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What ``data`` adds."""
        while not self._codec.is_finished():
            piece: bytes = self._codec.process(data, output_buffer_limit=PIECE_BYTES)
            data = b""
            if piece:
                yield piece
            elif self._codec.can_accept_more_data():  # also true while there is output left
                return


class Zstandard:
    """``zstd`` (RFC 8878), by the ``zstandard`` package; several frames make one body."""

    def __init__(self) -> None:
        package: Any = importlib.import_module("zstandard")
        self._package = package.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES)
        self._codec = self._package.decompressobj()

    @property
    def is_complete(self) -> bool:
        """Whether the last frame has ended."""
        return bool(self._codec.eof)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What ``data`` adds."""
        for start in range(0, len(data), ZSTD_INPUT_BYTES):
            rest = data[start : start + ZSTD_INPUT_BYTES]
            while rest:
                if self._codec.eof:
                    self._codec = self._package.decompressobj()
                yield self._codec.decompress(rest)
                rest = self._codec.unused_data if self._codec.eof else b""


def _brotli_limits() -> bool:
    """Whether a ``brotli`` is installed that can limit its output."""
    try:
        return hasattr(importlib.import_module("brotli").Decompressor, "can_accept_more_data")
    except ImportError:
        return False


def _has_zstandard() -> bool:
    try:
        importlib.import_module("zstandard")
    except ImportError:
        return False
    return True


def _decoders() -> dict[str, Callable[[], Decoder]]:
    """What can be undone here, in the order in which it is asked for."""
    found: dict[str, Callable[[], Decoder]] = {"gzip": lambda: Zlib(31), "deflate": Deflate}
    if _brotli_limits():
        found["br"] = Brotli
    if _has_zstandard():
        found["zstd"] = Zstandard
    return found


def accept_encoding() -> str:
    """The ``Accept-Encoding`` that names what can be undone here and nothing else (RFC 9110, 12.5.3)."""
    return ", ".join(_decoders())


def codings_of(fields: Sequence[str]) -> list[str]:
    """The codings that ``Content-Encoding`` fields name, in the order in which they were applied."""
    names = [name.strip().lower().removeprefix("x-") for field in fields for name in field.split(",")]
    return [name for name in names if name not in {"", "identity"}]


class Body:
    """Takes a body as it comes and gives it whole, or in parts.

    Args:
        codings: What was applied to it, in that order. From the last backwards, those that are not known end it: the
            body then comes as it was under them.
        max_bytes: The largest it may be, as sent and after each coding; 0 means no limit.

    Raises:
        ResponseBroken: More codings than anybody needs.
    """

    def __init__(self, codings: Sequence[str], max_bytes: int) -> None:
        if len(codings) > MOST_CODINGS:
            raise ResponseBroken(f"its body is compressed {len(codings)} times")
        known = _decoders() if codings else {}
        self._codings: list[str] = []
        self._decoders: list[Decoder] = []
        for coding in reversed(codings):
            if coding not in known:
                break
            self._codings.append(coding)
            self._decoders.append(known[coding]())
        self._max_bytes = max_bytes
        self._counts = [0] * (len(self._decoders) + 1)
        self._pieces: list[bytes] = []
        self._packed = 0

    @property
    def received_bytes(self) -> int:
        """How much came, before decompression."""
        return self._counts[0]

    @property
    def size_bytes(self) -> int:
        """How much came, after decompression."""
        return self._counts[-1]

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes.

        Raises:
            BodyTooLarge: It passes the limit; what came up to the limit is kept.
            ResponseBroken: A coding can't be undone.
        """
        if self._decoders:
            for piece in self._through(chunk, 0):
                self.keep(piece)  # one by one: what came before an error stays
            return
        self._counts[0] += len(chunk)
        if 0 < self._max_bytes < self._counts[0]:
            self._pieces.append(chunk[: self._max_bytes - self._counts[0]])
            raise BodyTooLarge(f"its body passes {self._max_bytes} bytes")
        if chunk:
            self.keep(chunk)

    def passed(self, chunk: bytes) -> Iterator[bytes]:
        """What the next bytes come to, piece by piece, for one who keeps or writes each before asking for the next.

        Raises what :meth:`feed` does; what came up to the limit is given before.
        """
        return self._through(chunk, 0)

    def keep(self, piece: bytes) -> None:
        """Keep a piece of the body."""
        self._pieces.append(piece)
        if len(self._pieces) - self._packed >= MOST_PIECES:
            self._pieces[self._packed :] = [b"".join(self._pieces[self._packed :])]
            self._packed += 1

    def take(self) -> list[bytes]:
        """What has been kept, and is kept no more."""
        pieces, self._pieces, self._packed = self._pieces, [], 0
        return pieces

    def finish(self) -> bytes:
        """The body, or what is kept of it, with every coding undone as far as it came."""
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    def loss(self) -> DownloadError | None:
        """What is missing: an error if a coding's data ended before its own end."""
        for coding, decoder in zip(self._codings, self._decoders, strict=True):
            if self._counts[0] and not decoder.is_complete:
                return ResponseBroken(f"its {coding} data ends early")
        return None

    def _through(self, chunk: bytes, step: int) -> Iterator[bytes]:
        """What is left of ``chunk`` behind the codings from ``step`` on."""
        if not chunk:
            return
        self._counts[step] += len(chunk)
        if 0 < self._max_bytes < self._counts[step]:
            if step == len(self._decoders):
                yield chunk[: self._max_bytes - self._counts[step]]
            raise BodyTooLarge(f"its body passes {self._max_bytes} bytes{' once decompressed' if step else ''}")
        if step == len(self._decoders):
            yield chunk
            return
        try:
            for piece in self._decoders[step].feed(chunk):
                yield from self._through(piece, step + 1)
        except DownloadError:
            raise
        except Exception as error:  # the three packages' errors have no common base
            raise ResponseBroken(f"its {self._codings[step]} data is broken: {error}") from error
