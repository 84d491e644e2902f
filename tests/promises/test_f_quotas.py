"""F01-F07, F11: quotas, and who goes first under them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trawl
from tests.promises.crawling import FREE, a_web, crawled, found_at_once, page, shown, times
from trawl.testing import Simulation, simulate

A = "http://a.example"


def costing(amounts: list[Any], scope: str = "api", **options: Any) -> Callable[[], list[trawl.Request]]:
    """A request for each amount, whose path is its number; with ``...`` the scope is named without a mapping."""

    def requests() -> list[trawl.Request]:
        return [
            page(f"{A}/{number}", scope if amount is ... else {scope: amount}, **options)
            for number, amount in enumerate(amounts)
        ]

    return requests


def spent(amounts: list[Any], limits: Mapping[str, Any], latency: float = 0.1, **more: Any) -> Simulation:
    """What a crawl of these amounts, all found at once, does under these limits of one scope."""
    values = {**FREE, "THROTTLING_SCOPES": {"api": dict(limits)}, **more}
    return simulate(found_at_once(costing(amounts)), a_web("a.example", latency=latency), settings=values)


def test_f01_what_fits_goes_and_the_next_waits_for_the_window_to_end() -> None:
    sim = spent([...] * 7, {"quota": 3, "window": 10.0})
    assert times(sim) == [0.0, 0.0, 0.0, 10.0, 10.0, 10.0, 20.0]


def test_f01_the_window_is_anchored_at_its_first_consumption() -> None:
    # Not at the start of the run, not at multiples of the window: the first send is held until 5.0.
    class Holding:
        def get_initial_backoff(self) -> Mapping[str, Mapping[str, float]]:
            return {"api": {"delay": 5.0}}

    sim = spent([...] * 5, {"quota": 2, "window": 10.0, "delay": 1.0}, THROTTLING_MANAGER=Holding)
    assert times(sim) == [5.0, 6.0, 15.0, 16.0, 25.0]


def test_f01_a_new_window_begins_with_the_next_send_and_not_when_the_old_one_ends() -> None:
    def requests() -> list[trawl.Request]:
        late = [page(f"{A}/late{number}", "api", meta={"delay": 25.0}) for number in range(3)]
        return [page(f"{A}/0", "api"), *late]

    limits = {"api": {"quota": 2, "window": 10.0}}
    sim = crawled(requests, a_web("a.example", latency=0.1), FREE, THROTTLING_SCOPES=limits)
    assert times(sim) == [0.0, 25.0, 25.0, 35.0]


def test_f02_the_default_window_is_a_minute() -> None:
    assert times(spent([...] * 3, {"quota": 1})) == [0.0, 60.0, 120.0]
    assert times(spent([...] * 3, {"quota": 1}, THROTTLING_WINDOW=7.0)) == [0.0, 7.0, 14.0]
    assert times(spent([...] * 3, {"quota": 1, "window": 3.0}, THROTTLING_WINDOW=7.0)) == [0.0, 3.0, 6.0]


def test_f02_sliding_slides_instead_of_resetting() -> None:
    # Spent at 0.0, 4.0, 8.0: a reset gives all three back at 10.0, a slide one at a time.
    limits = {"quota": 3, "window": 10.0, "delay": 4.0}
    assert times(spent([...] * 7, limits)) == [0.0, 4.0, 8.0, 12.0, 16.0, 20.0, 24.0]
    limits = {"quota": 3, "window": 10.0, "delay": 1.0}
    assert times(spent([...] * 7, limits)) == [0.0, 1.0, 2.0, 10.0, 11.0, 12.0, 20.0]
    assert times(spent([...] * 7, {**limits, "sliding": True})) == [0.0, 1.0, 2.0, 10.0, 11.0, 12.0, 20.0]
    limits = {"quota": 3, "window": 10.0}
    late = {**limits, "sliding": True}

    def requests() -> list[trawl.Request]:
        delays = [0.0, 8.0, 8.0, 8.0, 8.0, 8.0]
        return [page(f"{A}/{n}", "api", meta={"delay": delay}) for n, delay in enumerate(delays)]

    web = a_web("a.example", latency=0.1)
    assert times(crawled(requests, web, FREE, THROTTLING_SCOPES={"api": limits})) == [0.0, 8.0, 8.0, 10.0, 10.0, 10.0]
    assert times(crawled(requests, web, FREE, THROTTLING_SCOPES={"api": late})) == [0.0, 8.0, 8.0, 10.0, 18.0, 18.0]


def test_f03_no_amount_and_none_count_one_and_nothing_is_free() -> None:
    sim = spent([0, 0, 0.0, ..., None, 1, 0], {"quota": 2, "window": 10.0})
    assert [dict(send.scopes)["api"] for send in sim.sends[1:]].count(0.0) == 4
    free = [send.time for send in sim.sends[1:] if not send.scopes["api"]]
    paid = [send.time for send in sim.sends[1:] if send.scopes["api"]]
    assert (free, paid) == ([0.0] * 4, [0.0, 0.0, 10.0])


def test_f03_fractions_add_up_exactly() -> None:
    assert times(spent([0.1] * 4, {"quota": 0.3, "window": 10.0})) == [0.0, 0.0, 0.0, 10.0]


REPORTS: list[tuple[dict[str, float], list[float]]] = [
    ({}, [0.0, 0.1, 10.0]),
    ({"consumed": 4.0}, [0.0, 0.1, 10.0]),
    ({"consumed": 1.0}, [0.0, 0.1, 0.2]),  # 3 are given back: 1 + 4 + 4 fit
    ({"consumed": 0.0}, [0.0, 0.1, 0.2]),
    ({"consumed": 6.0}, [0.0, 10.0, 10.1]),  # 2 more are spent: 6 + 4 don't fit
    ({"remaining": 9.0}, [0.0, 0.1, 0.2]),
    ({"remaining": 4.0}, [0.0, 0.1, 10.0]),
    ({"remaining": 3.0}, [0.0, 10.0, 10.1]),
    ({"remaining": 0.0}, [0.0, 10.0, 10.1]),
]


@pytest.mark.parametrize(("said", "expected"), REPORTS)
def test_f04_charged_at_the_send_corrected_by_what_is_reported(said: dict[str, float], expected: list[float]) -> None:
    class Saying:
        def get_response_backoff(self, response: trawl.Response) -> Any:
            return {"api": said} if said and response.url == f"{A}/0" else None

    limits = {"quota": 9, "window": 10.0, "concurrency": 1}
    assert times(spent([4, 4, 4], limits, THROTTLING_MANAGER=Saying)) == expected


def test_f04_the_charge_is_made_at_the_send_not_at_the_answer() -> None:
    assert times(spent([...] * 3, {"quota": 2, "window": 10.0}, latency=30.0)) == [0.0, 0.0, 10.0]


def test_f04_refused_sends_are_charged_too() -> None:
    web = a_web("a.example", latency=0.1, status=503)
    sim = crawled(
        costing([...] * 2),
        web,
        FREE,
        THROTTLING_SCOPES={"api": {"quota": 2, "window": 50.0}},
        RETRY_TIMES=2,
        BACKOFF_GIVE_UP_AFTER=200.0,
    )
    for start in range(len(sim.sends) - 2):
        assert sim.sends[start + 2].time - sim.sends[start].time >= 50.0


def test_f05_an_amount_above_the_quota_goes_when_nothing_is_spent() -> None:
    sim = spent([25, 1, 1], {"quota": 10, "window": 60.0})
    assert shown(sim) == [(0.0, "0"), (60.0, "1"), (60.0, "2")]
    sim = crawled(
        lambda: [each.replace(meta={**each.meta, "delay": 0.05 * n}) for n, each in enumerate(costing([1, 25, 1])())],
        a_web("a.example", latency=0.1),
        FREE,
        THROTTLING_SCOPES={"api": {"quota": 10, "window": 60.0, "concurrency": 1}},
    )
    # /2 fits beside /0 and passes; at 60.0 nothing is spent.
    assert shown(sim) == [(0.0, "0"), (0.1, "2"), (60.0, "1")]


def test_f05_two_of_them_take_a_window_each() -> None:
    assert times(spent([25, 30, 11], {"quota": 10, "window": 60.0})) == [0.0, 60.0, 120.0]
    sliding = spent([25, 30, 11], {"quota": 10, "window": 60.0, "sliding": True})
    assert times(sliding) == [0.0, 60.0, 120.0]


@pytest.mark.parametrize("sliding", [False, True])
def test_f06_with_window_0_the_quota_never_blocks_and_never_spins(sliding: bool) -> None:
    sim = spent([50, 1, 0, 1000, ...] * 4, {"quota": 4, "window": 0, "sliding": sliding})
    assert times(sim) == [0.0] * 16 + [0.1] * 4  # CONCURRENT_REQUESTS = 16 is all that holds
    assert times(spent([50] * 3, {"quota": 4, "window": 0, "delay": 2.0})) == [0.0, 2.0, 4.0]


def test_f07_the_larger_share_goes_first() -> None:
    sim = spent([2, 5, 3, 1, 4], {"quota": 100, "window": 60.0, "concurrency": 1})
    assert [send.scopes["api"] for send in sim.sends[1:]] == [5.0, 4.0, 3.0, 2.0, 1.0]
    assert [send.scopes["api"] for send in spent([2, 5, 3], {"quota": 9}).sends[1:]] == [5.0, 3.0, 2.0]


def test_f07_across_hosts_and_lanes() -> None:
    def requests() -> list[trawl.Request]:
        amounts = {"a": 2, "b": 5, "c": 3, "d": 4}
        return [page(f"http://{host}.example/{n}", {"api": n}) for host, n in amounts.items()]

    web = a_web("a.example", "b.example", "c.example", "d.example", latency=0.1)
    limits = {"api": {"quota": 100, "concurrency": 1}}
    for obeys in (False, True):
        settings = {**FREE, "THROTTLING_SCOPES": limits, "ROBOTSTXT_OBEY": obeys}
        sim = simulate(found_at_once(requests), web, settings=settings)
        assert [path for _, path in shown(sim) if path.isdigit()] == ["5", "4", "3", "2"]


def test_f07_priority_goes_before_the_share() -> None:
    requests = [page(f"{A}/low", {"api": 9}), page(f"{A}/high", {"api": 1}, priority=1)]
    limits = {"api": {"quota": 100, "concurrency": 1}}
    settings = {**FREE, "THROTTLING_SCOPES": limits}
    sim = simulate(found_at_once(lambda: requests), a_web("a.example", latency=0.1), settings=settings)
    assert shown(sim) == [(0.0, "high"), (0.1, "low")]


def test_f07_requests_that_name_no_amount_keep_the_order_of_coming() -> None:
    sim = spent([..., None, ..., None], {"quota": 100, "concurrency": 1})
    assert shown(sim) == [(0.0, "0"), (0.1, "1"), (0.2, "2"), (0.3, "3")]


def test_f07_f11_many_amounts_beyond_what_is_leased_ahead() -> None:
    # 100 that don't fit would hide the one that does, if only the largest were looked at.
    sim = spent([8] * 100 + [2], {"quota": 10, "window": 60.0})
    assert shown(sim)[:3] == [(0.0, "0"), (0.0, "100"), (60.0, "1")]


def test_f11_what_fits_passes_what_does_not_and_the_larger_goes_first_in_the_next_window() -> None:
    sim = spent([6, 6, 3, 1, 2], {"quota": 10, "window": 60.0})
    # 6 + 3 + 1 fill the first window: by share first 6, then 3 (2 would leave 1, but 3 is larger), then 1.
    assert [(send.time, send.scopes["api"]) for send in sim.sends[1:]] == [
        (0.0, 6.0), (0.0, 3.0), (0.0, 1.0), (60.0, 6.0), (60.0, 2.0),
    ]  # fmt: skip


def test_f11_the_larger_one_that_waits_is_first_when_the_window_ends_though_it_came_last() -> None:
    def requests() -> list[trawl.Request]:
        first = [page(f"{A}/fill{number}", {"api": 1}) for number in range(10)]
        small = [page(f"{A}/small{number}", {"api": 1}) for number in range(3)]
        return [*first, *small, page(f"{A}/large", {"api": 9})]

    values = {**FREE, "THROTTLING_SCOPES": {"api": {"quota": 10, "window": 60.0}}}
    # The large one goes first from the start, being larger; so it is made to come later.
    delayed = [request.replace(meta={**request.meta, "delay": 1.0}) for request in requests()[-1:]]
    sim = simulate(
        found_at_once(lambda: [*requests()[:-1], *delayed]), a_web("a.example", latency=0.1), settings=values
    )
    assert shown(sim)[10:] == [(60.0, "large"), (60.0, "small0"), (120.0, "small1"), (120.0, "small2")]


AMOUNTS = st.lists(st.sampled_from([0, 0.5, 1, 2, 3, 5, 8, 13]), min_size=1, max_size=12)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(amounts=AMOUNTS, sliding=st.booleans(), latency=st.sampled_from([0.1, 7.0]))
def test_f01_f05_f11_no_window_is_overspent_and_nothing_that_fits_waits(
    amounts: list[float], sliding: bool, latency: float
) -> None:
    sim = spent(amounts, {"quota": 10, "window": 60.0, "sliding": sliding}, latency=latency, CONCURRENT_REQUESTS=0)
    sends = [(send.time, send.scopes["api"]) for send in sim.sends[1:]]
    assert sorted(amount for _, amount in sends) == sorted(float(amount) for amount in amounts)
    for at in {time for time, _ in sends}:
        window = [amount for time, amount in sends if at <= time < at + 60.0 and amount]
        assert sum(window) <= 10.0 or len(window) == 1  # F05: alone, above the quota
    assert all(time == 0.0 for time, amount in sends if not amount)
    assert all(time % 60.0 == 0.0 for time, _ in sends)  # all were there from the start: only window ends open
