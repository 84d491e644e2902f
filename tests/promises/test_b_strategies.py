"""Rows B11 to B19 of the throttling promises: whom a trigger concerns, overrides, slots, incidents, steady limits."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import attrs
import pytest

import trawl
from tests.promises.pacing import SPACED, A, changes, crawl, in_turn, pages, web_of
from trawl.errors import SettingsError
from trawl.http import Fetch, Outcome, Request, Response
from trawl.testing import Outage, RateLimit, SimulatedResponse, Simulation
from trawl.throttling import Backoff, ThrottlingManager

X, Y = "x.example", "y.example"


def charged(number: int, *scopes: str) -> trawl.Request:
    return trawl.Request(f"http://{A}/{number}", meta={"throttling_scopes": scopes})


def test_b11_a_trigger_backs_off_all_scopes_of_its_request() -> None:
    requests = [charged(0, X, Y), charged(1, X), charged(2, X), charged(3, Y), charged(4, Y)]
    sim = crawl(web_of(handler=in_turn(429)), requests, SPACED)
    assert sim.times(X) == sim.times(Y) == [0.0, 2.0, 4.0, 6.0]


def test_b11_the_manager_may_say_otherwise() -> None:
    class OnlyX(ThrottlingManager):
        async def get_response_backoff(self, response: trawl.Response) -> str | None:
            return X if response.status == 429 else None

    requests = [charged(0, X, Y), charged(1, X), charged(2, X), charged(3, Y), charged(4, Y)]
    sim = crawl(web_of(handler=in_turn(429)), requests, {**SPACED, "THROTTLING_MANAGER": OnlyX})
    assert sim.times(X) == [0.0, 2.0, 4.0, 6.0]
    assert sim.times(Y)[:3] == [0.0, 1.0, 2.0]


def overridden(**backoff: Any) -> dict[str, Any]:
    return {**SPACED, "THROTTLING_SCOPES": {A: {"backoff": backoff}}}


@pytest.mark.parametrize(
    ("backoff", "gaps"),
    [
        ({"delay_factor": 1.2}, [1.2, 1.44, 1.728]),
        ({"max_delay": 3.0}, [2.0, 3.0, 3.0]),
        ({"min_delay": 5.0}, [5.0, 10.0, 20.0]),
        ({"window": 30.0}, [2.0, 4.0, 8.0]),
        ({}, [2.0, 4.0, 8.0]),
    ],
)
def test_b12_a_scope_overrides_each_key_and_absent_ones_fall_back(
    backoff: Mapping[str, object], gaps: list[float]
) -> None:
    sim = crawl(web_of(handler=in_turn(503, 503, 503)), pages(2), overridden(**backoff))
    assert sim.gaps(A)[:3] == gaps


def test_b12_a_window_of_its_own() -> None:
    sim = crawl(web_of(handler=in_turn(429)), pages(20), overridden(window=10.0))
    assert changes(sim.times(A)) == [(0.0, 2.0), (12.0, 1.0)]  # a good answer at 2.0


def test_b12_the_documented_values_are_valid_together() -> None:
    documented = {
        "http_codes": [429, 503], "exceptions": ["builtins.IOError"], "delay_factor": 1.2, "max_delay": 180.0,
        "min_delay": 5.0, "jitter": [0.01, 0.33], "window": 30.0, "concurrency_factor": 0.8,
    }  # fmt: skip
    sim = crawl(web_of(handler=in_turn(503)), pages(3), overridden(**documented))
    assert 5.05 <= min(sim.gaps(A)[:2]) <= max(sim.gaps(A)[:2]) <= 6.65
    assert crawl(web_of(handler=in_turn(502)), pages(3), overridden(**documented)).gaps(A)[:2] == [1.0, 1.0]


def test_b12_an_unknown_key_is_refused_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match=r"delay_facter.*delay_factor"):
        crawl(web_of(), pages(1), overridden(delay_facter=2.0))


def test_b14_an_override_replaces() -> None:
    sim = crawl(web_of(handler=in_turn(418)), pages(4), overridden(http_codes=[418]))
    assert sim.times(A) == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert len(sim.items) == 4
    own = {**overridden(http_codes=[418]), "RETRY_ENABLED": False}
    assert crawl(web_of(handler=in_turn(429)), pages(4), own).times(A) == [0.0, 1.0, 2.0, 3.0]


def most_at_once(sim: Simulation, start: float, end: float) -> int:
    """The most requests in flight at any moment from ``start`` to ``end``."""
    return max(
        sum(send.time <= moment.time < send.finished for send in sim.sends)
        for moment in sim.sends
        if start <= moment.time < end
    )


def test_b15_at_the_maximum_the_concurrency_halves_and_is_regained_first() -> None:
    web = web_of(latency=20.0, outages=[Outage(0.0, 130.0, status=429)])  # 503s would be an outage: B07
    settings = {
        **SPACED,
        "DOWNLOAD_DELAY": 0.5,
        "BACKOFF_MIN_DELAY": 0.0,
        "BACKOFF_MAX_DELAY": 1.0,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
        "RETRY_TIMES": 9,
    }
    sim = crawl(web, pages(70), settings)
    assert most_at_once(sim, 0.0, 20.0) == 8
    assert most_at_once(sim, 20.0, 44.0) == 8  # refused at 20.0: the delay goes to its maximum, 1.0
    assert most_at_once(sim, 52.0, 72.0) == 4  # at 44.5
    assert most_at_once(sim, 76.0, 96.0) == 2  # at 72.5
    assert most_at_once(sim, 98.0, 130.0) == 1  # at 96.5
    last = max(send.finished for send in sim.sends if send.status == 429)
    assert last in {138.5, 139.5}  # at 51.5 a refusal comes as the quiet of the one before ends: either may be first
    grown = [most_at_once(sim, last + 60.0 * number, last + 60.0 * (number + 1)) for number in range(4)]
    assert grown == [1, 2, 4, 8]
    backed_off = [stretch.start for stretch in sim.stretches if stretch.kind == "backoff"]
    good = min(send.finished for send in sim.sends if send.finished > last)
    assert good + 180.0 < max(backed_off) <= good + 240.0  # the delay comes back a window after the last slot


def test_b15_a_factor_of_its_own_rounds_down_and_never_under_1() -> None:
    web = web_of(latency=20.0, outages=[Outage(0.0, 150.0)])
    settings = {
        **overridden(concurrency_factor=0.8, max_delay=1.0),
        "CONCURRENT_REQUESTS_PER_DOMAIN": 3,
        "RETRY_TIMES": 9,
    }
    sim = crawl(web, pages(30), settings)
    assert most_at_once(sim, 0.0, 20.0) == 3
    assert most_at_once(sim, 24.0, 40.0) == 2
    assert most_at_once(sim, 65.0, 150.0) == 1


def stored(fetch: Fetch) -> Fetch:
    """A middleware that has a stored 429 for every page below ``/stored``."""

    async def send(request: Request) -> Outcome:
        if "/stored" in request.url:
            return Outcome(request, Response(request.url, 429, request=request), is_cached=True)
        return await fetch(request)

    return send


def test_b16_what_a_cache_answers_triggers_nothing_and_takes_no_spacing() -> None:
    """It is the last one, around the send itself; the throttle is asked as for any other outcome."""
    kept = [f"http://{A}/stored/{number}" for number in range(5)]
    settings = {
        **SPACED,
        "RETRY_ENABLED": False,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 2,
        "DOWNLOADER_MIDDLEWARES": {stored: 1_000},
    }
    sim = crawl(web_of(latency=0.4), [*pages(2), *kept, *pages(2, first=2)], settings)
    assert sim.times(A) == [0.0, 1.0, 2.0, 3.0]


def test_b17_after_an_answered_step_back_the_next_goes_half_way_in_rate() -> None:
    web = web_of(limit=RateLimit(rate=0.7, burst=1))
    sim = crawl(web, pages(250), SPACED)
    refused = [send.time for send in sim.sends if send.status == 429]
    assert refused[:3] == [1.0, 64.0, pytest.approx(64.0 + 2.0 + 60.0 + 4 / 3)]
    steps = changes(sim.times(A))
    assert steps[0] == (0.0, 1.0)  # refused at 1.0: 2.0
    assert (63.0, 1.0) in steps  # B08: divided, a window after the good answer at 3.0; refused at 64.0
    assert any(gap == pytest.approx(4 / 3) for _, gap in steps)  # between 1/2 and 1/1: 3/4 a second
    assert any(gap == pytest.approx(16 / 9) for _, gap in steps)  # between 3/8 and 3/4: 9/16 a second


def test_b07_an_outage_is_one_though_a_limit_was_met_before_it() -> None:
    statuses = (200, 429, 200, 200, 503, 503, 503)
    sim = crawl(web_of(handler=in_turn(*statuses)), pages(60), SPACED)
    gaps = [round(gap, 6) for gap in sim.gaps(A)]
    assert gaps[:7] == [1.0, 2.0, 2.0, 2.0, 4.0, 8.0, 16.0]
    # The first, fourth and eighth good answer lead to what the limit had led to, and a quiet window to what was before.
    assert gaps[7:14] == [8.0] * 3 + [4.0] * 4
    assert set(gaps[14:44]) == {2.0}
    assert gaps[-1] == 1.0


def test_b17_without_such_an_answer_the_series_of_b08_holds() -> None:
    answers = count()
    web = web_of(handler=lambda request: SimulatedResponse(429 if next(answers) in (0, 1, 2, 130) else 200))
    sim = crawl(web, pages(260), SPACED)
    late = [(time, gap) for time, gap in changes(sim.times(A)) if time > 195.0]
    assert [gap for _, gap in late] == [2.0, 1.0]  # a trigger long after the last step back: 2, then 1 again


@pytest.mark.parametrize(("rate", "burst", "base"), [(0.4, 1, 1.0), (0.3, 2, 0.0), (0.9, 3, 1.0)])
def test_b17_under_a_steady_limit_triggers_settle_near_one_a_window(rate: float, burst: int, base: float) -> None:
    web = web_of(latency=0.1, limit=RateLimit(rate=rate, burst=burst))
    sim = crawl(web, pages(int(720 * rate)), {**SPACED, "DOWNLOAD_DELAY": base, "RETRY_TIMES": 1})
    refused = [send.time for send in sim.sends if send.status == 429 and send.time > 120.0]
    windows = (sim.elapsed - 120.0) / 60.0
    assert len(refused) <= 1.2 * windows
    assert len(sim.items) == int(720 * rate)


class Linear:
    """A strategy of a user's: each step adds to the delay."""

    def __init__(self, step: float = 1.0) -> None:
        self.step = step

    def slower(self, delay: float, base: float) -> float:
        """The delay after a trigger."""
        return delay + self.step


