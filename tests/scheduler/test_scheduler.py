"""What goes when: the rules of throttling and of order, through the chooser."""

from __future__ import annotations

import itertools
from math import inf

import pytest

from tests.scheduler.rig import Rig
from trawl.scheduler.attempt import Attempt
from trawl.scheduler.reasons import NO_PREPARATION
from trawl.scheduler.scheduler import Refused, Scheduler
from trawl.throttling.limits import Limits
from trawl.throttling.reasons import Reason

ONE = Limits(concurrency=1)

# -- concurrency, delay, slots


def test_a03_never_two_in_flight_at_concurrency_one() -> None:
    rig = Rig(default=ONE)
    for number in range(3):
        rig.push(number, "a")
    assert [(send.time, send.label) for send in rig.run(latency=2.0)] == [(0.0, 0), (2.0, 1), (4.0, 2)]


def test_a01_two_domains_go_side_by_side() -> None:
    rig = Rig(default=ONE)
    for number in range(4):
        rig.push(number, "ab"[number % 2])
    rig.run(latency=1.0)
    assert rig.times == [0.0, 0.0, 1.0, 1.0]


def test_a04_a_slot_sends_again_after_the_whole_response() -> None:
    rig = Rig(default=Limits(concurrency=2))
    for number in range(4):
        rig.push(number, "a")
    rig.run(latency=lambda attempt: [5.0, 1.0, 1.0, 1.0][attempt.request])
    assert [(send.time, send.slots) for send in rig.sends] == [(0, (1,)), (0, (2,)), (1, (2,)), (2, (2,))]


def test_a08_the_documented_example() -> None:
    rig = Rig(default=Limits(concurrency=2, delay=0.3, delay_per_slot=1.0))
    for number in range(3):
        rig.push(number, "a")
    rig.run(latency=0.5)
    assert [(send.time, send.slots) for send in rig.sends] == [(0.0, (1,)), (0.3, (2,)), (1.0, (1,))]


def test_a09_a_busy_slot_waits_for_its_response_even_when_its_delay_has_passed() -> None:
    rig = Rig(default=Limits(concurrency=2, delay=0.3, delay_per_slot=1.0))
    for number in range(4):
        rig.push(number, "a")
    rig.run(latency=lambda attempt: [1.6, 2.0, 0.1, 0.1][attempt.request])
    assert [(send.time, send.slots) for send in rig.sends] == [(0.0, (1,)), (0.3, (2,)), (1.6, (1,)), (2.3, (2,))]


def test_a12_a_delay_above_the_response_time_leaves_one_in_flight() -> None:
    rig = Rig(default=Limits(concurrency=8, delay=1.0))
    attempts = [rig.push(number, "a") for number in range(5)]
    most = 0

    def latency(attempt: Attempt) -> float:
        nonlocal most
        most = max(most, sum(other.is_under_way for other in attempts))
        return 0.9

    rig.run(latency=latency)
    assert rig.times == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert most == 1


def test_r14_slots_do_not_multiply_the_rate() -> None:
    rig = Rig(default=Limits(concurrency=4, delay=1.0))
    for number in range(8):
        rig.push(number, "a")
    rig.run(latency=10.0)
    assert all(later - earlier >= 1.0 for earlier, later in zip(rig.times, rig.times[1:], strict=False))


def test_a05_spacing_holds_on_the_wire_when_connecting_takes_time() -> None:
    # I09 and rule 4: attempts at 0.3 with connects of 0 and 0.25 would be 0.05 apart on the wire
    rig = Rig(default=Limits(concurrency=4, delay=0.3))
    for number in range(6):
        rig.push(number, "a")
    rig.run(latency=1.0, connect=lambda attempt: 0.25 * (attempt.request % 2))
    gaps = [later - earlier for earlier, later in zip(rig.times, rig.times[1:], strict=False)]
    assert all(gap >= 0.3 - 1e-9 for gap in gaps)


