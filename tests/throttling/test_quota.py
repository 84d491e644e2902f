from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.throttling.quota import Quota
from trawl.throttling.snapshot import QuotaSnapshot


def spend(quota: Quota, amount: float, now: float) -> None:
    assert quota.ready_at(now, amount) <= now
    quota.reserve(amount)
    quota.charge(amount, now)


def test_what_fits_goes_and_the_next_waits_for_the_windows_end() -> None:
    # F01: anchored at the first consumption
    quota = Quota(3.0, 60.0)
    spend(quota, 1.0, 10.0)
    spend(quota, 2.0, 40.0)
    assert quota.ready_at(50.0, 1.0) == 70.0
    spend(quota, 3.0, 75.0)
    assert quota.ready_at(76.0, 1.0) == 135.0


def test_a_sliding_window_gives_room_charge_by_charge() -> None:
    # F02
    quota = Quota(3.0, 60.0, sliding=True)
    for at in (0.0, 10.0, 20.0):
        spend(quota, 1.0, at)
    assert quota.ready_at(30.0, 1.0) == 60.0
    assert quota.ready_at(30.0, 2.0) == 70.0
    spend(quota, 1.0, 60.0)
    assert quota.ready_at(60.0, 1.0) == 70.0


@pytest.mark.parametrize("is_unknown", [False, True])
def test_a_charge_that_is_told_of_after_a_later_one_leaves_a_sliding_window_first(is_unknown: bool) -> None:
    # user code took a while to respond, so its response counts as sent before the latest send
    quota = Quota(2.0, 8.0, sliding=True)
    spend(quota, 1.0, 3.0)
    if is_unknown:
        quota.restore(QuotaSnapshot(spent=0.0, unknown=1.0, unknown_at=1.0), 4.0)
    else:
        quota.charge(1.0, 1.0)
    assert quota.ready_at(4.0, 1.0) == 9.0
    assert not quota.stops(1.0, 9.0)
    assert quota.ready_at(9.0, 2.0) == 11.0


def test_nothing_is_free_even_when_all_is_spent() -> None:
    # F03
    quota = Quota(1.0, 60.0)
    spend(quota, 1.0, 0.0)
    assert quota.ready_at(1.0, 0.0) == -inf


def test_what_is_connecting_counts_and_what_failed_before_it_was_sent_does_not() -> None:
    # F04
    quota = Quota(1.0, 60.0)
    quota.reserve(1.0)
    assert quota.ready_at(0.0, 1.0) == inf
    assert quota.reserved == 1.0
    quota.release(1.0)
    assert quota.ready_at(0.0, 1.0) == -inf
    assert quota.reserved == 0.0


def test_the_window_counts_from_the_send_not_from_the_grant() -> None:
    quota = Quota(1.0, 60.0)
    quota.reserve(1.0)
    quota.charge(1.0, 5.0)
    assert quota.ready_at(6.0, 1.0) == 65.0


def test_what_was_consumed_corrects_the_charge_both_ways() -> None:
    # F04 E11
    quota = Quota(10.0, 60.0)
    spend(quota, 1.0, 0.0)
    quota.correct(6.0, 1.0)
    assert quota.spent(1.0) == 7.0
    quota.correct(-5.0, 2.0)
    assert quota.spent(2.0) == 2.0
    quota.correct(-5.0, 2.0)
    assert quota.spent(2.0) == 0.0


@pytest.mark.parametrize("sliding", [False, True])
def test_a_refund_for_an_earlier_window_makes_no_room_in_this_one(sliding: bool) -> None:
    quota = Quota(10.0, 60.0, sliding=sliding)
    spend(quota, 9.0, 0.0)
    spend(quota, 5.0, 61.0)
    quota.correct(-4.0, 62.0, sent_at=0.0)
    assert quota.spent(62.0) == 5.0
    quota.correct(-4.0, 62.0, sent_at=61.0)
    assert quota.spent(62.0) == 1.0


def test_what_the_server_says_remains_is_set_both_ways() -> None:
    # F04
    quota = Quota(10.0, 60.0)
    spend(quota, 1.0, 0.0)
    quota.set_remaining(0.0, 1.0)
    assert quota.ready_at(1.0, 1.0) == 60.0
    quota.set_remaining(4.0, 2.0)
    assert quota.spent(2.0) == 6.0
    quota.set_remaining(99.0, 3.0)
    assert quota.spent(3.0) == 0.0


def test_an_amount_above_the_whole_quota_goes_when_nothing_is_spent() -> None:
    # F05
    quota = Quota(10.0, 60.0)
    assert quota.ready_at(0.0, 25.0) == -inf
    spend(quota, 1.0, 0.0)
    assert quota.ready_at(0.0, 25.0) == 60.0
    spend(quota, 25.0, 60.0)
    assert quota.ready_at(61.0, 1.0) == 120.0


def test_a_window_of_nothing_never_holds_anything_up() -> None:
    # F06
    quota = Quota(1.0, 0.0)
    for _ in range(5):
        spend(quota, 1.0, 0.0)
    assert quota.ready_at(0.0, 100.0) == -inf
    assert quota.spent(0.0) == 0.0


def test_tenths_that_add_up_to_the_quota_fit() -> None:
    quota = Quota(0.3, 60.0)
    for _ in range(3):
        spend(quota, 0.1, 0.0)
    assert quota.ready_at(0.0, 0.1) == 60.0


