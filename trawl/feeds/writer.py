"""All feeds of a crawl: items come in as they are found, one task writes them in batches.

Theory of operation. A task that is woken for each item costs more than parsing a page, so the writer is woken by the
first item only, then lets ``FLUSH_INTERVAL`` pass while others gather, and writes them all at once. Items are encoded
where they are put: a snapshot, whose errors can be told with the page. The bytes that wait are limited; above the limit
``put`` waits, and the writer does not.
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

FLUSH_INTERVAL = 0.02
"""Seconds that items may gather before they are written."""

BUFFER_BYTES = 1 << 20
"""Bytes that may wait to be written; the item that passes the bound is still taken."""

FEEDS_CLOSE_GRACE = 5.0
"""Seconds that a cancelled crawl gives its feeds to write what they have; a pipe that nobody reads loses it."""

logger: logging.Logger = logging.getLogger("trawl.feeds")


class WriterWakeup:
    """Wakes the one task that writes: not for each item, but a while after the first, when others have gathered.

    Args:
        interval: Seconds of that while.

    Attributes:
        is_closed: No more comes.
    """

    __slots__ = ("_interval", "_room", "_some", "_urgent", "is_closed")

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._some = trio.Event()  # there is something to write, or nothing more will come
        self._urgent = trio.Event()  # and it should be written now
        self._room = trio.Event()  # what waited was written
        self.is_closed: bool = False

    def add(self, *, is_urgent: bool = False) -> None:
        """Say that there is something to write, with ``is_urgent`` at once."""
        self._some.set()
        if is_urgent:
            self._urgent.set()

    async def wait(self) -> None:
        """Return when something is to be written, or nothing more comes. For the task that writes. A checkpoint."""
        await self._some.wait()
        with trio.move_on_after(self._interval):
            await self._urgent.wait()
        if not self.is_closed:  # closed, the rest is written without a pause
            self._some, self._urgent = trio.Event(), trio.Event()

    async def room(self) -> None:
        """Return when :meth:`made_room` is called next, or :meth:`end`. A checkpoint."""
        await self._room.wait()

    def made_room(self) -> None:
        """Let all go on that wait for room: they look for themselves."""
        self._room.set()
        self._room = trio.Event()

    def close(self) -> None:
        """Say that no more comes."""
        self.is_closed = True
        self.add(is_urgent=True)

    def end(self) -> None:
        """Say that nothing more is written, also to those that wait for room or will."""
        self.is_closed = True
        self._room.set()


class Feeds:
    """The feeds of one crawl, open.

    An asynchronous context manager: leaving it closes what :meth:`write` did not, for a crawl that never started.

    Attributes:
        all: The feeds, in the order of the settings.
    """

    def __init__(self, feeds: Sequence[Feed], blocking: Blocking, stats: Counts | None = None) -> None:
        """Feeds that are open, and not started; :func:`open_feeds` makes them."""
        self._is_started = False
        self.all: tuple[Feed, ...] = tuple(feeds)
        self._unfinished = list(feeds)
        self._blocking = blocking
        self._item_errors = ItemErrors(stats)
        self._waiting_bytes = 0
        self._error: FeedError | None = None
        self._wakeup = WriterWakeup(FLUSH_INTERVAL)

    @property
    def is_empty(self) -> bool:
        """True if there is no feed."""
        return not self.all

    def put_nowait(self, item: object, page: str = "") -> None:
        """Give an item to the feeds. One that a feed can't write is logged and counted, and does no harm.

        Args:
            item: Of any kind.
            page: The URL of the page it was found on; "" for one of ``start()``.

        Raises:
            trio.WouldBlock: So much waits to be written that the caller should wait too: use :meth:`put`.
            ItemLost: Each feed that wants it can't write it.
            FeedError: A feed can't be written any more.
            ValueError: The feeds are closed.
        """
        if self._error is not None:
            raise self._error
        if self._wakeup.is_closed:
            raise ValueError("the feeds are closed")
        if self._waiting_bytes >= BUFFER_BYTES:
            raise trio.WouldBlock
        origin, reasons = ItemOrigin(page, type(item).__name__), []
        for feed in self._unfinished:
            try:
                with contained:
                    taken = feed.add(item, origin)
            except FeedError as error:
                self._error = error  # with which write() ends
                self._wakeup.add(is_urgent=True)
                raise
            except Exception as error:  # of the item's own library, of a value's, or of the user's filter
                self._item_errors.refused(feed.uri, origin, error)
                reasons.append(f"feed {feed.uri}: {reason_of(error)}")
            else:
                self._waiting_bytes += taken
                origin.feeds += taken > 0
        if reasons and not origin.feeds:
            raise ItemLost(f"{origin} is left out: {'; '.join(reasons)}")
        self._wakeup.add(is_urgent=self._waiting_bytes >= BUFFER_BYTES)

    async def put(self, item: object, page: str = "") -> None:
        """Give an item to the feeds, once there is room for it. A checkpoint; a cancelled one gave nothing.

        Raises:
            ItemLost: As :meth:`put_nowait`.
            FeedError: A feed can't be written any more.
            ValueError: The feeds are closed.
        """
        await trio.lowlevel.checkpoint()
        while True:
            try:
                return self.put_nowait(item, page)
            except trio.WouldBlock:
                await self._wakeup.room()

    def close(self) -> None:
        """Say that no more items come; :meth:`write` then writes the rest and ends."""
        self._wakeup.close()

    async def write(self) -> None:
        """Write what comes until :meth:`close`, then the feeds' ends. The one writer task of a crawl.

        Cancelling it, or a feed that fails, still writes and closes the others, within ``FEEDS_CLOSE_GRACE`` seconds.

        Raises:
            FeedError: A feed can't be written. ``put`` raises it from then on too.
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
        """Cut what is continued to its whole records, and empty what is overwritten; :meth:`write` does it first.

        Until then nothing in any file has changed, so that a crawl which can't begin loses nothing of an earlier one.

        Raises:
            FeedError: One can't be written.
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
        """Have what was added on the disk itself; for use without :meth:`write`. A checkpoint.

        Raises:
            FeedError: A feed can't be written; it is closed.
        """
        await trio.lowlevel.checkpoint()
        for feed in self.all:
            async with self._closed_if_it_fails(feed):
                await feed.flush(self._blocking)
        for feed in self.all:
            async with self._closed_if_it_fails(feed):
                await feed.sync(self._blocking)

    async def finish(self) -> None:
        """Write what was added and the feeds' ends, and close them; for use without :meth:`write`.

        Raises:
            FeedError: A feed can't be written.
        """
        await trio.lowlevel.checkpoint()
        self.close()
        await self.start()
        while self._unfinished:
            await self._finish_one()

    async def aclose(self) -> None:
        """Write the rest and the end of what is open, and close it, in ``FEEDS_CLOSE_GRACE``. Always a checkpoint."""
        self.close()
        await self._finish_in_haste()
        await trio.lowlevel.checkpoint()

    async def __aenter__(self) -> Self:
        await trio.lowlevel.cancel_shielded_checkpoint()  # a cancel is heard inside, where the feeds are closed
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _write_batches(self) -> None:
        while not (self._wakeup.is_closed and not self._waiting_bytes):
            await self._wakeup.wait()
            self._raise_refused()
            self._waiting_bytes = 0
            self._wakeup.made_room()
            for feed in tuple(self._unfinished):
                await self._flush_one(feed)
        self._raise_refused()  # the last item may have been, while the ones before it were written

    def _raise_refused(self) -> None:
        if self._error is not None:
            raise self._error

    async def _flush_one(self, feed: Feed) -> None:
        async with self._closed_if_it_fails(feed):
            await feed.flush(self._blocking)
        self._item_errors.refused_late(feed.uri, feed.take_refused())

    @asynccontextmanager
    async def _closed_if_it_fails(self, feed: Feed) -> AsyncGenerator[None, None]:
        """Close a feed that can't be written any more: its end would fail again."""
        try:
            yield
        except FeedError:
            self._unfinished.remove(feed)
            await self._blocking.run(feed.close)  # noqa: ASYNC120 - a cancel then says more than the error
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
        """Finish what a cancelled crawl, or one with a failed feed, left open, within ``FEEDS_CLOSE_GRACE``."""
        with trio.move_on_after(FEEDS_CLOSE_GRACE, shield=True):
            if not self._is_started and not self._waiting_bytes:
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
                "feed %s: its end was not taken within %g s and is missing",
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
    """Open the feeds of the settings and check that they are writable. If one is not, none is changed.

    Args:
        settings: Which feeds, and how they are written.
        blocking: How blocking work is done.
        spider_name: Value of ``%(name)s`` in a path.
        started_utc: Value of ``%(time)s`` in a path.
        stats: Where items that a feed can't take are counted.
        states: Where to cut each feed of a job and go on, by its destination; None: there is no job.

    Raises:
        FeedError: A feed can't be opened or continued; one sentence that names it.
        SettingsError: Options of a feed that can't be.
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
            opened.append(feed)  # before: opening it may get half way
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
