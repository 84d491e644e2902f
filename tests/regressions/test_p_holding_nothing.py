"""P1, P2, P3, P4, P9, P11, P13, P16, P18: what waits holds nothing that another needs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest
import trio

import trawl
from tests.promises.crawling import EXACT, FREE, a_web, found_at_once, page, shown, spider_of
from trawl.scheduler import Attempt, Scheduler
from trawl.testing import RateLimit, SimulatedWeb, Simulation, simulate
from trawl.throttling import Limits, Scope

A = "http://a.example"


def test_p1_robots_txt_at_concurrency_1_goes_ahead_of_its_page_and_the_crawl_ends() -> None:
    web = a_web("a.example", latency=0.5, robots="User-agent: *\nAllow: /")
    web.add_page(f"{A}/", links=["/1", "/2"])

    def parse(spider: trawl.Spider, response: trawl.Response) -> Any:
        return response.follow_all(css="a")

    settings = {**FREE, "ROBOTSTXT_OBEY": True, "CONCURRENT_REQUESTS": 1}
    sim = simulate(spider_of(lambda: [trawl.Request(f"{A}/")], parse), web, settings=settings)
    assert shown(sim) == [(0.0, "robots.txt"), (0.5, ""), (1.0, "1"), (1.5, "2")]
    assert sim.reason == "finished"


def test_p1_a_token_fetched_in_the_callback_of_its_own_host_at_concurrency_1() -> None:
    async def parse(spider: trawl.Spider, response: trawl.Response) -> Any:
        if response.url.endswith("page"):
            token = await spider.fetch(trawl.Request(f"{A}/token"))
            return {"token": token.status}
        return None

    settings = {**EXACT, "ROBOTSTXT_OBEY": True, "CONCURRENT_REQUESTS": 1}
    spider = spider_of(lambda: [trawl.Request(f"{A}/page"), trawl.Request(f"{A}/other")], parse)
    sim = simulate(spider, a_web("a.example", latency=0.1), settings=settings)
    assert shown(sim) == [(0.0, "robots.txt"), (1.0, "page"), (2.0, "token"), (3.0, "other")]
    assert sim.items == [{"token": 200}]


def test_p2_a_flood_of_direct_fetches_never_passes_the_limit() -> None:
    async def parse(spider: trawl.Spider, response: trawl.Response) -> Any:
        async def fetch(number: int) -> None:
            await spider.fetch(trawl.Request(f"{A}/{number}"))

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(fetch, number)
        return {"done": True}

    spider = spider_of(lambda: [trawl.Request("http://start.example/", meta={"throttling_scopes": []})], parse)
    settings = {**FREE, "THROTTLING_SCOPES": {"a.example": {"concurrency": 2, "delay": 0.0, "delay_per_slot": 0.0}}}
    sim = simulate(spider, a_web("a.example", latency=1.0), settings=settings)
    assert (sim.most_in_flight("a.example"), len(sim.of("a.example")), sim.elapsed) == (2, 8, 4.0)
    assert sim.items == [{"done": True}]


FREE_PAGES = 200


def free_host_beside(throttled: int, places: int, latency: float = 0.2) -> Simulation:
    """A free host with 200 pages beside hosts that each have 200 pages and a delay of 1 s."""
    hosts = [f"h{number}.example" for number in range(throttled)]

    def requests() -> Iterator[trawl.Request]:
        for number in range(FREE_PAGES):
            yield trawl.Request(f"http://free.example/{number}")
        for number in range(12):
            for host in hosts:
                yield trawl.Request(f"http://{host}/{number}")

    settings = {
        **FREE,
        "DOWNLOAD_DELAY": 1.0,
        "CONCURRENT_REQUESTS": places,
        "THROTTLING_SCOPES": {"free.example": {"concurrency": 8, "delay": 0.0}},
    }
    return simulate(found_at_once(requests), a_web("free.example", *hosts, latency=latency), settings=settings)


@pytest.mark.parametrize(("throttled", "places"), [(15, 23), (100, 108)])
def test_p3_a_free_host_beside_throttled_ones_takes_no_longer_than_alone(throttled: int, places: int) -> None:
    # The cap leaves room for what all of them may have on the wire at once, and not for one more.
    def last(sim: Simulation) -> float:
        return max(send.finished for send in sim.of("free.example"))

    alone = last(free_host_beside(0, places))
    beside = free_host_beside(throttled, places)
    assert alone == pytest.approx(5.0)
    assert last(beside) <= alone * 1.05
    for number in range(throttled):
        assert beside.gaps(f"h{number}.example") == [1.0] * 11


def test_p3_throttled_hosts_that_wait_leave_the_default_cap_to_the_free_one() -> None:
    # 15 hosts with delay 1 and pages of 1 ms, under the default cap of 16: they are all but never on the wire.
    assert max(send.finished for send in free_host_beside(15, 16, 0.001).of("free.example")) <= 0.025 * 1.5


@pytest.mark.parametrize("kind", ["hosts", "endless"])
def test_p4_two_scopes_do_not_starve_among_many_lanes(kind: str) -> None:
    # Every x-only and y-only request has a host scope of its own: a hundred lanes are in the way, not two.
    def requests() -> Iterator[trawl.Request]:
        for number in range(100):
            yield page(f"{A}/x{number}", ["x", f"hx{number}"] if kind == "hosts" else "x")
            yield page(f"{A}/y{number}", ["y", f"hy{number}"] if kind == "hosts" else "y")
            if number == 10:
                yield page(f"{A}/both", ["x", "y"])

    limits = {"x": {"concurrency": 1}, "y": {"concurrency": 1, "delay": 0.25}}
    web = a_web("a.example", latency=lambda request: 0.7 if "/x" in request.url else 0.9)
    sim = simulate(found_at_once(requests), web, settings={**FREE, "THROTTLING_SCOPES": limits})
    place = [send.url for send in sim.sends].index(f"{A}/both")
    assert place <= 21 + 32 + 1


def test_p9_one_delayed_request_does_not_block_the_queue_behind_it() -> None:
    def requests() -> list[trawl.Request]:
        return [trawl.Request(f"{A}/late", meta={"delay": 60.0}), trawl.Request(f"{A}/1"), trawl.Request(f"{A}/2")]

    sim = simulate(found_at_once(requests), a_web("a.example"), settings=EXACT)
    assert shown(sim) == [(0.0, "1"), (1.0, "2"), (60.0, "late")]


def test_p9_nor_do_a_hundred_of_them() -> None:
    def requests() -> Iterator[trawl.Request]:
        for number in range(100):
            yield trawl.Request(f"{A}/late{number}", meta={"delay": 1000.0})
        yield trawl.Request(f"{A}/now")

    sim = simulate(found_at_once(requests), a_web("a.example"), settings=EXACT)
    assert shown(sim)[:2] == [(0.0, "now"), (1000.0, "late0")]


def looks(hosts: int, attempts: int) -> float:
    """Lanes looked at, a grant, with this many hosts of 1 s delay that all have requests pending."""
    scopes: dict[str, Scope] = {}
    limits = Limits(concurrency=1, delay=1.0)

    def scope_of(id: str, now: float) -> Scope:
        if id not in scopes:
            scopes[id] = Scope(id, limits)
        return scopes[id]

    scheduler = Scheduler(scope_of, places=16)
    for number in range(hosts):
        id = f"h{number}.example"
        for order in range(max(1, 2 * attempts // hosts)):
            scheduler.push(Attempt(order, ((id, None),)), 0.0)
    now, done, looked = 0.0, 0, scheduler.looks
    while done < attempts:
        attempt = scheduler.grant(now)
        if not isinstance(attempt, Attempt):
            now = scheduler.next_event(now)
            continue
        scheduler.sent(attempt, now)
        scheduler.give_back(attempt, now)
        done += 1
    return (scheduler.looks - looked) / attempts


def test_p11_a_choice_costs_the_same_with_ten_hosts_and_with_ten_thousand() -> None:
    few, many = looks(10, 2000), looks(10_000, 2000)
    assert many <= few * 2
    assert many <= 3.0


def test_p16_two_sites_at_two_each_and_a_renderer_at_three() -> None:
    def requests() -> Iterator[trawl.Request]:
        for number in range(20):
            for site in ("a.example", "b.example"):
                yield trawl.Request(f"http://{site}/direct{number}")
                yield page(f"http://{site}/rendered{number}", [site, "renderer"])

    limits = {
        "a.example": {"concurrency": 2, "delay": 0.0},
        "b.example": {"concurrency": 2, "delay": 0.0},
        "renderer": {"concurrency": 3},
    }
    web = a_web("a.example", "b.example", latency=lambda request: 1.5 if "rendered" in request.url else 1.0)
    sim = simulate(found_at_once(requests), web, settings={**FREE, "THROTTLING_SCOPES": limits})
    most = {scope: sim.most_in_flight(scope) for scope in ("a.example", "b.example", "renderer")}
    assert most["a.example"] == most["b.example"] == 2
    assert 1 <= most["renderer"] <= 3
    assert sim.most_in_flight() == 4
    assert len(sim.sends) == 81


def test_p18_stopping_during_a_delay_of_a_minute_takes_no_minute() -> None:
    def parse(spider: trawl.Spider, response: trawl.Response) -> Iterator[trawl.Request]:
        if response.url.endswith("stop"):
            spider.crawl.shutdown()
        else:
            yield trawl.Request(f"{A}/next")
            yield trawl.Request("http://start.example/stop", meta={"delay": 10.0, "throttling_scopes": []})

    sim = simulate(
        spider_of(lambda: [trawl.Request(f"{A}/")], parse),
        a_web("a.example"),
        settings={**FREE, "DOWNLOAD_DELAY": 60.0},
    )
    assert (sim.reason, shown(sim)) == ("shutdown", [(0.0, "")])
    assert sim.elapsed - 10.0 < 2.0


def test_p18_also_while_a_callback_waits_for_a_direct_fetch() -> None:
    class Fetching(trawl.Spider):
        name = "fetching"

        async def start(self) -> AsyncGenerator[trawl.Request, None]:
            yield trawl.Request(f"{A}/")
            yield trawl.Request("http://start.example/stop", meta={"delay": 10.0, "throttling_scopes": []})

        async def parse(self, response: trawl.Response, **kwargs: object) -> Any:
            if response.url.endswith("stop"):
                self.crawl.shutdown()
                return
            await self.fetch(trawl.Request(f"{A}/direct"))

    sim = simulate(Fetching, a_web("a.example"), settings={**FREE, "DOWNLOAD_DELAY": 60.0})
    assert (sim.reason, shown(sim)) == ("shutdown", [(0.0, "")])
    assert sim.elapsed - 10.0 < 2.0


@pytest.mark.parametrize("scopes", [1, 10, 100, 400])
def test_the_allowed_rate_is_used_to_99_percent_and_no_send_is_early(scopes: int) -> None:
    pages = max(2, 200 // scopes)
    hosts = [f"h{number}.example" for number in range(scopes)]

    def requests() -> Iterator[trawl.Request]:
        for number in range(pages):
            for host in hosts:
                yield trawl.Request(f"http://{host}/{number}")

    web = a_web(*hosts, latency=0.05)
    settings = {**FREE, "DOWNLOAD_DELAY": 0.3, "CONCURRENT_REQUESTS": 0}
    sim = simulate(found_at_once(requests), web, settings=settings)
    gaps = [gap for host in hosts for gap in sim.gaps(host)]
    assert len(gaps) == scopes * (pages - 1)
    assert min(gaps) >= 0.3 - 1e-9
    assert max(gaps) <= 0.3 / 0.99


def test_the_allowed_rate_is_used_where_connecting_takes_time_and_a_server_counts() -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.05, connect=0.04, keep_alive=0.0, limit=RateLimit(rate=4.0, burst=1))
    settings = {**FREE, "THROTTLING_SCOPES": {"a.example": {"rate": 4}}}
    spider = spider_of(lambda: [trawl.Request(f"{A}/{number}") for number in range(50)])
    sim = simulate(spider, web, settings=settings)
    assert {send.status for send in sim.sends} == {200}  # never early: the server has no burst to forgive it
    assert min(sim.gaps("a.example")) >= 0.25
