"""httpcore's pools: one for direct connections, one for each proxy, and for each address to come from."""

from __future__ import annotations

import ssl
from collections import OrderedDict
from collections.abc import Callable

import attrs
import httpcore
import trio

from trawl.transport.httpx_.backend import Backend
from trawl.transport.local_end import LocalEnd
from trawl.transport.proxy import Proxy

__all__ = ["Pools", "Route"]

IDLE_CONNECTIONS = 100
"""Direct connections beyond which an idle one is closed at once, so that a crawl does not run out of files."""

IDLE_A_PROXY = 20
"""The same for each proxy."""

MOST_PROXIES = 200
"""Proxies whose connections are kept; the one that was used longest ago is let go of first."""


@attrs.frozen
class Route:
    """How a request goes.

    Attributes:
        proxy: The proxy's URL as it was given; None: there is none.
        authorization: What the request itself says to the proxy (``Proxy-Authorization``); empty for nothing.
        local_end: Where connections come from, if not from where the others do.
    """

    proxy: str | None = None
    authorization: str = ""
    local_end: LocalEnd | None = None


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
        if key not in self._pools and len(self._pools) >= MOST_PROXIES:
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
        if route.local_end is not None:
            backend = backend.coming_from(route.local_end)
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
