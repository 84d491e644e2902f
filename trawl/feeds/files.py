"""The files of a feed. Items are encoded when they are added, and written later by blocking calls.

:class:`FeedFile` is their interface. :class:`TextFile` writes records of bytes. The files in
:mod:`trawl.feeds.tables` write rows through a library. Items are encoded in Trio's thread when they are added.
``stage`` selects the pending records that the next ``write`` writes. ``write`` may run in another thread, and returns
early if a reader is slow, so that the crawl can be cancelled.
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from trawl.feeds.base import End, FeedState, Format, FormatConflict
from trawl.feeds.compression import PIECE_BYTES, Content, make_compression
from trawl.feeds.exporter_format import make_format
from trawl.feeds.item_errors import ItemOrigin, listed
from trawl.feeds.options import FeedOptions
from trawl.feeds.storages import (
    FeedStorage,
    FileStorage,
    RemoteFile,
    open_standard_output,
    open_storage,
    open_store,
)
from trawl.feeds.to_json import wrong_field
from trawl.passwords import without_passwords

__all__ = ["FeedFile", "RefusedItem", "TextFile", "reason_of_failure"]

logger: logging.Logger = logging.getLogger("trawl.feeds")

RefusedItem = tuple[ItemOrigin, Exception]  # the origin of an item that can't be written, and the reason


class FeedFile(ABC):
    """One file of a feed. All methods except :meth:`add` and :meth:`stage` block, and raise :attr:`errors`."""

    errors: tuple[type[Exception], ...] = (OSError, ValueError)
    is_typed: bool = False  # whether the file has column types for times, decimals and bytes

    def __init__(self, options: FeedOptions) -> None:
        """Create a file that is not open yet."""
        self.uri: str = options.uri
        self.position: int = 0  # end of the last whole record, in bytes or, for a table, in rows
        self.records: int = 0  # number of items written in this run
        self.refused: list[RefusedItem] = []  # items that were taken but could not be written
        self._options = options
        self._remote: RemoteFile | None = None

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The only fields that the file can write from now on; None if it can write any field."""
        return None

    @property
    def waits(self) -> bool:
        """True if more items should be collected before the next write, except before a sync and the end."""
        return False

    @abstractmethod
    def add(self, fields: Any, origin: ItemOrigin | None) -> int:
        """Encode an item or its fields, and return its approximate size, at least 1 byte. An error changes nothing."""

    @property
    @abstractmethod
    def is_staged(self) -> bool:
        """True if :meth:`write` has not yet written everything that was staged."""

    @abstractmethod
    def stage(self, *, is_last: bool = False) -> bool:
        """Stage added records for :meth:`write`, and return whether anything is staged.

        If ``is_last``, also stage the end of the file once. Staged records stay staged if the caller is cancelled.
        """

    @abstractmethod
    def write(self) -> None:
        """Write the staged records, or only some of them if the rest would take long."""

    def open(self) -> None:
        """Open the file without changing it. A feed for a store is a local file until it has ended."""
        if self._options.is_remote:
            self._remote = open_store(self._options)
            self._options = self._remote.options
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Open the file of the options."""

    @abstractmethod
    def locate(self, state: FeedState | None) -> None:
        """Find the position at which to continue, without changing anything (:meth:`trawl.feeds.feed.Feed.locate`)."""

    @abstractmethod
    def start(self) -> None:
        """Remove everything after the position, and make the file complete."""

    @abstractmethod
    def sync(self) -> None:
        """Wait until all written records are on the disk itself."""

    def end(self) -> None:
        """Sync and close the file, and upload it if the feed goes to a store. After a failure, the local file stays.

        Removes a file without items unless the feed's options keep such a file.
        """
        if self.position or self.records or self._options.store_empty:
            self._finish()
            # Clear `_remote` only now, because close() reports the local file if _finish() fails.
            remote, self._remote = self._remote, None
            if remote is not None:
                remote.upload()
        else:
            self._discard()
            if self._remote is not None:
                self._remote.local.unlink(missing_ok=True)

    @abstractmethod
    def _finish(self) -> None:
        """Write the end of the file to the disk itself, and close the file."""

    @abstractmethod
    def _discard(self) -> None:
        """Close and remove the file."""

    def close(self) -> None:
        """Close the file without writing. Records that were not written are lost. A second call does nothing.

        The local file of a feed for a store stays if it has records. An error that names it is logged.
        """
        self._close()
        remote, self._remote = self._remote, None
        if remote is None:
            return
        if (self.position or self.records) and remote.local.exists() and remote.local.stat().st_size:
            words = "feed %s: it was not uploaded to its store; its items are kept in %s"
            logger.error(words, without_passwords(self.uri), remote.local)
        else:
            remote.local.unlink(missing_ok=True)

    @abstractmethod
    def _close(self) -> None:
        """Close the file."""

    @abstractmethod
    def abandon(self) -> None:
        """Close a file that was not started, and remove it if it was created for this feed."""


class TextFile(FeedFile):
    """Records of bytes, in a file or a stream."""

    def __init__(self, options: FeedOptions, storage: FeedStorage | None = None) -> None:
        """Create a file at position 0 of ``storage``. Without a storage, the file takes items and is opened later."""
        super().__init__(options)
        self._format: Format = make_format(options)
        # Whether the file is complete after each write. False if only the end of the file makes it complete.
        self._is_whole = getattr(self._format, "is_whole", True)
        self._compression = make_compression(options.compression)
        self._storage: FeedStorage = storage or FeedStorage()
        self._end = End()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._is_settled = False
        # The columns, and other fields about which a warning was logged. None until an item has decided the columns.
        self._known: set[str] | None = None
        self._is_ended = False
        self._ends = False  # whether the file's end is staged (for a workbook, the whole file)
        self._outgoing = memoryview(b"")  # staged bytes that are not written yet
        self._outgoing_at = 0  # position of the staged bytes
        self._outgoing_ends = 0  # position of the feed after the staged bytes are written
        self._outgoing_records = 0

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The only fields that the file can write from now on; None if it can write any field."""
        return self._format.columns

    @property
    def waits(self) -> bool:
        """True for a compressed file with less than :data:`trawl.feeds.compression.PIECE_BYTES` to write."""
        return self._compression is not None and self._pending_bytes < PIECE_BYTES

    # Methods that open the file.

    def _open(self) -> None:
        path = self._options.path
        self._storage = open_standard_output() if path is None else open_storage(path)

    def locate(self, state: FeedState | None) -> None:
        """Find the end of the last whole record. A stream has none."""
        storage = self._storage
        if not isinstance(storage, FileStorage):
            return
        if state is not None:
            if state.position > storage.size:
                raise FormatConflict(f"it has {storage.size} bytes, not the {state.position} that were written to it")
            self._end = End(state.position)
        elif not self._options.overwrite:
            self._end = self._searched(storage)
        self.position = self._end.position
        if self.position:
            if state is not None and state.columns:
                self._format = self._format.settled(state.columns)
            with self._content(storage) as content:
                self._format = self._format.continued(content.file)

    def start(self) -> None:
        """Truncate a file after its last whole record and write the closing, so that the file is complete."""
        storage = self._storage
        if isinstance(storage, FileStorage):
            storage.cut(self._end.position)
            mend = self._packed(self._end.mend)
            self._write_now(self._end.position, mend)
            self.position = self._end.position + len(mend)
            self._close_off()

    def _searched(self, storage: FileStorage) -> End:
        with self._content(storage) as content:
            file = content.file
            end = self._format.end_of(file)
            file.seek(end.position)
            opening = b"" if end.position else self._format.opening
            usual = opening + (self._format.closing if self._is_whole else b"")
            is_usual = _without_space(file.read(2 * len(usual) + 1)) in (b"", _without_space(usual))
            position = content.position_of(end.position)
            if (not end.mend and not is_usual) or storage.size > content.size_bytes:
                lost = storage.size - position
                words = "feed %s: removed %d bytes after its last whole record"
                logger.warning(words, without_passwords(self.uri), lost)
            return End(position, end.mend)

    def _content(self, storage: FileStorage) -> Content:
        return Content(storage.reader(), self._compression)

    def _packed(self, content: bytes) -> bytes:
        return self._compression.compress(content) if content and self._compression is not None else content

    # Methods that add items. They do not block.

    def add(self, fields: Any, origin: ItemOrigin | None) -> int:
        """Encode an item. The item sets the file's columns only if it can be encoded."""
        record = self._row(fields) if self._options.exporter is None else self._format.record(fields)
        self._pending.append(record)
        self._pending_bytes += len(record)
        return len(record) or 1

    def _row(self, fields: Mapping[str, object]) -> bytes:
        row = self._options.select_fields(fields)
        style = self._format if self._is_settled else self._format.settled(row)
        columns = style.columns
        if columns is not None and row.keys().isdisjoint(columns):
            raise ValueError(
                f"it has none of the feed's columns {listed(columns)}, but {listed(row)}; "
                "with item_classes or item_filter each kind of item can have its own feed"
            )
        try:
            record = style.record(row)
        except Exception as error:
            raise wrong_field(row, error) from error
        if not self._is_settled:
            self._format, self._is_settled = style, bool(row)
            if columns is not None and self._options.fields is None:
                self._known = set(columns)
        if self._known is not None and not row.keys() <= self._known:
            self._warn_of_extra(row, self._known)
        return record

    def _warn_of_extra(self, row: Mapping[str, object], known: set[str]) -> None:
        for name in row:
            if name not in known:
                known.add(name)  # warn once for each name
                logger.warning(
                    "feed %s: field %r has no column and is left out; the columns are the first item's fields, "
                    "or those in FEED_EXPORT_FIELDS",
                    without_passwords(self.uri),
                    name,
                )

    @property
    def is_staged(self) -> bool:
        """True if :meth:`write` has not yet written everything that was staged."""
        return bool(self._outgoing or self._outgoing_records or self._ends)

    def stage(self, *, is_last: bool = False) -> bool:
        """Stage added records. In a regular file, the file's end follows, and the next records overwrite it."""
        if self.is_staged:
            return True
        closes_early = self._is_whole and isinstance(self._storage, FileStorage)
        if self._pending:
            style = self._format
            lead = style.separator if self.position else style.opening + style.first
            body = self._packed(lead + style.separator.join(self._pending))
            self._outgoing = memoryview(body + self._packed(style.closing) if closes_early else body)
            self._outgoing_at, self._outgoing_ends = self.position, self.position + len(body)
            self._outgoing_records = len(self._pending)
            self._pending, self._pending_bytes = [], 0
            return True
        is_wanted = self.position or self.records or self._options.store_empty
        if is_last and is_wanted and not closes_early and not self._is_ended:
            self._is_ended = self._ends = True
        return self._ends

    # Methods that write the added items.

    def write(self) -> None:
        """Write as many staged bytes as the storage accepts in one call."""
        try:
            if self._ends:
                self._ends = False
                self._outgoing, self._outgoing_at = memoryview(self._ending()), self.position
            if self._outgoing:
                taken = self._storage.write(self._outgoing_at, self._outgoing)
                self._outgoing_at += taken
                self._outgoing = self._outgoing[taken:]
        except self.errors:  # ValueError means a closed stream, or an exporter that failed to end the file
            self._restore()
            raise
        if self._outgoing_records and not self._outgoing:
            self.position: int = self._outgoing_ends
            self.records: int = self.records + self._outgoing_records
            self._outgoing_records = 0

    def sync(self) -> None:
        """Wait until all written records are on the disk itself. Does nothing for a stream."""
        if isinstance(self._storage, FileStorage):
            self._storage.sync()

    def _finish(self) -> None:
        self.sync()  # a job never writes a complete batch again, so a power cut must not lose it
        self._storage.close()

    def _discard(self) -> None:
        if isinstance(self._storage, FileStorage) and (self._storage.is_new or self._options.overwrite):
            self._storage.remove()
        self._storage.close()

    def _close(self) -> None:
        self._storage.close()

    def abandon(self) -> None:
        """Close the storage, and remove a file that was created for it."""
        if isinstance(self._storage, FileStorage) and self._storage.is_new:
            self._storage.remove()
        self.close()

    def _restore(self) -> None:
        """After a failed write, remove the partial record and write the closing again, if possible."""
        self._outgoing = memoryview(b"")
        self._outgoing_records = 0
        if not isinstance(self._storage, FileStorage):
            return
        try:
            self._storage.cut(self.position)
            self._close_off()
        except OSError as error:
            words = "feed %s: the partial record at its end can't be removed: %s"
            logger.error(words, without_passwords(self.uri), reason_of_failure(error))

    def _close_off(self) -> None:
        if self._is_whole:
            self._write_now(self.position, self._ending())

    def _ending(self) -> bytes:
        """Return the bytes that complete the file after its last record, or after its start if there is no record."""
        content = (b"" if self.position else self._format.opening) + self._format.closing
        if self._compression is not None and not content and not self.position:
            return self._compression.compress(b"")  # a file of 0 bytes can't be decompressed
        return self._packed(content)

    def _write_now(self, position: int, content: bytes) -> None:
        rest = memoryview(content)
        while rest:
            taken = self._storage.write(position, rest)
            position += taken
            rest = rest[taken:]


def _without_space(content: bytes) -> bytes:
    return b"".join(content.split())


def reason_of_failure(error: Exception) -> str:
    """Return why a file can't be written, for a message."""
    if isinstance(error, BrokenPipeError):
        return "its reader has closed it"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error)
