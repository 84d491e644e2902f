"""From what a server sends to a whole response within its limits."""

from __future__ import annotations

import logging
from typing import Any

import attrs
import trio

from trawl.errors import BodyTooLarge, DownloadError, ResponseBroken
from trawl.http import Headers, Outcome, Request, Response
from trawl.transport.decoding import Body, codings_of
from trawl.transport.http11.connection import Connection
from trawl.transport.http11.watch import Watch
from trawl.transport.settings import TransportSettings

__all__ = ["Limits", "read_response"]

logger = logging.getLogger("trawl.transport")


@attrs.frozen
class Limits:
    """What a response may be.

    Attributes:
        max_bytes: The largest body, as sent and once decompressed; 0 means no limit.
        warn_bytes: A larger one is logged; 0 means none is.
        is_strict: Whether a body that ended early is an error.
        decodes: Whether compressed bodies are decompressed.
    """

    max_bytes: int
    warn_bytes: int
    is_strict: bool
    decodes: bool

    @classmethod
    def of(cls, settings: TransportSettings) -> Limits:
        """The limits of requests that say nothing."""
        return cls(
            settings.download_maxsize,
            settings.download_warnsize,
            settings.download_fail_on_dataloss,
            settings.compression_enabled,
        )

    def for_request(self, request: Request) -> Limits:
        """These limits, with what ``request.meta`` says of them."""
        get = request.meta_get
        most, warn, strict = get("download_maxsize"), get("download_warnsize"), get("download_fail_on_dataloss")
        if most is None and warn is None and strict is None:
            return self
        return Limits(
            int(_first(most, self.max_bytes)),
            int(_first(warn, self.warn_bytes)),
            bool(_first(strict, self.is_strict)),
            self.decodes,
        )


def _first(value: Any, default: Any) -> Any:
    return default if value is None else value


async def read_response(connection: Connection, outcome: Outcome, limits: Limits, watch: Watch) -> Response:
    """Read the response to the request just sent, and note when its headers came. Cancelling loses it.

    Raises:
        DownloadError: It is broken, or larger than it may be.
        ServerLeftError: The server closed the connection instead.
        OSError: The connection broke.
    """
    parser = connection.parser
    broken = await _read_head(connection, watch)
    outcome.first_byte_at = trio.current_time()
    if broken is not None and limits.is_strict:
        raise broken
    headers = Headers.from_wire(parser.fields)
    length = parser.length
    has_body = outcome.request.method != "HEAD" and parser.status not in {204, 304}
    if has_body and length is not None and 0 < limits.max_bytes < length:
        raise BodyTooLarge(f"its body of {length} bytes passes {limits.max_bytes}")
    coding = headers.get("content-encoding") if limits.decodes else None
    body = Body(codings_of([coding]) if coding else (), limits.max_bytes)
    loss = await _read_body(connection, body, limits, watch, broken)
    if loss is None and parser.has_excess and has_body and length is not None:
        loss = ResponseBroken(f"more came than its Content-Length of {length} bytes")
    loss = loss or body.loss()
    if loss is not None and limits.is_strict:
        raise loss
    whole = body.finish()
    request = outcome.request
    if 0 < limits.warn_bytes < len(whole):
        logger.warning("%r: its body has %d bytes (DOWNLOAD_WARNSIZE is %d)", request, len(whole), limits.warn_bytes)
    return Response(
        request.url,
        parser.status,
        headers,
        whole,
        request,
        () if loss is None else ("dataloss",),
        outcome.latency,
        ip_address=connection.wire.peer,
        protocol="HTTP/" + parser.version,
    )


async def _read_head(connection: Connection, watch: Watch) -> DownloadError | None:
    """Read the headers; return what is wrong with as much of the body as came in the same read."""
    parser = connection.parser
    try:
        if not parser.has_head:
            await connection.receive()
        while not parser.has_head:
            watch.reading(trio.current_time())
            await connection.receive()
    except ResponseBroken as error:
        if not parser.has_head:
            raise
        return error
    return None


async def _read_body(
    connection: Connection, body: Body, limits: Limits, watch: Watch, broken: DownloadError | None
) -> DownloadError | None:
    """Read the body to its end; return what is wrong with its end, if that is allowed."""
    parser = connection.parser
    while True:
        for piece in parser.take():
            body.feed(piece)
        if parser.is_complete:
            return None
        if broken is not None:
            return broken
        watch.reading(trio.current_time())
        try:
            await connection.receive()
        except (ResponseBroken, OSError) as error:
            if limits.is_strict:
                raise
            broken = error if isinstance(error, DownloadError) else ResponseBroken(str(error))
