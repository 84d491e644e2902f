"""What user code responds, raises or ignores counts as a send: checked by when it, or the wire, is asked.

Each case is one of (responds, raises, fails as the network does, ignores), at once or slowly, for one of (robots.txt, a
page, the target of a redirect, a direct fetch), under one of (delay, delay per slot, Crawl-delay, rate, quota, page
budget, 429, backoff).
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Sequence
from itertools import pairwise, product
from math import inf
from typing import Any

import pytest
import trio

import trawl
from tests.promises.pacing import EXACT, A, B, crawl, pages, web_of
from trawl.exceptions import IgnoreRequest
from trawl.http import Fetch, HtmlResponse, Outcome
from trawl.testing import SimulatedResponse, SimulatedWeb, Simulation, simulate
from trawl.testing.clock import START

EARLY = 1e-6
PAGES = 8
ROBOTS = "robots"
HOWS = ["responds", "raises", "fails", "ignores"]
WHERES = ["page", "redirect", "direct"]
FREE: dict[str, Any] = {"DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0, "CONCURRENT_REQUESTS_PER_DOMAIN": 4}


class UserCode:
    """A middleware that is asked for the pages of host A instead of the wire, and what it was asked for, and when."""

    def __init__(self, how: str, where: str, slow: float, statuses: Sequence[int] = (), fields: Any = None) -> None:
        self.how = how
        self.where = where
        self.slow = slow
        self.statuses = iter(statuses)
        self.fields = fields or {}
        self.draws = random.Random(f"{how}:{where}:{slow}")
        self.asked: list[float] = []

    async def process_request(self, request: trawl.Request, spider: object) -> trawl.Response | None:
        """Respond, or fail, for what is the user's."""
        is_robots = request.url == f"http://{A}/robots.txt"
        if is_robots != (self.where == ROBOTS) or not (is_robots or f"{A}/own" in request.url):
            return None
        self.asked.append(trio.current_time() - START)
        await trio.sleep(self.draws.uniform(0.0, self.slow))
        if self.how == "raises":
            raise ValueError("a fault of its own")
        if self.how == "fails":
            raise ConnectionResetError("as the network does")
        if self.how == "ignores":
            raise IgnoreRequest("not wanted")
        return HtmlResponse(request.url, next(self.statuses, 200), self.fields, b"<p>here</p>", encoding="utf-8")


def crawled(user_code: UserCode, robots: str = "", **settings: Any) -> tuple[Simulation, list[float]]:
    """Crawl pages of host A by way of host B; returns what happened, and when anybody was asked for pages of A."""

    class Pages(trawl.Spider):
        name = "pages"

        async def start(self) -> AsyncGenerator[Any, None]:
            for number in range(PAGES):
                on = A if user_code.where in ("page", ROBOTS) else B
                yield trawl.Request(f"http://{on}/{'own' if on == A else 'to'}/{number}")

        async def parse(self, response: trawl.Response) -> AsyncGenerator[Any, None]:
            if user_code.where == "direct":
                number = response.url.rpartition("/")[2]
                response = await self.fetch(trawl.Request(f"http://{A}/own/{number}"))
            yield {"url": response.url, "status": response.status}

    def answer(request: trawl.Request) -> SimulatedResponse:
        if user_code.where != "redirect":
            return SimulatedResponse()
        return SimulatedResponse(302, headers={"Location": request.url.replace(f"{B}/to", f"{A}/own")})

    web = SimulatedWeb()
    web.add_host(A, robots=robots)
    web.add_host(B, handler=answer)
    scopes = settings.pop("scopes", {})
    limits = {B: {"delay": 0.0, "delay_per_slot": 0.0, "concurrency": 16}, **scopes}
    settings = {"ROBOTSTXT_OBEY": bool(robots) or user_code.where == ROBOTS, **settings}
    given = {"DOWNLOADER_MIDDLEWARES": {type("Own", (), {"from_crawler": lambda crawl: user_code}): 543}}
    sim = simulate(Pages, web, {**EXACT, "THROTTLING_SCOPES": limits, **settings, **given}, errors="collect")
    return sim, sorted([*user_code.asked, *sim.times(A)])


def gaps(times: list[float]) -> list[float]:
    """The seconds from each to the next."""
    return [later - earlier for earlier, later in pairwise(times)]


def cases(*hows: str) -> pytest.MarkDecorator:
    """The ways in which user code is asked."""
    return pytest.mark.parametrize(("how", "where", "slow"), list(product(hows or HOWS, WHERES, (0.0, 3.0))))


