"""A middleware, or a callback, that fetches under a lock, beside its send or after it: nothing waits for ever."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import pytest
import trio

import trawl
from tests.promises.pacing import A, B, pages, running_spider, web_of
from tests.promises.test_middleware_before_places import EARLY, NO_DELAY
from trawl.exceptions import IgnoreRequest
from trawl.http import Fetch, Middleware, Outcome, Replace
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate


@pytest.mark.parametrize("takes", [0.0, 1.0])
@pytest.mark.parametrize("status", [200, 503, 302])
@pytest.mark.parametrize("fetches_in", ["before", "after", "around", "callback"])
@pytest.mark.parametrize(
    "limits",
    [
        {},
        {**NO_DELAY, "concurrency": 1},
        {"delay": 0.0, "delay_per_slot": 1.0, "concurrency": 2},
        {"quota": 4, "window": 10.0},
    ],
)
def test_whoever_holds_the_lock_that_middleware_waits_for_may_fetch(
    limits: dict[str, Any], fetches_in: str, status: int, takes: float
) -> None:
    lock, failed, count = trio.Lock(), set[str](), Counter[str]()

    class Pages(trawl.Spider):
        name = "pages"
        running: trawl.Spider

        async def start(self) -> AsyncGenerator[trawl.Request, None]:
            Pages.running = self
            for url in pages(12):
                yield trawl.Request(url)

        async def log_in(self) -> None:
            count["pages"] += 1
            if count["pages"] % 4 == 1:
                await self.fetch(trawl.Request(f"http://{A}/login?{count['pages']}"))

        async def parse(self, response: trawl.Response) -> AsyncGenerator[Any, None]:
            if fetches_in == "callback":
                async with lock:
                    await self.log_in()
            yield {"url": response.url}

    def middleware(fetch: Fetch) -> Fetch:
        async def send(request: trawl.Request) -> Outcome:
            if "login" in request.url:
                return await fetch(request)
            await trio.sleep(takes)
            running: Any = Pages.running
            async with lock:
                if fetches_in in {"before", "around"}:
                    await running.log_in()
                if fetches_in == "around":
                    return await fetch(request)
            outcome = await fetch(request)
            if fetches_in == "after":
                async with lock:
                    await running.log_in()
            return outcome

        return send

    def answer(request: trawl.Request) -> SimulatedResponse:
        if "login?" not in request.url or request.url in failed:
            return SimulatedResponse()
        failed.add(request.url)
        return SimulatedResponse(status, headers={"Location": request.url.replace("?", "/")})

    settings: dict[str, Any] = {
        "ROBOTSTXT_OBEY": False,
        "THROTTLING_SCOPES": {A: limits},
        "DOWNLOADER_MIDDLEWARES": {middleware: 560},
        "CLOSESPIDER_TIMEOUT": 1_000,
    }
    sim = simulate(Pages, web_of(latency=0.2, handler=answer), settings=settings)
    assert sim.reason == "finished"
    assert len(sim.items) == 12
    answered = [send for send in sim.sends if send.status == 200]
    assert len(answered) == 12 + (count["pages"] + 3) // 4  # what a refusal sends back passes it again
    assert sim.most_in_flight(A) <= limits.get("concurrency", 1)
    if not limits:
        assert min(sim.gaps(A)) >= 0.5 - EARLY


@pytest.mark.parametrize("where", [A, B])
@pytest.mark.parametrize("later", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("is_free", [True, False])
@pytest.mark.parametrize("number", [1, 5])
@pytest.mark.parametrize(
    ("limit", "reason"), [("CLOSESPIDER_PAGECOUNT", "closespider_pagecount"), ("PAGES_PER_DOMAIN", "finished")]
)
def test_a_fetch_beside_the_last_send_of_a_limit_of_pages_does_not_wait_for_ever(
    limit: str, reason: str, number: int, is_free: bool, later: float, where: str
) -> None:
    Pages = running_spider(pages(20))

    def middleware(fetch: Fetch) -> Fetch:
        async def beside(request: trawl.Request) -> None:
            await trio.sleep(later)
            with suppress(IgnoreRequest):
                await Pages.running.fetch(trawl.Request(f"http://{where}/beside?{request.url[-2:]}"))

        async def send(request: trawl.Request) -> Outcome:
            if "beside" in request.url:
                return await fetch(request)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(beside, request)
                return await fetch(request)

        return send

    free = {"DOWNLOAD_DELAY": 0, "DOWNLOAD_DELAY_PER_SLOT": 0, "CONCURRENT_REQUESTS_PER_DOMAIN": 4}
    settings = {
        "ROBOTSTXT_OBEY": False,
        "DOWNLOADER_MIDDLEWARES": {middleware: 560},
        "CLOSESPIDER_TIMEOUT": 500,
        limit: number,
        **(free if is_free else {}),
    }
    sim = simulate(Pages, web_of(A, B, latency=0.2), settings=settings)
    assert sim.reason == reason
    assert len([send for send in sim.sends if limit == "CLOSESPIDER_PAGECOUNT" or send.host == A]) == number
    assert sim.elapsed < 30.0


def test_a_redirect_whose_middleware_fetches_a_page_of_another_host_is_no_page_of_its_own() -> None:
    """Also where its budget has none left beside it."""

    Pages = running_spider([f"http://{A}/moved"])

    def middleware(fetch: Fetch) -> Fetch:
        async def send(request: trawl.Request) -> Outcome:
            outcome = await fetch(request)
            if "moved" in request.url:
                await Pages.running.fetch(trawl.Request(f"http://{B}/after"))
            return outcome

        return send

    def answer(request: trawl.Request) -> SimulatedResponse:
        return SimulatedResponse(302, headers={"Location": "/here"}) if "moved" in request.url else SimulatedResponse()

    settings = {"ROBOTSTXT_OBEY": False, "DOWNLOADER_MIDDLEWARES": {middleware: 560}, "PAGES_PER_DOMAIN": 1}
    sim = simulate(Pages, web_of(A, B, latency=0.2, handler=answer), settings=settings)
    assert sim.items == [{"url": f"http://{A}/here"}]


def under_a_lock(*, again: bool = False) -> tuple[type[trawl.Spider], Middleware]:
    """A spider, and a middleware that fetches a token under a lock before the first page, or at a 401."""

    Pages = running_spider(pages(12))

    def middleware(fetch: Fetch) -> Fetch:
        lock, has_token = trio.Lock(), False

        async def token() -> None:
            nonlocal has_token
            async with lock:
                if not has_token:
                    response = await Pages.running.fetch(trawl.Request(f"http://{A}/login"))
                    has_token = response.status == 200

        async def send(request: trawl.Request) -> Outcome:
            if "login" in request.url:
                return await fetch(request)
            if not again:
                await token()
            else:
                async with lock:  # a new one is on its way
                    pass
            outcome = await fetch(request)
            if outcome.response is not None and outcome.response.status == 401:
                await token()
                outcome.then = Replace(request, reason="logged_in")
            return outcome

        return send

    return Pages, middleware


@pytest.mark.parametrize("jitter", [False, True])
@pytest.mark.parametrize(
    "limits",
    [{}, {"delay": 1.0, "delay_per_slot": 0.0}, {**NO_DELAY, "concurrency": 1}, {**NO_DELAY, "concurrency": 3}],
)
def test_a_token_that_comes_at_the_second_try_is_waited_for_by_all(limits: dict[str, Any], jitter: bool) -> None:
    """Between the two tries the host is open, and other pages begin, which wait at the lock."""
    spider, middleware = under_a_lock()
    tries = 0

    def answer(request: trawl.Request) -> SimulatedResponse:
        nonlocal tries
        tries += "login" in request.url
        return SimulatedResponse(status=500 if "login" in request.url and tries == 1 else 200)

    web = SimulatedWeb()
    web.add_host(A, handler=answer, latency=0.2)
    settings: dict[str, Any] = {
        "ROBOTSTXT_OBEY": False,
        "RANDOMIZE_DOWNLOAD_DELAY": jitter,
        "THROTTLING_SCOPES": {A: limits},
        "DOWNLOADER_MIDDLEWARES": {middleware: 560},
        "CLOSESPIDER_TIMEOUT": 500,
    }
    sim = simulate(spider, web, settings=settings)
    assert sim.reason == "finished"
    assert len(sim.items) == 12
    assert tries == 2


@pytest.mark.parametrize("limits", [{}, {"delay": 1.0, "delay_per_slot": 0.0}, {**NO_DELAY, "concurrency": 1}])
def test_a_token_may_be_fetched_under_a_lock_when_a_page_was_refused(limits: dict[str, Any]) -> None:
    """By then the page has been sent, and others wait at the lock before their send."""
    spider, middleware = under_a_lock(again=True)
    logged_in = False

    def answer(request: trawl.Request) -> SimulatedResponse:
        nonlocal logged_in
        logged_in |= "login" in request.url
        return SimulatedResponse(status=200 if logged_in else 401)

    web = SimulatedWeb()
    web.add_host(A, handler=answer, latency=0.2)
    settings: dict[str, Any] = {
        "ROBOTSTXT_OBEY": False,
        "THROTTLING_SCOPES": {A: limits},
        "DOWNLOADER_MIDDLEWARES": {middleware: 560},
        "CLOSESPIDER_TIMEOUT": 500,
    }
    sim = simulate(spider, web, settings=settings)
    assert sim.reason == "finished"
    assert len(sim.items) == 12


@pytest.mark.parametrize("room", [1, 2])
def test_a_token_for_a_refused_page_does_not_wait_for_callbacks_that_fetch(room: int) -> None:
    """What these fetch waits at the lock, and takes all the room."""
    spider, middleware = under_a_lock(again=True)
    asked: Counter[str] = Counter()

    async def parse(spider: trawl.Spider, response: trawl.Response) -> AsyncGenerator[Any, None]:
        await spider.fetch(trawl.Request(f"http://{B}/{response.url[-1:]}"))
        yield {"url": response.url}

    def answer(request: trawl.Request) -> SimulatedResponse:
        kind = "login" if "login" in request.url else "page" if A in request.url else "other"
        asked[kind] += 1
        return SimulatedResponse(status=401 if kind == "page" and asked["page"] > 3 and not asked["login"] else 200)

    spider.parse = parse  # type: ignore[assignment, method-assign]
    web = SimulatedWeb()
    for host in (A, B):
        web.add_host(host, handler=answer, latency=0.2)
    settings: dict[str, Any] = {
        "ROBOTSTXT_OBEY": False,
        "DIRECT_FETCHES_LIMIT": room,
        "THROTTLING_SCOPES": {A: {**NO_DELAY, "concurrency": 3}},
        "DOWNLOADER_MIDDLEWARES": {middleware: 560},
        "CLOSESPIDER_TIMEOUT": 500,
    }
    sim = simulate(spider, web, settings=settings)
    assert sim.reason == "finished"
    assert (asked["login"], len(sim.items)) == (1, 12)
