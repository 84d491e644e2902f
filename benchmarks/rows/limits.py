"""Crawlers before a server's limit, in virtual time: trawl's real engine with ``rampup``, and the models of the others.

All meet the same servers: a token bucket, with the latency and the outages of a law, and more pages than it can serve.
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
"""Pages more than the server can serve in the time."""

SPAN = 10.0
"""Seconds over which the rate is taken that says that a crawl is back."""

BACK = 0.9
"""The part of the limit at which it is."""

_UTC = datetime(2025, 1, 1, tzinfo=UTC)


@attrs.frozen(kw_only=True)
class Server:
    """A server with a token bucket.

    Attributes:
        rate: Requests a second that it allows.
        burst: What the bucket holds.
        retry_after: The ``Retry-After`` of a refusal: whole seconds; True: until the next token; None: none.
        moved: When the limit moves, in seconds, and to what.
        outages: From when to when everything is answered with 503.
        latency: Seconds that an answer takes, or the law that draws them.
    """

    rate: float
    burst: float = 5.0
    retry_after: int | None = None
    moved: tuple[float, float] | None = None
    outages: Sequence[tuple[float, float]] = ()
    latency: Latency = 0.1

    @property
    def limit(self) -> RateLimit:
        """The limit as the simulated web has it."""
        changes = [] if self.moved is None else [self.moved]
        return RateLimit(rate=self.rate, burst=self.burst, retry_after=self.retry_after, changes=changes)

    def allows(self, start: float, end: float) -> float:
        """Requests that it allows between two instants, without the bucket's burst."""
        edges = sorted({start, end, *(at for at in (self.moved or ())[:1] if start < at < end)})
        return sum(self.rate_at(since) * (until - since) for since, until in pairwise(edges))

    def rate_at(self, at: float) -> float:
        """Requests a second that it allows at an instant."""
        return self.rate if self.moved is None or at < self.moved[0] else self.moved[1]


@attrs.frozen
class Trace:
    """The server's view of a crawl.

    Attributes:
        good: When the pages that it served were asked for.
        refused: When the requests came that it refused.
        lost: Pages that were given up.
    """

    good: Sequence[float]
    refused: Sequence[float]
    lost: int

    def good_between(self, start: float, end: float) -> int:
        """Pages served from ``start`` until before ``end``."""
        return bisect_left(self.good, end) - bisect_left(self.good, start)

    def refused_between(self, start: float, end: float) -> int:
        """Refusals from ``start`` until before ``end``."""
        return bisect_left(self.refused, end) - bisect_left(self.refused, start)

    def back_after(self, end: float, rate: float, until: float) -> float:
        """Seconds from ``end`` until ten seconds begin with nine tenths of ``rate``; ``inf``: not before ``until``."""
        starts = [end, *self.good[bisect_left(self.good, end) :]]
        for start in starts:
            if start + SPAN > until:
                break
            if self.good_between(start, start + SPAN) >= BACK * rate * SPAN:
                return start - end
        return math.inf


def run(name: str, server: Server, *, pages: int | None = None, seconds: float = math.inf) -> Trace:
    """Crawl ``server``, with so many pages or for so many seconds.

    Args:
        name: One of :data:`CRAWLERS`.
        server: It.
        pages: Pages that there are; None: more than it can serve in the time.
        seconds: When to stop.
    """
    if name == OURS:
        enough = pages or math.ceil(server.allows(0.0, seconds) + server.burst) + SPARE
        return crawled(server, enough, seconds)
    controller = MODELS[name](server.rate, random.Random(SEED))
    return modelled(controller, server, pages or math.inf, seconds)


class Pages(trawl.Spider):
    """So many pages; each gives an item."""

    name = "pages"
    pages = 0

    async def start(self) -> AsyncIterator[Request]:
        """All of them."""
        for number in range(self.pages):
            yield Request(f"http://{HOST}/{number}")

    def parse(self, response: trawl.Response) -> Any:
        """Say that it came."""
        return {"url": response.url}


def crawled(server: Server, pages: int, seconds: float) -> Trace:
    """By trawl, with ``rampup: True``, from its default of a page a second, jitter on."""
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
    """By a model, event by event; a page that was refused goes before those that were not asked for yet."""
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
    """One thing to measure.

    Attributes:
        name: In words.
        server: It.
        pages: Pages to crawl; None: it is crawled for ``seconds``.
        seconds: When to stop.
        measure: Makes figures of a trace: the value, its unit, and refusals per 100 pages.
        most: The goal for trawl, where it is to be at most this.
        least: The goal for trawl, where it is to be at least this.
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
    """Seconds until the last page came."""
    note = _per_100(len(trace.refused), len(trace.good)) + _lost(trace)
    return round(trace.good[-1], 1), "s", note


SETTLED = 60.0
"""Seconds after which a crawl has to have found a limit."""


def share(case: Case, trace: Trace) -> tuple[float, str, str]:
    """The part of the limit that is used, once it is found, or from the instant on at which it moves."""
    start, end = case.server.moved[0] if case.server.moved else SETTLED, case.seconds
    good = trace.good_between(start, end)
    note = _per_100(trace.refused_between(start, end), good) + _lost(trace)
    return round(100.0 * good / case.server.allows(start, end), 1), "%", note


def back(case: Case, trace: Trace) -> tuple[float, str, str]:
    """Seconds from the end of the outage until it is back; refusals in it, and in the two minutes after it."""
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
"""What is measured, by the headings of the tables."""

CASES = {case.name: case for cases in GROUPS.values() for case in cases}


def limits(bench: Bench) -> list[Figure]:
    """Every case by every crawler; on a virtual clock one round is enough."""
    names = list(CASES)[:1] if bench.is_quick else list(CASES)
    return [CASES[name].figure(crawler) for name in names for crawler in CRAWLERS]
