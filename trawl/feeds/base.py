"""Formats and feeds: their interfaces, and how a file is written so that it is whole at any time.

Theory of operation. A feed's file is, at every instant between two writes, a whole document::

    opening first record separator record ... separator record closing
                                                              ^ position

The *position* is a count of bytes: the end of the last whole record, or 0 if there is none. A flush is one write at the
position: separator (or opening), whole records, closing. The next flush overwrites the closing. So a file can be cut at
any recorded position and continued there, and a crawl killed between two writes leaves a file that parses. One that is
killed within a write leaves whole records and a part of one; ``end_of`` finds the end of the whole ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, BinaryIO, Protocol, Self

import attrs
import msgspec

from trawl.errors import SettingsError

__all__ = ["CHUNK_BYTES", "End", "Exporter", "FeedState", "Format", "FormatConflict"]

CHUNK_BYTES = 1 << 20
"""How much of a file is looked at in one piece."""


class FormatConflict(ValueError):
    """A file can't be continued in this format; the text says what is in the way ("it holds no array")."""


@attrs.frozen
class End:
    """End of the last whole record of a file.

    Attributes:
        position: In bytes; 0 if there is no whole record, and the file is started again.
        mend: Bytes missing there to end the record (a line without its newline).
    """

    position: int = 0
    mend: bytes = b""


class Format(Protocol):
    """Encoder of items. A value: :meth:`settled` makes another one where the first item decides something."""

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The only fields it can write from now on; None if it can write any."""
        ...

    @property
    def opening(self) -> bytes:
        """Bytes at the beginning of a file."""
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
        """Return this format for items with these fields; itself if fields don't matter or are settled already."""
        ...

    def record(self, row: Mapping[str, object]) -> bytes:
        """Encode one item.

        Raises:
            Exception: It can't be written, for whatever reason its values or their library give.
        """
        ...

    def end_of(self, file: BinaryIO) -> End:
        """Find the end of the whole records of ``file``, written in this format and perhaps cut at any byte.

        Raises:
            FormatConflict: The file was not written in this format, or can't be continued.
        """
        ...

    def continued(self, file: BinaryIO) -> Self:
        """Return this format, settled as the beginning of ``file`` says (the header of a CSV).

        Raises:
            FormatConflict: It contradicts the settings.
        """
        ...


@attrs.frozen
class Exporter:
    """The class that writes a feed, and its arguments.

    Attributes:
        kind: The class; it is called with a binary file.
        arguments: Its other arguments.
    """

    kind: type[Any]
    arguments: Mapping[str, Any]

    @property
    def is_piecewise(self) -> bool:
        """True if it writes each item at once, between a beginning and an end that are always the same."""
        methods = (getattr(self.kind, name, None) for name in ("start_exporting", "finish_exporting"))
        return all(getattr(method, "__module__", "") == "trawl.exporters" for method in methods)

    def make(self, file: BinaryIO) -> Any:
        """Make the exporter of a file.

        Raises:
            SettingsError: It does not take the arguments.
        """
        try:
            return self.kind(file, **self.arguments)
        except (TypeError, ValueError) as error:
            words = f"{self.kind.__qualname__} can't be made with {', '.join(self.arguments)}: {error}"
            raise SettingsError(f"FEEDS: the exporter {words}; look at item_export_kwargs", "FEEDS") from error


class FeedState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Position of one feed, as a job saves it.

    Attributes:
        position: The end of its last whole record, in bytes; of a table in rows.
        columns: The fields that it can write, where its first item told them.
        batch: The number of the batch that the position is in, and how many items that has.
        relative: Its path from the job's directory; None for a feed that is not a file.
        earlier: The destinations where it was before it was moved.
        format: The name of its format; "" in a job of an earlier release.
    """

    position: Annotated[int, msgspec.Meta(ge=0)]
    columns: tuple[str, ...] | None = None
    batch: tuple[int, int] | None = None
    relative: str | None = None
    earlier: tuple[str, ...] = ()
    format: str = ""
