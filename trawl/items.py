"""Items: the fields of every supported kind, Scrapy's ``Item`` and ``Field``, and invalid items.

An item is a dict (or another mutable mapping), or an instance of a dataclass, an attrs class, a pydantic model (of
either version) or a msgspec Struct. The kind of a class is recognized once, by its attributes, without importing a
library. itemadapter does the same, but imports pydantic and Scrapy if they are installed.
"""

from __future__ import annotations

import dataclasses
from abc import ABCMeta
from collections.abc import Callable, Collection, Iterator, KeysView, Mapping, MutableMapping
from copy import deepcopy
from functools import cache, lru_cache
from pprint import pformat
from typing import Any, ClassVar, NoReturn, Self

import attrs
import msgspec

__all__ = [
    "Field",
    "InvalidItem",
    "Item",
    "ItemMeta",
    "field_metadata",
    "field_names",
    "is_item",
    "is_item_type",
    "item_fields",
]

_Reader = Callable[[Any], dict[str, object]]


def is_item(thing: object) -> bool:
    """Return True if ``thing`` is an item. Requests, None, strings, numbers, lists and classes are not items."""
    kind: type[Any] = type(thing)
    return kind is dict or _reader_of(kind) is not None  # type: ignore[arg-type]  # mypy: a class has no hash of its own


def is_item_type(kind: type[Any]) -> bool:
    """Return True if the instances of a class are items."""
    return _reader_of(kind) is not None  # type: ignore[arg-type]  # as above


def item_fields(item: object) -> dict[str, object]:
    """Return the fields of ``item``, in order, as a new dict. Values are not copied.

    Fields without a value (``msgspec.UNSET``, an empty slot) are left out.

    Raises:
        TypeError: If ``item`` is not an item.
    """
    kind: type[Any] = type(item)
    reader = _reader_of(kind)  # type: ignore[arg-type]  # as above
    if reader is None:
        raise TypeError(f"{kind.__name__} is not a type of item: {item!r}")
    return reader(item)


def field_names(kind: type[Any]) -> Collection[str]:
    """Return the names of the fields that an item class declares; empty for mappings, which accept any field."""
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    if attrs.has(kind):
        return [field.name for field in attrs.fields(kind)]
    for names in ("__struct_fields__", "model_fields", "__fields__"):
        if (found := getattr(kind, names, None)) is not None:
            return tuple(found)
    return ()


@lru_cache(maxsize=1024)
def _reader_of(kind: type[Any]) -> _Reader | None:
    """Return the function that reads the fields of an instance of ``kind``; None if ``kind`` is not an item type."""
    if issubclass(kind, MutableMapping):
        return dict
    if hasattr(kind, "__pydantic_fields__") and hasattr(kind, "model_fields"):
        return _read_pydantic
    if issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind) or attrs.has(kind):
        return _by_names(tuple(field_names(kind)))
    if hasattr(kind, "__validators__") and isinstance(getattr(kind, "__fields__", None), dict):
        return _read_pydantic_v1
    return None


def _by_names(names: tuple[str, ...]) -> _Reader:
    def read(item: object) -> dict[str, object]:
        fields = {name: getattr(item, name, msgspec.UNSET) for name in names}
        if msgspec.UNSET in fields.values():
            return {name: value for name, value in fields.items() if value is not msgspec.UNSET}
        return fields

    return read


def _read_pydantic(item: Any) -> dict[str, object]:
    names = type(item).model_fields
    return {name: getattr(item, name) for name in names} | (item.model_extra or {})


def _read_pydantic_v1(item: Any) -> dict[str, object]:
    return dict(item)


