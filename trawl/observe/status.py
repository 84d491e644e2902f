"""The status of a running crawl: one value for every view of it, and the estimate of its end.

The engine makes a :class:`CrawlStatus` every second while a view needs it: the terminal, the log, the other processes
of a job, ``trawl job``, ``trawl top`` or the panel. The estimate counts pending requests only, so a crawl that still
finds links lasts longer.

Length: the parts of one value, each with the documentation of its fields.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import zip_longest
from math import ceil, inf
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from trawl.observe.text import counted, duration_words, number_words, rate_words

__all__ = [
    "ERROR_KEYS",
    "LATENCY_BOUNDS",
    "MAX_GROUPS",
    "OTHER_VERSION",
    "BrowserStatus",
    "CrawlStatus",
    "ErrorExample",
    "Estimate",
    "Health",
    "Rate",
    "Rates",
    "ScopeEstimate",
    "ScopeStatus",
    "SendLimit",
    "WaitingGroup",
    "WindowLimit",
    "decode_status",
    "encode_status",
    "estimate",
    "estimate_words",
    "status_line",
    "together",
    "waiting_words",
]

VERSION = 1
"""The version of :class:`CrawlStatus`. It is increased when a field changes its meaning."""

OTHER_VERSION = "its status is of another version of trawl"
"""Shown instead of a status that this version can't read."""

