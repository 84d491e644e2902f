"""One crawl from its context to its end: the nurseries, what watches it, and the order of closing.

::

    watching: signals, the live panel, limits of time and memory, WATCHERS
      writers: the feeds (shielded, so that a cancelled crawl still ends on whole records)
        inner: start(), the dispatcher, one task a request

The dispatcher returns when the crawl is idle or ending; it goes on with the requests that the hook ``idle`` gives. The
inner nursery ends when its last request has. Then pipelines and feeds are closed, what was leased and not finished goes
back to the frontier, and spider, transport and frontier are closed, shielded and under a time limit each. The first
shutdown sets a deadline on the inner nursery; a second one, or a caller's cancel, cancels it at once.

A limit of time that passes, of items that do not come, of memory that grows is one task beside the crawl that sleeps
until it could be reached, ends the crawl as the first Ctrl-C does, and is cancelled with the others that watch.

Public through :mod:`trawl.engine`, its only importer.
"""

from __future__ import annotations

import inspect
import logging
import math
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import attrs
import trio

from trawl.engine.company import company_of
from trawl.engine.context import CrawlContext
from trawl.engine.crawl import Crawl, Watcher
from trawl.engine.engine import Engine
from trawl.engine.hooks import Hooks
from trawl.engine.items import Writer
from trawl.engine.limits import CrawlLimits, ItemLimit
from trawl.engine.settings import EngineSettings
from trawl.errors import FeedError, IgnoreRequest, SettingsError
from trawl.middleware.factory import accepts_arguments, entry_name, make_instance
from trawl.plugins import load_plugin
from trawl.scheduler import pending_pages
from trawl.spiders import Spider

__all__ = ["MEBIBYTE", "Ended", "held_bytes", "limit_watchers", "own_watchers", "run_crawl"]

MEBIBYTE = 1024 * 1024

_STATM = Path("/proc/self/statm")  # proc(5): the second figure is the resident set, in pages


