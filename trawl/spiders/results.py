"""The outputs of callbacks: their types, generic in the spider's items, and iteration over them."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

from trawl.http import Request
from trawl.items import is_item

__all__ = ["ItemT", "Output", "OutputIterable", "Outputs", "is_async", "iterate", "iterate_async"]


if TYPE_CHECKING:
    from typing_extensions import TypeVar  # with a default: `Spider` alone is a spider of any items

    ItemT = TypeVar("ItemT", default=Any)
else:
    from typing import TypeVar

    ItemT = TypeVar("ItemT")


Output: TypeAlias = Request | ItemT | None
"""One output of a callback."""

Outputs: TypeAlias = (
    Request
    | ItemT
    | Iterable[Request | ItemT | None]
    | AsyncIterable[Request | ItemT | None]
    | Awaitable[Request | ItemT | Iterable[Request | ItemT | None] | None]
    | None
)
"""The result of a callback: one output or several, at once or asynchronously."""


def is_async(result: object) -> bool:
    """Return True if a callback's result has to be awaited or iterated asynchronously."""
    return inspect.isawaitable(result) or isinstance(result, AsyncIterable)


def iterate(result: Any) -> Iterable[Any]:
    """Return the outputs of a callback that is not asynchronous: of any iterable that is neither text nor an item."""
    if result is None:
        return ()
    if isinstance(result, list | tuple | Iterator):
        return result
    is_one = isinstance(result, str | bytes) or not isinstance(result, Iterable) or is_item(result)
    return (result,) if is_one else result


class OutputIterable:
    """Outputs that an override may read with ``for`` or with ``async for``, as Scrapy's spiders do."""

    def __init__(self, plain: Iterator[Any], later: Callable[[Iterator[Any]], AsyncGenerator[Any, None]]) -> None:
        """Read ``plain``, or what ``later`` makes of it."""
        self._plain = plain
        self._later = later
        self._made: AsyncGenerator[Any, None] | None = None

    def __iter__(self) -> Iterator[Any]:
        return (output for output in self._plain if output is not None)

    def __aiter__(self) -> AsyncGenerator[Any, None]:
        self._made = self._later(self._plain)
        return self._made

    async def aclose(self) -> None:
        """Close what ``async for`` reads. A checkpoint where that is one."""
        if self._made is not None:
            await self._made.aclose()


async def iterate_async(result: Any) -> AsyncGenerator[Any, None]:
    """Yield the outputs of a callback of any kind. Closing it closes the callback's generator."""
    if inspect.isawaitable(result):
        result = await result
    if not isinstance(result, AsyncIterable):
        many = iterate(result)
        try:
            for output in many:
                yield output
        finally:
            if inspect.isgenerator(many):
                many.close()
        return
    closing: Any = aclosing(result) if hasattr(result, "aclose") else nullcontext(result)
    async with closing as outputs:
        async for output in outputs:
            yield output  # noqa: ASYNC119 - who reads this closes it
