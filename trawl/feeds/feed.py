"""Feeds: items in, whole records out, at a position that is known after each flush.

:class:`Feed` is their common part; :class:`TextFeed` writes records of bytes, :class:`trawl.feeds.table.TableFeed`
has a library write rows, and :class:`trawl.feeds.batches.BatchedFeed` is a chain of either.
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from trawl.blocking import Blocking
from trawl.errors import FeedError
from trawl.feeds.base import End, FeedReport, Format, NotThisFormat
from trawl.feeds.compression import PIECE_BYTES, Content, make_compression
from trawl.feeds.exported import make_format
from trawl.feeds.item_errors import ItemOrigin, listed
from trawl.feeds.item_filter import ItemFilter
from trawl.feeds.options import FeedOptions
from trawl.feeds.stored_items import StoredItem
from trawl.feeds.targets import FileTarget, RemoteFile, Target, Unopened, open_standard_output, open_store, open_target
from trawl.feeds.to_json import written_fields, wrong_field

__all__ = ["Feed", "TextFeed"]

logger: logging.Logger = logging.getLogger("trawl.feeds")


class Feed(ABC):
    """One feed, in one file or in several. ``open``, ``locate``, ``start``, ``close`` and ``abandon`` block.

    Attributes:
        uri: Its path or URL, as the user wrote it.
        item_filter: Decides which items it takes.
        takes_items: It writes items themselves, and not the fields that JSON has a form for.
        records: Items written in this run.
    """

    _is_typed = False  # it has column types for times, decimals and bytes

    def __init__(self, options: FeedOptions) -> None:
        """A feed that is not open yet."""
        self.uri: str = options.uri
        self.item_filter: ItemFilter = options.item_filter
        self.takes_items: bool = options.exporter is not None
        self.records: int = 0
        self._options = options
        self._remote: RemoteFile | None = None
        self._refused: list[tuple[ItemOrigin, Exception]] = []

    @property
    def place(self) -> str:
        """Its destination, however spelled: the absolute path; a store's URL; ``-`` for standard output."""
        return self._options.place

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The only fields that it can write from now on; None if any."""
        return None

    @property
    def batch(self) -> tuple[int, int] | None:
        """The number of the batch being written, and how many items it has; None if it is one file."""
        return None

    @property
    @abstractmethod
    def position(self) -> int:
        """End of the last whole record that was written, in bytes, or in rows of a table; 0 before the first."""

    @property
    def report(self) -> FeedReport:
        """Counts so far."""
        return FeedReport(self.uri, self._options.format, self.records, self.position)

    def _count(self, records: int) -> None:
        """Add to the number of items that were written; less than 0 takes them back."""
        self.records += records

    @abstractmethod
    def open(self) -> None:
        """Open its destination; nothing in it has changed.

        Raises:
            FeedError: It can't be opened for writing.
            SettingsError: That needs a library that is not installed.
        """

    @abstractmethod
    def locate(
        self,
        position: int | None = None,
        columns: Sequence[str] | None = None,
        batch: tuple[int, int] | None = None,
    ) -> None:
        """Find where to continue; nothing changes yet.

        Args:
            position: One that was recorded after a sync; None finds the end of the last whole record, or takes 0 if the
                feed overwrites.
            columns: Those that were recorded with it, for a file that does not name them itself.
            batch: The batch that was recorded with it.

        Raises:
            FeedError: It can't be continued in this format, or is shorter than ``position``.
        """

    @abstractmethod
    def start(self) -> None:
        """Cut away what follows the position, and make the file whole.

        Raises:
            FeedError: It can't be written.
        """

    def add(self, item: object, origin: ItemOrigin | None = None) -> int:
        """Take an item, encoded at once; return about how many bytes it takes, 0 if this feed does not want it.

        Raises:
            FeedError: The feed can't go on.
            ValueError: The item can't be written: the text names the field, or the columns that it has nothing for.
            Exception: Its own library, or the feed's filter, failed on it. The feed is as it was before.
        """
        if not self.item_filter.takes(item):
            return 0
        if self.takes_items or type(item) is dict:
            return self._add(item, origin)
        return self._add(written_fields(item, is_typed=self._is_typed), origin)

    def add_stored(self, stored: StoredItem, origin: ItemOrigin | None = None) -> int:
        """Take an item out of a job's outbox, as :meth:`add` takes an item.

        Raises:
            Exception: As there.
        """
        if not self.item_filter.takes_stored(stored):
            return 0
        return self._add(stored.item if self.takes_items else stored.fields, origin)

    @abstractmethod
    def _add(self, fields: Any, origin: ItemOrigin | None) -> int:
        """Encode an item, given by its fields or as it is. The feed changes only when that is done."""

    def take_refused(self) -> Sequence[tuple[ItemOrigin, Exception]]:
        """Return the items that were taken and could not be written after all, each once, with the reason."""
        refused, self._refused = self._refused, []
        return refused

    @abstractmethod
    async def flush(self, blocking: Blocking) -> None:
        """Write what was added. A checkpoint if there is any. Cancelling loses nothing: the next call writes the rest.

        Raises:
            FeedError: It can't be written. What was whole before stays whole.
        """

    @abstractmethod
    async def sync(self, blocking: Blocking) -> None:
        """Have all that was added on the disk itself, so that its position may be recorded. A checkpoint.

        Raises:
            FeedError: It can't be written.
        """

    @abstractmethod
    async def finish(self, blocking: Blocking) -> None:
        """Write all that was added and the end, have it on the disk itself, and close. A checkpoint.

        Raises:
            FeedError: It can't be written.
        """

    @abstractmethod
    def close(self) -> None:
        """Close it as it is; what was added and not flushed is lost."""

    @abstractmethod
    def abandon(self) -> None:
        """Close it before it was started; a file that was made for it is removed."""

    def _open_remote(self) -> None:
        """Write to a local file instead, if it goes to a store."""
        if self._options.is_remote:
            self._remote = open_store(self._options)
            self._options = self._remote.options

    def _failure(self, error: Exception) -> FeedError:
        return FeedError(f"feed {self.uri}: {_words(error)}", self.uri)


class TextFeed(Feed):
    """A feed of records that are bytes, in a file or a stream.

    Attributes:
        pending_bytes: Bytes that were added and not written yet.
    """

    def __init__(self, options: FeedOptions, target: Target | None = None) -> None:
        """A feed that begins at position 0 of ``target``; see :meth:`locate` for one that continues.

        Without a target it takes items, and writes them once it is opened.
        """
        super().__init__(options)
        self.pending_bytes: int = 0
        self._position = 0
        self._format: Format = make_format(options)
        self._is_whole = getattr(self._format, "is_whole", True)  # between two writes, and not only at its end
        self._compression = make_compression(options.compression)
        self._target: Target = target or Unopened()
        self._end = End()
        self._pending: list[bytes] = []
        self._is_settled = False
        self._known: set[str] | None = None  # the columns, and the names that were warned about
        self._is_ended = False
        self._outgoing = memoryview(b"")  # composed, and not yet all written
        self._outgoing_at = 0  # where the rest of it goes
        self._outgoing_ends = 0  # the position once it is all written
        self._outgoing_records = 0

    @property
    def position(self) -> int:
        """Bytes up to the end of the last whole record that was written; 0 before the first."""
        return self._position

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The only fields that it can write from now on; None if any."""
        return self._format.columns

    # Opening. These block.

    def open(self) -> None:
        """Open the file, device or stream."""
        try:
            self._open_remote()
            path = self._options.path
            self._target = open_standard_output() if path is None else open_target(path)
        except OSError as error:
            raise self._failure(error) from error

    def locate(
        self,
        position: int | None = None,
        columns: Sequence[str] | None = None,
        batch: tuple[int, int] | None = None,
    ) -> None:
        """Find where to continue in a file."""
        target = self._target
        if not isinstance(target, FileTarget):
            return
        try:
            if position is not None and position > target.size:
                raise NotThisFormat(f"it has {target.size} bytes, not the {position} that were written to it")
            if position is not None:
                self._end = End(position)
            elif not self._options.overwrite:
                self._end = self._searched(target)
            self._position = self._end.position
            if self._end.position:
                if columns:
                    self._format = self._format.settled(columns)
                self._settle_as_in(target)
        except NotThisFormat as error:
            raise FeedError(f"feed {self.uri}: the file can't be continued: {error}", self.uri) from error
        except OSError as error:
            raise self._failure(error) from error

    def start(self) -> None:
        """Cut a file to its whole records and close it off there, so that it parses from now on."""
        target = self._target
        if not isinstance(target, FileTarget):
            return
        try:
            target.cut(self._end.position)
            mend = self._packed(self._end.mend)
            self._write_now(self._end.position, mend)
            self._position = self._end.position + len(mend)
            self._close_off()
        except OSError as error:
            raise self._failure(error) from error

    def _searched(self, target: FileTarget) -> End:
        with self._content(target) as content:
            file = content.file
            end = self._format.end_of(file)
            file.seek(end.position)
            opening = b"" if end.position else self._format.opening
            usual = opening + (self._format.closing if self._is_whole else b"")
            is_usual = _without_space(file.read(2 * len(usual) + 1)) in (b"", _without_space(usual))
            position = content.position_of(end.position)
            if (not end.mend and not is_usual) or target.size > content.size_bytes:
                lost = target.size - position
                logger.warning("feed %s: %d bytes after its last whole record are cut off", self.uri, lost)
            return End(position, end.mend)

    def _settle_as_in(self, target: FileTarget) -> None:
        with self._content(target) as content:
            self._format = self._format.continued(content.file)

    def _content(self, target: FileTarget) -> Content:
        return Content(target.reader(), self._compression)

    def _packed(self, content: bytes) -> bytes:
        return content if self._compression is None else self._compression.pack(content)

    # Adding. This does not block.

    def _add(self, fields: Any, origin: ItemOrigin | None) -> int:
        """Encode an item. The feed changes only when that is done: one that fails must not decide the columns."""
        record = self._format.record(fields) if self.takes_items else self._row(fields)
        self._pending.append(record)
        self.pending_bytes += len(record)
        return len(record) or 1

    def _row(self, fields: Mapping[str, object]) -> bytes:
        row = self._options.select_fields(fields)
        style = self._format if self._is_settled else self._format.settled(row)
        columns = style.columns
        if columns is not None and row.keys().isdisjoint(columns):
            raise ValueError(
                f"it has none of the feed's columns {listed(columns)}, but {listed(row)}; "
                "with item_classes or item_filter each kind of item has a feed of its own"
            )
        try:
            record = style.record(row)
        except Exception as error:
            raise wrong_field(row, error) from error
        if not self._is_settled:
            self._settle(style, row)
        elif self._known is not None and not row.keys() <= self._known:
            self._warn_of_extra(row)
        return record

    def _settle(self, style: Format, row: Mapping[str, object]) -> None:
        self._format = style
        self._is_settled = bool(row)
        if style.columns is not None and self._options.fields is None:
            self._known = set(style.columns)
            if not row.keys() <= self._known:
                self._warn_of_extra(row)

    def _warn_of_extra(self, row: Mapping[str, object]) -> None:
        known = self._known or set()
        for name in row:
            if name not in known:
                known.add(name)  # once a name
                logger.warning(
                    "feed %s: field %r has no column and is left out; the columns are the first item's fields, "
                    "or those in FEED_EXPORT_FIELDS",
                    self.uri,
                    name,
                )

    # Writing.

    async def flush(self, blocking: Blocking) -> None:
        """Write what was added, in one piece of whole records and the closing. A checkpoint if there is any.

        A compressed feed keeps up to :data:`trawl.feeds.compression.PIECE_BYTES` of it, until it is synced or finished.
        """
        if self._compression is None or self.pending_bytes >= PIECE_BYTES:
            await self._drain(blocking)

    async def sync(self, blocking: Blocking) -> None:
        """Have all that was added on the disk itself. A checkpoint."""
        await self._drain(blocking)
        await self._sync_target(blocking)

    async def _sync_target(self, blocking: Blocking) -> None:
        if isinstance(self._target, FileTarget):
            try:
                await blocking.run(self._target.sync)
            except OSError as error:
                raise self._failure(error) from error

    async def finish(self, blocking: Blocking) -> None:
        """Write all that was added and the end, sync and close. A checkpoint."""
        try:
            await self._drain(blocking)
            is_unwanted = not self._position and not self.records and not self._options.store_empty
            if not self._closes_early and not is_unwanted and not self._is_ended:
                self._is_ended = True
                self._outgoing, self._outgoing_at = memoryview(self._ending()), self._position
                await self._send(blocking)
            if not is_unwanted:  # a batch is forgotten by its job once it is whole, and must not be lost then
                await self._sync_target(blocking)
        except FeedError:
            await blocking.run(self.close)  # noqa: ASYNC120 - a cancel then says more than the error
            raise
        await blocking.run(self._remove if is_unwanted else self._deliver)

    def close(self) -> None:
        """Close the target as it is."""
        self._target.close()
        if self._remote is not None:
            self._remote.remove_local()

    def _deliver(self) -> None:
        self._target.close()
        if self._remote is not None:
            self._remote.upload()

    async def _drain(self, blocking: Blocking) -> None:
        await self._send(blocking)
        if self._pending:
            self._compose()
            await self._send(blocking)

    def abandon(self) -> None:
        """Close the target; a file that was made for it is removed."""
        if isinstance(self._target, FileTarget) and self._target.is_new:
            self._target.remove()
        self.close()

    def _remove(self) -> None:
        if isinstance(self._target, FileTarget) and (self._target.is_new or self._options.overwrite):
            self._target.remove()
        self.close()

    def _compose(self) -> None:
        style = self._format
        lead = style.separator if self._position else style.opening + style.first
        body = self._packed(lead + style.separator.join(self._pending))
        self._outgoing_records = len(self._pending)
        self._outgoing_at = self._position
        self._outgoing_ends = self._position + len(body)
        self._outgoing = memoryview(body + self._packed(style.closing) if self._closes_early else body)
        self._pending = []
        self.pending_bytes = 0

    @property
    def _closes_early(self) -> bool:
        """True if the closing follows each flush, and is overwritten by the next."""
        return self._is_whole and self._target.is_seekable

    async def _send(self, blocking: Blocking) -> None:
        while self._outgoing:
            try:
                taken = await blocking.run(self._target.write, self._outgoing_at, self._outgoing)
            except (OSError, ValueError) as error:  # ValueError: a stream that someone closed
                await blocking.run(self._restore)  # noqa: ASYNC120 - a cancel then says more than the error
                raise self._failure(error) from error
            self._outgoing_at += taken
            self._outgoing = self._outgoing[taken:]
        if self._outgoing_records:
            self._position = self._outgoing_ends
            self._count(self._outgoing_records)
            self._outgoing_records = 0

    def _restore(self) -> None:
        """After a write that failed: cut the half record away and close the file off again, as far as that goes."""
        self._outgoing = memoryview(b"")
        self._outgoing_records = 0
        if not isinstance(self._target, FileTarget):
            return
        try:
            self._target.cut(self._position)
            self._close_off()
        except OSError as error:
            logger.error("feed %s: the half record at its end can't be cut off: %s", self.uri, _words(error))

    def _close_off(self) -> None:
        if self._is_whole:
            self._write_now(self._position, self._ending())

    def _ending(self) -> bytes:
        """Return the bytes that make the file whole after its last record, or without one."""
        content = (b"" if self._position else self._format.opening) + self._format.closing
        if self._compression is not None and not content and not self._position:
            return self._compression.nothing
        return self._packed(content)

    def _write_now(self, position: int, content: bytes) -> None:
        rest = memoryview(content)
        while rest:
            taken = self._target.write(position, rest)
            position += taken
            rest = rest[taken:]


def _without_space(content: bytes) -> bytes:
    return b"".join(content.split())


def _words(error: Exception) -> str:
    if isinstance(error, BrokenPipeError):
        return "its reader has closed it"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error)
