"""The sends of a simulated run, as values and as text, and the periods in which its scopes were closed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import attrs
import msgspec
import trio

from trawl.address_guard import is_address
from trawl.http import host_scope
from trawl.observe import printable

if TYPE_CHECKING:
    from trawl.engine import Crawl
    from trawl.http import Outcome
    from trawl.scheduler import Attempt
    from trawl.throttling import ScopeReport
    from trawl.throttling.scope import Scope

__all__ = [
    "REFUSALS",
    "ScopeTracker",
    "Send",
    "SendLog",
    "SendRecord",
    "Span",
    "merge_stretches",
    "rounded",
    "timeline",
]

REFUSALS = frozenset({429, 503})
"""Status codes that refuse a request because of the request rate."""

DIGITS = 9  # times are rounded to the nanosecond, so that 0.1 + 0.2 equals 0.3 in a test


def rounded(at: float) -> float:
    """Return a time in seconds without floating-point errors."""
    return round(at, DIGITS) + 0.0


class Send(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One sent request.

    Attributes:
        time: The time of the send, in seconds since the start of the crawl.
        finished: The time of the last byte or of the error, in seconds since the start of the crawl.
        url: The URL.
        method: The method.
        host: The name of the host's scope.
        slot: The slot of the request in the scope of its host or address, from 1; 0 if the request has no slot in such
            a scope (because of ``dont_throttle``, or because it uses other scopes).
        scopes: The amount charged to each scope.
        slots: The slot of the request in each scope.
        status: The status code of the response; None without a complete response.
        error: The class name of the error; None if there was none.
    """

    time: float
    finished: float
    url: str
    host: str
    slot: int = 1
    scopes: Mapping[str, float] = MappingProxyType({})
    status: int | None = 200
    method: str = "GET"
    slots: Mapping[str, int] = MappingProxyType({})
    error: str | None = None


class SendRecord(msgspec.Struct, gc=False):
    """A send in progress. Times are seconds on the run clock."""

    url: str
    method: str
    sent_at: float
    ended_at: float | None = None
    status: int | None = None
    error: str | None = None
    scopes: tuple[tuple[str, float | None], ...] = ()
    slots: tuple[int, ...] = ()


class SendLog:
    """All sends of one run, in order."""

    __slots__ = ("rows", "sending")

    def __init__(self) -> None:
        self.rows: list[SendRecord] = []  # a record for each send
        # The record of the send whose `on_sent` is being called; None if there is none
        self.sending: SendRecord | None = None

    def sends(self, begun_at: float, now: float) -> tuple[Send, ...]:
        """Return every send, with times since ``begun_at``. Sends in flight end at ``now``."""
        amounts: dict[_Charges, Mapping[str, float]] = {}
        slots: dict[tuple[_Charges, tuple[int, ...]], Mapping[str, int]] = {}
        made: list[Send] = []
        for row in self.rows:
            charged = amounts.get(row.scopes)
            if charged is None:
                charged = amounts[row.scopes] = MappingProxyType(
                    {scope: 1.0 if amount is None else amount for scope, amount in row.scopes}
                )
            taken = slots.get((row.scopes, row.slots))
            if taken is None:
                taken = slots[row.scopes, row.slots] = MappingProxyType(
                    {scope: slot for (scope, _), slot in zip(row.scopes, row.slots, strict=False)}
                )
            host = host_scope(row.url)
            made.append(
                Send(
                    time=rounded(row.sent_at - begun_at),
                    finished=rounded((now if row.ended_at is None else row.ended_at) - begun_at),
                    url=row.url,
                    host=host,
                    slot=taken.get(host, 0) or _slot_of_address(taken),
                    scopes=charged,
                    status=row.status,
                    method=row.method,
                    slots=taken,
                    error=row.error,
                )
            )
        return tuple(made)


_Charges = tuple[tuple[str, float | None], ...]


def _slot_of_address(slots: Mapping[str, int]) -> int:
    """Return the slot in the only scope if that scope is an IP address; otherwise 0."""
    if len(slots) != 1:
        return 0
    (scope, slot), *_ = slots.items()
    return slot if is_address(scope.strip("[]")) else 0


MAX_ROWS = 10_000
LONGEST_URL = 100


def timeline(sends: Sequence[Send], most: int = MAX_ROWS) -> str:
    """Return the sends as text, one per line.

    ::

            time  finished  slot  status  scopes     url
           0.000     0.100     1     200  a.example  http://a.example/

    Args:
        sends: The sends, in order.
        most: Maximum number of lines. If there are more sends, a last line has their number.
    """
    if not sends:
        return "no sends"
    shown = sends[:most]
    rows = [("time", "finished", "slot", "status", "scopes", "url")]
    rows += [_row(send) for send in shown]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = [_line(row, widths) for row in rows]
    if len(sends) > len(shown):
        lines.append(f"... and {len(sends) - len(shown)} more")
    return "\n".join(lines)


