"""A web server on loopback that misbehaves in one named way, for tests of clients.

    async with serving(BEHAVIOURS["resets"]) as server:
        ...  # ask for server.url
        await server.all_gone()

A behavior is an async function that is called with the connection for each request. When it returns, the connection is
closed, unless ``is_kept`` is set. Nothing sleeps in real time: a behavior that stalls waits until the client has closed
the connection. Import the fixture ``clock``, a virtual clock that waits for the loopback interface.
"""

from __future__ import annotations

import gzip
import importlib
import socket
import ssl
import struct
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import attrs
import pytest
import trio
import trustme
import zstandard
from trio.testing import MockClock

Behaviour = Callable[["Connection"], Awaitable[None]]

MEGABYTE = 1024 * 1024


@pytest.fixture
def clock() -> MockClock:
    """Return a clock that jumps when nothing has happened for 20 ms, which is longer than loopback takes."""
    return MockClock(autojump_threshold=0.02)


@attrs.define
class Connection:
    """One connection as the server sees it.

    Attributes:
        stream: The stream for the response.
        head: The request line and headers of the current request.
        body: The body of the current request.
        number: Number of earlier connections to this server.
        requests: Number of requests on this connection so far, including the current one.
        is_kept: Whether the connection stays open for another request.
    """

    stream: trio.abc.Stream
    number: int
    head: bytes = b""
    body: bytes = b""
    requests: int = 0
    is_kept: bool = False

    async def send(self, data: bytes) -> None:
        """Send ``data``. Raises :class:`Gone` if the client has closed the connection."""
        try:
            await self.stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise Gone from None

    async def answer(self, body: bytes = b"", status: str = "200 OK", *fields: str) -> None:
        """Send a correct response and keep the connection."""
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *fields]
        await self.send("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        self.is_kept = True

    async def until_gone(self) -> None:
        """Wait until the client has closed the connection."""
        try:
            while await self.stream.receive_some(65536):
                pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        raise Gone


class Gone(Exception):
    """The client has closed the connection."""


@attrs.define
class BadServer:
    """A running server.

    Attributes:
        url: Its URL, with the path ``/``.
        port: Its port on 127.0.0.1.
        connected: Number of connections so far.
        heads: The heads of the requests so far.
        bodies: The bodies of the requests so far.
        open: Number of open connections.
    """

    port: int
    scheme: str
    connected: int = 0
    heads: list[bytes] = attrs.Factory(list)
    bodies: list[bytes] = attrs.Factory(list)
    open: int = 0
    _changed: trio.Event = attrs.Factory(trio.Event)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/"

    async def all_gone(self) -> None:
        """Wait until the client has closed every connection. Fails after 5 (virtual) seconds."""
        with trio.fail_after(5):
            while self.open:
                await self._changed.wait()

    def moved(self, by: int) -> None:
        """Count an opened or closed connection."""
        self.open += by
        self.connected += by > 0
        self._changed.set()
        self._changed = trio.Event()


async def read_request(stream: trio.abc.Stream) -> tuple[bytes, bytes] | None:
    """Return the head and body of the next request; None if the client has closed the connection."""
    head = b""
    while b"\r\n\r\n" not in head:
        try:
            more = await stream.receive_some(65536)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return None
        if not more:
            return None
        head += more
    head, _, body = head.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    rest = bytearray(body)
    while len(rest) < length:
        try:
            more = await stream.receive_some(65536)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return None
        if not more:
            return None
        rest += more
    return head, bytes(rest)


@contextmanager
def deaf_port() -> Iterator[int]:
    """Yield a port of 127.0.0.1 that is bound, so that no other process gets it, but on which no process listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        yield port


@asynccontextmanager
async def serving(behaviour: Behaviour, tls: ssl.SSLContext | None = None) -> AsyncGenerator[BadServer, None]:
    """Serve ``behaviour`` on a free port of 127.0.0.1 while the block runs."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    server = BadServer(listener.socket.getsockname()[1], "https" if tls else "http")

    async def handle(plain: trio.SocketStream) -> None:
        stream: trio.abc.Stream = plain if tls is None else trio.SSLStream(plain, tls, server_side=True)
        connection = Connection(stream, server.connected)
        server.moved(+1)
        try:
            while (request := await read_request(stream)) is not None:
                connection.head, connection.body = request
                connection.requests += 1
                connection.is_kept = False
                server.heads.append(connection.head)
                server.bodies.append(connection.body)
                await behaviour(connection)
                if not connection.is_kept:
                    break
        except Gone:
            pass
        finally:
            server.moved(-1)
            await trio.aclose_forcefully(stream)

    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, handle, [listener])
        try:
            yield server
        finally:
            nursery.cancel_scope.cancel()


