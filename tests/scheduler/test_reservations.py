"""Bounded bypass: a request of several scopes is not passed forever, and a reservation does no harm beyond that."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from math import inf

import pytest

from tests.scheduler.rig import Rig
from trawl.scheduler.attempt import Attempt
from trawl.scheduler.lanes import Lane
from trawl.scheduler.queues import LaneQueues
from trawl.scheduler.scope_queue import PASSES, ScopeQueue
from trawl.throttling.limits import Limits
from trawl.throttling.reasons import Reason

ONE = Limits(concurrency=1)
BOUND = 32


def crowd(rig: Rig, both: int = 3, each: int = 400, **options: int) -> None:
    """Endless traffic for x and for y, and a few that need both."""
    for number in range(each):
        rig.push("x", "x")
        rig.push("y", "y")
        if number < both:
            rig.push("both", "x", "y", **options)


def holders(rig: Rig) -> set[Lane]:
    """Return the lanes for which scopes are reserved."""
    queues = rig.scheduler.queues.scope_queues.values()
    return {queue.reserved_for for queue in queues if queue.reserved_for is not None}


def run_to_a_reservation(rig: Rig, rng: random.Random) -> Lane:
    """Send until scopes are reserved. Returns the lane for which they are."""
    rig.run(latency=lambda _: rng.uniform(0.5, 1.5), most=100, stop=lambda: bool(holders(rig)))
    (holder,) = holders(rig)
    return holder


def passes(labels: Sequence[object]) -> list[int]:
    """How many others went before each that needs both, since the last of them."""
    counts, count = [], 0
    for label in labels:
        if label == "both":
            counts.append(count)
            count = 0
        else:
            count += 1
    return counts


@pytest.mark.parametrize("seed", range(8))
def test_p4_places_alone_do_not_starve_a_request_of_two_scopes(seed: int) -> None:
    # F12
    rng = random.Random(seed)
    rig = Rig({"x": ONE, "y": ONE})
    crowd(rig)
    rig.run(latency=lambda _: rng.uniform(0.5, 1.5), most=250)
    assert rig.labels.count("both") == 3
    assert max(passes(rig.labels)) <= BOUND


def test_p4_delays_alone_do_not_starve_a_request_of_two_scopes() -> None:
    # F12: the phases are half a second apart, so that both are never open at once
    limits = Limits(concurrency=1, delay=1.0)
    rig = Rig({"x": limits, "y": limits})
    rig.scope("y").hold(0.5, Reason("y", "hint", 0.5, "test"))
    crowd(rig)
    rig.run(latency=0.1, most=150)
    assert rig.labels.count("both") == 3
    assert max(passes(rig.labels)) <= BOUND


@pytest.mark.parametrize("seed", range(5))
def test_f12_holds_for_three_scopes_and_many_lanes_of_each(seed: int) -> None:
    rng = random.Random(seed)
    rig = Rig({name: Limits(concurrency=2) for name in "xyz"})
    for number in range(600):
        rig.push("other", rng.choice("xyz"), origin=f"o{number % 5}")
    rig.push("all", "x", "y", "z")
    rig.run(latency=lambda _: rng.uniform(0.1, 2.0), most=200)
    assert rig.labels.index("all") <= 3 * BOUND  # earlier ones of other lanes are not passes


def test_f12_only_passes_of_equal_or_lower_priority_are_stopped() -> None:
    rig = Rig({"x": ONE, "y": ONE})
    for _ in range(40):
        rig.push("high", "x", priority=1)
        rig.push("high", "y", priority=1)
    rig.push("both", "x", "y")
    rng = random.Random(1)
    rig.run(latency=lambda _: rng.uniform(0.5, 1.5))
    assert rig.labels[-1] == "both"


def test_a_reservation_that_better_ones_pass_keeps_no_other_from_its_own() -> None:
    rng = random.Random(5)
    rig = Rig(dict.fromkeys("xyab", ONE))
    crowd(rig, both=1, each=100)
    run_to_a_reservation(rig, rng)
    for _ in range(300):
        rig.push("high", "x", priority=1)
        rig.push("high", "y", priority=1)
        rig.push("a", "a")
        rig.push("b", "b")
    for _ in range(4):
        rig.push("pair", "a", "b")
    before = len(rig.sends)
    rig.run(latency=lambda _: rng.uniform(0.5, 1.5), most=before + 600)
    labels = ["both" if label == "pair" else label for label in rig.labels[before:] if label in ("a", "b", "pair")]
    assert labels.count("both") == 4
    assert max(passes(labels)) <= BOUND
    assert "both" not in rig.labels[before:]


@pytest.mark.parametrize("seed", range(6))
def test_no_scope_is_idle_for_a_lane_whose_other_scope_is_closed_for_long(seed: int) -> None:
    # holding x idle for 300 s of y's block would be a defect, whichever of the two the lane waits for
    rng = random.Random(seed)
    rig = Rig({"x": ONE, "y": ONE})
    crowd(rig, both=1)
    holder = run_to_a_reservation(rig, rng)
    held = next(scope for scope in holder.scopes if scope.traffic.in_flight == 1)
    free = next(scope for scope in holder.scopes if scope is not held)
    held.hold(rig.now + 300.0, Reason(held.id, "backoff", rig.now + 300.0, "step 9"))
    rig.scheduler.changed(held, rig.now)
    before, until = len(rig.sends), rig.now + 100.0
    rig.run(latency=1.0, until=until)
    assert rig.labels[before:].count(free.id) >= 98
    assert "both" not in rig.labels[before:]
    rig.run(latency=1.0, stop=lambda: "both" in rig.labels[before:])
    assert until + 199.9 <= rig.now <= until + 202.0


def test_a_lane_that_waits_for_a_block_lets_those_behind_it_reserve() -> None:
    rig = Rig(dict.fromkeys("xyz", ONE))
    rig.scope("z").hold(300.0, Reason("z", "hint", 300.0, "test"))
    blocked = rig.push("blocked", "x", "z").lane
    assert blocked is not None
    crowd(rig)
    rig.scheduler.queues.reserve(blocked, rig.now)
    rng = random.Random(3)
    rig.run(latency=lambda _: rng.uniform(0.5, 1.5), most=200)
    assert rig.now < 300.0
    assert rig.labels.count("both") == 3
    assert max(passes(rig.labels)) <= BOUND


def test_a_large_amount_keeps_its_quota_while_others_use_its_second_scope() -> None:
    # F12: "both" takes over b again and again while the amount of "large" is far from fitting
    quota = Limits(quota=20, window=100.0, sliding=True, delay=5.0)
    rig = Rig({"a": quota, "b": ONE, "c": ONE})
    rig.push("large", "a=20", "b", not_before=50.0)
    for number in range(260):
        rig.push("small", "a=1")
        rig.push("b", "b")
        rig.push("c", "c")
        if number < 120:
            rig.push("both", "b", "c")
    rng = random.Random(0)
    rig.run(latency=lambda _: rng.uniform(0.5, 1.5), until=250.0, stop=lambda: "large" in rig.labels)
    assert "large" in rig.labels
    assert rig.labels.count("both") > 10


def test_a_kept_quota_is_used_when_a_scope_that_its_lane_lost_is_closed_for_longer() -> None:
    rig = Rig({"a": Limits(quota=20, window=100.0, sliding=True)})
    rig.push("spent", "a=19")
    assert rig.grant_all() == ["spent"]
    rig.now = 20.0
    large = rig.push("large", "a=20", "b")
    rig.scope("c").hold(30.0, Reason("c", "hint", 30.0, "test"))
    both = rig.push("both", "b", "c")
    for attempt in (large, both):
        assert attempt.lane is not None
        rig.scheduler.queues.reserve(attempt.lane, rig.now)
    rig.push("small", "a=1")
    assert not rig.grant_all()
    assert holders(rig) == {large.lane, both.lane}
    rig.scope("b").hold(300.0, Reason("b", "hint", 300.0, "test"))
    rig.scheduler.changed(rig.scope("b"), rig.now)
    assert rig.grant_all() == ["small"]


def take_over(rig: Rig, attempt: Attempt) -> Lane:
    """Reserve all scopes of the lane of ``attempt``, as if others had passed it too often."""
    assert attempt.lane is not None
    for scope in attempt.lane.scopes:
        scope.grants += PASSES
    rig.scheduler.queues.reserve(attempt.lane, rig.now)
    assert attempt.lane.kept_until
    return attempt.lane


def test_a_kept_quota_is_used_when_its_lane_could_go_but_for_the_lane_that_took_a_scope_over() -> None:
    limits = {"a": Limits(quota=20, window=100.0, sliding=True), "b": Limits(quota=20, window=3000.0, sliding=True)}
    rig = Rig(limits)
    rig.push("spent", "a=19")
    rig.push("spent", "b=15")
    assert len(rig.grant_all()) == 2
    rig.now = 20.0
    first = take_over(rig, rig.push("first", "a=20", "b=1"))
    second = take_over(rig, rig.push("second", "b=20", "c", priority=1))
    rig.push("small", "a=1")
    assert not rig.grant_all()
    assert holders(rig) == {first, second}
    rig.now = rig.scheduler.next_event(rig.now)
    assert rig.now == 70.0  # 30 s before the amount fits
    assert rig.grant_all() == ["small"]
    assert holders(rig) == {second}


def test_a_lane_that_loses_its_quota_keeps_no_other_scope_because_of_it() -> None:
    rig = Rig({"a": Limits(quota=20, window=100.0, sliding=True), "b": ONE})
    rig.push("spent", "a=19")
    assert rig.grant_all() == ["spent"]
    rig.now = 20.0
    take_over(rig, rig.push("first", "a=20", "b"))
    second = take_over(rig, rig.push("second", "a=20", "c", priority=1))
    assert holders(rig) == {second}


@pytest.mark.interpreted
def test_a_grant_costs_no_more_if_many_lanes_that_lost_its_scope_keep_their_quotas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = []
    for number in (10, 100):
        rig = Rig({f"h{index}": Limits(quota=20, window=3600.0, sliding=True) for index in range(number)})
        for index in range(number):
            rig.push("spent", f"h{index}=10")
        rig.grant_all()
        rig.give_back_all()
        rig.now = 1.0
        for index in range(number):
            take_over(rig, rig.push("large", f"h{index}=20", "proxy", priority=index))
        assert len(rig.scheduler.queues.scope_queues["proxy"].holders) == number
        rig.push("plain", "proxy")
        woken: list[ScopeQueue] = []
        with monkeypatch.context() as patch:
            patch.setattr(LaneQueues, "wake", lambda queues, queue, now, woken=woken: woken.append(queue))
            rig.scheduler.opened(rig.scope("proxy"), rig.now)
        counts.append(len(woken))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("is_withdrawn", [False, True])
def test_a_lane_that_takes_a_reservation_over_goes_at_once_if_its_scopes_are_open(is_withdrawn: bool) -> None:
    rig = Rig({"a": Limits(delay=60.0)})
    scheduler = rig.scheduler
    first, second = rig.push("first", "a", "b"), rig.push("second", "a", "c")
    for name in "abc":
        rig.scope(name).grants += PASSES
    for name in "bc":
        rig.scope(name).hold(1.0, Reason(name, "hint", 1.0, "test"))
    assert not rig.grant_all()
    rig.now = 0.5
    rig.scope("b").hold(40.5, Reason("b", "hint", 40.5, "test"))
    scheduler.changed(rig.scope("b"), rig.now)
    assert first.lane is not None
    scheduler.queues.reserve(first.lane, rig.now)
    assert holders(rig) == {first.lane}
    if is_withdrawn:
        scheduler.withdraw(first, rig.now)
    rig.now = 1.0
    assert rig.grant_all() == ["second"]
    assert second.times.granted_at == 1.0


def test_a_reservation_ends_when_the_gate_of_its_origin_closes() -> None:
    rng = random.Random(2)
    rig = Rig({"x": ONE, "y": ONE})
    crowd(rig, both=0)
    rig.push("both", "x", "y", origin="o")
    run_to_a_reservation(rig, rng)
    rig.scheduler.close_gate("o")
    rig.run(latency=1.0, most=len(rig.sends) + 2)
    assert not holders(rig)
    rig.run(latency=1.0, most=len(rig.sends) + 20)
    assert "both" not in rig.labels


def test_a_reservation_for_a_page_does_not_hold_up_a_direct_fetch() -> None:
    rng = random.Random(2)
    rig = Rig({"x": ONE, "y": ONE})
    crowd(rig, both=1)
    run_to_a_reservation(rig, rng)
    rig.push("direct", "x", is_direct=True)
    rig.push("direct", "y", is_direct=True)
    before = len(rig.sends)
    rig.run(latency=1.0, most=before + 2)
    assert rig.labels[before:] == ["direct", "direct"]


def test_a_hosts_own_delay_does_not_make_it_hold_what_it_shares() -> None:
    # P3: with 50 hosts of delay 1.0 behind a proxy at 20 a second, the proxy is used to the full
    rig = Rig({"proxy": Limits(delay=0.05)}, default=Limits(concurrency=1, delay=1.0))
    for number in range(1_000):
        rig.push(number % 50, f"h{number % 50}", "proxy")
    rig.run(latency=0.02, until=20.0)
    assert len(rig.sends) >= 0.99 * 20 * 20
    counts = [rig.labels.count(host) for host in range(50)]
    assert max(counts) - min(counts) <= 2


def test_a_lane_of_one_scope_is_not_starved_by_reservations() -> None:
    # lanes that need the proxy alone take turns with those that need a host too
    rig = Rig({"proxy": Limits(concurrency=1)}, default=Limits(concurrency=1, delay=1.0))
    for number in range(1_000):
        rig.push("both", f"h{number % 20}", "proxy")
        rig.push("plain", "proxy")
    rig.run(latency=0.1, most=420)
    gaps = [index for index, label in enumerate(rig.labels) if label == "plain"]
    assert max(later - earlier for earlier, later in itertools.pairwise(gaps)) <= 21


def test_a_reserved_scope_with_room_admits_others() -> None:
    # a reserved scope admits others while it has a spare place and no spacing
    rig = Rig({"x": Limits(concurrency=8), "y": ONE})
    crowd(rig, both=5, each=100)
    most = 0

    def latency(attempt: Attempt) -> float:
        nonlocal most
        most = max(most, rig.scope("x").traffic.in_flight)
        return 1.0

    rig.run(latency=latency, until=30.0)
    assert most == 8
    assert rig.scheduler.next_event(rig.now) == inf or rig.scheduler.pending
