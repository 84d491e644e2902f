from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.cookies.cookie import parse_cookie_date


@pytest.mark.parametrize(
    "text",
    [
        "Wed, 09 Jun 2021 10:18:14 GMT",
        "Wednesday, 09-Jun-21 10:18:14 GMT",
        "Wed Jun  9 10:18:14 2021",
        "9 June 2021 10:18:14",
        "10:18:14 2021 jun 09 whatever",
    ],
)
def test_every_spelling_of_a_date_is_read_rfc_6265_5_1_1(text: str) -> None:
    assert parse_cookie_date(text) == datetime(2021, 6, 9, 10, 18, 14, tzinfo=UTC)


@pytest.mark.parametrize(("year", "full"), [("69", 2069), ("70", 1970), ("99", 1999), ("00", 2000)])
def test_years_of_two_digits_are_of_this_age(year: str, full: int) -> None:
    moment = parse_cookie_date(f"09 Jun {year} 10:18:14")
    assert moment is not None
    assert moment.year == full


@pytest.mark.parametrize(
    "text", ["", "tomorrow", "31 Feb 2021 10:00:00", "09 Jun 2021", "09 Jun 2021 25:00:00", "09 Jun 1500 10:00:00"]
)
def test_what_is_no_date_is_none(text: str) -> None:
    assert parse_cookie_date(text) is None


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    moment = parse_cookie_date(text)
    assert moment is None or moment.tzinfo is UTC
