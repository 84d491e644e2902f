"""The dispatcher: one task that decides who goes, and starts them.

Place first, then decide, then start, with no await between: the core grants only what has a place in every scope and
among all, at the instant ``now``, and the request's task is started in the same step. Between decisions the dispatcher
sleeps under a cancel scope whose deadline is the next instant at which the core could answer otherwise; a change wakes it.
"""

from __future__ import annotations

import math

import trio

from trawl.engine.flow import Flow
from trawl.engine.places import Places
from trawl.engine.reading import Reading
from trawl.engine.robots_gate import RobotsGates
from trawl.engine.state import State
from trawl.engine.turn import Turn
from trawl.scheduler import Chooser, Heads, Refused
from trawl.throttling import Throttle

__all__ = ["Dispatcher"]


class Dispatcher:
    """Grants what may go, until the crawl is idle or ending."""

    def __init__(
        self,
        *,
        chooser: Chooser,
        heads: Heads,
        throttle: Throttle,
        gates: RobotsGates,
        places: Places,
        flow: Flow,
        reading: Reading,
        state: State,
        callbacks: int,
    ) -> None:
        self._chooser = chooser
        self._heads = heads
        self._throttle = throttle
        self._gates = gates
        self._places = places
        self._flow = flow
        self._reading = reading
        self._state = state
        self._callbacks = callbacks

    async def run(self, nursery: trio.Nursery) -> None:
        """Start one task in ``nursery`` for each request that may go; return when none will come, or the crawl is ending."""
        state = self._state
        while state.open and not state.is_ending:
            await self._grant(nursery)
            if not state.open or state.is_ending:
                break
            now = trio.current_time()
            if self._chooser.has_place and state.callbacks < self._callbacks:
                self._reading.allow(self._chooser.pending)
            await state.pulse.wait(self._next_event(now))

    async def _grant(self, nursery: trio.Nursery) -> None:
        state, chooser, heads = self._state, self._chooser, self._heads
        while not state.is_ending:
            if heads.are_wanted:
                await heads.refill(trio.current_time())
            for origin in self._gates.unasked():
                nursery.start_soon(self._gates.ask, origin)
            now = trio.current_time()
            entry = chooser.grant(now, pages=state.callbacks < self._callbacks)
            if entry is None:
                return
            state.turns += 1
            if isinstance(entry, Refused):
                nursery.start_soon(self._flow.refuse, entry.entry, entry.reason)
                heads.granted(entry.entry)
                continue
            turn = Turn(entry)
            if entry.waiter is not None:
                entry.waiter.turn = turn
            self._places.take(entry)
            nursery.start_soon(self._flow.run, turn)
            heads.granted(entry)

    def _next_event(self, now: float) -> float:
        if self._callbacks <= self._state.callbacks and not self._chooser.has_direct:
            return math.inf
        return min(self._chooser.next_event(now), self._throttle.next_change(now))
