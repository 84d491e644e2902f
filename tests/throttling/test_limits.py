"""Defaults and overrides, merged."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.throttling.limits import Limits, jitter_factors, limits_of
from trawl.throttling.settings import ThrottlingSettings

SETTINGS = ThrottlingSettings(download_delay=2.0, download_delay_per_slot=3.0, concurrent_requests_per_domain=4)


@pytest.mark.parametrize(
    ("value", "factors"),
    [
        (True, (0.5, 1.5)),
        (False, (1, 1)),
        (0, (1, 1)),
        (0.25, (0.75, 1.25)),
        ([-0.1, 0.3], (0.9, 1.3)),
        ((0, 1), (1, 2)),
    ],
)
def test_a17_a18_a19_a_jitter_is_true_false_a_number_or_a_pair(value: Any, factors: tuple[float, float]) -> None:
    assert jitter_factors(value) == pytest.approx(factors)


@pytest.mark.parametrize("value", [1.5, -0.1, [0.3, -0.1], [-2, 0], [0, math.inf]])
def test_a18_a19_a_negative_factor_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="jitter"):
        jitter_factors(value)


def test_e20_i10_a_host_inherits_the_defaults_and_any_other_scope_is_unlimited() -> None:
    assert limits_of({}, SETTINGS, is_host=True) == Limits(
        concurrency=4, delay=2.0, delay_per_slot=3.0, jitter=(0.5, 1.5), window=60.0
    )
    other = limits_of({}, SETTINGS, is_host=False)
    assert (other.concurrency, other.delay, other.delay_per_slot, other.quota) == (math.inf, 0, 0, math.inf)


def test_a15_a_delay_leaves_the_delay_per_slot_at_its_default() -> None:
    limits = limits_of({"concurrency": 16, "delay": 0.0}, SETTINGS, is_host=True)
    assert (limits.concurrency, limits.delay, limits.delay_per_slot) == (16, 0.0, 3.0)


def test_i06_a_rate_is_a_delay_without_slots() -> None:
    limits = limits_of({"rate": 4}, SETTINGS, is_host=True)
    assert (limits.concurrency, limits.delay, limits.delay_per_slot) == (math.inf, 0.25, 0.0)
    assert limits_of({"rate": 4, "concurrency": 2}, SETTINGS, is_host=True).concurrency == 2


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "concurrency": st.integers(1, 99),
            "delay": st.floats(0, 99),
            "delay_per_slot": st.floats(0, 99),
            "quota": st.floats(0.1, 99),
            "window": st.floats(0, 99),
            "sliding": st.booleans(),
        },
    ),
    st.booleans(),
)
def test_a13_a15_a16_each_key_replaces_its_own_default_and_no_other(config: dict[str, Any], is_host: bool) -> None:
    merged, plain = limits_of(config, SETTINGS, is_host=is_host), limits_of({}, SETTINGS, is_host=is_host)
    for key in ("concurrency", "delay", "delay_per_slot", "quota", "window", "sliding"):
        assert getattr(merged, key) == config.get(key, getattr(plain, key))
