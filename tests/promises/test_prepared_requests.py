"""Requests that user code prepares before their send: rates, order, age, and what a middleware that hangs delays."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import trio

import trawl
from tests.promises.pacing import EXACT, SPACED, A, B, crawl, pages, web_of
from trawl.http import Fetch, HtmlResponse, Outcome
from trawl.testing import Simulation, simulate
from trawl.testing.clock import START

EARLY = 1e-6
NO_DELAY: dict[str, Any] = {"delay": 0.0, "delay_per_slot": 0.0}


class Awaiting:
    """A middleware that awaits something before each send, and notes when it had it."""

    def __init__(self, seconds: Callable[[str], float]) -> None:
        self.seconds = seconds
        self.prepared_at: dict[str, list[float]] = {}

    def __call__(self, fetch: Fetch) -> Fetch:
        """Put it around ``fetch``."""

        async def send(request: trawl.Request) -> Outcome:
            await trio.sleep(self.seconds(request.url))
            self.prepared_at.setdefault(request.url, []).append(trio.current_time() - START)
            return await fetch(request)

        return send

    def settings(self, limits: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Settings with it, and with limits of host A."""
        given = {"DOWNLOADER_MIDDLEWARES": {type("Own", (), {"from_crawler": lambda crawl: self}): 560}}
        return {**SPACED, "THROTTLING_SCOPES": {A: limits}, **given, **more}

    def oldest(self, sim: Simulation) -> float:
        """The longest time from the end of the middleware to the send."""
        return max(send.time - self.prepared_at[send.url][-1] for send in sim.sends)


@pytest.mark.parametrize("awaits", [None, 0.0, 0.4])
@pytest.mark.parametrize("connect", [0.5, 2.0])
def test_a_rate_is_reached_over_slow_connections(awaits: float | None, connect: float) -> None:
    # A21
    middleware = Awaiting(lambda url: awaits or 0.0)
    settings = middleware.settings({"rate": 2, "concurrency": 16})
    if awaits is None:
        del settings["DOWNLOADER_MIDDLEWARES"]
    sim = crawl(web_of(connect=connect, keep_alive=0.0, latency=0.1), pages(100), settings)
    times = sim.times(A)[10:]
    assert (len(times) - 1) / (times[-1] - times[0]) >= 0.97 * 2.0
    assert max(sum(at <= other < at + 5.0 for other in times) for at in times) <= 12


@pytest.mark.parametrize("awaits", [0.0, 0.3])
def test_a_prepared_request_of_two_scopes_does_not_starve(awaits: float) -> None:
    # F12
    middleware = Awaiting(lambda url: awaits)

    class Both(trawl.Spider):
        name = "both"

        async def start(self) -> Any:
            for number in range(40):
                if number == 3:
                    yield self.page("both", ["a", "b"])
                for scope in ("a", "b"):
                    yield self.page(f"{scope}{number}", [scope])

        def page(self, path: str, scopes: list[str]) -> trawl.Request:
            return trawl.Request(f"http://{A}/{path}", meta={"throttling_scopes": scopes})

        def parse(self, response: trawl.Response, **kwargs: Any) -> None:
            pass

    web = web_of(latency=lambda request: 0.7 if "/a" in request.url else 1.0)
    limits = {"a": {"concurrency": 1}, "b": {"concurrency": 1}}
    settings = {**middleware.settings({}), "THROTTLING_SCOPES": limits}
    sends = [send.url.rpartition("/")[2] for send in simulate(Both, web, settings).sends]
    assert len(sends) == 81
    assert sends.index("both") <= 24  # it is passed eight times, and then by what its scopes have prepared


@pytest.mark.parametrize("seconds", [lambda url: 0.3, lambda url: 3.0, lambda url: 0.1 + int(url[-1]) / 3.0])
@pytest.mark.parametrize(
    ("limits", "interval"),
    [
        ({"delay": 1.0, "delay_per_slot": 0.0, "concurrency": 8}, 1.0),
        ({"delay": 10.0, "delay_per_slot": 0.0, "concurrency": 8}, 10.0),
        ({"delay": 0.0, "delay_per_slot": 4.0, "concurrency": 3}, 4.0),
        ({"rate": 3, "concurrency": 8}, 1 / 3),
        ({**NO_DELAY, "concurrency": 2}, 0.2),
        ({**NO_DELAY, "concurrency": 4, "quota": 3, "window": 20.0}, 0.2),
    ],
)
def test_the_age_of_a_prepared_request_is_bounded(
    limits: dict[str, Any], interval: float, seconds: Callable[[str], float]
) -> None:
    middleware = Awaiting(seconds)
    sim = crawl(web_of(latency=0.2), pages(40), middleware.settings(limits))
    assert len(sim.times(A)) == 40
    assert middleware.oldest(sim) <= interval + 5.0 + EARLY


