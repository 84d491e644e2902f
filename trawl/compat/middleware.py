"""Runs middleware classes that were written for Scrapy: downloader middleware, and spider middleware.

A downloader middleware class becomes a trawl middleware. Its methods ``process_request``, ``process_response`` and
``process_exception`` are called where Scrapy calls them, each plain or ``async``, with or without ``spider`` as the
last argument. The differences from Scrapy:

* Header values are strings, which equal their bytes in a moved crawl. Twisted's Deferreds do not work.
* A returned request replaces the current request in one step. The returned request is checked for duplicates
  unless it has ``dont_filter``, as in Scrapy.
* While ``process_request`` awaits, for example its own fetch, the request holds no place in its scopes.
* If an inner middleware replaces a request (a retry, a redirect), the outer middleware is not called.

``SPIDER_MIDDLEWARES`` names hooks (:mod:`trawl.engine.hooks`) and spider middleware classes, which become hooks. The
older ``process_start_requests`` is a plain generator and can't await. So it wraps the plain start URLs or
``start_requests()`` instead of the async ``start()``, and is always nearer to the spider than any ``process_start``.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, aclosing, closing
from itertools import groupby
from typing import Any

import attrs

from trawl.engine.hooks import Hook, StartHook
from trawl.errors import IgnoreRequest, SettingsError, TrawlError, UsageError
from trawl.http import Fetch, Middleware, Outcome, Replace, Request, Response
from trawl.middleware.factory import accepts_arguments, entry_name, make_instance
from trawl.scrapy_names.names import class_advice
from trawl.spiders import Spider
from trawl.spiders.crawler import Failure
from trawl.spiders.spider import iterate_async
from trawl.throttling.managers import awaited
from trawl.tracebacks import contained

__all__ = ["START_METHODS", "SpiderMiddleware", "adapted", "check_start_kept", "spider_middleware"]

logger: logging.Logger = logging.getLogger("trawl.engine")

SETTING = "SPIDER_MIDDLEWARES"
START_METHODS = ("process_start", "process_start_requests")
_SPIDER_METHODS = ("process_spider_input", "process_spider_output", "process_spider_exception", *START_METHODS)
_START = "spidermiddlewares.start.StartSpiderMiddleware"
_SCRAPYS = "scrapy.spidermiddlewares."
_METHODS = ("process_request", "process_response", "process_exception")

_Method = Callable[..., Any]

Show = Callable[[Request, Response | None], None]  # prepares a request or its response for Scrapy's classes

Back = Callable[[Request, Outcome], Awaitable[None]]
"""Passes an outcome to ``process_response`` or ``process_exception`` of one object."""

_IDLE = "%s: %s does nothing, as in Scrapy: it has none of the methods %s"


def adapted(middleware: object, spider: object, *, show: Show | None, inside: list[Back]) -> Middleware | None:
    """Return an object with Scrapy's methods as a middleware; None if the object has none of the three methods.

    In a moved crawl, which has ``show``, an object without these methods does nothing, as in Scrapy, and a warning is
    logged. All middleware of a crawl shares the list ``inside``: if ``process_request`` returns a response, inner
    middleware also gets this response, although it did not get the request, as in Scrapy.
    """
    if not any(callable(getattr(middleware, name, None)) for name in _METHODS):
        if show is None or callable(middleware):
            return None
        logger.warning(_IDLE, "DOWNLOADER_MIDDLEWARES", type(middleware).__qualname__, ", ".join(_METHODS))
        return lambda fetch: fetch
    name = type(middleware).__qualname__
    before, after, failed = (
        _with_spider(getattr(middleware, method, None), taken, spider)
        for method, taken in zip(_METHODS, (1, 2, 2), strict=True)
    )

    async def back(request: Request, outcome: Outcome) -> None:
        if outcome.then is not None:
            return
        if outcome.response is not None and after is not None:
            if show is not None:
                show(request, outcome.response)
            await _after(after, request, outcome, name)
        elif outcome.error is not None and failed is not None:
            _take(await awaited(failed(request, outcome.error)), outcome, f"{name}.process_exception")

    def around(fetch: Fetch) -> Fetch:
        inside.append(back)
        everyone = tuple(inside)  # innermost first, because outer middleware is added later

        async def send(request: Request) -> Outcome:
            if show is not None:
                show(request, None)
            outcome = None if before is None else await _before(before, request, name)
            first = len(everyone) - 1 if outcome is None else 0
            if outcome is None:
                outcome = await fetch(request)
            for number in range(first, len(everyone)):
                had_failed = outcome.error is not None
                await everyone[number](request, outcome)
                # A response has replaced the error, so all middleware gets the response.
                if had_failed and outcome.response is not None:
                    for each in everyone[: number + 1]:
                        await each(request, outcome)
            return outcome

        return send

    return _Adapted(around, may_respond=before is not None)


@attrs.frozen
class _Adapted:
    """The middleware that an object becomes. Its ``process_request``, if any, may return a response."""

    _middleware: Middleware
    may_respond: bool

    def __call__(self, fetch: Fetch) -> Fetch:
        return self._middleware(fetch)


def _with_spider(method: _Method | None, taken: int, spider: object) -> _Method | None:
    """Return a function that calls a method with ``taken`` arguments, and the spider if the method accepts it."""
    if method is None:
        return None
    try:
        signature = inspect.signature(method)
    except ValueError:  # the callable has no signature
        return method
    named = {"spider": spider} if "spider" in signature.parameters else {}
    if not named and accepts_arguments(method, taken + 1):
        return lambda *arguments: method(*arguments, spider)
    try:
        signature.bind(*[None] * taken, **named)
    except TypeError as error:
        name = getattr(method, "__qualname__", repr(method))
        setting = "DOWNLOADER_MIDDLEWARES" if name.rpartition(".")[2] in _METHODS else SETTING
        given = "one argument" if taken == 1 else f"{taken} arguments"
        raise SettingsError(f"{setting}: {name} has to take {given} (and the spider): {error}", setting) from error
    return (lambda *arguments: method(*arguments, spider=spider)) if named else method


async def _before(method: _Method, request: Request, name: str) -> Outcome | None:
    """Return the outcome that ``process_request`` sets for a request; None if the request continues."""
    try:
        with contained:
            answer = await awaited(method(request))
    except IgnoreRequest as error:
        return Outcome(request, error=error)
    except Exception as error:
        logger.exception("%r: %s.process_request failed", request, name)
        return Outcome(request, error=error)  # type: ignore[arg-type]  # unchanged, for process_exception and the errback
    if answer is None:
        return None
    outcome = Outcome(request)
    _take(answer, outcome, f"{name}.process_request")
    return outcome


async def _after(method: _Method, request: Request, outcome: Outcome, name: str) -> None:
    """Call ``process_response`` and use its result. Its errors bypass every ``process_exception``, as in Scrapy."""
    answer = await awaited(method(request, outcome.response))
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
        kinds = "a Response or a Request" if where.endswith(".process_response") else "a Response, a Request or None"
        raise TrawlError(f"{where} returned {type(answer).__name__}: it may return {kinds}")


@attrs.frozen
class SpiderMiddleware:
    """The objects of ``SPIDER_MIDDLEWARES``: their inputs in the order of the calls, and hooks.

    The first hook is nearest to the spider. ``sees_errors`` means that an object has ``process_spider_exception``.
    """

    inputs: Sequence[_Method]
    outputs: Sequence[Hook]
    start: Sequence[StartHook]
    sees_errors: bool

    def received(self, response: Response) -> TrawlError | None:
        """Pass a response to each ``process_spider_input``. Returns the first error that a method raises, or None."""
        try:
            with contained:
                for method in self.inputs:
                    method(response)
        except Exception as error:
            return Failure(error, response)
        return None


def spider_middleware(setting: Mapping[Any, float | None], crawl: Any) -> SpiderMiddleware:
    """Create the objects of ``SPIDER_MIDDLEWARES``. The highest number is nearest to the spider."""
    check_start_kept(setting)
    made: list[Any] = []
    named: list[tuple[Any, object]] = []
    wanted = sorted(((order, entry) for entry, order in setting.items() if order is not None), key=lambda pair: pair[0])
    for _, entry in reversed(wanted):
        if isinstance(entry, str) and entry.startswith(_SCRAPYS):
            why = class_advice(entry) or "trawl does that itself"
            logger.warning("%s: %s has no effect: %s", SETTING, entry, why)
            continue
        found = make_instance(entry, SETTING, crawl)
        if found is None:
            continue
        if crawl.settings["SCRAPY_COMPAT"] and not _is_scrapys(found) and not callable(found):
            logger.warning(_IDLE, SETTING, entry_name(entry), ", ".join(_SPIDER_METHODS))
            continue
        made.append(found)
        named.append((found, entry))
    outputs: list[Hook] = []
    for is_scrapys, group in groupby(named, lambda pair: _is_scrapys(pair[0])):
        if is_scrapys:
            outputs.append(_spider_hook([found for found, _ in group], crawl.spider))
        else:
            outputs += [_function(found, entry) for found, entry in group]
    inputs = [_with_spider(getattr(each, "process_spider_input", None), 1, crawl.spider) for each in reversed(made)]
    return SpiderMiddleware(
        inputs=[method for method in inputs if method is not None],
        outputs=outputs,
        start=_start_hooks(made, crawl.spider),
        sees_errors=any(callable(getattr(each, "process_spider_exception", None)) for each in made),
    )


def check_start_kept(setting: Mapping[Any, float | None]) -> None:
    """Refuse to remove Scrapy's ``StartSpiderMiddleware``, because trawl always marks start requests."""
    for entry, order in setting.items():
        if order is None and isinstance(entry, str) and entry.partition(".")[2] == _START:
            raise SettingsError(
                f"{SETTING}: {entry} can't be removed: start requests always have meta is_start_request; remove the"
                " entry, and delete the key from request.meta in a middleware if necessary",
                SETTING,
            )


