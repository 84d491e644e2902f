"""Heads are leased ahead, and the order is as if they were not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trawl.engine.cache_lookup import NoCache
from trawl.frontier import MemoryFrontier, Record
from trawl.http import Request
from trawl.scheduler import Attempt, Prefetcher, Scheduler
from trawl.scheduler.prefetcher import MAX_PER_LANE, MIN_PER_LANE
from trawl.throttling import Limits, Scope

LANE = (("a.example",), "http://a.example")


def attempt_of(record: Record) -> Attempt:
    request = record.request
    return Attempt(
        request,
        record.scopes,
        origin=record.origin,
        priority=request.priority,
        share=record.share,
        order=record.order,
        lease=record,
    )


class Lanes:
    """A frontier, a core and the heads between them."""

    def __init__(self, *, depth_first: bool = False) -> None:
        self.frontier = MemoryFrontier(depth_first=depth_first)
        self.scheduler = Scheduler(lambda id, now: Scope(id, Limits(concurrency=1)), places=1, depth_first=depth_first)
        self.prefetcher = Prefetcher(self.frontier, self.scheduler, attempt_of, NoCache())

    async def push(self, *wanted: tuple[str, int, float]) -> None:
        records = [
            Record(
                Request(f"http://a.example/{path}", priority=priority),
                (("a.example", None),),
                "http://a.example",
                not_before=not_before,
            )
            for path, priority, not_before in wanted
        ]
        await self.frontier.push_many(records)
        self.prefetcher.pushed(records)

    async def send_one(self, now: float = 0.0) -> str | None:
        """Grant, finish and name the next request."""
        if self.prefetcher.is_due(now):
            await self.prefetcher.refill(now, lambda: now)
        attempt = self.scheduler.grant(now)
        if not isinstance(attempt, Attempt):
            return None
        self.prefetcher.granted(attempt.options.lease.lane)
        self.scheduler.sent(attempt, now)
        self.scheduler.give_back(attempt, now)
        return str(attempt.request.url.rsplit("/", 1)[1])


async def drained(lanes: Lanes, now: float = 0.0) -> list[str]:
    order = []
    while (path := await lanes.send_one(now)) is not None:
        order.append(path)
    return order


async def test_few_are_leased_ahead_and_all_are_sent_in_order() -> None:
    lanes = Lanes()
    await lanes.push(*[(str(i), 0, 0.0) for i in range(200)])
    assert await lanes.send_one() == "0"
    assert MIN_PER_LANE <= lanes.scheduler.buffered(LANE) < MAX_PER_LANE
    assert lanes.frontier.statistics().pending >= 200 - MAX_PER_LANE
    assert await drained(lanes) == [str(i) for i in range(1, 200)]


@given(st.lists(st.tuples(st.integers(-2, 2), st.booleans()), min_size=1, max_size=120), st.booleans())
@settings(deadline=None, max_examples=50)
async def test_f12_the_best_of_a_lane_goes_first_however_many_are_leased(
    steps: list[tuple[int, bool]], depth_first: bool
) -> None:
    """A plain sorted list is the model; sends are mixed with pushes of any priority."""
    lanes = Lanes(depth_first=depth_first)
    model: list[tuple[int, int, str]] = []
    sent, wanted = [], []
    for i, (priority, sends) in enumerate(steps):
        await lanes.push((str(i), priority, 0.0))
        model.append((-priority, -i if depth_first else i, str(i)))
        if sends:
            sent.append(await lanes.send_one())
            model.sort()
            wanted.append(model.pop(0)[2])
    assert sent == wanted
    assert await drained(lanes) == [path for _, _, path in sorted(model)]


async def test_those_that_wait_for_a_time_of_their_own_hold_up_nobody_behind_them() -> None:  # P9
    lanes = Lanes()
    await lanes.push(*[(f"late{i}", 0, 60.0) for i in range(2 * MAX_PER_LANE)], ("now", 0, 0.0))
    assert await drained(lanes) == ["now"]
    assert len(await drained(lanes, 60.0)) == 2 * MAX_PER_LANE


async def test_f12_the_second_best_that_came_late_goes_before_what_is_leased() -> None:
    lanes = Lanes()
    await lanes.push(*[(str(i), 0, 0.0) for i in range(MIN_PER_LANE + 1)])
    assert await lanes.send_one() == "0"
    await lanes.push(("better", 1, 0.0), ("best", 2, 0.0))  # the best is leased ahead, the other stays behind it
    assert await drained(lanes) == ["best", "better", *[str(i) for i in range(1, MIN_PER_LANE + 1)]]


@pytest.mark.interpreted
async def test_c3_of_many_lanes_each_has_few_requests_in_memory_and_none_is_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trawl.scheduler.prefetcher.MAX_IN_ALL", 400)
    lanes = 100
    frontier = MemoryFrontier()
    scheduler = Scheduler(lambda id, now: Scope(id, Limits(concurrency=1)), places=1)
    prefetcher = Prefetcher(frontier, scheduler, attempt_of, NoCache())
    hosts = [f"{i}.example" for i in range(lanes)]
    for _ in range(6):
        records = [Record(Request(f"http://{host}/"), ((host, None),), f"http://{host}") for host in hosts]
        await frontier.push_many(records)
    prefetcher.restored(frontier.lanes())
    await prefetcher.refill(0.0, lambda: 0.0)
    assert frontier.statistics().leased <= 400
    assert all(1 <= scheduler.buffered(lane) <= 4 for lane in frontier.lanes())
    sent = 0
    while True:
        if prefetcher.is_due(0.0):
            await prefetcher.refill(0.0, lambda: 0.0)
        attempt = scheduler.grant(0.0)
        if not isinstance(attempt, Attempt):
            break
        sent += 1
        prefetcher.granted(attempt.options.lease.lane)
        scheduler.sent(attempt, 0.0)
        scheduler.give_back(attempt, 0.0)
    assert sent == 6 * lanes


async def test_c3_where_each_request_is_better_than_the_last_no_more_are_leased_than_otherwise() -> None:
    lanes = Lanes()
    most = 0
    for priority in range(4 * MAX_PER_LANE):
        await lanes.push((str(priority), priority, 0.0))
        await lanes.prefetcher.refill(0.0, lambda: 0.0)
        most = max(most, lanes.scheduler.buffered(LANE))
    assert most == MAX_PER_LANE
    assert lanes.scheduler.pending == MAX_PER_LANE
    assert lanes.frontier.statistics().leased == MAX_PER_LANE
    assert await drained(lanes) == [str(priority) for priority in reversed(range(4 * MAX_PER_LANE))]
