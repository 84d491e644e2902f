"""Rows A01 to A16 of the throttling promises: concurrency, delays, slots, and what a scope may override."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterator, Mapping
from itertools import pairwise
from typing import Any

import pytest

import trawl
from tests.promises.pacing import EXACT, SPACED, A, B, crawl, pages, web_of
from trawl.errors import SettingsError
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

BOOKS, QUOTES, TOSCRAPE = "books.toscrape.com", "quotes.toscrape.com", "toscrape.com"
TWO_SLOTS = {**EXACT, "CONCURRENT_REQUESTS_PER_DOMAIN": 2, "DOWNLOAD_DELAY": 0.3, "DOWNLOAD_DELAY_PER_SLOT": 1.0}


def test_a01_two_domains_progress_side_by_side() -> None:
    sim = crawl(web_of(A, B, latency=0.1), pages(4) + pages(4, B))
    assert sim.times(A) == sim.times(B) == [0.0, 1.0, 2.0, 3.0]
    assert sim.elapsed == 3.1


def test_a01_a_slow_domain_holds_up_no_other() -> None:
    web = web_of(A, latency=20.0)
    web.add_host(B, latency=0.1)
    sim = crawl(web, pages(4) + pages(4, B))
    assert sim.times(A) == [0.0, 20.0, 40.0, 60.0]
    assert sim.times(B) == [0.0, 1.0, 2.0, 3.0]


def test_a02_names_below_one_domain_are_scopes_of_their_own() -> None:
    hosts = (BOOKS, QUOTES, TOSCRAPE)
    settings = {**EXACT, "THROTTLING_SCOPES": {}}
    sim = crawl(web_of(*hosts, latency=0.5), [url for host in hosts for url in pages(3, host)], settings)
    assert [sim.times(host) for host in hosts] == [[0.0, 1.0, 2.0]] * 3
    assert {tuple(send.scopes) for send in sim.sends} == {(host,) for host in hosts}
    assert {send.slot for send in sim.sends} == {1}


@pytest.mark.parametrize("robots", [True, False])
def test_a03_by_default_never_two_requests_to_one_domain_are_in_flight(robots: bool) -> None:
    sim = crawl(web_of(A, B, latency=2.5), pages(5) + pages(5, B), {"ROBOTSTXT_OBEY": robots})
    assert sim.most_in_flight(A) == sim.most_in_flight(B) == 1
    assert sim.most_in_flight() == 2
    assert len(sim.items) == 10


def test_a03_what_a_page_links_to_waits_for_the_domain_too() -> None:
    web = web_of(A, latency=3.0)
    web.add_page(f"http://{A}/", [f"/{n}" for n in range(5)])

    class Follows(trawl.Spider):
        name = "follows"
        start_urls = (f"http://{A}/",)

        def parse(self, response: trawl.Response, *args: Any, **kwargs: Any) -> Iterator[trawl.Request]:
            yield from response.follow_all(css="a")

    sim = simulate(Follows, web, EXACT)
    assert sim.times(A) == [0.0, 3.0, 6.0, 9.0, 12.0, 15.0]
    assert sim.most_in_flight(A) == 1


@pytest.mark.parametrize("slots", [1, 2, 3, 7])
def test_a04_a_concurrency_of_n_is_n_slots_each_with_one_request_at_a_time(slots: int) -> None:
    settings = {**SPACED, "DOWNLOAD_DELAY": 0.0, "CONCURRENT_REQUESTS_PER_DOMAIN": slots}
    sim = crawl(web_of(latency=2.0), pages(3 * slots), settings)
    assert sim.times(A) == [0.0] * slots + [2.0] * slots + [4.0] * slots
    assert {send.slot for send in sim.sends} == set(range(1, slots + 1))
    for slot in range(1, slots + 1):
        own = [send for send in sim.sends if send.slot == slot]
        assert [(send.time, send.finished) for send in own] == [(0.0, 2.0), (2.0, 4.0), (4.0, 6.0)]


def test_a04_a_slot_waits_for_the_whole_response_not_for_its_headers() -> None:
    web = web_of(A)
    for number in range(3):
        web.add_page(f"http://{A}/{number}", latency=5.0, first_byte=0.1)
    sim = crawl(web, pages(3), {**SPACED, "DOWNLOAD_DELAY": 0.0})
    assert sim.times(A) == [0.0, 5.0, 10.0]


def test_a05_the_delay_lies_between_any_two_sends_whatever_the_slot() -> None:
    sim = crawl(web_of(latency=3.5), pages(8), {**SPACED, "CONCURRENT_REQUESTS_PER_DOMAIN": 8})
    assert sim.times(A) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert sim.most_in_flight(A) == 4


def test_a05_the_default_is_a_second() -> None:
    sim = crawl(web_of(), pages(4), {"RANDOMIZE_DOWNLOAD_DELAY": False})
    assert sim.sends[0].url.endswith("/robots.txt")  # a send like others
    assert sim.times(A) == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a05_counts_from_the_send_on_the_wire_not_from_the_start_of_connecting() -> None:
    connects = {"/0": 0.25, "/1": 0.0, "/2": 0.25, "/3": 0.0}
    web = web_of(latency=0.1, keep_alive=0.0, connect=lambda request: connects[request.url[-2:]])
    sim = crawl(web, pages(4), {**SPACED, "DOWNLOAD_DELAY": 0.3, "CONCURRENT_REQUESTS_PER_DOMAIN": 4})
    times = sim.times(A)
    assert times[:2] == [0.25, 0.55]
    assert all(0.3 - 1e-9 <= later - earlier < 0.55 for earlier, later in pairwise(times))


def test_a05_a_connection_that_failed_was_no_send() -> None:
    web = web_of(
        connect=0.5, connect_error=lambda request: trawl.exceptions.ConnectFailed if "/0" in request.url else None
    )
    settings = {**SPACED, "BACKOFF_EXCEPTIONS": [], "RETRY_TIMES": 0}
    sim = crawl(web, pages(3), settings)
    assert sim.times(A) == [1.0, 2.0]


def test_a05_redirects_and_retries_keep_the_delay() -> None:
    web = web_of(A, handler=lambda request: SimulatedResponse(500), latency=0.1)
    web.add_redirect(f"http://{A}/0", "/there")
    web.add_page(f"http://{A}/there")
    sim = crawl(web, pages(2), {**SPACED, "RETRY_TIMES": 1, "RETRY_DELAY": 0.0})
    assert len(sim.sends) == 4
    assert sim.gaps(A) == [1.0, 1.0, 1.0]


def test_a06_the_delay_per_slot_lies_between_two_sends_of_one_slot() -> None:
    settings = {**EXACT, "DOWNLOAD_DELAY": 0.0, "CONCURRENT_REQUESTS_PER_DOMAIN": 3}
    sim = crawl(web_of(latency=0.4), pages(9), settings)
    assert sim.times(A) == [0.0] * 3 + [1.0] * 3 + [2.0] * 3
    for slot in (1, 2, 3):
        assert [send.time for send in sim.sends if send.slot == slot] == [0.0, 1.0, 2.0]


def test_a06_it_counts_from_the_earlier_send_not_from_its_response() -> None:
    sim = crawl(web_of(latency=0.75), pages(3), {**EXACT, "DOWNLOAD_DELAY": 0.0})
    assert sim.times(A) == [0.0, 1.0, 2.0]


def test_a07_a_slot_whose_response_came_back_early_waits_its_delay_out() -> None:
    settings = {**EXACT, "DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 5.0, "CONCURRENT_REQUESTS_PER_DOMAIN": 2}
    sim = crawl(web_of(latency=0.01), pages(4), settings)
    assert sim.times(A) == [0.0, 0.0, 5.0, 5.0]


@pytest.mark.parametrize("latency", [0.0, 0.01, 0.3, 0.5, 0.69])
def test_a08_two_slots_and_both_delays(latency: float) -> None:
    sim = crawl(web_of(latency=latency), pages(6), TWO_SLOTS)
    assert [(send.time, send.slot) for send in sim.sends] == [
        (0.0, 1), (0.3, 2), (1.0, 1), (1.3, 2), (2.0, 1), (2.3, 2),
    ]  # fmt: skip
    assert all(send.time != 0.6 for send in sim.sends)


def test_a08_with_robots_the_request_for_robots_is_the_first_send_of_slot_1() -> None:
    sim = crawl(web_of(latency=0.2), pages(4), {**TWO_SLOTS, "ROBOTSTXT_OBEY": True})
    assert [(send.time, send.slot) for send in sim.sends] == [(0.0, 1), (0.3, 2), (1.0, 1), (1.3, 2), (2.0, 1)]


async def test_a08_the_same_inside_a_running_trio_program(autojump_clock: object) -> None:
    class Pages(trawl.Spider):
        name = "pages"
        start_urls = pages(3)

        def parse(self, response: trawl.Response, *args: Any, **kwargs: Any) -> None:
            pass

    sim = await web_of(latency=0.5).crawl(Pages, settings=TWO_SLOTS)
    assert [(send.time, send.slot) for send in sim.sends] == [(0.0, 1), (0.3, 2), (1.0, 1)]


def test_a09_a_busy_slot_waits_for_its_response_even_when_its_delay_has_passed() -> None:
    latencies = {"/0": 2.0, "/3": 3.0}
    web = web_of(latency=lambda request: latencies.get(request.url[-2:], 0.1))
    sim = crawl(web, pages(8), TWO_SLOTS)
    assert [(send.time, send.slot) for send in sim.sends] == [
        (0.0, 1), (0.3, 2), (1.3, 2), (2.0, 1), (2.3, 2), (3.3, 2), (4.3, 2), (5.0, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_a09_the_rules_hold_for_any_number_of_requests_slots_and_response_times(seed: int) -> None:
    slots, delay, rest = 1 + seed, 0.1 * (seed % 3), 0.7 * (seed % 4)
    web = web_of(latency=lambda request: (int(request.url.rpartition("/")[2]) * 37 % 19) / 10)
    settings = {
        **EXACT,
        "CONCURRENT_REQUESTS_PER_DOMAIN": slots,
        "DOWNLOAD_DELAY": delay,
        "DOWNLOAD_DELAY_PER_SLOT": rest,
    }
    sim = crawl(web, pages(60), settings, seed)
    assert len(sim.items) == 60
    assert min(sim.gaps(A)) >= delay - 1e-9
    for slot in range(1, slots + 1):
        own = [send for send in sim.sends if send.slot == slot]
        for earlier, later in pairwise(own):
            assert later.time >= max(earlier.finished, earlier.time + rest) - 1e-9
    assert max(send.slot for send in sim.sends) <= slots
    assert as_early_as_may_be(sim.times(A), [send.finished for send in sim.sends], slots, delay, rest)


def as_early_as_may_be(times: list[float], ends: list[float], slots: int, delay: float, rest: float) -> bool:
    """Whether each send came as soon as the delay and the first slot to be free and rested let it."""
    ready = [0.0] * slots
    last = -delay
    for time, end in zip(times, ends, strict=True):
        ready.sort()
        if abs(time - max(last + delay, ready[0])) > 1e-6:
            return False
        ready[0], last = max(end, time + rest), time
    return True


@pytest.mark.parametrize(("cap", "most"), [(4, 4), (16, 16), (0, 40)])
def test_a11_the_cap_on_all_requests_in_flight(cap: int, most: int) -> None:
    hosts = [f"h{number}.example" for number in range(40)]
    settings = {**EXACT, "CONCURRENT_REQUESTS": cap}
    sim = crawl(web_of(*hosts, latency=1.5), [url for host in hosts for url in pages(2, host)], settings)
    assert sim.most_in_flight() == most
    assert len(sim.items) == 80


def test_a11_the_default_cap_is_16_in_one_scope_too() -> None:
    settings = {**SPACED, "CONCURRENT_REQUESTS_PER_DOMAIN": 50, "DOWNLOAD_DELAY": 0.0}
    assert crawl(web_of(latency=1.0), pages(100), settings).most_in_flight(A) == 16
    assert crawl(web_of(latency=1.0), pages(100), {**settings, "CONCURRENT_REQUESTS": 0}).most_in_flight(A) == 50


def test_a11_what_is_configured_above_the_cap_gets_a_warning_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    settings = {
        **EXACT,
        "CONCURRENT_REQUESTS": 4,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
        "THROTTLING_SCOPES": {A: {"concurrency": 5}, "api": {"concurrency": 4}},
    }
    crawl(web_of(), pages(1), settings)
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert sum("CONCURRENT_REQUESTS_PER_DOMAIN" in warning for warning in warnings) == 1
    assert sum(A in warning for warning in warnings) == 1
    assert not any("api" in warning for warning in warnings)


def test_a11_in_any_spelling_of_the_host(caplog: pytest.LogCaptureFixture) -> None:
    crawl(web_of(), pages(1), {**EXACT, "THROTTLING_SCOPES": {"A.Example.": {"concurrency": 50}}})
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "THROTTLING_SCOPES['a.example'] has concurrency 50, above CONCURRENT_REQUESTS = 16, which caps it; "
        "raise that too"
    ]


@pytest.mark.parametrize("settings", [{}, {"CONCURRENT_REQUESTS": 0, "CONCURRENT_REQUESTS_PER_DOMAIN": 100}])
def test_a11_no_warning_without_cause(settings: Mapping[str, object], caplog: pytest.LogCaptureFixture) -> None:
    crawl(web_of(), pages(1), {**EXACT, **settings})
    assert not caplog.records


@pytest.mark.parametrize("latency", [0.1, 0.5, 1.0])
def test_a12_a_delay_of_at_least_the_response_time_makes_an_effective_concurrency_of_1(latency: float) -> None:
    sim = crawl(web_of(latency=latency), pages(6), {**SPACED, "CONCURRENT_REQUESTS_PER_DOMAIN": 8})
    assert sim.most_in_flight(A) == 1
    assert sim.times(A) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_a13_a15_a_scope_overrides_what_it_names_and_others_keep_the_defaults() -> None:
    settings = {**SPACED, "THROTTLING_SCOPES": {A: {"concurrency": 2, "delay": 0.25}}}
    sim = crawl(web_of(A, B, latency=0.4), pages(5) + pages(3, B), settings)
    assert sim.times(A) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert sim.most_in_flight(A) == 2
    assert sim.times(B) == [0.0, 1.0, 2.0]


def test_a14_no_site_is_in_the_defaults() -> None:
    sim = crawl(web_of(QUOTES, BOOKS), pages(3, QUOTES) + pages(3, BOOKS), EXACT)
    assert sim.times(QUOTES) == sim.times(BOOKS) == [0.0, 1.0, 2.0]


def test_a14_a15_16_slots_without_a_delay_are_16_a_second() -> None:
    web = web_of(QUOTES, BOOKS, latency=0.2)
    settings = {**EXACT, "CONCURRENT_REQUESTS": 32, "THROTTLING_SCOPES": {QUOTES: {"concurrency": 16, "delay": 0.0}}}
    sim = crawl(web, pages(48, QUOTES) + pages(3, BOOKS), settings)
    assert sim.times(QUOTES) == [0.0] * 16 + [1.0] * 16 + [2.0] * 16
    assert {send.slot for send in sim.of(QUOTES)} == set(range(1, 17))
    assert sim.times(BOOKS) == [0.0, 1.0, 2.0]


def test_a15_a_scopes_delay_per_slot_and_delay_are_apart() -> None:
    scopes = {A: {"delay_per_slot": 3.0}, B: {"delay": 3.0}}
    settings = {**EXACT, "CONCURRENT_REQUESTS_PER_DOMAIN": 2, "THROTTLING_SCOPES": scopes}
    sim = crawl(web_of(A, B), pages(5) + pages(3, B), settings)
    assert sim.times(A) == [0.0, 1.0, 3.0, 4.0, 6.0]
    assert sim.times(B) == [0.0, 3.0, 6.0]


def test_a16_all_keys_are_known_and_another_is_refused_with_the_nearest() -> None:
    every = {
        "concurrency": 2, "delay": 1.0, "delay_per_slot": 1.0, "jitter": 0.1, "backoff": {"window": 30.0},
        "rampup": True, "quota": 10, "window": 60.0, "sliding": True,
        "manager": "trawl.throttling.ThrottlingScopeManager", "ignore_robots_txt": True,
    }  # fmt: skip
    settings = {**EXACT, "THROTTLING_SCOPES": {A: every, B: {"rate": 4}}}
    assert len(crawl(web_of(A, B), pages(1) + pages(1, B), settings).items) == 2
    with pytest.raises(SettingsError, match=r"a\.example.*concurency.*concurrency"):
        crawl(web_of(), pages(1), {"THROTTLING_SCOPES": {A: {"concurency": 2}}})


class Changing(trawl.Spider):
    """Sets new limits when the page ``/1`` has come."""

    name = "changing"
    limits: Mapping[str, float] = {}

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        for url in pages(6):
            yield trawl.Request(url)

    def parse(self, response: trawl.Response, *args: Any, **kwargs: Any) -> None:
        if response.url.endswith("/1"):
            self.crawl.throttling.set(A, **self.limits)


@pytest.mark.parametrize(
    ("limits", "times"),
    [
        ({"delay": 0.5}, [0.0, 2.0, 2.5, 3.0, 3.5, 4.0]),
        ({"delay": 5.0}, [0.0, 2.0, 7.0, 12.0, 17.0, 22.0]),
        ({"delay": 0.0}, [0.0, 2.0, 2.1, 2.2, 2.3, 2.4]),
        ({"delay_per_slot": 3.0}, [0.0, 2.0, 5.0, 8.0, 11.0, 14.0]),
        ({"delay": 0.0, "concurrency": 2}, [0.0, 2.0, 2.1, 2.1, 2.2, 2.2]),
    ],
)
def test_a20_a_changed_delay_is_felt_by_the_send_that_waits(limits: Mapping[str, float], times: list[float]) -> None:
    web: SimulatedWeb = web_of(latency=0.1)
    sim = simulate(Changing, web, {**SPACED, "DOWNLOAD_DELAY": 2.0}, limits=limits)
    assert sim.times(A) == times
