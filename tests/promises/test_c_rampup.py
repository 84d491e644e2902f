"""C01-C08: rampup, rule by rule, by the instants of its sends. Without jitter, delay per slot and robots.txt.

A window of 10 s begins with the first send. ``changes`` gives the instants at which the gap between sends changed; a
gap that is neither the old nor the new one is that of a send which waited while the delay moved (A20).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from itertools import pairwise
from typing import Any

import pytest
import trio

import trawl
from tests.promises.pacing import EXACT, SPACED, A, Handler, changes, crawl, in_turn, pages, web_of
from trawl.exceptions import ConnectFailed, DownloadError
from trawl.testing import Outage, SimulatedResponse, Simulation, simulate
from trawl.testing.clock import START

WINDOW = {"window": 10.0}


def ramped(
    rampup: Any = None, *, base: dict[str, Any] = SPACED, scope: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Settings with rampup on for a.example: windows of 10 s, and these further keys of its scope."""
    return {**base, "THROTTLING_SCOPES": {A: {"rampup": WINDOW if rampup is None else rampup, **(scope or {})}}, **more}


def refusing(*ordinals: int, headers: dict[str, str] | None = None) -> Handler:
    """A handler that answers 429 to these requests (counted from 1), and 200 to all others."""
    count = iter(range(1, 10**6))
    refusal = SimulatedResponse(429, headers=headers)
    return lambda request: refusal if next(count) in ordinals else SimulatedResponse()


def paces(sim: Simulation) -> list[tuple[float, float]]:
    return changes(sim.times(A))


def in_flight(sim: Simulation) -> list[tuple[float, int]]:
    """When the number of requests on the wire reached a new height, and which."""
    heights: list[tuple[float, int]] = []
    for send in sim.sends:
        count = sum(other.time <= send.time < other.finished for other in sim.sends)
        if not heights or count > heights[-1][1]:
            heights.append((send.time, count))
    return heights


def test_c01_it_is_off_by_default() -> None:
    assert paces(crawl(web_of(latency=0.1), pages(130), SPACED)) == [(0.0, 1.0)]


def test_c01_false_is_off() -> None:
    assert paces(crawl(web_of(latency=0.1), pages(70), ramped(False))) == [(0.0, 1.0)]


def test_c01_c03_true_doubles_the_rate_in_ten_good_answers_until_the_first_trigger() -> None:
    sim = crawl(web_of(latency=0.1), pages(36), ramped(True))
    gaps = [round(gap, 3) for gap in sim.gaps(A)]
    assert gaps[:5] == [1.0] * 4 + [round(2.0**-0.5, 3)]  # five good answers are a round
    assert gaps[9] == 0.5
    assert gaps[19] == 0.25


@pytest.mark.parametrize(("status", "factor"), [(429, 2.0**0.5), (503, 1.0)])
def test_c03_the_429_that_ends_slow_start_takes_its_last_round_back(status: int, factor: float) -> None:
    sim = crawl(web_of(latency=0.01, handler=in_turn(*[200] * 32, status)), pages(60), ramped(True))
    gaps = sim.gaps(A)
    assert gaps[31] == pytest.approx(0.125)
    assert gaps[34] == pytest.approx(0.125 * factor)  # one bad page is no limit, and the search goes on


def test_c03_without_a_window_it_is_forty_answers_at_the_rate_in_force() -> None:
    web = web_of(latency=0.01, handler=refusing(40, 43, 46))
    pace = paces(crawl(web, pages(400), ramped(True)))
    falls = [at for (at, gap), (_, earlier) in zip(pace[1:], pace, strict=False) if gap > earlier]
    assert len(falls) == 3  # the first ends slow start
    windows = [((later - at) / gap) for (at, gap), (later, _) in pairwise(pace) if at > falls[-1]]
    assert windows[:5] == pytest.approx([40.0] * 5, abs=0.5)


