"""Rows H01 to H16 of the throttling promises: the delay follows the latency, and what it must not be fooled by."""

from __future__ import annotations

import logging
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import trawl
from tests.promises.pacing import EXACT, SPACED, A, B, crawl, in_turn, pages, web_of
from trawl.errors import SettingsError
from trawl.testing import Outage, RateLimit, SimulatedResponse, Simulation, simulate
from trawl.throttling import ThrottlingManager

AUTO = {**SPACED, "AUTOTHROTTLE_ENABLED": True, "DOWNLOAD_DELAY": 0.0}
SLOTS = {**AUTO, "CONCURRENT_REQUESTS_PER_DOMAIN": 16}
SERIES = [2.6, 1.4, 0.8, 0.5, 0.35, 0.275, 0.2375]
"""The delays from 5.0 on at latency 0.2 and target 1 (H07)."""


def test_h01_the_defaults() -> None:
    seen: dict[str, Any] = {}

    class Looks(trawl.Spider):
        name = "looks"
        start_urls = pages(1)

        def parse(self, response: trawl.Response, *args: Any, **kwargs: Any) -> None:
            seen.update({name[13:]: self.settings[name] for name in self.settings if name.startswith("AUTOTHROTTLE_")})

    simulate(Looks, web_of())
    assert seen == {
        "ENABLED": False, "START_DELAY": 5.0, "MAX_DELAY": 60.0, "TARGET_CONCURRENCY": 1.0, "DEBUG": False,
    }  # fmt: skip


@pytest.mark.parametrize("target", [0, -1, 0.0])
def test_h01_a_target_that_is_not_above_0_is_refused(target: float) -> None:
    with pytest.raises(SettingsError, match="AUTOTHROTTLE_TARGET_CONCURRENCY"):
        crawl(web_of(), pages(1), {**AUTO, "AUTOTHROTTLE_TARGET_CONCURRENCY": target})


def test_h01_off_by_default() -> None:
    assert crawl(web_of(latency=0.2), pages(5), SPACED).gaps(A) == [1.0] * 4


@pytest.mark.parametrize(
    ("delay", "start", "first"),
    [(0.0, 5.0, 5.0), (1.0, 5.0, 5.0), (7.0, 5.0, 7.0), (1.0, 0.25, 1.0), (0.0, 99.0, 40.0)],
)
def test_h02_it_starts_at_the_larger_of_the_two_delays(delay: float, start: float, first: float) -> None:
    settings = {
        **SLOTS,
        "DOWNLOAD_DELAY": delay,
        "AUTOTHROTTLE_START_DELAY": start,
        "AUTOTHROTTLE_MAX_DELAY": 40.0,
    }
    assert crawl(web_of(latency=50.0), pages(2), settings).gaps(A) == [first]


def test_h02_a_scope_with_a_delay_of_its_own_is_left_alone() -> None:
    settings = {**AUTO, "THROTTLING_SCOPES": {A: {"delay": 0.7}, B: {"concurrency": 2}}}
    sim = crawl(web_of(A, B, latency=0.2), pages(6) + pages(6, B), settings)
    assert sim.gaps(A) == [0.7] * 5
    assert sim.gaps(B) == [pytest.approx(gap) for gap in SERIES[:5]]


@pytest.mark.parametrize(("target", "latency"), [(1.0, 0.2), (4.0, 0.8), (0.5, 0.1)])
def test_h03_h04_h07_the_delay_becomes_the_mean_of_itself_and_latency_over_the_target(
    target: float, latency: float
) -> None:
    settings = {**AUTO, "AUTOTHROTTLE_TARGET_CONCURRENCY": target}
    sim = crawl(web_of(latency=latency), pages(5), settings)
    assert sim.gaps(A)[:3] == SERIES[:3]


def test_h07_from_5_at_latency_0_2_towards_0_2() -> None:
    sim = crawl(web_of(latency=0.2), pages(20), AUTO)
    gaps = [round(gap, 9) for gap in sim.gaps(A)]  # differences of instants, of which the last digits vary
    assert gaps[:7] == SERIES
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] == pytest.approx(0.2, abs=1e-4)


def test_h07_with_robots_the_first_page_still_waits_for_the_start_delay() -> None:
    sim = crawl(web_of(latency=0.2), pages(8), {**AUTO, "ROBOTSTXT_OBEY": True})
    assert sim.gaps(A) == [5.0, *SERIES]


