"""The settings of feeds: where items go, and in which form."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import msgspec
from msgspec import Meta

__all__ = ["ExportArguments", "FeedMapping", "FeedsSettings"]


class ExportArguments(TypedDict, total=False):
    """What ``item_export_kwargs`` of a feed may hold; each belongs to one format and does nothing for the others.

    Attributes:
        root_element: xml: the name of the outermost element (``items``).
        item_element: xml: the name of an item's element (``item``).
        include_headers_line: csv: whether a new file begins with the names of its columns (true).
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
    """One entry of ``FEEDS``: how the items that go to this path are written. All keys may be left out.

    Attributes:
        format: ``jsonl`` (or ``jl``, ``jsonlines``), ``json``, ``csv``, ``xml``, ``sqlite`` or ``parquet``; without it
            the path's ending tells, before ``.gz`` or ``.zst``.
        overwrite: Whether an existing file is written anew; otherwise it is continued (false).
        encoding: In place of ``FEED_EXPORT_ENCODING``.
        fields: In place of ``FEED_EXPORT_FIELDS``.
        indent: In place of ``FEED_EXPORT_INDENT``.
        store_empty: In place of ``FEED_STORE_EMPTY``.
        item_classes: Only items of these classes, or of classes at these import paths, go here.
        item_filter: Only items that it accepts go here: a function of the item, a class with ``accepts(item)``, or the
            import path of one.
        batch_item_count: In place of ``FEED_EXPORT_BATCH_ITEM_COUNT``.
        batch_bytes: A new file is begun when one has as many bytes of records, before they are compressed; 0: never.
        storage_options: What the store's file system (fsspec) is made with.
        item_export_kwargs: What only one format knows.
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
    item_export_kwargs: ExportArguments


class FeedsSettings(msgspec.Struct, frozen=True, kw_only=True, rename="upper"):
    """Where items go, and in which form."""

    feeds: Annotated[
        dict[Any, FeedMapping],
        Meta(
            title="",
            description="Files that items are written to while the crawl runs: path to options. '-' is standard "
            "output; %(name)s and %(time)s in a path stand for the spider's name and the start in UTC, %(batch)05d and "
            "%(batch_time)s for a batch's number and beginning. A URL (s3://...) is written at the end, by fsspec.",
        ),
    ] = msgspec.field(default_factory=dict)
    feed_export_encoding: Annotated[
        str | None,
        Meta(
            title="",
            description="The character encoding of feeds. With null, and with any other than UTF-8, JSON is written "
            "in ASCII with escapes; for the other formats null means UTF-8.",
        ),
    ] = "utf-8"
    feed_export_fields: Annotated[
        list[str] | dict[str, str] | None,
        Meta(
            title="",
            description="The fields to write, in order; as a mapping, field to the name it is written under. "
            "null: all fields; for CSV those of the first item.",
        ),
    ] = None
    feed_export_indent: Annotated[
        Annotated[int, Meta(ge=0, le=16)] | None,
        Meta(
            title="characters",
            description="How far each level is indented in json and xml; with 0 or null an item takes one line.",
        ),
    ] = 0
    feed_export_batch_item_count: Annotated[
        int,
        Meta(
            ge=0,
            title="items",
            description="After how many items a feed begins a new file; its path must have %(batch)05d, %(batch_id)d "
            "or %(batch_time)s in it. 0: all go to one file.",
        ),
    ] = 0
    feed_tempdir: Annotated[
        str | None,
        Meta(
            title="",
            description="The folder in which feeds for stores (s3://...) are kept until they are whole; null: the "
            "system's.",
        ),
    ] = None
    feed_store_empty: Annotated[
        bool, Meta(title="", description="Whether a feed without an item leaves a file (with header or brackets).")
    ] = True
