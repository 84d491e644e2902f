"""A large body on its way to its request's sink, as one transport after another reads it.

Theory of operation: the body begins in memory like any other. When ``MEMORY_BYTES`` of it are there, decompressed, they
go to the sink together, and so on until its end; so a small body costs neither a file nor a thread, and a large one is
never in memory for more than that and one piece of its decoder. Nothing is read from the connection meanwhile: the
reader itself waits for the write. If anything ends the reading before the body is whole, a cancellation included, what
the sink has is discarded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Self

import trio

from trawl.http import BodySink, FileResponse, Request, Response
from trawl.transport.decoding import Body

__all__ = ["MEMORY_BYTES", "SinkWriter", "sink_for", "write_to_sink"]

logger: logging.Logger = logging.getLogger("trawl.transport")

MEMORY_BYTES = 262_144
"""So much of a body is held in memory, and so much is written at once: a thread is not asked for each small piece."""

DISCARD_GRACE = 5.0
"""Seconds that removing a body that was cut off may take; one that is left is removed by whoever made the sink."""


def sink_for(request: Request, status: int) -> BodySink | None:
    """Where the body of a response with ``status`` goes if it is large; None: it stays in memory."""
    return request.sink if 200 <= status < 300 else None


class SinkWriter:
    """Takes one body to a sink, if it is large. To be entered around the whole of the reading."""

    __slots__ = ("_has_begun", "_held_bytes", "_sink")

    def __init__(self, sink: BodySink) -> None:
        """A body that ``sink`` takes."""
        self._sink = sink
        self._held_bytes = 0
        self._has_begun = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self._has_begun:
            with trio.move_on_after(DISCARD_GRACE, shield=True):
                try:
                    await self._sink.discard()
                except Exception:  # what has ended the reading is what is to be told
                    logger.exception("a body that was cut off could not be removed")

    async def feed(self, body: Body, chunk: bytes) -> None:
        """Take the next bytes from the wire. A checkpoint if anything is written, or much is decompressed.

        Raises:
            BodyTooLarge: The body passes its limit; what came up to it is kept.
            ResponseBroken: A coding can't be undone.
            BodyNotWritten: The sink can't take it.
        """
        for piece in body.passed(chunk):
            body.keep(piece)
            self._held_bytes += len(piece)
            if self._held_bytes >= MEMORY_BYTES:
                self._held_bytes = 0
                await self._write([body.take()])
            await body.give_way(piece)

    async def end(self, rest: bytes) -> Callable[..., Response]:
        """What makes the response, ``rest`` being what is kept of its body. A checkpoint if anything is written.

        Raises:
            BodyNotWritten: The sink can't take it.
        """
        if not self._has_begun:
            return Response
        if rest:
            await self._write([rest])
        return partial(FileResponse, sink=self._sink)

    async def _write(self, pieces: list[bytes]) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._sink.begin()
        await self._sink.write(pieces)


async def write_to_sink(response: Response, sink: BodySink) -> Response:
    """A response as it would be had its body, which is in memory, come over a wire. A checkpoint if it is large.

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
