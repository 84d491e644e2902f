"""D01-D08: what a server's headers say about when to come back, through a whole crawl.

Each page takes 0.1 s. A refusal that says nothing holds the next send back by twice the delay of 1.0 s, from the
answer: it goes at 2.1. One that asks for 7 s: at 7.1.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import trio

import trawl
from tests.promises.pacing import SPACED, A, B, crawl, pages, sends_of, web_of
from trawl.testing import Outage, RateLimit, SimulatedResponse, SimulatedWeb, Simulation, simulate
from trawl.throttling import ThrottlingManager, ThrottlingScopeManager

A_URL = f"http://{A}"
UNASKED = 2.1
"""When the second send goes where the refusal says nothing that counts."""


def told(headers: Mapping[str, str], status: int = 429, **settings: Any) -> Simulation:
    """A crawl of three pages whose first answer has these fields; the wall clock starts at 2025-01-01 00:00:00 UTC."""
    answers = iter([SimulatedResponse(status, headers=headers)])
    web = web_of(latency=0.1, handler=lambda request: next(answers, SimulatedResponse()))
    return crawl(web, pages(3), {**SPACED, **settings})


def second(headers: Mapping[str, str], status: int = 429, **settings: Any) -> float:
    """When the send after that answer goes."""
    return told(headers, status, **settings).times(A)[1]


def test_d01_retry_after_holds_the_scope_that_long_from_the_response() -> None:
    sim = told({"Retry-After": "7"})
    assert sim.times(A) == [0.0, 7.1, 9.1, 11.1]  # then B03's standing delay of 2.0


def test_d01_the_retry_after_of_a_rate_limit_is_obeyed() -> None:
    web = web_of(latency=0.1, limit=RateLimit(rate=0.01, burst=2, status=429, retry_after=7))
    assert crawl(web, pages(2), SPACED).times(A) == [0.0, 1.0]
    assert crawl(web, pages(3), SPACED).times(A)[:4] == [0.0, 1.0, 2.0, 9.1]


@pytest.mark.parametrize(
    ("least", "times"),
    [
        (1.0, [0.0, 70.1, 140.2]),  # given up at 100.1, asked at 70.2 to wait for years: a mistake, cut to 70 s
        (70.0, [0.0, 100.0, 170.1]),  # given up at 100.1 and asked then, when backoff held it for as long: that is over
    ],
)
def test_d01_a_host_that_is_given_up_is_left_alone_as_long_as_it_asked(least: float, times: list[float]) -> None:
    class Later(trawl.Spider):
        """Two pages, and a third after the host was given up."""

        name = "later"

        async def start(self) -> Any:
            yield trawl.Request(f"{A_URL}/0")
            yield trawl.Request(f"{A_URL}/1")
            await trio.sleep(110.0)
            ended.append(self.crawl.stats.count("refused"))
            yield trawl.Request(f"{A_URL}/2")

        def parse(self, response: trawl.Response, **kwargs: Any) -> Any:
            yield {"url": response.url}

    ended: list[int] = []
    web = SimulatedWeb()
    web.add_host(A, latency=0.1, outages=[Outage(0.0, 105.0, retry_after=10**8)])
    settings = {"BACKOFF_GIVE_UP_AFTER": 100.0, "BACKOFF_MIN_DELAY": least, "BACKOFF_MAX_DELAY": 70.0}
    sim = simulate(Later, web, {**SPACED, **settings})
    assert sim.times(A) == times
    assert ended == [2]  # B20: what pended was refused when it was given up, not when the 70 s were over
    assert [item["url"] for item in sim.items] == [f"{A_URL}/2"]


def test_d01_other_scopes_are_not_held() -> None:
    answers = iter([SimulatedResponse(429, headers={"Retry-After": "7"})])
    web = SimulatedWeb()
    web.add_host(A, latency=0.1, handler=lambda request: next(answers, SimulatedResponse()))
    web.add_host(B, latency=0.1)
    sim = crawl(web, [*pages(2), *pages(4, B)], SPACED)
    assert sim.times(A) == [0.0, 7.1, 9.1]
    assert sim.times(B) == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("value", "at"),
    [
        ("Wed, 01 Jan 2025 00:00:09 GMT", 9.0),  # RFC 9110, 5.6.7: IMF-fixdate
        ("Wednesday, 01-Jan-25 00:00:09 GMT", 9.0),  # RFC 850
        ("Wed Jan  1 00:00:09 2025", 9.0),  # asctime
        ("Wed, 01 Jan 2025 00:00:09", 9.0),  # without a zone: UTC
        ("Wed, 01 Jan 2025 01:00:09 +0100", 9.0),
        ("Tue, 31 Dec 2024 23:59:59 GMT", UNASKED),  # past
        ("Wed, 01 Jan 2025 00:00:00 GMT", UNASKED),
        ("0", UNASKED), ("-5", UNASKED), ("7.5", UNASKED), ("+7", UNASKED), ("7 s", UNASKED), ("soon", UNASKED),
        ("", UNASKED), ("1e3", UNASKED), ("0x10", UNASKED), ("7, 9", UNASKED), ("\u0667", UNASKED), ("nan", UNASKED),
        ("2025-01-01T00:00:09Z", UNASKED), ("Wed, 99 Jan 2025 00:00:09 GMT", UNASKED),
        (" 7 ", 7.1), ("007", 7.1),
    ],
)  # fmt: skip
def test_d02_dates_count_and_whatever_is_no_whole_number_of_seconds_is_absent(value: str, at: float) -> None:
    assert second({"Retry-After": value}) == at


class Asked(ThrottlingManager):
    """Decides as the default manager does."""

    async def get_response_backoff(self, response: trawl.Response) -> Any:
        await trio.lowlevel.checkpoint()
        return await super().get_response_backoff(response)


def test_d02_a_date_counts_from_a_slow_answer_whoever_is_asked_about_it() -> None:
    answers = iter([SimulatedResponse(429, headers={"Retry-After": "Wed, 01 Jan 2025 00:00:09 GMT"})])
    web = web_of(latency=5.0, handler=lambda request: next(answers, SimulatedResponse()))
    assert crawl(web, pages(2), {**SPACED, "THROTTLING_MANAGER": Asked}).times(A)[1] == 9.0


@pytest.mark.parametrize("date", ["31 Dec 2024 23:00:00", "01 Jan 2025 00:00:00", "01 Jan 2025 01:00:00"])
def test_d02_a_date_counts_from_the_answers_own_date_where_it_has_one(date: str) -> None:
    hour, asked = date[-8:-6], "09"
    answer = {"Date": f"Wed, {date} GMT", "Retry-After": f"Wed, {date[:-8]}{hour}:00:{asked} GMT"}
    assert second(answer) == 9.1  # an hour behind, on time, an hour ahead


@pytest.mark.parametrize("date", ["soon", "", "Wed, 99 Jan 2025 00:00:00 GMT"])
def test_d02_a_date_of_the_answer_that_is_none_counts_as_absent(date: str) -> None:
    assert second({"Date": date, "Retry-After": "Wed, 01 Jan 2025 00:00:09 GMT"}) == 9.0


def test_d14_seconds_since_the_epoch_count_from_the_answers_own_date_too() -> None:
    answer = {"Date": "Wed, 01 Jan 2025 01:00:00 GMT", "X-RateLimit-Reset": "1735693209"}
    assert second(answer) == 9.1


def test_d02_d08_so_does_the_date_of_a_redirect() -> None:
    day = "Tue, 31 Dec 2024"
    headers = {"Location": "/1", "Date": f"{day} 23:00:00 GMT", "Retry-After": f"{day} 23:00:05 GMT"}
    answers = iter([SimulatedResponse(302, headers=headers)])
    web = web_of(latency=0.1, handler=lambda request: next(answers, SimulatedResponse()))
    assert crawl(web, pages(1), SPACED).times(A) == [0.0, 5.1]


@pytest.fixture
def far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose own time is eight hours off."""
    monkeypatch.setenv("TZ", "UTC-8")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_from_utc")