def test_a05_a_connection_that_fails_gives_its_turn_to_the_next_at_once() -> None:
    rig = Rig(default=Limits(concurrency=1, delay=5.0))
    rig.push("fails", "a")
    rig.push("next", "a")
    failing = rig.grant()
    assert failing is not None
    assert rig.grant() is None
    rig.now = 1.0
    rig.give_back(failing)
    assert rig.grant_all() == ["next"]


def test_a20_a_change_of_the_delay_is_felt_by_the_one_that_waits() -> None:
    # I12 P13 R4
    rig = Rig(default=Limits(concurrency=1, delay=10.0))
    rig.push(0, "a")
    rig.push(1, "a")
    rig.push(2, "a")
    rig.at(1.0, lambda: move(rig, "a", 2.0))
    rig.at(3.0, lambda: move(rig, "a", 4.0))
    rig.run()
    assert rig.times == [0.0, 2.0, 6.0]


def move(rig: Rig, id: str, delay: float) -> None:
    rig.scope(id).arrange(rig.scope(id).effective._replace(delay=delay))
    rig.scheduler.changed(rig.scope(id), rig.now)


def test_p13_raised_concurrency_is_used_at_once_and_lowered_waits() -> None:
    rig = Rig(default=ONE)
    attempts = [rig.push(number, "a") for number in range(6)]
    assert rig.grant_all() == [0]
    rig.scope("a").arrange(rig.scope("a").effective._replace(concurrency=3))
    rig.scheduler.changed(rig.scope("a"), rig.now)
    assert rig.grant_all() == [1, 2]
    rig.scope("a").arrange(rig.scope("a").effective._replace(concurrency=1))
    rig.scheduler.changed(rig.scope("a"), rig.now)
    rig.give_back(attempts[0])
    rig.give_back(attempts[1])
    assert rig.grant_all() == []
    rig.give_back(attempts[2])
    assert rig.grant_all() == [3]


def test_i08_a_request_inside_its_delay_waits_and_is_not_dropped() -> None:
    rig = Rig(default=Limits(concurrency=1, delay=300.0))
    for number in range(3):
        rig.push(number, "a")
    rig.run()
    assert rig.times == [0.0, 300.0, 600.0]


def test_r3_there_is_no_burst_when_a_hold_ends() -> None:
    rig = Rig(default=Limits(concurrency=4, delay=0.5))
    rig.scope("a").hold(7.0, Reason("a", "hint", 7.0, "Retry-After"))
    for number in range(3):
        rig.push(number, "a")
    rig.run()
    assert rig.times == [7.0, 7.5, 8.0]


# -- places


def test_a11_the_crawls_places_cap_all_and_may_change() -> None:
    rig = Rig(places=2)
    attempts = [rig.push(number, f"h{number}") for number in range(6)]
    assert rig.grant_all() == [0, 1]
    assert rig.scheduler.next_event(rig.now) == inf
    rig.scheduler.places = 3
    assert rig.grant_all() == [2]
    rig.scheduler.places = 1
    rig.give_back(attempts[0])
    rig.give_back(attempts[1])
    assert rig.grant_all() == []
    rig.scheduler.places = inf
    assert rig.grant_all() == [3, 4, 5]


def test_f08_a_throttled_request_holds_no_place() -> None:
    # P3
    rig = Rig({"slow": Limits(concurrency=1, delay=100.0)}, places=1)
    for number in range(5):
        rig.push(("slow", number), "slow")
        rig.push(("free", number), "free")
    rig.run(latency=1.0, until=20.0)
    assert rig.labels[:6] == [("slow", 0), ("free", 0), ("free", 1), ("free", 2), ("free", 3), ("free", 4)]
    assert rig.times[:6] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_r18_what_is_granted_goes_now_and_not_later() -> None:
    # the place comes first: with none free nothing is taken out, so no decision grows old
    rig = Rig(default=Limits(concurrency=1, delay=1.0), places=1)
    first, second = rig.push(0, "a"), rig.push(1, "b")
    assert rig.grant() is first
    assert rig.grant() is None
    assert second.is_pending
    assert rig.scope("b").grants == 0


