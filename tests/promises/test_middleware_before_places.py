"""What a middleware awaits before the send is awaited before the request has places, and holds nothing."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import trawl
from tests.promises.pacing import EXACT, SPACED, A, B, crawl, pages, running_spider, web_of
from trawl.http import Drop, Fetch, Middleware, Outcome, Replace
from trawl.testing import SimulatedResponse, SimulatedWeb, Simulation, simulate
from trawl.throttling import ThrottlingManager

EARLY = 1e-9
NO_DELAY: dict[str, Any] = {"delay": 0.0, "delay_per_slot": 0.0}


def awaiting(seconds: Callable[[str], float]) -> Middleware:
    """A middleware that awaits so long before the send, by the URL."""

    def middleware(fetch: Fetch) -> Fetch:
        async def send(request: trawl.Request) -> Outcome:
            await trio.sleep(seconds(request.url))
            return await fetch(request)

        return send

    return middleware


def drawn(least: float, most: float) -> Middleware:
    draws = random.Random(2)
    return awaiting(lambda url: draws.uniform(least, most))


def with_login(address: str) -> tuple[type[trawl.Spider], Middleware]:
    """A spider, and a middleware of it that asks for a page of its own before each one."""

    Pages = running_spider(pages(20))

    def middleware(fetch: Fetch) -> Fetch:
        async def send(request: trawl.Request) -> Outcome:
            if "login" not in request.url:
                await Pages.running.fetch(trawl.Request(f"{address}?{request.url[-2:]}"))
            return await fetch(request)

        return send

    return Pages, middleware


def test_a_request_in_its_middleware_keeps_no_other_from_the_one_slot() -> None:
    slow = awaiting(lambda url: 10.0 if url.endswith("/5") else 0.1)
    limits = {A: {**NO_DELAY, "concurrency": 1}}
    sim = crawl(
        web_of(latency=0.2), pages(30), {**SPACED, "THROTTLING_SCOPES": limits, "DOWNLOADER_MIDDLEWARES": {slow: 560}}
    )
    assert [send.url[-2:] for send in sim.sends[-1:]] == ["/5"]
    assert sim.most_in_flight(A) == 1
    assert sim.elapsed < 12.0


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"delay": 0.0, "delay_per_slot": 1.0, "concurrency": 4},
        {"delay": 0.3, "delay_per_slot": 1.0, "concurrency": 4},
    ],
)
def test_what_a_middleware_awaits_does_not_come_on_top_of_a_delay_per_slot(limits: dict[str, Any]) -> None:
    settings = {**EXACT, "THROTTLING_SCOPES": {A: limits}}
    web = web_of(latency=0.2)
    plain = crawl(web, pages(60), settings)
    sim = crawl(web, pages(60), {**settings, "DOWNLOADER_MIDDLEWARES": {awaiting(lambda url: 3.0): 560}})
    assert sim.times(A)[-1] - sim.times(A)[20] <= 1.02 * (plain.times(A)[-1] - plain.times(A)[20])
    assert sim.most_in_flight(A) <= plain.most_in_flight(A)


def test_requests_that_wait_for_a_closed_scope_keep_no_quota_of_another_from_its_pages() -> None:
    both = [trawl.Request(f"http://{A}/both{number}", meta={"throttling_scopes": [A, "proxy"]}) for number in range(6)]
    settings = {
        **EXACT,
        "THROTTLING_SCOPES": {
            A: {**NO_DELAY, "concurrency": 8, "quota": 4, "window": 10.0},
            "proxy": {"concurrency": 1},
        },
        "DOWNLOADER_MIDDLEWARES": {awaiting(lambda url: 0.1): 560},
    }
    web = web_of(latency=lambda request: 60.0 if "both" in request.url else 0.2)
    sim = crawl(web, [*both, *pages(20)], settings)
    own = [send.time for send in sim.sends if "both" not in send.url]
    assert len(own) == 20
    assert own[-1] <= 130.0  # two or three in each window, but for those that a claim keeps for the others


@pytest.mark.parametrize("limits", [{**NO_DELAY, "concurrency": 8}, {"rate": 8}])
@pytest.mark.parametrize("awaits", [0.0, 0.1])
def test_a_request_that_waits_for_a_busy_scope_keeps_no_page_from_the_other_of_its_scopes(
    awaits: float, limits: dict[str, Any]
) -> None:
    requests: list[str | trawl.Request] = []
    for number in range(0, 210, 7):
        both = trawl.Request(f"http://{A}/both{number}", meta={"throttling_scopes": [A, "proxy"]})
        requests += [both, *pages(7, A, number)]
    settings = {
        **EXACT,
        "THROTTLING_SCOPES": {A: limits, "proxy": {"concurrency": 1}},
        "DOWNLOADER_MIDDLEWARES": {awaiting(lambda url: awaits): 560},
    }
    sim = crawl(web_of(latency=1.0), requests, settings)
    assert len(sim.sends) == 240
    assert sim.elapsed <= 34.0  # 30 through the proxy, one a second; with seven of the others beside each


def test_fetches_that_wait_for_the_instant_of_their_host_keep_no_page_of_another_from_its_middleware() -> None:
    async def parse(spider: trawl.Spider, response: trawl.Response) -> AsyncGenerator[Any, None]:
        if "from" in response.url:
            await spider.fetch(trawl.Request(f"http://{B}/{response.url[-2:]}"))
        yield {"url": response.url}

    settings = {
        **SPACED,
        "CONCURRENT_REQUESTS": 4,
        "THROTTLING_SCOPES": {A: {**NO_DELAY, "concurrency": 2}, B: {"delay": 20.0}},
        "DOWNLOADER_MIDDLEWARES": {awaiting(lambda url: 0.1): 560},
    }
    fetching = [f"http://{A}/from{number:02}" for number in range(10)]
    sim = crawl(web_of(A, B, latency=0.2), [*fetching, *pages(90)], settings, parse=parse)
    assert len(sim.items) == 100
    assert sim.times(A)[-1] <= 11.0  # ten a second; those of the other host take 180 s


@pytest.mark.parametrize("sliding", [False, True])
@pytest.mark.parametrize("limits", [{**NO_DELAY, "concurrency": 16}, {"delay": 0.5, "concurrency": 1}, {}])
@pytest.mark.parametrize("least", [0.5, 3.0])
def test_what_a_middleware_awaits_does_not_come_on_top_of_a_quotas_window(
    least: float, limits: dict[str, Any], sliding: bool
) -> None:
    began: Counter[str] = Counter()
    draws = random.Random(2)

    def seconds(url: str) -> float:
        began[url] += 1
        return draws.uniform(least, 3.0)

    quota = {"quota": 10, "window": 10.0, "sliding": sliding}
    settings = {**SPACED, "THROTTLING_SCOPES": {A: {**limits, **quota}}}
    web = web_of(latency=0.2)
    plain = crawl(web, pages(100), settings)
    sim = crawl(web, pages(100), {**settings, "DOWNLOADER_MIDDLEWARES": {awaiting(seconds): 560}})
    times = sim.times(A)
    assert len(times) == 100
    # The first ones know of no lead yet.
    assert times[-1] - times[10] <= 1.05 * (plain.times(A)[-1] - plain.times(A)[10])
    if sliding:
        assert min(after - before for before, after in zip(times, times[10:], strict=False)) >= 10.0 - EARLY
    else:
        ends_at = -1.0
        for number, at in enumerate(times):
            if at >= ends_at - EARLY:
                ends_at, first = at + 10.0, number
            assert number - first < 10
    assert max(began.values()) == 1  # none began so early that it had to go back


@pytest.mark.parametrize("where", [A, B])
@pytest.mark.parametrize(
    "limits",
    [
        {},
        {**NO_DELAY, "concurrency": 1},
        {"delay": 0.5, "delay_per_slot": 0.0, "concurrency": 4},
        {"delay": 0.0, "delay_per_slot": 1.0, "concurrency": 2},
        {"quota": 4, "window": 10.0},
        {"rate": 2, "rampup": True},
    ],
)
def test_a_middleware_may_fetch_a_page_of_the_host_that_its_request_is_for(where: str, limits: dict[str, Any]) -> None:
    spider, middleware = with_login(f"http://{where}/login")
    settings: dict[str, Any] = {  # jitter on, as it is by default
        "ROBOTSTXT_OBEY": False,
        "THROTTLING_SCOPES": {A: limits},
        "DOWNLOADER_MIDDLEWARES": {middleware: 560},
        "CLOSESPIDER_TIMEOUT": 2_000,
    }
    sim = simulate(spider, web_of(A, B, latency=0.2), settings=settings)
    assert sim.reason == "finished"
    assert len(sim.sends) == 40
    assert len(sim.items) == 20
    if not limits:
        assert min(sim.gaps(A)) >= 0.5 - EARLY
        assert sim.most_in_flight(A) == 1


@pytest.mark.parametrize(
    "limits",
    [
        {"delay": 10.0},
        {"delay": 0.0, "delay_per_slot": 10.0},
        {"quota": 1, "window": 10.0},
        {"quota": 1, "window": 10.0, "sliding": True},
    ],
)
def test_the_page_that_a_middleware_fetches_is_fetched_once_however_long_its_request_waits_then(
    limits: dict[str, Any],
) -> None:
    spider, middleware = with_login(f"http://{A}/login")
    settings: dict[str, Any] = {
        "ROBOTSTXT_OBEY": False,
        "THROTTLING_SCOPES": {A: limits},
        "DOWNLOADER_MIDDLEWARES": {middleware: 560},
        "CLOSESPIDER_TIMEOUT": 2_000,
    }
    sim = simulate(spider, web_of(latency=0.2), settings=settings)
    assert sim.reason == "finished"
    assert len(sim.sends) == 40


@pytest.mark.parametrize("concurrency", [1, 2, 3])
def test_a_request_whose_middleware_fetches_does_not_wait_for_those_behind_it(concurrency: int) -> None:
    """They wait for it, where as many are being prepared as may be."""

    Pages = running_spider(pages(30))

    def middleware(fetch: Fetch) -> Fetch:
        async def send(request: trawl.Request) -> Outcome:
            if "login" not in request.url:
                number = int(request.url.rpartition("/")[2])
                if number and number % 3 == 0:
                    await Pages.running.fetch(trawl.Request(f"http://{A}/login?{number}"))
                else:
                    await trio.sleep(1.0)
            return await fetch(request)

        return send

    settings: dict[str, Any] = {
        "ROBOTSTXT_OBEY": False,
        "THROTTLING_SCOPES": {A: {**NO_DELAY, "concurrency": concurrency}},
        "DOWNLOADER_MIDDLEWARES": {middleware: 560},
        "CLOSESPIDER_TIMEOUT": 500,
    }
    sim = simulate(Pages, web_of(latency=0.2), settings=settings)
    assert sim.reason == "finished"
    assert len(sim.items) == 30


@pytest.mark.parametrize(("budget", "items"), [(1, 0), (5, 1), (39, 19), (40, 20)])
def test_a_page_that_a_middleware_fetches_and_its_request_keep_a_page_budget_together(budget: int, items: int) -> None:
    spider, middleware = with_login(f"http://{A}/login")
    settings: dict[str, Any] = {
        "ROBOTSTXT_OBEY": False,
        "PAGES_PER_DOMAIN": budget,
        "DOWNLOADER_MIDDLEWARES": {middleware: 560},
        "CLOSESPIDER_TIMEOUT": 500,
    }
    sim = simulate(spider, web_of(latency=0.2), settings=settings)
    assert sim.reason == "finished"
    assert len(sim.sends) == budget
    assert items <= len(sim.items) <= budget // 2  # those that several requests had begun with are pages as well


@pytest.mark.parametrize("places", [1, 2, 16])
@pytest.mark.parametrize("before", [0.0, 3.0])
@pytest.mark.parametrize("limits", [{}, {**NO_DELAY, "concurrency": 1}, {"rate": 2}])
def test_several_may_wait_for_one_token_whatever_they_have_taken(
    limits: dict[str, Any], before: float, places: int
) -> None:
    Pages = running_spider([f"http://{host}/{number}" for number in range(20) for host in (A, B)])

    lock, asked = trio.Lock(), Counter[str]()

    def middleware(fetch: Fetch) -> Fetch:
        async def send(request: trawl.Request) -> Outcome:
            await trio.sleep(before)
            if "token" not in request.url:
                async with lock:
                    if asked["pages"] % 7 == 0:  # it has expired
                        await Pages.running.fetch(trawl.Request(f"http://{B}/token?{asked['pages']}"))
                    asked["pages"] += 1
            return await fetch(request)

        return send

    settings: dict[str, Any] = {
        "ROBOTSTXT_OBEY": False,
        "CONCURRENT_REQUESTS": places,
        "THROTTLING_SCOPES": {A: limits, B: limits},
        "DOWNLOADER_MIDDLEWARES": {middleware: 560},
        "CLOSESPIDER_TIMEOUT": 1_000,
    }
    sim = simulate(Pages, web_of(A, B, latency=0.2), settings=settings)
    assert sim.reason == "finished"
    assert len(sim.items) == 40
    assert sim.most_in_flight() <= places


@pytest.mark.parametrize("room", [1, 2])
def test_callbacks_that_fetch_keep_no_middleware_from_it(room: int) -> None:
    async def parse(spider: trawl.Spider, response: trawl.Response) -> AsyncGenerator[Any, None]:
        await spider.fetch(trawl.Request(f"http://{A}/login?direct{response.url[-1:]}"))
        yield {"url": response.url}

    spider, middleware = with_login(f"http://{A}/login")
    settings: dict[str, Any] = {
        "ROBOTSTXT_OBEY": False,
        "DIRECT_FETCHES_LIMIT": room,
        "THROTTLING_SCOPES": {A: {**NO_DELAY, "concurrency": 1}},
        "DOWNLOADER_MIDDLEWARES": {middleware: 560},
        "CLOSESPIDER_TIMEOUT": 500,
    }
    spider.parse = parse  # type: ignore[assignment, method-assign]
    sim = simulate(spider, web_of(latency=0.2), settings=settings)
    assert sim.reason == "finished"
    assert len(sim.items) == 20


def test_no_more_requests_begin_than_there_are_places_while_their_middleware_fetches() -> None:
    spider, middleware = with_login(f"http://{A}/login")
    most: list[int] = []

    def counted(fetch: Fetch) -> Fetch:
        async def send(request: trawl.Request) -> Outcome:
            most.append(most[-1] + 1 if most else 1)
            try:
                return await middleware(fetch)(request)
            finally:
                most.append(most[-1] - 1)

        return send

    settings: dict[str, Any] = {
        "ROBOTSTXT_OBEY": False,
        "CONCURRENT_REQUESTS": 4,
        "THROTTLING_SCOPES": {A: {**NO_DELAY, "concurrency": 1}},
        "DOWNLOADER_MIDDLEWARES": {counted: 560},
    }
    sim = simulate(spider, web_of(latency=5.0), settings=settings)
    assert len(sim.items) == 20
    assert max(most) <= 9  # four, with a page that each of them fetches, and the one at the wire


@pytest.mark.parametrize("limits", [{}, {**NO_DELAY, "concurrency": 1}, {"quota": 1, "window": 5.0}])
def test_a_middleware_that_gives_its_send_up_holds_nothing_from_then_on(limits: dict[str, Any]) -> None:
    """Whether it waits for its places by then or for the answer; it fetches something else instead."""

    Pages = running_spider(pages(12))

    def middleware(fetch: Fetch) -> Fetch:
        async def send(request: trawl.Request) -> Outcome:
            await trio.sleep(0.1)
            if "instead" in request.url:
                return await fetch(request)
            with trio.move_on_after(0.3):
                return await fetch(request)
            await Pages.running.fetch(trawl.Request(f"http://{A}/instead?{request.url[-2:]}"))
            return Outcome(request, then=Drop("given_up"))

        return send

    settings: dict[str, Any] = {
        "ROBOTSTXT_OBEY": False,
        "THROTTLING_SCOPES": {A: limits},
        "DOWNLOADER_MIDDLEWARES": {middleware: 560},
        "CLOSESPIDER_TIMEOUT": 500,
    }
    web = web_of(latency=lambda request: 0.2 if "instead" in request.url else 0.4)
    sim = simulate(Pages, web, settings=settings)
    assert sim.reason == "finished"
    assert sim.stats["given_up"] == len([send for send in sim.sends if "instead" in send.url]) == 12
    assert sim.most_in_flight(A) == 1


@pytest.mark.parametrize("concurrency", [1, 8])
def test_a_request_whose_middleware_fetches_takes_no_more_of_a_rate_than_its_send(concurrency: int) -> None:
    spider, middleware = with_login(f"http://{A}/login")

    def slow(fetch: Fetch) -> Fetch:
        async def send(request: trawl.Request) -> Outcome:
            await trio.sleep(3.0)
            return await middleware(fetch)(request)

        return send

    limits = {"delay": 1.0, "delay_per_slot": 0.0, "concurrency": concurrency}
    settings: dict[str, Any] = {**SPACED, "THROTTLING_SCOPES": {A: limits}, "DOWNLOADER_MIDDLEWARES": {slow: 560}}
    sim = simulate(spider, web_of(latency=0.2), settings=settings)
    assert len(sim.sends) == 40
    assert min(sim.gaps(A)) >= 1.0 - EARLY
    assert sim.elapsed <= 52.0  # 40 of them are one a second; until the first has come to the wire, none begins early


@pytest.mark.parametrize("where", [A, B])
def test_a_middleware_may_fetch_a_page_before_robots_txt(where: str) -> None:
    spider, middleware = with_login(f"http://{where}/login")
    web = SimulatedWeb()
    for host in (A, B):
        web.add_host(host, latency=0.2, robots="User-agent: *\nDisallow: /1")
    sim = simulate(spider, web, settings={"DOWNLOADER_MIDDLEWARES": {middleware: 560}, "CLOSESPIDER_TIMEOUT": 2_000})
    assert sim.reason == "finished"
    assert len(sim.items) == 9  # /0 and /2 to /9
    assert min(sim.gaps(A)) >= 0.5 - EARLY


def test_a_manager_may_fetch_at_the_send_a_page_of_the_host_that_the_request_is_for() -> None:
    class Asks(ThrottlingManager):
        crawl: Any

        @classmethod
        def from_crawler(cls, crawl: Any) -> Any:
            manager = cls()
            manager.crawl = crawl
            return manager

        async def get_scopes(self, request: trawl.Request) -> Any:
            if request.url.endswith("/changed"):
                await self.crawl.fetch(trawl.Request(f"http://{A}/who"))
            return await super().get_scopes(request)

    def changes(fetch: Fetch) -> Fetch:
        async def send(request: trawl.Request) -> Outcome:
            return await fetch(request if "who" in request.url else request.replace(url=f"{request.url}/changed"))

        return send

    settings = {
        "ROBOTSTXT_OBEY": False,
        "THROTTLING_MANAGER": Asks,
        "DOWNLOADER_MIDDLEWARES": {changes: 560},
        "CLOSESPIDER_TIMEOUT": 500,
    }
    sim = crawl(web_of(latency=0.2), pages(10), settings)
    assert sim.reason == "finished"
    assert len(sim.sends) == 20
    assert sim.most_in_flight(A) == 1


@pytest.mark.parametrize("places", [1, 3, 16])
def test_the_number_of_pages_is_exact(places: int) -> None:
    settings = {
        **SPACED,
        "CONCURRENT_REQUESTS": places,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 4,
        "DOWNLOAD_DELAY": 0.1,
        "CLOSESPIDER_PAGECOUNT": 10,
        "DOWNLOADER_MIDDLEWARES": {drawn(0.0, 1.0): 560},
    }
    sim = crawl(web_of(latency=0.3), pages(50), settings)
    assert sim.reason == "closespider_pagecount"
    assert len(sim.sends) == 10


def test_what_is_prepared_when_the_crawl_ends_is_not_sent_and_stays_in_its_job(tmp_path: Path) -> None:
    def parse(spider: trawl.Spider, response: trawl.Response) -> Any:
        if response.url.endswith("/7"):
            raise trawl.CloseSpider("enough")

    settings = {
        **SPACED,
        "JOB_DIR": str(tmp_path),
        "THROTTLING_SCOPES": {A: {"rate": 2, "concurrency": 1}},
        "DOWNLOADER_MIDDLEWARES": {drawn(0.0, 3.0): 560},
    }
    first = crawl(web_of(latency=0.2), pages(20), settings, parse=parse)
    assert first.reason == "enough"
    ended_at = next(send.finished for send in first.sends if send.url.endswith("/7"))
    assert all(send.time <= ended_at for send in first.sends)
    assert first.elapsed <= ended_at + 3.0  # the longest that a middleware takes
    second = crawl(web_of(latency=0.2), pages(20), settings)
    assert Counter(send.url for send in (*first.sends, *second.sends)) == Counter(pages(20))


def test_nothing_that_is_prepared_goes_while_the_crawl_is_paused() -> None:
    paused: list[str] = []

    async def parse(spider: trawl.Spider, response: trawl.Response) -> Any:
        yield {"url": response.url}
        if not paused and response.url.endswith("/9"):
            paused.append(response.url)
            spider.crawl.pause()
            await trio.sleep(20.0)
            spider.crawl.pause(is_paused=False)

    settings = {**SPACED, "DOWNLOAD_DELAY": 0.5, "DOWNLOADER_MIDDLEWARES": {drawn(0.5, 2.0): 560}}
    sim = crawl(web_of(latency=0.2), pages(40), settings, parse=parse)
    assert len(sim.sends) == 40
    (ninth,) = [send for send in sim.sends if send.url.endswith("/9")]
    since = [send.time for send in sim.sends if send.time > ninth.finished]
    assert ninth.finished + 20.0 - EARLY <= since[0] <= ninth.finished + 20.5


def test_a_refusal_takes_back_what_is_prepared_and_its_middleware_runs_again() -> None:
    asked: list[str] = []
    began: Counter[str] = Counter()

    def answers(request: trawl.Request) -> SimulatedResponse:
        asked.append(request.url)
        return SimulatedResponse(429, headers={"Retry-After": "30"}) if len(asked) == 10 else SimulatedResponse()

    def seconds(url: str) -> float:
        began[url] += 1
        return 2.0

    settings = {**SPACED, "DOWNLOAD_DELAY": 1.0, "DOWNLOADER_MIDDLEWARES": {awaiting(seconds): 560}}
    sim = crawl(web_of(latency=0.2, handler=answers), pages(30), settings)
    (refused,) = [send for send in sim.sends if send.status == 429]
    following = [send.time for send in sim.sends if send.time > refused.time]
    assert following[0] >= refused.finished + 30.0
    assert sim.stats["response_status_count/200"] == 30
    assert 2 <= sum(count - 1 for count in began.values()) <= 5  # the refused one, and those that were on their way


def test_a_direct_fetch_that_is_given_up_while_it_waits_for_its_place_gives_everything_back() -> None:
    async def parse(spider: trawl.Spider, response: trawl.Response) -> AsyncGenerator[Any, None]:
        if response.url.endswith("/3"):
            with trio.move_on_after(1.0):
                await spider.fetch(trawl.Request(f"http://{B}/given-up"))
        yield {"url": response.url}

    def long_for_one(url: str) -> float:
        return 0.5 if B in url else 0.1

    web = web_of(latency=0.2)
    web.add_host(B, latency=lambda request: 30.0 if request.url.endswith("/long") else 0.1)
    limits = {B: {**NO_DELAY, "concurrency": 1}, A: {**NO_DELAY, "concurrency": 2}}
    settings = {
        **SPACED,
        "THROTTLING_SCOPES": limits,
        "DOWNLOADER_MIDDLEWARES": {awaiting(long_for_one): 560},
    }
    sim = crawl(web, [f"http://{B}/long", *pages(10), f"http://{B}/last"], settings, parse=parse)
    assert [send.url for send in sim.sends if send.host == B] == [f"http://{B}/long", f"http://{B}/last"]
    assert sim.most_in_flight(B) == 1
    assert len(sim.items) == 12


@pytest.mark.parametrize("seed", range(6))
def test_every_limit_is_kept_where_requests_of_several_scopes_are_prepared(seed: int) -> None:
    draws = random.Random(seed)
    hosts = [A, B, "c.example"]
    limits: dict[str, Any] = {
        A: {"delay": 0.3, "delay_per_slot": 0.0, "concurrency": 1},
        B: {**NO_DELAY, "concurrency": 3},
        "c.example": {"delay": 0.0, "delay_per_slot": 0.7, "concurrency": 2},
        "x": {"concurrency": 2},
        "y": {"delay": 0.1},
    }
    requests = []
    for number in range(150):
        host = draws.choice(hosts)
        others = [name for name in ("x", "y") if draws.random() < 0.4]
        requests.append(trawl.Request(f"http://{host}/{number}", meta={"throttling_scopes": [host, *others]}))
    settings = {
        **EXACT,
        "CONCURRENT_REQUESTS": draws.choice([2, 4, 16]),
        "THROTTLING_SCOPES": limits,
        "DOWNLOADER_MIDDLEWARES": {drawn(0.0, 2.0): 560},
    }
    web = web_of(*hosts, latency=lambda request: draws.uniform(0.05, 1.0), connect=0.1, keep_alive=0.5)
    sim: Simulation = crawl(web, requests, settings, seed)
    assert len(sim.sends) == 150
    assert sim.most_in_flight(A) == 1
    assert sim.most_in_flight(B) <= 3
    assert sim.most_in_flight("c.example") <= 2
    assert sim.most_in_flight("x") <= 2
    assert sim.most_in_flight() <= settings["CONCURRENT_REQUESTS"]
    assert min(sim.gaps(A)) >= 0.3 - EARLY
    assert min(sim.gaps("y")) >= 0.1 - EARLY


def test_a_request_of_several_scopes_gets_its_places_though_each_is_busy_all_the_time() -> None:
    both = trawl.Request(f"http://{A}/both", meta={"throttling_scopes": [A, B]})
    requests: list[str | trawl.Request] = [*pages(20), *pages(20, B), both]
    for number in range(20, 200):
        requests += [*pages(1, A, number), *pages(1, B, number)]
    limits = {A: {**NO_DELAY, "concurrency": 1}, B: {**NO_DELAY, "concurrency": 1}}
    settings = {**SPACED, "THROTTLING_SCOPES": limits, "DOWNLOADER_MIDDLEWARES": {awaiting(lambda url: 0.1): 560}}
    web = web_of(A, B, latency=lambda request: 0.2 if A in request.url else 0.33)
    sim = crawl(web, requests, settings)
    place = [send.url for send in sim.sends].index(f"http://{A}/both")
    assert place < 80


@pytest.mark.parametrize("where", [A, B])
@pytest.mark.parametrize(
    ("limit", "reason", "most"),
    [("CLOSESPIDER_PAGECOUNT", "closespider_pagecount", 5), ("PAGES_PER_DOMAIN", "finished", 10)],
)
def test_a_fetch_after_the_send_that_reached_a_limit_of_pages_does_not_wait_for_ever(
    where: str, limit: str, reason: str, most: int
) -> None:
    Pages = running_spider(pages(20))

    def middleware(fetch: Fetch) -> Fetch:
        async def send(request: trawl.Request) -> Outcome:
            outcome = await fetch(request)
            if "after" not in request.url:
                await Pages.running.fetch(trawl.Request(f"http://{where}/after?{request.url[-2:]}"))
            return outcome

        return send

    settings = {
        "ROBOTSTXT_OBEY": False,
        "DOWNLOADER_MIDDLEWARES": {middleware: 560},
        "CLOSESPIDER_TIMEOUT": 500,
        limit: 5,
    }
    sim = simulate(Pages, web_of(A, B, latency=0.2), settings=settings)
    assert sim.reason == reason
    assert len(sim.sends) == (most if where == B else 5)


def test_an_answer_that_is_no_page_after_all_does_not_count_for_the_last_one() -> None:
    """Both answers have come when the second is known to be a page; the first is still with its middleware."""

    def middleware(fetch: Fetch) -> Fetch:
        async def send(request: trawl.Request) -> Outcome:
            outcome = await fetch(request)
            if request.url == f"http://{A}/0":
                await trio.sleep(5.0)
                outcome.then = Replace(trawl.Request(f"http://{A}/moved"), reason="moved")
            return outcome

        return send

    settings = {**SPACED, "CLOSESPIDER_PAGECOUNT": 2, "DOWNLOADER_MIDDLEWARES": {middleware: 560}}
    sim = crawl(web_of(A, B, latency=0.2), [f"http://{A}/0", f"http://{B}/1", f"http://{B}/2"], settings)
    assert sim.reason == "closespider_pagecount"
    assert len(sim.items) == 2


def test_a_token_of_another_host_takes_nothing_off_the_page_budget() -> None:
    """The last answer of the budget is a 401, and its page is asked for again."""
    has_token = False

    def middleware(fetch: Fetch) -> Fetch:
        async def send(request: trawl.Request) -> Outcome:
            nonlocal has_token
            outcome = await fetch(request)
            if A in request.url and not has_token:
                await Pages.running.fetch(trawl.Request(f"http://{B}/login"))
                has_token = True
                outcome.then = Replace(request, reason="logged_in")
            return outcome

        return send

    Pages = running_spider([f"http://{A}/0"])

    settings: dict[str, Any] = {**SPACED, "PAGES_PER_DOMAIN": 1, "DOWNLOADER_MIDDLEWARES": {middleware: 560}}
    sim = simulate(Pages, web_of(A, B, latency=0.2), settings=settings)
    assert sim.reason == "finished"
    assert [item["url"] for item in sim.items] == [f"http://{A}/0"]


def test_a_page_whose_middleware_is_quick_after_slow_ones_waits_and_is_not_sent_back() -> None:
    """It begins as early as the others, and could begin again at once."""

    def middleware(fetch: Fetch) -> Fetch:
        async def send(request: trawl.Request) -> Outcome:
            begun.append(request.url)
            await trio.sleep(25.0 if len(begun) < 6 else 0.0)
            return await fetch(request)

        return send

    begun: list[str] = []
    limits = {"delay": 20.0, "delay_per_slot": 0.0, "concurrency": 4}
    settings = {**SPACED, "THROTTLING_SCOPES": {A: limits}, "DOWNLOADER_MIDDLEWARES": {middleware: 560}}
    sim = crawl(web_of(latency=0.2), pages(12), settings)
    assert len(begun) == len(sim.sends) == 12
    assert min(sim.gaps(A)) >= 20.0 - EARLY
    assert sim.elapsed <= 25.0 + 11 * 20.0 + 10.0


@pytest.mark.parametrize(
    ("settings", "limits", "awaits"),
    [
        ({"CONCURRENT_CALLBACKS": 2}, {**NO_DELAY, "concurrency": 8}, 5.0),
        ({"CONCURRENT_CALLBACKS": 2}, {**NO_DELAY, "concurrency": 3}, 5.0),
        ({}, {"delay": 2.0, "concurrency": 4}, 0.0),
        ({}, {"delay": 0.0, "delay_per_slot": 2.0, "concurrency": 2}, 0.0),
        ({}, {"quota": 4, "window": 10.0}, 0.0),
    ],
)
def test_whoever_waits_for_its_places_is_told_for_what(
    settings: dict[str, Any], limits: dict[str, Any], awaits: float
) -> None:
    waiting: dict[str, trawl.Request] = {}
    draws = random.Random(3)
    looks: list[tuple[int, int, int]] = []

    def middleware(fetch: Fetch) -> Fetch:
        async def send(request: trawl.Request) -> Outcome:
            await trio.sleep(draws.uniform(0.1, 3.0))
            waiting[request.url] = request
            return await fetch(request)

        return send

    def answer(request: trawl.Request) -> SimulatedResponse:
        del waiting[request.url]
        return SimulatedResponse()

    class Pages(trawl.Spider):
        name = "pages"

        async def start(self) -> AsyncGenerator[trawl.Request, None]:
            for number in range(30):
                both = {"throttling_scopes": [A, "proxy"]} if number % 3 == 0 else {}
                yield trawl.Request(f"http://{A}/{number}", meta=both)
            for _ in range(100):
                await trio.sleep(0.37)
                told = [self.crawl.why(request) for request in waiting.values()]
                looks.append((len(told), told.count(None), sum(group.count for group in self.crawl.waiting(100))))

        async def parse(self, response: trawl.Response) -> AsyncGenerator[Any, None]:
            await trio.sleep(awaits)
            yield {"url": response.url}

    given = {
        **SPACED,
        "THROTTLING_SCOPES": {A: limits, "proxy": {"concurrency": 1}},
        "DOWNLOADER_MIDDLEWARES": {middleware: 560},
        **settings,
    }
    sim = simulate(Pages, web_of(latency=0.4, handler=answer), settings=given)
    assert len(sim.items) == 30
    assert sum(told for told, _, _ in looks) > 10
    assert [look for look in looks if look[1]] == []
    assert [look for look in looks if look[2] < look[0]] == []


def test_one_that_comes_to_its_place_with_another_takes_it_a_delay_later() -> None:
    settings = {
        **SPACED,
        "CONCURRENT_REQUESTS": 4,
        "THROTTLING_SCOPES": {A: {"delay": 2.3, "concurrency": 8}, B: {**NO_DELAY, "concurrency": 8}},
        "DOWNLOADER_MIDDLEWARES": {awaiting(lambda url: 5.0 if A in url else 0.0): 560},
    }
    sim = crawl(web_of(A, B, latency=0.5, connect=0.1), [*pages(6), *pages(200, B)], settings)
    # Three of A have begun, and come to their places together, long after the first page of A was sent.
    second, third = sim.times(A)[1:3]
    assert third - second >= 2.3 - EARLY
    for at in (second + 0.6, third - 0.2):  # in between the others have all places
        assert sum(send.time <= at < send.finished for send in sim.sends if send.host == B) == 4
