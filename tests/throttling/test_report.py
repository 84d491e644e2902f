"""What is counted for a scope beside its answers."""

from __future__ import annotations

from tests.throttling.driving import answer, attempt_of, give_back, throttle_of
from trawl.http import Request
from trawl.throttling.reasons import add_wasted_send

A = "a.example"
PAGE = Request(f"http://{A}/")


def test_c04_sends_that_met_dead_connections_are_among_those_that_the_delay_let_through() -> None:
    throttle = throttle_of(
        download_delay=1.0, download_delay_per_slot=0.0, throttling_scopes={A: {"rampup": {"window": 60.0}}}
    )
    for second in range(61):
        now = float(second)
        throttle.next_change(now)
        attempt = attempt_of(throttle, PAGE, now)
        if second % 2:  # the server lets no connection be used twice
            add_wasted_send([throttle.scope(A, now)], now)
            give_back(throttle, attempt, now + 0.1)
        else:
            answer(throttle, attempt, now + 0.1)
    throttle.next_change(61.0)
    assert throttle.scope(A, 61.0).effective.delay < 1.0
    [report] = throttle.report(61.0)
    assert (report.requests, report.sends) == (31, 61)
