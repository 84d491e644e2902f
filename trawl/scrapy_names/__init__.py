"""Scrapy's names: their places in trawl, and advice on names that trawl does not have.

The package contains tables and messages for every package that encounters such a name. Its modules are loaded on first
use. Importing a native spider loads none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from trawl.scrapy_names import imports, moved, names, settings
else:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f"{__name__}.{name}")


__all__ = ["Unsupported", "imports", "moved", "names", "settings", "submodule"]


def submodule(module: str, name: str) -> Any:
    """Return :func:`trawl.scrapy_names.names.submodule`; AttributeError if none. Private names load nothing."""
    if name.startswith("_"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return import_module("trawl.scrapy_names.names").submodule(module, name)


class Unsupported:
    """An attribute that only Scrapy's class has. Reading the attribute raises an error that names a replacement.

    The object is a class attribute with the name of the missing attribute. ``hasattr`` returns False, and an instance
    or a subclass may have an attribute of this name. Classes define it inside ``if not TYPE_CHECKING``, so that type
    checkers report the name.

    Args:
        words: The replacement, as the end of a sentence.
    """

    __slots__ = ("_name", "words")

    def __init__(self, words: str) -> None:
        self.words: str = words
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(f"{owner.__name__} has no {self._name}, which is Scrapy's: {self.words}")