@pytest.mark.parametrize("cls", [Linear, f"{__name__}.Linear"])
def test_b18_a_strategy_of_a_users_own_with_its_arguments(cls: object) -> None:
    sim = crawl(web_of(handler=in_turn(429, 429, 429)), pages(2), overridden(cls=cls, step=3.0))
    assert sim.gaps(A)[:3] == [4.0, 7.0, 10.0]


class StepByStep(Linear):
    """Comes back as it went."""

    def faster(self, delay: float, base: float) -> float:
        """The delay after a quiet window."""
        return delay - self.step


def test_b18_recovery_is_the_strategys_too_but_never_under_the_base() -> None:
    settings = overridden(cls=StepByStep, step=4.0)
    sim = crawl(web_of(handler=in_turn(429, 429)), pages(70), {**settings, "BACKOFF_WINDOW": 60.0})
    # Refused at 0 and 5, good at 14; at 74 and 134 the windows are over, and what waits then goes.
    assert changes(sim.times(A)) == [(0.0, 5.0), (5.0, 9.0), (68.0, 6.0), (74.0, 5.0), (134.0, 1.0)]


def test_b18_arguments_that_do_not_fit_are_refused_at_the_start() -> None:
    with pytest.raises(SettingsError, match="stride"):
        crawl(web_of(), pages(1), overridden(cls=Linear, stride=3.0))
    with pytest.raises(SettingsError, match="Nowhere"):
        crawl(web_of(), pages(1), overridden(cls="trawl.Nowhere"))


