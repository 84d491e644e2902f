"""What the choice costs, counted in lanes looked at: noise-free, unlike microseconds."""

from __future__ import annotations

from collections import deque

import pytest

from tests.scheduler.rig import Rig
from trawl.scheduler.attempt import Attempt
from trawl.throttling.limits import Limits

LANES = 20_000
GRANTS = 500


@pytest.fixture(scope="module")
def attempts() -> list[Attempt]:
    return [Attempt(number, ((f"h{number}", None), ("x", None))) for number in range(LANES)]


@pytest.mark.long
@pytest.mark.parametrize("shared", [Limits(concurrency=10), Limits(delay=0.01)], ids=["full", "delayed"])
def test_p11_lanes_on_one_shared_scope_cost_three_looks_a_grant_at_most(
    shared: Limits, attempts: list[Attempt]
) -> None:
    rig = Rig({"x": shared})
    for attempt in attempts:
        attempt.is_pending = attempt.is_under_way = False
        rig.scheduler.push(attempt, 0.0)
    on_wire: deque[Attempt] = deque()
    first = grow(rig, on_wire, 1)
    assert first <= LANES + 1
    looks = grow(rig, on_wire, GRANTS)
    assert looks <= 3 * GRANTS


def grow(rig: Rig, on_wire: deque[Attempt], attempts: int) -> int:
    """Send ``attempts`` more; the number of looks that took."""
    before, looks = rig.scheduler.grants, rig.scheduler.looks
    while rig.scheduler.grants < before + attempts:
        while (attempt := rig.grant()) is not None:
            rig.sent(attempt)
            on_wire.append(attempt)
        rig.now += 0.01
        rig.give_back(on_wire.popleft())
    return rig.scheduler.looks - looks


@pytest.mark.long
def test_p11_a_thousand_hosts_of_their_own_cost_two_looks_a_grant() -> None:
    rig = Rig(default=Limits(concurrency=1, delay=1.0))
    for number in range(3_000):
        rig.push(number, f"h{number % 1_000}")
    rig.run(latency=0.1)
    assert rig.scheduler.grants == 3_000
    assert rig.scheduler.looks <= 2 * 3_000
