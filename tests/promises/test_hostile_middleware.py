"""Middleware of every kind at once, by seed: the crawl ends, keeps its limits, and has nothing left in its counters."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any

import pytest
import trio

import trawl
from tests.promises.pacing import web_of
from trawl.http import Drop, Fetch, Middleware, Outcome, Replace
from trawl.scheduler import Scheduler
from trawl.scheduler.shared_job import SharedJobScheduler
from trawl.testing import SimulatedResponse, simulate
from trawl.throttling import Scope

FIRST = int(os.environ.get("HOSTILE_FIRST", "0"))
COUNT = int(os.environ.get("HOSTILE", "1000"))
EARLY = 1e-6
HOSTS = ["h0.example", "h1.example", "h2.example"]
KINDS = ["plain", "token", "locked", "raises", "drops", "replaces", "diverts", "scoped", "gives-up", "late", "again"]
LOST = {"raises", "drops", "gives-up"}
"""Those that may come to no callback."""

LIMITS: list[dict[str, Any]] = [
    {},
    {"delay": 0.0, "delay_per_slot": 0.0, "concurrency": 1},
    {"delay": 0.0, "delay_per_slot": 0.0, "concurrency": 3},
    {"delay": 0.5, "delay_per_slot": 0.0, "concurrency": 4},
    {"delay": 0.0, "delay_per_slot": 1.0, "concurrency": 2},
    {"quota": 4, "window": 10.0},
    {"quota": 3, "window": 7.0, "sliding": True, "concurrency": 4},
    {"rate": 2},
]
NAMED: list[dict[str, Any]] = [{}, {"concurrency": 1}, {"delay": 0.4}, {"quota": 5.0, "window": 12.0}]


class Pages(trawl.Spider):
    """Asks for pages whose addresses say what their middleware and their callback do.

    Attributes:
        running: The spider that runs.
        requests: What it asks for: the address, and its scopes, or None for that of its host.
    """

    name = "pages"
    running: trawl.Spider
    requests: list[tuple[str, dict[str, float | None] | None]]

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        Pages.running = self
        for url, scopes in self.requests:
            yield trawl.Request(url, meta={} if scopes is None else {"throttling_scopes": scopes})

    async def parse(self, response: trawl.Response) -> AsyncGenerator[Any, None]:
        kind, number, other = response.url.split("/")[3:]
        if int(number) % 4 == 1:
            with trio.move_on_after(50.0 if int(number) % 8 == 1 else 5.0):
                async with trio.open_nursery() as nursery:
                    for count in range(3):
                        nursery.start_soon(self.fetch, trawl.Request(f"http://{other}/locked/{number}{count}/{other}"))
        yield {"number": number, "kind": kind}


def hostile(draws: random.Random, longest: float) -> Middleware:
    """A middleware that does to each request what its address says."""
    lock = trio.Lock()

    async def fetch_other(host: str) -> None:
        await Pages.running.fetch(trawl.Request(f"http://{host}/plain/{draws.random()}/{host}"))

    def middleware(fetch: Fetch) -> Fetch:
        async def send(request: trawl.Request) -> Outcome:
            if request.url.endswith("/robots.txt"):
                return await fetch(request)
            kind, number, other = request.url.split("/")[3:]
            await trio.sleep(draws.uniform(0.0, longest))
            if kind == "token":
                await fetch_other(other)
            elif kind == "locked":
                async with lock:
                    if draws.random() < 0.5:
                        await fetch_other(other)
            elif kind == "raises":
                raise ValueError("it fails")
            elif kind == "drops":
                return Outcome(request, then=Drop("dropped"))
            elif kind == "replaces":
                return Outcome(request, then=Replace(request.replace(url=plain(request.url)), reason="replaced"))
            elif kind == "diverts":
                request = request.replace(url=f"http://{other}/plain/{number}/{other}")
            elif kind == "scoped":
                request.meta["throttling_scopes"] = {"x": 1.0, "y": 2.0}
            elif kind == "gives-up":
                with trio.move_on_after(1.0):
                    return await fetch(request)
                return Outcome(request, then=Drop("given_up"))
            outcome = await fetch(request)
            if kind == "late":
                async with lock:
                    await fetch_other(other)
            elif kind == "again" and outcome.then is None:
                outcome.then = Replace(request.replace(url=plain(request.url)), reason="again")
            return outcome

        return send

    return middleware


def plain(url: str) -> str:
    host, _, number, other = url.removeprefix("http://").split("/")
    return f"http://{host}/plain/{number}/{other}"


def check(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = random.Random(f"hostile:{seed}")
    limits = {**{host: draws.choice(LIMITS) for host in HOSTS}, **{name: draws.choice(NAMED) for name in ("x", "y")}}
    kinds = ["plain", "plain", *draws.sample(KINDS, 4)]
    Pages.requests = []
    for number in range(draws.randrange(8, 40)):
        host = draws.choice(HOSTS)
        scopes = draws.choice([None, None, None, {host: None, "x": 2.0}, {host: None, "x": None, "y": 0.5}])
        Pages.requests.append((f"http://{host}/{draws.choice(kinds)}/{number}/{draws.choice(HOSTS)}", scopes))
    asked: Counter[str] = Counter()

    def answer(request: trawl.Request) -> SimulatedResponse:
        asked[request.url] += 1
        is_refused = hash_of(request.url) % 9 == 0 and asked[request.url] == 1
        return SimulatedResponse(draws.choice([429, 500]) if is_refused else 200)

    is_exact = draws.random() < 0.5
    places = draws.choice([1, 2, 16])
    settings: dict[str, Any] = {
        "ROBOTSTXT_OBEY": draws.random() < 0.3,
        "RANDOMIZE_DOWNLOAD_DELAY": not is_exact,
        "CONCURRENT_REQUESTS": places,
        "DIRECT_FETCHES_LIMIT": draws.choice([1, 1000]),
        "BACKOFF_MAX_DELAY": 20.0,
        "BACKOFF_WINDOW": 10.0,
        "THROTTLING_SCOPES": limits,
        "DOWNLOADER_MIDDLEWARES": {hostile(draws, draws.choice([0.0, 0.2, 3.0])): 560},
        "CLOSESPIDER_TIMEOUT": 10_000,
    }
    schedulers = schedulers_made(monkeypatch)
    web = web_of(*HOSTS, handler=answer, latency=draws.choice([0.05, 0.5]), connect=draws.choice([0.0, 0.2]))
    sim = simulate(Pages, web, settings, seed, errors="collect")
    assert sim.reason == "finished"
    wanted = {url.split("/")[4] for url, _ in Pages.requests if url.split("/")[3] not in LOST}
    assert wanted <= {item["number"] for item in sim.items}
    ((scheduler, asked_of),) = schedulers
    assert scheduler.pending == scheduler.in_flight == 0
    assert scheduler.preparations.ahead == scheduler.preparations.running == 0
    for scope in asked_of.values():
        left = (
            scope.traffic.ahead,
            scope.traffic.prepared,
            scope.traffic.ahead_amount,
            scope.traffic.unsent,
            scope.traffic.reserved,
        )
        assert (*left, scope.traffic.in_flight) == (0,) * 6
    assert sim.most_in_flight() <= places
    for name, limit in limits.items():
        assert sim.most_in_flight(name) <= limit.get("concurrency", 1e9 if limit.get("rate") or name in "xy" else 1)
        least = limit.get("delay", 0.0) * (1.0 if is_exact else 0.5)
        assert all(gap >= least - EARLY for gap in sim.gaps(name))


def hash_of(url: str) -> int:
    return sum(map(ord, url))


def schedulers_made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Scheduler, dict[str, Scope]]]:
    """The schedulers that are made from now on, each with the scopes that it has asked for."""
    made: list[tuple[Scheduler, dict[str, Scope]]] = []

    def noted_scheduler(kind: type[Scheduler], scope_of: Callable[[str, float], Scope], **options: Any) -> Scheduler:
        scopes: dict[str, Scope] = {}

        def noted(id: str, now: float) -> Scope:
            scopes[id] = scope_of(id, now)
            return scopes[id]

        scheduler = kind(noted, **options)
        made.append((scheduler, scopes))
        return scheduler

    monkeypatch.setattr("trawl.engine.engine.Scheduler", partial(noted_scheduler, Scheduler))
    shared = partial(noted_scheduler, SharedJobScheduler)  # with a job in a server (in_a_store.py)
    monkeypatch.setattr("trawl.scheduler.shared_job.SharedJobScheduler", shared)
    return made


@pytest.mark.parametrize("seed", [*range(20), 139])  # the last: a fetch that is given up as it is answered with 429
def test_a_crawl_with_hostile_middleware_ends_and_keeps_its_limits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check(seed, monkeypatch)


@pytest.mark.sweep
@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, 20))
def test_each_of_many_crawls_with_hostile_middleware_does(first: int) -> None:
    for seed in range(first, min(first + 20, FIRST + COUNT)):
        with pytest.MonkeyPatch.context() as patch:
            check(seed, patch)
