"""Servers in memory whose output is a script. The client reads exactly the chunks of the script."""

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
"""A chunk that closes the connection."""

STALLS = b"(stalls)"
"""A chunk after which the server sends nothing more."""

RESETS = b"(resets)"
"""A chunk that breaks the connection."""

Script = Iterable[bytes | float]
"""The chunks that one connection reads. A number is a pause in seconds."""


@attrs.define
class Servers:
    """Scripted connections, one after another. The last script is used for all further connections.

    Attributes:
        scripts: The script of each connection.
        send_hook: Called after the client has sent data.
        sent: The data that the client has sent on each connection.
        opened: Number of connections so far.
        closed: Number of connections that the client has closed.
        cut: Number of these that the client has closed without sending pending data.
        sites: The origins of the connections.
        quiet: Whether idle connections receive no data.
        connect_seconds: Seconds that opening a connection takes.
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
        """Return the number of connections that the client has not closed."""
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
            await trio.sleep_until(due)  # after a cancellation, wait until the same time again
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
    """Return a transport that connects only to ``servers``."""
    return Http11Transport(settings or TransportSettings(), connect=servers.connect)
