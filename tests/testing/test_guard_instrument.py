"""A simulated crawl that can't go on is told from one that is slow."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from trawl.testing import NotSimulated, Stuck
from trawl.testing.clock import GuardInstrument, VirtualClock, guarded


def mock() -> trio.abc.Clock:
    return MockClock(autojump_threshold=0)


CLOCKS = pytest.mark.parametrize("clock", [mock, VirtualClock])


@CLOCKS
def test_who_waits_for_ever_is_cancelled_and_told(clock: Callable[[], trio.abc.Clock]) -> None:
    async def main() -> None:
        with guarded() as guard, GuardInstrument(guard) as watch:
            await trio.Event().wait()
        with pytest.raises(Stuck, match="no timer is set"):
            watch.check()

    trio.run(main, clock=clock())


@CLOCKS
def test_who_waits_long_is_not(clock: Callable[[], trio.abc.Clock]) -> None:
    async def main() -> None:
        with guarded() as guard, GuardInstrument(guard) as watch:
            for _ in range(300):
                await trio.sleep(3600)
        watch.check()
        assert not guard.scope.cancelled_caught

    trio.run(main, clock=clock())


@CLOCKS
def test_a_thread_that_slipped_through_is_seen_before_the_clock_jumps_far(clock: Callable[[], trio.abc.Clock]) -> None:
    from trio.to_thread import run_sync as slipped  # before a guard could wrap it

    async def main() -> None:
        await slipped(int)  # Trio keeps the thread for the next
        with pytest.raises(NotSimulated, match="a real thread"), guarded() as guard, GuardInstrument(guard):
            await slipped(time.sleep, 0.02)

    trio.run(main, clock=clock())
