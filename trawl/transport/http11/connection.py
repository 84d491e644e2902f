"""Connections, the timeouts of requests, and reading responses.

A request has one timeout for the whole request and one for each phase (connecting, sending, reading). A cancel scope
for each would cost more than reading a small page, so :class:`RequestDeadline` moves the deadline of one scope to the
earlier of the two. The scope is entered at the first wait, because a request without a wait needs no timeout.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from math import inf
from types import TracebackType
from typing import Self

import trio

from trawl.errors import (
    BodyTooLarge,
    ConnectTimeout,
    DownloadError,
    DownloadTimeout,
    ReadTimeout,
    ResponseBroken,
)
from trawl.http import Outcome, Request, Response, without_fragment
from trawl.transport.base import words_of
from trawl.transport.body import Body, ResponseLimits, SinkWriter, sink_for
from trawl.transport.http11.network_stream import NetworkStream
from trawl.transport.http11.parser import ConnectionClosedError, ResponseParser, end_of_head
from trawl.transport.http11.pool import Origin
from trawl.transport.settings import TransportSettings

__all__ = ["Connect", "Connection", "RequestDeadline", "read_response"]

Connect = Callable[[Origin], Awaitable[NetworkStream]]
"""Opens a connection. Raises ``ConnectFailed``. Cancelling closes all opened sockets."""

CONNECTING, SENDING, READING = range(3)

EXPECT_WAIT = 1.0
"""Seconds that a request with ``Expect: 100-continue`` waits for the server before it sends its body."""


class RequestDeadline:
    """The timeouts of one request. Enter it once, around the whole request. Mutable, for speed."""

    __slots__ = ("_connect", "_deadline", "_ends_at", "_limit", "_phase", "_read", "_scope")

    def __init__(self, now: float, limit: float, settings: TransportSettings) -> None:
        self._limit = limit
        self._connect = settings.download_connect_timeout
        self._read = settings.download_read_timeout
        self._ends_at = now + limit
        self._phase = SENDING
        self._deadline = now + self._read
        self._scope: trio.CancelScope | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self._scope is not None and bool(self._scope.__exit__(kind, error, trace))

    def start(self) -> None:
        """Enforce the timeouts from now on, because the request is about to wait.

        Cancel scopes must be exited in reverse order, so don't call this inside a scope or nursery of the request.
        """
        if self._scope is None:
            self._scope = trio.CancelScope(deadline=min(self._ends_at, self._deadline))
            self._scope.__enter__()

    @property
    def has_passed(self) -> bool:
        """True if a timeout has passed and ended the request. :meth:`error` returns an error that names the timeout."""
        return self._scope is not None and self._scope.cancelled_caught

    def connecting(self, now: float) -> None:
        """Start the timeout for connecting at ``now``."""
        self._phase = CONNECTING
        self._move(now + self._connect)

    def sending(self, now: float) -> None:
        """Start the timeout for sending at ``now``. It limits the time in which the server accepts no bytes."""
        self._phase = SENDING
        self._move(now + self._read)

    def reading(self, now: float) -> None:
        """Start the timeout for reading at ``now``. It limits the time in which the server sends no bytes."""
        self._phase = READING
        self._move(now + self._read)

    def writing(self) -> None:
        """Enforce only the timeout of the whole request, because the server can't speed up the storing of bytes."""
        self._move(inf)

    def still_reading(self) -> None:
        """Change the phase, which the error names, to reading. If little was sent, the deadline would hardly change."""
        self._phase = READING

    def put_off(self, seconds: float) -> None:
        """Extend all timeouts, because the request is about to wait for its turn to be sent."""
        self._ends_at += seconds
        self._move(self._deadline + seconds)

    def _move(self, deadline: float) -> None:
        self._deadline = deadline
        if self._scope is not None:
            self._scope.deadline = min(self._ends_at, deadline)

    def error(self) -> DownloadError:
        """Return the error for the timeout that has passed."""
        if self._deadline >= self._ends_at:
            return DownloadTimeout(f"not done within {self._limit:g} s")
        if self._phase == CONNECTING:
            return ConnectTimeout(f"no connection within {self._connect:g} s")
        if self._phase == SENDING:
            return ReadTimeout(f"the server took nothing for {self._read:g} s")
        return ReadTimeout(f"nothing came for {self._read:g} s")


