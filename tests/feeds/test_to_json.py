"""Values of all kinds as JSON."""

from __future__ import annotations

import enum
import json
import math
from collections import OrderedDict, UserDict, deque
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import PurePosixPath
from types import MappingProxyType
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trawl.feeds.to_json import to_ascii_json, to_builtins, to_json
from trawl.items import Field, Item


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Colour(enum.Enum):
    RED = "red"


@attrs.define
class Point:
    x: int


class Model(pydantic.BaseModel):
    x: int


class Struct(msgspec.Struct):
    x: int


class Classic(Item):
    x = Field()


class NumberOfOneElement:
    shape = ()

    def item(self) -> int:
        return 7


KINDS: list[tuple[object, object]] = [
    (datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC), "2025-01-02T03:04:05Z"),
    (date(2025, 1, 2), "2025-01-02"),
    (timedelta(seconds=90), "PT90S"),
    (Decimal("1.50"), "1.50"),
    (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (b"ab\xff", "YWL/"),
    ({3}, [3]),
    (frozenset({"a"}), ["a"]),
    ((1, 2), [1, 2]),
    (deque([1, 2]), [1, 2]),
    (range(3), [0, 1, 2]),
    (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    (UserDict(a=1), {"a": 1}),
    (MappingProxyType({"a": 1}), {"a": 1}),
    (PurePosixPath("a/b"), "a/b"),
    (Text("t"), "t"),
    (Whole(3), 3),
    (Colour.RED, "red"),
    (2**70, 2**70),
    (math.nan, None),
    (math.inf, None),
    (True, True),
    (None, None),
    (Point(1), {"x": 1}),
    (Model(x=1), {"x": 1}),
    (Struct(x=1), {"x": 1}),
    (Classic(x=1), {"x": 1}),
    (NumberOfOneElement(), 7),
    ({1: "a", 1.5: "b"}, {"1": "a", "1.5": "b"}),
    ({None: 1, True: 2}, {"null": 1, "true": 2}),
    ("\ud800 alone", "\ufffd alone"),
    ("\ud83d\ude00", "😀"),
]


@pytest.mark.parametrize(("value", "expected"), KINDS, ids=lambda value: type(value).__name__)
def test_every_kind_of_value_has_one_form_however_it_is_written(value: object, expected: object) -> None:
    assert to_builtins({"v": value}) == {"v": expected}
    assert json.loads(to_json({"v": value})) == {"v": expected}
    assert json.loads(to_json({"v": [value]})) == {"v": [expected]}
    assert json.loads(to_ascii_json({"v": value})) == {"v": expected}


def test_a_value_without_a_form_is_refused_by_the_name_of_its_type() -> None:
    with pytest.raises(TypeError, match="a value of type object has no written form"):
        to_json({"v": object()})


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(ValueError, match="contains itself"):
        to_json(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=40)
@given(JSON)
def test_what_is_plain_already_comes_back_as_it_was_and_on_one_line(value: object) -> None:
    assert json.loads(to_json(value)) == value
    assert json.loads(to_ascii_json(value)) == value
    assert b"\n" not in to_json(value)


@settings(max_examples=40)
@given(st.text(st.characters(), max_size=20))
def test_no_text_at_all_makes_json_that_is_not_utf_8(text: str) -> None:
    assert isinstance(json.loads(to_json(text)), str)
    assert to_ascii_json(text).isascii()
