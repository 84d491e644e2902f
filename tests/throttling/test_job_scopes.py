"""What a throttle knows goes on in another process (P8, R11, R16): stored as wall time, taken up by the scopes."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.throttling.driving import START_UTC, answer, attempt_of, throttle_of
from trawl.clock import WallClock
from trawl.http import Request
from trawl.throttling import Throttle
from trawl.throttling.job_scopes import moved
from trawl.throttling.snapshot import ThrottleSnapshot

A = "a.example"
URL = "http://a.example/"


def stored(throttle: Throttle, now: float, next_in: float | None = None) -> ThrottleSnapshot:
    """The state as it comes back from where it is stored."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(throttle.snapshot(now, next_in)), type=ThrottleSnapshot)


def resumed(state: ThrottleSnapshot, down: float, at: float, **settings: Any) -> Throttle:
    """A throttle of a process whose clock begins at 1000, ``down`` seconds after the instant ``at`` of the first."""
    throttle = throttle_of(**settings)
    throttle._wall = WallClock(START_UTC + timedelta(seconds=at + down), 1000.0)
    throttle._now = 1000.0
    throttle.restore(state, 1000.0)
    return throttle


def refused(throttle: Throttle, now: float, **headers: str) -> None:
    """Send once, and be refused at once."""
    attempt = attempt_of(throttle, Request(URL), now)
    answer(throttle, attempt, now, 429, headers)


def test_r16_the_spacing_counts_from_the_last_send_of_the_earlier_run() -> None:
    throttle = throttle_of(download_delay=5.0)
    answer(throttle, attempt_of(throttle, Request(URL), 100.0), 100.5)
    scope = resumed(stored(throttle, 101.0), 1.0, 101.0, download_delay=5.0).scope(A, 1000.0)
    assert scope.earliest_at(1000.0) == pytest.approx(1003.0)


@pytest.mark.parametrize(("next_in", "at"), [(None, 1007.0), (2.0, 1010.0)])
def test_d12_a_crawl_delay_holds_robots_txt_too_that_a_later_run_asks_for(next_in: float | None, at: float) -> None:
    throttle = throttle_of()
    throttle.robots_delay(A, 10.0, 90.0)
    answer(throttle, attempt_of(throttle, Request(URL), 100.0), 100.5)
    throttle.scope(A, 101.0).waits.lanes = 1  # more is pending
    scope = resumed(stored(throttle, 101.0, next_in), 2.0, 101.0).scope(A, 1000.0)
    assert scope.earliest_at(1000.0) == pytest.approx(at)  # from 100, or from when it may have sent until it was killed
    assert scope.reason(1000.0).source == "Crawl-delay 10 of robots.txt"


def test_time_in_which_nothing_ran_ends_the_spacing() -> None:
    throttle = throttle_of(download_delay=5.0)
    answer(throttle, attempt_of(throttle, Request(URL), 100.0), 100.5)
    scope = resumed(stored(throttle, 101.0), 60.0, 101.0, download_delay=5.0).scope(A, 1000.0)
    assert scope.earliest_at(1000.0) <= 1000.0


def test_r16_after_a_kill_a_scope_is_taken_to_have_sent_until_the_next_state_was_due() -> None:
    throttle = throttle_of(download_delay=5.0)
    answer(throttle, attempt_of(throttle, Request(URL), 100.0), 100.5)
    again = resumed(stored(throttle, 104.0, next_in=2.0), 2.5, 104.0, download_delay=5.0)
    assert again.scope(A, 1000.0).earliest_at(1000.0) == pytest.approx(1000.0 - 0.5 + 5.0)
    assert again.scope("unknown.example", 1000.0).earliest_at(1000.0) == pytest.approx(1000.0 - 0.5 + 5.0)
    later = resumed(stored(throttle, 101.0, next_in=2.0), 2.5, 101.0, download_delay=5.0)
    assert later.scope(A, 1000.0).earliest_at(1000.0) == pytest.approx(1001.5)  # it could not send before 105


