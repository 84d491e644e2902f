"""The transport over httpx's connections: HTTP/2, and every kind of proxy.

Theory of operation: ``httpcore`` (what httpx itself sends with) speaks HTTP and keeps connections; httpx's client,
requests and URLs are left out, because they cost more than a page and write URLs anew. The connections under it are
ours (:mod:`~trawl.transport.httpx_.backend`).

What belongs to a proxy goes to the proxy only: ``Proxy-Authorization`` is part of the ``CONNECT`` that opens a tunnel,
or of a request that the proxy itself is to read, and of no request that goes through a tunnel or without a proxy.
"""

from __future__ import annotations

import ssl
from importlib.util import find_spec
from ipaddress import ip_address

import httpcore
import trio

from trawl.addresses import AddressGuard
from trawl.errors import AddressRefused, DownloadError, DownloadTimeout, RequestInvalid, UnsupportedScheme
from trawl.http import SAFE_METHODS, Outcome, Request, Response, scheme_of
from trawl.transport.base import NEW_CONNECTION, ROOM_PAUSE, OnSent, Room
from trawl.transport.decoding import accept_encoding
from trawl.transport.dial import Resolve, ThreadResolver, is_short_of_files
from trawl.transport.http11.tls import client_context
from trawl.transport.httpx_.backend import Backend
from trawl.transport.httpx_.failures import BODY_BROKEN, LEFT, Circumstances, is_foreign, mapped
from trawl.transport.httpx_.pools import Pools, Route
from trawl.transport.instants import HeldError, Instants
from trawl.transport.local_end import LocalEnd
from trawl.transport.proxy import Proxy
from trawl.transport.reading import Reading
from trawl.transport.settings import TransportSettings
from trawl.transport.target import Target, wire_fields

__all__ = ["HttpxTransport"]

_OF_CONNECTIONS = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"te", b"upgrade"})
"""Fields of a connection of HTTP/1.1, which HTTP/2 does not allow (RFC 9113, 8.2.2)."""