def test_d02_a_date_without_zone_is_utc_wherever_the_machine_is() -> None:
    assert second({"Retry-After": "Wed, 01 Jan 2025 00:00:20"}) == 20.0


@pytest.mark.parametrize(
    ("value", "at"), [("7", 7.1), ("0", UNASKED), ("-1", UNASKED), ("7.5", UNASKED), ("x", UNASKED)]
)
def test_d03_ratelimit_reset_is_read_likewise(value: str, at: float) -> None:
    assert second({"RateLimit-Reset": value}) == at


@pytest.mark.parametrize(
    ("retry_after", "reset", "at"), [("7", "9", 9.1), ("9", "7", 9.1), ("x", "7", 7.1), ("7", "x", 7.1)]
)
def test_d04_of_both_the_larger_counts(retry_after: str, reset: str, at: float) -> None:
    assert second({"Retry-After": retry_after, "RateLimit-Reset": reset}) == at


@pytest.mark.parametrize(
    ("headers", "most", "at"),
    [
        ({"Retry-After": "500"}, 300.0, 300.1),
        ({"RateLimit-Reset": "301"}, 300.0, 300.1),
        ({"Retry-After": "300"}, 300.0, 300.1),
        ({"Retry-After": "50"}, 20.0, 20.1),
        ({"X-RateLimit-Reset": "1735689700"}, 20.0, 20.1),
    ],
)
def test_d05_a_wish_is_capped_at_backoff_max_delay(headers: dict[str, str], most: float, at: float) -> None:
    assert second(headers, BACKOFF_MAX_DELAY=most) == at


