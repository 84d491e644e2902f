from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.throttling.limits import Limits
from trawl.throttling.reasons import Reason
from trawl.throttling.scope import Scope

HINT = Reason("a", "hint", 9.0, "Retry-After")


def passed(scope: Scope, now: float, amount: float = 1.0) -> int:
    """Send a request through ``scope`` at ``now``, which must let it."""
    assert scope.earliest_at(now, amount) <= now
    slot = scope.take(now, amount)
    scope.sent(slot, now, amount)
    return slot


def test_concurrency_counts_places_until_the_whole_response() -> None:
    # A03 A04
    scope = Scope("a", Limits(concurrency=2))
    assert [passed(scope, 0.0), passed(scope, 0.0)] == [1, 2]
    assert scope.earliest_at(100.0) == inf
    scope.give(1)
    assert passed(scope, 100.0) == 1


def test_the_delay_is_the_least_time_between_any_two_sends_whatever_the_slot() -> None:
    # A05 R14: not N sends for N slots in one delay
    scope = Scope("a", Limits(concurrency=4, delay=1.0))
    passed(scope, 0.0)
    assert scope.earliest_at(0.5) == 1.0
    passed(scope, 1.0)
    assert scope.earliest_at(1.0) == 2.0


def test_spacing_counts_from_the_send_and_the_scope_is_closed_while_it_connects() -> None:
    # A05 B03
    scope = Scope("a", Limits(concurrency=4, delay=1.0))
    slot = scope.take(0.0)
    assert scope.earliest_at(50.0) == inf
    scope.sent(slot, 0.25)
    assert scope.earliest_at(1.0) == 1.25


def test_a_scope_without_spacing_is_open_while_one_connects() -> None:
    scope = Scope("a", Limits(concurrency=2))
    scope.take(0.0)
    assert scope.earliest_at(0.0) <= 0.0


def test_a_send_that_never_went_to_the_wire_gives_spacing_and_amount_back() -> None:
    scope = Scope("a", Limits(concurrency=1, delay=5.0, quota=1.0))
    scope.give(scope.take(0.0), was_sent=False)
    assert scope.earliest_at(0.0) <= 0.0
    assert (scope.traffic.in_flight, scope.traffic.unsent) == (0, 0)


def test_a_slot_waits_out_its_own_delay_although_the_scopes_delay_has_passed() -> None:
    # A06 A07
    scope = Scope("a", Limits(concurrency=1, delay=0.3, delay_per_slot=1.0))
    scope.give(passed(scope, 0.0))
    assert scope.earliest_at(0.5) == 1.0
    assert scope.reason(0.5).limit == "delay_per_slot"


def test_the_second_slot_may_go_while_the_first_one_rests() -> None:
    # A08
    scope = Scope("a", Limits(concurrency=2, delay=0.3, delay_per_slot=1.0))
    scope.give(passed(scope, 0.0))
    assert scope.earliest_at(0.1) == 0.3
    scope.give(passed(scope, 0.3))
    assert scope.earliest_at(0.6) == 1.0
    assert passed(scope, 1.0) == 1


def test_a_slot_delay_that_appears_while_one_is_in_flight_is_counted_from_its_send() -> None:
    # I12 A06
    scope = Scope("a", Limits(concurrency=1))
    slot = passed(scope, 3.0)
    scope.arrange(scope.effective._replace(delay_per_slot=2.0))
    scope.give(slot)
    assert scope.earliest_at(4.0) == 5.0


def test_one_draw_a_send_serves_both_delays_and_lasts_until_the_send() -> None:
    # A17 A20
    scope = Scope("a", Limits(concurrency=2, delay=1.0, delay_per_slot=4.0, jitter=(0.5, 1.5)), seed=3)
    scope.give(passed(scope, 0.0))
    scope.give(passed(scope, 2.0))
    interval = scope.earliest_at(2.0) - 0.0
    factor = interval / 4.0  # slot 1 rests for longer than the delay
    assert 0.5 <= factor <= 1.5
    assert scope.earliest_at(2.0) == scope.earliest_at(2.5)
    scope.arrange(scope.effective._replace(delay_per_slot=0.0))
    assert scope.earliest_at(2.0) == pytest.approx(2.0 + factor)