class Failing:
    """Raises wherever it is asked."""

    def __init__(self, config: object = None) -> None:
        pass

    def fail(self, *about: object) -> Any:
        """No answer."""
        raise RuntimeError("mine")

    is_trigger = slower = faster = fewer = more = get_delay = is_retry = fail


@pytest.mark.parametrize("user_code", [{"backoff": {"cls": Failing}}, {"manager": Failing}])
def test_b18_e17_what_fails_in_the_middle_of_a_decision_is_counted_and_as_usual(
    user_code: Mapping[str, object],
) -> None:
    def run(scope: Mapping[str, object]) -> Simulation:
        busy = {**SPACED, "CONCURRENT_REQUESTS_PER_DOMAIN": 4, "BACKOFF_MAX_DELAY": 4.0, "BACKOFF_WINDOW": 5.0}
        web = web_of(latency=2.0, outages=[Outage(3.0, 40.0, status=429)])
        return crawl(web, pages(30), {**busy, "THROTTLING_SCOPES": {A: scope}})

    sim, usual = run(user_code), run({})
    assert (sim.reason, len(sim.items)) == ("finished", 30)
    assert sim.times(A) == usual.times(A)
    assert sim.stats["throttling_errors"] > 0
    assert "throttling_errors" not in usual.stats


