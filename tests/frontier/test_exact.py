"""What a job stores of meta and cb_kwargs comes back exactly as it was, or is refused by its place."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.frontier.record_format import MAX_NESTED, ext_hook, portable
from trawl.http import Request

DECODER = msgspec.msgpack.Decoder(ext_hook=ext_hook)

OFFSETS = st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23)))
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.datetimes(timezones=st.one_of(st.none(), OFFSETS)),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.uuids(),
)
KEYS = st.one_of(st.text(), st.integers(), st.tuples(st.text(), st.integers()))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.sets(st.integers(), max_size=4),
        st.frozensets(st.text(), max_size=4),
    ),
    max_leaves=12,
)


def there_and_back(value: object) -> object:
    return DECODER.decode(msgspec.msgpack.encode(portable(value, "meta")))


def with_types(value: Any) -> object:
    """A value in which 1, 1.0 and True, lists and tuples, differ."""
    if isinstance(value, dict):
        return dict, [(with_types(key), with_types(each)) for key, each in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [with_types(each) for each in value]
    return type(value), value


@given(VALUES)
def test_a_plain_value_comes_back_as_it_was_types_and_all(value: object) -> None:
    assert with_types(there_and_back(value)) == with_types(value)


class Colour(IntEnum):
    RED = 1


class Point(NamedTuple):
    x: int


@pytest.mark.parametrize(
    "value",
    [
        object(),
        Colour.RED,
        Point(1),
        Request("http://a.example/"),
        lambda: None,
        "\ud800",
        datetime(2020, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")),
        time(1, tzinfo=ZoneInfo("Europe/Berlin")),
        range(3),
        bytearray(b"x"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_would_come_back_as_something_else_is_refused_by_its_place(value: object) -> None:
    with pytest.raises(ValueError, match=r"^meta\['page'\]\[1\] .*a job can't store"):
        portable({"page": [0, value]}, "meta")


def test_a_key_that_can_not_be_stored_is_named() -> None:
    with pytest.raises(ValueError, match=r"^the key <Colour.RED: 1> of meta is of type .*Colour"):
        portable({Colour.RED: 1}, "meta")


def test_a_value_that_contains_itself_is_refused_in_one_line() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(ValueError, match=f"more than {MAX_NESTED} deep, or contains itself") as caught:
        portable(loop, "meta")
    assert len(str(caught.value)) < 200


def test_what_no_map_can_have_as_a_key_is_kept() -> None:
    moments = {date(2020, 1, 1): 1, (1, "x"): UUID(int=7), Decimal("1.50"): datetime.now(UTC)}
    assert there_and_back(moments) == moments


@pytest.mark.parametrize(("code", "payload"), [(99, b"\x90"), (0, b"\x90"), (-1, b"\x90")])
def test_a_type_that_is_not_ours_is_an_error(code: int, payload: bytes) -> None:
    with pytest.raises(ValueError, match=f"unknown type {code}"):
        ext_hook(code, memoryview(payload))
