"""The transport over httpx's connections: the one module that imports httpx or its core.

Theory of operation: ``httpcore`` (what httpx itself sends with) speaks HTTP/1.1 and keeps connections; httpx's client,
requests and URLs are left out, because they cost more than a page and write URLs anew. What httpcore reads from and
writes to is a stream of ours, and that gives four things it has no option for: names are looked up by our own resolver,
connecting and the handshake share one time limit, a body that is refused ends by the stream refusing to be read (so no
generator is left half-read), and a connection on which too much came is never used again.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Generator, Iterable
from contextlib import contextmanager
from math import inf
from typing import Any

import httpcore
import httpx
import trio

from trawl.addresses import AddressGuard
from trawl.errors import (
    ConnectFailed,
    ConnectTimeout,
    DownloadError,
    DownloadTimeout,
    NameNotResolved,
    ReadTimeout,
    ResponseBroken,
    UnsupportedScheme,
)
from trawl.http import Outcome, Request, Response, scheme_of
from trawl.transport.base import OnSent
from trawl.transport.decoding import accept_encoding
from trawl.transport.dial import Resolve, ThreadResolver, dial
from trawl.transport.http11 import Answer, Connector, Pool, Question, Streams, StreamsError, Timeouts, room_for_idle
from trawl.transport.instants import Instants
from trawl.transport.reading import Reading
from trawl.transport.settings import TransportSettings
from trawl.transport.target import Target, wire_fields
from trawl.transport.wording import protocol_words, system_error, tls_failure, words_of

__all__ = ["HTTP11Transport", "HttpxTransport"]

IDLE_CONNECTIONS = 100
"""Connections beyond which an idle one is closed at once, so that a crawl of many hosts does not run out of files."""

_HTTPCORE_ERRORS = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
    httpcore.ProxyError,
)

_MAPPED: tuple[tuple[type[Exception], type[DownloadError], str], ...] = (
    (httpcore.ConnectTimeout, ConnectTimeout, "no connection within {connect:g} s"),
    (httpcore.ReadTimeout, ReadTimeout, "nothing came for {read:g} s"),
    (httpcore.WriteTimeout, ReadTimeout, "the server took nothing for {read:g} s"),
    (httpcore.TimeoutException, DownloadTimeout, "timed out"),
    (httpcore.ConnectError, ConnectFailed, "no connection: {cause}"),
    (httpcore.NetworkError, ResponseBroken, "the connection broke: {cause}"),
    (Exception, DownloadError, "it can't be sent: {cause}"),
)
"""httpcore's error, ours, and what it says. The first that fits counts."""

_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=5.0)
"""httpx's own."""

_BODY_BROKEN = (httpcore.ProtocolError, httpcore.ReadError)
"""What httpcore raises when a body does not come to its end."""

_HTTP = b"HTTP/"
"""What every answer begins with (RFC 9112, 4)."""