def test_e21_an_exempt_request_counts_for_the_places_only() -> None:
    rig = Rig(default=Limits(concurrency=1, delay=9.0), places=2)
    rig.scope("a").step = 4
    rig.push(0, "a")
    exempt = rig.push(1, "a", is_exempt=True)
    rig.push(2, "a", is_exempt=True)
    assert rig.grant_all() == [0, 1]
    assert rig.scope("a").traffic.in_flight == 1
    assert exempt.slots == ()
    assert exempt.steps == (4,)


def test_e01_a_request_of_no_scope_is_unthrottled() -> None:
    rig = Rig(default=ONE)
    for number in range(3):
        rig.push(number)
    assert rig.grant_all() == [0, 1, 2]


# -- several scopes


def test_e05_a_request_is_taken_in_all_its_scopes_or_in_none() -> None:
    # E02
    rig = Rig({"api": Limits(concurrency=2), "users": Limits(delay=5.0)})
    for number in range(3):
        rig.push(number, "api", "users")
    assert rig.grant_all() == [0]
    assert (rig.scope("api").traffic.in_flight, rig.scope("users").traffic.in_flight) == (1, 1)
    rig.run(latency=20.0)
    assert rig.times == [0.0, 5.0, 25.0]  # the first was not given back
    assert (rig.scope("api").grants, rig.scope("users").grants) == (3, 3)


def test_p15_site_and_proxy_both_hold() -> None:
    rig = Rig({"site": Limits(concurrency=9, delay=1.0), "p0": Limits(delay=3.0), "p1": Limits(delay=3.0)})
    for number in range(8):
        rig.push(number, "site", f"p{number % 2}")
    sends = rig.run(latency=0.1)
    for name, delay in (("site", 1.0), ("p0", 3.0), ("p1", 3.0)):
        times = [send.time for send in sends if name in ("site", f"p{int(str(send.label)) % 2}")]
        assert all(later - earlier >= delay for earlier, later in itertools.pairwise(times))
    assert len(sends) == 8


def test_p16_two_sites_and_a_renderer() -> None:
    rig = Rig({"a": Limits(concurrency=2), "b": Limits(concurrency=2), "r": Limits(concurrency=3)})
    for number in range(10):
        rig.push(("a", number), "a", "r")
        rig.push(("b", number), "b", "r")
        rig.push(("direct", number), "a")
    granted = rig.grant_all()
    assert len(granted) == 4
    assert (rig.scope("a").traffic.in_flight, rig.scope("b").traffic.in_flight) == (2, 2)
    assert rig.scope("r").traffic.in_flight <= 3
    rig.run(latency=1.0)
    assert len(rig.sends) == 4


def test_steps_of_all_scopes_are_remembered_with_the_grant() -> None:
    # B19
    rig = Rig()
    rig.scope("a").step, rig.scope("b").step = 3, 5
    attempt = rig.push(0, "a", "b")
    assert rig.grant() is attempt
    assert attempt.steps == (3, 5)


# -- order


def test_f12_a_lane_sends_its_oldest_first() -> None:
    rig = Rig(default=ONE)
    for number in range(4):
        rig.push(number, "a")
    rig.run(latency=1.0)
    assert rig.labels == [0, 1, 2, 3]


def test_f12_depth_first_turns_it_round() -> None:
    rig = Rig(default=ONE, depth_first=True)
    for number in range(4):
        rig.push(number, "a")
    rig.run(latency=1.0)
    assert rig.labels == [3, 2, 1, 0]


def test_f12_lanes_of_equal_priority_take_turns() -> None:
    rig = Rig(places=1)
    for number in range(50 * 20):
        rig.push(number % 50, f"h{number % 50}")
    rig.run(latency=0.1, most=500)
    assert [rig.labels.count(host) for host in range(50)] == [10] * 50


def test_f12_newcomers_go_behind_those_that_wait() -> None:
    rig = Rig(places=1)
    for number in range(3):
        rig.push(("a", number), "a")
    rig.push("b", "b")
    first = rig.grant()
    assert first is not None
    rig.push("c", "c")
    rig.sent(first)
    rig.give_back(first)
    rig.run(latency=1.0)
    assert rig.labels == [("a", 0), "b", ("a", 1), "c", ("a", 2)]