@cases()
@pytest.mark.parametrize(
    ("least", "robots", "settings"),
    [
        (1.0, "", {}),  # the default: a delay per slot, of which there is one
        (2.0, "", {"scopes": {A: {"delay": 2.0, "delay_per_slot": 0.0, "concurrency": 3}}}),
        (5.0, "User-agent: *\nCrawl-delay: 5\n", {}),
        (0.5, "", {"scopes": {A: {"rate": 2}}}),
    ],
)
def test_a22_each_is_a_send_from_which_the_delay_counts(
    how: str, where: str, slow: float, least: float, robots: str, settings: dict[str, Any]
) -> None:
    user_code = UserCode(how, where, slow)
    sim, asked = crawled(user_code, robots, **settings)
    assert sim.reason == "finished"
    assert len(user_code.asked) >= PAGES
    assert min(gaps(asked)) >= (least if "rate" not in str(settings) else least / 2.0) - EARLY
    if "rate" in str(settings):  # what is late may be made up for, by one interval
        assert max(sum(at <= other < at + 2.0 for other in asked) for at in asked) <= 6


@cases()
@pytest.mark.parametrize("sliding", [False, True])
def test_each_is_charged_to_the_quota(how: str, where: str, slow: float, sliding: bool) -> None:
    user_code = UserCode(how, where, slow)
    limits = {"delay": 0.0, "delay_per_slot": 0.0, "concurrency": 8, "quota": 3, "window": 20.0, "sliding": sliding}
    sim, asked = crawled(user_code, scopes={A: limits})
    assert sim.reason == "finished"
    assert len(user_code.asked) >= PAGES
    if sliding:
        assert min(later - earlier for earlier, later in zip(asked, asked[3:], strict=False)) >= 20.0 - EARLY
    else:
        while asked:  # a window begins with the first that costs
            assert sum(at < asked[0] + 20.0 - EARLY for at in asked) <= 3
            asked = [at for at in asked if at >= asked[0] + 20.0 - EARLY]


@cases("responds")
def test_each_response_is_a_page_of_the_budget(how: str, where: str, slow: float) -> None:
    user_code = UserCode(how, where, slow)
    sim, _ = crawled(user_code, scopes={A: {"pages": 4}}, **FREE)
    assert sim.reason == "finished"
    assert len(user_code.asked) == 4
    assert len([item for item in sim.items if A in item["url"]]) == 4


@cases("responds")
def test_a_429_of_user_code_is_obeyed_and_sent_again(how: str, where: str, slow: float) -> None:
    user_code = UserCode(how, where, slow, [200, 200, 429], {"Retry-After": "30"})
    sim, _ = crawled(user_code, **FREE)
    at = user_code.asked[2]
    assert not [other for other in user_code.asked if at + slow < other < at + 30.0 - EARLY]
    assert len(sim.items) == PAGES
    assert len(user_code.asked) == PAGES + 1


@cases("responds")
def test_refusals_of_user_code_back_off(how: str, where: str, slow: float) -> None:
    user_code = UserCode(how, where, slow, [429] * 5)
    sim, _ = crawled(user_code, scopes={A: {"concurrency": 1, "delay": 1.0, "delay_per_slot": 0.0}})
    assert len(sim.items) == PAGES
    steps = gaps(user_code.asked[:6])
    assert all(gap >= least - EARLY for gap, least in zip(steps, (2.0, 4.0, 8.0, 16.0, 32.0), strict=True))


@cases("fails")
def test_a_failure_as_of_the_network_is_tried_again_and_no_more_often_than_one_of_the_wire(
    how: str, where: str, slow: float
) -> None:
    user_code = UserCode(how, where, slow)
    sim, _ = crawled(user_code, RETRY_TIMES=2)
    assert len(user_code.asked) == 3 * PAGES
    assert sim.stats["retry_max_reached"] == PAGES


@pytest.mark.parametrize("slow", [0.0, 3.0])
@pytest.mark.parametrize("how", [how for how in HOWS if how != "responds"])
def test_a_robots_txt_that_user_code_fails_for_is_asked_for_as_one_that_can_not_be_read(how: str, slow: float) -> None:
    user_code = UserCode(how, ROBOTS, slow)
    sim, asked = crawled(user_code)
    assert sim.reason == "finished"
    assert not sim.times(A)
    assert len(asked) <= 12
    assert [gap - least >= -EARLY for gap, least in zip(gaps(asked), (10.0, 20.0, 40.0), strict=False)] == [True] * 3
    assert sim.stats["robots_forbidden"] == PAGES
    assert 900.0 <= sim.elapsed < 1000.0