def test_r16_what_a_killed_run_may_have_sent_is_not_forgotten_by_one_that_sent_nothing() -> None:
    throttle = throttle_of(download_delay=5.0)
    answer(throttle, attempt_of(throttle, Request(URL), 100.0), 100.5)
    second = resumed(stored(throttle, 100.5, next_in=2.0), 3.0, 100.5, download_delay=5.0)  # killed by 102.5
    third = resumed(stored(second, 1001.0), 0.5, 104.5, download_delay=5.0)  # ended at 104.5, begun at 105
    assert third.scope("unknown.example", 1000.0).earliest_at(1000.0) == pytest.approx(1000.0 - 2.5 + 5.0)
    assert third.scope(A, 1000.0).earliest_at(1000.0) <= 1000.0  # it could not send again before 105


@pytest.mark.parametrize("host", [f"a{number}.example" for number in range(20)])
def test_r16_what_the_killed_run_had_drawn_may_have_been_the_shortest_interval(host: str) -> None:
    settings = {"download_delay": 5.0, "randomize_download_delay": 0.5}
    throttle = throttle_of(**settings)
    answer(throttle, attempt_of(throttle, Request(f"http://{host}/"), 100.0), 100.5)
    killed = resumed(stored(throttle, 101.0, next_in=2.5), 2.5, 101.0, **settings)
    # It may have sent from 102.5 on, and was killed by 103.5: that is the instant 1000 of the next run.
    assert killed.scope(host, 1000.0).earliest_at(1000.0) >= 1000.0 + 2.5


def test_slots_that_rest_go_on_resting() -> None:
    settings = {"concurrent_requests_per_domain": 2, "download_delay_per_slot": 10.0}
    throttle = throttle_of(**settings)
    for at in (100.0, 103.0):
        answer(throttle, attempt_of(throttle, Request(URL), at), at + 1.0)
    scope = resumed(stored(throttle, 105.0), 1.0, 105.0, **settings).scope(A, 1000.0)
    assert scope.earliest_at(1000.0) == pytest.approx(1004.0)
    killed = resumed(stored(throttle, 109.0, next_in=2.0), 2.0, 109.0, **settings).scope(A, 1000.0)
    assert killed.earliest_at(1000.0) == pytest.approx(1010.0)  # both may have sent at 110 or later


def test_p8_a_backoff_is_kept_and_eases_while_nothing_runs() -> None:
    throttle = throttle_of(download_delay=1.0)
    for at in (0.0, 10.0, 20.0):
        refused(throttle, at)
    answer(throttle, attempt_of(throttle, Request(URL), 60.0), 60.0)
    assert throttle.scope(A, 60.0).effective.delay == 8.0
    state = stored(throttle, 60.0)
    soon = resumed(state, 5.0, 60.0, download_delay=1.0).scope(A, 1000.0)
    assert (soon.effective.delay, soon.effective.delay_limit) == (8.0, "backoff")
    assert "429" in soon.effective.delay_source
    assert (
        resumed(state, 60.0, 60.0, download_delay=1.0).scope(A, 1000.0).effective.delay == 4.0
    )  # since the good answer
    assert resumed(state, 7200.0, 60.0, download_delay=1.0).scope(A, 1000.0).effective.delay == 1.0


def test_a_backoff_is_stored_under_the_names_that_earlier_jobs_have() -> None:
    throttle = throttle_of()
    refused(throttle, 100.0)
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(throttle.snapshot(101.0)))
    assert state["scopes"][A]["trouble_for"] == 1.0
    assert state["scopes"][A]["trouble"]["steps"] == 1


