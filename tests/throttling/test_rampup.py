"""Rampup: a black box that finds a server's limit, and its rules one by one."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from typing import Any

import attrs
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tests.throttling.driving import Answer, Bucket, Drive, answer, attempt_of, throttle_of
from trawl.http import Request
from trawl.throttling.rampup import RampupPolicy, RampupState

A = "a.example"
PAGE = Request("http://a.example/")


def ramped(window: float, latency_jitter: bool = True, **scope: Any) -> dict[str, Any]:
    config = {"rampup": {"window": window, **scope.pop("rampup", {})}, **scope}
    return {"throttling_scopes": {A: config}, "randomize_download_delay": latency_jitter, "concurrent_requests": 0}


@attrs.frozen
class Run:
    """What came of a run against a bucket, window by window."""

    good: list[int]
    refused: list[int]

    def rate(self, window: float, since: int, until: int) -> float:
        return sum(self.good[since:until]) / (until - since) / window


def black_box(
    bucket: Bucket, window: float, windows: int, *, change: tuple[int, float] | None = None, **given: Any
) -> Run:
    def server(request: Request, now: float) -> Answer:
        if change is not None and now >= change[0] * window:
            bucket.rate = change[1]
        return bucket(request, now)

    drive = Drive(throttle_of(**ramped(window, **given)), server, endless=PAGE)
    drive.run(windows * window)
    good, refused = [0] * (windows + 1), [0] * (windows + 1)
    for send in drive.sends:
        counts = refused if send.status == 429 else good
        counts[min(int(send.time / window), windows)] += 1
    return Run(good, refused)


@pytest.mark.long
@pytest.mark.parametrize(
    ("rate", "window", "burst", "has_jitter"),
    [
        (0.5, 40.0, 5, True),
        (1, 20, 5, True),
        (2, 10, 1, False),
        (5, 5, 5, True),
        (5, 4, 1, False),
        (20, 1, 10, True),
        (50, 2, 5, True),
        (50, 0.4, 5, True),
        (200, 0.5, 5, True),
    ],
)
def test_c09_within_40_windows_it_reaches_nine_tenths_and_stays_there(
    rate: float, window: float, burst: float, has_jitter: bool
) -> None:
    run = black_box(Bucket(rate, burst, latency=0.02), window, 60, latency_jitter=has_jitter)
    assert run.rate(window, 40, 60) >= 0.9 * rate
    assert sum(run.refused[40:60]) / 20 <= 1.0  # C02: on average
    assert sum(run.refused[:60]) / 60 <= 1.0


@pytest.mark.long
@pytest.mark.parametrize(("before", "after"), [(2, 10), (10, 2), (20, 24), (20, 10)])
def test_c09_it_finds_the_limit_again_when_that_moves(before: float, after: float) -> None:
    window = 20.0 / min(before, after)
    run = black_box(Bucket(before, 5), window, 100, change=(40, after))
    assert run.rate(window, 80, 100) >= 0.9 * after
    assert sum(run.refused[80:100]) / 20 <= 1.0


@pytest.mark.long
@given(rate=st.floats(1.0, 20.0), latency=st.floats(0.01, 0.2), seed=st.integers(0, 99))
@settings(max_examples=6, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
def test_c09_for_any_rate_and_latency(rate: float, latency: float, seed: int) -> None:
    window = 40.0 / rate
    run = black_box(Bucket(rate, 8, latency=latency), window, 60)
    assert run.rate(window, 40, 60) >= 0.9 * rate
    assert sum(run.refused[40:60]) / 20 <= 1.0


@pytest.mark.parametrize(
    "start", [{"concurrency": 8, "delay": 0.0}, {"concurrency": 8, "delay": 0.0, "delay_per_slot": 0.0}]
)
def test_c05_from_no_delay_at_all_it_falls_to_the_limit(start: dict[str, Any]) -> None:
    run = black_box(Bucket(5.0, 6, latency=0.02), 5.0, 60, **start)
    assert run.rate(5.0, 40, 60) >= 4.5
    assert sum(run.refused[40:60]) / 20 <= 1.0


def ramp_of(delay: float = 1.0, per_slot: float = 0.0, slots: float = 1.0, **policy: Any) -> RampupState:
    return RampupState(
        RampupPolicy(**{"window": 10.0, **policy}), delay=delay, delay_per_slot=per_slot, concurrency=slots
    )


def spend(ramp: RampupState, sends: int, *, busy: float = 0.01, triggers: int = 0) -> RampupState:
    """One window of answers, evenly spread."""
    window = ramp.policy.window
    assert window is not None
    start = 0.0 if ramp.window.due_at == float("inf") else ramp.window.due_at - window
    for number in range(sends):
        now = start + busy + number * window / sends
        ramp.answered(now, busy=busy, is_trigger=number < triggers)
        if number < triggers:
            ramp.triggered(now)
    ramp.window_over()
    return ramp


def test_c04_where_the_delay_limited_the_delay_falls_by_the_factor() -> None:
    ramp = spend(ramp_of(), 10)
    assert (ramp.delay, ramp.concurrency) == (0.8, 1.0)
    assert spend(spend(ramp_of(per_slot=1.0), 10), 12).delay_per_slot == pytest.approx(0.64)  # C05: it moves along


def test_c04_where_full_slots_did_the_concurrency_grows_by_one_at_least_up_to_the_cap() -> None:
    assert spend(ramp_of(delay=0.1), 10, busy=1.0).concurrency == 2.0
    assert spend(ramp_of(delay=0.01, slots=20.0), 200, busy=1.0).concurrency == 25.0
    assert spend(ramp_of(delay=0.01, slots=20.0, max_concurrency=22.0), 200, busy=1.0).concurrency == 22.0
    assert spend(ramp_of(delay=0.1), 10, busy=1.0).delay == 0.1


def test_c04_with_the_least_delay_reached_only_the_concurrency_grows() -> None:
    ramp = spend(ramp_of(delay=0.5, min_delay=0.5), 20, busy=0.5)
    assert (ramp.delay, ramp.concurrency) == (0.5, 2.0)
    assert spend(ramp_of(delay=0.55, min_delay=0.5), 18).delay == 0.5


def test_c04_what_was_used_by_half_was_not_limited_by_us() -> None:
    ramp = spend(ramp_of(), 4)
    assert (ramp.delay, ramp.concurrency) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("target", "triggers", "moves"),
    [
        ((1.0, 1.0), 0, "faster"),
        ((1.0, 1.0), 1, "holds"),
        ((1.0, 1.0), 2, "slower"),
        ((1.0, 3.0), 0, "faster"),
        ((1.0, 3.0), 1, "holds"),
        ((1.0, 3.0), 3, "holds"),
        ((1.0, 3.0), 4, "slower"),
        ((2.0, 3.0), 1, "faster"),
    ],
)
def test_c02_c06_triggers_within_the_target_hold_above_it_falls_below_it_speeds_up(
    target: tuple[float, float], triggers: int, moves: str
) -> None:
    ramp = spend(ramp_of(target=target), 10, triggers=triggers)
    assert {"faster": ramp.delay < 1.0, "holds": ramp.delay == 1.0, "slower": ramp.delay > 1.0}[moves]


def test_c05_it_falls_at_once_to_below_the_refused_rate_without_the_floor_of_backing_off() -> None:
    ramp = ramp_of(delay=0.1)
    ramp.answered(0.05, busy=0.05, is_trigger=True)
    assert not ramp.triggered(0.05)
    ramp.answered(0.15, busy=0.05, is_trigger=True)
    assert ramp.triggered(0.15)
    assert 0.1 < ramp.delay < 0.2
    assert ramp.approach.refused is not None
    assert ramp.rate < ramp.approach.refused


def test_c05_a_second_refusal_soon_after_is_of_an_empty_bucket_and_only_a_third_of_a_lower_limit() -> None:
    ramp = ramp_of(0.1, window=60.0)
    for number in range(20):
        ramp.answered(0.1 * number, busy=0.01, is_trigger=False)
    marks = []
    for number in range(4):
        ramp.answered(2.0 + 0.1 * number, busy=0.01, is_trigger=True)
        ramp.triggered(2.0 + 0.1 * number)
        marks.append(ramp.approach.refused)
    within, first, second, third = marks
    assert within is None
    assert first is not None
    assert third is not None
    assert second == first
    assert third < first


def test_c05_after_a_refusal_steps_close_in_on_the_refused_rate() -> None:
    ramp = spend(ramp_of(), 10, triggers=2)
    refused = ramp.approach.refused
    assert refused is not None
    rates = [spend(ramp, max(1, round(10.0 * ramp.rate))).rate for _ in range(4)]
    assert rates == sorted(rates)
    assert rates[-1] == pytest.approx(refused, rel=0.01)


@pytest.mark.parametrize(("refused", "length"), [((), 40), ((1,), 60), ((39, 50), 60)])
def test_c03_a_window_of_counted_answers_is_longer_if_one_of_them_was_refused(
    refused: tuple[int, ...], length: int
) -> None:
    ramp = ramp_of(0.1, window=60.0, is_counted=True)
    ramp.triggered(0.0)  # no slow start
    ramp.window_over()
    for number in range(1, length + 1):
        assert ramp.window.due_at > number
        ramp.answered(float(number), busy=0.1, is_trigger=number in refused)
        if number in refused:
            ramp.triggered(float(number))
    assert ramp.window.due_at == length


def test_c05_a_window_of_triggers_without_a_good_answer_falls_back_to_backing_off() -> None:
    ramp = ramp_of()
    for number in range(2):
        ramp.answered(number + 0.5, busy=0.1, is_trigger=True)
        ramp.triggered(number + 0.5)
    ramp.window_over()
    assert ramp.has_fallen_back


def test_c08_several_idle_windows_are_one_step_and_none_is_taken_while_held() -> None:
    ramp = spend(ramp_of(), 10)
    for _ in range(5):
        if ramp.window.due_at < float("inf"):
            ramp.window_over()
    assert ramp.delay == pytest.approx(0.64)
    held = ramp_of()
    held.answered(0.1, busy=0.1, is_trigger=False)
    held.window_over(is_held=True)
    held.window_over(is_held=True)
    assert held.delay == 1.0


def test_c01_it_is_off_by_default_and_c05_never_faster_than_a_crawl_delay() -> None:
    throttle = throttle_of()
    assert throttle.scope(A, 0.0).state.rampup is None
    throttle = throttle_of(**ramped(5.0, latency_jitter=False))
    throttle.robots_delay(A, 0.7, 0.0)
    drive = Drive(throttle, lambda request, now: Answer(), endless=PAGE)
    drive.run(100.0)
    gaps = [after.time - before.time for before, after in zip(drive.sends, drive.sends[1:], strict=False)]
    assert min(gaps) >= 0.7 - 1e-9
    assert gaps[-1] == pytest.approx(0.7)


def test_c05_headers_hold_the_next_send_as_always() -> None:
    throttle = throttle_of(**ramped(5.0))
    answer(throttle, attempt_of(throttle, PAGE), 0.1, 429, {"Retry-After": "9"})
    scope = throttle.scope(A, 0.1)
    assert scope.earliest_at(0.1) == 9.1
    assert scope.effective.delay == 1.0  # one trigger is within the target


@pytest.mark.long
def test_c05_an_outage_is_backed_off_from_and_rampup_goes_on_afterwards() -> None:
    throttle = throttle_of(**ramped(5.0, latency_jitter=False), backoff_window=5.0)
    drive = Drive(throttle, lambda request, now: Answer(503 if 30.0 <= now < 100.0 else 200), endless=PAGE)
    drive.run(100.0)
    assert throttle.scope(A, 100.0).effective.delay >= 4.0
    drive.run(300.0)
    assert throttle.scope(A, 300.0).state.backoff is None
    assert throttle.scope(A, 300.0).effective.delay < 0.5


def test_c05_without_a_cap_on_all_it_stops_at_a_thousand_slots() -> None:
    throttle = throttle_of(throttling_scopes={"api": {"rampup": True}}, concurrent_requests=0)
    assert throttle.scope("api", 0.0).effective.concurrency == 1000
    assert (
        throttle_of(**{**ramped(5.0), "concurrent_requests": 9}).scope(A, 0.0).state.rampup.policy.max_concurrency == 9
    )


def test_c05_a_fall_stretches_the_delay_per_slot_as_it_does_the_delay() -> None:
    ramp = spend(ramp_of(delay=1.0, per_slot=1.0), 10)
    before = ramp.delay, ramp.delay_per_slot
    for now in (11.0, 11.5):
        ramp.answered(now, busy=0.1, is_trigger=True)
        ramp.triggered(now)
    assert ramp.delay > before[0]
    assert ramp.delay_per_slot / before[1] == pytest.approx(ramp.delay / before[0])


@pytest.mark.parametrize(("window", "max_delay", "longest"), [(10.0, 300.0, 300.0), (60.0, 2.0, 60.0)])
def test_c05_however_often_it_falls_the_delay_stays_within_reason(
    window: float, max_delay: float, longest: float
) -> None:
    config = {"rampup": {"window": window}, "backoff": {"max_delay": max_delay, "min_delay": 0.0}}
    throttle = throttle_of(throttling_scopes={A: {**config, "concurrency": 2}})
    scope = throttle.scope(A, 0.0)
    for number in range(100):  # refused again and again, each time anew: requests that pass the scope by may do that
        now = 0.01 * number
        answer(throttle, attempt_of(throttle, PAGE.replace(meta={"dont_throttle": True}), now), now, 429)
    assert scope.effective.delay == pytest.approx(longest)
    assert scope.effective.delay_per_slot <= 2 * longest


@pytest.mark.parametrize("policy", [{"window": 1e-300}, {"delay_factor": 1e-320}, {"window": 1e-300, "max_delay": 1.0}])
def test_figures_beyond_reason_end_no_crawl(policy: dict[str, float]) -> None:
    ramp = ramp_of(0.0, slots=2.0, max_concurrency=50.0, **policy)
    for number in range(20):
        now = 1e6 + number  # a run clock does not begin at 0
        ramp.answered(now, busy=30.0, is_trigger=number == 7)
        if number == 7:
            ramp.triggered(now)
        ramp.window_over()
    assert 2.0 <= ramp.concurrency <= 50.0


def test_slow_start_goes_on_in_the_next_run_only_where_it_had_not_ended() -> None:
    policy = RampupPolicy(is_counted=True)
    for triggers, is_starting in ((0, True), (1, False)):
        ramp = RampupState(policy, delay=1.0, delay_per_slot=0.0, concurrency=1.0)
        for _ in range(triggers):
            ramp.triggered(1.0)
        learned = ramp.learned((1.0, 0.0, 1.0))
        assert learned.is_starting is is_starting
        again = RampupState(policy, delay=1.0, delay_per_slot=0.0, concurrency=1.0)
        again.restore(learned)
        for number in range(5):
            again.answered(2.0 + number, busy=0.1, is_trigger=False)
        assert (again.window.due_at == 6.0) is is_starting  # the fifth good answer ends a round


@attrs.frozen(kw_only=True)
class Unknown:
    """A server of which the crawl knows nothing.

    Attributes:
        rate: Requests a second that it serves.
        burst: What its bucket holds.
        latency: Seconds that its answers take on average; each takes half of it to one and a half.
        retry_after: The seconds of its ``Retry-After``; 0: it sends none.
        status: The status of its refusals.
        seed: Of the latencies.
    """

    rate: float
    burst: int
    latency: float
    retry_after: int
    status: int
    seed: int

    @property
    def most_in_a_minute(self) -> float:
        """Refusals that no minute has more of, without those that the pages of that minute allow (a tenth of them)."""
        return 20.0 + 1.5 * self.burst + 2.0 * self.rate * self.latency

    def crawl(self) -> Drive:
        """The throttle alone, from a page a second, with more pages than can be served in the time."""
        bucket, rng = Bucket(self.rate, self.burst), random.Random(self.seed)

        def serve(request: Request, now: float) -> Answer:
            latency = self.latency * rng.uniform(0.5, 1.5)
            if bucket(request, now).status == 200:
                return Answer(latency=latency)
            headers = {"Retry-After": str(self.retry_after)} if self.retry_after else {}
            return Answer(self.status, headers, latency)

        scopes = {A: {"rampup": True}}
        throttle = throttle_of(throttling_scopes=scopes, randomize_download_delay=True, concurrent_requests=0)
        drive = Drive(throttle, serve, endless=PAGE)
        drive.run(min(240.0, max(90.0, 1500.0 / self.rate)))
        return drive


SERVERS = st.builds(
    Unknown,
    rate=st.floats(-1.6, 3.7).map(math.exp),  # 0.2 to 40 a second
    burst=st.sampled_from([1, 2, 5, 10, 20, 50, 100]),
    latency=st.sampled_from([0.01, 0.05, 0.2, 0.5, 1.0, 2.0]),
    retry_after=st.sampled_from([0, 0, 1, 5, 30]),
    status=st.sampled_from([429, 503]),
    seed=st.integers(0, 99),
)


@pytest.mark.long
@given(SERVERS)
@settings(deadline=None)
@example(Unknown(rate=8.77, burst=50, latency=1.0, retry_after=0, status=503, seed=12))
@example(Unknown(rate=26.2, burst=50, latency=2.0, retry_after=0, status=429, seed=87))
@example(Unknown(rate=0.89, burst=50, latency=2.0, retry_after=0, status=429, seed=0))
@example(Unknown(rate=1.0, burst=50, latency=0.5, retry_after=0, status=429, seed=33))
@example(Unknown(rate=3.7, burst=100, latency=0.5, retry_after=0, status=429, seed=15))
@example(Unknown(rate=0.24, burst=5, latency=2.0, retry_after=0, status=503, seed=87))
def test_c05_c09_no_minute_has_more_refusals_than_the_bound(server: Unknown) -> None:
    sends = server.crawl().sends
    good = [send.time for send in sends if send.status == 200]
    refused = [send.time for send in sends if send.status != 200]
    for start in refused:
        served = bisect_left(good, start + 60.0) - bisect_left(good, start)
        count = bisect_left(refused, start + 60.0) - bisect_left(refused, start)
        assert count <= server.most_in_a_minute + served / 10.0


@given(rate=st.floats(0.2, 200.0), served=st.integers(0, 50), status=st.sampled_from([429, 503]))
@settings(deadline=None)
def test_c05_a_server_that_serves_no_more_is_asked_less_and_less(rate: float, served: int, status: int) -> None:
    left = [served]

    def serve(request: Request, now: float) -> Answer:
        left[0] -= 1
        return Answer(200 if left[0] >= 0 else status, latency=0.05)

    scopes = {A: {"rampup": True, "delay": 1.0 / rate}}
    drive = Drive(throttle_of(throttling_scopes=scopes, concurrent_requests=0), serve, endless=PAGE)
    drive.run(600.0)
    refused = [send.time for send in drive.sends if send.status == status]
    minutes = [sum(minute * 60.0 <= time - refused[0] < (minute + 1) * 60.0 for time in refused) for minute in range(9)]
    assert minutes[0] <= 40
    assert max(minutes[1:]) <= 8
    assert max(minutes[3:]) <= 2