# Misbehavior of servers. Each function is one row of BEHAVIOURS.


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def _endless(connection: Connection, beginning: bytes, piece: bytes) -> None:
    """Send ``piece`` repeatedly until the client closes the connection."""
    await connection.send(beginning)
    while True:
        await connection.send(piece)


async def is_fine(connection: Connection) -> None:
    await connection.answer(b"<title>fine</title>", "200 OK", "Content-Type: text/html")


async def closes_without_an_answer(connection: Connection) -> None:
    """Return at once, so that the connection is closed."""
    await trio.lowlevel.checkpoint()


async def closes_in_the_headers(connection: Connection) -> None:
    await connection.send(b"HTTP/1.1 200 OK\r\nContent-Ty")


async def closes_in_the_body(connection: Connection) -> None:
    await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nonly this")


async def closes_in_a_chunk(connection: Connection) -> None:
    await connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100\r\nonly this")


async def says_a_length_too_short(connection: Connection) -> None:
    await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfive and more")
    connection.is_kept = True


async def sends_headers_for_ever(connection: Connection) -> None:
    await _endless(connection, b"HTTP/1.1 200 OK\r\n", b"X-Again: and again\r\n" * 50)


async def sends_one_header_for_ever(connection: Connection) -> None:
    await _endless(connection, b"HTTP/1.1 200 OK\r\nX-Long: ", b"a" * 1000)


async def sends_100_000_headers(connection: Connection) -> None:
    await connection.send(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 100_000 + b"Content-Length: 0\r\n\r\n")
    await connection.until_gone()


