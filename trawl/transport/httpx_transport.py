"""The transport on httpcore: HTTP/2, and all kinds of proxies.

httpcore uses our own connections (:mod:`~trawl.transport.httpx_backend`). Its ``trace`` extension reports the times of
a request, and can delay the request before it is sent (:class:`RequestTrace`). ``Proxy-Authorization`` is sent only to
the proxy: in a ``CONNECT``, and in requests that need no tunnel.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import httpcore
import trio

from trawl.address_guard import AddressGuard
from trawl.errors import (
    BodyTooLarge,
    DownloadError,
    DownloadTimeout,
    RequestInvalid,
    ResponseBroken,
    UnsupportedScheme,
)
from trawl.http import SAFE_METHODS, Headers, Outcome, Request, Response, scheme_of, without_fragment
from trawl.transport.base import (
    ROOM_PAUSE,
    OnSent,
    Room,
    is_short_of_files,
    needs_new_connection,
    tell_written,
    wait_to_send,
)
from trawl.transport.body import Body, ResponseLimits, SinkWriter, sink_for
from trawl.transport.connect import allowed
from trawl.transport.content_encoding import accept_encoding
from trawl.transport.http11.message import ParsedUrl, wire_fields
from trawl.transport.httpx_backend import (
    BODY_BROKEN,
    DISCONNECTED,
    Pools,
    Route,
    Stream,
    is_foreign,
    mapped,
)
from trawl.transport.proxy import Proxy
from trawl.transport.resolver import Resolve, ThreadResolver, literal_address
from trawl.transport.settings import BindAddress, TransportSettings

__all__ = ["HttpxTransport"]

_WRITTEN = frozenset({"send_request_headers.complete", "send_request_body.complete"})

_FORBIDDEN = re.compile(rb"[\r\n\0]")

_CONNECTION_FIELDS = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"te", b"upgrade"})
"""Headers of HTTP/1.1 about the connection, which HTTP/2 does not allow (RFC 9113, 8.2.2)."""


class SendRefusedError(Exception):
    """The request must not be sent now (:data:`~trawl.transport.base.OnSent`)."""


class RequestTrace:
    """Records the times of one request, and calls ``on_sent`` when it is about to be sent.

    Pass it as httpcore's extension ``trace``. A ``CONNECT`` to a proxy does not count as the request.

    Attributes:
        is_new: Whether a connection was opened for the request.
        is_through: Whether a proxy has accepted the request, so that the proxy is not the cause of later errors.
    """

    def __init__(self, outcome: Outcome, on_sent: OnSent, whole: trio.CancelScope) -> None:
        self._outcome = outcome
        self._on_sent = on_sent
        self._whole = whole  # the timeout of the whole request
        self._is_connect = False
        self._has_waited = False
        self._close: Callable[[], None] | None = None
        self.is_new: bool = False
        self.is_through: bool = False
        self.has_sent: bool = False

    @property
    def is_stale(self) -> bool:
        """True if the connection was idle before the request or while it waited, and no response came."""
        return (not self.is_new or self._has_waited) and self.has_sent and self._outcome.first_byte_at is None

    async def __call__(self, event: str, details: Mapping[str, Any]) -> None:
        """Record an event of httpcore, or raise SendRefusedError if the request must not be sent now."""
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
                await self._sent(can_wait=where == "http11")  # HTTP/2 can't wait: it has opened a stream
        elif what in _WRITTEN:
            if self.has_sent:
                tell_written(self._on_sent)
        elif what == "receive_response_headers.complete" and self._is_connect:
            self.is_through = 200 <= details["return_value"][1] < 300
        elif what == "receive_response_headers.complete":
            outcome.first_byte_at = trio.current_time()

    def _put_off(self, seconds: float) -> None:
        self._whole.deadline += seconds

    def end(self) -> None:
        """Close a connection to a SOCKS proxy that refused the request, because httpcore leaves it open."""
        if self._close is not None:
            self._close()

    async def _sent(self, *, can_wait: bool) -> None:
        outcome = self._outcome
        if outcome.sent_at is None and (answer := self._on_sent()):
            began_at = trio.current_time()
            self._has_waited = True
            if not can_wait or await wait_to_send(self._on_sent, answer, self._put_off):
                raise SendRefusedError
            outcome.started_at += trio.current_time() - began_at
        self.has_sent = True
        if outcome.sent_at is not None:
            return
        outcome.sent_at = trio.current_time()
        if not self.is_new:
            outcome.started_at = outcome.sent_at


class _ResponseReader:
    """Reads the body of one response, after its headers were read.

    ``received`` is the body so far, still compressed, for an archive. An invalid status code or header is an error.
    """

    def __init__(
        self, request: Request, answer: httpcore.Response, outcome: Outcome, settings: TransportSettings
    ) -> None:
        _check(answer)
        self._request, self._answer, self._outcome = request, answer, outcome
        self._stream: Stream = answer.extensions["network_stream"]
        self.received: bytearray | None = None
        self._headers = Headers.from_wire(answer.headers)
        self._limits = ResponseLimits.of(settings).for_request(request)
        has_body = request.method != "HEAD" and answer.status not in {204, 304}
        self._sink = sink_for(request, answer.status) if has_body else None
        length = self._headers.get("Content-Length", "") if has_body else ""
        self._length = int(length) if length.isdecimal() else None
        outcome.size = len(_head_of(answer))

    async def read(self) -> Response:
        """Read the body and return the response. Raises DownloadError, or an error in ``BODY_BROKEN``."""
        writer = None if self._sink is None else SinkWriter(self._sink)
        try:
            self._body: Body = self._limits.body(self._headers.getlist("Content-Encoding"), self._length)
            if writer is None:
                return await self._read(None)
            async with writer:
                return await self._read(writer)
        finally:
            if self.received is not None:
                body = None if writer is not None and writer.has_begun else bytes(self.received)
                self._outcome.received = _head_of(self._answer), body

    async def _read(self, writer: SinkWriter | None) -> Response:
        answer, request = self._answer, self._request
        loss = await self._read_body(writer) or self._extra_data()
        body, flags = self._limits.finish(self._body, loss, request, is_cut=self._is_cut())
        make = Response if writer is None else await writer.end(body)
        return make(
            without_fragment(request.url),
            answer.status,
            self._headers,
            body,
            request,
            flags,
            self._outcome.latency,
            ip_address=self._stream.get_extra_info("server_addr"),
            protocol=answer.extensions.get("http_version", b"HTTP/1.1").decode("ascii"),
        )

    async def _read_body(self, writer: SinkWriter | None) -> DownloadError | None:
        """Read the body to its end, and return the error that ended it; None if there was none.

        After an error or a cancellation between two chunks, the stream refuses reads, so that httpcore's generators
        finish. The error is raised afterwards.
        """
        stopped: DownloadError | trio.Cancelled | None = None
        try:
            async for chunk in self._answer.aiter_stream():
                self._outcome.size += len(chunk)
                if self.received is not None and not (writer is not None and writer.has_begun):
                    self.received += chunk
                if stopped is None:
                    try:
                        await (self._body.feed(chunk) if writer is None else writer.feed(self._body, chunk))
                    except (DownloadError, trio.Cancelled) as error:  # noqa: ASYNC103 - raised below
                        stopped = error
                        self._stream.refuse()
        except BODY_BROKEN as error:
            if stopped is None:
                if self._limits.is_strict:
                    raise
                return ResponseBroken(str(error))
        if stopped is None or (self._limits.truncates and isinstance(stopped, BodyTooLarge)):
            return stopped
        raise stopped

    def _is_cut(self) -> bool:
        """Return whether the body ended because the connection was closed without a TLS ``close_notify``."""
        has_framing = self._length is not None or "transfer-encoding" in self._headers
        is_http1 = self._answer.extensions.get("http_version") != b"HTTP/2"  # HTTP/2 frames its bodies
        return self._stream.is_cut and is_http1 and not has_framing

    def _extra_data(self) -> DownloadError | None:
        """Return an error, and mark the connection as unusable, if extra bytes arrived (RFC 9112, 6.3); None otherwise.

        httpcore does not expose the bytes that remain in its parser, and would read them as the next response.
        """
        connection: Any = getattr(getattr(self._answer.stream, "_stream", None), "_connection", None)
        state = getattr(connection, "_h11_state", None)
        if state is None:  # HTTP/2 frames its bodies
            return None
        left, _ = state.trailing_data
        if not left:
            return None
        self._stream.is_spoilt = True
        if self._length is not None and left.strip(b"\r\n"):
            return ResponseBroken(f"more came than its Content-Length of {self._length} bytes")
        return None


def _head_of(answer: httpcore.Response) -> bytes:
    """Return the status line and the headers as received. For HTTP/2, return them in the form of HTTP/1.1.

    httpcore has removed the chunked framing, so ``Transfer-Encoding`` gets the name that archives use in this case.
    """
    version: bytes = answer.extensions.get("http_version", b"HTTP/1.1")
    reason: bytes = answer.extensions.get("reason_phrase", b"")
    lines = [b"%s %d %s" % (b"HTTP/1.1" if version == b"HTTP/2" else version, answer.status, reason)]
    for name, value in answer.headers:
        prefix = b"X-Archive-Orig-" if name.lower() == b"transfer-encoding" else b""
        lines.append(prefix + name + b": " + value)
    return b"\r\n".join([*lines, b"", b""])


def _check(answer: httpcore.Response) -> None:
    """Reject invalid status codes and headers that httpcore accepts (RFC 9113, 8.2.1; RFC 9110, 15)."""
    if not 200 <= answer.status <= 999:
        raise ResponseBroken(f"the response is broken: its status is {answer.status:03}")
    for name, value in answer.headers:
        if _FORBIDDEN.search(name) or _FORBIDDEN.search(value):
            raise ResponseBroken(f"the response is broken: the header {name[:50]!r} contains a line break")


class HttpxTransport:
    """Sends requests with httpcore, over HTTP/1.1 or HTTP/2, directly or through proxies.

    All arguments have the same meaning as in :class:`~trawl.transport.Http11Transport`. The setting ``HTTP2_ENABLED``
    also counts. A proxy looks up names itself, so with a proxy ``guard`` only checks addresses in URLs. The proxy
    itself may have any address.
    """

    def __init__(
        self,
        settings: TransportSettings,
        *,
        resolve: Resolve | None = None,
        ssl_context: ssl.SSLContext | None = None,
        guard: AddressGuard | None = None,
        room: Room | None = None,
        keeps_received: bool = False,
    ) -> None:
        self._keeps_received = keeps_received
        self._settings = settings
        self._guard = guard
        self._room = room
        self._pools = Pools(settings, resolve or ThreadResolver(), ssl_context, guard, self._any_room)
        self._accept_encoding = accept_encoding() if settings.compression_enabled else None

    async def send(self, request: Request, on_sent: OnSent) -> Outcome:
        """Send ``request`` once and read the whole response. A failure is the outcome's error.

        The request is sent through the proxy in ``request.meta["proxy"]``, if there is one. Cancelling drops the
        connection. Always a checkpoint.
        """
        outcome = Outcome(request, started_at=trio.current_time())
        limit = float(request.meta_get("download_timeout") or self._settings.download_timeout)
        failure: DownloadError | None = None
        with trio.move_on_after(limit) as whole:
            try:
                outcome.response = await self._exchange(request, outcome, on_sent, whole)
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
        """Close all connections without waiting for the peers. Safe to call twice."""
        await self._pools.aclose()

    async def make_room(self) -> bool:
        """Close an idle connection and return True, or return False if there is none. Not always a checkpoint."""
        return await self._pools.make_room()

    async def _any_room(self) -> bool:
        return await self.make_room() or (self._room is not None and await self._room())

    async def _exchange(
        self, request: Request, outcome: Outcome, on_sent: OnSent, whole: trio.CancelScope
    ) -> Response | None:
        await trio.lowlevel.checkpoint()
        scheme = scheme_of(request.url)
        if scheme not in {"http", "https"}:
            raise UnsupportedScheme(f"the scheme {scheme!r} is not fetched")
        parsed = ParsedUrl.of(request.url)
        route = self._route(request, parsed)
        proxy = route.proxy
        is_secure = scheme == "https" or (proxy is not None and proxy.scheme == "https")
        pool = await self._pools.get(route, is_secure=is_secure)
        for is_last in (True,) if needs_new_connection(on_sent) else (False, True):
            trace = RequestTrace(outcome, on_sent, whole)
            try:
                return await self._receive(pool, self._message(request, parsed, proxy, trace), outcome)
            except SendRefusedError:  # httpcore has closed the connection, unless other requests share it
                return None
            except Exception as error:
                if isinstance(error, DownloadError) or not is_foreign(error):
                    raise
                if trace.is_new and not trace.has_sent and is_short_of_files(error):
                    outcome.sent_at = None
                    await trio.sleep(ROOM_PAUSE)  # noqa: ASYNC120 - not an error, because nothing was sent
                    return None
                is_stale = trace.is_stale and isinstance(error, DISCONNECTED) and request.method in SAFE_METHODS
                if is_last or not is_stale:  # otherwise, try a new connection (RFC 9112, 9.3.1)
                    blamed = None if trace.is_through or trace.has_sent else proxy
                    raise mapped(error, parsed.host, blamed, self._settings) from error
                outcome.sent_at = None  # the next attempt counts as another send
            finally:
                trace.end()
        raise AssertionError  # the last attempt returns or raises

    async def _receive(
        self, pool: httpcore.AsyncConnectionPool, message: httpcore.Request, outcome: Outcome
    ) -> Response:
        answer = await pool.handle_async_request(message)
        try:
            reader = _ResponseReader(outcome.request, answer, outcome, self._settings)
            reader.received = bytearray() if self._keeps_received else None
            return await reader.read()
        finally:
            await answer.aclose()

    def _route(self, request: Request, parsed: ParsedUrl) -> Route:
        """Return the route of ``request``.

        Raises:
            RequestInvalid: If its proxy or ``bindaddress`` is invalid, or the proxy needs a missing package.
            AddressRefused: If it uses a proxy, and its URL has an address to which the crawl must not connect.
        """
        bind_address = BindAddress.for_request(request)
        url = request.meta_get("proxy")
        if not url:
            return Route(bind_address=bind_address)
        try:
            proxy = Proxy.of(str(url))
        except ValueError as error:
            raise RequestInvalid(str(error)) from error
        if proxy.scheme == "socks5" and find_spec("socksio") is None:
            raise RequestInvalid(f"the proxy {proxy} needs the socks extra: pip install 'trawl-crawler[socks]'")
        literal = literal_address(parsed.host, parsed.port)
        if self._guard is not None and literal is not None:
            allowed(parsed.host, [literal], self._guard)
        return Route(proxy, request.headers.get("Proxy-Authorization", ""), bind_address)

    def _message(
        self, request: Request, parsed: ParsedUrl, proxy: Proxy | None, trace: RequestTrace
    ) -> httpcore.Request:
        settings = self._settings
        fields = wire_fields(request, parsed, self._accept_encoding)
        if settings.http2_enabled and parsed.scheme == "https":
            fields = [field for field in fields if field[0].lower() not in _CONNECTION_FIELDS]
        times = {"connect": settings.download_connect_timeout, "read": settings.download_read_timeout}
        extensions = {"timeout": {**times, "write": times["read"]}, "trace": trace}
        host = parsed.host
        if proxy is None:
            extensions["sni_hostname"] = host.rstrip(".")  # not with a proxy, because a TLS proxy would get it too
        elif proxy.scheme != "socks5" and ":" in host:
            host = f"[{host}]"  # brackets are required in CONNECT and in the absolute form (RFC 9112, 3.2.3)
        return httpcore.Request(
            request.method,
            httpcore.URL(
                scheme=parsed.scheme.encode(),
                host=host.encode("ascii"),
                port=None if (parsed.scheme, parsed.port) == ("http", 80) else parsed.port,  # RFC 9110, 4.2.3
                target=parsed.path.encode("ascii"),
            ),
            headers=fields,
            content=_Once(request.body),
            extensions=extensions,
        )


class _Once:
    """A request's body as one chunk. It is not a generator, because a failed write would not finish a generator."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def __aiter__(self) -> _Once:
        return self

    async def __anext__(self) -> bytes:
        if not self._body:
            raise StopAsyncIteration
        body, self._body = self._body, b""
        return body
