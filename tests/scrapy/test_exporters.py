"""Exporters write byte for byte what Scrapy's of the same name write."""

from __future__ import annotations

import dataclasses
import io
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import attrs
import pytest
import scrapy
import scrapy.exporters

from trawl import exporters, items

scrapys: Any = scrapy.exporters


def shouted(value: object) -> str:
    return str(value).upper()


def parts(value: object) -> list[str]:
    return [str(value), "b"]


def quote_class(base: Any, field: Any) -> Any:
    """An item's class that declares more than its instances have, with serializers."""

    class Quote(base):  # type: ignore[misc]
        text = field()
        author = field(serializer=shouted)
        tags = field()
        rest = field(serializer=parts)

    return Quote


@dataclasses.dataclass
class Book:
    title: str
    price: Decimal = Decimal("1.50")
    code: str = dataclasses.field(default="x", metadata={"serializer": shouted})


@attrs.define
class Page:
    url: str
    size: int | None = attrs.field(default=None, metadata={"serializer": parts})


VALUES: dict[str, Any] = {
    "text": "Ünal, \"the\" 'first'\nline <b>&amp; ]]>",
    "empty": "",
    "none": None,
    "true": True,
    "int": 12,
    "float": 1.5,
    "large": 1e300,
    "inf": math.inf,
    "nan": math.nan,
    "texts": ["a", "b, c"],
    "tuple": ("a", "b"),
    "numbers": [1, 2.5],
    "mixed": ["a", 1, None],
    "pair": (1, 2),
    "nothing": [],
    "dict": {"a": 1, "b": ["x", {"y": None}]},
    "dicts": [{"n": 1}, {"n": 2}],
    "set": {"one"},
    "instant": datetime(2024, 5, 6, 7, 8, 9, 10, tzinfo=UTC),
    "naive": datetime(2024, 5, 6, 7, 8, 9),
    "date": date(2024, 5, 6),
    "time": time(7, 8),
    "decimal": Decimal("3.10"),
    "instants": [datetime(2024, 5, 6)],
    "bytes": b"caf\xc3\xa9",
    "book": Book("a"),
    "range": range(2),
}
ALONE: list[list[Any]] = [[{"a": "first", "v": value}, {"a": "second", "v": "w"}] for value in VALUES.values()]
SIMPLE: dict[str, Any] = {name: VALUES[name] for name in VALUES if name not in ("bytes", "range", "book")}
MIXED: list[list[Any]] = [
    [],
    [SIMPLE],
    [{"a": 1}, {"b": 2}, {"a": 3, "c": 4}],
    [{"b": 1, "a": 2}, {"a": 3, "b": 4}],
    [Book("a"), Book("b", Decimal(2))],
    [Page("u", 3), Page("v")],
    [Book("a"), {"title": "t"}, Page("v")],
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"encoding": "utf-8"},
    {"encoding": "latin-1", "fields_to_export": ["int", "a", "v", "title"]},
    {"indent": 0},
    {"indent": 2},
    {"indent": 4, "encoding": "utf-8"},
    {"fields_to_export": ["v", "a", "missing"]},
    {"fields_to_export": {"a": "A", "title": "T", "missing": "M", "text": "X"}},
    {"fields_to_export": ["author", "title", "a"], "export_empty_fields": True},
    {"export_empty_fields": True},
]
CLASSES: dict[str, list[dict[str, Any]]] = {
    "CsvItemExporter": [
        {"delimiter": ";"},
        {"include_headers_line": False},
        {"join_multivalued": "|"},
        {"quoting": 1, "lineterminator": "\n"},
        {"encoding": "ascii", "errors": "xmlcharrefreplace"},
        {"encoding": "utf-8-sig"},
    ],
    "JsonItemExporter": [{"sort_keys": True}, {"ensure_ascii": False}, {"encoding": "utf-16"}],
    "JsonLinesItemExporter": [{"sort_keys": True}, {"ensure_ascii": False}],
    "XmlItemExporter": [{"root_element": "r", "item_element": "i", "indent": 1}],
    "PickleItemExporter": [{"protocol": 2}],
    "MarshalItemExporter": [],
    "PprintItemExporter": [],
}


def written(module: Any, name: str, options: dict[str, Any], these: list[Any]) -> object:
    """The bytes of a file, or the type of the error that ends it."""
    file = io.BytesIO()
    try:
        exporter = getattr(module, name)(file, **options)
        exporter.start_exporting()
        for item in these:
            exporter.export_item(item)
        exporter.finish_exporting()
    except Exception as error:
        return type(error)
    return file.getvalue()


@pytest.mark.parametrize("these", [*ALONE, *MIXED], ids=[*VALUES, *(f"mixed{n}" for n in range(len(MIXED)))])
@pytest.mark.parametrize("name", CLASSES)
def test_the_bytes_are_scrapys(name: str, these: list[Any]) -> None:
    for options in [*OPTIONS, *CLASSES[name]]:
        assert written(exporters, name, options, these) == written(scrapys, name, options, these), options


@pytest.mark.parametrize("name", [name for name in CLASSES if name not in ("PickleItemExporter",)])
def test_items_of_both_item_classes_have_the_same_bytes(name: str) -> None:
    ours, theirs = quote_class(items.Item, items.Field), quote_class(scrapy.Item, scrapy.Field)
    values: list[dict[str, Any]] = [
        {"tags": ["x", "y"], "text": "t", "author": "a"},
        {"rest": 1, "author": None},
        {},
        {"tags": {"a": (1, 2)}},
    ]
    inner = {"tags": ["x" * 50, "y" * 50], "author": "a", "text": None}
    for options in [*OPTIONS, *CLASSES[name]]:
        for chosen in (values, values[1:], values[::-1]):
            mine = written(exporters, name, options, [ours(**fields) for fields in chosen])
            assert mine == written(scrapys, name, options, [theirs(**fields) for fields in chosen]), options
        nested = [[kind(text=kind(**inner), tags=[kind(rest="b")])] for kind in (ours, theirs)]
        assert written(exporters, name, options, nested[0]) == written(scrapys, name, options, nested[1]), options


def test_python_dicts_are_scrapys() -> None:
    ours, theirs = quote_class(items.Item, items.Field), quote_class(scrapy.Item, scrapy.Field)
    for fields in (VALUES, SIMPLE):
        made = exporters.PythonItemExporter().export_item(dict(fields))
        assert repr(made) == repr(scrapys.PythonItemExporter().export_item(dict(fields)))
    mine = exporters.PythonItemExporter().export_item(ours(text=ours(text="a"), tags=[ours(tags=b"b")]))
    assert mine == scrapys.PythonItemExporter().export_item(theirs(text=theirs(text="a"), tags=[theirs(tags=b"b")]))
