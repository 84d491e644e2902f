"""Presents several sessions that share a job on a server as one frontier, to test it with the frontier contract.

Each call goes to the session that can handle it. New requests go to the session that joined first, and leases go to the
owner of the part. A call returns when the job is *settled*: each session has received the records that other sessions
stored for it, and each part has been moved to its owner. So the caller sees the same state as with a single process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import trio
from trio.testing import MockClock

from trawl.clock import WallClock
from trawl.frontier import Frontier, LaneKey, Record
from trawl.frontier.base import FrontierStatistics, PushResult, SortKey
from trawl.frontier.job import as_is
from trawl.frontier.job_frontier import JobFrontier, open_frontier
from trawl.frontier.lane_cache import Bounds
from trawl.frontier.parts import PartsRequired, part_of_lane
from trawl.frontier.redis.client import Address
from trawl.frontier.redis.job import RedisJob
from trawl.frontier.redis.layout import Keys, texts_of
from trawl.http import Request

__all__ = ["Join", "Session", "Team", "opened_as_team", "settle"]

Join = Callable[[bool], AbstractAsyncContextManager[RedisJob]]
"""Joins a job. The argument is whether the session exports the items."""


class Session:
    """One session of a job, with its frontier.

    Attributes:
        losing: Parts that the session must release.
    """

    def __init__(self, job: RedisJob, frontier: JobFrontier) -> None:
        self.job = job
        self.frontier = frontier
        self.losing: set[int] = set()

    async def look(self, keys: Keys) -> bool:
        """Read the news of the job, and release parts without leases. Returns True if nothing changed. A checkpoint."""
        session = self.job.session
        session.ask_if_over(is_idle=True)  # makes the session read the job now
        before = set(session.parts.owned), session.parts.heard
        told = texts_of((await self.job._read(("state", keys.of_state, []), as_is))[6])
        for change in session.changes_so_far():
            if isinstance(change, PartsRequired):
                self.losing.update(change.parts)
        free = self.losing - {*session.parts.leased()}
        self.losing -= free
        if free:
            await session.give_back({part: {} for part in free})
        has_heard = session.parts.heard == int(told.get(f"{session.number} arrived", "0"))
        return before == (set(session.parts.owned), session.parts.heard) and has_heard and not session.polling.has_more


async def settle(sessions: Sequence[Session], job: str) -> None:
    """Wait until each session has its share of the parts and has received all records. A checkpoint.

    A part with leased requests is not moved. The clock advances by a millisecond, because records of several sessions
    are ordered by time.
    """
    clock = trio.lowlevel.current_clock()
    if isinstance(clock, MockClock):
        clock.jump(0.001)
    keys = Keys(job)
    while not all([await session.look(keys) for session in sessions]):
        pass


class Team(Frontier):
    """Presents the sessions of a job as one frontier.

    Args:
        sessions: The sessions.
        job: The job's name.

    Attributes:
        sessions: The sessions.
    """

    def __init__(self, sessions: Sequence[Session], job: str) -> None:
        self.sessions: Sequence[Session] = sessions
        self._job = job
        self._finder = sessions[0].frontier  # its records come first in the order, because little time passes

    async def claim_many(self, fingerprints: Sequence[bytes]) -> list[bool]:
        """Claim in the finder's frontier."""
        return await self._finder.claim_many(fingerprints)

    async def disclaim(self, fingerprints: Iterable[bytes]) -> None:
        """Release claims of the finder."""
        await self._finder.disclaim(fingerprints)

    def refusal(self, record: Record) -> str | None:
        """Ask the finder."""
        return self._finder.refusal(record)

    async def push_many(self, records: Sequence[Record]) -> PushResult:
        """Store records that the finder has found. Each goes to its owner."""
        return await self._settled(await self._finder.push_many(records), records)

    async def lease_many(self, lane: LaneKey, limit: int) -> list[Record]:
        """Lease from the owner of a lane."""
        return await self._of(lane).lease_many(lane, limit)

    async def spill(self, lease: Record, items: Sequence[bytes]) -> None:
        """Store items of a lease."""
        await self._of(lease.lane).spill(lease, items)

    async def acknowledge(
        self, lease: Record, outputs: Sequence[Record] = (), items: Sequence[bytes] = (), failure: str | None = None
    ) -> PushResult:
        """Acknowledge a lease. Each output goes to its owner."""
        return await self._settled(await self._of(lease.lane).acknowledge(lease, outputs, items, failure), outputs)

    async def replace(self, lease: Record, record: Record) -> bool:
        """Replace a lease with a record, which goes to its owner."""
        is_here = await self._of(lease.lane).replace(lease, record)
        await settle(self.sessions, self._job)
        return is_here

    async def drop(self, host: str, leases: Sequence[Record], starts: Callable[[int, int], None]) -> int:
        """Drop in each session what it has. ``starts`` is called once, as the contract wants it."""
        starting: list[tuple[int, int]] = []
        count = 0
        for session in self.sessions:
            its = [lease for lease in leases if self._of(lease.lane) is session.frontier]
            count += await session.frontier.drop(host, its, lambda *numbers: starting.append(numbers))
        starts(sum(number for number, _ in starting), max(order for _, order in starting))
        return count

    async def release(self, leases: Iterable[Record]) -> None:
        """Release leases of their owners."""
        for lease in leases:
            await self._of(lease.lane).release([lease])

    def next_due(self) -> float:
        """Return the earliest due time of all sessions."""
        return min(session.frontier.next_due() for session in self.sessions)

    async def wake(self, now: float) -> Sequence[LaneKey]:
        """Let each session admit the records that are due."""
        return [lane for session in self.sessions for lane in await session.frontier.wake(now)]

    def held_until(self, request: Request) -> float | None:
        """Ask the finder."""
        return self._finder.held_until(request)

    def lanes(self) -> Sequence[LaneKey]:
        """Return all lanes in the order of their first requests."""
        return sorted([lane for session in self.sessions for lane in session.frontier.lanes()], key=self._first)

    def best(self, lane: LaneKey) -> SortKey | None:
        """Ask the owner of a lane."""
        return self._of(lane).best(lane)

    def pending_in(self, lane: LaneKey) -> int:
        """Ask the owner of a lane."""
        return self._of(lane).pending_in(lane)

    def lane_of(self, request: Request) -> LaneKey | None:
        """Ask all."""
        for session in self.sessions:
            if (lane := session.frontier.lane_of(request)) is not None:
                return lane
        return None

    def statistics(self) -> FrontierStatistics:
        """Return the sums of all sessions. The number of seen requests comes from the finder."""
        each = [session.frontier.statistics() for session in self.sessions]
        return FrontierStatistics(
            sum(one.pending for one in each),
            sum(one.leased for one in each),
            self._finder.statistics().seen,
            sum(one.lanes for one in each),
            sum(one.held for one in each),
        )

    async def aclose(self) -> None:
        """Write all pending changes."""
        for session in self.sessions:
            await session.frontier.aclose()

    async def _settled(self, stored: PushResult, records: Sequence[Record]) -> PushResult:
        """Settle the job, and return the stored records."""
        await settle(self.sessions, self._job)
        seen = {id(record) for record in stored.seen}
        return PushResult([record for record in records if id(record) not in seen], stored.seen)

    def _of(self, lane: LaneKey) -> JobFrontier:
        part = part_of_lane(lane)
        return next(session.frontier for session in self.sessions if session.job.session.owns(part))

    def _first(self, lane: LaneKey) -> int:
        best = self.best(lane)
        assert best is not None
        return best[2]


@asynccontextmanager
async def opened_as_team(address: Address, join: Join, count: int, bounds: Bounds) -> AsyncIterator[Team]:
    """Open a job in a server with several sessions."""
    async with AsyncExitStack() as stack:
        sessions: list[Session] = []
        for number in range(count):
            job = await stack.enter_async_context(join(number == 0))
            wall = WallClock.started(trio.current_time())
            sessions.append(Session(job, await open_frontier(job, object(), wall, bounds=bounds)))
            await settle(sessions, address.job)
        team = Team(sessions, address.job)
        yield team
        await team.aclose()
