"""A transport that takes almost no time, so that a benchmark measures only the engine."""

from __future__ import annotations

import trio

from trawl.http import Outcome, Request, Response
from trawl.transport import OnSent

__all__ = ["NullTransport"]


class NullTransport:
    """Responds to every request with an empty page, after ``latency`` seconds or at once."""

    def __init__(self, latency: float = 0.0) -> None:
        self._latency = latency

    async def send(self, request: Request, on_sent: OnSent) -> Outcome:
        """Return an empty page. A checkpoint."""
        began_at = trio.current_time()
        on_sent()
        if self._latency:
            await trio.sleep(self._latency)
        else:
            await trio.lowlevel.checkpoint()
        response = Response(request.url, 200, None, b"", request, (), self._latency)
        now = trio.current_time()
        return Outcome(
            request, response=response, started_at=began_at, sent_at=began_at, first_byte_at=now, ended_at=now
        )

    async def aclose(self) -> None:
        """Do nothing, because nothing is open."""
