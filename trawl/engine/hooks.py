"""Hooks around a crawl: over the outputs of callbacks, over ``start()``, and at its beginning, idle moments and end.

A hook of callbacks is an async generator function of two arguments: the response, and the outputs as an async iterator.
What it yields goes on::

    async def only_with_price(response, outputs):
        async for output in outputs:
            if not isinstance(output, dict) or "price" in output:
                yield output

Code before the loop sees the response before its callback is called; code in the loop sees each output; ``try`` around
it sees what the callback raises, and may yield outputs instead. The callback is called when the first output is asked
for, whatever kind of function it is, and as slowly as its outputs are taken.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from typing import Any

import trio

from trawl.engine.callbacks import BATCH, Callback, Shields, call
from trawl.engine.leases import Leases
from trawl.engine.state import State
from trawl.errors import TrawlError
from trawl.events import Events
from trawl.http import Request, Response
from trawl.spiders import ItemCheck, Spider
from trawl.spiders.spider import iterate_async

__all__ = ["Hook", "Hooks", "IdleRunner", "StartHook", "Store", "hooked", "started_by"]

Hook = Callable[[Response | None, AsyncIterator[Any]], AsyncGenerator[Any, None]]
"""Put around callbacks. The response is None for the outputs of an errback whose request had no response."""

StartHook = Callable[[AsyncIterator[Any]], AsyncGenerator[Any, None]]
"""Put around ``start()``."""

Store = Callable[[list[Request]], Awaitable[None]]
"""Stores requests, and takes them out of the list; only cancelling the whole crawl interrupts it. A checkpoint."""


class Hooks:
    """The hooks of one crawl. A subclass overrides the methods that it needs; here they do nothing.

    Args:
        outputs: Put around each callback, the first next to it.
        start: Put around ``start()``, the first next to it.
        check: Sees the items that all of them yield; None: they are not checked.
        sees_refused: See the attribute.

    Attributes:
        outputs: Put around each callback, the first next to it.
        start: Put around ``start()``, the first next to it.
        sees_refused: A status that neither callback nor errback takes is raised in ``outputs``, as if the callback had.
    """

    def __init__(
        self,
        outputs: Sequence[Hook] = (),
        start: Sequence[StartHook] = (),
        check: ItemCheck | None = None,
        *,
        sees_refused: bool = False,
    ) -> None:
        self.outputs: Sequence[Hook] = outputs if check is None else [*outputs, check]
        self.start: Sequence[StartHook] = start if check is None else [*start, check.process_start]
        self.sees_refused: bool = sees_refused

    def received(self, response: Response) -> TrawlError | None:
        """Called with a response before its callback. An error goes to the errback, and the callback is not called.

        Without an errback, the error's ``value`` is raised in the outputs, as if the callback had.
        """
        return None

    def begin(self, events: Events) -> None:
        """Called when the crawl is assembled and nothing has run; ``events`` may be listened to."""

    async def opened(self) -> None:
        """Called when pipelines and feeds are open, before ``start()`` is read. May be a checkpoint."""

    @property
    def wants_idle(self) -> bool:
        """True if :meth:`idle` is to be called when nothing is pending."""
        return False

    async def idle(self, store: Store) -> bool:
        """Called when nothing is pending; may store requests. Cancelled when the crawl ends. May be a checkpoint.

        Returns:
            True to be called again when nothing is pending any more; False to end the crawl then.
        """
        return False

    async def closing(self, reason: str) -> None:
        """Called when the crawl has ended for ``reason``, before the spider's ``closed``. May be a checkpoint."""

    def close(self, spider: Spider, reason: str) -> object:
        """Tell the spider that the crawl has ended for ``reason``. Returns what its method returned, to be awaited."""
        return spider.closed(reason)

    async def closed(self) -> None:
        """Called after the spider's ``closed``. May be a checkpoint."""


class IdleRunner:
    """Calls :meth:`Hooks.idle` when nothing is pending, as often as it asks for.

    A round counts as one open request, as ``start()`` does: the dispatcher goes on beside it, and the hook may fetch.

    Args:
        hooks: The hooks of the crawl.
        leases: Stores the requests that the hook gives.
        shields: Keep a store under way from being given up.
        state: Says what is open.
    """

    __slots__ = ("_hooks", "_is_over", "_leases", "_scope", "_shields", "_state")

    def __init__(self, hooks: Hooks, leases: Leases, shields: Shields, state: State) -> None:
        self._hooks = hooks
        self._leases = leases
        self._shields = shields
        self._state = state
        self._scope = trio.CancelScope()
        self._is_over = False

    @property
    def is_wanted(self) -> bool:
        """True if the crawl goes on with another round."""
        return not self._is_over and not self._state.is_ending and self._hooks.wants_idle

    def begin(self) -> None:
        """Count the next round as open; :meth:`run` is to be started next."""
        self._scope = trio.CancelScope()
        self._state.reading_began()

    def stop(self) -> None:
        """Cancel the hook; the requests that it was given are stored."""
        self._scope.cancel()

    async def run(self) -> None:
        """Run one round. A checkpoint."""
        try:
            with self._scope:
                await trio.lowlevel.checkpoint()  # the hook is not called if the crawl has been ended meanwhile
                self._is_over = not await self._hooks.idle(self._store)
        finally:
            self._state.reading_ended()

    async def _store(self, requests: list[Request]) -> None:
        with self._shields.shielded():
            while requests:
                await self._leases.push(requests[:BATCH], depth=0, is_start=True)
                del requests[:BATCH]
                await trio.lowlevel.checkpoint()
        if self._shields.is_cancelled:  # the crawl is, and the shield has swallowed that
            await trio.lowlevel.checkpoint()


def hooked(
    hooks: Iterable[Hook], callback: Callback, argument: object, cb_kwargs: Mapping[str, object] | None
) -> AsyncGenerator[Any, None]:
    """Return the outputs of a callback after all ``hooks``, the first of which is next to it.

    Args:
        hooks: Put around it.
        callback: Called when the first output is asked for.
        argument: Its argument: a response, or an error, which may have one.
        cb_kwargs: Its keyword arguments.
    """
    response = argument if isinstance(argument, Response) else getattr(argument, "response", None)
    return _hooked(hooks, response, partial(call, callback, argument, cb_kwargs))


@asynccontextmanager
async def started_by(hooks: Iterable[StartHook], started: Any) -> AsyncGenerator[AsyncIterator[Any], None]:
    """Yield the outputs of ``start()`` after all ``hooks``; leaving closes all of them."""
    async with AsyncExitStack() as stack:
        outputs = await stack.enter_async_context(aclosing(started))
        for hook in hooks:
            outputs = await stack.enter_async_context(aclosing(hook(outputs)))
        yield outputs


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
    """The outputs of a callback of any of the four kinds, which is called when the first is asked for."""
    async with aclosing(iterate_async(made())) as outputs:
        async for output in outputs:
            yield output  # noqa: ASYNC119 - _hooked closes it
