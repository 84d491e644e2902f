"""Crawlers against a server's limit, in virtual time: trawl's real engine with ``rampup``, and models of others.

All crawlers crawl the same servers. A server has a token bucket, a defined latency, defined outages, and more pages
than it can serve in the time.
"""

from __future__ import annotations

import heapq
import math
import random
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import attrs

import trawl
from benchmarks.bench import Bench
from benchmarks.controllers import LOST, MODELS, Answer, Controller
from benchmarks.figures import Figure
from trawl.http import Request
from trawl.testing import LogNormal, RateLimit, SimulatedWeb, Uniform, simulate
from trawl.testing.hosts import Latency, draw_seconds
from trawl.testing.limits import TokenBucket

__all__ = ["CASES", "CRAWLERS", "GROUPS", "OURS", "Case", "Server", "Trace", "limits", "run"]

HOST = "server.example"
OURS = "trawl"
CRAWLERS = (OURS, *MODELS)
SEED = 1
SPARE = 100
"""Number of pages in addition to those that the server can serve in the time."""

SPAN = 10.0
"""A crawl has recovered if its rate over this number of seconds is high enough."""

BACK = 0.9
"""Share of the limit that the rate of a recovered crawl must reach."""

_UTC = datetime(2025, 1, 1, tzinfo=UTC)


@attrs.frozen(kw_only=True)
class Server:
    """A server with a token bucket.

    Attributes:
        rate: Allowed requests per second.
        burst: Size of the bucket.
        retry_after: ``Retry-After`` of a refusal in whole seconds; True for the time of the next token; None for none.
        moved: Time at which the limit changes, in seconds, and the new limit; None if it does not change.
        outages: Start and end of each time in which every response is 503.
        latency: Seconds that a response takes, or the distribution of these seconds.
    """

    rate: float
    burst: float = 5.0
    retry_after: int | None = None
    moved: tuple[float, float] | None = None
    outages: Sequence[tuple[float, float]] = ()
    latency: Latency = 0.1

    @property
    def limit(self) -> RateLimit:
        """Return the limit for the simulated web."""
        changes = [] if self.moved is None else [self.moved]
        return RateLimit(rate=self.rate, burst=self.burst, retry_after=self.retry_after, changes=changes)

    def allows(self, start: float, end: float) -> float:
        """Return the number of requests allowed between two times, without the bucket's burst."""
        edges = sorted({start, end, *(at for at in (self.moved or ())[:1] if start < at < end)})
        return sum(self.rate_at(since) * (until - since) for since, until in pairwise(edges))

    def rate_at(self, at: float) -> float:
        """Return the requests per second allowed at a time."""
        return self.rate if self.moved is None or at < self.moved[0] else self.moved[1]


@attrs.frozen
class Trace:
    """The server's view of a crawl.

    Attributes:
        good: Times of the served requests.
        refused: Times of the refused requests.
        lost: Number of pages that were given up.
    """

    good: Sequence[float]
    refused: Sequence[float]
    lost: int

    def good_between(self, start: float, end: float) -> int:
        """Return the number of pages served from ``start`` to before ``end``."""
        return bisect_left(self.good, end) - bisect_left(self.good, start)

    def refused_between(self, start: float, end: float) -> int:
        """Return the number of refusals from ``start`` to before ``end``."""
        return bisect_left(self.refused, end) - bisect_left(self.refused, start)

    def back_after(self, end: float, rate: float, until: float) -> float:
        """Return the seconds from ``end`` until the crawl has recovered; ``inf`` if it does not recover."""
        starts = [end, *self.good[bisect_left(self.good, end) :]]
        for start in starts:
            if start + SPAN > until:
                break
            if self.good_between(start, start + SPAN) >= BACK * rate * SPAN:
                return start - end
        return math.inf


def run(name: str, server: Server, *, pages: int | None = None, seconds: float = math.inf) -> Trace:
    """Crawl ``server`` with a number of pages or for a number of seconds.

    Args:
        name: One of :data:`CRAWLERS`.
        server: The server.
        pages: Number of pages; None for more than the server can serve in the time.
        seconds: Time at which to stop.
    """
    if name == OURS:
        enough = pages or math.ceil(server.allows(0.0, seconds) + server.burst) + SPARE
        return crawled(server, enough, seconds)
    controller = MODELS[name](server.rate, random.Random(SEED))
    return modelled(controller, server, pages or math.inf, seconds)


