"""Item exporters at Scrapy's import path. Like Scrapy's exporters, they write items to a binary file.

A pipeline creates an exporter for an open file and calls ``start_exporting()``, ``export_item(item)`` for each item,
and ``finish_exporting()``. A feed uses an exporter if ``FEED_EXPORTERS``, or ``exporter`` in the feed's entry of
``FEEDS``, names it.
"""

from __future__ import annotations

import csv
import json
import logging
import marshal
import pickle
import pprint
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from io import TextIOWrapper
from typing import IO, Any
from xml.sax.saxutils import XMLGenerator
from xml.sax.xmlreader import AttributesImpl

from trawl.http import Request, Response
from trawl.items import Item, field_metadata, is_item, item_fields
from trawl.passwords import without_passwords

__all__ = [
    "BaseItemExporter",
    "CsvItemExporter",
    "JsonItemExporter",
    "JsonLinesItemExporter",
    "MarshalItemExporter",
    "PickleItemExporter",
    "PprintItemExporter",
    "PythonItemExporter",
    "XmlItemExporter",
]

Fields = Mapping[str, str] | Iterable[str] | None

logger: logging.Logger = logging.getLogger("trawl.exporters")


class BaseItemExporter(ABC):
    """Base class of exporters.

    Attributes:
        fields_to_export: The fields to write, in this order; None for all. A mapping also gives the names to write.
        export_empty_fields: True to also write declared fields without a value, if the format allows it.
        encoding: Character encoding; None for UTF-8 (and for JSON, ASCII with escapes).
        indent: Number of spaces per level, in JSON and XML. None for no line breaks, 0 for one line break between
            items.
        feed_format: trawl's feed format that can find the last whole record in a file of this exporter; "" if there is
            none.
    """

    feed_format: str = ""

    def __init__(self, *, dont_fail: bool = False, **options: Any) -> None:
        """Set the options that the attributes name.

        Raises:
            TypeError: If there are other options and ``dont_fail`` is false. Otherwise, other options stay in
                ``_kwargs``.
        """
        self._kwargs: dict[str, Any] = options
        self._configure(options, dont_fail=dont_fail)

    def _configure(self, options: dict[str, Any], dont_fail: bool = False) -> None:
        """Move known options from ``options`` to attributes. Exporters for old versions of Scrapy call this."""
        self.encoding: str | None = options.pop("encoding", None)
        self.fields_to_export: Fields = options.pop("fields_to_export", None)
        self.export_empty_fields: bool = options.pop("export_empty_fields", False)
        self.indent: int | None = options.pop("indent", None)
        if options and not dont_fail:
            raise TypeError(f"{type(self).__name__} has no options {', '.join(options)}")

    def start_exporting(self) -> None:  # noqa: B027 - some formats write nothing at the start
        """Write the beginning of the file."""

    @abstractmethod
    def export_item(self, item: Any) -> Any:
        """Write an item.

        Raises:
            Exception: If a value can't be written.
        """

    def finish_exporting(self) -> None:  # noqa: B027 - some formats write nothing at the end
        """Write the end of the file. The file stays open."""

    def serialize_field(self, field: Mapping[str, Any], name: str, value: Any) -> Any:
        """Return the value to write for an item's value.

        Args:
            field: The declaration of the field in the item's class. Its ``serializer`` is called with the value.
            name: The name to write.
            value: The item's value.
        """
        serializer: Callable[[Any], Any] = field.get("serializer", self._plain)
        return serializer(value)

    def _plain(self, value: Any) -> Any:
        """Return the value to write if the field has no serializer."""
        return value

    def get_serialized_fields(
        self, item: Any, default_value: Any = None, include_empty: bool | None = None
    ) -> Iterable[tuple[str, Any]]:
        """Yield the name and the value to write for each field.

        Args:
            item: The item.
            default_value: Value for a field that the item lacks.
            include_empty: True to include fields that the item lacks; None to follow ``export_empty_fields``.
        """
        values, metadata = item_fields(item), field_metadata(type(item))  # type: ignore[arg-type]  # mypy: a class has no hash
        is_whole = self.export_empty_fields if include_empty is None else include_empty
        wanted: Iterable[Any] | None = self.fields_to_export
        if wanted is None:
            wanted = _field_names(item) if is_whole else list(dict.fromkeys([*_field_names(item), *values]))
        for entry in wanted.items() if isinstance(wanted, Mapping) else wanted:
            name, written = (entry, entry) if isinstance(entry, str) else entry
            if name in values:
                yield written, self.serialize_field(metadata.get(name, {}), written, values[name])
            elif is_whole:
                yield written, default_value

    _get_serialized_fields = get_serialized_fields  # its name before Scrapy 2.19


