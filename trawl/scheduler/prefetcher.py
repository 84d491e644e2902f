"""The prefetcher: leases the first requests of each lane in advance, so that a decision never awaits.

Only the package's ``__init__`` imports it, for the engine, which creates one prefetcher per crawl.

A lane of the scheduler holds a few leased requests, and the rest is in the frontier. Two rules keep the order exact:
the best request of a lane is never worse than the best of the same lane in the frontier, and a lane with requests in
the frontier is never empty. If a better request arrives and the lane is full, it replaces the worst. A push or a grant
only records the lane; :meth:`Prefetcher.refill` restores both rules before the next decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from trawl.frontier import Frontier, LaneKey, Record
from trawl.scheduler.attempt import Attempt
from trawl.scheduler.reasons import pending_pages
from trawl.scheduler.scheduler import Scheduler

__all__ = ["Lookup", "Prefetcher"]

MAX_PER_LANE = 32
"""Maximum number of requests leased in advance for one lane."""

MIN_PER_LANE = 8
"""A lane with fewer requests is filled up again in one call."""

MAX_IN_ALL = 2_048
"""Maximum number of requests leased in advance for all lanes. With many lanes each lane gets fewer, but at least one. A
leased request takes about 1 kB, a request in the frontier 0.3 kB.
"""


class Lookup(Protocol):
    """Finds the requests with a stored response in a cache, which need not be sent."""

    @property
    def is_full(self) -> bool:
        """True if no more pages should be looked up now."""

    async def aside(self, records: Sequence[Record]) -> Sequence[Record]:
        """Return the ``records`` that must be sent."""

    def take_out(self, goes: Callable[[Attempt], bool]) -> list[Attempt]:
        """Remove and return the pages that were not started and for which ``goes`` returns True."""


class Prefetcher:
    """Moves records from the frontier into the scheduler's lanes, one lane at a time.

    ``attempt_of`` makes the attempt for a record, and ``lookup`` takes the records with a stored response.
    """

    __slots__ = ("_attempt_of", "_frontier", "_hungry", "_lookup", "_scheduler", "_shuts")

    def __init__(
        self,
        frontier: Frontier,
        scheduler: Scheduler,
        attempt_of: Callable[[Record], Attempt],
        lookup: Lookup,
    ) -> None:
        self._frontier = frontier
        self._scheduler = scheduler
        self._attempt_of = attempt_of
        self._hungry: dict[LaneKey, None] = {}  # a dict, because the order of a set depends on PYTHONHASHSEED
        self._lookup = lookup
        self._shuts: Callable[[LaneKey], bool] | None = None

    def shut_by(self, shuts: Callable[[LaneKey], bool]) -> None:
        """Lease nothing of lanes for which ``shuts`` returns True, because another process sends their requests."""
        self._shuts = shuts

    def is_shut(self, lane: LaneKey) -> bool:
        """Return True if nothing of a lane may be leased."""
        return self._shuts is not None and self._shuts(lane)

    def take_back(self, goes: Callable[[Attempt], bool], now: float) -> list[Attempt]:
        """Withdraw and return the waiting pages for which ``goes`` returns True. Their leases are the caller's."""
        attempts = [attempt for attempt in pending_pages(self._scheduler) if goes(attempt)]
        for attempt in attempts:
            self._scheduler.withdraw(attempt, now)
        return attempts + self._lookup.take_out(goes)

    def is_due(self, now: float) -> bool:
        """Return True if :meth:`refill` must be called before the next decision."""
        return bool(self._hungry) or self._frontier.next_due() <= now

    def next_due(self) -> float:
        """Return the time at which :meth:`refill` must be called, because a request with a later time is due."""
        return self._frontier.next_due()

    def pushed(self, records: Iterable[Record]) -> bool:
        """Record that the frontier received ``records``. Returns False if none is better than the best of its lane."""
        is_better = False
        for record in records:
            lane = record.lane
            self._hungry[lane] = None
            if not is_better:
                head = self._scheduler.head(lane)
                is_better = head is None or ((best := self._frontier.best(lane)) is not None and best < head)
        return is_better

    def restored(self, lanes: Iterable[LaneKey]) -> None:
        """Record lanes that an earlier run left in the frontier."""
        for lane in lanes:
            self._hungry[lane] = None

    def granted(self, lane: LaneKey) -> None:
        """Record that the best request of a lane was granted."""
        if self._wanted(lane):
            self._hungry[lane] = None

    async def refill(self, now: float, clock: Callable[[], float]) -> float:
        """Lease what the recorded lanes need. With a frontier in memory and no cache it does not wait.

        Returns the event loop time after the last wait, by ``clock``.
        """
        hungry = self._hungry
        if self._frontier.next_due() <= now:
            for lane in await self._frontier.wake(now):
                hungry[lane] = None
            now = clock()
        while hungry and not self._lookup.is_full:
            lane = next(iter(hungry))
            del hungry[lane]
            wanted = 0 if self.is_shut(lane) else self._wanted(lane)
            if wanted:
                records = await self._lookup.aside(await self._frontier.lease_many(lane, wanted))
                if self.is_shut(lane):  # since the check above
                    await self._frontier.release(records)
                    now = clock()
                    continue
                now = clock()
                early = [record for record in records if record.not_before > now]
                if early:  # of a process that was killed before it released them
                    await self._frontier.release(early)
                    records = [record for record in records if record.not_before <= now]
                    now = clock()
                for record in records:
                    self._scheduler.push(self._attempt_of(record), now, record.not_before)
                if wanted == 1:  # there may have been no room for it
                    await self._give_back(lane)
                    now = clock()
                if len(records) < wanted and self._frontier.best(lane) is not None:
                    hungry[lane] = None  # check it again
        return now

    def _wanted(self, lane: LaneKey) -> int:
        best = self._frontier.best(lane)
        if best is None:
            return 0
        buffered = self._scheduler.buffered(lane)
        if buffered < MIN_PER_LANE:
            wanted = self._max_ahead()
            # If each lane holds few, fill it up again when three quarters are gone.
            if wanted == MAX_PER_LANE or buffered < (wanted + 3) // 4:
                return wanted - buffered
        head = self._scheduler.head(lane)
        # The first rule: lease a better request at once, even if the lane is full.
        return 1 if head is None or best < head else 0

    def _max_ahead(self) -> int:
        """Return the maximum number of requests to lease in advance for one lane."""
        lanes = len(self._scheduler.lanes) + len(self._hungry)
        return MAX_PER_LANE if lanes * MAX_PER_LANE <= MAX_IN_ALL else max(1, MAX_IN_ALL // lanes)

    async def _give_back(self, lane: LaneKey) -> None:
        """Release the worst requests of a lane that has too many because better ones were added."""
        excess = self._scheduler.buffered(lane) - self._max_ahead()
        if excess > 0:
            worst = self._scheduler.withdraw_worst(lane, excess)
            await self._frontier.release([attempt.options.lease for attempt in worst])
