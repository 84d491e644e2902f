"""ScopeLimiters are Trio's own locks: they hold what the scheduler counts, and would raise where it is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from math import inf

import pytest
import trio

import trawl
from tests.promises.pacing import SPACED, pages, web_of
from trawl.engine.fetcher import MAX_KEPT, ScopeLimiters
from trawl.scheduler import Attempt
from trawl.scheduler.lanes import Lane
from trawl.testing import RateLimit, simulate
from trawl.throttling import Limits, Scope


def attempts(count: int, *scopes: Scope) -> list[Attempt]:
    lane = Lane((tuple(scope.id for scope in scopes), ""), scopes)
    made = [Attempt(number, tuple((scope.id, None) for scope in scopes)) for number in range(count)]
    for attempt in made:
        attempt.lane = lane
    return made


def taken(places: ScopeLimiters, scope_id: str) -> int:
    limiter = places._limiters.get(scope_id)
    return 0 if limiter is None else limiter.borrowed_tokens


async def test_a_place_too_many_raises_in_place_of_being_sent() -> None:
    places = ScopeLimiters()
    first, second = attempts(2, Scope("a", Limits()), Scope("b", Limits(concurrency=1)))
    places.take(first)
    assert (taken(places, "a"), taken(places, "b")) == (1, 1)
    with pytest.raises(trio.WouldBlock):
        places.take(second)


async def test_its_size_is_what_policy_moves_and_what_is_in_flight_stays() -> None:
    # P13 B15 C04
    places, scope = ScopeLimiters(), Scope("a", Limits(concurrency=3))
    one, two, three, four = attempts(4, scope)
    for attempt in (one, two, three):
        places.take(attempt)
    scope.arrange(scope.effective._replace(concurrency=1))
    places.resize(scope)
    places.give_back(one)
    assert taken(places, "a") == 2
    with pytest.raises(trio.WouldBlock):
        places.take(four)
    scope.arrange(scope.effective._replace(concurrency=inf))
    places.resize(scope)
    places.take(four)
    assert taken(places, "a") == 3


async def test_few_idle_scopes_keep_theirs_and_no_more() -> None:
    places = ScopeLimiters()
    alone = [attempts(1, Scope(f"host-{number}", Limits(concurrency=1)))[0] for number in range(MAX_KEPT + 50)]
    for attempt in alone:
        places.take(attempt)
    for attempt in alone:
        places.give_back(attempt)
    assert taken(places, "host-0") == 0
    assert len(places._limiters) == MAX_KEPT


class Several(trawl.Spider):
    """Pages of three hosts that share a scope, one of which limits its rate; and fetches in callbacks."""

    name = "several"
    hosts = ("a.example", "b.example", "c.example")
    custom_settings = {
        **SPACED,
        "ROBOTSTXT_OBEY": True,
        "DOWNLOAD_DELAY": 0.0,
        "BACKOFF_MAX_DELAY": 1.0,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 4,
        "THROTTLING_SCOPES": {"all": {"concurrency": 6}, "c.example": {"rampup": {"window": 5.0}}},
    }

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        """Forty pages of each host."""
        for host in self.hosts:
            for url in pages(40, host):
                yield trawl.Request(url, meta={"throttling_scopes": {host, "all"}})

    async def parse(self, response: trawl.Response, **kwargs: object) -> AsyncGenerator[dict[str, str], None]:
        """An item, after a fetch now and then."""
        if response.url.endswith("5"):
            await self.fetch(trawl.Request(response.url + "/more"))
        yield {"url": response.url}


@pytest.mark.interpreted
def test_they_equal_what_the_core_counts_at_every_take_and_release(monkeypatch: pytest.MonkeyPatch) -> None:
    # P13: also while limits move in flight
    seen: Counter[str] = Counter()
    take, give_back = ScopeLimiters.take, ScopeLimiters.give_back

    def compare(places: ScopeLimiters, attempt: Attempt) -> None:
        assert attempt.lane is not None
        for scope in attempt.lane.scopes:
            assert taken(places, scope.id) == scope.traffic.in_flight
            seen[scope.id] += 1
            if scope.effective.concurrency < inf and scope.traffic.in_flight <= scope.effective.concurrency:
                assert places._limiters[scope.id].total_tokens == scope.effective.concurrency

    def took(places: ScopeLimiters, attempt: Attempt) -> None:
        take(places, attempt)
        compare(places, attempt)

    def gave(places: ScopeLimiters, attempt: Attempt) -> None:
        compare(places, attempt)
        give_back(places, attempt)

    monkeypatch.setattr(ScopeLimiters, "take", took)
    monkeypatch.setattr(ScopeLimiters, "give_back", gave)
    web = web_of("a.example", "c.example", latency=0.3)
    web.add_host("b.example", latency=0.3, connect=0.1, limit=RateLimit(rate=2, burst=5))
    sim = simulate(Several, web)
    assert len(sim.items) == 120
    assert {"a.example", "b.example", "c.example", "all"} <= set(seen)
    assert seen["all"] >= 240
