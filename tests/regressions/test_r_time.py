"""R3, R4, R10, R11, R14, R15, R18: who is let through when a limit opens, and what changes while they wait."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import trio

import trawl
from tests.promises.crawling import EXACT, FREE, a_web, answering, crawled, found_at_once, page, shown, spider_of, times
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

A = "http://a.example"


def _in_turn(answers: Iterator[SimulatedResponse], request: trawl.Request) -> SimulatedResponse:
    return next(answers, SimulatedResponse())


def many(count: int, scopes: object = None) -> list[trawl.Request]:
    return [page(f"{A}/{number}", scopes) for number in range(count)]


def test_r3_no_burst_when_a_hold_ends() -> None:
    class Holding:
        def get_initial_backoff(self) -> Any:
            return {"a.example": {"delay": 30.0}}

    sim = crawled(lambda: many(20), a_web("a.example", latency=0.1), EXACT, THROTTLING_MANAGER=Holding)
    assert times(sim) == [30.0 + number for number in range(20)]


@pytest.mark.parametrize("sliding", [False, True])
def test_r3_no_burst_when_a_quota_window_opens(sliding: bool) -> None:
    limits = {"api": {"quota": 5, "window": 60.0, "delay": 2.0, "sliding": sliding}}
    sim = crawled(lambda: many(12, "api"), a_web("a.example", latency=0.1), FREE, THROTTLING_SCOPES=limits)
    assert times(sim) == [0, 2, 4, 6, 8, 60, 62, 64, 66, 68, 120, 122]


def test_r3_no_burst_after_a_backoff_of_many_slots() -> None:
    left = iter([SimulatedResponse(429, headers={"Retry-After": "20"})] * 4)
    web = a_web("a.example", latency=0.5, handler=partial(_in_turn, left))
    limits = {"a.example": {"concurrency": 4, "delay": 0.0, "delay_per_slot": 0.0}}
    settings = {**FREE, "THROTTLING_SCOPES": limits, "BACKOFF_WINDOW": 1e6}
    sim = simulate(found_at_once(lambda: many(12)), web, settings=settings)
    assert times(sim) == [0.0] * 4 + [20.5 + number for number in range(12)]


def test_r3_no_burst_of_other_hosts_that_share_a_scope() -> None:
    hosts = [f"h{number}.example" for number in range(30)]
    requests = [page(f"http://{host}/", [host, "all"]) for host in hosts]
    limits = {"all": {"delay": 1.0}}
    sim = simulate(found_at_once(lambda: requests), a_web(*hosts), settings={**EXACT, "THROTTLING_SCOPES": limits})
    assert times(sim) == [float(number) for number in range(30)]


def test_r4_sleepers_feel_a_429_that_comes_while_they_sleep() -> None:
    # /slow is refused at 4.5; /2 was to go at 5.0 by the delay that held when it began to wait.
    def handler(request: trawl.Request) -> SimulatedResponse:
        return SimulatedResponse(429, latency=4.5) if request.url.endswith("0") else SimulatedResponse(latency=0.1)

    web = a_web("a.example", handler=handler)
    limits = {"a.example": {"concurrency": 2, "delay": 2.5, "delay_per_slot": 0.0}}
    settings = {**FREE, "THROTTLING_SCOPES": limits, "BACKOFF_WINDOW": 1e6}
    sim = simulate(found_at_once(lambda: many(4)), web, settings=settings)
    assert times(sim)[:4] == [0.0, 2.5, 9.5, 14.5]


def test_r4_also_a_longer_header_and_a_change_by_hand() -> None:
    def handler(request: trawl.Request) -> SimulatedResponse:
        if request.url.endswith("0"):
            return SimulatedResponse(429, headers={"Retry-After": "40"}, latency=4.5)
        return SimulatedResponse(latency=0.1)

    limits = {"a.example": {"concurrency": 2, "delay": 2.5, "delay_per_slot": 0.0}}
    settings = {**FREE, "THROTTLING_SCOPES": limits, "BACKOFF_WINDOW": 1e6}
    sim = simulate(found_at_once(lambda: many(4)), a_web("a.example", handler=handler), settings=settings)
    assert times(sim)[:3] == [0.0, 2.5, 44.5]


def test_r10_blocked_hosts_do_not_come_back_at_the_same_instant() -> None:
    hosts = [f"h{number}.example" for number in range(20)]
    web = SimulatedWeb()
    for host in hosts:
        first = iter([SimulatedResponse(429)])
        web.add_host(host, latency=0.1, handler=partial(_in_turn, first))
    web.add_host("start.example")
    requests = [trawl.Request(f"http://{host}/{number}") for host in hosts for number in range(2)]
    settings = {**FREE, "BACKOFF_JITTER": 0.1, "CONCURRENT_REQUESTS": 0, "DOWNLOAD_DELAY": 1.0}
    sim = simulate(found_at_once(lambda: requests), web, settings=settings)
    returns = [sim.times(host)[1] for host in hosts]
    assert len(set(returns)) == 20
    assert all(0.1 + 1.8 <= at <= 0.1 + 2.2 for at in returns)


def test_r10_nor_those_that_were_told_the_same_retry_after() -> None:
    hosts = [f"h{number}.example" for number in range(20)]
    web = SimulatedWeb()
    for host in hosts:
        first = iter([SimulatedResponse(429, headers={"Retry-After": "60"})])
        web.add_host(host, handler=partial(_in_turn, first))
    web.add_host("start.example")
    requests = [trawl.Request(f"http://{host}/") for host in hosts]
    settings = {**FREE, "BACKOFF_JITTER": 0.1, "CONCURRENT_REQUESTS": 0}
    sim = simulate(found_at_once(lambda: requests), web, settings=settings)
    returns = [sim.times(host)[1] for host in hosts]
    assert len(set(returns)) == 20
    assert all(60.0 <= at <= 66.0 for at in returns)  # only ever lengthened (B06)


def test_r11_a_delay_that_was_learned_is_kept_while_the_scope_is_idle() -> None:
    web = answering(SimulatedResponse(429), SimulatedResponse(429), SimulatedResponse(429))
    web.add_host("start.example")
    late = [trawl.Request(f"{A}/late{number}", meta={"delay": 500.0}) for number in range(2)]
    settings = {**EXACT, "BACKOFF_WINDOW": 10_000.0, "THROTTLING_SCOPE_LIMIT": 1, "THROTTLING_SCOPE_MAX_IDLE": 0.0}
    sim = simulate(found_at_once(lambda: [trawl.Request(f"{A}/0"), *late]), web, settings=settings)
    assert sim.gaps("a.example")[-1] == 8.0


@pytest.mark.parametrize("slots", [1, 2, 5, 16])
def test_r14_n_slots_share_one_clock(slots: int) -> None:
    limits = {"a.example": {"concurrency": slots, "delay": 1.0, "delay_per_slot": 0.0}}
    web = a_web("a.example", latency=0.3)
    sim = simulate(found_at_once(lambda: many(20)), web, settings={**FREE, "THROTTLING_SCOPES": limits})
    assert times(sim) == [float(number) for number in range(20)]


def test_r15_a_cancelled_waiter_gives_its_reservation_back() -> None:
    async def parse(spider: trawl.Spider, response: trawl.Response) -> Any:
        async def impatient(number: int) -> None:
            with trio.move_on_after(2.5):
                await spider.fetch(trawl.Request(f"{A}/impatient{number}"))

        if response.url == "http://start.example/":
            async with trio.open_nursery() as nursery:
                for number in range(10):
                    nursery.start_soon(impatient, number)
            return [trawl.Request(f"{A}/after{number}") for number in range(3)]
        return None

    start = trawl.Request("http://start.example/", meta={"throttling_scopes": []})
    sim = simulate(spider_of(lambda: [start], parse), a_web("a.example", latency=0.1), settings=EXACT)
    # Three were sent by 2.5; the seven others left, and hold up nobody.
    assert times(sim) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert [path for _, path in shown(sim)][3:] == ["after0", "after1", "after2"]


def test_r15_one_that_was_cancelled_on_the_wire_frees_its_slot_and_its_quota_stays_spent() -> None:
    async def parse(spider: trawl.Spider, response: trawl.Response) -> Any:
        if response.url == "http://start.example/":
            with trio.move_on_after(3.0):
                await spider.fetch(page(f"{A}/slow", "api"))
            return many(2, "api")
        return None

    web = a_web("a.example", latency=lambda request: 50.0 if request.url.endswith("slow") else 0.1)
    limits = {"api": {"concurrency": 1, "quota": 2, "window": 30.0}}
    start = trawl.Request("http://start.example/", meta={"throttling_scopes": []})
    sim = simulate(spider_of(lambda: [start], parse), web, settings={**FREE, "THROTTLING_SCOPES": limits})
    assert shown(sim) == [(0.0, "slow"), (3.0, "0"), (30.0, "1")]


def test_r15_one_that_was_cancelled_while_connecting_used_nothing() -> None:
    async def parse(spider: trawl.Spider, response: trawl.Response) -> Any:
        if response.url == "http://start.example/":
            with trio.move_on_after(3.0):
                await spider.fetch(page(f"{A}/slow", "api"))
            return many(2, "api")
        return None

    web = SimulatedWeb()
    web.add_host("start.example")
    web.add_host("a.example", connect=lambda request: 10.0 if request.url.endswith("slow") else 0.0)
    limits = {"api": {"quota": 2, "window": 30.0, "delay": 5.0}}
    start = trawl.Request("http://start.example/", meta={"throttling_scopes": []})
    sim = simulate(spider_of(lambda: [start], parse), web, settings={**FREE, "THROTTLING_SCOPES": limits})
    assert shown(sim) == [(3.0, "0"), (8.0, "1")]


@pytest.mark.parametrize("connect", [0.0, 0.4])
def test_r18_waiting_for_a_place_breaks_no_delay(connect: float) -> None:
    # One place for three hosts: each waits for a worker longer than its delay, and is decided upon when it has one.
    def requests() -> Iterator[trawl.Request]:
        for number in range(6):
            for host in "abc":
                yield trawl.Request(f"http://{host}.example/{number}")

    web = a_web("a.example", "b.example", "c.example", latency=0.7, connect=connect)
    sim = simulate(found_at_once(requests), web, settings={**EXACT, "CONCURRENT_REQUESTS": 1, "DOWNLOAD_DELAY": 1.5})
    assert sim.most_in_flight() == 1
    assert all(gap >= 1.5 for host in "abc" for gap in sim.gaps(f"{host}.example"))


def test_r18_slow_and_quick_connects_do_not_bring_two_sends_closer() -> None:
    turns = iter([0.0, 0.25] * 20)
    web = SimulatedWeb()
    web.add_host("start.example")
    web.add_host("a.example", latency=2.0, connect=lambda request: next(turns), keep_alive=0.0)
    limits = {"a.example": {"concurrency": 16, "delay": 0.3, "delay_per_slot": 0.0}}
    settings = {**FREE, "THROTTLING_SCOPES": limits, "CONCURRENT_REQUESTS": 0}
    sim = simulate(found_at_once(lambda: many(20)), web, settings=settings)
    assert min(sim.gaps("a.example")) >= 0.3 - 1e-9  # the difference of two sums of floats
