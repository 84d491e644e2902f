"""A middleware, or a callback, that fetches under a lock, beside its send or after it: nothing waits for ever."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import pytest
import trio

import trawl
from tests.promises.pacing import A, B, pages, web_of
from tests.promises.test_middleware_before_places import EARLY, NO_DELAY
from trawl.exceptions import IgnoreRequest
from trawl.http import Fetch, Outcome
from trawl.testing import SimulatedResponse, simulate


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
    class Pages(trawl.Spider):
        name = "pages"
        running: trawl.Spider

        async def start(self) -> AsyncGenerator[trawl.Request, None]:
            Pages.running = self
            for url in pages(20):
                yield trawl.Request(url)

        def parse(self, response: trawl.Response) -> Any:
            yield {"url": response.url}

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

    class Pages(trawl.Spider):
        name = "pages"
        running: trawl.Spider

        async def start(self) -> AsyncGenerator[trawl.Request, None]:
            Pages.running = self
            yield trawl.Request(f"http://{A}/moved")

        def parse(self, response: trawl.Response) -> Any:
            yield {"url": response.url}

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
