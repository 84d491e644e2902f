"""F01-F11, I12 in mixtures: quotas of both kinds, several scopes, priorities, slow connections, changes at run time.

The checker reads nothing but the sends and what was configured when.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trawl
from tests.promises.crawling import FREE, a_web, page
from trawl.testing import Send, Simulation, simulate

QUOTAS = ("a", "b", "c")
AMOUNTS: Sequence[float | None] = (None, 0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 9.0)
SLACK = 1e-6


@attrs.frozen
class Wanted:
    """One request: when it is found, its priority, and what it is charged to."""

    number: int
    at: float
    priority: int
    scopes: Mapping[str, float | None]

    def amount(self, scope: str) -> float:
        """What it counts for."""
        amount = self.scopes[scope]
        return 1.0 if amount is None else amount


NOBODY = Wanted(-1, 0.0, 0, {})


class Mixture:
    """A crawl made of one seed: what is configured, what is found when, and what is changed when.

    A calm one has nothing that may come before a larger share: no change, no slow connection, nobody of several scopes.
    """

    def __init__(self, seed: int, *, is_calm: bool) -> None:
        rng = random.Random(seed)
        self.scopes: dict[str, dict[str, Any]] = {"gate": {}}
        for name in QUOTAS:
            limits = {"window": rng.choice([4.0, 10.0]), "sliding": rng.random() < 0.6}
            if is_calm or rng.random() < 0.7:
                limits["quota"] = rng.choice([2, 4, 10])
            self.scopes[name] = limits
        self.scopes["gate"] = rng.choice([{"concurrency": 1}, {"concurrency": 3}, {"delay": 0.5}, {"delay": 0.125}])
        self.connect = 0.0 if is_calm else rng.choice([0.0, 0.5, 3.0])
        self.latency = rng.choice([0.25, 1.0, 2.5])
        most = 1 if is_calm else 3
        self.wanted = [self._request(rng, number, most_scopes=most) for number in range(rng.randint(5, 60))]
        self.changes: list[tuple[float, str, float]] = []
        for number in range(0 if is_calm else rng.randint(0, 4)):
            # Never at an instant at which something is sent, nor two at once: those are eighths of a second.
            at = rng.randint(1, 80) / 4 + 0.06 + number / 1000
            self.changes.append((at, rng.choice(QUOTAS), rng.choice([1, 2, 3, 7, 12, 1000])))
        self.changes.sort(key=lambda change: change[0])

    def _request(self, rng: random.Random, number: int, *, most_scopes: int) -> Wanted:
        names = rng.choice([["a"], ["a"], ["b"], ["c"], ["a", "gate"], ["b", "gate"], ["a", "b"], ["a", "b", "gate"]])
        names = names[:most_scopes]
        scopes = {name: None if name == "gate" else rng.choice(AMOUNTS) for name in names}
        return Wanted(number, rng.choice([0.0, 0.0, rng.randint(0, 60) / 4]), rng.choice([0, 0, 0, 0, 1]), scopes)

    def run(self) -> Simulation:
        """What the crawl does."""
        mixture = self

        class Mixed(trawl.Spider):
            name = "mixed"

            async def start(self) -> AsyncGenerator[trawl.Request, None]:
                yield trawl.Request("http://start.example/", meta={"throttling_scopes": []})

            async def parse(self, response: trawl.Response, **kwargs: object) -> AsyncGenerator[trawl.Request, None]:
                if response.url == "http://start.example/":
                    for wanted in mixture.wanted:
                        meta = {"delay": wanted.at} if wanted.at else {}
                        url = f"http://a.example/{wanted.number}"
                        yield page(url, wanted.scopes, priority=wanted.priority, meta=meta)
                    for number, (at, _, _) in enumerate(mixture.changes):
                        yield page(f"http://start.example/{number}", [], meta={"delay": at})
                elif response.url.startswith("http://start.example/"):
                    _, name, quota = mixture.changes[int(response.url.rpartition("/")[2])]
                    self.crawl.throttling.set(name, quota=quota)

        web = a_web("a.example", latency=self.latency, connect=self.connect)
        return simulate(Mixed, web, settings={**FREE, "CONCURRENT_REQUESTS": 0, "THROTTLING_SCOPES": self.scopes})

    def quota_at(self, scope: str, at: float) -> tuple[float, float]:
        """The quota in force at an instant, and since when there has been one without a break."""
        quota: float = self.scopes[scope].get("quota", inf)
        since = 0.0
        for changed_at, name, changed in self.changes:
            if name == scope and changed_at <= at + SLACK:
                since = changed_at if quota == inf else since
                quota = changed
        return quota, since


def check(mixture: Mixture, sim: Simulation) -> None:
    """Everything was sent once; every quota, place and spacing was kept."""
    sends = [send for send in sim.sends if send.host == "a.example"]
    by_url = {f"http://a.example/{wanted.number}": wanted for wanted in mixture.wanted}
    assert sorted(send.url for send in sends) == sorted(by_url)
    assert "spider_exceptions" not in sim.stats
    assert all(send.time >= by_url[send.url].at for send in sends)
    for name in QUOTAS:
        charges = [(send.time, by_url[send.url].amount(name)) for send in sends if name in by_url[send.url].scopes]
        check_quota(mixture, name, [(at, amount) for at, amount in charges if amount])
    gate = mixture.scopes["gate"]
    through = [send for send in sends if "gate" in by_url[send.url].scopes]
    assert all(later.time - earlier.time >= gate.get("delay", 0.0) - SLACK for earlier, later in pairwise(through))
    for send in through:
        busy = [each for each in through if each.time <= send.time < each.finished]
        assert len(busy) <= gate.get("concurrency", len(busy))


def check_quota(mixture: Mixture, name: str, charges: Sequence[tuple[float, float]]) -> None:
    """No window holds more than the quota in force, but for a larger amount alone (F05)."""
    window, sliding = mixture.scopes[name]["window"], mixture.scopes[name]["sliding"]
    known_since, ends_at, spent = -1.0, 0.0, 0.0
    for index, (at, amount) in enumerate(charges):
        quota, since = mixture.quota_at(name, at)
        if quota == inf:
            continue
        if sliding:
            before = sum(other for sent, other in charges[:index] if sent >= since and sent + window > at + SLACK)
        else:
            if since != known_since or at + SLACK >= ends_at:
                known_since, ends_at, spent = since, at + window, 0.0
            before, spent = spent, spent + amount
        assert before + amount <= quota + SLACK or not before, f"{name} at {at}: {before} and {amount} of {quota}"


def check_shares(mixture: Mixture, sends: Sequence[Send]) -> None:
    """Of two that need one quota alone, which does not slide, the larger goes first wherever it fits (F07, F11)."""
    by_url = {f"http://a.example/{wanted.number}": wanted for wanted in mixture.wanted}
    for name in QUOTAS:
        if mixture.scopes[name]["sliding"]:
            continue
        mine = [(send.time, by_url[send.url]) for send in sends if name in by_url.get(send.url, NOBODY).scopes]
        ends_at = spent = 0.0
        for index, (at, wanted) in enumerate(mine):
            if at + SLACK >= ends_at and wanted.amount(name):
                ends_at, spent = at + mixture.scopes[name]["window"], 0.0
            left = mixture.scopes[name]["quota"] - (spent if at + SLACK < ends_at else 0.0) + SLACK
            for _, other in mine[index + 1 :] if len(wanted.scopes) == 1 and wanted.scopes[name] is not None else ():
                is_alike = (other.scopes.keys(), other.priority) == (wanted.scopes.keys(), wanted.priority)
                if is_alike and other.at < at and (other.scopes[name] or 0.0) > wanted.amount(name):
                    assert other.amount(name) > left, f"{wanted} at {at} before {other}, and {left} was left"
            spent += wanted.amount(name)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 100_000))
def test_mixed_quotas_are_kept_while_they_change_and_connections_are_slow(seed: int) -> None:
    mixture = Mixture(seed, is_calm=False)
    check(mixture, mixture.run())


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 100_000))
def test_mixed_quotas_are_kept_and_spent_by_share(seed: int) -> None:
    mixture = Mixture(seed, is_calm=True)
    sim = mixture.run()
    check(mixture, sim)
    check_shares(mixture, sim.sends)


@pytest.mark.sweep
@pytest.mark.parametrize("first", range(0, 2000, 100))
def test_two_thousand_mixtures(first: int) -> None:
    for seed in range(first, first + 100):
        for is_calm in (False, True):
            mixture = Mixture(seed, is_calm=is_calm)
            check(mixture, mixture.run())
