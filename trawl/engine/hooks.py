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
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from typing import Any, cast

import attrs

from trawl.engine.callbacks import Callback, call
from trawl.engine.start_hooks import START_METHODS, StartHook, start_hooks
from trawl.errors import SettingsError
from trawl.http import Response
from trawl.middleware.loading import fits, instance, named
from trawl.middleware.scrapy_style import with_spider
from trawl.moving import in_place_of
from trawl.spiders import ItemCheck
from trawl.throttling.managers import awaited

__all__ = ["Hook", "Hooks", "StartHook", "hooked", "scrapy_hook", "started_by"]

logger: logging.Logger = logging.getLogger("trawl.engine")

Hook = Callable[[Response | None, AsyncIterator[Any]], AsyncGenerator[Any, None]]
"""What is put around callbacks. The response is None for the outputs of an errback whose request had no response."""

SETTING = "SPIDER_MIDDLEWARES"
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
            found = instance(entry, SETTING, crawl)
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
    if not callable(found) or not fits(found, 2) or _is_of_another_kind(found):
        raise SettingsError(
            f"{SETTING}: {named(entry)} is no hook: an async generator function of a response and its outputs, or a"
            " class with process_spider_output, process_spider_exception, process_spider_input or process_start",
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
