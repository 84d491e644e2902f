"""A wire that costs nothing: what is left is the engine's own."""

from __future__ import annotations

import trio

from trawl.http import Outcome, Request, Response
from trawl.transport import OnSent

__all__ = ["NullTransport"]


class NullTransport:
    """Answers every request with an empty page, after ``latency`` seconds or at once."""

    def __init__(self, latency: float = 0.0) -> None:
        self._latency = latency

    async def send(self, request: Request, on_sent: OnSent) -> Outcome:
        """Answer. A checkpoint."""
        on_sent()
        if self._latency:
            await trio.sleep(self._latency)
        else:
            await trio.lowlevel.checkpoint()
        response = Response(request.url, 200, None, b"", request, (), self._latency)
        return Outcome(request, response=response, sent_at=0.0)

    async def aclose(self) -> None:
        """Nothing is open."""