def _row(send: Send) -> tuple[str, str, str, str, str, str]:
    status = str(send.status) if send.status is not None else (send.error or "cut off")
    scopes = " ".join(f"{scope}={amount:g}" if amount != 1.0 else scope for scope, amount in send.scopes.items())
    address = send.url if send.method == "GET" else f"{send.method} {send.url}"
    if len(address) > LONGEST_URL:
        address = f"{address[: LONGEST_URL - 1]}…"
    slot = str(send.slot) if send.slot else ",".join(str(number) for number in send.slots.values()) or "-"
    return f"{send.time:.3f}", f"{send.finished:.3f}", slot, status, printable(scopes) or "-", printable(address)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    numbers = [text.rjust(width) for text, width in zip(row[:4], widths[:4], strict=True)]
    return "  ".join([*numbers, row[4].ljust(widths[4]), row[5]]).rstrip()


@attrs.frozen
class Span:
    """A period from ``start`` to ``end`` in which a scope could not send.

    Attributes:
        scope: The scope's id.
        start: Seconds since the start of the crawl.
        end: Seconds since the start of the crawl.
        kind: The limit that closed the scope.
        source: The origin of this limit: configuration, a backoff step, or a response header.
        slot: The closed slot, from 1; 0 for the whole scope.
    """

    scope: str
    start: float
    end: float
    kind: str = "delay"
    source: str = ""
    slot: int = 0


def merge_stretches(stretches: Iterable[Span]) -> Sequence[Span]:
    """Merge overlapping periods of the same scope, slot and kind. In a scope, periods of slots come first."""
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


_KINDS = {"delay", "robots", "backoff", "hint", "quota"}

_Closed = tuple[str, float, float, float, str, str, int]
"""A closed period: scope, start, end, latest end with jitter, kind, source, and slot or 0."""


class ScopeTracker:
    """Tracks the scopes of the sends, as a recorder and a watcher of the engine. Times are seconds on the run clock."""

    __slots__ = ("_begun_at", "_closed", "_send_log", "report")

    def __init__(self, send_log: SendLog, begun_at: float) -> None:
        # The report of each scope, the busiest first. Empty until the crawl has ended.
        self.report: Sequence[ScopeReport] = ()
        self._send_log = send_log
        self._begun_at = begun_at
        self._closed: list[_Closed] = []

    def record(self, attempt: Attempt, outcome: Outcome | None, now: float) -> None:
        """Record a send or its end. Called by the engine."""
        row = self._send_log.sending
        lane = attempt.lane
        scopes = lane.scopes if lane is not None and attempt.slots else ()
        if row is not None:
            row.scopes = attempt.scopes
            row.slots = attempt.slots
            for scope, slot in zip(scopes, attempt.slots, strict=True):
                self._sent(scope, slot, now)
            return
        for scope in scopes:
            if (until := scope.held.until) > now and (reason := scope.held.because) is not None:
                kind, source = reason.limit if reason.limit in _KINDS else "backoff", reason.source
                self._closed.append((scope.id, now, until, until, kind, source, 0))
            for limit in scope.numbered:
                if now < (until := limit.earliest_at(scope, now, 1.0)) < math.inf:
                    self._closed.append((scope.id, now, until, until, limit.name, limit.source, 0))

    async def watch(self, crawl: Crawl) -> None:
        """Store the report of the scopes when the crawl ends. Run by the engine."""
        try:
            await trio.sleep_forever()
        finally:
            self.report = crawl.report()

    def stretches(self, sends: Sequence[Send]) -> Sequence[Span]:
        """Return the periods in which scopes were closed. ``sends`` are all sends of the run, in order."""
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
        """Return a period that ends at its planned end, or at the next send if jitter moved the end."""
        scope, _, until, latest, kind, source, slot = closed
        end = rounded(until - self._begun_at)
        if not slot and (following < end or following <= rounded(latest - self._begun_at)):
            end = following
        return Span(scope, start, end, kind, source, slot)

    def _sent(self, scope: Scope, slot: int, now: float) -> None:
        effective = scope.effective
        if (delay := effective.delay) > 0.0:
            kind, latest = effective.delay_limit, now + delay * effective.jitter[1]
            self._closed.append((scope.id, now, now + delay, latest, kind, effective.delay_source, 0))
        if effective.delay_per_slot > 0.0:
            end = now + effective.delay_per_slot
            self._closed.append((scope.id, now, end, end, "delay_per_slot", effective.delay_source, slot))
        if scope.quota is not None:
            ready_at = scope.quota.ready_at(now, 1.0)
            if now < ready_at < math.inf:
                self._closed.append((scope.id, now, ready_at, ready_at, "quota", effective.source, 0))
