"""Prepared grants are looked at when something has changed for them, and in the order of coming."""

from __future__ import annotations

import random
from math import inf
from typing import Any

import pytest
import trio

import trawl
from tests.promises.pacing import SPACED, crawl, pages, web_of
from trawl.frontier.base import lane_key
from trawl.http import Fetch, Outcome
from trawl.scheduler import Grant
from trawl.scheduler.lanes import Lane
from trawl.scheduler.prepared import PreparedQueue
from trawl.throttling.limits import Limits
from trawl.throttling.scope import Scope

ONE, OTHER = (Scope(name, Limits()) for name in ("one", "other"))


def grant_of(*scopes: Scope, is_direct: bool = False) -> Grant:
    """A grant in a lane of these scopes."""
    amounts = tuple((scope.id, None) for scope in scopes)
    grant = Grant("request", amounts, is_direct=is_direct)
    grant.lane = Lane(lane_key(amounts, ""), scopes)
    return grant


def test_what_comes_is_looked_at_direct_fetches_first_then_in_the_order_of_coming() -> None:
    queue = PreparedQueue()
    first, second, direct = grant_of(ONE), grant_of(OTHER), grant_of(OTHER, is_direct=True)
    for grant in (first, second, direct):
        queue.add(grant)
    assert queue.looks(0.0) == [direct, first, second]
    assert queue.looks(0.0) == [direct, first, second]  # nothing was decided of them
    assert len(queue) == 3


def test_who_waits_is_looked_at_when_its_scope_is_stirred_and_no_other_is() -> None:
    queue = PreparedQueue()
    first, second = grant_of(ONE), grant_of(OTHER)
    for grant in (first, second):
        queue.add(grant)
        queue.wait(grant, [ONE if grant is first else OTHER])
    assert queue.looks(10.0) == []
    queue.stir(ONE)
    assert queue.looks(10.0) == [first]


def test_who_waits_for_an_instant_is_looked_at_then() -> None:
    queue = PreparedQueue()
    grant = grant_of(ONE)
    queue.add(grant)
    queue.wait(grant, [ONE], 5.0)
    assert queue.next_at() == 5.0
    assert queue.looks(4.9) == []
    assert queue.looks(5.0) == [grant]
    assert queue.next_at() == inf


def test_one_that_comes_or_whose_instant_has_come_is_looked_at_behind_an_older_one_of_its_scope() -> None:
    queue = PreparedQueue()
    older, timed, newcomer = grant_of(ONE, OTHER), grant_of(OTHER), grant_of(ONE)
    queue.add(older)
    queue.wait(older, [ONE, OTHER])  # for a place
    queue.add(timed)
    queue.wait(timed, [OTHER], 5.0)
    queue.wait(older, [ONE, OTHER])
    assert queue.looks(5.0) == [older, timed]
    queue.wait(older, [ONE, OTHER])
    queue.wait(timed, [OTHER], 9.0)
    queue.add(newcomer)
    assert queue.looks(6.0) == [older, newcomer]


def test_who_has_gone_is_looked_at_no_more() -> None:
    queue = PreparedQueue()
    grant = grant_of(ONE)
    queue.add(grant)
    queue.wait(grant, [ONE], 5.0)
    assert queue.discard(grant)
    assert not queue.discard(grant)
    queue.stir(ONE)
    assert queue.looks(5.0) == []
    assert queue.next_at() == inf
    assert not queue


@pytest.mark.interpreted
def test_a_page_costs_the_same_looks_with_many_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    place_at = Lane.place_at

    def counted(*arguments: Any) -> Any:
        nonlocal looks
        looks += 1
        return place_at(*arguments)

    monkeypatch.setattr(Lane, "place_at", counted)
    draws = random.Random(1)

    def waiting(fetch: Fetch) -> Fetch:
        async def send(request: trawl.Request) -> Outcome:
            await trio.sleep(draws.uniform(0.1, 3.0))
            return await fetch(request)

        return send

    hosts = [f"h{number}.example" for number in range(100)]
    urls = [url for number in range(10) for host in hosts for url in pages(1, host, number)]
    settings = {**SPACED, "CONCURRENT_REQUESTS": 1000, "DOWNLOADER_MIDDLEWARES": {waiting: 560}}
    assert len(crawl(web_of(*hosts, latency=0.2), urls, settings).sends) == 1000
    assert looks <= 5_000  # 170,000, where all of them are looked at each time
