"""An item out of the outbox is written as the item itself would be, byte for byte, in every format."""

from __future__ import annotations

import dataclasses
import enum
import math
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trawl.feeds import FORMATS, FeedOptions
from trawl.feeds.exporter_format import make_format
from trawl.feeds.job_item import JobItem, class_name, from_stored, to_stored
from trawl.feeds.to_json import written_fields
from trawl.items import Field, Item


class Colour(enum.Enum):
    """A value that is an enumeration's."""

    RED = "red"


@dataclasses.dataclass
class Inner:
    """An item within an item."""

    a: object = (1, {2})
    b: object = None


@attrs.define
class Attrs:
    """An attrs class."""

    value: object


class Declared(Item):
    """A dict with declared fields."""

    value = Field()


class Struct(msgspec.Struct):
    """A msgspec Struct."""

    value: Any


class Model(pydantic.BaseModel):
    """A pydantic model."""

    value: Any


@dataclasses.dataclass
class Data:
    """A dataclass."""

    value: object


VALUES: list[object] = [
    "plain", "", "\ud800 lone", "ünï \U0001f600", "a\r\n\x00b",
    None, True, False, 0, -1, 2**70, -(2**70), 1.0, 0.1, -0.0, 1e300, 5e-324,
    math.nan, math.inf, -math.inf, b"\x00\xff", Decimal("1.10"), uuid.UUID(int=7), Colour.RED, PurePosixPath("/a"),
    datetime(2025, 1, 1, 12, 30, 1, 5), datetime(2025, 1, 1, tzinfo=UTC), timedelta(seconds=1.5), date(2025, 1, 1),
    datetime(2025, 1, 1, 3, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    [], {}, (1, "a"), {3}, frozenset(), [1, [2, {"k": None}]], {"a": {"b": [1.5, None]}}, {1: 2, None: 3, 2.5: 4},
    Inner(), [Inner(b=Inner())],
]  # fmt: skip
KINDS: list[Callable[[Any], Any]] = [
    lambda value: {"value": value, "more": "x"},
    Data,
    Attrs,
    Struct,
    lambda value: Model(value=value),
    lambda value: Declared(value=value),
]
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary() | st.decimals(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


def records(row: dict[str, object]) -> list[bytes]:
    """The row as each format writes it, with options that change what is written."""
    found = []
    for name in dict.fromkeys(FORMATS.values()):
        for encoding in (None, "utf-8", "latin-1"):
            if name in ("xml", "csv") and encoding is None:
                continue
            style = make_format(FeedOptions(uri="out", format=name, encoding=encoding, indent=2)).settled(row)
            found.append(style.opening + style.record(row))
    joined = FeedOptions(uri="out", format="csv", arguments={"join_multivalued": "|"})
    return [*found, make_format(joined).settled(row).record(row)]


@pytest.mark.parametrize("kind", range(len(KINDS)))
@pytest.mark.parametrize("value", range(len(VALUES)))
def test_every_format_writes_a_stored_item_as_the_item_itself(kind: int, value: int) -> None:
    item = KINDS[kind](VALUES[value])
    stored = from_stored(to_stored(item))
    assert records(stored.fields) == records(written_fields(item))


@settings(max_examples=15, deadline=None)
@given(st.dictionaries(st.text(min_size=1), PLAIN, min_size=1))
def test_so_with_whatever_a_page_may_give(item: dict[str, object]) -> None:
    assert records(from_stored(to_stored(item)).fields) == records(item)


def test_an_item_is_known_by_its_class_and_by_those_that_feeds_ask_for() -> None:
    class Special(Data):
        pass

    stored = from_stored(to_stored(Special(1), (Data, Inner)))
    assert stored.classes == (class_name(Special), class_name(Data))
    assert stored.is_of([Inner, Data])
    assert stored.is_of([Special])
    assert not stored.is_of([Inner])
    assert from_stored(to_stored({"a": 1})).is_of([dict])


def test_what_can_not_be_written_is_refused_when_it_is_stored() -> None:
    loop: dict[str, object] = {}
    loop["itself"] = loop
    with pytest.raises(ValueError, match="itself"):
        to_stored(loop)
    with pytest.raises(ValueError, match="its field 'value': a value of type object has no written form"):
        to_stored({"value": object()})


def test_damaged_items_are_refused() -> None:
    assert from_stored(b"{}") == JobItem({}, ())
    for damaged in (b"", b"[]", b"{", b'[{},"a"]', b"\xff", b"[1,2]"):
        with pytest.raises(ValueError):  # noqa: PT011 - a msgspec error says what
            from_stored(damaged)