def test_limits_that_change_keep_what_is_spent() -> None:
    # I12
    quota = Quota(2.0, 60.0)
    spend(quota, 2.0, 0.0)
    quota.apply_limits(3.0, 60.0, sliding=False)
    assert quota.ready_at(1.0, 1.0) == -inf
    quota.apply_limits(2.0, 30.0, sliding=False)
    assert quota.ready_at(1.0, 1.0) == 30.0
    quota.apply_limits(2.0, 30.0, sliding=True)
    assert quota.ready_at(1.0, 1.0) == 30.0
    quota.apply_limits(2.0, 40.0, sliding=False)
    assert quota.ready_at(1.0, 1.0) == 40.0


AMOUNTS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0, 8.0])


@given(st.lists(st.tuples(AMOUNTS, st.floats(0.0, 3.0)), max_size=40))
def test_no_sliding_window_holds_more_than_the_quota(steps: list[tuple[float, float]]) -> None:
    # F02 F05: a second opinion that adds up every charge in the window
    quota, charges, now = Quota(5.0, 4.0, sliding=True), list[tuple[float, float]](), 0.0
    for amount, pause in steps:
        now += pause
        used = sum(charged for at, charged in charges if at + 4.0 > now)
        fits = amount == 0.0 or used + amount <= 5.0 or (amount > 5.0 and used == 0.0)
        ready_at = quota.ready_at(now, amount)
        assert (ready_at <= now) == fits
        if fits:
            spend(quota, amount, now)
            charges.append((now, amount))
        else:
            left = sum(charged for at, charged in charges if at + 4.0 > ready_at)
            assert left + amount <= 5.0 or left == 0.0
            before = sum(charged for at, charged in charges if at + 4.0 >= ready_at)
            assert before + amount > 5.0


@given(st.lists(st.tuples(AMOUNTS, st.floats(0.0, 3.0)), max_size=40))
def test_no_anchored_window_holds_more_than_the_quota(steps: list[tuple[float, float]]) -> None:
    # F01 F05
    quota, used, ends_at, now = Quota(5.0, 4.0), 0.0, -inf, 0.0
    for amount, pause in steps:
        now += pause
        if now >= ends_at:
            used = 0.0
        fits = amount == 0.0 or used + amount <= 5.0 or (amount > 5.0 and used == 0.0)
        assert quota.ready_at(now, amount) == (-inf if fits else ends_at)
        if fits and amount:
            spend(quota, amount, now)
            used += amount
            ends_at = ends_at if now < ends_at else now + 4.0


def used(quota: Quota, *charges: tuple[float, float]) -> Quota:
    """A quota of which these amounts were charged at these instants."""
    for at, amount in charges:
        spend(quota, amount, at)
    return quota


def test_i12_f01_a_window_that_is_over_does_not_come_back_when_windows_become_longer() -> None:
    quota = used(Quota(2.0, 60.0), (0.0, 2.0))
    quota.apply_limits(2.0, 3600.0, sliding=False, now=500.0)
    assert quota.ready_at(500.0, 2.0) == -inf
    used(quota, (3500.0, 2.0))  # the first consumption of a window anchors it
    assert quota.ready_at(3600.0, 1.0) == 7100.0


@pytest.mark.parametrize("window", [60.0, 90.0])
def test_i12_f02_what_was_spent_while_windows_slid_counts_when_they_slide_no_more(window: float) -> None:
    quota = used(Quota(3.0, 60.0, sliding=True), (0.0, 1.0), (50.0, 1.0), (55.0, 1.0))
    quota.apply_limits(3.0, window, sliding=False, now=65.0)
    assert quota.spent(65.0) == 2.0  # the first is older than a window
    assert quota.ready_at(65.0, 2.0) == 50.0 + window


def test_i12_f02_a_window_that_is_over_is_not_spent_when_windows_begin_to_slide() -> None:
    quota = used(Quota(3.0, 60.0), (0.0, 3.0))
    quota.apply_limits(3.0, 600.0, sliding=True, now=100.0)
    assert quota.ready_at(100.0, 3.0) == -inf


def test_who_was_told_to_wait_for_a_send_is_looked_at_again_when_it_is_charged() -> None:
    quota = Quota(2.0, 60.0)
    quota.reserve(2.0)
    assert quota.ready_at(0.0, 1.0) == inf  # what is still connecting may give its amount back
    before = quota.refills
    quota.charge(2.0, 1.0)
    assert quota.refills > before
    assert quota.ready_at(1.0, 1.0) == 61.0
    before = quota.refills
    quota.correct(1.0, 2.0)
    assert quota.refills == before  # nobody waits for that


def test_i12_f02_what_was_spent_last_counts_from_there_when_windows_begin_to_slide() -> None:
    quota = Quota(20.0, 60.0)
    spend(quota, 1.0, 0.0)
    spend(quota, 1.0, 16.0)
    quota.apply_limits(2.0, 6.0, sliding=True, now=17.0)
    assert quota.ready_at(17.0, 1.0) == 22.0


def test_what_a_killed_run_may_have_spent_counts_on_when_the_window_becomes_a_shorter_one_that_slides() -> None:
    quota = Quota(20.0, 60.0)
    quota.restore(QuotaSnapshot(spent=0.1, ends_at=53.0, window=60.0, unknown=2.0, unknown_at=-1.0), 0.0)
    quota.apply_limits(2.0, 6.0, sliding=True, now=0.0)
    assert quota.ready_at(0.0, 2.0) == 5.0
