"""What a user puts between callbacks and the crawl: functions over the outputs of one callback.

A hook is an async generator function of two arguments: the response, and the outputs as an async iterator. It gives
what goes on::

    async def only_with_price(response, outputs):
        async for output in outputs:
            if not isinstance(output, dict) or "price" in output:
                yield output

One function does what Scrapy's spider middleware has four methods for: what stands before the loop sees the response
before its callback is called; what is in it sees each output; ``try`` around it sees what the callback raises, and may
give outputs in its place. The callback is called when the first output is asked for, of whatever kind it is, and as
slowly as its outputs are taken. Scrapy's classes are run by :func:`scrapy_hook`.

What a user puts around ``start()``: Scrapy's ``process_start``, and its older form ``process_start_requests``.

The older one is a plain generator over a plain iterator: what it takes can't be waited for. So it is put around the
start URLs, or ``start_requests()``, before they become asynchronous; whatever its number, it is nearer to the spider
than any ``process_start``. A spider with a ``start()`` of its own may await in it, and is refused, as in Scrapy.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, ExitStack, aclosing, asynccontextmanager, closing
from functools import partial
from typing import Any, cast

import attrs

from trawl.engine.callbacks import Callback, call
from trawl.errors import SettingsError, UsageError
from trawl.http import Response
from trawl.middleware.factory import accepts_arguments, entry_name, make_instance
from trawl.middleware.scrapy_style import with_spider
from trawl.moving import in_place_of
from trawl.spiders import ItemCheck, Spider
from trawl.throttling.managers import awaited

__all__ = ["START_METHODS", "Hook", "Hooks", "StartHook", "hooked", "scrapy_hook", "start_hooks", "started_by"]

StartHook = Callable[[AsyncIterator[Any]], AsyncGenerator[Any, None]]
"""What is put around ``start()``."""

START_METHODS = ("process_start", "process_start_requests")

SETTING = "SPIDER_MIDDLEWARES"


def start_hooks(hooks: Iterable[object], spider: Spider) -> list[StartHook]:
    """What objects put around ``start()``: the ``process_start`` of each, or else its ``process_start_requests``.

    Args:
        hooks: Hooks, or objects with Scrapy's methods; the first next to the spider.
        spider: Whose start it is, and what ``process_start_requests`` is given, where it takes it.

    Raises:
        SettingsError: One has only ``process_start_requests``, and the spider a ``start()`` of its own.
    """
    newer: list[StartHook] = []
    older: list[Callable[..., Any]] = []
    for hook in hooks:
        name = type(hook).__qualname__
        if (method := getattr(hook, "process_start", None)) is not None:
            newer.append(_newer(method, name))
        elif (method := with_spider(getattr(hook, "process_start_requests", None), 1, spider)) is not None:
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
            raise UsageError(f"{name}.process_start is no async generator: `async def` with a `yield` in it")
        generator: AsyncGenerator[Any, None] = made
        return generator

    return around


def _older(methods: Sequence[Callable[..., Any]], spider: Spider) -> StartHook:
    async def around(outputs: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:  # noqa: ASYNC124 - nothing is awaited
        with ExitStack() as stack:
            made: Any = spider.start_requests()
            for method in methods:
                made = _closed_by(stack, method(_closed_by(stack, made)) or ())
            for output in made:
                yield output  # noqa: ASYNC119 - the engine reads start() with aclosing

    return around


def _closed_by(stack: ExitStack, made: Any) -> Any:
    """``made``, closed when ``stack`` is, if it can be."""
    return stack.enter_context(closing(made)) if hasattr(made, "close") else made


logger: logging.Logger = logging.getLogger("trawl.engine")

Hook = Callable[[Response | None, AsyncIterator[Any]], AsyncGenerator[Any, None]]
"""What is put around callbacks. The response is None for the outputs of an errback whose request had no response."""

_METHODS = ("process_spider_input", "process_spider_output", "process_spider_exception", *START_METHODS)

_SCRAPYS = "scrapy.spidermiddlewares."


@attrs.frozen
class Hooks:
    """The hooks of one crawl.

    Attributes:
        outputs: Put around each callback, the first next to it.
        start: Put around ``start()``, the first next to it.
    """

    outputs: Sequence[Hook] = ()
    start: Sequence[StartHook] = ()

    @classmethod
    def build(cls, setting: Mapping[Any, float | None], crawl: Any, *, last: ItemCheck | None = None) -> Hooks:
        """The hooks that ``SPIDER_MIDDLEWARES`` names; those with high numbers are next to the spider.

        Args:
            setting: What it names, with numbers.
            crawl: What classes are made with.
            last: Sees what all of them give.

        Raises:
            SettingsError: An entry leads to nothing, can't be made, or is no hook.
        """
        outputs: list[Hook] = []
        made: list[Any] = []
        wanted = sorted(((order, entry) for entry, order in setting.items() if order is not None), key=_order)
        for _, entry in reversed(wanted):
            if isinstance(entry, str) and entry.startswith(_SCRAPYS):
                why = in_place_of(entry) or "trawl does that itself"
                logger.warning("%s: %s has no effect: %s", SETTING, entry, why)
                continue
            found = make_instance(entry, SETTING, crawl)
            if found is None:
                continue
            made.append(found)
            outputs.append(_hook(found, entry, crawl.spider))
        start = start_hooks(made, crawl.spider)
        if last is not None:
            outputs.append(last)
            start.append(last.process_start)
        return cls(outputs, start)


def hooked(
    hooks: Iterable[Hook], callback: Callback, argument: object, cb_kwargs: Mapping[str, object] | None
) -> AsyncGenerator[Any, None]:
    """The outputs of a callback after all ``hooks``, the first of which is next to it.

    Args:
        hooks: Put around it.
        callback: Called when the first output is asked for.
        argument: What it is given: a response, or an error, which may have one.
        cb_kwargs: What it is given by name.
    """
    response = argument if isinstance(argument, Response) else getattr(argument, "response", None)
    return _hooked(hooks, response, partial(call, callback, argument, cb_kwargs))


@asynccontextmanager
async def started_by(hooks: Iterable[StartHook], started: Any) -> AsyncGenerator[AsyncIterator[Any], None]:
    """What ``start()`` gives after all ``hooks``; leaving closes all of them."""
    async with AsyncExitStack() as stack:
        outputs = await stack.enter_async_context(aclosing(started))
        for hook in hooks:
            outputs = await stack.enter_async_context(aclosing(hook(outputs)))
        yield outputs


def scrapy_hook(found: object, spider: object) -> Hook:
    """An object with Scrapy's methods as a hook.

    ``process_spider_output`` may be a generator or an async generator. A plain generator gets the outputs when the
    callback has ended; if that raised, the error comes after what it gave before. ``process_spider_exception`` sees
    what the callback, or a hook next to it, raised.

    Args:
        found: The object.
        spider: What its methods are given as ``spider``, where they take it.
    """
    entered = with_spider(getattr(found, "process_spider_input", None), 1, spider)
    method = getattr(found, "process_spider_output_async", None) or getattr(found, "process_spider_output", None)
    passed = with_spider(method, 2, spider)
    is_async = inspect.isasyncgenfunction(method)
    failed = with_spider(getattr(found, "process_spider_exception", None), 2, spider)

    async def hook(response: Response | None, outputs: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        try:
            if entered is not None and response is not None:
                entered(response)
            if passed is None:
                async for output in outputs:
                    yield output
            elif is_async:
                async with aclosing(passed(response, outputs)) as own:
                    async for output in own:
                        yield output  # noqa: ASYNC119 - whoever asks for outputs closes their generator
            else:
                for output in passed(response, await _taken(outputs)) or ():
                    yield output
        except Exception as error:
            instead = None if failed is None else await awaited(failed(response, error))  # noqa: ASYNC120
            if instead is None:
                raise
            for output in instead:
                yield output

    return hook


async def _taken(outputs: AsyncIterator[Any]) -> Iterator[Any]:
    """All that ``outputs`` gives, to be looked at without waiting; an error of theirs is raised in its place."""
    given: list[Any] = []
    failure: Exception | None = None
    try:
        async for output in outputs:
            given.append(output)
    except Exception as error:
        failure = error

    def replayed() -> Iterator[Any]:
        yield from given
        if failure is not None:
            raise failure

    return replayed()


async def _hooked(
    hooks: Iterable[Hook], response: Response | None, made: Callable[[], object]
) -> AsyncGenerator[Any, None]:
    """Closing closes all of them, and the callback's own generator."""
    async with AsyncExitStack() as stack:
        outputs = await stack.enter_async_context(aclosing(_outputs(made)))
        for hook in hooks:
            outputs = await stack.enter_async_context(aclosing(hook(response, outputs)))
        async for output in outputs:
            yield output  # noqa: ASYNC119 - the engine consumes it with aclosing