class HttpxTransport:
    """Sends requests by httpx's own means, within the limits of ``settings``: HTTP/1.1, HTTP/2, through proxies.

    Args:
        settings: Limits, and whether HTTP/2 is offered.
        resolve: Looks names up; None: as the system does, in threads.
        ssl_context: Decides what servers are trusted; None: those that certifi trusts, or ``SSL_CERT_FILE`` names, made
            when the first ``https`` URL is asked for.
        guard: Says which addresses may be connected to; None: all. Names are looked up by proxies, where there are
            any, so that there only addresses in URLs are looked at; a proxy itself may be anywhere.
        room: Closes an idle connection of somebody else's where we have none; None: there is nobody else.
    """

    def __init__(
        self,
        settings: TransportSettings,
        *,
        resolve: Resolve | None = None,
        ssl_context: ssl.SSLContext | None = None,
        guard: AddressGuard | None = None,
        room: Room | None = None,
    ) -> None:
        self._settings = settings
        self._guard = guard
        self._room = room
        resolve = resolve or ThreadResolver()
        verifies = settings.download_verify_certificates
        self._pools = Pools(
            direct=Backend(resolve, guard, settings.local_end, self._any_room),
            to_proxies=Backend(resolve, None, settings.local_end, self._any_room),
            ssl_context=lambda: ssl_context or client_context(verifies=verifies),
            keepalive=settings.download_keepalive_timeout,
            http2=settings.http2_enabled,
        )
        self._accept_encoding = accept_encoding() if settings.compression_enabled else None

    async def send(self, request: Request, on_sent: OnSent) -> Outcome:
        """Send ``request`` once and read the whole response; what goes wrong is the outcome's error.

        It goes through the proxy that ``request.meta["proxy"]`` names, if it names one. Cancelling drops the
        connection. Always a checkpoint.
        """
        outcome = Outcome(request, started_at=trio.current_time())
        limit = float(request.meta_get("download_timeout") or self._settings.download_timeout)
        failure: DownloadError | None = None
        with trio.move_on_after(limit) as whole:
            try:
                outcome.response = await self._exchange(request, outcome, on_sent)
            except DownloadError as error:
                failure = error
        if whole.cancelled_caught:
            failure = DownloadTimeout(f"not done within {limit:g} s")
        if failure is not None:
            failure.url, failure.method = request.url, request.method
            outcome.error = failure
        outcome.ended_at = trio.current_time()
        return outcome

    async def aclose(self) -> None:
        """Close every connection. Safe to call twice; does not wait for the peers."""
        await self._pools.aclose()

    async def make_room(self) -> bool:
        """Close a connection that is idle; whether there was one. Not always a checkpoint."""
        return await self._pools.make_room()

    async def _any_room(self) -> bool:
        return await self.make_room() or (self._room is not None and await self._room())

    async def _exchange(self, request: Request, outcome: Outcome, on_sent: OnSent) -> Response | None:
        await trio.lowlevel.checkpoint()
        scheme = scheme_of(request.url)
        if scheme not in {"http", "https"}:
            raise UnsupportedScheme(f"the scheme {scheme!r} is not fetched")
        target = Target.of(request.url)
        route, proxy = self._route(request, target)
        is_secure = scheme == "https" or (proxy is not None and proxy.scheme == "https")
        pool = await self._pools.get(route, proxy, is_secure=is_secure)
        for is_last in (True,) if request.meta_get(NEW_CONNECTION) else (False, True):
            instants = Instants(outcome, on_sent)
            try:
                return await self._converse(pool, self._message(request, target, proxy, instants), outcome)
            except HeldError:  # httpcore has closed the connection, unless others share it
                return None
            except Exception as error:
                if isinstance(error, DownloadError) or not is_foreign(error):
                    raise
                if instants.is_new and not instants.has_sent and is_short_of_files(error):
                    outcome.sent_at = None
                    await trio.sleep(ROOM_PAUSE)  # noqa: ASYNC120 - the error is none: it is not sent
                    return None
                is_stale = instants.is_stale and isinstance(error, LEFT) and request.method in SAFE_METHODS
                if is_last or not is_stale:  # else a new connection may do better (RFC 9112, 9.3.1)
                    shown = None if proxy is None else str(proxy)
                    around = Circumstances(target.host, shown, not instants.is_past_proxies, self._settings)
                    raise mapped(error, around) from error
                outcome.sent_at = None  # it goes again: a send like any other
            finally:
                instants.end()
        raise AssertionError  # the last try returns or raises

    async def _converse(
        self, pool: httpcore.AsyncConnectionPool, message: httpcore.Request, outcome: Outcome
    ) -> Response:
        answer = await pool.handle_async_request(message)
        try:
            return await Reading(outcome.request, answer, outcome, self._settings, BODY_BROKEN).response()
        finally:
            await answer.aclose()

    def _route(self, request: Request, target: Target) -> tuple[Route, Proxy | None]:
        """How ``request`` goes.

        Raises:
            RequestInvalid: Its proxy is none, or one that needs what is not installed; or its ``bindaddress`` is none.
            AddressRefused: It is to go through a proxy to an address that the crawl may not connect to.
        """
        local_end = LocalEnd.wished(request)
        url = request.meta_get("proxy")
        if not url:
            return Route(local_end=local_end), None
        try:
            proxy = Proxy.of(str(url))
        except ValueError as error:
            raise RequestInvalid(str(error)) from error
        if proxy.scheme == "socks5" and find_spec("socksio") is None:
            raise RequestInvalid(f"the proxy {proxy} needs the socks extra: pip install 'trawl-crawler[socks]'")
        if self._guard is not None and _is_address(target.host):
            refused = self._guard.refused(target.host, [target.host])
            for address, kind in refused.items():
                raise AddressRefused(f"refused: its address {address} is {kind} (see ALLOW_PRIVATE_ADDRESSES)")
        return Route(str(url), request.headers.get("Proxy-Authorization", ""), local_end), proxy

    def _message(self, request: Request, target: Target, proxy: Proxy | None, instants: Instants) -> httpcore.Request:
        settings = self._settings
        fields = wire_fields(request, target, self._accept_encoding)
        if settings.http2_enabled and target.scheme == "https":
            fields = [field for field in fields if field[0].lower() not in _OF_CONNECTIONS]
        times = {"connect": settings.download_connect_timeout, "read": settings.download_read_timeout}
        extensions = {"timeout": {**times, "write": times["read"]}, "trace": instants}
        host = target.host
        if proxy is None:
            extensions["sni_hostname"] = host.rstrip(".")  # httpcore would ask a TLS proxy for this name too
        elif proxy.scheme != "socks5" and ":" in host:
            host = f"[{host}]"  # as CONNECT and the whole URL want it (RFC 9112, 3.2.3)
        return httpcore.Request(
            request.method,
            httpcore.URL(
                scheme=target.scheme.encode(),
                host=host.encode("ascii"),
                port=target.port,
                target=target.path.encode("ascii"),
            ),
            headers=fields,
            content=_Once(request.body),
            extensions=extensions,
        )


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


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