def test_c03_a_window_that_is_given_is_in_seconds_and_has_no_slow_start() -> None:
    expected = [(0.0, 1.0), (10.0, 0.8), (19.6, 0.64), (29.84, 0.512)]
    assert paces(crawl(web_of(latency=0.1), pages(45), ramped(WINDOW))) == expected
    assert paces(crawl(web_of(latency=0.1), pages(45), ramped(WINDOW, BACKOFF_WINDOW=20.0))) == expected


def test_c03_c04_the_delay_is_multiplied_by_the_factor_down_to_the_least_delay() -> None:
    settings = ramped({"window": 10.0, "delay_factor": 0.5, "min_delay": 0.3})
    assert paces(crawl(web_of(latency=0.1), pages(150), settings)) == [(0.0, 1.0), (10.0, 0.5), (20.0, 0.3)]


def test_c04_where_the_delay_limited_the_slots_stay() -> None:
    assert crawl(web_of(latency=0.1), pages(60), ramped()).most_in_flight(A) == 1


def test_c04_where_full_slots_limited_there_are_more_of_them_by_one_at_least() -> None:
    sim = crawl(web_of(latency=1.0), pages(150), ramped(scope={"delay": 0.0}))
    assert in_flight(sim) == [(0.0, 1), (10.0, 2), (20.0, 3), (30.0, 4), (40.0, 5)]


def test_c04_by_the_inverse_factor_and_up_to_concurrent_requests() -> None:
    settings = ramped(scope={"delay": 0.0, "concurrency": 13}, CONCURRENT_REQUESTS=28)
    sim = crawl(web_of(latency=1.0), pages(800), settings)
    assert in_flight(sim) == [(0.0, 13), (10.0, 16), (20.0, 20), (30.0, 25), (40.0, 28)]
    settings = ramped(scope={"delay": 0.0, "concurrency": 13})
    assert in_flight(crawl(web_of(latency=1.0), pages(500), settings)) == [(0.0, 13), (10.0, 16)]


def test_c04_with_the_least_delay_reached_only_the_concurrency_grows() -> None:
    sim = crawl(web_of(latency=1.0), pages(100), ramped({"window": 10.0, "min_delay": 0.5}, scope={"delay": 0.5}))
    assert in_flight(sim) == [(0.0, 1), (10.5, 2)]
    assert paces(sim) == [(0.0, 1.0), (10.0, 0.5)]


def test_c05_the_delay_per_slot_moves_with_the_delay() -> None:
    expected = [(0.0, 1.0), (10.0, 0.8), (19.6, 0.64), (29.84, 0.512)]
    assert paces(crawl(web_of(latency=0.1), pages(45), ramped(base=EXACT))) == expected
    assert paces(crawl(web_of(latency=0.1), pages(45), ramped(base=EXACT, DOWNLOAD_DELAY=0.0))) == expected


def test_c02_c05_a_trigger_within_the_target_changes_nothing_but_its_own_request() -> None:
    sim = crawl(web_of(latency=0.1, handler=refusing(4)), pages(25), ramped())
    assert paces(sim) == [(0.0, 1.0), (20.0, 0.8)]  # no backoff; the window with the trigger takes no step
    assert [send.time for send in sim.sends if send.url.endswith("/3")] == [3.0, sim.sends[-1].time]
    assert len(sim.items) == 25
    assert "retry_count" not in sim.stats


@pytest.mark.parametrize("setting", [{"RAMPUP_BACKOFF_TARGET": 2}, {}])
def test_c02_the_target_comes_from_the_setting_and_the_mapping_is_before_it(setting: dict[str, Any]) -> None:
    mapping = WINDOW if setting else {"window": 10.0, "backoff_target": 2}
    settings = ramped(mapping, **(setting or {"RAMPUP_BACKOFF_TARGET": [5, 9]}))
    assert paces(crawl(web_of(latency=0.1, handler=refusing(2, 4)), pages(20), settings)) == [(0.0, 1.0), (20.0, 0.8)]