def test_h04_a_larger_target_is_taken_at_once() -> None:
    web = web_of(latency=lambda request: 8.0 if request.url.endswith("/1") else 0.2)
    assert crawl(web, pages(6), AUTO).times(A) == [0.0, 2.6, 10.6, 14.7, 16.85, 18.025]


def test_h04_beside_a_backoff_the_larger_of_the_two_delays_holds() -> None:
    latencies = {"/5": 6.0}
    web = web_of(latency=lambda request: latencies.get(request.url[-2:], 0.2), handler=in_turn(200, 200, 429))
    sim = crawl(web, pages(9), AUTO)
    gaps = dict(zip([send.url[-2:] for send in sim.sends], sim.gaps(A), strict=False))
    assert gaps["/2"] == 3.0  # 1.4 doubled, after the 429 of 0.2 s
    assert gaps["/3"] == gaps["/4"] == 2.8  # the backoff's, though the latency would have 0.8
    assert gaps["/5"] == 6.0  # the latency's
    assert gaps["/6"] == pytest.approx(3.1)
    assert gaps["/7"] == 2.8


def test_h05_a_response_other_than_200_never_lowers_the_delay() -> None:
    web = web_of(latency=0.2, status=404)
    assert crawl(web, pages(6), AUTO).gaps(A) == [5.0] * 5


@pytest.mark.parametrize("status", [201, 204, 301, 403, 404, 500])
def test_h05_but_it_may_raise_it(status: int) -> None:
    web = web_of(latency=9.0, status=status)
    settings = {**SLOTS, "RETRY_ENABLED": False, "REDIRECT_ENABLED": False}
    times = crawl(web, pages(5), settings).times(A)
    assert times == [0.0, 5.0, 14.0, 23.0, 32.0]


def test_h06_never_under_the_download_delay() -> None:
    sim = crawl(web_of(latency=0.2), pages(7), {**AUTO, "DOWNLOAD_DELAY": 0.6})
    assert sim.gaps(A) == [2.6, 1.4, 0.8, 0.6, 0.6, 0.6]


def test_h06_nor_under_the_spiders_own() -> None:
    assert crawl(web_of(latency=0.2), pages(6), AUTO, download_delay=0.9).gaps(A) == [2.6, 1.4, 0.9, 0.9, 0.9]
    assert crawl(web_of(), pages(4), SPACED, download_delay=3).gaps(A) == [3.0, 3.0, 3.0]


def test_h06_never_over_the_longest() -> None:
    settings = {**SLOTS, "AUTOTHROTTLE_MAX_DELAY": 10.0}
    sim = crawl(web_of(latency=29.0), pages(12), settings)
    assert sim.gaps(A) == [5.0] * 5 + [10.0] * 6  # the first answer comes at 29.0


@pytest.mark.parametrize(("setting", "own"), [(61.0, None), (0.0, 61.0)])
def test_h06_where_they_cross_it_is_refused(setting: float, own: float | None) -> None:
    with pytest.raises(SettingsError, match="AUTOTHROTTLE_MAX_DELAY"):
        crawl(web_of(), pages(1), {**AUTO, "DOWNLOAD_DELAY": setting}, download_delay=own)


@pytest.mark.parametrize("own", [-1.0, "soon", True, float("inf")])
def test_h06_a_spiders_delay_that_is_none_is_refused(own: object) -> None:
    with pytest.raises(SettingsError, match="download_delay"):
        crawl(web_of(), pages(1), SPACED, download_delay=own)


def test_h06_the_delay_per_slot_still_holds() -> None:
    settings = {**AUTO, "DOWNLOAD_DELAY_PER_SLOT": 1.0}
    assert crawl(web_of(latency=0.2), pages(7), settings).gaps(A) == [2.6, 1.4, 1.0, 1.0, 1.0, 1.0]


def test_h09_latency_runs_from_the_start_of_connecting_and_on_a_reused_connection_from_the_send() -> None:
    sim = crawl(web_of(latency=0.2, connect=0.8), pages(5), AUTO)
    assert sim.times(A)[0] == 0.8
    assert sim.gaps(A) == [3.0, 1.6, 0.9, 0.55]  # 5 and 1.0, then 0.2 each time


def test_h09_to_the_headers_not_to_the_end_of_the_body() -> None:
    web = web_of(A)
    for number in range(5):
        web.add_page(f"http://{A}/{number}", latency=2.0, first_byte=0.2)
    sim = crawl(web, pages(5), AUTO)
    assert sim.gaps(A) == [2.6, 2.0, 2.0, 2.0]  # one slot: the body's end, while the delay goes on to fall


