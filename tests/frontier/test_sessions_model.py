"""Sessions of one job that join, take, settle, are cut off, die, leave and are told to pause, against a plain model.

After each step: what is pending is in the store and nothing else, a part has one owner that may send, a request too,
and a session that was ended has written nothing.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.abandoning import abandon
from tests.jobs.site import Linked
from tests.simulated_store import SimulatedStore
from trawl.clock import WallClock
from trawl.engine.steering import Pause, Resume, Stop, state_in, stored_form
from trawl.errors import JobError
from trawl.frontier.base import Record
from trawl.frontier.job_frontier import JobFrontier, open_frontier
from trawl.frontier.lane_cache import Bounds
from trawl.frontier.parts import PartsRequired, StartReceived, part_of_lane
from trawl.frontier.record_format import unpack
from trawl.frontier.redis.client import Address, Call, StoreConnectionError, StoreServer
from trawl.frontier.redis.job import RedisJob
from trawl.frontier.redis.layout import KEY_BYTES, Keys
from trawl.frontier.redis.startup import open_job
from trawl.http import Request
from trawl.testing.clock import seeded_scheduling

HERE = Address.parse("redis://store/job")
LEASE = 15.0
HOSTS = [f"{name}.example" for name in "abcdefgh"]
MOST = 5
"""Sessions at once."""


def record(number: int) -> Record:
    host = HOSTS[number % len(HOSTS)]
    return Record(Request(f"http://{host}/{number}"), ((host, None),), f"http://{host}", b"%16d" % number)


class Wire(StoreServer):
    """A connection that can be cut."""

    def __init__(self, server: StoreServer, session: Session) -> None:
        self._server, self._session = server, session

    async def run(self, calls: Sequence[Call], replicas: int = 0) -> list[Any]:
        if self._session.is_cut:
            raise StoreConnectionError("cut")
        answers = await self._server.run(calls, replicas)
        if self._session.is_cut:
            raise StoreConnectionError("cut")
        return answers

    async def read_stream(self, key: str, after: str, seconds: float) -> list[tuple[str, Mapping[bytes, bytes]]]:
        return await self._server.read_stream(key, after, seconds)

    async def facts(self) -> Mapping[str, str]:
        if self._session.is_cut:
            raise StoreConnectionError("cut")
        return await self._server.facts()


class Session:
    """A process of the job."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_cut = False
        self.is_over = False
        self.held: dict[str, Record] = {}
        self.settling: set[str] = set()
        self.losing: set[int] = set()
        self.job: RedisJob
        self.frontier: JobFrontier
        self._leaving = trio.Event()
        self._scope = trio.CancelScope()

    @asynccontextmanager
    async def connect(self, address: Address) -> AsyncGenerator[StoreServer, None]:
        async with self.world.store.connect(address) as server:
            yield Wire(server, self)

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Be a member until told to leave, dead, or ended by the others."""
        try:
            with self._scope:
                async with open_job(HERE, connect=self.connect, exports=False, lease=LEASE) as self.job:
                    bounds = Bounds(at_hand=3, in_all=9, marks=20)
                    self.frontier = await open_frontier(self.job, Linked(), WallClock.started(0.0), bounds=bounds)
                    task_status.started()
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._follow)
                        await self._leaving.wait()
                        nursery.cancel_scope.cancel()
        except* JobError:
            assert self.job.failure is not None
        self.is_over = True
        self.held.clear()

    @property
    def may_send(self) -> bool:
        """Whether it may have something on the wire now."""
        return not self.is_over and self.job.failure is None and self.job.lease.until > trio.current_time()

    async def _follow(self) -> None:
        while True:
            change = await self.job.session.next_change()
            if isinstance(change, PartsRequired):
                self.losing.update(change.parts)
                await self.give_back()
            elif isinstance(change, StartReceived):
                self.job.session.started()

    async def give_back(self) -> None:
        """Give back what is to be, and is not in use."""
        free = self.losing - {part_of_lane(each.lane) for each in self.held.values()}
        self.losing -= free
        if owned := free & self.job.session.parts.owned.keys():
            await self.job.session.give_back({part: {"throttle": b"-"} for part in owned})

    async def take(self, limit: int) -> None:
        """Lease from the first lane that has something."""
        if self.is_cut or not self.may_send or state_in(self.job.session.inbox.orders):
            return
        for lane in self.frontier.lanes():
            if part_of_lane(lane) not in self.losing:
                for lease in await self.frontier.lease_many(lane, limit):
                    self.held[lease.request.url] = lease
                return

    async def settle(self, children: int) -> None:
        """End the first request that it has; new ones come of it."""
        idle = [url for url in self.held if url not in self.settling]
        if not idle:
            return
        url = idle[0]
        self.settling.add(url)
        outputs = [record(number) for number in self.world.new_numbers(children)]
        self.world.settling += 1
        try:
            await self.frontier.acknowledge(self.held[url], outputs, [url.encode()])
        except JobError:
            self.world.unsure.append((url, outputs))
            return
        finally:
            self.world.settling -= 1
            self.settling.discard(url)
        self.held.pop(url, None)
        self.world.settled(url, outputs)
        with suppress(JobError):  # it has left, or was ended, meanwhile
            await self.give_back()

    def die(self) -> None:
        """End as by SIGKILL."""
        abandon(self.job)
        self._scope.cancel()
        self.held.clear()

    def leave(self) -> None:
        """End as after a stop: what it has and did not end is the others' again."""
        self._leaving.set()


