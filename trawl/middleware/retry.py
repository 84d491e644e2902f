"""Retries of requests that failed temporarily, and the budget that limits their share of the traffic.

In an outage, retries multiply the traffic at the worst time for the server. So each first attempt adds a fraction of a
retry to the budget, and each retry takes one retry from the budget. A small initial balance (the reserve) allows
retries at the start. The balance is at most the reserve plus the fractions of a hundred requests. So after a long time
without failures, the budget still limits the retries in an outage.

A soft block is a refusal that looks like a page, such as a captcha with status 200. The user's detector gets the
response before the throttle does. A refusal is converted to a :class:`~trawl.errors.SoftBlocked` error, which triggers
backoff and a retry. After the last attempt, the errback gets the error, which contains the page.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

from trawl.errors import DownloadError, IgnoreRequest, SoftBlocked
from trawl.http import Fetch, FileResponse, Middleware, Outcome, Replace, Request, Response, host_scope
from trawl.middleware.settings import MiddlewareSettings
from trawl.observe import Stats
from trawl.tracebacks import contained
from trawl.transport import Transport

__all__ = ["Detector", "Predicate", "RetryBudget", "RetryBudgets", "SoftBlockTransport", "get_retry_request", "retry"]

logger: logging.Logger = logging.getLogger("trawl.middleware")

Predicate = Callable[[Request, Response | None, Exception | None], bool | None]
"""The type of ``RETRY_PREDICATE``. Returns True to retry a request, False to give it up, None to apply the default
rules.
"""

MAX_HOSTS = 10_000  # maximum number of budgets; above it, the oldest is dropped


class RetryBudget:
    """A budget of retries: ``share`` per first attempt, and ``reserve`` at first. Pure and mutable.

    Attributes:
        balance: Number of retries that are allowed now.
    """

    __slots__ = ("_max", "_share", "balance")

    def __init__(self, share: float, reserve: int) -> None:
        self.balance: float = float(reserve)
        self._share = share
        self._max = max(1.0, reserve, 100.0 * share + reserve)

    def tried(self) -> None:
        """Record a first attempt."""
        self.balance = min(self._max, self.balance + self._share)

    def spend(self) -> bool:
        """Spend one retry. Returns False if the budget is used up."""
        # Allow for rounding, because ten shares of 0.1 add up to 0.9999999999999999.
        if self.balance < 1.0 - 1e-9:
            return False
        self.balance -= 1.0
        return True


class RetryBudgets:
    """The budgets of a crawl: one for each host if ``is_per_host``, otherwise one for all hosts.

    Each has ``reserve`` retries at first, and gets ``share`` retries per first attempt.
    """

    __slots__ = ("_budgets", "_is_per_host", "_reserve", "_share")

    def __init__(self, share: float, reserve: int, *, is_per_host: bool = False) -> None:
        self._share = share
        self._reserve = reserve
        self._is_per_host = is_per_host
        self._budgets: dict[str, RetryBudget] = {}

    def for_host(self, host: str) -> RetryBudget:
        """Return the budget of a host."""
        key = host if self._is_per_host else ""
        budget = self._budgets.get(key)
        if budget is None:
            if len(self._budgets) >= MAX_HOSTS:
                del self._budgets[next(iter(self._budgets))]
            budget = self._budgets[key] = RetryBudget(self._share, self._reserve)
        return budget


def retry(
    settings: MiddlewareSettings, rng: random.Random, *, predicate: Predicate | None = None, stats: Stats | None = None
) -> Middleware:
    """Return middleware that sends a failed request again, at most ``RETRY_TIMES`` times.

    Status codes in ``RETRY_HTTP_CODES`` and errors with ``is_retryable`` are failures. The delay doubles with each
    retry. A request that got a throttling trigger is retried whatever the status code is. Its retry is queued behind
    other requests with the same priority, and has no separate delay, because the scope delays it. A retry after an
    excused outcome (a 429, an outage) does not count. But if ``RETRY_TIMES`` is 0, nothing is sent twice, even after an
    excused outcome. Requests that the throttle has given up are not retried. Meta ``dont_retry`` disables retries.

    ``predicate`` decides whether to retry, unless it returns None or the outcome is excused. ``rng`` draws the jitter
    of delays. ``stats`` count requests that failed in their last attempt (``retry_max_reached``), and retries refused
    by the budget (``retry_budget_spent``).
    """
    codes = frozenset(settings.retry_http_codes)
    budgets = None
    if (share := settings.retry_budget) is not None:
        is_per_host = settings.retry_budget_per == "host"
        budgets = RetryBudgets(share, settings.retry_budget_reserve, is_per_host=is_per_host)

    def around(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            outcome = await fetch(request)
            # If the outcome is from user code, the throttle must process it first.
            if not (outcome.is_heard or outcome.is_cached):
                return outcome
            # Without a response and an error, the request was not sent.
            has_ended = outcome.response is not None or outcome.error is not None
            if budgets is not None and has_ended and not request.meta_get("retry_times"):
                budgets.for_host(host_scope(request.url)).tried()
            if outcome.then is not None or request.meta_get("dont_retry"):
                return outcome
            if outcome.is_hopeless:
                logger.info("%r: given up: refused repeatedly, while its host answers other requests", request)
            elif outcome.is_excused and _max_times(request, settings.retry_times):
                outcome.then = Replace(request, outcome.pause, "backoff")
            elif (cause := _cause(request, outcome, codes, predicate)) is not None:
                outcome.then = _again(request, cause, outcome, settings, rng)
                if outcome.then is None and stats is not None:
                    stats.inc("retry_max_reached")
                elif outcome.then is not None and budgets is not None:
                    _pay(budgets, request, outcome, stats)
            return outcome

        return send

    return around


def get_retry_request(
    request: Request,
    *,
    spider: Any,
    reason: str | Exception | type[Exception] = "unspecified",
    max_retry_times: int | None = None,
    priority_adjust: int | None = None,
    stats_base_key: str = "retry",
    logger: logging.Logger | None = None,
    give_up_log_level: int | str | None = None,
) -> Request | None:
    """Return the request for another attempt; None after the last attempt.

    Callbacks call this if they can't use a response.

    Yield the returned request like any other request of a callback. These attempts and the crawl's own retries are
    counted together.

    Args:
        request: The request to repeat, ``response.request``.
        spider: The spider, whose settings and statistics are used.
        reason: The reason, for the log.
        max_retry_times: Maximum number of retries; None for meta ``max_retry_times``, or else ``RETRY_TIMES``.
        priority_adjust: Number added to the priority; None for ``RETRY_PRIORITY_ADJUST``.
        stats_base_key: Start of the names of the statistics: ``<key>/count`` and ``<key>/max_reached``.
        logger: Ignored. Scrapy's spiders pass it.
        give_up_log_level: Ignored, likewise.
    """
    crawl = getattr(spider, "crawler", None) or spider.crawl  # before the crawl runs, there is only spider.crawler
    settings, stats = spider.settings, crawl.stats
    again = _once_more(request, reason, max_retry_times, settings["RETRY_TIMES"])
    is_own = stats_base_key != "retry"
    if again is None:
        stats.inc(f"{stats_base_key}/max_reached" if is_own else "retry_max_reached")
        stats.inc("retry_given_up_count")
        return None
    stats.inc(f"{stats_base_key}/count" if is_own else "retry_count")
    adjust = settings["RETRY_PRIORITY_ADJUST"] if priority_adjust is None else priority_adjust
    return again.replace(priority=request.priority + adjust, dont_filter=True)


def _pay(budgets: RetryBudgets, request: Request, outcome: Outcome, stats: Stats | None) -> None:
    """Spend a retry from the budget. If the budget is used up, make the failure final."""
    if budgets.for_host(host_scope(request.url)).spend():
        return
    outcome.then = None
    logger.info("%r: not tried again: the retry budget is spent", request)
    if stats is not None:
        stats.inc("retry_budget_spent")


def _cause(request: Request, outcome: Outcome, codes: frozenset[int], predicate: Predicate | None) -> str | None:
    """Return the reason for another attempt; None if the request must not be retried."""
    response = outcome.response
    error: Exception | None = outcome.error  # a Scrapy-style middleware may have raised any exception
    if predicate is not None and (isinstance(error, DownloadError) or not isinstance(error, IgnoreRequest)):
        said = predicate(request, response, error)
        if said is not None:
            return "RETRY_PREDICATE asked for it" if said else None
    if response is not None:
        return f"answered {response.status}" if outcome.is_trigger or response.status in codes else None
    if isinstance(error, DownloadError):
        return error.cause if error.is_retryable else None
    return repr(error) if isinstance(error, OSError) else None


def _again(
    request: Request, cause: str, outcome: Outcome, settings: MiddlewareSettings, rng: random.Random
) -> Replace | None:
    """Return a ``Replace`` with the next attempt; None after the last attempt."""
    again = _once_more(request, cause, None, settings.retry_times)
    if again is None:
        return None
    if outcome.is_trigger:
        return Replace(again, outcome.pause, "retry")
    again = again.replace(priority=request.priority + settings.retry_priority_adjust)
    times = min(request.meta_get("retry_times", 0), 60)
    delay = min(settings.retry_delay * 2.0**times, settings.retry_max_delay) * rng.uniform(0.5, 1.5)
    return Replace(again, delay, "retry")


def _max_times(request: Request, default: int) -> int:
    """Return the maximum number of retries of a request: the number in its meta, or else ``default``."""
    own: int | None = request.meta_get("max_retry_times")
    return default if own is None else own


def _once_more(request: Request, cause: object, max_times: int | None, default: int) -> Request | None:
    """Return the request with its count of retries increased; None after the maximum number of retries."""
    times = request.meta_get("retry_times", 0)
    if times >= (_max_times(request, default) if max_times is None else max_times):
        logger.info("%r: given up after %d tries: %s", request, times + 1, cause)
        return None
    logger.debug("%r: try %d of it failed: %s", request, times + 1, cause)
    return request.replace(meta={**request.meta, "retry_times": times + 1})


Detector = Callable[[Response], object]
"""The type of ``SOFT_BLOCK_DETECTOR``. Returns true for a refusal. Called for each response except files on disk."""


class SoftBlockTransport:
    """A transport that turns soft blocks, for which ``detector`` returns true, into errors.

    If the detector raises an exception, the exception is logged and the response counts as a page.
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
