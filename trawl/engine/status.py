"""Keeps the status of a crawl up to date, without slowing the crawl down.

Theory of operation. One :class:`StatusKeeper` per crawl is created on the first request for a status. Every second it
computes the figures, which costs the same for any number of hosts. All lanes and scopes are read *in turn*: a slice of
at most :data:`SLICE` seconds, and then a pause, so that the slices take at most :data:`SHARE` of the time. With 10,000
scopes, a round takes 15 s. A lane or scope may vanish between two slices, so a round reads lists of them and skips the
missing ones. The rows that a viewer sees are computed anew in each tick. ``python -m benchmarks --row views`` measures
all this. The last errors come from a small buffer of the crawl's events, which is read once per second.
"""

from __future__ import annotations

import traceback
from collections import Counter, deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from heapq import nlargest
from itertools import islice
from operator import attrgetter, itemgetter
from time import thread_time
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from trawl.engine.context import CrawlContext
from trawl.engine.watchers import held_bytes
from trawl.events import ItemFailed, RequestFailed, SpiderError
from trawl.observe import (
    ERROR_KEYS,
    CrawlStatus,
    ErrorExample,
    Health,
    Rate,
    Rates,
    ScopeStatus,
    SendLimit,
    WaitingGroup,
    clipped,
    encode_status,
    estimate,
)
from trawl.observe.status import MAX_GROUPS, MAX_LAST
from trawl.robots import at_once
from trawl.scheduler import Scheduler
from trawl.throttling import Throttle
from trawl.throttling.reasons import Reason, send_limit, status_of

if TYPE_CHECKING:
    from trawl.engine.crawl import Crawl
    from trawl.engine.steering import View
    from trawl.frontier.redis.sessions import JobSession

__all__ = ["StatusKeeper", "report_status"]

TICK = 1.0
"""Seconds between two updates of the figures."""

SLICE = 0.002
"""Seconds. Maximum processor time of one step through lanes and scopes."""

SHARE = 0.012
"""Part of the time that these steps may take."""

MAX_FRESH = 300
"""Maximum number of visible rows that are computed anew after a tick. Other rows are of the last round."""

JUST_BEFORE = 0.05
"""Seconds before an update of the figures at which a round through few lanes and scopes starts."""

MAX_ORDERS = 20
"""Maximum number of orders of the scopes that are kept for a round, one for each view."""

MAX_ERRORS = 5
"""Maximum number of kinds of errors in a status. The kind whose latest error is the oldest is dropped."""

_FEW = 100
"""Maximum number of lanes and scopes that are read in one step, which takes about 2 ms."""

_SCOPES_AT_ONCE = 10
_UNREAD_ERRORS = 100
_REASON_CHARACTERS = 100
_MESSAGE_CHARACTERS = 300
_TRACEBACK_LINES, _TRACEBACK_CHARACTERS = 12, 1200
_ITEM_TYPES = 20
_PARTS = {SpiderError: "callback", RequestFailed: "download", ItemFailed: "item"}