def held_bytes() -> int | None:
    """Measure the process's resident set, in bytes: now on Linux, the largest so far on other Unixes, or None."""
    try:
        return int(_STATM.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return _largest_bytes()


def _largest_bytes() -> int | None:
    try:
        import resource  # noqa: PLC0415 - Windows has none
    except ImportError:
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024  # getrusage(2): bytes there, kibibytes elsewhere


logger: logging.Logger = logging.getLogger("trawl.engine")

Measure = Callable[[], "int | None"]
"""Gives the memory of the process in bytes, or None where it can't be told."""


def limit_watchers(settings: EngineSettings, limits: CrawlLimits, measure: Measure = held_bytes) -> list[Watcher]:
    """The tasks that hold a crawl to those limits that are set.

    Raises:
        SettingsError: The memory is limited, and this system does not tell how much there is in use.
    """
    watchers: list[Watcher] = []
    if settings.closespider_timeout:
        watchers.append(partial(_until, settings.closespider_timeout))
    if settings.closespider_timeout_no_item and limits.items is not None:
        watchers.append(partial(_while_items_come, settings.closespider_timeout_no_item, limits.items))
    if settings.memusage_limit_mb or settings.memusage_warning_mb:
        if measure() is None:
            name = "MEMUSAGE_LIMIT_MB" if settings.memusage_limit_mb else "MEMUSAGE_WARNING_MB"
            raise SettingsError(f"{name}: this system does not tell how much memory a process holds", name)
        watchers.append(partial(_while_memory_lasts, settings, measure))
    return watchers


async def _until(timeout: float, crawl: Crawl) -> None:
    await trio.sleep_until(crawl.started_at + timeout)
    crawl.shutdown("closespider_timeout")


async def _while_items_come(timeout: float, items: ItemLimit, crawl: Crawl) -> None:
    until = crawl.started_at + timeout
    while until > trio.current_time():
        await trio.sleep_until(until)
        until = max(items.latest_at, crawl.started_at) + timeout
    crawl.shutdown("closespider_timeout_no_item")


async def _while_memory_lasts(settings: EngineSettings, measure: Measure, crawl: Crawl) -> None:
    """Measure now and then. Reading a figure of the kernel's takes microseconds: it needs no thread."""
    limit, warning = settings.memusage_limit_mb, settings.memusage_warning_mb
    crawl.stats.set("memusage/startup", measure() or 0)
    has_warned = False
    while True:
        held = measure() or 0
        crawl.stats.max("memusage/max", held)
        held_mb = held / MEBIBYTE
        if limit and held_mb > limit:
            logger.error("memory: %.0f MiB held, MEMUSAGE_LIMIT_MB is %g: the crawl ends", held_mb, limit)
            crawl.stats.set("memusage/limit_reached", 1)
            crawl.shutdown("memusage_exceeded")
            return
        if warning and held_mb > warning and not has_warned:
            logger.warning("memory: %.0f MiB held, MEMUSAGE_WARNING_MB is %g", held_mb, warning)
            crawl.stats.set("memusage/warning_reached", 1)
            has_warned = True
        await trio.sleep(settings.memusage_check_interval_seconds)


SETTING = "WATCHERS"


def own_watchers(setting: Mapping[Any, float | None], crawl: Crawl) -> list[Watcher]:
    """The tasks that ``WATCHERS`` names, in their order; one that fails is logged, and the crawl goes on.

    Raises:
        SettingsError: An entry leads to nothing, can't be made, or is no watcher.
    """
    wanted = sorted(((order, entry) for entry, order in setting.items() if order is not None), key=itemgetter(0))
    return [partial(_watched, watcher, entry_name(entry)) for _, entry in wanted if (watcher := _own(entry, crawl))]


def _own(entry: Any, crawl: Crawl) -> Callable[[Crawl], Awaitable[None]] | None:
    is_name = isinstance(entry, str) and "." not in entry
    found = make_instance(load_plugin("trawl.watchers", entry) if is_name else entry, SETTING, crawl)
    if found is None:  # it says that it is not configured
        return None
    watcher: Any = getattr(found, "watch", found)
    is_generator = inspect.isgeneratorfunction(watcher) or inspect.isasyncgenfunction(watcher)
    if not callable(watcher) or is_generator or not accepts_arguments(watcher, 1):
        raise SettingsError(
            f"{SETTING}: {entry_name(entry)} is not a watcher: an async function of the running crawl, or a class with"
            " an async method `watch`",
            SETTING,
        )
    return watcher  # type: ignore[no-any-return]


async def _watched(watcher: Callable[[Crawl], Awaitable[None]], name: str, crawl: Crawl) -> None:
    try:
        watching: object = watcher(crawl)
        if not inspect.isawaitable(watching):
            logger.error("the watcher %s does not watch: it is no async function, and gave %r", name, watching)
            crawl.stats.inc("watcher_exceptions")
            return
        await watching
    except Exception as error:
        if isinstance(error, IgnoreRequest) and crawl.reason is not None:
            return  # it had more to add, and the crawl has come to its end
        logger.exception("the watcher %s failed; the crawl goes on without it", name)
        crawl.stats.inc("watcher_exceptions")


EVENTS_GRACE = 5.0
"""Seconds that readers of events have to come to an end when the crawl has."""

CLOSE_GRACE = 10.0
"""Seconds that each step of closing may take: a pipeline's or a spider's own closing, the last write of the feeds."""


@attrs.frozen
class Ended:
    """The end of a crawl.

    Attributes:
        reason: ``finished``, ``shutdown``, ``cancelled``, ``start_error``, ``feed_error`` or a CloseSpider reason.
        stats: The statistics as they stood at the end.
        elapsed: Seconds on the run clock.
        feed_error: What went wrong with a feed, if that is the reason.
    """

    reason: str
    stats: Mapping[str, Any]
    elapsed: float
    feed_error: FeedError | None


async def run_crawl(context: CrawlContext) -> Ended:
    """Run a crawl to its end. A checkpoint; cancelling drops what is in flight and ends the feeds on whole records."""
    engine: Engine | None = None
    try:
        engine = Engine(context)
        watchers = _begun(context, engine)
    # A class of the user's could not be made: what was opened for the crawl is closed all the same.
    except BaseException:
        if engine is not None:
            engine.leave()
        await _closing("the transport", context.transport.aclose)  # noqa: ASYNC102 - shielded and limited
        await _closing("the frontier", context.frontier.aclose)  # noqa: ASYNC102
        raise
    writing = _WriterTask(engine)
    engine.crawl.when_cancelled(writing.hurry)
    try:
        async with trio.open_nursery() as watching:
            for watcher in watchers:
                watching.start_soon(watcher, engine.crawl)
            if engine.job_state is not None:
                watching.start_soon(engine.job_state.run)
            if engine.line is not None:
                watching.start_soon(engine.line.run)
            await _written(context, engine, writing)
            # Those who read events get the last ones before they are cancelled with all that watches.
            with trio.move_on_after(EVENTS_GRACE):
                await context.events.end()
            watching.cancel_scope.cancel()
    finally:
        reason = "feed_error" if writing.error is not None else context.state.reason or "cancelled"
        # In this order: leases go back as nothing more is sent; closed() may still count and log; the last word has
        # these counts; the frontier writes it.
        whole = partial(engine.leases.give_back, [*pending_pages(engine.scheduler), *engine.unsent()])
        await _closing("what was in flight", whole)  # noqa: ASYNC102 - shielded and limited, each of them
        await _closing("the spider", partial(_closed, context.spider, engine.hooks, reason), engine.crawl)  # noqa: ASYNC102
        _keep_last_word(engine, reason)
        engine.leave()
        await _closing("the transport", context.transport.aclose)  # noqa: ASYNC102
        await _closing("the frontier", context.frontier.aclose)  # noqa: ASYNC102
        stats = engine.crawl.stats
        stats.set("finish_reason", reason)
        stats.set("elapsed_seconds", engine.crawl.elapsed if engine.job_state is None else engine.job_state.elapsed)
    return Ended(reason, stats.as_dict(), engine.crawl.elapsed, writing.error)


def _begun(context: CrawlContext, engine: Engine) -> list[Watcher]:
    """What watches a crawl."""
    own = own_watchers(context.engine.watchers, engine.crawl)
    engine.hooks.begin(context.events)
    company = company_of(context.job, context.wall)
    return [*company, *context.watchers, *limit_watchers(context.engine, engine.limits), *own]


async def _written(context: CrawlContext, engine: Engine, writing: _WriterTask) -> None:
    """The crawl, with its items written; returns when the last of them is."""
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
                # Before the nursery waits for them: they end when they are told that nothing more comes.
                for writer in context.writers:
                    writer.close()
            await writing.ended.wait()  # the writers are shielded from a caller's cancel: it is heard here
        except BaseException:
            writing.hurry()
            raise


async def _crawl(context: CrawlContext, engine: Engine) -> None:
    """Everything between the first request and the last output."""
    state = context.state
    async with trio.open_nursery() as inner:
        try:
            if engine.job_state is not None:
                engine.job_state.restore()
            if engine.job_items is not None:
                engine.job_items.begin()
            for _ in range(2):  # Trio begins tasks in any order: after two turns every watcher has begun
                await trio.lowlevel.checkpoint()
            await engine.throttle.begin(trio.current_time())
            engine.leases.restore()
            read_start = partial(inner.start_soon, engine.start_requests.run, engine.dispatcher.between(inner))
            if engine.sharing is None:
                state.opened(1)  # start() itself
                read_start()
            else:  # one process of the job reads it, and all are open until the job is over
                state.is_reading = False
                engine.sharing.begin(read_start)
                inner.start_soon(engine.sharing.run)
            state.begin()
            await engine.dispatcher.run(inner)
            while engine.idle_rounds.is_wanted:
                engine.idle_rounds.begin()
                if engine.sharing is not None:
                    engine.sharing.hold()
                inner.start_soon(engine.idle_rounds.run)
                await engine.dispatcher.run(inner)
            state.close()  # no await since the dispatcher looked: what is added later would not be sent
            if engine.sharing is not None:
                engine.sharing.stop()
            await _last_tasks(context, engine, inner)
        finally:
            # Whatever ended this, a crash, a deadline, the caller: nothing shielded may outlive it.
            state.close()
            if engine.sharing is not None:
                engine.sharing.stop()
            context.shields.cancel()
            engine.start_requests.stop()


async def _last_tasks(context: CrawlContext, engine: Engine, inner: trio.Nursery) -> None:
    """Wait for what is in flight; from the moment that the crawl begins to end, for a limited time. A checkpoint."""
    state = context.state
    while True:
        if state.is_ending and inner.cancel_scope.deadline == math.inf:  # it may begin to end while this waits
            words = "%r is ending: %s; %d in flight"
            logger.info(words, context.spider, state.reason, engine.scheduler.in_flight)
            engine.start_requests.stop()
            engine.idle_rounds.stop()
            inner.cancel_scope.deadline = trio.current_time() + context.engine.shutdown_timeout
        engine.direct.give_up()  # one that was on the wire may have been redirected meanwhile
        if not state.tasks and not state.is_reading:
            return
        with trio.CancelScope() as alarm:  # one for each wait: who gives a place back may still set it off
            await state.wakeup.wait(math.inf, alarm)


class _WriterTask:
    """The sinks' writers: shielded, so that a cancelled crawl still ends on whole records, and then in a limited time.

    A crawl that ended by itself waits for its writers as long as they take: a pipe whose reader pauses loses nothing.

    Attributes:
        error: What went wrong with a feed; None: nothing.
        ended: Set when all have ended.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._running = len(engine.context.writers)
        self._scopes: list[trio.CancelScope] = []
        self._until = math.inf
        self.error: FeedError | None = None
        self.ended = trio.Event()
        if not self._running:
            self.ended.set()

    async def write(self, sink: Writer) -> None:
        """Run one sink's writer; if it fails, the crawl ends with ``feed_error``."""
        with trio.CancelScope(shield=True, deadline=self._until) as scope:
            self._scopes.append(scope)
            try:
                await sink.write()
            except FeedError as error:
                self._failed(error)
        self._running -= 1
        if not self._running:
            self.ended.set()
        if scope.cancelled_caught:
            self._failed(FeedError(f"a feed was not closed within {CLOSE_GRACE:g} s: its last records may be missing"))

    def hurry(self) -> None:
        """The crawl is cancelled: the writers have a limited time to end, from the first cancel on."""
        self._until = min(self._until, trio.current_time() + CLOSE_GRACE)
        for scope in self._scopes:
            scope.deadline = self._until

    def _failed(self, error: FeedError) -> None:
        self.error = self.error or error
        logger.error("%s", error)
        self._engine.crawl.cancel("feed_error")


def _keep_last_word(engine: Engine, reason: str) -> None:
    if engine.job_state is not None:
        try:
            engine.job_state.last_word(reason)
        except Exception:
            logger.exception("what was learned since it was last kept is lost")


async def _closed(spider: Spider, hooks: Hooks, reason: str) -> None:
    await hooks.closing(reason)
    result = hooks.close(spider, reason)
    if inspect.isawaitable(result):
        await result
    await hooks.closed()


async def _closing(what: str, close: Callable[[], Awaitable[None]], crawl: Crawl | None = None) -> None:
    """One step of closing: shielded, limited, and no failure keeps the next step from being made.

    Cancelling the ``crawl`` once more, by another Ctrl-C say, ends the step at once.
    """
    with trio.move_on_after(CLOSE_GRACE, shield=True) as scope:
        if crawl is not None:
            crawl.when_cancelled(scope.cancel)
        try:
            await close()
        except Exception:
            logger.exception("closing %s failed", what)
    if scope.cancelled_caught:
        logger.error("closing %s was given up: it took more than %g s, or the crawl was cancelled", what, CLOSE_GRACE)
