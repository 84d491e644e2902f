"""What a callback gave, one output after the other: for spiders that call the user's callback themselves.

The types of what callbacks give, generic in the spider's items.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Iterable, Iterator
from contextlib import aclosing, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

from trawl.http import Request

__all__ = ["ItemT", "Output", "Outputs", "is_async", "iterate", "iterate_async"]


if TYPE_CHECKING:
    from typing_extensions import TypeVar  # with a default: `Spider` alone is a spider of any items

    ItemT = TypeVar("ItemT", default=Any)
else:
    from typing import TypeVar

    ItemT = TypeVar("ItemT")


Output: TypeAlias = Request | ItemT | None
"""One thing that a callback gives."""

Outputs: TypeAlias = (
    Request
    | ItemT
    | Iterable[Request | ItemT | None]
    | AsyncIterable[Request | ItemT | None]
    | Awaitable[Request | ItemT | Iterable[Request | ItemT | None] | None]
    | None
)
"""What a callback returns: one thing, many, or either later."""


def is_async(result: object) -> bool:
    """Whether what a callback returned has to be awaited or read asynchronously."""
    return inspect.isawaitable(result) or isinstance(result, AsyncIterable)


def iterate(result: Any) -> Iterable[Any]:
    """The outputs of a callback that is not asynchronous."""
    if result is None:
        return ()
    return result if isinstance(result, list | tuple | Iterator) else (result,)


async def iterate_async(result: Any) -> AsyncGenerator[Any, None]:
    """The outputs of a callback of any kind. Closing it closes the callback's generator."""
    if inspect.isawaitable(result):
        result = await result
    if not isinstance(result, AsyncIterable):
        for output in iterate(result):
            yield output
        return
    closing: Any = aclosing(result) if hasattr(result, "aclose") else nullcontext(result)
    async with closing as outputs:
        async for output in outputs:
            yield output  # noqa: ASYNC119 - who reads this closes it
