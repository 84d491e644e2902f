"""I11 C12: why does it wait, and what do all of them wait for."""

from __future__ import annotations

from math import inf

from tests.scheduler.rig import Rig
from trawl.http import Request
from trawl.robots import at_once
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
    grant = rig.push(0, "a")
    assert rig.grant() is grant
    assert rig.scheduler.why(grant, 0.0) is None
    assert rig.scheduler.why(object(), 0.0) is None
    assert rig.scheduler.why("nobody", 0.0) is None
    assert rig.waiting(0.0, 5) == []


def test_a_request_with_a_time_of_its_own_says_so() -> None:
    rig = Rig()
    request = object()
    grant = rig.push(request, "a", not_before=4.0)
    reason = Reason("", "not_before", 4.0, "the request's own delay")
    assert rig.scheduler.why(grant, 0.0) == reason
    assert rig.scheduler.why(request, 0.0) == reason
    assert rig.waiting(0.0, 5) == [(1, reason)]


def test_a_request_behind_a_gate_says_so() -> None:
    rig = Rig()
    rig.scheduler.close_gate("o", Reason("o", "robots", 60.0, "robots.txt: 503"))
    grant = rig.push(0, "a", origin="o")
    assert rig.scheduler.why(grant, 0.0) == Reason("o", "robots", 60.0, "robots.txt: 503")
    assert rig.waiting(0.0, 5) == [(1, Reason("o", "robots", 60.0, "robots.txt: 503"))]


def test_a_request_without_a_place_says_so() -> None:
    rig = Rig(places=1)
    rig.push(0, "a")
    grant = rig.push(1, "b")
    assert rig.scheduler.why(grant, 0.0) is None
    assert rig.grant_all() == [0]
    reason = Reason("", "places", inf, "CONCURRENT_REQUESTS")
    assert rig.scheduler.why(grant, 0.0) == reason
    assert rig.waiting(0.0, 5) == [(1, reason)]


def test_a_request_that_has_begun_says_which_scope_it_waits_for() -> None:
    rig = Rig({"a": Limits(concurrency=1), "b": Limits(delay=9.0)})
    rig.scheduler.begins_without_places = True
    first, second = rig.push(0, "a"), rig.push(1, "a")
    assert rig.grant() is first
    assert rig.grant() is second
    assert rig.scheduler.why(second, 0.0) is None  # its middleware runs
    assert rig.scheduler.place(first, 0.0)
    assert not rig.scheduler.place(second, 0.0)
    assert rig.scheduler.why(second, 0.0) == Reason("a", "concurrency", inf, "configuration")
    assert rig.scheduler.why(second.request, 0.0) == Reason("a", "concurrency", inf, "configuration")
    early = rig.push(2, "b")
    assert rig.grant() is early
    rig.scope("b").last_sent = 0.0
    rig.scope("b").connect, rig.scope("b").lead = 1.0, 8.0  # its middleware takes the rest
    assert not rig.scheduler.place(early, 2.0)
    assert rig.scheduler.why(early, 2.0) == Reason("b", "delay", 9.0, "configuration")
    rig.scope("b").unsent = 1  # another has its place, and goes at that instant
    assert rig.scheduler.why(early, 8.5) == Reason("b", "delay", 18.0, "configuration")


def test_a_request_that_has_begun_says_that_no_place_is_free() -> None:
    rig = Rig(places=1)
    rig.scheduler.begins_without_places = True
    first, second = rig.push(0, "a"), rig.push(1, "b")
    assert rig.grant() is first
    assert rig.scheduler.place(first, 0.0)
    assert rig.grant() is second
    assert not rig.scheduler.place(second, 0.0)
    assert rig.scheduler.why(second, 0.0) == Reason("", "places", inf, "CONCURRENT_REQUESTS")


def test_a_request_that_has_begun_says_that_callbacks_run() -> None:
    rig = Rig()
    rig.scheduler.begins_without_places = True
    grant = rig.push(0, "a")
    assert rig.grant() is grant
    assert not rig.scheduler.place(grant, 0.0, pages=False)
    assert rig.scheduler.take_places(0.0, pages=False) == []
    reason = Reason("", "callbacks", inf, "CONCURRENT_CALLBACKS")
    assert rig.scheduler.why(grant, 0.0) == reason
    assert rig.waiting(0.0, 5) == [(1, reason)]
    assert rig.scheduler.why("a", 0.0) is None  # it is no limit of the scope's
    assert rig.scheduler.take_places(1.0) == [grant]
    assert rig.scheduler.why(grant, 1.0) is None


