"""Rows A17 to A20 of the throttling promises: intervals are drawn, one draw a send, from the run's one seed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

import trawl
from tests.promises.pacing import EXACT, SPACED, A, B, crawl, in_turn, pages, web_of
from trawl.errors import SettingsError
from trawl.testing import simulate

JITTERED = {**SPACED, "RANDOMIZE_DOWNLOAD_DELAY": True}
MANY = 120


def gaps(jitter: object, delay: float = 1.0, seed: int = 0, **more: object) -> list[float]:
    settings = {**SPACED, "DOWNLOAD_DELAY": delay, "RANDOMIZE_DOWNLOAD_DELAY": jitter, **more}
    return crawl(web_of(), pages(MANY + 1), settings, seed).gaps(A)


@pytest.mark.parametrize(
    ("jitter", "low", "high"),
    [
        (True, 0.5, 1.5),  # A17
        (0.2, 0.8, 1.2),  # A18
        (1, 0.0, 2.0),
        ([-0.1, 0.3], 0.9, 1.3),  # A19
        ((0.0, 1.0), 1.0, 2.0),
        ([0.5, 0.5], 1.5, 1.5),
    ],
)
@pytest.mark.parametrize("delay", [1.0, 4.0])
def test_a17_a18_a19_intervals_lie_within_the_jitter_and_fill_it(
    jitter: object, low: float, high: float, delay: float
) -> None:
    drawn = gaps(jitter, delay)
    assert len(drawn) == MANY
    assert low * delay - 1e-9 <= min(drawn) <= max(drawn) <= high * delay + 1e-9
    assert min(drawn) <= (low + 0.04 * (high - low)) * delay + 1e-9
    assert max(drawn) >= (high - 0.04 * (high - low)) * delay - 1e-9
    assert sum(drawn) / MANY == pytest.approx((low + high) / 2 * delay, rel=0.08)


@pytest.mark.parametrize("off", [False, 0, 0.0])
def test_a17_without_jitter_intervals_are_exact(off: object) -> None:
    assert set(gaps(off)) == {1.0}


def test_a17_jitter_is_on_by_default() -> None:
    drawn = crawl(web_of(), pages(30), {"ROBOTSTXT_OBEY": False}).gaps(A)
    assert len(set(drawn)) == 29
    assert 0.5 <= min(drawn) <= max(drawn) <= 1.5


@pytest.mark.parametrize("jitter", [-0.1, 1.5, [0.3, -0.1], [-1.2, 0.0], [0.1], "much"])
def test_a17_a18_a19_what_is_no_jitter_is_refused_at_the_start(jitter: object) -> None:
    with pytest.raises(SettingsError, match="RANDOMIZE_DOWNLOAD_DELAY"):
        gaps(jitter)


def test_a17_a_scopes_own_jitter_goes_before_the_setting() -> None:
    settings = {**JITTERED, "THROTTLING_SCOPES": {A: {"jitter": [0.0, 0.1]}}}
    sim = crawl(web_of(A, B), pages(100) + pages(100, B), settings)
    assert 1.0 <= min(sim.gaps(A)) <= max(sim.gaps(A)) <= 1.1
    assert min(sim.gaps(B)) < 0.6
    assert max(sim.gaps(B)) > 1.4


def test_a17_jitter_moves_the_delay_per_slot_as_well() -> None:
    drawn = gaps(True, 0.0, DOWNLOAD_DELAY_PER_SLOT=2.0)
    assert 1.0 <= min(drawn) < 1.1
    assert 2.9 < max(drawn) <= 3.0


def test_a20_each_interval_is_a_fresh_draw() -> None:
    drawn = gaps(True)
    assert len(set(drawn)) == MANY
    assert drawn != sorted(drawn)


def test_a20_one_draw_a_send_for_both_delays() -> None:
    factors = gaps(True, 1.0)
    assert gaps(True, 0.0, DOWNLOAD_DELAY_PER_SLOT=2.0) == pytest.approx([2 * factor for factor in factors])
    assert gaps(True, 1.0, DOWNLOAD_DELAY_PER_SLOT=1.0) == pytest.approx(factors)
    assert gaps(True, 1.0, DOWNLOAD_DELAY_PER_SLOT=3.0) == pytest.approx([3 * factor for factor in factors])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a20_with_several_slots_the_same_draw_multiplies_both_delays(seed: int) -> None:
    factors = gaps(True, 1.0, seed)
    settings = {**EXACT, "RANDOMIZE_DOWNLOAD_DELAY": True, "CONCURRENT_REQUESTS_PER_DOMAIN": 2}
    sim = crawl(web_of(), pages(60), {**settings, "DOWNLOAD_DELAY": 0.6, "DOWNLOAD_DELAY_PER_SLOT": 1.5}, seed)
    times = sim.times(A)
    assert times[1] == pytest.approx(0.6 * factors[0])  # the second slot has not sent yet: the delay alone
    for number in range(2, 60):
        factor = factors[number - 1]
        expected = max(times[number - 1] + 0.6 * factor, times[number - 2] + 1.5 * factor)
        assert times[number] == pytest.approx(expected)


def test_a20_the_same_seed_gives_the_same_draws_and_another_seed_others() -> None:
    assert gaps(True, seed=5) == gaps(True, seed=5)
    assert gaps(True, seed=5) != gaps(True, seed=6)


def test_a20_a_scope_draws_the_same_whoever_crawls_beside_it() -> None:
    alone = crawl(web_of(A, B), pages(40), JITTERED).times(A)
    beside = crawl(web_of(A, B), [*pages(60, B), *pages(40)], JITTERED)
    assert beside.times(A) == alone
    assert beside.times(B)[:40] != alone


class Slowing(trawl.Spider):
    """Changes the delay from 1.0 s when the page ``/3`` has come."""

    name = "slowing"
    to = 4.0

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        for url in pages(8):
            yield trawl.Request(url)

    def parse(self, response: trawl.Response, *args: Any, **kwargs: Any) -> None:
        if response.url.endswith("/3"):
            self.crawl.throttling.set(A, delay=self.to)


@pytest.mark.parametrize("to", [0.5, 4.0])
def test_a20_the_drawn_factor_lasts_and_the_delay_in_force_is_multiplied(to: float) -> None:
    factors = gaps(True, 1.0)
    sim = simulate(Slowing, web_of(latency=0.05), JITTERED, to=to)
    expected = [*factors[:3], *(to * factor for factor in factors[3:7])]
    assert sim.gaps(A) == pytest.approx(expected)


def test_a20_a_backoff_is_felt_by_the_send_that_waits_and_so_is_its_recovery() -> None:
    settings = {**SPACED, "CONCURRENT_REQUESTS_PER_DOMAIN": 2}
    sim = crawl(web_of(latency=0.4, handler=in_turn(200, 429)), pages(40), settings)
    times = sim.times(A)
    assert times[:4] == [0.0, 1.0, 3.4, 5.4]  # due at 2.0, until the 429 came at 1.4
    late = times.index(63.4)
    assert times[late - 1 : late + 3] == [61.4, 63.4, 64.4, 65.4]  # good at 3.8: from 2.0 back to 1.0 at 63.8
