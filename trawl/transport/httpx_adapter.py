"""Our own HTTP/1.1 for httpx's clients. Only this module imports httpx, which takes 0.2 s.

A connection is either in the pool or held by one :class:`_OpenRequest`, until the body of the response has ended or the
response is closed. The client's code runs between two chunks of a body, so a cancel scope can't stay open from one
chunk to the next. Therefore, each wait has its own scope.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterable
from contextlib import aclosing, contextmanager
from math import inf
from typing import Any

import httpx
import trio

from trawl.errors import ConnectFailed, DownloadError, ResponseBroken
from trawl.http import SAFE_METHODS
from trawl.transport.base import system_error, words_of
from trawl.transport.connect import ConnectOptions
from trawl.transport.http11.connection import Connection
from trawl.transport.http11.message import head_bytes
from trawl.transport.http11.network_stream import NetworkStream
from trawl.transport.http11.parser import ConnectionClosedError, ReasonParser
from trawl.transport.http11.pool import ConnectionFactory, FileLimitError, Origin, Pool, room_for_idle
from trawl.transport.resolver import Resolve
from trawl.transport.settings import BindAddress

__all__ = ["HTTP11Transport"]

RETRY_PAUSE = 0.5
"""Seconds before the third attempt to connect. As in httpx, there is none before the second, and it doubles later."""

_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=5.0)
"""httpx's own defaults."""

_LAST_CHUNK = b"0\r\n\r\n"