def test_priority_goes_before_turn_and_age() -> None:
    rig = Rig(places=1)
    rig.push("low", "a", priority=-1)
    rig.push("normal", "b")
    rig.push("high", "a", priority=5)
    rig.run(latency=1.0)
    assert rig.labels == ["high", "normal", "low"]


def test_a_better_request_behind_a_closed_scope_is_the_first_when_it_opens() -> None:
    rig = Rig(default=Limits(concurrency=1, delay=5.0))
    for number in range(3):
        rig.push(number, "a")
    assert rig.grant_all() == [0]
    rig.push("high", "a", priority=1)
    rig.push("higher", "a", priority=2, origin="another lane")
    rig.now = 0.1
    rig.run(latency=0.0)
    assert rig.labels == [0]
    assert rig.scheduler.pending == 4


def test_b20_a_request_that_is_pushed_again_goes_to_the_back_of_its_equals() -> None:
    rig = Rig(default=ONE)
    first = rig.push(0, "a")
    rig.push(1, "a")
    assert rig.grant_all() == [0]
    rig.give_back(first)
    rig.scheduler.push(first, rig.now)
    rig.run(latency=1.0)
    assert rig.labels == [0, 1, 0]


def test_an_entry_that_is_here_is_not_taken_in_twice() -> None:
    rig = Rig()
    attempt = rig.push(0, "a")
    with pytest.raises(ValueError, match="here already"):
        rig.scheduler.push(attempt, rig.now)


def test_p9_a_request_with_a_time_of_its_own_holds_up_nobody() -> None:
    # E21 D08
    rig = Rig(default=ONE)
    rig.push("later", "a", not_before=3.0)
    rig.push("next", "a")
    assert rig.scheduler.next_event(0.0) == 3.0
    rig.run(latency=1.0)
    assert [(send.time, send.label) for send in rig.sends] == [(0.0, "next"), (3.0, "later")]


def test_the_frontiers_order_and_share_are_kept_when_they_are_given() -> None:
    rig = Rig(default=ONE)
    rig.push("third", "a", order=3, share=0.0)
    rig.push("second", "a", order=2, share=0.0)
    rig.push("first", "a", order=9, share=0.5)
    assert rig.scheduler.buffered((("a",), "")) == 3
    assert rig.scheduler.head((("a",), "")) == (0, -0.5, 9)
    rig.run(latency=1.0)
    assert rig.labels == ["first", "second", "third"]
    assert rig.scheduler.buffered((("a",), "")) == 0
    assert rig.scheduler.head((("a",), "")) is None


# -- direct fetches


def test_f09_direct_fetches_pass_the_same_scopes_and_go_before_pages() -> None:
    # P2
    rig = Rig(default=Limits(concurrency=1, delay=1.0), places=8)
    for number in range(3):
        rig.push(("page", number), "a", priority=9)
    for number in range(2):
        rig.push(("direct", number), "a", is_direct=True)
    assert rig.scheduler.pending_direct == 2
    rig.run(latency=0.1)
    assert rig.labels[:2] == [("direct", 0), ("direct", 1)]
    assert rig.times == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert rig.scheduler.pending_direct == 0


def test_c11_pending_requests_of_rendered_pages_make_a_page_budget_no_larger() -> None:
    rig = Rig({"a": Limits(pages=2)})
    rig.push("rendered", "a")
    assert rig.grant_all() == ["rendered"]
    budget = rig.scope("a").pages
    assert budget is not None
    subs = [Attempt(f"sub {n}", (("a", None),), is_direct=True, is_sub_request=True) for n in range(3)]
    for n, sub in enumerate(subs):
        rig.scheduler.push(sub, rig.now, 0.0 if n else 5.0)  # one waits to be retried
    budget.sub_requests = 3
    for n in range(4):
        rig.push(n, "a")
    rig.push("fetch", "a", is_direct=True)
    assert rig.grant_all() == ["sub 1", "fetch", "sub 2"]
    assert budget.under_way == 2  # may become pages: rendered, fetch
    assert [(count, reason.limit) for count, reason in rig.waiting(0.0, 9)] == [(4, "pages"), (1, "not_before")]
    rig.now = 5.0
    assert rig.grant_all() == ["sub 0"]
    assert budget.decide(is_page=False)  # the fetch was redirected
    rig.scheduler.changed(rig.scope("a"), rig.now)
    assert rig.grant_all() == [0]
    budget.decide(is_page=True)
    budget.decide(is_page=True)
    rig.scheduler.changed(rig.scope("a"), rig.now)
    assert budget.is_spent


