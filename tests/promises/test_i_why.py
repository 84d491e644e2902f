"""I11: why is it waiting? Which scope, which limit, until when, and where that limit comes from."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from math import inf
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.promises.crawling import EXACT, FREE, a_web, page, spider_of
from trawl.engine import Crawl
from trawl.testing import RateLimit, SimulatedResponse, SimulatedWeb, simulate
from trawl.throttling import Reason

A = "http://a.example"


class Asking(trawl.Spider):
    """Puts requests in at 0.0 and asks, at ``at``, why the one named ``subject`` waits, and why its scope does."""

    name = "asking"
    requests: Callable[[], list[trawl.Request]]
    at = 0.05
    subject = "last"
    scope = "a.example"
    pause = 0.0

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        yield trawl.Request("http://start.example/", meta={"throttling_scopes": [], "dont_obey_robotstxt": True})

    async def parse(self, response: trawl.Response, **kwargs: object) -> AsyncGenerator[Any, None]:
        if response.url == "http://start.example/":
            pending = type(self).requests()
            for request in pending:
                yield request
            self.subject_request = next(request for request in pending if request.url.endswith(self.subject))
            meta = {"throttling_scopes": [], "delay": self.at, "dont_obey_robotstxt": True}
            yield trawl.Request("http://start.example/ask", meta=meta, priority=10)
        elif response.url.endswith("ask"):
            await trio.sleep(self.pause)
            yield {"why": self.told(self.crawl.why(self.subject_request))}
            yield {"why": self.told(self.crawl.why(self.scope))}
            raise trawl.CloseSpider("asked")

    def told(self, reason: Any) -> Any:
        if reason is None:
            return None
        until = reason.until - (trio.current_time() - self.crawl.elapsed)
        return reason.scope, reason.limit, round(until, 6), reason.source


def asked(
    requests: Callable[[], list[trawl.Request]], web: SimulatedWeb, at: float = 0.05, **settings: Any
) -> list[Any]:
    """Why the request that ends in "last" waits, and why the scope does."""
    options = {key: settings.pop(key) for key in ("subject", "scope", "pause") if key in settings}

    class Asks(Asking):
        pass

    Asks.requests = staticmethod(requests)
    given = {**FREE, "SHUTDOWN_TIMEOUT": 0.0, **settings}
    return [item["why"] for item in simulate(Asks, web, settings=given, at=at, **options).items]


def two(scopes: object = None) -> Callable[[], list[trawl.Request]]:
    return lambda: [page(f"{A}/first", scopes), page(f"{A}/last", scopes)]


def test_i11_all_slots_are_busy() -> None:
    own, scope = asked(two(), a_web("a.example", latency=9.0))
    assert own == scope == ("a.example", "concurrency", inf, "configuration")


def test_i11_a_delay_of_the_configuration() -> None:
    own, scope = asked(two(), a_web("a.example"), at=0.5, DOWNLOAD_DELAY=3.0)
    assert own == scope == ("a.example", "delay", 3.0, "configuration")


def test_i11_a_delay_of_the_scopes_own_configuration() -> None:
    limits = {"a.example": {"delay": 4.0}}
    own, scope = asked(two(), a_web("a.example"), at=0.5, THROTTLING_SCOPES=limits)
    assert own == scope == ("a.example", "delay", 4.0, "THROTTLING_SCOPES['a.example']")


def test_i11_a_delay_per_slot() -> None:
    own, scope = asked(two(), a_web("a.example"), at=0.5, DOWNLOAD_DELAY_PER_SLOT=3.0)
    assert own == scope == ("a.example", "delay_per_slot", 3.0, "configuration")


def test_i11_a_quota() -> None:
    limits = {"api": {"quota": 10, "window": 60.0}}

    def requests() -> list[trawl.Request]:
        return [page(f"{A}/first", {"api": 8}), page(f"{A}/last", {"api": 3})]

    own, scope = asked(requests, a_web("a.example"), at=0.5, scope="api", THROTTLING_SCOPES=limits)
    # One more of 1.0 would fit; what waits needs 3.
    assert own == scope == ("api", "quota", 60.0, "THROTTLING_SCOPES['api']")


def refusing(headers: dict[str, str] | None = None, **host: Any) -> SimulatedWeb:
    web = a_web("a.example", latency=0.1, handler=lambda request: SimulatedResponse(429, headers=headers), **host)
    return web


def test_i11_backoff_step_n() -> None:
    own, scope = asked(two(), refusing(), at=0.5, DOWNLOAD_DELAY=1.0)
    assert own == scope == ("a.example", "backoff", 2.1, f"backoff step 1: 429 of {A}/first")
    own, scope = asked(two(), refusing(), at=3.0, subject="first", DOWNLOAD_DELAY=1.0)
    assert own == scope == ("a.example", "backoff", 6.2, f"backoff step 2: 429 of {A}/last")


@pytest.mark.parametrize(
    ("header", "value"), [("Retry-After", "30"), ("RateLimit-Reset", "30"), ("X-RateLimit-Reset", "30")]
)
def test_i11_the_header_of_which_response(header: str, value: str) -> None:
    headers = {header: value, "RateLimit-Remaining": "0"} if "Reset" in header else {header: value}
    if header.startswith("X-"):
        headers = {header: value, "X-RateLimit-Remaining": "0"}
    own, scope = asked(two(), refusing(headers), at=0.5)
    assert own == scope
    assert own[:3] == ("a.example", "hint", 30.1)
    assert own[3].startswith(header)
    assert f"429 of {A}/first" in own[3]


def test_i11_the_throttling_manager() -> None:
    class Holding:
        def get_initial_backoff(self) -> Any:
            return {"a.example": {"delay": 9.0}}

    own, scope = asked(two(), a_web("a.example"), THROTTLING_MANAGER=Holding)
    assert own == scope
    assert own[:3] == ("a.example", "hint", 9.0)
    assert "get_initial_backoff" in own[3]


def test_i11_robots_txt() -> None:
    web = a_web("a.example", robots="User-agent: *\nCrawl-delay: 7")
    own, scope = asked(two(), web, at=7.5, ROBOTSTXT_OBEY=True)
    assert own == scope
    assert own[:3] == ("a.example", "robots", 14.0)
    assert own[3] == "Crawl-delay 7 of robots.txt"


def test_i11_robots_txt_that_is_still_being_read() -> None:
    own, scope = asked(two(), a_web("a.example", latency=5.0), ROBOTSTXT_OBEY=True)
    assert own == (A, "gate", inf, "robots.txt")
    assert scope == ("a.example", "concurrency", inf, "configuration")  # its one slot carries robots.txt


def test_i11_the_requests_own_delay() -> None:
    def requests() -> list[trawl.Request]:
        return [trawl.Request(f"{A}/last", meta={"delay": 40.0})]

    own, scope = asked(requests, a_web("a.example"))
    assert own == ("", "not_before", 40.0, "the request's own delay")
    assert scope is None


def test_i11_the_cap_on_all() -> None:
    def requests() -> list[trawl.Request]:
        return [trawl.Request(f"http://{host}.example/{path}") for host, path in ("a1", "b2", ("c", "last"))]

    web = a_web("a.example", "b.example", "c.example", latency=9.0)
    # The page that asks is sent when the first place is free again, and asks when the second page has taken that.
    own, scope = asked(requests, web, at=1.0, pause=0.5, scope="c.example", CONCURRENT_REQUESTS=1)
    assert own == ("", "places", inf, "CONCURRENT_REQUESTS")
    assert scope is None  # it is no limit of the scope's


def test_i11_of_several_scopes_the_one_that_opens_last() -> None:
    limits = {"x": {"delay": 3.0}, "y": {"delay": 8.0}, "z": {"delay": 5.0}}
    own, scope = asked(two(["x", "y", "z"]), a_web("a.example"), at=0.5, scope="y", THROTTLING_SCOPES=limits)
    assert own == scope == ("y", "delay", 8.0, "THROTTLING_SCOPES['y']")


def test_i11_a_request_far_behind_in_the_frontier() -> None:
    def requests() -> list[trawl.Request]:
        return [trawl.Request(f"{A}/{number}") for number in range(300)] + [trawl.Request(f"{A}/last")]

    own, scope = asked(requests, a_web("a.example"), at=0.5, DOWNLOAD_DELAY=3.0)
    assert own == scope == ("a.example", "delay", 3.0, "configuration")


def test_i11_a_scope_that_holds_with_nothing_pending_in_any_spelling() -> None:
    def requests() -> list[trawl.Request]:
        return [trawl.Request(f"{A}/last")]

    own, scope = asked(requests, a_web("a.example"), at=0.5, scope="A.EXAMPLE.", DOWNLOAD_DELAY=3.0)
    assert own is None  # it was sent
    assert scope == ("a.example", "delay", 3.0, "configuration")


def test_i11_nothing_is_in_the_way() -> None:
    own, scope = asked(two(), a_web("a.example"), at=0.5)
    assert (own, scope) == (None, None)
    assert asked(two(), a_web("a.example"), at=0.5, scope="nobody")[1] is None


class Waiting(Asking):
    """Says what the pending requests wait for, the largest groups first."""

    async def parse(self, response: trawl.Response, **kwargs: object) -> AsyncGenerator[Any, None]:
        if response.url.endswith("ask"):
            yield {"waiting": [(group.count, self.told(group.reason)) for group in self.crawl.waiting(10)]}
            raise trawl.CloseSpider("asked")
        async for output in super().parse(response):
            yield output


def test_i11_the_same_for_all_that_wait() -> None:
    def requests() -> list[trawl.Request]:
        urls = [f"{A}/{number}" for number in range(5)] + [f"http://b.example/{number}" for number in range(3)]
        return [trawl.Request(url) for url in urls] + [trawl.Request(f"{A}/last", meta={"delay": 30.0})]

    Waiting.requests = staticmethod(requests)
    limits = {"b.example": {"delay": 9.0}}
    settings = {**EXACT, "THROTTLING_SCOPES": limits, "SHUTDOWN_TIMEOUT": 0.0}
    sim = simulate(Waiting, a_web("a.example", "b.example"), settings=settings, at=0.5)
    assert sim.items[0]["waiting"] == [
        (4, ("a.example", "delay", 1.0, "configuration")),
        (2, ("b.example", "delay", 9.0, "THROTTLING_SCOPES['b.example']")),
        (1, ("", "not_before", 30.0, "the request's own delay")),
    ]  # fmt: skip


def test_i11_at_the_end_each_scope_tells_what_limited_it() -> None:
    sim = simulate(_listed(10), a_web("a.example", latency=0.25), settings=EXACT, errors="collect")
    [row] = [row for row in sim.report if row.scope == "a.example"]
    assert (row.requests, row.sends, row.rate, row.allowed) == (10, 10, 1.0, 1.0)
    assert max(row.limited, key=lambda limit: row.limited[limit]) == "delay"


@pytest.mark.parametrize(
    ("scope", "host", "limit", "least"),
    [
        ({"concurrency": 1, "delay": 0.5, "quota": 3.0, "window": 20.0}, {}, "quota", 0.9),
        ({"concurrency": 4, "delay": 0.5, "quota": 3.0, "window": 20.0, "sliding": True}, {}, "quota", 0.8),
        ({"concurrency": 2, "delay": 0.2, "delay_per_slot": 6.0}, {"latency": 2.0}, "delay_per_slot", 0.9),
        ({"concurrency": 2, "delay": 3.0, "delay_per_slot": 0.0}, {"latency": 2.0}, "delay", 0.9),
        ({"concurrency": 2, "delay": 0.0, "delay_per_slot": 0.0}, {"latency": 2.0}, "concurrency", 0.85),
        ({"concurrency": 2, "delay": 1.0}, {"latency": 1.0, "limit": RateLimit(0.1, burst=1)}, "backoff", 0.9),
        (
            {"delay": 0.1, "backoff": {"min_delay": 0.0, "delay_factor": 1.01}},
            {"limit": RateLimit(0.1, burst=1, retry_after=15)},
            "hint",
            0.8,
        ),
        ({"concurrency": 2, "delay_per_slot": 0.0}, {"robots": "User-agent: *\nCrawl-delay: 5\n"}, "robots", 0.9),
    ],
)
def test_i11_whatever_limited_a_scope_is_what_its_time_is_put_down_to(
    scope: dict[str, Any], host: dict[str, Any], limit: str, least: float
) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", **{"latency": 0.25, **host})
    settings = {**EXACT, "ROBOTSTXT_OBEY": "robots" in host, "THROTTLING_SCOPES": {"a.example": scope}}
    sim = simulate(_listed(20), web, settings=settings, errors="collect")
    [row] = [row for row in sim.report if row.scope == "a.example"]
    assert row.limited[limit] > least * sim.elapsed


@pytest.mark.parametrize("scope", [{"concurrency": 1}, {"concurrency": 2}, {"concurrency": 1, "delay": 1.0}])
def test_i11_a_scope_that_is_open_while_another_is_waited_for_is_not_put_down_as_what_limits(
    scope: dict[str, Any],
) -> None:
    free = {"delay": 0.0, "delay_per_slot": 0.0}
    scopes = {"a.example": {**free, **scope}, "cost": {"quota": 2.0, "window": 20.0}}

    class Costs(trawl.Spider):
        name = "costs"

        async def start(self) -> AsyncGenerator[trawl.Request, None]:
            for number in range(20):
                yield trawl.Request(f"{A}/{number}", meta={"throttling_scopes": ["a.example", "cost"]})

        def parse(self, response: trawl.Response, **kwargs: object) -> None:
            """Nothing."""

    sim = simulate(Costs, a_web("a.example", latency=0.25), settings={**EXACT, "THROTTLING_SCOPES": scopes})
    limited = {row.scope: row.limited for row in sim.report}
    assert limited["cost"]["quota"] > 0.9 * sim.elapsed
    assert sum(limited["a.example"].values()) < 0.15 * sim.elapsed


def _listed(count: int) -> type[trawl.Spider]:
    class Listed(trawl.Spider):
        name = "listed"

        async def start(self) -> AsyncGenerator[trawl.Request, None]:
            for number in range(count):
                yield trawl.Request(f"{A}/{number}")

    return Listed


class Watching(trawl.Spider):
    """Says at many instants what the pending requests wait for, and which they are."""

    name = "watching"
    requests: Callable[[], list[trawl.Request]]
    instants = 40
    step = 0.37

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        yield trawl.Request("http://start.example/", meta={"throttling_scopes": [], "dont_obey_robotstxt": True})

    async def parse(self, response: trawl.Response, **kwargs: object) -> AsyncGenerator[Any, None]:
        if response.url == "http://start.example/":
            self.pending = {request.url: request for request in type(self).requests()}
            for request in self.pending.values():
                yield request
            meta = {"throttling_scopes": [], "dont_obey_robotstxt": True}
            yield trawl.Request("http://start.example/look", meta=meta, priority=10)
        elif response.url == "http://start.example/look":
            for _ in range(self.instants):
                await trio.sleep(self.step)
                yield self.look()

    def look(self) -> dict[str, Any]:
        return {
            "waiting": [(group.count, group.reason) for group in self.crawl.waiting(1000)],
            "why": {url: self.crawl.why(request) for url, request in self.pending.items()},
        }


def watched(
    requests: Callable[[], list[trawl.Request]], web: SimulatedWeb, **settings: Any
) -> tuple[list[dict[str, Any]], Any]:
    """What was told at many instants, and the crawl."""

    class Watches(Watching):
        pass

    Watches.requests = staticmethod(requests)
    sim = simulate(Watches, web, settings={**FREE, "CONCURRENT_REQUESTS": 50, **settings})
    return sim.items, sim


def test_i11_nobody_is_said_to_wait_for_a_scope_that_it_does_not_have() -> None:
    def requests() -> list[trawl.Request]:
        own = [page(f"{A}/{scope}{number}", scope) for number in range(60) for scope in "ab"]
        return [*own, page(f"{A}/x-ab", ["a", "b"])]

    limits = {"a": {"delay": 1.0}, "b": {"delay": 0.7}}
    told, _ = watched(requests, a_web("a.example", latency=0.1), THROTTLING_SCOPES=limits)
    for item in told:
        counts = {reason.scope: count for count, reason in item["waiting"] if reason.scope}
        waiting = [url.rpartition("/")[2] for url, reason in item["why"].items() if reason is not None]
        assert abs(counts["a"] - counts["b"]) <= 25  # not all in one of them
        for scope in "ab":
            others = sum(url.startswith(scope) for url in waiting)
            assert others <= counts[scope] <= others + ("x-ab" in waiting)
        told_of = [(reason.scope, url.rpartition("/")[2]) for url, reason in item["why"].items() if reason is not None]
        assert [scope for scope, name in told_of if scope not in name] == []


def test_i11_a_scope_that_is_open_is_not_what_requests_without_a_place_wait_for() -> None:
    def requests() -> list[trawl.Request]:
        return [page(f"{A}/{number}", "a") for number in range(4)] + [page(f"{A}/slow{n}", []) for n in range(8)]

    web = SimulatedWeb()
    web.add_host("a.example", latency=lambda request: 9.0 if "slow" in request.url else 0.1)
    web.add_host("start.example")
    told, _ = watched(requests, web, CONCURRENT_REQUESTS=4, THROTTLING_SCOPES={"a": {"delay": 1.0}})
    # From 0.1 to 9.0 four slow pages are on the wire; the second of a has waited for its delay until 1.0.
    limits = [reason.limit for item in told for _, reason in item["waiting"]]
    assert set(limits) == {"delay", "places"}


def test_i11_callbacks_that_run_are_what_the_others_wait_for() -> None:
    def parse(spider: trawl.Spider, response: trawl.Response) -> Any:
        if response.url == "http://start.example/":
            return [trawl.Request(f"{A}/{number}") for number in range(4)]
        return ask(spider)

    async def ask(spider: trawl.Spider) -> AsyncGenerator[Any, None]:
        await trio.sleep(5.0)
        waiting = [(group.count, group.reason.limit, group.reason.source) for group in spider.crawl.waiting()]
        yield {"waiting": waiting, "why": spider.crawl.why("a.example")}

    start = spider_of(lambda: [page("http://start.example/", [])], parse)
    sim = simulate(start, a_web("a.example", latency=0.1), settings={**FREE, "CONCURRENT_CALLBACKS": 2})
    assert sim.items[0]["waiting"] == [(2, "callbacks", "CONCURRENT_CALLBACKS")]
    assert sim.items[0]["why"] is None  # it is no limit of the scope's


def test_i05_i11_a_host_that_is_throttled_by_its_address_or_under_another_name_can_be_asked_about() -> None:
    class BySite:
        def get_scopes(self, request: trawl.Request) -> str:
            return "site"

    by_address: dict[str, Any] = {"CONCURRENT_REQUESTS_PER_IP": 1, "DOWNLOAD_DELAY": 3.0}
    by_site: dict[str, Any] = {"THROTTLING_MANAGER": BySite, "THROTTLING_SCOPES": {"site": {"delay": 3.0}}}
    for settings in (by_address, by_site):
        own, scope = asked(two(), a_web("a.example"), at=0.5, **settings)
        assert own == scope
        assert own[1:3] == ("delay", 3.0)
    own, scope = asked(lambda: two()()[1:], a_web("a.example"), at=0.5, **by_address)
    assert own is None  # it was sent
    assert scope[1:3] == ("delay", 3.0)
    assert asked(two(), a_web("a.example"), at=0.5, scope="b.example", **by_address)[1] is None


async def test_a_paused_crawl_waits_for_nothing_else(autojump_clock: MockClock) -> None:
    told: list[tuple[int, str]] = []

    async def pause(crawl: Crawl) -> None:
        await trio.sleep(0.5)
        crawl.pause()
        await trio.sleep(30.0)
        told.extend([(each.count, each.reason.limit) for each in crawl.waiting()])
        crawl.pause(is_paused=False)

    requests = [trawl.Request(f"{A}/{number}") for number in range(5)]
    await a_web("a.example").crawl(spider_of(lambda: requests), {"WATCHERS": {pause: 0}, "ROBOTSTXT_OBEY": False})
    assert told == [(4, "store")]


async def test_a_paused_crawl_says_how_it_goes_on(autojump_clock: MockClock) -> None:
    told: list[Reason | None] = []

    async def pause(crawl: Crawl) -> None:
        crawl.pause()
        await trio.sleep(30.0)
        told.extend([crawl.why("a.example"), *[each.reason for each in crawl.waiting()]])
        crawl.pause(is_paused=False)

    sim = await a_web("a.example").crawl(spider_of(lambda: [trawl.Request(f"{A}/1")]), {"WATCHERS": {pause: 0}})
    assert told == [Reason("", "store", inf, "paused, until crawl.pause(is_paused=False)")] * 2
    assert [send.time >= 30.0 for send in sim.sends if send.url == f"{A}/1"] == [True]


def test_i11_a_url_stands_for_its_host() -> None:
    told: list[tuple[Any, Any]] = []

    class Asks(trawl.Spider):
        name = "asks"
        start_urls = [f"http://a.example/{number}" for number in range(3)]

        def parse(self, response: trawl.Response, **kwargs: object) -> None:
            told.append((self.crawl.why("http://a.example/2"), self.crawl.why("a.example")))

    web = SimulatedWeb()
    web.add_host("a.example")
    simulate(Asks, web, {"DOWNLOAD_DELAY": 5.0})
    assert told[0][0] is not None
    assert told[0][0] == told[0][1]
