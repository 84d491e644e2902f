"""Connections of ours under httpcore (what httpx itself sends with).

Theory of operation: httpcore speaks HTTP and keeps connections. What it reads from and writes to is a stream of ours,
and that gives four things it has no option for: names are looked up by our own resolver, connecting and the handshake
share one time limit, a body that is refused ends by the stream refusing to be read (so no generator is left half-read),
and a connection on which too much came is never used again.

httpcore's pools: one for direct connections, one for each proxy, and for each address to come from.
"""

from __future__ import annotations

import ssl
from collections import OrderedDict
from collections.abc import Callable, Iterable
from math import inf
from typing import Any

import attrs
import httpcore
import trio

from trawl.addresses import AddressGuard
from trawl.transport.base import Room
from trawl.transport.connect import ConnectOptions, dial, is_short_of_files
from trawl.transport.proxy import Proxy
from trawl.transport.resolver import Resolve
from trawl.transport.settings import BindAddress

__all__ = ["Backend", "Pools", "Route"]

_HTTP = b"HTTP/"
"""What every answer begins with (RFC 9112, 4)."""


class Backend(httpcore.AsyncNetworkBackend):
    """Opens our streams for httpcore.

    Args:
        resolve: Looks names up.
        guard: Says which addresses may be connected to; None: all.
        bind_address: Where connections come from; None: the system chooses.
        room: Closes an idle connection where too many files are open; None: nobody does.
    """

    def __init__(
        self,
        resolve: Resolve,
        guard: AddressGuard | None,
        bind_address: BindAddress | None = None,
        room: Room | None = None,
    ) -> None:
        self._resolve = resolve
        self._guard = guard
        self._room = room
        self._options = ConnectOptions(bind_address)

    def coming_from(self, bind_address: BindAddress) -> Backend:
        """The same, but for where connections come from."""
        return Backend(self._resolve, self._guard, bind_address, self._room)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """A connection to ``host``; its handshakes belong to ``timeout``. Always a checkpoint.

        Raises:
            httpcore.ConnectTimeout: Not in time.
            httpcore.ConnectError: Nobody answered, or the name has no address.
        """
        while True:
            deadline = trio.current_time() + (inf if timeout is None else timeout)
            try:
                with trio.fail_at(deadline):
                    stream = await dial(host, port, self._resolve, self._guard, self._options)
                peer = _peer_of(stream)
            except trio.TooSlowError as error:
                raise httpcore.ConnectTimeout from error
            except OSError as error:
                if is_short_of_files(error) and self._room is not None and await self._room():  # noqa: ASYNC120
                    continue
                raise httpcore.ConnectError(str(error)) from error
            return _Stream(stream, stream.socket, peer, deadline)

    async def sleep(self, seconds: float) -> None:
        """Wait. Always a checkpoint."""
        await trio.sleep(seconds)


def _peer_of(stream: trio.SocketStream) -> str:
    try:
        peer: str = stream.socket.getpeername()[0]
    except OSError:  # it has gone already
        stream.socket.close()
        raise
    return peer


class _Stream(httpcore.AsyncNetworkStream):
    """A connection as httpcore wants it, closed without waiting for the peer."""

    def __init__(self, stream: trio.abc.Stream, sock: trio.socket.SocketType, peer: str, deadline: float) -> None:
        self._stream = stream
        self._socket = sock
        self._peer = peer
        self._deadline = deadline
        self._is_refused = False
        self._is_http1 = True
        self._is_start = False
        self.is_spoilt = False

    def refuse(self) -> None:
        """Read nothing more: the rest of the response is not wanted."""
        self._is_refused = True

    def close(self) -> None:
        """Close it at once, without a word to the peer."""
        self._socket.close()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._is_refused:
            await trio.lowlevel.checkpoint()
            raise httpcore.ReadError("refused")
        try:
            with trio.fail_at(self._until(timeout)):
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
        # What is said to a SOCKS proxy is no HTTP; one can tell by its having no limit.
        self._is_start = self._is_http1 and timeout is not None
        try:
            with trio.fail_at(self._until(timeout)):
                await self._stream.send_all(buffer)
        except trio.TooSlowError as error:
            raise httpcore.WriteTimeout from error
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise httpcore.WriteError(str(error)) from error

    def _until(self, timeout: float | None) -> float:
        """When a wait ends; what httpcore says to a SOCKS proxy, without any limit, belongs to connecting."""
        return self._deadline if timeout is None else trio.current_time() + timeout

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        name = server_hostname and server_hostname.strip("[]").rstrip(".")
        # https_compatible: no wait for the peer's goodbye, which web servers don't send.
        secure = trio.SSLStream(self._stream, ssl_context, server_hostname=name, https_compatible=True)
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
        upgraded = _Stream(secure, self._socket, self._peer, self._deadline)
        upgraded._is_http1 = secure.selected_alpn_protocol() != "h2"
        return upgraded

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":  # asked before reuse: readable means closed, or that something came unasked
            return self.is_spoilt or self._is_refused or self._socket.is_readable()
        if info == "ssl_object":  # asked for what ALPN has chosen, which Trio's streams tell as well
            return self._stream if isinstance(self._stream, trio.SSLStream) else None
        if info == "server_addr":
            return self._peer
        return None


