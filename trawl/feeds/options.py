"""The options of a feed, checked and complete, and the placeholders in its path.

``%(name)s`` is the spider's name and ``%(time)s`` the start of the crawl. ``%(batch)05d`` and ``%(batch_time)s`` are
the number and start time of a batch. A placeholder with any other name is an attribute of the spider, as in Scrapy.
"""

from __future__ import annotations

import codecs
import pkgutil
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from difflib import get_close_matches
from functools import partial
from os import PathLike, fspath
from pathlib import Path, PurePath
from typing import Any, get_type_hints
from urllib.parse import urlsplit
from urllib.request import url2pathname

import attrs
import msgspec

from trawl.errors import FeedError, SettingsError
from trawl.feeds.base import Exporter
from trawl.feeds.compression import COMPRESSIONS
from trawl.feeds.item_errors import listed
from trawl.feeds.job_item import Accepts, ItemFilter, load_accepts
from trawl.feeds.settings import ExportArguments, FeedMapping, FeedsSettings
from trawl.plugins import plugin_names

__all__ = [
    "BATCH_NAMES",
    "FORMATS",
    "STANDARD_OUTPUT",
    "TABLES",
    "FeedOptions",
    "feed_entry",
    "feed_options",
    "fill_path",
    "is_numbered",
    "placeholders_in",
    "with_attributes",
]

BATCH_NAMES = frozenset({"batch", "batch_id", "batch_time"})
"""Placeholders whose values differ between batches. The path of a feed with batches must contain one of them."""

_NAMES = BATCH_NAMES | {"name", "time"}
_PLACEHOLDER = re.compile(r"%\((\w+)\)(0?\d{0,2})([sd])")


def placeholders_in(path: str) -> frozenset[str]:
    """Return the names of the placeholders in a path."""
    return frozenset(match[1] for match in _PLACEHOLDER.finditer(path))


def is_numbered(path: str) -> bool:
    """Return whether a path has a placeholder for the batch number."""
    return bool(placeholders_in(path) & {"batch", "batch_id"})


def fill_path(
    path: str,
    *,
    name: str | None = None,
    time_utc: datetime | None = None,
    batch: int | None = None,
    batch_time_utc: datetime | None = None,
) -> str:
    """Replace the placeholders in a path, with times as in Scrapy. Placeholders without a value are not changed."""
    values: dict[str, object] = {"name": name, "batch": batch, "batch_id": batch}
    if time_utc is not None:
        values["time"] = _written(time_utc.replace(microsecond=0))
    if batch_time_utc is not None:
        values["batch_time"] = _written(batch_time_utc)

    def one(match: re.Match[str]) -> str:
        value = values.get(match[1])
        if value is None:
            return match[0]
        width = match[2] if isinstance(value, int) else ""
        return f"{value:{width}}" if width else str(value)

    return _PLACEHOLDER.sub(one, path)


