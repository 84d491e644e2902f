"""Formats and feeds: their interfaces, and how a file is written so that it is complete at any time.

Theory of operation. Between two writes, a feed's file is always a complete document::

    opening first record separator record ... separator record closing
                                                              ^ position

The *position* is a count of bytes: the end of the last whole record, or 0 if there is none. A flush is one write at the
position: separator (or opening), whole records, closing. The next flush overwrites the closing. So a file can be cut at
any recorded position and continued there, and a crawl that is killed between two writes leaves a file that parses. A
crawl that is killed within a write leaves whole records and a part of one. ``end_of`` finds the end of the whole
records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, BinaryIO, Protocol, Self

import attrs
import msgspec

from trawl.errors import SettingsError

__all__ = ["CHUNK_BYTES", "End", "Exporter", "FeedState", "Format", "FormatConflict"]

CHUNK_BYTES = 1 << 20
"""Bytes of a file that are read at once."""


class FormatConflict(ValueError):
    """Raised if a file can't be continued in this format. The message names the reason ("it contains no array")."""


@attrs.frozen
class End:
    """End of the last whole record of a file.

    Attributes:
        position: Position of the end, in bytes; 0 if there is no whole record and the file starts again.
        mend: Bytes missing there to end the record (a line without its newline).
    """

    position: int = 0
    mend: bytes = b""


class Format(Protocol):
    """Encoder of items. It is immutable. If the first item decides something, :meth:`settled` returns a new one."""

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The only fields that it can write from now on; None if it can write any."""
        ...

    @property
    def opening(self) -> bytes:
        """Bytes at the start of a file."""
        ...

    @property
    def first(self) -> bytes:
        """Bytes between the opening and the first record."""
        ...

    @property
    def separator(self) -> bytes:
        """Bytes between two records."""
        ...

    @property
    def closing(self) -> bytes:
        """Bytes after the last record."""
        ...

    def settled(self, names: Iterable[str]) -> Self:
        """Return this format for items with these fields, or itself if fields don't matter or are settled."""
        ...

    def record(self, row: Mapping[str, object]) -> bytes:
        """Encode one item.

        Raises:
            Exception: If it can't be written. User classes and libraries may raise any exception.
        """
        ...

    def end_of(self, file: BinaryIO) -> End:
        """Find the end of the whole records of ``file``, written in this format and perhaps cut at any byte.

        Raises:
            FormatConflict: If the file was not written in this format, or can't be continued.
        """
        ...

    def continued(self, file: BinaryIO) -> Self:
        """Return this format, settled from the start of ``file`` (the header of a CSV).

        Raises:
            FormatConflict: If the start of the file contradicts the settings.
        """
        ...


@attrs.frozen
class Exporter:
    """The exporter class that writes a feed, and its arguments.

    Attributes:
        kind: The class, which is called with a binary file.
        arguments: Its further keyword arguments.
    """

    kind: type[Any]
    arguments: Mapping[str, Any]

    @property
    def is_piecewise(self) -> bool:
        """True if it writes each item immediately, between a constant opening and a constant closing."""
        methods = (getattr(self.kind, name, None) for name in ("start_exporting", "finish_exporting"))
        return all(getattr(method, "__module__", "") == "trawl.exporters" for method in methods)

    def make(self, file: BinaryIO) -> Any:
        """Create the exporter of a file.

        Raises:
            SettingsError: If it does not accept the arguments.
        """
        try:
            return self.kind(file, **self.arguments)
        except (TypeError, ValueError) as error:
            words = f"{self.kind.__qualname__} can't be made with {', '.join(self.arguments)}: {error}"
            raise SettingsError(f"FEEDS: the exporter {words}; check item_export_kwargs", "FEEDS") from error


class FeedState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Position of one feed, as a job saves it.

    Attributes:
        position: The end of its last whole record, in bytes or, for a table, in rows.
        columns: The fields that it can write, if its first item decided them.
        batch: The number of the current batch, and the number of items in it.
        relative: Its path from the job's directory; None for a feed that is not a file.
        earlier: Its destinations before it was moved.
        format: Name of its format; "" in a job of an earlier release.
    """

    position: Annotated[int, msgspec.Meta(ge=0)]
    columns: tuple[str, ...] | None = None
    batch: tuple[int, int] | None = None
    relative: str | None = None
    earlier: tuple[str, ...] = ()
    format: str = ""