def _field_names(item: Any) -> list[str]:
    """Return the names of the fields that the item's class declares. If it declares none, return the item's fields."""
    return list(item.fields if isinstance(item, Item) else item_fields(item))


class _Encoder(json.JSONEncoder):
    def default(self, o: Any) -> Any:
        if isinstance(o, set):
            return list(o)
        if isinstance(o, datetime | date | time):
            return o.isoformat()
        if isinstance(o, Decimal):
            return str(o)
        if isinstance(o, Request):
            return without_passwords(f"<{type(o).__name__} {o.method} {o.url}>")
        if isinstance(o, Response):
            return without_passwords(f"<{type(o).__name__} {o.status} {o.url}>")
        return item_fields(o) if is_item(o) else super().default(o)


class JsonLinesItemExporter(BaseItemExporter):
    """Writes each item as a line of JSON. Other options are passed to :class:`json.JSONEncoder`."""

    feed_format = "jsonl"

    def __init__(self, file: IO[bytes], **options: Any) -> None:
        """Write to ``file``."""
        super().__init__(dont_fail=True, **options)
        self.file: IO[bytes] = file
        self._kwargs.setdefault("ensure_ascii", not self.encoding)
        self.encoder: json.JSONEncoder = _Encoder(**self._kwargs)

    def export_item(self, item: Any) -> None:
        """Write an item."""
        self.file.write(self._encoded(item) + b"\n")

    def _encoded(self, item: Any) -> bytes:
        return self.encoder.encode(dict(self.get_serialized_fields(item))).encode(self.encoding or "utf-8")


class JsonItemExporter(JsonLinesItemExporter):
    """Writes items as one JSON array. Other options are passed to :class:`json.JSONEncoder`."""

    feed_format = "json"

    def __init__(self, file: IO[bytes], **options: Any) -> None:
        """Write to ``file``."""
        super().__init__(file, **options)
        self._kwargs.setdefault("indent", self.indent or None)  # 0 would break lines inside items too
        self.encoder: json.JSONEncoder = _Encoder(**self._kwargs)
        self.first_item: bool = True

    @property
    def _newline(self) -> bytes:
        return b"" if self.indent is None else b"\n"

    def start_exporting(self) -> None:
        """Write the opening bracket."""
        self.file.write(b"[" + self._newline)

    def export_item(self, item: Any) -> None:
        """Write an item."""
        text = self._encoded(item)
        self.file.write(text if self.first_item else b"," + self._newline + text)
        self.first_item = False

    def finish_exporting(self) -> None:
        """Write the closing bracket."""
        self.file.write(self._newline + b"]")


