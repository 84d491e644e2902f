"""Attributes of Scrapy's objects that trawl's don't have: asking for one says what to use.

An :class:`Absent` stands in a class under the name. It is no attribute: ``hasattr`` says so, and an instance, or a
class below, may have one of its own of this name. Type checkers are not shown it, and go on refusing the name.
"""

from __future__ import annotations

from typing import NoReturn

__all__ = ["Absent"]


class Absent:
    """What stands where Scrapy has an attribute.

    Args:
        words: What to use, as the end of a sentence.
    """

    __slots__ = ("_name", "words")

    def __init__(self, words: str) -> None:
        self.words: str = words
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(f"{owner.__name__} has no {self._name}, which is Scrapy's: {self.words}")
