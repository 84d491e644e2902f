"""The seam between the crawl and the wire.

Above it there are trawl's own requests and outcomes only; below it any HTTP library, or the simulated web.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from trawl.http import Outcome, Request

__all__ = ["NEW_CONNECTION", "ROOM_PAUSE", "OnSent", "Room", "Transport", "tell_written"]

NEW_CONNECTION = "transport_new_connection"
"""Meta key: it met a dead connection before and had to wait for another turn, which is not to happen to it for ever.

So it goes out on a new connection, or, where a transport can't say, once and no more."""

OnSent = Callable[[], bool | None]
"""Called synchronously at the moment the request goes to the wire (after connecting); again if it goes there again.

A request of a safe method goes again where an old connection turns out to be dead; that is a send like any other.

Where it answers True the request must not go after all: a server has said "slow down" while the connection was made
(D01, B03), or it is too early to go again. The transport then keeps the connection for whoever comes next, if it can,
and returns an outcome with neither response, error nor ``sent_at``. The engine asks again later. So does a transport
that can open no connection because this process has too many files open, which is no fault of the host.

It may have a method ``written``, to be called without arguments when the write has ended (:func:`tell_written`).
"""

ROOM_PAUSE = 0.5
"""Seconds that a request waits which can't be sent for want of a file, before it gives up its turn."""

Room = Callable[[], Awaitable[bool]]
"""Closes an idle connection; whether there was one. Not always a checkpoint."""


def tell_written(on_sent: OnSent) -> None:
    """Say that the request has been written: its head, and again its body if that goes by itself.

    On a busy machine there may be tens of milliseconds between the two ends of a write, and a server sees the later
    one. A delay that is counted from the earlier one would put the next request that much too close.
    """
    written: Callable[[], None] | None = getattr(on_sent, "written", None)
    if written is not None:
        written()


class Transport(Protocol):
    """Sends requests over some wire."""

    async def send(self, request: Request, on_sent: OnSent) -> Outcome:
        """Send ``request`` once and read the whole response; or not at all, where ``on_sent`` says so.

        What the network does wrong is an outcome with an error from :mod:`trawl.errors`, never an exception. Redirects
        are not followed. The body has been read (and decompressed) within its limits when this returns: a large one of
        a 2xx response into ``request.sink``, if there is one and the transport knows of it, all others into memory.
        Cancelling drops the connection. Always a checkpoint.
        """
        ...

    async def aclose(self) -> None:
        """Close what is kept open. Safe to call twice; does not wait for the peer."""
        ...
