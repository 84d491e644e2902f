"""Row B20 of the throttling promises, how long a scope is waited for: what counts, what does not, and how it ends."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio

import trawl
from tests.promises.pacing import SPACED, A, crawl, in_turn, pages, sends_of, web_of
from trawl.exceptions import ReadTimeout, ResponseBroken
from trawl.http.notes import NO_NOTES, RequestNotes, notes_of
from trawl.testing import Outage, RateLimit, SimulatedResponse

LONG = {**SPACED, "BACKOFF_MAX_DELAY": 3600.0}


def asking(times: int, **headers: str) -> Any:
    """A host that refuses so often, and says for how long."""
    answers = iter([SimulatedResponse(429, headers=headers)] * times)
    return lambda request: next(answers, SimulatedResponse())


@pytest.mark.parametrize("field", ["Retry-After", "RateLimit-Reset", "X-RateLimit-Reset"])
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("settings", [{}, {"BACKOFF_JITTER": 0.1, "RANDOMIZE_DOWNLOAD_DELAY": True}])
def test_b20_time_that_a_server_asked_for_does_not_count_towards_giving_it_up(
    field: str, times: int, settings: dict[str, Any]
) -> None:
    sim = crawl(web_of(handler=asking(times, **{field: "1800"})), pages(20), {**LONG, **settings})
    assert len(sim.items) == 20
    assert sim.times(A)[1] >= 1800.0
    assert "refused" not in sim.stats


def test_b20_nor_does_it_where_only_the_scopes_own_maximum_allows_the_wish() -> None:
    scopes = {A: {"backoff": {"max_delay": 3600.0}}}
    sim = crawl(web_of(handler=asking(2, **{"Retry-After": "3000"})), pages(4), {**SPACED, "THROTTLING_SCOPES": scopes})
    assert sim.times(A) == [0.0, 3000.0, 6000.0, 6004.0, 6008.0, 6012.0]


def test_r13_a_host_that_asks_for_time_for_ever_is_given_up() -> None:
    sim = crawl(web_of(latency=0.1, handler=asking(1000, **{"Retry-After": "1800"})), pages(3), LONG)
    assert sim.stats["refused"] == 3
    assert 18_000.0 < sim.elapsed < 20_000.0
    assert min(sim.gaps(A)) >= 1800.0


def hourly(quota: int, window: float, status: int = 429) -> Any:
    """A host that serves so many pages in each window, and then says how many seconds of the window are left."""
    served: dict[int, int] = {}
    start: list[float] = []

    def handler(request: trawl.Request) -> SimulatedResponse:
        now = trio.current_time()
        start[:] = start or [now]
        number = int((now - start[0]) // window)
        served[number] = served.get(number, 0) + 1
        if served[number] <= quota:
            return SimulatedResponse()
        left = (number + 1) * window - (now - start[0])
        return SimulatedResponse(status, headers={"Retry-After": str(math.ceil(left))})

    return handler


@pytest.mark.parametrize("status", [403, 429, 503])
@pytest.mark.parametrize(("quota", "window", "count"), [(20, 3600.0, 70), (3, 86_400.0, 8), (1, 3600.0, 4)])
def test_b20_d05_a_time_that_was_named_passes_before_a_host_is_given_up_though_the_wait_is_cut(
    quota: int, window: float, count: int, status: int
) -> None:
    sim = crawl(web_of(latency=0.1, handler=hourly(quota, window, status)), pages(count), SPACED)
    assert len(sim.items) == count
    assert "refused" not in sim.stats
    assert max(sim.gaps(A)) < 302.0  # D05: it is asked again after BACKOFF_MAX_DELAY


def test_b20_a_host_is_given_up_once_the_time_that_it_named_and_the_patience_have_passed() -> None:
    zero: list[float] = []

    def handler(request: trawl.Request) -> SimulatedResponse:
        now = trio.current_time()
        zero[:] = zero or [now]
        left = math.ceil(zero[0] + 3000.0 - now)
        return SimulatedResponse(503, headers={"Retry-After": str(left)} if left > 0 else {})

    sim = crawl(web_of(latency=0.1, handler=handler), pages(3), SPACED)
    assert sim.stats["refused"] == 3
    assert sim.elapsed == pytest.approx(3900.1, abs=2.0)


@pytest.mark.parametrize(("hours", "most"), [(3, 300.0), (23, 300.0), (9, 3600.0)])
def test_b20_a_server_that_always_names_an_hour_is_waited_for_up_to_a_day(hours: int, most: float) -> None:
    over_at = hours * 3600.0

    def handler(request: trawl.Request) -> SimulatedResponse:
        start[:] = start or [trio.current_time()]
        if trio.current_time() - start[0] < over_at:
            return SimulatedResponse(503, headers={"Retry-After": "3600"})
        return SimulatedResponse()

    start: list[float] = []
    sim = crawl(web_of(latency=0.1, handler=handler), pages(3), {**SPACED, "BACKOFF_MAX_DELAY": most})
    assert len(sim.items) == 3
    assert sim.elapsed < over_at + 3700.0


@pytest.mark.parametrize(("asked", "end"), [(3600, 87_300.0), (86_400, 87_300.0), (1_000_000, 87_300.0)])
def test_b20_r13_a_server_that_is_asked_early_and_always_names_a_later_time_is_given_up_after_a_day(
    asked: int, end: float
) -> None:
    sim = crawl(web_of(latency=0.1, handler=asking(1000, **{"Retry-After": str(asked)})), pages(3), SPACED)
    assert sim.stats["refused"] == 3
    assert sim.elapsed == pytest.approx(end, abs=310.0)


@pytest.mark.parametrize("cut_to", [90.0, 200.0])
def test_b20_r13_a_server_that_names_a_later_time_at_each_request_is_given_up_however_soon_it_is_asked(
    cut_to: float,
) -> None:
    settings = {**SPACED, "BACKOFF_MAX_DELAY": cut_to}
    sim = crawl(web_of(latency=0.1, handler=asking(10_000, **{"Retry-After": "600"})), pages(3), settings)
    assert sim.stats["refused"] == 3
    assert sim.elapsed == pytest.approx(86_400.0 + 900.0, abs=2 * cut_to)


def test_b20_the_last_page_is_not_taken_for_a_bad_one_because_it_was_asked_for_before_the_named_time() -> None:
    sim = crawl(web_of(latency=0.1, handler=hourly(1, 3600.0)), pages(2), {**SPACED, "BACKOFF_MAX_DELAY": 60.0})
    assert len(sim.items) == 2


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize(
    "settings",
    [{}, {"RANDOMIZE_DOWNLOAD_DELAY": True, "BACKOFF_JITTER": 0.1}, {"DOWNLOAD_DELAY": 0.0}, {"RETRY_TIMES": 1}],
)
def test_b20_an_outage_of_15_minutes_ends_nobody(status: int, slots: int, settings: dict[str, Any]) -> None:
    web = web_of(latency=0.1, outages=[Outage(10.0, 910.0, status=status)])
    own = {"concurrency": slots, "delay": settings.get("DOWNLOAD_DELAY", 1.0), "delay_per_slot": 0.0}
    sim = crawl(web, pages(400), {**SPACED, **settings, "THROTTLING_SCOPES": {A: own}})
    assert len(sim.items) == 400
    assert "refused" not in sim.stats


@pytest.mark.parametrize("seed", range(12))
def test_b20_jitter_leaves_no_gap_at_the_end_of_an_outage(seed: int) -> None:
    web = web_of(latency=1.0, outages=[(10.5, 909.5)])
    sim = crawl(web, pages(12), {"ROBOTSTXT_OBEY": False}, seed)
    assert len(sim.items) == 12


@pytest.mark.parametrize("latency", [0.0, 20.0])
def test_b20_nor_does_one_that_is_noticed_late(latency: float) -> None:
    web = web_of(latency=0.5, outages=[Outage(10.0, 910.0, error=ReadTimeout, latency=latency)])
    sim = crawl(web, pages(40), SPACED)
    assert len(sim.items) == 40


@pytest.mark.parametrize("delay", [0.0, 1.0, 3.0, 7.0])
@pytest.mark.parametrize("latency", [0.1, 1.0])
def test_b20_nor_does_one_in_which_robots_txt_is_not_read(delay: float, latency: float) -> None:
    web = web_of(latency=latency, outages=[Outage(0.0, 900.0)], robots="")
    sim = crawl(web, pages(13), {"DOWNLOAD_DELAY": delay})
    assert len(sim.items) == 13


@pytest.mark.parametrize(("until", "pages_read"), [(900.0, 13), (1e9, 0)])
def test_b20_the_last_try_for_robots_txt_may_take_longer_than_the_one_before(until: float, pages_read: int) -> None:
    outages = [Outage(0.0, 700.0, latency=0.1), Outage(700.0, until, latency=30.0)]
    web = web_of(latency=lambda request: 30.0 if "robots" in request.url else 0.1, outages=outages, robots="")
    sim = crawl(web, pages(13), {"DOWNLOAD_DELAY": 0.0})
    assert sim.times(A)[6:8] == pytest.approx([610.6, 900.0])
    assert len(sim.items) == pages_read
    if not pages_read:
        assert sim.elapsed == pytest.approx(930.0)
        assert sim.stats["robots_forbidden"] == 13


def test_b20_the_last_try_is_one_request_and_the_end_comes_with_its_answer() -> None:
    web = web_of(latency=0.1, outages=[Outage(10.0, 1e9)])
    sim = crawl(web, pages(40), {**SPACED, "THROTTLING_SCOPES": {A: {"concurrency": 8, "delay": 1.0}}})
    assert sim.times(A)[-3:] == pytest.approx([264.7, 520.8, 910.0])  # in place of 820.9: 300 s later is too late
    assert sim.elapsed == pytest.approx(910.1)
    assert sim.stats["refused"] == 30


def test_b20_the_last_try_is_never_closer_than_the_delay_of_ones_own_or_of_robots_txt() -> None:
    web = web_of(latency=0.1, outages=[Outage(10.0, 1e9)], robots="User-agent: *\nCrawl-delay: 7")
    settings = {**SPACED, "ROBOTSTXT_OBEY": True, "BACKOFF_MAX_DELAY": 9.0, "RANDOMIZE_DOWNLOAD_DELAY": True}
    for give_up_after in (30.0, 34.0, 38.0, 42.0):
        sim = crawl(web, pages(9), {**settings, "BACKOFF_GIVE_UP_AFTER": give_up_after})
        assert min(sim.gaps(A)) >= 7.0
        assert sim.stats["refused"] > 0


def test_b20_what_was_on_the_wire_when_its_host_was_given_up_ends_with_the_others() -> None:
    web = web_of(latency=lambda request: 40.0 if request.url.endswith("/0") else 0.1, outages=[(0.0, 1e9)])
    settings = {**SPACED, "BACKOFF_GIVE_UP_AFTER": 30.0, "CONCURRENT_REQUESTS_PER_DOMAIN": 2}
    sim = crawl(web, pages(6), settings)
    assert sends_of(sim, "/0") == [0.0]
    assert sim.stats["refused"] == 6


def test_b20_a_good_answer_to_the_last_try_goes_on_from_the_delay_that_it_had_backed_off_to() -> None:
    sim = crawl(web_of(handler=in_turn(429, 429, 429)), pages(4), {**SPACED, "BACKOFF_GIVE_UP_AFTER": 20.0})
    assert sim.times(A) == [0.0, 2.0, 6.0, 20.0, 28.0, 36.0, 44.0]


def broken(*paths: str) -> Any:
    """A host whose pages at ``paths`` are never whole; none named: none is."""
    return lambda request: SimulatedResponse(error=ResponseBroken if request.url.endswith(paths or "") else None)


@pytest.mark.parametrize("robots", [True, False])
@pytest.mark.parametrize("count", [1, 2, 8])
@pytest.mark.parametrize("times", [1, 2])
def test_b20_a_page_that_is_never_whole_ends_after_its_retries_whether_there_are_others_or_not(
    times: int, count: int, robots: bool
) -> None:
    settings = {**SPACED, "RETRY_TIMES": times, "ROBOTSTXT_OBEY": robots}
    sim = crawl(web_of(latency=0.1, handler=broken("/0")), pages(count), settings)
    assert len(sends_of(sim, "/0")) == times + 1
    assert len(sim.items) == count - 1
    assert sim.elapsed < 40.0


def test_b20_so_does_the_last_page_of_a_host_that_was_well_until_then() -> None:
    sim = crawl(web_of(latency=0.1, handler=broken("/19")), pages(20), SPACED)
    assert len(sends_of(sim, "/19")) == 3
    assert len(sim.items) == 19


@pytest.mark.parametrize("times", [1, 2])
def test_b20_an_outage_in_which_every_answer_breaks_off_still_ends_nobody(times: int) -> None:
    web = web_of(latency=0.1, outages=[Outage(5.0, 300.0, error=ResponseBroken)])
    assert len(crawl(web, pages(20), {**SPACED, "RETRY_TIMES": times}).items) == 20


def test_b20_a_host_that_was_never_heard_to_speak_http_is_not_there() -> None:
    sim = crawl(web_of(latency=0.1, handler=broken()), pages(3), SPACED)
    assert len(sim.sends) == 9
    assert "refused" not in sim.stats


@pytest.mark.parametrize(("status", "headers"), [(429, {}), (429, {"Retry-After": "5"}), (503, {"Retry-After": "5"})])
def test_r12_a_path_that_says_later_for_ever_ends_while_the_rest_of_its_host_is_served(
    status: int, headers: dict[str, str]
) -> None:
    heard: list[Any] = []
    web = web_of(
        latency=0.1,
        handler=lambda request: SimulatedResponse(
            status if request.url.endswith("/3") else 200, headers=headers if request.url.endswith("/3") else {}
        ),
    )
    requests = [trawl.Request(url, errback=heard.append) for url in pages(20)]
    sim = crawl(web, requests, {**SPACED, "RETRY_TIMES": 5})
    assert len(sends_of(sim, "/3")) == 7
    assert sim.elapsed < 200.0
    assert [error.response.status for error in heard] == [status]
    assert len(sim.items) == 19
    assert "retry_count" not in sim.stats


def test_r12_it_ends_in_the_middle_of_a_crawl_as_well_and_others_are_not_slowed_for_ever() -> None:
    sim = crawl(
        web_of(latency=0.1, handler=lambda r: SimulatedResponse(429 if r.url.endswith("/bad") else 200)),
        [f"http://{A}/bad", *pages(400)],
        {**SPACED, "DEPTH_FIRST": False, "BACKOFF_WINDOW": 5.0},
    )
    assert len(sends_of(sim, "/bad")) == 7
    assert len(sim.items) == 400


@pytest.mark.parametrize("count", [1, 3])
def test_r12_a_host_that_refuses_as_a_whole_is_waited_for_however_few_its_pages_are(count: int) -> None:
    sim = crawl(web_of(latency=0.1, handler=in_turn(*[429] * 9)), pages(count), {**SPACED, "RETRY_TIMES": 1})
    assert len(sim.items) == count


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("headers", [{}, {"retry_after": 2}])
def test_r12_c09_a_limit_that_refuses_now_this_one_and_now_that_one_loses_nothing(
    seed: int, headers: dict[str, Any]
) -> None:
    web = web_of(latency=0.05, limit=RateLimit(rate=2, burst=1, status=429, **headers))
    scope = {"delay": 0.0, "concurrency": 8, "delay_per_slot": 0.0, "backoff": {"max_delay": 0.2, "min_delay": 0.05}}
    sim = crawl(web, pages(120), {**SPACED, "RETRY_TIMES": 1, "THROTTLING_SCOPES": {A: scope}}, seed)
    assert len(sim.items) == 120


def test_b20_what_a_redirect_leads_to_has_failed_in_no_way_yet() -> None:
    def handler(request: trawl.Request) -> SimulatedResponse:
        if request.url.endswith("/0"):
            return SimulatedResponse(429) if next(first, None) is not None else SimulatedResponse(302, headers=there)
        seen.append(notes_of(request))
        return SimulatedResponse()

    first, there, seen = iter(range(3)), {"Location": "/target"}, list[RequestNotes]()
    assert len(crawl(web_of(handler=handler), pages(1), SPACED).items) == 1
    assert seen == [NO_NOTES]