@pytest.mark.parametrize("hangs", [5, 20])
@pytest.mark.parametrize(
    "limits",
    [
        {"delay": 1.0, "delay_per_slot": 0.0, "concurrency": 8},
        {"delay": 0.0, "delay_per_slot": 1.0, "concurrency": 1},
        {**NO_DELAY, "concurrency": 1},
        {**NO_DELAY, "concurrency": 4, "quota": 1, "window": 1.0},
        {"rate": 1},
    ],
)
def test_a_middleware_that_hangs_delays_nobody_else(limits: dict[str, Any], hangs: int) -> None:
    middleware = Awaiting(lambda url: 600.0 if url == f"http://{A}/{hangs}" else 0.1)
    settings = middleware.settings(limits)
    sim = crawl(web_of(A, B, latency=0.2), [*pages(30), *pages(30, B)], settings)
    assert max(sim.times(B)) <= 31.0
    others = [send.time for send in sim.sends if send.url != f"http://{A}/{hangs}" and send.host == A]
    assert len(others) == 29
    assert max(others) <= 41.0
    assert len(sim.sends) == 60


def test_the_first_request_of_a_host_that_hangs_delays_others_of_that_host_for_half_a_minute_at_most() -> None:
    """It may be a browser that loads the page."""
    middleware = Awaiting(lambda url: 600.0 if url == f"http://{A}/0" else 0.1)
    settings = middleware.settings({"delay": 1.0, "delay_per_slot": 0.0, "concurrency": 1})
    sim = crawl(web_of(A, B, latency=0.2), [*pages(30), *pages(30, B)], settings)
    assert max(sim.times(B)) <= 31.0
    assert sorted(sim.times(A))[-2] <= 30.0 + 31.0


class Mixed:
    """A middleware that awaits something before some sends, and responds to the other requests itself."""

    def __init__(self, lets_through: Callable[[int], bool], before: float, browser: float) -> None:
        self.lets_through = lets_through
        self.before = before
        self.browser = browser
        self.asked: list[float] = []
        self.at_once = self.most = 0

    async def process_request(self, request: trawl.Request, spider: object) -> trawl.Response | None:
        """Respond to what is not let through."""
        if self.lets_through(int(request.url.rpartition("/")[2])):
            await trio.sleep(self.before)
            return None
        self.asked.append(trio.current_time() - START)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await trio.sleep(self.browser)
        self.at_once -= 1
        return HtmlResponse(request.url, body=b"<p>here</p>")


@pytest.mark.parametrize("lets_through", [lambda n: n % 2 == 0 or n < 4, lambda n: n % 2 == 1, lambda n: n % 5 != 4])
@pytest.mark.parametrize("before", [0.0, 0.3, 1.5, 6.0])
@pytest.mark.parametrize("browser", [0.0, 2.0, 7.0])
@pytest.mark.parametrize(
    ("limits", "least"),
    [
        ({}, 1.0),
        ({"delay": 1.0, "delay_per_slot": 0.0, "concurrency": 4}, 1.0),
        ({**NO_DELAY, "concurrency": 2}, 0.0),
    ],
)
def test_a22_responses_of_user_code_keep_the_pace_of_sends_that_it_lets_through(
    lets_through: Callable[[int], bool], before: float, browser: float, limits: dict[str, Any], least: float
) -> None:
    own = Mixed(lets_through, before, browser)
    given = {"DOWNLOADER_MIDDLEWARES": {type("Own", (Mixed,), {"from_crawler": lambda crawl: own}): 543}}
    sim = crawl(web_of(latency=0.2), pages(24), {**EXACT, "THROTTLING_SCOPES": {A: limits}, **given})
    assert len(sim.items) == 24
    asked = sorted([*own.asked, *sim.times(A)])
    assert min(later - earlier for earlier, later in pairwise(asked)) >= least - EARLY
    assert own.most <= limits.get("concurrency", 1)
