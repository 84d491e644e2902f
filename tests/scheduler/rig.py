"""A crawl without a transport. It drives a scheduler as the engine does, step by step or until everything is sent."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush, nlargest
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple

from trawl.robots import at_once
from trawl.scheduler.attempt import Attempt
from trawl.scheduler.scheduler import Refused, Scheduler
from trawl.throttling.limits import Limits
from trawl.throttling.reasons import Reason
from trawl.throttling.scope import Scope


class Send(NamedTuple):
    """One send: its time, label and slots."""

    time: float
    label: object
    slots: tuple[int, ...]


class Rig:
    """A scheduler with its scopes, a number as the clock, and a heap of future events as the network."""

    def __init__(
        self,
        limits: dict[str, Limits] | None = None,
        *,
        default: Limits | None = None,
        places: float = inf,
        seed: int = 0,
        **options: Any,
    ) -> None:
        self.limits = limits or {}
        self.default = default or Limits()
        self.scopes: dict[str, Scope] = {}
        self.seed = seed
        self.now = 0.0
        self.sends: list[Send] = []
        self.refused: list[Refused] = []
        self.scheduler = Scheduler(self.scope, places=places, **options)
        self._wire: list[tuple[float, int, Callable[[], None]]] = []
        self._by_hand: list[Attempt] = []
        self._count = 0

    def scope(self, id: str, now: float = 0.0) -> Scope:
        if id not in self.scopes:
            self.scopes[id] = Scope(id, self.limits.get(id, self.default), seed=self.seed)
        return self.scopes[id]

    def waiting(self, now: float, most: int) -> list[tuple[int, Reason]]:
        """Return the largest groups of waiting attempts, at most ``most``."""
        return nlargest(most, at_once(self.scheduler.waiting_in_steps(lambda: now)), key=itemgetter(0))

    def push(self, label: object, *scopes: str, not_before: float = 0.0, **options: Any) -> Attempt:
        """Push an attempt. A scope is an id or ``id=amount``."""
        named = []
        for scope in sorted(scopes):
            id, _, amount = scope.partition("=")
            named.append((id, float(amount) if amount else None))
        attempt = Attempt(label, tuple(named), **options)
        self.scheduler.push(attempt, self.now, not_before)
        return attempt

    def grant(self, **options: Any) -> Attempt | None:
        """Return the next request that is granted now. Refused requests are stored separately."""
        while isinstance(granted := self.scheduler.grant(self.now, **options), Refused):
            self.refused.append(granted)
        return granted

    def grant_all(self, **options: Any) -> list[object]:
        """Grant and send all requests that can be sent now. Returns their labels."""
        labels = []
        while (attempt := self.grant(**options)) is not None:
            self.sent(attempt)
            self._by_hand.append(attempt)
            labels.append(attempt.request)
        return labels

    def sent(self, attempt: Attempt) -> None:
        self.scheduler.sent(attempt, self.now)
        self.sends.append(Send(self.now, attempt.request, attempt.slots))

    def give_back(self, attempt: Attempt) -> None:
        self.scheduler.give_back(attempt, self.now)

    def give_back_all(self) -> None:
        """Release the places of all requests that were sent step by step."""
        for attempt in self._by_hand:
            self.give_back(attempt)
        self._by_hand.clear()

    def at(self, time: float, happening: Callable[[], None]) -> None:
        """Schedule an event."""
        self._count += 1
        heappush(self._wire, (time, self._count, happening))

    def run(
        self,
        latency: float | Callable[[Attempt], float] = 0.0,
        connect: float | Callable[[Attempt], float] = 0.0,
        until: float = inf,
        most: float = inf,
        stop: Callable[[], bool] = lambda: False,
    ) -> list[Send]:
        """Send until no request is left, ``until`` has passed, ``most`` were sent, or ``stop`` returns True."""
        while len(self.sends) < most:
            while (attempt := self.grant()) is not None:
                self._start(attempt, latency, connect)
            if stop():
                break
            following = min(self.scheduler.next_event(self.now), self._wire[0][0] if self._wire else inf)
            assert following > self.now or (self._wire and self._wire[0][0] <= self.now), "it would spin"
            if following > until or following == inf:
                break
            self.now = following
            while self._wire and self._wire[0][0] <= self.now:
                heappop(self._wire)[2]()
        return self.sends

    def _start(
        self, attempt: Attempt, latency: float | Callable[[Attempt], float], connect: float | Callable[[Attempt], float]
    ) -> None:
        connecting = connect(attempt) if callable(connect) else connect
        answering = latency(attempt) if callable(latency) else latency

        asked_at: float | None = None

        def go() -> None:
            nonlocal asked_at
            if asked_at is not None:
                attempt.waited(self.now - asked_at)
            if attempt.lane is not None and (opens_at := attempt.lane.opens_at(attempt, self.now)) > self.now:
                assert opens_at < inf
                asked_at = self.now
                self.at(opens_at, go)
                return
            self.sent(attempt)
            self.at(self.now + answering, lambda: self.give_back(attempt))

        if connecting:
            self.at(self.now + connecting, go)
        else:
            go()

    @property
    def times(self) -> list[float]:
        """The times of the sends, rounded to the microsecond."""
        return [round(send.time, 6) for send in self.sends]

    @property
    def labels(self) -> list[object]:
        """The labels of the sends, in order."""
        return [send.label for send in self.sends]
