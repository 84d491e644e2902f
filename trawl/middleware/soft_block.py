"""Soft blocks: refusals that look like pages, such as a captcha with status 200.

The user's detector is called directly after the transport has read the response, before the throttle processes the
response. A refusal is converted to a :class:`~trawl.errors.SoftBlocked` error, which triggers backoff: the scopes slow
down, and the request is sent again. After the last attempt, the errback gets the error, which contains the page.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from trawl.errors import SoftBlocked
from trawl.http import FileResponse, Outcome, Request, Response
from trawl.tracebacks import contained
from trawl.transport import Transport

__all__ = ["Detector", "SoftBlockTransport"]

logger: logging.Logger = logging.getLogger("trawl.middleware")

Detector = Callable[[Response], object]
"""The type of ``SOFT_BLOCK_DETECTOR``. Returns true for a refusal. Called for each response except files on disk."""


class SoftBlockTransport:
    """A transport that turns soft blocks into errors.

    Args:
        transport: The transport that sends the requests.
        detector: Returns true for a refusal. If the detector raises an exception, the exception is logged and the
            response counts as a page.
    """

    def __init__(self, transport: Transport, detector: Detector) -> None:
        self._transport = transport
        self._detector = detector

    async def send(self, request: Request, on_sent: Callable[[], Any]) -> Outcome:
        """Send ``request``. ``on_sent`` is called when the request is about to be written. A checkpoint."""
        outcome = await self._transport.send(request, on_sent)
        response = outcome.response
        if response is not None and self._is_refusal(request, response):
            outcome.response, outcome.error = None, SoftBlocked(response, url=request.url, method=request.method)
        return outcome

    async def aclose(self) -> None:
        """Close the transport."""
        await self._transport.aclose()

    def _is_refusal(self, request: Request, response: Response) -> bool:
        if request.meta_get("dont_detect_soft_block") or isinstance(response, FileResponse):
            return False
        try:
            with contained:
                return bool(self._detector(response))
        except Exception:
            logger.exception("SOFT_BLOCK_DETECTOR failed on %r: using the response as a page", response)
            return False