class Connection:
    """A stream to a server with the parser of its responses. Mutable, for speed.

    Attributes:
        requests: Number of requests sent so far, including the current one.
        idle_since: Event loop time, in seconds, at which the connection became idle.
        received: The bytes of the current response so far, for an archive; None without an archive.
        size: Number of bytes of the current response so far.
        broken: The system error that ended sending the request. There may still be a response, because a server that
            refuses a body responds and closes the connection while the body is being sent.
    """

    __slots__ = ("broken", "idle_since", "parser", "received", "requests", "size", "wire")

    def __init__(self, wire: NetworkStream, parser: ResponseParser | None = None) -> None:
        self.wire: NetworkStream = wire
        self.parser: ResponseParser = parser or ResponseParser()
        self.requests: int = 0
        self.idle_since: float = 0.0
        self.broken: OSError | None = None
        self.received: bytearray | None = None
        self.size: int = 0

    def ask_nowait(self, data: bytes, *, is_head: bool = False) -> int:
        """Discard the last response, send the start of a request, and return the number of bytes sent."""
        self.requests += 1
        self.size = 0
        if self.received is not None:
            self.received.clear()
        self.parser.begin(is_head=is_head)
        try:
            return self.wire.send_nowait(data)
        except OSError as error:
            # Act as if all bytes were sent, so that a response that came before the server closed is still read.
            self.broken = error
            return len(data)

    async def send(self, data: bytes) -> None:
        """Send more of a request. Not always a checkpoint."""
        try:
            await self.wire.send(data)
        except OSError as error:
            self.broken = error

    async def receive(self, deadline: RequestDeadline | None = None) -> None:
        """Wait for the next bytes of the response and parse them. Starts ``deadline`` if it waits. A checkpoint.

        Raises:
            ResponseBroken: If the bytes are not a response, or the response ended early.
            ConnectionClosedError: If the connection failed or ended before the first byte of the response.
            OSError: If the connection broke later.
        """
        wire, parser = self.wire, self.parser
        try:
            data = await wire.receive_soon()
            if data is None:
                if deadline is not None:
                    deadline.start()
                data = await wire.receive()
        except OSError as error:
            # An error after the first byte makes the response broken. After an error before the first byte, the request
            # may be sent again.
            if parser.has_started:
                raise
            raise ConnectionClosedError(f"the connection broke: {words_of(self.broken or error)}") from error
        self.size += len(data)
        if self.received is not None:
            self.received += data
        if data:
            parser.feed(data)
        else:
            parser.end()

    async def receive_word(self) -> None:
        """Wait ``EXPECT_WAIT`` until the server requests the body or sends a final response (RFC 9110, 10.1.1)."""
        parser = self.parser
        with trio.move_on_after(EXPECT_WAIT):
            while not (parser.has_head or parser.is_invited):
                await self.receive()

    def keep_head(self) -> None:
        """Discard the received bytes of the body, because the body is written to a file."""
        if self.received:
            end, _ = end_of_head(bytes(self.received))
            del self.received[end:]

    def message(self, *, is_in_file: bool) -> tuple[bytes, bytes | None] | None:
        """Remove and return the bytes of the final response, without later bytes; None without an archive."""
        if self.received is None:
            return None
        parser, whole = self.parser, bytes(self.received)
        self.received.clear()  # free the memory, because the connection may be idle for a long time
        end, start = end_of_head(whole)
        body = whole[end:]
        if parser.has_extra_data and (parser.length is not None or not parser.has_body):
            body = body[: parser.length or 0]
        return whole[start:end], None if is_in_file else body

    @property
    def is_reusable(self) -> bool:
        """True if another request may use the connection: the response is complete, and no more bytes have arrived."""
        parser = self.parser
        return parser.is_complete and parser.is_keepable and not parser.has_extra_data and self.broken is None

    def cut(self, outcome: Outcome) -> None:
        """Close the connection before the response is complete. An archive gets the received part of the response."""
        outcome.size = self.size
        if self.received is not None and self.parser.has_head:
            is_in_file = sink_for(outcome.request, self.parser.status) is not None
            outcome.received = self.message(is_in_file=is_in_file)
        self.close(is_cut=True)

    def close(self, *, is_cut: bool = False) -> None:
        """Close the connection without waiting, with ``is_cut`` without sending the rest. Safe to call twice."""
        self.wire.close(is_cut=is_cut)
        self.parser.close()


_BODILESS = frozenset({204, 304})  # RFC 9112, 6.3, rule 1


async def read_response(
    connection: Connection, outcome: Outcome, limits: ResponseLimits, deadline: RequestDeadline
) -> Response:
    """Read the response to the request just sent, and record when its headers and its end arrived.

    Raises DownloadError if the response is broken or too large, and the errors of :meth:`Connection.receive`.
    """
    parser = connection.parser
    broken = await _read_head(connection, deadline)
    outcome.first_byte_at = outcome.ended_at = trio.current_time()
    if broken is not None and limits.is_strict:
        raise broken
    flags: Sequence[str] = ()
    make: Callable[..., Response] = Response
    # On most pages, the whole body arrives together with the headers. Then no ``Body`` object is needed to collect and
    # limit the body.
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
        outcome.ended_at = trio.current_time()
    outcome.size = connection.size
    if connection.received is not None:
        outcome.received = connection.message(is_in_file=make is not Response)
    return make(
        without_fragment(outcome.request.url),
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
    """Read a body that is incomplete or must be decoded. Return the part not in ``writer``, and flags."""
    parser = connection.parser
    # In responses to HEAD and in a 304, ``Content-Length`` is the length of the body that a GET would have returned
    # (RFC 9110, 8.6).
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
    return limits.finish(body, loss, request, is_cut=connection.wire.is_cut)


async def _read_head(connection: Connection, deadline: RequestDeadline) -> DownloadError | None:
    """Read the headers. Returns an error if the bytes after them, in the same read, are an invalid body."""
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
    """Read the body to its end. Returns the error at its end if the limits allow an incomplete body."""
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
        if writer is not None and writer.has_begun:
            connection.keep_head()
    return broken


async def _take(body: Body, piece: bytes, deadline: RequestDeadline, writer: SinkWriter | None) -> None:
    """Process a chunk of a body. The time for writing or decompressing it does not count as the server's time."""
    if writer is not None or body.is_compressed:
        deadline.writing()
        deadline.start()
    await (body.feed(piece) if writer is None else writer.feed(body, piece))
