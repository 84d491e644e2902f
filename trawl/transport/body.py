"""Response bodies as they come: decompressed, counted, and written to a sink if they are large.

Theory of operation. :class:`Body` passes the bytes through the content codings, the last applied first, and counts them
before the first coding and after each one. The first count above the limit ends the body, however much the rest of the
input would have become, so a decompression bomb stops at the limit. :meth:`Body.give_way` lets other tasks run and time
limits pass after a bounded amount of work.

A body for a sink begins in memory like any other. Whenever ``MEMORY_BYTES`` of it are there, decompressed,
:class:`SinkWriter` writes them together, so a small body costs neither a file nor a thread, and a large one is never in
memory for more than that and one piece of its decoder. Nothing is read from the connection during a write. If anything,
a cancellation included, ends the reading early, the sink discards what it has.
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
"""Bytes decompressed between two checkpoints; more only if one step of zstandard makes more."""

STEP_BYTES = 4_096
"""The work that one step counts for besides its output."""

MAX_CODINGS = 5
"""Codings on top of one another that are undone; no honest server uses more than two."""

MEMORY_BYTES = 262_144
"""Bytes of a body for a sink that are held in memory and written at once: a thread for each small piece is slow."""

DISCARD_GRACE = 5.0
"""Seconds that removing a body may take after it was cut off; one that is left is removed by the sink's owner."""


