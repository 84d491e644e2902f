"""The interface between the crawl and the network, and helpers that all transports share.

The crawl's side uses only trawl's own requests and outcomes. The network's side is any HTTP library, or the simulated
web.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import trio

from trawl.errors import ConnectFailed, DownloadError, TLSFailed
from trawl.http import Outcome, Request

__all__ = [
    "ROOM_PAUSE",
    "OnSent",
    "Room",
    "Transport",
    "charges_of",
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
"""A transport calls this synchronously when the request is about to be sent (after connecting), and each time the
request is sent again. If a kept connection turns out to be dead, a request with a safe method is sent again. This
counts as another send.

If the call returns True, the request must not be sent, because the server asked to slow down during connecting, or
because it is too early to send the request again. In this case, the transport keeps the connection for the next
request, if it can, and returns an outcome without response, error and ``sent_at``. The engine sends the request later.
A transport also returns such an outcome if it can't open a connection because this process has too many open files,
which is not the host's fault.

If the call returns an event loop time, the request is too early, and the transport must call again at that time
(:func:`wait_to_send`). A transport that can't wait with an open connection may treat a time like True.

The object may have a method ``written``, which the transport calls without arguments after the write
(:func:`tell_written`), and the attributes ``needs_new_connection`` (:func:`needs_new_connection`), ``charges``
(:func:`charges_of`) and ``sent_at``, the event loop time of the last send or None.
"""

ROOM_PAUSE = 0.5
"""Seconds that a request waits if too many files are open. After the wait, the request loses its turn."""

Room = Callable[[], Awaitable[bool]]
"""Closes an idle connection and returns True, or returns False if there was none. Not always a checkpoint."""


async def wait_to_send(
    on_sent: OnSent, answer: float, put_off: Callable[[float], None], is_open: Callable[[], bool] | None = None
) -> bool:
    """Wait with an open connection until the request may be sent. A checkpoint only if it waits.

    Returns True if the request must not be sent. ``answer`` is the value that ``on_sent`` has just returned.
    ``put_off`` is called with the seconds of each wait, to extend the request's timeouts. After each wait, ``is_open``
    checks the connection, because a send on a closed connection would waste a turn; None if the transport can't check
    this.
    """
    again: bool | float | None = answer
    while again and again is not True:
        put_off(again - trio.current_time())
        await trio.sleep_until(again)
        again = True if is_open is not None and not is_open() else on_sent()
    return bool(again)


def tell_written(on_sent: OnSent) -> None:
    """Report that the request's headers were written. Called again after a body that is written separately.

    On a busy machine, a write may take tens of milliseconds, and the server receives the request at its end. If a delay
    were counted from its start, the next request would arrive early.
    """
    written: Callable[[], None] | None = getattr(on_sent, "written", None)
    if written is not None:
        written()


def needs_new_connection(on_sent: OnSent) -> bool:
    """Return whether the request must use a new connection, because an earlier attempt used a dead one.

    A transport that can't enforce that must send it only once, or the request could wait for attempts forever.
    """
    return getattr(on_sent, "needs_new_connection", False)


def charges_of(on_sent: OnSent) -> Sequence[tuple[int, float, str]]:
    """Return slot (0 for none), amount and name of each scope that is charged for a request, for an archive."""
    charges: Sequence[tuple[int, float, str]] = getattr(on_sent, "charges", ())
    return charges


class Transport(Protocol):
    """Sends requests."""

    async def send(self, request: Request, on_sent: OnSent) -> Outcome:
        """Send ``request`` once and read the whole response, or don't send it if ``on_sent`` returns True.

        If ``on_sent`` returns a time, call it again at that time, before anything is written (:func:`wait_to_send`).

        A failure of the network is an outcome with an error from :mod:`trawl.errors`, never an exception. Redirects are
        not followed. When this returns, the body has been read (and decompressed) within its limits. A large body of a
        2xx response is in ``request.sink``, if the request has a sink and the transport supports sinks. All other
        bodies are in memory. Cancelling drops the connection. Always a checkpoint.
        """

    async def aclose(self) -> None:
        """Close all connections without waiting for the peers. Safe to call twice."""


MAX_TEXT = 200
"""Maximum number of characters of another library's error message, which may quote the server."""

_PROTOCOL_WORDS = (
    ("without sending a response", "the server closed the connection without a response"),
    ("complete message body", "its body ended early: {cause}"),
    ("Receive buffer too long", "its headers have no end"),
    ("_SWITCH_", "the server changed to another protocol without being asked"),
    ("illegal", "the response is not HTTP: {cause}"),
    ("", "the response is broken: {cause}"),
)
"""Parts of the parser's messages, each with the message that replaces it. The first match counts."""


def system_error(error: BaseException | None) -> OSError | None:
    """Return the system error that caused ``error``; None if there is none."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__  # httpcore's pool drops the cause but keeps the context
    return error


def words_of(error: BaseException) -> str:
    """Return the message of an error, or its class name if it has no message, with at most ``MAX_TEXT`` characters."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0)  # without the address, which the request's URL contains
    return str(getattr(error, "strerror", None) or error)[:MAX_TEXT] or type(error).__name__


def protocol_words(text: str) -> str:
    """Return the error message that replaces a parser's message about an invalid response."""
    return next(words for sign, words in _PROTOCOL_WORDS if sign in text).replace("{cause}", text)


def tls_failure(error: ssl.SSLError) -> DownloadError:
    """Return trawl's error for a failed TLS handshake, with the reason."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return ConnectFailed("the server closed the connection during the TLS handshake")
    if isinstance(error, ssl.SSLCertVerificationError):
        return TLSFailed(f"its certificate is refused: {error.verify_message}")
    words = (error.reason or str(error)).lower().replace("_", " ")
    hint = " (the server may use plain HTTP: write http://)" if words == "wrong version number" else ""
    return TLSFailed(f"the TLS handshake failed: {words}{hint}")


def is_short_of_files(error: BaseException | None) -> bool:
    """Return whether the limit of open files of this process or of the system (``ulimit -n``) has caused ``error``.

    The error of a failed name lookup does not show the cause, so this function then tries to open a file.
    """
    found = system_error(error)
    if isinstance(found, socket.gaierror):
        try:
            os.close(os.dup(2))
        except OSError as refusal:
            found = refusal
    return found is not None and found.errno in {errno.EMFILE, errno.ENFILE}
