"""I11, I02: whatever is told of waiting is so: by random crawls and a model that reads the sends, and by hand."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import trawl
from tests.promises.crawling import EXACT, FREE, a_web, crawled, page, spider_of
from tests.promises.told import contradictions, misaccounted, random_case, run_case
from trawl.cli.summary import scopes_table
from trawl.testing import SimulatedResponse, SimulatedWeb, Simulation, simulate
from trawl.throttling import ScopeReport

A = "http://a.example"


@pytest.mark.parametrize("seed", [*range(10), 83, 134])  # 83: ready at a send; 134: a claimant and a kept quota
def test_i11_nothing_that_is_told_of_waiting_contradicts_the_sends(seed: int) -> None:
    case = random_case(seed)
    assert contradictions(case, *run_case(case)) == []


@pytest.mark.parametrize("seed", range(10, 14))
def test_i11_nor_without_jitter(seed: int) -> None:
    case = random_case(seed)
    assert contradictions(case, *run_case(case, RANDOMIZE_DOWNLOAD_DELAY=False)) == []


@pytest.mark.parametrize("seed", range(12))
def test_i11_the_time_between_two_sends_is_put_down_to_the_limit_that_opened_last(seed: int) -> None:
    off, words = misaccounted(seed)
    assert off < 0.001, words


def row_of(sim: Simulation, scope: str) -> ScopeReport:
    return next(row for row in sim.report if row.scope == scope)


def printed(sim: Simulation, width: int = 160) -> list[list[str]]:
    """The cells of the table at the end, by column titles."""
    table = scopes_table(sim.report, width)
    assert table is not None
    columns = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize("sliding", [False, True])
def test_i11_f03_a_quota_is_told_by_the_amounts_that_are_asked_and_not_by_ones(sliding: bool) -> None:
    # Three requests of 3.0 fit 10.0, and one of 1.0 would fit beside them.
    limits = {"api": {"quota": 10.0, "window": 20.0, "delay": 1.0, "sliding": sliding}}
    requests = [page(f"{A}/{number}", {"api": 3.0}) for number in range(15)]
    sim = crawled(lambda: requests, a_web("a.example", latency=0.1), FREE, THROTTLING_SCOPES=limits)
    row = row_of(sim, "api")
    assert [send.time for send in sim.sends][:4] == [0.0, 1.0, 2.0, 20.0]
    assert row.limited["quota"] + row.limited["delay"] == pytest.approx(82.0)
    assert row.limited["quota"] >= 72.0  # where it slides, delay and quota let the next one through at once
    assert row.rate == pytest.approx(14 / 82)
    assert row.allowed == pytest.approx(14 / 82)
    titles, *rows = printed(sim)
    cells = dict(zip(titles, rows[0], strict=True))
    assert cells["waited"].startswith("1 min ")
    assert " for quota, " in cells["waited"]
    assert cells["allowed"] == cells["rate"]


def test_i11_f04_what_answers_say_was_really_used_counts_too() -> None:
    class Costly:
        def get_response_backoff(self, response: trawl.Response) -> Any:
            return {"api": {"consumed": 5.0}}

    limits = {"api": {"quota": 10.0, "window": 20.0}}
    requests = [page(f"{A}/{number}", {"api": 1.0}) for number in range(9)]
    settings = {**FREE, "CONCURRENT_REQUESTS": 1, "THROTTLING_MANAGER": Costly, "THROTTLING_SCOPES": limits}
    row = row_of(crawled(lambda: requests, a_web("a.example", latency=0.1), settings), "api")
    assert row.limited["quota"] > 70.0
    assert row.rate <= row.allowed < 0.12


def test_i11_waiting_for_robots_txt_is_in_the_table() -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=lambda request: 7.5 if "robots" in request.url else 0.1)
    sim = crawled(lambda: [trawl.Request(f"{A}/{n}") for n in range(3)], web, {**EXACT, "ROBOTSTXT_OBEY": True})
    row = row_of(sim, "a.example")
    assert row.limited == {"gate": 7.5, "delay": pytest.approx(2.0)}
    titles, *rows = printed(sim)
    assert dict(zip(titles, rows[0], strict=True))["waited"] == "7.5 s for robots.txt, 2.0 s for delay"


def test_i11_so_it_is_while_robots_txt_is_asked_for_again() -> None:
    web = a_web("a.example", latency=0.5, robots=SimulatedResponse(503))
    settings = {**FREE, "ROBOTSTXT_OBEY": True, "BACKOFF_HTTP_CODES": [], "BACKOFF_GIVE_UP_AFTER": 60.0}
    sim = crawled(lambda: [trawl.Request(f"{A}/{n}") for n in range(2)], web, settings)
    assert [send.url for send in sim.sends if not send.url.endswith("robots.txt")] == []
    assert row_of(sim, "a.example").limited == {"gate": pytest.approx(sim.elapsed)}


def test_i11_crawl_delay_has_another_name_than_reading_robots_txt() -> None:
    web = a_web("a.example", robots="User-agent: *\nCrawl-delay: 5\n")
    settings = {**FREE, "ROBOTSTXT_OBEY": True}
    sim = crawled(lambda: [trawl.Request(f"{A}/{n}") for n in range(4)], web, settings)
    titles, *rows = printed(sim)
    assert dict(zip(titles, rows[0], strict=True))["waited"].endswith("for Crawl-delay")


def few(count: int) -> Callable[[], list[trawl.Request]]:
    return lambda: [trawl.Request(f"{A}/{number}") for number in range(count)]


def _next(answers: Iterator[SimulatedResponse], request: object) -> SimulatedResponse:
    return next(answers, SimulatedResponse())


RATES: list[tuple[int, dict[str, Any]]] = [
    (2, {}),
    (3, {}),
    (12, {"THROTTLING_SCOPES": {"a.example": {"concurrency": 4, "delay": 0.2, "delay_per_slot": 1.0}}}),
    (9, {"THROTTLING_SCOPES": {"a.example": {"quota": 4, "window": 9.0, "delay": 0.5}}}),
    (30, {"THROTTLING_SCOPES": {"a.example": {"rampup": {"window": 5.0}}}}),
    (30, {"AUTOTHROTTLE_ENABLED": True, "DOWNLOAD_DELAY_PER_SLOT": 0.0, "DOWNLOAD_DELAY": 0.0}),
]


@pytest.mark.parametrize(("count", "settings"), RATES)
@pytest.mark.parametrize("has_backed_off", [False, True])
def test_i11_a_rate_is_never_above_the_one_that_was_allowed(
    count: int, settings: dict[str, Any], has_backed_off: bool
) -> None:
    for seed in range(3):
        last = iter([SimulatedResponse()] * (count - 1) + [SimulatedResponse(503)] * has_backed_off)
        web = SimulatedWeb()
        web.add_host("a.example", latency=0.1, handler=partial(_next, last))
        spider = spider_of(few(count))
        sim = simulate(spider, web, {"ROBOTSTXT_OBEY": False, **settings}, seed=seed)
        row = row_of(sim, "a.example")
        assert 0.0 < row.rate <= row.allowed
        assert row.allowed <= 1.5 * row.rate or "AUTOTHROTTLE_ENABLED" in settings  # and says something


def test_i11_a_single_send_is_told_what_is_in_force() -> None:
    scopes = {"api": {"quota": 10.0, "window": 20.0}, "a.example": {"delay": 4.0}}
    request = page(f"{A}/0", {"api": 5.0, "a.example": None})
    sim = crawled(lambda: [request], a_web("a.example"), FREE, THROTTLING_SCOPES=scopes)
    assert {row.scope: (row.rate, row.allowed) for row in sim.report} == {"api": (0.0, 0.1), "a.example": (0.0, 0.25)}


def test_i11_idle_time_is_nobodys_waiting() -> None:
    chance = random.Random(5)
    later = [page(f"{A}/{number}", meta={"delay": 30.0 * number + chance.random()}) for number in range(6)]
    sim = crawled(lambda: later, a_web("a.example", latency=0.1), EXACT)
    assert sum(row_of(sim, "a.example").limited.values()) == 0.0
