"""The dispatcher's alarm: what it wakes for is done outside of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from trawl.engine.cache_lookup import NoCache
from trawl.engine.dispatcher import Dispatcher
from trawl.engine.no_job import Alone
from trawl.engine.state import State


class Prefetcher:
    """Pages that take a while to be leased; counts how often that was begun, and done."""

    def __init__(self) -> None:
        self.are_wanted = False
        self.begun = self.done = 0

    def is_due(self, now: float) -> bool:
        return self.are_wanted

    def next_due(self) -> float:
        return math.inf

    async def refill(self, now: float, clock: Callable[[], float]) -> float:
        self.begun += 1
        await trio.lowlevel.checkpoint()
        self.done += 1
        self.are_wanted = False
        return clock()


def dispatcher_of(state: State, prefetcher: Prefetcher, *, next_event: float) -> Dispatcher:
    """A dispatcher with nothing to grant, whose scheduler has something new at ``next_event``."""
    scheduler: Any = SimpleNamespace(
        pending_direct=0, in_flight=0, places=1, begins_without_places=False,
        grant=lambda now, pages: None, has_ready=lambda: False,
        next_event=lambda now: next_event if now < next_event else math.inf,
    )  # fmt: skip
    throttle: Any = SimpleNamespace(
        tick=lambda now: False,
        warnings=SimpleNamespace(waiting_direct=lambda count: None),
        next_change=lambda now: math.inf,
    )
    rest: Any = SimpleNamespace(unasked=tuple, steps=0, allow=lambda most, places: None, grant=None, run=None)
    engine: Any = SimpleNamespace(
        scheduler=scheduler, throttle=throttle, gates=rest, start_requests=rest, cache_lookup=NoCache(),
        shared_job=Alone(state), context=SimpleNamespace(state=state),
    )  # fmt: skip
    prefetcher_: Any = prefetcher
    return Dispatcher(engine, rest, prefetcher_, rest, rest)


@pytest.mark.interpreted
async def test_a_change_just_before_the_alarm_goes_off_is_not_worked_on_under_it(mock_clock: MockClock) -> None:
    state, prefetcher = State(1), Prefetcher()
    state.admitted(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(dispatcher_of(state, prefetcher, next_event=10.0).run, nursery)
        await wait_all_tasks_blocked()
        prefetcher.are_wanted = True
        state.wakeup.set()
        mock_clock.jump(20.0)  # the clock has passed the alarm's instant before the dispatcher runs
        await wait_all_tasks_blocked()
        assert (prefetcher.begun, prefetcher.done) == (1, 1)
        state.end("enough")
