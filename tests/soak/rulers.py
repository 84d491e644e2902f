"""Limits measured on the wire: each ruler is told of what enters it and what is sent, and says what passed its limit.

They know the configuration and the clock, and nothing of the engine: what it says of itself is not asked.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

__all__ = ["NEARLY", "Ruler"]

NEARLY = 1e-6
"""Seconds that floating point may be off after days."""


class Ruler:
    """One scope's limits: places, delay, rest of slots, quota, and what servers have asked for.

    Args:
        id: The scope.
        config: Its entry in ``THROTTLING_SCOPES``; all that limits it is there.
    """

    def __init__(self, id: str, config: Mapping[str, Any]) -> None:
        self.id = id
        self.sends = 0
        self.most = 0
        self.violations: list[str] = []
        spread = config.get("jitter", 0.0)
        self._least = 1.0 - float(spread)
        self._delay = float(config.get("delay", 0.0)) * self._least
        self._rest = float(config.get("delay_per_slot", 0.0)) * self._least
        self._places = float(config.get("concurrency", math.inf))
        self._quota = float(config.get("quota", math.inf))
        self._window = float(config.get("window", 60.0))
        self._sliding = bool(config.get("sliding", False))
        self._inside = 0
        self._last = -math.inf
        self._slots: deque[float] = deque(maxlen=int(self._places) if self._places < math.inf else 1)
        self._spent: deque[float] = deque()
        self._window_ends = -math.inf
        self._held_since = math.inf
        self._held_until = -math.inf

    def enter(self) -> None:
        """A request takes a place."""
        self._inside += 1
        self.most = max(self.most, self._inside)
        if self._inside > self._places:
            self._passed(f"{self._inside} at once, {self._places:g} allowed")

    def leave(self) -> None:
        """It gives the place back."""
        self._inside -= 1

    def sent(self, now: float) -> None:
        """A request goes to the wire."""
        self.sends += 1
        if now - self._last < self._delay - NEARLY:
            self._passed(f"{now - self._last:.6f} s after the last at {now:.3f}, delay {self._delay:g}")
        self._last = now
        if self._rest and len(self._slots) == self._slots.maxlen and now - self._slots[0] < self._rest - NEARLY:
            self._passed(f"slot rested {now - self._slots[0]:.6f} s at {now:.3f}, rest {self._rest:g}")
        self._slots.append(now)
        if self._quota < math.inf:
            self._spend(now)
        if self._held_since < now - NEARLY and now < self._held_until - NEARLY:
            self._passed(f"sent at {now:.3f}, asked to wait until {self._held_until:.3f}")

    def hold(self, now: float, seconds: float) -> None:
        """A server asked to be left alone for so long; what is sent in the same instant may have been sent before."""
        if now + seconds > self._held_until:
            self._held_since, self._held_until = now, now + seconds

    def is_empty(self) -> bool:
        """Whether all have left."""
        return self._inside == 0

    def _spend(self, now: float) -> None:
        if self._sliding:
            while self._spent and self._spent[0] + self._window <= now + NEARLY:
                self._spent.popleft()
        elif now >= self._window_ends - NEARLY:
            self._spent.clear()
            self._window_ends = now + self._window
        self._spent.append(now)
        if len(self._spent) > self._quota:
            self._passed(f"{len(self._spent)} in a window at {now:.3f}, quota {self._quota:g}")

    def _passed(self, what: str) -> None:
        if len(self.violations) < 5:
            self.violations.append(f"{self.id}: {what}")