async def _outputs(made: Callable[[], object]) -> AsyncGenerator[Any, None]:
    """The outputs of a callback of any of the four kinds."""
    result = made()
    if inspect.isawaitable(result):
        result = await result
    if result is None:
        return
    if isinstance(result, AsyncIterable):
        async with AsyncExitStack() as stack:
            if hasattr(result, "aclose"):
                await stack.enter_async_context(aclosing(cast("Any", result)))
            async for output in result:
                yield output  # noqa: ASYNC119 - _hooked closes it
        return
    many = result if isinstance(result, list | tuple) or hasattr(result, "__next__") else [result]
    try:
        for output in cast("Iterable[Any]", many):
            yield output
    finally:
        if inspect.isgenerator(many):
            many.close()


def _hook(found: Any, entry: object, spider: object) -> Hook:
    if any(callable(getattr(found, name, None)) for name in _METHODS):
        return scrapy_hook(found, spider)
    if not callable(found) or not accepts_arguments(found, 2) or _is_of_another_kind(found):
        raise SettingsError(
            f"{SETTING}: {entry_name(entry)} is not a hook: an async generator function of a response and its outputs,"
            " or a class with process_spider_output, process_spider_exception, process_spider_input or process_start",
            SETTING,
        )
    hook: Hook = found
    return hook


def _is_of_another_kind(found: Any) -> bool:
    """Whether something is a plain generator function, or an async function without ``yield``."""
    functions = (found, getattr(found, "__call__", None))  # noqa: B004 - the method itself, to be looked at
    return any(inspect.isgeneratorfunction(each) or inspect.iscoroutinefunction(each) for each in functions)


def _order(pair: tuple[float, object]) -> float:
    return pair[0]
