"""Reasons for waiting (:class:`Reason`), measured waits (:class:`Waits`) and reports of scopes (:class:`ScopeReport`).

The API, the log, the live panel and the table at the end use these same values.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import attrs

from trawl.http import Outcome, Times, TimesTotal
from trawl.observe import LATENCY_BOUNDS, ScopeStatus, SendLimit, WindowLimit, duration_words
from trawl.throttling.limits import TABLE

if TYPE_CHECKING:
    from trawl.throttling.limit import Limit
    from trawl.throttling.outcomes import Granted
    from trawl.throttling.policy import ScopeState
    from trawl.throttling.scope import Scope

__all__ = [
    "LIMIT_NAMES",
    "Reason",
    "ResponseCounts",
    "ScopeReport",
    "ScopeTotals",
    "Waits",
    "add_parsing",
    "add_wasted_send",
    "limit_words",
    "report_of",
    "reports_of",
    "send_limit",
    "status_of",
]


@attrs.define(eq=False, weakref_slot=False)
class Waits:
    """The time that the requests of a scope waited, by limit. Hot, so mutable and slotted.

    The time between two requests that take the scope, or since the first request that needed it, counts for the last
    limit that opened. The time after that was spent elsewhere: in another scope, without a free place, behind
    callbacks. Time without pending requests, or in which all of them waited for a robots.txt, does not count.

    The time for which the delays, the quota and the holds kept sends apart is counted separately, without slots. It is
    never more than the time between the sends, so a rate computed from it is never below the rate that was reached.
    """

    limited: dict[str, float] = attrs.field(factory=dict)  # seconds waited for each limit
    elsewhere: float = 0.0  # seconds waited for anything other than the scope
    gaps: int = -1  # number of sends after the first; -1 without one
    owed: float = 0.0  # seconds for which the limits kept these sends apart
    needed_at: float = -inf  # event loop time since which requests were always pending
    taken_at: float = -inf  # event loop time at which a request last took the scope
    due_at: float = -inf  # earliest event loop time for the send of that request, without slots
    opened_at: float = -inf  # event loop time at which the scope let that request through
    opened_by: Limit | None = None  # the limit that opened last for it; None for none
    lanes: int = 0  # number of lanes with pending requests that need the scope
    gated: int = 0  # number of these lanes that wait for a robots.txt
    _gated_at: float = inf
    _gated_for: float = 0.0
    # Number of these lanes by the amount that they name; None until one is named, because few scopes have a quota.
    _amounts: dict[float, int] | None = None

    def taken(self, now: float, limit: Limit | None, opened_at: float, due_at: float) -> None:
        """Record that a request takes the scope, whose ``limit`` let nothing through before ``opened_at``."""
        since = max(self.taken_at, self.needed_at)
        self.opened_by, self.opened_at = limit, opened_at
        if -inf < since < now:
            opened_at = min(max(opened_at, since), now)
            if opened_at > since and limit is not None:
                self.limited[limit.name] = self.limited.get(limit.name, 0.0) + opened_at - since
            self.elsewhere += now - opened_at
        self.taken_at, self.due_at = now, due_at

    def sent(self, now: float, before: float) -> None:
        """Record the send of that request. The previous send was at ``before``."""
        self.gaps += 1
        if self.gaps and self.due_at > before:
            self.owed += min(self.due_at, now) - before

    def need(self, amount: float | None, now: float, *, ahead: int = 0) -> None:
        """Count a lane that needs the scope from ``now`` on. ``ahead`` other requests are not in lanes now."""
        if not self.lanes and not ahead:
            self.needed_at = now
        self.lanes += 1
        if amount is not None:
            if self._amounts is None:
                self._amounts = {}
            self._amounts[amount] = self._amounts.get(amount, 0) + 1
        if self.gated or self._gated_at < inf:
            self._count_gated(now)

    def need_no_more(self, amount: float | None, now: float) -> None:
        """Stop counting such a lane."""
        self.lanes -= 1
        if amount is not None and self._amounts is not None:
            self._amounts[amount] -= 1
            if not self._amounts[amount]:
                del self._amounts[amount]
        if self.gated or self._gated_at < inf:
            self._count_gated(now)

    @property
    def min_amount(self) -> float:
        """The smallest amount of a pending request; 1.0 if a request names none."""
        if not self._amounts:
            return 1.0
        least = min(self._amounts)
        return least if sum(self._amounts.values()) == self.lanes else min(least, 1.0)

    def wait_at_gate(self, now: float, number: int = 1) -> None:
        """Count one of its lanes that waits for a robots.txt from ``now`` on, or stop counting one (-1)."""
        self.gated += number
        self._count_gated(now)

    def gated_for(self, now: float) -> float:
        """Return the seconds until ``now`` in which all pending requests waited for a robots.txt."""
        return self._gated_for + max(0.0, now - self._gated_at)

    def _count_gated(self, now: float) -> None:
        if 0 < self.lanes == self.gated:
            self._gated_at = min(self._gated_at, now)
        elif self._gated_at < inf:
            self._gated_for = self.gated_for(now)
            self._gated_at = inf
            self.needed_at = now


_NAMES: Mapping[str, str] = {"robots": "Crawl-delay", "gate": "robots.txt"}

_WORDS: Mapping[str, str] = {
    **{row.key: row.words or row.key for row in TABLE},
    "backoff": "backoff",
    "hint": "hint",
    "robots": "robots.txt",
    "gate": "robots.txt is not read yet",
    "claim": "a request of several scopes goes first",
    "places": "CONCURRENT_REQUESTS are under way",
    "callbacks": "CONCURRENT_CALLBACKS are running",
    "ending": "the crawl is ending",
    "middleware": "requests before it are in their middleware",
    "not_before": "the request's own delay",
    "line": "the line of a shared scope",
}

LIMIT_NAMES: tuple[str, ...] = tuple(_WORDS)  # names of the limits that can delay a request


def limit_words(limit: str) -> str:
    """Return a limit's name for tables."""
    return _NAMES.get(limit, limit.replace("_", " "))