def test_h09_each_response_counts_by_itself() -> None:
    latencies = {"/0": 2.0, "/1": 1.0, "/2": 0.4}
    web = web_of(latency=lambda request: latencies.get(request.url[-2:], 9.0))
    sim = crawl(web, pages(4), {**SLOTS, "AUTOTHROTTLE_START_DELAY": 0.9})
    assert sim.times(A) == [0.0, 0.9, 1.8, 3.0]  # /1 at 1.9: 1.0; /0 at 2.0: 2.0; /2 at 2.2: 1.2


def rate(sim: Simulation) -> float:
    """Sends a second over the last 60."""
    times = sim.times(A)[-61:]
    return 60.0 / (times[-1] - times[0])


@pytest.mark.parametrize(("target", "latency", "settled"), [(1.0, 0.2, 5.0), (1.0, 0.05, 20.0), (4.0, 0.2, 20.0)])
def test_h12_settled_rates(target: float, latency: float, settled: float) -> None:
    sim = crawl(web_of(latency=latency), pages(110), {**SLOTS, "AUTOTHROTTLE_TARGET_CONCURRENCY": target})
    assert rate(sim) == pytest.approx(settled, rel=0.001)


def test_h10_the_target_is_no_cap_and_the_concurrency_still_is() -> None:
    over = crawl(web_of(latency=lambda request: 2.0 if request.url.endswith("/30") else 0.1), pages(80), SLOTS)
    assert over.most_in_flight(A) > 1
    held = crawl(web_of(latency=0.2), pages(80), {**AUTO, "AUTOTHROTTLE_TARGET_CONCURRENCY": 4.0})
    assert held.most_in_flight(A) == 1
    assert rate(held) == pytest.approx(5.0)


def test_h11_with_the_meta_key_a_response_adjusts_nothing() -> None:
    key = {"autothrottle_dont_adjust_delay": True}
    requests = [trawl.Request(url, meta=key if number < 3 else {}) for number, url in enumerate(pages(7))]
    assert crawl(web_of(latency=0.2), requests, AUTO).gaps(A) == [5.0, 5.0, 5.0, 2.6, 1.4, 0.8]


def test_h13_debug_logs_one_line_a_response(caplog: pytest.LogCaptureFixture) -> None:
    latencies = {"/0": 0.2, "/1": 0.4}
    web = web_of(latency=lambda request: latencies.get(request.url[-2:], 0.1), body="x" * 1234)
    with caplog.at_level(logging.INFO, "trawl.throttling"):
        crawl(web, pages(3), {**AUTO, "AUTOTHROTTLE_DEBUG": True})
    lines = [record.getMessage() for record in caplog.records if "slot" in record.getMessage()]
    assert len(lines) == 3
    for figure in (A, "conc: 1", "200 ms", "400 ms", "2600", "1500", "1234 bytes"):
        assert figure in lines[1]


@pytest.mark.parametrize(("target", "most", "start"), [(1.0, 10.0, 2.0), (4.0, 30.0, 1.0), (2.0, 60.0, 1.0)])
def test_h14_the_starting_points_are_documented_and_work(target: float, most: float, start: float) -> None:
    page = (Path(__file__).parents[2] / "docs/howto/autothrottle.md").read_text(encoding="utf-8")
    assert f"| {target:.1f} | {most:.0f} | {start:.1f} |" in page
    settings = {
        **SLOTS,
        "AUTOTHROTTLE_TARGET_CONCURRENCY": target,
        "AUTOTHROTTLE_MAX_DELAY": most,
        "AUTOTHROTTLE_START_DELAY": start,
    }
    sim = crawl(web_of(latency=0.4), pages(90), settings)
    assert rate(sim) == pytest.approx(target / 0.4, rel=0.01)


def test_h15_fast_429s_never_speed_the_crawl_up() -> None:
    web = web_of(latency=0.3, limit=RateLimit(rate=0.2, burst=1, latency=0.01))
    sim = crawl(web, pages(30), AUTO)
    refused = [number for number, send in enumerate(sim.sends) if send.status == 429]
    assert refused
    gaps = sim.gaps(A)
    assert all(gaps[number] > gaps[number - 1] for number in refused if number < len(gaps))
    assert len(sim.items) == 30


