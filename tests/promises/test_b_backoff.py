"""Rows B01 to B10 of the throttling promises: what triggers, how far a scope backs off, and how it comes back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from itertools import count
from typing import Any

import pytest
import trio

import trawl
from tests.promises.pacing import EXACT, SPACED, A, B, changes, crawl, in_turn, pages, web_of
from trawl.exceptions import (
    BodyTooLarge,
    ConnectFailed,
    ConnectTimeout,
    DownloadError,
    ReadTimeout,
    ResponseBroken,
)
from trawl.http.notes import notes_of
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

TRIGGERS = [429, 502, 503, 504, 520, 521, 522, 523, 524]


@pytest.mark.parametrize("status", TRIGGERS)
def test_b01_each_of_these_statuses_triggers_and_its_page_is_sent_again(status: int) -> None:
    sim = crawl(web_of(handler=in_turn(200, status)), pages(4), SPACED)
    assert sim.times(A) == [0.0, 1.0, 3.0, 5.0, 7.0]
    assert len(sim.items) == 4


@pytest.mark.parametrize("status", [200, 204, 301, 400, 403, 404, 408, 418, 500, 501, 505])
def test_b01_others_do_not(status: int) -> None:
    settings = {**SPACED, "RETRY_ENABLED": False, "REDIRECT_ENABLED": False}
    assert crawl(web_of(handler=in_turn(status)), pages(4), settings).times(A) == [0.0, 1.0, 2.0, 3.0]


def test_b01_the_setting_names_the_statuses() -> None:
    settings = {**SPACED, "BACKOFF_HTTP_CODES": [500], "RETRY_ENABLED": False}
    assert crawl(web_of(handler=in_turn(429)), pages(3), settings).times(A) == [0.0, 1.0, 2.0]
    assert crawl(web_of(handler=in_turn(500)), pages(3), settings).times(A) == [0.0, 2.0, 4.0]


def failing_once(error: type[DownloadError]) -> SimulatedWeb:
    tries = count()
    if error in (ConnectFailed, ConnectTimeout):
        return web_of(latency=0.25, connect=0.25, connect_error=lambda request: None if next(tries) else error)
    return web_of(
        latency=0.25,
        connect=0.25,
        handler=lambda request: SimulatedResponse(error=None if next(tries) else error),
    )


@pytest.mark.parametrize("error", [ConnectTimeout, ConnectFailed])
def test_b02_what_could_not_be_connected_triggers(error: type[DownloadError]) -> None:
    sim = crawl(failing_once(error), pages(3), SPACED)
    assert sim.times(A)[0] == 2.5  # it failed at 0.25: 2.0 s of quiet, and 0.25 s of connecting
    assert sim.gaps(A) == [2.0, 2.0]
    assert len(sim.items) == 3


@pytest.mark.parametrize("error", [ReadTimeout, ResponseBroken])
def test_b02_what_broke_off_triggers(error: type[DownloadError]) -> None:
    sim = crawl(failing_once(error), pages(3), SPACED)
    assert sim.times(A)[:2] == [0.25, 2.75]  # 2.0 s after it failed, and 0.25 s of connecting anew
    assert sim.gaps(A)[1:] == [2.0, 2.0]
    assert len(sim.items) == 3


def test_b02_other_errors_do_not() -> None:
    assert crawl(failing_once(BodyTooLarge), pages(3), SPACED).gaps(A)[1:] == [1.0]


def test_b02_a_real_read_timeout_triggers_and_does_not_wait_out_its_own_backoff() -> None:
    slow = web_of(latency=lambda request: 100.0 if request.url.endswith("/0") else 0.5)
    settings = {**SPACED, "DOWNLOAD_TIMEOUT": 30.0, "DOWNLOAD_READ_TIMEOUT": 30.0}
    sim = crawl(slow, pages(4), settings)
    assert sim.times(A)[:4] == [0.0, 32.0, 34.0, 36.0]  # B03: from its end at 30.0


def test_b02_strings_are_import_paths() -> None:
    handler = failing_once(ReadTimeout)
    settings = {**SPACED, "BACKOFF_EXCEPTIONS": ["trawl.exceptions.ResponseBroken"], "RETRY_ENABLED": False}
    assert crawl(handler, pages(3), settings).gaps(A)[1:] == [1.0]
    with pytest.raises(trawl.errors.SettingsError, match="BACKOFF_EXCEPTIONS"):
        crawl(web_of(), pages(1), {"BACKOFF_EXCEPTIONS": ["trawl.exceptions.Nonsense"]})


@pytest.mark.parametrize("base", [{}, {"DOWNLOAD_DELAY_PER_SLOT": 1.0}])
def test_b03_b04_the_delay_doubles_from_base_1_up_to_300(base: Mapping[str, object]) -> None:
    web = web_of(handler=in_turn(*[429] * 10))
    sim = crawl(web, pages(2), {**SPACED, **base, "BACKOFF_GIVE_UP_AFTER": 10_000.0})
    assert sim.gaps(A)[:10] == [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0, 300.0]
    assert len(sim.items) == 2


def test_b03_nothing_goes_for_that_long_after_the_response_then_intervals_run_from_send_to_send() -> None:
    sim = crawl(web_of(latency=0.5, handler=in_turn(429, 429)), pages(4), SPACED)
    assert sim.times(A) == [0.0, 2.5, 7.0, 11.0, 15.0, 19.0]


def test_b03_with_robots_its_trigger_counts_like_another() -> None:
    web = web_of(latency=0.5, robots=SimulatedResponse(503))
    sim = crawl(web, pages(1), {**SPACED, "ROBOTSTXT_OBEY": True, "BACKOFF_GIVE_UP_AFTER": 30.0})
    assert sim.gaps(A)[0] >= 2.5


@pytest.mark.parametrize(
    ("settings", "gaps"),
    [
        ({"BACKOFF_DELAY_FACTOR": 3.0}, [3.0, 9.0, 27.0, 81.0]),
        ({"BACKOFF_DELAY_FACTOR": 1.5}, [1.5, 2.25, 3.375, 5.0625]),
        ({"BACKOFF_MAX_DELAY": 5.0}, [2.0, 4.0, 5.0, 5.0]),  # B04
        ({"BACKOFF_MAX_DELAY": 5.0, "DOWNLOAD_DELAY": 20.0}, [20.0, 20.0, 20.0, 20.0]),  # never under the base
        ({"DOWNLOAD_DELAY": 0.0}, [1.0, 2.0, 4.0, 8.0]),  # B05
        ({"DOWNLOAD_DELAY": 0.3}, [1.0, 2.0, 4.0, 8.0]),
        ({"DOWNLOAD_DELAY": 0.75}, [1.5, 3.0, 6.0, 12.0]),
        ({"BACKOFF_MIN_DELAY": 5.0}, [5.0, 10.0, 20.0, 40.0]),
        ({"BACKOFF_MIN_DELAY": 0.1, "DOWNLOAD_DELAY": 0.0}, [0.1, 0.2, 0.4, 0.8]),
    ],
)
def test_b03_b04_b05_factor_maximum_and_minimum(settings: Mapping[str, object], gaps: list[float]) -> None:
    sim = crawl(web_of(handler=in_turn(*[503] * 4)), pages(2), {**SPACED, **settings})
    assert sim.gaps(A)[:4] == gaps


def backed_off(settings: Mapping[str, object], answers: int = 2, more: int = 12) -> list[float]:
    """The gaps of a crawl that is refused at its start, while it backs off; 4.0 s is the standing delay."""
    return crawl(web_of(handler=in_turn(*[429] * answers)), pages(more), {**SPACED, **settings}).gaps(A)[answers - 1 :]


@pytest.mark.parametrize(
    ("settings", "low", "high"),
    [
        ({"BACKOFF_JITTER": 0.1}, 4.0, 4.4),
        ({"BACKOFF_JITTER": 0.5, "RANDOMIZE_DOWNLOAD_DELAY": 0.01}, 4.0, 6.0),
        ({"BACKOFF_JITTER": [0.0, 0.5]}, 4.0, 6.0),
        ({"BACKOFF_JITTER": 0.9, "THROTTLING_SCOPES": {A: {"backoff": {"jitter": [0.01, 0.33]}}}}, 4.04, 5.32),
        ({"BACKOFF_JITTER": 0.1, "THROTTLING_SCOPES": {A: {"jitter": 0.9}}}, 4.0, 4.4),
    ],
)
def test_b06_the_backoffs_jitter_replaces_every_other(settings: Mapping[str, object], low: float, high: float) -> None:
    gaps = backed_off(settings)
    assert low <= min(gaps) <= max(gaps) <= high
    assert max(gaps) - min(gaps) > 0.4 * (high - low)


def test_b06_the_default_is_a_tenth() -> None:
    gaps = crawl(web_of(handler=in_turn(429, 429)), pages(12), {"ROBOTSTXT_OBEY": False}).gaps(A)[1:]
    assert 4.0 <= min(gaps) < max(gaps) <= 4.4


@pytest.mark.parametrize("none", [0, False])
def test_b06_zero_and_false_are_none_even_where_downloads_have_jitter(none: object) -> None:
    settings = {"BACKOFF_JITTER": none, "RANDOMIZE_DOWNLOAD_DELAY": True}
    assert set(backed_off(settings)) == {4.0}
    gaps = backed_off(settings, 2, 60)
    assert gaps[:14] == [4.0] * 14
    assert gaps[-1] not in (1.0, 2.0, 4.0)  # and the download's comes back with the base


def test_b06_jitter_moves_the_interval_never_the_standing_delay() -> None:
    settings = {"BACKOFF_JITTER": 0.5, "BACKOFF_MAX_DELAY": 10.0, "BACKOFF_MIN_DELAY": 10.0}
    gaps = backed_off(settings, 20, 5)
    assert min(gaps) < 11.0
    assert max(gaps) > 14.0
    assert 10.0 <= min(gaps) <= max(gaps) <= 15.0  # D12: it only lengthens


def test_b06_what_a_header_asks_for_is_only_ever_lengthened() -> None:
    first = []
    for seed in range(16):
        web = web_of(handler=lambda request: SimulatedResponse(429, headers={"Retry-After": "10"}))
        first.append(crawl(web, pages(1), {**SPACED, "BACKOFF_JITTER": 0.5, "BACKOFF_GIVE_UP_AFTER": 15.0}, seed))
    times = [sim.times(A)[1] for sim in first if len(sim.sends) > 1]
    assert 10.0 <= min(times) < 11.0
    assert 13.5 < max(times) <= 15.0


def test_b07_b08_quiet_windows_take_the_delay_back_from_8_to_4_2_1() -> None:
    sim = crawl(web_of(handler=in_turn(429, 429, 429)), pages(62), SPACED)
    assert changes(sim.times(A)) == [(0.0, 2.0), (2.0, 4.0), (6.0, 8.0), (70.0, 4.0), (134.0, 2.0), (194.0, 1.0)]


def test_b08_a_step_under_the_minimum_lands_on_the_base() -> None:
    web = web_of(latency=0.5, handler=in_turn(429, 429, 429))
    sim = crawl(web, pages(90), {**SPACED, "DOWNLOAD_DELAY": 0.0, "BACKOFF_WINDOW": 10.0})
    assert changes(sim.times(A))[2:] == [
        (4.0, 4.5), (8.5, 4.0), (16.5, 2.5), (19.0, 2.0), (29.0, 1.0), (39.0, 0.5),
    ]  # fmt: skip


def test_b09_recovery_stops_at_the_base() -> None:
    settings = {**SPACED, "DOWNLOAD_DELAY": 1.3, "BACKOFF_WINDOW": 5.0, "BACKOFF_DELAY_FACTOR": 3.0}
    assert set(crawl(web_of(handler=in_turn(429, 429)), pages(60), settings).gaps(A)[-20:]) == {1.3}


def test_b07_a_trigger_restarts_the_window_also_one_that_takes_no_step() -> None:
    latencies = {"/0": 0.5, "/1": 30.0}
    web = web_of(
        latency=lambda request: latencies.get(request.url[-2:], 0.1),
        handler=lambda request: SimulatedResponse(429 if request.url[-2:] in latencies and is_new(request) else 200),
    )
    sim = crawl(web, pages(100), {**SPACED, "DOWNLOAD_DELAY": 0.25, "CONCURRENT_REQUESTS_PER_DOMAIN": 2})
    assert [send.time for send in sim.sends if send.status == 429] == [0.0, 0.25]  # answered at 0.5 and at 30.25
    assert [time for time, gap in changes(sim.times(A)) if gap == 0.25 and time > 1.0] == [91.25]  # good at 31.25


def test_b07_the_window_counts_from_the_first_good_answer_after_the_last_trigger() -> None:
    sim = crawl(web_of(handler=in_turn(429, 429, 429, 429)), pages(8), {**SPACED, "BACKOFF_WINDOW": 10.0})
    # Refused until 14, good at 30: 16 holds until 40, where 8 would have let one go at 38; then 4 at 50, 2 at 60.
    assert sim.times(A) == [0.0, 2.0, 6.0, 14.0, 30.0, 40.0, 48.0, 52.0, 56.0, 60.0, 62.0, 64.0]


def is_new(request: trawl.Request) -> bool:
    """Whether the throttle has not marked it as refused before."""
    return notes_of(request).refused_at is None


def test_b07_without_a_good_answer_no_window_counts() -> None:
    web = web_of(latency=lambda request: 200.0 if request.url.endswith("/1") else 0.0, handler=in_turn(429))
    sim = crawl(
        web, pages(6), {**SPACED, "DOWNLOAD_TIMEOUT": 1000.0, "DOWNLOAD_READ_TIMEOUT": 1000.0, "DOWNLOAD_DELAY": 8.0}
    )
    assert sim.times(A) == [0.0, 16.0, 216.0, 232.0, 248.0, 264.0, 276.0]  # a window after the answer at 216.0


class Pausing(trawl.Spider):
    """Four pages, a long pause, four more."""

    name = "pausing"

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        for url in pages(4):
            yield trawl.Request(url)
        await trio.sleep(150.0)
        for url in pages(4, first=4):
            yield trawl.Request(url)

    def parse(self, response: trawl.Response, *args: Any, **kwargs: Any) -> None:
        pass


def test_b07_windows_pass_while_the_scope_is_idle() -> None:
    sim = simulate(Pausing, web_of(handler=in_turn(429, 429, 429)), EXACT)
    assert sim.times(A)[:7] == [0.0, 2.0, 6.0, 14.0, 22.0, 30.0, 38.0]
    assert sim.times(A)[7:] == [150.0, 152.0, 154.0, 156.0]  # 8 until 74, 4 until 134, 2 until 194


def test_b10_backing_off_one_scope_leaves_the_others_alone() -> None:
    web = web_of(A, handler=in_turn(*[503] * 5))
    web.add_host(B)
    sim = crawl(web, pages(2) + pages(9, B), SPACED)
    assert sim.gaps(A)[:5] == [2.0, 4.0, 8.0, 16.0, 32.0]
    assert sim.times(B) == [float(number) for number in range(9)]


def test_b06_while_backing_off_jitter_does_not_shorten_an_exact_delay_per_slot() -> None:
    settings = {
        "RANDOMIZE_DOWNLOAD_DELAY": False,
        "ROBOTSTXT_OBEY": False,
        "DOWNLOAD_DELAY": 0,
        "DOWNLOAD_DELAY_PER_SLOT": 5.0,
    }
    for seed in range(10):
        sim = crawl(web_of(latency=0.1, handler=in_turn(200, 429)), pages(6), settings, seed=seed)
        assert min(sim.gaps(A)) >= 5.0