@attrs.frozen
class Reason:
    """The reason why a request, or a whole scope, waits.

    Attributes:
        scope: The id of the scope that delays it; "" if it is not a scope.
        limit: The name of the limit that delays it; "" if none does.
        until: Event loop time at which that limit lets a request through; ``inf`` if only a release helps.
        source: The source of the limit: configuration, robots.txt, the header of a response, backoff step n.
        shared_with: The spiders of the other crawls in this process that share the limit (``THROTTLING_SHARED``).
    """

    scope: str
    limit: str
    until: float = math.inf
    source: str = ""
    shared_with: tuple[str, ...] = ()

    def text(self, now: float) -> str:
        """Return this reason in one line, with the remaining seconds at ``now``."""
        if not self.limit:
            return f"{self.scope} may go".lstrip()
        left = "" if self.until == math.inf else f" {_seconds(self.until - now)} s"
        words = _WORDS.get(self.limit, self.limit)
        notes = [] if self.source in ("", words) else [self.source]
        if self.shared_with:
            notes.append(f"shared with {', '.join(self.shared_with)}")
        source = f" ({'; '.join(notes)})" if notes else ""
        return f"{self.scope} {words}{left}{source}".lstrip()


def _seconds(left: float) -> str:
    """Format seconds for people: to the hundredth below ten, whole above, never negative, never with an exponent."""
    return f"{round(left):d}" if left >= 9.995 else f"{round(max(0.0, left), 2):g}"


@attrs.frozen(kw_only=True)
class ScopeReport:
    """The statistics of one scope in the crawl: one row of the table at the end.

    Attributes:
        scope: The id of the scope.
        requests: Finished requests that were charged to it.
        sends: Number of sends of these requests.
        rate: Sends per second between its first and its last send; 0 with fewer than two.
        allowed: Sends per second that its limits allowed in that time, including jitter, requested waits and backoff;
        never less than ``rate``, ``inf`` if no request had to wait. With fewer than two sends, the current limits
        count.
        delay: The current delay, in seconds.
        concurrency: The current concurrency.
        times: The average time of its requests in each stage, since the scope was created.
        limited: Seconds that requests waited for it, by limit; ``"gate"`` for time in which all of them waited for
        robots.txt.
        triggers: Number of triggers.
        steps: Backoff steps taken (one per incident).
        hints: Headers obeyed.
        last_hint: The header obeyed last, and its response; "" without any.
    """

    scope: str
    requests: int = 0
    sends: int = 0
    rate: float = 0.0
    allowed: float = math.inf
    delay: float = 0.0
    concurrency: float = math.inf
    limited: Mapping[str, float] = attrs.field(factory=dict)
    times: Times = attrs.field(factory=Times)
    triggers: int = 0
    steps: int = 0
    hints: int = 0
    last_hint: str = ""