def test_h15_fast_error_pages_never_do() -> None:
    web = web_of(latency=1.0, outages=[Outage(8.0, 100.0, 500, latency=0.01)])
    sim = crawl(web, pages(60), {**AUTO, "RETRY_ENABLED": False})
    times = sim.times(A)
    before = [later - earlier for earlier, later in pairwise(times) if later <= 8.0]
    during = [later - earlier for earlier, later in pairwise(times) if 20.0 < earlier < later < 100.0]
    assert min(during) == pytest.approx(before[-1], rel=0.5)
    assert max(during) - min(during) < 1e-9


def test_h15_a_soft_block_on_200_that_a_hook_reports_slows_down() -> None:
    class Watchful(ThrottlingManager):
        async def get_response_backoff(self, response: trawl.Response) -> Any:
            return A if b"captcha" in response.body else await super().get_response_backoff(response)

    blocked = pages(2, first=3)
    web = web_of(latency=0.01, handler=lambda request: SimulatedResponse(body="captcha" * (request.url in blocked)))
    sim = crawl(web, pages(8), {**AUTO, "THROTTLING_MANAGER": Watchful})
    assert sim.gaps(A)[:3] == pytest.approx([2.505, 1.2575, 0.63375])
    assert sim.gaps(A)[3] == pytest.approx(1.2675 + 0.01)  # twice, after the answer
    assert sim.gaps(A)[4] == pytest.approx(2.535 + 0.01)
    assert len(sim.items) == 8


def test_h15_pages_of_two_speeds_with_scopes_of_their_own_keep_delays_of_their_own() -> None:
    fast, slow = f"fast.{A}", f"slow.{A}"
    requests = [
        trawl.Request(f"http://{A}/{name}/{number}", meta={"throttling_scopes": scope})
        for number in range(25)
        for name, scope in (("fast", fast), ("slow", slow))
    ]
    sim = crawl(web_of(latency=lambda request: 0.1 if "fast" in request.url else 2.0), requests, AUTO)
    assert sim.gaps(fast)[-1] == pytest.approx(0.1, abs=1e-3)
    assert sim.gaps(slow)[-1] == pytest.approx(2.0, abs=1e-3)


def test_h15_in_one_scope_the_slow_ones_hold_the_fast_ones_back() -> None:
    web = web_of(latency=lambda request: 2.0 if int(request.url.rpartition("/")[2]) % 2 else 0.1)
    gaps = crawl(web, pages(40), AUTO).gaps(A)[-10:]
    assert min(gaps) > 1.0


class Thinning(trawl.Spider):
    """Every page gives an item, until the 40th."""

    name = "thinning"
    start_urls = pages(110)

    def parse(self, response: trawl.Response, *args: Any, **kwargs: Any) -> Any:
        return {"url": response.url} if int(response.url.rpartition("/")[2]) < 40 else None


def alarms(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    return [sentence for sentence in said if words in sentence]


def test_h16_alarms_come_once_a_scope_after_5_minutes(caplog: pytest.LogCaptureFixture) -> None:
    stuck = {**AUTO, "AUTOTHROTTLE_MAX_DELAY": 10.0, "DOWNLOAD_TIMEOUT": 500.0}
    crawl(web_of(latency=30.0), pages(9), stuck)  # 270 s
    assert alarms(caplog, "maximum") == []
    crawl(web_of(A, B, latency=30.0), pages(40) + pages(40, B), stuck)  # 20 minutes
    assert len(alarms(caplog, f"{A}: ")) == len(alarms(caplog, f"{B}: ")) == len(alarms(caplog, "maximum")) / 2 == 1


def test_h16_near_zero(caplog: pytest.LogCaptureFixture) -> None:
    settings = {**AUTO, "DOWNLOAD_DELAY_PER_SLOT": 10.0, "AUTOTHROTTLE_START_DELAY": 0.001}
    crawl(web_of(latency=0.001), pages(70), settings)
    assert len(alarms(caplog, "near zero")) == 1


def test_h16_concurrency_below_the_target(caplog: pytest.LogCaptureFixture) -> None:
    settings = {**AUTO, "AUTOTHROTTLE_TARGET_CONCURRENCY": 8.0}
    crawl(web_of(latency=10.0), pages(70), settings)
    [alarm] = alarms(caplog, "target concurrency")
    assert A in alarm


def test_h16_items_a_response_falling_while_latency_stays_low(caplog: pytest.LogCaptureFixture) -> None:
    simulate(Thinning, web_of(latency=0.2), {**EXACT, "AUTOTHROTTLE_ENABLED": True, "DOWNLOAD_DELAY": 8.0})
    assert len(alarms(caplog, "items a response")) == 1
