"""I11 C12: why does it wait, and what do all of them wait for."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from tests.scheduler.rig import Rig
from trawl.http import Request
from trawl.robots import at_once
from trawl.scheduler.attempt import Attempt
from trawl.scheduler.reasons import STEP_LANES
from trawl.scheduler.scope_queue import PASSES
from trawl.throttling.limits import Limits
from trawl.throttling.reasons import Reason

SLOW = Limits(concurrency=2, delay=9.0)


def test_a_request_waits_for_what_the_first_of_its_lane_waits_for() -> None:
    rig = Rig(default=SLOW)
    rig.push(0, "a")
    waiting, behind = rig.push(1, "a"), rig.push(object(), "a")
    assert rig.grant_all() == [0]
    assert rig.grant_all() == []
    reason = Reason("a", "delay", 9.0, "configuration")
    assert rig.scheduler.why(waiting, 1.0) == reason
    assert rig.scheduler.why(behind, 1.0) == reason
    assert rig.scheduler.why(behind.request, 1.0) == reason
    assert rig.scheduler.why("a", 1.0) == reason
    assert rig.waiting(1.0, 5) == [(2, reason)]


def test_what_is_under_way_or_unknown_waits_for_nothing() -> None:
    rig = Rig(default=SLOW)
    attempt = rig.push(0, "a")
    assert rig.grant() is attempt
    assert rig.scheduler.why(attempt, 0.0) is None
    assert rig.scheduler.why(object(), 0.0) is None
    assert rig.scheduler.why("nobody", 0.0) is None
    assert rig.waiting(0.0, 5) == []


def test_a_request_with_a_time_of_its_own_says_so() -> None:
    rig = Rig()
    request = object()
    attempt = rig.push(request, "a", not_before=4.0)
    reason = Reason("", "not_before", 4.0, "the request's own delay")
    assert rig.scheduler.why(attempt, 0.0) == reason
    assert rig.scheduler.why(request, 0.0) == reason
    assert rig.waiting(0.0, 5) == [(1, reason)]


def test_a_request_behind_a_gate_says_so() -> None:
    rig = Rig()
    rig.scheduler.close_gate("o", Reason("o", "robots", 60.0, "robots.txt: 503"))
    attempt = rig.push(0, "a", origin="o")
    assert rig.scheduler.why(attempt, 0.0) == Reason("o", "robots", 60.0, "robots.txt: 503")
    assert rig.waiting(0.0, 5) == [(1, Reason("o", "robots", 60.0, "robots.txt: 503"))]


def test_a_request_without_a_place_says_so() -> None:
    rig = Rig(places=1)
    rig.push(0, "a")
    attempt = rig.push(1, "b")
    assert rig.scheduler.why(attempt, 0.0) is None
    assert rig.grant_all() == [0]
    reason = Reason("", "places", inf, "CONCURRENT_REQUESTS")
    assert rig.scheduler.why(attempt, 0.0) == reason
    assert rig.waiting(0.0, 5) == [(1, reason)]


def preparing(rig: Rig, *attempts: Attempt) -> None:
    """Have the middleware of these start, in this order; it is known to await something."""
    rig.scheduler.preparations.awaits = True
    for attempt in attempts:
        assert attempt.lane is not None
        for scope in attempt.lane.scopes:
            scope.traffic.preparation = 1.0
        assert rig.grant() is attempt
        attempt.task = object()


def behind_user_code(limits: dict[str, Limits] | None = None, **options: Any) -> Rig:
    rig = Rig(limits, **options)
    rig.scheduler.preparations.has_user_code = True
    return rig


def test_a_prepared_request_says_which_scope_it_waits_for() -> None:
    rig = behind_user_code({"a": Limits(concurrency=1), "b": Limits(delay=9.0)})
    first, second = rig.push(0, "a"), rig.push(1, "a")
    preparing(rig, first, second)
    assert rig.scheduler.why(second, 0.0) is None  # its middleware runs
    assert not rig.scheduler.prepared(first, 0.0)  # another is being prepared: it may go before
    assert not rig.scheduler.prepared(second, 0.0)
    assert rig.grant() is first
    assert rig.grant() is None
    assert rig.scheduler.why(second, 0.0) == Reason("a", "concurrency", inf, "configuration")
    assert rig.scheduler.why(second.request, 0.0) == Reason("a", "concurrency", inf, "configuration")
    early = rig.push(2, "b")
    preparing(rig, early)
    rig.scope("b").traffic.last_sent, rig.scope("b").traffic.lead = 0.0, 1.0
    assert not rig.scheduler.prepared(early, 2.0)
    assert rig.scheduler.why(early, 2.0) == Reason("b", "delay", 9.0, "configuration")


def test_one_that_is_prepared_alone_has_its_places_at_once() -> None:
    rig = behind_user_code()
    attempt = rig.push(0, "a")
    preparing(rig, attempt)
    assert rig.scheduler.preparations.ahead == rig.scheduler.preparations.running == rig.scope("a").traffic.ahead == 1
    assert rig.scheduler.prepared(attempt, 1.0)
    assert attempt.has_places
    assert attempt.times.prepared_for == 1.0
    assert rig.scheduler.preparations.ahead == rig.scheduler.preparations.running == rig.scope("a").traffic.ahead == 0


def test_a_prepared_request_says_that_no_place_is_free() -> None:
    rig = behind_user_code(places=1)
    first, second = rig.push(0, "a"), rig.push(1, "b")
    preparing(rig, first)
    assert rig.scheduler.prepared(first, 0.0)
    preparing(rig, second)
    assert not rig.scheduler.prepared(second, 0.0)
    assert rig.scheduler.why(second, 0.0) == Reason("", "places", inf, "CONCURRENT_REQUESTS")


def test_a_prepared_request_says_that_callbacks_run() -> None:
    rig = behind_user_code()
    attempt = rig.push(0, "a")
    preparing(rig, attempt)
    assert not rig.scheduler.prepared(attempt, 0.0, pages=False)
    assert rig.grant(pages=False) is None
    reason = Reason("", "callbacks", inf, "CONCURRENT_CALLBACKS")
    assert rig.scheduler.why(attempt, 0.0) == reason
    assert rig.waiting(0.0, 5) == [(1, reason)]
    assert rig.scheduler.why("a", 0.0) is None  # it is no limit of the scope's
    assert rig.grant() is attempt
    assert rig.scheduler.why(attempt, 1.0) is None


def test_a_prepared_request_says_that_one_of_several_scopes_goes_first() -> None:
    rig = behind_user_code({"x": Limits(concurrency=2), "y": Limits(concurrency=1)})
    one, holder = rig.push("one", "x"), rig.push("y", "y")
    both, kept = rig.push("both", "x", "y"), rig.push("kept", "x")
    for attempt in (one, holder, both):
        preparing(rig, attempt)
        assert rig.scheduler.prepared(attempt, 0.0) == (attempt is not both)
    rig.scope("x").grants += PASSES  # others have passed it
    preparing(rig, kept)
    assert both.lane is not None
    rig.scheduler.queues.make_ready(both.lane, 0.0)
    assert not rig.scheduler.prepared(kept, 0.0)
    assert rig.grant() is None
    assert rig.scheduler.why(kept, 0.0) == Reason("x", "claim", inf, "a request of several scopes goes first")
    assert rig.scheduler.why(both, 0.0) == Reason("y", "concurrency", inf, "configuration")


def test_what_waits_behind_a_prepared_request_waits_for_the_same() -> None:
    rig = behind_user_code({"b": Limits(delay=9.0)})
    first, second = rig.push(0, "b"), rig.push(1, "b")
    preparing(rig, first)
    rig.scope("b").traffic.last_sent = 0.0
    rig.scope("b").traffic.preparation = 8.0
    behind = Reason("b", "middleware")
    assert rig.grant() is None
    assert rig.scheduler.why(second, 9.5) == behind
    assert not rig.scheduler.prepared(first, 1.0)
    assert rig.grant() is None
    reason = Reason("b", "delay", 9.0, "configuration")
    assert [rig.scheduler.why(subject, 1.0) for subject in (first, second, "b")] == [reason] * 3
    assert rig.waiting(1.0, 5) == [(2, reason)]
    assert rig.scheduler.withdraw(second, 1.0)
    assert rig.scheduler.why("b", 1.0) == reason
    assert rig.waiting(1.0, 5) == [(1, reason)]


def test_nobody_is_told_that_it_waits_for_a_scope_of_those_before_it_alone() -> None:
    rig = behind_user_code({"a": Limits(concurrency=1), "x": Limits(concurrency=1)})
    busy, both = rig.push(0, "x"), rig.push(1, "a", "x")
    behind = [rig.push(number, "a") for number in range(2, 5)]
    for attempt in (busy, both):
        preparing(rig, attempt)
        assert rig.scheduler.prepared(attempt, 0.0) == (attempt is busy)
    preparing(rig, *behind[:2])
    assert rig.grant() is None
    assert rig.scheduler.why(both, 0.0) == Reason("x", "concurrency", inf, "configuration")
    assert rig.scheduler.why(behind[2], 0.0) == Reason("a", "middleware")


def test_a_host_under_another_name_is_explained_by_what_is_prepared_too() -> None:
    rig = behind_user_code({"site": Limits(concurrency=1)})
    first, second = (rig.push(Request(f"http://a.example/{number}"), "site") for number in range(2))
    preparing(rig, first, second)
    assert not rig.scheduler.prepared(first, 0.0)
    assert not rig.scheduler.prepared(second, 0.0)
    assert rig.grant() is first
    assert rig.grant() is None
    assert rig.scheduler.why_host("a.example", 0.0) == Reason("site", "concurrency", inf, "configuration")
    assert rig.scheduler.why_host("b.example", 0.0) is None


def test_an_open_scope_has_nothing_in_the_way() -> None:
    rig = Rig(places=0)
    rig.push(0, "a")
    assert rig.scheduler.why("a", 0.0) is None


def test_a_request_behind_a_reservation_says_so() -> None:
    rig = Rig({"x": Limits(concurrency=2), "y": Limits(concurrency=1)})
    holder = rig.push("y", "y")
    assert rig.grant() is holder
    both = rig.push("both", "x", "y")
    assert rig.grant() is None
    assert both.lane is not None
    rig.scheduler.queues.reserve(both.lane, 0.0)
    rig.push(0, "x")
    kept = rig.push(1, "x")
    assert rig.grant_all() == [0]
    assert rig.grant_all() == []
    reason = rig.scheduler.why(kept, 0.0)
    assert reason is not None
    assert (reason.scope, reason.limit) == ("x", "claim")


def test_the_largest_groups_come_first() -> None:
    rig = Rig(default=SLOW)
    for host, count in (("a", 2), ("b", 5), ("c", 3)):
        for number in range(count + 1):
            rig.push(number, host)
    rig.grant_all()
    assert [(count, reason.scope) for count, reason in rig.waiting(0.0, 2)] == [(5, "b"), (3, "c")]


def test_a_lane_waits_for_what_its_best_entry_waits_for() -> None:
    rig = Rig({"a": Limits(delay=5.0)})
    rig.push(0, "a")
    rig.push(1, "a")
    assert rig.grant_all() == [0]
    assert rig.scheduler.why((("b",), ""), 1.0) is None
    reason = rig.scheduler.why((("a",), ""), 1.0)
    assert reason is not None
    assert (reason.scope, reason.limit) == ("a", "delay")


@pytest.mark.long
def test_ten_thousand_hosts_are_counted_in_short_steps() -> None:
    rig = Rig()
    for number in range(10_000):
        host = f"h{number}"
        rig.scope(host).hold(60.0, Reason(host, "hold", 60.0, "Retry-After"))
        rig.push(number, host)
    looks: list[float] = []

    def clock() -> float:
        looks.append(0.0)
        return 0.0

    groups = at_once(rig.scheduler.waiting_in_steps(clock))
    assert len(groups) == 10_000
    assert len(looks) == 1 + 10_000 // STEP_LANES  # one look at the clock per step
    assert STEP_LANES <= 250  # a lane takes 5 to 10 microseconds


def test_requests_that_leave_between_two_steps_are_not_counted() -> None:
    rig = Rig()
    count = 2 * STEP_LANES
    for number in range(count):
        rig.scope(f"h{number}").hold(60.0, Reason(f"h{number}", "hold", 60.0, "Retry-After"))
        rig.push(number, f"h{number}")
    steps = rig.scheduler.waiting_in_steps(lambda: 0.0)
    next(steps)
    for lane in list(rig.scheduler.lanes.values())[STEP_LANES:]:
        rig.scheduler.withdraw(lane.queue[0][3], 0.0)
    groups = at_once(steps)
    assert sum(size for size, _ in groups) == STEP_LANES
