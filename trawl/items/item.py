"""Items with declared fields, as Scrapy has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any, ClassVar, NoReturn, Self

__all__ = ["Field", "Item"]


class Field(dict[str, Any]):
    """A declared field; what it is given by name is kept for whoever asks (exporters, loaders)."""


class Item(dict[str, Any]):
    """A dict that takes only the fields that its class declares.

    ::

        class Quote(Item):
            text = Field()
            author = Field()

    Raises:
        KeyError: on setting a field that is not declared.

    Attributes:
        fields: The declared fields by name, those of base classes first.
    """

    fields: ClassVar[dict[str, Field]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        declared: dict[str, Field] = {}
        for base in reversed(cls.__mro__):
            declared.update(vars(base).get("fields", {}))
            declared.update({name: value for name, value in vars(base).items() if isinstance(value, Field)})
        for name in [name for name, value in vars(cls).items() if isinstance(value, Field)]:
            delattr(cls, name)  # so that item.name is an error, as it never reads the value
        cls.fields = declared

    def __init__(self, values: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), /, **more: Any) -> None:
        super().__init__()
        self.update(values, **more)

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self.fields:
            raise KeyError(f"{type(self).__name__} does not support field: {name}")
        super().__setitem__(name, value)

    def update(self, values: Any = (), /, **more: Any) -> None:
        """Set several fields, each checked."""
        for name, value in dict(values, **more).items():
            self[name] = value

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Set a field unless it is set; return its value."""
        if name not in self:
            self[name] = default
        return self[name]

    def __ior__(self, values: Any) -> Self:  # type: ignore[misc,override]
        self.update(values)
        return self

    def copy(self) -> Self:
        """Return an item with the same fields; values are not copied."""
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
        return f"{type(self).__name__}({dict(self)!r})"
