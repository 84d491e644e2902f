from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.observe import counted, duration_words, number_words, rate_words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0.0 s"),
        (-1, "0.0 s"),
        (0.42, "0.4 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (3599.7, "1 h"),
        (7500, "2 h 5 min"),
        (97200, "1 d 3 h"),
        (math.inf, "for ever"),
    ],
)
def test_durations_are_said_in_their_two_largest_units(seconds: float, words: str) -> None:
    assert duration_words(seconds) == words


@given(st.floats(0, 1e9))
def test_no_part_of_a_duration_reaches_the_next_unit(seconds: float) -> None:
    words = duration_words(seconds).split()
    limits = {"s": 60, "min": 60, "h": 24}
    assert all(float(n) < limits.get(unit, math.inf) for n, unit in zip(words[::2], words[1::2], strict=True))


@pytest.mark.parametrize(("rate", "words"), [(0, "0.0/s"), (0.05, "0.05/s"), (20.06, "20.1/s"), (1234.5, "1,234/s")])
def test_rates_keep_the_figures_that_matter(rate: float, words: str) -> None:
    assert rate_words(rate) == words


def test_thousands_are_told_apart() -> None:
    assert number_words(1234567) == "1,234,567"
    assert [counted(n, "page") for n in (0, 1, 1234)] == ["0 pages", "1 page", "1,234 pages"]
