from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trawl.throttling.limits import Limits, RandomStream
from trawl.throttling.scope import Scope


def test_a_stream_is_the_same_for_the_same_seed_and_scope_in_every_process() -> None:
    # A20: written down, because PYTHONHASHSEED and the order of other hosts must not matter
    stream = RandomStream(0, "a.example")
    assert [round(stream.draw(), 6) for _ in range(3)] == [0.709537, 0.927693, 0.070347]


def test_streams_of_other_scopes_and_seeds_differ() -> None:
    draws = {RandomStream(seed, id).draw() for seed in (0, 1, "x") for id in ("a.example", "b.example")}
    assert len(draws) == 6


def test_draws_fill_the_range_evenly() -> None:
    stream = RandomStream("seed", "a.example")
    draws = [stream.draw() for _ in range(10_000)]
    assert all(0.0 <= drawn < 1.0 for drawn in draws)
    tenths = [sum(low <= 10 * drawn < low + 1 for drawn in draws) for low in range(10)]
    assert min(tenths) > 850
    assert max(tenths) < 1150


@given(low=st.floats(0.0, 1.0), high=st.floats(1.0, 3.0), seed=st.integers())
def test_an_interval_stays_within_its_jitter(low: float, high: float, seed: int) -> None:
    # A17 A18 A19
    scope = Scope("a.example", Limits(delay=1.0, jitter=(low, high)), seed=seed)
    assert low <= scope.interval() <= high