def test_requests_of_rendered_pages_leave_the_last_pages_to_be_prepared() -> None:
    rig = Rig(places=4)
    rig.scheduler.preparations.has_user_code = True
    rig.scheduler.pages_left = 2
    rig.scheduler.in_flight, rig.scheduler.sub_requests = 3, 2
    assert rig.scheduler.preparing_full_by() is None
    rig.scheduler.sub_requests = 1
    assert rig.scheduler.preparing_full_by() is NO_PREPARATION


def test_without_pages_direct_fetches_go_and_no_page_does() -> None:
    rig = Rig(default=ONE)
    page, direct = rig.push("page", "a"), rig.push("direct", "b", is_direct=True)
    rig.push("page too", "b")
    assert rig.grant_all(pages=False) == ["direct"]
    rig.give_back(direct)
    assert rig.grant_all(pages=False) == []
    rig.push("direct", "a", is_direct=True)
    assert rig.grant_all(pages=False) == ["direct"]
    assert page.is_pending


def test_a_page_that_was_woken_does_not_keep_a_direct_fetch_waiting() -> None:
    # a callback in the middle waits for it: nothing would ever move again
    rig = Rig(default=ONE)
    first = rig.push("first", "a")
    assert rig.grant_all() == ["first"]
    rig.push("page", "a")
    assert rig.grant_all() == []
    rig.push("direct", "a", is_direct=True)
    assert rig.grant_all(pages=False) == []
    rig.give_back(first)
    assert rig.grant_all(pages=False) == ["direct"]


def test_r15_a_withdrawn_waiter_leaves_and_the_next_one_goes() -> None:
    rig = Rig(default=ONE)
    first = rig.push(0, "a")
    assert rig.grant_all() == [0]
    waiting, behind = rig.push(1, "a", is_direct=True), rig.push(2, "a", is_direct=True)
    later = rig.push(3, "a", is_direct=True, not_before=9.0)
    assert rig.grant_all() == []
    assert rig.scheduler.withdraw(waiting)
    assert not rig.scheduler.withdraw(waiting)
    assert rig.scheduler.withdraw(later, rig.now)
    assert rig.scheduler.pending == 1
    assert rig.scheduler.next_event(rig.now) == inf
    rig.give_back(first)
    assert rig.grant() is behind
    assert not rig.scheduler.withdraw(behind)


def test_r15_withdrawing_from_the_middle_of_a_lane_skips_it() -> None:
    rig = Rig(default=ONE)
    attempts = [rig.push(number, "a") for number in range(4)]
    rig.scheduler.withdraw(attempts[1])
    rig.scheduler.withdraw(attempts[2])
    rig.run(latency=1.0)
    assert rig.labels == [0, 3]
    assert rig.scheduler.lanes == {}


def test_r15_what_was_granted_and_cancelled_gives_back_once() -> None:
    rig = Rig(default=Limits(concurrency=1, delay=60.0, quota=1.0))
    attempt = rig.push(0, "a")
    rig.push(1, "a")
    assert rig.grant() is attempt
    rig.give_back(attempt)
    rig.give_back(attempt)
    rig.scheduler.sent(attempt, rig.now)
    assert rig.scheduler.in_flight == 0
    assert rig.grant_all() == [1]


# -- gates and vetoes


