"""Every frontier passes the contract of frontiers."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial

import pytest
import trio

from tests.contracts.team import Team, opened_as_team
from tests.simulated_store import SimulatedStore
from trawl.blocking import InlineBlocking
from trawl.clock import WallClock
from trawl.frontier import Frontier, MemoryFrontier
from trawl.frontier.job_frontier import open_frontier
from trawl.frontier.lane_cache import Bounds
from trawl.frontier.parts import part_of
from trawl.frontier.redis.client import Address
from trawl.frontier.redis.job import RedisJob
from trawl.frontier.redis.startup import open_job as open_redis_job
from trawl.frontier.sqlite import open_job
from trawl.testing.frontier_contract import FrontierContract, Opener

pytestmark = pytest.mark.usefixtures("few_parts")


@asynccontextmanager
async def in_memory(packed_from: int = 1_000) -> AsyncIterator[Frontier]:
    frontier = MemoryFrontier(packed_from=packed_from)
    yield frontier
    await frontier.aclose()


@asynccontextmanager
async def in_a_job(directory: str, bounds: Bounds) -> AsyncIterator[Frontier]:
    job = await open_job(directory, InlineBlocking())
    try:
        frontier = await open_frontier(job, object(), WallClock.started(trio.current_time()), bounds=bounds)
        yield frontier
        await frontier.aclose()
    finally:
        await job.aclose()


class TestMemory(FrontierContract):
    examples = 10
    packed_from = 1_000

    @contextmanager
    def store(self) -> Iterator[Opener]:
        yield partial(in_memory, self.packed_from)


class TestMemoryWithAllPacked(TestMemory):
    packed_from = 0


class TestSqlite(FrontierContract):
    is_durable = True
    examples = 10
    bounds = Bounds()

    @contextmanager
    def store(self) -> Iterator[Opener]:
        with tempfile.TemporaryDirectory() as directory:
            yield partial(in_a_job, directory, self.bounds)


@pytest.mark.long
class TestSqliteWithNextToNoMemory(TestSqlite):
    """What is at hand is dropped and read again all the time, and the database is asked for marks."""

    bounds = Bounds(at_hand=2, in_all=3, marks=2)


@pytest.mark.sweep
class TestSqliteAtLength(TestSqliteWithNextToNoMemory):
    examples = 500
    steps = 80


@asynccontextmanager
async def in_a_store(store: SimulatedStore, bounds: Bounds) -> AsyncIterator[Frontier]:
    address = Address.parse("redis://store/a job")
    async with open_redis_job(address, connect=store.connect) as job:
        frontier = await open_frontier(job, object(), WallClock.started(trio.current_time()), bounds=bounds)
        yield frontier
        await frontier.aclose()


class TestRedis(FrontierContract):
    """On a simulated store: the scripts are those that a server runs."""

    is_durable = True
    examples = 5
    bounds = Bounds()

    @contextmanager
    def store(self) -> Iterator[Opener]:
        yield partial(in_a_store, SimulatedStore(), self.bounds)


@pytest.mark.long
class TestRedisWithNextToNoMemory(TestRedis):
    bounds = Bounds(at_hand=2, in_all=3, marks=2)


@asynccontextmanager
async def by_three(store: SimulatedStore, bounds: Bounds) -> AsyncIterator[Team]:
    address = Address.parse("redis://store/a job")

    def join(exports: bool) -> AbstractAsyncContextManager[RedisJob]:
        return open_redis_job(address, connect=store.connect, exports=exports)

    async with opened_as_team(address, join, 3, bounds) as team:
        yield team


@pytest.mark.long
class TestThreeSessionsInRedis(FrontierContract):
    """On a simulated store, one job of which three sessions have a third of the hosts each."""

    is_durable = True
    examples = 2
    steps = 15
    bounds = Bounds()

    @contextmanager
    def store(self) -> Iterator[Opener]:
        yield partial(by_three, SimulatedStore(), self.bounds)


@pytest.mark.long
class TestThreeSessionsInRedisWithNextToNoMemory(TestThreeSessionsInRedis):
    bounds = Bounds(at_hand=2, in_all=3, marks=2)


@pytest.mark.sweep
class TestThreeSessionsInRedisAtLength(TestThreeSessionsInRedisWithNextToNoMemory):
    examples = 200
    steps = 60


async def test_the_hosts_of_the_contract_are_with_a_session_each() -> None:
    async with by_three(SimulatedStore(), Bounds()) as team:
        hosts = [part_of(f"http://{name}.example") for name in "abc"]
        owned = [[each.job.session.owns(part) for part in hosts] for each in team.sessions]
        assert [sum(each) for each in owned] == [1, 1, 1]