def test_a_change_up_or_down_is_felt_by_the_send_that_waits_with_the_same_draw() -> None:
    # A20 I12 R4
    scope = Scope("a", Limits(concurrency=1, delay=1.0, jitter=(0.5, 1.5)))
    scope.give(passed(scope, 0.0))
    interval = scope.earliest_at(0.0)
    scope.arrange(scope.effective._replace(delay=10.0))
    assert scope.earliest_at(0.0) == pytest.approx(10.0 * interval)
    scope.arrange(scope.effective._replace(delay=0.1))
    assert scope.earliest_at(0.0) == pytest.approx(0.1 * interval)


def test_a_jitter_that_is_switched_off_is_off_for_the_send_that_waits() -> None:
    # B06
    scope = Scope("a", Limits(concurrency=1, delay=2.0, jitter=(0.5, 1.5)))
    scope.give(passed(scope, 0.0))
    assert scope.earliest_at(0.0) != 2.0
    scope.arrange(scope.effective._replace(jitter=(1.0, 1.0)))
    assert scope.earliest_at(0.0) == 2.0


@pytest.mark.parametrize("jitter", [(0.5, 1.5), (0.9, 1.3), (1.0, 1.0)])
def test_each_interval_is_a_fresh_draw_within_the_jitter(jitter: tuple[float, float]) -> None:
    # A17 A18 A19 A20
    scope, now, intervals = Scope("a", Limits(concurrency=1, delay=1.0, jitter=jitter)), 0.0, []
    for _ in range(300):
        scope.give(passed(scope, now))
        intervals.append(scope.earliest_at(now) - now)
        now = scope.earliest_at(now)
    low, high = jitter
    assert all(low - 1e-9 <= interval <= high + 1e-9 for interval in intervals)
    if low < high:
        assert len({round(interval, 9) for interval in intervals}) == 300
        assert min(intervals) < low + 0.05 * (high - low)
        assert max(intervals) > high - 0.05 * (high - low)


def test_a_draw_is_not_spent_by_a_send_that_failed() -> None:
    # A20
    scope = Scope("a", Limits(concurrency=1, delay=1.0, jitter=(0.5, 1.5)))
    scope.give(passed(scope, 0.0))
    at = scope.earliest_at(0.0)
    scope.give(scope.take(at), was_sent=False)
    assert scope.earliest_at(at) == at


def test_what_one_scope_draws_does_not_depend_on_others() -> None:
    # A20: a stream a scope
    limits = Limits(concurrency=1, delay=1.0, jitter=(0.5, 1.5))

    def first(seed: int, id: str) -> float:
        scope = Scope(id, limits, seed=seed)
        scope.give(passed(scope, 0.0))
        return scope.earliest_at(0.0)

    assert first(1, "a") == first(1, "a")
    assert len({first(1, "a"), first(1, "b"), first(2, "a")}) == 3


def test_of_two_holds_the_later_holds_and_says_why() -> None:
    # R9
    scope = Scope("a", Limits(concurrency=1, delay=1.0))
    scope.give(passed(scope, 0.0))
    scope.hold(9.0, HINT)
    scope.hold(4.0, Reason("a", "backoff", 4.0, "step 1"))
    assert scope.earliest_at(1.0) == 9.0
    assert scope.reason(1.0) is HINT
    scope.lift()
    assert scope.earliest_at(1.0) <= 1.0


def test_lowering_the_concurrency_waits_for_those_in_flight() -> None:
    # P13
    scope = Scope("a", Limits(concurrency=3))
    slots = [passed(scope, 0.0) for _ in range(3)]
    scope.arrange(scope.effective._replace(concurrency=1))
    scope.give(slots[0])
    scope.give(slots[1])
    assert scope.earliest_at(1.0) == inf
    scope.give(slots[2])
    assert scope.earliest_at(1.0) <= 1.0


