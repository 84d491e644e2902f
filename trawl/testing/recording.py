"""What a simulated run did, noted while it runs: which slots its sends took, and what closed its scopes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from trawl.testing.sends import Ledger, Send, shown
from trawl.testing.stretches import Kind, Stretch, merged

if TYPE_CHECKING:
    from trawl.engine import Crawl
    from trawl.http import Outcome
    from trawl.scheduler import Entry
    from trawl.throttling import ScopeReport
    from trawl.throttling.scope import Scope

__all__ = ["Recording"]

_KINDS: dict[str, Kind] = {"delay": "delay", "robots": "robots", "backoff": "backoff", "hint": "hint", "quota": "quota"}


_Closed = tuple[str, float, float, float, Kind, str, int]
"""A scope, from, until, with jitter until that at the most, why, where that comes from, the slot or 0."""


class Recording:
    """Hears the engine's recorder and looks at the running crawl. Instants are those of the run's clock.

    Attributes:
        report: What each scope did, the busiest first; there when the crawl has ended.
    """

    __slots__ = ("_begun_at", "_closed", "_ledger", "report")

    def __init__(self, ledger: Ledger, begun_at: float) -> None:
        self.report: Sequence[ScopeReport] = ()
        self._ledger = ledger
        self._begun_at = begun_at
        self._closed: list[_Closed] = []

    def record(self, entry: Entry, outcome: Outcome | None, now: float) -> None:
        """Note a send, or its end; the engine's recorder."""
        row = self._ledger.sending
        lane = entry.lane
        scopes = lane.scopes if lane is not None and entry.slots else ()
        if row is not None:
            row.scopes = entry.scopes
            row.slots = entry.slots
            for scope, slot in zip(scopes, entry.slots, strict=True):
                self._sent(scope, slot, now)
            return
        for scope in scopes:
            if scope.held_until > now and scope.hold_reason is not None:
                kind = _KINDS.get(scope.hold_reason.limit, "backoff")
                until, source = scope.held_until, scope.hold_reason.source
                self._closed.append((scope.id, now, until, until, kind, source, 0))

    async def watch(self, crawl: Crawl) -> None:
        """Keep what the scopes report when the crawl ends; the engine's watcher."""
        try:
            await trio.sleep_forever()
        finally:
            self.report = crawl.report()

    def stretches(self, sends: Sequence[Send]) -> Sequence[Stretch]:
        """When each scope was closed, and why; ``sends`` are those of the run, in order."""
        nexts: dict[str, list[float]] = defaultdict(list)
        for send in sends:
            for scope in send.slots:
                nexts[scope].append(send.time)
        places = dict.fromkeys(nexts, 0)
        made: list[Stretch] = []
        for closed in self._closed:
            scope, start = closed[0], shown(closed[1] - self._begun_at)
            times, place = nexts[scope], places.get(scope, 0)
            while place < len(times) and times[place] <= start:
                place += 1
            places[scope] = place
            following = times[place] if place < len(times) else math.inf
            made.append(self._cut(closed, start, following))
        return merged(stretch for stretch in made if stretch.end > stretch.start)

    def _cut(self, closed: _Closed, start: float, following: float) -> Stretch:
        """A stretch ends when the next send shows that the scope was open: jitter makes it shorter or longer."""
        scope, _, until, latest, kind, source, slot = closed
        end = shown(until - self._begun_at)
        if not slot and (following < end or following <= shown(latest - self._begun_at)):
            end = following
        return Stretch(scope, start, end, kind, source, slot)

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
