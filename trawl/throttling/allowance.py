"""The amount of each quota that may be spent before the job is stored again, so that a kill forgets nothing.

Theory of operation. A job is stored from time to time, and a kill would forget the amount spent since then. So each
quota has an *allowance*: an amount that is stored as spent before requests spend it. When the allowance is used up, the
quota is closed until more is stored, which takes a few milliseconds. More is requested when half of it is used, so that
a busy crawl does not wait. An allowance is valid for :data:`LEASE` seconds. After a pause, a new one is stored, because
otherwise the next run could not know when the old one was spent.

A run that follows a kill counts the whole allowance as spent, at the latest possible time. So a kill never frees a
spent amount, and costs at most one allowance: see :func:`block`. A consumption that a response reports is stored with
that response.

``taken`` counts the amount reserved in this run. ``stored`` is the part of it in the last whole state. ``granted`` is
the limit for ``taken``, and ``promised`` is the same limit while it is being written. ::

    taken ≤ granted ≤ promised          the job holds the whole state, and promised - stored for each quota
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trawl.throttling.quota import Quota

__all__ = ["LEASE", "Allowance", "Allowances", "block"]

LEASE = 60.0  # seconds for which an allowance is valid: the maximum error of the time at which its rest counts as spent

_PART = 0.01


def block(quota: float, window: float) -> float:
    """Return the size of an allowance: a hundredth of a quota, or its amount per second if that is more."""
    return quota * max(_PART, min(1.0, 1.0 / window)) if window > 0.0 else quota


class Allowance:
    """The allowance of one quota. Hot if there is a job, so mutable and slotted."""

    __slots__ = ("_all", "_wanted", "granted", "id", "is_short", "promised", "quota", "size", "stored", "taken", "used")

    def __init__(self, id: str, quota: Quota, allowances: Allowances) -> None:
        self.id: str = id
        self.quota: Quota = quota
        self.taken: float = quota.reserved  # reserved before this quota existed
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
        """Return True if ``amount`` may be spent now. If not, or if little remains after it, request more."""
        left = self.granted - self.taken - amount
        # Sums of the same amounts in another order may differ by their rounding.
        is_covered = left >= -1e-9 * amount and now <= self._all.until
        if not is_covered:
            self.is_short = True
            self._wanted = max(self._wanted, amount)
            self._all.ask(self)
        # Long before either limit, so that no request has to wait until more is stored.
        elif left < self.size / 2 or now > self._all.until - LEASE / 2:
            self._all.ask(self)
        return is_covered

    def holds(self, now: float) -> bool:
        """Return True if reserved amounts may be spent at ``now``, as they are stored. If not, request an allowance."""
        if now <= self._all.until and self.granted > 0.0:
            return True
        self._all.ask(self)
        return False

    def take(self, amount: float) -> None:
        """Count an amount that was reserved, or released if it is negative."""
        self.taken += amount

    def correct(self, amount: float) -> None:
        """Count an amount that was spent in addition to the reserved amounts."""
        self.taken += amount
        self._all.ask(self)

    def promise(self) -> None:
        """Raise the promised amount, which may be spent after it is stored."""
        self.size = max(self._wanted, block(self.quota.quota, self.quota.window))
        self.promised = max(self.promised, self.taken + self.size)
        self._wanted = 0.0

    def state_stored(self) -> None:
        """Record that the spent amounts are being stored. An allowance that is not in use is dropped."""
        self.stored = self.taken - self.quota.reserved
        traffic = self.quota.traffic
        is_ahead = traffic is not None and traffic.ahead > 0  # user code may respond and so spend amounts
        if self.used == self.taken and not self.quota.reserved and not is_ahead:
            self.granted = self.promised = self.taken
        self.used = self.taken


class Allowances:
    """The allowances of a crawl.

    Args:
        wanted: Called when more must be stored: :meth:`promise` just before that, :meth:`confirm` after it.
    """

    def __init__(self, wanted: Callable[[], None]) -> None:
        self.until: float = -inf  # event loop time until which the allowances are valid
        self.promised_until: float = -inf  # the same while it is being stored
        self._wanted = wanted
        self._by_id: dict[str, Allowance] = {}
        self._asking: dict[Allowance, None] = {}
        self._promised: dict[Allowance, None] = {}

    def add(self, id: str, quota: Quota) -> None:
        """Give a quota an allowance, unless it has one."""
        if quota.allowance is None:
            quota.allowance = self._by_id[id] = Allowance(id, quota, self)

    def withdraw(self, id: str, quota: Quota) -> None:
        """Remove this crawl's allowance from a quota that other crawls continue to use. Their own allowance stays."""
        if self._by_id.pop(id, None) is quota.allowance:
            quota.allowance = None

    def forget(self, id: str) -> None:
        """Forget a scope without a spent amount."""
        self._by_id.pop(id, None)

    def ask(self, allowance: Allowance) -> None:
        """Request more of an allowance."""
        if not self._asking:
            self._wanted()
        self._asking[allowance] = None

    def promise(self, now: float) -> None:
        """Raise the requested allowances, which are stored next."""
        self._promised, self._asking = self._asking, {}
        self.promised_until = now + LEASE
        for allowance in self._promised:
            allowance.promise()

    def confirm(self) -> list[str]:
        """Allow spending of the stored amounts. Returns the scopes that were closed because they needed more."""
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
        """Record that a whole state is being stored."""
        for allowance in self._by_id.values():
            allowance.state_stored()

    def ahead(self) -> dict[str, float]:
        """Return the amounts that may be spent in addition to the last whole state, by scope."""
        return {
            id: allowance.promised - allowance.stored
            for id, allowance in self._by_id.items()
            if allowance.promised > allowance.stored
        }
