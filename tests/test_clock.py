"""Wall time is read off the run clock, so that a step of the machine's clock moves nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from trawl.clock import WallClock


def test_r7_wall_time_follows_the_run_clock() -> None:
    noon = datetime(2025, 1, 1, 12, tzinfo=UTC)
    wall = WallClock.started(100.0, noon)
    assert wall.to_utc(100.0) == noon
    assert wall.to_utc(160.5) == noon + timedelta(seconds=60.5)
    assert wall.to_run(noon + timedelta(hours=1)) == 3700.0


def test_it_starts_at_the_machines_time_where_none_is_given() -> None:
    before = datetime.now(UTC)
    assert before <= WallClock.started(0.0).anchor_utc <= datetime.now(UTC)
