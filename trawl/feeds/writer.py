"""All feeds of a crawl. Items are added when they are found, and one task writes them in batches.

Theory of operation. Waking a task for each item would cost more than parsing a page. So only the first item wakes the
writer. The writer waits for ``FLUSH_INTERVAL`` while other items are added, and then writes all of them together.
``put`` encodes the item. So later changes of the item have no effect, and an error can be reported with the item's
page. The number of pending bytes is limited. Above the limit, ``put`` waits, and the writer does not wait for the
interval.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from types import TracebackType
from typing import Self

import attrs
import trio

from trawl.blocking import Blocking
from trawl.errors import FeedError, ItemLost
from trawl.feeds.base import FeedState
from trawl.feeds.feed import Feed, refuse_for_job
from trawl.feeds.item_errors import Counts, ItemErrors, ItemOrigin, reason_of
from trawl.feeds.options import feed_options
from trawl.feeds.settings import FeedsSettings
from trawl.passwords import without_passwords
from trawl.tracebacks import contained

__all__ = ["BUFFER_BYTES", "FEEDS_CLOSE_GRACE", "FLUSH_INTERVAL", "Feeds", "WriterWakeup", "open_feeds"]

FLUSH_INTERVAL = 0.02  # seconds for which items are collected before they are written

BUFFER_BYTES = 1 << 20
"""Maximum number of pending bytes. The item that exceeds the limit is still accepted."""

FEEDS_CLOSE_GRACE = 5.0
"""Seconds for which the feeds of a cancelled crawl may still write pending items. Items that remain are lost."""

logger: logging.Logger = logging.getLogger("trawl.feeds")


class WriterWakeup:
    """Wakes the writer task, a single task, ``interval`` seconds after the first item, instead of for each item."""

    __slots__ = ("_interval", "_room", "_some", "_urgent", "is_closed")

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._some = trio.Event()  # set if there are items to write, or if no more items will be added
        self._urgent = trio.Event()  # set if items should be written without waiting for the interval
        self._room = trio.Event()  # set when pending items were written
        self.is_closed: bool = False

    def add(self, *, is_urgent: bool = False) -> None:
        """Notify the writer that there are items. If ``is_urgent``, the writer does not wait for the interval."""
        self._some.set()
        if is_urgent:
            self._urgent.set()

    async def wait(self) -> None:
        """Wait until items should be written, or no more will be added. Only for the writer task. A checkpoint."""
        await self._some.wait()
        with trio.move_on_after(self._interval):
            await self._urgent.wait()
        # If no more items will be added, keep the events set, so that the remaining items are written without a pause.
        if not self.is_closed:
            self._some, self._urgent = trio.Event(), trio.Event()

    async def room(self) -> None:
        """Wait for the next call of :meth:`made_room` or :meth:`end`. A checkpoint."""
        await self._room.wait()

    def made_room(self) -> None:
        """Wake all tasks that wait for room. Each task must check again whether there is room."""
        self._room.set()
        self._room = trio.Event()

    def close(self) -> None:
        """Record that no more items will be added."""
        self.is_closed = True
        self.add(is_urgent=True)

    def end(self) -> None:
        """Record that nothing more will be written. Wake the tasks that wait for room. Later tasks do not wait."""
        self.is_closed = True
        self._room.set()


class Feeds:
    """The open feeds of one crawl.

    An asynchronous context manager. When the block ends, it closes feeds that are still open, for example if the crawl
    never started and :meth:`write` was not called.

    Attributes:
        all: The feeds, in the order of the settings.
        waiting_bytes: Bytes of items that wait to be written.
    """

    def __init__(self, feeds: Sequence[Feed], blocking: Blocking, stats: Counts | None = None) -> None:
        """Create a group of open feeds that are not started. Use :func:`open_feeds` instead."""
        self._is_started = False
        self.all: tuple[Feed, ...] = tuple(feeds)
        self._unfinished = list(feeds)
        self._blocking = blocking
        self._item_errors = ItemErrors(stats)
        self.waiting_bytes: int = 0
        self._error: FeedError | None = None
        self._wakeup = WriterWakeup(FLUSH_INTERVAL)

    @property
    def is_empty(self) -> bool:
        """True if there are no feeds."""
        return not self.all

    def put_nowait(self, item: object, page: str = "") -> None:
        """Add an item to the feeds. If a feed can't write the item, this is logged and counted.

        Args:
            item: An item of any kind.
            page: The URL of the item's page; "" for an item of ``start()``.

        Raises:
            trio.WouldBlock: If too many bytes wait to be written. Use :meth:`put`, which waits.
            ItemLost: If none of the feeds that accept the item can write it.
            FeedError: If a feed can no longer be written.
            ValueError: If the feeds are closed.
        """
        if self._error is not None:
            raise self._error
        if self._wakeup.is_closed:
            raise ValueError("the feeds are closed")
        if self.waiting_bytes >= BUFFER_BYTES:
            raise trio.WouldBlock
        origin, reasons = ItemOrigin(page, type(item).__name__), []
        for feed in self._unfinished:
            try:
                with contained:
                    taken = feed.add(item, origin)
            except FeedError as error:
                self._error = error  # write() raises this error
                self._wakeup.add(is_urgent=True)
                raise
            except Exception as error:
                # A user filter, or a library that defines items or values, may raise any exception.
                self._item_errors.refused(feed.uri, origin, error)
                reasons.append(f"feed {feed.uri}: {reason_of(error)}")
            else:
                self.waiting_bytes += taken
                origin.feeds += taken > 0
        if reasons and not origin.feeds:
            raise ItemLost(f"{origin} is left out: {'; '.join(reasons)}")
        self._wakeup.add(is_urgent=self.waiting_bytes >= BUFFER_BYTES)

    async def put(self, item: object, page: str = "") -> None:
        """Add an item to the feeds when there is room. A checkpoint. If this is cancelled, the item is not added.

        Raises:
            ItemLost: As in :meth:`put_nowait`.
            FeedError: If a feed can no longer be written.
            ValueError: If the feeds are closed.
        """
        await trio.lowlevel.checkpoint()
        while True:
            try:
                return self.put_nowait(item, page)
            except trio.WouldBlock:
                await self._wakeup.room()

    def close(self) -> None:
        """Record that no more items will be added. :meth:`write` then writes the remaining items and ends."""
        self._wakeup.close()

    async def write(self) -> None:
        """Write added items until :meth:`close` is called, then end the feeds.

        Run this as the only writer task of a crawl.

        If this is cancelled, all feeds are still written and closed, within ``FEEDS_CLOSE_GRACE`` seconds. If a feed
        fails, the other feeds are written and closed in the same way.

        Raises:
            FeedError: If a feed can't be written. Later calls of :meth:`put` raise the same error.
        """
        try:
            await self.start()
            await self._write_batches()
            while self._unfinished:
                await self._finish_one()
        except FeedError as error:
            self._error = error
            raise
        finally:
            self._wakeup.end()
            await self._finish_in_haste()  # noqa: ASYNC102 - shielded and limited

    async def start(self) -> None:
        """Truncate continued files after their last whole record, and empty overwritten files.

        :meth:`write` calls this first. No file is changed before this call. So if a crawl can't start, the files of an
        earlier crawl are unchanged.

        Raises:
            FeedError: If a feed can't be written.
        """
        if self._is_started:
            return
        try:
            await self._blocking.run(_start_all, self.all)
        except FeedError:
            for feed in self._unfinished:
                feed.close()
            self._unfinished.clear()
            raise
        self._is_started = True

    async def sync(self) -> None:
        """Write added items to the disk itself. Use this instead of :meth:`write`. A checkpoint.

        Raises:
            FeedError: If a feed can't be written. The feed is then closed.
        """
        await trio.lowlevel.checkpoint()
        for feed in self.all:
            async with self._closed_if_it_fails(feed):
                await feed.flush(self._blocking)
        for feed in self.all:
            async with self._closed_if_it_fails(feed):
                await feed.sync(self._blocking)

    async def finish(self) -> None:
        """Write added items and the ends of the feeds' files, and close the feeds. Use this instead of :meth:`write`.

        Raises:
            FeedError: If a feed can't be written.
        """
        await trio.lowlevel.checkpoint()
        self.close()
        await self.start()
        while self._unfinished:
            await self._finish_one()

    async def aclose(self) -> None:
        """Write and close all open feeds within ``FEEDS_CLOSE_GRACE``. Always a checkpoint."""
        self.close()
        await self._finish_in_haste()
        await trio.lowlevel.checkpoint()

    async def __aenter__(self) -> Self:
        # Shielded, because after a cancellation here, __aexit__ would not run.
        await trio.lowlevel.cancel_shielded_checkpoint()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _write_batches(self) -> None:
        while not (self._wakeup.is_closed and not self.waiting_bytes):
            await self._wakeup.wait()
            self._raise_refused()
            self.waiting_bytes = 0
            self._wakeup.made_room()
            for feed in tuple(self._unfinished):
                await self._flush_one(feed)
        self._raise_refused()  # the last item may have failed while earlier items were written

    def _raise_refused(self) -> None:
        if self._error is not None:
            raise self._error

    async def _flush_one(self, feed: Feed) -> None:
        async with self._closed_if_it_fails(feed):
            await feed.flush(self._blocking)
        self._item_errors.refused_late(feed.uri, feed.take_refused())

    @asynccontextmanager
    async def _closed_if_it_fails(self, feed: Feed) -> AsyncGenerator[None, None]:
        """If a feed fails in the block, close it without writing its end, because that would fail again."""
        try:
            yield
        except FeedError:
            self._unfinished.remove(feed)
            await self._blocking.run(feed.close)  # noqa: ASYNC120 - a cancellation may replace the error
            raise

    async def _finish_one(self) -> None:
        feed = self._unfinished[0]
        try:
            await feed.finish(self._blocking)
        except FeedError:
            self._unfinished.remove(feed)
            raise
        self._unfinished.remove(feed)
        self._item_errors.refused_late(feed.uri, feed.take_refused())
        logger.info("feed %s: %d items written as %s", without_passwords(feed.uri), feed.records, feed.format)

    async def _finish_in_haste(self) -> None:
        """Finish all open feeds within ``FEEDS_CLOSE_GRACE``, after a cancellation or after another feed has failed."""
        with trio.move_on_after(FEEDS_CLOSE_GRACE, shield=True):
            if not self._is_started and not self.waiting_bytes:
                await self._blocking.run(_abandon_all, tuple(self._unfinished))
                self._unfinished.clear()
            while self._unfinished:
                try:
                    await self.start()
                    await self._finish_one()
                except FeedError as error:
                    logger.error("%s", error)
        for feed in self._unfinished:
            logger.error(
                "feed %s: its end could not be written within %g s and is missing",
                without_passwords(feed.uri),
                FEEDS_CLOSE_GRACE,
            )
            feed.close()
        self._unfinished.clear()


async def open_feeds(
    settings: FeedsSettings,
    blocking: Blocking,
    *,
    spider_name: str,
    started_utc: datetime,
    stats: Counts | None = None,
    states: Mapping[str, FeedState] | None = None,
) -> Feeds:
    """Open the feeds of the settings, and check that all of them can be written. If a check fails, no feed is changed.

    ``spider_name`` and ``started_utc`` are the values of ``%(name)s`` and ``%(time)s`` in a path, and ``stats`` count
    items that a feed can't write. ``states`` are the saved states of a job's feeds by destination: each feed is
    truncated and continued at its position. It is None without a job.

    Raises:
        FeedError: If a feed can't be opened or continued. The message names the feed.
        SettingsError: If the options of a feed are invalid.
    """
    options = feed_options(settings, spider_name=spider_name, started_utc=started_utc)
    if states is not None:
        options = [attrs.evolve(one, is_of_job=True) for one in options]
        for one in options:
            refuse_for_job(one)
    feeds = [Feed(one, started_utc=started_utc) for one in options]
    await blocking.run(_open_all, feeds, states or {})
    return Feeds(feeds, blocking, stats)


def _open_all(feeds: Sequence[Feed], states: Mapping[str, FeedState]) -> None:
    opened: list[Feed] = []
    try:
        for feed in feeds:
            opened.append(feed)  # added before it is opened, because a failed open may leave it partly open
            feed.open()
        for feed in feeds:
            feed.locate(states.get(feed.destination))
    except BaseException:
        _abandon_all(opened)
        raise


def _start_all(feeds: Sequence[Feed]) -> None:
    for feed in feeds:
        feed.start()


def _abandon_all(feeds: Sequence[Feed]) -> None:
    for feed in feeds:
        feed.abandon()