@pytest.mark.parametrize(
    ("triggers", "gaps"),
    [
        (0, [(0.0, 1.0), (10.0, 0.8)]),  # below: speeds up
        (1, [(0.0, 1.0)]),  # within: holds
        (2, [(0.0, 1.0), (20.0, 0.8)]),  # within; the quiet window after it speeds up
        (3, [(0.0, 1.0), (20.0, 0.8)]),
        (4, [(0.0, 1.0), (7.0, 1.0526316), (19.631578947, 1.0215483)]),  # above: falls, then closes in
    ],
)
def test_c06_below_a_range_it_speeds_up_within_it_holds_above_it_backs_off(
    triggers: int, gaps: list[tuple[float, float]]
) -> None:
    settings = ramped({"window": 10.0, "backoff_target": [1, 3]})
    web = web_of(latency=0.1, handler=refusing(*(2, 4, 6, 8)[:triggers]))
    assert paces(crawl(web, pages(20), settings)) == gaps


def test_c06_below_the_low_end_of_a_range_some_triggers_are_too_few() -> None:
    settings = ramped({"window": 10.0, "backoff_target": [2, 3]})
    assert paces(crawl(web_of(latency=0.1, handler=refusing(4)), pages(15), settings)) == [(0.0, 1.0), (10.0, 0.8)]


def test_c05_above_the_target_the_rate_falls_at_once_to_below_the_refused_one_without_the_floor_of_a_second() -> None:
    sim = crawl(web_of(latency=0.02, handler=refusing(40, 60)), pages(150), ramped(scope={"delay": 0.1}))
    assert paces(sim)[:2] == [(0.0, 0.1), (5.9, 0.1052632)]  # the second 429 is of the send at 5.9


def test_c04_c05_after_a_refusal_steps_close_in_on_the_refused_rate_and_then_search_past_it() -> None:
    sim = crawl(web_of(latency=0.02, handler=refusing(40, 60)), pages(900), ramped(scope={"delay": 0.1}))
    rates = [1.0 / gap for _, gap in paces(sim)[1:]]
    assert rates == sorted(rates)
    steps = [after - before for before, after in pairwise(rates)][:5]
    assert steps[:4] == sorted(steps[:4], reverse=True)
    assert rates[4] == pytest.approx(10.0, rel=0.001)  # the refused rate, after four windows
    assert max(steps) < 0.05 * 10.0  # never by C04's factor


def test_c05_b19_targets_count_incidents() -> None:
    settings = ramped(scope={"delay": 0.1, "concurrency": 4})
    quiet = crawl(web_of(latency=0.5), pages(79), settings)
    sim = crawl(web_of(latency=0.5, handler=refusing(5, 6, 7, 8)), pages(75), settings)
    assert [send.time for send in sim.sends if send.status == 429] == [0.5, 0.6, 0.7, 0.8]
    assert sim.times(A) == quiet.times(A)  # four at once are one incident: within the target


def test_c05_a_window_of_triggers_without_a_good_answer_falls_back_to_backing_off() -> None:
    sim = crawl(web_of(latency=0.1, handler=lambda request: SimulatedResponse(429)), pages(3), ramped())
    gaps = [round(gap, 9) for gap in sim.gaps(A)]
    assert max(gaps[:5]) < 3.5  # the first window: the rate falls
    assert gaps[6:13] == [2.0, 4.1, 8.1, 16.1, 32.1, 64.1, 128.1]  # B03: base 1.0, each from the answer
    assert (sim.reason, len(sim.items)) == ("finished", 0)


def test_c05_b07_after_an_outage_it_is_back_at_the_rate_before_it_within_eight_good_answers() -> None:
    sim = crawl(web_of(latency=0.1, outages=[(20.0, 60.0)]), pages(110), ramped(BACKOFF_WINDOW=10.0))
    refused = [send.time for send in sim.sends if send.status == 503]
    gaps = [round(later - earlier, 2) for earlier, later in pairwise(refused)]
    assert gaps[:2] == [0.64, 0.67]  # the third refusal without a good answer between them says: an outage
    assert gaps[2:] == [1.38, 2.66, 5.22, 10.34]  # doubled from 0.64, each from the answer, at 0.1 s
    back = [send.time for send in sim.sends if send.status == 200 and send.time > 60.0]
    ways = [round(later - earlier, 9) for earlier, later in pairwise(back)][:11]
    assert ways == [2.56] * 3 + [1.28] * 4 + [0.64] * 4
    assert len(sim.items) == 110