@attrs.define(eq=False, weakref_slot=False)
class ScopeTotals:
    """The counts and sums of one scope, for reports. Hot, so mutable and slotted."""

    requests: int = 0  # number of finished requests
    sends: int = 0  # number of their sends
    used: float = 0.0  # the total amount of the quota that they used
    first_sent: float = math.inf  # event loop time of the first send
    triggers: int = 0  # number of triggers
    steps: int = 0  # number of incidents
    hints: int = 0  # number of headers obeyed
    last_hint: str = ""  # the last header obeyed, and its response
    times: TimesTotal | None = None  # the total times of its requests, by stage; None before the first
    responses: ResponseCounts | None = None  # its responses by status and latency; None before the first

    def finished(self, attempt: Granted, charged: float | None) -> None:
        """Count a finished request, for which ``charged`` was charged to the quota in advance; None for nothing."""
        self.requests += 1
        if attempt.times.sent_at is not None and not attempt.is_exempt:
            self.sends += 1
            self.first_sent = min(self.first_sent, attempt.times.sent_at)
            self.used += charged or 0.0

    def responded(self, outcome: Outcome, times: Times, size: int) -> None:
        """Count the outcome of a request, with its times and a body of ``size`` bytes."""
        if self.times is None:
            self.times = TimesTotal()
        self.times.add(times)
        counts = self.responses
        if counts is None:
            counts = self.responses = ResponseCounts()
        response, latency = outcome.response, outcome.latency
        counts.statuses[5 if response is None else min(max(response.status // 100, 1), 5) - 1] += 1
        counts.size += size
        if latency is not None:
            counts.latency[bisect_left(LATENCY_BOUNDS, latency)] += 1


def add_wasted_send(scopes: Iterable[Scope], sent_at: float) -> None:
    """Count a send on a dead connection. The request is sent again, at once or with another attempt."""
    for scope in scopes:
        state: ScopeState = scope.state
        state.totals.sends += 1
        state.totals.first_sent = min(state.totals.first_sent, sent_at)
        if state.rampup is not None:
            state.rampup.window.sends += 1  # sent under the current delay


@attrs.define(eq=False, weakref_slot=False)
class ResponseCounts:
    """The responses of one scope. Hot, so mutable and slotted."""

    # Number of responses with status 1xx, 2xx, 3xx, 4xx and 5xx, and number of requests without a response.
    statuses: list[int] = attrs.field(factory=lambda: [0] * 6)
    size: int = 0  # bytes of all bodies
    # Number of responses by latency, with the bounds of `trawl.observe.LATENCY_BOUNDS`.
    latency: list[int] = attrs.field(factory=lambda: [0] * (len(LATENCY_BOUNDS) + 1))


def add_parsing(scopes: Iterable[Scope], seconds: float) -> None:
    """Add the time of such a request's callback."""
    for scope in scopes:
        totals: ScopeTotals = scope.state.totals
        if totals.times is not None:
            totals.times.parsing += seconds


def limited_by(scope: Scope, now: float) -> dict[str, float]:
    """Return the seconds that requests waited for it, by limit, including waits that last until ``now``."""
    limited, since = dict(scope.waits.limited), max(scope.waits.taken_at, scope.waits.needed_at)
    if scope.waits.lanes > scope.waits.gated and -math.inf < since < now:
        reason = scope.reason(now, scope.waits.min_amount)
        if reason.limit:
            limited[reason.limit] = limited.get(reason.limit, 0.0) + now - since
    if gated := scope.waits.gated_for(now):
        limited["gate"] = gated
    return limited


def rate_in_force(scope: Scope) -> float:
    """Return the sends per second that the current limits allow for average requests; ``inf`` without limits."""
    effective = scope.effective
    rate = 1.0 / effective.delay if effective.delay > 0.0 else math.inf
    if effective.delay_per_slot > 0.0 and effective.concurrency < math.inf:
        rate = min(rate, effective.concurrency / effective.delay_per_slot)
    return min(rate, rate_of_quota(scope), *[limit.usual_rate() for limit in scope.numbered])


def rate_of_quota(scope: Scope) -> float:
    """Return the sends per second that the quota allows for average requests; ``inf`` without a quota."""
    quota, state = scope.quota, scope.state
    if quota is None or quota.window <= 0.0:
        return math.inf
    totals: ScopeTotals | None = None if state is None else state.totals
    amount = totals.used / totals.sends if totals is not None and totals.sends else scope.waits.min_amount
    return quota.quota / quota.window / amount if amount > 0.0 else math.inf


def send_limit(scope: Scope, now: float, why: Reason | None = None) -> SendLimit:
    """Return the rate that the limits in force allow, the limit that sets this rate, and when the scope opens.

    The concurrency limits the rate by the time that a request of the scope takes on average. ``why`` is the reason why
    its next request waits at ``now``, if that is known.
    """
    times, effective, slots = scope.state.totals.times, scope.effective, scope.effective.concurrency
    limits: list[tuple[float, str, float, str]] = []
    if effective.delay > 0.0:
        limits.append((1.0 / effective.usual, effective.delay_limit, effective.usual, effective.delay_source))
    if slots == 0.0:
        limits.append((0.0, "concurrency", slots, effective.concurrency_source))
    elif slots < math.inf:
        if (rest := effective.delay_per_slot) > 0.0:
            limits.append((slots / rest, _PER_SLOT, rest, effective.delay_source))
        if times is not None and (seconds := (times.connecting + times.fetching) / times.sends) > 0.0:
            limits.append((slots / seconds, "concurrency", slots, effective.concurrency_source))
    limits += [(limit.usual_rate(), limit.name, limit.number, limit.source) for limit in scope.numbered]
    until = (why or scope.reason(now)).until
    opens_in = max(until - now, 0.0) if until < math.inf else 0.0
    rate, name, number, source = min(limits, key=itemgetter(0), default=(math.inf, "", 0.0, ""))
    words = duration_words(number) if name in (effective.delay_limit, _PER_SLOT) else f"{number:g}"
    reason = "" if rate == math.inf else f"{name} {words}{f', {source}' if source else ''}"
    return SendLimit(rate=rate, reason=reason, opens_in=opens_in, quota=_window_limit(scope, now))


def _window_limit(scope: Scope, now: float) -> WindowLimit | None:
    quota, rate = scope.quota, rate_of_quota(scope)
    if quota is None or rate == math.inf:
        return None
    requests = rate * quota.window
    left, renews_in = quota.left(now)
    source = f", {scope.effective.source}" if scope.effective.source else ""
    return WindowLimit(
        requests=requests,
        left=left / quota.quota * requests if quota.quota else 0.0,
        window=quota.window,
        renews_in=renews_in,
        reason=f"quota {quota.quota:g}{source}",
    )


_PER_SLOT = "delay per slot"


def allowed_rate(scope: Scope, rate: float) -> float:
    """Return the sends per second that the limits allowed between the first and the last send; at least ``rate``.

    This is the rate allowed at that time, with the delays and amounts of that time. If no request could have waited
    yet, the current limits count.
    """
    if scope.waits.owed > 0.0:
        return max(scope.waits.gaps / scope.waits.owed, rate)
    in_force = rate_in_force(scope)
    return in_force if in_force >= rate else math.inf


def report_of(scope: Scope, now: float) -> ScopeReport:
    """Return the statistics of a scope so far."""
    totals: ScopeTotals = scope.state.totals
    times = Times() if totals.times is None else totals.times.mean()
    return ScopeReport(**_figures(scope), requests=totals.requests, limited=limited_by(scope, now), times=times)


def _figures(scope: Scope) -> dict[str, Any]:
    """Return the fields that a report and a status have in common."""
    totals: ScopeTotals = scope.state.totals
    span = scope.traffic.last_sent - totals.first_sent
    rate = (totals.sends - 1) / span if totals.sends > 1 and span > 0.0 else 0.0
    return {
        "scope": scope.id,
        "sends": totals.sends,
        "rate": rate,
        "allowed": allowed_rate(scope, rate),
        "delay": scope.effective.delay,
        "concurrency": scope.effective.concurrency,
        "triggers": totals.triggers,
        "steps": totals.steps,
        "hints": totals.hints,
        "last_hint": totals.last_hint,
    }


def status_of(scope: Scope, now: float, queued: int = 0) -> ScopeStatus:
    """Return the state of a scope at ``now``, with ``queued`` pending requests."""
    counts: ResponseCounts | None = scope.state.totals.responses
    reason = scope.reason(now, scope.waits.min_amount if scope.waits.lanes else 1.0)
    seconds, limited_by = send_limit(scope, now, reason).end(queued)
    return ScopeStatus(
        **_figures(scope),
        in_flight=scope.traffic.in_flight,
        queued=queued,
        limit=reason.limit,
        source=reason.source,
        next_send=max(reason.until - now, 0.0),
        statuses=(0,) * 6 if counts is None else tuple(counts.statuses),
        size=0 if counts is None else counts.size,
        latency=() if counts is None else tuple(counts.latency),
        seconds=seconds,
        reason=limited_by,
    )


def reports_of(scopes: Iterable[Scope], now: float) -> list[ScopeReport]:
    """Return the reports of all scopes that had a request, or have a waiting one, the busiest first."""
    used = [scope for scope in scopes if scope.state.totals.requests or scope.waits.gated_for(now)]
    return _busiest_first([report_of(scope, now) for scope in used])


def _busiest_first(reports: Iterable[ScopeReport]) -> list[ScopeReport]:
    return sorted(reports, key=lambda report: (-report.requests, report.scope))


def reports_together(reports: Iterable[ScopeReport]) -> list[ScopeReport]:
    """Combine the reports of several processes into one per scope, the busiest first.

    A host that moved between processes belonged to each of them for a part of the time. Their sends are added, and
    rates refer to the time that they cover together.
    """
    by_scope: dict[str, list[ScopeReport]] = {}
    for report in reports:
        by_scope.setdefault(report.scope, []).append(report)
    return _busiest_first(map(_one_scope, by_scope.values()))


def _one_scope(parts: Sequence[ScopeReport]) -> ScopeReport:
    main = max(parts, key=lambda part: part.sends)
    if len(parts) == 1:
        return main
    limited: dict[str, float] = {}
    for part in parts:
        for limit, seconds in part.limited.items():
            limited[limit] = limited.get(limit, 0.0) + seconds
    counts = {name: sum([getattr(part, name) for part in parts]) for name in _COUNTED}
    return attrs.evolve(
        main,
        rate=_mean_rate([(part.sends, part.rate) for part in parts]),
        allowed=_mean_rate([(part.sends, part.allowed) for part in parts if part.rate]) or main.allowed,
        limited=limited,
        times=_mean_times(parts),
        last_hint=main.last_hint or next((part.last_hint for part in parts if part.last_hint), ""),
        **counts,
    )


_COUNTED = ("requests", "sends", "triggers", "steps", "hints")


def _mean_rate(parts: Sequence[tuple[int, float]]) -> float:
    """Return the sends per second over the total time of all parts; parts without a rate do not count."""
    seconds = sum([sends / rate for sends, rate in parts if rate])
    sends = sum([sends for sends, rate in parts if rate])
    return sends / seconds if seconds else inf if sends else 0.0


def _mean_times(parts: Sequence[ScopeReport]) -> Times:
    requests = sum([part.requests for part in parts])
    if not requests:
        return parts[0].times
    return Times(
        **{
            name: sum([getattr(part.times, name) * part.requests for part in parts]) / requests
            for name in Times.__struct_fields__
        }
    )
