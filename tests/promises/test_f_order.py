"""F08-F10, F12: what waits holds nothing, what bypasses the scheduler passes the scopes, who goes first."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest
import trio

import trawl
from tests.promises.crawling import EXACT, FREE, a_web, crawled, found_at_once, page, shown, spider_of, times
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

A = "http://a.example"


class Watching(trawl.Spider):
    """Throttled pages, and how many tasks run while they wait."""

    name = "watching"
    pages = 500

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        yield trawl.Request("http://start.example/", meta={"throttling_scopes": []})

    async def parse(self, response: trawl.Response, **kwargs: object) -> AsyncGenerator[Any, None]:
        if response.url == "http://start.example/":
            for number in range(self.pages):
                yield trawl.Request(f"{A}/{number}")
            yield trawl.Request("http://start.example/ask", meta={"delay": 5.5, "throttling_scopes": []})
        elif response.url.endswith("ask"):
            yield {
                "tasks": trio.lowlevel.current_statistics().tasks_living,
                "in_flight": self.crawl.in_flight,
                "queued": self.crawl.queued,
            }


def test_f08_throttled_requests_are_no_tasks_and_hold_no_place() -> None:
    few, many = (
        simulate(Watching, a_web("a.example", latency=0.1), settings=EXACT, pages=pages).items[0] for pages in (10, 500)
    )
    assert (few["queued"], many["queued"]) == (10 - 6, 500 - 6)
    assert few["in_flight"] == many["in_flight"] == 0
    assert few["tasks"] == many["tasks"]


def test_f08_a_free_host_has_every_global_place_beside_a_throttled_one() -> None:
    def requests() -> list[trawl.Request]:
        slow = [trawl.Request(f"{A}/{number}") for number in range(40)]
        return slow + [page(f"http://b.example/{number}", "free") for number in range(40)]

    settings = {**EXACT, "CONCURRENT_REQUESTS": 4, "DOWNLOAD_DELAY": 100.0}
    sim = simulate(found_at_once(requests), a_web("a.example", "b.example", latency=1.0), settings=settings)
    free = [send.time for send in sim.sends if send.host == "b.example"]
    assert free[:8] == [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 2.0]  # one place is a.example's for its first second only
    assert free[-1] == 10.0


async def fetch_all(spider: trawl.Spider, urls: list[str]) -> list[str]:
    """Fetch these directly, all at once; the URLs in the order of their answers."""
    done: list[str] = []

    async def fetch(url: str) -> None:
        response = await spider.fetch(trawl.Request(url))
        done.append(response.url)

    async with trio.open_nursery() as nursery:
        for url in urls:
            nursery.start_soon(fetch, url)
    return done


def fetching(count: int) -> type[trawl.Spider]:
    """A spider whose one callback fetches ``count`` pages of a.example directly, all at once."""

    async def parse(spider: trawl.Spider, response: trawl.Response) -> Any:
        return {"done": await fetch_all(spider, [f"{A}/{number}" for number in range(count)])}

    return spider_of(lambda: [trawl.Request("http://start.example/", meta={"throttling_scopes": []})], parse)


def test_f09_r5_robots_redirects_retries_pages_and_direct_fetches_pass_the_same_scope() -> None:
    answers = iter([SimulatedResponse(500)])
    web = SimulatedWeb()
    web.add_host(
        "a.example",
        latency=0.1,
        robots="User-agent: *\nAllow: /",
        handler=lambda request: next(answers, SimulatedResponse()) if "last" in request.url else SimulatedResponse(),
    )
    web.add_page(f"{A}/", links=["/next"])
    web.add_redirect(f"{A}/next", "/moved")

    async def parse(spider: trawl.Spider, response: trawl.Response) -> Any:
        if response.url == f"{A}/":
            await spider.fetch(trawl.Request(f"{A}/direct"))
            return [trawl.Request(f"{A}/next"), trawl.Request(f"{A}/last")]
        return None

    settings = {**EXACT, "ROBOTSTXT_OBEY": True, "RETRY_DELAY": 0}
    sim = simulate(spider_of(lambda: [trawl.Request(f"{A}/")], parse), web, settings=settings)
    assert shown(sim) == [
        (0.0, "robots.txt"),
        (1.0, ""),
        (2.0, "direct"),
        (3.0, "next"),
        (4.0, "moved"),
        (5.0, "last"),
        (6.0, "last"),
    ]
    assert {send.slot for send in sim.sends} == {1}


def test_f09_p2_direct_fetches_obey_the_concurrency() -> None:
    sim = simulate(fetching(8), a_web("a.example", latency=1.0), settings={**FREE, "CONCURRENT_REQUESTS_PER_DOMAIN": 2})
    assert times(sim) == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0]
    assert len(sim.items[0]["done"]) == 8


def test_i09_fifty_tasks_started_together_keep_the_spacing() -> None:
    sim = simulate(fetching(50), a_web("a.example", latency=0.1, connect=0.3), settings=EXACT)
    assert sim.gaps("a.example") == [1.0] * 49
    assert sorted(sim.items[0]["done"]) == sorted(f"{A}/{number}" for number in range(50))


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize(("count", "warned"), [(500, 0), (501, 1), (700, 1)])
def test_f10_one_warning_when_500_direct_fetches_wait_at_once(
    count: int, warned: int, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**FREE, "CONCURRENT_REQUESTS": 0, "THROTTLING_SCOPES": {"a.example": {"concurrency": 1}}}
    simulate(fetching(count), a_web("a.example", latency=0.1), settings=settings)
    # One of them is on the wire at once: 501 leave 500 waiting.
    told = [text for text in warnings_of(caplog) if "DELAYED_REQUESTS_WARN_THRESHOLD" in text]
    assert len(told) == warned


def test_f10_fetches_that_need_not_wait_are_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    settings = {**FREE, "CONCURRENT_REQUESTS": 0, "DELAYED_REQUESTS_WARN_THRESHOLD": 5}
    free = {**settings, "THROTTLING_SCOPES": {"a.example": {"concurrency": 100}}}
    simulate(fetching(20), a_web("a.example", latency=0.1), settings=free)
    assert warnings_of(caplog) == []
    simulate(fetching(20), a_web("a.example", latency=0.1), settings=settings)
    assert len(warnings_of(caplog)) == 1


def listed(count: int) -> list[trawl.Request]:
    return [trawl.Request(f"{A}/{number}") for number in range(count)]


def test_f12_the_oldest_goes_first() -> None:
    sim = simulate(found_at_once(lambda: listed(60)), a_web("a.example"), settings=EXACT)
    assert [path for _, path in shown(sim)] == [str(number) for number in range(60)]


def test_f12_depth_first_turns_it_round() -> None:
    sim = simulate(found_at_once(lambda: listed(60)), a_web("a.example"), settings={**EXACT, "DEPTH_FIRST": True})
    assert [path for _, path in shown(sim)] == [str(number) for number in reversed(range(60))]


@pytest.mark.parametrize("depth_first", [False, True])
def test_f12_breadth_first_through_a_tree(depth_first: bool) -> None:
    web = SimulatedWeb()
    web.add_host("a.example")
    for path in ("", "1", "2"):
        web.add_page(f"{A}/{path}", links=[f"/{path}1", f"/{path}2"])
    web.add_host("start.example")

    def parse(spider: trawl.Spider, response: trawl.Response) -> Any:
        return response.follow_all(css="a")

    spider = spider_of(lambda: [trawl.Request(f"{A}/")], parse)
    sim = simulate(spider, web, settings={**EXACT, "DEPTH_FIRST": depth_first})
    found = [path for _, path in shown(sim)]
    assert found == (["", "2", "22", "21", "1", "12", "11"] if depth_first else ["", "1", "2", "11", "12", "21", "22"])


def test_f12_a_better_priority_goes_first() -> None:
    requests = [trawl.Request(f"{A}/{number}", priority=number % 7) for number in range(70)]
    sim = simulate(found_at_once(lambda: requests), a_web("a.example"), settings=EXACT)
    assert [int(path) % 7 for _, path in shown(sim)] == [priority for priority in range(6, -1, -1) for _ in range(10)]


def test_f12_lanes_of_equal_priority_take_turns() -> None:
    def requests() -> Iterator[trawl.Request]:
        for host, count in (("a", 30), ("b", 3), ("c", 3)):
            for number in range(count):
                yield trawl.Request(f"http://{host}.example/{number}")

    settings = {**FREE, "CONCURRENT_REQUESTS": 1}
    sim = simulate(
        found_at_once(requests), a_web("a.example", "b.example", "c.example", latency=0.1), settings=settings
    )
    hosts = [send.host[0] for send in sim.sends[1:]]
    assert hosts[:9] == list("abcabcabc")
    assert set(hosts[9:]) == {"a"}


def passed_by(sim: Any, path: str, shares: set[str]) -> int:
    """How many sends that share a scope with the one of ``path`` went before it."""
    place = next(index for index, send in enumerate(sim.sends) if send.url.endswith(path))
    return sum(1 for send in sim.sends[:place] if shares & set(send.scopes))


LIMITS: dict[str, dict[str, dict[str, float]]] = {
    "places": {"x": {"concurrency": 2}, "y": {"concurrency": 2}},
    "one place each": {"x": {"concurrency": 1}, "y": {"concurrency": 1}},
    "delays": {"x": {"delay": 0.3}, "y": {"delay": 0.4}},
    "delays in step": {"x": {"delay": 1.0}, "y": {"delay": 1.0}},
    "both": {"x": {"concurrency": 2, "delay": 0.2}, "y": {"delay": 0.5}},
}


def reach_both(limits: dict[str, dict[str, float]], seed: int) -> None:
    # Traffic that needs x or y alone keeps both busy, with latencies that never let both be free at once by chance.
    def requests() -> Iterator[trawl.Request]:
        yield from (page(f"{A}/x{number}", "x") for number in range(100))
        yield from (page(f"{A}/y{number}", "y") for number in range(100))
        yield page(f"{A}/both", ["x", "y"])

    web = a_web("a.example", latency=lambda request: 1.0 if "/x" in request.url else 1.3)
    settings = {**FREE, "THROTTLING_SCOPES": limits}
    sim = simulate(found_at_once(requests), web, settings=settings, seed=seed)
    assert Counter(len(send.scopes) for send in sim.sends) == {0: 1, 1: 200, 2: 1}
    assert passed_by(sim, "/both", {"x", "y"}) <= 32


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize("seed", [0, 1])
def test_f12_p4_a_request_of_several_scopes_is_passed_by_at_most_32(kind: str, seed: int) -> None:
    reach_both(LIMITS[kind], seed)


@pytest.mark.parametrize("seed", [0, 1])
def test_f12_p4_a_request_of_several_scopes_with_delays_a_slot_is_passed_by_at_most_32(seed: int) -> None:
    reach_both({"x": {"concurrency": 2, "delay_per_slot": 0.7}, "y": {"concurrency": 3, "delay_per_slot": 1.1}}, seed)


def test_f12_p4_against_traffic_without_end_that_comes_as_it_goes() -> None:
    # Each answer brings two more of its kind: x and y are never without a waiter.
    def parse(spider: trawl.Spider, response: trawl.Response) -> Iterator[trawl.Request]:
        kind = response.url.rpartition("/")[2]
        number = int(kind[1:] or 0) if kind[0] in "xy" else 0
        if kind == "both":
            raise trawl.CloseSpider("reached")
        yield page(f"{A}/{kind[0]}{2 * number + 1}", kind[0])
        yield page(f"{A}/{kind[0]}{2 * number + 2}", kind[0])

    def requests() -> Iterator[trawl.Request]:
        yield from (page(f"{A}/{kind}0", kind) for kind in "xy")
        yield page(f"{A}/both", ["x", "y"], meta={"delay": 10.0})

    web = a_web("a.example", latency=lambda request: 0.5 if "/x" in request.url else 0.7)
    settings = {**FREE, "THROTTLING_SCOPES": {"x": {"concurrency": 1}, "y": {"concurrency": 1}}}
    sim = simulate(spider_of(requests, parse), web, settings=settings)
    assert sim.reason == "reached"
    place = next(send for send in sim.sends if send.url.endswith("both"))
    later = [send for send in sim.sends if 10.0 <= send.time < place.time]
    assert len(later) <= 32


def test_f12_a_better_priority_may_always_pass() -> None:
    requests = [
        *(page(f"{A}/x{number}", "x", priority=1) for number in range(60)),
        *(page(f"{A}/y{number}", "y", priority=1) for number in range(60)),
        page(f"{A}/both", ["x", "y"]),
    ]
    web = a_web("a.example", latency=lambda request: 1.0 if "/x" in request.url else 1.3)
    settings = {**FREE, "THROTTLING_SCOPES": {"x": {"concurrency": 1}, "y": {"concurrency": 1}}}
    sim = simulate(found_at_once(lambda: requests), web, settings=settings)
    assert sim.sends[-1].url == f"{A}/both"


def test_f12_no_place_is_kept_free_through_a_long_block() -> None:
    # The claim of {x, y} must not idle x through y's hour.
    class Holding:
        def get_initial_backoff(self) -> Any:
            return {"y": {"delay": 3600.0}}

    requests = [page(f"{A}/both", ["x", "y"]), *(page(f"{A}/x{number}", "x") for number in range(60))]
    sim = crawled(
        lambda: requests,
        a_web("a.example", latency=0.1),
        FREE,
        THROTTLING_SCOPES={"x": {"delay": 1.0}},
        THROTTLING_MANAGER=Holding,
    )
    assert times(sim) == [*map(float, range(60)), 3600.0]
