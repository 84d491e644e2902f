from __future__ import annotations

import copy
import json
import pickle
from collections.abc import MutableMapping

import pytest
from itemadapter import ItemAdapter

from trawl.items import Field, Item, ItemMeta


class Quote(Item):
    text = Field()
    author = Field(serializer=str)


class Dated(Quote):
    date = Field()


def test_an_item_takes_its_declared_fields() -> None:
    quote = Quote({"text": "a"}, author="b")
    quote["text"] = "c"
    assert quote == {"text": "c", "author": "b"}
    assert Quote([("text", "a")]) == {"text": "a"}
    assert Quote() == {}


def test_an_item_refuses_other_fields() -> None:
    quote = Quote()
    for wrong in (
        lambda: Quote(date=1),
        lambda: Quote({"date": 1}),
        lambda: quote.__setitem__("date", 1),
        lambda: quote.update(date=1),
        lambda: quote.update({"date": 1}),
        lambda: quote.setdefault("date", 1),
    ):
        with pytest.raises(KeyError, match="Quote does not support field: date"):
            wrong()
    assert quote == {}


def test_fields_are_inherited_and_keep_what_they_were_given() -> None:
    assert list(Dated.fields) == ["text", "author", "date"]
    assert list(Quote.fields) == ["text", "author"]
    assert Dated.fields["author"] == {"serializer": str}


def test_fields_of_several_base_classes_are_found_as_in_scrapy() -> None:
    class First(Quote):
        text = Field(note="first")

    class Second(Quote):
        author = Field(note="second")

    class Both(First, Second):
        pass

    class Plain:
        price = Field()

    class Mixed(Quote, Plain):
        pass

    assert Both.fields == {"text": {"note": "first"}, "author": {"note": "second"}}
    assert list(Mixed.fields) == ["text", "author"]  # a class that is no item class declares no fields
    with pytest.raises(KeyError, match="Mixed does not support field: price"):
        Mixed(price=1)


def test_an_item_class_may_call_its_base_classes_methods() -> None:
    class Named(Quote):
        @property
        def by(self) -> str:
            return f"{super().__getitem__('author')}, {__class__.__name__}"  # type: ignore[name-defined]

    assert Named(author="b").by == "b, Named"


def test_an_item_class_may_say_what_its_subclasses_get() -> None:
    seen: list[tuple[type[Item], dict[str, object]]] = []

    class Base(Item):
        name = Field()

        def __init_subclass__(cls, **options: object) -> None:
            super().__init_subclass__()
            seen.append((cls, options))

    class Named(Base):
        def __init_subclass__(cls, /, table: str, **options: object) -> None:
            super().__init_subclass__(table=table, **options)

    class Book(Named, table="books", year=1):
        title = Field()

    class Comic(Book, table="comics"):
        artist = Field()

    assert seen == [(Named, {}), (Book, {"table": "books", "year": 1}), (Comic, {"table": "comics"})]
    assert list(Comic.fields) == ["name", "title", "artist"]
    assert Comic(title="a", name="b") == {"title": "a", "name": "b"}


def test_a_field_is_not_an_attribute() -> None:
    quote = Quote(text="a")
    with pytest.raises(AttributeError, match=r"use item\['text'\] to get"):
        quote.text  # noqa: B018
    with pytest.raises(AttributeError, match=r"use item\['text'\] = 'b' to set"):
        quote.text = "b"  # type: ignore[assignment]
    with pytest.raises(AttributeError, match="other"):
        quote.other  # noqa: B018
    assert not hasattr(quote, "date")
    quote._private = 1
    assert quote._private == 1


def test_setdefault_keeps_what_is_set() -> None:
    quote = Quote(text="a")
    assert quote.setdefault("text", "b") == "a"
    assert quote.setdefault("author") is None
    assert quote == {"text": "a", "author": None}
    assert type(quote) is Quote


def test_a_copy_is_an_item_of_its_own() -> None:
    quote = Quote(text=["a"])
    for other in (quote.copy(), copy.deepcopy(quote), pickle.loads(pickle.dumps(quote))):
        assert (type(other), other) == (Quote, quote)
        other["text"] = "b"
    assert quote == {"text": ["a"]}


def test_an_item_is_shown_and_written_as_its_fields() -> None:
    assert repr(Quote(text="a")) == str(Quote(text="a")) == "{'text': 'a'}"
    assert (
        str(Quote(text=[Quote(author="a" * 50)] * 2))
        == f"{{'text': [{{'author': '{'a' * 50}'}},\n          {{'author': '{'a' * 50}'}}]}}"
    )
    assert json.dumps(dict(Quote(text="a"))) == '{"text": "a"}'


def test_an_item_is_a_mapping_and_no_dict_and_a_set_holds_it() -> None:
    first, second = Quote(text="a"), Quote(text="a")
    assert isinstance(first, MutableMapping)
    assert not issubclass(Quote, dict)
    assert (first == second, len({first, second}), first._values) == (True, 2, {"text": "a"})
    assert (type(Quote), first.pop("text"), dict(first)) == (ItemMeta, "a", {})


def test_itemadapter_takes_an_item_as_it_takes_scrapys() -> None:
    quote = Quote(text="a")
    adapter = ItemAdapter(quote)
    adapter["author"] = "b"
    assert (dict(quote), list(adapter.field_names())) == ({"text": "a", "author": "b"}, ["text", "author"])
    assert (ItemAdapter.is_item(quote), dict(adapter.get_field_meta("author"))) == (True, {"serializer": str})


def test_an_item_is_copied_with_or_without_its_values() -> None:
    quote = Quote(text=["a"])
    deep, plain = quote.deepcopy(), quote.copy()
    quote["text"].append("b")
    assert (type(deep), dict(deep), dict(plain)) == (Quote, {"text": ["a"]}, {"text": ["a", "b"]})