class StatusKeeper:
    """Computes the status of a crawl in regular intervals."""

    def __init__(self, crawl: Crawl, context: CrawlContext, scheduler: Scheduler, throttle: Throttle) -> None:
        self.scopes: dict[str, ScopeStatus] = {}  # the latest status of each that has sent or pending requests
        self.ticks: int = 0  # number of updates
        self._crawl = crawl
        self._context = context
        self._scheduler = scheduler
        self._throttle = throttle
        self._since = context.wall.to_epoch(crawl.started_at)
        self._seen: deque[tuple[float, int, int]] = deque(maxlen=62)  # a minute of ticks: time, pages, items
        self._errors: dict[str, ErrorExample] = {}
        self._groups = _Groups()
        self._orders: dict[tuple[str, bool, str], list[ScopeStatus]] = {}  # of this round
        self._fresh: dict[str, ScopeStatus] = {}  # of this tick
        self._last: dict[str, tuple[int, SendLimit]] = {}  # the scopes that end last
        self._lateness = 0.0
        self._due = 0.0
        self._is_running = False
        self._changed = trio.Event()
        self._latest = self._now()

    @property
    def latest(self) -> CrawlStatus:
        """The latest status. While no task updates it, before the start and after the end, it is computed anew."""
        if not self._is_running:
            self._latest = self._now()
        return self._latest

    def _now(self) -> CrawlStatus:
        """Compute the status outside of the task, with the waiting requests if there are few lanes and scopes."""
        if len(self._scheduler.lanes) + len(self._throttle.table) <= _FEW:
            at_once(self._steps())
        return self._figures()

    async def changed(self) -> None:
        """Wait for the next status. A checkpoint."""
        await self._changed.wait()

    async def run(self) -> None:
        """Keep the status up to date until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                self._is_running = True
                nursery.start_soon(self._go_round)
                await trio.lowlevel.checkpoint()  # after its first slice, which is all in a small crawl
                with self._crawl.events(SpiderError, ItemFailed, RequestFailed, most=_UNREAD_ERRORS) as events:
                    while True:
                        self._keep_errors(events.unread())
                        self._latest = self._figures()
                        self.ticks += 1
                        self._fresh = {}
                        self._changed.set()
                        self._changed = trio.Event()
                        self._due = trio.current_time() + TICK
                        await trio.sleep_until(self._due)
                        self._lateness = max(trio.current_time() - self._due, 0.0)
        finally:
            self._is_running = False

    def page(self, view: View) -> tuple[list[ScopeStatus], int]:
        """Return the rows of a view as they are now, and the number of scopes that contain its text."""
        key, fresh, now = (view.sort, view.is_descending, view.text), self._fresh, trio.current_time()
        order = self._orders.get(key)
        if order is None:
            rows = [row for row in self.scopes.values() if view.text in row.scope]
            order = sorted(rows, key=attrgetter(view.sort), reverse=view.is_descending)
            if len(self._orders) < MAX_ORDERS:
                self._orders[key] = order
        visible = order[view.offset : view.offset + view.count]
        for row in visible:
            if row.scope not in fresh and len(fresh) < MAX_FRESH:
                scope = self._throttle.table.get(row.scope)
                fresh[row.scope] = row if scope is None else status_of(scope, now, row.queued)
        return [fresh.get(row.scope, row) for row in visible], len(order)

    # -- the figures

    def _figures(self) -> CrawlStatus:
        crawl, now = self._crawl, trio.current_time()
        stats, queued = crawl.stats, crawl.queued
        pages, items = stats.count("response_count"), stats.count("item_scraped_count")
        self._seen.append((crawl.elapsed, pages, items))
        groups = self._groups
        types = nlargest(_ITEM_TYPES, stats.item_types.items(), key=itemgetter(1))
        return CrawlStatus(
            spider=crawl.spider.name,
            state=crawl.reason or ("paused" if crawl.is_paused else "running"),
            since=self._since,
            at=crawl.elapsed,
            pages=pages,
            items=items,
            errors=sum([stats.count(key) for key in ERROR_KEYS]),
            queued=queued,
            in_flight=crawl.in_flight,
            rates=Rates(pages=self._rate(1), items=self._rate(2)),
            held=groups.held,
            groups=groups.number,
            waiting=[WaitingGroup(count, clipped(why.text(now), _REASON_CHARACTERS)) for count, why in groups.largest],
            limits=groups.limits,
            statuses={
                code: count
                for code, count in stats.starting("response_status_count/").items()
                if isinstance(count, int)
            },
            latency=list(stats.latency),
            latency_seconds=stats.latency_seconds,
            item_types={kind.__name__: count for kind, count in types},
            last_errors=sorted(self._errors.values(), key=lambda error: -error.at),
            estimate=estimate(
                {scope: count for scope, (count, _) in self._last.items()},
                {scope: limit for scope, (_, limit) in self._last.items()},
                total=queued,
                places=self._places(),
            ),
            health=Health(
                lateness=self._lateness,
                memory=held_bytes() or 0,
                backlog=sum([getattr(receiver, "waiting_bytes", 0) for receiver in self._context.output.receivers]),
                callbacks=crawl.callbacks,
                scopes=len(self._throttle.table),
            ),
            browser=self._context.middleware_stack.rendering.status(stats),
        )

    def _rate(self, field: int) -> Rate:
        """Return the rates of one column of the ticks seen."""
        at, count = self._seen[-1][0], self._seen[-1][field]

        def over(seconds: float) -> float:
            first = next(seen for seen in self._seen if at - seen[0] <= seconds)
            return (count - first[field]) / (at - first[0]) if at > first[0] else 0.0

        return Rate(over(10.0), over(60.0), count / at if at > 0.0 else 0.0)

    def _places(self) -> SendLimit:
        """Return the rate that the places and the callbacks of the whole crawl allow."""
        times, found = self._crawl.stats.times, SendLimit()
        if not times.sends:
            return found
        callbacks = self._context.values.engine.concurrent_callbacks
        for seconds, most, setting in (
            (times.connecting + times.fetching, self._scheduler.places, "CONCURRENT_REQUESTS"),
            (times.parsing, callbacks, "CONCURRENT_CALLBACKS"),
        ):
            rate = most * times.sends / seconds if seconds > 0.0 else found.rate
            if rate < found.rate:
                found = SendLimit(rate=rate, reason=f"{setting} {most:g}")
        return found

    def _keep_errors(self, events: Iterable[Any]) -> None:
        """Count the errors of events by kind, and keep the last one of each kind."""
        counts: Counter[str] = Counter()
        last: dict[str, Any] = {}
        for event in events:
            kind = f"{_PARTS[type(event)]} {type(event.error).__name__}"
            counts[kind] += 1
            last.pop(kind, None)  # the latest is last
            last[kind] = event
        for kind, event in last.items():
            where = type(event.item).__name__ if isinstance(event, ItemFailed) else event.request.url
            known = self._errors.pop(kind, None)
            self._errors[kind] = ErrorExample(
                kind=kind,
                count=counts[kind] + (0 if known is None else known.count),
                at=self._context.wall.to_epoch(event.at),
                message=clipped(f"{where}: {_words_of(event.error)}", _MESSAGE_CHARACTERS),
                traceback="" if isinstance(event, RequestFailed) else _traceback_of(event.error),
            )
            if len(self._errors) > MAX_ERRORS:
                del self._errors[next(iter(self._errors))]

    # -- lanes and scopes, in slices

    async def _go_round(self) -> None:
        """Read all lanes and scopes again and again."""
        while True:
            slice_from, ran_from, took = trio.current_time(), thread_time(), 0.0
            for _ in self._steps():
                # A step takes no time on a virtual clock. Time without the processor does not count.
                took = min(trio.current_time() - slice_from, thread_time() - ran_from)
                if took >= SLICE:
                    await trio.sleep(took / SHARE)
                    slice_from, ran_from, took = trio.current_time(), thread_time(), 0.0
            # A short round comes just before the figures, so that they are of the same time.
            await trio.sleep_until(max(self._due - JUST_BEFORE, trio.current_time() + took / SHARE, slice_from + 0.1))

    def _steps(self) -> Generator[None, None, None]:
        """Read all lanes and scopes once. Yields after each step."""
        queued: dict[str, int] = {}
        self._groups = yield from _in_groups((yield from self._crawl.waiting_in_steps(queued)))
        found: dict[str, ScopeStatus] = {}
        ends: list[tuple[float, str]] = []
        scopes = iter(list(self._throttle.table))
        while some := list(islice(scopes, _SCOPES_AT_ONCE)):
            now = trio.current_time()
            for scope in some:
                count = queued.get(scope.id, 0)
                if count or scope.state.totals.sends:
                    row = found[scope.id] = status_of(scope, now, count)
                    if count:
                        ends.append((row.seconds, scope.id))
            yield
        self.scopes, self._orders = found, {}
        yield
        self._last = {}
        now = trio.current_time()
        for _, id in nlargest(MAX_LAST, ends):
            last = self._throttle.table.get(id)
            if last is not None:
                self._last[id] = queued[id], send_limit(last, now)


class _Groups(NamedTuple):
    """The waiting requests of a round: their number, the number of groups, the largest groups, and their limits."""

    held: int = 0
    number: int = 0
    largest: Sequence[tuple[int, Reason]] = ()
    limits: Mapping[str, int] = {}


def _in_groups(groups: Sequence[tuple[int, Reason]]) -> Generator[None, None, _Groups]:
    """Sum up the groups of waiting requests. Yields after each step."""
    limits: Counter[str] = Counter()
    each = iter(groups)
    while some := list(islice(each, 100 * _SCOPES_AT_ONCE)):
        for count, reason in some:
            limits[reason.limit or "open"] += count
        yield
    largest = nlargest(MAX_GROUPS, groups, key=itemgetter(0))
    return _Groups(sum(limits.values()), len(groups), largest, dict(limits))


def _words_of(error: BaseException) -> str:
    with suppress(Exception):  # an exception of user code may have any __str__
        return str(error) or type(error).__name__
    return type(error).__name__


def _traceback_of(error: BaseException) -> str:
    """Return the last lines of a traceback, shortened."""
    with suppress(Exception):
        lines = "".join(traceback.format_exception(error)).splitlines()
        return "\n".join([clipped(line, 200) for line in lines[-_TRACEBACK_LINES:]])[:_TRACEBACK_CHARACTERS]
    return ""


async def report_status(session: JobSession, crawl: Crawl) -> None:
    """Report the status of the crawl to observers of a job, with the next renewal of the session. A watcher."""
    while True:
        session.say(encode_status(crawl.status()))
        await crawl.status_keeper.changed()
