"""The clock of a simulation."""

from __future__ import annotations

import trio
import trio.testing

from trawl.testing.clock import VirtualClock


def test_a_day_passes_in_no_time_and_to_the_instant() -> None:
    async def slept() -> list[float]:
        woken = []

        async def sleep_until(instant: float) -> None:
            await trio.sleep_until(instant)
            woken.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            for instant in (86_400.1, 0.1, 0.30000000000000004, 3_600.0):
                nursery.start_soon(sleep_until, instant)
        return woken

    assert trio.run(slept, clock=VirtualClock()) == [0.1, 0.30000000000000004, 3_600.0, 86_400.1]


def test_it_stands_still_while_anything_can_run() -> None:
    async def busy() -> float:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 5.0)
            for _ in range(1_000):
                await trio.lowlevel.checkpoint()
            before = trio.current_time()
        return before

    assert trio.run(busy, clock=VirtualClock()) == 0.0


def test_who_waits_until_all_are_blocked_is_woken_when_no_timer_is_left() -> None:
    async def wait() -> float:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 5.0)
            await trio.testing.wait_all_tasks_blocked()
            woken_at = trio.current_time()
        return woken_at

    assert trio.run(wait, clock=VirtualClock()) == 5.0
