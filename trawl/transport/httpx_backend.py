"""Our connections for httpcore, httpcore's pools, and the mapping of httpcore's errors.

Theory of operation: httpcore (the library below httpx) implements HTTP and keeps connections. It reads from and writes
to our :class:`Stream`. This gives four features for which httpcore has no option. Names are looked up by our own
resolver. Connecting and the handshake share one timeout. If the rest of a body is not wanted, the stream refuses
further reads, so that httpcore's generators end. And a connection that received extra data is never used again.

There is one pool for direct connections, one for each proxy, and one for each local address.

``httpx.AsyncHTTPTransport`` accepts no network backend (httpx 0.28), so it would need private attributes for all this,
and httpx's client takes 0.75 ms of processor time for a page of 5 kB, while httpcore takes 0.35 ms.

No module except this one and :mod:`~trawl.transport.httpx_transport` imports httpcore.
"""

from __future__ import annotations

import socket
import ssl
from collections import OrderedDict
from collections.abc import Iterable
from math import inf
from typing import Any

import attrs
import httpcore
import trio

from trawl.address_guard import AddressGuard
from trawl.errors import (
    ConnectFailed,
    ConnectTimeout,
    DownloadError,
    DownloadTimeout,
    NameNotResolved,
    ProxyFailed,
    ReadTimeout,
    ResponseBroken,
)
from trawl.transport.base import Room, is_short_of_files, protocol_words, system_error, tls_failure, words_of
from trawl.transport.connect import ConnectOptions, dial
from trawl.transport.http11.network_stream import client_context, is_cut
from trawl.transport.proxy import Proxy
from trawl.transport.resolver import Resolve
from trawl.transport.settings import BindAddress, TransportSettings

__all__ = ["BODY_BROKEN", "DISCONNECTED", "Backend", "Pools", "Route", "Stream", "is_foreign", "mapped"]

MAX_IDLE_DIRECT = 100
"""Direct connections above which idle ones are closed at once, so that a crawl does not run out of files."""

MAX_IDLE_PER_PROXY = 20
"""Number of connections to one proxy above which idle connections are closed immediately."""

MAX_PROXIES = 200
"""Maximum number of pools. The least recently used idle pool is closed first."""

_HTTP = b"HTTP/"
"""The start of every response (RFC 9112, 4)."""