def test_d05_the_cap_of_a_scope_of_its_own_counts() -> None:
    scopes = {A: {"backoff": {"max_delay": 30.0}}}
    assert second({"Retry-After": "500"}, THROTTLING_SCOPES=scopes) == 30.1


def test_d05_a_cap_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trawl.throttling")
    told({"Retry-After": "500"})
    lines = [record.getMessage() for record in caplog.records if "capped" in record.getMessage()]
    assert len(lines) == 1
    assert all(word in lines[0] for word in (A, "Retry-After", "500", "300"))


@pytest.mark.parametrize("value", ["300", "7"])
def test_d05_what_is_not_shortened_is_not_logged_as_such(value: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trawl.throttling")
    told({"Retry-After": value})
    assert not [record for record in caplog.records if "capped" in record.getMessage()]


class Asking(trawl.Spider):
    """Asks, when the page of b.example is there, why a.example waits."""

    name = "asking"
    start_urls = [f"http://{A}/1", f"http://{A}/2", f"http://{B}/"]

    def parse(self, response: trawl.Response, **kwargs: object) -> Any:
        if B in response.url:
            reason = self.crawl.why(A)
            assert reason is not None
            until = reason.until - (trio.current_time() - self.crawl.elapsed)
            yield {"limit": reason.limit, "source": reason.source, "until": round(until, 6)}


@pytest.mark.parametrize(
    ("value", "until", "words"),
    [("7", 7.1, ["Retry-After: 7", "429"]), ("500", 300.1, ["Retry-After: 500", "429", "capped at 300 s"])],
)
def test_d05_i11_why_names_the_header_and_the_cap(value: str, until: float, words: list[str]) -> None:
    answers = iter([SimulatedResponse(429, headers={"Retry-After": value})])
    web = SimulatedWeb()
    web.add_host(A, latency=0.1, handler=lambda request: next(answers, SimulatedResponse()))
    web.add_host(B, latency=3.0)
    (item,) = simulate(Asking, web, SPACED).items
    assert (item["limit"], item["until"]) == ("hint", until)
    assert all(word in item["source"] for word in words)


def test_d06_the_header_is_a_minimum_and_the_standing_delay_takes_one_step() -> None:
    assert told({"Retry-After": "1"}).times(A) == [0.0, 2.1, 4.1, 6.1]  # shorter than the backoff: the backoff
    assert told({"Retry-After": "50"}).times(A)[:3] == [0.0, 50.1, 52.1]  # longer: the header, and no more than a step


def test_d06_a_later_trigger_of_the_same_incident_takes_no_step_but_a_longer_header_counts() -> None:
    fields = {"/0": {}, "/1": {"Retry-After": "9"}, "/2": {"Retry-After": "4"}, "/3": {}}
    seen: set[str] = set()

    def handler(request: trawl.Request) -> SimulatedResponse:
        path = request.url.removeprefix(f"http://{A}")
        if path in seen or path not in fields:
            return SimulatedResponse()
        seen.add(path)
        return SimulatedResponse(429, headers=fields[path])

    settings = {**SPACED, "DOWNLOAD_DELAY": 0.1, "CONCURRENT_REQUESTS_PER_DOMAIN": 4}
    sim = crawl(web_of(latency=1.0, handler=handler), pages(5), settings)
    assert sim.times(A)[:4] == [0.0, 0.1, 0.2, 0.3]
    # The answer at 1.1 asks for 9 s; one step from 0.1 is the least delay of 1.0.
    assert sim.times(A)[4:] == [10.1, 11.1, 12.1, 13.1, 14.1]


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Retry-After", 200),
        ("Retry-After", 304),
        *[(header, status) for header in ("RateLimit-Reset", "X-RateLimit-Reset") for status in (200, 404, 500)],
    ],
)
def test_d07_a_good_response_and_a_reset_time_alone_hold_nothing(status: int, header: str) -> None:
    assert told({header: "60"}, status).times(A)[1] == 1.0


