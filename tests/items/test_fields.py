from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict, UserDict
from dataclasses import dataclass, field
from typing import Any, ClassVar

import attrs
import msgspec
import pydantic
import pytest

from trawl.http import Request, Response
from trawl.items import Field, Item, is_item, item_fields


@dataclass
class Plain:
    b: int
    a: list[int] = field(default_factory=list)
    kind: ClassVar[str] = "plain"


@dataclass(slots=True)
class Slotted:
    b: int
    a: int = field(init=False)


@attrs.define
class Defined:
    b: int
    a: object = None


@attrs.frozen
class Derived(Defined):
    c: int = 3


class Model(pydantic.BaseModel):
    b: int
    a: object = pydantic.Field(default=None, alias="alias")


class Open(pydantic.BaseModel, extra="allow"):
    b: int


@pydantic.dataclasses.dataclass
class Checked:
    b: int
    a: int = 2


class Struct(msgspec.Struct, rename="upper"):
    b: int
    a: int | msgspec.UnsetType = msgspec.UNSET


class Declared(Item):
    b = Field()
    a = Field()


ITEMS: list[tuple[Any, dict[str, Any]]] = [
    ({"b": 1, "a": 2}, {"b": 1, "a": 2}),
    ({}, {}),
    (OrderedDict(b=1), {"b": 1}),
    (UserDict(b=1), {"b": 1}),
    (Plain(1, [2]), {"b": 1, "a": [2]}),
    (Slotted(1), {"b": 1}),
    (Defined(1), {"b": 1, "a": None}),
    (Derived(1), {"b": 1, "a": None, "c": 3}),
    (Model(b=1, alias="x"), {"b": 1, "a": "x"}),
    (Open.model_validate({"b": 1, "z": 2}), {"b": 1, "z": 2}),
    (Checked(1), {"b": 1, "a": 2}),
    (Struct(b=1), {"b": 1}),
    (Struct(b=1, a=2), {"b": 1, "a": 2}),
    (Declared(a=2, b=1), {"a": 2, "b": 1}),
]


@pytest.mark.parametrize(("item", "fields"), ITEMS, ids=[type(item).__name__ for item, _ in ITEMS])
def test_an_item_of_any_kind_is_read_as_its_fields_in_order(item: Any, fields: dict[str, Any]) -> None:
    assert is_item(item)
    read = item_fields(item)
    assert type(read) is dict
    assert list(read.items()) == list(fields.items())


@pytest.mark.parametrize("item", [item for item, _ in ITEMS], ids=[type(item).__name__ for item, _ in ITEMS])
def test_fields_are_read_into_a_dict_of_their_own(item: Any) -> None:
    item_fields(item)["new"] = 1
    assert "new" not in item_fields(item)


def test_values_are_not_copied() -> None:
    values = [1]
    assert item_fields(Plain(1, values))["a"] is values


@pytest.mark.parametrize(
    "thing",
    [None, 1, "a", b"a", [], (), {1}, Plain, dict, Model, object(), Request("http://a.example/"), Response("")],
)
def test_what_is_no_item_is_refused(thing: object) -> None:
    assert not is_item(thing)
    with pytest.raises(TypeError, match="is not a type of item"):
        item_fields(thing)


def test_models_of_the_old_pydantic_are_items() -> None:
    v1 = pytest.importorskip("pydantic.v1")
    old = v1.create_model("Old", b=(int, ...), a=(int, 2))
    assert is_item(old(b=1))
    assert item_fields(old(b=1)) == {"b": 1, "a": 2}


def test_nothing_is_imported_for_items() -> None:
    program = "import sys, trawl.items; print(sorted({'pydantic', 'scrapy', 'itemadapter'} & set(sys.modules)))"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"