LATENCY_BOUNDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the latency histogram, in seconds. An eleventh count is for longer latencies."""

MAX_GROUPS = 5
"""Number of groups of waiting requests in a status, the largest first. The other groups are only counted."""

MAX_LAST = 5
"""Number of scopes in an estimate, the last to end first."""


# -- the estimate


class WindowLimit(Struct, frozen=True, kw_only=True):
    """A number of requests in each window of time: a quota.

    Attributes:
        requests: Number of requests in a window.
        left: Number of requests that remain in the current window.
        window: Length of a window, in seconds.
        renews_in: Seconds until the next window.
        reason: The quota, in words.
    """

    requests: float
    left: float
    window: float
    renews_in: float
    reason: str


class SendLimit(Struct, frozen=True, kw_only=True):
    """The rate that limits allow.

    Attributes:
        rate: Requests per second; ``inf`` without a limit, 0.0 if nothing may be sent. A quota is not included.
        reason: The limit that sets the rate, in words; "" without a limit.
        opens_in: Seconds until the first request may be sent.
        quota: The quota; None without one.
    """

    rate: float = inf
    reason: str = ""
    opens_in: float = 0.0
    quota: WindowLimit | None = None

    @property
    def words(self) -> str:
        """The rate over a long time, with the quota: ``0.83/s``, or ``no limit``."""
        rate = self.rate if self.quota is None else min(self.rate, self.quota.requests / self.quota.window)
        return "no limit" if rate == inf else rate_words(rate)

    def lasts(self, requests: int) -> float:
        """Return the seconds until this many requests have been sent; ``inf`` if that never happens."""
        return self.end(requests)[0]

    def end(self, requests: int) -> tuple[float, str]:
        """Return the seconds until this many requests have been sent, and the limit that decides, in words."""
        if not requests:
            return 0.0, ""
        # The first request is sent at once. The following requests each need an interval.
        paced = self.opens_in + ((requests - 1) / self.rate if self.rate > 0.0 else inf)
        quota = self.quota
        if quota is None or requests <= quota.left:
            return paced, self.reason
        windows = ceil((requests - quota.left) / quota.requests) - 1 if quota.requests > 0.0 else inf
        renewed = quota.renews_in + windows * quota.window
        return (renewed, quota.reason) if renewed > paced else (paced, self.reason)


class ScopeEstimate(Struct, frozen=True, kw_only=True):
    """The estimated end of one scope's pending requests. Most scopes are hosts.

    Attributes:
        scope: The id of the scope.
        pending: Number of the scope's pending requests.
        seconds: Seconds until the last of these requests is sent.
        reason: The limit that sets the rate, in words.
    """

    scope: str
    pending: int
    seconds: float
    reason: str = ""


class Estimate(Struct, frozen=True, kw_only=True):
    """The estimated end of a crawl, from its pending requests and the limits in force.

    Attributes:
        seconds: Seconds until the last pending request is sent; ``inf`` if a scope with pending requests may send
            nothing.
        scope: The id of the scope that ends last; "" if the limits of the whole crawl decide.
        reason: The limit that decides, in words.
        scopes: The scopes that end last, the last one first.
    """

    seconds: float
    scope: str = ""
    reason: str = ""
    scopes: Sequence[ScopeEstimate] = ()


def estimate(
    pending: Mapping[str, int],
    limits: Mapping[str, SendLimit],
    *,
    total: int | None = None,
    places: SendLimit = SendLimit(),  # noqa: B008 - frozen
) -> Estimate | None:
    """Return the estimated end of the pending requests; None if nothing is pending, or no limit is known yet.

    The crawl ends when its last scope ends, or later if the whole crawl has too few places. ``pending`` has the number
    of requests by scope; a request of several scopes counts in each. A scope without an entry in ``limits`` has no
    limit. ``total`` is the number of requests, by default the sum of ``pending``. ``places`` is the limit of the whole
    crawl: ``CONCURRENT_REQUESTS`` divided by the seconds of a request.
    """
    total = sum(pending.values()) if total is None else total
    if not total:
        return None
    unlimited = SendLimit()
    found = []
    for scope, count in pending.items():
        ends_in, reason = limits.get(scope, unlimited).end(count)
        if ends_in > 0.0:
            found.append(ScopeEstimate(scope=scope, pending=count, seconds=ends_in, reason=reason))
    last = nlargest(MAX_LAST, found, key=attrgetter("seconds"))
    seconds = places.lasts(total)
    if not last and not seconds:
        return None
    if last and last[0].seconds >= seconds:
        return Estimate(seconds=last[0].seconds, scope=last[0].scope, reason=last[0].reason, scopes=last)
    return Estimate(seconds=seconds, reason=places.reason, scopes=last)


def estimate_words(found: Estimate | None) -> str:
    """Return an estimate in words: ``pending ends in 2 min: b.example (delay 5 s), a.example in 9 s``; or ""."""
    if found is None:
        return ""
    words = "pending never ends" if found.seconds == inf else f"pending ends in {duration_words(found.seconds)}"
    by = found.scope if not found.reason else f"{found.scope} ({found.reason})" if found.scope else found.reason
    ends = ["never" if each.seconds == inf else f"in {duration_words(each.seconds)}" for each in found.scopes]
    others = [f"{each.scope} {end}" for each, end in zip(found.scopes, ends, strict=True) if each.scope != found.scope]
    return f"{words}: {', '.join([*([by] if by else []), *others])}" if by or others else words


# -- the status


class Rate(Struct, frozen=True, array_like=True):
    """A rate per second: over the last 10 seconds, over the last minute, and since the start of the crawl."""

    ten_seconds: float = 0.0
    minute: float = 0.0
    whole: float = 0.0


class Rates(Struct, frozen=True, kw_only=True):
    """The rates of a crawl: responses and items per second."""

    pages: Rate = Rate()
    items: Rate = Rate()


class WaitingGroup(Struct, frozen=True):
    """Requests that wait for the same limit: their number, and the limit as ``a.example delay 0.4 s``."""

    count: int
    words: str


class ErrorExample(Struct, frozen=True, kw_only=True):
    """The latest error of one kind.

    Attributes:
        kind: The part of the crawl and the error's class: ``callback ValueError``.
        count: Number of errors of this kind since the first request for a status.
        at: Wall time of the latest error, in seconds since the epoch.
        message: The error's message and the URL or item.
        traceback: The last lines of the error's traceback; "" if the error is not from user code.
    """

    kind: str
    count: int
    at: float
    message: str
    traceback: str = ""


class Health(Struct, frozen=True, kw_only=True):
    """Figures that show whether the process keeps up.

    Attributes:
        lateness: Seconds by which the event loop was late for the latest tick.
        memory: Bytes that the process holds; 0 if unknown.
        backlog: Bytes of items that wait for the feeds' writer.
        callbacks: Number of running callbacks.
        scopes: Number of scopes in memory.
    """

    lateness: float = 0.0
    memory: int = 0
    backlog: int = 0
    callbacks: int = 0
    scopes: int = 0


ERROR_KEYS = (
    "download_error_count",
    "spider_exceptions",
    "item_error_count",
    "middleware_exceptions",
    "throttling_errors",
    "scope_errors",
)
"""The statistics whose sum is the number of errors in a status."""


class BrowserStatus(Struct, frozen=True, kw_only=True):
    """The pages that a browser renders.

    Attributes:
        open: Number of open pages.
        tabs: Maximum number of open pages; 0 if no page was rendered.
        rendered: Number of rendered pages.
        requests: Number of requests of pages.
        memory: Bytes that the browser holds; 0 if unknown.
        pages: The oldest open pages, each with its age and what it waits for.
    """

    open: int = 0
    tabs: int = 0
    rendered: int = 0
    requests: int = 0
    memory: int = 0
    pages: Sequence[str] = ()


class CrawlStatus(Struct, frozen=True, kw_only=True):
    """The state of a crawl at one point in time. Every view of a running crawl shows this value.

    Attributes:
        version: The version of this value.
        spider: The name of the spider.
        state: ``running``, ``paused``, or the reason why the crawl is ending.
        since: Wall time of the start, in seconds since the epoch.
        at: Seconds from the start to this state.
        pages: Responses so far.
        items: Items so far.
        errors: Errors so far: the sum of :data:`ERROR_KEYS`.
        queued: Pending requests, for any reason.
        in_flight: Requests in flight.
        rates: Rates of pages and items.
        held: Requests that wait for anything other than a free slot.
        groups: Number of groups of waiting requests, one per reason.
        waiting: The largest of these groups.
        limits: Number of waiting requests by the name of the limit: ``delay``, ``gate`` (robots.txt), ``backoff``.
        statuses: Number of responses by status code.
        latency: Number of responses by latency, with the bounds of :data:`LATENCY_BOUNDS`.
        latency_seconds: Sum of these latencies.
        item_types: Number of items by type.
        last_errors: The latest error of each kind.
        estimate: The estimated end of the pending requests; None if nothing is pending.
        health: Whether the process keeps up.
        browser: The rendered pages.
    """

    version: int = VERSION
    spider: str = ""
    state: str = "running"
    since: float = 0.0
    at: float = 0.0
    pages: int = 0
    items: int = 0
    errors: int = 0
    queued: int = 0
    in_flight: int = 0
    rates: Rates = Rates()
    held: int = 0
    groups: int = 0
    waiting: Sequence[WaitingGroup] = ()
    limits: Mapping[str, int] = {}
    statuses: Mapping[str, int] = {}
    latency: Sequence[int] = ()
    latency_seconds: float = 0.0
    item_types: Mapping[str, int] = {}
    last_errors: Sequence[ErrorExample] = ()
    estimate: Estimate | None = None
    health: Health = Health()
    browser: BrowserStatus = BrowserStatus()

    def totals(self) -> CrawlStatus:
        """Return the totals of this status, which remain when its process has ended."""
        return CrawlStatus(
            pages=self.pages,
            items=self.items,
            errors=self.errors,
            statuses=self.statuses,
            latency=self.latency,
            latency_seconds=self.latency_seconds,
            item_types=self.item_types,
            last_errors=self.last_errors,
        )


class ScopeStatus(Struct, frozen=True, kw_only=True, gc=False):
    """The state of one scope at one point in time.

    Attributes:
        scope: The id of the scope.
        sends: Number of sends so far.
        rate: Sends per second between the first and the last send.
        allowed: Sends per second that the scope's limits allowed in that time; ``inf`` if no request had to wait.
        delay: The current delay, in seconds.
        concurrency: The current concurrency; ``inf`` without a limit.
        in_flight: Requests in flight.
        queued: Pending requests.
        limit: The limit that the scope's next request waits for; "" if the scope is open.
        source: The source of that limit.
        next_send: Seconds until the next request may be sent; ``inf`` if a place must be released first.
        triggers: Number of responses that asked for a slower pace.
        steps: Number of backoff steps taken.
        hints: Number of response headers obeyed.
        last_hint: The latest response header obeyed; "" if there is none.
        statuses: Number of responses with status 1xx, 2xx, 3xx, 4xx and 5xx, and number of requests without a response.
        size: Bytes of all bodies.
        latency: Number of responses by latency, with the bounds of :data:`LATENCY_BOUNDS`.
        seconds: Seconds until the last pending request is sent; 0.0 if none is pending.
        reason: The limit that decides this time, in words.
    """

    scope: str
    sends: int = 0
    rate: float = 0.0
    allowed: float = inf
    delay: float = 0.0
    concurrency: float = inf
    in_flight: int = 0
    queued: int = 0
    limit: str = ""
    source: str = ""
    next_send: float = 0.0
    triggers: int = 0
    steps: int = 0
    hints: int = 0
    last_hint: str = ""
    statuses: Sequence[int] = (0,) * 6
    size: int = 0
    latency: Sequence[int] = ()
    seconds: float = 0.0
    reason: str = ""


# -- one status of several processes


def together(statuses: Sequence[CrawlStatus]) -> CrawlStatus:
    """Return the sum of the statuses of several processes.

    The time and the state are of the first process, and the estimated end is the latest.
    """
    first, latency = statuses[0], [each.latency for each in statuses]
    waiting = [group for each in statuses for group in each.waiting]
    return _sum_of(
        statuses,
        version=first.version,
        since=first.since,
        at=first.at,
        waiting=nlargest(MAX_GROUPS, waiting, key=attrgetter("count")),
        latency=[sum(counts) for counts in zip_longest(*latency, fillvalue=0)],
        last_errors=_latest(error for each in statuses for error in each.last_errors),
        estimate=_last_end([each.estimate for each in statuses if each.estimate is not None]),
        health=_sum_of([each.health for each in statuses], lateness=max([each.health.lateness for each in statuses])),
        browser=_sum_of(
            [each.browser for each in statuses],
            pages=[words for each in statuses for words in each.browser.pages][:MAX_GROUPS],
        ),
    )


_S = TypeVar("_S", bound=Struct)


def _sum_of(parts: Sequence[_S], **others: object) -> _S:
    """Return the sums of all numbers in several values. ``others`` are the fields that are not summed up."""
    for name in [name for name in parts[0].__struct_fields__ if name not in others]:
        values: list[Any] = [getattr(part, name) for part in parts]
        if isinstance(values[0], int | float):
            others[name] = sum(values)
        elif isinstance(values[0], Mapping):
            others[name] = dict(sum(map(Counter, values), Counter()))
        elif isinstance(values[0], Struct):
            others[name] = _sum_of(values)
    return msgspec.structs.replace(parts[0], **others)


def _latest(errors: Iterable[ErrorExample]) -> list[ErrorExample]:
    found: dict[str, ErrorExample] = {}
    for error in errors:
        known = found.get(error.kind)
        latest = error if known is None or error.at >= known.at else known
        found[error.kind] = msgspec.structs.replace(latest, count=error.count + (known.count if known else 0))
    return list(found.values())


def _last_end(estimates: Sequence[Estimate]) -> Estimate | None:
    last = max(estimates, key=attrgetter("seconds"), default=None)
    scopes = nlargest(MAX_LAST, [each for found in estimates for each in found.scopes], key=attrgetter("seconds"))
    return None if last is None else msgspec.structs.replace(last, scopes=scopes)


_decode = msgspec.msgpack.Decoder(CrawlStatus).decode


def encode_status(status: CrawlStatus) -> bytes:
    """Return a status in its form for other processes, MessagePack."""
    return msgspec.msgpack.encode(status)


def decode_status(blob: bytes) -> CrawlStatus | None:
    """Return a status from its form for other processes; None if another version of trawl wrote it."""
    try:
        status = _decode(blob)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return status if status.version == VERSION else None


# -- words for people


def status_line(status: CrawlStatus) -> str:
    """Return a status as one line of the log, with the rates of the last minute."""
    rates = status.rates
    line = (
        f"{counted(status.pages, 'page')} ({rate_words(rates.pages.minute)}), "
        f"{counted(status.items, 'item')} ({rate_words(rates.items.minute)}), "
        f"{number_words(status.queued)} queued, {status.in_flight} in flight, {counted(status.errors, 'error')}"
    )
    return "; ".join([line, *filter(None, (waiting_words(status), estimate_words(status.estimate)))])


def waiting_words(status: CrawlStatus) -> str:
    """Return the largest groups of waiting requests: ``37 waiting: a.example delay 0.4 s; b.example hint 12 s``."""
    if not status.waiting:
        return ""
    shown = [group.words for group in status.waiting[:3]]
    if status.groups > len(shown):
        shown.append(f"and {number_words(status.groups - len(shown))} more")
    return f"{number_words(status.held)} waiting: {'; '.join(shown)}"