IDLE_CONNECTIONS = 100
"""Direct connections beyond which an idle one is closed at once, so that a crawl does not run out of files."""

IDLE_A_PROXY = 20
"""The same for each proxy."""

MAX_PROXIES = 200
"""Proxies whose connections are kept; the one that was used longest ago is let go of first."""


@attrs.frozen
class Route:
    """How a request goes.

    Attributes:
        proxy: The proxy's URL as it was given; None: there is none.
        authorization: What the request itself says to the proxy (``Proxy-Authorization``); empty for nothing.
        bind_address: Where connections come from, if not from where the others do.
    """

    proxy: str | None = None
    authorization: str = ""
    bind_address: BindAddress | None = None


class Pools:
    """Makes pools and keeps them.

    Args:
        direct: Opens direct connections.
        to_proxies: Opens connections to proxies.
        ssl_context: Makes the context that decides what servers are trusted, when one is needed.
        keepalive: Seconds that a connection stays idle before it is closed.
        http2: Whether HTTP/2 is offered to servers.
    """

    def __init__(
        self,
        *,
        direct: Backend,
        to_proxies: Backend,
        ssl_context: Callable[[], ssl.SSLContext],
        keepalive: float,
        http2: bool,
    ) -> None:
        self._direct = direct
        self._to_proxies = to_proxies
        self._make_context = ssl_context
        self._keepalive = keepalive
        self._http2 = http2
        self._context: ssl.SSLContext | None = None
        self._pools: OrderedDict[tuple[Route, bool], httpcore.AsyncConnectionPool] = OrderedDict()

    async def get(self, route: Route, proxy: Proxy | None, *, is_secure: bool) -> httpcore.AsyncConnectionPool:
        """The pool for ``route``. Not always a checkpoint.

        Args:
            route: How the request goes.
            proxy: Its proxy, taken apart.
            is_secure: Whether there is TLS anywhere on the way: a crawl without makes no context for it.
        """
        key = route, is_secure
        if key not in self._pools and len(self._pools) >= MAX_PROXIES:
            await self._let_go()
        pool = self._pools.get(key)  # another task may have made it meanwhile
        if pool is None:
            pool = self._pools[key] = self._made(route, proxy, is_secure=is_secure)
        self._pools.move_to_end(key)
        return pool  # no await from here to its first connection: without one it would count as unused

    async def aclose(self) -> None:
        """Close every connection. Does not wait for the peers."""
        while self._pools:
            _, pool = self._pools.popitem()
            await pool.aclose()
        await trio.lowlevel.checkpoint()

    async def make_room(self) -> bool:
        """Close a connection that is idle; whether there was one. Not always a checkpoint."""
        for pool in self._pools.values():
            for connection in pool.connections:
                if connection.is_idle():
                    await connection.aclose()
                    return True
        return False

    async def _let_go(self) -> None:
        """Close the pool that was used longest ago and has nothing under way, if there is one."""
        for key, pool in self._pools.items():
            if all(connection.is_idle() for connection in pool.connections):
                del self._pools[key]
                await pool.aclose()
                return

    def _made(self, route: Route, proxy: Proxy | None, *, is_secure: bool) -> httpcore.AsyncConnectionPool:
        if is_secure and self._context is None:
            self._context = self._make_context()
        backend = self._direct if proxy is None else self._to_proxies
        if route.bind_address is not None:
            backend = backend.coming_from(route.bind_address)
        if proxy is None:
            return httpcore.AsyncConnectionPool(
                ssl_context=self._context,
                max_connections=None,  # nothing caps how many there are: throttling does
                max_keepalive_connections=IDLE_CONNECTIONS,
                keepalive_expiry=self._keepalive,
                http2=self._http2,
                network_backend=backend,
            )
        url = httpcore.URL(scheme=proxy.scheme.encode(), host=proxy.host.encode(), port=proxy.port, target=b"/")
        if proxy.scheme == "socks5":
            return httpcore.AsyncSOCKSProxy(
                proxy_url=url,
                proxy_auth=proxy.credentials,
                ssl_context=self._context,
                max_connections=None,
                max_keepalive_connections=IDLE_A_PROXY,
                keepalive_expiry=self._keepalive,
                http2=self._http2,
                network_backend=backend,
            )
        own = [(b"Proxy-Authorization", route.authorization.encode("latin-1"))] if route.authorization else []
        return httpcore.AsyncHTTPProxy(
            proxy_url=url,
            proxy_auth=None if own else proxy.credentials,
            proxy_headers=own,
            ssl_context=self._context,
            proxy_ssl_context=self._context if proxy.scheme == "https" else None,
            max_connections=None,
            max_keepalive_connections=IDLE_A_PROXY,
            keepalive_expiry=self._keepalive,
            http2=self._http2,
            network_backend=backend,
        )
