"""I12 with F01-F11: quotas that are set, changed and taken away while the crawl runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

import pytest

import trawl
from tests.promises.crawling import FREE, a_web, page, shown, times
from trawl.testing import SimulatedWeb, Simulation, simulate

A = "http://a.example"

Steps = dict[float, dict[str, Any]]
"""What of scope ``api`` is changed when."""


def changed(
    requests: Callable[[], Iterable[trawl.Request]], steps: Steps, web: SimulatedWeb, **settings: Any
) -> Simulation:
    """What a crawl of these requests, all found at once, does while scope ``api`` is changed."""

    class Changing(trawl.Spider):
        name = "changing"

        async def start(self) -> AsyncGenerator[trawl.Request, None]:
            yield trawl.Request("http://start.example/", meta={"throttling_scopes": []})
            for at in steps:
                yield trawl.Request(f"http://start.example/{at}", meta={"throttling_scopes": [], "delay": at})

        async def parse(self, response: trawl.Response, **kwargs: object) -> AsyncGenerator[trawl.Request, None]:
            if response.url == "http://start.example/":
                for request in requests():
                    yield request
            elif response.url.startswith("http://start.example/"):
                self.crawl.throttling.set("api", **steps[float(response.url.rpartition("/")[2])])

    sim = simulate(Changing, web, settings={**FREE, **settings})
    assert "spider_exceptions" not in sim.stats
    return sim


def numbered(count: int, **options: Any) -> Callable[[], Iterable[trawl.Request]]:
    return lambda: [page(f"{A}/{number}", "api", **options) for number in range(count)]


def costing(*amounts: float) -> Callable[[], Iterable[trawl.Request]]:
    return lambda: [page(f"{A}/{number}", {"api": amount}) for number, amount in enumerate(amounts)]


@pytest.mark.parametrize("sliding", [False, True])
@pytest.mark.parametrize("granted", [2, 3, 5])
def test_a_quota_set_while_requests_connect_counts_them(granted: int, sliding: bool) -> None:
    # Those that were let through before are not on the wire yet: they use the quota like the others.
    scopes = {"api": {"concurrency": granted}}
    change = {"quota": 3, "window": 60.0, "sliding": sliding, "concurrency": 16}
    web = a_web("a.example", latency=0.1, connect=2.0, keep_alive=0.0)
    sim = changed(numbered(7), {1.0: change}, web, THROTTLING_SCOPES=scopes)
    assert len(times(sim)) == 7
    assert [time for time in times(sim) if time < 60.0] in ([2.0] * 3, [2.0, 2.0, 3.0])
    for time in times(sim):
        assert sum(time <= other < time + 60.0 for other in times(sim)) <= 3


def test_a_quota_lowered_while_requests_connect_holds_those_that_do_not_fit_any_more() -> None:
    web = a_web("a.example", latency=0.1, connect=2.0, keep_alive=0.0)
    scopes = {"api": {"quota": 6, "window": 60.0}}
    sim = changed(numbered(6), {1.0: {"quota": 2}}, web, THROTTLING_SCOPES=scopes)
    assert times(sim) == [2.0, 2.0, 64.0, 64.0, 126.0, 126.0]  # each after its window, and 2 s for connecting


def test_a_quota_that_is_raised_beyond_use_and_lowered_again_while_requests_connect_still_counts_them() -> None:
    web = a_web("a.example", latency=0.1, connect=3.0, keep_alive=0.0)
    steps: Steps = {1.0: {"quota": 1_000_000}, 2.0: {"quota": 3}}
    scopes = {"api": {"quota": 2, "window": 60.0, "concurrency": 2}}
    sim = changed(numbered(4), steps, web, THROTTLING_SCOPES=scopes)
    assert times(sim)[:2] == [3.0, 3.0]
    assert len([time for time in times(sim) if time < 60.0]) == 3


def test_f11_small_amounts_behind_a_large_one_go_at_once_when_a_quota_is_set_while_they_wait() -> None:
    scopes = {"api": {"delay": 5.0}}
    sim = changed(
        costing(5.0, 9.0, *[0.1] * 5),
        {3.0: {"quota": 10, "window": 20.0, "delay": 0.0}},
        a_web("a.example", latency=0.1),
        THROTTLING_SCOPES=scopes,
        CONCURRENT_REQUESTS=1,
    )
    assert sorted(time for time, path in shown(sim)) == times(sim)
    # 5.0 went before there was a quota; 9.0 opens the first window, and the small ones fit behind it.
    assert shown(sim)[1][1] == "1"
    assert times(sim)[-1] < 4.0


@pytest.mark.parametrize("first", [[9.0, 9.0], [9.0]])
def test_f11_what_fits_passes_a_larger_one_in_a_quota_that_was_set_while_both_waited(first: list[float]) -> None:
    scopes = {"api": {"delay": 100.0}}  # nothing of this goes before the quota is there
    sim = changed(
        costing(1.0, *first, 9.0, *[0.1] * 5),
        {3.0: {"quota": 10, "window": 20.0, "delay": 0.0}},
        a_web("a.example", latency=0.1),
        THROTTLING_SCOPES=scopes,
    )
    small = [time for time, path in shown(sim) if int(path) > len(first) + 1]
    assert small == [3.0] * 5


def test_f07_the_larger_share_goes_first_in_a_quota_that_was_set_while_they_waited() -> None:
    scopes = {"api": {"concurrency": 1}}
    sim = changed(
        costing(2.0, 1.0, 5.0, 3.0, 4.0),
        {3.0: {"quota": 100, "window": 60.0}},
        a_web("a.example", latency=10.0),
        THROTTLING_SCOPES=scopes,
    )
    assert [path for _, path in shown(sim)] == ["0", "2", "4", "3", "1"]


def test_a_quota_that_comes_with_a_new_limit_on_one_scope_holds_for_requests_of_two() -> None:
    def requests() -> Iterable[trawl.Request]:
        for number, amount in enumerate([5.0, 9.0, 0.1, 0.1, 0.1]):
            yield page(f"{A}/{number}", {"api": amount, "gate": None})

    scopes = {"gate": {"delay": 2.0}}
    step = {1.0: {"quota": 10, "window": 60.0}}
    sim = changed(requests, step, a_web("a.example", latency=0.1), THROTTLING_SCOPES=scopes)
    assert shown(sim)[0] == (0.0, "0")
    assert {path for time, path in shown(sim) if time < 60.0} == {"0", "1", "2", "3", "4"}
    assert shown(sim)[1] == (2.0, "1")
