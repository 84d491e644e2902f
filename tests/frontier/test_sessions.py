"""Several sessions of one job on a simulated server: everything once, whatever is lost and whoever is killed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

from tests.abandoning import abandon
from tests.jobs.site import Linked
from tests.simulated_store import SimulatedStore
from trawl.clock import WallClock
from trawl.errors import JobError, SessionEnded
from trawl.frontier.base import Record
from trawl.frontier.job import Place, Row
from trawl.frontier.job_frontier import JobFrontier, open_frontier
from trawl.frontier.lane_cache import Bounds
from trawl.frontier.parts import (
    PARTS,
    ItemsReceived,
    JobFinished,
    PartsReceived,
    PartsRequired,
    RequestsReceived,
    StartReceived,
    domain_of,
    part_of,
    part_of_lane,
)
from trawl.frontier.redis.client import Address
from trawl.frontier.redis.job import RedisJob
from trawl.frontier.redis.layout import Keys
from trawl.frontier.redis.startup import open_job
from trawl.http import Request

HERE = Address.parse("redis://store/job")
LEASE = 15.0
HOSTS = [f"{name}.example" for name in ("a", "b", "c", "d", "e", "f", "g")]
PAGES = 60


def record(number: int, *, host: int | None = None, delay: float = 0.0) -> Record:
    """The request of a page, on its host or on one that redirects from it."""
    name = HOSTS[number % len(HOSTS) if host is None else host]
    made = Record(Request(f"http://{name}/{number}"), ((name, None),), f"http://{name}", b"%16d" % number)
    made.not_before = trio.current_time() + delay if delay else 0.0
    return made


class Worker:
    """One process: it leases, takes its time over each page, and stores what it found."""

    def __init__(self, store: SimulatedStore, rng: random.Random, *, exports: bool = False) -> None:
        self.store = store
        self.rng = rng
        self.exports = exports
        self.job: RedisJob
        self.frontier: JobFrontier
        self.losing: set[int] = set()
        self.is_over = False
        self.unclean: set[int] = set()
        self.items_seen = 0
        self.is_killed = False
        self._scope = trio.CancelScope()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Work until the job is over, or this worker is killed."""
        with self._scope:
            try:
                await self._run(task_status)
            except* JobError:
                if not self.is_killed:
                    raise

    async def _run(self, task_status: trio.TaskStatus[None]) -> None:
        async with open_job(HERE, connect=self.store.connect, exports=self.exports, lease=LEASE) as self.job:
            bounds = Bounds(at_hand=3, in_all=8, marks=20)
            self.frontier = await open_frontier(self.job, Linked(), WallClock.started(0.0), bounds=bounds)
            task_status.started()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._work)
                await self._follow()
                nursery.cancel_scope.cancel()

    def kill(self) -> None:
        """End as by SIGKILL."""
        self.is_killed = True
        abandon(self.job)
        self._scope.cancel()

    async def _follow(self) -> None:
        session = self.job.session
        while not self.is_over:
            change = await session.next_change()
            if isinstance(change, PartsRequired):
                self.losing.update(change.parts)
            elif isinstance(change, PartsReceived):
                self.unclean.update(change.unclean)
            elif isinstance(change, ItemsReceived):
                self.items_seen = change.end
            elif isinstance(change, StartReceived):
                await self.frontier.claim_many([b"%16d" % 0])
                await self.frontier.push_many([record(0)])
                session.started()
                await self.job.commit()
            self.is_over = isinstance(change, JobFinished)

    async def _work(self) -> None:
        frontier, session = self.frontier, self.job.session
        while True:
            now = trio.current_time()
            if frontier.next_due() <= now:
                await frontier.wake(now)
            await self._give_back()
            lanes = [lane for lane in frontier.lanes() if part_of_lane(lane) not in self.losing]
            numbers = frontier.statistics()
            is_idle = not numbers.pending and not numbers.leased and session.is_started
            session.ask_if_over(is_idle=is_idle)
            if not lanes:
                await trio.sleep(0.05)
                continue
            for lease in await frontier.lease_many(self.rng.choice(lanes), 2):
                await self._visit(lease)

    async def _visit(self, lease: Record) -> None:
        await trio.sleep(self.rng.uniform(0.0, 0.1))
        number = int(lease.request.url.rpartition("/")[2])
        if number % 11 == 5 and lease.request.url != record(number, host=number % 3).request.url:
            redirected = record(number, host=number % 3)
            if not await self.frontier.replace(lease, redirected):
                return
            await self.frontier.release([redirected])
            return
        found = [2 * number + 1, 2 * number + 2, number // 2, (7 * number) % PAGES]
        wanted = [child for child in dict.fromkeys(found) if child < PAGES]
        are_new = await self.frontier.claim_many([b"%16d" % child for child in wanted])
        delays = {child: 3.0 if child % 13 == 4 else 0.0 for child in wanted}
        outputs = [record(child, delay=delays[child]) for child, is_new in zip(wanted, are_new, strict=True) if is_new]
        if number % 9 == 1:
            await self.frontier.spill(lease, [b"%d spilled" % number])
        failure = "it is broken" if number % 17 == 3 else None
        await self.frontier.acknowledge(lease, outputs, [b"%d" % number], failure)

    async def _give_back(self) -> None:
        parts, self.losing = self.losing, set()
        if parts:
            await self.job.session.give_back({part: {"throttle": b"of %d" % part} for part in parts})


def items_in(store: SimulatedStore) -> Counter[bytes]:
    """The items in the outbox."""
    return Counter(pair[1] for _, pair in store.content[Keys("job").items.encode()])


EXPECTED = Counter([b"%d" % n for n in range(PAGES)] + [b"%d spilled" % n for n in range(PAGES) if n % 9 == 1])


def assert_whole(store: SimulatedStore) -> None:
    """Each page was visited once, and nothing is left."""
    items = items_in(store)
    assert {item: count for item, count in items.items() if count != 1} == {}
    assert sorted(EXPECTED - items) == []
    assert items == EXPECTED
    keys = Keys("job")
    assert not store.content[keys.queue.encode()]
    assert not store.content.get(keys.arrivals.encode())
    assert not store.content.get(keys.spilled.encode())
    assert len(store.content[keys.failed.encode()]) == len([n for n in range(PAGES) if n % 17 == 3])


@pytest.mark.parametrize("seed", range(1))
async def test_four_sessions_visit_every_page_once(autojump_clock: MockClock, seed: int) -> None:
    store = SimulatedStore(latency=0.004)
    workers = [Worker(store, random.Random(seed * 10 + n), exports=n == 0) for n in range(4)]
    async with trio.open_nursery() as nursery:
        for worker in workers:
            await nursery.start(worker.run)
            await trio.sleep(0.3)
    assert all(worker.is_over for worker in workers)
    assert_whole(store)
    assert workers[0].items_seen > 0


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("fault", ["unsent", "unanswered", "either"])
async def test_lost_calls_and_lost_answers_lose_nothing_and_double_nothing(
    autojump_clock: MockClock, seed: int, fault: str
) -> None:
    store = SimulatedStore(latency=0.01)
    faults = random.Random(seed)
    workers = [Worker(store, random.Random(seed * 10 + n)) for n in range(3)]
    async with trio.open_nursery() as nursery:
        for worker in workers:
            store.fault = lambda number: None  # it can't be opened without an answer
            await nursery.start(worker.run)
            kinds = ["unsent", "unanswered"] if fault == "either" else [fault]
            store.fault = lambda number, kinds=kinds: faults.choice(kinds) if faults.random() < 0.2 else None  # type: ignore[misc]
            await trio.sleep(0.5)
    assert_whole(store)


@pytest.mark.parametrize("seed", range(2))
async def test_killed_workers_are_replaced_and_every_page_is_visited_once(autojump_clock: MockClock, seed: int) -> None:
    store = SimulatedStore(latency=0.004)
    rng = random.Random(seed)
    workers: list[Worker] = []
    async with trio.open_nursery() as nursery:

        async def start() -> None:
            workers.append(Worker(store, random.Random(rng.random())))
            await nursery.start(workers[-1].run)

        for _ in range(3):
            await start()
        for _ in range(4):
            await trio.sleep(rng.uniform(0.1, 1.5))
            victim = rng.choice([worker for worker in workers if not worker.is_killed])
            if not victim.is_over:
                victim.kill()
            await start()
    assert_whole(store)


async def test_a_dead_sessions_parts_come_within_a_lease_and_a_quarter_and_are_unclean(
    autojump_clock: MockClock,
) -> None:
    store = SimulatedStore()
    async with (
        open_job(HERE, connect=store.connect) as one,
        open_job(HERE, connect=store.connect, exports=False) as two,
    ):
        for job in (one, two):
            await open_frontier(job, Linked(), WallClock.started(0.0))
        assert len(one.session.parts.owned) == PARTS
        await hand_over(one)
        await until(lambda: len(two.session.parts.owned) == PARTS // 2)
        abandon(one)
        began = trio.current_time()
        await until(lambda: len(two.session.parts.owned) == PARTS)
        assert 0.9 * LEASE - LEASE / 4 < trio.current_time() - began < 1.25 * LEASE
        unclean = {
            part
            for change in two.session.changes_so_far()
            if isinstance(change, PartsReceived)
            for part in change.unclean
        }
        assert len(unclean) == PARTS // 2


async def hand_over(job: RedisJob) -> None:
    """Give back the parts that are named next."""
    while not isinstance(change := await job.session.next_change(), PartsRequired):
        pass
    await job.session.give_back({part: {"throttle": b"of %d" % part} for part in change.parts})


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    with trio.fail_after(60.0):
        while not condition():  # noqa: ASYNC110 - nothing tells
            await trio.sleep(0.05)


async def test_a_part_goes_with_what_was_kept_of_it_and_its_requests(autojump_clock: MockClock) -> None:
    store = SimulatedStore(latency=0.01)
    async with open_job(HERE, connect=store.connect) as one:
        frontier = await open_frontier(one, Linked(), WallClock.started(0.0))
        await frontier.push_many([record(n) for n in range(len(HOSTS))])
        async with open_job(HERE, connect=store.connect, exports=False) as two:
            other = await open_frontier(two, Linked(), WallClock.started(0.0))
            await hand_over(one)
            await until(lambda: bool(two.session.parts.owned))
            (gained,) = [each for each in two.session.changes_so_far() if isinstance(each, PartsReceived)]
            assert sorted(gained.parts) == sorted(two.session.parts.owned)
            assert {domain_of(lane[1].partition("//")[2]) for lane in gained.lanes} == {
                host for host in HOSTS if part_of(f"http://{host}") in two.session.parts.owned
            }
            assert 3 <= gained.pending <= 4, "the hosts are dealt out evenly"
            assert gained.pending == other.statistics().pending
            assert frontier.statistics().pending == len(HOSTS) - gained.pending
            assert gained.kept == {part: {"throttle": b"of %d" % part} for part in gained.parts}
            assert not gained.unclean
            assert len(one.session.parts.owned) == len(two.session.parts.owned) == PARTS // 2


async def test_what_one_session_finds_in_anothers_part_arrives_there(autojump_clock: MockClock) -> None:
    store = SimulatedStore(latency=0.01)
    async with (
        open_job(HERE, connect=store.connect) as one,
        open_job(HERE, connect=store.connect, exports=False) as two,
    ):
        mine = await open_frontier(one, Linked(), WallClock.started(0.0))
        theirs = await open_frontier(two, Linked(), WallClock.started(0.0))
        await hand_over(one)
        await until(lambda: bool(two.session.parts.owned))
        two.session.changes_so_far()
        host = next(n for n, name in enumerate(HOSTS) if part_of(f"http://{name}") in two.session.parts.owned)
        assert await mine.claim_many([b"%16d" % host]) == [True]
        found = record(host)
        stored = await mine.push_many([found])
        assert (stored.here, stored.elsewhere, stored.seen) == ([], [found], [])
        change = await two.session.next_change()
        assert change == RequestsReceived([found.lane], 1)
        assert await theirs.claim_many([b"%16d" % host]) == [True], "it does not know it"
        stored = await theirs.push_many([record(host)])
        assert (stored.here, len(stored.seen)) == ([], 1)
        (lease,) = await theirs.lease_many(found.lane, 5)
        with pytest.raises(ValueError, match="is leased"):
            await two.session.give_back({part_of_lane(found.lane): {}})
        here = next(n for n, name in enumerate(HOSTS) if part_of(f"http://{name}") in one.session.parts.owned)
        assert not await theirs.replace(lease, record(here))
        assert theirs.statistics().leased == 0
        while not isinstance(change := await one.session.next_change(), RequestsReceived):
            pass
        assert change == RequestsReceived([record(here).lane], 1)


@pytest.mark.parametrize("is_heard", [True, False])
async def test_a_page_that_arrives_while_its_host_is_dropped_leaves_no_trace(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, is_heard: bool
) -> None:
    """Its owner may hear of it in the round trip that drops the pages of the host."""
    store = SimulatedStore(latency=0.01)
    async with (
        open_job(HERE, connect=store.connect) as one,
        open_job(HERE, connect=store.connect, exports=False) as two,
    ):
        mine = await open_frontier(one, Linked(), WallClock.started(0.0))
        theirs = await open_frontier(two, Linked(), WallClock.started(0.0))
        await hand_over(one)
        await until(lambda: bool(two.session.parts.owned))
        host = next(n for n, name in enumerate(HOSTS) if part_of(f"http://{name}") in two.session.parts.owned)
        await theirs.push_many([record(host, host=host)])
        read_after = two.read_after

        async def read_and_receive(lane: int, place: Place | None) -> list[Row]:
            rows = await read_after(lane, place)
            await mine.push_many([record(host + len(HOSTS), host=host)])
            two.session.ask_if_over(is_idle=is_heard)  # if it is idle, it hears of the job with its next round trip
            return rows

        monkeypatch.setattr(two, "read_after", read_and_receive)
        assert await theirs.drop(HOSTS[host], [], lambda *_: None) == (2 if is_heard else 1)
        two.session.ask_if_over(is_idle=True)
        await two.commit()
        assert not store.content[Keys("job").queue.encode()]
        assert not store.content.get(Keys("job").arrivals.encode())
        assert (theirs.statistics().pending, theirs.lanes()) == (0, [])


async def test_a_page_that_a_page_in_flight_finds_while_its_host_is_dropped_leaves_no_trace(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SimulatedStore(latency=0.01)
    async with open_job(HERE, connect=store.connect) as job, trio.open_nursery() as nursery:
        frontier = await open_frontier(job, Linked(), WallClock.started(0.0))
        await frontier.push_many([record(0)])
        (lease,) = await frontier.lease_many(record(0).lane, 1)

        async def end_page(lane: int, place: Place | None) -> list[Row]:
            nursery.start_soon(frontier.acknowledge, lease, [record(7)])
            await trio.sleep(0.005)
            return []

        monkeypatch.setattr(job, "read_after", end_page)
        assert await frontier.drop(HOSTS[0], [], lambda *_: None) == 1
        assert not store.content[Keys("job").queue.encode()]
        assert (frontier.statistics().pending, frontier.lanes()) == (0, [])


async def test_a_question_leaves_the_store_when_its_time_is_over(autojump_clock: MockClock) -> None:
    store = SimulatedStore()
    head = Keys("job").head
    async with open_job(HERE, connect=store.connect, lease=LEASE) as job:
        store.run("ask", [head], ["id", "{}", "10000000"])
        await until(lambda: bool(job.session.inbox.asks))
        assert b"asks" in store.content[head.encode()]
        await trio.sleep(10.0 + LEASE)
        assert (b"asks" in store.content[head.encode()], job.session.inbox.asks) == (False, "")


async def test_start_is_read_again_where_its_reader_died(autojump_clock: MockClock) -> None:
    store = SimulatedStore()
    async with (
        open_job(HERE, connect=store.connect) as one,
        open_job(HERE, connect=store.connect, exports=False) as two,
    ):
        for job in (one, two):
            await open_frontier(job, Linked(), WallClock.started(0.0))
        assert StartReceived() in one.session.changes_so_far()
        assert StartReceived() not in two.session.changes_so_far()
        abandon(one)
        await until(lambda: len(two.session.parts.owned) == PARTS)
        assert StartReceived() in two.session.changes_so_far()
        two.session.started()
        await two.commit()
        two.session.ask_if_over(is_idle=True)
        assert await two.session.next_change() == JobFinished()


async def test_nobody_is_taken_for_dead_by_a_server_that_has_just_come(autojump_clock: MockClock) -> None:
    """A replica that was promoted may not know of the last renewals."""
    store = SimulatedStore()
    async with open_job(HERE, connect=store.connect) as one:
        await one.commit()
        await trio.sleep(1.0)
        behind = store.saved()
        await trio.sleep(LEASE - 2.0)
        store.restart(behind, run_id="2")
        began = trio.current_time()
        async with open_job(HERE, connect=store.connect, exports=False) as two:
            store.is_away = True  # for the first; the second hears no more either
            await trio.sleep(2.0)
            store.is_away = False
            await until(lambda: not one.session.is_alone)
            assert trio.current_time() < began + LEASE
            await one.commit()
            assert not two.session.parts.owned


async def test_nobody_is_taken_for_dead_where_the_machine_of_all_has_slept(autojump_clock: MockClock) -> None:
    store = SimulatedStore()
    async with (
        open_job(HERE, connect=store.connect) as one,
        open_job(HERE, connect=store.connect, exports=False) as two,
    ):
        for job in (one, two):
            await open_frontier(job, Linked(), WallClock.started(0.0))
        await until(lambda: not one.session.is_alone)
        store.clock_ahead = 3600.0
        await trio.sleep(2.0 * LEASE)
        for job in (one, two):
            await job.commit()
            assert job.failure is None
            assert not job.session.is_alone


async def test_only_one_session_exports_and_others_may_look_on(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SimulatedStore()
    monkeypatch.setattr("trawl.frontier.redis.client.connect", store.connect)
    async with (
        open_job(HERE, connect=store.connect, exports=False) as worker,
        open_job(HERE, connect=store.connect, works=False) as exporter,
    ):
        await open_frontier(worker, Linked(), WallClock.started(0.0))
        assert worker.session.is_alone
        assert not exporter.session.parts.owned
        await worker.give([b"1", b"2"])
        while not isinstance(change := await exporter.session.next_change(), ItemsReceived):
            pass
        assert change == ItemsReceived(2)
        assert [item.item for item in await exporter.outbox_after(0, 9)] == [b"1", b"2"]
        exporter.outbox_done(2)
        await exporter.commit()
        assert items_in(store) == Counter()
        with pytest.raises(JobError, match=r"another process is using it .* or join it without feeds"):
            async with open_job(HERE, connect=store.connect):
                pass
        assert len(worker.session.parts.owned) == PARTS


async def test_what_a_killed_callback_has_spilled_is_removed(autojump_clock: MockClock) -> None:
    store = SimulatedStore()
    async with open_job(HERE, connect=store.connect) as one:
        frontier = await open_frontier(one, Linked(), WallClock.started(0.0))
        await frontier.push_many([record(1)])
        (lease,) = await frontier.lease_many(record(1).lane, 1)
        await frontier.spill(lease, [b"half"])
        abandon(one)
    async with open_job(HERE, connect=store.connect) as two:
        await two.commit()
    assert not store.content.get(Keys("job").spilled.encode())
    assert not [key for key in store.content if b":p:" in key]


async def test_a_job_that_is_cancelled_from_outside_is_given_free(autojump_clock: MockClock) -> None:
    store = SimulatedStore(latency=0.01)
    with trio.move_on_after(1.0):
        async with open_job(HERE, connect=store.connect) as job:
            job.keep("name", b"value")
            await trio.sleep_forever()
    began = trio.current_time()
    async with open_job(HERE, connect=store.connect) as job:
        assert trio.current_time() - began < 1.0
        assert job.kept["name"] == b"value"
        assert not job.was_killed


async def test_a_session_that_a_restored_server_forgot_writes_nothing_under_the_number_of_another(
    autojump_clock: MockClock,
) -> None:
    store = SimulatedStore()
    async with open_job(HERE, connect=store.connect):
        older = store.saved()
        async with open_job(HERE, connect=store.connect, exports=False) as forgotten:
            await forgotten.commit()
            store.restart(older, run_id="2")
            async with open_job(HERE, connect=store.connect, exports=False) as another:
                assert another.session.number > forgotten.session.number + 100
                forgotten.keep("mine", b"1")
                with pytest.raises(SessionEnded, match="others have taken over"):
                    await forgotten.commit()
                another.keep("mine", b"2")
                await another.commit()
    assert store.content[Keys("job").kept.encode()][b"mine"] == b"2"


async def test_numbers_of_sessions_are_not_given_again_once_another_has_heard_of_the_restored_server(
    autojump_clock: MockClock,
) -> None:
    store = SimulatedStore()
    async with open_job(HERE, connect=store.connect) as one:
        await one.commit()
        older = store.saved()
        async with open_job(HERE, connect=store.connect, exports=False) as forgotten:
            store.restart(older, run_id="2")
            await trio.sleep(LEASE / 2.0)
            assert one.failure is None
            async with open_job(HERE, connect=store.connect, exports=False) as another:
                assert another.session.number > forgotten.session.number + 100


async def test_who_was_killed_is_given_up_though_its_server_was_started_anew_unnoticed(
    autojump_clock: MockClock,
) -> None:
    """A client connects again by itself, and its session hears nothing of it; one that joins then does."""
    store = SimulatedStore()
    async with open_job(HERE, connect=store.connect, exports=False) as lives:
        async with open_job(HERE, connect=store.connect) as killed:
            await killed.commit()
            abandon(killed)
        store.restart(store.saved(), run_id="2")
        with trio.fail_after(5.0 * LEASE):
            async with open_job(HERE, connect=store.connect) as heir:
                assert heir.session.is_exporter
        assert lives.failure is None


@pytest.mark.parametrize("is_made_again", [False, True])
async def test_a_job_that_is_gone_is_not_begun_anew_in_silence(autojump_clock: MockClock, is_made_again: bool) -> None:
    store = SimulatedStore()
    async with open_job(HERE, connect=store.connect) as one:
        await one.commit()
        store.content.clear()
        if is_made_again:
            await trio.sleep(0.1)
            async with open_job(HERE, connect=store.connect, exports=False):
                pass
        with pytest.raises(JobError, match=r"it is gone: its server (does not have it|has another job)") as caught:
            await one.commit()
        assert not isinstance(caught.value, SessionEnded), "it would join again, and make it"
    assert bool(store.content) == is_made_again


async def test_a_dead_sessions_parts_come_in_time_though_the_servers_clock_was_set_back(
    autojump_clock: MockClock,
) -> None:
    store = SimulatedStore()
    async with (
        open_job(HERE, connect=store.connect) as one,
        open_job(HERE, connect=store.connect, exports=False) as two,
    ):
        for job in (one, two):
            await open_frontier(job, Linked(), WallClock.started(0.0))
        await trio.sleep(LEASE)
        store.clock_ahead = -3600.0
        await trio.sleep(1.0)
        abandon(one)
        began = trio.current_time()
        await until(lambda: len(two.session.parts.owned) == PARTS)
        assert 0.9 * LEASE - LEASE / 4 < trio.current_time() - began < 1.25 * LEASE + 1.0


async def test_an_exporter_that_was_killed_is_not_taken_for_alive_because_responses_are_late(
    autojump_clock: MockClock,
) -> None:
    store = SimulatedStore()

    async def get_late() -> None:
        await trio.sleep(LEASE / 10.0)
        store.latency = LEASE / 5.0

    with suppress(JobError):  # of the killed one
        async with open_job(HERE, connect=store.connect, lease=LEASE) as killed:
            abandon(killed)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(get_late)
        async with open_job(HERE, connect=store.connect, lease=LEASE) as job:
            assert job.session.is_exporter
            store.latency = 0.0
