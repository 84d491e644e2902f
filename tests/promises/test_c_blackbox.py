"""C09: rampup as a black box. A token bucket allows R requests a second, a spider has thousands of pages, nothing else.

What is measured is what the server sees: sends, their times and their statuses. A window holds 20 requests at R. The
usual run takes a few rates; ``nox -s sweep`` (or ``pytest -m sweep``) takes all of them, either bucket, longer windows,
other seeds and more changes of R on the way: minutes of computing, and days on the virtual clock.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Sequence
from itertools import pairwise
from typing import Any

import attrs
import pytest
import trio

import trawl
from tests.promises.pacing import A
from trawl.testing import RateLimit, SimulatedResponse, SimulatedWeb, Simulation, simulate

SETTLED = 40
"""Windows in which the rate has to be reached."""

SUSTAINED = 15
"""Windows over which a rate is taken: with jitter a single one of 20 requests is a matter of luck."""

RATES = (0.5, 1.0, 2.0, 5.0, 20.0, 50.0, 200.0)


@attrs.frozen(kw_only=True)
class Server:
    """A server's limit, and how it is crawled.

    Attributes:
        rates: Requests a second; the first from the start, each other one from a multiple of ``stage`` windows on.
        burst: What the bucket holds: 5, or 1 and then without jitter.
        held: Requests that a window holds at the least of the rates.
        stage: Windows for which each rate holds.
        seed: Of the run.
    """

    rates: Sequence[float]
    burst: int = 5
    held: int = 20
    stage: int = 60
    seed: int = 0

    @property
    def window(self) -> float:
        return self.held / min(self.rates)

    def crawl(self) -> Simulation:
        pages = int(sum(self.rates) * self.stage * self.window)

        class Thousands(trawl.Spider):
            name = "thousands"

            async def start(self) -> AsyncGenerator[trawl.Request, None]:
                for number in range(pages):
                    yield trawl.Request(f"http://{A}/{number}")

            def parse(self, response: trawl.Response, **kwargs: object) -> Any:
                return {"url": response.url}

        changes = [(stage * self.stage * self.window, rate) for stage, rate in enumerate(self.rates) if stage]
        web = SimulatedWeb()
        limit = RateLimit(rate=self.rates[0], burst=self.burst, changes=changes)
        web.add_host(A, latency=min(0.05, 2.0 / max(self.rates)), limit=limit)
        sim = simulate(Thousands, web, self.settings(), self.seed)
        assert {item["url"] for item in sim.items} == {
            f"http://{A}/{number}" for number in range(pages)
        }  # nothing lost
        assert len(sim.items) == pages
        return sim

    def settings(self) -> dict[str, Any]:
        """The defaults: a delay of 1.0 between sends and in each slot, one slot, robots.txt obeyed, jitter of half."""
        return {
            "THROTTLING_SCOPES": {A: {"rampup": {"window": self.window}}},
            "DOWNLOAD_DELAY": 1.0,
            "RANDOMIZE_DOWNLOAD_DELAY": self.burst > 1,
        }


def check(server: Server) -> None:
    """Crawl, and hold each stage to the promise."""
    sim = server.crawl()
    last = max(send.time for send in sim.sends if send.status == 200)
    windows = int(last / server.window)  # whole ones
    good, refused = [0] * (windows + 1), [0] * (windows + 1)
    for send in sim.sends:
        (refused if send.status == 429 else good)[min(int(send.time / server.window), windows)] += 1
    stages = [server.stage * number for number in range(len(server.rates))]
    for rate, (start, end) in zip(server.rates, pairwise([*stages, windows]), strict=True):
        wanted = 0.9 * rate * server.window
        settled = good[start + SETTLED : end]
        assert len(settled) >= SUSTAINED
        assert sum(settled) / len(settled) >= wanted
        spans = [settled[at : at + SUSTAINED] for at in range(len(settled) - SUSTAINED + 1)]
        assert min(sum(span) for span in spans) >= wanted * SUSTAINED  # and stays there
        assert sum(refused[start:end]) <= end - start  # the target is one a window
        assert sum(refused[start + SETTLED : end]) <= end - start - SETTLED


@pytest.mark.parametrize(("rate", "burst"), [(0.5, 5), (5.0, 1), (200.0, 5)])
def test_c09_within_40_windows_it_reaches_nine_tenths_and_stays_there(rate: float, burst: int) -> None:
    check(Server(rates=[rate], burst=burst))


@pytest.mark.parametrize("rates", [(20.0, 10.0), (2.0, 4.0)])
def test_c09_it_finds_the_limit_again_when_that_moves(rates: tuple[float, ...]) -> None:
    check(Server(rates=rates))


@pytest.mark.sweep
@pytest.mark.parametrize("held", [20, 60])
@pytest.mark.parametrize(("burst", "seed"), [(1, 0), (5, 0), (5, 1), (5, 2), (20, 0)])
@pytest.mark.parametrize("rate", RATES)
def test_c09_for_every_rate(rate: float, burst: int, seed: int, held: int) -> None:
    check(Server(rates=[rate], burst=burst, seed=seed, held=held, stage=90))


@pytest.mark.sweep
@pytest.mark.parametrize("burst", [1, 5])
@pytest.mark.parametrize(
    "rates", [(0.5, 5.0), (5.0, 0.5), (20.0, 200.0), (200.0, 20.0), (20.0, 18.0, 24.0), (5.0, 10.0, 2.0)], ids=str
)
def test_c09_for_every_change(rates: tuple[float, ...], burst: int) -> None:
    check(Server(rates=rates, burst=burst, stage=70))


def crawled(pages: int, settings: dict[str, Any], seed: int = 0, **host: Any) -> Simulation:
    """A crawl of so many pages of a.example, jitter on; each gives an item."""

    class Pages(trawl.Spider):
        name = "pages"

        async def start(self) -> AsyncGenerator[trawl.Request, None]:
            for number in range(pages):
                yield trawl.Request(f"http://{A}/{number}")

        def parse(self, response: trawl.Response, **kwargs: object) -> Any:
            return {"url": response.url}

    web = SimulatedWeb()
    web.add_host(A, **{"latency": 0.1, **host})
    sim = simulate(Pages, web, {"ROBOTSTXT_OBEY": False, **settings}, seed)
    assert len({item["url"] for item in sim.items}) == len(sim.items) == pages
    return sim


RAMPED = {"THROTTLING_SCOPES": {A: {"rampup": True}}, "DOWNLOAD_DELAY": 1.0}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("rate", "pages", "within"), [(2.0, 500, 260.0), (10.0, 1000, 115.0), (50.0, 2000, 60.0)])
def test_c09_switched_on_it_finds_the_limit_in_seconds(rate: float, pages: int, within: float, seed: int) -> None:
    sim = crawled(pages, RAMPED, seed, limit=RateLimit(rate=rate, burst=5))
    assert max(send.time for send in sim.sends) <= within
    steady = [send.status for send in sim.sends if send.time > 30.0]
    assert steady.count(429) <= 0.03 * steady.count(200)


@pytest.mark.parametrize("seed", range(8))
def test_c09_from_the_thirtieth_second_on_refusals_are_few(seed: int) -> None:
    sim = crawled(600, RAMPED, seed, limit=RateLimit(rate=10.0, burst=5))
    steady = [send.status for send in sim.sends if 30.0 <= send.time < 60.0]
    assert steady.count(200) >= 0.95 * 10.0 * 30.0
    assert steady.count(429) <= 0.025 * steady.count(200)


@pytest.mark.parametrize(
    ("rate", "share"), [(2.0, 0.9), (10.0, 0.9), pytest.param(50.0, 0.85, marks=pytest.mark.sweep)]
)
def test_c09_a_server_that_bears_no_burst_is_used_in_spite_of_jitter(rate: float, share: float) -> None:
    sim = crawled(int(rate * 240.0), RAMPED, limit=RateLimit(rate=rate, burst=1))
    good = [send.time for send in sim.sends if send.status == 200]
    steady = [time for time in good if time >= 60.0]
    assert len(steady) / (steady[-1] - 60.0) >= share * rate
    assert sum(send.status == 429 for send in sim.sends if send.time >= 60.0) <= 0.03 * len(steady)


@pytest.mark.parametrize("is_ramped", [True, False])
def test_b07_c05_after_an_outage_of_40_s_the_rate_is_back_in_30(is_ramped: bool) -> None:
    plain = {"DOWNLOAD_DELAY": 1.0 / 6.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0}
    web: dict[str, Any] = {"outages": [(200.0, 240.0)]}
    if is_ramped:
        web["limit"] = RateLimit(rate=6.0, burst=5)
    sim = crawled(2000, RAMPED if is_ramped else plain, **web)
    back = [send.time for send in sim.sends if send.status == 200 and 270.0 <= send.time < 300.0]
    assert len(back) >= 0.9 * 6.0 * 30.0
    assert sum(send.status == 503 for send in sim.sends) <= 10  # in 40 s


def back_within(sim: Simulation, end: float, rate: float) -> float:
    """Seconds from ``end`` until ten seconds begin with nine tenths of ``rate``."""
    good = [send.time for send in sim.sends if send.status == 200 and send.time >= end]
    return next(
        start - end for start in good if sum(start <= time < start + 10.0 for time in good) >= 0.9 * rate * 10.0
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_c05_after_an_outage_of_five_minutes_the_rate_is_back_in_one(seed: int) -> None:
    sim = crawled(2000, RAMPED, seed, limit=RateLimit(rate=6.0, burst=5), outages=[(200.0, 500.0)])
    assert back_within(sim, 500.0, 6.0) <= 75.0  # the interval of probes, its jitter, and eight answers
    assert sum(send.status == 503 for send in sim.sends) <= 14  # with intervals that only double there are 11


@pytest.mark.parametrize(
    ("is_ramped", "status", "lasts"), [(True, 503, 100.0), (False, 503, 100.0), (True, 429, 180.0), (False, 429, 100.0)]
)
@pytest.mark.parametrize("seconds", ["1", "7", "20"])
def test_b07_c05_an_outage_whose_every_answer_says_when_to_come_back_is_one(
    is_ramped: bool, seconds: str, status: int, lasts: float
) -> None:
    began_at: list[float] = []

    def handler(request: trawl.Request) -> SimulatedResponse:
        began_at[:] = began_at or [trio.current_time()]
        is_down = 60.0 <= trio.current_time() - began_at[0] < 60.0 + lasts
        return SimulatedResponse(status, headers={"Retry-After": seconds}) if is_down else SimulatedResponse()

    plain = {"DOWNLOAD_DELAY": 0.2, "DOWNLOAD_DELAY_PER_SLOT": 0.0}
    web: dict[str, Any] = {"limit": RateLimit(rate=5.0, burst=5)} if is_ramped else {}
    sim = crawled(900, RAMPED if is_ramped else plain, handler=handler, **web)
    # Plain backing off too: it has doubled its delay as often as it could.
    assert back_within(sim, 60.0 + lasts, 5.0) <= 75.0
    refused = [send.time for send in sim.sends if send.status == status and 60.0 <= send.time < 60.0 + lasts]
    # For a minute a 429 speaks of a limit, whose falls are smaller.
    assert len(refused) <= (14 if status == 503 else 20)
    assert min(later - earlier for earlier, later in pairwise(refused)) >= float(seconds)


@pytest.mark.parametrize("seconds", ["1", "10", None])
def test_c05_a_limit_by_the_minute_is_no_outage_whatever_time_its_answers_tell(
    seconds: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    served: list[int] = []

    def handler(request: trawl.Request) -> SimulatedResponse:
        minute = int(trio.current_time() // 60.0)
        if served.count(minute) < 60:
            served.append(minute)
            return SimulatedResponse()
        return SimulatedResponse(429, headers={} if seconds is None else {"Retry-After": seconds})

    sim = crawled(600, RAMPED, handler=handler)
    assert sum(send.status == 429 for send in sim.sends) <= 0.16 * 600
    assert "an outage" not in caplog.text


@pytest.mark.parametrize(("at", "apart"), [(200.0, 4.0), (200.0, 8.0), (200.0, 10.0), (203.0, 4.0)])
def test_c05_after_two_short_outages_the_rate_is_back(at: float, apart: float) -> None:
    again = at + 5.0 + apart
    sim = crawled(2000, RAMPED, limit=RateLimit(rate=6.0, burst=5), outages=[(at, at + 5.0), (again, again + 5.0)])
    assert back_within(sim, again + 5.0, 6.0) <= 15.0
    assert sum(send.status == 503 for send in sim.sends) <= 15


@pytest.mark.parametrize(("delay", "latency", "within"), [(0.05, 0.5, 30.0), (1.0, 10.0, 450.0)])
def test_c04_a_slow_server_gets_more_slots_also_where_few_answers_come(
    delay: float, latency: float, within: float
) -> None:
    settings = {**RAMPED, "DOWNLOAD_DELAY": delay, "DOWNLOAD_DELAY_PER_SLOT": 0.0}
    sim = crawled(400, settings, latency=latency)
    assert sim.most_in_flight(A) == 16
    assert max(send.time for send in sim.sends) <= within


@pytest.mark.parametrize(("rate", "seconds"), [(5.0, "7"), (2.0, "10")])
def test_c05_a_hold_that_a_429_asks_for_is_dear_so_there_are_few(rate: float, seconds: str) -> None:
    pages = int(rate * 600.0)
    sim = crawled(pages, RAMPED, limit=RateLimit(rate=rate, burst=5, retry_after=seconds))
    assert sum(send.status == 429 for send in sim.sends) <= 20
    assert max(send.time for send in sim.sends) <= pages / rate / 0.75


@pytest.mark.parametrize(("seconds", "share"), [(5, 0.9), (30, 0.85)])
def test_c05_a_limit_whose_every_refusal_costs_half_a_minute_is_used(seconds: int, share: float) -> None:
    sim = crawled(6000, RAMPED, limit=RateLimit(rate=10.0, burst=5, retry_after=seconds))
    good = [send.time for send in sim.sends if send.status == 200 and 60.0 <= send.time < 600.0]
    assert len(good) >= share * 10.0 * 540.0
    assert sum(send.status == 429 for send in sim.sends) <= 15


@pytest.mark.parametrize("share", [0.02, 0.1])
def test_b20_c05_errors_that_no_rate_cures_make_it_slow_and_lose_nothing(share: float) -> None:
    draws = random.Random(1)
    sim = crawled(400, RAMPED, handler=lambda request: SimulatedResponse(503 if draws.random() < share else 200))
    assert max(send.time for send in sim.sends) <= 400 * (1.0 if share < 0.05 else 10.0)


@pytest.mark.parametrize(("before", "rate", "share"), [(10.0, 12.0, 0.95), (10.0, 20.0, 0.88), (5.0, 50.0, 0.55)])
def test_c09_a_limit_that_rises_is_used_in_the_two_minutes_after_it(before: float, rate: float, share: float) -> None:
    pages = int(before * 120.0 + rate * 140.0)
    sim = crawled(pages, RAMPED, limit=RateLimit(rate=before, burst=5, changes=[(120.0, rate)]))
    after = [send.status for send in sim.sends if 120.0 <= send.time < 240.0]
    assert after.count(200) >= share * rate * 120.0
    assert after.count(429) <= 0.03 * after.count(200)


@pytest.mark.parametrize("status", [429, 503])
def test_c09_a_limit_that_drops_tenfold_is_found_whatever_status_tells_it(status: int) -> None:
    sim = crawled(1600, RAMPED, limit=RateLimit(rate=10.0, burst=5, status=status, changes=[(100.0, 1.0)]))
    after = [send.time for send in sim.sends if send.status == 200 and send.time >= 250.0]
    assert len(after) > 200
    assert len(after) / (after[-1] - after[0]) >= 0.9
    assert sum(send.status == status for send in sim.sends if send.time >= 250.0) <= 0.05 * len(after)