class HTTP11Transport(httpx.AsyncBaseTransport):
    """Our own HTTP/1.1 for httpx's clients: ``httpx.AsyncClient(transport=HTTP11Transport())``. Runs on Trio only.

    All arguments except ``resolve`` have the same meaning as in httpx's own transport.

    Args:
        verify: True to trust the certificates of certifi, False to trust all servers, or an ``ssl.SSLContext``. A file
            or folder of certificates is accepted with httpx's own warning.
        cert: A client certificate: a file, a pair of file and key, or a tuple of file, key and password. Accepted with
            httpx's own warning. It is better to load the certificate into the context.
        trust_env: Whether to use ``SSL_CERT_FILE`` and ``SSL_CERT_DIR``.
        limits: Maximum connections, maximum idle connections, and seconds for which an idle connection is kept.
        uds: The path of a Unix socket to use for every host.
        local_address: Local address of the connections.
        retries: Number of further attempts to connect after a failed attempt. A request that was sent is not sent
            again.
        socket_options: Level, option and value of ``setsockopt``, set before connecting.
        resolve: Looks up names; None for the system's lookup in threads. Results are cached for a minute.

    Differences from httpx's own transport: a 101 is an error, name lookups are cached, a request with ``Expect:
    100-continue`` waits for the server, a safe request is sent again if an idle connection turns out to be dead, and
    the extensions ``trace`` and ``network_stream`` are missing.
    """

    def __init__(
        self,
        verify: ssl.SSLContext | str | bool = True,
        cert: str | tuple[str, str] | tuple[str, str, str] | None = None,
        *,
        trust_env: bool = True,
        limits: httpx.Limits = _LIMITS,
        uds: str | None = None,
        local_address: str | None = None,
        retries: int = 0,
        socket_options: Iterable[tuple[Any, ...]] | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        context = None
        # Only arguments other than the defaults need their own context. The default context is created on first use.
        if not isinstance(verify, bool) or cert is not None or not trust_env:
            context = httpx.create_ssl_context(verify, cert, trust_env)
        keepalive, idle = limits.keepalive_expiry, limits.max_keepalive_connections
        self._pool = Pool(
            keepalive=inf if keepalive is None else keepalive, max_idle=room_for_idle() if idle is None else idle
        )
        bind_address = None if local_address is None else BindAddress(local_address)
        options = ConnectOptions(bind_address, tuple(socket_options or ()), uds)
        self._connect = ConnectionFactory(resolve, context, verifies=bool(verify), options=options)
        self._retries = retries
        self._places = trio.CapacityLimiter(inf if limits.max_connections is None else limits.max_connections)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send ``request`` and read the headers of the response. Always a checkpoint. Cancelling drops the connection.

        A safe request without a body is sent again if the server closed an idle connection instead of responding. The
        request's extensions ``timeout``, ``sni_hostname`` and ``target`` are supported.

        Raises:
            httpx.TransportError: If the request fails, with the same errors as httpx's own transport.
        """
        url = request.url
        base, server_name = f"{url.scheme}://{url.netloc.decode('ascii')}", request.extensions.get("sni_hostname") or ""
        try:
            origin = self._pool.origin(base, server_name)
        except DownloadError as error:
            raise httpx.UnsupportedProtocol(error.cause, request=request) from error
        token = object()
        await _within(request, "pool", httpx.PoolTimeout, lambda: self._places.acquire_on_behalf_of(token))
        try:
            open_request = await self._begin(request, origin, lambda: self._places.release_on_behalf_of(token))
        except BaseException:
            self._places.release_on_behalf_of(token)
            raise
        parser = open_request.parser
        extensions = {"http_version": b"HTTP/" + parser.version.encode("ascii"), "reason_phrase": parser.reason}
        return httpx.Response(parser.status, headers=parser.fields, stream=open_request, extensions=extensions)

    async def aclose(self) -> None:
        """Close the idle connections now, and all others when their responses are closed."""
        self._pool.close()
        await trio.lowlevel.checkpoint()

    async def _begin(self, request: httpx.Request, origin: Origin, release: Callable[[], None]) -> _OpenRequest:
        """Send ``request`` and read the headers of its response. ``release`` is called when the request has ended."""
        connection = self._pool.take(origin, trio.current_time())
        is_reused = connection is not None
        while True:
            if connection is None:
                connection = Connection(await self._connected(request, origin), ReasonParser())
            open_request = _OpenRequest(self._pool, request, origin, connection, release)
            try:
                await open_request.begin()
                return open_request
            except ConnectionClosedError as error:
                connection.close()
                if not is_reused or _has_body(request) or request.method not in SAFE_METHODS:
                    kind = httpx.ReadError if system_error(error) else httpx.RemoteProtocolError
                    raise kind(str(error), request=request) from error
                connection, is_reused = None, False
            except BaseException:
                connection.close()
                raise

    async def _connected(self, request: httpx.Request, origin: Origin) -> NetworkStream:
        """Open a connection, with the allowed number of attempts."""
        if self._places.borrowed_tokens + len(self._pool) > self._places.total_tokens:
            self._pool.make_room()
        attempts = 1
        while True:
            try:
                with _mapped(request):
                    stream: NetworkStream = await _within(
                        request, "connect", httpx.ConnectTimeout, lambda: self._connect(origin)
                    )
                    return stream
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                if isinstance(error.__cause__, FileLimitError) and self._pool.make_room():
                    continue
                if attempts > self._retries:
                    raise
            await trio.sleep(0 if attempts == 1 else RETRY_PAUSE * 2.0 ** (attempts - 2))
            attempts += 1


@contextmanager
def _mapped(request: httpx.Request) -> Generator[None, None, None]:
    """Raise the errors of a connection as httpx's errors."""
    try:
        yield
    except ConnectFailed as error:
        raise httpx.ConnectError(error.cause, request=request) from error
    except DownloadError as error:
        raise httpx.RemoteProtocolError(error.cause, request=request) from error
    except OSError as error:
        raise httpx.ReadError(words_of(error), request=request) from error


async def _within(
    request: httpx.Request, limit: str, failure: type[httpx.TimeoutException], step: Callable[[], Awaitable[Any]]
) -> Any:
    """Return the result of ``step()``. Raise ``failure`` after the request's timeout with the name ``limit``."""
    seconds = request.extensions.get("timeout", {}).get(limit)
    if seconds is None:
        return await step()
    with trio.move_on_after(seconds):
        return await step()
    raise failure(f"timed out after {seconds:g} s", request=request)


def _has_body(request: httpx.Request) -> bool:
    """Return whether the headers announce a body (RFC 9112, 6)."""
    headers = request.headers
    return "transfer-encoding" in headers or headers.get("content-length", "0") not in {"", "0"}


class _OpenRequest(httpx.AsyncByteStream):
    """One request and the body of its response on one connection. It holds a place until it ends."""

    def __init__(
        self, pool: Pool, request: httpx.Request, origin: Origin, connection: Connection, release: Callable[[], None]
    ) -> None:
        assert isinstance(connection.parser, ReasonParser)
        self.parser: ReasonParser = connection.parser
        self._pool = pool
        self._request = request
        self._origin = origin
        self._connection = connection
        self._release = release
        self._is_last = "close" in request.headers.get("connection", "").lower()
        self._broken: ResponseBroken | None = None
        self._is_open = True
        self._pieces: list[bytes] = []

    async def begin(self) -> None:
        """Send the request and read the headers of the response.

        Raises ConnectionClosedError if the connection ended before the first byte of the response, or httpx's errors.
        """
        with _mapped(self._request):
            await self._send()
        while not self.parser.has_head:
            await self._receive()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self  # don't use a generator, because a client could stop before its end

    async def __anext__(self) -> bytes:
        """Return the next chunk of the body, still compressed. Cancelling closes the connection. A checkpoint."""
        has_waited = False
        while self._is_open:
            self._pieces = self._pieces or self.parser.take()
            if self._pieces:
                break
            if self.parser.is_complete:
                self.close()
                break
            try:
                await self._receive()
                has_waited = True
            except BaseException:
                self.close()
                raise
        if not has_waited:
            await trio.lowlevel.checkpoint()
        if not self._pieces or not self._is_open:
            raise StopAsyncIteration
        return self._pieces.pop(0)

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        """Keep or close the connection, and release the request's place. Safe to call twice."""
        if not self._is_open:
            return
        self._is_open = False
        self._release()
        connection = self._connection
        if self._is_last or not connection.is_reusable:
            connection.close()
            return
        if connection.requests == 1:
            self._origin.session = connection.wire.session()
        self._pool.give(self._origin, connection, trio.current_time())

    async def _receive(self) -> None:
        """Wait for the next bytes of the response. Raises the same errors as :meth:`begin`."""
        parser = self.parser
        had_head = parser.has_head
        with _mapped(self._request):
            if self._broken is not None:
                raise self._broken
            try:
                await _within(self._request, "read", httpx.ReadTimeout, self._connection.receive)
            except ResponseBroken as error:
                if had_head or not parser.has_head:
                    raise
                self._broken = error  # the headers are valid, but the same read had invalid bytes after them

    async def _send(self) -> None:
        connection, request, has_asked = self._connection, self._request, False
        if _has_body(request) and "100-continue" in request.headers.get("expect", "").lower():
            has_asked = True
            await self._write(self._head(), is_first=True)
            await connection.receive_word()
            if self.parser.has_head:
                self._is_last = True
                return
        async with aclosing(self._message(b"" if has_asked else self._head())) as pieces:
            async for piece in pieces:
                await self._write(piece, is_first=not has_asked)
                has_asked = True
                if connection.broken is not None:
                    return

    async def _write(self, piece: bytes, *, is_first: bool) -> None:
        connection, is_head = self._connection, self._request.method == "HEAD"

        async def send() -> None:
            sent = connection.ask_nowait(piece, is_head=is_head) if is_first else 0
            if sent < len(piece):
                await connection.send(piece[sent:])

        await _within(self._request, "write", httpx.WriteTimeout, send)

    def _head(self) -> bytes:
        """Return the bytes before the body. A line break in a header, which could add another, is an error."""
        request, fields = self._request, self._request.headers.raw
        path = request.extensions.get("target", request.url.raw_path)
        head = head_bytes(request.method.encode("ascii"), path, fields)
        lines = len(fields) + 2
        if head.count(b"\n") != lines or head.count(b"\r") != lines or b"\0" in head:
            raise httpx.LocalProtocolError("Illegal header value: a control character", request=request)
        return head

    async def _message(self, head: bytes) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of the request. ``head`` is sent together with the first chunk of the body."""
        request = self._request
        is_chunked = "transfer-encoding" in request.headers
        left = int(request.headers.get("content-length") or 0)
        stream: Any = request.stream
        pieces = aiter(stream)
        try:
            async for piece in pieces:
                left -= len(piece)
                if not is_chunked and left < 0:
                    raise httpx.LocalProtocolError("Too much data for declared Content-Length", request=request)
                if piece:  # write it as a chunk (RFC 9112, 7.1)
                    yield head + (b"%x\r\n%s\r\n" % (len(piece), piece) if is_chunked else piece)  # noqa: ASYNC119 - its reader closes it
                    head = b""
        finally:
            if isinstance(pieces, AsyncGenerator):  # it may not have been read completely
                await pieces.aclose()
        if not is_chunked and left > 0:
            raise httpx.LocalProtocolError("Too little data for declared Content-Length", request=request)
        if is_chunked or head:
            yield head + (_LAST_CHUNK if is_chunked else b"")