def test_without_a_good_answer_a_backoff_stays_whatever_time_passes_and_time_down_is_no_trouble() -> None:
    throttle = throttle_of(download_delay=1.0)
    refused(throttle, 0.0)
    again = resumed(stored(throttle, 100.0), 100_000.0, 100.0, download_delay=1.0)
    scope = again.scope(A, 1000.0)
    assert scope.effective.delay == 2.0
    assert again.next_change(1000.0) == pytest.approx(1800.0)  # B20: 900 s of trouble, 100 of them gone
    pending = attempt_of(throttle_of(), Request(URL))
    assert again.refused(pending, 1801.0) is None
    assert again.tick(1801.0)
    assert again.refused(pending, 1801.0) == "refused"


def test_scopes_that_were_given_up_stay_so_for_what_was_pending() -> None:
    throttle = throttle_of()
    refused(throttle, 0.0)
    throttle.tick(901.0)
    again = resumed(stored(throttle, 902.0), 5.0, 902.0)
    assert again.refused(attempt_of(throttle_of(), Request(URL)), 1000.0) == "refused"
    assert again.refused(attempt_of(again, Request(URL)), 1000.0) is None  # admitted afterwards


def test_r7_a_clock_that_was_set_back_refuses_nothing_that_comes_after_a_scope_was_given_up() -> None:
    throttle = throttle_of()
    refused(throttle, 0.0)
    throttle.tick(901.0)
    again = resumed(stored(throttle, 1000.0), -7200.0, 1000.0)
    pending = attempt_of(throttle_of(), Request(URL))
    assert again.refused(pending, 1000.0) == "refused"
    later = Request(URL)
    again.admitted(later, ((A, None),))
    assert again.refused(attempt_of(again, later, 1001.0), 1001.0) is None


def test_a_hold_is_kept_with_its_reason_and_a_clock_that_was_set_back_makes_it_no_longer() -> None:
    throttle = throttle_of()
    refused(throttle, 0.0, **{"Retry-After": "30"})
    state = stored(throttle, 10.0)
    reason = resumed(state, 5.0, 10.0).scope(A, 1000.0).reason(1000.0)
    assert reason.limit == "hint"
    assert reason.until == pytest.approx(1015.0)
    assert "Retry-After" in reason.source
    assert resumed(state, -500.0, 10.0).scope(A, 1000.0).earliest_at(1000.0) == pytest.approx(1020.0)
    assert resumed(state, 25.0, 10.0).scope(A, 1000.0).reason(1000.0).limit != "hint"


@pytest.mark.parametrize("sliding", [False, True])
@pytest.mark.parametrize("was_sliding", [False, True])
def test_p8_a_quota_stays_spent_until_its_window_ends(sliding: bool, was_sliding: bool) -> None:
    def settings(*, sliding: bool) -> dict[str, Any]:
        quota = {"quota": 3, "window": 60.0, "sliding": sliding, "delay": 0.0, "concurrency": 9}
        return {"throttling_scopes": {A: quota}}

    throttle = throttle_of(**settings(sliding=was_sliding))
    for _ in range(3):
        answer(throttle, attempt_of(throttle, Request(URL), 10.0), 10.0)
    state = stored(throttle, 20.0)
    scope = resumed(state, 5.0, 20.0, **settings(sliding=sliding)).scope(A, 1000.0)
    assert scope.earliest_at(1000.0) == pytest.approx(1045.0)
    assert scope.reason(1000.0).limit == "quota"
    over = resumed(state, 51.0, 20.0, **settings(sliding=sliding)).scope(A, 1000.0)
    assert over.earliest_at(1000.0) <= 1000.0
    assert resumed(state, -900.0, 20.0, **settings(sliding=sliding)).scope(A, 1000.0).earliest_at(1000.0) <= 1060.0


def test_a_quota_that_is_no_longer_configured_is_forgotten() -> None:
    throttle = throttle_of(throttling_scopes={A: {"quota": 1}})
    answer(throttle, attempt_of(throttle, Request(URL), 0.0), 0.0)
    assert resumed(stored(throttle, 1.0), 1.0, 1.0).scope(A, 1000.0).quota is None