class Pages(trawl.Spider):
    """Requests ``pages`` pages and yields an item for each."""

    name = "pages"
    pages = 0

    async def start(self) -> AsyncIterator[Request]:
        """Yield all requests."""
        for number in range(self.pages):
            yield Request(f"http://{HOST}/{number}")

    def parse(self, response: trawl.Response) -> Any:
        """Return an item with the URL."""
        return {"url": response.url}


def crawled(server: Server, pages: int, seconds: float) -> Trace:
    """Crawl with trawl and ``rampup: True``, starting at the default of one page per second, with jitter."""
    web = SimulatedWeb()
    web.add_host(HOST, latency=server.latency, limit=server.limit, outages=server.outages)
    settings = {
        "THROTTLING_SCOPES": {HOST: {"rampup": True}},
        "CLOSESPIDER_TIMEOUT": 0 if seconds == math.inf else seconds,
        "ROBOTSTXT_OBEY": False,
        "LOG_LEVEL": "ERROR",
    }
    sim = simulate(type("Pages", (Pages,), {"pages": pages}), web, settings, SEED)
    good = [send.time for send in sim.sends if send.status == 200]
    lost = pages - len(good) if seconds == math.inf else int(sim.stats.get("retry_max_reached", 0))
    return Trace(sorted(good), sorted(send.time for send in sim.sends if send.status != 200), lost)


def modelled(controller: Controller, server: Server, pages: float, seconds: float) -> Trace:
    """Crawl with a model, event by event. Refused pages are requested again before new pages."""
    bucket, rng = TokenBucket(server.limit), random.Random(SEED)
    request = Request(f"http://{HOST}/")
    good, refused, lost, now = list[float](), list[float](), 0, 0.0
    again, flying = list[tuple[float, int]](), list[tuple[float, int, Answer]]()
    while True:
        while flying and flying[0][0] <= now:
            answer = heapq.heappop(flying)[2]
            at = controller.answered(answer)
            if not answer.is_good and at == LOST:
                lost += 1
            elif not answer.is_good:
                heapq.heappush(again, (at, answer.tries))
        waiting = now if pages else again[0][0] if again else math.inf
        ready_at = max(waiting, controller.ready_at(now, len(flying)))
        if ready_at > now:
            now = min(ready_at, flying[0][0] if flying else math.inf)
            if now >= seconds or now == math.inf:
                return Trace(good, refused, lost)
            continue
        is_again = bool(again) and again[0][0] <= now
        tries = heapq.heappop(again)[1] + 1 if is_again else 1
        pages -= not is_again
        is_down = any(start <= now < end for start, end in server.outages)
        status = 503 if is_down else 200 if bucket.take(now) else 429
        (good if status == 200 else refused).append(now)
        controller.sent(now)
        wish = float(bucket.fields(now, _UTC, is_refusal=True).get("Retry-After", 0)) if status == 429 else 0.0
        ends_at = now + draw_seconds(server.latency, request, rng)
        heapq.heappush(flying, (ends_at, len(good) + len(refused), Answer(ends_at, now, status, tries, wish)))


@attrs.frozen(kw_only=True)
class Case:
    """One measurement.

    Attributes:
        name: Description.
        server: The server.
        pages: Number of pages to crawl; None to crawl for ``seconds``.
        seconds: Time at which to stop.
        measure: Returns the figures of a trace: the value, its unit, and refusals per 100 pages.
        most: Goal for trawl's maximum; None if there is none.
        least: Goal for trawl's minimum; None if there is none.
    """

    name: str
    server: Server
    measure: Callable[[Case, Trace], tuple[float, str, str]]
    pages: int | None = None
    seconds: float = math.inf
    most: float | None = None
    least: float | None = None

    def figure(self, crawler: str) -> Figure:
        """Crawl and measure."""
        value, unit, note = self.measure(self, run(crawler, self.server, pages=self.pages, seconds=self.seconds))
        figure = Figure(name=f"{self.name}: {crawler}", value=value, unit=unit, note=note)
        return attrs.evolve(figure, most=self.most, least=self.least) if crawler == OURS else figure


def _per_100(refused: int, good: int) -> str:
    return f"{100.0 * refused / max(good, 1):,.1f} refused per 100"


def _lost(trace: Trace) -> str:
    return f", {trace.lost:,} lost" if trace.lost else ""


def seconds_for_all(case: Case, trace: Trace) -> tuple[float, str, str]:
    """Return the seconds until the last page."""
    note = _per_100(len(trace.refused), len(trace.good)) + _lost(trace)
    return round(trace.good[-1], 1), "s", note


SETTLED = 60.0
"""Seconds after which a crawl must have found the limit."""