def _is_scrapys(found: Any) -> bool:
    return any(callable(getattr(found, name, None)) for name in _SPIDER_METHODS)


def _function(found: Any, entry: object) -> Hook:
    functions = (found, getattr(found, "__call__", None))  # noqa: B004 - the method is only inspected
    is_other = any(inspect.isgeneratorfunction(each) or inspect.iscoroutinefunction(each) for each in functions)
    if is_other or not callable(found) or not accepts_arguments(found, 2):
        raise SettingsError(
            f"{SETTING}: {entry_name(entry)} is not a hook: an async generator function of a response and its outputs,"
            " or a class with process_spider_output, process_spider_exception, process_spider_input or process_start",
            SETTING,
        )
    hook: Hook = found
    return hook


def _spider_hook(middleware: Sequence[object], spider: object) -> Hook:
    """Return one hook for all objects with Scrapy's methods. The first object is nearest to the spider.

    ``process_spider_output`` may be a generator or an async generator. A plain generator gets the outputs when the
    callback has ended. An error of the callback is passed to each ``process_spider_exception`` in turn. An error of a
    ``process_spider_output`` is only passed to the objects further out. If one of these methods returns outputs, the
    outputs go to the next object further out. For the objects nearer to the spider, the original outputs simply end. If
    no method returns outputs, the error is raised in all objects further out. The outputs of an errback without a
    response bypass the hook.
    """
    passing = [_output_method(each, spider) for each in middleware]
    asked = [_with_spider(getattr(each, "process_spider_exception", None), 2, spider) for each in middleware]

    async def hook(response: Response | None, outputs: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        if response is None:
            async for output in outputs:
                yield output
            return
        depth = 1 if response.request is None else response.request.depth + 1
        answers: list[list[Any]] = [[] for _ in middleware]
        declined: list[Exception] = []

        async def until_error(given: AsyncIterator[Any], level: int) -> AsyncGenerator[Any, None]:
            try:
                with contained:
                    async for output in given:
                        yield output  # noqa: ASYNC119 - the hook closes this generator
            except Exception as error:
                if error in declined:
                    raise
                for number in range(level, len(asked)):
                    method = asked[number]
                    answer = None if method is None else await awaited(method(response, error))  # noqa: ASYNC120
                    if answer is not None:
                        answers[number].append(answer)
                        return
                declined.append(error)
                raise

        async def layer(given: AsyncIterator[Any], level: int) -> AsyncGenerator[Any, None]:
            async with aclosing(until_error(given, level)) as safe:
                method = passing[level]
                async with aclosing(iterate_async(safe if method is None else await method(response, safe))) as own:
                    async for output in own:
                        yield output  # noqa: ASYNC119
            for answer in answers[level]:
                async with aclosing(iterate_async(answer)) as own:
                    async for output in own:
                        yield output  # noqa: ASYNC119

        async with AsyncExitStack() as stack:
            outputs = await stack.enter_async_context(aclosing(_with_depth(outputs, depth)))
            for level in range(len(middleware)):
                outputs = await stack.enter_async_context(aclosing(layer(outputs, level)))
            async for output in outputs:
                if isinstance(output, Request) and type(output.meta_get("depth")) is _Depth:
                    del output.meta["depth"]
                yield output  # noqa: ASYNC119 - the caller closes this generator

    return hook


class _Depth(int):
    """A depth that the spider did not set. It is in the meta of a request only while spider middleware runs."""


async def _with_depth(outputs: AsyncIterator[Any], depth: int) -> AsyncGenerator[Any, None]:
    """Yield the outputs. Requests have their depth in their meta, as after Scrapy's ``DepthMiddleware``."""
    async for output in outputs:
        if isinstance(output, Request):
            output.meta["depth"] = depth if "depth" in output.meta else _Depth(depth)
        yield output


def _output_method(found: Any, spider: object) -> Callable[[Response, AsyncIterator[Any]], Awaitable[Any]] | None:
    """Return a function that calls ``process_spider_output``; None if the object has no such method."""
    written = getattr(found, "process_spider_output_async", None) or getattr(found, "process_spider_output", None)
    method = _with_spider(written, 2, spider)
    if method is None:
        return None
    is_async = inspect.isasyncgenfunction(written)

    async def passed(response: Response, outputs: AsyncIterator[Any]) -> Any:
        return method(response, outputs if is_async else await _taken(outputs)) or ()

    return passed


async def _taken(outputs: AsyncIterator[Any]) -> Iterator[Any]:
    """Wait for all outputs, and return a plain iterator over them. The iterator ends with their error, if any."""
    given: list[Any] = []
    failure: Exception | None = None
    try:
        with contained:
            async for output in outputs:
                given.append(output)
    except Exception as error:
        failure = error

    def replayed() -> Iterator[Any]:
        yield from given
        if failure is not None:
            raise failure

    return replayed()


def _start_hooks(hooks: Iterable[object], spider: Spider) -> list[StartHook]:
    """Return the hooks around ``start()``: each object's ``process_start`` or ``process_start_requests``.

    The first object is nearest to the spider. If the spider overrides ``start()``, the older method is refused.
    """
    newer: list[StartHook] = []
    older: list[Callable[..., Any]] = []
    for hook in hooks:
        name = type(hook).__qualname__
        if (method := getattr(hook, "process_start", None)) is not None:
            newer.append(_newer(method, name))
        elif (method := _with_spider(getattr(hook, "process_start_requests", None), 1, spider)) is not None:
            if type(spider).start is not Spider.start:
                raise SettingsError(
                    f"{SETTING}: {name}.process_start_requests can't be put around {type(spider).__name__}.start(),"
                    " which is asynchronous: write process_start(start), an async generator",
                    SETTING,
                )
            older.append(method)
    return [_older(older, spider), *newer] if older else newer


def _newer(method: Callable[[AsyncIterator[Any]], Any], name: str) -> StartHook:
    def around(outputs: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        made = method(outputs)
        if not hasattr(made, "__anext__"):
            raise UsageError(f"{name}.process_start is not an async generator: write `async def` with a `yield` in it")
        generator: AsyncGenerator[Any, None] = made
        return generator

    return around


def _older(methods: Sequence[Callable[..., Any]], spider: Spider) -> StartHook:
    async def around(outputs: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:  # noqa: RUF029 - nothing is awaited
        with ExitStack() as stack:
            made: Any = spider.start_requests()
            for method in methods:
                made = _closed_by(stack, method(_closed_by(stack, made)) or ())
            for output in made:
                yield output  # noqa: ASYNC119 - the engine reads start() with aclosing

    return around


def _closed_by(stack: ExitStack, made: Any) -> Any:
    """Return ``made``. If it can be closed, it is closed together with ``stack``."""
    return stack.enter_context(closing(made)) if hasattr(made, "close") else made
