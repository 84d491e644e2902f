"""The instants of one exchange, noted as httpcore passes them."""

from __future__ import annotations

import trio

from trawl.http import Outcome
from trawl.transport.base import OnSent

__all__ = ["Instants"]


class Instants:
    """Notes the instants of one exchange, and tells that the request goes to the wire."""

    __slots__ = ("_is_new", "_on_sent", "_outcome")

    def __init__(self, outcome: Outcome, on_sent: OnSent) -> None:
        self._outcome = outcome
        self._on_sent = on_sent
        self._is_new = False

    async def __call__(self, event: str, details: object) -> None:
        """Called by httpcore as things happen."""
        outcome = self._outcome
        if event == "connection.connect_tcp.started":
            self._is_new = True
            outcome.started_at = trio.current_time()
        elif event == "http11.send_request_headers.started":
            outcome.sent_at = trio.current_time()
            if not self._is_new:
                outcome.started_at = outcome.sent_at
            self._on_sent()
        elif event == "http11.receive_response_headers.complete":
            outcome.first_byte_at = trio.current_time()