def share(case: Case, trace: Trace) -> tuple[float, str, str]:
    """Return the share of the limit that the crawl used after it had found the limit, or after the limit changed."""
    start, end = case.server.moved[0] if case.server.moved else SETTLED, case.seconds
    good = trace.good_between(start, end)
    note = _per_100(trace.refused_between(start, end), good) + _lost(trace)
    return round(100.0 * good / case.server.allows(start, end), 1), "%", note


def back(case: Case, trace: Trace) -> tuple[float, str, str]:
    """Return the seconds from the end of an outage to recovery, and the refusals during and two minutes after it."""
    start, end = case.server.outages[0][0], case.server.outages[-1][1]
    during, after = trace.refused_between(start, end), trace.refused_between(end, end + 120.0)
    note = f"{during} + {after} refused" + _lost(trace)
    return round(trace.back_after(end, case.server.rate, case.seconds), 1), "s", note


RATES, BURSTS = (2.0, 10.0, 50.0), (1.0, 5.0, 20.0)
_LAWS: dict[str, Latency] = {
    "0.1 s, log-normal": LogNormal(0.1, 0.5),
    "1 s, log-normal": LogNormal(1.0, 0.5),
    "0.02 to 2 s, uniform": Uniform(0.02, 2.0),
}


def _pages() -> list[Case]:
    wanted = ((2.0, 500, 260.0), (10.0, 1_000, 115.0), (50.0, 2_000, 60.0), (50.0, 10_000, 225.0))
    return [
        Case(
            name=f"{pages:,} pages at {rate:g}/s",
            server=Server(rate=rate),
            pages=pages,
            measure=seconds_for_all,
            most=most,
        )
        for rate, pages, most in wanted
    ]


def _steady(retry_after: int | None) -> list[Case]:
    told = ", Retry-After" if retry_after else ""
    return [
        Case(
            name=f"{rate:g}/s, burst {burst:g}{told}",
            server=Server(rate=rate, burst=burst, retry_after=retry_after),
            measure=share,
            seconds=240.0,
            least=None if retry_after else 90.0 if burst > 1.0 or rate < 50.0 else 85.0,
        )
        for rate in RATES
        for burst in BURSTS
    ]


def _moves() -> list[Case]:
    return [
        Case(
            name=f"from {rate:g} to {moved:g}/s",
            server=Server(rate=rate, moved=(120.0, moved)),
            measure=share,
            seconds=240.0,
        )
        for rate, moved in ((10.0, 8.0), (10.0, 5.0), (10.0, 1.0), (10.0, 12.0), (10.0, 20.0), (5.0, 50.0))
    ]


def _outages() -> list[Case]:
    at = 200.0
    outages = {f"{length:g} s of 503": [(at, at + length)] for length in (5.0, 40.0, 300.0)}
    outages["5 s of 503 twice, 10 s between"] = [(at, at + 5.0), (at + 15.0, at + 20.0)]
    return [
        Case(
            name=f"6/s, {words}",
            server=Server(rate=6.0, outages=spans),
            measure=back,
            seconds=spans[-1][1] + 600.0,
            most=30.0 if spans[-1][1] == at + 40.0 else None,
        )
        for words, spans in outages.items()
    ]


def _latencies() -> list[Case]:
    return [
        Case(name=f"10/s, {law}", server=Server(rate=10.0, latency=latency), measure=share, seconds=240.0)
        for law, latency in _LAWS.items()
    ]


def _dear() -> list[Case]:
    return [
        Case(
            name=f"10/s, Retry-After: {seconds}",
            server=Server(rate=10.0, retry_after=seconds),
            measure=share,
            seconds=600.0,
        )
        for seconds in (5, 30)
    ]


GROUPS: dict[str, Sequence[Case]] = {
    "Seconds for a number of pages": _pages(),
    "Share of the limit from the 60th second on": _steady(None),
    "Share of the limit, with a correct Retry-After": _steady(True),
    "Share of the limit, with a Retry-After that is too long": _dear(),
    "Share of the limit, with latencies that vary": _latencies(),
    "Share of the limit in the two minutes after it changes": _moves(),
    "Seconds after an outage until nine tenths of the rate are reached": _outages(),
}
"""The measurements by the headings of their tables."""

CASES = {case.name: case for cases in GROUPS.values() for case in cases}


def limits(bench: Bench) -> list[Figure]:
    """Return the figures of all cases for all crawlers. One round is enough, because the clock is virtual."""
    names = list(CASES)[:1] if bench.is_quick else list(CASES)
    return [CASES[name].figure(crawler) for name in names for crawler in CRAWLERS]
