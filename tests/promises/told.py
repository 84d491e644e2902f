"""Random crawls that report at many times why their requests wait, and a model that checks the reports.

The model uses only the sends: the scopes and limits of each request, and the start and end of the other sends in these
scopes.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from math import inf
from typing import Any

import attrs
import trio

import trawl
from trawl.testing import SimulatedWeb, Simulation, simulate

__all__ = ["Case", "Look", "contradictions", "misaccounted", "random_case", "run_case"]

SCOPES = ("a", "b", "c")
HOSTS = ("x.example", "y.example", "z.example")
_EPSILON = 1e-6

Limits = dict[str, dict[str, Any]]


@attrs.frozen
class Look:
    """The reports at one time: the reason of each request, and the groups."""

    at: float
    why: dict[str, Any]
    groups: list[tuple[int, Any]]


@attrs.frozen
class Case:
    """The plan of a crawl: its requests with their scopes and amounts, and all limits before and after a change."""

    seed: int
    requests: dict[str, dict[str, float | None]]
    before: Limits
    change_at: float
    change: Limits
    places: int
    latency: float
    robots: float

    def limits(self, scope: str, at: float) -> dict[str, Any]:
        """Return the configuration of a scope at a time."""
        limits = {"delay": 0.0, "delay_per_slot": 0.0, "concurrency": inf, "window": 60.0, "sliding": False}
        later = self.change.get(scope, {}) if at >= self.change_at else {}
        return {**limits, **self.before.get(scope, {}), **later}


def random_case(seed: int) -> Case:
    """Return the case of this number."""
    chance = random.Random(seed)
    before = {scope: _limits(chance) for scope in SCOPES}
    before |= {host: {"concurrency": chance.choice([1, 4]), "delay": chance.choice([0.0, 0.5])} for host in HOSTS}
    requests: dict[str, dict[str, float | None]] = {}
    amounts = [None] if chance.random() < 0.3 else [None, 1.0, 2.0, 5.0, 0.5]
    for number in range(chance.randint(10, 40)):
        host = chance.choice(HOSTS)
        chosen = chance.sample(SCOPES, chance.choice([0, 1, 1, 2, 3]))
        scopes = {scope: chance.choice(amounts) for scope in chosen}
        requests[f"http://{host}/{number}"] = {**scopes, host: None} if chance.random() < 0.4 or not scopes else scopes
    changed = chance.sample(SCOPES, chance.choice([0, 0, 1]))
    change = {scope: {chance.choice(["delay", "concurrency"]): chance.choice([1, 3])} for scope in changed}
    return Case(
        seed=seed,
        requests=requests,
        before=before,
        change_at=chance.uniform(1.0, 9.0) if change else inf,
        change=change,
        places=chance.choice([2, 5, 16, 0]),
        latency=chance.choice([0.05, 0.7, 3.0]),
        robots=chance.choice([0.0, 0.0, 1.5]),
    )


def _limits(chance: random.Random) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if chance.random() < 0.5:
        limits["delay"] = chance.choice([0.3, 1.0, 4.0])
    if chance.random() < 0.4:
        limits["concurrency"] = chance.choice([1, 2, 3])
    if chance.random() < 0.4:
        limits |= {"quota": chance.choice([2, 5, 6.5]), "window": chance.choice([5.0, 20.0])}
        limits["sliding"] = chance.random() < 0.5
    return limits


class _Looking(trawl.Spider):
    name = "looking"
    case: Case
    looks: list[Look]

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        yield trawl.Request("http://start.example/", meta={"throttling_scopes": [], "dont_obey_robotstxt": True})

    async def parse(self, response: trawl.Response, **kwargs: object) -> AsyncGenerator[trawl.Request, None]:
        free = {"throttling_scopes": [], "dont_obey_robotstxt": True}
        if response.url == "http://start.example/":
            named = self.case.requests.items()
            self.pending = {url: trawl.Request(url, meta={"throttling_scopes": scopes}) for url, scopes in named}
            for request in self.pending.values():
                yield request
            yield trawl.Request("http://start.example/look", meta=free, priority=10)
        elif response.url == "http://start.example/look":
            chance = random.Random(self.case.seed + 1)
            has_changed = False
            for _ in range(40):
                pause = chance.expovariate(2.0) + 0.0137
                if not has_changed and self.crawl.elapsed + pause >= self.case.change_at:
                    await trio.sleep(max(0.0, self.case.change_at - self.crawl.elapsed))
                    for scope, limits in self.case.change.items():
                        self.crawl.throttling.set(scope, **limits)
                    has_changed = True
                await trio.sleep(pause)
                self.look()

    def look(self) -> None:
        began_at = trio.current_time() - self.crawl.elapsed

        def since(reason: Any) -> Any:
            return reason and attrs.evolve(reason, until=reason.until - began_at)

        why = {url: since(self.crawl.why(request)) for url, request in self.pending.items()}
        groups = [(group.count, since(group.reason)) for group in self.crawl.waiting(1000)]
        self.looks.append(Look(self.crawl.elapsed, why, groups))


def run_case(case: Case, **settings: Any) -> tuple[Simulation, list[Look]]:
    """Run the crawl of a case. Returns its sends and its reports."""

    class Looking(_Looking):
        pass

    Looking.case, Looking.looks = case, []
    web = SimulatedWeb()
    for host in HOSTS:
        web.add_host(host, latency=lambda request: case.robots if "robots" in request.url else case.latency)
    web.add_host("start.example")
    given = {
        "DOWNLOAD_DELAY": 0.0,
        "DOWNLOAD_DELAY_PER_SLOT": 0.0,
        "ROBOTSTXT_OBEY": case.robots > 0.0,
        "CONCURRENT_REQUESTS": case.places,
        "THROTTLING_SCOPES": case.before,
        **settings,
    }
    sim = simulate(Looking, web, given, seed=case.seed)
    return sim, Looking.looks


def contradictions(case: Case, sim: Simulation, looks: list[Look]) -> list[str]:
    """Return the wrong reports, as sentences."""
    model = _Model(case, sim)
    wrong = [f"{look.at:.3f}: {words}" for look in looks for words in model.wrong(look)]
    for row in sim.report:
        if row.rate > row.allowed:
            wrong.append(f"{row.scope}: {row.rate} is above {row.allowed}")
        if sum(seconds for limit, seconds in row.limited.items() if limit != "concurrency") > sim.elapsed + _EPSILON:
            wrong.append(f"{row.scope}: waited {row.limited} of {sim.elapsed}")
        for limit in row.limited:
            if row.limited[limit] > 0.0 and not model.has_limit(row.scope, limit):
                wrong.append(f"{row.scope}: has no {limit}")
    return wrong


class _Model:
    def __init__(self, case: Case, sim: Simulation) -> None:
        self.case = case
        self.sends = [send for send in sim.sends if "start.example" not in send.url]
        self.all = list(sim.sends)
        self.sent_at = {send.url: send.time for send in self.sends}

    def has_limit(self, scope: str, limit: str) -> bool:
        """Return whether the configuration of a scope ever includes a limit."""
        if limit == "gate":
            return self.case.robots > 0.0
        either = [self.case.limits(scope, at) for at in (0.0, inf)]
        absent: dict[str, Any] = {"delay": 0.0, "concurrency": inf, "quota": inf}
        return any(limits.get(limit, absent[limit]) != absent[limit] for limits in either)

    def wrong(self, look: Look) -> list[str]:
        """Return the wrong reports at one time."""
        now = look.at
        pending = {url for url in look.why if self.sent_at.get(url, inf) > now}
        words = [f"{url} was sent, and waits for {why}" for url, why in look.why.items() if why and url not in pending]
        for url in pending:
            words += [f"{url} {self.case.requests[url]}: {fault}" for fault in self._fault(url, look.why[url], now)]
        told: dict[Any, int] = {}
        for url in pending:
            told[look.why[url]] = told.get(look.why[url], 0) + 1
        for count, reason in look.groups:
            others = self._robots_pending(now) if reason.limit != "gate" else 0
            if not told.get(reason, 0) <= count <= told.get(reason, 0) + others:
                words.append(f"{count} are said to wait for {reason}: {told.get(reason, 0)} do")
        named = {None, *(reason for _, reason in look.groups)}
        return words + [f"nobody is said to wait for {reason}" for reason in told if reason not in named]

    def _robots_pending(self, now: float) -> int:
        return sum(send.url.endswith("/robots.txt") and send.time > now for send in self.sends)

    def _fault(self, url: str, reason: Any, now: float) -> list[str]:
        if reason is None:
            return ["waits for nothing"]
        if reason.limit == "gate":
            is_closed = url.startswith(f"{reason.scope}/") and not self._is_open(reason.scope, now)
            return [] if is_closed else [f"no gate {reason}"]
        if reason.limit == "places":
            return [] if self._in_flight(None, now) >= self.case.places > 0 else [f"there are places: {reason}"]
        if reason.scope not in self.case.requests[url]:
            return [f"does not have the scope of {reason}"]
        faults = [] if self._is_so(url, reason, now) else [f"not so: {reason}"]
        is_changed = now < self.case.change_at <= reason.until
        if reason.until < inf and not is_changed and self.sent_at.get(url, inf) < reason.until - _EPSILON:
            faults.append(f"went at {self.sent_at[url]} before {reason}")
        return faults

    def _is_so(self, url: str, reason: Any, now: float) -> bool:
        scope, limits = reason.scope, self.case.limits(reason.scope, now)
        mine = [send for send in self.sends if scope in send.scopes and send.time <= now]
        if reason.limit == "concurrency":
            return bool(self._in_flight(scope, now) >= limits["concurrency"])
        if reason.limit == "delay":
            return bool(mine) and now < reason.until <= mine[-1].time + 1.5 * limits["delay"] + _EPSILON
        if reason.limit == "quota":
            amount = self.case.requests[url][scope]
            spent = self._spent(scope, mine, limits, now)
            fits = spent == 0.0 or spent + (1.0 if amount is None else amount) <= limits["quota"] + _EPSILON
            return not fits or reason.source == "a larger amount goes first"
        return reason.limit == "claim" and any(len(self.case.requests[other]) > 1 for other in self.case.requests)

    def _spent(self, scope: str, mine: list[Any], limits: dict[str, Any], now: float) -> float:
        if limits["sliding"]:
            return float(sum(send.scopes[scope] for send in mine if send.time > now - limits["window"]))
        ends_at, spent = -inf, 0.0
        for send in mine:
            if send.scopes[scope] > 0.0:
                if send.time >= ends_at - _EPSILON:
                    ends_at, spent = send.time + limits["window"], 0.0
                spent += send.scopes[scope]
        return spent if now < ends_at else 0.0

    def _in_flight(self, scope: str | None, now: float) -> int:
        sends = self.all if scope is None else self.sends
        return sum(
            send.time <= now < (send.finished or inf) and (scope is None or scope in send.scopes) for send in sends
        )

    def _is_open(self, origin: str, now: float) -> bool:
        return any(send.url == f"{origin}/robots.txt" and (send.finished or inf) <= now for send in self.sends)


def misaccounted(seed: int) -> tuple[float, str]:
    """Return the error in a scope's waiting times as a share of the crawl's duration, and as a sentence.

    All its requests are pending from the start, so the time between two sends is always spent waiting for the limit
    that opened last. If two limits open at once, either may be named.
    """
    chance = random.Random(seed)
    limits = {key: value for key, value in _limits(chance).items() if key != "concurrency" or value > 1}
    limits = limits or {"quota": 5, "window": 20.0, "sliding": False}
    amounts = [chance.choice([None, 1.0, 2.0, 5.0, 0.5]) for _ in range(chance.randint(15, 30))]
    web = SimulatedWeb()
    web.add_host("x.example", latency=chance.choice([0.051, 0.71, 3.03]))
    pages = [trawl.Request(f"http://x.example/{n}", meta={"throttling_scopes": {"a": amounts[n]}}) for n in range(15)]

    class Listed(trawl.Spider):
        name = "listed"

        async def start(self) -> AsyncGenerator[trawl.Request, None]:
            for request in pages:
                yield request

        def parse(self, response: trawl.Response, **kwargs: object) -> None:
            """Nothing."""

    given = {"RANDOMIZE_DOWNLOAD_DELAY": False, "ROBOTSTXT_OBEY": False, "THROTTLING_SCOPES": {"a": limits}}
    sim = simulate(Listed, web, given, seed=seed)
    [row] = [row for row in sim.report if row.scope == "a"]
    told = dict(row.limited)
    either = 0.0
    sends = list(sim.sends)
    for number in range(1, len(sends)):
        before, send = sends[:number], sends[number]
        opened = _opened(before, limits, send)
        last = max(opened.values())
        named = [limit for limit, at in opened.items() if at > last - _EPSILON]
        gap = send.time - before[-1].time
        if len(named) > 1:
            either += gap
        elif last > before[-1].time:
            told[named[0]] = told.get(named[0], 0.0) - gap
    off = max([abs(seconds) for seconds in told.values()], default=0.0)
    return max(0.0, off - either) / sim.elapsed, f"{limits}: {dict(row.limited)}, off by {told}"


def _opened(before: list[Any], limits: dict[str, Any], send: Any) -> dict[str, float]:
    """Return the time at which each limit allowed the next send, according to the earlier sends."""
    last = before[-1].time
    opened = {"delay": last + limits.get("delay", 0.0)}
    ends = sorted(each.finished for each in before if each.finished > last)
    if len(ends) >= limits.get("concurrency", inf):
        opened["concurrency"] = ends[len(ends) - limits["concurrency"]]
    if "quota" in limits:
        window = limits["window"]
        instants = [last, *(each.time + window for each in before if each.time + window > last)]
        opened["quota"] = next(at for at in sorted(instants) if _fits(before, limits, send.scopes["a"], at))
    return opened


def _fits(before: list[Any], limits: dict[str, Any], amount: float, at: float) -> bool:
    spent, ends_at = 0.0, -inf
    for each in before:
        if limits["sliding"]:
            spent += each.scopes["a"] if each.time + limits["window"] > at + _EPSILON else 0.0
        else:
            if each.time >= ends_at - _EPSILON:
                spent, ends_at = 0.0, each.time + limits["window"]
            spent += each.scopes["a"]
    if not limits["sliding"] and at >= ends_at - _EPSILON:
        spent = 0.0
    return spent == 0.0 or spent + amount <= limits["quota"] + _EPSILON
