"""Exchanges whose bodies are streams, for those who want them as they come: httpx's clients.

Theory of operation: as in :mod:`~trawl.transport.http11.transport` a connection is in the pool or in one hand, here
that of an :class:`StreamedResponse`, until its body has ended or it is closed. The caller's code runs
between two pieces, so no cancel scope can be held open from one to the next: each wait has its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import aclosing, contextmanager
from math import inf
from typing import Any

import trio

from trawl.errors import ConnectFailed, DownloadError, ResponseBroken
from trawl.http import SAFE_METHODS
from trawl.transport.http11.connection import Connect, Connection
from trawl.transport.http11.network_stream import NetworkStream
from trawl.transport.http11.parser import ReasonParser, ServerDisconnectedError
from trawl.transport.http11.pool import FileLimitError, Origin, Pool
from trawl.transport.http11.request_head import Failure, StreamedRequest, StreamError
from trawl.transport.response_limits import words_of

__all__ = ["StreamClient", "StreamedResponse"]

RETRY_PAUSE = 0.5
"""Seconds before connecting is tried the second time again; the first follows at once."""


@contextmanager
def _told() -> Generator[None, None, None]:
    """Turn what goes wrong with a connection into one kind of error."""
    try:
        yield
    except ConnectFailed as error:
        raise StreamError(Failure.CONNECT, error.cause) from error
    except DownloadError as error:
        raise StreamError(Failure.RESPONSE, error.cause) from error
    except OSError as error:
        raise StreamError(Failure.READ, words_of(error)) from error


async def _within(seconds: float, failure: Failure, step: Callable[[], Awaitable[Any]]) -> Any:
    """What ``step()`` returns; if it takes longer, it is an error of the kind ``failure``."""
    with trio.move_on_after(seconds):
        return await step()
    raise StreamError(failure, f"timed out after {seconds:g} s")


class StreamedResponse:
    """A response whose body has not been read: read it to its end, or close it.

    Attributes:
        status: The status code.
        version: ``"1.1"`` and the like.
        fields: As they came.
        reason: What the server says about the status; often empty.
    """

    def __init__(self, exchange: _Exchange) -> None:
        parser = exchange.connection.parser
        self.status: int = parser.status
        self.version: str = parser.version
        self.fields: list[tuple[bytes, bytes]] = parser.fields
        self.reason: bytes = parser.reason if isinstance(parser, ReasonParser) else b""
        self._exchange: _Exchange | None = exchange
        self._pieces: list[bytes] = []

    async def receive(self) -> bytes:
        """The next piece of the body, as it came and still compressed; empty at the end. Always a checkpoint.

        Cancelling closes the connection.

        Raises:
            StreamError: The body did not come to its end, or not in time.
        """
        has_waited = False
        while (exchange := self._exchange) is not None:
            parser = exchange.connection.parser
            self._pieces = self._pieces or parser.take()
            if self._pieces:
                break
            if parser.is_complete:
                self.close()
                break
            try:
                await exchange.receive()
                has_waited = True
            except BaseException:
                self.close()
                raise
        if not has_waited:
            await trio.lowlevel.checkpoint()
        return self._pieces.pop(0) if self._pieces and self._exchange is not None else b""

    def close(self) -> None:
        """Put the connection back if the body came to its end, else close it. Safe to call twice."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.close()


