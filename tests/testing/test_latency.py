"""How long something takes on the simulated wire."""

from __future__ import annotations

import math
import random
import statistics

import attrs
import pytest

from trawl import http
from trawl.testing import LogNormal, Uniform
from trawl.testing.hosts import Latency, check_latency, draw_seconds

REQUEST = http.Request("http://a.example/seven")


@attrs.frozen
class Timed:
    latency: Latency = attrs.field(validator=check_latency)


def test_a_number_is_what_it_says() -> None:
    assert draw_seconds(0.3, REQUEST, random.Random(0)) == 0.3


def test_a_function_sees_the_request() -> None:
    assert draw_seconds(lambda request: 0.1 * len(request.url), REQUEST, random.Random(0)) == pytest.approx(2.2)


@pytest.mark.parametrize("drawn", [-1.0, math.inf, math.nan, None, "1"])
def test_a_function_that_gives_no_time_is_named(drawn: object) -> None:
    def odd(request: http.Request) -> float:
        return drawn  # type: ignore[return-value]

    with pytest.raises(ValueError, match="odd returned"):
        draw_seconds(odd, REQUEST, random.Random(0))


def test_uniform_stays_between_its_ends() -> None:
    generator = random.Random(1)
    drawn = [Uniform(0.1, 0.4).draw(generator) for _ in range(1000)]
    assert 0.1 <= min(drawn) < 0.12
    assert 0.38 < max(drawn) <= 0.4


def test_half_of_lognormal_is_above_the_median() -> None:
    generator = random.Random(1)
    drawn = [LogNormal(0.2, 0.5).draw(generator) for _ in range(2000)]
    assert statistics.median(drawn) == pytest.approx(0.2, rel=0.1)
    assert max(drawn) > 0.6


@pytest.mark.parametrize(("low", "high"), [(-1, 1), (2, 1), (0, math.inf)])
def test_uniform_refuses_ends_the_wrong_way_round(low: float, high: float) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 each has words of its own
        Uniform(low, high)


@pytest.mark.parametrize("wrong", [-0.1, math.inf, math.nan])
def test_a_time_that_is_none_is_refused_when_the_value_is_made(wrong: float) -> None:
    with pytest.raises(ValueError, match="latency"):
        Timed(wrong)


@pytest.mark.parametrize("wrong", ["0.1", True, None])
def test_what_is_no_law_is_refused_when_the_value_is_made(wrong: object) -> None:
    with pytest.raises(TypeError, match="latency"):
        Timed(wrong)  # type: ignore[arg-type]
