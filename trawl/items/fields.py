"""Items of every kind, seen as fields.

An item is a dict (or another mutable mapping), or an instance of a dataclass, an attrs class, a pydantic model (of
either version) or a msgspec Struct. How a class keeps its fields is found once a class, by what it has, so that no
library is imported for it: itemadapter, which does the same, imports pydantic and Scrapy where they are installed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, MutableMapping
from functools import lru_cache
from typing import Any

import attrs
import msgspec

__all__ = ["is_item", "is_item_type", "item_fields"]

_Reader = Callable[[Any], dict[str, object]]


def is_item(thing: object) -> bool:
    """Say whether ``thing`` is an item; requests, None, text, numbers, lists and classes are not."""
    kind: type[Any] = type(thing)
    return kind is dict or _reader_of(kind) is not None  # type: ignore[arg-type]  # mypy: a class has no hash of its own


def is_item_type(kind: type[Any]) -> bool:
    """Say whether the instances of a class are items."""
    return _reader_of(kind) is not None  # type: ignore[arg-type]  # as above


def item_fields(item: object) -> dict[str, object]:
    """Return the fields of ``item`` in their order, as a dict of its own; values are not copied.

    Fields without a value (a ``msgspec.UNSET``, a slot never filled) are left out.

    Raises:
        TypeError: ``item`` is no item.
    """
    kind: type[Any] = type(item)
    reader = _reader_of(kind)  # type: ignore[arg-type]  # as above
    if reader is None:
        raise TypeError(f"{kind.__name__} is no item: {item!r}")
    return reader(item)


@lru_cache(maxsize=1024)
def _reader_of(kind: type[Any]) -> _Reader | None:
    """Return what reads the fields of an instance of ``kind``; None if it has none."""
    if issubclass(kind, dict | MutableMapping):
        return dict
    if issubclass(kind, msgspec.Struct):
        return _by_names(kind.__struct_fields__)
    if hasattr(kind, "__pydantic_fields__") and hasattr(kind, "model_fields"):
        return _read_pydantic
    if dataclasses.is_dataclass(kind):
        return _by_names(tuple(field.name for field in dataclasses.fields(kind)))
    if attrs.has(kind):
        return _by_names(tuple(field.name for field in attrs.fields(kind)))
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
