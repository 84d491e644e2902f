"""Bodies decompressed as they come, in pieces of bounded size, so that a bomb stops at the limit (RFC 9110, 8.4).

Theory of operation: every coding is a :class:`Decoder` that turns bytes into pieces of a bounded size. :class:`Body`
runs what came through the codings, last applied first, and counts the bytes before the first and after each of them:
the first count above the limit ends it, however much the rest of the input would still have become.

A piece is bounded because zlib and brotli take an output limit. zstandard takes none, but a block makes at most 128 KiB
of at least 4 bytes (RFC 8878, 3.1.1.2), so the input is cut small.

A few hundred bytes may become a gigabyte, or thousands of empty members. So every step gives a piece, an empty one if
need be, and :meth:`Body.give_way` lets other tasks run, and time limits pass, after a bounded amount of work. The input
of a step is cut too, because zlib copies what is behind a member once for each member.
"""

from __future__ import annotations

import importlib
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import trio

from trawl.errors import BodyTooLarge, DownloadError, ResponseBroken

__all__ = ["Body", "accept_encoding", "codings_of"]

PIECE_BYTES = 65_536
"""The most that zlib or brotli gives at once."""

INPUT_BYTES = 4_096
"""The most that any coding is fed at once."""

TURN_BYTES = 262_144
"""So much is decompressed between two checkpoints; more only where one step of zstandard makes more."""

STEP_BYTES = 4_096
"""What one step counts for besides what it makes."""

ZSTD_INPUT_BYTES = 256
"""The most that zstandard is fed at once: it makes 8 MiB of it at the worst."""

ZSTD_WINDOW_BYTES = 8 * 1024 * 1024
"""The largest window of a zstd body (RFC 9659, 3)."""

MAX_CODINGS = 5
"""Codings on top of one another that are undone; nobody honest uses more than two."""


class Decoder(Protocol):
    """One coding, undone piece by piece."""

    @property
    def is_complete(self) -> bool:
        """Whether the input has come to its own end."""
        ...

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What ``data`` adds, a piece for each step of bounded work. Raises the codec's own error for broken input.

        Args:
            data: At most :data:`INPUT_BYTES`.
        """
        ...


class GzipDecoder:
    """gzip (several members, trailing rubbish ignored) and deflate, with or without its zlib wrapper."""

    def __init__(self, window_bits: int) -> None:
        self._window_bits = window_bits
        self._codec = zlib.decompressobj(window_bits)
        self._is_over = False

    @property
    def is_complete(self) -> bool:
        """Whether the last member has ended."""
        return self._codec.eof

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What ``data`` adds."""
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
            self._codec, data = GzipDecoder(15 if is_zlib else -15), self._start
        yield from self._codec.feed(data)


class BrotliDecoder:
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


class ZstdDecoder:
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
    found: dict[str, Callable[[], Decoder]] = {"gzip": lambda: GzipDecoder(31), "deflate": DeflateDecoder}
    if _brotli_limits():
        found["br"] = BrotliDecoder
    if _has_zstandard():
        found["zstd"] = ZstdDecoder
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
        if len(codings) > MAX_CODINGS:
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
        self._kept = io.BytesIO()  # it grows in place, and gives what it holds without a copy: a join takes a second
        self._work = 0

    @property
    def received_bytes(self) -> int:
        """How much came, before decompression."""
        return self._counts[0]

    @property
    def size_bytes(self) -> int:
        """How much came, after decompression."""
        return self._counts[-1]

    @property
    def is_packed(self) -> bool:
        """Whether there is anything to decompress."""
        return bool(self._decoders)

    async def feed(self, chunk: bytes) -> None:
        """Take the next bytes. A checkpoint if much is decompressed; cancelling leaves what came until then.

        Raises:
            BodyTooLarge: It passes the limit; what came up to the limit is kept.
            ResponseBroken: A coding can't be undone.
        """
        for piece in self.passed(chunk):
            self.keep(piece)  # one by one: what came before an error stays
            await self.give_way(piece)

    def passed(self, chunk: bytes) -> Iterator[bytes]:
        """What the next bytes come to, for one who keeps or writes each piece, and gives way, before asking for more.

        A piece may be empty. Raises what :meth:`feed` does; what came up to the limit is given before.
        """
        return self._through(chunk, 0)

    async def give_way(self, piece: bytes) -> None:
        """Let others run when enough was done since the last time. A checkpoint then.

        Args:
            piece: What :meth:`passed` has just given.
        """
        if not self._decoders:
            return
        self._work += len(piece) + STEP_BYTES
        if self._work >= TURN_BYTES:
            self._work = 0
            await trio.lowlevel.checkpoint()

    def keep(self, piece: bytes) -> None:
        """Keep a piece of the body."""
        self._kept.write(piece)

    def take(self) -> bytes:
        """What has been kept, and is kept no more."""
        kept, self._kept = self._kept, io.BytesIO()
        return kept.getvalue()

    def finish(self) -> bytes:
        """The body, or what is kept of it, with every coding undone as far as it came."""
        return self._kept.getvalue()

    def loss(self) -> DownloadError | None:
        """What is missing: an error if a coding's data ended before its own end."""
        for coding, decoder in zip(self._codings, self._decoders, strict=True):
            if self._counts[0] and not decoder.is_complete:
                return ResponseBroken(f"its {coding} data ends early")
        return None

    def _through(self, chunk: bytes, step: int) -> Iterator[bytes]:
        """What is left of ``chunk`` behind the codings from ``step`` on; at least one piece."""
        if not chunk:
            yield chunk
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
            for start in range(0, len(chunk), INPUT_BYTES):
                for piece in self._decoders[step].feed(chunk[start : start + INPUT_BYTES]):
                    yield from self._through(piece, step + 1)
                yield b""
        except DownloadError:
            raise
        except Exception as error:  # the three packages' errors have no common base
            raise ResponseBroken(f"its {self._codings[step]} data is broken: {error}") from error
