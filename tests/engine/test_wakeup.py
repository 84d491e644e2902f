"""The dispatcher's wake-up: none lost, many are one."""

from __future__ import annotations

import math

import trio
from trio.testing import MockClock

from trawl.engine.state import Wakeup


async def test_a_beat_wakes_the_waiting_task_at_once(autojump_clock: MockClock) -> None:
    wakeup = Wakeup()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wakeup.wait, 60.0, nursery.cancel_scope)
        await trio.testing.wait_all_tasks_blocked()
        wakeup.set()
    assert trio.current_time() == 0


async def test_a_beat_that_comes_first_is_kept_for_the_next_wait_and_only_that(autojump_clock: MockClock) -> None:
    wakeup = Wakeup()
    wakeup.set()
    wakeup.set()
    with trio.CancelScope() as alarm:
        await wakeup.wait(math.inf, alarm)
        await wakeup.wait(3.0, alarm)
    assert trio.current_time() == 3


async def test_without_a_beat_the_wait_ends_at_its_instant(autojump_clock: MockClock) -> None:
    wakeup = Wakeup()
    for until in (2.5, 1.0):  # the second has passed
        with trio.CancelScope() as alarm:
            await wakeup.wait(until, alarm)
        assert alarm.cancelled_caught
        assert trio.current_time() == 2.5


async def test_one_alarm_serves_many_waits_and_is_off_between_them(autojump_clock: MockClock) -> None:
    wakeup = Wakeup()
    with trio.CancelScope() as alarm:
        for until in (5.0, 6.0):
            wakeup.set()
            await wakeup.wait(until, alarm)
        await trio.sleep(60.0)
    assert not alarm.cancel_called


async def test_who_waits_wakes_earlier_when_something_may_go_before_its_instant(autojump_clock: MockClock) -> None:
    wakeup = Wakeup()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wakeup.wait, 60.0, nursery.cancel_scope)
        await trio.testing.wait_all_tasks_blocked()
        wakeup.wake_at(70.0)
        wakeup.wake_at(7.0)
    assert trio.current_time() == 7