def test_a_robots_txt_that_user_code_responds_is_obeyed_and_counts_as_a_send() -> None:
    user_code = UserCode("responds", ROBOTS, 0.0)
    sim, asked = crawled(user_code)
    assert len(sim.items) == PAGES
    assert min(gaps(asked)) >= 1.0 - EARLY


@pytest.mark.parametrize("order", [450, 543, 590, 650, 900])
@pytest.mark.parametrize(
    ("status", "fields", "body"),
    [
        (302, {"Location": f"http://{B}/to"}, b""),
        (200, {"Refresh": f"0; url=http://{B}/to"}, b""),
        (200, {}, f'<meta http-equiv="refresh" content="0; url=http://{B}/to">'.encode()),
        (503, {}, b""),
    ],
)
def test_what_acts_on_responses_of_the_wire_acts_on_those_of_user_code(
    order: int, status: int, fields: dict[str, str], body: bytes
) -> None:
    """As in Scrapy, where a response of ``process_request`` goes through each ``process_response``."""

    class Own:
        asked = 0

        def process_request(self, request: trawl.Request, spider: object) -> trawl.Response | None:
            if A not in request.url:
                return None
            self.asked += 1
            if self.asked > 1:
                return HtmlResponse(request.url, 200, {}, b"again")
            return HtmlResponse(request.url, status, fields, body)

    sent: list[str] = []

    def answer(request: trawl.Request) -> SimulatedResponse:
        sent.append(request.url)
        return SimulatedResponse()

    web = SimulatedWeb()
    web.add_host(B, handler=answer)
    settings = {"ROBOTSTXT_OBEY": False, "RETRY_TIMES": 2, "DOWNLOADER_MIDDLEWARES": {Own: order}}
    sim = crawl(web, [f"http://{A}/own"], settings)
    assert [item["url"] for item in sim.items] == [f"http://{A}/own" if status == 503 else f"http://{B}/to"]
    assert len(sent) == (status != 503)


@pytest.mark.parametrize("order", [450, 543, 650, 900])
def test_a_cookie_that_user_code_responds_is_sent_from_then_on(order: int) -> None:
    class Own:
        def process_request(self, request: trawl.Request, spider: object) -> trawl.Response | None:
            if "login" not in request.url:
                return None
            return HtmlResponse(request.url, 302, {"Location": "/in", "Set-Cookie": "seen=1"})

    got: list[str | None] = []

    def answer(request: trawl.Request) -> SimulatedResponse:
        got.append(request.headers.get("Cookie"))
        return SimulatedResponse()

    settings = {"ROBOTSTXT_OBEY": False, "DOWNLOADER_MIDDLEWARES": {Own: order}}
    sim = crawl(web_of(handler=answer), [f"http://{A}/login"], settings)
    assert [item["url"] for item in sim.items] == [f"http://{A}/in"]
    assert got == ["seen=1"]


def test_what_fetches_from_an_archive_instead_asks_that_no_faster_than_it_may() -> None:
    """A robots.txt that fails for it is not asked for again and again, nor is the archive."""

    class Pages(trawl.Spider):
        name = "pages"
        start_urls = tuple(f"http://{A}/{number}" for number in range(PAGES))
        running: trawl.Spider

        async def start(self) -> AsyncGenerator[Any, None]:
            Pages.running = self
            async for request in super().start():
                yield request

        def parse(self, response: trawl.Response, **kwargs: Any) -> Any:
            return {"url": response.url}

    class FromArchive:
        async def process_request(self, request: trawl.Request, spider: object) -> trawl.Response | None:
            if A not in request.url:
                return None
            found = await Pages.running.fetch(trawl.Request(f"http://{B}/{request.url.rpartition('/')[2]}"))
            if found.url.endswith("robots.txt"):
                raise KeyError("what the archive has not")
            return HtmlResponse(request.url, body=found.body, encoding="utf-8")

    web = SimulatedWeb()
    web.add_host(A)
    web.add_host(B, robots="")
    settings = {**EXACT, "ROBOTSTXT_OBEY": True, "DOWNLOADER_MIDDLEWARES": {FromArchive: 543}}
    sim = simulate(Pages, web, settings, errors="collect")
    assert sim.stats["robots_forbidden"] == PAGES
    assert len(sim.times(B)) <= 13
    sim = simulate(Pages, web, {**settings, "ROBOTSTXT_OBEY": False}, errors="collect")
    assert len(sim.items) == PAGES
    assert not sim.times(A)
    assert min(sim.gaps(B)) >= 1.0 - EARLY


