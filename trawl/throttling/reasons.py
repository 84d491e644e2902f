"""Reasons for waiting (:class:`Reason`), its measure (:class:`Waits`) and reports of scopes (:class:`ScopeReport`).

Each "not before" carries its scope, its limit and the source of that limit (I11); the API, the log, the live panel and
the table at the end read these same values. :class:`MinCounter` knows the least amount that a scope's pending
requests name: a wait that still goes on is explained by that.

:class:`Waits` measures the waiting of one scope's requests, at the moment it happens. The time between two requests
that take a scope, or since the first one that needed it, is counted for the limit of the scope that opened last. The
time after that instant was spent elsewhere: in another scope, without a free place, behind callbacks. Time in which
nothing was pending, or everything waited for a robots.txt, is left out.

The time for which the delays, the quota and the holds kept sends apart is counted separately, without slots. It is
never more than the time between the sends, so a rate that is computed from it is never below the rate that was reached.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Literal

import attrs

from trawl.http import Times, TimesTotal

if TYPE_CHECKING:
    from trawl.throttling.outcomes import Granted
    from trawl.throttling.policy import ScopeState
    from trawl.throttling.scope import Scope

__all__ = [
    "LimitName",
    "MinCounter",
    "Reason",
    "ScopeReport",
    "Waits",
    "account",
    "add_parsing",
    "add_times",
    "add_wasted_send",
    "limit_words",
    "report_of",
    "reports_of",
]


_ROOM_TO_GROW = 64


class Waits:
    """The time that the requests of a scope waited, by limit. Hot, so mutable and slotted.

    Attributes:
        limited: Seconds waited for each limit.
        elsewhere: Seconds waited for anything other than the scope.
        gaps: The number of sends, without the first.
        owed: Seconds that these were kept apart.
        needed_at: The instant since which something was pending without a break.
        taken_at: The instant at which the scope was taken last.
        due_at: The earliest instant for the send of that request, slots left out.
        opened_at: The instant at which the scope let that request through.
        opened_by: The limit that let nothing through until then; "" for none.
        refills: The instants at which the quota has room for an amount that waited for it, by amount.
        full_limit: The limit that last let no request through until something was given back.
        full_until: The instant at which that was.
    """

    __slots__ = (
        "due_at",
        "elsewhere",
        "full_limit",
        "full_until",
        "gaps",
        "limited",
        "needed_at",
        "opened_at",
        "opened_by",
        "owed",
        "refills",
        "taken_at",
    )

    def __init__(self) -> None:
        self.limited: dict[str, float] = {}
        self.elsewhere: float = 0.0
        self.gaps: int = -1
        self.owed: float = 0.0
        self.needed_at: float = -inf
        self.taken_at: float = -inf
        self.due_at: float = -inf
        self.opened_at: float = -inf
        self.opened_by: str = ""
        self.refills: dict[float, float] = {}
        self.full_limit: str = ""
        self.full_until: float = -inf

    @property
    def since(self) -> float:
        """Since when the next request waits; ``-inf`` where there was none yet."""
        return max(self.taken_at, self.needed_at)

    def refilled(self, now: float, amount: float) -> float:
        """Return the instant at which the quota had room for ``amount``, which goes now; ``-inf``: it did not wait.

        What did not do for less did not do for it.
        """
        passed = [until for least, until in self.refills.items() if least <= amount and until <= now]
        self.refills = {each: until for each, until in self.refills.items() if until > now}
        return max(passed, default=-inf)

    def opened(self, now: float, limit: str) -> None:
        """Note that ``limit`` let no request through until ``now``, when something is given back."""
        self.full_limit, self.full_until = limit, now

    def taken(self, now: float, limit: str, due_at: float) -> None:
        """Note that a request takes the scope, whose ``limit`` let nothing through before the instant ``due_at``."""
        since, opened_at = max(self.taken_at, self.needed_at), due_at
        if self.full_until > opened_at:
            limit, opened_at = self.full_limit, self.full_until
        self.opened_by, self.opened_at = limit, opened_at
        if -inf < since < now:
            opened_at = min(max(opened_at, since), now)
            if opened_at > since:
                self.limited[limit] = self.limited.get(limit, 0.0) + opened_at - since
            self.elsewhere += now - opened_at
        self.taken_at, self.due_at = now, due_at

    def sent(self, now: float, before: float) -> None:
        """Note that it went to the wire; the one ``before`` it went at that instant."""
        self.gaps += 1
        if self.gaps and self.due_at > before:
            self.owed += min(self.due_at, now) - before


class MinCounter:
    """A counter that knows its smallest key: the amounts that pending requests name, each with its number of requests.

    Attributes:
        count: The number of requests.
    """

    __slots__ = ("_amounts", "_heap", "count")

    def __init__(self) -> None:
        self.count: int = 0
        self._amounts: dict[float, int] = {}
        self._heap: list[float] = []

    def add(self, amount: float) -> None:
        """Count one more."""
        self.count += 1
        if amount not in self._amounts:
            heappush(self._heap, amount)
        self._amounts[amount] = self._amounts.get(amount, 0) + 1
        if len(self._heap) > 2 * len(self._amounts) + _ROOM_TO_GROW:  # most are of amounts that are no longer asked for
            self._heap = sorted(self._amounts)

    def remove(self, amount: float) -> None:
        """Count one less."""
        self.count -= 1
        self._amounts[amount] -= 1
        if not self._amounts[amount]:
            del self._amounts[amount]

    @property
    def least(self) -> float:
        """The smallest of them. There must be one."""
        while self._heap[0] not in self._amounts:
            heappop(self._heap)
        return self._heap[0]


LimitName = Literal[
    "concurrency",
    "delay",
    "delay_per_slot",
    "quota",
    "pages",
    "backoff",
    "hint",
    "robots",
    "gate",
    "claim",
    "places",
    "callbacks",
    "middleware",
    "not_before",
    "line",
    "ending",
]
"""What can hold a request back."""

_NAMES: Mapping[str, str] = {"robots": "Crawl-delay", "gate": "robots.txt"}

_WORDS: Mapping[str, str] = {
    "concurrency": "all slots are busy",
    "delay_per_slot": "delay per slot",
    "pages": "its last pages are on their way",
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


def limit_words(limit: str) -> str:
    """Return the name of a limit in a table."""
    return _NAMES.get(limit, limit.replace("_", " "))


@attrs.frozen
class Reason:
    """The reason for which a request, or a whole scope, waits.

    Attributes:
        scope: The id of the scope that holds it; "" where no scope does.
        limit: Which limit holds it; "" where nothing does.
        until: The instant on the run's clock (seconds) when that limit lets one through; ``inf``: only a release helps.
        source: The source of the limit: configuration, robots.txt, the header of a response, backoff step n.
        shared_with: The spiders of the other crawls in this process that keep the same limit (``THROTTLING_SHARED``).
    """

    scope: str
    limit: str
    until: float = math.inf
    source: str = ""
    shared_with: tuple[str, ...] = ()

    def text(self, now: float) -> str:
        """Return this reason in one line, with the seconds left at ``now``."""
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
    """Seconds for people: to the hundredth below ten, whole above, never negative, never with an exponent."""
    return f"{round(left):d}" if left >= 9.995 else f"{round(max(0.0, left), 2):g}"


@attrs.frozen(kw_only=True)
class ScopeReport:
    """The figures of one scope in the crawl: one row of the table at the end.

    Attributes:
        scope: Its id.
        requests: Requests charged to it that came to an end.
        sends: Times that one of them went to the wire.
        rate: Sends a second between its first and its last send; 0 with fewer than two.
        allowed: Sends a second that its limits allowed in that time, with what was drawn, asked and backed off; never
            less than ``rate``, ``inf`` where they kept nothing waiting. With fewer than two sends: what is in force.
        delay: The delay in force, in seconds.
        concurrency: The concurrency in force.
        times: The average time of its requests in each stage, since the scope was made.
        limited: Seconds that requests waited for it, by the limit that held them; ``"gate"`` where all of them waited
            for robots.txt.
        triggers: Answers that said "slow down".
        steps: Backoff steps taken (one an incident).
        hints: Headers obeyed.
        last_hint: The header obeyed last, and of which response; "" without any.
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