class World:
    """The store, the sessions, and what must be so."""

    def __init__(self) -> None:
        self.store = SimulatedStore(latency=0.002)
        self.sessions: list[Session] = []
        self.pending: set[str] = set()
        self.done: list[str] = []
        self.settling = 0
        self.unsure: list[tuple[str, list[Record]]] = []
        self._last = 0

    def new_numbers(self, count: int) -> list[int]:
        self._last += count
        return list(range(self._last - count, self._last))

    def settled(self, url: str, outputs: Sequence[Record]) -> None:
        """Note an end that was confirmed."""
        self.make_sure()
        self._settled(url, outputs)

    def make_sure(self) -> None:
        """Note the ends of which nobody knows whether they were written: all of each, or nothing."""
        unsure, self.unsure = self.unsure, []
        stored = self.in_store() if unsure else set()
        for url, outputs in unsure:
            if outputs and outputs[0].request.url in stored:
                assert not stored & {url}, f"half of the end of {url} is written"
                self._settled(url, outputs)

    def _settled(self, url: str, outputs: Sequence[Record]) -> None:
        assert url in self.pending, f"{url} was ended twice"
        self.pending.discard(url)
        self.pending.update(each.request.url for each in outputs)
        self.done.append(url)

    def check(self) -> None:
        live = [session for session in self.sessions if session.may_send]
        parts = [part for session in live for part in session.job.session.parts.owned]
        assert len(parts) == len(set(parts)), "a part has two owners"
        held = [url for session in live for url in session.held]
        assert len(held) == len(set(held)), "a request is under way twice"
        self.make_sure()
        if not self.settling:
            assert self.in_store() == self.pending

    def in_store(self) -> set[str]:
        members = self.store.content.get(Keys("job").queue.encode(), [])
        return {unpack(member[KEY_BYTES:]).url for _, member in members}


OPERATIONS = st.tuples(
    st.sampled_from(
        ["join", "take", "take", "take", "settle", "settle", "settle", "cut", "mend", "die", "leave", "wish", "wait"]
    ),
    st.integers(0, MOST - 1),
    st.integers(0, 3),
)


@pytest.mark.long
@settings(deadline=None, max_examples=settings().max_examples // 3)  # an example takes long
@given(operations=st.lists(OPERATIONS, min_size=8, max_size=20), seed=st.integers(0, 1000))
def test_nothing_is_lost_or_under_way_twice_whatever_becomes_of_sessions(
    operations: list[tuple[str, int, int]], seed: int
) -> None:
    random.seed(seed)  # pauses before connecting again

    async def main() -> None:
        world = World()
        async with trio.open_nursery() as nursery:

            async def join() -> Session:
                session = Session(world)
                await nursery.start(session.run)
                world.sessions.append(session)
                return session

            first = await join()
            seeds = [record(number) for number in world.new_numbers(6)]
            await first.frontier.push_many(seeds)
            world.pending.update(each.request.url for each in seeds)
            for _ in range(2):
                await join()
            await trio.sleep(2.0)  # they share
            for name, who, amount in operations:
                await operate(world, nursery, join, name, who, amount)
                world.check()
            await finish(world, join)
            nursery.cancel_scope.cancel()

    with seeded_scheduling(seed):
        trio.run(main, clock=MockClock(autojump_threshold=0.0))


async def operate(world: World, nursery: trio.Nursery, join: Any, name: str, who: int, amount: int) -> None:
    """Have one thing happen."""
    live = [session for session in world.sessions if not session.is_over]
    if name == "join" and len(live) < MOST:
        await join()
        await trio.sleep(1.0)
    elif name == "wait":
        await trio.sleep((0.3, 2.0, LEASE, 1.3 * LEASE)[amount])
    elif name == "wish":
        order = (Resume(), Pause(), Resume(), Stop())[amount]
        world.store.run("order", [Keys("job").head], list(stored_form(order)))
        await trio.sleep(0.4)
    elif live:
        session = live[who % len(live)]
        if name == "take":
            await session.take(1 + amount)
        elif name == "settle":
            if not session.held:
                await session.take(1)
            nursery.start_soon(session.settle, 1 + amount)
            await trio.sleep(0.1)
        elif name in {"cut", "mend"}:
            session.is_cut = name == "cut"
        elif name == "die":
            session.die()
            await trio.sleep(0.1)
        elif name == "leave" and not session.is_cut:
            session.leave()
            await trio.sleep(0.5)


async def finish(world: World, join: Any) -> None:
    """Mend all, and work until nothing is pending."""
    world.store.run("order", [Keys("job").head], list(stored_form(Resume())))
    for session in world.sessions:
        session.is_cut = False
    await join()
    with trio.fail_after(10.0 * LEASE):
        while world.pending:
            await trio.sleep(0.5)
            for session in [each for each in world.sessions if each.may_send]:
                await session.take(4)
                for _ in range(len(session.held)):
                    await session.settle(0)
            world.check()
    items = [pair[1].decode() for _, pair in world.store.content.get(Keys("job").items.encode(), [])]
    assert sorted(items) == sorted(set(world.done)), "an item is lost, or twice"