class Parts:
    """Thinks in fractions."""

    def fewer(self, concurrency: float) -> float:
        """The slots after a trigger at the longest delay."""
        return concurrency * 0.7

    def more(self, concurrency: float, full: float) -> float:
        """The slots after a quiet window."""
        return concurrency * 1.3


@attrs.frozen(kw_only=True)
class PartsOfIts(Backoff):
    """The same, made from the usual one."""

    fewer = Parts.fewer
    more = Parts.more


@pytest.mark.parametrize("cls", [Parts, PartsOfIts])
def test_b15_b18_a_strategy_that_names_parts_of_slots_gets_whole_ones(cls: type) -> None:
    busy = {**SPACED, "CONCURRENT_REQUESTS_PER_DOMAIN": 8, "BACKOFF_MAX_DELAY": 1.0, "BACKOFF_WINDOW": 5.0}
    web = web_of(latency=3.5, outages=[Outage(3.0, 40.0, status=503)])
    sim = crawl(web, pages(60), {**busy, "THROTTLING_SCOPES": {A: {"backoff": {"cls": cls}}}})
    assert (sim.reason, len(sim.items)) == ("finished", 60)


@attrs.define
class FirstEight:
    """Refuses the first eight requests."""

    seen: int = 0

    def __call__(self, request: trawl.Request) -> SimulatedResponse:
        """Answer."""
        self.seen += 1
        return SimulatedResponse(429 if self.seen <= 8 else 200)


EIGHT = {**SPACED, "CONCURRENT_REQUESTS_PER_DOMAIN": 8}


def test_b19_eight_429s_at_once_are_one_step() -> None:
    web = web_of(latency=1.0, handler=FirstEight())
    sim = crawl(web, pages(12), {**EIGHT, "DOWNLOAD_DELAY": 0.0})
    assert sim.times(A)[:8] == [0.0] * 8
    assert sim.gaps(A)[7:12] == [2.0, 1.0, 1.0, 1.0, 1.0]  # at 1.0 one step, to the minimum


def test_b19_eight_429s_one_after_another_of_requests_in_flight_are_one_step() -> None:
    web = web_of(latency=20.0, handler=FirstEight())
    sim = crawl(web, pages(12), EIGHT)
    assert sim.times(A)[:8] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert sim.times(A)[8] == 29.0  # 2.0 s after the last of them
    assert set(sim.gaps(A)[8:14]) == {2.0}


def test_b19_a_request_that_was_sent_after_the_step_takes_the_next() -> None:
    web = web_of(latency=3.0, handler=in_turn(429, 429, 429))
    sim = crawl(web, pages(4), {**EIGHT, "CONCURRENT_REQUESTS_PER_DOMAIN": 2})
    assert sim.times(A)[:3] == [0.0, 1.0, 6.0]  # no step at 4.0 but 2.0 s of quiet
    assert sim.times(A)[3:5] == [8.0, 13.0]  # the third was sent after the step: 4.0 s after 9.0


class NamesAnother(ThrottlingManager):
    """Takes a 429 for a refusal of a scope that no request is charged to."""

    async def get_response_backoff(self, response: Response) -> str | None:
        """That scope, exhausted."""
        return "api" if response.status == 429 else None


def test_b19_refusals_of_a_scope_that_only_the_manager_names_are_one_incident_too() -> None:
    settings = {**EIGHT, "DOWNLOAD_DELAY": 0.0, "THROTTLING_MANAGER": NamesAnother}
    sim = crawl(web_of(latency=1.0, handler=FirstEight()), pages(8), settings)
    assert {report.scope: (report.triggers, report.steps) for report in sim.report}[A] == (0, 0)
    assert [stretch for stretch in sim.stretches if stretch.kind == "backoff"] == []
    assert sim.times(A)[8:] == [2.0] * 8  # sent again when that scope has waited out its one step of 1.0 s
