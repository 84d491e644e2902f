"""Time to find the next request, with few and many domains pending, in trawl and (in another process) in Scrapy."""

from __future__ import annotations

import gc
from collections import deque
from functools import partial
from math import inf
from time import process_time

import trio

from benchmarks.bench import Bench
from benchmarks.choose import CASES, run
from benchmarks.figures import Figure, median_of, ratio_of
from benchmarks.peers import run_script
from trawl.engine.cache_lookup import NoCache
from trawl.frontier import MemoryFrontier, Record
from trawl.http import Request, fingerprint, origin_of
from trawl.scheduler import Attempt, Prefetcher, Scheduler
from trawl.throttling.limits import Limits
from trawl.throttling.scope import Scope

__all__ = ["DOMAINS", "SCRAPY_DOMAINS", "looks", "next_request"]

DOMAINS = (10, 1_000, 50_000)
SCRAPY_DOMAINS = (10, 1_000, 10_000)
"""With 50,000 domains, pushing all requests alone takes minutes in Scrapy."""

REQUESTS = 50_000
AT_ONCE = 10
"""Number of requests that are pushed together, as if they were the links of one page."""

PLACES = 64
LATENCY = 0.01
LIMITS = Limits(concurrency=8)


class Queue:
    """The components between a new request and its send: frontier, leased requests, lanes and scopes."""

    def __init__(self) -> None:
        self._known: dict[str, Scope] = {}
        self.frontier: MemoryFrontier = MemoryFrontier()
        self.scheduler: Scheduler = Scheduler(self._scope_of, places=PLACES)
        self.prefetcher: Prefetcher = Prefetcher(self.frontier, self.scheduler, Attempt.of_record, NoCache())

    def _scope_of(self, id: str, now: float) -> Scope:
        if id not in self._known:
            self._known[id] = Scope(id, LIMITS)
        return self._known[id]

    async def push_all(self, requests: list[Request]) -> None:
        """Claim, store and lease requests, in batches as large as the number of links of a page."""
        for start in range(0, len(requests), AT_ONCE):
            some = requests[start : start + AT_ONCE]
            prints = [fingerprint(request) for request in some]
            await self.frontier.claim_many(prints)
            records = [record_of(request, mark) for request, mark in zip(some, prints, strict=True)]
            await self.frontier.push_many(records)
            self.prefetcher.pushed(records)
            await self.prefetcher.refill(0.0, lambda: 0.0)

    async def pop(self, most: int) -> None:
        """Grant, send and release ``most`` requests."""
        scheduler, prefetcher = self.scheduler, self.prefetcher
        now, on_wire = 0.0, deque[tuple[float, Attempt]]()
        while scheduler.grants < most:
            while isinstance(granted := scheduler.grant(now), Attempt):
                prefetcher.granted(granted.options.lease.lane)
                scheduler.sent(granted, now)
                on_wire.append((now + LATENCY, granted))
                if prefetcher.is_due(now):
                    await prefetcher.refill(now, partial(float, now))
            now = min(scheduler.next_event(now), on_wire[0][0] if on_wire else inf)
            while on_wire and on_wire[0][0] <= now:
                attempt = on_wire.popleft()[1]
                scheduler.give_back(attempt, now)
                await self.frontier.acknowledge(attempt.options.lease)


def requests_of(domains: int, count: int, name: str) -> list[Request]:
    """Return ``count`` requests with rotating domains."""
    return [Request(f"http://host-{number % domains}.example/{name}/{number}") for number in range(count)]


async def push_and_pop(domains: int) -> tuple[float, float]:
    """Return microseconds of processor time per push and per pop while every domain has pending requests."""
    queue = Queue()
    await queue.push_all(requests_of(domains, max(domains, REQUESTS), "first"))
    requests = requests_of(domains, REQUESTS, "page")
    gc.collect()
    gc.freeze()
    began = process_time()
    await queue.push_all(requests)
    pushed = process_time()
    await queue.pop(REQUESTS)
    ended = process_time()
    gc.unfreeze()
    return (pushed - began) / REQUESTS * 1e6, (ended - pushed) / queue.scheduler.grants * 1e6


def record_of(request: Request, mark: bytes) -> Record:
    """Return the record of a request, as made by admission."""
    origin = origin_of(request.url)
    return Record(request, ((origin.partition("//")[2], None),), origin, mark)


def next_request(bench: Bench) -> list[Figure]:
    """Return the time per push and pop for each number of domains, for trawl and Scrapy."""
    domains = DOMAINS[:2] if bench.is_quick else DOMAINS
    ours: dict[int, list[tuple[float, float]]] = {count: [] for count in domains}
    theirs: dict[int, list[dict[str, float]]] = {count: [] for count in SCRAPY_DOMAINS[: len(domains)]}
    trio.run(push_and_pop, domains[0])  # fill caches before the measurement
    for _ in range(bench.rounds):
        for count, each in ours.items():
            each.append(trio.run(push_and_pop, count))
        for count, told in theirs.items():
            told.append(run_script("scrapy", "crawlers/scrapy_queue.py", str(count)))
    figures = []
    for place, what in enumerate(("push", "pop")):
        few, *_, many = ([each[place] for each in rounds] for rounds in ours.values())
        figures += [
            *(
                median_of(f"{what}, {count:,} domains", [each[place] for each in rounds], "us", most=20)
                for count, rounds in ours.items()
            ),
            ratio_of(f"{what}, {domains[-1]:,} against {domains[0]}", many, few, most=2),
            *(
                median_of(f"Scrapy: {what}, {count:,} domains", [each[what] for each in rounds], "us")
                for count, rounds in theirs.items()
            ),
        ]
    return figures


def looks(bench: Bench) -> list[Figure]:
    """Return lanes checked per grant, without the first check of each lane. Needs one run, as no time is measured."""
    lanes = 5_000 if bench.is_quick else 50_000
    figures = []
    for name, most in (
        ("3 scopes, shared one full (10)", 3.0),
        ("3 scopes, shared one delayed (0.01)", 3.0),
        ("2 shared scopes closed in turn", None),
    ):
        push, attempt, looked = run(lanes, *CASES[name])
        note = f"push {push:.1f} us, attempt {attempt:.1f} us with the first look at each"
        figures.append(Figure(name=name, value=looked, unit="checks", most=most, note=note))
    return figures
