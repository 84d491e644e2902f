"""Runs a downloader middleware class that was written for Scrapy as a middleware of ours.

Its methods ``process_request``, ``process_response`` and ``process_exception`` are called where Scrapy calls them, each
plain or ``async``, with or without ``spider`` as the last argument. What differs:

* Headers are text, so ``request.headers[b"X"]`` does not work, and neither do Twisted's Deferreds.
* A request that is returned takes the place of the one that it answers, in one step, and is looked up among the seen
  ones unless it says ``dont_filter``, as in Scrapy.
* What ``process_request`` awaits, it awaits while it holds a place among those of its scopes, and a request of its own
  that it waits for may need that very place. Fetch tokens in ``start()``, or in a callback.
* Once a middleware further inside has replaced a request (a retry, a redirect), those further outside are not asked.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from trawl.errors import IgnoreRequest, TrawlError
from trawl.http import Fetch, Middleware, Outcome, Replace, Request, Response
from trawl.throttling.managers import awaited

__all__ = ["METHODS", "adapted", "is_scrapy_style", "with_spider"]

METHODS = ("process_request", "process_response", "process_exception")

Method = Callable[..., Any]


def is_scrapy_style(middleware: object) -> bool:
    """Whether an object has one of the three methods."""
    return any(callable(getattr(middleware, name, None)) for name in METHODS)


def adapted(middleware: object, spider: object) -> Middleware:
    """An object with Scrapy's methods as a middleware.

    Args:
        middleware: The object.
        spider: What its methods are given as ``spider``, where they take it.
    """
    name = type(middleware).__qualname__
    before, after, failed = (
        with_spider(getattr(middleware, method, None), taken, spider)
        for method, taken in zip(METHODS, (1, 2, 2), strict=True)
    )

    def around(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            outcome = None if before is None else await _before(before, request, name)
            if outcome is None:
                outcome = await fetch(request)
            if outcome.then is not None:
                return outcome
            if outcome.response is not None and after is not None:
                await _after(after, request, outcome, name)
            elif outcome.error is not None and failed is not None:
                _take(await awaited(failed(request, outcome.error)), outcome, f"{name}.process_exception")
            return outcome

        return send

    return around


def with_spider(method: Method | None, taken: int, spider: object) -> Method | None:
    """``method``, which is given ``taken`` arguments, and the spider as one more if it has a place for it."""
    if method is None:
        return None
    try:
        signature = inspect.signature(method)
    except ValueError:  # a callable without a signature
        return method
    if "spider" in signature.parameters:
        return lambda *arguments: method(*arguments, spider=spider)
    try:
        signature.bind(*[None] * (taken + 1))
    except TypeError:
        return method
    return lambda *arguments: method(*arguments, spider)


async def _before(method: Method, request: Request, name: str) -> Outcome | None:
    """What ``process_request`` makes of a request; None: it goes on."""
    try:
        answer = await awaited(method(request))
    except IgnoreRequest as error:
        return Outcome(request, error=error)
    if answer is None:
        return None
    outcome = Outcome(request)
    _take(answer, outcome, f"{name}.process_request")
    return outcome


async def _after(method: Method, request: Request, outcome: Outcome, name: str) -> None:
    try:
        answer = await awaited(method(request, outcome.response))
    except IgnoreRequest as error:
        outcome.response, outcome.error = None, error
        return
    if answer is None:
        raise TypeError(f"{name}.process_response returned None: return the response or a request, or raise")
    _take(answer, outcome, f"{name}.process_response")


def _take(answer: object, outcome: Outcome, where: str) -> None:
    if answer is None:
        return
    if isinstance(answer, Response):
        if answer.request is None:
            answer.request = outcome.request
        outcome.response, outcome.error = answer, None
    elif isinstance(answer, Request):
        outcome.then = Replace(answer, reason="reschedule", is_new_target=True)
    else:
        raise TrawlError(f"{where} returned {type(answer).__name__}: it may return a Response, a Request or None")
