"""Wall time is read off the run clock, so that a step of the machine's clock moves nothing."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from trawl.clock import WallClock


def test_r7_wall_time_follows_the_run_clock() -> None:
    noon = datetime(2025, 1, 1, 12, tzinfo=UTC)
    wall = WallClock.started(100.0, noon)
    assert wall.to_utc(100.0) == noon
    assert wall.to_utc(160.5) == noon + timedelta(seconds=60.5)
    assert wall.from_epoch((noon + timedelta(hours=1)).timestamp()) == 3700.0


def test_it_starts_at_the_machines_time_where_none_is_given() -> None:
    before = datetime.now(UTC)
    assert before <= WallClock.started(0.0).anchor_utc <= datetime.now(UTC)


def test_an_instant_is_stored_as_wall_time_and_read_again_by_another_run() -> None:
    noon = datetime(2025, 1, 1, 12, tzinfo=UTC)
    first, second = WallClock.started(100.0, noon), WallClock.started(5.0, noon + timedelta(hours=1))
    assert second.from_epoch(first.to_epoch(3700.0)) == 5.0
    assert second.from_epoch(first.to_epoch(-math.inf)) == -math.inf
