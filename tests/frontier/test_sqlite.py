"""What the frontier of a job promises beyond the contract of all frontiers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from trawl.blocking import InlineBlocking
from trawl.clock import WallClock
from trawl.errors import JobError
from trawl.frontier import Record
from trawl.frontier.job_frontier import JobFrontier, open_frontier
from trawl.frontier.lane_cache import Bounds
from trawl.frontier.sqlite import SqliteJob, open_job
from trawl.http import Request

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


class MySpider:
    def parse(self, response: object) -> None: ...

    def old(self, response: object) -> None: ...


class Newer:
    def parse(self, response: object) -> None: ...


@asynccontextmanager
async def opened(
    directory: Path,
    *,
    spider: object = None,
    now_utc: datetime = NOON,
    depth_first: bool = False,
    bounds: Bounds | None = None,
) -> AsyncIterator[tuple[SqliteJob, JobFrontier]]:
    job = await open_job(directory, InlineBlocking())
    try:
        wall = WallClock.started(trio.current_time(), now_utc)
        yield job, await open_frontier(job, spider, wall, depth_first=depth_first, bounds=bounds)
    finally:
        await job.aclose()


def lane(host: str = "a.example") -> tuple[tuple[str, ...], str]:
    return (host,), f"http://{host}"


def record(path: str, host: str = "a.example") -> Record:
    return Record(Request(f"http://{host}/{path}"), ((host, None),), f"http://{host}")


def paths(records: list[Record]) -> list[str]:
    return [one.request.url.rsplit("/", 1)[1] for one in records]


async def test_memory_holds_a_bounded_number_of_requests_however_many_are_pending(tmp_path: Path) -> None:  # C3
    bounds = Bounds(at_hand=8, in_all=40)
    hosts = [f"{i}.example" for i in range(20)]
    for _ in range(2):  # the second time they are read from disk
        async with opened(tmp_path, bounds=bounds) as (_, frontier):
            caches = frontier.caches
            for turn in range(10):
                for host in hosts:
                    await frontier.push_many([record(str(i), host) for i in range(5)])
                    assert caches.at_hand <= bounds.in_all
                    await frontier.release(await frontier.lease_many(lane(host), turn))
                    assert caches.at_hand == sum(len(cache.at_hand) for cache in caches.by_lane.values())
                    assert caches.at_hand <= bounds.in_all
    async with opened(tmp_path, bounds=bounds) as (_, frontier):
        assert frontier.statistics().pending == 2 * 10 * 20 * 5


async def test_lanes_that_have_ended_leave_nothing_in_memory(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, frontier):
        for i in range(50):
            await frontier.push_many([record("x", f"{i}.example")])
            (lease,) = await frontier.lease_many(lane(f"{i}.example"), 1)
            await frontier.acknowledge(lease)
        assert frontier.caches.by_lane == {}


async def test_acknowledgements_that_come_together_are_one_transaction_and_leasing_is_none(tmp_path: Path) -> None:
    async with opened(tmp_path) as (job, frontier):
        await frontier.push_many([record(str(i)) for i in range(50)])
        before = job.transactions.committed
        leases = await frontier.lease_many(lane(), 50)
        async with trio.open_nursery() as nursery:
            for lease in leases:
                nursery.start_soon(frontier.acknowledge, lease, [record("child", "b.example")], [b"item"])
        assert job.transactions.committed == before + 1
        assert job.outbox_end == 50


async def test_f12_depth_first_the_newest_goes_first_in_the_next_process_too(tmp_path: Path) -> None:
    async with opened(tmp_path, depth_first=True) as (_, frontier):
        await frontier.push_many([record("1"), record("2")])
    async with opened(tmp_path, depth_first=True) as (_, frontier):
        await frontier.push_many([record("3")])
        assert paths(await frontier.lease_many(lane(), 3)) == ["3", "2", "1"]


async def test_p10_a_delayed_request_keeps_its_time_over_a_stop(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with opened(tmp_path) as (_, frontier):
        late = record("late")
        late.not_before = trio.current_time() + 60.0
        await frontier.push_many([late])
    await trio.sleep(100.0)  # the run clock says nothing of the time between two processes
    async with opened(tmp_path, now_utc=NOON + timedelta(seconds=45)) as (_, frontier):
        assert frontier.next_due() - trio.current_time() == pytest.approx(15.0, abs=1e-4)
        assert await frontier.lease_many(lane(), 1) == []
        await trio.sleep_until(frontier.next_due())
        assert await frontier.wake(trio.current_time()) == [lane()]
        assert paths(await frontier.lease_many(lane(), 1)) == ["late"]
        assert frontier.next_due() == inf


async def test_a_callback_that_the_spider_has_no_more_is_named_when_the_job_is_opened(tmp_path: Path) -> None:
    spider = MySpider()
    async with opened(tmp_path, spider=spider) as (_, frontier):
        one = Record(Request("http://a.example/1", spider.old), (("a.example", None),), "http://a.example")
        await frontier.push_many([one])
    with pytest.raises(JobError, match=rf"^job {tmp_path}: its request 1 .*the spider Newer has no method 'old'"):
        async with opened(tmp_path, spider=Newer()):
            pytest.fail("it was opened")


async def test_one_that_can_not_be_used_is_an_error_when_it_is_leased_and_its_neighbours_are_not_lost(
    tmp_path: Path,
) -> None:
    spider = MySpider()
    async with opened(tmp_path, spider=spider) as (_, frontier):
        for callback in (spider.parse, spider.old, spider.parse):
            request = Request("http://a.example/x", callback)
            await frontier.push_many([Record(request, (("a.example", None),), "http://a.example")])
    async with opened(tmp_path, spider=Newer()) as (_, frontier):
        with pytest.raises(JobError, match="its request 2 can't be used: the spider Newer has no method 'old'"):
            await frontier.lease_many(lane(), 3)
        assert frontier.pending_in(lane()) == 3
        assert frontier.statistics().leased == 0
        assert len(await frontier.lease_many(lane(), 1)) == 1


async def test_what_can_not_be_stored_is_refused_before_and_when_it_is_pushed_and_nothing_is_stored(
    tmp_path: Path,
) -> None:
    bad = Record(Request("http://a.example/", meta={"item": object()}), (("a.example", None),), "http://a.example")
    async with opened(tmp_path) as (_, frontier):
        assert frontier.refusal(record("1")) is None
        reason = frontier.refusal(bad)
        assert reason is not None
        assert reason.startswith("meta['item'] is of type object, which a job can't store")
        with pytest.raises(ValueError, match=r"meta\['item'\]"):
            await frontier.push_many([record("1"), bad])
        await frontier.push_many([record("2")])
        (lease,) = await frontier.lease_many(lane(), 9)
        with pytest.raises(ValueError, match=r"meta\['item'\]"):
            await frontier.acknowledge(lease, [bad])
        with pytest.raises(ValueError, match=r"meta\['item'\]"):
            await frontier.replace(lease, bad)
        assert frontier.statistics().leased == 1


async def test_only_what_is_leased_can_end_and_giving_back_twice_is_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, frontier):
        await frontier.push_many([record("1")])
        (lease,) = await frontier.lease_many(lane(), 1)
        await frontier.release([lease, lease])
        assert frontier.pending_in(lane()) == 1
        with pytest.raises(ValueError, match="is not leased"):
            await frontier.acknowledge(lease)
        with pytest.raises(ValueError, match="is not leased"):
            await frontier.replace(lease, record("2"))


async def test_requests_that_need_no_scope_have_their_lane_over_a_stop(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, frontier):
        request = Request("http://a.example/exempt", meta={"dont_throttle": True})
        exempt = Record(request, (("a.example", None),), "http://a.example")
        await frontier.push_many([exempt, record("plain")])
        lanes = list(frontier.lanes())
    async with opened(tmp_path) as (_, frontier):
        assert list(frontier.lanes()) == lanes == [((), "http://a.example"), lane()]
        assert paths(await frontier.lease_many(lanes[0], 9)) == ["exempt"]
