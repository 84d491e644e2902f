"""What foreign errors say, in words that a person can use."""

from __future__ import annotations

import os
import ssl

from trawl.errors import ConnectFailed, DownloadError, TLSFailed

__all__ = ["protocol_words", "system_error", "tls_failure", "words_of"]

MOST_WORDS = 200
"""Characters of a foreign error's text that are kept: it may quote what the server sent."""

_PROTOCOL_WORDS = (
    ("without sending a response", "the server closed the connection without an answer"),
    ("complete message body", "its body ended early: {cause}"),
    ("Receive buffer too long", "its headers have no end"),
    ("_SWITCH_", "the server changed to another protocol without being asked"),
    ("illegal", "the answer is not HTTP: {cause}"),
    ("", "the answer is broken: {cause}"),
)
"""What the parser's text has in it, and what we say. The first that fits counts."""


def system_error(error: BaseException) -> OSError | None:
    """What the system said behind ``error``; None if it was not the system."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, OSError):
        found = found.__cause__ or found.__context__  # httpcore's pool drops the cause and leaves the context
    return found


def words_of(error: BaseException) -> str:
    """The text of an error, or its name if it has none; not long."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0)  # without the address, which the request's URL tells
    return str(getattr(error, "strerror", None) or error)[:MOST_WORDS] or type(error).__name__


def protocol_words(text: str) -> str:
    """What a parser's complaint about the server's answer means."""
    return next(words for sign, words in _PROTOCOL_WORDS if sign in text).replace("{cause}", text)


def tls_failure(error: ssl.SSLError) -> DownloadError:
    """A handshake that failed: an error of ours that says why."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return ConnectFailed("the server closed the connection during the TLS handshake")
    if isinstance(error, ssl.SSLCertVerificationError):
        return TLSFailed(f"its certificate is refused: {error.verify_message}")
    return TLSFailed(f"the TLS handshake failed: {(error.reason or str(error)).lower().replace('_', ' ')}")
