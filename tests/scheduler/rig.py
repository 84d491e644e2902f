"""A crawl without a wire: drives a chooser as the engine does, by hand or until all is sent."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush, nlargest
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple

from trawl.robots import at_once
from trawl.scheduler.grant import Grant
from trawl.scheduler.scheduler import Refused, Scheduler
from trawl.throttling.limits import Limits
from trawl.throttling.reasons import Reason
from trawl.throttling.scope import Scope


class Send(NamedTuple):
    """One send: when, which, and in which slots."""

    time: float
    label: object
    slots: tuple[int, ...]


class Rig:
    """A chooser with its scopes, a clock that is a number, and a wire that is a heap of things to come."""

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
        self._by_hand: list[Grant] = []
        self._count = 0

    def scope(self, id: str, now: float = 0.0) -> Scope:
        if id not in self.scopes:
            self.scopes[id] = Scope(id, self.limits.get(id, self.default), seed=self.seed)
        return self.scopes[id]

    def waiting(self, now: float, most: int) -> list[tuple[int, Reason]]:
        """Return the largest groups of waiting grants, at most ``most``."""
        return nlargest(most, at_once(self.scheduler.waiting_in_steps(lambda: now)), key=itemgetter(0))

    def push(self, label: object, *scopes: str, not_before: float = 0.0, **options: Any) -> Grant:
        """Push a grant; a scope is an id, or ``id=amount``."""
        named = []
        for scope in sorted(scopes):
            id, _, amount = scope.partition("=")
            named.append((id, float(amount) if amount else None))
        grant = Grant(label, tuple(named), **options)
        self.scheduler.push(grant, self.now, not_before)
        return grant

    def grant(self, **options: Any) -> Grant | None:
        """The next grant granted now; what is refused is kept aside."""
        while isinstance(granted := self.scheduler.grant(self.now, **options), Refused):
            self.refused.append(granted)
        return granted

    def grant_all(self, **options: Any) -> list[object]:
        """The labels of all that goes now; each is sent at once."""
        labels = []
        while (grant := self.grant(**options)) is not None:
            self.sent(grant)
            self._by_hand.append(grant)
            labels.append(grant.request)
        return labels

    def sent(self, grant: Grant) -> None:
        self.scheduler.sent(grant, self.now)
        self.sends.append(Send(self.now, grant.request, grant.slots))

    def give_back(self, grant: Grant) -> None:
        self.scheduler.give_back(grant, self.now)

    def give_back_all(self) -> None:
        """Have all that was sent by hand come back."""
        for grant in self._by_hand:
            self.give_back(grant)
        self._by_hand.clear()

    def at(self, time: float, happening: Callable[[], None]) -> None:
        """Have something happen later."""
        self._count += 1
        heappush(self._wire, (time, self._count, happening))

    def run(
        self,
        latency: float | Callable[[Grant], float] = 0.0,
        connect: float | Callable[[Grant], float] = 0.0,
        until: float = inf,
        most: float = inf,
        stop: Callable[[], bool] = lambda: False,
    ) -> list[Send]:
        """Send until nothing is left, ``until`` is past, ``most`` were sent, or ``stop`` says so after a choice."""
        while len(self.sends) < most:
            while (grant := self.grant()) is not None:
                self._start(grant, latency, connect)
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
        self, grant: Grant, latency: float | Callable[[Grant], float], connect: float | Callable[[Grant], float]
    ) -> None:
        connecting = connect(grant) if callable(connect) else connect
        answering = latency(grant) if callable(latency) else latency

        asked_at: float | None = None

        def go() -> None:
            nonlocal asked_at
            if asked_at is not None:
                grant.waited(self.now - asked_at)
            if grant.lane is not None and (opens_at := grant.lane.opens_at(grant, self.now)) > self.now:
                assert opens_at < inf
                asked_at = self.now
                self.at(opens_at, go)
                return
            self.sent(grant)
            self.at(self.now + answering, lambda: self.give_back(grant))

        if connecting:
            self.at(self.now + connecting, go)
        else:
            go()

    @property
    def times(self) -> list[float]:
        """When sends were, rounded to the microsecond."""
        return [round(send.time, 6) for send in self.sends]

    @property
    def labels(self) -> list[object]:
        """What was sent, in order."""
        return [send.label for send in self.sends]
