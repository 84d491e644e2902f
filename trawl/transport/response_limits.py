"""What a response may be: its sizes, and what is forgiven.

What foreign errors say, in words that a person can use.
"""

from __future__ import annotations

import logging
import os
import ssl
import sys
from collections.abc import Sequence
from typing import Any

import attrs

from trawl.errors import BodyTooLarge, ConnectFailed, DownloadError, TLSFailed
from trawl.http import Request
from trawl.transport.decoding import Body, codings_of
from trawl.transport.settings import TransportSettings

__all__ = ["Limits", "protocol_words", "system_error", "tls_failure", "words_of"]

MAX_WORDS = 200
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
    return str(getattr(error, "strerror", None) or error)[:MAX_WORDS] or type(error).__name__


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


logger: logging.Logger = logging.getLogger("trawl.transport")


@attrs.frozen
class Limits:
    """What a response may be.

    Attributes:
        max_bytes: The largest body, as sent and once decompressed; 0 means no limit.
        warn_bytes: A larger one is logged; 0 means none is.
        is_strict: Whether a body that ended early is an error.
        decodes: Whether compressed bodies are decompressed.
        truncates: Whether a body that is too large is cut there, and is no error.
    """

    max_bytes: int
    warn_bytes: int
    is_strict: bool
    decodes: bool
    truncates: bool = False

    plain_bytes: int = attrs.field(init=False)
    """Up to this size there is nothing to be said about a body."""

    @plain_bytes.default
    def _plain_bytes(self) -> int:
        return min(self.max_bytes or sys.maxsize, self.warn_bytes or sys.maxsize)

    @classmethod
    def of(cls, settings: TransportSettings) -> Limits:
        """The limits of requests that say nothing."""
        return cls(
            settings.download_maxsize,
            settings.download_warnsize,
            settings.download_fail_on_dataloss,
            settings.compression_enabled,
        )

    def for_request(self, request: Request) -> Limits:
        """These limits, with what ``request.meta`` says of them."""
        get = request.meta_get
        most, warn, strict = get("download_maxsize"), get("download_warnsize"), get("download_fail_on_dataloss")
        truncates = bool(get("download_truncate"))
        if most is None and warn is None and strict is None and not truncates:
            return self
        return Limits(
            int(_first(most, self.max_bytes)),
            int(_first(warn, self.warn_bytes)),
            bool(_first(strict, self.is_strict)),
            self.decodes,
            truncates,
        )

    def body(self, codings: Sequence[str], length: int | None) -> Body:
        """What a body is read into.

        Args:
            codings: Its ``Content-Encoding`` fields.
            length: Its length, if it is said beforehand.

        Raises:
            BodyTooLarge: That is too much.
            ResponseBroken: More codings than anybody needs.
        """
        if length is not None and 0 < self.max_bytes < length and not self.truncates:
            raise BodyTooLarge(f"its body of {length} bytes passes {self.max_bytes}")
        return Body(codings_of(codings) if self.decodes and codings else (), self.max_bytes)

    def whole(self, body: Body, loss: DownloadError | None, request: Request) -> tuple[bytes, Sequence[str]]:
        """What is kept of a body that has been read, and the response's flags. A large one is logged.

        Args:
            body: What came.
            loss: What was wrong with its end, if anything was.
            request: What it answers.

        Raises:
            DownloadError: The loss, or that of a coding that did not come to its end, unless that is forgiven.
        """
        if self.truncates and isinstance(loss, BodyTooLarge):
            return body.finish(), ("truncated",)
        loss = loss or body.loss()
        if loss is not None and self.is_strict:
            raise loss
        size, most = body.size_bytes, self.warn_bytes
        if 0 < most < size:
            logger.warning("%r: its body has %d bytes (DOWNLOAD_WARNSIZE is %d)", request, size, most)
        return body.finish(), () if loss is None else ("dataloss",)


def _first(value: Any, default: Any) -> Any:
    return default if value is None else value
