"""Hints for code that was written for Scrapy, for the packages that meet its names.

The hints themselves are in :mod:`trawl.compat`, which uses these packages and so stands above them.
:func:`migration_hints` loads it by its name when a hint is first asked for, as plugins are loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NoReturn, Protocol

__all__ = ["FileHint", "MigrationHints", "Unsupported", "migration_hints"]


class FileHint(Protocol):
    """Advice on the imports of one file; its text is one sentence."""

    @property
    def places(self) -> tuple[tuple[str, int, str], ...]:
        """The file, the line and the advice of each change."""
        ...


class MigrationHints(Protocol):
    """Advice on Scrapy's names; "" or None for any other name. The functions of :mod:`trawl.compat`."""

    def hint(self, error: BaseException, /) -> FileHint | None:
        """Return advice on the file whose import failed with ``error``."""
        ...

    def hint_of_file(self, path: str, /) -> FileHint | None:
        """Return advice on the imports of a file."""
        ...

    def class_advice(self, path: str, /) -> str:
        """Return advice on a class that a setting names by its import path."""
        ...

    def setting_advice(self, name: str, /) -> str:
        """Return advice on a setting that has no effect here."""
        ...

    def key_advice(self, path: str, key: object, /) -> str:
        """Return advice on a key inside the mapping that messages call ``path``."""
        ...

    def is_foreign_setting(self, name: str, /) -> bool:
        """Return whether the name is one of Scrapy's settings that trawl ignores or renames."""
        ...

    def renamed(self, values: Mapping[str, object], /) -> Mapping[str, object]:
        """Return the values of one source under trawl's names."""
        ...


def migration_hints() -> MigrationHints:
    """Return the advice of :mod:`trawl.compat`."""
    module: Any = import_module("trawl.compat")
    return module  # type: ignore[no-any-return]  # its functions are those of the protocol


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