def connecting(tried: list[float]) -> Any:
    """How long a new connection takes; notes when each was tried."""

    def connect(request: trawl.Request) -> float:
        tried.append(trio.current_time() - START)
        return 0.01

    return connect


@pytest.mark.parametrize("pace", [{"delay": 1.0}, {"delay": 0.0, "concurrency": 4}])
@pytest.mark.parametrize("seconds", [0.0, 0.01, 10.0])
def test_c05_connections_that_all_fail_are_an_outage_that_it_falls_back_from_too(
    pace: dict[str, Any], seconds: float
) -> None:
    web = web_of(latency=0.5, outages=[Outage(20.0, 120.0, error=ConnectFailed, latency=seconds)])
    scope = {"delay_per_slot": 0.0, "rampup": {"window": 20.0}, **pace}
    sim = crawl(web, pages(300), {"THROTTLING_SCOPES": {A: scope}})
    assert len(sim.items) == 300
    after = [at for at in sim.times(A) if at >= 120.0]
    assert after[0] < 200.0
    assert after[5] - after[0] < 160.0  # on its way back by windows of a backoff, not at the pace that it fell to


@pytest.mark.parametrize("pace", [{"delay": 1.0}, {"delay": 0.0, "concurrency": 4}])
@pytest.mark.parametrize("robots", [True, False])
def test_c05_a_connection_that_fails_is_followed_at_the_pace_of_rampup_not_at_once(
    pace: dict[str, Any], robots: bool
) -> None:
    tried: list[float] = []
    web = web_of(connect=connecting(tried), keep_alive=0.0, outages=[Outage(100.0, 500.0, error=ConnectFailed)])
    scopes = {A: {"delay_per_slot": 0.0, "rampup": True, **pace}}
    late = [trawl.Request(url, meta={"delay": 150.0}) for url in pages(30, first=1)]
    sim = crawl(web, [*pages(1), *late], {"ROBOTSTXT_OBEY": robots, "THROTTLING_SCOPES": scopes})
    failing = [at for at in tried if 100.0 <= at < 500.0]
    assert len(failing) < 40
    assert not pace["delay"] or min(later - sooner for sooner, later in pairwise(failing)) >= 0.4  # 0.8 less half of it
    assert len(sim.items) == 31


def test_c05_a_host_that_is_never_reached_is_not_stormed() -> None:
    tried: list[float] = []
    web = web_of(connect=connecting(tried), outages=[Outage(0.0, 1e9, error=ConnectFailed)])
    crawl(web, pages(100), {"ROBOTSTXT_OBEY": False, "THROTTLING_SCOPES": {A: {"delay": 1.0, "rampup": True}}})
    assert min(later - sooner for sooner, later in pairwise(tried)) >= 0.5
    assert len(tried) < 30


@pytest.mark.parametrize("window", [60.0, 600.0, 3600.0])
@pytest.mark.parametrize("error", [None, ConnectFailed])
def test_b20_an_outage_of_15_minutes_ends_nobody_under_rampup_either(
    window: float, error: type[DownloadError] | None
) -> None:
    web = web_of(latency=0.1, outages=[Outage(10.0, 910.0, error=error)])
    scopes = {A: {"delay": 1.0, "concurrency": 4, "rampup": {"window": window}}}
    sim = crawl(web, pages(60), {"THROTTLING_SCOPES": scopes})
    assert len(sim.items) == 60
    assert "refused" not in sim.stats


def test_c05_headers_hold_the_next_send_as_always() -> None:
    web = web_of(latency=0.1, handler=refusing(4, headers={"Retry-After": "4"}))
    assert paces(crawl(web, pages(15), ramped())) == [(0.0, 1.0), (3.0, 4.1), (7.1, 1.0)]


