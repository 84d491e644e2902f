"""Servers in memory: what they send is a script, read in exactly the pieces that it has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import attrs
import trio
from trio.testing import MemoryReceiveStream, MemorySendStream

from trawl.transport import TransportSettings
from trawl.transport.http11 import Http11Transport
from trawl.transport.http11.network_stream import NetworkStream, TrioStream
from trawl.transport.http11.pool import Origin

__all__ = ["CLOSES", "RESETS", "STALLS", "Script", "Servers", "transport_to"]

CLOSES = b"(closes)"
"""A piece that means: the server closes."""

STALLS = b"(stalls)"
"""A piece that means: the server says nothing more."""

RESETS = b"(resets)"
"""A piece that means: the connection breaks."""

Script = Iterable[bytes | float]
"""The pieces that one connection reads; a number is that many seconds of silence."""


@attrs.define
class Servers:
    """Scripted connections, one after another; the last script is for all that follow.

    Attributes:
        scripts: What each connection reads.
        send_hook: Called after the client has sent something.
        sent: What the client has sent on each connection.
        opened: Connections so far.
        closed: Those that the client has closed.
        cut: Those of them that it has cut, with what was not sent.
        sites: Whom they were opened to.
        quiet: Whether nothing comes on idle connections.
        connect_seconds: How long it takes to connect.
    """

    scripts: list[Script]
    send_hook: Callable[[], Awaitable[None]] | None = None
    sent: list[bytes] = attrs.Factory(list)
    opened: int = 0
    closed: int = 0
    cut: int = 0
    sites: list[str] = attrs.Factory(list)
    quiet: bool = True
    connect_seconds: float = 0.0

    @property
    def left_open(self) -> int:
        """Connections that the client has not closed."""
        return self.opened - self.closed

    async def connect(self, origin: Origin) -> NetworkStream:
        """Open the next connection."""
        await trio.sleep(self.connect_seconds)
        number = self.opened
        self.opened += 1
        self.sites.append(origin.key)
        self.sent.append(b"")
        due = 0.0
        pieces = iter(self.scripts[min(number, len(self.scripts) - 1)])

        async def give_next() -> None:
            nonlocal due
            await trio.sleep_until(due)  # again after a cancel, as long as before
            while isinstance(piece := next(pieces, CLOSES), float):
                due = trio.current_time() + piece
                await trio.sleep_until(due)
            if piece == STALLS:
                await trio.sleep_forever()
            elif piece == RESETS:
                raise trio.BrokenResourceError from ConnectionResetError(104, "Connection reset by peer")
            elif piece == CLOSES:
                receiving.put_eof()
            else:
                receiving.put_data(piece)

        async def note() -> None:
            self.sent[number] += sending.get_data_nowait()
            if self.send_hook is not None:
                await self.send_hook()

        sending, receiving = MemorySendStream(note), MemoryReceiveStream(give_next)
        is_open = True

        def close(is_cut: bool) -> None:
            nonlocal is_open
            self.closed += is_open
            self.cut += is_open and is_cut
            is_open = False
            sending.close()
            receiving.close()

        stream: trio.StapledStream[MemorySendStream, MemoryReceiveStream] = trio.StapledStream(sending, receiving)
        return TrioStream(stream, close=close, is_quiet=lambda: self.quiet and is_open, peer="192.0.2.1")


def transport_to(servers: Servers, settings: TransportSettings | None = None) -> Http11Transport:
    """A transport whose every connection is one of ``servers``."""
    return Http11Transport(settings or TransportSettings(), connect=servers.connect)
