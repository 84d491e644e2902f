"""The amount of each quota that may be spent before the job is stored again, so that a kill forgets nothing.

Theory of operation. A job is stored now and then, and a kill would forget what was spent since. So each quota has an
*allowance*: an amount that is stored as spent before the requests that spend it. When the allowance is used up, the
quota is closed until more is stored, which takes a few milliseconds. More is asked for when half of it is used, so that
a busy crawl does not wait. An allowance holds for :data:`LEASE` seconds: after a pause a new one is stored, or the next
run could not know when it was spent.

A run that follows a kill counts the whole allowance as spent, at the last instant at which it may have been. So a kill
never gives back what was spent, and costs one allowance at most: see :func:`block`. A price that an answer reports is
stored with that answer.

``taken`` counts what was set aside in this run, ``stored`` how much of that the last whole state holds, and ``granted``
how far ``taken`` may go; ``promised`` is the same as it is being written. ::

    taken ≤ granted ≤ promised          the job holds the whole state, and promised - stored for each quota
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trawl.throttling.quota import Quota

__all__ = ["LEASE", "Allowance", "Allowances", "block"]

LEASE = 60.0
"""Seconds for which an allowance holds: so much later than it was, at most, is the rest of one counted as spent."""

_PART = 0.01


def block(quota: float, window: float) -> float:
    """An allowance: a hundredth of a quota, or what it allows in a second where that is more.

    A request that costs more has as much as it costs.
    """
    return quota * max(_PART, min(1.0, 1.0 / window)) if window > 0.0 else quota


class Allowance:
    """The allowance of one quota. Hot where there is a job, so mutable and slotted."""

    __slots__ = ("_all", "_wanted", "granted", "id", "is_short", "promised", "quota", "size", "stored", "taken", "used")

    def __init__(self, id: str, quota: Quota, allowances: Allowances) -> None:
        self.id: str = id
        self.quota: Quota = quota
        self.taken: float = quota.reserved  # what was on its way before there was this quota
        self.used: float = 0.0
        self.stored: float = 0.0
        self.granted: float = 0.0
        self.promised: float = 0.0
        self.size: float = 0.0
        self.is_short: bool = False
        self._wanted = 0.0
        self._all = allowances
        if self.taken:
            allowances.ask(self)

    def covers(self, amount: float, now: float) -> bool:
        """Return True if ``amount`` may be spent now; if not, or if little is left after it, ask for more."""
        left = self.granted - self.taken - amount
        # Sums of the same amounts in another order may differ by their rounding.
        is_covered = left >= -1e-9 * amount and now <= self._all.until
        if not is_covered:
            self.is_short = True
            self._wanted = max(self._wanted, amount)
            self._all.ask(self)
        # Long before the end of either, so that no request has to wait until more is stored.
        elif left < self.size / 2 or now > self._all.until - LEASE / 2:
            self._all.ask(self)
        return is_covered

    def holds(self, now: float) -> bool:
        """Return True if what was set aside may still be spent at ``now``; if not, ask for it again.

        What was on its way before there was this quota may not, until it is stored, too.
        """
        if now <= self._all.until and self.granted > 0.0:
            return True
        self._all.ask(self)
        return False

    def take(self, amount: float) -> None:
        """Count an amount that was set aside, or (negative) given back."""
        self.taken += amount

    def correct(self, amount: float) -> None:
        """Count an amount that was spent beyond what was set aside."""
        self.taken += amount
        self._all.ask(self)

    def promise(self) -> None:
        """Let more be spent, once it is stored."""
        self.size = max(self._wanted, block(self.quota.quota, self.quota.window))
        self.promised = max(self.promised, self.taken + self.size)
        self._wanted = 0.0

    def state_stored(self) -> None:
        """Note that the state that is being stored holds what is spent; an allowance that is not in use is dropped."""
        self.stored = self.taken - self.quota.reserved
        if self.used == self.taken and not self.quota.reserved:
            self.granted = self.promised = self.taken
        self.used = self.taken


class Allowances:
    """The allowances of a crawl.

    Args:
        wanted: Called when more is to be stored: :meth:`promise` just before that, :meth:`kept` after it.

    Attributes:
        until: The instant until which they hold.
        promised_until: The same as it is being stored.
    """

    def __init__(self, wanted: Callable[[], None]) -> None:
        self.until: float = -inf
        self.promised_until: float = -inf
        self._wanted = wanted
        self._by_id: dict[str, Allowance] = {}
        self._asking: dict[Allowance, None] = {}
        self._promised: dict[Allowance, None] = {}

    def add(self, id: str, quota: Quota) -> None:
        """Give a quota an allowance, unless it has one."""
        if quota.allowance is None:
            quota.allowance = self._by_id[id] = Allowance(id, quota, self)

    def withdraw(self, id: str, quota: Quota) -> None:
        """Let other crawls go on with a quota that this one's job counted; an allowance of theirs stays."""
        if self._by_id.pop(id, None) is quota.allowance:
            quota.allowance = None

    def forget(self, id: str) -> None:
        """Forget a scope of which nothing is spent."""
        self._by_id.pop(id, None)

    def ask(self, allowance: Allowance) -> None:
        """Ask for more of one."""
        if not self._asking:
            self._wanted()
        self._asking[allowance] = None

    def promise(self, now: float) -> None:
        """Raise those that were asked for: they are stored next."""
        self._promised, self._asking = self._asking, {}
        self.promised_until = now + LEASE
        for allowance in self._promised:
            allowance.promise()

    def confirm(self) -> list[str]:
        """Let be spent what is stored by now; gives the scopes that were closed for want of it."""
        self.until = self.promised_until
        closed = []
        for allowance in self._promised:
            allowance.granted = allowance.promised
            if allowance.is_short:
                allowance.is_short = False
                allowance.quota.refills += 1
                closed.append(allowance.id)
        self._promised = {}
        return closed

    def state_stored(self) -> None:
        """Note that a whole state is being stored."""
        for allowance in self._by_id.values():
            allowance.state_stored()

    def ahead(self) -> dict[str, float]:
        """Return the amounts that may be spent beyond what the last whole state holds, by scope."""
        return {
            id: allowance.promised - allowance.stored
            for id, allowance in self._by_id.items()
            if allowance.promised > allowance.stored
        }
