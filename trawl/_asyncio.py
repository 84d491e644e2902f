"""A crawl inside an asyncio program: Trio runs as a guest of the asyncio event loop, in the same thread.

A thread can have one Trio run at a time. So all crawls of one asyncio loop are tasks of one Trio run, and share the
limits of a site as they do in a Trio program. The run starts with the first crawl and ends with the last crawl.

Only the package imports this module, and only asyncio programs load it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import trio

from trawl._run import CrawlResult, crawl
from trawl.spiders import Spider

if TYPE_CHECKING:
    from outcome import Outcome

__all__ = ["crawl_in_asyncio"]


async def crawl_in_asyncio(
    spider: type[Spider], settings: Mapping[str, object] | None = None, **spider_args: Any
) -> CrawlResult:
    """Run a spider until it finishes, inside an asyncio program such as a web application or a notebook.

    Any number of crawls may run at once. The spider's callbacks run in the thread of the asyncio loop, under Trio: they
    can await Trio's functions, but not asyncio's. A callback that blocks also blocks the asyncio loop.

    Cancelling the asyncio task cancels the crawl. Requests in flight are dropped, and the feeds end with whole records.
    The task ends after that, even if it is cancelled again. This function does not handle signals.

    ::

        async def main():
            result = await trawl.crawl_in_asyncio(Titles, {"DOWNLOAD_DELAY": 2})
            print(result.reason, len(result.items))

    Args:
        spider: The spider's class.
        settings: Settings that override all other sources.
        spider_args: Arguments of the spider's constructor.

    Returns:
        The result, with the items if there are no feeds.

    Raises:
        RuntimeError: If asyncio does not run in this thread, or Trio runs in it.
        SettingsError: If a setting is unknown or wrong.
        UsageError: If a feed can't be opened or a start URL can't be fetched. Nothing was sent.
        TypeError: If ``spider`` is not a spider's class.
    """
    if trio.lowlevel.in_trio_task():
        raise RuntimeError(f"Trio runs in this task: write `await trawl.crawl({spider.__name__}, ...)`")
    loop = asyncio.get_running_loop()
    while (guest := _GUESTS.get(loop)) is not None and guest.is_closing:
        await asyncio.shield(guest.closed)
    if guest is None:
        guest = _GUESTS[loop] = _TrioGuest(loop)
    return await guest.run(partial(crawl, spider, settings, **spider_args))


class _TrioGuest:
    """A Trio run inside an asyncio loop. It ends after its last crawl."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._crawls = 0
        self._is_empty = trio.Event()
        self._early: list[Callable[[], Awaitable[None]]] = []
        self._nursery: trio.Nursery | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self.is_closing = False  # whether the last crawl has ended, so that no other crawl can start in this run
        self.closed: asyncio.Future[None] = loop.create_future()  # a future that is done when the Trio run has ended
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            run_sync_soon_not_threadsafe=loop.call_soon,
            done_callback=self._close,
            host_uses_signal_set_wakeup_fd=True,
        )

    async def _main(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery, self._token = nursery, trio.lowlevel.current_trio_token()
            for task in self._early:
                nursery.start_soon(task)
            await self._is_empty.wait()

    def _close(self, ended: Outcome[None]) -> None:
        self.is_closing = True
        _GUESTS.pop(self._loop, None)
        try:
            self.closed.set_result(ended.unwrap())
        except BaseException as error:  # noqa: ASYNC103 - such as KeyboardInterrupt; the waiting crawls raise it
            self.closed.set_exception(error)

    async def run(self, crawl: Callable[[], Awaitable[CrawlResult]]) -> CrawlResult:
        """Run a crawl inside the Trio run, and wait until the crawl ends."""
        result: asyncio.Future[CrawlResult] = self._loop.create_future()
        scope = trio.CancelScope()

        async def task() -> None:
            try:
                with scope:
                    result.set_result(await crawl())
            except Exception as error:
                result.set_exception(error)
            finally:
                self._crawls -= 1
                if not self._crawls:
                    self.is_closing = True
                    self._is_empty.set()
                result.cancel()  # no effect if there is a result

        self._crawls += 1
        if self._token is None or self._nursery is None:
            self._early.append(task)
        else:
            self._token.run_sync_soon(self._nursery.start_soon, task)
        cancelled = await self._until_done(result, scope)
        if cancelled is not None:
            raise cancelled
        if result.cancelled():  # the whole Trio run ended: raise its error
            await asyncio.shield(self.closed)
        return result.result()

    async def _until_done(
        self, result: asyncio.Future[CrawlResult], scope: trio.CancelScope
    ) -> asyncio.CancelledError | None:
        """Wait for the end of a crawl, and after the last crawl also for the end of the Trio run.

        Cancelling this task cancels the crawl, but the wait continues, because Trio must end before asyncio's loop
        closes. Returns this cancellation, or None.
        """
        cancelled: asyncio.CancelledError | None = None
        while not self.closed.done() and (self.is_closing or not result.done()):
            waiting: list[asyncio.Future[Any]] = [self.closed] if result.done() else [self.closed, result]
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError as error:  # noqa: ASYNC103 - the caller raises it
                cancelled = error
                if self._token is None:
                    scope.cancel()  # safe, because Trio has not started
                elif not result.done():
                    self._token.run_sync_soon(scope.cancel)
        return cancelled


_GUESTS: WeakKeyDictionary[asyncio.AbstractEventLoop, _TrioGuest] = WeakKeyDictionary()
"""The Trio run of each asyncio loop that has crawls. The loop itself can't store such a value."""
