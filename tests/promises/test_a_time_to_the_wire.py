"""Row A05 of the throttling promises: time before the wire is not added to a delay, and nothing goes early for it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
import trio

import trawl
from tests.promises.pacing import EXACT, SPACED, A, crawl, pages, sends_of, web_of
from trawl.http import Fetch, Outcome
from trawl.testing import RateLimit, SimulatedResponse, Simulation

TENTH: dict[str, Any] = {"delay": 0.1, "delay_per_slot": 0.0, "concurrency": 8}
RATE: dict[str, Any] = {"rate": 10}
NEW_CONNECTIONS: dict[str, Any] = {"connect": 0.2, "keep_alive": 0.0, "latency": 0.05}
EARLY = 1e-9
LEARNED = 15  # sends after which the time to the wire is known


def slow(fetch: Fetch) -> Fetch:
    """A middleware that asks somebody for a tenth of a second."""

    async def send(request: trawl.Request) -> Outcome:
        await trio.sleep(0.1)
        return await fetch(request)

    return send


def rate_of(sim: Simulation) -> float:
    """Sends a second, once it is known how long the way to the wire takes."""
    times = [send.time for send in sim.sends][LEARNED:]
    return (len(times) - 1) / (times[-1] - times[0])


def jittered(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {**settings, "RANDOMIZE_DOWNLOAD_DELAY": True}


@pytest.mark.parametrize("limits", [TENTH, RATE], ids=["delay", "rate"])
def test_a_middleware_that_awaits_takes_nothing_off_the_rate(limits: dict[str, Any]) -> None:
    settings = {**SPACED, "THROTTLING_SCOPES": {A: limits}, "DOWNLOADER_MIDDLEWARES": {slow: 560}}
    sim = crawl(web_of(latency=0.05), pages(200), settings)
    assert rate_of(sim) >= 9.9
    assert min(sim.gaps(A)) >= 0.1 - EARLY


@pytest.mark.parametrize("limits", [TENTH, RATE], ids=["delay", "rate"])
def test_connections_that_are_not_kept_take_nothing_off_the_rate(limits: dict[str, Any]) -> None:
    sim = crawl(web_of(**NEW_CONNECTIONS), pages(200), {**SPACED, "THROTTLING_SCOPES": {A: limits}})
    assert rate_of(sim) >= 9.9
    assert min(sim.gaps(A)) >= 0.1 - EARLY
    assert sim.most_in_flight(A) <= 4  # those that connect, and one that is answered


def in_middleware(*seconds: float) -> dict[str, Any]:
    """A middleware that awaits one of these, drawn for each request; or, of two, any time between them."""
    draws = random.Random(1)

    def waiting(fetch: Fetch) -> Fetch:
        async def send(request: trawl.Request) -> Outcome:
            await trio.sleep(draws.uniform(*seconds) if len(seconds) == 2 else draws.choice(seconds))
            return await fetch(request)

        return send

    return {**SPACED, "DOWNLOADER_MIDDLEWARES": {waiting: 560}}


SLOW_AND_QUICK = (0.1,) * 9 + (3.0,)
EIGHT_SLOTS: dict[str, Any] = {"delay": 1.0, "delay_per_slot": 0.0, "concurrency": 8}
ONE_SLOT: dict[str, Any] = {**EIGHT_SLOTS, "concurrency": 1}


@pytest.mark.parametrize(
    ("limits", "seconds", "least", "most"),
    [
        (EIGHT_SLOTS, (3.0,), 0.99, 1.0),
        (EIGHT_SLOTS, (0.1, 3.0), 0.99, 1.0),
        (EIGHT_SLOTS, SLOW_AND_QUICK, 0.99, 1.0),
        (EIGHT_SLOTS, (8.0,), 0.99, 1.0),
        ({"rate": 5}, (3.0,), 4.95, 5.0),
        ({"rate": 5}, (0.1, 3.0), 4.9, 5.0),
        ({"rate": 5}, SLOW_AND_QUICK, 4.9, 5.0),
        (ONE_SLOT, (1.0,), 0.99, 1.0),
        (ONE_SLOT, (3.0,), 0.99, 1.0),
        (ONE_SLOT, (0.1, 3.0), 0.99, 1.0),
        (ONE_SLOT, SLOW_AND_QUICK, 0.99, 1.0),
    ],
)
def test_however_long_a_middleware_awaits_nothing_is_early_and_the_rate_is_what_the_docs_say(
    limits: dict[str, Any], seconds: tuple[float, ...], least: float, most: float
) -> None:
    sim = crawl(web_of(latency=0.2), pages(200), {**in_middleware(*seconds), "THROTTLING_SCOPES": {A: limits}})
    assert least <= rate_of(sim) <= most + 0.005
    times = sim.times(A)
    if "delay" in limits:
        assert min(sim.gaps(A)) >= 1.0 - EARLY
    else:  # a rate makes up for one interval: t seconds hold t * rate + 2 sends
        assert all(
            times[at] - times[at - number] >= (number - 1) / 5 - EARLY
            for number in (2, 5, 9)
            for at in range(number, 200)
        )
    assert "held_count" not in sim.stats


def test_of_two_scopes_each_is_kept_while_a_middleware_awaits_now_more_and_now_less() -> None:
    limits = {A: EIGHT_SLOTS, "b.example": EIGHT_SLOTS, "x": {"delay": 0.75, "delay_per_slot": 0.0, "concurrency": 16}}
    hosts = [A, "b.example"]
    requests = [
        trawl.Request(url, meta={"throttling_scopes": [host, "x"]}) for host in hosts for url in pages(80, host)
    ]
    sim = crawl(web_of(*hosts, latency=0.2), requests, {**in_middleware(0.1, 3.0), "THROTTLING_SCOPES": limits})
    assert min(sim.gaps("x")) >= 0.75 - EARLY
    assert min(sim.gaps(A)) >= 1.0 - EARLY
    assert min(sim.gaps("b.example")) >= 1.0 - EARLY
    assert rate_of(sim) >= 0.9 / 0.75


def test_a_middleware_that_awaits_holds_no_place_of_another_host() -> None:
    def slow_for_one(fetch: Fetch) -> Fetch:
        async def send(request: trawl.Request) -> Outcome:
            await trio.sleep(3.0 if A in request.url else 0.0)
            return await fetch(request)

        return send

    free: dict[str, Any] = {"delay": 0.0, "delay_per_slot": 0.0, "concurrency": 4}
    settings = {
        **SPACED,
        "CONCURRENT_REQUESTS": 16,
        "THROTTLING_SCOPES": {A: {"rate": 5}, "b.example": free},
        "DOWNLOADER_MIDDLEWARES": {slow_for_one: 560},
    }
    urls = [url for number in range(200) for url in (*pages(1, A, number), *pages(2, "b.example", 2 * number))]
    sim = crawl(web_of(A, "b.example", latency=0.2), urls, settings)
    assert sim.times("b.example")[-1] <= 24.0  # alone 20 s; until the first has come to the wire, its places are held


def test_both_together_and_with_the_defaults() -> None:
    settings = {**EXACT, "DOWNLOADER_MIDDLEWARES": {slow: 560}}
    sim = crawl(web_of(**NEW_CONNECTIONS), pages(60), settings)
    assert rate_of(sim) >= 0.99
    assert min(sim.gaps(A)) >= 1.0 - EARLY
    assert sim.most_in_flight(A) == 1


@pytest.mark.parametrize("limits", [TENTH, RATE, {"delay": 0.0, "delay_per_slot": 0.4, "concurrency": 4}])
def test_with_jitter_the_rate_is_what_it_is_without_a_way_to_the_wire(limits: dict[str, Any]) -> None:
    settings = jittered({**SPACED, "THROTTLING_SCOPES": {A: limits}})
    near, far = (crawl(web_of(**host), pages(400), settings) for host in ({"latency": 0.05}, NEW_CONNECTIONS))
    assert rate_of(far) >= 0.99 * rate_of(near)
    if "delay_per_slot" not in limits:
        assert min(far.gaps(A)) >= 0.05 - EARLY


def test_connections_that_take_now_more_and_now_less_time_cost_little() -> None:
    draws = random.Random(1)
    web = web_of(**{**NEW_CONNECTIONS, "connect": lambda request: draws.uniform(0.1, 0.3)})
    sim = crawl(web, pages(500), {**SPACED, "THROTTLING_SCOPES": {A: TENTH}})
    assert rate_of(sim) >= 9.5
    assert min(sim.gaps(A)) >= 0.1 - EARLY


@pytest.mark.parametrize("other", [1.0, 0.8, 0.2])
def test_two_jittered_delays_together_give_the_rate_of_the_slower_one(other: float) -> None:
    limits = {A: {"delay": 1.0, "delay_per_slot": 0.0}, "x": {"delay": other}}
    settings = jittered({**SPACED, "THROTTLING_SCOPES": limits})
    both = crawl(web_of(), [trawl.Request(url, meta={"throttling_scopes": [A, "x"]}) for url in pages(400)], settings)
    slower = crawl(web_of(), pages(400), settings)
    assert rate_of(both) >= 0.99 * rate_of(slower)
    assert 0.5 <= min(both.gaps(A)) < 0.52
    assert 1.48 < max(both.gaps(A)) <= 1.5


def test_a_refusal_that_comes_while_a_request_waits_at_the_wire_takes_it_back() -> None:
    asked: list[str] = []

    def answers(request: trawl.Request) -> SimulatedResponse:
        asked.append(request.url[-2:])
        is_first = asked.count("/9") == 1 and request.url.endswith("/9")
        return SimulatedResponse(429, headers={"Retry-After": "30"}) if is_first else SimulatedResponse()

    web = web_of(
        connect=lambda request: 0.1 if request.url.endswith("/10") else 0.5,  # it waits from 0.6 to 1.0 s after /9
        keep_alive=0.0,
        latency=0.9,
        handler=answers,
    )
    settings = {**SPACED, "DOWNLOAD_DELAY": 1.0, "CONCURRENT_REQUESTS_PER_DOMAIN": 4}
    sim = crawl(web, pages(14), settings)
    (refused_at,) = [send.time + 0.9 for send in sim.sends if send.status == 429]
    following = [send.time for send in sim.sends if send.time > refused_at - 0.9]
    assert following[0] >= refused_at + 30.0  # though one was connected, and its instant a tenth of a second away
    assert sends_of(sim, "/10") >= following[:1]
    assert sim.stats["response_status_count/200"] == 14
    assert len(sends_of(sim, "/9")) == 2


@pytest.mark.parametrize("seed", range(5))
def test_nothing_goes_early_where_everything_is_mixed(seed: int) -> None:
    draws = random.Random(seed)
    hosts = [A, "b.example", "c.example"]
    host: dict[str, Any] = {"latency": 0.2, "keep_alive": 1.0, "limit": RateLimit(rate=4.0, burst=3)}
    web = web_of(*hosts, connect=lambda request: draws.choice([0.0, 0.1, 0.7]), **host)
    settings = jittered(
        {
            **EXACT,
            "THROTTLING_SCOPES": {
                A: {"delay": 0.5, "delay_per_slot": 1.0, "concurrency": 3},
                "b.example": {"delay": 0.3, "delay_per_slot": 0.0, "concurrency": 4, "rampup": True},
                "c.example": {"rate": 5},
                "all": {"delay": 0.2, "quota": 30, "window": 10.0, "sliding": True},
            },
        }
    )
    requests = [
        trawl.Request(url, meta={"throttling_scopes": [host, "all"]}) for host in hosts for url in pages(60, host)
    ]
    sim = crawl(web, requests, settings, seed)
    times = sorted(send.time for send in sim.sends)
    assert min(later - earlier for earlier, later in pairwise(times)) >= 0.1 - EARLY
    assert min(sim.gaps(A)) >= 0.25 - EARLY
    assert min(sim.gaps("b.example")) >= 0.15 - EARLY
    assert all(later - earlier >= 10.0 - EARLY for earlier, later in zip(times, times[30:], strict=False))
    assert sim.stats["response_status_count/200"] == 180


def test_i06_a_rate_makes_nothing_up_for_a_wait_that_another_scope_has_caused() -> None:
    limits = {"x": RATE, A: {"delay": 1.0, "delay_per_slot": 0.0}, "b.example": {"delay": 0.9, "delay_per_slot": 0.0}}
    settings = {**SPACED, "THROTTLING_SCOPES": limits}
    hosts = [A, "b.example"]
    requests = [
        trawl.Request(url, meta={"throttling_scopes": [host, "x"]}) for host in hosts for url in pages(30, host)
    ]
    sim = crawl(web_of(*hosts), requests, settings)
    assert min(sim.gaps("x")) >= 0.1 - EARLY


@pytest.mark.parametrize("is_other", [True, False])
def test_i06_a_rate_makes_nothing_up_for_a_wait_for_a_quota(is_other: bool) -> None:
    quota = {"quota": 5, "window": 3.0}
    limits = {A: RATE, "x": quota} if is_other else {A: {**RATE, **quota}, "x": {}}
    requests = [trawl.Request(url, meta={"throttling_scopes": [A, "x"]}) for url in pages(20)]
    sim = crawl(web_of(), requests, {**SPACED, "THROTTLING_SCOPES": limits})
    assert min(sim.gaps(A)) >= 0.1 - EARLY
    assert sim.times(A)[5::5] == [3.0, 6.0, 9.0]


def test_i12_a_concurrency_that_is_lowered_takes_requests_back_that_wait_at_the_wire() -> None:
    limits = {A: {"delay": 1.0, "delay_per_slot": 0.0, "concurrency": 4}}

    def parse(spider: trawl.Spider, response: trawl.Response) -> None:
        if response.url.endswith("/9"):  # three are in flight, one of them waits at the wire
            spider.crawl.throttling.set(A, concurrency=1)

    web = web_of(connect=0.5, keep_alive=0.0, latency=lambda request: 1.75 if request.url.endswith("/9") else 2.5)
    sim = crawl(web, pages(14), {**SPACED, "THROTTLING_SCOPES": limits}, parse=parse)
    (lowered_at,) = [send.finished for send in sim.sends if send.url.endswith("/9")]
    following = [send for send in sim.sends if send.time > lowered_at]
    on_the_wire = [send.finished for send in sim.sends if send.time < lowered_at]
    assert following[0].time >= max(on_the_wire)
    assert all(later.time >= earlier.finished for earlier, later in pairwise(following))
    assert len(sim.sends) == 14
