from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct

from trawl.settings.check import range_words, short, type_words


class Part(Struct):
    n: int = 0


@pytest.mark.parametrize(
    ("annotation", "words", "limits"),
    [
        (bool, "true or false", ""),
        (Annotated[float, Meta(ge=0)], "a number", "at least 0"),
        (Annotated[float, Meta(gt=0, le=1)], "a number", "above 0, at most 1"),
        (Annotated[int, Meta(lt=9)] | None, "a whole number or null", "below 9"),
        (list[Annotated[int, Meta(ge=100)]], "a list of whole numbers", "each at least 100"),
        (Annotated[list[float], Meta(min_length=2, max_length=2)], "a list of numbers", "2 of them"),
        (Annotated[list[float], Meta(min_length=1)], "a list of numbers", "1 of them or more"),
        (Annotated[list[float], Meta(max_length=3)], "a list of numbers", "3 of them at most"),
        (tuple[float, float], "a list of a number and a number", ""),
        (tuple[str, ...], "a list of strings", ""),
        (dict[str, int], "a mapping of strings to whole numbers", ""),
        (dict[str, list[int]], "a mapping of strings to lists of whole numbers", ""),
        (dict[object, int], "a mapping of classes or import paths to whole numbers", ""),
        (dict[str, Any], "a mapping of strings to anything", ""),
        (Literal["a", "b"], "one of a, b", ""),
        (Part | bool, "a mapping or true or false", ""),
        (Annotated[int, Meta(multiple_of=2)], "a whole number", "a multiple of 2"),
        (Annotated[str, Meta(pattern="^a")], "a string", "matching ^a"),
    ],
)
def test_types_and_limits_have_words(annotation: Any, words: str, limits: str) -> None:
    assert (type_words(annotation), range_words(annotation)) == (words, limits)


def test_a_class_is_shown_by_its_name() -> None:
    assert short(Part) == "Part"
