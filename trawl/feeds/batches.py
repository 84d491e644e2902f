"""Feeds in batches: file after file, each of so many items or bytes, each a whole feed of its own.

Theory of operation. Items are encoded when they are put, so a full batch is followed at once by a feed that is not open
yet and only takes items. The next flush finishes the full ones in order and opens the next. With a job the number of
the batch and its count of items are recorded with its position: what a killed process wrote of later batches is
overwritten when they are begun again.

Only ``trawl.feeds.writer`` imports this module, by :func:`make_feed`; together they would be too long to read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import trio

from trawl.blocking import Blocking
from trawl.errors import FeedError
from trawl.feeds.base import FeedReport
from trawl.feeds.feed import Feed, TextFeed
from trawl.feeds.item_errors import ItemOrigin
from trawl.feeds.options import TABLES, FeedOptions, fill_path, is_numbered, placeholders_in
from trawl.feeds.stored_items import StoredItem
from trawl.feeds.table import TableFeed

__all__ = ["BatchedFeed", "make_feed", "refuse_for_job"]

BLANK_BYTES = 1 << 14
"""A batch without an item is smaller, in every format: larger ones are not looked into."""

GAP = 100
"""Numbers that must be free in a row for a feed that does not overwrite to begin there."""


class BatchedFeed(Feed):
    """A feed that is written to one file after the other. Its URI has placeholders for the batch."""

    def __init__(self, options: FeedOptions, make: Callable[[FeedOptions], Feed], *, started_utc: datetime) -> None:
        """A feed that begins with its first batch; see :meth:`locate` for one that continues.

        Args:
            options: Options of all batches.
            make: Makes the feed of one batch.
            started_utc: The wall time now.
        """
        super().__init__(options)
        self._make = make
        self._started_utc = started_utc
        self._clock_utc = started_utc - timedelta(seconds=trio.current_time())
        self._number = 0  # of the newest batch
        self._items = 0  # in the newest batch
        self._bytes = 0
        self._uri = ""  # of the newest batch
        self._earlier = 0  # written to the open batch by earlier runs
        self._done = 0  # written to batches that are finished
        self._feeds: deque[Feed] = deque()
        self._is_open = True  # the first of them, once there is one; the others are not

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The only fields that the open batch can take; None if any."""
        return self._feeds[0].columns

    @property
    def position(self) -> int:
        """Position in the open batch."""
        return self._feeds[0].position

    @property
    def batch(self) -> tuple[int, int] | None:
        """The number of the open batch, and how many items were written to it."""
        return self._number - len(self._feeds) + 1, self._earlier + self._feeds[0].report.records

    @property
    def report(self) -> FeedReport:
        """Counts of all batches so far; the position is that in the open one."""
        now = self._feeds[0].report
        return FeedReport(self.uri, now.format, self._done + now.records, now.position)

    def open(self) -> None:
        """Do nothing: :meth:`locate` knows which batch to open."""

    def locate(
        self,
        position: int | None = None,
        columns: Sequence[str] | None = None,
        batch: tuple[int, int] | None = None,
    ) -> None:
        """Open the batch to continue with, and find where."""
        if batch is not None:
            self._open_at(batch[0], position, columns)
            self._items = self._earlier = batch[1]
            return
        number = self._first_free()
        if number == 1 or not self._goes_on_with_blank(number - 1):
            self._open_at(number)

    def _open_at(self, number: int, position: int | None = None, columns: Sequence[str] | None = None) -> None:
        self._number = number - 1
        self._begin()
        self._feeds[0].open()
        self._feeds[0].locate(position, columns)

    def _goes_on_with_blank(self, number: int) -> bool:
        """Open the batch of this number if it has no items, because its process was killed before the first."""
        try:
            path = Path(attrs.evolve(self._options, uri=self._path(number, self._started_utc)).place)
            if path.stat().st_size > BLANK_BYTES:
                return False
            self._open_at(number)
            if not self._feeds[0].position:
                return True
        except (FeedError, OSError):  # it is something else
            pass
        self.close()
        self._feeds.clear()
        return False

    def start(self) -> None:
        """Make the open batch whole."""
        self._feeds[0].start()

    def add(self, item: object, origin: ItemOrigin | None = None) -> int:
        """Take an item into the newest batch; into the next one if that is full."""
        return self._take(lambda feed: feed.add(item, origin)) if self.item_filter.takes(item) else 0

    def add_stored(self, stored: StoredItem, origin: ItemOrigin | None = None) -> int:
        """Take an item out of a job's outbox, as :meth:`add` takes an item."""
        return self._take(lambda feed: feed.add_stored(stored, origin)) if self.item_filter.takes_stored(stored) else 0

    def take_refused(self) -> Sequence[tuple[ItemOrigin, Exception]]:
        """Return the items that no batch could take as it was written."""
        return [*super().take_refused(), *self._feeds[0].take_refused()] if self._feeds else []

    def _add(self, fields: Any, origin: ItemOrigin | None) -> int:
        """Add fields to the newest batch."""
        return self._take(lambda feed: feed._add(fields, origin))

    async def flush(self, blocking: Blocking) -> None:
        """Finish full batches, open the next one, and write what was added. A checkpoint if there is any."""
        await self._open_first(blocking)
        while len(self._feeds) > 1:
            full = self._feeds[0]
            await full.finish(blocking)
            self._feeds.popleft()  # at once: a cancel may come before the next one is open
            self._refused += full.take_refused()
            self._is_open = False
            self._done += full.report.records
            self._earlier = 0
            await self._open_first(blocking)
        await self._feeds[0].flush(blocking)

    async def _open_first(self, blocking: Blocking) -> None:
        if not self._is_open:
            await blocking.run(_opened, self._feeds[0])
            self._is_open = True

    async def sync(self, blocking: Blocking) -> None:
        """Have all that was added on the disk itself. A checkpoint."""
        await self.flush(blocking)
        await self._feeds[0].sync(blocking)

    async def finish(self, blocking: Blocking) -> None:
        """Write all that was added and the end, and close. A checkpoint."""
        await self.flush(blocking)
        await self._feeds[0].finish(blocking)

    def close(self) -> None:
        """Close the open batch as it is."""
        if self._feeds:
            self._feeds[0].close()

    def abandon(self) -> None:
        """Close the open batch before it was started."""
        if self._feeds:
            self._feeds[0].abandon()

    def _take(self, add: Callable[[Feed], int]) -> int:
        """Add an item to the newest batch; to the next one where that is full."""
        items, most = self._options.batch_items, self._options.batch_bytes
        before = self._number, self._items, self._bytes, self._uri
        is_full = bool((items and self._items >= items) or (most and self._bytes >= most))
        if is_full:
            self._begin()
        try:
            taken = add(self._feeds[-1])
        except BaseException:
            if is_full:  # no batch begins with an item that can't be written: it might stay empty
                self._feeds.pop()
                self._number, self._items, self._bytes, self._uri = before
            raise
        self._items += 1
        self._bytes += taken
        return taken

    def _begin(self) -> None:
        """The next batch is a file of its own, whatever of it an earlier process has left."""
        self._number += 1
        self._items = self._bytes = 0
        is_first = not self._feeds  # and then this runs in a thread, where there is no run clock
        now_utc = self._started_utc if is_first else self._clock_utc + timedelta(seconds=trio.current_time())
        overwrite = self._options.overwrite or not is_first
        changes: dict[str, Any] = {"uri": self._path(self._number, now_utc), "overwrite": overwrite, "accepts": None}
        options = attrs.evolve(self._options, **changes, batch_items=0, batch_bytes=0, item_classes=())
        if self._feeds and options.uri == self._uri:
            raise FeedError(f"feed {self.uri}: two batches would go to {options.uri}", self.uri)
        self._uri = options.uri
        self._feeds.append(self._make(options))

    def _path(self, number: int, now_utc: datetime) -> str:
        return fill_path(self._options.uri, batch=number, batch_time_utc=now_utc)

    def _first_free(self) -> int:
        """The number of the first batch: behind those that an earlier crawl has left."""
        is_free = self._options.overwrite or self._options.is_remote or not is_numbered(self._options.uri)
        number = at = 1
        while not is_free and at < number + GAP:
            if Path(attrs.evolve(self._options, uri=self._path(at, self._started_utc)).place).exists():
                number = at + 1
            at += 1
        return number


