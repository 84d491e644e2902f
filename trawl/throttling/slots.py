"""The slots of a scope that is used in parallel: which one carries the next request, and when one has rested.

A slot carries one request at a time, is free after the whole response, and rests for the delay per slot, counted from
its earlier send. Slots are numbered from 1. Without a delay per slot the free one with the lowest number goes next;
with one, the one that has rested longest, and a new one only when none has rested. What has to be known is when a slot
last sent, so a delay that changes, or an interval that is drawn anew, is felt by the slot that rests.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf

__all__ = ["Slots"]


class Slots:
    """Which slots are busy, and when the others last sent.

    The two parameters of a question, ``most`` (slots that may exist) and ``rest`` (seconds between two sends of one
    slot), come with it, because policy moves them. Slots numbered above ``most`` are not used; they keep their times
    for the case that ``most`` grows again.
    """

    __slots__ = ("_busy", "_free", "_is_by_age", "_most", "_sent_at")

    def __init__(self) -> None:
        self._sent_at: list[float] = []
        self._busy: list[bool] = []
        self._free: list[tuple[float, int]] = []
        self._is_by_age = False
        self._most = inf

    @property
    def opened(self) -> int:
        """How many slots were ever used: the highest number."""
        return len(self._busy)

    def open(self, *, is_busy: bool, sent_at: float) -> int:
        """Open a slot beyond those there are; the number it got."""
        self._busy.append(is_busy)
        self._sent_at.append(sent_at)
        if not is_busy:
            self._offer(len(self._busy))
        return len(self._busy)

    @property
    def sent_at(self) -> tuple[float, ...]:
        """When each slot last sent, by its number."""
        return tuple(self._sent_at)

    def last_sent(self, number: int) -> float:
        """When a slot last sent; ``-inf`` where it did not yet."""
        return self._sent_at[number - 1]

    def ready_at(self, most: float, rest: float) -> float:
        """The instant at which a slot will have rested, if no busy one is given back before; ``-inf`` for at once."""
        self._arrange(most, rest)
        if len(self._busy) < most or (self._free and rest <= 0.0):
            return -inf
        return self._free[0][0] + rest if self._free else inf

    def take(self, now: float, most: float, rest: float) -> int:
        """Occupy a slot that has rested at ``now``, or a new one; its number."""
        self._arrange(most, rest)
        free = self._free
        if free and (rest <= 0.0 or free[0][0] + rest <= now or len(self._busy) >= most):
            number = heappop(free)[1]
            self._busy[number - 1] = True
            return number
        return self.open(is_busy=True, sent_at=-inf)

    def sent(self, number: int, now: float) -> None:
        """Note that the request of a slot went to the wire."""
        self._sent_at[number - 1] = now

    def written(self, number: int, sent_at: float, now: float) -> None:
        """Count what a slot sent at ``sent_at`` from ``now``, when its write has ended."""
        if self._sent_at[number - 1] == sent_at:
            self._sent_at[number - 1] = now

    def give(self, number: int) -> None:
        """Free a slot: its response is whole, or there will be none."""
        self._busy[number - 1] = False
        self._offer(number)

    def _offer(self, number: int) -> None:
        if number <= self._most:
            heappush(self._free, (self._sent_at[number - 1] if self._is_by_age else 0.0, number))

    def _arrange(self, most: float, rest: float) -> None:
        """Order the free slots anew where the order's rule has changed: rare, so it may cost a pass over all."""
        is_by_age = rest > 0.0
        if most == self._most and is_by_age == self._is_by_age:
            return
        self._most, self._is_by_age = most, is_by_age
        self._free = [
            (sent_at if is_by_age else 0.0, number)
            for number, (sent_at, busy) in enumerate(zip(self._sent_at, self._busy, strict=True), 1)
            if not busy and number <= most
        ]
        heapify(self._free)
