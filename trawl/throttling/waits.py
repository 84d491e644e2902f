"""What the requests of one scope waited for: figures for the report and the alarms, kept where they come about.

The time between two requests that take a scope, or since there was one that needed it, is put down to the limit of the
scope that opened last. What comes after that instant was waited for elsewhere: in another scope, without a free place,
behind callbacks. Time in which nothing was pending, or everything waited for a robots.txt, is not among it.

How far the delays, the quota and the holds kept sends apart is counted by itself, slots left out. It is never more than
how far apart they were, so a rate that is made of it is never below the rate that was reached.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

__all__ = ["Asking", "Waits"]

_ROOM_TO_GROW = 64


class Waits:
    """What was waited for. Hot, so mutable and slotted.

    Attributes:
        limited: Seconds waited for each limit.
        elsewhere: Seconds waited for anything else than the scope.
        gaps: Sends, the first left out.
        owed: Seconds that these were kept apart.
        needed_at: Since when something was pending without a break.
        taken_at: When the scope was taken last.
        due_at: The earliest instant for the send of that request, slots left out.
        refills: When the quota has room for an amount that waited for it, by amount.
        full_limit: Which limit kept everybody out last until something was given back.
        full_until: Until when.
    """

    __slots__ = (
        "due_at",
        "elsewhere",
        "full_limit",
        "full_until",
        "gaps",
        "limited",
        "needed_at",
        "owed",
        "refills",
        "taken_at",
    )

    def __init__(self) -> None:
        self.limited: dict[str, float] = {}
        self.elsewhere: float = 0.0
        self.gaps: int = -1
        self.owed: float = 0.0
        self.needed_at: float = -inf
        self.taken_at: float = -inf
        self.due_at: float = -inf
        self.refills: dict[float, float] = {}
        self.full_limit: str = ""
        self.full_until: float = -inf

    @property
    def since(self) -> float:
        """Since when the next request waits; ``-inf`` where there was none yet."""
        return max(self.taken_at, self.needed_at)

    def refilled(self, now: float, amount: float) -> float:
        """When the quota made room for ``amount``, which goes now; ``-inf``: it did not wait for it.

        What did not do for less did not do for it.
        """
        passed = [until for least, until in self.refills.items() if least <= amount and until <= now]
        self.refills = {each: until for each, until in self.refills.items() if until > now}
        return max(passed, default=-inf)

    def opened(self, now: float, limit: str) -> None:
        """Note that ``limit`` kept everybody out until ``now``, when something is given back."""
        self.full_limit, self.full_until = limit, now

    def taken(self, now: float, limit: str, due_at: float) -> None:
        """Note that a request takes the scope, whose ``limit`` let nothing through before the instant ``due_at``."""
        since, opened_at = self.since, due_at
        if self.full_until > opened_at:
            limit, opened_at = self.full_limit, self.full_until
        if -inf < since < now:
            opened_at = min(max(opened_at, since), now)
            if opened_at > since:
                self.limited[limit] = self.limited.get(limit, 0.0) + opened_at - since
            self.elsewhere += now - opened_at
        self.taken_at, self.due_at = now, due_at

    def sent(self, now: float, before: float) -> None:
        """Note that it went to the wire; the one ``before`` it went at that instant."""
        self.gaps += 1
        if self.gaps and self.due_at > before:
            self.owed += min(self.due_at, now) - before


class Asking:
    """The amounts that those ask who wait, each with how often.

    Attributes:
        count: How many they are.
    """

    __slots__ = ("_amounts", "_heap", "count")

    def __init__(self) -> None:
        self.count: int = 0
        self._amounts: dict[float, int] = {}
        self._heap: list[float] = []

    def add(self, amount: float) -> None:
        """Count one more."""
        self.count += 1
        if amount not in self._amounts:
            heappush(self._heap, amount)
        self._amounts[amount] = self._amounts.get(amount, 0) + 1
        if len(self._heap) > 2 * len(self._amounts) + _ROOM_TO_GROW:  # most are of amounts that nobody asks any more
            self._heap = sorted(self._amounts)

    def remove(self, amount: float) -> None:
        """Count one less."""
        self.count -= 1
        self._amounts[amount] -= 1
        if not self._amounts[amount]:
            del self._amounts[amount]

    @property
    def least(self) -> float:
        """The least of them. There must be one."""
        while self._heap[0] not in self._amounts:
            heappop(self._heap)
        return self._heap[0]
