"""One crawl from its context to its end: the nurseries, the watchers, and the order of closing.

::

    watching: signals, the live panel, limits of time and memory, WATCHERS
      writers: the feeds (shielded, so that a cancelled crawl still ends on whole records)
        inner: start(), the dispatcher, one task a request

The dispatcher returns when the crawl is idle or ending. It runs again if the hook ``idle`` adds requests. The inner
nursery ends with its last request. Then everything is closed, each step shielded and with a time limit. The first
shutdown sets a deadline on the inner nursery. A second one, or a cancellation by the caller, cancels it at once.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import attrs
import trio

from trawl.blocking import InlineBlocking
from trawl.engine.context import CrawlContext
from trawl.engine.crawl import Crawl, Watcher
from trawl.engine.engine import Engine
from trawl.engine.hooks import Hooks
from trawl.engine.items import Writer
from trawl.engine.watchers import contained_watcher, limit_watchers, own_watchers
from trawl.errors import FeedError
from trawl.scheduler import pending_pages
from trawl.spiders import Spider
from trawl.tracebacks import contained

__all__ = ["CrawlResult", "run_crawl", "try_crawl"]

logger: logging.Logger = logging.getLogger("trawl.engine")

EVENTS_GRACE = 5.0
"""Seconds that readers of events have to finish after the end of the crawl."""

CLOSE_STEP_GRACE = 10.0
"""Maximum seconds of each step of closing, such as closing a pipeline or the spider, or the last write of the feeds."""


@attrs.frozen
class CrawlResult:
    """The result of a crawl.

    Attributes:
        reason: ``finished``, ``shutdown``, ``cancelled``, ``start_error``, ``feed_error`` or a CloseSpider reason.
        stats: Statistics by key.
        elapsed: Duration in seconds, by the event loop's clock.
        items: The items in the order in which they were finished; None if the crawl has feeds, because a crawl that
            writes its items keeps none in memory.
        error: The error of a feed, if the reason is ``feed_error``; else None.
    """

    reason: str
    stats: Mapping[str, Any]
    elapsed: float
    items: list[Any] | None = None
    error: FeedError | None = None


async def run_crawl(context: CrawlContext) -> CrawlResult:
    """Run a crawl to its end. A checkpoint; cancelling stops requests in flight and ends the feeds on whole records."""
    engine: Engine | None = None
    try:
        engine = Engine(context)
        watchers = _begun(context, engine)
    # A user class could not be made. Everything that was opened for the crawl must still be closed.
    except BaseException:
        await _leave(context, engine)  # noqa: ASYNC102 - shielded and limited
        raise
    writing = _WriterTask(engine)
    engine.crawl.when_cancelled(writing.hurry)
    try:
        async with trio.open_nursery() as watching:
            for watcher in watchers:
                watching.start_soon(watcher, engine.crawl)
            watching.start_soon(engine.crawl.keep_status)
            engine.job_state.begin(watching)
            if context.open_job.line is not None:
                watching.start_soon(context.open_job.line.run)
            await _written(context, engine, writing)
            # Readers of events get the last ones before they are cancelled with all watchers.
            with trio.move_on_after(EVENTS_GRACE):
                await context.events.end()
            watching.cancel_scope.cancel()
    finally:
        reason = "feed_error" if writing.error is not None else context.state.reason or "cancelled"
        # This order is required: leases return once nothing more is sent, closed() may still count and log, the final
        # state includes these counts, and the frontier writes it.
        whole = partial(engine.leases.give_back, [*pending_pages(engine.scheduler), *engine.cache_lookup.pending()])
        await _closing("what was in flight", whole)  # noqa: ASYNC102 - shielded and limited, each of them
        await _closing("the spider", partial(_closed, context.spider, engine.hooks, reason), engine.crawl)  # noqa: ASYNC102
        engine.script_pages.tell()
        try:
            engine.job_state.last_word(reason)
        except Exception:
            logger.exception("what was learned since it was last kept is lost")
        await _leave(context, engine)  # noqa: ASYNC102
        stats = engine.crawl.stats
        stats.set("finish_reason", reason)
        stats.set("elapsed_seconds", engine.job_state.elapsed)
    return CrawlResult(reason, stats.as_dict(), engine.crawl.elapsed, context.output.collected, writing.error)


async def try_crawl(context: CrawlContext) -> CrawlResult:
    """Make all objects of a crawl, including user classes and scope managers, and close it again. A checkpoint.

    Nothing is sent, ``start()`` is not read, and no pipeline is opened.

    Raises:
        SettingsError: If a user class can't be made, or is not of the kind that its setting needs.
        Exception: Any error of a user class.
    """
    engine: Engine | None = None
    try:
        engine = Engine(context)
        _begun(context, engine)
        for scope in context.values.throttling.throttling_scopes:
            engine.throttle.scope(scope, trio.current_time())
    finally:
        await _leave(context, engine)  # noqa: ASYNC102 - shielded and limited
    return CrawlResult("tried", {}, 0.0)


async def _leave(context: CrawlContext, engine: Engine | None) -> None:
    """Leave shared scopes, and close what was opened for the crawl. Each step is shielded and has a time limit."""
    if engine is not None:
        engine.leave()
    await _closing("the transport", context.network.transport.aclose)
    await _closing("the frontier", context.frontier.aclose)


def _begun(context: CrawlContext, engine: Engine) -> list[Watcher]:
    """Start the hooks of a crawl, and return the tasks that watch it."""
    own = own_watchers(context.values.engine.watchers, engine.crawl)
    if (browsers := context.middleware_stack.browsers) is not None:
        own.append(contained_watcher(browsers.run))
    engine.hooks.begin(context.events)
    is_simulated = isinstance(context.blocking, InlineBlocking)
    others = context.open_job.watchers(is_simulated=is_simulated)
    given = [contained_watcher(watcher) for watcher in context.watchers]
    return [*others, *given, *limit_watchers(context.values.engine, engine.limits), *own]


async def _written(context: CrawlContext, engine: Engine, writing: _WriterTask) -> None:
    """Run the crawl, and return after the last item is written."""
    async with trio.open_nursery() as writers:
        for writer in context.writers:
            writers.start_soon(writing.write, writer)
        try:
            try:
                async with engine.processor.opened(context.spider):
                    with engine.crawl.cancel_scope:
                        await engine.hooks.opened()
                        await _crawl(context, engine)
                        context.state.end("start_error" if engine.start_requests.has_failed else "finished")
            finally:
                # Close the writers before the nursery waits for them, because they run until they are closed.
                for writer in context.writers:
                    writer.close()
            await writing.ended.wait()  # writers are shielded, so a caller's cancellation arrives here
        except BaseException:
            writing.hurry()
            raise


async def _crawl(context: CrawlContext, engine: Engine) -> None:
    """Run everything between the first request and the last output."""
    state = context.state
    async with trio.open_nursery() as inner:
        try:
            engine.job_state.restore()
            engine.items.begin()
            for _ in range(2):  # Trio starts tasks in any order; after two iterations of its loop every watcher runs
                await trio.lowlevel.checkpoint()
            await engine.throttle.begin(trio.current_time())
            engine.leases.restore()
            read_start = partial(inner.start_soon, engine.start_requests.run, engine.dispatcher.start_granter(inner))
            engine.shared_job.begin(inner, read_start)
            state.begin()
            await engine.dispatcher.run(inner)
            while engine.idle_runner.is_wanted and not engine.shared_job.leads:
                engine.idle_runner.begin()
                engine.shared_job.hold()
                inner.start_soon(engine.idle_runner.run)
                await engine.dispatcher.run(inner)
            state.close()  # requests added later would not be sent; no await may come between run() and this
            engine.shared_job.stop()
            await _last_tasks(context, engine, inner)
            if state.is_ending:
                await engine.shared_job.others_left()
        finally:
            # After any end, such as an error, a deadline or a cancellation, nothing shielded may continue.
            state.close()
            engine.shared_job.stop()
            context.shields.cancel()
            engine.start_requests.stop()


async def _last_tasks(context: CrawlContext, engine: Engine, inner: trio.Nursery) -> None:
    """Wait for requests in flight. Once the crawl is ending, the wait has a time limit. A checkpoint."""
    state = context.state
    is_told = False
    while True:
        if state.is_ending and not is_told:  # the crawl may start to end during this wait
            is_told = True
            words = "%r is ending: %s; %d in flight"
            logger.info(words, context.spider, state.reason, engine.scheduler.in_flight)
            engine.start_requests.stop()
            engine.idle_runner.stop()
            inner.cancel_scope.deadline = trio.current_time() + context.values.engine.shutdown_timeout
        engine.dispatcher.let_go()
        engine.direct.give_up()  # a redirect may have replaced a fetch in flight
        if not state.tasks and not state.is_reading:
            return
        # One scope per wait, because a task that releases a place may still cancel it.
        with trio.CancelScope() as alarm:
            await state.wakeup.wait(math.inf, alarm)


class _WriterTask:
    """The receivers' writers. They are shielded, so that a cancelled crawl ends on whole records, within a time limit.

    A crawl that ended by itself waits for its writers without a limit, so that a paused reader of a pipe loses nothing.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._running = len(engine.context.writers)
        self._scopes: list[trio.CancelScope] = []
        self._until = math.inf
        self.error: FeedError | None = None  # of a feed
        self.ended = trio.Event()  # set when all writers have ended
        if not self._running:
            self.ended.set()

    async def write(self, receiver: Writer) -> None:
        """Run one receiver's writer. If it fails, the crawl ends with ``feed_error``."""
        with trio.CancelScope(shield=True, deadline=self._until) as scope:
            self._scopes.append(scope)
            try:
                await receiver.write()
            except FeedError as error:
                self._failed(error)
        self._running -= 1
        if not self._running:
            self.ended.set()
        if scope.cancelled_caught:
            self._failed(
                FeedError(f"a feed was not closed within {CLOSE_STEP_GRACE:g} s: its last records may be missing")
            )

    def hurry(self) -> None:
        """Limit the time of the writers from the first cancellation on."""
        self._until = min(self._until, trio.current_time() + CLOSE_STEP_GRACE)
        for scope in self._scopes:
            scope.deadline = self._until

    def _failed(self, error: FeedError) -> None:
        self.error = self.error or error
        words = "what was not written yet is lost: with a job (--job) it is not"
        if self._engine.context.open_job.is_durable:
            words = "nothing is lost: put that right, and start the job again"
        logger.error("%s; %s", error, words)
        self._engine.crawl.cancel("feed_error")


async def _closed(spider: Spider, hooks: Hooks, reason: str) -> None:
    await hooks.closing(reason)
    result = hooks.close(spider, reason)
    if inspect.isawaitable(result):
        await result
    await hooks.closed()


async def _closing(what: str, close: Callable[[], Awaitable[None]], crawl: Crawl | None = None) -> None:
    """Run one step of closing, shielded and with a time limit. A failure does not prevent the next step.

    Another cancellation of the ``crawl``, such as a second Ctrl-C, ends the step at once.
    """
    with trio.move_on_after(CLOSE_STEP_GRACE, shield=True) as scope:
        if crawl is not None:
            crawl.when_cancelled(scope.cancel)
        try:
            with contained:
                await close()
        except Exception:
            logger.exception("closing %s failed", what)
    if scope.cancelled_caught:
        logger.error(
            "closing %s was given up: it took more than %g s, or the crawl was cancelled", what, CLOSE_STEP_GRACE
        )
