"""What servers' headers say, a table for each dialect, and fuzz."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.http import Headers
from trawl.throttling.hints import HEADER_FORMATS, hint_of

NOW = datetime(2025, 1, 1, 12, 0, 0, tzinfo=UTC)
EPOCH = int(NOW.timestamp())


def delay_of(headers: Mapping[str, str | list[str]]) -> float | None:
    hint = hint_of(Headers(headers), NOW)
    return None if hint is None else hint.delay


@pytest.mark.parametrize(
    ("value", "delay"),
    [
        ("7", 7),
        (" 7 ", 7),
        ("007", 7),
        ("Wed, 01 Jan 2025 12:00:09 GMT", 9),
        ("Wednesday, 01-Jan-25 12:00:09 GMT", 9),
        ("Wed Jan  1 12:00:09 2025", 9),
        ("Wed, 01 Jan 2025 12:00:09", 9),  # D02: without a zone it is UTC
        ("Wed, 01 Jan 2025 13:00:09 +0100", 9),
    ],
)
def test_d01_d02_retry_after_is_whole_seconds_or_a_date(value: str, delay: float) -> None:
    assert delay_of({"Retry-After": value}) == delay


@pytest.mark.parametrize(
    "value",
    [
        "0",
        "-3",
        "+3",
        "3.5",
        "7.0",
        "1e3",
        "soon",
        "",
        "7 s",
        "7,",
        "\u0667",
        "0x10",
        "9" * 400,
        "Wed, 01 Jan 2025 11:59:59 GMT",
        "Wed, 99 Jan 2025 12:00:09 GMT",
        "2025-01-01T12:00:09Z",
        "Wed, 01 Jan 2025 12:00:00 GMT",
        "Wed, 01 Foo 2025 12:00:09 GMT",
    ],
)
def test_d02_r1_garbage_zero_fractions_and_the_past_count_as_absent(value: str) -> None:
    headers = Headers.from_wire([(b"Retry-After", value.encode("utf-8"))])
    assert hint_of(headers, NOW) is None


@pytest.mark.parametrize(
    ("headers", "delay"),
    [
        # D03, drafts 00-06
        ({"RateLimit-Reset": "30"}, 30),
        ({"RateLimit-Limit": "100, 100;w=60", "RateLimit-Remaining": "9", "RateLimit-Reset": "30"}, 30),
        ({"RateLimit-Reset": "-1"}, None),
        ({"RateLimit-Reset": "30.5"}, None),
        # draft 07
        ({"RateLimit": "limit=100, remaining=50, reset=30", "RateLimit-Policy": "100;w=60"}, 30),
        ({"RateLimit": "limit=100,remaining=0,reset=12"}, 12),
        ({"RateLimit": "limit=100, remaining=50"}, None),
        ({"RateLimit": "limit=100, remaining=50, reset=x"}, None),
        # drafts 08-11
        ({"RateLimit-Policy": '"burst";q=100;w=60, "day";q=9000;w=86400', "RateLimit": '"burst";r=50;t=30'}, 30),
        ({"RateLimit": '"burst";r=0;t=30, "day";r=0;t=3000'}, 3000),
        ({"RateLimit": '"burst";r=0;t=30, "day";r=900;t=3000'}, 30),
        ({"RateLimit": '"burst";r=5;t=30, "day";r=900;t=3000'}, 30),
        ({"RateLimit": '"a, \\"b\\";t=9";r=0;t=8'}, 8),
        ({"RateLimit": '"burst";t=30;r=0;pk=:cHNsZWVw:'}, 30),
        ({"RateLimit": '"burst";r=0'}, None),
        ({"RateLimit": '"burst";r=0;t=30, ???'}, None),
        # vendors
        ({"X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "17"}, 17),
        ({"X-RateLimit-Reset": str(EPOCH + 45)}, 45),
        ({"X-RateLimit-Reset": str(EPOCH - 45)}, None),
        ({"X-Rate-Limit-Reset": "8"}, 8),
        ({"X-Rate-Limit-Reset": str(EPOCH + 8)}, 8),
        ({"X-RateLimit-Reset": "10, 99", "X-RateLimit-Remaining": "0, 5"}, 10),
        ({"X-RateLimit-Reset": "10, 99", "X-RateLimit-Remaining": "3, 5"}, 10),
        ({"X-RateLimit-Reset": "10, 99", "X-RateLimit-Remaining": "0, 0"}, 99),
        # D04: the larger
        ({"Retry-After": "7", "RateLimit-Reset": "30"}, 30),
        ({"Retry-After": "70", "RateLimit-Reset": "30"}, 70),
        ({"Retry-After": "junk", "RateLimit-Reset": "30"}, 30),
        ({}, None),
    ],
)
def test_d03_d04_d14_every_dialect_is_read(headers: Mapping[str, str], delay: float | None) -> None:
    assert delay_of(headers) == delay


@pytest.mark.parametrize(
    "headers",
    [
        {"RateLimit": '"burst";t=5, "day";t=9'},
        {"RateLimit": '"burst";r=1;t=5, "day";t=9, "month";r=3;t=20'},
        {"RateLimit-Reset": "5, 9", "RateLimit-Remaining": "1"},
    ],
)
def test_d14_what_is_not_told_to_remain_is_nothing_that_remains(headers: Mapping[str, str]) -> None:
    assert delay_of(headers) == 9  # it was refused: some policy is spent


def test_d14_several_lines_of_a_field_are_one_list() -> None:
    assert delay_of({"RateLimit": ['"a";r=0;t=5', '"b";r=0;t=9']}) == 9
    assert delay_of({"Retry-After": ["5", "9"]}) == 9


def test_i11_a_hint_names_the_header_that_it_comes_from() -> None:
    hint = hint_of(Headers({"Retry-After": "7", "X-RateLimit-Reset": "9"}), NOW)
    assert hint is not None
    assert hint.header == "X-RateLimit-Reset: 9"


@given(st.integers(min_value=1, max_value=10**6))
def test_d02_r7_a_date_means_the_seconds_from_now(seconds: int) -> None:
    date = format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)
    assert delay_of({"Retry-After": date}) == seconds


@given(
    st.dictionaries(
        st.sampled_from(
            sorted({name for d in HEADER_FORMATS for name in (d.header, d.second) if name} | {"RateLimit-Policy"})
        ),
        st.text(alphabet='0123456789abcrtw";=,. -+:\\?GMTJanWed\x80ÿ', max_size=60),
    )
)
def test_d02_no_header_whatever_makes_trouble_or_a_wish_that_is_none(headers: dict[str, str]) -> None:
    wire = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    hint = hint_of(Headers.from_wire(wire), NOW)
    assert hint is None or hint.delay > 0
