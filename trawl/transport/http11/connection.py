"""One connection and its responses, one after another.

From what a server sends to a whole response within its limits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio

from trawl.errors import BodyTooLarge, DownloadError, ResponseBroken
from trawl.http import Outcome, Request, Response
from trawl.transport.body import Body, ResponseLimits, SinkWriter, sink_for
from trawl.transport.errors import words_of
from trawl.transport.http11.network_stream import NetworkStream, RequestDeadline
from trawl.transport.http11.parser import ResponseParser, ServerDisconnectedError
from trawl.transport.http11.pool import Origin

__all__ = ["Connect", "Connection", "read_response"]

Connect = Callable[[Origin], Awaitable[NetworkStream]]
"""Opens a connection. Raises ``ConnectFailed``; when it is cancelled, it closes what it opened."""

EXPECT_WAIT = 1.0
"""Seconds that a request with ``Expect: 100-continue`` waits for the server's word before it sends its body."""


class Connection:
    """A wire with its parser. Hot: mutable.

    Attributes:
        wire: The bytes to and from the server.
        parser: Reads the present response.
        requests: Requests sent so far, the present one included.
        idle_since: When it was put back last; run clock.
        broken: What the system said when it took no more of the request. The server may have answered all the same: one
            that refuses a body answers and closes while it is still sent.
    """

    __slots__ = ("broken", "idle_since", "parser", "requests", "wire")

    def __init__(self, wire: NetworkStream, parser: ResponseParser | None = None) -> None:
        self.wire: NetworkStream = wire
        self.parser: ResponseParser = parser or ResponseParser()
        self.requests: int = 0
        self.idle_since: float = 0.0
        self.broken: OSError | None = None

    def ask_nowait(self, data: bytes, *, is_head: bool = False) -> int:
        """Send the beginning of a request; return how much of ``data`` went. What came so far is forgotten."""
        self.requests += 1
        self.parser.begin(is_head=is_head)
        try:
            return self.wire.send_nowait(data)
        except OSError as error:
            self.broken = error
            return len(data)

    async def send(self, data: bytes) -> None:
        """Send more of a request. Not always a checkpoint."""
        try:
            await self.wire.send(data)
        except OSError as error:
            self.broken = error

    async def receive(self, deadline: RequestDeadline | None = None) -> None:
        """Wait for the next bytes of the response and parse them. Always a checkpoint.

        Args:
            deadline: Started before anything is waited for.

        Raises:
            ResponseBroken: They are no response, or it ended early.
            ServerDisconnectedError: The connection broke or ended before the first byte of the response.
            OSError: The connection broke.
        """
        wire, parser = self.wire, self.parser
        try:
            data = await wire.receive_soon()
            if data is None:
                if deadline is not None:
                    deadline.start()
                data = await wire.receive()
        except OSError as error:
            if parser.has_started:
                raise
            raise ServerDisconnectedError(f"the connection broke: {words_of(self.broken or error)}") from error
        if data:
            parser.feed(data)
        else:
            parser.end()

    async def receive_word(self) -> None:
        """Wait, not for long, until the server asks for the body or answers without it (RFC 9110, 10.1.1).

        Raises what :meth:`receive` does.
        """
        parser = self.parser
        with trio.move_on_after(EXPECT_WAIT):
            while not (parser.has_head or parser.is_invited):
                await self.receive()

    @property
    def is_reusable(self) -> bool:
        """Whether the next request may go out on it: the response is whole, and nothing else came."""
        parser = self.parser
        return parser.is_complete and parser.is_keepable and not parser.has_extra_data and self.broken is None

    def close(self) -> None:
        """Close it at once. Safe to call twice."""
        self.wire.close()
        self.parser.close()


_BODILESS = frozenset({204, 304})  # RFC 9112, 6.3, rule 1


