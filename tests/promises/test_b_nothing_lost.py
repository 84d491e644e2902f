"""Row B20 of the throttling promises, sentence by sentence: backing off loses nothing, and nothing goes on for ever."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from itertools import count
from typing import Any

import pytest

import trawl
from tests.promises.pacing import SPACED, A, B, crawl, in_turn, pages, sends_of, web_of
from trawl.exceptions import ConnectFailed, ConnectTimeout, DownloadError, NameNotResolved, ReadTimeout
from trawl.testing import Outage, RateLimit, SimulatedResponse, SimulatedWeb, simulate
from trawl.throttling import ThrottlingManager

ONE_RETRY = {**SPACED, "RETRY_TIMES": 1}


def test_a_429_never_counts_as_a_retry() -> None:
    sim = crawl(web_of(handler=in_turn(200, *[429] * 8)), pages(3), ONE_RETRY)
    assert len(sim.items) == 3
    assert sim.stats["response_status_count/429"] == 8
    assert "retry_count" not in sim.stats
    assert sim.reason == "finished"


def test_a_429_never_counts_as_a_retry_also_of_one_page_on_a_host_that_answers_the_others() -> None:
    # B20 R12
    answers = count()

    def handler(request: trawl.Request) -> SimulatedResponse:
        return SimulatedResponse(429 if request.url.endswith("/1") and next(answers) < 6 else 200)

    sim = crawl(web_of(handler=handler), pages(12), ONE_RETRY)
    assert sim.stats["response_status_count/429"] == 6
    assert len(sim.items) == 12
    assert "retry_count" not in sim.stats


@pytest.mark.parametrize("field", ["Retry-After", "RateLimit-Reset", "X-RateLimit-Reset"])
def test_a_trigger_with_a_valid_hint_never_counts(field: str) -> None:
    answers = count()

    def handler(request: trawl.Request) -> SimulatedResponse:
        is_refused = request.url.endswith("/1") and next(answers) < 6
        return SimulatedResponse(503 if is_refused else 200, headers={field: "3"} if is_refused else {})

    sim = crawl(web_of(handler=handler), pages(12), ONE_RETRY)
    assert len(sim.items) == 12
    assert "retry_count" not in sim.stats


@pytest.mark.parametrize("garbage", ["0", "-3", "soon", "1.5"])
def test_a_hint_that_is_none_does_not_excuse(garbage: str) -> None:
    def handler(request: trawl.Request) -> SimulatedResponse:
        is_bad = request.url.endswith("/1")
        return SimulatedResponse(503 if is_bad else 200, headers={"Retry-After": garbage} if is_bad else {})

    sim = crawl(web_of(handler=handler), pages(8), SPACED)
    assert len(sends_of(sim, "/1")) == 3
    assert len(sim.items) == 7


def test_the_request_goes_to_the_back_of_its_equals() -> None:
    sim = crawl(web_of(latency=0.1, handler=in_turn(429)), pages(4), SPACED)
    assert [send.url[-2:] for send in sim.sends] == ["/0", "/1", "/2", "/3", "/0"]


def test_and_before_those_of_a_lower_priority() -> None:
    requests = [trawl.Request(url, priority=-number) for number, url in enumerate(pages(4))]
    sim = crawl(web_of(latency=0.1, handler=in_turn(429)), requests, SPACED)
    assert [send.url[-2:] for send in sim.sends] == ["/0", "/0", "/1", "/2", "/3"]


class Growing(trawl.Spider):
    """A chain of pages that does not end before its 30th, with one page beside it."""

    name = "growing"
    start_urls = (f"http://{A}/bad", f"http://{A}/0")

    def parse(self, response: trawl.Response, *args: Any, **kwargs: Any) -> Iterator[trawl.Request]:
        number = int(response.url.rpartition("/")[2])
        if number < 30:
            yield response.follow(f"/{number + 1}")


def only(status: int, path: str = "/bad") -> Callable[[trawl.Request], SimulatedResponse]:
    return lambda request: SimulatedResponse(status if request.url.endswith(path) else 200)


@pytest.mark.parametrize(("before", "tries"), [((), 3), ((429,), 4), ((429, 429, 429), 6)])
def test_what_fails_after_429s_has_all_its_retries_left(before: tuple[int, ...], tries: int) -> None:
    # B20: a 429 is not taken for the first failure of a page that turns out to be bad
    statuses = iter(before)

    def handler(request: trawl.Request) -> SimulatedResponse:
        return SimulatedResponse(next(statuses, 503) if request.url.endswith("bad") else 200)

    sim = simulate(Growing, web_of(handler=handler), SPACED)
    assert len(sends_of(sim, "/bad")) == tries
    assert sends_of(sim, "/30")


@pytest.mark.parametrize("status", [502, 503, 504, 520, 521, 523])
def test_one_bad_page_on_a_healthy_host_ends_after_its_retries(status: int) -> None:
    sim = simulate(Growing, web_of(latency=0.1, handler=only(status)), SPACED)
    assert len(sends_of(sim, "/bad")) == 3
    assert len(sim.sends) == 34
    assert sim.stats["httperror_ignored_count"] == 1
    assert sim.elapsed < 160.0


def test_a_bad_page_that_is_all_that_is_left_does_not_wait_for_the_end_of_patience() -> None:
    sim = crawl(web_of(latency=0.1, handler=only(503, "/2")), pages(20), SPACED)
    assert len(sends_of(sim, "/2")) == 3
    assert len(sim.items) == 19
    assert "refused" not in sim.stats
    assert sim.elapsed < 60.0


def test_two_of_them_end_as_well() -> None:
    web = web_of(latency=0.1, handler=lambda r: SimulatedResponse(503 if r.url[-2:] in ("/2", "/5") else 200))
    sim = crawl(web, pages(20), SPACED)
    assert len(sends_of(sim, "/2")) == len(sends_of(sim, "/5")) == 3
    assert len(sim.items) == 18


def test_a_page_that_hangs_ends_after_its_retries() -> None:
    web = web_of(latency=lambda request: 500.0 if request.url.endswith("/2") else 0.1)
    sim = crawl(web, pages(20), {**SPACED, "DOWNLOAD_TIMEOUT": 10.0})
    assert len(sends_of(sim, "/2")) == 3
    assert len(sim.items) == 19


def test_a_bad_page_reaches_its_errback_with_the_last_answer() -> None:
    heard: list[Any] = []
    requests = [trawl.Request(f"http://{A}/bad", errback=heard.append), *map(trawl.Request, pages(9))]
    crawl(web_of(latency=0.1, handler=only(520)), requests, SPACED)
    [error] = heard
    assert error.response.status == 520


@pytest.mark.parametrize("status", [403, 429, 500, 503])
@pytest.mark.parametrize("headers", [{}, {"Retry-After": "20"}])
@pytest.mark.parametrize("by_meta", [True, False])
def test_without_retries_nothing_is_sent_twice(status: int, headers: dict[str, str], by_meta: bool) -> None:
    meta = {"max_retry_times": 0} if by_meta else {}
    answers = iter([SimulatedResponse(status, headers=headers)] * 3)
    web = web_of(latency=0.1, handler=lambda request: next(answers, SimulatedResponse()))
    settings = {**SPACED, "RETRY_TIMES": 2 if by_meta else 0}
    sim = crawl(web, [trawl.Request(url, meta=dict(meta)) for url in pages(8)], settings)
    assert [send.url for send in sim.sends] == pages(8)
    assert len(sim.items) == 5


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("slots", [1, 4])
def test_an_outage_ends_nobody(times: int, slots: int) -> None:
    web = web_of(latency=0.1, outages=[(5.0, 400.0)])
    settings = {**SPACED, "RETRY_TIMES": times, "CONCURRENT_REQUESTS_PER_DOMAIN": slots}
    sim = crawl(web, pages(20), settings)
    assert len(sim.items) == 20
    assert "refused" not in sim.stats


@pytest.mark.parametrize("error", [ReadTimeout, ConnectFailed])
def test_an_outage_without_answers_ends_nobody(error: type[DownloadError]) -> None:
    sim = crawl(web_of(latency=0.1, outages=[Outage(5.0, 400.0, error=error)]), pages(20), ONE_RETRY)
    assert len(sim.items) == 20


@pytest.mark.parametrize("robots", [True, False])
def test_an_outage_at_the_very_start_ends_nobody(robots: bool) -> None:
    sim = crawl(web_of(latency=0.1, outages=[(0.0, 300.0)]), pages(5), {**ONE_RETRY, "ROBOTSTXT_OBEY": robots})
    assert len(sim.items) == 5


def test_several_outages_end_nobody() -> None:
    web = web_of(latency=0.1, outages=[(5.0, 65.0), (300.0, 420.0), (700.0, 900.0)])
    sim = crawl(web, pages(60), SPACED)
    assert len(sim.items) == 60


@pytest.mark.parametrize("status", [429, 503])
def test_a_servers_rate_limit_loses_nothing_from_delay_0_and_8_slots(status: int) -> None:
    web = web_of(latency=0.05, limit=RateLimit(rate=5, burst=5, status=status))
    settings = {**SPACED, "DOWNLOAD_DELAY": 0.0, "CONCURRENT_REQUESTS_PER_DOMAIN": 8}
    sim = crawl(web, pages(100), settings)
    assert len(sim.items) == 100


@pytest.mark.parametrize(("error", "sends"), [(ConnectFailed, 0), (ConnectTimeout, 0)])
def test_a_scope_that_never_answered_and_cannot_be_connected_to_ends_each_request_after_its_retries(
    error: type[DownloadError], sends: int
) -> None:
    sim = crawl(web_of(connect=0.1, connect_error=error), pages(3), SPACED)
    assert sim.stats["download_error_count"] == 9
    assert sim.stats["retry_count"] == 6
    assert "refused" not in sim.stats
    assert len(sim.sends) == sends
    assert sim.elapsed == pytest.approx(510.0, abs=2.0)  # 2 + 4 + ... + 256: nine tries


def test_a_name_that_does_not_resolve_likewise() -> None:
    heard: list[Exception] = []
    request = trawl.Request("http://nowhere.example/", errback=heard.append)
    sim = crawl(SimulatedWeb(), [request], SPACED, errors="collect")
    assert [type(error) for error in heard] == [NameNotResolved]
    assert sim.stats["retry_count"] == 2


def test_a_scope_without_a_good_answer_for_900_s_ends_its_pending_requests(caplog: pytest.LogCaptureFixture) -> None:
    web = web_of(latency=0.1, outages=[(10.0, 1e9)])
    sim = crawl(web, [*pages(40), *pages(3, B)], SPACED, errors="collect")
    assert sim.stats["refused"] == 30
    assert len(sim.items) == 10
    assert sim.elapsed == pytest.approx(910.1)  # 900 s after the first 503 came
    said = [record for record in caplog.records if "refused" in record.getMessage() and A in record.getMessage()]
    assert len([record for record in said if record.levelno == logging.WARNING]) == 1


def test_the_patience_counts_from_the_first_trigger_after_the_last_good_answer() -> None:
    web = web_of(latency=0.1, outages=[(10.0, 500.0), (700.0, 1e9)])
    sim = crawl(web, pages(300), {**SPACED, "BACKOFF_GIVE_UP_AFTER": 600.0})
    refused_at = next(send.finished for send in sim.sends if send.status == 503 and send.time >= 700.0)
    assert sim.elapsed == pytest.approx(refused_at + 600.0)


class Later(trawl.Spider):
    """Asks a host that is down, and again long after it was given up."""

    name = "later"

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        for url in pages(5):
            yield trawl.Request(url)
        yield trawl.Request(f"http://{B}/", meta={"delay": 1500.0})

    def parse(self, response: trawl.Response, *args: Any, **kwargs: Any) -> Iterator[Any]:
        if response.url.startswith(f"http://{B}/"):
            yield from (trawl.Request(url) for url in pages(3, first=100))
        yield {"url": response.url}


@pytest.mark.parametrize(
    "scopes",
    [
        {A: {"quota": 3, "window": 86_400.0}},  # its own quota is spent
        {"api": {"quota": 3, "window": 86_400.0}},  # or that of another scope, while it is open itself
    ],
)
def test_patience_does_not_run_while_a_quota_keeps_everyone_from_asking(scopes: dict[str, Any]) -> None:
    requests = [trawl.Request(url, meta={"throttling_scopes": {A, "api"}}) for url in pages(8)]
    web = web_of(latency=0.1, handler=in_turn(200, 200, 503))
    sim = crawl(web, requests, {**SPACED, "THROTTLING_SCOPES": scopes})
    assert len(sim.items) == 8
    assert "refused" not in sim.stats
    assert [send.time // 86_400.0 for send in sim.sends] == [0] * 3 + [1] * 3 + [2] * 3


@pytest.mark.parametrize("window", [600.0, 899.0])
def test_patience_does_not_run_while_a_quota_is_spent_in_one_window_after_the_other(window: float) -> None:
    scopes = {A: {"quota": 2, "window": window}}
    web = web_of(latency=0.1, handler=in_turn(200, 503, 503, 503, 503, 503))
    sim = crawl(web, pages(3), {**SPACED, "THROTTLING_SCOPES": scopes})
    assert len(sim.items) == 3
    assert "refused" not in sim.stats


def test_a_later_request_starts_afresh() -> None:
    web = web_of(A, latency=0.1, outages=[(0.0, 1200.0)])
    web.add_host(B)
    sim = simulate(Later, web, SPACED)
    assert sim.stats["refused"] == 5
    assert [send.time for send in sim.of(A) if send.time > 1000.0] == [1500.0, 1501.0, 1502.0]
    assert len(sim.items) == 4


def test_what_waits_for_a_time_of_its_own_ends_with_the_others() -> None:
    requests = [*map(trawl.Request, pages(2)), trawl.Request(f"http://{A}/late", meta={"delay": 1000.0})]
    sim = crawl(web_of(latency=0.1, outages=[(0.0, 1e9)]), requests, SPACED)
    assert sim.stats["refused"] == 3
    assert sends_of(sim, "/late") == []


def test_robots_txt_itself_is_not_repeated_as_a_retry() -> None:
    web = web_of(latency=0.1, robots=SimulatedResponse(429, headers={"Retry-After": "7"}))
    sim = crawl(web, pages(3), {**SPACED, "ROBOTSTXT_OBEY": True})
    assert len(sim.items) == 3  # R17: a 4xx allows all
    assert sends_of(sim, "/robots.txt") == [0.0]
    assert sim.times(A)[1] == 7.1


def test_a_page_that_came_is_kept_where_the_manager_takes_it_for_a_trigger() -> None:
    class Wary(ThrottlingManager):
        async def get_response_backoff(self, response: trawl.Response) -> dict[str, dict[str, float]] | None:
            return {A: {"delay": 5.0}} if "robots" not in response.url else None

    sim = crawl(web_of(), pages(3), {**SPACED, "THROTTLING_MANAGER": Wary})
    assert [send.url for send in sim.sends] == pages(3)
    assert sim.times(A) == [0.0, 5.0, 10.0]
    assert len(sim.items) == 3


def test_an_exempt_request_that_is_refused_waits_for_its_scopes_before_it_is_sent_again() -> None:
    request = trawl.Request(f"http://{A}/0", meta={"dont_throttle": True})
    sim = crawl(web_of(latency=0.5, handler=in_turn(429, 429, 429)), [request], SPACED)
    assert sim.times(A) == [0.0, 2.5, 7.0, 15.5]


def test_an_exempt_request_leaves_a_scope_alone_that_rampup_moves_and_nothing_holds() -> None:
    # E21 C05: it is not held, so it would be sent again and again as fast as it is refused
    request = trawl.Request(f"http://{A}/0", meta={"dont_throttle": True})
    settings = {**SPACED, "THROTTLING_SCOPES": {A: {"delay": 2.0, "rampup": {"window": 20.0, "backoff_target": 9}}}}
    sim = crawl(web_of(latency=0.5, handler=in_turn(429, 429)), [request], settings)
    assert sim.times(A) == [0.0, 2.5, 5.0]


class AnothersScope(ThrottlingManager):
    """Takes every 429 for a refusal of one scope, whatever the request is charged to."""

    async def get_response_backoff(self, response: trawl.Response) -> dict[str, dict[str, float]] | None:
        """Eight seconds for it."""
        return {"api": {"delay": 8.0}} if response.status == 429 else None


@pytest.mark.parametrize("meta", [{}, {"throttling_scopes": []}, {"throttling_scopes": [], "dont_throttle": True}])
def test_a_request_refused_for_a_scope_that_it_is_not_charged_to_waits_for_it_too(meta: dict[str, Any]) -> None:
    request = trawl.Request(f"http://{A}/0", meta=meta)
    sim = crawl(web_of(handler=in_turn(429)), [request], {**SPACED, "THROTTLING_MANAGER": AnothersScope})
    assert sim.times(A) == [0.0, 8.0]
    assert len(sim.items) == 1
    assert "throttling_errors" not in sim.stats


def test_with_dont_retry_a_refusal_goes_to_the_errback() -> None:
    heard: list[Any] = []
    request = trawl.Request(f"http://{A}/0", meta={"dont_retry": True}, errback=heard.append)
    sim = crawl(web_of(handler=in_turn(429)), [request], SPACED)
    assert [error.response.status for error in heard] == [429]
    assert len(sim.sends) == 1
