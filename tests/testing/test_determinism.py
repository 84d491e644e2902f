"""Trio's order of tasks as a function of a seed, and back again."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import trio
from trio.testing import MockClock

import trawl
from trawl.testing import SimulatedWeb, simulate
from trawl.testing.clock import seeded_scheduling, seeded_scheduling_here


def order_of_steps(rounds: int = 4) -> list[int]:
    """Who ran when, of ten tasks that become runnable together again and again."""
    ran: list[int] = []

    async def step(number: int) -> None:
        for _ in range(rounds):
            await trio.lowlevel.checkpoint()
            ran.append(number)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(step, number)

    trio.run(main)
    return ran


def switches() -> tuple[object, object]:
    module = trio._core._run
    return module._ALLOW_DETERMINISTIC_SCHEDULING, module._r.getstate()


def test_the_same_seed_gives_the_same_order_and_another_one_another() -> None:
    orders = []
    for seed in (1, 1, 2, "one", "one"):
        with seeded_scheduling(seed):
            orders.append(order_of_steps())
    assert orders[0] == orders[1] != orders[2]
    assert orders[3] == orders[4] != orders[0]


@pytest.mark.long
def test_the_switches_are_put_back_even_after_an_error() -> None:
    before = switches()
    with pytest.raises(AssertionError, match="set"), seeded_scheduling(1):
        assert switches() == before, "set"
    assert switches() == before


async def test_inside_a_run_the_switches_are_put_back_by_the_last_block(autojump_clock: MockClock) -> None:
    before = switches()
    with seeded_scheduling_here(1):
        expected = random.Random("trawl:1")
        assert trio._core._run._r.getstate() == expected.getstate()
        with seeded_scheduling_here(2):
            assert trio._core._run._r.getstate() == expected.getstate()
    assert switches() == before


async def test_blocks_that_overlap_leave_the_switches_as_they_were(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    deterministic, _ = switches()

    async def run(seed: int, start: float, end: float) -> None:
        await trio.sleep(start)
        with seeded_scheduling_here(seed):
            await trio.sleep(end - start)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, 1, 0, 2)
        nursery.start_soon(run, 2, 1, 3)
        await trio.sleep(2.5)
        monkeypatch.setattr(trio._core._run, "_ALLOW_DETERMINISTIC_SCHEDULING", not deterministic)
        assert switches()[0] is not deterministic
    assert switches()[0] is deterministic


def test_a_trio_without_the_switches_is_told_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(trio._core._run, "_ALLOW_DETERMINISTIC_SCHEDULING")
    with pytest.raises(RuntimeError, match="private switches"), seeded_scheduling(1):
        pass


def test_requests_that_go_at_one_instant_go_in_the_order_of_the_choice() -> None:
    class Burst(trawl.Spider):
        name = "burst"
        start_urls = ("http://a.example/",)

        def parse(self, response: trawl.Response, **kwargs: object) -> Iterator[trawl.Request]:
            if response.url == "http://a.example/":
                for number in range(12):
                    yield trawl.Request(f"http://a.example/{number}", priority=-number)

    web = SimulatedWeb()
    web.add_host("a.example", latency=0.1)
    limits = {"concurrency": 16, "delay": 0.0, "delay_per_slot": 0.0}
    settings = {"ROBOTSTXT_OBEY": False, "THROTTLING_SCOPES": {"a.example": limits}}
    for seed in range(5):
        urls = [send.url for send in simulate(Burst, web, settings=settings, seed=seed).sends]
        assert urls == ["http://a.example/", *(f"http://a.example/{number}" for number in range(12))]
