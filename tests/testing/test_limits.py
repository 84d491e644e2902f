"""The token bucket of a simulated server."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.testing import RateLimit
from trawl.testing.limits import TokenBucket

NOW_UTC = datetime(2025, 1, 1, tzinfo=UTC)


def test_a_bucket_is_full_at_the_start_and_refuses_what_comes_after_the_burst() -> None:
    bucket = TokenBucket(RateLimit(rate=5, burst=5))
    assert [bucket.take(0.0) for _ in range(7)] == [True] * 5 + [False] * 2


def test_refused_requests_take_nothing() -> None:
    bucket = TokenBucket(RateLimit(rate=1, burst=1))
    assert bucket.take(0.0)
    assert not any(bucket.take(0.0 + step / 10) for step in range(1, 10))
    assert bucket.take(1.0)


@pytest.mark.parametrize("rate", [0.3, 1, 3, 5, 7, 50, 200])
def test_sends_at_exactly_the_rate_are_never_refused(rate: float) -> None:
    bucket = TokenBucket(RateLimit(rate=rate, burst=1))
    assert all(bucket.take(count / rate) for count in range(2000))


@given(
    rate=st.floats(0.1, 100),
    burst=st.integers(1, 20),
    gaps=st.lists(st.floats(0, 2), min_size=1, max_size=60),
)
def test_no_stretch_of_time_lets_more_through_than_burst_and_rate(rate: float, burst: int, gaps: list[float]) -> None:
    bucket = TokenBucket(RateLimit(rate=rate, burst=burst))
    now, taken = 0.0, []
    for gap in gaps:
        now += gap
        if bucket.take(now):
            taken.append(now)
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            assert last - first + 1 <= burst + rate * (taken[last] - taken[first]) + 1e-6


@given(rate=st.floats(0.1, 100), takes=st.integers(1, 10))
def test_a_request_after_the_wait_is_let_through(rate: float, takes: int) -> None:
    bucket = TokenBucket(RateLimit(rate=rate, burst=3))
    for _ in range(takes):
        bucket.take(0.0)
    wait = bucket.wait(0.0)
    assert (wait == 0.0) == (takes < 3)
    assert bucket.take(wait)


def test_a_rate_changes_on_the_way() -> None:
    bucket = TokenBucket(RateLimit(rate=1, burst=1, changes=[(20, 0.5), (10, 2)]))
    taken = [count / 10 for count in range(300) if bucket.take(count / 10)]
    gaps = {round(later - earlier, 9) for earlier, later in pairwise(taken) if earlier >= 10.5 and later <= 20}
    assert gaps == {0.5}
    assert [at for at in taken if at > 20.5] == [22.0, 24.0, 26.0, 28.0]


def test_a_rate_of_nothing_never_fills() -> None:
    bucket = TokenBucket(RateLimit(rate=0, burst=1, retry_after=True))
    assert bucket.take(0.0)
    assert bucket.wait(1e6) == math.inf
    assert not bucket.take(1e6)
    assert int(bucket.fields(1e6, NOW_UTC, is_refusal=True)["Retry-After"]) > 1e6


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (7, "7"),
        (1.5, "1.5"),
        ("soon", "soon"),
        (True, "3"),
        ("date", "Wed, 01 Jan 2025 00:00:03 GMT"),
    ],
)
def test_d01_d02_a_refusal_says_when_to_come_back(given: float | str | bool, sent: str) -> None:
    bucket = TokenBucket(RateLimit(rate=0.4, burst=1, retry_after=given))
    bucket.take(0.0)
    assert bucket.fields(0.0, NOW_UTC, is_refusal=True) == {"Retry-After": sent}
    assert bucket.fields(0.0, NOW_UTC, is_refusal=False) == {}


@pytest.mark.parametrize(
    ("dialect", "fields"),
    [
        ("draft-03", {"RateLimit-Limit": "10, 10;w=5", "RateLimit-Remaining": "8", "RateLimit-Reset": "1"}),
        ("draft-07", {"RateLimit": "limit=10, remaining=8, reset=1", "RateLimit-Policy": "10;w=5"}),
        ("draft-10", {"RateLimit-Policy": '"default";q=10;w=5', "RateLimit": '"default";r=8;t=1'}),
        ("x-ratelimit", {"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "8", "X-RateLimit-Reset": "1"}),
        (
            "x-ratelimit-epoch",
            {"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "8", "X-RateLimit-Reset": "1735689601"},
        ),
        ("x-rate-limit", {"X-Rate-Limit-Limit": "10", "X-Rate-Limit-Remaining": "8", "X-Rate-Limit-Reset": "1"}),
    ],
)
def test_d14_every_dialect_is_spoken(dialect: str, fields: dict[str, str]) -> None:
    bucket = TokenBucket(RateLimit(rate=2, burst=10, headers=dialect))
    bucket.take(0.0)
    bucket.take(0.0)
    assert bucket.fields(0.0, NOW_UTC, is_refusal=False) == fields


def test_headers_given_as_they_are_come_with_refusals_only() -> None:
    bucket = TokenBucket(RateLimit(rate=1, headers={"X-Why": "too many"}))
    assert bucket.fields(0.0, NOW_UTC, is_refusal=False) == {}
    assert bucket.fields(0.0, NOW_UTC, is_refusal=True) == {"X-Why": "too many"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": -1},
        {"rate": math.inf},
        {"rate": 1, "burst": 0.5},
        {"rate": 1, "status": 99},
        {"rate": 1, "headers": "draft-99"},
        {"rate": 1, "latency": -1},
        {"rate": 1, "changes": [(-1, 2)]},
    ],
)
def test_a_limit_out_of_range_is_refused_when_it_is_made(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 each has words of its own
        RateLimit(**wrong)  # type: ignore[arg-type]
