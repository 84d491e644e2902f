"""What a user puts around ``start()``: Scrapy's ``process_start``, and its older form ``process_start_requests``.

The older one is a plain generator over a plain iterator: what it takes can't be waited for. So it is put around the
start URLs, or ``start_requests()``, before they become asynchronous; whatever its number, it is nearer to the spider
than any ``process_start``. A spider with a ``start()`` of its own may await in it, and is refused, as in Scrapy.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from typing import Any

from trawl.errors import SettingsError, UsageError
from trawl.middleware.scrapy_style import with_spider
from trawl.spiders import Spider

__all__ = ["START_METHODS", "StartHook", "start_hooks"]

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