def _written(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat().replace(":", "-")


def with_attributes(settings: FeedsSettings, spider: object) -> FeedsSettings:
    """Fill in the placeholders in paths that name attributes of the spider, as in Scrapy.

    Raises:
        FeedError: If the spider has no such attribute, its value can't be part of a path, or two paths become equal.
    """
    feeds = {}
    for key, options in settings.feeds.items():
        path = fspath(key) if isinstance(key, str | PathLike) else key
        if isinstance(path, str) and placeholders_in(path) - _NAMES:
            key = _PLACEHOLDER.sub(partial(_attribute, spider, path), path)  # noqa: PLW2901
            if key in settings.feeds or key in feeds:
                raise FeedError(f"feed {key}: another feed goes to the same place", key)
        feeds[key] = options
    return msgspec.structs.replace(settings, feeds=feeds)


def _attribute(spider: object, path: str, match: re.Match[str]) -> str:
    if match[1] in _NAMES:
        return match[0]
    value = getattr(spider, match[1], None)
    if not isinstance(value, str | int | float | date | PurePath) or value == "":
        why = "is none" if value is None else f"is {value!r}"
        raise FeedError(
            f"feed {path}: {match[0]} stands for an attribute of the spider, which {why}; "
            "other names are name, time, batch and batch_time",
            path,
        )
    try:
        return f"{int(str(value)):{match[2]}}" if match[3] == "d" else str(value)
    except ValueError:
        raise FeedError(f"feed {path}: {match[0]}: {value!r} is not a whole number", path) from None


STANDARD_OUTPUT = "-"
"""The path that stands for standard output."""

FORMATS: Mapping[str, str] = {
    "jsonl": "jsonl",
    "jl": "jsonl",
    "jsonlines": "jsonl",
    "ndjson": "jsonl",
    "json": "json",
    "csv": "csv",
    "xml": "xml",
    "sqlite": "sqlite",
    "sqlite3": "sqlite",
    "db": "sqlite",
    "parquet": "parquet",
}
"""Maps names and file name extensions to formats."""

TABLES = frozenset({"sqlite", "parquet"})  # formats whose files a library writes
PLUGINS = "trawl.feeds"  # group of entry points for further formats
_KNOWN = ", ".join(dict.fromkeys(FORMATS.values()))

_SCRAPYS = {"pickle": "PickleItemExporter", "marshal": "MarshalItemExporter", "pprint": "PprintItemExporter"}
"""Scrapy's formats that trawl itself lacks, and their classes in ``trawl.exporters``."""

_OF_EXPORTERS = {"delimiter", "quotechar", "quoting", "lineterminator", "errors", "export_empty_fields", "ensure_ascii"}
"""Arguments of classes in ``trawl.exporters`` that trawl's own formats do not accept."""

_EXPORTERS = "derive the class from one in trawl.exporters, with a file and its own arguments as parameters"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_XML_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")


@attrs.frozen(kw_only=True)
class FeedOptions:
    """Options of one feed.

    Attributes:
        uri: The user's path or URL, with the spider's name and the time filled in; ``-`` is standard output.
        format: ``jsonl``, ``json``, ``csv``, ``xml``, ``sqlite`` or ``parquet``, or a format of another package.
        compression: Compression method: ``gz``, ``zst`` or "" for none.
        overwrite: Whether to overwrite an existing file instead of continuing it.
        encoding: Name of the character encoding; None for UTF-8, or for ASCII with escapes in JSON.
        fields: The fields to write, each with its name in the feed; None for all fields.
        indent: Spaces per level in json and xml; 0 writes an item on one line.
        store_empty: Whether to leave a file for a feed without items.
        item_classes: Classes of the items to write; all if empty.
        accepts: Function that selects the items to write; None selects all.
        batch_items: Number of items after which a new file is started; 0 for no limit.
        batch_bytes: Number of bytes of records after which a new file is started; 0 for no limit.
        storage: Keyword arguments of the store's file system.
        folder: Folder for the local file of a feed for a store; None for the system's temporary folder.
        local: Local file to write if ``uri`` is in a store; None otherwise.
        is_of_job: Whether this is a feed of a job, so that a later run may truncate and continue it.
        arguments: Options of the format.
        exporter: The exporter class that writes the feed; None for trawl's own format.
    """

    uri: str
    format: str
    compression: str = ""
    overwrite: bool = False
    encoding: str | None = "utf-8"
    fields: tuple[tuple[str, str], ...] | None = None
    indent: int = 0
    store_empty: bool = True
    item_classes: tuple[type, ...] = ()
    accepts: Accepts | None = None
    batch_items: int = 0
    batch_bytes: int = 0
    storage: Mapping[str, Any] = attrs.field(factory=dict)
    folder: str | None = None
    local: Path | None = None
    is_of_job: bool = False
    arguments: ExportArguments = attrs.field(factory=ExportArguments)
    exporter: Exporter | None = None

    @property
    def destination(self) -> str:
        """The feed's destination in a unique form: the absolute path, a store's URL, or ``-`` for standard output."""
        return self.uri if self.is_remote or self.path is None else str(self.path.resolve())

    @property
    def is_remote(self) -> bool:
        """True if the feed goes to a store, which accepts only whole objects."""
        scheme = _SCHEME.match(self.uri)
        return scheme is not None and scheme[1].lower() != "file"

    @property
    def is_batched(self) -> bool:
        """True if the feed is divided into several files."""
        return bool(self.batch_items or self.batch_bytes)

    @property
    def path(self) -> Path | None:
        """Path of the file; None for standard output."""
        if self.local is not None:
            return self.local
        if self.uri == STANDARD_OUTPUT:
            return None
        return Path(url2pathname(urlsplit(self.uri).path) if self.uri.lower().startswith("file://") else self.uri)

    def select_fields(self, fields: Mapping[str, object]) -> Mapping[str, object]:
        """Return the fields that this feed writes, by their names in it; raise ValueError if the item has none."""
        if self.fields is None:
            return fields
        picked = {written: fields[name] for name, written in self.fields if name in fields}
        if not picked:
            raise ValueError(
                f"it has none of the feed's fields {listed(dict(self.fields))}, but {listed(fields)}; "
                "with item_classes or item_filter each kind of item can have its own feed"
            )
        return picked

    @property
    def item_filter(self) -> ItemFilter:
        """The filter of the feed's items."""
        return ItemFilter(self.destination, self.item_classes, self.accepts)


def feed_entry(text: str, *, overwrite: bool) -> tuple[str, FeedMapping]:
    """Return the entry of ``FEEDS`` for ``-o FEED`` or ``-O FEED``: the path, and its options.

    ``FEED`` is a path whose file name extension is the format, or ``PATH:FORMAT``. ``-`` without a format writes jsonl
    to standard output.

    Raises:
        FeedError: If ``text`` names no format. An unknown format is reported when the feed is opened.
    """
    path, name, _ = _split(_uri(text), None)
    return path, {"format": FORMATS.get(name, name), "overwrite": overwrite}


def feed_options(settings: FeedsSettings, *, spider_name: str, started_utc: datetime) -> list[FeedOptions]:
    """Return the options of each feed, in the order of the settings; FeedError or SettingsError if one is invalid."""
    options: list[FeedOptions] = []
    for key, mapping in settings.feeds.items():
        uri = fill_path(_uri(key), name=spider_name, time_utc=started_utc)
        options.append(_options(uri, mapping, settings, started_utc))
    _check_apart(options)
    return options


def _options(uri: str, mapping: FeedMapping, settings: FeedsSettings, started_utc: datetime) -> FeedOptions:
    path, name, compression = _split(uri, mapping.get("format"))
    exporter = _exporter(name, mapping, settings, path)
    name = FORMATS.get(name, name) if exporter else _known(name, path)
    if compression and name in TABLES:
        raise SettingsError(f"feed {path}: {name} has its own compression; leave out .{compression}", "FEEDS")
    batch_items = mapping.get("batch_item_count")
    options = FeedOptions(
        uri=path,
        format=name,
        compression=compression,
        overwrite=mapping.get("overwrite", False),
        encoding=_encoding(mapping.get("encoding", settings.feed_export_encoding), path),
        fields=_fields(mapping.get("fields", settings.feed_export_fields), path),
        indent=mapping.get("indent", settings.feed_export_indent) or 0,
        store_empty=mapping.get("store_empty", settings.feed_store_empty),
        item_classes=tuple(_class(one, f"FEEDS[{path!r}]['item_classes']") for one in mapping.get("item_classes", ())),
        accepts=load_accepts(mapping.get("item_filter"), path, mapping),
        batch_items=settings.feed_export_batch_item_count if batch_items is None else batch_items,
        batch_bytes=mapping.get("batch_bytes") or 0,
        storage=mapping.get("storage_options", {}),
        folder=settings.feed_tempdir,
        arguments=ExportArguments() if exporter else _arguments(mapping.get("item_export_kwargs", {}), path),
        exporter=exporter,
    )
    return _batches_checked(options, started_utc)


def _batches_checked(options: FeedOptions, started_utc: datetime) -> FeedOptions:
    """Check the path of a feed with batches. If the feed has a single file, fill in the batch as number 1."""
    if not options.is_batched:
        path = fill_path(options.uri, batch=1, batch_time_utc=started_utc)
        return options if path == options.uri else attrs.evolve(options, uri=path)
    if not BATCH_NAMES & placeholders_in(options.uri):
        raise SettingsError(
            f"feed {options.uri}: a feed in batches needs %(batch)05d or %(batch_time)s in its path", "FEEDS"
        )
    return options


def _uri(key: object) -> str:
    if isinstance(key, str | PathLike):
        text = fspath(key)
        if isinstance(text, str) and text and "\0" not in text:
            return STANDARD_OUTPUT if text == "stdout:" else text
    raise FeedError(f"FEEDS: {key!r} is not a path")


def _split(text: str, given: str | None) -> tuple[str, str, str]:
    """Return a path, its format (``given``, or of ``PATH:FORMAT``, or of the file name) and its compression."""
    path, name = text, given
    if name is None:
        before, colon, after = text.rpartition(":")
        if colon and before and after.isalnum():
            path, name = before, after
    inner, _, ending = path.rpartition(".")
    compression = COMPRESSIONS.get(ending.lower(), "")
    if name is None:
        plain = inner if compression else path
        name = "jsonl" if path == STANDARD_OUTPUT else Path(plain).suffix[1:]
        if not name:
            raise FeedError(
                f"feed {path}: its extension names no format; write {path}:FORMAT with one of {_KNOWN}", path
            )
    if path == STANDARD_OUTPUT and FORMATS.get(name.lower()) in TABLES:
        raise FeedError(f"feed -: {name.lower()} can't be written to standard output", path)
    return path, name.lower(), compression


def _known(name: str, path: str) -> str:
    """Return the format with this name, which trawl or a plugin provides."""
    if name in FORMATS:
        return FORMATS[name]
    others = plugin_names(PLUGINS)
    if name in others:
        return name
    close = get_close_matches(name, [*FORMATS, *others], n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join([_KNOWN, *others])}"
    if name in _SCRAPYS:
        hint = f'FEED_EXPORTERS = {{{name} = "trawl.exporters.{_SCRAPYS[name]}"}} adds it'
    raise FeedError(f"feed {path}: unknown format {name!r}; {hint}", path)


def _exporter(name: str, mapping: FeedMapping, settings: FeedsSettings, path: str) -> Exporter | None:
    """Return the exporter class of a feed, with the same arguments as in Scrapy; None for trawl's own format."""
    given = mapping.get("exporter", {**settings.feed_exporters_base, **settings.feed_exporters}.get(name))
    if given is None:
        return None
    if isinstance(given, str) and given.startswith("scrapy.exporters."):
        given = given.replace("scrapy", "trawl", 1)
    kind = _class(given, f"the exporter of feed {path}")
    if hasattr(kind, "from_crawler") or not hasattr(kind, "export_item"):
        why = "from_crawler(), which is not called" if hasattr(kind, "from_crawler") else "no export_item()"
        raise SettingsError(f"feed {path}: its exporter {kind.__qualname__} has {why}; {_EXPORTERS}", "FEED_EXPORTERS")
    return Exporter(
        kind,
        {
            "fields_to_export": mapping.get("fields", settings.feed_export_fields) or None,
            "encoding": mapping.get("encoding", settings.feed_export_encoding),
            "indent": mapping.get("indent", settings.feed_export_indent),
            **mapping.get("item_export_kwargs", {}),
        },
    )


def _arguments(given: Mapping[str, Any], path: str) -> ExportArguments:
    """Check and return the options of trawl's own formats."""
    where = f"FEEDS[{path!r}]['item_export_kwargs']"
    names = list(get_type_hints(ExportArguments))
    for name in given:
        if name not in names:
            close = get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(names)}"
            if name in _OF_EXPORTERS:
                hint += '; "exporter": "trawl.exporters.CsvItemExporter" and similar classes have more options'
            raise SettingsError(f"{where} has an unknown key {name!r}; {hint}", "FEEDS")
    try:
        arguments = msgspec.convert(given, ExportArguments)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{where}: {error}", "FEEDS") from error
    for element in (arguments.get("root_element", "items"), arguments.get("item_element", "item")):
        if not _XML_NAME.match(element):
            raise SettingsError(f"FEEDS[{path!r}]: {element!r} can't be the name of an XML element", "FEEDS")
    return arguments


