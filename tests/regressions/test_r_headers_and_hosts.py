"""R1, R2, R5-R9, R12, R13, R17: headers, hosts, clocks and robots.txt."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import pairwise

import pytest

import trawl
from tests.promises.crawling import EXACT, FREE, a_web, answering, crawled, shown, times
from trawl.testing import SimulatedResponse, SimulatedWeb

A = "http://a.example"


def pages(count: int = 3) -> list[trawl.Request]:
    return [trawl.Request(f"{A}/{number}") for number in range(count)]


PAST = "Wed, 01 Jan 2020 00:00:00 GMT"
GARBAGE = ["0", "-5", "7.5", "soon", "", PAST, "1e3", "0x10", "7 s", "\u0667", "Infinity", "nan"]


@pytest.mark.parametrize("value", GARBAGE)
@pytest.mark.parametrize("header", ["Retry-After", "RateLimit-Reset"])
def test_r1_a_header_that_says_nothing_leaves_the_own_backoff_on(header: str, value: str) -> None:
    headers = {header: value.encode().decode("latin-1")}
    sim = crawled(pages, answering(SimulatedResponse(429, headers=headers)), EXACT)
    assert times(sim) == [0.0, 2.1, 4.1, 6.1]


def test_r2_fast_429s_slow_it_down() -> None:
    web = a_web("a.example", latency=0.01, status=429)
    settings = {**FREE, "AUTOTHROTTLE_ENABLED": True, "BACKOFF_GIVE_UP_AFTER": 200.0}
    sim = crawled(lambda: pages(3), web, settings)
    gaps = sim.gaps("a.example")
    assert all(later >= earlier for earlier, later in pairwise(gaps))
    assert gaps[0] >= 5.0
    assert gaps[-1] >= 40.0


def test_r6_one_scope_however_the_host_is_written() -> None:
    urls = [
        "http://Bücher.example/1",
        "http://xn--bcher-kva.example/2",
        "http://bücher.example:80/3",
        "http://BÜCHER.EXAMPLE./4",
    ]
    sim = crawled(lambda: map(trawl.Request, urls), a_web("bücher.example"), EXACT)
    assert times(sim) == [0.0, 1.0, 2.0, 3.0]
    urls = ["http://[::1]/1", "http://[0:0:0:0:0:0:0:1]/2", "http://[::0001]:80/3"]
    sim = crawled(lambda: map(trawl.Request, urls), a_web("[::1]"), EXACT)
    assert times(sim) == [0.0, 1.0, 2.0]


def test_r7_a_date_in_a_header_is_converted_once_and_then_the_monotonic_clock_counts() -> None:
    # A simulation's wall clock starts at 2025-01-01T00:00:00Z.
    headers = {"Retry-After": "Wed, 01 Jan 2025 00:00:30 GMT"}
    sim = crawled(pages, answering(SimulatedResponse(429, headers=headers)), EXACT)
    assert times(sim)[:2] == [0.0, 30.0]


@pytest.mark.parametrize(("delay", "gap"), [("0.5", 0.5), ("2.25", 2.25), ("0.05", 0.05)])
def test_r8_a_crawl_delay_keeps_its_fraction(delay: str, gap: float) -> None:
    web = a_web("a.example", robots=f"User-agent: *\nCrawl-delay: {delay}")
    sim = crawled(pages, web, {**FREE, "ROBOTSTXT_OBEY": True})
    assert sim.gaps("a.example")[1:] == [gap, gap]


def test_r8_our_own_group_counts() -> None:
    robots = "User-agent: *\nCrawl-delay: 9\n\nUser-agent: trawl\nCrawl-delay: 3\n\nUser-agent: other\nCrawl-delay: 20"
    web = a_web("a.example", robots=robots)
    sim = crawled(pages, web, {**FREE, "ROBOTSTXT_OBEY": True, "USER_AGENT": "trawl/1.0 (+https://example.com)"})
    assert sim.gaps("a.example")[1:] == [3.0, 3.0]


@pytest.mark.parametrize("crawl_delay", [3.0, 30.0])
def test_r9_a_crawl_delay_and_a_backoff_mask_each_other_in_neither_way(crawl_delay: float) -> None:
    # Before the trigger the Crawl-delay holds, being longer than the configured 2.0; the trigger doubles it.
    left = iter([429])
    web = SimulatedWeb()
    web.add_host(
        "a.example",
        robots=f"User-agent: *\nCrawl-delay: {crawl_delay:g}",
        handler=lambda request: SimulatedResponse(next(left, 200)),
    )
    settings = {**FREE, "DOWNLOAD_DELAY": 2.0, "ROBOTSTXT_OBEY": True, "BACKOFF_WINDOW": 1e6}
    gaps = crawled(lambda: pages(4), web, settings).gaps("a.example")
    assert gaps == [crawl_delay, *[2 * crawl_delay] * 4]


def test_r9_a_header_that_asks_for_less_than_the_crawl_delay_shortens_nothing() -> None:
    left = iter([SimulatedResponse(429, headers={"Retry-After": "1"})])
    web = a_web("a.example", robots="User-agent: *\nCrawl-delay: 10", handler=lambda _: next(left, SimulatedResponse()))
    gaps = crawled(pages, web, {**FREE, "ROBOTSTXT_OBEY": True, "BACKOFF_WINDOW": 1e6}).gaps("a.example")
    assert gaps == [10.0, 20.0, 20.0, 20.0]


def test_r12_a_429_burns_no_retry() -> None:
    web = answering(*[SimulatedResponse(429)] * 7)
    sim = crawled(lambda: pages(1), web, EXACT, RETRY_TIMES=1)
    assert sim.stats["response_status_count/429"] == 7
    assert sim.stats["response_status_count/200"] == 1


def test_r13_a_host_that_refuses_for_ever_ends_with_a_clear_outcome(caplog: pytest.LogCaptureFixture) -> None:
    web = a_web("a.example", latency=0.1, status=429)
    web.add_host("b.example", latency=0.1)
    requests = [*pages(50), *(trawl.Request(f"http://b.example/{number}") for number in range(5))]
    with caplog.at_level(logging.WARNING):
        sim = crawled(lambda: requests, web, EXACT)
    assert sim.reason == "finished"
    assert sim.stats["refused"] == 50
    assert len(sim.of("b.example")) == 5
    assert 900.0 <= sim.elapsed <= 1300.0
    assert len([record for record in caplog.records if "a.example" in record.getMessage()]) <= 2


def test_r17_a_5xx_disallows_all_within_a_time_limit_and_is_asked_again() -> None:
    web = a_web("a.example", latency=0.1)
    web.add_page(f"{A}/robots.txt", status=503)
    sim = crawled(pages, web, {**EXACT, "ROBOTSTXT_OBEY": True})
    assert {send.url for send in sim.sends} == {f"{A}/robots.txt"}  # nothing else was ever sent
    assert 2 <= len(sim.sends) <= 20
    assert sim.stats.get("robots_forbidden", 0) + sim.stats.get("refused", 0) == 3
    assert (sim.reason, sim.elapsed <= 1200.0) == ("finished", True)


def test_r17_when_it_can_be_read_again_its_rules_count() -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.1, outages=[(0.0, 25.0)], robots="User-agent: *\nDisallow: /1")
    sim = crawled(pages, web, {**EXACT, "ROBOTSTXT_OBEY": True})
    assert [path for _, path in shown(sim) if path != "robots.txt"] == ["0", "2"]
    assert sim.stats["robots_forbidden"] == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
def test_r17_a_4xx_allows_all_and_its_page_is_no_rules(status: int) -> None:
    web = a_web("a.example", latency=0.1)
    web.add_page(f"{A}/robots.txt", body="User-agent: *\nDisallow: /", status=status)
    sim = crawled(pages, web, {**EXACT, "ROBOTSTXT_OBEY": True})
    assert shown(sim) == [(0.0, "robots.txt"), (1.0, "0"), (2.0, "1"), (3.0, "2")]


def test_r17_one_fetch_a_host_though_many_ask_and_no_host_waits_for_anothers() -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=lambda request: 40.0 if "robots" in request.url else 0.1)
    web.add_host("b.example", latency=0.1)

    def requests() -> Iterator[trawl.Request]:
        for number in range(20):
            yield trawl.Request(f"{A}/{number}")
            yield trawl.Request(f"http://b.example/{number}")

    settings = {**EXACT, "ROBOTSTXT_OBEY": True, "CONCURRENT_REQUESTS_PER_DOMAIN": 8}
    sim = crawled(requests, web, settings)
    assert [send.url for send in sim.sends].count(f"{A}/robots.txt") == 1
    assert sim.times("b.example") == [float(number) for number in range(21)]
    assert sim.times("a.example") == [0.0, *(40.0 + number for number in range(20))]


def test_r5_redirects_retries_and_robots_pass_the_same_scope() -> None:
    left = iter([SimulatedResponse(500)])
    web = SimulatedWeb()
    web.add_host(
        "a.example",
        latency=0.1,
        handler=lambda request: next(left, SimulatedResponse()) if "flaky" in request.url else SimulatedResponse(),
    )
    web.add_redirect(f"{A}/old", "/new")
    requests = [trawl.Request(f"{A}/1"), trawl.Request(f"{A}/old"), trawl.Request(f"{A}/flaky")]
    sim = crawled(lambda: requests, web, {**EXACT, "ROBOTSTXT_OBEY": True, "RETRY_DELAY": 0})
    assert len(sim.sends) == 6
    assert sim.gaps("a.example") == [1.0] * 5
