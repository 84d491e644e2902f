"""A small HTTP/2 server on loopback (RFC 9113), based on the ``h2`` library. A function responds to each stream."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import attrs
import h2.config
import h2.connection
import h2.events
import h2.exceptions
import trio

__all__ = ["Exchange", "H2Server", "serving_h2"]

GONE = (trio.BrokenResourceError, trio.ClosedResourceError)


@attrs.define
class Exchange:
    """One stream of the server.

    Attributes:
        fields: The request's headers, including pseudo-headers.
        number: Number of earlier streams on this connection.
        body: The request's body.
        connection: The h2 connection.
        stream_id: The h2 stream id.
        stream: The stream below the connection.
        lock: Lock for sending.
    """

    fields: dict[str, str]
    number: int
    connection: h2.connection.H2Connection
    stream_id: int
    stream: trio.abc.Stream
    lock: trio.Lock
    body: bytes = b""

    async def flush(self) -> None:
        """Send the pending output of h2."""
        async with self.lock:
            await self.stream.send_all(self.connection.data_to_send())

    async def answer(self, body: bytes = b"", status: str = "200", *fields: tuple[str, str], ends: bool = True) -> None:
        """Send a correct response."""
        self.connection.send_headers(self.stream_id, [(":status", status), *fields])
        while len(body) > (room := min(self.connection.local_flow_control_window(self.stream_id), 16_000)):
            self.connection.send_data(self.stream_id, body[:room])
            body = body[room:]
            await self.flush()
            if not room:
                return  # the client accepts no more data, as tests of limits expect
        self.connection.send_data(self.stream_id, body, end_stream=ends)
        await self.flush()


Answers = Callable[[Exchange], Awaitable[None]]


@attrs.define
class H2Server:
    """A running server.

    Attributes:
        port: Its port on 127.0.0.1.
        connected: Number of connections so far.
        open: Number of open connections.
        protocols: The protocol that ALPN selected for each connection.
        asked: The requests so far.
    """

    port: int
    connected: int = 0
    open: int = 0
    protocols: list[str | None] = attrs.Factory(list)
    asked: list[Exchange] = attrs.Factory(list)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/"

    async def all_gone(self) -> None:
        """Wait until the client has closed every connection. Fails after 5 (virtual) seconds."""
        with trio.fail_after(5):
            while self.open:  # noqa: ASYNC110
                await trio.sleep(0.01)


async def converse(stream: trio.abc.Stream, answers: Answers, server: H2Server) -> None:
    """Serve one connection."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
    connection.initiate_connection()
    await stream.send_all(connection.data_to_send())
    exchanges: dict[int, Exchange] = {}
    lock = trio.Lock()
    async with trio.open_nursery() as nursery:
        while data := await received(stream):
            try:
                events = connection.receive_data(data)
            except h2.exceptions.ProtocolError:
                break  # the client has closed the connection, or uses another protocol
            for event in events:
                if isinstance(event, h2.events.RequestReceived):
                    fields = {str(name): str(value) for name, value in event.headers}
                    number = len(exchanges)
                    exchanges[event.stream_id] = Exchange(fields, number, connection, event.stream_id, stream, lock)
                    server.asked.append(exchanges[event.stream_id])
                elif isinstance(event, h2.events.DataReceived):
                    exchanges[event.stream_id].body += event.data
                    connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    nursery.start_soon(answered, answers, exchanges[event.stream_id])
            with suppress(*GONE):
                async with lock:
                    await stream.send_all(connection.data_to_send())
        nursery.cancel_scope.cancel()


async def received(stream: trio.abc.Stream) -> bytes:
    """Return received bytes; empty when the client has closed the connection."""
    try:
        return bytes(await stream.receive_some(65_536))
    except GONE:
        return b""


async def answered(answers: Answers, exchange: Exchange) -> None:
    """Respond to one stream. Errors of a closed connection are ignored."""
    with suppress(*GONE, h2.exceptions.ProtocolError):
        await answers(exchange)


@asynccontextmanager
async def serving_h2(
    answers: Answers, tls: ssl.SSLContext, *, protocols: tuple[str, ...] = ("h2", "http/1.1")
) -> AsyncGenerator[H2Server, None]:
    """Serve ``answers`` on a free port of 127.0.0.1 while the block runs."""
    tls.set_alpn_protocols(protocols)
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    server = H2Server(listener.socket.getsockname()[1])

    async def handle(plain: trio.SocketStream) -> None:
        stream = trio.SSLStream(plain, tls, server_side=True)
        server.connected += 1
        server.open += 1
        try:
            with suppress(*GONE):
                await stream.do_handshake()
                server.protocols.append(stream.selected_alpn_protocol())
                await converse(stream, answers, server)
        finally:
            server.open -= 1
            await trio.aclose_forcefully(stream)

    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, handle, [listener])
        try:
            yield server
        finally:
            nursery.cancel_scope.cancel()