class XmlItemExporter(BaseItemExporter):
    """Writes items as elements under one root. A list has an element ``value`` for each entry."""

    feed_format = "xml"

    def __init__(self, file: IO[bytes], **options: Any) -> None:
        """Write to ``file``. Element names are ``root_element`` (``items``) and ``item_element`` (``item``)."""
        self.item_element: str = options.pop("item_element", "item")
        self.root_element: str = options.pop("root_element", "items")
        super().__init__(**options)
        self.encoding: str | None = self.encoding or "utf-8"
        self.stream: TextIOWrapper = TextIOWrapper(
            file, encoding=self.encoding, errors="xmlcharrefreplace", newline="\n", write_through=True
        )
        self.xg: XMLGenerator = XMLGenerator(self.stream, encoding=self.encoding)

    def start_exporting(self) -> None:
        """Write the declaration and the start of the root element."""
        self.xg.startDocument()
        self.xg.startElement(self.root_element, AttributesImpl({}))
        self._break(is_between_items=True)

    def export_item(self, item: Any) -> None:
        """Write an item."""
        self._export_xml_field(self.item_element, dict(self.get_serialized_fields(item, default_value="")), 1)

    def finish_exporting(self) -> None:
        """Write the end of the root element."""
        self.xg.endElement(self.root_element)
        self.xg.endDocument()
        self.stream.detach()  # otherwise the file would be closed with the stream

    def _export_xml_field(self, name: str, serialized_value: Any, depth: int) -> None:
        """Write an element and its content."""
        self._margin(depth)
        self.xg.startElement(name, AttributesImpl({}))
        parts: Iterable[tuple[str, Any]] | None = None
        if hasattr(serialized_value, "items"):
            parts = serialized_value.items()
        elif _is_listlike(serialized_value):
            parts = (("value", part) for part in serialized_value)
        if parts is None:
            self.xg.characters(str(serialized_value))
        else:
            self._break()
            for part_name, part in parts:
                self._export_xml_field(part_name, part, depth + 1)
            self._margin(depth)
        self.xg.endElement(name)
        self._break(is_between_items=depth == 1)

    def _break(self, *, is_between_items: bool = False) -> None:
        if self.indent is not None and (self.indent > 0 or is_between_items):
            self.xg.characters("\n")

    def _margin(self, depth: int) -> None:
        if self.indent:
            self.xg.characters(" " * self.indent * depth)


def _is_listlike(value: Any) -> bool:
    return hasattr(value, "__iter__") and not isinstance(value, str | bytes)


class CsvItemExporter(BaseItemExporter):
    """Writes items as rows of a table whose columns are the fields of the first item, or ``fields_to_export``.

    Other options are passed to :func:`csv.writer`, for example ``delimiter``.
    """

    feed_format = "csv"

    def __init__(
        self,
        file: IO[bytes],
        include_headers_line: bool = True,
        join_multivalued: str = ",",
        errors: str | None = None,
        **options: Any,
    ) -> None:
        """Write to ``file``.

        Args:
            file: Binary file, open for writing.
            include_headers_line: True to start with the names of the columns.
            join_multivalued: Separator for a list of strings.
            errors: Treatment of characters that the encoding lacks, as for :func:`open`.
            options: Options of the base class and of :func:`csv.writer`.
        """
        super().__init__(dont_fail=True, **options)
        self.encoding: str | None = self.encoding or "utf-8"
        self.include_headers_line: bool = include_headers_line
        self.stream: TextIOWrapper = TextIOWrapper(
            file, encoding=self.encoding, errors=errors, newline="", write_through=True
        )
        self.csv_writer: Any = csv.writer(self.stream, **self._kwargs)
        self.has_found_fields: bool = False
        self._join_multivalued = join_multivalued
        self._headers_not_written = True
        self._is_warned = False

    def export_item(self, item: Any) -> None:
        """Write an item, and the header before the first item."""
        if self._headers_not_written:
            self._headers_not_written = False
            self._write_headers_and_set_fields_to_export(item)
        if self.has_found_fields and not self._is_warned:
            self._warn_of_extra(item)
        row = self.get_serialized_fields(item, default_value="", include_empty=True)
        self.csv_writer.writerow([self._cell(value) for _, value in row])

    def finish_exporting(self) -> None:
        """Detach the file. CSV has nothing to write at the end."""
        self.stream.detach()  # otherwise the file would be closed with the stream

    def _plain(self, value: Any) -> Any:
        if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
            return self._join_multivalued.join(value)
        return value

    def _cell(self, value: Any) -> Any:
        return value.decode(self.encoding or "utf-8") if isinstance(value, bytes) else value

    def _write_headers_and_set_fields_to_export(self, item: Any) -> None:
        if not self.include_headers_line:
            return
        if not self.fields_to_export:
            self.fields_to_export: Fields = _field_names(item)
            self.has_found_fields = True
        names = self.fields_to_export
        written = names.values() if isinstance(names, Mapping) else names
        self.csv_writer.writerow([self._cell(name) for name in written])

    def _warn_of_extra(self, item: Any) -> None:
        extra = set(_field_names(item)) - set(self.fields_to_export or ())
        if extra:
            self._is_warned = True
            logger.warning(
                "CSV: the fields %s have no column and are left out: the columns are the first item's fields, or those "
                "in FEED_EXPORT_FIELDS",
                sorted(extra),
            )


