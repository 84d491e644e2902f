"""One connection with its time limits, and the responses read from it, one after another.

Theory of operation of :class:`RequestDeadline`: a request has one limit for the whole and one for each thing it waits
for. A cancel scope for each would cost more than reading a small page; moving a deadline costs a third of a scope. So
there is one scope, its deadline is the earlier one of the two limits, and when it has passed the phase tells which
limit it was. The scope is entered at the first wait: a request that is answered without waiting needs no limit.
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
"""Opens a connection. Raises ``ConnectFailed``; cancelling closes what was opened."""

CONNECTING, SENDING, READING = range(3)

EXPECT_WAIT = 1.0
"""Seconds that a request with ``Expect: 100-continue`` waits for the server's answer before it sends its body."""


class RequestDeadline:
    """The time limits of one request; enter it once, around the whole request. Hot: mutable."""

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
        """Enforce the limits from now on: the request is about to wait.

        Cancel scopes are left in the reverse order in which they were entered, so don't call this inside another scope
        or nursery of the request's own.
        """
        if self._scope is None:
            self._scope = trio.CancelScope(deadline=min(self._ends_at, self._deadline))
            self._scope.__enter__()

    @property
    def has_passed(self) -> bool:
        """True if a limit has passed and ended the request; :meth:`error` says which."""
        return self._scope is not None and self._scope.cancelled_caught

    def connecting(self, now: float) -> None:
        """Start the limit for connecting at ``now``."""
        self._phase = CONNECTING
        self._move(now + self._connect)

    def sending(self, now: float) -> None:
        """Start the limit for the server to accept something at ``now``."""
        self._phase = SENDING
        self._move(now + self._read)

    def reading(self, now: float) -> None:
        """Start the limit for the server to send something at ``now``."""
        self._phase = READING
        self._move(now + self._read)

    def writing(self) -> None:
        """Keep only the limit for the whole: writing down what has come is not the server's time."""
        self._move(inf)

    def still_reading(self) -> None:
        """Go on to reading without a new deadline: little has been sent, so only the error's words would differ."""
        self._phase = READING

    def put_off(self, seconds: float) -> None:
        """Put every limit off: the request is about to wait for its turn at the wire."""
        self._ends_at += seconds
        self._move(self._deadline + seconds)

    def _move(self, deadline: float) -> None:
        self._deadline = deadline
        if self._scope is not None:
            self._scope.deadline = min(self._ends_at, deadline)

    def error(self) -> DownloadError:
        """Return the error for the limit that has passed."""
        if self._deadline >= self._ends_at:
            return DownloadTimeout(f"not done within {self._limit:g} s")
        if self._phase == CONNECTING:
            return ConnectTimeout(f"no connection within {self._connect:g} s")
        if self._phase == SENDING:
            return ReadTimeout(f"the server took nothing for {self._read:g} s")
        return ReadTimeout(f"nothing came for {self._read:g} s")