@pytest.mark.parametrize("concurrency", [1, 3])
def test_no_more_of_a_scope_are_with_user_code_at_once_than_may_be_on_the_wire(concurrency: int) -> None:
    at_once = [0]

    class Browser:
        async def process_request(self, request: trawl.Request, spider: object) -> trawl.Response:
            at_once.append(at_once[-1] + 1)
            await trio.sleep(2.0)
            at_once.append(at_once[-1] - 1)
            return HtmlResponse(request.url, body=b"<p>here</p>", encoding="utf-8")

    limits = {A: {"delay": 0.0, "delay_per_slot": 0.0, "concurrency": concurrency}}
    settings = {**EXACT, "THROTTLING_SCOPES": limits, "DOWNLOADER_MIDDLEWARES": {Browser: 543}}
    sim = crawl(web_of(), pages(12), settings)
    assert len(sim.items) == 12
    assert max(at_once) == concurrency
    assert sim.elapsed <= 24.0 / concurrency + EARLY


@pytest.mark.parametrize("lets_through", [0, 1, 3])
@pytest.mark.parametrize("slow", [0.0, 3.0])
@pytest.mark.parametrize(
    "limits",
    [
        {"delay": 1.0, "concurrency": 4},
        {"delay": 0.0, "delay_per_slot": 1.0, "concurrency": 3},
        {"delay": 0.0, "concurrency": 2},
        {"delay": 0.0, "concurrency": 8, "quota": 4, "window": 20.0},
        {"delay": 0.0, "concurrency": 8, "pages": 9},
    ],
)
def test_the_first_response_of_a_function_that_awaited_nothing_before_is_no_request_too_many(
    limits: dict[str, Any], slow: float, lets_through: int
) -> None:
    # A22
    draws = random.Random(f"{limits}{slow}{lets_through}")
    spans: list[tuple[float, float]] = []

    def own(fetch: Fetch) -> Fetch:
        async def send(request: trawl.Request) -> Outcome:
            if A not in request.url or len(spans) < lets_through:
                outcome = await fetch(request)
                if A in request.url and outcome.sent_at is not None:
                    spans.append((outcome.sent_at - START, outcome.ended_at - START))
                return outcome
            number = len(spans)
            spans.append((trio.current_time() - START, inf))
            await trio.sleep(draws.uniform(0.0, slow))
            spans[number] = (spans[number][0], trio.current_time() - START)
            return Outcome(request, response=HtmlResponse(request.url, body=b"<p>here</p>", request=request))

        return send

    class Pages(trawl.Spider):
        name = "pages"

        async def start(self) -> AsyncGenerator[Any, None]:
            for number in range(PAGES):
                yield trawl.Request(f"http://{B}/{number}")
                yield trawl.Request(f"http://{A}/{number}")

        async def parse(self, response: trawl.Response) -> AsyncGenerator[Any, None]:
            if B in response.url:
                await self.fetch(trawl.Request(f"http://{A}/direct{response.url[-1]}"))
            yield {"url": response.url}

    free = {"delay": 0.0, "delay_per_slot": 0.0, "concurrency": 8}
    settings = {**EXACT, "THROTTLING_SCOPES": {A: {"delay_per_slot": 0.0, **limits}, B: free}}
    web = web_of(A, B, latency=0.2)
    sim = simulate(Pages, web, {**settings, "DOWNLOADER_MIDDLEWARES": {own: 560}}, errors="collect")
    assert sim.reason == "finished"
    assert len(spans) == limits.get("pages", 2 * PAGES)
    asked = sorted(began for began, _ in spans)
    apart = limits.get("concurrency", 1) if "delay_per_slot" in limits else 1
    least = limits.get("delay_per_slot", limits["delay"])
    assert all(later - earlier >= least - EARLY for earlier, later in zip(asked, asked[apart:], strict=False))
    for at in asked:
        assert sum(began <= at + EARLY < ended for began, ended in spans) <= limits["concurrency"]
    while asked and "quota" in limits:  # a window begins with the first that costs
        assert sum(at < asked[0] + 20.0 - EARLY for at in asked) <= limits["quota"]
        asked = [at for at in asked if at >= asked[0] + 20.0 - EARLY]