def test_c05_autothrottle_leaves_such_a_scope_alone() -> None:
    settings = ramped(AUTOTHROTTLE_ENABLED=True)
    assert paces(crawl(web_of(latency=0.1), pages(30), settings)) == [(0.0, 1.0), (10.0, 0.8), (19.6, 0.64)]


@pytest.mark.parametrize(
    ("crawl_delay", "scope", "gaps"),
    [
        ("0.7", {}, [(0.0, 1.0), (10.0, 0.8), (19.6, 0.7)]),
        ("3", {}, [(0.0, 3.0)]),
        ("0.7", {"delay": 1.0}, [(0.0, 1.0), (10.0, 0.8), (19.6, 0.7)]),
        ("3", {"delay": 1.0}, [(0.0, 1.0)]),  # D12: what was configured stays, rampup adds nothing
        ("3", {"ignore_robots_txt": True}, [(0.0, 1.0), (10.0, 0.8), (19.6, 0.64), (29.84, 0.512)]),
    ],
)
def test_c05_never_faster_than_crawl_delay(
    crawl_delay: str, scope: dict[str, Any], gaps: list[tuple[float, float]]
) -> None:
    web = web_of(latency=0.1, robots=f"User-agent: *\nCrawl-delay: {crawl_delay}")
    assert paces(crawl(web, pages(40), ramped(scope=scope, ROBOTSTXT_OBEY=True))) == gaps


def test_c05_without_a_cap_on_all_there_are_at_most_a_thousand_slots() -> None:
    settings = ramped(scope={"delay": 0.0, "concurrency": 995}, CONCURRENT_REQUESTS=0)
    sim = crawl(web_of(latency=8.0), pages(2100), settings)
    assert sim.most_in_flight() == 1000
    assert len(sim.items) == 2100


class Pausing(trawl.Spider):
    """Eight pages at once, a pause until 61.0, and more pages."""

    name = "pausing"

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        for url in pages(8):
            yield trawl.Request(url)
        await trio.sleep_until(trio.current_time() + 61.0)
        for url in pages(22, first=8):
            yield trawl.Request(url)

    def parse(self, response: trawl.Response, **kwargs: object) -> None:
        pass


def test_c08_several_idle_windows_are_one_step() -> None:
    # One step after the first window, and one for the five idle ones.
    sim = simulate(Pausing, web_of(latency=0.1), ramped())
    assert paces(sim) == [(0.0, 1.0), (7.0, 54.0), (61.0, 0.64), (70.6, 0.512)]


def test_c08_no_step_while_a_header_holds_the_scope() -> None:
    web = web_of(latency=0.1, handler=refusing(9, headers={"Retry-After": "4"}))
    sim = crawl(web, pages(25), ramped({"window": 10.0, "backoff_target": 2}))
    assert paces(sim)[:3] == [(0.0, 1.0), (8.0, 4.1), (12.1, 1.0)]  # one of two wanted, but held at 10.0
    assert paces(sim)[-1] == (20.0, 0.8)


class Slow(trawl.Spider):
    """One page after another, with 2.9 s between; from 39.0 on many at once."""

    name = "slow"

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        begun_at = trio.current_time()
        for number in range(13):
            yield trawl.Request(f"http://{A}/{number}")
            await trio.sleep_until(begun_at + 3.0 * (number + 1))
        for number in range(13, 18):
            yield trawl.Request(f"http://{A}/{number}")

    def parse(self, response: trawl.Response, **kwargs: object) -> None:
        pass


def test_c04_a_window_that_nothing_of_ours_limited_takes_no_step() -> None:
    assert paces(simulate(Slow, web_of(latency=0.1), ramped())) == [(0.0, 3.0), (39.0, 1.0)]


def test_b10_c01_rampup_of_one_scope_leaves_the_others_alone() -> None:
    web = web_of(A, "b.example", latency=0.1)
    sim = crawl(web, [url for pair in zip(pages(40), pages(40, "b.example"), strict=True) for url in pair], ramped())
    assert changes(sim.times("b.example")) == [(0.0, 1.0)]
    assert paces(sim)[1] == (10.0, 0.8)
