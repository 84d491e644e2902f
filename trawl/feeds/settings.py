"""The settings of feeds: where items are written, and how."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import msgspec
from msgspec import Meta

__all__ = ["ExportArguments", "FeedMapping", "FeedsSettings"]


class ExportArguments(TypedDict, total=False):
    """Keys of ``item_export_kwargs`` of trawl's own formats; each belongs to one, and the others ignore it.

    Attributes:
        root_element: xml: the name of the outermost element (``items``).
        item_element: xml: the name of an item's element (``item``).
        include_headers_line: csv: begin a new file with the names of its columns (true).
        join_multivalued: csv: a text to join lists of plain values with; without it a list is written as JSON.
        table: sqlite: the name of the table (``items``).
        row_group_size: parquet: items that are written at once, and held in memory until then (10,000).
        schema: parquet: field to type, as Arrow names it (``double``, ``int64``, ``string``, ``timestamp[us]``); the
            types of other fields follow from the first row group.
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
        format: ``jsonl`` (or ``jl``, ``jsonlines``), ``json``, ``csv``, ``xml``, ``sqlite`` or ``parquet``; without it
            the path's ending tells, before ``.gz`` or ``.zst``.
        overwrite: True overwrites an existing file; False continues it (default).
        encoding: Overrides ``FEED_EXPORT_ENCODING``.
        fields: Overrides ``FEED_EXPORT_FIELDS``.
        indent: Overrides ``FEED_EXPORT_INDENT``.
        store_empty: Overrides ``FEED_STORE_EMPTY``.
        item_classes: Only items of these classes, or of classes at these import paths, go here.
        item_filter: Only items that it accepts go here: a function of the item, a class with ``accepts(item)``, or the
            import path of one.
        batch_item_count: Overrides ``FEED_EXPORT_BATCH_ITEM_COUNT``.
        batch_bytes: Begin a new file after this many bytes of records, before compression. 0: never.
        storage_options: Arguments of the store's file system (fsspec).
        exporter: The class that writes it, or its import path; null: trawl's own format. Overrides ``FEED_EXPORTERS``.
        item_export_kwargs: Options of one format; where an exporter class writes the feed, its arguments.
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
    """Feeds: files that items are written to."""

    feeds: Annotated[
        dict[Any, FeedMapping],
        Meta(
            description="Files that items are written to while the crawl runs: path to options. '-' is standard "
            "output. Placeholders in a path: %(name)s is the spider's name, %(time)s the start in UTC, %(batch)05d "
            "and %(batch_time)s the number and start of a batch. A URL (s3://...) is written at the end, by fsspec.",
        ),
    ] = msgspec.field(default_factory=dict)
    feed_export_encoding: Annotated[
        str | None,
        Meta(
            description="Character encoding of feeds. null means UTF-8, except for JSON, which is then written in "
            "ASCII with escapes, as with any other encoding.",
        ),
    ] = "utf-8"
    feed_export_fields: Annotated[
        list[str] | dict[str, str] | None,
        Meta(
            description="Fields to write, in order; a mapping renames them (field to written name). null: all fields; "
            "in CSV those of the first item.",
        ),
    ] = None
    feed_export_indent: Annotated[
        Annotated[int, Meta(ge=0, le=16)] | None,
        Meta(
            title="characters",
            description="Indentation of each level in json and xml. 0 or null writes an item on one line.",
        ),
    ] = 0
    feed_export_batch_item_count: Annotated[
        int,
        Meta(
            ge=0,
            title="items",
            description="Begin a new file after this many items; the path of the feed needs %(batch)05d, %(batch_id)d "
            "or %(batch_time)s. 0 writes one file.",
        ),
    ] = 0
    feed_exporters: Annotated[
        dict[str, Any],
        Meta(
            description="Exporter classes, or their import paths, by the format that each writes in place of trawl's "
            'own: {csv = "trawl.exporters.CsvItemExporter"}. null means trawl\'s own format.',
        ),
    ] = msgspec.field(default_factory=dict)
    feed_exporters_base: Annotated[
        dict[str, Any],
        Meta(
            description="Exporter classes of formats that FEED_EXPORTERS does not name. For a spider that was written "
            "for Scrapy (SCRAPY_COMPAT) the default is Scrapy's list, so that feeds have Scrapy's bytes.",
        ),
    ] = msgspec.field(default_factory=dict)
    feed_tempdir: Annotated[
        str | None,
        Meta(
            description="Folder for feeds of stores (s3://...) until they are complete. null: the system's temporary "
            "folder.",
        ),
    ] = None
    feed_store_empty: Annotated[
        bool, Meta(description="Leave a file (with header or brackets) for a feed without items.")
    ] = True
