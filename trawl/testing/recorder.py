"""Records a simulated run: the slots of its sends, and the times at which its scopes were closed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

import attrs
import trio

from trawl.testing.sends import Send, SendLog, rounded

if TYPE_CHECKING:
    from trawl.engine import Crawl
    from trawl.http import Outcome
    from trawl.scheduler import Grant
    from trawl.throttling import ScopeReport
    from trawl.throttling.scope import Scope

__all__ = ["Kind", "Recorder", "Span", "merge_stretches"]

Kind = Literal["delay", "delay_per_slot", "backoff", "hint", "quota", "robots"]
"""The limit that closed a scope."""


@attrs.frozen
class Span:
    """A time, from ``start`` to ``end``, at which a scope could send nothing.

    Attributes:
        scope: The scope's id.
        start: Seconds since the crawl began.
        end: Seconds since the crawl began.
        kind: The limit that closed it.
        source: The origin of that limit: configuration, a backoff step, a response's header.
        slot: The closed slot, from 1; 0: the whole scope.
    """

    scope: str
    start: float
    end: float
    kind: Kind = "delay"
    source: str = ""
    slot: int = 0


def merge_stretches(stretches: Iterable[Span]) -> Sequence[Span]:
    """Merge overlapping stretches of one scope, slot and kind; those of slots come first."""
    made: list[Span] = []
    for stretch in sorted(stretches, key=_order):
        last = made[-1] if made else None
        if last and _order(last)[:4] == _order(stretch)[:4] and stretch.start < last.end:
            made[-1] = attrs.evolve(last, end=max(last.end, stretch.end))
        else:
            made.append(stretch)
    return made


def _order(stretch: Span) -> tuple[str, bool, str, int, float, float]:
    return stretch.scope, not stretch.slot, stretch.kind, stretch.slot, stretch.start, stretch.end


_KINDS: dict[str, Kind] = {"delay": "delay", "robots": "robots", "backoff": "backoff", "hint": "hint", "quota": "quota"}

_Closed = tuple[str, float, float, float, Kind, str, int]
"""Scope, start, end, latest end with jitter, kind, source, slot or 0."""


class Recorder:
    """The engine's recorder and watcher in a simulation. Instants are those of the run's clock.

    Attributes:
        report: The report of each scope, the busiest first; set when the crawl has ended.
    """

    __slots__ = ("_begun_at", "_closed", "_send_log", "report")

    def __init__(self, send_log: SendLog, begun_at: float) -> None:
        self.report: Sequence[ScopeReport] = ()
        self._send_log = send_log
        self._begun_at = begun_at
        self._closed: list[_Closed] = []

    def record(self, grant: Grant, outcome: Outcome | None, now: float) -> None:
        """Record a send or its end; called by the engine."""
        row = self._send_log.sending
        lane = grant.lane
        scopes = lane.scopes if lane is not None and grant.slots else ()
        if row is not None:
            row.scopes = grant.scopes
            row.slots = grant.slots
            for scope, slot in zip(scopes, grant.slots, strict=True):
                self._sent(scope, slot, now)
            return
        for scope in scopes:
            if scope.held_until > now and scope.hold_reason is not None:
                kind = _KINDS.get(scope.hold_reason.limit, "backoff")
                until, source = scope.held_until, scope.hold_reason.source
                self._closed.append((scope.id, now, until, until, kind, source, 0))

    async def watch(self, crawl: Crawl) -> None:
        """Store the report of the scopes when the crawl ends; run by the engine."""
        try:
            await trio.sleep_forever()
        finally:
            self.report = crawl.report()

    def stretches(self, sends: Sequence[Send]) -> Sequence[Span]:
        """Return the times at which scopes were closed; ``sends`` are those of the run, in order."""
        nexts: dict[str, list[float]] = defaultdict(list)
        for send in sends:
            for scope in send.slots:
                nexts[scope].append(send.time)
        places = dict.fromkeys(nexts, 0)
        made: list[Span] = []
        for closed in self._closed:
            scope, start = closed[0], rounded(closed[1] - self._begun_at)
            times, place = nexts[scope], places.get(scope, 0)
            while place < len(times) and times[place] <= start:
                place += 1
            places[scope] = place
            following = times[place] if place < len(times) else math.inf
            made.append(self._cut(closed, start, following))
        return merge_stretches(stretch for stretch in made if stretch.end > stretch.start)

    def _cut(self, closed: _Closed, start: float, following: float) -> Span:
        """Make a stretch that ends with the next send, which shows that the scope was open: jitter moves its end."""
        scope, _, until, latest, kind, source, slot = closed
        end = rounded(until - self._begun_at)
        if not slot and (following < end or following <= rounded(latest - self._begun_at)):
            end = following
        return Span(scope, start, end, kind, source, slot)

    def _sent(self, scope: Scope, slot: int, now: float) -> None:
        if scope.delay > 0.0:
            kind, delay = _KINDS.get(scope.delay_limit, "delay"), scope.delay
            latest = now + delay * scope.jitter[1]
            self._closed.append((scope.id, now, now + delay, latest, kind, scope.delay_source, 0))
        if scope.delay_per_slot > 0.0:
            end = now + scope.delay_per_slot
            self._closed.append((scope.id, now, end, end, "delay_per_slot", scope.delay_source, slot))
        if scope.quota is not None:
            ready_at = scope.quota.ready_at(now, 1.0)
            if now < ready_at < math.inf:
                self._closed.append((scope.id, now, ready_at, ready_at, "quota", scope.quota_source, 0))