def test_r11_what_autothrottle_and_rampup_learned_is_kept() -> None:
    auto = {"autothrottle_enabled": True}
    throttle = throttle_of(**auto)
    throttle.scope(A, 0.0).state.auto = 2.5
    state = stored(throttle, 1.0)
    assert resumed(state, 1.0, 1.0, **auto).scope(A, 1000.0).effective.delay == 2.5
    capped = resumed(state, 1.0, 1.0, **auto, autothrottle_max_delay=2.0, autothrottle_start_delay=1.0)
    assert capped.scope(A, 1000.0).effective.delay == 2.0
    assert resumed(state, 1.0, 1.0).scope(A, 1000.0).state.auto is None  # switched off meanwhile

    ramp = {"throttling_scopes": {A: {"rampup": True, "delay": 1.0}}}
    throttle = throttle_of(**ramp)
    policy = throttle.scope(A, 0.0).state
    policy.rampup.delay, policy.rampup.approach.refused = 0.3, 4.0
    policy.apply(throttle.scope(A, 0.0))
    state = stored(throttle, 1.0)
    again = resumed(state, 1.0, 1.0, **ramp).scope(A, 1000.0)
    assert (again.effective.delay, again.state.rampup.approach.refused) == (0.3, 4.0)
    other = {"throttling_scopes": {A: {"rampup": True, "delay": 3.0}}}
    assert resumed(state, 1.0, 1.0, **other).scope(A, 1000.0).effective.delay == 3.0  # found out under other limits


def test_c05_an_outage_from_the_first_page_on_goes_on_in_the_next_run_as_one() -> None:
    ramp = {"throttling_scopes": {A: {"rampup": True, "delay": 1.0}}}
    throttle = throttle_of(**ramp)
    now = 100.0
    for _ in range(4):
        answer(throttle, attempt_of(throttle, Request(URL), now), now, 503)
        now = throttle.scope(A, now).earliest_at(now)
    delay = throttle.scope(A, now).effective.delay
    again = resumed(stored(throttle, now), 1.0, now, **ramp)
    scope, now = again.scope(A, 1000.0), 1000.0
    for _ in range(4):  # none of these is the first of another outage, which would begin with short delays
        now = max(now, scope.earliest_at(now))
        answer(again, attempt_of(again, Request(URL), now), now, 503)
        assert scope.effective.delay >= min(2.0 * delay, 60.0)
        delay = scope.effective.delay


def test_a_host_that_once_answered_is_known_to_have_done_so() -> None:
    throttle = throttle_of()
    answer(throttle, attempt_of(throttle, Request(URL), 0.0), 0.0)
    state = stored(throttle, 100.0)
    assert (state.scopes, state.answered) == ({}, (A,))
    again = resumed(state, 1.0, 100.0)
    assert again.scope(A, 1000.0).state.has_answered
    assert not again.scope("other.example", 1000.0).state.has_answered


def test_what_no_scope_took_up_is_stored_again() -> None:
    throttle = throttle_of(download_delay=1.0)
    refused(throttle, 0.0)
    answer(throttle, attempt_of(throttle, Request("http://b.example/"), 0.0), 0.0)
    state = stored(throttle, 50.0)
    again = stored(resumed(state, 1.0, 50.0, download_delay=1.0), 1000.0)
    assert (again.scopes, again.answered) == (state.scopes, state.answered)
    second = resumed(state, 1.0, 50.0, download_delay=1.0)
    second.scope(A, 1000.0)
    assert list(stored(second, 1000.0).scopes) == [A]