class Backend(httpcore.AsyncNetworkBackend):
    """Opens streams for httpcore. If too many files are open, ``room`` closes an idle connection."""

    def __init__(
        self, resolve: Resolve, guard: AddressGuard | None, bind_address: BindAddress | None, room: Room
    ) -> None:
        self._resolve = resolve
        self._guard = guard
        self._room = room
        self._options = ConnectOptions(bind_address)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Open a connection to ``host``. Later TLS handshakes on it share ``timeout``. Always a checkpoint."""
        while True:
            deadline = trio.current_time() + (inf if timeout is None else timeout)
            try:
                with trio.fail_at(deadline):
                    stream = await dial(host, port, self._resolve, self._guard, self._options)
                peer = _peer_of(stream)
            except trio.TooSlowError as error:
                raise httpcore.ConnectTimeout from error
            except OSError as error:
                if is_short_of_files(error) and await self._room():  # noqa: ASYNC120
                    continue
                raise httpcore.ConnectError(str(error)) from error
            return Stream(stream, stream.socket, peer, deadline)

    async def sleep(self, seconds: float) -> None:
        """Sleep. Always a checkpoint."""
        await trio.sleep(seconds)


def _peer_of(stream: trio.SocketStream) -> str:
    try:
        peer: str = stream.socket.getpeername()[0]
    except OSError:  # the connection is already closed
        stream.socket.close()
        raise
    return peer


class Stream(httpcore.AsyncNetworkStream):
    """A connection for use by httpcore, closed without waiting for the peer.

    A connection that ``is_spoilt`` must not be used for another request. One that ``is_cut`` ended without the peer's
    TLS ``close_notify``.
    """

    def __init__(self, stream: trio.abc.Stream, sock: trio.socket.SocketType, peer: str, deadline: float) -> None:
        self._stream = stream
        self._socket = sock
        self._peer = peer
        self._deadline = deadline
        self._is_refused = False
        self._is_http1 = True
        self._is_start = False
        self.is_spoilt: bool = False
        self.is_cut: bool = False

    def refuse(self) -> None:
        """Refuse further reads, because the rest of the response is not wanted."""
        self._is_refused = True

    def close(self) -> None:
        """Close the connection without waiting and without notifying the peer."""
        self._socket.close()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Wait for the next bytes and return them; empty at the end. Always a checkpoint.

        Raises ``httpcore.RemoteProtocolError`` if a response does not start like HTTP, and ReadError if reads are
        refused.
        """
        if self._is_refused:
            await trio.lowlevel.checkpoint()
            raise httpcore.ReadError("refused")
        try:
            with trio.fail_at(self._until(timeout)):
                data = bytes(await self._stream.receive_some(max_bytes))
        except trio.TooSlowError as error:
            raise httpcore.ReadTimeout from error
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            if not is_cut(error):
                raise httpcore.ReadError(str(error)) from error
            self.is_cut, data = True, b""
        if self._is_start:
            self._is_start = False
            if data and not data.startswith(_HTTP[: len(data)]):
                # The parser would wait for the end of the headers, which another protocol may never send.
                raise httpcore.RemoteProtocolError(f"illegal start: {data[:50]!r}")
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of ``buffer``. A checkpoint unless it is empty."""
        if not buffer:
            return
        # The handshake with a SOCKS proxy is not HTTP. httpcore sends it without a timeout, unlike all other data.
        self._is_start = self._is_http1 and timeout is not None
        try:
            with trio.fail_at(self._until(timeout)):
                await self._stream.send_all(buffer)
        except trio.TooSlowError as error:
            raise httpcore.WriteTimeout from error
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise httpcore.WriteError(str(error)) from error

    def _until(self, timeout: float | None) -> float:
        """Return the deadline of a wait. A SOCKS handshake has no timeout and uses the deadline for connecting."""
        return self._deadline if timeout is None else trio.current_time() + timeout

    async def aclose(self) -> None:
        """Close the connection at once. Always a checkpoint."""
        await trio.aclose_forcefully(self._stream)

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Do the TLS handshake before the deadline for connecting, and return the stream over TLS."""
        name = server_hostname and server_hostname.strip("[]").rstrip(".")
        secure = trio.SSLStream(self._stream, ssl_context, server_hostname=name)
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
        upgraded = Stream(secure, self._socket, self._peer, self._deadline)
        upgraded._is_http1 = secure.selected_alpn_protocol() != "h2"
        return upgraded

    def get_extra_info(self, info: str) -> Any:
        """Return httpcore's ``is_readable``, ``ssl_object`` or ``server_addr``; None for any other name."""
        # httpcore asks for ``is_readable`` before it reuses a connection. A readable connection was closed by the peer,
        # or has unexpected data.
        if info == "is_readable":
            return self.is_spoilt or self._is_refused or self._socket.is_readable()
        if info == "ssl_object":  # httpcore only reads the ALPN protocol, which Trio's streams provide too
            return self._stream if isinstance(self._stream, trio.SSLStream) else None
        if info == "server_addr":
            return self._peer
        return None


@attrs.frozen
class Route:
    """The route of a request. ``authorization`` is its own ``Proxy-Authorization``; "" if it has none."""

    proxy: Proxy | None = None
    authorization: str = ""
    bind_address: BindAddress | None = None


