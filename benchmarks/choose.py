"""Measures the cost of scheduling decisions: ``python -m benchmarks.choose``.

It prints a row for each case with 10, 1,000 and 50,000 lanes: the microseconds of a push, the microseconds of a grant
(including ``sent`` and ``give_back``), and the number of lanes checked per grant. The first check of each lane is not
counted. In the last case, the number of checked lanes grows with the number of lanes. This is expected, because two
shared scopes are closed in turn, and lanes move between two queues.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable
from math import inf
from time import perf_counter

from trawl.scheduler.attempt import Attempt
from trawl.scheduler.scheduler import Scheduler
from trawl.throttling.limits import Limits
from trawl.throttling.scope import Scope

ENTRIES = 60_000
PLACES = 64
LATENCY = 0.01
OPEN = Limits()
ONE = Limits(concurrency=1)

Scopes = tuple[tuple[str, float | None], ...]


def own(host: int) -> Scopes:
    """Return only the scope of the host."""
    return ((f"h{host}", None),)


def shared(host: int) -> Scopes:
    """Return the scope of the host and two scopes that all hosts share."""
    return ((f"h{host}", None), ("x", None), ("y", None))


def seesaw(host: int) -> Scopes:
    """Return the scope of the host, and one of two shared scopes. Every third lane has both shared scopes."""
    return ((f"h{host}", None), *((("x", None), ("y", None)) if host % 3 == 0 else ((("x", "y")[host % 2], None),)))


CASES: dict[str, tuple[Callable[[int], Scopes], dict[str, Limits], Limits]] = {
    "1 scope, concurrency 8": (own, {}, Limits(concurrency=8)),
    "1 scope, delay 1.0": (own, {}, Limits(concurrency=1, delay=1.0)),
    "3 scopes, shared ones open": (shared, {}, Limits(concurrency=8)),
    "3 scopes, shared one full (10)": (shared, {"x": Limits(concurrency=10)}, Limits(concurrency=8)),
    "3 scopes, shared one delayed (0.01)": (shared, {"x": Limits(delay=0.01)}, Limits(concurrency=8)),
    "2 shared scopes closed in turn": (seesaw, {"x": Limits(concurrency=5), "y": Limits(concurrency=5)}, ONE),
}


def run(
    hosts: int, scopes_of: Callable[[int], Scopes], shared: dict[str, Limits], own: Limits
) -> tuple[float, float, float]:
    """Return microseconds per push and per complete grant, and checks per grant without each lane's first check."""
    known: dict[str, Scope] = {}

    def scope(id: str, now: float) -> Scope:
        if id not in known:
            known[id] = Scope(id, shared.get(id, OPEN if id in "xy" else own))
        return known[id]

    scheduler = Scheduler(scope, places=PLACES)
    attempts = [Attempt(None, scopes_of(number % hosts), origin=f"o{number % hosts}") for number in range(ENTRIES)]
    gc.collect()
    gc.freeze()
    gc.disable()
    started = perf_counter()
    for attempt in attempts:
        scheduler.push(attempt, 0.0)
    pushed = perf_counter()
    now, on_wire, most = 0.0, deque[tuple[float, Attempt]](), min(ENTRIES, 20_000)
    while scheduler.grants < most:
        while isinstance(granted := scheduler.grant(now), Attempt):
            scheduler.sent(granted, now)
            on_wire.append((now + LATENCY, granted))
        now = min(scheduler.next_event(now), on_wire[0][0] if on_wire else inf)
        while on_wire and on_wire[0][0] <= now:
            scheduler.give_back(on_wire.popleft()[1], now)
    ended = perf_counter()
    gc.enable()
    gc.unfreeze()
    looks = (scheduler.looks - min(hosts, scheduler.looks)) / scheduler.grants
    return (pushed - started) / ENTRIES * 1e6, (ended - pushed) / scheduler.grants * 1e6, looks


def main() -> None:
    """Print the table."""
    print(f"{'':36} {'lanes':>7} {'push us':>8} {'attempt us':>9} {'looks':>6}")
    for name, (scopes_of, shared_limits, own_limits) in CASES.items():
        for hosts in (10, 1_000, 50_000):
            push, attempt, looks = min((run(hosts, scopes_of, shared_limits, own_limits) for _ in range(2)), key=sum)
            print(f"{name:36} {hosts:7,} {push:8.2f} {attempt:9.2f} {looks:6.2f}", flush=True)


if __name__ == "__main__":
    main()
