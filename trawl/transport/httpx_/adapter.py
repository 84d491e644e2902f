"""Our own HTTP/1.1 for httpx's clients: the one module that imports httpx."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from math import inf

import httpx

from trawl.transport.dial import Resolve
from trawl.transport.http11 import Answer, Connector, Pool, Question, Streams, StreamsError, Timeouts, room_for_idle

__all__ = ["HTTP11Transport"]

_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=5.0)
"""httpx's own."""


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
