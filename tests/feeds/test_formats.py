"""The four formats: what an item looks like in each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from xml.etree import ElementTree

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.feeds.fakes import READERS, Rows
from trawl.feeds import FeedOptions, Format
from trawl.feeds.exporter_format import make_format


def document(feed_format: Format, *rows: Mapping[str, object]) -> bytes:
    """A whole file of these items."""
    settled = feed_format.settled(rows[0]) if rows else feed_format
    records = [settled.record(row) for row in rows]
    lead = settled.opening + (settled.first if records else b"")
    return lead + settled.separator.join(records) + settled.closing


def make(name: str, **options: Any) -> Format:
    return make_format(attrs.evolve(FeedOptions(uri="out", format=name), **options))


NESTED = {"tags": ["a", "b"], "by": {"name": "X"}, "n": 3}


def test_jsonl_has_an_object_a_line() -> None:
    assert document(make("jsonl"), {"a": 1}, {"b": "é\n"}) == '{"a":1}\n{"b":"é\\n"}\n'.encode()


def test_json_is_one_array_with_an_item_a_line() -> None:
    assert document(make("json"), {"a": 1}, {"b": 2}) == b'[\n{"a":1},\n{"b":2}\n]\n'


def test_json_without_items_is_an_empty_array() -> None:
    assert json.loads(document(make("json"))) == []


def test_json_is_indented_where_that_is_wanted() -> None:
    assert document(make("json", indent=2), {"a": [1]}) == b'[\n  {\n    "a": [\n      1\n    ]\n  }\n]\n'


@pytest.mark.parametrize("encoding", ["latin-1", None])
def test_json_in_another_encoding_is_ascii_with_escapes(encoding: str | None) -> None:
    for name in ("json", "jsonl"):
        written = make(name, encoding=encoding).record({"a": "é"})
        assert written.strip() == b'{"a":"\\u00e9"}'


def test_csv_has_the_first_items_fields_as_its_header() -> None:
    written = document(make("csv"), {"a": 1, "b": "x,y"}, {"b": None, "c": 9})
    assert written == b'a,b\r\n1,"x,y"\r\n,\r\n'


def test_csv_has_the_columns_that_are_asked_for() -> None:
    table = make("csv", fields=(("b", "B"), ("a", "A")))
    assert document(table, {"A": 1, "B": 2}) == b"B,A\r\n2,1\r\n"


def test_csv_writes_nested_values_as_json() -> None:
    written = document(make("csv"), NESTED)
    assert READERS["csv"](written) == [{"tags": '["a","b"]', "by": '{"name":"X"}', "n": "3"}]


def test_csv_joins_lists_where_that_is_wanted() -> None:
    table = make("csv", arguments={"join_multivalued": "|", "include_headers_line": False})
    assert document(table, {"a": ["x", 1, None], "b": [["y"]]}) == b'x|1|,"[[""y""]]"\r\n'


def test_csv_writes_what_its_encoding_lacks_as_a_question_mark() -> None:
    assert document(make("csv", encoding="iso8859-1"), {"a": "é中"}) == b"a\r\n\xe9?\r\n"


def test_csv_for_excel_begins_with_one_byte_order_mark() -> None:
    assert document(make("csv", encoding="utf-8-sig"), {"a": "é"}) == b"\xef\xbb\xbfa\r\n\xc3\xa9\r\n"


def test_csv_refuses_an_item_without_any_field() -> None:
    with pytest.raises(ValueError, match="it has no field"):
        document(make("csv"), {})


def test_xml_has_an_element_for_each_field_and_value() -> None:
    written = document(make("xml"), NESTED, {"none": None, "price": Decimal("1.50")})
    assert written == (
        b'<?xml version="1.0" encoding="utf-8"?>\n<items>\n'
        b"<item><tags><value>a</value><value>b</value></tags><by><name>X</name></by><n>3</n></item>\n"
        b"<item><none></none><price>1.50</price></item>\n"
        b"</items>\n"
    )


def test_xml_is_indented_where_that_is_wanted() -> None:
    assert document(make("xml", indent=1), {"a": ["x"], "b": []}).splitlines()[2:-1] == [
        b" <item>",
        b"  <a>",
        b"   <value>x</value>",
        b"  </a>",
        b"  <b></b>",
        b" </item>",
    ]


def test_xml_takes_other_names_for_its_elements() -> None:
    written = document(make("xml", arguments={"root_element": "books", "item_element": "book"}), {"a": "x"})
    assert ElementTree.fromstring(written).findtext("book/a") == "x"


def test_xml_escapes_and_drops_what_it_cannot_hold() -> None:
    record = make("xml").record({"a": "<&>]]>\r\n\t\x00\x0b\x1b\ufffe\ud800é"})
    assert record.decode() == "<item><a>&lt;&amp;&gt;]]&gt;&#13;\n\t\ufffdé</a></item>"


def test_xml_writes_what_its_encoding_lacks_as_a_reference() -> None:
    written = document(make("xml", encoding="iso8859-1"), {"a": "é中"})
    assert b"\xe9&#20013;" in written
    assert ElementTree.fromstring(written).findtext("item/a") == "é中"


@pytest.mark.parametrize("name", ["two words", "1st", "", "a:b", 'say "&<\n\t>"', "né", "xml"])
def test_xml_keeps_the_name_of_a_field_that_is_no_xml_name(name: str) -> None:
    [field] = ElementTree.fromstring(document(make("xml"), {name: "x"}))[0]
    assert field.get("name", field.tag) == name
    assert field.text == "x"


FIELDS = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.text(), min_size=1)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=40)
@given(rows=st.lists(FIELDS, min_size=1, max_size=4), indent=st.integers(0, 2))
def test_any_text_is_read_back_as_it_was_but_for_what_xml_forbids(name: str, rows: Rows, indent: int) -> None:
    written = document(make(name, indent=indent), *rows)
    wanted = list(rows)
    if name == "csv":
        wanted = [{key: row.get(key, "") for key in rows[0]} for row in rows]
    if name == "xml":
        wanted = [{key: legal(text) for key, text in row.items()} for row in rows]
    assert READERS[name](written) == wanted


def legal(text: str) -> str:
    """The characters that XML 1.0 can hold (2.2)."""
    return "".join(
        character
        for character in text
        if character in "\t\n\r" or (character >= " " and character not in "\ufffe\uffff")
    )