class HttpxTransport:
    """Sends requests over HTTP/1.1, with TLS verified, within the limits of ``settings``.

    Args:
        settings: Limits.
        resolve: Looks names up; None: as the system does, in threads.
        ssl_context: Decides what servers are trusted; None: those that certifi trusts, or ``SSL_CERT_FILE`` names, made
            when the first ``https`` URL is asked for.
        guard: Says which addresses may be connected to; None: all.
    """

    def __init__(
        self,
        settings: TransportSettings,
        *,
        resolve: Resolve | None = None,
        ssl_context: ssl.SSLContext | None = None,
        guard: AddressGuard | None = None,
    ) -> None:
        self._settings = settings
        self._backend = _Backend(resolve or ThreadResolver(), guard)
        self._ssl_context = ssl_context
        self._pools: dict[str, httpcore.AsyncConnectionPool] = {}
        self._accept_encoding = accept_encoding() if settings.compression_enabled else None

    async def send(self, request: Request, on_sent: OnSent) -> Outcome:
        """Send ``request`` once and read the whole response; what goes wrong is the outcome's error.

        Cancelling drops the connection. Always a checkpoint.
        """
        outcome = Outcome(request, started_at=trio.current_time())
        limit = float(request.meta_get("download_timeout") or self._settings.download_timeout)
        failure: DownloadError | None = None
        with trio.move_on_after(limit) as whole:
            try:
                outcome.response = await self._exchange(request, outcome, on_sent)
            except DownloadError as error:
                failure = error
            except _HTTPCORE_ERRORS as error:
                failure = self._mapped(error, Target.of(request.url))
        if whole.cancelled_caught:
            failure = DownloadTimeout(f"not done within {limit:g} s")
        if failure is not None:
            failure.url, failure.method = request.url, request.method
            outcome.error = failure
        outcome.ended_at = trio.current_time()
        return outcome

    async def aclose(self) -> None:
        """Close every connection. Safe to call twice; does not wait for the peers."""
        for pool in self._pools.values():
            await pool.aclose()
        await trio.lowlevel.checkpoint()

    async def _exchange(self, request: Request, outcome: Outcome, on_sent: OnSent) -> Response:
        if scheme_of(request.url) not in {"http", "https"}:
            await trio.lowlevel.checkpoint()
            raise UnsupportedScheme(f"the scheme {scheme_of(request.url)!r} is not fetched")
        target = Target.of(request.url)
        settings = self._settings
        times = {"connect": settings.download_connect_timeout, "read": settings.download_read_timeout}
        answer = await self._pool(target.scheme).handle_async_request(
            httpcore.Request(
                request.method,
                httpcore.URL(
                    scheme=target.scheme.encode(),
                    host=target.host.encode("ascii"),
                    port=target.port,
                    target=target.path.encode("ascii"),
                ),
                headers=wire_fields(request, target, self._accept_encoding),
                content=_Once(request.body),
                extensions={
                    "timeout": {**times, "write": times["read"]},
                    "trace": Instants(outcome, on_sent),
                    "sni_hostname": target.host.rstrip("."),
                },
            )
        )
        try:
            return await Reading(request, answer, outcome, settings, _BODY_BROKEN).response()
        finally:
            await answer.aclose()

    def _pool(self, scheme: str) -> httpcore.AsyncConnectionPool:
        """The connections of one scheme. Nothing caps how many there are: throttling does."""
        pool = self._pools.get(scheme)
        if pool is None:
            if scheme == "https" and self._ssl_context is None:
                self._ssl_context = httpx.create_ssl_context(verify=self._settings.download_verify_certificates)
            pool = self._pools[scheme] = httpcore.AsyncConnectionPool(
                ssl_context=self._ssl_context,
                max_connections=None,
                max_keepalive_connections=IDLE_CONNECTIONS,
                keepalive_expiry=self._settings.download_keepalive_timeout,
                network_backend=self._backend,
            )
        return pool

    def _mapped(self, error: Exception, target: Target) -> DownloadError:
        """The one place where foreign errors become ours."""
        system = None if isinstance(error, httpcore.ProtocolError) else system_error(error)
        words = words_of(system or error)
        if isinstance(system, socket.gaierror):
            mapped: DownloadError = NameNotResolved(f"the name {target.host!r} has no address ({words})")
        elif isinstance(system, ssl.SSLError) and isinstance(error, httpcore.ConnectError):
            mapped = tls_failure(system)
        elif isinstance(error, httpcore.RemoteProtocolError):
            mapped = ResponseBroken(protocol_words(words))
        else:
            kind, text = next((ours, text) for theirs, ours, text in _MAPPED if isinstance(error, theirs))
            settings = self._settings
            connect, read = settings.download_connect_timeout, settings.download_read_timeout
            mapped = kind(text.format(cause=words, connect=connect, read=read))
        mapped.__cause__ = error
        return mapped


class _Once:
    """A request's body in one piece; no generator, which a failing write would leave behind half-read."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def __aiter__(self) -> _Once:
        return self

    async def __anext__(self) -> bytes:
        body, self._body = self._body, b""
        if not body:
            raise StopAsyncIteration
        return body


class HTTP11Transport(httpx.AsyncBaseTransport):
    """Our own HTTP/1.1 for httpx's clients: ``httpx.AsyncClient(transport=HTTP11Transport())``. Runs on Trio only.

    Args:
        verify: As httpx has it: True, False, or the context that decides what servers are trusted.
        limits: As httpx has them.
        resolve: Looks names up; None: as the system does, in threads. What it says is remembered for a minute.

    It differs from httpx's own transport in that a 101 is an error, that names are remembered, that
    ``Expect: 100-continue`` is waited for, and that a safe request goes again when an idle connection turns out dead.
    """

    def __init__(
        self,
        *,
        verify: ssl.SSLContext | bool = True,
        limits: httpx.Limits = _LIMITS,
        resolve: Resolve | None = None,
    ) -> None:
        context = verify if isinstance(verify, ssl.SSLContext) else None
        keepalive, idle = limits.keepalive_expiry, limits.max_keepalive_connections
        pool = Pool(
            keepalive=inf if keepalive is None else keepalive, most_idle=room_for_idle() if idle is None else idle
        )
        self._streams = Streams(pool, Connector(resolve, context, verifies=bool(verify)), limits.max_connections)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send ``request`` and read the headers of the response. Always a checkpoint; cancelling drops the connection.

        Raises:
            httpx.TransportError: It failed; as httpx's own transport does.
        """
        timeouts = {
            name: inf if limit is None else limit for name, limit in request.extensions.get("timeout", {}).items()
        }
        url, fields, body = request.url, request.headers.raw, request.stream
        origin = f"{url.scheme}://{url.netloc.decode('ascii')}"
        assert isinstance(body, httpx.AsyncByteStream)
        with _as_httpx(request):
            question = Question(
                request.method.encode("ascii"), origin, url.raw_path, fields, body, Timeouts(**timeouts)
            )
            answer = await self._streams.ask(question)
        extensions = {"http_version": b"HTTP/" + answer.version.encode("ascii")}
        stream = _AnswerStream(answer, request)
        return httpx.Response(answer.status, headers=answer.fields, stream=stream, extensions=extensions)

    async def aclose(self) -> None:
        """Close the idle connections, and each other one when its response is closed."""
        await self._streams.aclose()


