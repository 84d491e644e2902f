"""Refusals that look like pages: a captcha, a "please wait" under status 200.

The user's detector is asked right behind the wire, before the throttle hears of the answer: what it finds is no
response but a :class:`~trawl.errors.SoftBlocked`, which is a trigger for the request's scopes like any other. So the
scopes slow down, the request is sent again, and after its last try the errback gets the error with the page in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from trawl.errors import SoftBlocked
from trawl.http import FileResponse, Outcome, Request, Response
from trawl.transport import Transport

__all__ = ["Detector", "SoftBlockTransport"]

logger: logging.Logger = logging.getLogger("trawl.middleware")

Detector = Callable[[Response], object]
"""What ``SOFT_BLOCK_DETECTOR`` names: true for a refusal. It is called for every response, so it should be quick.

It is not called for a large file that went to disk: it would have to be read back, and is no page.
"""


class SoftBlockTransport:
    """A transport whose refusals in disguise are errors.

    Args:
        transport: The wire.
        detector: Knows a refusal; a response on which it fails is taken for none, and the failure is logged.
    """

    def __init__(self, transport: Transport, detector: Detector) -> None:
        self._transport = transport
        self._detector = detector

    async def send(self, request: Request, on_sent: Callable[[], Any]) -> Outcome:
        """Send ``request``; on_sent is called when it goes to the wire. A checkpoint."""
        outcome = await self._transport.send(request, on_sent)
        response = outcome.response
        if response is not None and self._is_refusal(request, response):
            outcome.response, outcome.error = None, SoftBlocked(response, url=request.url, method=request.method)
        return outcome

    async def aclose(self) -> None:
        """Close the wire."""
        await self._transport.aclose()

    def _is_refusal(self, request: Request, response: Response) -> bool:
        if request.meta_get("dont_detect_soft_block") or isinstance(response, FileResponse):
            return False
        try:
            return bool(self._detector(response))
        except Exception:
            logger.exception("SOFT_BLOCK_DETECTOR failed on %r: it is taken for a page", response)
            return False