def account(state: ScopeState, grant: Granted, charged: float | None) -> None:
    """Count a request that came to its end.

    Args:
        state: Of its scope.
        grant: The request.
        charged: What it was expected to use of the quota; None: nothing.
    """
    state.requests += 1
    if grant.sent_at is not None and not grant.is_exempt:
        state.sends += 1
        state.first_sent = min(state.first_sent, grant.sent_at)
        state.used += charged or 0.0


def add_wasted_send(scopes: Iterable[Scope], sent_at: float) -> None:
    """Count a send that met a dead connection: it goes to the wire again, at once or with another grant."""
    for scope in scopes:
        state: ScopeState = scope.state
        state.sends += 1
        state.first_sent = min(state.first_sent, sent_at)
        if state.rampup is not None:
            state.rampup.sends += 1  # the delay in force has let it through


def add_times(scopes: Iterable[Scope], times: Times) -> None:
    """Add the times of a request to those of each scope that it took."""
    for scope in scopes:
        state: ScopeState = scope.state
        if state.times is None:
            state.times = TimesTotal()
        state.times.add(times)


def add_parsing(scopes: Iterable[Scope], seconds: float) -> None:
    """Add what the callback of such a request took."""
    for scope in scopes:
        state: ScopeState = scope.state
        if state.times is not None:
            state.times.parsing += seconds


