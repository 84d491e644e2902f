"""F07, F11, F12: who goes first where amounts share a quota, and that none of them starves."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import trawl
from tests.promises.crawling import FREE, a_web, crawled, found_at_once, page, shown, spider_of
from trawl.testing import Simulation, simulate

A = "http://a.example"

SLIDING = {"quota": 10, "window": 10.0, "sliding": True}


def steadily(amount: float, *others: trawl.Request, every: float = 1.0, count: int = 100) -> Iterator[trawl.Request]:
    """A request of ``amount`` each ``every`` seconds, found when its time comes, and ``others``."""
    yield from others
    for number in range(count):
        yield page(f"{A}/small{number}", {"api": amount}, meta={"delay": number * every})


def sent_at(sim: Simulation, path: str) -> float:
    return next(time for time, sent in shown(sim) if sent == path)


def overspent(sim: Simulation, quota: float, window: float) -> list[float]:
    """Where a sliding window holds more than the quota, and more than one amount."""
    spent = [(send.time, send.scopes["api"]) for send in sim.of("api") if send.scopes["api"]]
    found = []
    for start, _ in spent:
        held = [amount for at, amount in spent if start <= at < start + window]
        if sum(held) > quota + 1e-6 and len(held) > 1:
            found.append(start)
    return found


@pytest.mark.parametrize("amount", [2.0, 5.0, 10.0, 25.0])
def test_f11_a_larger_amount_is_not_starved_by_smaller_ones_in_a_sliding_window(amount: float) -> None:
    # The small ones use what the window gives back, each as it comes: the large one never fits by itself.
    large = page(f"{A}/large", {"api": amount}, meta={"delay": 20.0})
    sim = crawled(
        lambda: steadily(1.0, large), a_web("a.example", latency=0.1), FREE, THROTTLING_SCOPES={"api": SLIDING}
    )
    at = sent_at(sim, "large")
    # Eight go by, one a second; then it goes as soon as it fits, which is a window later at most.
    assert at <= 20.0 + 8.0 + 10.0
    assert len([time for time, path in shown(sim) if 20.0 < time < at]) <= 9
    assert overspent(sim, 10.0, 10.0) == []
    assert len(sim.of("api")) == 101


@pytest.mark.parametrize("hosts", [1, 7, 40])
def test_f11_the_same_where_the_smaller_ones_are_of_many_hosts(hosts: int) -> None:
    names = [f"h{number}.example" for number in range(hosts)]

    def requests() -> Iterator[trawl.Request]:
        for number in range(200):
            yield page(f"http://{names[number % hosts]}/small{number}", {"api": 1.0}, meta={"delay": number / 2})
        for number in range(3):
            yield page(f"{A}/large{number}", {"api": 6.0}, meta={"delay": 30.0})

    sim = crawled(requests, a_web("a.example", *names, latency=0.1), FREE, THROTTLING_SCOPES={"api": SLIDING})
    places = [sent_at(sim, f"large{number}") for number in range(3)]
    # Those that wait since before it came are not passes: ever more wait, as twice as many come as may go.
    assert places[0] <= 30.0 + 40.0
    assert places[-1] <= places[0] + 2 * 20.0
    assert overspent(sim, 10.0, 10.0) == []


def test_f11_small_amounts_that_do_not_put_the_larger_one_off_still_pass() -> None:
    # 9.0 was spent at 0.0: until 10.0 the 8.0 waits for that alone, and 1.0 fits beside both.
    def requests() -> Iterable[trawl.Request]:
        yield page(f"{A}/first", {"api": 9.0})
        yield page(f"{A}/large", {"api": 8.0}, meta={"delay": 1.0})
        for number in range(12):
            yield page(f"{A}/tiny{number}", {"api": 0.1}, meta={"delay": 2.0 + number / 4})

    sim = crawled(requests, a_web("a.example", latency=0.1), FREE, THROTTLING_SCOPES={"api": SLIDING})
    tiny = [time for time, path in shown(sim) if path.startswith("tiny")]
    # 1.0 is left beside 9.0: ten of them fit, and none would keep 8.0 off at 10.0.
    assert tiny[:10] == [2.0 + number / 4 for number in range(10)]
    assert sent_at(sim, "large") == 10.0


def test_f11_a_better_priority_passes_a_larger_amount_as_often_as_it_likes() -> None:
    large = page(f"{A}/large", {"api": 2.0}, meta={"delay": 20.0})

    def requests() -> Iterator[trawl.Request]:
        yield large
        for number in range(60):
            yield page(f"{A}/small{number}", {"api": 1.0}, meta={"delay": float(number)}, priority=1)

    sim = crawled(requests, a_web("a.example", latency=0.1), FREE, THROTTLING_SCOPES={"api": SLIDING})
    assert shown(sim)[-1][1] == "large"
    assert [time for time, path in shown(sim) if path != "large"] == [float(number) for number in range(60)]


def test_f11_a_quota_is_not_kept_for_one_that_another_scope_holds_for_longer() -> None:
    class Holding:
        def get_initial_backoff(self) -> Any:
            return {"slow": {"delay": 3600.0}}

    large = page(f"{A}/large", {"api": 5.0, "slow": None})
    sim = crawled(
        lambda: steadily(1.0, large),
        a_web("a.example", latency=0.1),
        FREE,
        THROTTLING_SCOPES={"api": SLIDING},
        THROTTLING_MANAGER=Holding,
    )
    assert [time for time, path in shown(sim)] == [*map(float, range(100)), 3600.0]


def test_f11_two_that_need_two_quotas_each_do_not_wait_for_each_other() -> None:
    def requests() -> Iterator[trawl.Request]:
        for number in range(120):
            yield page(f"{A}/x{number}", {"x": 1.0}, meta={"delay": number / 2})
            yield page(f"{A}/y{number}", {"y": 1.0}, meta={"delay": number / 2 + 0.25})
        for number in range(2):
            yield page(f"{A}/both{number}", {"x": 6.0, "y": 7.0 - number}, meta={"delay": 15.0})

    scopes = {"x": SLIDING, "y": {**SLIDING, "window": 7.0}}
    sim = crawled(requests, a_web("a.example", latency=0.1), FREE, THROTTLING_SCOPES=scopes)
    assert len(shown(sim)) == 242
    assert max(sent_at(sim, "both0"), sent_at(sim, "both1")) <= 15.0 + 2 * (17.0 + 10.0)


def named(amounts: Iterable[float], **scopes: Any) -> Iterator[trawl.Request]:
    for amount in amounts:
        yield page(f"{A}/{amount:g}", {"api": amount, **scopes})


GATES: dict[str, dict[str, Any]] = {
    "one place": {"concurrency": 1},
    "two places": {"concurrency": 2},
    "a delay": {"delay": 0.5},
    "slots": {"concurrency": 2, "delay_per_slot": 1.5},
}


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("seed", range(3))
def test_f07_the_larger_share_goes_first_where_they_wait_at_another_scope(gate: str, seed: int) -> None:
    amounts = [float(amount) for amount in range(1, 41)]
    random.Random(seed).shuffle(amounts)
    scopes = {"api": {"quota": 10_000, "window": 600.0}, "gate": GATES[gate]}
    web = a_web("a.example", latency=1.0)
    settings = {**FREE, "THROTTLING_SCOPES": scopes}
    sim = simulate(found_at_once(lambda: named(amounts, gate=None)), web, settings=settings)
    assert [float(path) for _, path in shown(sim)] == sorted(amounts, reverse=True)


def test_f07_those_that_come_while_the_gate_is_full_are_sorted_in() -> None:
    def requests() -> Iterator[trawl.Request]:
        yield from named([3.0, 1.0, 2.0], gate=None)
        yield page(f"{A}/9", {"api": 9.0, "gate": None}, meta={"delay": 0.5})
        yield page(f"{A}/1.5", {"api": 1.5, "gate": None}, meta={"delay": 2.5})

    scopes = {"api": {"quota": 100}, "gate": {"concurrency": 1}}
    sim = simulate(
        found_at_once(requests), a_web("a.example", latency=1.0), settings={**FREE, "THROTTLING_SCOPES": scopes}
    )
    assert [path for _, path in shown(sim)] == ["3", "9", "2", "1.5", "1"]


def test_f07_holds_at_the_second_quota_of_a_request_too() -> None:
    def requests() -> Iterator[trawl.Request]:
        yield page(f"{A}/small", {"b": 5.0, "gate": None})
        yield page(f"{A}/large", {"a": 1.0, "b": 9.0, "gate": None})
        yield page(f"{A}/middle", {"b": 7.0, "gate": None})

    quota = {"quota": 100, "window": 60.0}
    for gate in ({"gate": {"concurrency": 1}}, {"b": {**quota, "concurrency": 1}}):
        scopes = {"a": quota, "b": quota, **gate}
        sim = simulate(
            found_at_once(requests), a_web("a.example", latency=1.0), settings={**FREE, "THROTTLING_SCOPES": scopes}
        )
        assert [path for _, path in shown(sim)] == ["large", "middle", "small"]


def test_f12_those_who_share_no_quota_have_their_turns_beside_those_who_do() -> None:
    def requests() -> Iterator[trawl.Request]:
        for amount in range(1, 11):
            yield page(f"{A}/{amount}", {"api": float(amount), "gate": None})
        for number in range(10):
            yield page(f"http://b.example/plain{number}", "gate")

    scopes = {"api": {"quota": 1000}, "gate": {"concurrency": 1}}
    web = a_web("a.example", "b.example", latency=1.0)
    sim = simulate(found_at_once(requests), web, settings={**FREE, "THROTTLING_SCOPES": scopes})
    paths = [path for _, path in shown(sim)]
    assert [path for path in paths if path.isdigit()] == [str(amount) for amount in range(10, 0, -1)]
    # Ten lanes have a turn each before the plain one's first: then its others, one for each turn.
    assert paths.index("plain0") <= 10
    assert [path for path in paths if not path.isdigit()] == [f"plain{number}" for number in range(10)]


def test_f07_does_not_let_a_claim_wait_for_ever() -> None:
    # Larger shares come all the time; the request of two scopes is passed by a bounded number of them (F12).
    def parse(spider: trawl.Spider, response: trawl.Response) -> Iterator[trawl.Request]:
        kind, _, number = response.url.rpartition("/")[2].partition("-")
        if kind == "both":
            raise trawl.CloseSpider("reached")
        if int(number) < 400:
            yield page(f"{A}/{kind}-{int(number) + 2}", {kind: 1.0})

    def requests() -> Iterator[trawl.Request]:
        for number in range(2):
            yield from (page(f"{A}/{kind}-{number}", {kind: 1.0}) for kind in "xy")
        yield page(f"{A}/both-0", {"x": 0.5, "y": None})

    web = a_web("a.example", latency=lambda request: 0.5 if "/x" in request.url else 0.7)
    scopes = {"x": {"concurrency": 1, "quota": 1e6}, "y": {"concurrency": 1}}
    sim = simulate(spider_of(requests, parse), web, settings={**FREE, "THROTTLING_SCOPES": scopes})
    assert sim.reason == "reached"
    assert len(sim.sends) <= 70
