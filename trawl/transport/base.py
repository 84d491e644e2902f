"""The interface between the crawl and the wire, and what all transports need: the errors of others read.

Above it there are only trawl's own requests and outcomes; below it any HTTP library, or the simulated web.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from trawl.errors import ConnectFailed, DownloadError, TLSFailed
from trawl.http import Outcome, Request

__all__ = [
    "ROOM_PAUSE",
    "OnSent",
    "Room",
    "Transport",
    "is_short_of_files",
    "needs_new_connection",
    "protocol_words",
    "system_error",
    "tell_written",
    "tls_failure",
    "wait_to_send",
    "words_of",
]

OnSent = Callable[[], bool | float | None]
"""Called synchronously at the moment the request goes to the wire (after connecting), and each time it goes again.

A request of a safe method goes again if an old connection turns out to be dead; that is a send like any other.

If it returns True, the request must not be sent after all: a server has said "slow down" while the connection was made
(D01, B03), or it is too early to send it again. The transport then keeps the connection for the next request, if it
can, and returns an outcome with neither response, error nor ``sent_at``; the engine asks again later. A transport that
can't open a connection because this process has too many files open returns the same: the host is not to blame.

If it returns an instant of the run clock, the request came to the wire before its time: it is to be asked again then
(:func:`wait_to_send`). A transport that can't wait there may take it for True.

It may have a method ``written``, called without arguments when the write has ended (:func:`tell_written`), and an
attribute ``needs_new_connection`` (:func:`needs_new_connection`).
"""

ROOM_PAUSE = 0.5
"""Seconds that a request waits if it can't be sent for want of a file, before it gives up its turn."""

Room = Callable[[], Awaitable[bool]]
"""Closes an idle connection. Returns False if there was none. Not always a checkpoint."""


async def wait_to_send(
    on_sent: OnSent, answer: float, put_off: Callable[[float], None], is_open: Callable[[], bool] | None = None
) -> bool:
    """Wait, connected, until the request may be written. A checkpoint only if it waits.

    Args:
        on_sent: Asked again at each instant that it names.
        answer: Its answer: an instant, or True.
        put_off: Called with the seconds of each wait before it, which are to be added to the request's time limits.
        is_open: Tells after each wait if the connection is still open: a send on a closed one would use a turn for
            nothing. None: that can't be told.

    Returns:
        True if the request must not be sent after all.
    """
    again: bool | float | None = answer
    while again and again is not True:
        put_off(again - trio.current_time())
        await trio.sleep_until(again)
        again = True if is_open is not None and not is_open() else on_sent()
    return bool(again)


def tell_written(on_sent: OnSent) -> None:
    """Tell that the request has been written: its head, and again its body if that is written separately.

    On a busy machine the two ends of a write may be tens of milliseconds apart, and a server sees the later one. A
    delay counted from the earlier one would put the next request that much too close.
    """
    written: Callable[[], None] | None = getattr(on_sent, "written", None)
    if written is not None:
        written()


def needs_new_connection(on_sent: OnSent) -> bool:
    """Tell if the request met a dead connection before, and had to wait for another grant.

    It goes out on a new connection, or, if a transport can't say, once and no more, so that it does not wait for ever.
    """
    return getattr(on_sent, "needs_new_connection", False)


class Transport(Protocol):
    """Sends requests."""

    async def send(self, request: Request, on_sent: OnSent) -> Outcome:
        """Send ``request`` once and read the whole response; or do not send it if ``on_sent`` returns True.

        Where ``on_sent`` returns an instant, ask it again then, before anything is written (:func:`wait_to_send`).

        A failure of the network is an outcome with an error from :mod:`trawl.errors`, never an exception. Redirects are
        not followed. When this returns, the body has been read (and decompressed) within its limits: a large one of a
        2xx response into ``request.sink``, if there is one and the transport supports it, all others into memory.
        Cancelling drops the connection. Always a checkpoint.
        """
        ...

    async def aclose(self) -> None:
        """Close all connections. Safe to call twice; does not wait for the peer."""
        ...


MAX_TEXT = 200
"""Characters of a foreign error's text that are kept: it may quote what the server sent."""

_PROTOCOL_WORDS = (
    ("without sending a response", "the server closed the connection without an answer"),
    ("complete message body", "its body ended early: {cause}"),
    ("Receive buffer too long", "its headers have no end"),
    ("_SWITCH_", "the server changed to another protocol without being asked"),
    ("illegal", "the answer is not HTTP: {cause}"),
    ("", "the answer is broken: {cause}"),
)
"""A part of the parser's text, and our sentence for it. The first that fits counts."""


def system_error(error: BaseException | None) -> OSError | None:
    """Return the system's error behind ``error``; None if there is none."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__  # httpcore's pool drops the cause and leaves the context
    return error


def words_of(error: BaseException) -> str:
    """Return the text of an error, or its name if it has none, at most ``MAX_TEXT`` characters."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0)  # without the address, which the request's URL tells
    return str(getattr(error, "strerror", None) or error)[:MAX_TEXT] or type(error).__name__


def protocol_words(text: str) -> str:
    """Return our sentence for a parser's complaint about the server's answer."""
    return next(words for sign, words in _PROTOCOL_WORDS if sign in text).replace("{cause}", text)


def tls_failure(error: ssl.SSLError) -> DownloadError:
    """Return our error for a failed handshake; it says why the handshake failed."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return ConnectFailed("the server closed the connection during the TLS handshake")
    if isinstance(error, ssl.SSLCertVerificationError):
        return TLSFailed(f"its certificate is refused: {error.verify_message}")
    words = (error.reason or str(error)).lower().replace("_", " ")
    hint = " (the server may speak plain http: write http://)" if words == "wrong version number" else ""
    return TLSFailed(f"the TLS handshake failed: {words}{hint}")


def is_short_of_files(error: BaseException | None) -> bool:
    """Return True if ``error`` came because this process, or the system, may open no more files (``ulimit -n``).

    A lookup that could open none says only that it failed; then this function tries to open one.
    """
    found = system_error(error)
    if isinstance(found, socket.gaierror):
        try:
            os.close(os.dup(2))
        except OSError as refusal:
            found = refusal
    return found is not None and found.errno in {errno.EMFILE, errno.ENFILE}
