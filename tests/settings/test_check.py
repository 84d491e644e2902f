from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from trawl.errors import SettingsError
from trawl.settings.check import checked, nearest

Positive = Annotated[float, Meta(ge=0)]
Pair = Annotated[list[float], Meta(min_length=2, max_length=2)]


class Limits(TypedDict, total=False):
    concurrency: Annotated[int, Meta(ge=1)]
    delay: Positive


class Whole(TypedDict):
    name: str
    delay: Positive


class Strict(Struct):
    codes: list[int] = []

    def __post_init__(self) -> None:
        if len(self.codes) > 2:
            raise ValueError("too many codes")


@pytest.mark.parametrize(
    ("given_value", "annotation", "value"),
    [
        (1, float, 1.0),
        ((500, 502), list[int], [500, 502]),
        ({500}, list[int], [500]),
        ({"a": {"delay": 1}}, dict[str, Limits], {"a": {"delay": 1.0}}),
        (None, str | None, None),
        (SettingsError, object, SettingsError),
        ([0.5, 1], bool | float | list[float], [0.5, 1.0]),
        ([1, 3], Positive | tuple[Positive, Positive], (1.0, 3.0)),
        (["a", 1], object, ["a", 1]),
        ({SettingsError: 300}, dict[Any, int], {SettingsError: 300}),
        (Strict(), Strict, Strict()),
    ],
)
def test_what_fits_is_converted(given_value: object, annotation: Any, value: object) -> None:
    assert checked(given_value, annotation, "NAME") == value


@pytest.mark.parametrize(
    ("given_value", "annotation", "sentence"),
    [
        ("1", float, "NAME must be a number, not '1'"),
        (True, int, "NAME must be a whole number, not True"),
        (-1, Positive, "NAME must be a number, at least 0, not -1"),
        (float("nan"), float, "NAME must be a finite number, not nan"),
        (float("inf"), Positive, "NAME must be a finite number, not inf"),
        ([500, "x"], list[int], "NAME[1] must be a whole number, not 'x'"),
        (3, str | None, "NAME must be a string or null, not 3"),
        ({"api": {"delay": "x"}}, dict[str, Limits], "NAME['api']['delay'] must be a number, at least 0, not 'x'"),
        ({"api": 3}, dict[str, Limits], "NAME['api'] must be a mapping, not 3"),
        ({3: {}}, dict[str, Limits], "the key 3 of NAME must be a string, not 3"),
        ({"codes": ["x"]}, Strict, "NAME['codes'][0] must be a whole number, not 'x'"),
        ({"codes": ["x"]}, bool | Strict, "NAME['codes'][0] must be a whole number, not 'x'"),
        ({"a": {"codes": [1, 2, 3]}}, dict[str, Strict], "NAME['a']: too many codes"),
        ([1], tuple[float, float], "NAME must have 2 values, not [1]"),
        ([1, 2, 3], Pair, "NAME must be a list of numbers, 2 of them, not [1.0, 2.0, 3.0]"),
        ([1, "x"], Positive | tuple[Positive, Positive], "NAME[1] must be a number, at least 0, not 'x'"),
        ({"delay": 1}, Whole, "NAME lacks the key 'name'"),
        ("x" * 99, int, "NAME must be a whole number, not '" + "x" * 58 + "…"),
    ],
)
def test_what_does_not_fit_is_refused_by_the_innermost_name(
    given_value: object, annotation: Any, sentence: str
) -> None:
    """I03."""
    with pytest.raises(SettingsError) as caught:
        checked(given_value, annotation, "NAME")
    assert str(caught.value) == sentence


def test_an_unknown_key_is_refused_with_the_nearest_one() -> None:
    """I03, I04."""
    with pytest.raises(
        SettingsError, match=r"NAME\['api'\] has an unknown key 'dely'; did you mean 'delay'\?"
    ) as caught:
        checked({"api": {"dely": 1}}, dict[str, Limits], "NAME")
    assert caught.value.name == "NAME['api']['dely']"


def test_an_unknown_key_like_no_other_gets_the_list_of_keys() -> None:
    with pytest.raises(SettingsError, match="unknown key 'xyz'; known are concurrency, delay"):
        checked({"xyz": 1}, Limits, "NAME")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
def test_any_value_is_taken_or_refused_in_one_line(value: object) -> None:
    try:
        taken: list[float] | str | None = checked(value, list[Positive] | None, "NAME")
    except SettingsError as error:
        taken = str(error)
    assert taken is None or "\n" not in taken


def test_the_nearest_name_is_found_in_any_case() -> None:
    names = ["DOWNLOAD_DELAY", "DOWNLOAD_TIMEOUT", "USER_AGENT"]
    assert nearest("download_dely", names) == "DOWNLOAD_DELAY"
    assert nearest("XYZZY", names) == ""