class Body:
    """A body that is read piece by piece and given whole, or in parts.

    Args:
        codings: The codings applied to it, in that order. From the last backwards, the first that is not known ends
            the decoding: the body then comes as it was under that one.
        max_bytes: The largest size, as sent and after each coding; 0 means no limit.

    Raises:
        ResponseBroken: More than ``MAX_CODINGS`` codings.
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
        self._kept = io.BytesIO()  # it grows in place, and gives what it holds without a copy: a join takes a second
        self._work = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of the body so far, after decompression."""
        return self._counts[-1]

    @property
    def is_compressed(self) -> bool:
        """True if there is a coding to undo."""
        return bool(self._decoders)

    async def feed(self, chunk: bytes) -> None:
        """Take the next bytes. A checkpoint if much is decompressed; cancelling leaves what came until then.

        Raises:
            BodyTooLarge: The body exceeds its limit; what came up to the limit is kept.
            ResponseBroken: A coding can't be undone.
        """
        for piece in self.decoded(chunk):
            self.keep(piece)  # one by one: what came before an error stays
            await self.give_way(piece)

    def decoded(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the decoded pieces of the next bytes, some of them empty.

        The caller keeps or writes each piece, and calls :meth:`give_way`, before it asks for the next. Raises the
        errors of :meth:`feed`; what came up to the limit is yielded before.
        """
        return self._through(chunk, 0)

    async def give_way(self, piece: bytes) -> None:
        """Let other tasks run if enough was done since the last time. A checkpoint then.

        Args:
            piece: The piece that :meth:`decoded` has just given.
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
        """Return what has been kept and begin anew."""
        kept, self._kept = self._kept, io.BytesIO()
        return kept.getvalue()

    def finish(self) -> bytes:
        """Return the body, or what is kept of it, decoded as far as it came."""
        return self._kept.getvalue()

    def loss(self) -> DownloadError | None:
        """Return an error if a coding's data ended before its own end, else None."""
        for coding, decoder in zip(self._codings, self._decoders, strict=True):
            if self._counts[0] and not decoder.is_complete:
                return ResponseBroken(f"its {coding} data ends early")
        return None

    def _through(self, chunk: bytes, step: int) -> Iterator[bytes]:
        """Yield what is left of ``chunk`` after the codings from ``step`` on; at least one piece."""
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
                # Input that decodes to nothing is work too: the caller gives way here.
                yield b""
        except DownloadError:
            raise
        except Exception as error:  # the three packages' errors have no common base
            raise ResponseBroken(f"its {self._codings[step]} data is broken: {error}") from error


@attrs.frozen
class ResponseLimits:
    """The limits of a response's body.

    Attributes:
        max_bytes: The largest body, as sent and once decompressed; 0 means no limit.
        warn_bytes: A larger body is logged; 0 means none is.
        is_strict: A body that ended early is an error.
        decodes: Compressed bodies are decompressed.
        truncates: A body that is too large is cut at ``max_bytes``; it is not an error.
    """

    max_bytes: int
    warn_bytes: int
    is_strict: bool
    decodes: bool
    truncates: bool = False

    plain_bytes: int = attrs.field(init=False)
    """The size up to which nothing about a body needs to be checked."""

    @plain_bytes.default
    def _plain_bytes(self) -> int:
        return min(self.max_bytes or sys.maxsize, self.warn_bytes or sys.maxsize)

    @classmethod
    def of(cls, settings: TransportSettings) -> ResponseLimits:
        """Return the limits of requests that set none themselves."""
        return cls(
            settings.download_maxsize,
            settings.download_warnsize,
            settings.download_fail_on_dataloss,
            settings.compression_enabled,
        )

    def for_request(self, request: Request) -> ResponseLimits:
        """Return these limits with those that ``request.meta`` sets."""
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
        """Return the object that the body is read into.

        Args:
            codings: Its ``Content-Encoding`` fields.
            length: Its ``Content-Length``, if it has one.

        Raises:
            BodyTooLarge: The length exceeds the limit.
            ResponseBroken: More than ``MAX_CODINGS`` codings.
        """
        if length is not None and 0 < self.max_bytes < length and not self.truncates:
            raise BodyTooLarge(f"its body of {length} bytes passes {self.max_bytes}")
        return Body(codings_of(codings) if self.decodes and codings else (), self.max_bytes)

    def finish(
        self, body: Body, loss: DownloadError | None, request: Request, *, is_cut: bool = False
    ) -> tuple[bytes, Sequence[str]]:
        """Return what is kept of a body that has been read, and the response's flags. A large body is logged.

        Args:
            body: The body.
            loss: The error at its end; None if there was none.
            request: The request that it answers.
            is_cut: It ends with a connection over TLS that was closed without ``close_notify``, so that nobody knows
                whether it is whole. It has the flag of one that is not (RFC 9112, 9.8), but is no error: many servers
                close so.

        Raises:
            DownloadError: The loss, or that of a coding that did not come to its end, unless the limits allow it.
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
    """Return the sink for a large body of a response with ``status``; None: it stays in memory."""
    return request.sink if 200 <= status < 300 else None


class SinkWriter:
    """Writes one body to a sink if it is large. Enter it around the whole of the reading.

    Attributes:
        has_begun: The body is large: the sink has its beginning.
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
                except Exception:  # the error that ended the reading is the one to report
                    logger.exception("a body that was cut off could not be removed")

    async def feed(self, body: Body, chunk: bytes) -> None:
        """Take the next bytes from the connection. A checkpoint if anything is written, or much is decompressed.

        Raises:
            BodyTooLarge: The body exceeds its limit; what came up to it is kept.
            ResponseBroken: A coding can't be undone.
            BodyNotWritten: The sink can't take it.
        """
        for piece in body.decoded(chunk):
            body.keep(piece)
            self._held_bytes += len(piece)
            if self._held_bytes >= self._memory_bytes:
                self._held_bytes = 0
                await self._write(body.take())
            await body.give_way(piece)

    async def end(self, rest: bytes) -> Callable[..., Response]:
        """Write ``rest``, the end of the body. A checkpoint if anything is written.

        Returns:
            The class, or a function like it, that makes the response.

        Raises:
            BodyNotWritten: The sink can't take it.
        """
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
    """Return ``response``, whose body is in memory, as if the body had come over a connection. A checkpoint if large.

    Raises:
        BodyNotWritten: The sink can't take it.
    """
    body = Body((), 0)
    async with SinkWriter(sink) as writer:
        await writer.feed(body, response.body)
        make = await writer.end(body.finish())
    if make is Response:
        return response
    return make(
        response.url,
        response.status,
        response.headers,
        request=response.request,
        flags=response.flags,
        latency=response.latency,
        ip_address=response.ip_address,
        protocol=response.protocol,
    )
