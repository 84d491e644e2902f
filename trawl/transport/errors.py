"""Foreign errors read for every transport: their texts as sentences of ours, and the lack of files."""

from __future__ import annotations

import errno
import os
import socket
import ssl

from trawl.errors import ConnectFailed, DownloadError, TLSFailed

__all__ = ["is_short_of_files", "protocol_words", "system_error", "tls_failure", "words_of"]

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