def _opened(feed: Feed) -> None:
    feed.open()
    feed.locate()
    feed.start()


def make_feed(options: FeedOptions, *, started_utc: datetime) -> Feed:
    """The feed, not open yet.

    Args:
        options: How it is written.
        started_utc: The wall time now.

    Raises:
        SettingsError: It needs what is not installed.
    """
    if options.is_batched:
        return BatchedFeed(options, _one_file, started_utc=started_utc)
    return _one_file(options)


def refuse_for_job(options: FeedOptions) -> None:
    """Refuse a feed that no later run of a job could go on with.

    Raises:
        FeedError: It is one.
    """
    why = ""
    if options.exporter is not None and not options.exporter.is_piecewise:
        why = f"a file of {options.exporter.kind.__qualname__} is whole only at its end; write jsonl or csv"
    elif options.format == "parquet":
        why = "a parquet file can't be continued; write sqlite or jsonl"
    elif options.is_remote:
        why = "what is in a store can't be continued; write to a file and copy it when the job is finished"
    elif options.is_batched and "batch_time" in placeholders_in(options.uri):
        why = "the times of batches are not those of the run before; number them: %(batch)05d"
    if why:
        raise FeedError(f"feed {options.uri}: can't be a feed of a job: {why}", options.uri)


def _one_file(options: FeedOptions) -> Feed:
    is_table = options.format in TABLES and options.exporter is None
    return TableFeed(options) if is_table else TextFeed(options)
