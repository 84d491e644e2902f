"""One connection and its responses, one after another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from trawl.transport.http11.parser import ResponseParser
from trawl.transport.http11.pool import Site
from trawl.transport.http11.watch import Watch
from trawl.transport.http11.wire import Wire

__all__ = ["SAFE_METHODS", "Connect", "Connection"]

Connect = Callable[[Site], Awaitable[Wire]]
"""Opens a connection. Raises ``ConnectFailed``; when it is cancelled, it closes what it opened."""

EXPECT_WAIT = 1.0
"""Seconds that a request with ``Expect: 100-continue`` waits for the server's word before it sends its body."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})  # RFC 9110, 9.2.1


class Connection:
    """A wire with its parser. Hot: mutable.

    Attributes:
        wire: The bytes to and from the server.
        parser: Reads the present response.
        requests: Requests sent so far, the present one included.
        idle_since: When it was put back last; run clock.
    """

    __slots__ = ("idle_since", "parser", "requests", "wire")

    def __init__(self, wire: Wire) -> None:
        self.wire: Wire = wire
        self.parser: ResponseParser = ResponseParser()
        self.requests: int = 0
        self.idle_since: float = 0.0

    async def ask(self, head: bytes, *, is_head: bool = False, watch: Watch | None = None) -> None:
        """Send the beginning of a request; what came so far is forgotten. Not always a checkpoint.

        Args:
            head: What is sent.
            is_head: The method is HEAD.
            watch: Started before anything is waited for.

        Raises:
            OSError: The connection broke; the server may have answered all the same.
        """
        self.requests += 1
        self.parser.begin(is_head=is_head)
        sent = self.wire.send_nowait(head)
        if sent < len(head):
            if watch is not None:
                watch.start()
            await self.wire.send(head[sent:])

    async def receive(self, watch: Watch | None = None) -> None:
        """Wait for the next bytes of the response and parse them. Always a checkpoint.

        Args:
            watch: Started before anything is waited for.

        Raises:
            ResponseBroken: They are no response, or it ended early.
            OSError: The connection broke.
        """
        data = await self.wire.receive_soon()
        if data is None:
            if watch is not None:
                watch.start()
            data = await self.wire.receive()
        if data:
            self.parser.feed(data)
        else:
            self.parser.end()

    async def receive_word(self) -> None:
        """Wait, not for long, until the server asks for the body or answers without it (RFC 9110, 10.1.1).

        Raises what :meth:`receive` does.
        """
        parser = self.parser
        with trio.move_on_after(EXPECT_WAIT):
            while not (parser.has_head or parser.is_invited):
                await self.receive()

    @property
    def is_reusable(self) -> bool:
        """Whether the next request may go out on it: the response is whole, and nothing else came."""
        parser = self.parser
        return parser.is_complete and parser.is_keepable and not parser.has_excess

    def close(self) -> None:
        """Close it at once. Safe to call twice."""
        self.wire.close()
        self.parser.close()
