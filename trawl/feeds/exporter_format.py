"""Feeds that an exporter class writes. The class is in :mod:`trawl.exporters`, or a user class in ``FEED_EXPORTERS``.

An exporter writes a file from start to end. In this module it writes to a buffer, which is emptied after each item. So
its output is split into an opening, records and a closing, and the file is complete after each flush, as in any other
feed. If a file is continued, the output before the first record (a header) must not be repeated, but the output between
two records (a comma) must be written. So the exporter receives the first item twice, and the output of the first call
is discarded.

A class with its own start or end method may write the whole file at its end (a workbook). Such a file is complete only
at the end of the crawl.

:func:`make_format` creates the format of any text feed. Only ``trawl.feeds.files`` imports this module.
"""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO, Self

import attrs

from trawl.errors import SettingsError
from trawl.feeds.base import End, Exporter, Format, FormatConflict
from trawl.feeds.formats import CsvTable, JsonArray, JsonLines, XmlTree
from trawl.feeds.item_errors import reason_of
from trawl.feeds.options import FORMATS, PLUGINS, FeedOptions
from trawl.plugins import load_plugin
from trawl.tracebacks import contained

__all__ = ["ExporterFormat", "make_format"]


class _Buffer(io.BytesIO):
    """The file of an exporter. An exporter may write to the file that ``name`` names instead, as scrapy-xlsx does."""

    def __init__(self, suffix: str) -> None:
        super().__init__()
        self._suffix = suffix
        self._file: Any = None  # deleted with this object

    @property
    def name(self) -> str:
        """The path of a temporary file."""
        if self._file is None:
            self._file = tempfile.NamedTemporaryFile(suffix=self._suffix)  # noqa: SIM115
        return str(self._file.name)

    def written(self) -> bytes:
        """Return and remove the output since the last call."""
        written = self.getvalue()
        self.seek(0)
        self.truncate()
        return written

    def written_to_name(self) -> bytes:
        """Return the content of the temporary file."""
        return b"" if self._file is None else Path(self.name).read_bytes()


class ExporterFormat:
    """A format in which a record is the output of an exporter for one item. One object writes one file."""

    first = separator = b""

    def __init__(self, exporter: Exporter, reader: Format | None, suffix: str = "") -> None:
        """Create a format for a file without records. ``reader`` finds the last record's end; None if none can."""
        self.is_whole: bool = exporter.is_piecewise
        self.opening: bytes = b""
        self._exporter = exporter
        self._reader = reader
        self._suffix = suffix
        self._is_continued = False
        self._closing = b""
        self._begin()
        if self.is_whole:
            self._end()
            self._begin()

    def _begin(self) -> None:
        self._file = _Buffer(self._suffix)
        self._writer = self._exporter.make(self._file)
        self._records = 0
        self._writer.start_exporting()
        self.opening = self._file.written() if self.is_whole else b""

    def _end(self) -> None:
        try:
            with contained:
                self._writer.finish_exporting()
        except Exception as error:  # user classes and libraries may raise any exception
            raise ValueError(f"{self._exporter.kind.__qualname__} can't end the file: {reason_of(error)}") from error
        self._closing = self._file.written() or self._file.written_to_name()

    @property
    def closing(self) -> bytes:
        """Bytes after the last record. If the exporter writes the whole file at its end, read this only after them."""
        if not self.is_whole and not self._closing:
            self._end()
        return self._closing

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The columns of a CSV, decided by its first item; None otherwise."""
        return tuple(self._writer.fields_to_export) if getattr(self._writer, "has_found_fields", False) else None

    def settled(self, names: Iterable[str]) -> Self:
        """Set the columns of a continued CSV, unless the settings name the fields."""
        if hasattr(self._writer, "has_found_fields") and not self._writer.fields_to_export:
            self._writer.fields_to_export = list(names)
            self._writer.has_found_fields = True
        return self

    def record(self, row: Any) -> bytes:
        """Return the exporter's output for an item. If the exporter raises an error, nothing is written."""
        if self._is_continued and not self._records:
            self._record(row)
        return self._record(row)

    def _record(self, item: Any) -> bytes:
        columns = self.columns
        try:
            self._writer.export_item(item)
        except BaseException:
            self._file.written()
            if not self._records:  # create a new exporter, because the old one may have marked its header as written
                self._begin()
                if columns is not None:
                    self.settled(columns)
            raise
        self._records += 1
        return self._file.written()

    def end_of(self, file: BinaryIO) -> End:
        """Find the end of the last whole record."""
        size = file.seek(0, io.SEEK_END)
        if not size:
            return End()
        if self._reader is None:
            what = f"a file of {self._exporter.kind.__qualname__}"
            raise FormatConflict(f"it exists, and only a job can continue {what}; overwrite it")
        end = self._reader.end_of(file)
        if not isinstance(self._reader, XmlTree) or not end.position:
            return end
        file.seek(end.position)  # include the newline after the item in the exporter's record
        return End(end.position + 1) if file.read(1) == b"\n" else End(end.position, b"\n")

    def continued(self, file: BinaryIO) -> Self:
        """Return this format, which then continues ``file`` with the columns of the file's header."""
        self._is_continued = True
        if self._reader is not None and (columns := self._reader.continued(file).columns):
            self.settled(columns)
        return self


