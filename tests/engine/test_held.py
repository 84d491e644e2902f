"""A refusal that comes while a connection is made: the request that waits for the connection is not sent (D01, B03)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

import trawl
from trawl.http import Request, Response
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

HOST = "a.example"
FREE = {
    "ROBOTSTXT_OBEY": False,
    "THROTTLING_SCOPES": {HOST: {"delay": 0.0, "concurrency": 2}},
    "DOWNLOAD_DELAY_PER_SLOT": 0.0,
    "RANDOMIZE_DOWNLOAD_DELAY": False,
    "BACKOFF_JITTER": 0,
}
REFUSES = SimulatedResponse(429, "", {"Retry-After": "7"})


def connects(request: Request) -> float:
    """The second connection takes two seconds."""
    return 2.0 if request.url.endswith("/slow") else 0.0


def web_of(refused: str = "/first", **options: Any) -> tuple[SimulatedWeb, list[str]]:
    """A site that refuses its first request, 0.5 s after it was sent; and what it was asked for."""
    asked: list[str] = []

    def answer(request: Request) -> SimulatedResponse:
        asked.append(request.url.removeprefix(f"http://{HOST}"))
        is_refused = asked.count(refused) == 1 and asked[-1] == refused
        return REFUSES if is_refused else SimulatedResponse(200, "fine")

    web = SimulatedWeb()
    web.add_host(HOST, handler=answer, **{"latency": 0.5, "connect": connects, **options})
    return web, asked


class Two(trawl.Spider):
    name = "two"
    start_urls: tuple[str, ...] = (f"http://{HOST}/first", f"http://{HOST}/slow")

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}


def times(sim: Any) -> list[tuple[float, str]]:
    return [(send.time, send.url.removeprefix(f"http://{HOST}")) for send in sim.sends]


def test_d01_a_request_that_is_still_connecting_is_not_sent_after_the_refusal() -> None:
    web, asked = web_of()
    sim = simulate(Two, web, FREE)
    # refused at 0.5, connected at 2.0: nothing before 7.5, and then on the connection that was made
    assert times(sim)[0] == (0.0, "/first")
    assert all(time >= 7.5 for time, _ in times(sim)[1:])
    assert min(time for time, _ in times(sim)[1:]) == 7.5
    assert sorted(asked) == ["/first", "/first", "/slow"]
    assert len(sim.items) == 2
    assert sim.reason == "finished"
    assert sim.stats["held_count"] == 1
    assert sim.stats["request_count"] == 3
    assert sim.stats.get("retry_count", 0) == 0


def test_b03_a_refusal_without_a_header_holds_what_is_connecting_too() -> None:
    web = SimulatedWeb()
    web.add_host(HOST, status=503, latency=0.5, connect=connects)
    sim = simulate(Two, web, {**FREE, "BACKOFF_MIN_DELAY": 4.0, "CLOSESPIDER_TIMEOUT": 8.0})
    assert [time for time, _ in times(sim)][:2] == [0.0, 4.5]


def test_a_hold_that_is_over_before_the_connection_is_made_holds_nothing() -> None:
    web, _ = web_of(connect=lambda request: 9.0 if request.url.endswith("/slow") else 0.0)
    sim = simulate(Two, web, FREE)
    assert (9.0, "/slow") in times(sim)
    assert "held_count" not in sim.stats


def test_i12_a_slot_rests_for_the_longer_delay_that_is_set_while_its_next_request_connects() -> None:
    class Changing(trawl.Spider):
        name = "changing"

        async def start(self) -> AsyncGenerator[Request, None]:
            for number in range(4):
                yield Request(f"http://{HOST}/{number}")
            yield Request("http://b.example/", meta={"delay": 2.0})

        def parse(self, response: Response) -> None:
            if "b.example" in response.url:
                self.crawl.throttling.set(HOST, delay=0.0, concurrency=2, delay_per_slot=10.0)

    web = SimulatedWeb()
    connect = {"/0": 0.0, "/1": 0.0}
    web.add_host(HOST, latency=0.1, connect=lambda request: connect.get(request.url[-2:], 2.0), keep_alive=0.0)
    web.add_host("b.example")
    scopes = {HOST: {"delay": 0.0, "concurrency": 2, "delay_per_slot": 1.0}}
    sim = simulate(Changing, web, {**FREE, "THROTTLING_SCOPES": scopes})
    assert [send.time for send in sim.of(HOST)] == [0.0, 0.0, 12.0, 12.0]  # rested at 10, and 2 s for connecting
    assert sim.stats["held_count"] == 2


def test_other_hosts_and_exempt_requests_are_sent_when_their_connection_is_made() -> None:
    class Three(Two):
        def start_requests(self) -> Iterator[Request]:
            yield Request(f"http://{HOST}/first")
            yield Request("http://b.example/slow")
            yield Request(f"http://{HOST}/slow", meta={"dont_throttle": True})

    web, _ = web_of()
    web.add_host("b.example", latency=0.5, connect=connects)
    sim = simulate(Three, web, FREE)
    assert [send.time for send in sim.sends if send.url.endswith("/slow")] == [2.0, 2.0]
    assert "held_count" not in sim.stats


def test_what_is_held_gives_its_places_back_and_what_it_would_have_used_of_a_quota() -> None:
    class Four(Two):
        def start_requests(self) -> Iterator[Request]:
            yield Request(f"http://{HOST}/first")
            yield Request(f"http://{HOST}/slow")
            yield Request("http://b.example/1", priority=-1)

    web, _ = web_of()
    web.add_host("b.example", latency=0.5)
    scopes = {HOST: {**FREE["THROTTLING_SCOPES"][HOST], "quota": 3.0, "window": 1000.0}}  # type: ignore[index]
    sim = simulate(Four, web, {**FREE, "THROTTLING_SCOPES": scopes, "CONCURRENT_REQUESTS": 2})
    assert [send.time for send in sim.of("b.example")] == [0.5]  # the places of the crawl: the first one's
    assert max(time for time, _ in times(sim)) < 20.0  # three sends fit the quota, four would wait for its window
    assert sim.reason == "finished"


def test_a_direct_fetch_is_held_too_and_its_callback_waits_for_it() -> None:
    class Fetches(trawl.Spider):
        name = "fetches"
        start_urls = ("http://b.example/", f"http://{HOST}/first")

        async def parse(self, response: Response) -> Any:
            if "b.example" in response.url:
                yield {"status": (await self.fetch(Request(f"http://{HOST}/slow"))).status}

    web, _ = web_of()
    web.add_host("b.example", latency=0.1)
    sim = simulate(Fetches, web, FREE)
    assert next(time for time, url in times(sim) if url == "/slow") >= 7.5
    assert sim.items == [{"status": 200}]
    assert sim.stats["held_count"] == 1


@pytest.mark.parametrize("concurrency", [1, 3, 8])
def test_d01_no_send_of_a_refused_host_for_as_long_as_it_asks_however_slow_its_connections(concurrency: int) -> None:
    class Many(Two):
        start_urls = tuple(f"http://{HOST}/{number}" for number in range(30))

    seen: set[str] = set()

    def answer(request: Request) -> SimulatedResponse:
        number = int(request.url.rpartition("/")[2])
        if number % 7 == 3 and request.url not in seen:
            seen.add(request.url)
            return REFUSES
        return SimulatedResponse(200, "fine")

    web = SimulatedWeb()
    web.add_host(
        HOST,
        handler=answer,
        latency=0.5,
        keep_alive=0,
        connect=lambda request: 0.3 * (int(request.url.rpartition("/")[2]) % 5),
    )
    scopes = {HOST: {"delay": 0.0, "concurrency": concurrency}}
    sim = simulate(Many, web, {**FREE, "THROTTLING_SCOPES": scopes})
    refusals = [send.finished for send in sim.sends if send.status == 429]
    assert len(refusals) == 4
    assert not [(at, send) for at in refusals for send in sim.sends if at < send.time < at + 7.0]
    assert len(sim.items) == 30
