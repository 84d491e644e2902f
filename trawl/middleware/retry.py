"""Failures that may pass: the request takes its own place again, a little later.

A retry budget: how many of a crawl's requests may be retries. Pure.

Where everything fails, retries multiply the traffic when a server can least bear it. A budget bounds that: each request
that is sent the first time pays in its share, each retry takes one out, and who finds too little goes without. A small
reserve lets a crawl that has just begun retry at all; no budget grows beyond it and what a hundred requests pay in, so
that a long calm does not pay for a storm.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

from trawl.errors import DownloadError, IgnoreRequest
from trawl.http import Fetch, Middleware, Outcome, Replace, Request, Response, host_scope
from trawl.middleware.settings import MiddlewareSettings
from trawl.observe import Stats

__all__ = ["Predicate", "RetryBudget", "RetryBudgets", "get_retry_request", "retry"]

MAX_HOSTS = 10_000
"""Hosts whose budgets are kept; the one that was used first is forgotten, and begins anew with its reserve."""


class RetryBudget:
    """One account of retries.

    Args:
        share: Retries for each first try.
        reserve: Retries that it begins with.

    Attributes:
        balance: Retries that may be made now.
    """

    __slots__ = ("_most", "_share", "balance")

    def __init__(self, share: float, reserve: int) -> None:
        self.balance: float = float(reserve)
        self._share = share
        self._most = max(1.0, reserve, 100.0 * share + reserve)

    def tried(self) -> None:
        """Note a request that is sent the first time."""
        self.balance = min(self._most, self.balance + self._share)

    def spend(self) -> bool:
        """Take a retry out; False: there is none left."""
        if self.balance < 1.0 - 1e-9:
            return False
        self.balance -= 1.0
        return True


class RetryBudgets:
    """The budgets of a crawl: one, or one for each host.

    Args:
        share: Retries for each first try.
        reserve: Retries that each begins with.
        is_per_host: Whether each host has its own.
    """

    __slots__ = ("_budgets", "_is_per_host", "_reserve", "_share")

    def __init__(self, share: float, reserve: int, *, is_per_host: bool = False) -> None:
        self._share = share
        self._reserve = reserve
        self._is_per_host = is_per_host
        self._budgets: dict[str, RetryBudget] = {}

    def for_host(self, host: str) -> RetryBudget:
        """The budget of a host."""
        key = host if self._is_per_host else ""
        budget = self._budgets.get(key)
        if budget is None:
            if len(self._budgets) >= MAX_HOSTS:
                del self._budgets[next(iter(self._budgets))]
            budget = self._budgets[key] = RetryBudget(self._share, self._reserve)
        return budget


logger: logging.Logger = logging.getLogger("trawl.middleware")

Predicate = Callable[[Request, Response | None, Exception | None], bool | None]
"""What ``RETRY_PREDICATE`` names: whether to send a request again, or None for the usual rules."""


def retry(
    settings: MiddlewareSettings,
    rng: random.Random,
    *,
    predicate: Predicate | None = None,
    stats: Stats | None = None,
) -> Middleware:
    """Middleware that asks for another try of a request that failed, ``RETRY_TIMES`` times at most.

    Statuses of ``RETRY_HTTP_CODES`` and errors that say ``is_retryable`` are failures; the delay doubles each time.
    What the throttle took for a trigger is repeated whatever its status, at the back of its equals and without a delay
    of its own: its scope holds it back. What the throttle has excused (a 429, an outage) is not counted, either; what
    it has found hopeless is not repeated. With ``dont_retry`` in the meta nothing is.

    Args:
        settings: Times, statuses, delays, the budget.
        rng: Draws the jitter.
        predicate: Decides in place of statuses and errors where it has an opinion; not about what is excused.
        stats: Counts ``retry_budget_spent``: retries that were not made for want of budget.
    """
    codes = frozenset(settings.retry_http_codes)
    budgets = _budgets(settings)

    def around(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            outcome = await fetch(request)
            has_ended = outcome.response is not None or outcome.error is not None  # else it was held before the wire
            if budgets is not None and has_ended and not request.meta_get("retry_times"):
                budgets.for_host(host_scope(request.url)).tried()
            if outcome.then is not None or request.meta_get("dont_retry"):
                return outcome
            if outcome.is_hopeless:
                logger.info("%r: given up: refused again and again, while its host serves others", request)
            elif outcome.is_excused:
                outcome.then = Replace(request, outcome.pause, "backoff")
            elif (cause := _cause(request, outcome, codes, predicate)) is not None:
                outcome.then = _again(request, cause, outcome, settings, rng)
                if outcome.then is not None and budgets is not None:
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
) -> Request | None:
    """The request once more, for a callback that finds its response unusable; None after its last try.

    It is a new request like any other that a callback gives: it waits for its turn, and its tries are counted together
    with those that the crawl makes by itself.

    Args:
        request: What was answered: ``response.request``.
        spider: The spider, whose settings and statistics are used.
        reason: Why, for the log.
        max_retry_times: How often at most; meta ``max_retry_times``, else ``RETRY_TIMES``, if None.
        priority_adjust: Added to the priority; ``RETRY_PRIORITY_ADJUST`` if None.
    """
    settings, stats = spider.settings, spider.crawl.stats
    times = request.meta_get("retry_times", 0)
    if max_retry_times is None:
        max_retry_times = request.meta_get("max_retry_times")
    if times >= (settings["RETRY_TIMES"] if max_retry_times is None else max_retry_times):
        stats.inc("retry_given_up_count")
        logger.info("%r: given up after %d tries: %s", request, times + 1, reason)
        return None
    logger.debug("%r: try %d of it failed: %s", request, times + 1, reason)
    stats.inc("retry_count")
    adjust = settings["RETRY_PRIORITY_ADJUST"] if priority_adjust is None else priority_adjust
    return request.replace(
        meta={**request.meta, "retry_times": times + 1}, priority=request.priority + adjust, dont_filter=True
    )


def _budgets(settings: MiddlewareSettings) -> RetryBudgets | None:
    if settings.retry_budget is None:
        return None
    return RetryBudgets(
        settings.retry_budget, settings.retry_budget_reserve, is_per_host=settings.retry_budget_per == "host"
    )


def _pay(budgets: RetryBudgets, request: Request, outcome: Outcome, stats: Stats | None) -> None:
    """Take the retry out of its budget, or make the failure final."""
    if budgets.for_host(host_scope(request.url)).spend():
        return
    outcome.then = None
    logger.info("%r: not tried again: the retry budget is spent", request)
    if stats is not None:
        stats.inc("retry_budget_spent")


def _cause(request: Request, outcome: Outcome, codes: frozenset[int], predicate: Predicate | None) -> str | None:
    """Why another try may go better; None if it may not."""
    response, error = outcome.response, outcome.error
    if predicate is not None and not isinstance(error, IgnoreRequest):
        said = predicate(request, response, error)
        if said is not None:
            return "RETRY_PREDICATE says so" if said else None
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