def make_format(options: FeedOptions) -> Format:
    """Create the format of a feed. For a format of another package, call its entry point with the options."""
    if options.exporter is not None:
        return _exported(options, options.exporter)
    is_ascii = options.encoding not in ("utf-8", "utf-8-sig")  # other encodings may lack characters
    arguments = options.arguments
    if options.format == "jsonl":
        return JsonLines(is_ascii=is_ascii)
    if options.format == "json":
        return JsonArray(indent=options.indent, is_ascii=is_ascii)
    if options.format == "xml":
        return XmlTree(
            root=arguments.get("root_element", "items"),
            element=arguments.get("item_element", "item"),
            indent=options.indent,
            encoding="utf-8" if options.encoding in (None, "utf-8-sig") else options.encoding,
        )
    if options.format not in FORMATS:
        return _of_plugin(options)
    return CsvTable(
        columns=tuple(written for _, written in options.fields) if options.fields else None,
        encoding=options.encoding or "utf-8",
        has_header=arguments.get("include_headers_line", True),
        joint=arguments.get("join_multivalued"),
    )


def _exported(options: FeedOptions, exporter: Exporter) -> Format:
    """Create the format of an exporter class.

    trawl's own format reads the files of the class, unless the class writes another dialect of CSV.
    """
    suffix = f".{options.format}"
    writer = exporter.make(_Buffer(suffix))
    name, reader = getattr(writer, "feed_format", ""), None
    dialect = writer.csv_writer.dialect if name == "csv" else csv.excel()
    is_usual = (dialect.delimiter, dialect.quotechar, dialect.escapechar, dialect.doublequote) == (",", '"', None, True)
    if name and exporter.is_piecewise and is_usual and dialect.lineterminator.endswith("\n"):
        names = ("root_element", "item_element", "include_headers_line")
        arguments = {name: getattr(writer, name) for name in names if hasattr(writer, name)}
        changes: dict[str, Any] = {"exporter": None, "format": name, "arguments": arguments}
        reader = make_format(attrs.evolve(options, **changes))
    return ExporterFormat(exporter, reader, suffix)


def _of_plugin(options: FeedOptions) -> Format:
    make: Callable[[FeedOptions], Format] = load_plugin(PLUGINS, options.format)
    try:
        return make(options)
    except TypeError as error:
        what = f"feed {options.uri}: the format {options.format}"
        raise SettingsError(f"{what} can't be made: {error}", "FEEDS") from error
