"""Two clocks, named apart: the run clock decides, the wall clock is only stored or sent.

The run clock is Trio's (``trio.current_time``): monotonic, in seconds, virtual in a simulation. Every instant that
a policy sees comes from it. Wall time is an aware ``datetime`` in UTC and its names end in ``_utc``; this module is
the one place where the two meet.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import attrs

__all__ = ["WallClock"]


@attrs.frozen
class WallClock:
    """Wall time read off the run clock, so that a step of the machine's clock moves no limit.

    Attributes:
        anchor_utc: The wall time at ``anchor_at``.
        anchor_at: The instant on the run clock, in seconds, that ``anchor_utc`` belongs to.
    """

    anchor_utc: datetime
    anchor_at: float

    @classmethod
    def started(cls, now: float, now_utc: datetime | None = None) -> WallClock:
        """A wall clock that reads ``now_utc`` (the machine's time if None) at the instant ``now`` of the run clock."""
        return cls(now_utc or datetime.now(UTC), now)

    def to_utc(self, at: float) -> datetime:
        """The wall time of the instant ``at`` of the run clock (seconds)."""
        return self.anchor_utc + timedelta(seconds=at - self.anchor_at)

    def to_epoch(self, at: float) -> float:
        """The wall time of an instant of the run clock, as seconds since 1970, for what is stored; infinities stay."""
        return at - self.anchor_at + self.anchor_utc.timestamp()

    def from_epoch(self, epoch: float) -> float:
        """The instant on the run clock of a wall time in seconds since 1970; infinities stay."""
        return epoch - self.anchor_utc.timestamp() + self.anchor_at