def test_new_limits_keep_what_is_in_flight_and_spent() -> None:
    # I12
    scope = Scope("a", Limits(concurrency=2, quota=2.0))
    passed(scope, 0.0)
    scope.apply_limits(Limits(concurrency=2, delay=1.0, quota=1.0))
    assert (scope.traffic.in_flight, scope.earliest_at(0.5)) == (1, 60.0)
    scope.apply_limits(Limits(concurrency=2, delay=1.0))
    assert scope.earliest_at(0.5) == 1.0
    scope.apply_limits(Limits(concurrency=1, quota=5.0))
    assert scope.earliest_at(0.5) == inf


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        (Limits(concurrency=1), "concurrency"),
        (Limits(concurrency=2, delay=1.0), "delay"),
        (Limits(concurrency=2, quota=1.0), "quota"),
    ],
)
def test_a_reason_names_scope_limit_time_and_source(limits: Limits, limit: str) -> None:
    # I11
    scope = Scope("a", limits)
    assert scope.reason(0.0).limit == ""
    passed(scope, 0.0)
    assert scope.reason(0.5) == Reason("a", limit, scope.earliest_at(0.5), "configuration")


def test_a_backed_off_delay_is_named_as_what_it_is() -> None:
    # I11
    scope = Scope("a", Limits(concurrency=2))
    backed_off = scope.effective._replace(delay=4.0, delay_limit="backoff", delay_source="backoff step 2")
    scope.arrange(backed_off)
    passed(scope, 0.0)
    assert scope.reason(1.0) == Reason("a", "backoff", 4.0, "backoff step 2")


def test_what_is_prepared_where_user_code_may_respond_is_spaced_as_sends_are() -> None:
    # A22
    scope = Scope("s", Limits(delay=1.0, concurrency=4))
    scope.traffic.caution = inf  # user code has responded
    for number in range(3):
        assert scope.prepares_at(float(number)) <= number
        scope.traffic.add_ahead()
        scope.traffic.start_preparing(float(number))
        assert scope.prepares_at(float(number)) == number + 1.0
    assert scope.earliest_at(2.5) == 3.0  # one that user code lets through waits behind the others too
    scope.traffic.drop_ahead()
    scope.traffic.release(0.0)
    assert scope.earliest_at(2.5) == 3.0
    slot = scope.take(1.0)  # the response to the second, which has come by now
    scope.sent(slot, 1.0, granted_at=1.0)
    assert scope.prepares_at(2.5) == 3.0
    scope.traffic.drop_ahead()
    scope.traffic.release(2.0)
    assert scope.earliest_at(2.5) == 2.0


def test_no_more_are_prepared_than_a_careful_scope_has_slots_quota_and_pages_left() -> None:
    # A22
    for limits in (
        Limits(concurrency=2),
        Limits(quota=2, window=10.0),
        Limits(pages=2),
        Limits(concurrency=2, delay_per_slot=1.0),
    ):
        scope = Scope("s", limits)
        scope.traffic.caution = 1.0
        for _ in range(2):
            assert scope.prepares_at(0.0) <= 0.0
            scope.traffic.add_ahead()
            scope.traffic.start_preparing(0.0)
        assert scope.prepares_at(0.0) == inf


def test_a_slot_for_each_that_is_ahead_has_to_have_rested() -> None:
    # A22
    scope = Scope("s", Limits(concurrency=3, delay_per_slot=10.0))
    scope.traffic.caution = inf
    for at in (0.0, 4.0):
        slot = scope.take(at)
        scope.sent(slot, at, granted_at=at)
        scope.give(slot)
    for opens_at in (-inf, 10.0, 14.0):
        assert scope.prepares_at(5.0) == opens_at
        scope.traffic.add_ahead()


def test_a_scope_is_careful_until_user_code_has_let_enough_through_after_awaiting_something() -> None:
    # A22
    scope = Scope("s", Limits())
    scope.traffic.caution = 2.0
    steps = [(scope.let_through_one(took), scope.is_careful) for took in (0.0, 0.5, 0.005, 0.5)]
    assert steps == [(False, True), (False, True), (False, True), (True, False)]
    scope.responded()
    assert (scope.let_through_one(0.5), scope.is_careful) == (False, True)


def test_a_careful_scope_prepares_early_by_the_time_to_connect_until_user_code_responds() -> None:
    # A22
    for limits in (Limits(concurrency=1, delay=1.0), Limits(concurrency=1, delay_per_slot=1.0)):
        scope = Scope("s", limits)
        scope.traffic.caution = 1.0
        slot = scope.take(0.0)
        scope.sent(slot, 0.3, granted_at=0.0)
        scope.give(slot)
        assert scope.prepares_at(0.5) == pytest.approx(1.0)
        scope.responded()
        assert scope.prepares_at(0.5) == pytest.approx(1.3)


