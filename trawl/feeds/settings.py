"""The settings of feeds, the files that items are written to."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import msgspec
from msgspec import Meta

__all__ = ["ExportArguments", "FeedMapping", "FeedsSettings"]


class ExportArguments(TypedDict, total=False):
    """Keys of ``item_export_kwargs`` for trawl's own formats.

    Each key belongs to one format, and other formats ignore it.

    Attributes:
        root_element: xml: name of the root element (default: ``items``).
        item_element: xml: name of an item's element (default: ``item``).
        include_headers_line: csv: write the column names as the first line of a new file (default: true).
        join_multivalued: csv: separator for joining lists of plain values. Without it, lists are written as JSON.
        table: sqlite: name of the table (default: ``items``).
        row_group_size: parquet: number of items that are collected in memory and written together (default: 10,000).
        schema: parquet: types of fields, with Arrow's names (``double``, ``int64``, ``string``, ``timestamp[us]``). The
            first row group decides the types of all other fields.
    """

    root_element: Annotated[str, Meta(min_length=1)]
    item_element: Annotated[str, Meta(min_length=1)]
    include_headers_line: bool
    join_multivalued: str
    table: Annotated[str, Meta(min_length=1)]
    row_group_size: Annotated[int, Meta(ge=1)]
    schema: dict[str, str]


class FeedMapping(TypedDict, total=False):
    """One entry of ``FEEDS``: options of the feed at this path. All keys are optional.

    Attributes:
        format: ``jsonl`` (or ``jl``, ``jsonlines``), ``json``, ``csv``, ``xml``, ``sqlite`` or ``parquet``. If missing,
            the file name extension before ``.gz`` or ``.zst`` decides.
        overwrite: True overwrites an existing file; False continues it (default).
        encoding: Overrides ``FEED_EXPORT_ENCODING``.
        fields: Overrides ``FEED_EXPORT_FIELDS``.
        indent: Overrides ``FEED_EXPORT_INDENT``.
        store_empty: Overrides ``FEED_STORE_EMPTY``.
        item_classes: Classes or import paths of classes. Only items of these classes go here.
        item_filter: A function of the item, a class with ``accepts(item)``, or the import path of either. Only items
            that it accepts go here.
        batch_item_count: Overrides ``FEED_EXPORT_BATCH_ITEM_COUNT``.
        batch_bytes: Start a new file after this many bytes of records, before compression. 0 never starts one.
        storage_options: Arguments of the store's file system (fsspec).
        exporter: The exporter class that writes the feed, or its import path; null for trawl's own format. Overrides
            ``FEED_EXPORTERS``.
        item_export_kwargs: Options of the format, or arguments of the feed's exporter class.
    """

    format: str
    overwrite: bool
    encoding: str | None
    fields: list[str] | dict[str, str] | None
    indent: Annotated[int, Meta(ge=0, le=16)] | None
    store_empty: bool
    item_classes: list[Any]
    item_filter: Any
    batch_item_count: Annotated[int, Meta(ge=0)] | None
    batch_bytes: Annotated[int, Meta(ge=0)] | None
    storage_options: dict[str, Any]
    exporter: Any
    item_export_kwargs: dict[str, Any]


class FeedsSettings(msgspec.Struct, frozen=True, kw_only=True, rename="upper"):
    """Feeds: files that items are written to.

    Attributes:
        feeds: Files that items are written to during the crawl, as path to options. '-' is standard output.
            Placeholders in a path: %(name)s is the spider's name, %(time)s the start in UTC, %(batch)05d and
            %(batch_time)s the number and start of a batch. A URL (s3://...) is written at the end, with fsspec.
        feed_export_encoding: Character encoding of feeds. null means UTF-8, except for JSON, which is then written in
            ASCII with escapes, as with any other encoding.
        feed_export_fields: Fields to write, in order. A mapping renames them (field to written name). null writes all
            fields, or in CSV the fields of the first item.
        feed_export_indent: Indentation of each level in json and xml. 0 or null writes an item on one line.
        feed_export_batch_item_count: Start a new file after this many items. The path of the feed needs %(batch)05d,
            %(batch_id)d or %(batch_time)s. 0 writes one file.
        feed_exporters: Exporter classes, or their import paths, by the format that each writes instead of trawl's own
            class: {csv = "trawl.exporters.CsvItemExporter"}. null means trawl's own format.
        feed_exporters_base: Exporter classes of formats that FEED_EXPORTERS does not name. For a spider that was
            written for Scrapy (SCRAPY_COMPAT) the default is Scrapy's list, so that feeds have Scrapy's bytes.
        feed_tempdir: Folder for feeds of stores (s3://...) until they are complete. null means the system's temporary
            folder.
        feed_store_empty: Leave a file (with header or brackets) for a feed without items.
    """

    feeds: dict[Any, FeedMapping] = msgspec.field(default_factory=dict)
    feed_export_encoding: str | None = "utf-8"
    feed_export_fields: list[str] | dict[str, str] | None = None
    feed_export_indent: Annotated[Annotated[int, Meta(ge=0, le=16)] | None, Meta(title="characters")] = 0
    feed_export_batch_item_count: Annotated[int, Meta(ge=0, title="items")] = 0
    feed_exporters: dict[str, Any] = msgspec.field(default_factory=dict)
    feed_exporters_base: dict[str, Any] = msgspec.field(default_factory=dict)
    feed_tempdir: str | None = None
    feed_store_empty: bool = True
