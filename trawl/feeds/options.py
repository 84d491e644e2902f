"""What the settings say about one feed, checked and complete."""

from __future__ import annotations

import codecs
import pkgutil
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from os import PathLike, fspath
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import attrs

from trawl.errors import FeedError, SettingsError
from trawl.feeds.settings import ExportArguments, FeedMapping, FeedsSettings

__all__ = ["FORMATS", "STANDARD_OUTPUT", "FeedOptions", "feed_entry", "feed_options"]

STANDARD_OUTPUT = "-"
"""The path that means the standard output."""

FORMATS: Mapping[str, str] = {
    "jsonl": "jsonl",
    "jl": "jsonl",
    "jsonlines": "jsonl",
    "ndjson": "jsonl",
    "json": "json",
    "csv": "csv",
    "xml": "xml",
}
"""The names and endings of formats, and the format that each means."""

_KNOWN = "jsonl, json, csv, xml"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_XML_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")


@attrs.frozen(kw_only=True)
class FeedOptions:
    """How one feed is written.

    Attributes:
        uri: The path as the user gave it, with the spider's name and the time put in; ``-`` is standard output.
        format: ``jsonl``, ``json``, ``csv`` or ``xml``.
        overwrite: Whether an existing file is written anew, not continued.
        encoding: The name of the character encoding; None is UTF-8, but ASCII with escapes for JSON.
        fields: The fields to write, each with the name it is written under; None for all.
        indent: Characters a level, for json and xml; 0 gives an item one line.
        store_empty: Whether a feed without an item leaves a file.
        item_classes: Only items of these classes are written; all if empty.
        arguments: What only one format knows.
    """

    uri: str
    format: str
    overwrite: bool = False
    encoding: str | None = "utf-8"
    fields: tuple[tuple[str, str], ...] | None = None
    indent: int = 0
    store_empty: bool = True
    item_classes: tuple[type, ...] = ()
    arguments: ExportArguments = attrs.field(factory=ExportArguments)

    @property
    def place(self) -> str:
        """Where it goes, however that is spelled: the absolute path; ``-`` for standard output."""
        return self.uri if self.path is None else str(self.path.resolve())

    @property
    def path(self) -> Path | None:
        """The file; None for standard output."""
        if self.uri == STANDARD_OUTPUT:
            return None
        return Path(url2pathname(urlsplit(self.uri).path) if self.uri.lower().startswith("file://") else self.uri)


def feed_entry(text: str, *, overwrite: bool) -> tuple[str, FeedMapping]:
    """The entry of ``FEEDS`` for ``-o FEED`` or ``-O FEED``: the path, and its options.

    ``FEED`` is a path whose ending says the format, or ``PATH:FORMAT``; ``-`` alone is standard output as jsonl.

    Raises:
        FeedError: No format can be told, or it is not known.
    """
    path, name = _split(_uri(text), None)
    return path, {"format": name, "overwrite": overwrite}


def feed_options(settings: FeedsSettings, *, spider_name: str, started_utc: datetime) -> list[FeedOptions]:
    """What the settings say about each feed, in their order.

    Args:
        settings: The settings of feeds.
        spider_name: What ``%(name)s`` in a path stands for.
        started_utc: What ``%(time)s`` in a path stands for.

    Raises:
        FeedError: A path that can't be one, an unknown format, two feeds at one path.
        SettingsError: An encoding, a field or an argument that can't be.
    """
    time = started_utc.astimezone(UTC).replace(microsecond=0).isoformat().replace(":", "-")
    options: list[FeedOptions] = []
    for key, mapping in settings.feeds.items():
        uri = _uri(key).replace("%(name)s", spider_name).replace("%(time)s", time)
        options.append(_options(uri, mapping, settings))
    _check_apart(options)
    return options


def _options(uri: str, mapping: FeedMapping, settings: FeedsSettings) -> FeedOptions:
    path, name = _split(uri, mapping.get("format"))
    scheme = _SCHEME.match(path)
    if scheme and scheme[1].lower() != "file":
        raise FeedError(f"feed {path}: files and - are written to, not {scheme[1]}:", path)
    arguments = mapping.get("item_export_kwargs", {})
    for element in (arguments.get("root_element", "items"), arguments.get("item_element", "item")):
        if not _XML_NAME.match(element):
            raise SettingsError(f"FEEDS[{path!r}]: {element!r} can't be the name of an XML element", "FEEDS")
    return FeedOptions(
        uri=path,
        format=name,
        overwrite=mapping.get("overwrite", False),
        encoding=_encoding(mapping.get("encoding", settings.feed_export_encoding), path),
        fields=_fields(mapping.get("fields", settings.feed_export_fields)),
        indent=mapping.get("indent", settings.feed_export_indent) or 0,
        store_empty=mapping.get("store_empty", settings.feed_store_empty),
        item_classes=tuple(_item_class(given, path) for given in mapping.get("item_classes", ())),
        arguments=arguments,
    )


def _uri(key: object) -> str:
    if isinstance(key, str | PathLike):
        text = fspath(key)
        if isinstance(text, str) and text and "\0" not in text:
            return STANDARD_OUTPUT if text == "stdout:" else text
    raise FeedError(f"FEEDS: {key!r} is no path")


def _split(text: str, given: str | None) -> tuple[str, str]:
    """A path and its format, from ``given``, from ``PATH:FORMAT``, or from the path's ending."""
    path, name = text, given
    if name is None:
        before, colon, after = text.rpartition(":")
        if colon and before and after.isalnum():
            path, name = before, after
    if name is None:
        name = "jsonl" if path == STANDARD_OUTPUT else Path(path).suffix[1:]
        if not name:
            raise FeedError(f"feed {path}: its ending says no format; write {path}:FORMAT with one of {_KNOWN}", path)
    known = FORMATS.get(name.lower())
    if known is None:
        close = get_close_matches(name.lower(), FORMATS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {_KNOWN}"
        raise FeedError(f"feed {path}: there is no format {name!r}; {hint}", path)
    return path, known


def _encoding(name: str | None, path: str) -> str | None:
    """The encoding's usual name, if files in it can be cut and continued: one byte for each ASCII character, anywhere.

    UTF-16, ISO-2022-JP and the like write other characters with the bytes of ASCII's, or marks at each start.
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
        raise SettingsError(f"feed {path}: there is no text encoding {name!r}", "FEED_EXPORT_ENCODING") from None
    if not is_fit:
        raise SettingsError(f"feed {path}: can't be written in {name}; take utf-8", "FEED_EXPORT_ENCODING")
    return usual


def _fields(given: list[str] | dict[str, str] | None) -> tuple[tuple[str, str], ...] | None:
    if not given:
        return None
    return tuple(given.items()) if isinstance(given, Mapping) else tuple((name, name) for name in given)


def _item_class(given: Any, path: str) -> type:
    try:
        found = pkgutil.resolve_name(given) if isinstance(given, str) else given
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingsError(f"FEEDS[{path!r}]['item_classes']: {given}: {error}", "FEEDS") from error
    if not isinstance(found, type):
        raise SettingsError(f"FEEDS[{path!r}]['item_classes']: {given!r} is no class", "FEEDS")
    return found


def _check_apart(options: list[FeedOptions]) -> None:
    seen: set[object] = set()
    for one in options:
        if one.place in seen:
            raise FeedError(f"feed {one.uri}: another feed goes to the same place", one.uri)
        seen.add(one.place)
