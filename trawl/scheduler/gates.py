"""Closed gates of origins: a lane whose origin's robots.txt is not read yet waits for it, and no other lane does.

The chooser knows that a gate is closed and nothing of why. Whoever closed it (the engine, which then asks for
robots.txt) opens it when the rules are known, or keeps it closed with a time when the server failed.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from trawl.throttling.explain import Reason

if TYPE_CHECKING:
    from trawl.scheduler.lanes import Lane

__all__ = ["OriginGate"]


class OriginGate:
    """The closed gate of one origin.

    Attributes:
        origin: Whose it is.
        reason: What a waiting lane is told.
        lanes: The lanes that came to it, in the order of coming; some may be empty by now.
    """

    __slots__ = ("lanes", "origin", "reason")

    def __init__(self, origin: str) -> None:
        self.origin: str = origin
        self.reason: Reason = Reason(origin, "gate", inf, "robots.txt")
        self.lanes: dict[Lane, None] = {}

    def waiting(self) -> list[Lane]:
        """The lanes that still wait here, in the order of coming."""
        return [lane for lane in self.lanes if lane.where is self]

    def closed_for(self, now: float) -> float:
        """What the time that a lane waits here is counted by: it is closed as long as it is there."""
        return now

    def best_priority(self) -> int:
        """The highest priority that waits here; 0 when nothing does."""
        return max((lane.head.priority for lane in self.waiting()), default=0)
