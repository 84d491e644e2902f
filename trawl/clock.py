"""Event loop time, which all decisions use, and wall time, which is only stored or sent.

Event loop time is Trio's clock (``trio.current_time``). It is monotonic, in seconds, and virtual in a simulation.
Policies only get event loop times. Wall time is an aware ``datetime`` in UTC, and its names end in ``_utc``. Only this
module converts between the two.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import attrs

__all__ = ["WallClock"]


@attrs.frozen
class WallClock:
    """Wall time computed from event loop time, so that a step of the machine's clock does not affect limits.

    ``anchor_utc`` is the wall time at ``anchor_at``, in seconds of the event loop.
    """

    anchor_utc: datetime
    anchor_at: float
    _anchor_epoch: float = attrs.field(init=False, repr=False, eq=False)

    @_anchor_epoch.default
    def _its_epoch(self) -> float:
        return self.anchor_utc.timestamp()

    @classmethod
    def started(cls, now: float, now_utc: datetime | None = None) -> WallClock:
        """Return a clock that shows ``now_utc`` (None for the machine's time) at event loop time ``now``."""
        return cls(now_utc or datetime.now(UTC), now)

    def to_utc(self, at: float) -> datetime:
        """Return the wall time at event loop time ``at`` (seconds)."""
        return self.anchor_utc + timedelta(seconds=at - self.anchor_at)

    def to_epoch(self, at: float) -> float:
        """Return an event loop time as epoch seconds, for storage. Infinities stay the same."""
        return at - self.anchor_at + self._anchor_epoch

    def from_epoch(self, epoch: float) -> float:
        """Return the event loop time of a wall time in epoch seconds. Infinities stay the same."""
        return epoch - self._anchor_epoch + self.anchor_at