def test_a_request_that_has_begun_says_that_one_of_several_scopes_goes_first() -> None:
    rig = Rig({"x": Limits(concurrency=2), "y": Limits(concurrency=1)})
    rig.scheduler.begins_without_places = True
    one, holder = rig.push("one", "x"), rig.push("y", "y")
    both, kept = rig.push("both", "x", "y"), rig.push("kept", "x")
    for grant in (one, holder, both):
        assert rig.grant() is grant
        assert rig.scheduler.place(grant, 0.0) == (grant is not both)
    assert rig.scheduler.take_places(0.0) == []
    rig.scheduler.prepared._passes[both] = PASSES
    assert rig.grant() is kept
    assert not rig.scheduler.place(kept, 0.0)
    assert rig.scheduler.take_places(0.0) == []
    assert rig.scheduler.why(kept, 0.0) == Reason("x", "claim", inf, "a request of several scopes goes first")
    assert rig.scheduler.why(both, 0.0) == Reason("y", "concurrency", inf, "configuration")


def test_what_waits_behind_a_request_that_has_begun_waits_for_the_same() -> None:
    rig = Rig({"b": Limits(delay=9.0)})
    rig.scheduler.begins_without_places = True
    first, second = rig.push(0, "b"), rig.push(1, "b")
    assert rig.grant() is first
    rig.scope("b").last_sent = 0.0
    rig.scope("b").lead = 8.0  # what its middleware takes
    behind = Reason("b", "middleware")
    assert rig.grant() is None
    assert rig.scheduler.why(second, 1.0) == behind
    assert not rig.scheduler.place(first, 1.0)
    reason = Reason("b", "delay", 9.0, "configuration")
    assert [rig.scheduler.why(subject, 1.0) for subject in (first, second, "b")] == [reason] * 3
    assert rig.waiting(1.0, 5) == [(2, reason)]
    assert rig.scheduler.withdraw(second, 1.0)
    assert rig.scheduler.why("b", 1.0) == reason
    assert rig.waiting(1.0, 5) == [(1, reason)]


def test_nobody_is_told_that_it_waits_for_a_scope_of_those_before_it_alone() -> None:
    rig = Rig({"a": Limits(pages=1), "x": Limits(concurrency=1)})
    rig.scheduler.begins_without_places = True
    busy, both = rig.push(0, "x"), rig.push(1, "a", "x")
    behind = rig.push(2, "a")
    for grant in (busy, both):
        assert rig.grant() is grant
        assert rig.scheduler.place(grant, 0.0) == (grant is busy)
    assert rig.scheduler.take_places(0.0) == []
    assert rig.grant() is None
    assert rig.scheduler.why(both, 0.0) == Reason("x", "concurrency", inf, "configuration")
    assert rig.scheduler.why(behind, 0.0) == Reason("a", "middleware")


def test_a_host_under_another_name_is_explained_by_what_has_begun_too() -> None:
    rig = Rig({"site": Limits(concurrency=1)})
    rig.scheduler.begins_without_places = True
    first, second = (rig.push(Request(f"http://a.example/{number}"), "site") for number in range(2))
    for grant in (first, second):
        assert rig.grant() is grant
        assert rig.scheduler.place(grant, 0.0) == (grant is first)
    assert rig.scheduler.why_host("a.example", 0.0) == Reason("site", "concurrency", inf, "configuration")
    assert rig.scheduler.why_host("b.example", 0.0) is None


def test_an_open_scope_has_nothing_in_the_way() -> None:
    rig = Rig(places=0)
    rig.push(0, "a")
    assert rig.scheduler.why("a", 0.0) is None


def test_a_request_kept_off_by_a_claim_says_so() -> None:
    rig = Rig({"x": Limits(concurrency=2), "y": Limits(concurrency=1)})
    holder = rig.push("y", "y")
    assert rig.grant() is holder
    both = rig.push("both", "x", "y")
    assert rig.grant() is None
    assert both.lane is not None
    rig.scheduler.queues.claim(both.lane)
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
