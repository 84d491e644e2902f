"""The prefetcher: leases the first requests of each lane ahead of need, so that a decision never awaits.

Only the package's ``__init__`` imports it: the engine makes the one prefetcher of a crawl.

A lane of the scheduler holds a few leased requests, the rest is in the frontier. Two rules keep the order exact: the
head of a lane is never worse than the best that its lane has in the frontier, and a lane that has something in the
frontier is never empty. A better one that comes takes the place of the worst if there are enough. Both rules are
restored by :meth:`Prefetcher.refill` before the next decision; a push or a grant only notes the lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from trawl.frontier import Frontier, LaneKey, Record
from trawl.scheduler.attempt import Attempt
from trawl.scheduler.scheduler import Scheduler

__all__ = ["Lookup", "Prefetcher"]

MAX_PER_LANE = 32
"""Requests leased ahead for one lane."""

MIN_PER_LANE = 8
"""A lane with fewer is filled up again, in one call."""

MAX_IN_ALL = 2_048
"""Requests leased ahead for all lanes: of many lanes each gets fewer, and at least one. One leased takes a kilobyte,
one in the frontier 0.3."""


class Lookup(Protocol):
    """Finds the requests that need not be sent: those that a cache answers."""

    @property
    def is_full(self) -> bool:
        """True if no more pages are to be looked up for now."""

    async def aside(self, records: Sequence[Record]) -> Sequence[Record]:
        """Return those of ``records`` that have to be sent."""


class Prefetcher:
    """Moves records from the frontier into the scheduler's lanes, a lane at a time.

    Args:
        frontier: Where the records are.
        scheduler: Where they go to.
        attempt_of: Makes the attempt for a record.
        lookup: Takes the records that need not be sent.
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
        self._hungry: dict[LaneKey, None] = {}  # a dict keeps the order of coming; a set's depends on PYTHONHASHSEED
        self._lookup = lookup
        self._shuts: Callable[[LaneKey], bool] | None = None

    def shut_by(self, shuts: Callable[[LaneKey], bool]) -> None:
        """Lease nothing of lanes of which ``shuts`` says so: another process is to send what is in them."""
        self._shuts = shuts

    def is_shut(self, lane: LaneKey) -> bool:
        """Tell if nothing of a lane is leased."""
        return self._shuts is not None and self._shuts(lane)

    @property
    def are_wanted(self) -> bool:
        """True if some lane has to be looked at before the next decision."""
        return bool(self._hungry)

    def next_due(self) -> float:
        """The instant at which :meth:`refill` is to be called: the first request with a time of its own may go then."""
        return self._frontier.next_due()

    def pushed(self, records: Iterable[Record]) -> bool:
        """Note that the frontier has got ``records``. Returns True if one of them may be better than its lane's head.

        Where none is, nothing may go now that could not go before.
        """
        is_better = False
        for record in records:
            lane = record.lane
            self._hungry[lane] = None
            if not is_better:
                head, best = self._scheduler.head(lane), self._frontier.best(lane)
                is_better = head is None or (best is not None and best < head)
        return is_better

    def restored(self, lanes: Iterable[LaneKey]) -> None:
        """Note lanes that an earlier run has left in the frontier."""
        for lane in lanes:
            self._hungry[lane] = None

    def granted(self, lane: LaneKey) -> None:
        """Note that one of a lane's heads has gone."""
        if self._wanted(lane):
            self._hungry[lane] = None

    async def refill(self, clock: Callable[[], float]) -> None:
        """Lease what the noted lanes need. With a frontier in memory and no cache it waits for nothing.

        Args:
            clock: Tells the instant on the run clock (seconds), anew after each wait for the frontier.
        """
        hungry = self._hungry
        if self._frontier.next_due() <= (now := clock()):
            for lane in await self._frontier.wake(now):
                hungry[lane] = None
        while hungry:
            if self._lookup.is_full:
                return
            lane = next(iter(hungry))
            del hungry[lane]
            wanted = 0 if self.is_shut(lane) else self._wanted(lane)
            if wanted:
                records = await self._lookup.aside(await self._frontier.lease_many(lane, wanted))
                if self.is_shut(lane):  # since then
                    await self._frontier.release(records)
                    continue
                now = clock()
                early = [record for record in records if record.not_before > now]
                if early:  # of a process that was killed before it had given them back
                    await self._frontier.release(early)
                    records = [record for record in records if record.not_before <= now]
                    now = clock()
                for record in records:
                    self._scheduler.push(self._attempt_of(record), now, record.not_before)
                await self._give_back(lane)
                if len(records) < wanted and self._frontier.best(lane) is not None:
                    hungry[lane] = None  # look again

    def _wanted(self, lane: LaneKey) -> int:
        best = self._frontier.best(lane)
        if best is None:
            return 0
        buffered = self._scheduler.buffered(lane)
        if buffered < MIN_PER_LANE:
            wanted = self._max_ahead()
            # Of many lanes each holds few: it is filled up again when three quarters of them have gone.
            if wanted == MAX_PER_LANE or buffered < (wanted + 3) // 4:
                return wanted - buffered
        head = self._scheduler.head(lane)
        # The first rule: one that is better than the head is leased at once, however many are there.
        return 1 if head is None or best < head else 0

    def _max_ahead(self) -> int:
        """Return the maximum number of requests to lease ahead for one lane."""
        lanes = len(self._scheduler.lanes) + len(self._hungry)
        return MAX_PER_LANE if lanes * MAX_PER_LANE <= MAX_IN_ALL else max(1, MAX_IN_ALL // lanes)

    async def _give_back(self, lane: LaneKey) -> None:
        """Give the worst of a lane back that has too many: better ones have come one by one."""
        excess = self._scheduler.buffered(lane) - self._max_ahead()
        if excess > 0:
            await self._frontier.release([attempt.lease for attempt in self._scheduler.withdraw_worst(lane, excess)])
