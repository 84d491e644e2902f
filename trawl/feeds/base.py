"""The interface of formats, and the state of a feed. Between two writes, a feed's file is a complete document.

Theory of operation. A feed's file consists of these parts::

    opening first record separator record ... separator record closing
                                                              ^ position

The *position* is the end of the last whole record, in bytes, or 0 if there is no record. A flush is one write at the
position. It writes a separator (or the opening), whole records, and the closing. The next flush overwrites the closing.
So a file can be truncated at any recorded position and continued there. If a crawl is killed between two writes, its
file is a complete document. If a crawl is killed during a write, its file contains whole records and possibly a part of
a record. ``end_of`` finds the end of the whole records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, BinaryIO, Protocol, Self

import attrs
import msgspec

from trawl.errors import SettingsError

__all__ = ["CHUNK_BYTES", "End", "Exporter", "FeedState", "Format", "FormatConflict"]

CHUNK_BYTES = 1 << 20  # maximum number of bytes of a file in one read


class FormatConflict(ValueError):
    """Raised if a file can't be continued in this format. The message is the reason ("it contains no array")."""


@attrs.frozen
class End:
    """End of the last whole record of a file.

    Attributes:
        position: Position of the end, in bytes; 0 if there is no whole record, so that the file is written from its
            start.
        mend: Bytes that are missing at the end of the record, such as the newline of a line.
    """

    position: int = 0
    mend: bytes = b""


class Format(Protocol):
    """Encoder of items.

    It is immutable: if the first item decides the columns, :meth:`settled` returns a new format.
    """

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The only fields that can be written from now on; None if any field can be written."""

    @property
    def opening(self) -> bytes:
        """Bytes at the start of a file."""

    @property
    def first(self) -> bytes:
        """Bytes between the opening and the first record."""

    @property
    def separator(self) -> bytes:
        """Bytes between two records."""

    @property
    def closing(self) -> bytes:
        """Bytes after the last record."""

    def settled(self, names: Iterable[str]) -> Self:
        """Return the format for items with these fields; itself if it accepts any fields or already has columns."""

    def record(self, row: Mapping[str, object]) -> bytes:
        """Encode one item.

        Raises:
            Exception: If the item can't be written. User classes and libraries may raise any exception.
        """

    def end_of(self, file: BinaryIO) -> End:
        """Find the end of the last whole record of ``file``.

        The file is in this format, but may be truncated at any byte.

        Raises:
            FormatConflict: If the file was not written in this format, or can't be continued.
        """

    def continued(self, file: BinaryIO) -> Self:
        """Return this format with the columns in the start of ``file``, such as the header of a CSV.

        Raises:
            FormatConflict: If the start of the file contradicts the settings.
        """


@attrs.frozen
class Exporter:
    """The exporter class that writes a feed. It is called with a binary file and the keyword arguments."""

    kind: type[Any]
    arguments: Mapping[str, Any]

    @property
    def is_piecewise(self) -> bool:
        """True if the class writes each item immediately, and start and end of the file do not depend on the items."""
        methods = (getattr(self.kind, name, None) for name in ("start_exporting", "finish_exporting"))
        return all(getattr(method, "__module__", "") == "trawl.exporters" for method in methods)

    def make(self, file: BinaryIO) -> Any:
        """Create the exporter of a file; raise SettingsError if the class does not accept the arguments."""
        try:
            return self.kind(file, **self.arguments)
        except (TypeError, ValueError) as error:
            words = f"{self.kind.__qualname__} can't be made with {', '.join(self.arguments)}: {error}"
            raise SettingsError(f"FEEDS: the exporter {words}; check item_export_kwargs", "FEEDS") from error


class FeedState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The saved state of one feed of a job.

    Attributes:
        position: The end of the feed's last whole record, in bytes or, for a table, in rows.
        columns: The fields that the feed can write, if its first item has decided them; None otherwise.
        batch: The number of the current batch, and the number of items in this batch; None without batches.
        relative: The path of the feed's file, relative to the job's directory; None if the feed is not a file or the
            job has no directory.
        earlier: Earlier destinations of the feed, if it was moved.
        format: The name of the feed's format; "" in a job of an earlier release.
    """

    position: Annotated[int, msgspec.Meta(ge=0)]
    columns: tuple[str, ...] | None = None
    batch: tuple[int, int] | None = None
    relative: str | None = None
    earlier: tuple[str, ...] = ()
    format: str = ""
