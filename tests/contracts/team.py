"""Several sessions of one job in a server as one frontier, for the contract of frontiers.

A call goes to the session that can answer it: what is found to the one that joined first, what is leased to the owner
of its part. It returns when the job is *settled*: each session has heard of what the others stored for it, and parts
have gone to whom they belong. So who asks sees what a single process would show.
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
"""Joins a job, as the one that exports its items or as another."""


class Session:
    """One session of a job, with its frontier.

    Attributes:
        losing: Parts that it is to give back.
    """

    def __init__(self, job: RedisJob, frontier: JobFrontier) -> None:
        self.job = job
        self.frontier = frontier
        self.losing: set[int] = set()

    async def look(self, keys: Keys) -> bool:
        """Hear of the job, and give back what is free of leases; True: nothing was changed by that. A checkpoint."""
        session = self.job.session
        session.ask_if_over(is_idle=True)  # it looks at the job with this call, not in a while
        before = set(session.owned), session.heard
        told = texts_of((await self.job._read(("state", keys.of_state, []), as_is))[6])
        for change in session.changes_so_far():
            if isinstance(change, PartsRequired):
                self.losing.update(change.parts)
        free = self.losing - {*session.leased_parts()}
        self.losing -= free
        if free:
            await session.give_back({part: {} for part in free})
        has_heard = session.heard == int(told.get(f"{session.number} arrived", "0"))
        return before == (set(session.owned), session.heard) and has_heard and not session.has_more


async def settle(sessions: Sequence[Session], job: str) -> None:
    """Wait until each session has its share of the parts, and has heard of all that arrived. A checkpoint.

    A part with leased requests stays where it is. A millisecond goes by, as orders of several sessions are by the time.
    """
    clock = trio.lowlevel.current_clock()
    if isinstance(clock, MockClock):
        clock.jump(0.001)
    keys = Keys(job)
    while not all([await session.look(keys) for session in sessions]):
        pass


class Team(Frontier):
    """Sessions of a job as one frontier.

    Args:
        sessions: Its sessions.
        job: The job's name.

    Attributes:
        sessions: See above.
    """

    def __init__(self, sessions: Sequence[Session], job: str) -> None:
        self.sessions: Sequence[Session] = sessions
        self._job = job
        self._finder = sessions[0].frontier  # its orders are before those of the others, where time hardly goes by

    async def claim_many(self, fingerprints: Sequence[bytes]) -> list[bool]:
        """Claim with the finder."""
        return await self._finder.claim_many(fingerprints)

    async def disclaim(self, fingerprints: Iterable[bytes]) -> None:
        """Give claims of the finder back."""
        await self._finder.disclaim(fingerprints)

    def refusal(self, record: Record) -> str | None:
        """Ask the finder."""
        return self._finder.refusal(record)

    async def push_many(self, records: Sequence[Record]) -> PushResult:
        """Store what the finder has found; each goes to its owner."""
        return await self._settled(await self._finder.push_many(records), records)

    async def lease_many(self, lane: LaneKey, limit: int) -> list[Record]:
        """Lease from the owner of a lane."""
        return await self._of(lane).lease_many(lane, limit)

    async def spill(self, lease: Record, items: Sequence[bytes]) -> None:
        """Take items of a lease."""
        await self._of(lease.lane).spill(lease, items)

    async def acknowledge(
        self, lease: Record, outputs: Sequence[Record] = (), items: Sequence[bytes] = (), failure: str | None = None
    ) -> PushResult:
        """End a lease; each output goes to its owner."""
        return await self._settled(await self._of(lease.lane).acknowledge(lease, outputs, items, failure), outputs)

    async def replace(self, lease: Record, record: Record) -> bool:
        """Put a record in the place of a lease; it goes to its owner."""
        is_here = await self._of(lease.lane).replace(lease, record)
        await settle(self.sessions, self._job)
        return is_here

    async def release(self, leases: Iterable[Record]) -> None:
        """Give leases back to their owners."""
        for lease in leases:
            await self._of(lease.lane).release([lease])

    def next_due(self) -> float:
        """The first of all."""
        return min(session.frontier.next_due() for session in self.sessions)

    async def wake(self, now: float) -> Sequence[LaneKey]:
        """Have each let in what is due."""
        return [lane for session in self.sessions for lane in await session.frontier.wake(now)]

    def held_until(self, request: Request) -> float | None:
        """Ask the finder."""
        return self._finder.held_until(request)

    def lanes(self) -> Sequence[LaneKey]:
        """All lanes, in the order of their first requests."""
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
        """Add all up; of what was seen, the finder knows."""
        each = [session.frontier.statistics() for session in self.sessions]
        return FrontierStatistics(
            sum(one.pending for one in each),
            sum(one.leased for one in each),
            self._finder.statistics().seen,
            sum(one.lanes for one in each),
            sum(one.held for one in each),
        )

    async def aclose(self) -> None:
        """Have everything written."""
        for session in self.sessions:
            await session.frontier.aclose()

    async def _settled(self, stored: PushResult, records: Sequence[Record]) -> PushResult:
        """Return what is pending with any of the sessions."""
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
    """Open a job in a server by several sessions."""
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
