"""C12: how long each request was queued, and how long throttled, as the choice knows it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.scheduler.rig import Rig
from trawl.scheduler.attempt import Attempt
from trawl.throttling.limits import Limits

SLOW = Limits(concurrency=1, delay=3.0)


def void(attempt: Attempt) -> None:
    """Something that happens, without a result."""


def waits(*attempts: Attempt) -> list[tuple[float, float]]:
    """Of each attempt how long it was queued, and throttled."""
    return [(round(attempt.times.queued, 6), round(attempt.times.throttled, 6)) for attempt in attempts]


def test_c12_the_first_of_a_line_is_throttled_and_those_behind_it_are_queued() -> None:
    rig = Rig(default=SLOW)
    attempts = [rig.push(n, "a") for n in range(3)]
    rig.run(latency=0.5)
    assert waits(*attempts) == [(0.0, 0.0), (0.0, 3.0), (3.0, 3.0)]


def test_c12_without_a_free_place_a_request_is_queued() -> None:
    rig = Rig(places=1)
    attempts = [rig.push(n, f"{n}") for n in range(3)]
    rig.run(latency=2.0)
    assert waits(*attempts) == [(0.0, 0.0), (2.0, 0.0), (4.0, 0.0)]


def test_c12_it_is_queued_from_when_its_scope_opens_to_when_a_place_is_free() -> None:
    rig = Rig({"a": SLOW}, places=2)
    rig.push("first", "a")
    second = rig.push("second", "a")
    rig.push("long", "b")
    rig.at(1.0, lambda: void(rig.push("longer", "c")))
    rig.run(latency=lambda attempt: {"first": 0.5, "long": 10.0, "longer": 20.0}.get(attempt.request, 1.0))
    assert waits(second) == [(7.5, 2.5)]  # until 0.5 there was no place, and so nobody asked the scope


def test_c12_a_full_scope_throttles() -> None:
    rig = Rig(default=Limits(concurrency=1))
    attempts = [rig.push(n, "a") for n in range(2)]
    rig.run(latency=2.0)
    assert waits(*attempts) == [(0.0, 0.0), (0.0, 2.0)]


def test_c12_of_two_lines_at_one_open_scope_the_one_whose_turn_it_is_not_is_queued() -> None:
    rig = Rig({"shared": Limits(concurrency=1)}, places=2)
    rig.push("short", "shared")
    one, two = rig.push("one", "shared", origin="one"), rig.push("two", "shared", origin="two")
    rig.push("long", "elsewhere")
    rig.at(1.5, lambda: void(rig.push("urgent", "there", priority=1)))
    rig.run(latency=lambda attempt: {"long": 50.0, "short": 2.0, "urgent": 5.0}.get(attempt.request, 1.0))
    assert waits(one, two) == [(5.0, 2.0), (5.0, 3.0)]  # from 2 to 7 the scope was open, and all places were taken


def test_c12_robots_txt_throttles() -> None:
    rig = Rig()
    rig.scheduler.close_gate("o")
    attempt = rig.push(0, "a", origin="o")
    rig.at(7.0, lambda: rig.scheduler.open_gate("o", rig.now))
    rig.run()
    assert waits(attempt) == [(0.0, 7.0)]


def test_c12_a_time_of_its_own_throttles_and_what_it_meets_then_adds_to_it() -> None:
    rig = Rig(default=Limits(concurrency=1))
    rig.push("early", "a", not_before=3.0)
    late = rig.push("late", "a", not_before=4.0)
    rig.run(latency=5.0)
    assert waits(late) == [(0.0, 8.0)]


def test_c12_a_quota_throttles_all_that_wait_for_it() -> None:
    rig = Rig(default=Limits(concurrency=8, quota=1, window=60.0))
    attempts = [rig.push(n, "a") for n in range(2)]
    rig.run(latency=1.0)
    assert waits(*attempts) == [(0.0, 0.0), (0.0, 60.0)]


def test_c12_a_request_that_was_found_before_it_was_pushed_was_queued_meanwhile() -> None:
    rig = Rig(default=SLOW)
    rig.now = 5.0
    attempt = rig.push(0, "a", found_at=1.0)
    rig.run()
    assert waits(attempt) == [(4.0, 0.0)]


def test_c12_one_that_came_last_and_goes_first_was_not_throttled_for_longer_than_it_was_there() -> None:
    rig = Rig(default=Limits(concurrency=1))
    rig.push("busy", "a")
    patient = rig.push("patient", "a")
    urgent: list[Attempt] = []
    rig.at(9.0, lambda: urgent.append(rig.push("urgent", "a", priority=1)))
    rig.run(latency=10.0)
    assert waits(*urgent, patient) == [(0.0, 1.0), (10.0, 10.0)]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.sampled_from([0.0, 0.5, 2.0])), max_size=20),
    st.integers(1, 4),
    st.floats(0.0, 3.0),
)
def test_c12_both_together_are_all_the_time_that_a_request_waited(
    asked: list[tuple[int, int, float]], places: int, latency: float
) -> None:
    rig = Rig(default=Limits(concurrency=2, delay=0.7), places=places)
    attempts = [
        rig.push(n, *{f"{scope}", f"{other}"}, priority=other, not_before=not_before)
        for n, (scope, other, not_before) in enumerate(asked)
    ]
    rig.run(latency=latency)
    for attempt in attempts:
        assert attempt.times.throttled >= 0.0
        assert attempt.times.queued >= 0.0
        assert round(attempt.times.queued + attempt.times.throttled, 6) == round(attempt.times.granted_at, 6)