def test_r17_a_closed_gate_holds_its_origin_only_and_lets_robots_txt_pass() -> None:
    # P1: at concurrency 1, and the request for robots.txt is not behind its own page
    rig = Rig(default=ONE)
    rig.scheduler.close_gate("https://a")
    rig.push("page", "a", origin="https://a", priority=3)
    rig.push("other", "b", origin="https://b")
    assert rig.grant_all() == ["other"]
    assert rig.scheduler.waiting_at("https://a")[0].priority == 3
    assert rig.scheduler.waiting_at("https://b") == []
    robots = rig.push("robots", "a", origin="https://a", passes_gate=True)
    assert rig.grant_all() == ["robots"]
    rig.give_back(robots)
    assert rig.grant_all() == []
    rig.scheduler.open_gate("https://a", rig.now)
    rig.scheduler.open_gate("https://a", rig.now)
    assert rig.grant_all() == ["page"]


def test_r17_a_gate_that_closes_again_holds_those_that_wait_for_a_scope() -> None:
    rig = Rig(default=ONE)
    first = rig.push(0, "a", origin="o")
    rig.push(1, "a", origin="o")
    rig.push(2, "a", origin="p")
    assert rig.grant_all() == [0]
    reason = Reason("o", "robots", 99.0, "robots.txt: 503")
    rig.scheduler.close_gate("o", reason)
    rig.give_back(first)
    assert rig.grant_all() == [2]
    gate = rig.scheduler.gate_of("o")
    assert gate is not None
    assert gate.reason is reason


def test_a_lane_that_empties_at_a_gate_is_forgotten_there() -> None:
    rig = Rig()
    rig.scheduler.close_gate("o")
    attempt = rig.push(0, "a", origin="o")
    rig.scheduler.withdraw(attempt)
    assert rig.scheduler.waiting_at("o") == []
    rig.scheduler.open_gate("o", rig.now)
    rig.push(1, "a", origin="o")
    assert rig.grant_all() == [1]


def test_a_vetoed_entry_comes_out_without_taking_or_waiting_for_anything() -> None:
    rig = Rig(
        default=Limits(concurrency=1, delay=60.0), vet=lambda attempt, now: "forbidden" if attempt.request else None
    )
    attempts = [rig.push(number, "a") for number in (0, 1, 2)]
    assert rig.scheduler.grant(0.0) is attempts[0]
    assert rig.scheduler.grant(0.0) == Refused(attempts[1], "forbidden")
    assert rig.scheduler.grant(0.0) == Refused(attempts[2], "forbidden")
    assert rig.scheduler.grant(0.0) is None
    assert (rig.scheduler.pending, rig.scope("a").grants) == (0, 1)


def test_a_veto_that_comes_while_an_entry_waits_is_heard() -> None:
    forbidden: set[object] = set()
    rig = Rig(default=ONE, vet=lambda attempt, now: "no" if attempt.request in forbidden else None)
    first = rig.push(0, "a")
    waiting = rig.push(1, "a")
    assert rig.grant_all() == [0]
    forbidden.add(1)
    rig.give_back(first)
    assert rig.grant_all() == []
    assert rig.refused == [Refused(waiting, "no")]


# -- quotas


def test_f01_the_next_waits_for_the_windows_end() -> None:
    rig = Rig({"cost": Limits(quota=2.0, window=60.0)})
    for number in range(5):
        rig.push(number, "cost")
    rig.run(latency=1.0)
    assert rig.times == [0.0, 0.0, 60.0, 60.0, 120.0]


def test_f03_an_amount_of_nothing_is_free() -> None:
    rig = Rig({"cost": Limits(quota=1.0)})
    for number in range(3):
        rig.push(number, "cost=0")
    rig.push(3, "cost")
    rig.push(4, "cost")
    rig.run(latency=1.0)
    assert rig.times == [0.0, 0.0, 0.0, 0.0, 60.0]


def test_f05_a_request_above_the_quota_goes_alone() -> None:
    rig = Rig({"cost": Limits(quota=10.0)})
    rig.push("small", "cost=1")
    rig.push("huge", "cost=50")
    rig.run(latency=1.0)
    assert [(send.time, send.label) for send in rig.sends] == [(0.0, "huge"), (60.0, "small")]


def test_f06_a_window_of_nothing_neither_blocks_nor_spins() -> None:
    rig = Rig({"cost": Limits(quota=1.0, window=0.0)})
    for number in range(4):
        rig.push(number, "cost=3")
    assert rig.grant_all() == [0, 1, 2, 3]


