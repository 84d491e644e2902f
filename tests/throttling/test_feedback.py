"""What one answer does to one scope, over all answers: hints only ever slow it down."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.throttling.driving import answer, attempt_of, outcome_of, throttle_of
from trawl.http import Request
from trawl.throttling import Throttle

A = "a.example"
PAGE = Request(f"http://{A}/")


@attrs.frozen
class Heard:
    """One answer: seconds after the one before, its status, and what its header asks for (0: it has none)."""

    after: float
    status: int
    wish: int


HEARD = st.builds(
    Heard,
    after=st.sampled_from([0.0, 0.1, 1.0, 5.0, 61.0, 200.0]),
    status=st.sampled_from([200, 200, 404, 429, 503]),
    wish=st.sampled_from([0, 0, 1, 7, 90, 400]),
)


def opening_times(throttle: Throttle, answers: Sequence[Heard]) -> list[float]:
    """When the scope lets the next one through, after each answer."""
    now, opens = 0.0, []
    for each in answers:
        now += each.after
        throttle.next_change(now)
        attempt = attempt_of(throttle, PAGE, now)
        answer(throttle, attempt, now, each.status, {"Retry-After": str(each.wish)} if each.wish else {})
        opens.append(max(now, throttle.scope(A, now).earliest_at(now)))
    return opens


@given(
    answers=st.lists(HEARD, min_size=1, max_size=12),
    index=st.integers(0, 11),
    more=st.integers(1, 400),
    base=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_d06_monotone_under_hints_a_longer_wish_never_opens_a_scope_earlier(
    answers: list[Heard], index: int, more: int, base: float
) -> None:
    asked = [
        attrs.evolve(each, wish=each.wish + more) if at == index % len(answers) else each
        for at, each in enumerate(answers)
    ]
    scopes = {A: {"delay": base, "delay_per_slot": 0.0, "concurrency": 100}}
    before = opening_times(throttle_of(throttling_scopes=scopes), answers)
    after = opening_times(throttle_of(throttling_scopes=scopes), asked)
    assert all(later >= earlier for earlier, later in zip(before, after, strict=True))


@given(answers=st.lists(HEARD, min_size=1, max_size=12), base=st.sampled_from([0.0, 0.3, 1.0]))
def test_never_faster_than_configured_whatever_is_heard(answers: list[Heard], base: float) -> None:
    # B09 D07, and rule "hints may slow us, never speed us up"
    throttle = throttle_of(throttling_scopes={A: {"delay": base, "concurrency": 4}})
    now = 0.0
    for each in answers:
        now += each.after
        throttle.next_change(now)
        attempt = attempt_of(throttle, PAGE, now)
        answer(throttle, attempt, now, each.status, {"Retry-After": str(each.wish)} if each.wish else {})
        scope = throttle.scope(A, now)
        assert scope.effective.delay >= base
        assert 1 <= scope.effective.concurrency <= 4


def test_h04_a_delay_that_autothrottle_made_longer_holds_beside_slots_that_were_taken_away() -> None:
    throttle = throttle_of(
        autothrottle_enabled=True, autothrottle_start_delay=1.0, backoff_max_delay=1.0, concurrent_requests_per_domain=8
    )
    attempt = attempt_of(throttle, PAGE, 0.0)
    answer(throttle, attempt, 0.1, 429)
    scope = throttle.scope(A, 0.1)
    assert (scope.effective.delay, scope.effective.concurrency) == (1.0, 4)
    slow = attempt_of(throttle, PAGE, 10.0)
    outcome = attrs.evolve(outcome_of(slow, 16.0), first_byte_at=16.0)
    throttle.record_outcome_nowait(slow, outcome, 16.0)
    assert scope.effective.delay == pytest.approx(6.0)
    assert scope.effective.concurrency == 4


def test_h15_a_quick_page_of_200_that_is_a_trigger_does_not_lower_the_delay() -> None:
    throttle = throttle_of(autothrottle_enabled=True, autothrottle_start_delay=4.0, backoff_http_codes=[200])
    answer(throttle, attempt_of(throttle, PAGE, 0.0), 0.01)
    assert throttle.scope(A, 0.01).state.auto == 4.0


def test_c05_autothrottle_leaves_a_scope_that_ramps_up_alone(caplog: pytest.LogCaptureFixture) -> None:
    throttle = throttle_of(autothrottle_enabled=True, autothrottle_debug=True, throttling_scopes={A: {"rampup": True}})
    before = throttle.scope(A, 0.0).state.auto
    with caplog.at_level("INFO", "trawl.throttling"):
        answer(throttle, attempt_of(throttle, PAGE, 0.0), 20.0)
    assert throttle.scope(A, 20.0).state.auto == before
    assert not caplog.records
