"""What settings and ``-o`` say about a feed."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.feeds.fakes import STARTED_UTC
from trawl.errors import FeedError, SettingsError
from trawl.feeds import FeedMapping, FeedOptions, FeedsSettings, feed_entry
from trawl.feeds.options import feed_options


def one(path: object, mapping: FeedMapping | None = None, **settings: Any) -> FeedOptions:
    [options] = feed_options(
        FeedsSettings(feeds={path: mapping or {}}, **settings), spider_name="quotes", started_utc=STARTED_UTC
    )
    return options


@pytest.mark.parametrize(
    ("text", "path", "name"),
    [
        ("out.jsonl", "out.jsonl", "jsonl"),
        ("out.jl", "out.jl", "jsonl"),
        ("OUT.JSON", "OUT.JSON", "json"),
        ("a/b.csv", "a/b.csv", "csv"),
        ("b.xml", "b.xml", "xml"),
        ("out.txt:json", "out.txt", "json"),
        ("-", "-", "jsonl"),
        ("-:csv", "-", "csv"),
        ("stdout:", "-", "jsonl"),
        ("C:\\out.json", "C:\\out.json", "json"),
    ],
)
def test_a_feed_on_the_command_line_is_a_path_and_a_format(text: str, path: str, name: str) -> None:
    assert feed_entry(text, overwrite=True) == (path, {"format": name, "overwrite": True})
    assert (one(text).uri, one(text).format) == (path, name)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("out", "feed out: its extension names no format; write out:FORMAT with one of jsonl, json, csv, xml"),
        ("out.jsno", "feed out.jsno: unknown format 'jsno'; did you mean 'json'"),
        ("out.jsonl:yaml", "feed out.jsonl: unknown format 'yaml'; known are jsonl, json, csv, xml"),
        ("", "FEEDS: '' is not a path"),
        ("-:parquet", "feed -: parquet can't be written to standard output"),
    ],
)
def test_a_feed_that_makes_no_sense_is_refused_in_one_line(text: str, why: str) -> None:
    with pytest.raises(FeedError) as caught:
        one(text)
    assert str(caught.value).startswith(why)
    assert "\n" not in str(caught.value)


def test_a_key_that_is_no_path_is_refused() -> None:
    with pytest.raises(FeedError, match="FEEDS: 3 is not a path"):
        one(3)


def test_the_general_settings_hold_where_an_entry_says_nothing() -> None:
    options = one(
        Path("out.csv"),
        feed_export_encoding="latin-1",
        feed_export_fields=["a"],
        feed_export_indent=2,
        feed_store_empty=False,
    )
    assert options == FeedOptions(
        uri="out.csv", format="csv", encoding="iso8859-1", fields=(("a", "a"),), indent=2, store_empty=False
    )


def test_an_entry_holds_above_the_general_settings() -> None:
    mapping: FeedMapping = {
        "format": "json",
        "overwrite": True,
        "encoding": None,
        "fields": {"a": "A"},
        "indent": None,
        "store_empty": True,
        "item_classes": [dict, "decimal.Decimal"],
        "item_export_kwargs": {"root_element": "r"},
    }
    options = one("x:y", mapping, feed_export_encoding="latin-1", feed_export_indent=2, feed_store_empty=False)
    assert (options.uri, options.format, options.overwrite, options.encoding) == ("x:y", "json", True, None)
    assert (options.fields, options.indent, options.store_empty) == ((("a", "A"),), 0, True)
    assert [found.__name__ for found in options.item_classes] == ["dict", "Decimal"]


def test_the_spiders_name_and_the_start_are_put_into_the_path() -> None:
    settings = FeedsSettings(feeds={"%(name)s/100%-%(time)s.json": {}})
    berlin = datetime(2025, 1, 1, 1, 30, 0, 5, tzinfo=timezone(timedelta(hours=1)))
    [options] = feed_options(settings, spider_name="quotes", started_utc=berlin)
    assert options.uri == "quotes/100%-2025-01-01T00-30-00+00-00.json"


def test_a_file_url_is_its_path() -> None:
    assert one("file:///tmp/a%20b.json").path == Path("/tmp/a b.json")
    assert one("-").path is None


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "iso2022_jp", "cp037", "hz", "utf-7"])
def test_an_encoding_that_files_cannot_be_cut_in_is_refused(encoding: str) -> None:
    with pytest.raises(SettingsError, match=f"feed o.csv: can't be written in {encoding}; use utf-8"):
        one("o.csv", {"encoding": encoding})


@pytest.mark.parametrize(
    "encoding", ["utf-8", "UTF8", "ascii", "cp1252", "gb18030", "shift_jis", "euc-jp", "utf-8-sig"]
)
def test_an_encoding_whose_bytes_cannot_be_mistaken_is_taken(encoding: str) -> None:
    assert one("o.csv", {"encoding": encoding}).encoding is not None


@pytest.mark.parametrize("encoding", ["utf-9", "hex", "nul\0"])
def test_an_encoding_that_is_none_is_refused(encoding: str) -> None:
    with pytest.raises(SettingsError, match="unknown text encoding"):
        one("o.csv", {"encoding": encoding})


@pytest.mark.parametrize("given", ["no.such.module", "decimal.Nothing", "decimal", 3])
def test_an_item_class_that_is_none_is_refused(given: object) -> None:
    with pytest.raises(SettingsError, match=r"FEEDS\['o.csv'\]\['item_classes'\]"):
        one("o.csv", {"item_classes": [given]})


def test_an_element_that_xml_cannot_name_is_refused() -> None:
    with pytest.raises(SettingsError, match="'a b' can't be the name of an XML element"):
        one("o.xml", {"item_export_kwargs": {"item_element": "a b"}})


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"root_elemnt": "x"}, r"has an unknown key 'root_elemnt'; did you mean 'root_element'\?"),
        ({"delimiter": ";"}, r"has an unknown key 'delimiter'; known are .*; \"exporter\": \"trawl.exporters.Csv"),
        ({"table": ""}, r"Expected `str` of length >= 1 - at `\$\.table`"),
    ],
)
def test_an_option_that_no_format_has_is_refused(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(SettingsError, match=rf"FEEDS\['o.csv'\]\['item_export_kwargs'\].*{why}"):
        one("o.csv", {"item_export_kwargs": arguments})


@pytest.mark.parametrize("fields", [{"title": "name", "price": "name"}, ["a", "name", "name"]])
def test_two_fields_of_one_name_are_refused(fields: Any) -> None:
    with pytest.raises(SettingsError, match=r"^feed o.csv: two of its fields would be written as 'name'$"):
        one("o.csv", {"fields": fields})


def test_two_feeds_to_one_place_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "out.json")
    feeds: dict[str, FeedMapping] = {str(tmp_path / "out.json"): {}, str(tmp_path / "link.json"): {}}
    with pytest.raises(FeedError, match=r"link.json: another feed goes to the same place"):
        feed_options(FeedsSettings(feeds=feeds), spider_name="q", started_utc=STARTED_UTC)
    with pytest.raises(FeedError, match="feed -: another feed"):
        feed_options(FeedsSettings(feeds={"-": {}, "-:csv": {}}), spider_name="q", started_utc=STARTED_UTC)


def test_options_are_a_value() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        one("a.json").format = "csv"  # type: ignore[misc]