class Pools:
    """Creates and keeps httpcore's pools. A missing TLS context is created when it is first needed."""

    def __init__(
        self,
        settings: TransportSettings,
        resolve: Resolve,
        ssl_context: ssl.SSLContext | None,
        guard: AddressGuard | None,
        room: Room,
    ) -> None:
        self._settings = settings
        self._resolve = resolve
        self._context = ssl_context
        self._guard = guard
        self._room = room
        self._pools: OrderedDict[tuple[Route, bool], httpcore.AsyncConnectionPool] = OrderedDict()

    async def get(self, route: Route, *, is_secure: bool) -> httpcore.AsyncConnectionPool:
        """Return the pool for ``route``. Not always a checkpoint.

        Args:
            route: The route of the request.
            is_secure: Whether TLS is used on any part of the route. Without TLS, no TLS context is created.
        """
        key = route, is_secure
        if key not in self._pools and len(self._pools) >= MAX_PROXIES:
            await self._close_oldest()
        pool = self._pools.get(key)  # another task may have created it while this task closed the oldest pool
        if pool is None:
            pool = self._pools[key] = self._make(route, is_secure=is_secure)
        self._pools.move_to_end(key)
        return pool  # use the pool before the next await, or it counts as unused

    async def aclose(self) -> None:
        """Close all connections. Does not wait for the peers."""
        while self._pools:
            _, pool = self._pools.popitem()
            await pool.aclose()
        await trio.lowlevel.checkpoint()

    async def make_room(self) -> bool:
        """Close an idle connection and return True, or return False if there is none. Not always a checkpoint."""
        for pool in self._pools.values():
            for connection in pool.connections:
                if connection.is_idle():
                    await connection.aclose()
                    return True
        return False

    async def _close_oldest(self) -> None:
        """Close the least recently used idle pool, if there is one."""
        for key, pool in self._pools.items():
            if all(connection.is_idle() for connection in pool.connections):
                del self._pools[key]
                await pool.aclose()
                return

    def _make(self, route: Route, *, is_secure: bool) -> httpcore.AsyncConnectionPool:
        settings, proxy = self._settings, route.proxy
        if is_secure and self._context is None:
            self._context = client_context(verifies=settings.download_verify_certificates)
        guard = self._guard if proxy is None else None  # a proxy may have any address
        bind_address = route.bind_address or settings.bind_address
        options: dict[str, Any] = {
            "ssl_context": self._context,
            "max_connections": None,  # throttling limits the number of connections in use
            "max_keepalive_connections": MAX_IDLE_DIRECT if proxy is None else MAX_IDLE_PER_PROXY,
            "keepalive_expiry": settings.download_keepalive_timeout,
            "http2": settings.http2_enabled,
            "network_backend": Backend(self._resolve, guard, bind_address, self._room),
        }
        if proxy is None:
            return httpcore.AsyncConnectionPool(**options)
        url = httpcore.URL(scheme=proxy.scheme.encode(), host=proxy.host.encode(), port=proxy.port, target=b"/")
        if proxy.scheme == "socks5":
            return httpcore.AsyncSOCKSProxy(proxy_url=url, proxy_auth=proxy.credentials, **options)
        own = [(b"Proxy-Authorization", route.authorization.encode("latin-1"))] if route.authorization else []
        return httpcore.AsyncHTTPProxy(
            proxy_url=url,
            proxy_auth=None if own else proxy.credentials,
            proxy_headers=own,
            proxy_ssl_context=self._context if proxy.scheme == "https" else None,
            **options,
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
"""httpcore's errors, each with trawl's error and its message. The first match counts."""

BODY_BROKEN = (httpcore.ProtocolError, httpcore.ReadError)
"""httpcore's errors for an incomplete body."""

DISCONNECTED = (httpcore.RemoteProtocolError, httpcore.ReadError, httpcore.WriteError)
"""httpcore's errors for a server that has closed an idle connection."""

_HTTP_2 = frozenset({"h2", "hpack", "hyperframe"})
_PACKAGES = _HTTP_2 | {"httpcore", "socksio"}
_SLIPS = (AssertionError, LookupError, ValueError)
"""Errors of httpcore and its dependencies for unexpected input."""

_NOT_REACHED = ("502 ", "503 ", "504 ", "unreachable", "Connection refused", "TTL expired", "not allowed", "403 ")
"""Responses of a working proxy that can't or may not reach the host."""


def is_foreign(error: Exception) -> bool:
    """Return whether httpcore (or a dependency) raised ``error`` because of the network or of received bytes."""
    return _package(error) in _PACKAGES or isinstance(error, _SLIPS)


def _package(error: object) -> str:
    return type(error).__module__.partition(".")[0]


def mapped(error: Exception, host: str, proxy: Proxy | None, settings: TransportSettings) -> DownloadError:
    """Return trawl's error for an error of httpcore or one of its dependencies.

    ``proxy`` is None if the error does not concern a proxy, for example because the proxy has accepted the request.
    """
    failure = _host_error(error, host, settings) if proxy is None else _proxy_error(error, proxy, settings)
    failure.__cause__ = error
    return failure


def _host_error(error: Exception, host: str, settings: TransportSettings) -> DownloadError:
    system = None if isinstance(error, httpcore.ProtocolError) else system_error(error)
    words = words_of(system or error)
    if isinstance(system, socket.gaierror):
        return NameNotResolved(f"the name {host!r} has no address ({words})")
    if isinstance(system, ssl.SSLError) and isinstance(error, httpcore.ConnectError):
        return tls_failure(system)
    inner = error.args[0] if isinstance(error, httpcore.LocalProtocolError) and error.args else error
    if isinstance(error, httpcore.RemoteProtocolError) or _package(inner) in _HTTP_2:
        return ResponseBroken(protocol_words(words))
    kind, text = next((ours, text) for theirs, ours, text in _MAPPED if isinstance(error, theirs))
    connect, read = settings.download_connect_timeout, settings.download_read_timeout
    return kind(text.format(cause=words, connect=connect, read=read))


def _proxy_error(error: Exception, proxy: Proxy, settings: TransportSettings) -> DownloadError:
    system = system_error(error)
    words = words_of(system or error)
    if isinstance(error, httpcore.ProxyError):
        reaches = not any(sign in words for sign in _NOT_REACHED)
        return ProxyFailed(f"the proxy {proxy} refuses: {words}", is_of_proxy=reaches)
    if isinstance(error, httpcore.TimeoutException):
        seconds = settings.download_connect_timeout
        return ProxyFailed(f"no connection through the proxy {proxy} within {seconds:g} s", is_of_proxy=True)
    if isinstance(system, ssl.SSLError):
        words = tls_failure(system).cause
    return ProxyFailed(f"no connection through the proxy {proxy}: {words}", is_of_proxy=True)