def test_a_request_delays_another_one_by_what_it_uses_of_each_limit() -> None:
    scope = Scope("a", Limits(concurrency=3))
    assert not scope.delays(0.0, 1.0, 1.0, 1.0)
    scope.take(0.0)
    scope.take(0.0)
    assert scope.delays(0.0, 30.0, 1.0, 1.0)  # it is the last place
    assert not scope.delays(0.0, 31.0, 1.0, 1.0)
    scope = Scope("a", Limits(delay=2.0, jitter=(0.5, 1.5)))
    assert scope.delays(0.0, 2.9, 1.0, 1.0)
    assert not scope.delays(0.0, 3.0, 1.0, 1.0)
    scope = Scope("a", Limits(quota=10.0, window=60.0, sliding=True))
    assert not scope.delays(0.0, 0.0, 4.0, 6.0)
    assert scope.delays(0.0, 0.0, 5.0, 6.0)
    scope = Scope("a", Limits(pages=2))
    assert not scope.delays(0.0, 0.0, 1.0, 1.0)
    scope.take(0.0)
    assert scope.delays(0.0, 0.0, 1.0, 1.0)
    scope = Scope("a", Limits())
    scope.hold(5.0, HINT)
    assert not scope.delays(0.0, 5.0, 1.0, 1.0)
    assert scope.foreseen_at(0.0, 1.0) == 5.0


def test_a_scope_is_idle_when_forgetting_it_loses_nothing() -> None:
    # I01 P8
    scope = Scope("a", Limits(concurrency=1, delay=1.0, jitter=(0.5, 1.5), quota=5.0, window=10.0))
    assert scope.is_idle(0.0)
    slot = passed(scope, 0.0)
    assert not scope.is_idle(100.0)
    scope.give(slot)
    assert not scope.is_idle(1.2)
    assert not scope.is_idle(9.0)
    assert scope.is_idle(10.0)
    scope.waits.lanes = 1
    assert not scope.is_idle(10.0)
    scope.waits.lanes = 0
    scope.hold(20.0, HINT)
    assert not scope.is_idle(19.0)


def test_corrections_without_a_quota_do_nothing() -> None:
    scope = Scope("a", Limits())
    scope.correct(5.0, 0.0)
    scope.set_remaining(0.0, 0.0)
    assert scope.earliest_at(0.0) <= 0.0


def test_corrections_reach_the_quota() -> None:
    # F04
    scope = Scope("a", Limits(quota=5.0))
    passed(scope, 0.0)
    scope.correct(4.0, 1.0, sent_at=0.0)
    assert scope.earliest_at(1.0) == 60.0
    scope.set_remaining(2.0, 1.0)
    assert scope.earliest_at(1.0) <= 1.0


def at_rate(rate: float) -> Scope:
    """A scope at a rate, with a lane that always has something pending."""
    scope = Scope("a", Limits(delay=1.0 / rate, is_rate=True))
    scope.waits.need(None, 0.0)
    return scope


def test_i06_a_rate_makes_up_for_lateness_within_the_next_interval() -> None:
    scope = at_rate(4.0)
    passed(scope, 0.0)
    assert scope.earliest_at(0.0) == 0.25
    passed(scope, 0.375)
    assert scope.earliest_at(0.375) == 0.5  # due at 0.25, so the next is due at 0.5


def test_i06_a_rate_never_makes_up_for_more_than_one_interval_at_once() -> None:
    scope = at_rate(4.0)
    passed(scope, 0.0)
    passed(scope, 9.0)
    assert scope.earliest_at(9.0) == 9.0
    passed(scope, 9.0)
    assert scope.earliest_at(9.0) == 9.25


def test_i06_what_was_not_pending_was_not_late() -> None:
    scope = Scope("a", Limits(delay=0.25, is_rate=True))
    passed(scope, 0.0)
    scope.waits.need(None, 9.0)
    passed(scope, 9.0)
    assert scope.earliest_at(9.0) == 9.25


def test_i06_neither_a_delay_nor_a_rate_that_backs_off_makes_up_for_anything() -> None:
    plain = Scope("a", Limits(delay=0.25))
    backing_off = at_rate(4.0)
    backing_off.arrange(backing_off.effective._replace(delay=1.0, floor=1.0, delay_limit="backoff"))
    for scope in (plain, backing_off):
        passed(scope, 0.0)
        scope.waits.need(None, 0.0)
        passed(scope, 1.125)
        assert scope.earliest_at(1.125) == 1.125 + scope.effective.delay


