from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from trawl.throttling.limits import Slots


def test_slots_are_numbered_from_1_and_the_lowest_free_one_goes_next() -> None:
    # A04
    slots = Slots()
    assert [slots.take(0.0, 3, 0.0) for _ in range(3)] == [1, 2, 3]
    slots.give(2)
    slots.give(1)
    assert slots.take(1.0, 3, 0.0) == 1
    assert slots.take(1.0, 3, 0.0) == 2


def test_a_slot_rests_from_its_earlier_send_not_from_its_response() -> None:
    # A06 A07
    slots = Slots()
    number = slots.take(0.0, 1, 1.0)
    slots.sent(number, 0.2)
    slots.give(number)
    assert slots.ready_at(1, 1.0) == 1.2


def test_a_busy_slot_is_not_ready_even_when_its_delay_has_passed() -> None:
    # A09
    slots = Slots()
    slots.sent(slots.take(0.0, 1, 1.0), 0.0)
    assert slots.ready_at(1, 1.0) == inf


def test_a_new_slot_is_opened_only_when_none_has_rested() -> None:
    slots = Slots()
    slots.sent(slots.take(0.0, 3, 1.0), 0.0)
    slots.give(1)
    assert slots.take(0.5, 3, 1.0) == 2
    slots.sent(2, 0.5)
    slots.give(2)
    assert slots.take(1.0, 3, 1.0) == 1


def test_a_slot_that_was_taken_in_vain_need_not_rest() -> None:
    slots = Slots()
    slots.give(slots.take(0.0, 1, 1.0))
    assert slots.ready_at(1, 1.0) <= 0.0


def test_slots_beyond_a_lowered_limit_are_not_used_and_keep_their_times() -> None:
    # P13: or eight rested slots would send eight times a second at a concurrency of two
    slots = Slots()
    for number in range(1, 5):
        slots.sent(slots.take(0.0, 4, 1.0), number / 10)
    for number in (4, 3, 2, 1):
        slots.give(number)
    assert slots.ready_at(2, 1.0) == 1.1
    assert slots.take(1.5, 2, 1.0) == 1
    assert slots.take(1.5, 2, 1.0) == 2
    assert slots.ready_at(2, 1.0) == inf
    assert slots.ready_at(4, 1.0) == 1.3


def test_a_rest_that_appears_later_counts_from_sends_before_it() -> None:
    # I12
    slots = Slots()
    slots.sent(slots.take(0.0, 1, 0.0), 4.0)
    slots.give(1)
    assert slots.ready_at(1, 0.0) == -inf
    assert slots.ready_at(1, 2.0) == 6.0
    assert slots.ready_at(1, 3.0) == 7.0


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0.0, 1.0)), max_size=60), st.integers(1, 4), st.floats(0.0, 2.0))
def test_no_slot_sends_twice_within_its_rest_nor_carries_two(
    steps: list[tuple[int, float]], most: int, rest: float
) -> None:
    # A04 A06 A09
    slots, busy, sent_at, now = Slots(), list[int](), dict[int, float](), 0.0
    for choice, pause in steps:
        now += pause
        if choice < 3 and len(busy) < most and slots.ready_at(most, rest) <= now:
            number = slots.take(now, most, rest)
            assert 1 <= number <= most
            assert number not in busy
            assert now >= sent_at.get(number, -inf) + rest
            slots.sent(number, now)
            sent_at[number] = now
            busy.append(number)
        elif choice >= 3 and busy:
            slots.give(busy.pop(choice % len(busy)))
        if len(busy) < most:
            idle = [sent_at.get(number, -inf) + rest for number in range(1, most + 1) if number not in busy]
            assert max(slots.ready_at(most, rest), now) == max(min(idle), now)
