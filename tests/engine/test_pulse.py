"""The dispatcher's wake-up: none lost, many are one."""

from __future__ import annotations

import math

import trio
from trio.testing import MockClock

from trawl.engine.pulse import Pulse


async def test_a_beat_wakes_the_waiting_task_at_once(autojump_clock: MockClock) -> None:
    pulse = Pulse()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pulse.wait, 60.0)
        await trio.testing.wait_all_tasks_blocked()
        pulse.beat()
    assert trio.current_time() == 0


async def test_a_beat_that_comes_first_is_kept_for_the_next_wait_and_only_that(autojump_clock: MockClock) -> None:
    pulse = Pulse()
    pulse.beat()
    pulse.beat()
    await pulse.wait(math.inf)
    await pulse.wait(3.0)
    assert trio.current_time() == 3


async def test_without_a_beat_the_wait_ends_at_its_instant(autojump_clock: MockClock) -> None:
    pulse = Pulse()
    await pulse.wait(2.5)
    assert trio.current_time() == 2.5
    await pulse.wait(1.0)  # an instant that has passed
    assert trio.current_time() == 2.5
