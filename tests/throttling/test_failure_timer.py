"""The time without a good answer: what an outage that is told by 429s is known by."""

from __future__ import annotations

import pytest

from trawl.throttling.failure_timer import FailureTimer


@pytest.mark.parametrize(
    ("asked", "now", "waits"), [(20.0, 59.0, 0), (20.0, 60.0, 3), (1.0, 40.0, 0), (70.0, 140.0, 2)]
)
def test_times_that_were_waited_for_in_vain_count_after_a_minute(asked: float, now: float, waits: int) -> None:
    timer, at = FailureTimer(0.0), 0.0
    while at < now:
        timer.asked(at, at + asked, held_until=at + asked)
        at += asked
    assert timer.unanswered_waits(now) == waits
