"""AutoThrottle's arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.throttling.policy import AutoThrottle


def test_h02_a_host_starts_with_the_larger_of_the_two_delays() -> None:
    assert AutoThrottle().first_delay == 5.0
    assert AutoThrottle(min_delay=7.0).first_delay == 7.0
    assert AutoThrottle(max_delay=3.0).first_delay == 3.0


def test_h07_from_five_seconds_at_latency_02_it_closes_in_on_02() -> None:
    rule, delay, delays = AutoThrottle(), 5.0, []
    for _ in range(40):
        delay = rule.adjusted(delay, 0.2, is_healthy=True)
        delays.append(delay)
    assert delays[:4] == [pytest.approx(2.6), pytest.approx(1.4), pytest.approx(0.8), pytest.approx(0.5)]
    assert delays[-1] == pytest.approx(0.2)


def test_h03_h04_a_larger_target_is_taken_at_once() -> None:
    assert AutoThrottle(target_concurrency=2.0).adjusted(1.0, 6.0, is_healthy=True) == 3.0


def test_h06_the_delay_stays_within_its_bounds() -> None:
    rule = AutoThrottle(min_delay=1.0, max_delay=10.0)
    assert rule.adjusted(1.0, 0.01, is_healthy=True) == 1.0
    assert rule.adjusted(5.0, 99.0, is_healthy=True) == 10.0


@given(delay=st.floats(0.0, 60.0), latency=st.floats(0.0, 200.0), target=st.floats(0.1, 16.0))
def test_h05_r2_an_error_page_never_lowers_the_delay(delay: float, latency: float, target: float) -> None:
    rule = AutoThrottle(target_concurrency=target)
    assert rule.adjusted(delay, latency, is_healthy=False) >= delay


def test_h01_a_target_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="target_concurrency"):
        AutoThrottle(target_concurrency=0.0)


def test_h06_bounds_that_cross_are_refused() -> None:
    with pytest.raises(ValueError, match=r"min_delay \(2 s\) is above max_delay \(1 s\)"):
        AutoThrottle(min_delay=2.0, max_delay=1.0)
    assert AutoThrottle(min_delay=1.0, max_delay=1.0).adjusted(1.0, 9.0, is_healthy=True) == 1.0


def test_h01_the_longest_delay_is_a_minute() -> None:
    assert AutoThrottle().adjusted(5.0, 99.0, is_healthy=True) == 60.0


def test_h05_what_is_no_healthy_page_raises_the_delay_as_any_other_and_lowers_nothing() -> None:
    rule = AutoThrottle()
    assert rule.adjusted(1.0, 6.0, is_healthy=False) == rule.adjusted(1.0, 6.0, is_healthy=True) == 6.0
    assert rule.adjusted(1.0, 0.2, is_healthy=False) == 1.0
