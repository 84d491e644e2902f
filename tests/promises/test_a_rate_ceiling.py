"""Row A21 of the throttling promises: a rate is a ceiling, with the jitter that is on by default, and it is used."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
import trio

import trawl
from tests.promises.pacing import A, B, crawl, pages, web_of
from trawl.http import Fetch, Outcome
from trawl.testing import SimulatedResponse, simulate

DEFAULTS: dict[str, Any] = {"ROBOTSTXT_OBEY": False}
EARLY = 1e-6


def excess(times: Sequence[float], sends_until: Callable[[float], float]) -> float:
    """How many sends more than its share the fullest of all windows holds; ``sends_until`` is a rate's integral."""
    lowest, most = float("inf"), 0.0
    for number, time in enumerate(times):
        due = number - sends_until(time)
        lowest = min(lowest, due)
        most = max(most, due - lowest + 1.0)
    return most


def is_kept(times: Sequence[float], rate: float) -> bool:
    """Whether each window of t seconds holds at most t * rate + 2 sends."""
    return excess(times, lambda time: time * rate) <= 2.0 + EARLY


def rate_of(times: Sequence[float]) -> float:
    return (len(times) - 1) / (times[-1] - times[0])


def draws(*bounds: float) -> Callable[[object], float]:
    """Any time between these two, drawn for each request."""
    stream = random.Random(5)
    return lambda request: stream.uniform(*bounds)


def awaiting(fetch: Fetch) -> Fetch:
    stream = random.Random(3)

    async def send(request: trawl.Request) -> Outcome:
        await trio.sleep(stream.uniform(0.0, 0.4))
        return await fetch(request)

    return send


WORLDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "quick": ({"latency": 0.01}, {}),
    "slow": ({"latency": 4.0}, {}),
    "random": ({"latency": draws(0.01, 3.0)}, {}),
    "connecting": ({"latency": 0.3, "connect": draws(0.0, 0.8), "keep_alive": 0.0}, {}),
    "middleware": ({"latency": 0.3}, {"DOWNLOADER_MIDDLEWARES": {awaiting: 560}}),
}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("rate", [0.4, 4.0, 30.0])
def test_a21_a_rate_is_a_ceiling_and_97_percent_of_it_are_used(rate: float, world: str) -> None:
    host, settings = WORLDS[world]
    limits = {"THROTTLING_SCOPES": {A: {"rate": rate}}, "CONCURRENT_REQUESTS": 300}
    sim = crawl(web_of(**host), pages(200), {**DEFAULTS, **settings, **limits}, seed=int(rate))
    times = sim.times(A)
    assert is_kept(times, rate)
    assert rate_of(times[50:]) >= 0.97 * rate  # until then nobody knows how long the way to the wire takes
    assert len({round(gap, 6) for gap in sim.gaps(A)}) > 100  # drawn, not exact


@pytest.mark.parametrize("seed", range(8))
def test_a21_no_second_holds_more_than_six_sends_of_a_rate_of_four(seed: int) -> None:
    sim = crawl(web_of(latency=0.1), pages(200), {**DEFAULTS, "THROTTLING_SCOPES": {A: {"rate": 4}}}, seed)
    times = sim.times(A)
    assert max(sum(1 for each in times if at <= each <= at + 1.0) for at in times) <= 6
    assert 0.5 / 4 - EARLY <= min(sim.gaps(A)) <= max(sim.gaps(A)) <= 1.5 / 4 + EARLY
    assert rate_of(times) >= 0.97 * 4


@pytest.mark.parametrize(
    ("jitter", "low", "high"),
    [
        (False, 1.0, 1.0),
        (0.2, 0.8, 1.2),
        (1.0, 0.0, 2.0),
        ([0.0, 0.5], 1.0, 1.5),
        ([-0.6, 0.0], 0.7, 1.3),  # its mean would be faster than the rate
    ],
)
def test_a21_a_jitter_says_how_far_the_intervals_differ_and_never_raises_the_rate(
    jitter: object, low: float, high: float
) -> None:
    limits = {"THROTTLING_SCOPES": {A: {"rate": 4, "jitter": jitter}}}
    sim = crawl(web_of(), pages(150), {**DEFAULTS, **limits})
    drawn = [4.0 * gap for gap in sim.gaps(A)]
    assert low - EARLY <= min(drawn) <= low + 0.2
    assert high - 0.2 <= max(drawn) <= high + EARLY
    assert is_kept(sim.times(A), 4.0)
    assert rate_of(sim.times(A)) == pytest.approx(4.0 / ((low + high) / 2.0), rel=0.03)


