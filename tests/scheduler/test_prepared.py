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
from trawl.scheduler.scope_queue import PASSES
from trawl.throttling.limits import Limits
from trawl.throttling.scope import Scope

ONE, OTHER, THIRD = (Scope(name, Limits()) for name in ("one", "other", "third"))


def grant_of(*scopes: Scope, is_direct: bool = False) -> Grant:
    """A grant in a lane of these scopes."""
    amounts = tuple((scope.id, None) for scope in scopes)
    grant = Grant("request", amounts, is_direct=is_direct)
    grant.lane = Lane(lane_key(amounts, ""), scopes)
    return grant


def grant_added(queue: PreparedQueue, *scopes: Scope) -> Grant:
    """A grant of these scopes that has come to ``queue``."""
    grant = grant_of(*scopes)
    queue.add(grant)
    return grant


def test_what_comes_is_looked_at_direct_fetches_first_then_in_the_order_of_coming() -> None:
    queue = PreparedQueue()
    first, second, direct = grant_of(ONE), grant_of(OTHER), grant_of(OTHER, is_direct=True)
    for grant in (first, second, direct):
        queue.add(grant)
    assert queue.to_look(0.0) == [direct, first, second]
    assert queue.to_look(0.0) == [direct, first, second]  # nothing was decided of them
    assert len(queue) == 3


def test_who_waits_is_looked_at_when_its_scope_is_stirred_and_no_other_is() -> None:
    queue = PreparedQueue()
    first, second = grant_of(ONE), grant_of(OTHER)
    for grant in (first, second):
        queue.add(grant)
        queue.wait_for_place(grant)
    assert queue.to_look(5.0) == []
    queue.stir(ONE)
    assert queue.is_stirred
    assert queue.to_look(10.0) == [first]


def test_who_waits_for_an_instant_is_looked_at_then() -> None:
    queue = PreparedQueue()
    grant = grant_of(ONE)
    queue.add(grant)
    queue.wait_until(grant, 5.0, [ONE])
    assert queue.next_at() == 5.0
    assert queue.to_look(4.9) == []
    assert queue.to_look(5.0) == [grant]
    assert queue.next_at() == inf


def test_the_instant_of_an_earlier_wait_is_forgotten() -> None:
    queue = PreparedQueue()
    grant = grant_of(ONE)
    queue.add(grant)
    for _ in range(1000):
        queue.wait_until(grant, 5.0, [ONE])
    queue.wait_until(grant, 7.0, [ONE])
    assert queue.next_at() == 7.0
    assert queue.to_look(6.0) == []
    assert len(queue._timers) < 200


def test_who_waits_for_a_place_was_passed_often_enough_when_others_need_its_last_place() -> None:
    scopes = [Scope("tight", Limits(concurrency=1)), Scope("wide", Limits(concurrency=8))]
    queue = PreparedQueue()
    older, newcomer = grant_of(*scopes), grant_of(scopes[0])
    direct, beside, other = grant_of(scopes[0], is_direct=True), grant_of(scopes[1]), grant_of(THIRD)
    waiting = (older, newcomer, direct, beside, other)
    for grant in waiting:
        queue.add(grant)
    queue.wait_for_place(older)
    for number in range(PASSES):
        assert [queue.kept_in(grant) for grant in waiting] == [None] * 5
        queue.passed(other)  # which is not in its way
        queue.passed(grant_added(queue, *scopes[number % 2 :]))
    assert [queue.kept_in(grant) for grant in waiting] == [None, scopes[0], None, None, None]
    queue.wait_until(older, 5.0, [scopes[1]])  # for its own instant it keeps nobody
    assert queue.kept_in(newcomer) is None


def test_who_waits_for_one_scope_is_not_counted_among_those_that_the_other_awaits() -> None:
    scopes = [Scope("here", Limits()), Scope("there", Limits())]
    queue = PreparedQueue()
    grant = grant_of(*scopes)
    queue.add(grant)
    queue.wait_for_place(grant, scopes[1:])
    assert [scope.elsewhere for scope in scopes] == [1, 0]
    queue.wait_until(grant, 5.0, scopes[:1])
    assert [scope.elsewhere for scope in scopes] == [0, 1]
    queue.wait_for_place(grant)
    assert [scope.elsewhere for scope in scopes] == [0, 0]
    queue.wait_for_place(grant, scopes[1:])
    queue.discard(grant)
    assert [scope.elsewhere for scope in scopes] == [0, 0]


def test_who_has_gone_is_looked_at_no_more_and_keeps_nobody() -> None:
    queue = PreparedQueue()
    grant, behind = grant_of(ONE), grant_of(ONE)
    for each in (grant, behind):
        queue.add(each)
    queue.wait_until(grant, 5.0, [ONE])
    queue.wait_for_place(grant)
    queue.wait_for_place(behind)
    queue.discard(grant)
    queue.stir(ONE)
    assert queue.to_look(5.0) == [behind]
    assert queue.kept_in(behind) is None
    queue.discard(behind)
    assert queue.next_at() == inf
    assert not queue


def test_of_those_that_wait_for_the_same_only_the_first_is_looked_at() -> None:
    scopes = [Scope("here", Limits()), Scope("there", Limits())]
    queue = PreparedQueue()
    first, second, third = (grant_of(*scopes) for _ in range(3))
    for grant in (first, second, third):
        queue.add(grant, "alike")
    assert queue.to_look(0.0) == [first]
    assert list(queue.wait_for_place(first, scopes[1:])) == scopes[:1]
    assert [scope.elsewhere for scope in scopes] == [3, 0]
    queue.discard(second)
    queue.stir(scopes[1])
    assert queue.to_look(0.0) == [first]
    queue.discard(first)
    assert queue.to_look(0.0) == [third]
    queue.discard(third)
    assert [scope.elsewhere for scope in scopes] == [0, 0]
    assert not queue


@pytest.mark.interpreted
def test_a_fetch_costs_the_same_looks_with_many_of_one_host(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    place_at = Lane.place_at

    def counted(*arguments: Any) -> Any:
        nonlocal looks
        looks += 1
        return place_at(*arguments)

    monkeypatch.setattr(Lane, "place_at", counted)

    async def parse(spider: trawl.Spider, response: trawl.Response) -> None:
        async with trio.open_nursery() as nursery:
            for url in pages(200, "b.example"):
                nursery.start_soon(spider.fetch, trawl.Request(url))

    def plain(fetch: Fetch) -> Fetch:
        return fetch

    settings = {**SPACED, "DOWNLOAD_DELAY": 0.1, "DOWNLOADER_MIDDLEWARES": {plain: 560}}
    assert len(crawl(web_of("a.example", "b.example"), pages(1), settings, parse=parse).sends) == 201
    assert looks <= 1_200  # 60,000, where all of them are looked at each time


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