async def read_response(
    connection: Connection, outcome: Outcome, limits: ResponseLimits, deadline: RequestDeadline
) -> Response:
    """Read the response to the request just sent, and note when its headers came. Cancelling loses it.

    Raises:
        DownloadError: It is broken, or larger than it may be.
        ServerDisconnectedError: The server closed the connection instead.
        OSError: The connection broke.
    """
    parser = connection.parser
    broken = await _read_head(connection, deadline)
    outcome.first_byte_at = trio.current_time()
    if broken is not None and limits.is_strict:
        raise broken
    flags: Sequence[str] = ()
    make: Callable[..., Response] = Response
    whole = b"".join(parser.take()) if parser.is_complete else b""
    if not parser.is_complete or parser.has_extra_data or len(whole) > limits.plain_bytes or _is_coded(parser, limits):
        sink = sink_for(outcome.request, parser.status)
        if sink is None:
            whole, flags = await _read_body(connection, whole, outcome.request, limits, deadline, broken)
        else:
            async with SinkWriter(sink) as writer:
                whole, flags = await _read_body(connection, whole, outcome.request, limits, deadline, broken, writer)
                deadline.writing()
                make = await writer.end(whole)
    return make(
        outcome.request.url,
        parser.status,
        parser.headers,
        whole,
        outcome.request,
        flags,
        outcome.first_byte_at - outcome.started_at,
        ip_address=connection.wire.peer,
        protocol="HTTP/" + parser.version,
    )


def _is_coded(parser: ResponseParser, limits: ResponseLimits) -> bool:
    return limits.decodes and "content-encoding" in parser.headers


async def _read_body(
    connection: Connection,
    begun: bytes,
    request: Request,
    limits: ResponseLimits,
    deadline: RequestDeadline,
    broken: DownloadError | None,
    writer: SinkWriter | None = None,
) -> tuple[bytes, Sequence[str]]:
    """Read a body that is not simply there, or that has to be looked at; return it with the response's flags.

    With ``writer`` only what has not gone there is returned.
    """
    parser = connection.parser
    length = parser.length if request.method != "HEAD" and parser.status not in _BODILESS else None
    body = limits.body(parser.headers.getlist("content-encoding"), length)
    loss: DownloadError | None
    try:
        for piece in (begun, *parser.take()):
            await _take(body, piece, deadline, writer)
        loss = None if parser.is_complete else await _read_rest(connection, body, limits, deadline, broken, writer)
    except BodyTooLarge as error:
        if not limits.truncates:
            raise
        loss = error
    if loss is None and parser.has_extra_data and length is not None:
        loss = ResponseBroken(f"more came than its Content-Length of {length} bytes")
    return limits.finish(body, loss, request)


async def _read_head(connection: Connection, deadline: RequestDeadline) -> DownloadError | None:
    """Read the headers; return what is wrong with as much of the body as came in the same read."""
    parser = connection.parser
    try:
        if not parser.has_head:
            await connection.receive(deadline)
        while not parser.has_head:
            deadline.reading(trio.current_time())
            await connection.receive(deadline)
    except ResponseBroken as error:
        if not parser.has_head:
            raise
        return error
    return None


async def _read_rest(
    connection: Connection,
    body: Body,
    limits: ResponseLimits,
    deadline: RequestDeadline,
    broken: DownloadError | None,
    writer: SinkWriter | None,
) -> DownloadError | None:
    """Read the body to its end; return what is wrong with its end, if that is allowed."""
    parser = connection.parser
    while broken is None and not parser.is_complete:
        deadline.reading(trio.current_time())
        try:
            await connection.receive(deadline)
        except (ResponseBroken, OSError) as error:
            if limits.is_strict:
                raise
            broken = error if isinstance(error, DownloadError) else ResponseBroken(str(error))
        for piece in parser.take():
            await _take(body, piece, deadline, writer)
    return broken


async def _take(body: Body, piece: bytes, deadline: RequestDeadline, writer: SinkWriter | None) -> None:
    """Take a piece of a body. Writing it down, or decompressing it, is not the server's time, but has an end too."""
    if writer is not None or body.is_compressed:
        deadline.writing()
        deadline.start()
    await (body.feed(piece) if writer is None else writer.feed(body, piece))
