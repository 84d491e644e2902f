"""Reads the spider's ``start()`` with back-pressure.

``start()`` is read while there is room to send and no pending request may be sent. If other processes share the job, it
is also read while few requests are pending here. It is never read while more than
:data:`~trawl.engine.leases.MAX_PENDING` requests are pending. A generator without end therefore runs in constant
memory, and a list of a million hosts is read as fast as its requests can be sent.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from trawl.engine.callbacks import BATCH, CallbackOutputs, InvalidOutput, Shields, advice, leaf_errors
from trawl.engine.hooks import started_by
from trawl.engine.leases import MAX_PENDING
from trawl.errors import CloseSpider, JobError
from trawl.http import Request
from trawl.tracebacks import contained, without_own_frames

if TYPE_CHECKING:
    from trawl.engine.engine import Engine

__all__ = ["StartRequests"]

logger: logging.Logger = logging.getLogger("trawl.engine")


class StartRequests:
    """Stores the outputs of ``start()`` in the crawl.

    With a job, a later run does not read ``start()`` again if it had finished. Otherwise it reads ``start()`` from the
    first output on, and drops the requests that were already seen and as many items as were already stored.
    """

    def __init__(self, engine: Engine) -> None:
        context = engine.context
        self._events = context.events
        self._spider = context.spider
        self._shields = context.shields
        self._state = context.state
        self._leases = engine.leases
        self._items = engine.items
        self._job_state = engine.job_state
        self._next = context.open_job.deaths.next_of_start
        self._hooks = engine.hooks.start
        self._may_read = trio.Event()
        self._permits = 0
        self._waiting = Shields()  # cancels waits at any time, but never a push
        self._scope = trio.CancelScope()
        self._repeated = 0
        self.has_failed: bool = False  # start() raised an error or yielded an invalid output
        self.is_held: bool = False  # start() waits for room to send

    def allow(self, pending: int, places: float) -> None:
        """Allow as many reads as there are free ``places``, unless too many requests are ``pending``."""
        if pending < MAX_PENDING:
            self._permits = int(min(places, BATCH, MAX_PENDING - pending))
            self._may_read.set()

    def stop(self) -> None:
        """Stop reading. Outputs that were read are kept."""
        self._scope.cancel()
        self._waiting.cancel()

    async def run(self, grant_ready: Callable[[], Awaitable[None]] | None = None) -> None:
        """Read to the end. The reader counts as one open request, so the crawl is not idle before it has finished.

        ``grant_ready`` starts ready requests; None if that may have to wait, and the dispatcher starts them.
        """
        try:
            with contained, self._scope:
                if not self._job_state.is_over:
                    await self._read(grant_ready)
        except Exception as failure:
            self._failed(failure)
        finally:
            self._state.reading_ended()

    async def _read(self, grant_ready: Callable[[], Awaitable[None]] | None) -> None:
        items = self._items.of(None)
        outputs = CallbackOutputs(items, self._leases, 0, events=self._events)
        self._repeated = items.position
        async with started_by(self._hooks, _asynchronous(self._spider.start())) as started:
            while True:
                if not self._permits:
                    self._state.wakeup.set()  # the dispatcher calls allow()
                    self.is_held = True
                    with self._waiting.shielded():
                        await self._may_read.wait()
                    self.is_held = False
                # stop() was called during the wait or while start() computed.
                if self._waiting.is_cancelled:
                    return
                try:
                    output = await self._next(started)
                except StopAsyncIteration:
                    break
                if isinstance(output, Request):
                    self._permits -= 1
                    if not self._permits:
                        self._may_read = trio.Event()
                    if self._leases.never_waits and grant_ready is not None:
                        # Nothing here waits, so the user's cancel scopes have no effect.
                        if await self._leases.push([output], depth=0, is_start=True):
                            await grant_ready()  # send ready requests before reading more
                        continue
                try:
                    await self._take(output, outputs)
                except InvalidOutput as error:
                    self.has_failed = True
                    logger.error(
                        "%r: one output of start() is dropped, the others go on: %s", self._spider, error.told(started)
                    )
        # The end and the last items are stored in one step, which the user's cancel scopes must not interrupt.
        with self._shields.shielded():
            await self._job_state.end(items.given)
        if self._repeated:
            words = "%r: start() gave %d items fewer than in an earlier run: with a job it is to give them in one order"
            logger.warning(words, self._spider, self._repeated)

    async def _take(self, output: object, outputs: CallbackOutputs) -> None:
        """Take an output that may have to wait, protected from the generator's cancel scopes. A checkpoint."""
        with self._shields.shielded():
            if isinstance(output, Request):
                await self._leases.push([output], depth=0, is_start=True)
            elif self._repeated and output is not None:
                self._repeated -= 1
            elif not outputs.take_nowait(output):
                await outputs.take(output)
            await trio.lowlevel.checkpoint()

    def _failed(self, failure: BaseException) -> None:
        for leaf in leaf_errors(failure):
            if isinstance(leaf, CloseSpider):
                self._state.end(leaf.reason)
                return
        self.has_failed = True
        for leaf in leaf_errors(failure):
            if isinstance(leaf, JobError):  # logged where it ends the run
                continue
            said = advice(leaf, None)
            leaf.__traceback__ = without_own_frames(leaf)
            words = f"{self._spider!r}: start() failed: what it gave before goes on{f': {said}' if said else ''}"
            logger.error("%s", words, exc_info=leaf)


def _asynchronous(started: Any) -> Any:
    """Return the async generator of ``start()``, or raise TypeError for anything else."""
    if hasattr(started, "__anext__"):
        return started
    if inspect.iscoroutine(started):
        started.close()  # otherwise Python warns that it was never awaited
    kind = type(started).__name__
    raise TypeError(f"start() is an async generator, `async def` with a `yield` in it; it gave a {kind}")