@lru_cache(maxsize=1024)
def field_metadata(kind: type[Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return the declared metadata of an item class's fields, by field name.

    The metadata are the keyword arguments of :class:`Field`, ``metadata`` of a dataclass or attrs field, and
    ``json_schema_extra`` of a pydantic field.
    """
    if issubclass(kind, Item):
        return kind.fields
    if dataclasses.is_dataclass(kind):
        return {field.name: field.metadata for field in dataclasses.fields(kind)}
    if attrs.has(kind):
        return {field.name: field.metadata for field in attrs.fields(kind)}
    extras = {name: field.json_schema_extra for name, field in getattr(kind, "__pydantic_fields__", {}).items()}
    return {name: extra for name, extra in extras.items() if isinstance(extra, Mapping)}


@attrs.frozen
class InvalidItem:
    """An item that failed validation. It goes only to feeds whose ``item_classes`` name this class.

    Attributes:
        url: URL of the item's page; "" for an item of ``start()``.
        error: The error and its location in the item.
        type: Name of the expected type.
        item: Fields of the item.
    """

    url: str
    error: str
    type: str
    item: dict[str, object]


class Field(dict[str, Any]):
    """A declared field. Its keyword arguments are kept for exporters and loaders."""


@cache
def _teach_itemadapter() -> None:
    """Make ``ItemAdapter(item)`` accept an :class:`Item`, as it accepts Scrapy's, if itemadapter is installed."""
    try:
        from itemadapter.adapter import ItemAdapter, ScrapyItemAdapter  # noqa: PLC0415 - for classes of items alone
    except ImportError:
        return

    class _Adapter(ScrapyItemAdapter):
        @classmethod
        def is_item(cls, item: Any) -> bool:
            return isinstance(item, Item)

        @classmethod
        def is_item_class(cls, item_class: type) -> bool:
            return issubclass(item_class, Item)

    ItemAdapter.ADAPTER_CLASSES = [_Adapter, *ItemAdapter.ADAPTER_CLASSES]


class ItemMeta(ABCMeta):
    """The metaclass of :class:`Item`. It moves the fields that a class declares to its attribute ``fields``.

    As in Scrapy, each class has a twin with only item classes as bases. Of two fields with one name, the inheritance
    between the twins decides. A :class:`Field` in a base class that is not an item class is not a field of the item.
    """

    _class: type

    def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any], **options: Any) -> ItemMeta:
        """Create an item class."""
        twins = tuple(base._class for base in bases if isinstance(base, ItemMeta))
        cell = body.pop("__classcell__", None)
        # Without the function for subclasses, because a subclass of the twin is not a subclass of this class.
        copied = {each: value for each, value in body.items() if each != "__init_subclass__"}
        twin: Any = super().__new__(mcs, f"x_{name}", twins, copied)
        found = [each for base in reversed(twin.__mro__) for each in vars(base) if isinstance(vars(base)[each], Field)]
        declared = {**getattr(twin, "fields", {}), **{each: getattr(twin, each) for each in found}}
        # Without the fields, because item.name would not read the value. So reading it is an error.
        own = {each: value for each, value in body.items() if not isinstance(value, Field)}
        own |= {"fields": declared, "_class": twin} | ({} if cell is None else {"__classcell__": cell})
        if twins:
            _teach_itemadapter()
        return super().__new__(mcs, name, bases, own, **options)


class Item(MutableMapping[str, Any], metaclass=ItemMeta):
    """A mapping that accepts only the fields that its class declares. As in Scrapy, it is not a dict.

    Two items with equal values are equal. An item is hashable by its identity, so that a set can hold it.

    ::

        class Quote(Item):
            text = Field()
            author = Field()

    Raises:
        KeyError: If a field is set that is not declared.

    Attributes:
        fields: The declared fields by name, with fields of base classes first.
    """

    fields: ClassVar[dict[str, Field]] = {}

    def __init__(self, *values: Any, **more: Any) -> None:
        self._values: dict[str, Any] = {}
        for name, value in dict(*values, **more).items():
            self[name] = value

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self.fields:
            raise KeyError(f"{type(self).__name__} does not support field: {name}")
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    __hash__ = object.__hash__

    def keys(self) -> KeysView[str]:
        """Return the names of the fields that have a value."""
        return self._values.keys()

    def copy(self) -> Self:
        """Return an item with the same fields. Values are not copied."""
        return type(self)(self)

    def deepcopy(self) -> Self:
        """Return an item with the same fields, and copies of their values."""
        return deepcopy(self)

    def __getattr__(self, name: str) -> NoReturn:
        if name in type(self).fields:
            raise AttributeError(f"use item[{name!r}] to get the field's value")
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            raise AttributeError(f"use item[{name!r}] = {value!r} to set a field's value")
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return pformat(dict(self))  # as in Scrapy: CSV cells, f-strings and messages contain this string