REMAINING = [
    {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1735689660"},  # as GitHub has it: epoch seconds
    {"X-Rate-Limit-Remaining": "0", "X-Rate-Limit-Reset": "60"},
    {"RateLimit-Remaining": "0", "RateLimit-Reset": "60"},
    {"RateLimit": "limit=100, remaining=0, reset=60"},
    {"RateLimit": '"burst";r=0;t=60', "RateLimit-Policy": '"burst";q=100;w=3600'},
    {"RateLimit": '"burst";r=0', "RateLimit-Policy": '"burst";q=100;w=60'},
    {"Retry-After": "60"},
    {"Retry-After": "Wed, 01 Jan 2025 00:01:00 GMT"},
    {"Retry-After": "60", "X-RateLimit-Remaining": "4000", "X-RateLimit-Reset": "3000"},  # GitHub's secondary limit
]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 420, 500, 503, 509, 529])
@pytest.mark.parametrize("headers", REMAINING)
def test_d01_b20_a_refusal_that_says_when_to_come_back_is_a_trigger_whatever_its_status(
    headers: dict[str, str], status: int
) -> None:
    sim = told(headers, status)
    assert sim.times(A)[1] == pytest.approx(60.1, abs=0.2)
    assert len(sim.items) == 3  # it is no retry either
    assert sim.report[0].triggers == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"X-RateLimit-Remaining": "12", "X-RateLimit-Reset": "60"},
        {"RateLimit": '"burst";r=1;t=60'},
        {"RateLimit": '"burst";r=0'},  # no policy that bounds it
        {"X-RateLimit-Remaining": "0"},
        {"Retry-After": "0"},
        {"Retry-After": "soon"},
    ],
)
def test_d01_a_refusal_that_does_not_say_when_is_no_trigger(headers: dict[str, str]) -> None:
    assert told(headers, 403).report[0].triggers == 0


def test_b14_a_scope_with_its_own_statuses_or_a_manager_that_decides_has_no_other_triggers() -> None:
    class Only(ThrottlingScopeManager):
        def is_trigger(self, response: trawl.Response | None, exception: Exception | None) -> bool | None:
            return None if response is None or response.status != 403 else False

    for own in ({"backoff": {"http_codes": [429]}}, {"manager": Only}):
        assert told({"Retry-After": "60"}, 403, THROTTLING_SCOPES={A: own}).times(A)[1] == 1.0