async def is_not_http(connection: Connection) -> None:
    await connection.send(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n")
    await connection.until_gone()


async def sends_binary_rubbish(connection: Connection) -> None:
    await connection.send(bytes(range(256)) * 4 + b"\r\n\r\n")
    await connection.until_gone()


async def resets(connection: Connection) -> None:
    await _reset(connection)


async def resets_in_the_body(connection: Connection) -> None:
    await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nonly this")
    await _reset(connection)


async def _reset(connection: Connection) -> None:
    await trio.lowlevel.checkpoint()
    stream: Any = connection.stream
    sock = getattr(stream, "transport_stream", stream).socket
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


async def stalls(connection: Connection) -> None:
    await connection.until_gone()


async def stalls_in_the_body(connection: Connection) -> None:
    await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nonly this")
    await connection.until_gone()


async def drips(connection: Connection) -> None:
    await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        await connection.send(b".")
        with trio.move_on_after(DRIP):
            await connection.until_gone()


async def drips_its_headers(connection: Connection) -> None:
    await connection.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        await connection.send(b"X-A: b\r\n")
        with trio.move_on_after(DRIP):
            await connection.until_gone()


async def redirects_in_a_loop(connection: Connection) -> None:
    path = connection.head.split(b" ")[1].decode("ascii")
    await connection.answer(b"", "302 Found", f"Location: {'/b' if path == '/a' else '/a'}")


async def redirects_to_a_file(connection: Connection) -> None:
    await connection.answer(b"", "302 Found", "Location: file:///etc/passwd")


async def redirects_to_itself(connection: Connection) -> None:
    await connection.answer(b"", "307 Temporary Redirect", f"Location: {connection.head.split(b' ')[1].decode()}")


async def redirects_ever_further(connection: Connection) -> None:
    path = connection.head.split(b" ")[1].decode("ascii")
    await connection.answer(b"", "301 Moved Permanently", f"Location: {path}x")


async def sends_a_chunk_without_end(connection: Connection) -> None:
    await _endless(connection, CHUNKED + b"FFFFFFFFFFFF\r\n", b"a" * 65536)


async def sends_chunks_without_end(connection: Connection) -> None:
    await _endless(connection, CHUNKED, b"2\r\naa\r\n" * 10_000)


async def sends_a_chunk_size_without_end(connection: Connection) -> None:
    await _endless(connection, CHUNKED + b"1;", b"x" * 1000)


async def sends_trailers_without_end(connection: Connection) -> None:
    await _endless(connection, CHUNKED + b"0\r\n", b"X-Again: and again\r\n" * 50)


async def answers_for_now_for_ever(connection: Connection) -> None:
    await _endless(connection, b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 50)


async def says_a_length_too_long(connection: Connection) -> None:
    await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello")


async def says_a_length_that_is_none(connection: Connection) -> None:
    await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello")
    await connection.until_gone()


async def half_closes_without_an_answer(connection: Connection) -> None:
    await _half_close(connection)
    await connection.until_gone()


async def half_closes_in_the_body(connection: Connection) -> None:
    await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nonly this")
    await _half_close(connection)
    await connection.until_gone()


async def _half_close(connection: Connection) -> None:
    stream: Any = connection.stream
    await trio.lowlevel.checkpoint()
    getattr(stream, "transport_stream", stream).socket.shutdown(socket.SHUT_WR)


async def compresses_badly(connection: Connection) -> None:
    await connection.answer(b"\x1f\x8b\x08" + bytes(100), "200 OK", "Content-Encoding: gzip")


async def compresses_a_hundred_times(connection: Connection) -> None:
    await connection.answer(b"x", "200 OK", "Content-Encoding: " + ", ".join(["gzip"] * 100))


async def changes_the_protocol(connection: Connection) -> None:
    await connection.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: chess\r\nConnection: Upgrade\r\n\r\n")
    await connection.until_gone()


async def says_two_lengths(connection: Connection) -> None:
    await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello")
    await connection.until_gone()


async def sends_for_ever(connection: Connection) -> None:
    await _endless(connection, b"HTTP/1.1 200 OK\r\n\r\n", b"a" * 65536)


async def is_larger_than_it_may_be(connection: Connection) -> None:
    await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000000\r\n\r\n")
    await connection.until_gone()


def _bomb(coding: str, compressed: bytes) -> Behaviour:
    async def bombs(connection: Connection) -> None:
        await connection.answer(compressed, "200 OK", f"Content-Encoding: {coding}")

    return bombs


def zeros(coding: str, size: int) -> bytes:
    """Return ``size`` zero bytes, compressed. The result is small and fast to create."""
    if coding == "br":
        packed: bytes = importlib.import_module("brotli").compress(bytes(size), quality=5)
        return packed
    if coding == "zstd":
        return zstandard.ZstdCompressor(level=1).compress(bytes(size))
    if coding == "deflate":
        return zlib.compress(bytes(size), 1)
    return gzip.compress(bytes(size), 1)


DRIP = 15.0
"""Seconds between two bytes."""

BOMB_BYTES = 16 * MEGABYTE
"""Decompressed size of each bomb, in bytes."""

BEHAVIOURS: dict[str, Behaviour] = {
    behaviour.__name__: behaviour
    for behaviour in (
        is_fine,
        closes_without_an_answer,
        closes_in_the_headers,
        closes_in_the_body,
        closes_in_a_chunk,
        says_a_length_too_short,
        says_two_lengths,
        sends_headers_for_ever,
        sends_one_header_for_ever,
        sends_100_000_headers,
        is_not_http,
        sends_binary_rubbish,
        resets,
        resets_in_the_body,
        stalls,
        stalls_in_the_body,
        drips,
        drips_its_headers,
        redirects_in_a_loop,
        redirects_to_a_file,
        redirects_to_itself,
        redirects_ever_further,
        sends_a_chunk_without_end,
        sends_chunks_without_end,
        sends_a_chunk_size_without_end,
        sends_trailers_without_end,
        answers_for_now_for_ever,
        says_a_length_too_long,
        says_a_length_that_is_none,
        half_closes_without_an_answer,
        half_closes_in_the_body,
        compresses_badly,
        compresses_a_hundred_times,
        changes_the_protocol,
        sends_for_ever,
        is_larger_than_it_may_be,
    )
}
"""The behaviors by name, for tables of tests."""


def bomb(coding: str) -> Behaviour:
    """Return a server behavior with a small body that decompresses to ``BOMB_BYTES``."""
    return _bomb(coding, zeros(coding, BOMB_BYTES))


@attrs.frozen
class Authority:
    """A certificate authority for a test, with TLS contexts for both ends."""

    ca: trustme.CA = attrs.Factory(trustme.CA)

    def server(self, *names: str, **options: Any) -> ssl.SSLContext:
        """Return the context of a server with a certificate for ``names``.

        ``options`` are trustme's, such as ``not_after``.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(*(names or ("127.0.0.1",)), **options).configure_cert(context)
        return context

    def client(self) -> ssl.SSLContext:
        """Return the context of a client that trusts only this authority."""
        return ssl.create_default_context(cadata=self.ca.cert_pem.bytes().decode("ascii"))