def _encoding(name: str | None, path: str) -> str | None:
    """Return the normal name of an encoding. Raise an error if files in this encoding can't be truncated and continued.

    In a usable encoding, an ASCII byte always means the ASCII character. UTF-16, ISO-2022-JP and similar encodings use
    ASCII bytes in other characters, or write a mark at the start of each text.
    """
    if name is None:
        return None
    try:
        usual = codecs.lookup(name).name
        signs = '\n\r",<>[]{}&;:/\\ aZ09'
        is_fit = usual == "utf-8-sig" or signs.encode(usual) == signs.encode("ascii")
        for character in "éあ中":
            is_fit = is_fit and not set(character.encode(usual, "ignore")) & set(b'\n\r",<>&;/')
    except (LookupError, ValueError):
        raise SettingsError(f"feed {path}: unknown text encoding {name!r}", "FEED_EXPORT_ENCODING") from None
    if not is_fit:
        raise SettingsError(f"feed {path}: can't be written in {name}; use utf-8", "FEED_EXPORT_ENCODING")
    return usual


def _fields(given: list[str] | dict[str, str] | None, path: str) -> tuple[tuple[str, str], ...] | None:
    if not given:
        return None
    fields = tuple(given.items()) if isinstance(given, Mapping) else tuple((name, name) for name in given)
    written = [name for _, name in fields]
    for name in written:
        if written.count(name) > 1:
            raise SettingsError(f"feed {path}: two of its fields would be written as {name!r}", "FEED_EXPORT_FIELDS")
    return fields


def _class(given: Any, where: str) -> type:
    try:
        found = pkgutil.resolve_name(given) if isinstance(given, str) else given
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingsError(f"{where}: {given}: {error}", "FEEDS") from error
    if not isinstance(found, type):
        raise SettingsError(f"{where}: {given!r} is not a class", "FEEDS")
    return found


def _check_apart(options: list[FeedOptions]) -> None:
    seen: set[object] = set()
    for one in options:
        if one.destination in seen:
            raise FeedError(f"feed {one.uri}: another feed goes to the same place", one.uri)
        seen.add(one.destination)
