"""The interface between the crawl and the network, and shared helpers of all transports, such as mapping errors.

Code above it uses only trawl's own requests and outcomes. Below it is any HTTP library, or the simulated web.
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
"""Called synchronously when the request is about to be sent (after connecting), and each time it is sent again.

A request with a safe method is sent again if a kept connection turns out to be dead. That counts as another send.

If it returns True, the request must not be sent, because the server asked to slow down during connecting or because it
is too early to send it again. The transport then keeps the connection for the next request, if it can, and returns an
outcome without response, error and ``sent_at``. The engine tries again later. A transport returns the same outcome if
it can't open a connection because this process has too many open files, since that is not the host's fault.

If it returns an event loop time, the request is too early, and the transport must call it again at that time
(:func:`wait_to_send`). A transport that can't wait with an open connection may treat the time as True.

It may have a method ``written``, which is called without arguments when the write has ended (:func:`tell_written`), and
an attribute ``needs_new_connection`` (:func:`needs_new_connection`).
"""

ROOM_PAUSE = 0.5
"""Seconds that a request waits before it gives up its turn because too many files are open."""

Room = Callable[[], Awaitable[bool]]
"""Closes an idle connection and returns True, or returns False if there was none. Not always a checkpoint."""


async def wait_to_send(
    on_sent: OnSent, answer: float, put_off: Callable[[float], None], is_open: Callable[[], bool] | None = None
) -> bool:
    """Wait with an open connection until the request may be sent. A checkpoint only if it waits.

    Args:
        on_sent: Called again at each time that it returns.
        answer: Its return value: a time or True.
        put_off: Called before each wait with its seconds, to extend the request's timeouts.
        is_open: Returns after each wait whether the connection is still open, because a send on a closed connection
            would waste a turn. None if unknown.

    Returns:
        True if the request must not be sent.
    """
    again: bool | float | None = answer
    while again and again is not True:
        put_off(again - trio.current_time())
        await trio.sleep_until(again)
        again = True if is_open is not None and not is_open() else on_sent()
    return bool(again)


def tell_written(on_sent: OnSent) -> None:
    """Report that the request's headers were written, and again when its body was written if that is separate.

    On a busy machine, a write may take tens of milliseconds, and the server sees its end. If a delay was counted from
    the start of the write, the next request would come too early by this time.
    """
    written: Callable[[], None] | None = getattr(on_sent, "written", None)
    if written is not None:
        written()


def needs_new_connection(on_sent: OnSent) -> bool:
    """Return whether an earlier attempt of the request met a dead connection and had to wait for another grant.

    Such a request must use a new connection, or, if a transport can't enforce that, must be sent only once, so that it
    does not wait forever.
    """
    return getattr(on_sent, "needs_new_connection", False)


class Transport(Protocol):
    """Sends requests."""

    async def send(self, request: Request, on_sent: OnSent) -> Outcome:
        """Send ``request`` once and read the whole response, or don't send it if ``on_sent`` returns True.

        If ``on_sent`` returns a time, call it again at that time, before anything is written (:func:`wait_to_send`).

        A failure of the network is an outcome with an error from :mod:`trawl.errors`, never an exception. Redirects are
        not followed. When this returns, the body has been read (and decompressed) within its limits. A large body of a
        2xx response is in ``request.sink``, if there is one and the transport supports it. All other bodies are in
        memory. Cancelling drops the connection. Always a checkpoint.
        """
        ...

    async def aclose(self) -> None:
        """Close all connections. Safe to call twice. Does not wait for the peers."""
        ...


MAX_TEXT = 200
"""Maximum number of characters kept of another library's error message, which may quote the server."""

_PROTOCOL_WORDS = (
    ("without sending a response", "the server closed the connection without a response"),
    ("complete message body", "its body ended early: {cause}"),
    ("Receive buffer too long", "its headers have no end"),
    ("_SWITCH_", "the server changed to another protocol without being asked"),
    ("illegal", "the response is not HTTP: {cause}"),
    ("", "the response is broken: {cause}"),
)
"""Parts of the parser's messages, and our sentence for each. The first match counts."""


def system_error(error: BaseException | None) -> OSError | None:
    """Return the system error that caused ``error``; None if there is none."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__  # httpcore's pool drops the cause but keeps the context
    return error


def words_of(error: BaseException) -> str:
    """Return the message of an error, or its name if it has none, with at most ``MAX_TEXT`` characters."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0)  # without the address, which is in the request's URL
    return str(getattr(error, "strerror", None) or error)[:MAX_TEXT] or type(error).__name__


def protocol_words(text: str) -> str:
    """Return our sentence for a parser's message about an invalid response."""
    return next(words for sign, words in _PROTOCOL_WORDS if sign in text).replace("{cause}", text)


def tls_failure(error: ssl.SSLError) -> DownloadError:
    """Return our error for a failed TLS handshake, with the reason."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return ConnectFailed("the server closed the connection during the TLS handshake")
    if isinstance(error, ssl.SSLCertVerificationError):
        return TLSFailed(f"its certificate is refused: {error.verify_message}")
    words = (error.reason or str(error)).lower().replace("_", " ")
    hint = " (the server may use plain HTTP: write http://)" if words == "wrong version number" else ""
    return TLSFailed(f"the TLS handshake failed: {words}{hint}")


def is_short_of_files(error: BaseException | None) -> bool:
    """Return whether the cause of ``error`` is that this process or the system may open no more files (``ulimit -n``).

    A failed lookup does not name this cause, so this function tries to open a file then.
    """
    found = system_error(error)
    if isinstance(found, socket.gaierror):
        try:
            os.close(os.dup(2))
        except OSError as refusal:
            found = refusal
    return found is not None and found.errno in {errno.EMFILE, errno.ENFILE}