def limited_by(scope: Scope, now: float) -> dict[str, float]:
    """Seconds that its requests waited for it, by limit; those that wait at ``now`` are counted up to then."""
    limited, since = dict(scope.waits.limited), scope.waits.since
    if scope.lanes > scope.gated and -math.inf < since < now:
        reason = scope.reason(now, scope.min_amount)
        if reason.limit:
            limited[reason.limit] = limited.get(reason.limit, 0.0) + now - since
    if gated := scope.gated_for(now):
        limited["gate"] = gated
    return limited


def rate_in_force(scope: Scope) -> float:
    """Sends a second that the limits in force allow, of what is sent on average; ``inf`` where nothing bounds them."""
    rate = 1.0 / scope.delay if scope.delay > 0.0 else math.inf
    if scope.delay_per_slot > 0.0 and scope.concurrency < math.inf:
        rate = min(rate, scope.concurrency / scope.delay_per_slot)
    quota, state = scope.quota, scope.state
    if quota is not None and quota.window > 0.0:
        amount = state.used / state.sends if state is not None and state.sends else scope.min_amount
        rate = min(rate, quota.quota / quota.window / amount if amount > 0.0 else math.inf)
    return rate


def allowed_rate(scope: Scope, rate: float) -> float:
    """Sends a second that the limits allowed between the first and the last, where ``rate`` were sent: never less.

    It is what was allowed when these went, with the delays that were drawn and the amounts that were asked. What is in
    force counts where there was nothing yet that could have been kept waiting.
    """
    if scope.waits.owed > 0.0:
        return max(scope.waits.gaps / scope.waits.owed, rate)
    in_force = rate_in_force(scope)
    return in_force if in_force >= rate else math.inf


def report_of(scope: Scope, now: float) -> ScopeReport:
    """Return the figures of a scope so far."""
    state: ScopeState = scope.state
    span = scope.last_sent - state.first_sent
    rate = (state.sends - 1) / span if state.sends > 1 and span > 0.0 else 0.0
    return ScopeReport(
        scope=scope.id,
        requests=state.requests,
        sends=state.sends,
        rate=rate,
        allowed=allowed_rate(scope, rate),
        delay=scope.delay,
        concurrency=scope.concurrency,
        limited=limited_by(scope, now),
        times=Times() if state.times is None else state.times.mean(),
        triggers=state.triggers,
        steps=state.steps,
        hints=state.hints,
        last_hint=state.last_hint,
    )


def reports_of(scopes: Iterable[Scope], now: float) -> list[ScopeReport]:
    """Return the figures of all scopes that had a request, or have one that waits, the busiest first."""
    return _busiest_first([report_of(scope, now) for scope in scopes if scope.state.requests or scope.gated_for(now)])


def _busiest_first(reports: Iterable[ScopeReport]) -> list[ScopeReport]:
    return sorted(reports, key=lambda report: (-report.requests, report.scope))


def reports_together(reports: Iterable[ScopeReport]) -> list[ScopeReport]:
    """Return the reports of several processes, one for each scope, the busiest first.

    A host that changed hands was each process's for a part of the time: their sends count together, and rates are those
    of the time that they cover together.
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
    """Return sends a second over the seconds that parts of them took together; parts without a rate took none."""
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
