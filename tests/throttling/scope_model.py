"""A second implementation of a scope, which stores every send and computes each limit from all sends.

The model is slow and shares no code with the scope. Times are multiples of ``TICK``, so that sums are exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

import attrs
from hypothesis import strategies as st

from trawl.throttling.limits import Limits
from trawl.throttling.reasons import Reason
from trawl.throttling.scope import Scope

__all__ = ["AMOUNTS", "LIMITS", "STEPS", "TICK", "Flight", "Model", "Play"]

TICK = 0.25
HORIZON = 80
"""Number of ticks after which no limit of ``LIMITS`` applies."""

AMOUNTS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 8.0])
_TIMES = st.sampled_from([0.0, 0.0, TICK, 0.5, 1.0, 2.5])
_PLACES = st.sampled_from([1, 2, 3, inf])

LIMITS = st.builds(
    Limits,
    concurrency=_PLACES,
    delay=_TIMES,
    delay_per_slot=_TIMES,
    quota=st.sampled_from([inf, 1.0, 3.0]),
    window=st.just(4.0),
    sliding=st.booleans(),
)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.integers(1, 12)),
        st.tuples(st.just("take"), AMOUNTS),
        st.tuples(st.just("take"), AMOUNTS),
        st.tuples(st.just("send"), st.integers(0, 3)),
        st.tuples(st.just("send"), st.integers(0, 3)),
        st.tuples(st.just("end"), st.integers(0, 3)),
        st.tuples(st.just("hold"), st.integers(1, 12)),
        st.tuples(st.just("lift"), st.none()),
        st.tuples(st.just("delay"), _TIMES),
        st.tuples(st.just("delay_per_slot"), _TIMES),
        st.tuples(st.just("concurrency"), _PLACES),
    ),
    max_size=40,
)
"""Events of a scope: time passes, a request takes the scope, is sent or ends, or a limit changes."""


@attrs.define(eq=False)
class Flight:
    """A request that has taken the scope."""

    slot: int
    amount: float
    sent_at: float | None = None


@attrs.define
class Model:
    """A model of a scope, based on its history."""

    concurrency: float
    delay: float
    delay_per_slot: float
    quota: float
    window: float
    sliding: bool
    held_until: float = -inf
    flights: list[Flight] = attrs.Factory(list)
    sends: list[tuple[float, int, float]] = attrs.Factory(list)

    def lets(self, limit: str, now: float, amount: float) -> bool:
        """Return whether one limit allows a request at ``now``, if nothing else happens until then."""
        if limit == "concurrency":
            return len(self.flights) < self.concurrency
        if limit == "hint":
            return now >= self.held_until
        if limit == "delay":
            is_open = all(flight.sent_at is not None for flight in self.flights)
            return not self.delay or (is_open and all(at + self.delay <= now for at, _, _ in self.sends))
        if limit == "delay_per_slot":
            return not self.delay_per_slot or any(self._has_rested(slot, now) for slot in self._slots())
        used = self.spent(now) + sum(flight.amount for flight in self.flights if flight.sent_at is None)
        return not amount or not used or used + amount <= self.quota

    def opens(self, now: float, amount: float) -> dict[str, float]:
        """Return the time at which each limit allows a request; ``inf`` if another request must end first."""
        found = {}
        for limit in ("concurrency", "hint", "delay", "delay_per_slot", "quota"):
            ticks = (now + tick * TICK for tick in range(HORIZON))
            found[limit] = next((at for at in ticks if self.lets(limit, at, amount)), inf)
        return found

    def spent(self, now: float) -> float:
        """Return the amount charged in the window at ``now``."""
        if self.sliding:
            return sum(amount for at, _, amount in self.sends if at + self.window > now)
        spent, ends_at = 0.0, -inf
        for at, _, amount in self.sends:
            if amount and at >= ends_at:
                spent, ends_at = 0.0, at + self.window
            spent += amount
        return spent if now < ends_at else 0.0

    def _slots(self) -> Iterator[int]:
        used = 1 + len(self.flights) + len(self.sends)
        yield from range(1, int(min(self.concurrency, used)) + 1)

    def _has_rested(self, slot: int, now: float) -> bool:
        return all(flight.slot != slot for flight in self.flights) and all(
            at + self.delay_per_slot <= now for at, used, _ in self.sends if used == slot
        )


class Play:
    """A scope and its model, which receive the same events."""

    def __init__(self, limits: Limits) -> None:
        self.now = 0.0
        self.scope = Scope("a", limits)
        self.model = Model(
            limits.concurrency, limits.delay, limits.delay_per_slot, limits.quota, limits.window, limits.sliding
        )

    def step(self, what: str, value: Any) -> Flight | None:
        """Apply one event. Returns the request that took the scope, or None."""
        model = self.model
        unsent = [flight for flight in model.flights if flight.sent_at is None]
        if what == "pass":
            self.now += value * TICK
        elif what == "take" and self.scope.earliest_at(self.now, value) <= self.now:
            return self.take(value)
        elif what == "send" and unsent:
            self.send(unsent[value % len(unsent)])
        elif what == "end" and model.flights:
            self.end(model.flights[value % len(model.flights)])
        elif what == "hold":
            until = self.now + value * TICK
            self.scope.hold(until, Reason("a", "hint", until, "Retry-After"))
            model.held_until = max(model.held_until, until)
        elif what == "lift":
            self.scope.lift()
            model.held_until = -inf
        elif what in ("delay", "delay_per_slot", "concurrency"):
            self.scope.arrange(self.scope.effective._replace(**{what: value}))
            setattr(model, what, value)
        return None

    def take(self, amount: float) -> Flight:
        """Take the scope for a request."""
        flight = Flight(self.scope.take(self.now, amount), amount)
        self.model.flights.append(flight)
        return flight

    def send(self, flight: Flight) -> None:
        """Send a request."""
        flight.sent_at = self.now
        self.scope.sent(flight.slot, self.now, flight.amount)
        self.model.sends.append((self.now, flight.slot, flight.amount))

    def end(self, flight: Flight) -> None:
        """End a request, sent or not."""
        self.scope.give(flight.slot, was_sent=flight.sent_at is not None, amount=flight.amount)
        self.model.flights.remove(flight)
