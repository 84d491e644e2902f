"""Our own HTTP/1.1 for httpx's clients: the one module that imports httpx."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Generator, Iterable
from contextlib import contextmanager
from math import inf
from typing import Any

import httpx

from trawl.transport.bind_address import BindAddress
from trawl.transport.connect import ConnectOptions, Resolve
from trawl.transport.http11 import (
    Connector,
    Pool,
    StreamClient,
    StreamedRequest,
    StreamedResponse,
    StreamError,
    Timeouts,
    room_for_idle,
)

__all__ = ["HTTP11Transport"]

_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=5.0)
"""httpx's own."""


class HTTP11Transport(httpx.AsyncBaseTransport):
    """Our own HTTP/1.1 for httpx's clients: ``httpx.AsyncClient(transport=HTTP11Transport())``. Runs on Trio only.

    The arguments that httpx's own transport has mean what they mean there.

    Args:
        verify: True: servers are trusted that certifi trusts; False: all are; or an ``ssl.SSLContext`` that decides. A
            file or folder of certificates is taken with httpx's own warning.
        cert: Our own certificate: a file, or file and key, or those and a password. Taken with httpx's own warning:
            better load it into the context.
        trust_env: Whether ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` count.
        limits: How many connections there may be, how many of them idle, and for how long.
        uds: The path of a Unix socket that stands for every host.
        local_address: The address that connections come from.
        retries: How often connecting is tried again; what has been sent is not.
        socket_options: Level, option and value of ``setsockopt``, set before connecting.
        resolve: Looks names up; None: as the system does, in threads. What it says is remembered for a minute.

    It differs from httpx's own transport in that a 101 is an error, that names are remembered, that
    ``Expect: 100-continue`` is waited for, that a safe request goes again when an idle connection turns out dead, and
    that the extensions ``trace`` and ``network_stream`` are not there.
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
        if not isinstance(verify, bool) or cert is not None or not trust_env:  # else made when it is needed
            context = httpx.create_ssl_context(verify, cert, trust_env)
        keepalive, idle = limits.keepalive_expiry, limits.max_keepalive_connections
        pool = Pool(
            keepalive=inf if keepalive is None else keepalive, max_idle=room_for_idle() if idle is None else idle
        )
        bind_address = None if local_address is None else BindAddress(local_address)
        options = ConnectOptions(bind_address, tuple(socket_options or ()), uds)
        connect = Connector(resolve, context, verifies=bool(verify), options=options)
        self._streams = StreamClient(pool, connect, limits.max_connections, retries=retries)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send ``request`` and read the headers of the response. Always a checkpoint; cancelling drops the connection.

        Of its extensions, ``timeout``, ``sni_hostname`` and ``target`` are heeded.

        Raises:
            httpx.TransportError: It failed; as httpx's own transport does.
        """
        asked = request.extensions
        timeouts = {name: inf if limit is None else limit for name, limit in asked.get("timeout", {}).items()}
        url, fields, body = request.url, request.headers.raw, request.stream
        assert isinstance(body, httpx.AsyncByteStream)
        with _as_httpx(request):
            question = StreamedRequest(
                request.method.encode("ascii"),
                f"{url.scheme}://{url.netloc.decode('ascii')}",
                asked.get("target", url.raw_path),
                fields,
                body,
                Timeouts(**timeouts),
                asked.get("sni_hostname") or "",
            )
            answer = await self._streams.ask(question)
        extensions = {"http_version": b"HTTP/" + answer.version.encode("ascii"), "reason_phrase": answer.reason}
        stream = _BodyStream(answer, request)
        return httpx.Response(answer.status, headers=answer.fields, stream=stream, extensions=extensions)

    async def aclose(self) -> None:
        """Close the idle connections, and each other one when its response is closed."""
        await self._streams.aclose()


class _BodyStream(httpx.AsyncByteStream):
    def __init__(self, answer: StreamedResponse, request: httpx.Request) -> None:
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
    except StreamError as error:
        raise getattr(httpx, error.failure.value)(str(error), request=request) from error
