"""The instants of one exchange, noted as httpcore passes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import trio

from trawl.http import Outcome
from trawl.transport.base import OnSent, tell_written

__all__ = ["HeldError", "Instants"]


_WRITTEN = frozenset({"send_request_headers.complete", "send_request_body.complete"})


class HeldError(Exception):
    """The request must not go to the wire now (:data:`~trawl.transport.base.OnSent`)."""


class Instants:
    """Notes the instants of one exchange, and tells that the request goes to the wire.

    What httpcore says to a proxy before that (``CONNECT``) is not the request.

    Attributes:
        is_new: A connection was opened for it.
        is_through: A proxy has let it through, so that what goes wrong from now on is between us and the server.
        has_sent: It has gone to the wire.
    """

    __slots__ = ("_close", "_is_connect", "_on_sent", "_outcome", "has_sent", "is_new", "is_through")

    def __init__(self, outcome: Outcome, on_sent: OnSent) -> None:
        self._outcome = outcome
        self._on_sent = on_sent
        self._is_connect = False
        self._close: Callable[[], None] | None = None
        self.is_new: bool = False
        self.is_through: bool = False
        self.has_sent: bool = False

    @property
    def is_stale(self) -> bool:
        """Whether it was sent on a connection that had been idle, and nothing came back."""
        return not self.is_new and self.has_sent and self._outcome.first_byte_at is None

    @property
    def is_past_proxies(self) -> bool:
        """Whether no proxy is to blame for what goes wrong."""
        return self.is_through or self.has_sent

    async def __call__(self, event: str, details: Mapping[str, Any]) -> None:
        """Called by httpcore as things happen.

        Raises:
            HeldError: It is about to be sent, and must not be.
        """
        where, _, what = event.partition(".")
        outcome = self._outcome
        if what == "connect_tcp.started":
            self.is_new = True
            outcome.started_at = trio.current_time()
        elif what == "connect_tcp.complete" and where == "socks":
            self._close = details["return_value"].close
        elif what == "setup_socks5_connection.complete":
            self._close = None
            self.is_through = True
        elif what == "send_request_headers.started":
            self._is_connect = details["request"].method == b"CONNECT"
            if not self._is_connect:
                self._sent()
        elif what in _WRITTEN:
            if self.has_sent:
                tell_written(self._on_sent)
        elif what == "receive_response_headers.complete" and self._is_connect:
            self.is_through = 200 <= details["return_value"][1] < 300
        elif what == "receive_response_headers.complete":
            outcome.first_byte_at = trio.current_time()

    def end(self) -> None:
        """Close what httpcore leaves open: a connection to a SOCKS proxy that would not do what it was asked."""
        if self._close is not None:
            self._close()

    def _sent(self) -> None:
        outcome = self._outcome
        if outcome.sent_at is None and self._on_sent():
            raise HeldError
        self.has_sent = True
        if outcome.sent_at is not None:
            return
        outcome.sent_at = trio.current_time()
        if not self.is_new:
            outcome.started_at = outcome.sent_at
