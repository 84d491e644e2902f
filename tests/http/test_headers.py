from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.http import Headers

NAMES = st.text("abAB-", min_size=1, max_size=3)
VALUES = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=5)


def test_a_name_is_found_in_any_case() -> None:
    headers = Headers({"Content-Type": "text/html"})
    assert headers["content-TYPE"] == headers.get("CONTENT-TYPE") == "text/html"
    assert "content-type" in headers
    assert list(headers) == ["Content-Type"]


def test_what_is_not_there_is_none_or_the_default() -> None:
    headers = Headers()
    assert headers.get("X") is None
    assert headers.get("X", "y") == "y"
    assert headers.getlist("X") == []
    assert "X" not in headers
    assert 1 not in headers  # type: ignore[comparison-overlap]
    with pytest.raises(KeyError):
        headers["X"]
    with pytest.raises(KeyError):
        del headers["X"]


def test_a_name_may_be_given_as_bytes() -> None:
    fields: dict[Any, Any] = {b"X-One": "1", "X-Two": ["2", "3"]}
    headers: Any = Headers(fields)
    assert (headers[b"x-one"], headers.get(b"X-One"), headers.getlist(b"x-two")) == ("1", "1", ["2", "3"])
    assert b"x-one" in headers
    assert b"\xff" not in headers
    assert (headers.get(b"none", "y"), headers.getlist(b"none")) == ("y", [])
    assert headers.setdefault(b"X-One", "other") == "1"
    with pytest.raises(KeyError):
        headers[b"none"]
    del headers[b"X-One"]
    assert list(headers) == ["X-Two"]


def test_a_field_that_came_twice_is_joined_and_listed() -> None:
    headers = Headers.from_wire([(b"Set-Cookie", b"a=1"), (b"Vary", b"x"), (b"set-cookie", b"b=2"), (b"vary", b"y")])
    assert headers["vary"] == "x, y"
    assert headers.getlist("Set-Cookie") == ["a=1", "b=2"]
    assert headers.items_list() == [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("Vary", "x"), ("Vary", "y")]
    assert len(headers) == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"A": "1", "B": ["2", "3"]},
        {"A": b"1", b"B": [b"2", 3]},
        [("A", "1"), ("B", "2"), ("b", "3")],
        [(b"A", 1), ("B", ("2", "3"))],
        Headers({"a": "1", "b": ["2", "3"]}),
    ],
)
def test_headers_are_made_from_mappings_and_pairs(fields: object) -> None:
    headers = Headers(fields)  # type: ignore[arg-type]
    assert [(name.upper(), value) for name, value in headers.items_list()] == [("A", "1"), ("B", "2"), ("B", "3")]


def test_setting_takes_the_place_of_all_values_and_adding_does_not() -> None:
    headers = Headers({"A": ["1", "2"]})
    headers.add("a", "3")
    assert headers.getlist("A") == ["1", "2", "3"]
    headers["a"] = "4"
    assert headers.items_list() == [("a", "4")]
    del headers["A"]
    assert headers == {}


def test_a_header_set_to_none_is_not_sent_not_even_by_default() -> None:
    headers = Headers({"User-Agent": None})
    assert headers.setdefault("user-agent", "trawl") is None
    assert headers.setdefault("Accept", "*/*") == "*/*"
    assert headers.setdefault("Accept", "text/html") == "*/*"
    assert "User-Agent" not in headers
    assert headers.get("User-Agent") is None
    assert headers.items_list() == [("Accept", "*/*")]
    assert list(headers) == ["Accept"]
    with pytest.raises(KeyError):
        headers["User-Agent"]


def test_defaults_fill_only_what_is_not_set() -> None:
    defaults = Headers({"A": ["1", "2"], "B": "3", "C": "4"})
    headers = Headers({"b": "5", "C": None})
    headers.fill(defaults)
    headers.add("a", "6")
    assert headers.items_list() == [("b", "5"), ("A", "1"), ("A", "2"), ("A", "6")]
    assert defaults.getlist("A") == ["1", "2"]


@pytest.mark.parametrize("value", ["a\r\nB: c", "a\nb", "a\x00", "\x7f", "\x1b[31m", "\ud800", b"a\rb"])
@pytest.mark.parametrize(
    "put",
    [
        lambda value: Headers({"A": value}),
        lambda value: Headers([("A", value)]),
        lambda value: Headers({"A": ["b", value]}),
        lambda value: Headers().add("A", value),
        lambda value: Headers().__setitem__("A", value),
        lambda value: Headers().setdefault("A", value),
    ],
)
def test_a_value_with_a_control_character_is_refused(put: Callable[[object], object], value: object) -> None:
    with pytest.raises(ValueError, match="the header 'A' contains a control character"):
        put(value)


@pytest.mark.parametrize("name", ["", "a b", "a:", "a\r\n", "é", b"\xff", "a\x00"])
def test_a_name_that_is_no_token_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a header name"):
        Headers({name: "x"})


def test_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="the header 'A' must be a str, bytes or a number, not dict"):
        Headers({"A": {}})


def test_white_space_around_a_value_is_dropped_and_tabs_inside_are_kept() -> None:
    assert Headers({"A": " \tb\tc "})["A"] == "b\tc"


def test_text_is_sent_as_latin_1_and_other_text_as_utf_8() -> None:
    headers = Headers({"A": "é", "B": "日"})
    assert headers.to_wire() == [(b"A", b"\xe9"), (b"B", "日".encode())]
    assert headers["B"] == "日"


@given(st.lists(st.tuples(NAMES, VALUES)))
def test_what_came_from_the_wire_goes_back_to_it(fields: list[tuple[str, str]]) -> None:
    wire = [(name.encode(), value.encode("latin-1")) for name, value in fields]
    back = Headers.from_wire(wire).to_wire()
    assert sorted((name.lower(), value) for name, value in wire) == sorted(
        (name.lower(), value) for name, value in back
    )


@given(st.lists(st.tuples(NAMES, VALUES)), NAMES)
def test_all_values_of_a_name_keep_their_order(fields: list[tuple[str, str]], name: str) -> None:
    headers = Headers(fields)
    assert headers.getlist(name) == [value.strip(" \t") for each, value in fields if each.lower() == name.lower()]
    assert (name in headers) == bool(headers.getlist(name))
    assert len(headers) == len({each.lower() for each, _ in fields})


def test_a_copy_is_independent() -> None:
    headers = Headers({"A": "1"})
    for other in (headers.copy(), copy.copy(headers), copy.deepcopy(headers), pickle.loads(pickle.dumps(headers))):
        assert other == headers
        other["A"] = "2"
        other.add("B", "3")
    assert headers.items_list() == [("A", "1")]


def test_headers_are_equal_to_a_mapping_with_the_same_fields() -> None:
    headers = Headers({"A": "1"})
    assert headers == {"a": "1"}
    assert headers != {"a": "2"}
    assert headers != {"a b": "1"}
    assert headers != {"a": object()}
    assert headers != 1
    assert repr(headers) == "Headers([('A', '1')])"
    with pytest.raises(TypeError):
        hash(headers)
