"""Items of every kind are held to their type."""

from __future__ import annotations

import dataclasses
from typing import Any, TypedDict

import attrs
import msgspec
import pydantic
import pytest

from trawl.items import Field, Item
from trawl.spiders.item_check import ItemCheckError, make_check, type_name


@dataclasses.dataclass
class Data:
    text: str
    price: float = 0.0


@attrs.define
class Attrs:
    text: str
    price: float = 0.0


class Struct(msgspec.Struct):
    text: str
    price: float = 0.0


class Model(pydantic.BaseModel):
    text: str
    price: float = 0.0


class Typed(TypedDict):
    text: str


class Declared(Item):
    text = Field()


@dataclasses.dataclass
class Other:
    name: str


KINDS: list[Any] = [Data, Attrs, Struct, Model]


@pytest.mark.parametrize("kind", [Data, Attrs, Struct, Typed])
def test_a_field_that_the_type_has_not_is_not_lost_in_silence(kind: Any) -> None:
    with pytest.raises(ItemCheckError, match=r"^Object contains unknown field `pricce`$"):
        make_check(kind)({"text": "a", "pricce": 2.5})


def test_of_a_union_the_type_that_has_all_the_fields_is_taken() -> None:
    @dataclasses.dataclass
    class Named:
        text: str
        name: str

    assert make_check(Data | Named)({"text": "a", "name": "b"}) == Named("a", "b")


@pytest.mark.parametrize("kind", KINDS)
def test_a_dict_becomes_an_instance(kind: Any) -> None:
    assert make_check(kind)({"text": "a", "price": 2.5}) == kind(text="a", price=2.5)
    assert make_check(kind)({"text": "a"}).price == 0.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("item", "words"), [({"price": 1.0}, "text"), ({"text": None}, "text"), ({"text": "a", "price": "x"}, "price")]
)
def test_what_is_wrong_is_told_with_its_place(kind: Any, item: dict[str, object], words: str) -> None:
    with pytest.raises(ItemCheckError, match=words):
        make_check(kind)(item)


@pytest.mark.parametrize("kind", [Data, Attrs, Struct])
def test_an_instance_is_looked_at_too_and_goes_on_as_it_is(kind: Any) -> None:
    good = kind(text="a")
    assert make_check(kind)(good) is good
    with pytest.raises(ItemCheckError, match=r"Expected `str`, got `int` - at `\$.text`"):
        make_check(kind)(kind(text=3))


@pytest.mark.parametrize("kind", KINDS)
def test_an_item_of_another_type_is_refused(kind: Any) -> None:
    with pytest.raises(ItemCheckError, match="it is of type Other, not"):
        make_check(kind)(Other("x"))


def test_a_typed_dict_stays_a_dict() -> None:
    assert make_check(Typed)({"text": "a"}) == {"text": "a"}
    with pytest.raises(ItemCheckError, match="missing required field `text`"):
        make_check(Typed)({})


def test_a_declared_item_is_held_to_its_class() -> None:
    good = Declared(text="a")
    assert make_check(Declared)(good) is good
    with pytest.raises(ItemCheckError, match="it is of type dict, not Declared"):
        make_check(Declared)({"text": "a"})


def test_one_of_a_union_will_do() -> None:
    check = make_check(Data | Other)
    assert check({"name": "x"}) == Other("x")
    assert check(Other("x")) == Other("x")
    with pytest.raises(ItemCheckError, match=r"it is not one of Data \| Other: Data: .*; Other: "):
        check({})
    with pytest.raises(ItemCheckError, match=r"at `\$.name`"):
        check(Other(3))  # type: ignore[arg-type]
    assert type_name(Data | Other) == "Data | Other"


@pytest.mark.parametrize("kind", [int, "Data", None, list])
def test_what_is_no_type_of_items_is_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match="is not a type of item"):
        make_check(kind)