class Connection:
    """A stream to a server with the parser of its responses. Hot: mutable.

    Attributes:
        wire: The bytes to and from the server.
        parser: Reads the current response.
        requests: Requests sent so far, the current one included.
        idle_since: Instant on the run clock at which it became idle.
        received: The bytes of the current response so far, for an archive; None: there is no archive.
        broken: The system's error when it accepted no more of the request. The server may have answered all the same: a
            server that refuses a body answers and closes while the body is still sent.
    """

    __slots__ = ("broken", "idle_since", "parser", "received", "requests", "wire")

    def __init__(self, wire: NetworkStream, parser: ResponseParser | None = None) -> None:
        self.wire: NetworkStream = wire
        self.parser: ResponseParser = parser or ResponseParser()
        self.requests: int = 0
        self.idle_since: float = 0.0
        self.broken: OSError | None = None
        self.received: bytearray | None = None

    def ask_nowait(self, data: bytes, *, is_head: bool = False) -> int:
        """Send the beginning of a request and forget the last response. Returns the number of bytes sent."""
        self.requests += 1
        if self.received is not None:
            self.received.clear()
        self.parser.begin(is_head=is_head)
        try:
            return self.wire.send_nowait(data)
        except OSError as error:
            # As if all of it had been sent: an answer that came before the server closed is still read.
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
            deadline: Started before this waits.

        Raises:
            ResponseBroken: They are not a response, or it ended early.
            ConnectionClosedError: The connection broke or ended before the first byte of the response.
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
            # Within a response it is that which broke; before the first byte the request may go again.
            if parser.has_started:
                raise
            raise ConnectionClosedError(f"the connection broke: {words_of(self.broken or error)}") from error
        if self.received is not None:
            self.received += data
        if data:
            parser.feed(data)
        else:
            parser.end()

    async def receive_word(self) -> None:
        """Wait, at most ``EXPECT_WAIT``, until the server asks for the body or answers without it (RFC 9110, 10.1.1).

        Raises the errors of :meth:`receive`.
        """
        parser = self.parser
        with trio.move_on_after(EXPECT_WAIT):
            while not (parser.has_head or parser.is_invited):
                await self.receive()

    def keep_head(self) -> None:
        """Forget the body of what was received: it goes to a file."""
        if self.received:
            end, _ = end_of_head(bytes(self.received))
            del self.received[end:]

    def message(self, *, is_in_file: bool) -> tuple[bytes, bytes | None] | None:
        """Take out the response as it came, without interim ones before it and what came behind it; None: not kept."""
        if self.received is None:
            return None
        parser, whole = self.parser, bytes(self.received)
        self.received.clear()  # a connection may be idle for long
        end, start = end_of_head(whole)
        body = whole[end:]
        if parser.has_extra_data and (parser.length is not None or not parser.has_body):
            body = body[: parser.length or 0]
        return whole[start:end], None if is_in_file else body

    @property
    def is_reusable(self) -> bool:
        """True if the next request may use it: the response is whole, and nothing else came."""
        parser = self.parser
        return parser.is_complete and parser.is_keepable and not parser.has_extra_data and self.broken is None

    def close(self, *, is_cut: bool = False) -> None:
        """Close the connection at once. Safe to call twice.

        Args:
            is_cut: Whatever of a request is not sent yet is never sent.
        """
        self.wire.close(is_cut=is_cut)
        self.parser.close()


_BODILESS = frozenset({204, 304})  # RFC 9112, 6.3, rule 1


async def read_response(
    connection: Connection, outcome: Outcome, limits: ResponseLimits, deadline: RequestDeadline
) -> Response:
    """Read the response to the request just sent, noting when its headers and its end came. Cancelling loses it.

    Raises:
        DownloadError: It is broken, or larger than the limit.
        ConnectionClosedError: The server closed the connection instead.
        OSError: The connection broke.
    """
    parser = connection.parser
    broken = await _read_head(connection, deadline)
    outcome.first_byte_at = outcome.ended_at = trio.current_time()
    if broken is not None and limits.is_strict:
        raise broken
    flags: Sequence[str] = ()
    make: Callable[..., Response] = Response
    # Most pages come whole with their headers, and need nothing that collects or limits a body.
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
    """Read a body that has not come with the headers, or has to be checked; return it with the response's flags.

    With ``writer`` only the part that was not written is returned.
    """
    parser = connection.parser
    # Of HEAD and 304 it is the length that GET would have had (RFC 9110, 8.6).
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
    """Read the headers; return the error of the part of the body that came in the same read, if there is one."""
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
    """Read the body to its end; return the error at its end if the limits allow one."""
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
    """Take a piece of a body. Writing or decompressing it is not the server's time."""
    if writer is not None or body.is_compressed:
        deadline.writing()
        deadline.start()
    await (body.feed(piece) if writer is None else writer.feed(body, piece))
