"""What a simulated run did, noted while it runs: which slots its sends took, and what closed its scopes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs
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


@attrs.frozen
class _Closed:
    """A scope, or one slot of it, is closed from ``start`` until ``end``, with jitter until ``latest`` at the most."""

    scope: str
    start: float
    end: float
    latest: float
    kind: Kind
    source: str
    slot: int


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
                self._note(scope, now, scope.held_until, kind, scope.hold_reason.source)

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
            times, start = nexts[closed.scope], shown(closed.start - self._begun_at)
            place = places.get(closed.scope, 0)
            while place < len(times) and times[place] <= start:
                place += 1
            places[closed.scope] = place
            following = times[place] if place < len(times) else math.inf
            made.append(self._cut(closed, start, following))
        return merged(stretch for stretch in made if stretch.end > stretch.start)

    def _cut(self, closed: _Closed, start: float, following: float) -> Stretch:
        """A stretch ends when the next send shows that the scope was open: jitter makes it shorter or longer."""
        end, latest = shown(closed.end - self._begun_at), shown(closed.latest - self._begun_at)
        if not closed.slot and (following < end or following <= latest):
            end = following
        return Stretch(closed.scope, start, end, closed.kind, closed.source, closed.slot)

    def _sent(self, scope: Scope, slot: int, now: float) -> None:
        if scope.delay > 0.0:
            kind = _KINDS.get(scope.delay_limit, "delay")
            latest = now + scope.delay * scope.jitter[1]
            self._note(scope, now, now + scope.delay, kind, scope.delay_source, latest)
        if scope.delay_per_slot > 0.0:
            end = now + scope.delay_per_slot
            self._closed.append(_Closed(scope.id, now, end, end, "delay_per_slot", scope.delay_source, slot))
        if scope.quota is not None:
            ready_at = scope.quota.ready_at(now, 1.0)
            if now < ready_at < math.inf:
                self._note(scope, now, ready_at, "quota", scope.quota_source)

    def _note(
        self, scope: Scope, start: float, end: float, kind: Kind, source: str, latest: float | None = None
    ) -> None:
        self._closed.append(_Closed(scope.id, start, end, end if latest is None else latest, kind, source, 0))
