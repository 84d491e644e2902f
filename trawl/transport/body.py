"""Response bodies during reading: decompressed, counted, and written to a sink if they are large.

:class:`Body` counts the bytes before the first decoder and after each decoder, and ends the body when a count exceeds
the limit. So a decompression bomb stops at the limit, however large its output would become. :meth:`Body.give_way`
executes a checkpoint after a bounded amount of work, so that other tasks run and timeouts take effect.

A body for a sink starts in memory, so a small body needs neither a file nor a thread. Whenever ``MEMORY_BYTES`` have
been decompressed, :class:`SinkWriter` writes them together. Nothing is read from the connection during a write. If
reading ends early, for example because it was cancelled, the sink discards the body.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Self

import attrs
import trio

from trawl.errors import BodyTooLarge, DownloadError, ResponseBroken
from trawl.http import BodySink, FileResponse, Request, Response
from trawl.transport.content_encoding import INPUT_BYTES, Decoder, codings_of, decoders
from trawl.transport.settings import TransportSettings

__all__ = [
    "MEMORY_BYTES",
    "Body",
    "ResponseLimits",
    "SinkWriter",
    "sink_for",
    "write_to_sink",
]

logger: logging.Logger = logging.getLogger("trawl.transport")

TURN_BYTES = 262_144
"""Number of decompressed bytes between two checkpoints. One step of zstandard may produce more."""

STEP_BYTES = 4_096
"""Bytes that count as the work of each step in addition to its output, because an empty step takes time too."""

MAX_CODINGS = 5
"""Maximum number of codings of a body that are decoded. No honest server uses more than two."""

MEMORY_BYTES = 262_144
"""Bytes that are written to a sink together, because using a thread for each small chunk would be slow."""

DISCARD_GRACE = 5.0
"""Maximum seconds for removing an incomplete body. After that, the owner of the sink removes it."""


class Body:
    """A body that is read in chunks and returned whole or in parts.

    ``codings`` are in the order in which they were applied. Decoding stops before the first unknown coding.
    ``max_bytes`` limits the size as sent and after each decoder; 0 sets no limit.
    """

    def __init__(self, codings: Sequence[str], max_bytes: int) -> None:
        if len(codings) > MAX_CODINGS:
            raise ResponseBroken(f"its body is compressed {len(codings)} times")
        known = decoders() if codings else {}
        self._codings: list[str] = []
        self._decoders: list[Decoder] = []
        for coding in reversed(codings):
            if coding not in known:
                break
            self._codings.append(coding)
            self._decoders.append(known[coding]())
        self._max_bytes = max_bytes
        self._counts = [0] * (len(self._decoders) + 1)
        self._kept = io.BytesIO()  # grows in place and returns its bytes without a copy; joining chunks would copy them
        self._work = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of the body so far, after decompression."""
        return self._counts[-1]

    @property
    def is_compressed(self) -> bool:
        """True if there is a coding to decode."""
        return bool(self._decoders)

    async def feed(self, chunk: bytes) -> None:
        """Add the next bytes. A checkpoint if much is decompressed. After a cancellation, the decoded bytes are kept.

        Raises:
            BodyTooLarge: If the body exceeds its limit. The bytes up to the limit are kept.
            ResponseBroken: If a coding can't be decoded.
        """
        for piece in self.decoded(chunk):
            self.keep(piece)  # keep each piece immediately, so that an error in a later piece does not lose it
            await self.give_way(piece)

    def decoded(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the decoded chunks of the next bytes, some of them empty. Raises the same errors as :meth:`feed`.

        The caller must keep or write each chunk, and call :meth:`give_way` before it requests the next chunk.
        """
        return self._through(chunk, 0)

    async def give_way(self, piece: bytes) -> None:
        """Execute a checkpoint after enough work. ``piece`` is the last chunk of :meth:`decoded`."""
        if not self._decoders:
            return
        self._work += len(piece) + STEP_BYTES
        if self._work >= TURN_BYTES:
            self._work = 0
            await trio.lowlevel.checkpoint()

    def keep(self, piece: bytes) -> None:
        """Append a chunk to the kept part of the body."""
        self._kept.write(piece)

    def take(self) -> bytes:
        """Return the kept part of the body, and remove it from this object."""
        kept, self._kept = self._kept, io.BytesIO()
        return kept.getvalue()

    def finish(self) -> bytes:
        """Return the kept part of the body, decoded as far as it was received."""
        return self._kept.getvalue()

    def loss(self) -> DownloadError | None:
        """Return an error if the data of a coding ended early; None otherwise."""
        for coding, decoder in zip(self._codings, self._decoders, strict=True):
            if self._counts[0] and not decoder.is_complete:
                return ResponseBroken(f"its {coding} data ends early")
        return None

    def _through(self, chunk: bytes, step: int) -> Iterator[bytes]:
        """Decode ``chunk`` with the decoder ``step`` and all later decoders. Yields at least one chunk."""
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
                # Decoding takes time even if the output is empty, so yield here to let the caller give way.
                yield b""
        except DownloadError:
            raise
        except Exception as error:  # the decoders' packages have no common class of errors
            raise ResponseBroken(f"its {self._codings[step]} data is broken: {error}") from error


@attrs.frozen
class ResponseLimits:
    """The limits of a response's body in bytes, as sent and after decompression; 0 sets no limit.

    A body above ``warn_bytes`` is logged. With ``is_strict``, a body that ended early is an error. With ``truncates``,
    a body that is too large is cut instead of being an error.
    """

    max_bytes: int
    warn_bytes: int
    is_strict: bool
    decodes: bool
    truncates: bool = False

    plain_bytes: int = attrs.field(init=False)
    """Maximum size in bytes of a body that needs no checks."""

    @plain_bytes.default
    def _plain_bytes(self) -> int:
        return min(self.max_bytes or sys.maxsize, self.warn_bytes or sys.maxsize)

    @classmethod
    def of(cls, settings: TransportSettings) -> ResponseLimits:
        """Return the limits of requests that set no limits in their meta."""
        return cls(
            settings.download_maxsize,
            settings.download_warnsize,
            settings.download_fail_on_dataloss,
            settings.compression_enabled,
        )

    def for_request(self, request: Request) -> ResponseLimits:
        """Return these limits, overridden by the limits in ``request.meta``."""
        if not request.has_meta:
            return self
        get = request.meta_get
        largest, warn, strict = get("download_maxsize"), get("download_warnsize"), get("download_fail_on_dataloss")
        truncates = bool(get("download_truncate"))
        if largest is None and warn is None and strict is None and not truncates:
            return self
        return ResponseLimits(
            self.max_bytes if largest is None else int(largest),
            self.warn_bytes if warn is None else int(warn),
            self.is_strict if strict is None else bool(strict),
            self.decodes,
            truncates,
        )

    def body(self, codings: Sequence[str], length: int | None) -> Body:
        """Return the object for reading a body. ``length`` is the ``Content-Length``, if there is one.

        Raises:
            BodyTooLarge: If the length exceeds the limit.
            ResponseBroken: If there are more than ``MAX_CODINGS`` codings.
        """
        if length is not None and 0 < self.max_bytes < length and not self.truncates:
            raise BodyTooLarge(f"its body of {length} bytes passes {self.max_bytes}")
        return Body(codings_of(codings) if self.decodes and codings else (), self.max_bytes)

    def finish(
        self, body: Body, loss: DownloadError | None, request: Request, *, is_cut: bool = False
    ) -> tuple[bytes, Sequence[str]]:
        """Return the kept part of a body after reading, and the response's flags. Logs a large body.

        ``loss`` is the error at the end of the body. It is raised, like coded data that ended early, if the limits
        allow no incomplete body. If the server closed the TLS connection without ``close_notify`` (``is_cut``), the
        body may be incomplete. Then the response gets a flag (RFC 9112, 9.8), but no error, because many servers close
        connections like this.
        """
        if self.truncates and isinstance(loss, BodyTooLarge):
            return body.finish(), ("truncated",)
        loss = loss or body.loss()
        if loss is not None and self.is_strict:
            raise loss
        size = body.size_bytes
        if 0 < self.warn_bytes < size:
            logger.warning("%r: its body has %d bytes (DOWNLOAD_WARNSIZE is %d)", request, size, self.warn_bytes)
        return body.finish(), ("dataloss",) if loss is not None or is_cut else ()


def sink_for(request: Request, status: int) -> BodySink | None:
    """Return the sink for a large body of a response with ``status``; None if the body stays in memory."""
    return request.sink if 200 <= status < 300 else None


class SinkWriter:
    """Writes one body to a sink if the body is large. Enter it before reading, and exit it after the end of the body.

    ``has_begun`` is True after the start of a large body was written.
    """

    __slots__ = ("_held_bytes", "_memory_bytes", "_sink", "has_begun")

    def __init__(self, sink: BodySink) -> None:
        """Write to ``sink``."""
        self._sink = sink
        self._memory_bytes: int = getattr(sink, "memory_bytes", MEMORY_BYTES)
        self._held_bytes = 0
        self.has_begun: bool = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self.has_begun:
            with trio.move_on_after(DISCARD_GRACE, shield=True):
                try:
                    await self._sink.discard()
                except Exception:  # report the error that ended the reading instead
                    logger.exception("a body that was cut off could not be removed")

    async def feed(self, body: Body, chunk: bytes) -> None:
        """Add the next bytes from the connection. A checkpoint if anything is written or much is decompressed.

        Raises BodyNotWritten if the sink can't store the body, and the errors of :meth:`Body.feed`.
        """
        for piece in body.decoded(chunk):
            body.keep(piece)
            self._held_bytes += len(piece)
            if self._held_bytes >= self._memory_bytes:
                self._held_bytes = 0
                await self._write(body.take())
            await body.give_way(piece)

    async def end(self, rest: bytes) -> Callable[..., Response]:
        """Write the end of the body, and return the function that creates the response. A checkpoint if it writes."""
        if not self.has_begun:
            return Response
        if rest:
            await self._write(rest)
        return partial(FileResponse, sink=self._sink)

    async def _write(self, piece: bytes) -> None:
        if not self.has_begun:
            self.has_begun = True
            self._sink.begin()
        await self._sink.write([piece])


async def write_to_sink(response: Response, sink: BodySink) -> Response:
    """Write the body of ``response`` to a sink if it is large, and return the new response. A checkpoint if large."""
    body = Body((), 0)
    async with SinkWriter(sink) as writer:
        await writer.feed(body, response.body)
        await writer.end(body.finish())
    return response.replace(cls=FileResponse, body=b"", sink=sink) if writer.has_begun else response
