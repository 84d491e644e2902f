"""The clock of a simulation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from trawl.testing.clock import START, VirtualClock, sleep_until


@pytest.mark.parametrize("sleep", [trio.sleep_until, sleep_until])
def test_a_day_passes_in_no_time_and_to_the_instant(sleep: Callable[[float], Awaitable[None]]) -> None:
    async def slept() -> list[float]:
        woken = []

        async def sleep_until(instant: float) -> None:
            await sleep(START + instant)
            woken.append(round(trio.current_time() - START, 9))

        async with trio.open_nursery() as nursery:
            for instant in (86_400.1, 0.1, 0.3, 3_600.0):
                nursery.start_soon(sleep_until, instant)
        return woken

    assert trio.run(slept, clock=VirtualClock()) == [0.1, 0.3, 3_600.0, 86_400.1]


def test_it_starts_late_so_that_an_instant_of_zero_is_seen_to_be_none() -> None:
    async def now() -> float:
        return trio.current_time()

    assert trio.run(now, clock=VirtualClock()) == 100_000.0


def test_it_stands_still_while_anything_can_run() -> None:
    async def busy() -> float:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 5.0)
            for _ in range(1_000):
                await trio.lowlevel.checkpoint()
            before = trio.current_time()
        return before

    assert trio.run(busy, clock=VirtualClock()) == START


def test_who_waits_until_all_are_blocked_is_woken_when_no_timer_is_left() -> None:
    async def wait() -> float:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 5.0)
            await trio.testing.wait_all_tasks_blocked()
            woken_at = trio.current_time()
        return woken_at

    assert trio.run(wait, clock=VirtualClock()) == START + 5.0


def test_sleepers_and_timers_wake_in_the_order_of_their_instants() -> None:
    async def slept() -> list[float]:
        woken = []

        async def sleep(sleep: Callable[[float], Awaitable[None]], instant: float) -> None:
            await sleep(START + instant)
            woken.append(round(trio.current_time() - START, 9))

        async with trio.open_nursery() as nursery:
            for instant in (4.0, 2.0, 3.0, 1.0, 2.5):
                nursery.start_soon(sleep, trio.sleep_until if instant > 2 else sleep_until, instant)
        return woken

    assert trio.run(slept, clock=VirtualClock()) == [1.0, 2.0, 2.5, 3.0, 4.0]


def test_a_sleeper_that_is_cancelled_is_not_woken_later() -> None:
    async def slept() -> tuple[float, float]:
        with trio.move_on_after(2.0):
            await sleep_until(START + 5.0)
        cancelled_at = trio.current_time()
        await sleep_until(START + 1.0)  # it has passed: a checkpoint
        await sleep_until(START + 7.0)
        return cancelled_at, trio.current_time()

    assert trio.run(slept, clock=VirtualClock()) == (START + 2.0, START + 7.0)


async def test_on_another_clock_a_sleeper_is_one_of_trios(autojump_clock: MockClock) -> None:
    await sleep_until(9.0)
    assert trio.current_time() == 9.0