@pytest.mark.parametrize("seed", range(4))
def test_a21_it_holds_with_few_slots_refusals_and_slow_pages_in_between(seed: int) -> None:
    stream = random.Random(seed)

    def answers(request: trawl.Request) -> SimulatedResponse:
        return SimulatedResponse(stream.choices([200, 429, 503], [20, 1, 1])[0])

    web = web_of(handler=answers, latency=draws(0.0, 1.5), connect=draws(0.0, 0.6), keep_alive=0.5)
    limits = {"THROTTLING_SCOPES": {A: {"rate": 5, "concurrency": 6, "backoff": {"window": 5.0}}}}
    sim = crawl(web, pages(120), {**DEFAULTS, **limits}, seed)
    assert is_kept(sim.times(A), 5.0)
    assert sim.stats["response_status_count/200"] == 120


@pytest.mark.parametrize("seed", range(4))
def test_a21_each_of_several_scopes_of_a_request_keeps_its_rate(seed: int) -> None:
    limits = {A: {"rate": 4}, B: {"rate": 4}, "x": {"rate": 4}, "y": {"rate": 7}}
    stream = random.Random(seed)
    requests = [
        trawl.Request(url, meta={"throttling_scopes": [host, stream.choice("xy")]})
        for number in range(80)
        for host in (A, B)
        for url in pages(1, host, number)
    ]
    sim = crawl(web_of(A, B, latency=0.2), requests, {**DEFAULTS, "THROTTLING_SCOPES": limits}, seed)
    for scope, most in limits.items():
        times = [send.time for send in sim.sends if scope in send.scopes]
        assert len(times) > 50
        assert is_kept(times, most["rate"])


@pytest.mark.parametrize("other", [4, 4.5, 16])
def test_a21_two_rates_on_each_request_give_the_slower_one(other: float) -> None:
    limits = {A: {"rate": 4}, "x": {"rate": other}}
    requests = [trawl.Request(url, meta={"throttling_scopes": [A, "x"]}) for url in pages(200)]
    sim = crawl(web_of(latency=0.2), requests, {**DEFAULTS, "THROTTLING_SCOPES": limits})
    assert is_kept(sim.times(A), 4.0)
    assert rate_of(sim.times(A)) >= 0.97 * 4


RATES = {20: 9.0, 80: 2.0, 100: 30.0, 101: 0.5, 103: 6.0, 130: 6.0}


class Changing(trawl.Spider):
    """Changes its rate each time that one of these pages has come."""

    name = "changing"

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        for url in pages(160):
            yield trawl.Request(url)

    def parse(self, response: trawl.Response, *args: Any, **kwargs: Any) -> Any:
        rate = RATES.get(int(response.url.rpartition("/")[2]))
        if rate is not None:
            self.crawl.throttling.set(A, rate=rate)
        yield {"rate": rate}


@pytest.mark.parametrize("seed", range(6))
def test_a21_the_ceiling_holds_over_changes_of_the_rate(seed: int) -> None:
    web = web_of(latency=draws(0.01, 0.4))
    sim = simulate(Changing, web, {**DEFAULTS, "THROTTLING_SCOPES": {A: {"rate": 3}}}, seed)
    answered = {send.url: send.finished for send in sim.sends}
    changed = sorted((answered[url], RATES[number]) for number, url in enumerate(pages(160)) if number in RATES)
    steps = [(0.0, 3.0), *changed, (float("inf"), 0.0)]

    def sends_until(time: float) -> float:
        return sum(max(min(time, until) - since, 0.0) * rate for (since, rate), (until, _) in pairwise(steps))

    assert excess(sim.times(A), sends_until) <= 2.0 + EARLY
