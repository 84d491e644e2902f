"""Whichever way a request comes to the wire, it waits for its own scopes and obeys its own robots.txt (F09, E04).

Four pages of a fast host each lead to a host of ten seconds, by a redirect, a retry, a middleware: the ways that there
are. What is sent there is ten seconds apart, and its robots.txt comes before it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio

import trawl
from tests.promises.crawling import FREE
from trawl.exceptions import IgnoreRequest
from trawl.http import Fetch, Middleware, Outcome, Replace, Request, Response
from trawl.testing import SimulatedResponse, SimulatedWeb, Simulation, simulate
from trawl.testing.clock import START

FAST, SLOW = "fast.example", "slow.example"
SETTINGS: dict[str, Any] = {**FREE, "ROBOTSTXT_OBEY": True, "THROTTLING_SCOPES": {SLOW: {"delay": 10.0}}}
"""The fast host has no delay at all."""

Change = Callable[[Request], Request]


def slow(request: Request) -> Request:
    """The same page of the slow host."""
    return request.replace(url=request.url.replace(FAST, SLOW))


def is_fast(request: Request) -> bool:
    """Whether a page is still to be led elsewhere; the middleware sees robots.txt too."""
    return FAST in request.url and not request.url.endswith("robots.txt")


def replacing(change: Change, *, is_new_target: bool, before: bool = False) -> Middleware:
    """Says ``Replace``, of an answer or in place of sending."""

    def around(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            if before and is_fast(request):
                return Outcome(request, then=Replace(change(request), is_new_target=is_new_target))
            outcome = await fetch(request)
            if outcome.then is None and is_fast(request):
                outcome.then = Replace(change(request), is_new_target=is_new_target)
            return outcome

        return send

    return around


def handing(change: Change) -> Middleware:
    """Hands another request to the way on."""

    def around(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            return await fetch(change(request) if is_fast(request) else request)

        return send

    return around


class Assigns:
    """In the manner of Scrapy: changes the request itself."""

    def process_request(self, request: Request, spider: Any) -> None:
        if is_fast(request):
            request.url = slow(request).url


class Returns:
    """In the manner of Scrapy: gives another request in place of this one."""

    def process_request(self, request: Request, spider: Any) -> Request | None:
        return slow(request) if is_fast(request) else None


class ReturnsLater:
    """In the manner of Scrapy: gives another request in place of the answer."""

    def process_response(self, request: Request, response: Response, spider: Any) -> Any:
        return slow(request) if is_fast(request) else response


class AssignsLater:
    """Changes the request of an answer that is then tried again."""

    def process_response(self, request: Request, response: Response, spider: Any) -> Any:
        if is_fast(request):
            request.url = slow(request).url
            return Response(request.url, 500, request=request)
        return response


WAYS: dict[str, Any] = {
    "a Replace": replacing(slow, is_new_target=False),
    "a Replace of a new target": replacing(slow, is_new_target=True),
    "a Replace in place of sending": replacing(slow, is_new_target=False, before=True),
    "process_request that assigns the URL": Assigns,
    "process_request that returns another": Returns,
    "process_response that returns another": ReturnsLater,
    "a retry with another URL": AssignsLater,
    "a middleware that hands another on": handing(slow),
    "a redirect": None,
}


class Pages(trawl.Spider):
    """Four pages of the fast host."""

    name = "pages"

    async def start(self) -> AsyncGenerator[Any, None]:
        for number in range(4):
            yield Request(f"http://{FAST}/{number}", errback=self.failed)

    def parse(self, response: Response, **kwargs: Any) -> Any:
        return {"url": response.url}

    def failed(self, error: Exception) -> Any:
        return {"failed": str(error)}


class Fetches(trawl.Spider):
    """The same, as direct fetches at once."""

    name = "fetches"
    start_urls = ("http://start.example/",)

    async def parse(self, response: Response, **kwargs: Any) -> Any:
        found: list[str] = []

        async def one(number: int) -> None:
            try:
                found.append((await self.fetch(Request(f"http://{FAST}/{number}"))).url)
            except IgnoreRequest as error:
                found.append(str(error))

        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(one, number)
        for url in found:
            yield {"url": url}


def led(way: str, spider: type[trawl.Spider] = Pages, robots: str = "", **settings: Any) -> Simulation:
    """A crawl in which every page of the fast host is led to the slow one by this way."""
    middleware = WAYS[way]
    redirects = middleware is None

    def answer(request: Request) -> SimulatedResponse:
        location = request.url.replace(FAST, SLOW)
        return SimulatedResponse(302, "", {"Location": location}) if redirects else SimulatedResponse()

    web = SimulatedWeb()
    web.add_host("start.example")
    web.add_host(FAST, handler=answer, latency=0.5)
    web.add_host(SLOW, latency=0.5, robots=robots)
    chain = {} if redirects else {"DOWNLOADER_MIDDLEWARES": {middleware: 555}}
    return simulate(spider, web, {**SETTINGS, **chain, **settings})


def of_slow(sim: Simulation) -> list[tuple[float, str]]:
    """Instants and paths of what was sent to the slow host."""
    return [(send.time, send.url.rpartition("/")[2]) for send in sim.sends if send.host == SLOW]


@pytest.mark.parametrize("spider", [Pages, Fetches])
@pytest.mark.parametrize("way", WAYS)
def test_f09_whatever_is_led_to_another_host_waits_for_that_hosts_delay(way: str, spider: type[trawl.Spider]) -> None:
    sim = led(way, spider)
    sends = of_slow(sim)
    assert sends[0][1] == "robots.txt"
    assert sorted(name for _, name in sends[1:]) == ["0", "1", "2", "3"]
    assert [later[0] - sooner[0] for sooner, later in pairwise(sends)] == [10.0] * 4
    assert sorted(item["url"] for item in sim.items) == [f"http://{SLOW}/{number}" for number in range(4)]
    assert sim.reason == "finished"


@pytest.mark.parametrize("spider", [Pages, Fetches])
@pytest.mark.parametrize("way", WAYS)
def test_whatever_is_led_to_another_host_obeys_that_hosts_robots_txt(way: str, spider: type[trawl.Spider]) -> None:
    sim = led(way, spider, robots="User-agent: *\nDisallow: /")
    assert [name for _, name in of_slow(sim)] == ["robots.txt"]
    assert sim.reason == "finished"
    if spider is Pages:
        assert sim.stats["robots_forbidden"] == 4


@pytest.mark.parametrize("way", WAYS)
def test_whatever_is_led_to_another_host_does_so_with_the_defaults_left_as_they_are(way: str) -> None:
    usual: dict[str, Any] = {"RANDOMIZE_DOWNLOAD_DELAY": True, "BACKOFF_JITTER": 0.1, "DOWNLOAD_DELAY_PER_SLOT": 1.0}
    sim = led(way, robots="User-agent: *\nDisallow: /2", **usual)
    sends = of_slow(sim)
    assert all(later[0] - sooner[0] >= 5.0 for sooner, later in pairwise(sends))
    assert sorted(name for _, name in sends) == ["0", "1", "3", "robots.txt"]


# What else a middleware may change: the session, the proxy, a mirror; and what it meets on its way.


def gaps(times: list[float]) -> list[float]:
    return [later - sooner for sooner, later in pairwise(times)]


def in_session(name: str) -> Change:
    return lambda request: request.replace(meta={**request.meta, "session": name})


SESSIONS: dict[str, Any] = {
    "first": {"proxy": "http://one.example:8080", "headers": {"X-Visitor": "first"}},
    "second": {
        "proxy": "http://two.example:8080",
        "headers": {"X-Visitor": "second"},
        "throttling": {"delay": 10.0, "concurrency": 1},
    },
}


def test_a_retry_in_another_session_waits_for_its_limits_and_goes_through_its_proxy() -> None:
    seen: list[tuple[float, Any, Any]] = []

    def again(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            outcome = await fetch(request)
            if outcome.response is not None and request.meta.get("session") == "first":
                outcome.then = Replace(in_session("second")(request))
            return outcome

        return send

    def answer(request: Any) -> SimulatedResponse:
        seen.append((trio.current_time(), request.meta["proxy"], request.headers.get("X-Visitor")))
        return SimulatedResponse()

    class Visits(Pages):
        async def start(self) -> AsyncGenerator[Any, None]:
            for number in range(3):
                yield Request(f"http://{FAST}/{number}", meta={"session": "first"})

    web = SimulatedWeb()
    web.add_host(FAST, handler=answer)
    sim = simulate(Visits, web, {**FREE, "SESSIONS": SESSIONS, "DOWNLOADER_MIDDLEWARES": {again: 545}})
    assert sim.gaps("session:second") == [10.0, 10.0]
    assert {(proxy, visitor) for _, proxy, visitor in seen} == {
        ("http://one.example:8080", "first"),
        ("http://two.example:8080", "second"),
    }
    assert len(sim.items) == 3


def test_a_middleware_that_puts_a_request_into_a_session_has_it_wait_for_that_sessions_limits() -> None:
    web = SimulatedWeb()
    web.add_host(FAST)
    chain = {"SESSIONS": SESSIONS, "DOWNLOADER_MIDDLEWARES": {handing(in_session("second")): 545}}
    sim = simulate(Pages, web, {**FREE, **chain})
    assert sim.gaps("session:second") == [10.0] * 3
    assert len(sim.items) == 4


class ByProxy(trawl.throttling.ThrottlingManager):
    """Charges each request to its site and its proxy."""

    async def get_scopes(self, request: Request) -> Any:
        proxy = request.meta.get("proxy")
        site = await super().get_scopes(request)
        return [site, f"proxy:{proxy[7]}"] if proxy else site


PROXIES = [f"http://{name}.proxy.example:8080" for name in "abc"]


def in_turns() -> Any:
    """A middleware that sends each request through the next proxy, whatever it did with it before."""
    count = iter(range(10_000))

    class Turns:
        def process_request(self, request: Request, spider: Any) -> None:
            request.meta["proxy"] = PROXIES[next(count) % len(PROXIES)]

    return Turns


@pytest.mark.parametrize(
    "settings", [{"ROTATING_PROXY_LIST": PROXIES}, {"DOWNLOADER_MIDDLEWARES": {in_turns(): 545}}], ids=["list", "own"]
)
def test_a_proxy_that_a_middleware_chooses_has_its_own_limits_and_nobody_waits_for_ever(
    settings: dict[str, Any],
) -> None:
    used: dict[str, list[float]] = {}

    def answer(request: Any) -> SimulatedResponse:
        used.setdefault(request.meta["proxy"], []).append(trio.current_time())
        return SimulatedResponse()

    class Many(Pages):
        async def start(self) -> AsyncGenerator[Any, None]:
            for number in range(12):
                yield Request(f"http://{FAST}/{number}")

    web = SimulatedWeb()
    web.add_host(FAST, handler=answer, latency=0.1)
    scopes = {FAST: {"concurrency": 8}, **{f"proxy:{name}": {"rate": 0.1} for name in "abc"}}
    limits = {"THROTTLING_MANAGER": ByProxy, "THROTTLING_SCOPES": scopes}
    sim = simulate(Many, web, {**FREE, **limits, **settings})
    assert len(sim.items) == 12
    assert sorted(used) == PROXIES
    assert all(gap >= 10.0 for times in used.values() for gap in gaps(times))
    if "ROTATING_PROXY_LIST" in settings:  # each keeps the proxy that it waits for: all three work all the time
        assert sim.elapsed == pytest.approx(30.1)


def test_a_mirror_that_is_drawn_by_lot_at_each_turn_is_sent_in_the_end_and_never_too_early() -> None:
    class Drawn:
        def __init__(self, chance: Any) -> None:
            self.chance = chance

        @classmethod
        def from_crawler(cls, crawl: Any) -> Any:
            return cls(crawl.random("mirror"))

        def __call__(self, fetch: Fetch) -> Fetch:
            async def send(request: Request) -> Outcome:
                mirror = f"http://mirror{self.chance.randrange(5)}.example/"
                url = request.url.replace(f"http://{FAST}/", mirror)
                return await fetch(request if request.url.endswith("robots.txt") else request.replace(url=url))

            return send

    class Many(Pages):
        async def start(self) -> AsyncGenerator[Any, None]:
            for number in range(20):
                yield Request(f"http://{FAST}/{number}")

    web = SimulatedWeb()
    web.add_host(FAST)
    for number in range(5):
        web.add_host(f"mirror{number}.example", latency=0.1, robots="User-agent: *\nDisallow: /7$")
    settings = {**SETTINGS, "DOWNLOAD_DELAY": 2.0, "DOWNLOADER_MIDDLEWARES": {Drawn: 545}}
    sim = simulate(Many, web, settings)
    assert sorted(item["url"].rpartition("/")[2] for item in sim.items) == sorted(
        str(number) for number in range(20) if number != 7
    )
    for number in range(5):
        sends = [send for send in sim.sends if send.host == f"mirror{number}.example"]
        assert sends[0].url.endswith("/robots.txt")
        assert all(gap >= 2.0 for gap in gaps([send.time for send in sends]))


def test_what_scope_cache_has_answered_for_a_request_is_not_believed_when_its_url_has_changed() -> None:
    class Cached(trawl.throttling.ThrottlingManager):
        @trawl.throttling.scope_cache
        async def get_scopes(self, request: Request) -> Any:
            return await super().get_scopes(request)

    for way in ("process_request that assigns the URL", "a retry with another URL"):
        sim = led(way, THROTTLING_MANAGER=Cached)
        assert gaps([at for at, _ in of_slow(sim)]) == [10.0] * 4


@pytest.mark.parametrize("way", WAYS)
def test_with_limits_by_address_the_address_of_the_host_counts_that_a_request_is_led_to(way: str) -> None:
    sim = led(way, CONCURRENT_REQUESTS_PER_IP=1, THROTTLING_SCOPES={}, DOWNLOAD_DELAY=10.0)
    assert len(of_slow(sim)) == 5
    assert all(gap >= 10.0 for gap in gaps([at for at, _ in of_slow(sim)]))


@pytest.mark.parametrize("way", WAYS)
def test_a_page_limit_counts_what_is_led_elsewhere_once(way: str) -> None:
    assert len(led(way, CLOSESPIDER_PAGECOUNT=2).items) == 2


def test_offsite_and_seen_are_asked_of_new_requests_and_not_of_what_becomes_of_one() -> None:
    """As in Scrapy: what a middleware returns is scheduled anew, what it changes on the way is not looked up."""

    class Found(Pages):
        allowed_domains = (FAST,)

        async def start(self) -> AsyncGenerator[Any, None]:
            yield Request("http://start.example/", self.found)

        def found(self, response: Response) -> Any:
            return [Request(f"http://{FAST}/{number}") for number in range(4)]

    for way, count in (
        ("a Replace", 4),
        ("process_request that assigns the URL", 4),
        ("a middleware that hands another on", 4),
        ("a Replace of a new target", 0),
        ("process_request that returns another", 0),
        ("process_response that returns another", 0),
        ("a redirect", 0),
    ):
        sim = led(way, Found, THROTTLING_SCOPES={})
        assert len(sim.items) == count, way
        assert sim.stats.get("offsite_filtered", 0) == 4 - count, way


@pytest.mark.parametrize("way", ["a middleware that hands another on", "process_request that assigns the URL"])
def test_an_answer_that_the_cache_has_for_one_url_is_not_given_for_another(way: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path)}
    web = SimulatedWeb()
    web.add_host(FAST, body="fast")
    simulate(Pages, web, {**SETTINGS, **settings})
    sim = led(way, **settings)
    assert sorted(name for _, name in of_slow(sim)) == ["0", "1", "2", "3", "robots.txt"]
    assert gaps([at for at, _ in of_slow(sim)]) == [10.0] * 4
    assert sorted(item["url"] for item in sim.items) == [f"http://{SLOW}/{number}" for number in range(4)]


def test_a_proxy_that_is_chosen_once_is_charged_when_its_request_is_sent_again_scope_cache_or_not() -> None:
    class Cached(ByProxy):
        get_scopes = trawl.throttling.scope_cache(ByProxy.get_scopes)

    class Once:
        def process_request(self, request: Request, spider: Any) -> None:
            request.meta.setdefault("proxy", PROXIES[0])

    refused: set[str] = set()

    def answer(request: Any) -> SimulatedResponse:
        if request.url in refused:
            return SimulatedResponse()
        refused.add(request.url)
        return SimulatedResponse(429)

    for manager in (ByProxy, Cached):
        refused.clear()
        web = SimulatedWeb()
        web.add_host(FAST, handler=answer)
        limits = {"THROTTLING_MANAGER": manager, "THROTTLING_SCOPES": {"proxy:a": {"delay": 10.0}}}
        sim = simulate(Pages, web, {**FREE, **limits, "DOWNLOADER_MIDDLEWARES": {Once: 545}})
        assert len(sim.of("proxy:a")) == len(sim.sends) == 8
        assert min(sim.gaps("proxy:a")) >= 10.0


@pytest.mark.parametrize("spider", [Pages, Fetches])
def test_what_is_sent_to_a_new_host_at_each_turn_ends_with_an_error_that_says_so(spider: type[trawl.Spider]) -> None:
    numbers = iter(range(100_000))

    def anew(request: Request) -> Request:
        return request.replace(url=request.url.replace(FAST, f"n{next(numbers)}.example"))

    web = SimulatedWeb()
    web.add_host(FAST)
    web.add_host("start.example")
    settings = {**FREE, "DOWNLOADER_MIDDLEWARES": {handing(anew): 545}}
    sim = simulate(spider, web, settings)
    said = [str(item) for item in sim.items]
    assert sim.reason == "finished"
    assert len(said) == 4
    assert all("to another place at each turn: choose once" in words for words in said)
    assert not [send for send in sim.sends if send.host != "start.example"]
    assert next(numbers) < 200


@pytest.mark.parametrize("way", WAYS)
def test_b20_what_is_led_to_a_host_that_was_given_up_before_starts_afresh(way: str) -> None:
    class Later(trawl.Spider):
        name = "later"

        async def start(self) -> AsyncGenerator[Any, None]:
            yield Request(f"http://{SLOW}/first")
            yield Request(f"http://{FAST}/late", meta={"delay": 2000.0})

        def parse(self, response: Response, **kwargs: Any) -> Any:
            return {"url": response.url}

    middleware = WAYS[way]

    def fast(request: Request) -> SimulatedResponse:
        return SimulatedResponse() if middleware else SimulatedResponse(302, "", {"Location": slow(request).url})

    web = SimulatedWeb()
    web.add_host(FAST, handler=fast)
    web.add_host(SLOW, handler=lambda request: SimulatedResponse(503 if trio.current_time() < START + 1500.0 else 200))
    chain = {"DOWNLOADER_MIDDLEWARES": {middleware: 555}} if middleware else {}
    sim = simulate(Later, web, {**FREE, **chain})
    assert sim.stats["refused"] == 1  # the page that was pending when the host was given up
    assert sim.items == [{"url": f"http://{SLOW}/late"}]
