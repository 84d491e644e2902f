"""What a callback gave, one output after the other: for spiders that call the user's callback themselves."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator
from contextlib import aclosing, nullcontext
from typing import Any

__all__ = ["each", "each_later", "is_later"]


def is_later(result: object) -> bool:
    """Whether what a callback returned has to be awaited or read asynchronously."""
    return inspect.isawaitable(result) or isinstance(result, AsyncIterable)


def each(result: Any) -> Iterable[Any]:
    """The outputs of a callback that is not asynchronous."""
    if result is None:
        return ()
    return result if isinstance(result, list | tuple | Iterator) else (result,)


async def each_later(result: Any) -> AsyncGenerator[Any, None]:
    """The outputs of a callback of any kind. Closing it closes the callback's generator."""
    if inspect.isawaitable(result):
        result = await result
    if not isinstance(result, AsyncIterable):
        for output in each(result):
            yield output
        return
    closing: Any = aclosing(result) if hasattr(result, "aclose") else nullcontext(result)
    async with closing as outputs:
        async for output in outputs:
            yield output  # noqa: ASYNC119 - who reads this closes it