class StreamClient:
    """Sends requests over connections of a pool.

    Args:
        pool: The idle connections.
        connect: Opens new ones.
        most: Connections at once; who asks for more waits for a place. None means no limit.
        retries: How often connecting is tried again.
    """

    def __init__(self, pool: Pool, connect: Connect, most: int | None = None, *, retries: int = 0) -> None:
        self.pool = pool
        self.connect = connect
        self.retries = retries
        self.places: trio.CapacityLimiter = trio.CapacityLimiter(inf if most is None else most)

    async def ask(self, question: StreamedRequest) -> StreamedResponse:
        """Send the request and read the headers of the response. Cancelling drops the connection.

        A safe request without a body goes again if the server closed an idle connection instead of answering.

        Raises:
            StreamError: It failed.
        """
        try:
            origin = self.pool.origin(question.origin, question.server_name)
        except DownloadError as error:
            raise StreamError(Failure.SCHEME, error.cause) from error
        token = object()
        await _within(question.timeouts.pool, Failure.POOL_TIMEOUT, lambda: self.places.acquire_on_behalf_of(token))
        try:
            return StreamedResponse(await self._asked(origin, question, token))
        except BaseException:
            self.places.release_on_behalf_of(token)
            raise

    async def aclose(self) -> None:
        """Close what is idle, and each other connection when its exchange ends. A checkpoint."""
        self.pool.close()
        await trio.lowlevel.checkpoint()

    async def _asked(self, origin: Origin, question: StreamedRequest, token: object) -> _Exchange:
        connection = self.pool.take(origin, trio.current_time())
        is_reused = connection is not None
        while True:
            if connection is None:
                connection = Connection(await self._connected(origin, question.timeouts.connect), ReasonParser())
            exchange = _Exchange(self, origin, connection, question, token)
            try:
                await exchange.begin()
                return exchange
            except ServerDisconnectedError as error:
                connection.close()
                if not is_reused or question.has_body or question.method.decode() not in SAFE_METHODS:
                    kind = Failure.READ if isinstance(error.__cause__, OSError) else Failure.RESPONSE
                    raise StreamError(kind, str(error)) from error
                connection, is_reused = None, False
            except BaseException:
                connection.close()
                raise

    async def _connected(self, origin: Origin, seconds: float) -> NetworkStream:
        """A new connection, after as many tries as are allowed; the pauses between them double from 0.5 s, as httpx's.

        Raises:
            StreamError: There is none.
        """
        if self.places.borrowed_tokens + len(self.pool) > self.places.total_tokens:
            self.pool.make_room()
        tries = 1
        while True:
            try:
                with _told():
                    wire: NetworkStream = await _within(seconds, Failure.CONNECT_TIMEOUT, lambda: self.connect(origin))
                    return wire
            except StreamError as error:
                if isinstance(error.__cause__, FileLimitError) and self.pool.make_room():
                    continue
                if tries > self.retries or error.failure not in {Failure.CONNECT, Failure.CONNECT_TIMEOUT}:
                    raise
            await trio.sleep(0 if tries == 1 else RETRY_PAUSE * 2.0 ** (tries - 2))
            tries += 1


class _Exchange:
    """One request and response on one connection, and the place that they take."""

    def __init__(
        self, streams: StreamClient, origin: Origin, connection: Connection, question: StreamedRequest, token: object
    ) -> None:
        self._streams = streams
        self._site = origin
        self._question = question
        self._token = token
        self._is_last = b"close" in question.field(b"connection")
        self._broken: ResponseBroken | None = None
        self.connection = connection

    async def begin(self) -> None:
        """Send the request and read the headers.

        Raises:
            StreamError: It failed.
            ServerDisconnectedError: The connection ended before the first byte of the response.
        """
        parser = self.connection.parser
        with _told():
            await self._send()
        while not parser.has_head:
            await self.receive()

    async def receive(self) -> None:
        """Wait for what comes next. Raises what :meth:`begin` does."""
        parser = self.connection.parser
        had_head = parser.has_head
        with _told():
            if self._broken is not None:
                raise self._broken
            try:
                await _within(self._question.timeouts.read, Failure.READ_TIMEOUT, self.connection.receive)
            except ResponseBroken as error:
                if had_head or not parser.has_head:
                    raise
                self._broken = error  # its headers are all right: what is wrong came behind them in the same read

    async def _send(self) -> None:
        connection, question, has_asked = self.connection, self._question, False
        if question.has_body and b"100-continue" in question.field(b"expect"):
            has_asked = True
            await self._sent(question.head(), is_first=True)
            await connection.receive_word()
            if connection.parser.has_head:
                self._is_last = True
                return
        async with aclosing(question.written(with_head=not has_asked)) as pieces:
            async for piece in pieces:
                await self._sent(piece, is_first=not has_asked)
                has_asked = True
                if connection.broken is not None:
                    return

    async def _sent(self, piece: bytes, *, is_first: bool) -> None:
        connection, is_head = self.connection, self._question.method == b"HEAD"

        async def send() -> None:
            sent = connection.ask_nowait(piece, is_head=is_head) if is_first else 0
            if sent < len(piece):
                await connection.send(piece[sent:])

        await _within(self._question.timeouts.write, Failure.WRITE_TIMEOUT, send)

    def close(self) -> None:
        """Put the connection back if it can take another request, else close it, and free its place."""
        connection, pool = self.connection, self._streams.pool
        self._streams.places.release_on_behalf_of(self._token)
        if self._is_last or not connection.is_reusable:
            connection.close()
            return
        if connection.requests == 1:
            self._site.session = connection.wire.session()
        pool.give(self._site, connection, trio.current_time())
