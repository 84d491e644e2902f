"""Failures that may pass: the request takes its own place again, a little later."""

from __future__ import annotations

import logging
import random

from trawl.errors import DownloadError
from trawl.http import Fetch, Middleware, Outcome, Replace, Request
from trawl.middleware.settings import MiddlewareSettings

__all__ = ["retry"]

logger: logging.Logger = logging.getLogger("trawl.middleware")


def retry(settings: MiddlewareSettings, rng: random.Random) -> Middleware:
    """Middleware that asks for another try of a request that failed, ``RETRY_TIMES`` times at most.

    Statuses of ``RETRY_HTTP_CODES`` and errors that say ``is_retryable`` are failures; the delay doubles each time.
    What the throttle took for a trigger is repeated whatever its status, at the back of its equals and without a delay
    of its own: its scope holds it back. What the throttle has excused (a 429, an outage) is not counted, either. With
    ``dont_retry`` in the meta nothing is repeated.

    Args:
        settings: Times, statuses, delays.
        rng: Draws the jitter.
    """
    codes = frozenset(settings.retry_http_codes)

    def around(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            outcome = await fetch(request)
            if outcome.then is not None or request.meta_get("dont_retry"):
                return outcome
            if outcome.is_excused:
                outcome.then = Replace(request, outcome.pause, "backoff")
            elif (cause := _cause(outcome, codes)) is not None:
                outcome.then = _again(request, cause, outcome, settings, rng)
            return outcome

        return send

    return around


def _cause(outcome: Outcome, codes: frozenset[int]) -> str | None:
    """Why another try may go better; None if it may not."""
    response, error = outcome.response, outcome.error
    if response is not None:
        return f"answered {response.status}" if outcome.is_trigger or response.status in codes else None
    return error.cause if isinstance(error, DownloadError) and error.is_retryable else None


def _again(
    request: Request, cause: str, outcome: Outcome, settings: MiddlewareSettings, rng: random.Random
) -> Replace | None:
    """The request once more, or None after its last try."""
    times = request.meta_get("retry_times", 0)
    most = request.meta_get("max_retry_times")
    if times >= (settings.retry_times if most is None else most):
        logger.info("%r: given up after %d tries: %s", request, times + 1, cause)
        return None
    logger.debug("%r: try %d of it failed: %s", request, times + 1, cause)
    request = request.replace(meta={**request.meta, "retry_times": times + 1})
    if outcome.is_trigger:
        return Replace(request, outcome.pause, "retry")
    request = request.replace(priority=request.priority + settings.retry_priority_adjust)
    delay = min(settings.retry_delay * 2.0 ** min(times, 60), settings.retry_max_delay) * rng.uniform(0.5, 1.5)
    return Replace(request, delay, "retry")
