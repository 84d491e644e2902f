"""What a response may be: its sizes, and what is forgiven."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Any

import attrs

from trawl.errors import BodyTooLarge, DownloadError
from trawl.http import Request
from trawl.transport.decoding import Body, codings_of
from trawl.transport.settings import TransportSettings

__all__ = ["Limits"]

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
