"""Row D07 of the throttling promises: what good answers say remains is spread over its time; none is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.promises.pacing import A, B, crawl, pages, web_of
from trawl.testing import RateLimit, SimulatedResponse, Simulation

FAST: dict[str, Any] = {
    "ROBOTSTXT_OBEY": False,
    "DOWNLOAD_DELAY": 0.0,
    "DOWNLOAD_DELAY_PER_SLOT": 0.0,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 4,
}
"""The defaults, jitter too, but four at once and no delay."""

OFF = {"THROTTLING_RATELIMIT_OBEY": False}
DIALECTS = ["draft-03", "draft-07", "draft-10", "x-ratelimit", "x-ratelimit-epoch", "x-rate-limit"]
START = datetime(2025, 1, 1, tzinfo=UTC).timestamp()


def windowed(limit: int, window: float, fields: Callable[[int, float, float], dict[str, str]]) -> Any:
    """A handler with a fixed window, told by ``fields``: what remains, seconds to the reset, and the epoch of now."""
    used: dict[int, int] = {}
    begun_at: list[float] = []

    def handler(request: trawl.Request) -> SimulatedResponse:
        begun_at[:] = begun_at or [trio.current_time()]
        now = trio.current_time() - begun_at[0]
        number = math.floor((now + 7.3) / window)
        reset = (number + 1) * window - 7.3 - now
        has_passed = used.get(number, 0) < limit
        used[number] = used.get(number, 0) + has_passed
        status = 200 if has_passed else 429
        return SimulatedResponse(status, headers=fields(limit - used[number], reset, START + now))

    return handler


def github(left: int, reset: float, epoch: float) -> dict[str, str]:
    return {
        "X-RateLimit-Limit": "60",
        "X-RateLimit-Remaining": str(left),
        "X-RateLimit-Reset": str(math.ceil(epoch + reset)),
    }


def twitter(left: int, reset: float, epoch: float) -> dict[str, str]:
    return {"x-rate-limit-remaining": str(left), "x-rate-limit-reset": str(math.ceil(epoch + reset))}


def reddit(left: int, reset: float, epoch: float) -> dict[str, str]:
    return {"x-ratelimit-used": "1", "x-ratelimit-remaining": f"{left}.0", "x-ratelimit-reset": str(math.ceil(reset))}


def gitlab(left: int, reset: float, epoch: float) -> dict[str, str]:
    return {"RateLimit-Remaining": str(left), "RateLimit-Reset": str(math.ceil(epoch + reset))}


def rounded_down(left: int, reset: float, epoch: float) -> dict[str, str]:
    return {"RateLimit": f'"hour";r=5000;t=3600, "minute";r={left};t={math.floor(reset)}'}


def refusals(sim: Simulation) -> int:
    return sum(send.status == 429 for send in sim.sends)


def share(sim: Simulation, rate: float, after: float) -> float:
    """The part of the limit that was used, from so many seconds on."""
    times = [send.time for send in sim.sends if send.time >= after]
    return (len(times) - 1) / (times[-1] - times[0]) / rate


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_bucket_that_tells_its_limit_refuses_nothing_and_is_used(dialect: str) -> None:
    web = web_of(latency=0.1, limit=RateLimit(rate=2.0, burst=20, headers=dialect))
    sim = crawl(web, pages(300), FAST)
    assert refusals(sim) == 0
    assert share(sim, 2.0, 20.0) >= 0.95
    assert refusals(crawl(web, pages(300), {**FAST, **OFF})) > 0


@pytest.mark.parametrize("fields", [github, twitter, reddit, gitlab, rounded_down])
@pytest.mark.parametrize("host", [{"latency": 0.1}, {"latency": 0.3, "connect": 0.2, "keep_alive": 0.0}])
def test_a_window_that_is_told_refuses_nothing_and_is_used(fields: Any, host: dict[str, Any]) -> None:
    settings = {**FAST, "CONCURRENT_REQUESTS_PER_DOMAIN": 8}
    sim = crawl(web_of(handler=windowed(60, 60.0, fields), **host), pages(240), settings)
    assert refusals(sim) == 0
    assert sum(52.7 <= send.time < 172.7 for send in sim.sends) >= 0.95 * 120  # two windows
    (report,) = sim.report
    assert report.hints >= 1
    assert "200 of http://a.example/" in report.last_hint
    assert refusals(crawl(web_of(handler=windowed(60, 60.0, fields), **host), pages(240), {**settings, **OFF})) > 0


def test_it_never_makes_a_scope_faster_and_leaves_one_alone_that_is_slower() -> None:
    web = web_of(latency=0.1, handler=windowed(5000, 60.0, github))
    told, plain = (crawl(web, pages(20), {"ROBOTSTXT_OBEY": False, **more}) for more in ({}, OFF))
    assert told.times(A) == plain.times(A)
    assert told.report[0].hints == 0


NONSENSE: list[dict[str, str]] = [
    {"X-RateLimit-Remaining": "many", "X-RateLimit-Reset": "60"},
    {"X-RateLimit-Remaining": "3", "X-RateLimit-Reset": "soon"},
    {"X-RateLimit-Remaining": "3", "X-RateLimit-Reset": "-60"},
    {"X-RateLimit-Remaining": "-1", "X-RateLimit-Reset": "60"},
    {"X-RateLimit-Remaining": "3", "X-RateLimit-Reset": "1735689600000"},  # milliseconds: in 55,000 years
    {"X-RateLimit-Remaining": "3", "X-RateLimit-Reset": "1735600000"},  # yesterday
    {"RateLimit-Remaining": "0", "RateLimit-Reset": "0"},
    {"RateLimit-Reset": "60"},
    {"X-RateLimit-Remaining": "0"},
    {"RateLimit": "r=0;t=60"},
    {"RateLimit": '"a";r=1;t=60;;, = "'},
    {"RateLimit": "limit=10, remaining=3"},
    {"RateLimit": '"bytes";r=100;t=60', "RateLimit-Policy": '"bytes";q=1000;w=60;qu="content-bytes"'},
    {"Retry-After": "60"},
]


@pytest.mark.parametrize("fields", NONSENSE, ids=str)
def test_nonsense_changes_nothing(fields: dict[str, str]) -> None:
    nonsense = crawl(web_of(latency=0.1, handler=lambda request: SimulatedResponse(headers=fields)), pages(12), FAST)
    plain = crawl(web_of(latency=0.1), pages(12), FAST)
    assert nonsense.times(A) == plain.times(A)
    assert nonsense.report[0].hints == 0


@pytest.mark.parametrize("left", [0, 1, 5])
def test_a_server_that_lies_costs_three_times_the_longest_delay_and_is_believed_no_more(left: int) -> None:
    fields = {"X-RateLimit-Remaining": str(left), "X-RateLimit-Reset": "100000"}
    web = web_of(latency=0.1, handler=lambda request: SimulatedResponse(headers=fields))
    sim = crawl(web, pages(100), {**FAST, "THROTTLING_RATELIMIT_MAX_DELAY": 10.0, "RANDOMIZE_DOWNLOAD_DELAY": False})
    assert 30.0 < sim.sends[-1].time < 45.0
    assert "capped at 10 s (THROTTLING_RATELIMIT_MAX_DELAY)" in sim.report[0].last_hint
    zero = crawl(web, pages(100), {**FAST, "THROTTLING_RATELIMIT_MAX_DELAY": 0.0})
    assert zero.sends[-1].time < 5.0
    assert zero.report[0].hints == 0


def test_it_slows_the_host_alone_and_not_what_its_requests_share() -> None:
    def handler(request: trawl.Request) -> SimulatedResponse:
        return SimulatedResponse(headers={"RateLimit": '"a";r=10;t=40'} if A in request.url else {})

    requests = [
        trawl.Request(url, meta={"throttling_scopes": [host, "all"]}) for host in (A, B) for url in pages(8, host)
    ]
    sim = crawl(web_of(A, B, latency=0.1, handler=handler), requests, {**FAST, "RANDOMIZE_DOWNLOAD_DELAY": False})
    assert sim.times(B)[-1] < 1.0
    assert min(sim.gaps(A)[4:]) >= 4.0
    assert {report.scope: report.hints for report in sim.report} == {A: 1, B: 0, "all": 0}


def test_where_the_host_is_not_a_scope_those_are_slowed_that_are() -> None:
    web = web_of(latency=0.1, handler=lambda request: SimulatedResponse(headers={"RateLimit": '"a";r=10;t=40'}))
    requests = [trawl.Request(url, meta={"throttling_scopes": "key"}) for url in pages(8)]
    sim = crawl(web, requests, {**FAST, "CONCURRENT_REQUESTS": 1, "RANDOMIZE_DOWNLOAD_DELAY": False})
    assert min(sim.gaps("key")) >= 4.0


async def test_why_names_the_header(autojump_clock: MockClock) -> None:
    class Watched(trawl.Spider):
        name = "watched"
        start_urls = tuple(pages(3))
        custom_settings = {**FAST, "CONCURRENT_REQUESTS_PER_DOMAIN": 1}
        said: list[str] = []

        async def parse(self, response: trawl.Response, **kwargs: object) -> Any:
            await trio.sleep(1.0)
            if response.url.endswith("/0"):
                self.said.append(str(self.crawl.why(A)))
            yield {}

    fields = {"X-RateLimit-Remaining": "4", "X-RateLimit-Reset": "80"}
    await web_of(latency=0.1, handler=lambda request: SimulatedResponse(headers=fields)).crawl(Watched)
    (words,) = Watched.said
    assert "X-RateLimit-Remaining: 4, X-RateLimit-Reset: 80, 200 of http://a.example/0" in words