def test_i06_what_was_late_shortens_no_delay_that_is_learned_before_the_next_send() -> None:
    scope = at_rate(1.0)
    passed(scope, 0.0)
    passed(scope, 1.75)
    assert scope.earliest_at(1.75) == 2.0
    scope.arrange(scope.effective._replace(delay=2.0, floor=2.0, delay_limit="backoff"))
    assert scope.earliest_at(1.75) == 3.75
    scope.apply_limits(Limits(delay=2.0))
    assert scope.earliest_at(1.75) == 3.75


def test_i06_a_rate_makes_up_for_the_time_of_a_write() -> None:
    scope = at_rate(1.0)
    passed(scope, 0.0)
    scope.written(1, 0.0, 0.25)
    assert scope.earliest_at(0.25) == 1.0  # a server that saw it at 0.25 sees the next from 1.0 on
    passed(scope, 1.5)
    scope.written(1, 1.5, 1.75)
    assert scope.earliest_at(1.75) == 2.0
    passed(scope, 2.75)
    scope.written(1, 2.75, 3.25)
    assert scope.earliest_at(3.25) == 3.25  # late by 1.25, of which one interval is made up for


def test_i06_a_delay_counts_from_the_end_of_a_write() -> None:
    scope = Scope("a", Limits(delay=1.0))
    scope.waits.need(None, 0.0)
    passed(scope, 0.0)
    scope.written(1, 0.0, 0.25)
    assert scope.earliest_at(0.25) == 1.25


@given(st.lists(st.tuples(st.floats(0.0, 3.0), st.sampled_from([0.0, 0.0, 0.1, 0.4, 0.7])), min_size=2, max_size=40))
def test_i06_a_span_holds_its_share_and_two_sends_more_at_the_most(sent: list[tuple[float, float]]) -> None:
    scope = at_rate(2.0)
    begun: list[float] = []
    ended: list[float] = [0.0]
    for late, took in sent:
        now = max(scope.earliest_at(ended[-1]), ended[-1]) + late
        passed(scope, now)
        scope.written(1, now, now + took)
        scope.give(1)
        begun.append(now)
        ended.append(now + took)
    for sends in (begun, ended[1:]):
        no_more_than_its_share(sends, 2.0)


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.0, 0.1, 0.3, 0.5, 2.0]), st.booleans()), min_size=2, max_size=40),
    st.sampled_from([(0.5, 1.5), (0.0, 2.0), (0.9, 1.1), (1.0, 1.4)]),
    st.integers(0, 99),
)
def test_a21_with_jitter_a_span_holds_its_share_and_two_sends_more(
    sent: list[tuple[float, bool]], jitter: tuple[float, float], seed: int
) -> None:
    scope = Scope("a", Limits(delay=0.5, is_rate=True, jitter=jitter), seed=seed)
    scope.waits.need(None, 0.0)
    passed(scope, 0.0)
    times = [0.0]
    for late, is_new in sent:
        now = max(scope.earliest_at(times[-1]), times[-1]) + late
        if is_new:  # nothing was pending before
            scope.waits.need_no_more(None, times[-1])
            scope.waits.need(None, now)
        times.append(now)
        passed(scope, now)
    no_more_than_its_share(times, 2.0)


def no_more_than_its_share(sends: list[float], rate: float) -> None:
    for first in range(len(sends)):
        for last in range(first, len(sends)):
            assert last - first + 1 <= (sends[last] - sends[first]) * rate + 2.0 + 1e-6


def test_i06_the_wait_of_a_backoff_is_not_made_up_for_after_its_end() -> None:
    scope = at_rate(4.0)
    passed(scope, 0.0)
    scope.arrange(scope.effective._replace(delay=1.0, floor=1.0, delay_limit="backoff"))
    passed(scope, 1.0)
    scope.arrange(scope.effective._replace(delay=0.25, floor=0.0, delay_limit="delay"))
    passed(scope, 2.0)  # it had waited for the backed-off delay
    assert scope.earliest_at(2.0) == 2.25
    passed(scope, 2.375)
    assert scope.earliest_at(2.375) == 2.5
