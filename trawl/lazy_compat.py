"""Hints for code that was written for Scrapy, for the packages that meet its names.

The hints are functions of :mod:`trawl.compat`, which uses these packages and so stands above them. They are found here
under the same names, lazily: the package is loaded by its own name when a hint is first asked for, as plugins are.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from trawl.compat import (
        MOVED_DEFAULTS,
        MOVED_UNUSED,
        class_advice,
        disabled_by,
        hint,
        hint_of_file,
        is_disabled,
        is_foreign_setting,
        is_moved,
        key_advice,
        plugin_advice,
        renamed,
        setting_advice,
    )
else:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module("trawl.compat"), name)


__all__ = [
    "MOVED_DEFAULTS",
    "MOVED_UNUSED",
    "Unsupported",
    "class_advice",
    "disabled_by",
    "hint",
    "hint_of_file",
    "is_disabled",
    "is_foreign_setting",
    "is_moved",
    "key_advice",
    "plugin_advice",
    "renamed",
    "setting_advice",
    "submodule",
]


def submodule(module: str, name: str) -> Any:
    """Return :func:`trawl.compat.submodule`, for a module's ``__getattr__``; private names load no hints.

    Raises:
        AttributeError: There is no such name.
    """
    if name.startswith("_"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return import_module("trawl.compat").submodule(module, name)


class Unsupported:
    """An attribute of Scrapy's class that trawl's does not have: asking for it raises an error that says what to use.

    It stands in a class under the attribute's name. ``hasattr`` says False, and an instance or a subclass may have an
    attribute of this name. Classes hide it from type checkers (``if not TYPE_CHECKING``), which then report the name.

    Args:
        words: What to use instead, as the end of a sentence.
    """

    __slots__ = ("_name", "words")

    def __init__(self, words: str) -> None:
        self.words: str = words
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(f"{owner.__name__} has no {self._name}, which is Scrapy's: {self.words}")
