"""Hooks around a crawl: over the outputs of callbacks, over ``start()``, and at its start, idle moments and end.

A hook of callbacks is an async generator function of two arguments: the response, and the outputs as an async iterator.
The crawl receives the outputs that the hook yields::

    async def only_with_price(response, outputs):
        async for output in outputs:
            if not isinstance(output, dict) or "price" in output:
                yield output

Code before the loop sees the response before its callback is called, and code in the loop sees each output. A ``try``
around the loop catches the callback's errors and may yield outputs instead. The callback, of any kind, is called when
the hook requests the first output, and runs only as fast as the hook takes its outputs.
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
"""A function around callbacks. The response is None for the outputs of an errback whose request had no response."""

StartHook = Callable[[AsyncIterator[Any]], AsyncGenerator[Any, None]]
"""A function around ``start()``."""

Store = Callable[[list[Request]], Awaitable[None]]
"""Stores requests and removes them from the list. Only cancelling the whole crawl interrupts it. A checkpoint."""


class Hooks:
    """The hooks of one crawl. These methods do nothing; a subclass overrides the methods that it needs."""

    def __init__(
        self,
        outputs: Sequence[Hook] = (),
        start: Sequence[StartHook] = (),
        check: ItemCheck | None = None,
        *,
        sees_refused: bool = False,
    ) -> None:
        # Both are around the callback or start(), the innermost first. The items of the hooks pass the check.
        self.outputs: Sequence[Hook] = outputs if check is None else [*outputs, check]
        self.start: Sequence[StartHook] = start if check is None else [*start, check.process_start]
        # A status code that neither callback nor errback handles is raised in `outputs`, as if by the callback.
        self.sees_refused: bool = sees_refused

    def received(self, response: Response) -> TrawlError | None:
        """Called with a response before its callback. A returned error goes to the errback instead of the callback.

        Without an errback, the error's ``value`` is raised in the outputs, as if the callback had raised it.
        """
        return None

    def begin(self, events: Events) -> None:
        """Called when the crawl is assembled and nothing has run. Listeners may be added to ``events``."""

    async def opened(self) -> None:
        """Called when pipelines and feeds are open, before ``start()`` is read. May be a checkpoint."""

    @property
    def wants_idle(self) -> bool:
        """True if :meth:`idle` should be called when nothing is pending."""
        return False

    async def idle(self, store: Store) -> bool:
        """Called when nothing is pending; may store requests. Cancelled when the crawl ends. May be a checkpoint.

        Returns:
            True to call the hook again when nothing is pending; False to end the crawl then.
        """
        return False

    async def closing(self, reason: str) -> None:
        """Called when the crawl has ended for ``reason``, before the spider's ``closed``. May be a checkpoint."""

    def close(self, spider: Spider, reason: str) -> object:
        """Notify the spider that the crawl has ended for ``reason``. Returns its method's result, to be awaited."""
        return spider.closed(reason)

    async def closed(self) -> None:
        """Called after the spider's ``closed``. May be a checkpoint."""


class IdleRunner:
    """Calls :meth:`Hooks.idle` when nothing is pending, until the hook returns False.

    A call counts as one open request, as ``start()`` does. The dispatcher continues during the call, so the hook may
    fetch.
    """

    def __init__(self, hooks: Hooks, leases: Leases, shields: Shields, state: State) -> None:
        self._hooks = hooks
        self._leases = leases
        self._shields = shields
        self._state = state
        self._scope = trio.CancelScope()
        self._is_over = False

    @property
    def is_wanted(self) -> bool:
        """True if the hook should be called again, so that the crawl continues."""
        return not self._is_over and not self._state.is_ending and self._hooks.wants_idle

    def begin(self) -> None:
        """Count the next call as open. The caller must start :meth:`run` next."""
        self._scope = trio.CancelScope()
        self._state.reading_began()

    def stop(self) -> None:
        """Cancel the hook. Requests that it passed to ``store`` are stored."""
        self._scope.cancel()

    async def run(self) -> None:
        """Call the hook once. A checkpoint."""
        try:
            with self._scope:
                await trio.lowlevel.checkpoint()  # don't call the hook if the crawl ended in the meantime
                self._is_over = not await self._hooks.idle(self._store)
        finally:
            self._state.reading_ended()

    async def _store(self, requests: list[Request]) -> None:
        with self._shields.shielded():
            while requests:
                await self._leases.push(requests[:BATCH], depth=0, is_start=True)
                del requests[:BATCH]
                await trio.lowlevel.checkpoint()
        if self._shields.is_cancelled:  # the crawl is cancelled, and the shield has swallowed that
            await trio.lowlevel.checkpoint()


async def hooked(
    hooks: Iterable[Hook], callback: Callback, argument: object, cb_kwargs: Mapping[str, object] | None
) -> AsyncGenerator[Any, None]:
    """Yield the outputs of a callback after all ``hooks``, the innermost first.

    The callback is called when the first output is requested. Its argument is a response, or an error, which may have
    one. Closing closes all hooks and the callback's own generator.
    """
    response = argument if isinstance(argument, Response) else getattr(argument, "response", None)
    made = partial(call, callback, argument, cb_kwargs)
    async with started_by([partial(hook, response) for hook in hooks], _outputs(made)) as outputs:
        async for output in outputs:
            yield output  # noqa: ASYNC119 - the engine consumes it with aclosing


@asynccontextmanager
async def started_by(hooks: Iterable[StartHook], started: Any) -> AsyncGenerator[AsyncIterator[Any], None]:
    """Yield the outputs of ``start()``, or of a callback, after all ``hooks``; leaving closes all of them."""
    async with AsyncExitStack() as stack:
        outputs = await stack.enter_async_context(aclosing(started))
        for hook in hooks:
            outputs = await stack.enter_async_context(aclosing(hook(outputs)))
        yield outputs


async def _outputs(made: Callable[[], object]) -> AsyncGenerator[Any, None]:
    """Yield the outputs of a callback of any of the four kinds. The callback is called when the first is requested."""
    async with aclosing(iterate_async(made())) as outputs:
        async for output in outputs:
            yield output  # noqa: ASYNC119 - hooked() closes it
