"""One connection and its responses, one after another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from trawl.transport.http11.parser import ResponseParser, ServerLeftError
from trawl.transport.http11.pool import Site
from trawl.transport.http11.watch import Watch
from trawl.transport.http11.wire import Wire
from trawl.transport.wording import words_of

__all__ = ["Connect", "Connection"]

Connect = Callable[[Site], Awaitable[Wire]]
"""Opens a connection. Raises ``ConnectFailed``; when it is cancelled, it closes what it opened."""

EXPECT_WAIT = 1.0
"""Seconds that a request with ``Expect: 100-continue`` waits for the server's word before it sends its body."""


class Connection:
    """A wire with its parser. Hot: mutable.

    Attributes:
        wire: The bytes to and from the server.
        parser: Reads the present response.
        requests: Requests sent so far, the present one included.
        idle_since: When it was put back last; run clock.
        broken: What the system said when it took no more of the request. The server may have answered all the same: one
            that refuses a body answers and closes while it is still sent.
    """

    __slots__ = ("broken", "idle_since", "parser", "requests", "wire")

    def __init__(self, wire: Wire, parser: ResponseParser | None = None) -> None:
        self.wire: Wire = wire
        self.parser: ResponseParser = parser or ResponseParser()
        self.requests: int = 0
        self.idle_since: float = 0.0
        self.broken: OSError | None = None

    def ask_nowait(self, data: bytes, *, is_head: bool = False) -> int:
        """Send the beginning of a request; return how much of ``data`` went. What came so far is forgotten."""
        self.requests += 1
        self.parser.begin(is_head=is_head)
        try:
            return self.wire.send_nowait(data)
        except OSError as error:
            self.broken = error
            return len(data)

    async def send(self, data: bytes) -> None:
        """Send more of a request. Not always a checkpoint."""
        try:
            await self.wire.send(data)
        except OSError as error:
            self.broken = error

    async def receive(self, watch: Watch | None = None) -> None:
        """Wait for the next bytes of the response and parse them. Always a checkpoint.

        Args:
            watch: Started before anything is waited for.

        Raises:
            ResponseBroken: They are no response, or it ended early.
            ServerLeftError: The connection broke or ended before the first byte of the response.
            OSError: The connection broke.
        """
        wire, parser = self.wire, self.parser
        try:
            data = await wire.receive_soon()
            if data is None:
                if watch is not None:
                    watch.start()
                data = await wire.receive()
        except OSError as error:
            if parser.has_started:
                raise
            raise ServerLeftError(f"the connection broke: {words_of(self.broken or error)}") from error
        if data:
            parser.feed(data)
        else:
            parser.end()

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
        return parser.is_complete and parser.is_keepable and not parser.has_excess and self.broken is None

    def close(self) -> None:
        """Close it at once. Safe to call twice."""
        self.wire.close()
        self.parser.close()