def test_f07_the_larger_share_goes_first_among_lanes_that_share_the_quota() -> None:
    rig = Rig({"cost": Limits(quota=100.0)}, places=1)
    rig.push("plain", "x")
    for amount in (5, 20, 10):
        rig.push(amount, f"cost={amount}", f"h{amount}")
    rig.push("30 too", "cost=30", "h10")
    rig.push("unnamed", "cost", "h1")
    rig.run(latency=1.0)
    assert [label for label in rig.labels if label != "plain"] == ["30 too", 20, 10, 5, "unnamed"]
    assert rig.labels.index("plain") <= 1


def test_f07_does_not_starve_hosts_without_a_quota() -> None:
    rig = Rig({"cost": Limits(quota=1000.0)}, places=1)
    for number in range(20):
        rig.push("cost", "cost=9", f"h{number}")
        rig.push("plain", f"p{number}")
    rig.run(latency=1.0, most=10)
    assert rig.labels.count("plain") == 5


def test_f07_priority_goes_before_share() -> None:
    rig = Rig({"cost": Limits(quota=100.0)}, places=1)
    rig.push("large", "cost=50", "a")
    rig.push("urgent", "cost=1", "b", priority=1)
    rig.run(latency=1.0)
    assert rig.labels == ["urgent", "large"]


def test_f11_what_fits_passes_and_the_larger_one_goes_first_when_the_window_ends() -> None:
    rig = Rig({"cost": Limits(quota=10.0)})
    rig.push("eight", "cost=8", "a")
    assert rig.grant_all() == ["eight"]
    rig.push("five", "cost=5", "b")
    rig.push("two", "cost=2", "c")
    rig.push("three", "cost=3", "d")
    for number in range(8):
        rig.push(number, "cost", "e")
    assert rig.grant_all() == ["two"]
    rig.run(latency=0.5, until=60.0)
    assert rig.labels[2] == "five"
    assert rig.labels[3] == "three"
    assert rig.sends[2].time == 60.0


def test_f04_a_correction_wakes_those_that_now_fit() -> None:
    rig = Rig({"cost": Limits(quota=10.0)})
    rig.push("ten", "cost=10")
    rig.push("four", "cost=4")
    assert rig.grant_all() == ["ten"]
    rig.scope("cost").correct(-5.0, rig.now, sent_at=0.0)
    rig.scheduler.changed(rig.scope("cost"), rig.now)
    assert rig.grant_all() == ["four"]


def test_i12_a_quota_that_appears_and_goes_is_felt_by_those_that_wait() -> None:
    rig = Rig()
    rig.scope("a").apply_limits(Limits(quota=1.0))
    for number in range(4):
        rig.push(number, "a")
    assert rig.grant_all() == [0]
    rig.scope("a").apply_limits(Limits(quota=2.0))
    rig.scheduler.changed(rig.scope("a"), rig.now)
    assert rig.grant_all() == [1]
    rig.scope("a").apply_limits(Limits())
    rig.scheduler.changed(rig.scope("a"), rig.now)
    assert rig.grant_all() == [2, 3]


# -- what is kept


def test_what_is_empty_is_forgotten() -> None:
    # I01: lanes and queues are not kept for hosts that have nothing pending
    rig = Rig(default=Limits(concurrency=1, delay=1.0))
    for number in range(30):
        rig.push(number, f"h{number % 3}", "x")
    rig.run(latency=0.5)
    assert rig.scheduler.lanes == {}
    assert rig.scheduler.queues.scope_queues == {}
    assert [scope.waits.lanes for scope in rig.scopes.values()] == [0, 0, 0, 0]
    assert rig.scheduler.next_event(rig.now) == inf


def test_the_chooser_asks_for_scopes_in_the_order_of_their_ids() -> None:
    asked: list[str] = []
    rig = Rig()

    def scope_of(id: str, now: float) -> object:
        asked.append(id)
        return rig.scope(id)

    scheduler = Scheduler(scope_of, places=1)  # type: ignore[arg-type]
    scheduler.push(Attempt(0, (("a", None), ("b", None), ("c", None))), 0.0)
    assert asked == ["a", "b", "c"]