def test_b20_a_page_that_always_says_when_to_come_back_ends_with_its_seventh_refusal() -> None:
    def handler(request: trawl.Request) -> SimulatedResponse:
        return (
            SimulatedResponse(404, headers={"Retry-After": "60"}) if request.url.endswith("/0") else SimulatedResponse()
        )

    sim = crawl(web_of(latency=0.1, handler=handler), pages(40), SPACED)
    assert len(sends_of(sim, "/0")) == 7
    assert len(sim.items) == 39


def test_d14_a_window_with_requests_remaining_does_not_lengthen_a_retry_after() -> None:
    assert second({"Retry-After": "7", "X-RateLimit-Remaining": "40", "X-RateLimit-Reset": "200"}) == 7.1


def test_d07_b14_another_status_is_a_trigger_where_it_is_configured() -> None:
    assert second({"Retry-After": "60"}, 404, BACKOFF_HTTP_CODES=[404]) == 60.1
    assert second({"Retry-After": "60"}, 503) == 60.1


def test_d01_an_outage_that_says_how_long_is_believed() -> None:
    web = web_of(latency=0.1, outages=[Outage(0.0, 30.0, status=503, retry_after=30)])
    sim = crawl(web, pages(2), SPACED)
    assert [(send.time, send.status) for send in sim.sends] == [(0.0, 503), (30.1, 200), (32.1, 200)]


@pytest.mark.parametrize("seed", range(5))
def test_b06_jitter_only_lengthens_what_a_header_asks_for(seed: int) -> None:
    answers = iter([SimulatedResponse(429, headers={"Retry-After": "100"})])
    web = web_of(latency=0.1, handler=lambda request: next(answers, SimulatedResponse()))
    sim = crawl(web, pages(2), {**SPACED, "BACKOFF_JITTER": 0.1}, seed)
    assert 100.1 <= sim.times(A)[1] <= 110.1


def redirecting(retry_after: str) -> SimulatedWeb:
    web = SimulatedWeb()
    web.add_host(A, latency=0.1)
    web.add_redirect(f"http://{A}/old", f"http://{A}/new", headers={"Retry-After": retry_after})
    return web


OLD = [f"http://{A}/old", *pages(4)]


def test_d08_a_redirect_that_asks_for_time_delays_that_request_and_nobody_else() -> None:
    sim = crawl(redirecting("3"), OLD, {**SPACED, "DOWNLOAD_DELAY": 0.25})
    assert sends_of(sim, "/new") == [3.1]
    assert [send.time for send in sim.sends if not send.url.endswith("/new")] == [0.0, 0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize(
    ("value", "settings", "at"),
    [
        ("500", {}, 120.1),
        ("30", {"REDIRECT_MAX_DELAY": 10.0}, 10.1),
        ("30", {"REDIRECT_MAX_DELAY": 0.0}, 0.25),
        ("0", {}, 0.25),
        ("2.5", {}, 0.25),
        ("Wed, 01 Jan 2025 00:00:09 GMT", {}, 9.0),
    ],
)
def test_d08_up_to_redirect_max_delay_and_zero_turns_it_off(value: str, settings: dict[str, Any], at: float) -> None:
    sim = crawl(redirecting(value), OLD, {**SPACED, "DOWNLOAD_DELAY": 0.25, **settings})
    assert sends_of(sim, "/new") == [at]


def test_d08_the_target_waits_for_its_own_host() -> None:
    web = redirecting("3")
    web.add_host(B, latency=0.1)
    web.add_redirect(f"http://{A}/away", f"http://{B}/here", headers={"Retry-After": "3"})
    sim = crawl(web, [f"http://{A}/away", *pages(6, B)], SPACED)
    assert sends_of(sim, "/here") == [4.0]  # due at 3.1, and B sends at 0.0, 1.0, 2.0, 3.0
