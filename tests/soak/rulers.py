"""Measures limits at the transport. Each ruler receives the requests that enter and the sends, and reports violations.

Rulers know the configuration and the clock. They do not use any report of the engine.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

__all__ = ["NEARLY", "Ruler"]

NEARLY = 1e-6
"""Tolerance in seconds for floating-point errors after days."""


class Ruler:
    """Measures the limits of one scope: places, delay, delay per slot, quota, and server hints.

    Args:
        id: The scope's id.
        config: Its entry in ``THROTTLING_SCOPES``, which has all of its limits.
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
        """Record that a request takes a place."""
        self._inside += 1
        self.most = max(self.most, self._inside)
        if self._inside > self._places:
            self._passed(f"{self._inside} at once, {self._places:g} allowed")

    def leave(self) -> None:
        """Record that a request releases its place."""
        self._inside -= 1

    def sent(self, now: float) -> None:
        """Record a send."""
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
        """Record a hold that a server requested.

        Sends at the same time are allowed, because they may have been earlier.
        """
        if now + seconds > self._held_until:
            self._held_since, self._held_until = now, now + seconds

    def is_empty(self) -> bool:
        """Return whether all places are released."""
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
