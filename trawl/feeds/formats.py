"""The formats there are, made from a feed's options."""

from __future__ import annotations

from collections.abc import Callable

from trawl.errors import SettingsError
from trawl.feeds.base import Format
from trawl.feeds.format_csv import CsvTable
from trawl.feeds.format_json import JsonArray
from trawl.feeds.format_jsonl import JsonLines
from trawl.feeds.format_xml import XmlTree
from trawl.feeds.options import FORMATS, PLUGINS, FeedOptions
from trawl.plugins import load_plugin

__all__ = ["make_format"]


def make_format(options: FeedOptions) -> Format:
    """The format of a feed; one of another package is made by what that declares, out of the options.

    Raises:
        SettingsError: Another package's can't be loaded or made.
    """
    is_ascii = options.encoding not in ("utf-8", "utf-8-sig")  # escapes are right in every encoding that is let in
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


def _of_plugin(options: FeedOptions) -> Format:
    make: Callable[[FeedOptions], Format] = load_plugin(PLUGINS, options.format)
    try:
        return make(options)
    except TypeError as error:
        what = f"feed {options.uri}: the format {options.format}"
        raise SettingsError(f"{what} can't be made: {error}", "FEEDS") from error
