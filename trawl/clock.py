"""The run clock, by which everything is decided, and wall time, which is only stored or sent.

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
    _anchor_epoch: float = attrs.field(init=False, repr=False, eq=False)

    @_anchor_epoch.default
    def _its_epoch(self) -> float:
        return self.anchor_utc.timestamp()

    @classmethod
    def started(cls, now: float, now_utc: datetime | None = None) -> WallClock:
        """Return a clock that reads ``now_utc`` (None: the machine's time) at the instant ``now`` of the run clock."""
        return cls(now_utc or datetime.now(UTC), now)

    def to_utc(self, at: float) -> datetime:
        """Return the wall time of the instant ``at`` of the run clock (seconds)."""
        return self.anchor_utc + timedelta(seconds=at - self.anchor_at)

    def to_epoch(self, at: float) -> float:
        """Return the wall time of an instant of the run clock as seconds since 1970, for storage; infinities stay."""
        return at - self.anchor_at + self._anchor_epoch

    def from_epoch(self, epoch: float) -> float:
        """Return the instant on the run clock of a wall time in seconds since 1970; infinities stay."""
        return epoch - self._anchor_epoch + self.anchor_at
