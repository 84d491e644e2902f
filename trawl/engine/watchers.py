"""The tasks that watch a crawl: limits, blocking calls, and the entries of ``WATCHERS``.

Each task runs alongside the crawl, and is cancelled when the crawl has ended. A watcher of a limit (time, time without
items, memory) sleeps until the limit could be reached, and ends the crawl as the first Ctrl-C does.

While a callback blocks, the whole crawl is blocked. One task records that Trio's loop runs, and a thread checks this.
If the loop is blocked, the thread finds the blocking line of user code in the frames of the loop's thread, and logs it
once. A thread with a real clock is useless for a crawl on a virtual clock, so only real crawls are watched.
"""

from __future__ import annotations

import inspect
import logging
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import trio

from trawl.engine.crawl import Crawl, Watcher
from trawl.engine.limits import CrawlLimits, ItemLimit
from trawl.engine.settings import EngineSettings
from trawl.errors import IgnoreRequest, SettingsError
from trawl.middleware.factory import accepts_arguments, entry_name, make_instance
from trawl.plugins import load_plugin
from trawl.tracebacks import blocking_line, contained

__all__ = ["MEBIBYTE", "contained_watcher", "held_bytes", "limit_watchers", "own_watchers", "report_blocked_loop"]

logger: logging.Logger = logging.getLogger("trawl.engine")

MEBIBYTE = 1024 * 1024

_STATM = Path("/proc/self/statm")  # proc(5): the second number is the resident set, in pages


def held_bytes() -> int | None:
    """Return the process's resident set in bytes: now on Linux, the peak on other Unixes; None if unknown."""
    with suppress(OSError, ValueError, IndexError):
        return int(_STATM.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    try:
        import resource  # noqa: PLC0415 - missing on Windows
    except ImportError:
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024  # getrusage(2): bytes there, kibibytes elsewhere


Measure = Callable[[], "int | None"]
"""Returns the memory of the process in bytes; None if unknown."""


def limit_watchers(settings: EngineSettings, limits: CrawlLimits, measure: Measure = held_bytes) -> list[Watcher]:
    """Return the tasks that enforce the limits that are set.

    Raises SettingsError if the memory is limited, but this system can't measure it.
    """
    watchers: list[Watcher] = []
    if settings.closespider_timeout:
        watchers.append(partial(_until, settings.closespider_timeout, limits.began_at))
    if settings.closespider_timeout_no_item:
        watchers.append(partial(_while_items_come, settings.closespider_timeout_no_item, limits.items))
    if settings.memusage_limit_mb or settings.memusage_warning_mb:
        if measure() is None:
            name = "MEMUSAGE_LIMIT_MB" if settings.memusage_limit_mb else "MEMUSAGE_WARNING_MB"
            raise SettingsError(f"{name}: this system does not tell how much memory a process holds", name)
        watchers.append(partial(_while_memory_lasts, settings, measure))
    return watchers


async def _until(timeout: float, began_at: float, crawl: Crawl) -> None:
    await trio.sleep_until(min(began_at, crawl.started_at) + timeout)
    crawl.shutdown("closespider_timeout")


async def _while_items_come(timeout: float, items: ItemLimit, crawl: Crawl) -> None:
    until = crawl.started_at + timeout
    while until > trio.current_time():
        await trio.sleep_until(until)
        until = max(items.latest_at, crawl.started_at) + timeout
    crawl.shutdown("closespider_timeout_no_item")


async def _while_memory_lasts(settings: EngineSettings, measure: Measure, crawl: Crawl) -> None:
    """Measure the memory regularly. Reading a value of the kernel takes microseconds, so it needs no thread."""
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
    """Return the tasks of ``WATCHERS`` in their order. If one fails, the error is logged and the crawl continues.

    Raises SettingsError if an entry can't be found or made, or is not a watcher.
    """
    wanted = sorted(((order, entry) for entry, order in setting.items() if order is not None), key=itemgetter(0))
    return [contained_watcher(watcher, entry) for _, entry in wanted if (watcher := _own(entry, crawl))]


def _own(entry: Any, crawl: Crawl) -> Callable[[Crawl], Awaitable[None]] | None:
    is_name = isinstance(entry, str) and "." not in entry
    found = make_instance(load_plugin("trawl.watchers", entry) if is_name else entry, SETTING, crawl)
    if found is None:  # the watcher is not configured
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


def contained_watcher(watcher: Watcher, entry: object = None) -> Watcher:
    """Return a watcher whose exceptions are logged, with the name of ``entry``, so that they never end the crawl."""
    return partial(_watched, watcher, entry_name(entry or watcher))


async def _watched(watcher: Callable[[Crawl], Awaitable[None]], name: str, crawl: Crawl) -> None:
    try:
        with contained:
            watching: object = watcher(crawl)
            if not inspect.isawaitable(watching):
                logger.error("the watcher %s does not watch: it is no async function, and gave %r", name, watching)
                crawl.stats.inc("watcher_exceptions")
                return
            await watching
    except Exception as error:
        if isinstance(error, IgnoreRequest) and crawl.reason is not None:
            return  # the watcher had more requests to add, but the crawl has ended
        logger.exception("the watcher %s failed; the crawl goes on without it", name)
        crawl.stats.inc("watcher_exceptions")


BLOCKED_AFTER = 2.0
"""Seconds that Trio's loop may be blocked before a warning is logged."""

MAX_TOLD = 10
"""Maximum number of lines reported in one crawl."""


async def report_blocked_loop(crawl: Crawl | None = None, after: float = BLOCKED_AFTER) -> None:
    """Warn of lines of user code that block the crawl. A watcher of real crawls, which runs until it is cancelled.

    It reports what blocks for ``after`` seconds. Without a ``crawl`` it watches any crawls of this thread.
    """
    detector = _BlockedLoopDetector(threading.get_ident(), after)
    async with trio.open_nursery() as nursery:
        limiter = trio.CapacityLimiter(1)
        # The thread is abandoned at the end of the crawl, so that the crawl need not wait for its next check.
        nursery.start_soon(partial(trio.to_thread.run_sync, detector.run, abandon_on_cancel=True, limiter=limiter))
        try:
            while True:
                detector.beat = time.monotonic()
                await trio.sleep(after / 4)
        finally:
            detector.is_over.set()


class _BlockedLoopDetector:
    """The detector's thread. Its ``beat`` is the monotonic time of the last loop iteration."""

    def __init__(self, ident: int, after: float) -> None:
        self._ident = ident
        self._after = after
        self._told: set[str] = set()
        self.beat: float = time.monotonic()
        self.is_over = threading.Event()

    def run(self) -> None:
        """Check four times per reporting time, until the crawl has ended."""
        seen, looks = self.beat, 0
        while not self.is_over.wait(self._after / 4):
            looks = looks + 1 if self.beat == seen else 0
            seen = self.beat
            # Count checks instead of seconds, because a process that was stopped (SIGSTOP) or starved made no checks.
            if looks >= 4 and len(self._told) < MAX_TOLD:
                self._tell()

    def _tell(self) -> None:
        own = blocking_line(self._ident)
        if own is None:
            return
        place = f"{Path(own.filename).name}:{own.lineno}"
        if place in self._told:
            return
        self._told.add(place)
        logger.warning(
            "%s: `%s` holds up the whole crawl, for %g s by now: await trio.sleep() or self.fetch() instead, or have a"
            " thread do it: await self.crawl.blocking.run(function, argument)",
            place, own.line, self._after,
        )  # fmt: skip
