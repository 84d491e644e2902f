"""Advice for code that was written for Scrapy, as the packages that meet its names may ask for it.

The advice itself is in :mod:`trawl.compat`, which uses these packages and so stands above them. :func:`advisor` loads
it by its name when it is first asked for, as plugins are loaded: a crawl that meets no such name does not need it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NoReturn, Protocol

__all__ = ["Absent", "Advisor", "FileAdvice", "advisor"]


class FileAdvice(Protocol):
    """Advice on the imports of one file; its text is one sentence."""

    @property
    def places(self) -> tuple[tuple[str, int, str], ...]:
        """The file, the line and the advice of each change."""
        ...


class Advisor(Protocol):
    """Advice on the names of another framework; "" and None stand for names that are not its own."""

    def hint(self, error: BaseException, /) -> FileAdvice | None:
        """Advice on the file whose import failed with ``error``."""
        ...

    def hint_of_file(self, path: str, /) -> FileAdvice | None:
        """Advice on the imports of a file."""
        ...

    def class_advice(self, path: str, /) -> str:
        """What to use instead of a class that a setting names by its import path."""
        ...

    def setting_advice(self, name: str, /) -> str:
        """What to use instead of a setting that has no effect here."""
        ...

    def key_advice(self, path: str, key: object, /) -> str:
        """What to use instead of a key inside the mapping that messages call ``path``."""
        ...

    def is_foreign_setting(self, name: str, /) -> bool:
        """Whether the name is one of the framework's settings, ignored or renamed."""
        ...

    def renamed(self, values: Mapping[str, object], /) -> Mapping[str, object]:
        """The values of one source under trawl's names."""
        ...


def advisor() -> Advisor:
    """Return the advice of :mod:`trawl.compat`."""
    module: Any = import_module("trawl.compat")
    return module  # type: ignore[no-any-return]  # its functions are those of the protocol


class Absent:
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
