"""The transport over httpx's connections: HTTP/2, and every kind of proxy.

Theory of operation: ``httpcore`` (what httpx itself sends with) speaks HTTP and keeps connections; httpx's client,
requests and URLs are left out, because they cost more than a page and write URLs anew. The connections under it are
ours (:mod:`~trawl.transport.httpx_.backend`).

What belongs to a proxy goes to the proxy only: ``Proxy-Authorization`` is part of the ``CONNECT`` that opens a tunnel,
or of a request that the proxy itself is to read, and of no request that goes through a tunnel or without a proxy.

The timings of one exchange, noted as httpcore passes them.

A response of httpcore's, read whole and within its limits; without importing it.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, MutableMapping
from importlib.util import find_spec
from ipaddress import ip_address
from typing import Any, Protocol

import httpcore
import trio

from trawl.addresses import AddressGuard
from trawl.errors import (
    AddressRefused,
    BodyTooLarge,
    DownloadError,
    DownloadTimeout,
    RequestInvalid,
    ResponseBroken,
    UnsupportedScheme,
)
from trawl.http import SAFE_METHODS, BodySink, Headers, Outcome, Request, Response, scheme_of
from trawl.transport.base import NEW_CONNECTION, ROOM_PAUSE, OnSent, Room, tell_written
from trawl.transport.body import ResponseLimits, SinkWriter, sink_for
from trawl.transport.connect import is_short_of_files
from trawl.transport.content_encoding import accept_encoding
from trawl.transport.http11.pool import client_context
from trawl.transport.http11.request_head import Target, wire_fields
from trawl.transport.httpx_.backend import Backend, Pools, Route
from trawl.transport.httpx_.errors import BODY_BROKEN, LEFT, ErrorContext, is_foreign, mapped
from trawl.transport.proxy import Proxy
from trawl.transport.resolver import Resolve, ThreadResolver
from trawl.transport.settings import BindAddress, TransportSettings

__all__ = ["Answer", "HttpxTransport", "NotSentError", "Refusable", "RequestTimings", "ResponseReader"]

_WRITTEN = frozenset({"send_request_headers.complete", "send_request_body.complete"})


class NotSentError(Exception):
    """The request must not go to the wire now (:data:`~trawl.transport.base.OnSent`)."""


class RequestTimings:
    """Notes the timings of one exchange, and tells that the request goes to the wire.

    What httpcore says to a proxy before that (``CONNECT``) is not the request.

    Attributes:
        is_new: A connection was opened for it.
        is_through: A proxy has let it through, so that what goes wrong from now on is between us and the server.
        has_sent: It has gone to the wire.
    """

    __slots__ = ("_close", "_is_connect", "_on_sent", "_outcome", "has_sent", "is_new", "is_through")

    def __init__(self, outcome: Outcome, on_sent: OnSent) -> None:
        self._outcome = outcome
        self._on_sent = on_sent
        self._is_connect = False
        self._close: Callable[[], None] | None = None
        self.is_new: bool = False
        self.is_through: bool = False
        self.has_sent: bool = False

    @property
    def is_stale(self) -> bool:
        """Whether it was sent on a connection that had been idle, and nothing came back."""
        return not self.is_new and self.has_sent and self._outcome.first_byte_at is None

    @property
    def is_past_proxies(self) -> bool:
        """Whether no proxy is to blame for what goes wrong."""
        return self.is_through or self.has_sent

    async def __call__(self, event: str, details: Mapping[str, Any]) -> None:
        """Called by httpcore as things happen.

        Raises:
            NotSentError: It is about to be sent, and must not be.
        """
        where, _, what = event.partition(".")
        outcome = self._outcome
        if what == "connect_tcp.started":
            self.is_new = True
            outcome.started_at = trio.current_time()
        elif what == "connect_tcp.complete" and where == "socks":
            self._close = details["return_value"].close
        elif what == "setup_socks5_connection.complete":
            self._close = None
            self.is_through = True
        elif what == "send_request_headers.started":
            self._is_connect = details["request"].method == b"CONNECT"
            if not self._is_connect:
                self._sent()
        elif what in _WRITTEN:
            if self.has_sent:
                tell_written(self._on_sent)
        elif what == "receive_response_headers.complete" and self._is_connect:
            self.is_through = 200 <= details["return_value"][1] < 300
        elif what == "receive_response_headers.complete":
            outcome.first_byte_at = trio.current_time()

    def end(self) -> None:
        """Close what httpcore leaves open: a connection to a SOCKS proxy that would not do what it was asked."""
        if self._close is not None:
            self._close()

    def _sent(self) -> None:
        outcome = self._outcome
        if outcome.sent_at is None and self._on_sent():
            raise NotSentError
        self.has_sent = True
        if outcome.sent_at is not None:
            return
        outcome.sent_at = trio.current_time()
        if not self.is_new:
            outcome.started_at = outcome.sent_at


_FORBIDDEN = re.compile(rb"[\r\n\0]")


class Answer(Protocol):
    """What is used of ``httpcore.Response``."""

    status: int
    headers: list[tuple[bytes, bytes]]
    stream: Any
    extensions: MutableMapping[str, Any]

    def aiter_stream(self) -> AsyncIterator[bytes]:
        """The pieces of the body."""
        ...


class Refusable(Protocol):
    """What is used of the stream that we gave httpcore."""

    is_spoilt: bool

    def refuse(self) -> None:
        """Read nothing more."""
        ...


def _check(answer: Answer) -> None:
    """Refuse what HTTP/2 can carry and httpcore lets pass (RFC 9113, 8.2.1; RFC 9110, 15).

    Raises:
        ResponseBroken: The sentence says what it is.
    """
    if not 200 <= answer.status <= 999:
        raise ResponseBroken(f"the answer is broken: its status is {answer.status:03}")
    for name, value in answer.headers:
        if _FORBIDDEN.search(name) or _FORBIDDEN.search(value):
            raise ResponseBroken(f"the answer is broken: the field {name[:50]!r} holds a line end")


class ResponseReader:
    """One response from its headers to its end.

    Args:
        request: What was asked.
        answer: The response, its body unread.
        outcome: Tells how long it took.
        settings: ResponseLimits.
        broken: The errors that mean that the body did not come to its end.

    Raises:
        ResponseBroken: Its status or its fields are none.
    """

    def __init__(
        self,
        request: Request,
        answer: Answer,
        outcome: Outcome,
        settings: TransportSettings,
        broken: tuple[type[Exception], ...],
    ) -> None:
        self._request = request
        self._answer = answer
        self._broken = broken
        self._outcome = outcome
        _check(answer)
        self._headers = Headers.from_wire(answer.headers)
        self._limits = ResponseLimits.of(settings).for_request(request)
        self._has_body = request.method != "HEAD" and answer.status not in {204, 304}
        length = self._headers.get("Content-Length", "") if self._has_body else ""
        self._length = int(length) if length.isdecimal() else None
        self._body = self._limits.body(self._headers.getlist("Content-Encoding"), self._length)

    def response(self) -> Coroutine[Any, Any, Response]:
        """Read the body and make the response, when awaited.

        Raises:
            DownloadError: It is larger than it may be, or broken.
            Exception: One of ``broken``.
        """
        sink = sink_for(self._request, self._answer.status) if self._has_body else None
        return self._whole(None) if sink is None else self._written_to_sink(sink)

    async def _written_to_sink(self, sink: BodySink) -> Response:
        async with SinkWriter(sink) as writer:
            return await self._whole(writer)

    async def _whole(self, writer: SinkWriter | None) -> Response:
        answer, request = self._answer, self._request
        stream = answer.extensions["network_stream"]
        loss = await self._read(stream, writer) or self._extra_data(stream)
        body, flags = self._limits.finish(self._body, loss, request)
        make = Response if writer is None else await writer.end(body)
        return make(
            request.url,
            answer.status,
            self._headers,
            body,
            request,
            flags,
            self._outcome.latency,
            ip_address=stream.get_extra_info("server_addr"),
            protocol=answer.extensions.get("http_version", b"HTTP/1.1").decode("ascii"),
        )

    async def _read(self, stream: Refusable, writer: SinkWriter | None) -> DownloadError | None:
        """Read the body to its end; return what is wrong with its end.

        Whatever happens between two pieces, a cancellation included, httpcore's generators are to come to their end,
        which they do when their stream refuses to be read; only then it is told.
        """
        refused: DownloadError | None = None
        cancelled: trio.Cancelled | None = None
        try:
            async for chunk in self._answer.aiter_stream():
                if refused is None and cancelled is None:
                    try:
                        await (self._body.feed(chunk) if writer is None else writer.feed(self._body, chunk))
                    except DownloadError as error:
                        refused = error
                        stream.refuse()
                    except trio.Cancelled as error:  # noqa: ASYNC103 - raised when the generators have ended
                        cancelled = error
                        stream.refuse()
        except self._broken as error:
            if refused is None and cancelled is None:
                if self._limits.is_strict:
                    raise
                return ResponseBroken(str(error))
        if cancelled is not None:
            raise cancelled
        if refused is not None and not (self._limits.truncates and isinstance(refused, BodyTooLarge)):
            raise refused
        return refused

    def _extra_data(self, stream: Refusable) -> DownloadError | None:
        """Note that more came than the response's framing says; the connection is then dropped (RFC 9112, 6.3).

        httpcore shows what its parser has left to nobody, and would read it as the next response.
        """
        connection: Any = getattr(getattr(self._answer.stream, "_stream", None), "_connection", None)
        state = getattr(connection, "_h11_state", None)
        if state is None:  # HTTP/2 frames its bodies
            return None
        left, _ = state.trailing_data
        if not left:
            return None
        stream.is_spoilt = True
        if self._length is not None and left.strip(b"\r\n"):
            return ResponseBroken(f"more came than its Content-Length of {self._length} bytes")
        return None


_OF_CONNECTIONS = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"te", b"upgrade"})
"""Fields of a connection of HTTP/1.1, which HTTP/2 does not allow (RFC 9113, 8.2.2)."""


class HttpxTransport:
    """Sends requests by httpx's own means, within the limits of ``settings``: HTTP/1.1, HTTP/2, through proxies.

    Args:
        settings: ResponseLimits, and whether HTTP/2 is offered.
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
            direct=Backend(resolve, guard, settings.bind_address, self._any_room),
            to_proxies=Backend(resolve, None, settings.bind_address, self._any_room),
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
            timings = RequestTimings(outcome, on_sent)
            try:
                return await self._converse(pool, self._message(request, target, proxy, timings), outcome)
            except NotSentError:  # httpcore has closed the connection, unless others share it
                return None
            except Exception as error:
                if isinstance(error, DownloadError) or not is_foreign(error):
                    raise
                if timings.is_new and not timings.has_sent and is_short_of_files(error):
                    outcome.sent_at = None
                    await trio.sleep(ROOM_PAUSE)  # noqa: ASYNC120 - the error is none: it is not sent
                    return None
                is_stale = timings.is_stale and isinstance(error, LEFT) and request.method in SAFE_METHODS
                if is_last or not is_stale:  # else a new connection may do better (RFC 9112, 9.3.1)
                    shown = None if proxy is None else str(proxy)
                    around = ErrorContext(target.host, shown, not timings.is_past_proxies, self._settings)
                    raise mapped(error, around) from error
                outcome.sent_at = None  # it goes again: a send like any other
            finally:
                timings.end()
        raise AssertionError  # the last try returns or raises

    async def _converse(
        self, pool: httpcore.AsyncConnectionPool, message: httpcore.Request, outcome: Outcome
    ) -> Response:
        answer = await pool.handle_async_request(message)
        try:
            return await ResponseReader(outcome.request, answer, outcome, self._settings, BODY_BROKEN).response()
        finally:
            await answer.aclose()

    def _route(self, request: Request, target: Target) -> tuple[Route, Proxy | None]:
        """How ``request`` goes.

        Raises:
            RequestInvalid: Its proxy is none, or one that needs what is not installed; or its ``bindaddress`` is none.
            AddressRefused: It is to go through a proxy to an address that the crawl may not connect to.
        """
        bind_address = BindAddress.for_request(request)
        url = request.meta_get("proxy")
        if not url:
            return Route(bind_address=bind_address), None
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
        return Route(str(url), request.headers.get("Proxy-Authorization", ""), bind_address), proxy

    def _message(
        self, request: Request, target: Target, proxy: Proxy | None, trace: RequestTimings
    ) -> httpcore.Request:
        settings = self._settings
        fields = wire_fields(request, target, self._accept_encoding)
        if settings.http2_enabled and target.scheme == "https":
            fields = [field for field in fields if field[0].lower() not in _OF_CONNECTIONS]
        times = {"connect": settings.download_connect_timeout, "read": settings.download_read_timeout}
        extensions = {"timeout": {**times, "write": times["read"]}, "trace": trace}
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
