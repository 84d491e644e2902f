"""One feed. It takes items and writes whole records to one file or to batches. After a flush, its position is known.

:class:`Feed` decides which items go to which file, and when each file is written, synced and ended. The files
(:mod:`trawl.feeds.files`, :mod:`trawl.feeds.tables`) do the writing.

Items are encoded when they are added. When a batch is full, the next items go to a new file immediately, although this
file is not open yet. The next flush ends the full batches in order and opens the new file. In a job, the number of the
batch and the number of its items are recorded with the feed's position. If the process is killed, the next process
overwrites later batches when it starts them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import trio

from trawl.blocking import Blocking
from trawl.errors import FeedError
from trawl.feeds.base import FeedState, FormatConflict
from trawl.feeds.files import FeedFile, RefusedItem, TextFile, reason_of_failure
from trawl.feeds.item_errors import ItemOrigin
from trawl.feeds.job_item import ItemFilter, JobItem
from trawl.feeds.options import TABLES, FeedOptions, fill_path, is_numbered, placeholders_in
from trawl.feeds.to_json import written_fields

__all__ = ["Feed", "refuse_for_job"]

BLANK_BYTES = 1 << 14
"""Upper bound for the size of a batch without items, in bytes, in any format. A larger file contains items."""

GAP = 100
"""If a feed does not overwrite, the search for existing batches stops after this many consecutive missing numbers."""


class Feed:
    """One feed, in one file or in several. ``open``, ``locate``, ``start``, ``close`` and ``abandon`` block."""

    def __init__(self, options: FeedOptions, *, started_utc: datetime, file: FeedFile | None = None) -> None:
        """Create a feed that is not open yet. ``file`` is used instead of the file of the options."""
        self.uri: str = options.uri
        self.format: str = options.format
        self.item_filter: ItemFilter = options.item_filter
        self.takes_items: bool = options.exporter is not None  # the items themselves, not their converted fields
        self._options = options
        self._refused: list[RefusedItem] = []
        # The file that is being written, followed by the files of later batches.
        self._files: deque[FeedFile] = deque()
        self._is_open = True  # False from the end of a full batch until the file of the next batch is open
        self._done = 0  # number of items in ended files
        # The following attributes describe the newest batch.
        self._started_utc = started_utc
        self._clock_utc = started_utc - timedelta(seconds=trio.current_time())
        self._number = 0
        self._items = 0
        self._bytes = 0
        self._uri = ""
        self._earlier = 0  # number of items that earlier runs have written to the open batch
        if not options.is_batched:
            self._files.append(file or _make_file(options))

    @property
    def file(self) -> FeedFile:
        """The file that is being written."""
        return self._files[0]

    @property
    def destination(self) -> str:
        """The feed's destination in a unique form: the absolute path, a store's URL, or ``-`` for standard output."""
        return self._options.destination

    @property
    def state(self) -> FeedState:
        """The feed's position in its file, and the number of the batch."""
        batch = (self._number - len(self._files) + 1, self._earlier + self.file.records)
        return FeedState(
            self.file.position, self.file.columns, batch if self._options.is_batched else None, format=self.format
        )

    @property
    def records(self) -> int:
        """Number of items that this run has written to all files of the feed."""
        return self._done + self.file.records

    # Methods that open the feed. They block.

    def open(self) -> None:
        """Open the destination without changing it. If the feed has batches, :meth:`locate` opens the right batch."""
        if self._files:
            with self._failing():
                self.file.open()

    def locate(self, state: FeedState | None = None) -> None:
        """Find the position at which to continue, without changing anything.

        ``state`` was recorded after a sync. Without it, the feed continues after the last whole record, or at the start
        of the file if it overwrites.
        """
        if state is not None and state.position and state.format not in {"", self.format}:
            with self._failing("the file can't be continued: "):
                raise FormatConflict(
                    f"this job has written it as {state.format}, but FEEDS has {self.format}: restore its format,"
                    " or use another path"
                )
        if not self._options.is_batched:
            self._locate(state)
        elif state is not None and state.batch is not None:
            self._open_batch(state.batch[0], state)
            self._items = self._earlier = state.batch[1]
            self._bytes = self.file.position  # only an estimate, because it counts compressed bytes or rows of a table
        else:
            number = self._first_free()
            if number == 1 or not self._goes_on_with_blank(number - 1):
                self._open_batch(number)

    def _locate(self, state: FeedState | None = None) -> None:
        with self._failing("the file can't be continued: "):
            self.file.locate(state)

    def _open_batch(self, number: int, state: FeedState | None = None) -> None:
        self._number = number - 1
        self._begin()
        self.open()
        self._locate(state)

    def _goes_on_with_blank(self, number: int) -> bool:
        """Open a batch whose process was killed before the first item. Returns False for any other batch."""
        try:
            path = Path(attrs.evolve(self._options, uri=self._path(number, self._started_utc)).destination)
            if path.stat().st_size > BLANK_BYTES:
                return False
            self._open_batch(number)
            if not self.file.position:
                return True
        except (FeedError, OSError):  # the file is missing, or is not a blank batch
            pass
        self.close()
        self._files.clear()
        return False

    def start(self) -> None:
        """Remove everything after the position, and make the file complete."""
        with self._failing():
            self.file.start()

    # Methods that add items. They do not block.

    def add(self, item: object, origin: ItemOrigin | None = None) -> int:
        """Encode and add an item, and return its approximate size in bytes; 0 if the filter rejects the item.

        Raises:
            FeedError: If the feed can't continue.
            Exception: If the item can't be written, or its library or the filter fails. The feed is unchanged.
        """
        if not self.item_filter.takes(item):
            return 0
        if self.takes_items or type(item) is dict:
            return self._add(item, origin)
        return self._add(written_fields(item, is_typed=self._files[-1].is_typed), origin)

    def add_stored(self, stored: JobItem, origin: ItemOrigin | None = None) -> int:
        """Add an item from a job's outbox, like :meth:`add`."""
        if not self.item_filter.takes_stored(stored):
            return 0
        return self._add(stored.item if self.takes_items else stored.fields, origin)

    def _add(self, fields: Any, origin: ItemOrigin | None) -> int:
        """Add an item to the newest file, or to a new file if the newest file is full."""
        if not self._options.is_batched:
            return self.file.add(fields, origin)
        items, most = self._options.batch_items, self._options.batch_bytes
        before = self._number, self._items, self._bytes, self._uri
        is_full = bool((items and self._items >= items) or (most and self._bytes >= most))
        if is_full:
            self._begin()
        try:
            taken = self._files[-1].add(fields, origin)
        except BaseException:
            if is_full:  # drop the new batch, because it would be empty
                self._files.pop()
                self._number, self._items, self._bytes, self._uri = before
            raise
        self._items += 1
        self._bytes += taken
        return taken

    def take_refused(self) -> Sequence[RefusedItem]:
        """Return items that were taken but could not be written, with the reasons. Each item is returned once."""
        refused, self._refused = self._refused, []
        if self._files:
            refused += self.file.refused
            self.file.refused = []
        return refused

    # Methods that write the added items.

    async def flush(self, blocking: Blocking) -> None:
        """Write added items. A checkpoint if there are any. After a cancellation, the next call writes the rest."""
        await self._end_full(blocking)
        if not self.file.waits:
            await self._write(blocking)

    async def sync(self, blocking: Blocking) -> None:
        """Write all added items to the disk itself, so that the position can be recorded. A checkpoint."""
        await self._end_full(blocking)
        await self._write(blocking)
        with self._failing():
            await blocking.run(self.file.sync)

    async def finish(self, blocking: Blocking) -> None:
        """Write all added items and the end of the file to the disk itself, and close the feed. A checkpoint."""
        await self._end_full(blocking)
        await self._end(blocking)

    async def _end_full(self, blocking: Blocking) -> None:
        """End the full batches in order. Each batch is ended before the next batch is opened."""
        await self._open_first(blocking)
        # Exclude batches that become full during this loop, because other feeds wait for their turn.
        for _ in range(len(self._files) - 1):
            await self._end(blocking)
            # Remove the full batch before the next batch is opened, because a cancellation may prevent the opening.
            full = self._files.popleft()
            self._refused += full.refused
            self._is_open = False
            self._done += full.records
            self._earlier = 0
            await self._open_first(blocking)

    async def _open_first(self, blocking: Blocking) -> None:
        if not self._is_open:
            await blocking.run(self._start_first)
            self._is_open = True

    def _start_first(self) -> None:
        self.open()
        self._locate()
        self.start()

    async def _write(self, blocking: Blocking, *, is_last: bool = False) -> None:
        is_left = self.file.is_staged  # True if a cancelled call has left staged records
        while self.file.stage(is_last=is_last):
            while self.file.is_staged:
                with self._failing():
                    await blocking.run(self.file.write)
            if not is_last and not is_left:
                # Items that were added during the write are written by the next call, so that other feeds get their
                # turn.
                return
            is_left = False

    async def _end(self, blocking: Blocking) -> None:
        try:
            await self._write(blocking, is_last=True)
            with self._failing():
                await blocking.run(self.file.end)
        except FeedError:
            await blocking.run(self.file.close)  # noqa: ASYNC120 - a cancellation may replace the error
            raise

    def close(self) -> None:
        """Close the feed without writing. Items that were not flushed are lost."""
        if self._files:
            self.file.close()

    def abandon(self) -> None:
        """Close a feed that was not started, and remove a file that was created for it."""
        if self._files:
            self.file.abandon()

    @contextmanager
    def _failing(self, no_continuing: str = "") -> Generator[None, None, None]:
        """Convert an error of the open file to a FeedError. For a format conflict, ``no_continuing`` precedes it."""
        try:
            yield
        except self.file.errors as error:
            words = no_continuing if isinstance(error, FormatConflict) else ""
            raise FeedError(f"feed {self.file.uri}: {words}{reason_of_failure(error)}", self.file.uri) from error

    # Methods for batches.

    def _begin(self) -> None:
        """Create the file object of the next batch. A file that an earlier process has left there is overwritten."""
        self._number += 1
        self._items = self._bytes = 0
        is_first = not self._files  # the first batch is opened in a thread, which has no event loop time
        now_utc = self._started_utc if is_first else self._clock_utc + timedelta(seconds=trio.current_time())
        overwrite = self._options.overwrite or not is_first
        options = attrs.evolve(
            self._options, uri=self._path(self._number, now_utc), overwrite=overwrite, batch_items=0, batch_bytes=0
        )
        if self._files and options.uri == self._uri:
            raise FeedError(f"feed {self.uri}: two batches would go to {options.uri}", self.uri)
        self._uri = options.uri
        self._files.append(_make_file(options))

    def _path(self, number: int, now_utc: datetime) -> str:
        return fill_path(self._options.uri, batch=number, batch_time_utc=now_utc)

    def _first_free(self) -> int:
        """Return the number of the first batch, which follows the batches of earlier crawls."""
        is_free = self._options.overwrite or self._options.is_remote or not is_numbered(self._options.uri)
        number = at = 1
        while not is_free and at < number + GAP:
            if Path(attrs.evolve(self._options, uri=self._path(at, self._started_utc)).destination).exists():
                number = at + 1
            at += 1
        return number


def _make_file(options: FeedOptions) -> FeedFile:
    if options.exporter is not None or options.format not in TABLES:
        return TextFile(options)
    from trawl.feeds.tables import ParquetTable, SqliteTable  # noqa: PLC0415 - most crawls write no tables

    return SqliteTable(options) if options.format == "sqlite" else ParquetTable(options)


def refuse_for_job(options: FeedOptions) -> None:
    """Raise a FeedError if a later run of the job could not continue this feed."""
    why = ""
    if options.exporter is not None and not options.exporter.is_piecewise:
        why = f"a file of {options.exporter.kind.__qualname__} is complete only at its end; write jsonl or csv"
    elif options.format == "parquet":
        why = "a parquet file can't be continued; write sqlite or jsonl"
    elif options.is_remote:
        why = "a file in a store can't be continued; write a local file and copy it when the job is finished"
    elif options.is_batched and "batch_time" in placeholders_in(options.uri):
        why = "the times of batches change with each run; number them: %(batch)05d"
    if why:
        raise FeedError(f"feed {options.uri}: can't be a feed of a job: {why}", options.uri)