class PickleItemExporter(BaseItemExporter):
    """Writes each item as a pickle of a dict, one after the other. Load pickles only from files that you trust."""

    def __init__(self, file: IO[bytes], protocol: int = 4, **options: Any) -> None:
        """Write to ``file`` with this ``protocol`` of :mod:`pickle`."""
        super().__init__(**options)
        self.file: IO[bytes] = file
        self.protocol: int = protocol

    def export_item(self, item: Any) -> None:
        """Write an item."""
        self.file.write(pickle.dumps(dict(self.get_serialized_fields(item)), self.protocol))


class MarshalItemExporter(BaseItemExporter):
    """Writes each item as a dict in the format of :mod:`marshal`, one after the other."""

    def __init__(self, file: IO[bytes], **options: Any) -> None:
        """Write to ``file``."""
        super().__init__(**options)
        self.file: IO[bytes] = file

    def export_item(self, item: Any) -> None:
        """Write an item."""
        try:  # no variable for the dict, because marshal would mark a dict with a second reference, unlike Scrapy
            written = marshal.dumps(dict(self.get_serialized_fields(item)))
        except ValueError:  # marshal supports no subclasses, such as the string of a header in a moved crawl
            written = marshal.dumps(_plain_texts(dict(self.get_serialized_fields(item))))
        self.file.write(written)


def _plain_texts(value: Any) -> Any:
    """Return a value with plain strings instead of subclasses, also inside dicts, lists, tuples and sets."""
    kind = type(value)
    if kind is dict:
        return {_plain_texts(key): _plain_texts(part) for key, part in value.items()}
    if kind in (list, tuple, set):
        return kind(map(_plain_texts, value))
    return str.__str__(value) if isinstance(value, str) else value


class PprintItemExporter(BaseItemExporter):
    """Writes each item as a dict, formatted with :mod:`pprint`."""

    def __init__(self, file: IO[bytes], **options: Any) -> None:
        """Write to ``file``."""
        super().__init__(**options)
        self.file: IO[bytes] = file

    def export_item(self, item: Any) -> None:
        """Write an item."""
        self.file.write(f"{pprint.pformat(dict(self.get_serialized_fields(item)))}\n".encode())


class PythonItemExporter(BaseItemExporter):
    """Converts items to dicts, lists and strings, for a library that encodes these."""

    def _configure(self, options: dict[str, Any], dont_fail: bool = False) -> None:
        super()._configure(options, dont_fail)
        self.encoding: str | None = self.encoding or "utf-8"

    def export_item(self, item: Any) -> dict[str, Any]:
        """Return an item as a dict of built-in types."""
        return dict(self.get_serialized_fields(item))

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Item):
            return self.export_item(value)
        if isinstance(value, bytes):
            return value.decode(self.encoding or "utf-8")
        if isinstance(value, str):
            return value
        if is_item(value):
            return {name: self._plain(part) for name, part in item_fields(value).items()}
        return [self._plain(part) for part in value] if _is_listlike(value) else value