@given(
    spent_at=st.lists(st.floats(0.0, 50.0), min_size=1, max_size=6).map(sorted),
    stop=st.floats(50.0, 60.0),
    down=st.floats(0.0, 100.0),
    sliding=st.booleans(),
)
def test_r16_a_stop_never_lets_a_quota_through_earlier(
    spent_at: list[float], stop: float, down: float, sliding: bool
) -> None:
    settings = {"throttling_scopes": {A: {"quota": 4, "window": 30.0, "sliding": sliding, "delay": 0.0}}}
    throttle = throttle_of(**settings)
    for at in spent_at:
        if throttle.scope(A, at).earliest_at(at) <= at:
            answer(throttle, attempt_of(throttle, Request(URL), at), at)
    state = stored(throttle, stop)
    again = resumed(state, down, stop, **settings).scope(A, 1000.0)
    at = stop + down
    expected = max(at, throttle.scope(A, at).earliest_at(at))
    assert max(1000.0, again.earliest_at(1000.0)) == pytest.approx(1000.0 + expected - at, abs=1e-5)


def test_nothing_of_an_idle_scope_is_stored() -> None:
    throttle = throttle_of()
    throttle.scope(A, 0.0)
    state = stored(throttle, 0.0)
    assert (state.scopes, state.answered, state.unknown_until) == ({}, (), -math.inf)


def test_i01_a_job_of_many_runs_remembers_no_more_scopes_than_one_run_keeps() -> None:
    throttle = throttle_of(throttling_scope_limit=3)
    for run in range(5):
        at = 100.0 * run
        for path, status in (("a", 200), ("b", 200), ("c", 429)):
            request = Request(f"http://{path}{run}.example/")
            answer(throttle, attempt_of(throttle, request, at), at, status)
        state = stored(throttle, at + 50.0)
        throttle = throttle_of(throttling_scope_limit=3)
        throttle.restore(state, at + 50.0)
    state = stored(throttle, 500.0)
    assert list(state.scopes) == ["c2.example", "c3.example", "c4.example"]
    assert state.answered == ("b3.example", "a4.example", "b4.example")


TOLD = {"X-RateLimit-Remaining": "10", "X-RateLimit-Reset": "400"}


def test_d07_a_limit_that_a_good_answer_told_holds_in_the_next_run() -> None:
    throttle = throttle_of(download_delay=1.0)
    answer(throttle, attempt_of(throttle, Request(URL), 100.0), 100.0, headers=TOLD)
    assert throttle.scope(A, 100.0).effective.delay == pytest.approx(40.0)
    again = resumed(stored(throttle, 101.0), 9.0, 101.0, download_delay=1.0)
    scope = again.scope(A, 1000.0)
    assert scope.earliest_at(1000.0) == pytest.approx(1030.0)  # the send was ten seconds ago
    assert "X-RateLimit-Remaining: 10" in scope.reason(1000.0).source
    answer(again, attempt_of(again, Request(URL), 1030.0), 1030.0, headers=TOLD | {"X-RateLimit-Remaining": "400"})
    assert scope.effective.delay == pytest.approx(1.0)  # and what is told next counts


def test_d07_one_whose_time_is_over_is_forgotten_also_where_nothing_ran_meanwhile() -> None:
    throttle = throttle_of(download_delay=1.0)
    answer(throttle, attempt_of(throttle, Request(URL), 100.0), 100.0, headers=TOLD)
    scope = resumed(stored(throttle, 101.0), 400.0, 101.0, download_delay=1.0).scope(A, 1000.0)
    assert (scope.effective.delay, scope.state.told) == (1.0, None)


def test_d07_in_the_state_of_another_machine_what_was_told_lasts_as_long_as_it_did() -> None:
    throttle = throttle_of(download_delay=1.0)
    answer(throttle, attempt_of(throttle, Request(URL), 100.0), 100.0, headers=TOLD)
    state = stored(throttle, 101.0)
    told, later = state.scopes[A].told, moved(state, state.at + 1e6).scopes[A].told
    assert told is not None
    assert later is not None
    assert later.until - (state.at + 1e6) == pytest.approx(told.until - state.at)