class _AnswerStream(httpx.AsyncByteStream):
    def __init__(self, answer: Answer, request: httpx.Request) -> None:
        self._answer = answer
        self._request = request

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self  # no generator, which a client that stops in the middle would leave behind

    async def __anext__(self) -> bytes:
        with _as_httpx(self._request):
            piece = await self._answer.receive()
        if not piece:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        self._answer.close()


@contextmanager
def _as_httpx(request: httpx.Request) -> Generator[None, None, None]:
    try:
        yield
    except StreamsError as error:
        raise getattr(httpx, error.failure.value)(str(error), request=request) from error


class _Backend(httpcore.AsyncNetworkBackend):
    """Opens our streams for httpcore."""

    def __init__(self, resolve: Resolve, guard: AddressGuard | None) -> None:
        self._resolve = resolve
        self._guard = guard

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        deadline = trio.current_time() + (inf if timeout is None else timeout)
        try:
            with trio.fail_at(deadline):
                stream = await dial(host, port, self._resolve, self._guard)
            peer: str = stream.socket.getpeername()[0]
        except trio.TooSlowError as error:
            raise httpcore.ConnectTimeout from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        return _Stream(stream, stream.socket, peer, deadline)

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)


class _Stream(httpcore.AsyncNetworkStream):
    """A connection as httpcore wants it, closed without waiting for the peer."""

    def __init__(self, stream: trio.abc.Stream, sock: trio.socket.SocketType, peer: str, deadline: float) -> None:
        self._stream = stream
        self._socket = sock
        self._peer = peer
        self._deadline = deadline
        self._is_refused = False
        self._is_start = False
        self.is_spoilt = False

    def refuse(self) -> None:
        """Read nothing more: the rest of the response is not wanted."""
        self._is_refused = True

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._is_refused:
            await trio.lowlevel.checkpoint()
            raise httpcore.ReadError("refused")
        try:
            with trio.fail_after(inf if timeout is None else timeout):
                data = bytes(await self._stream.receive_some(max_bytes))
        except trio.TooSlowError as error:
            raise httpcore.ReadTimeout from error
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise httpcore.ReadError(str(error)) from error
        if self._is_start:
            self._is_start = False
            if data and not data.startswith(_HTTP[: len(data)]):
                # The parser would wait for the end of the headers, which another protocol may never send.
                raise httpcore.RemoteProtocolError(f"illegal start: {data[:50]!r}")
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if not buffer:
            return
        self._is_start = True
        try:
            with trio.fail_after(inf if timeout is None else timeout):
                await self._stream.send_all(buffer)
        except trio.TooSlowError as error:
            raise httpcore.WriteTimeout from error
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise httpcore.WriteError(str(error)) from error

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        # https_compatible: no wait for the peer's goodbye, which web servers don't send.
        secure = trio.SSLStream(self._stream, ssl_context, server_hostname=server_hostname, https_compatible=True)
        try:
            try:
                with trio.fail_at(self._deadline):
                    await secure.do_handshake()
            except BaseException:
                await trio.aclose_forcefully(self._stream)
                raise
        except trio.TooSlowError as error:
            raise httpcore.ConnectTimeout from error
        except trio.BrokenResourceError as error:
            raise httpcore.ConnectError(str(error)) from error
        return _Stream(secure, self._socket, self._peer, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":  # asked before reuse: readable means closed, or that something came unasked
            return self.is_spoilt or self._is_refused or self._socket.is_readable()
        if info == "ssl_object":
            return self._stream if isinstance(self._stream, trio.SSLStream) else None
        if info == "server_addr":
            return self._peer
        return None
