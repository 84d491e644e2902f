"""A job can be looked at while it is worked on; what failed is queued again; what is pending comes out as lines."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.abandoning import abandon
from trawl.blocking import InlineBlocking
from trawl.clock import WallClock
from trawl.errors import JobError, UsageError
from trawl.frontier import Record
from trawl.frontier.inspect import Failure, export_pending, failures, inspect_job, requeue_failed
from trawl.frontier.job_frontier import JobFrontier, open_frontier
from trawl.frontier.sqlite import SqliteJob, open_job
from trawl.http import Request
from trawl.http.notes import RequestNotes, note, notes_of

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


class MySpider:
    def parse(self, response: object) -> None: ...


SPIDER = MySpider()


async def opened(directory: Path, *, depth_first: bool = False) -> tuple[SqliteJob, JobFrontier]:
    job = await open_job(directory, InlineBlocking())
    wall = WallClock.started(trio.current_time(), NOON)
    try:
        return job, await open_frontier(job, SPIDER, wall, depth_first=depth_first)
    except JobError:
        await job.aclose()
        raise


def record(path: str, host: str = "a.example", scopes: tuple[str, ...] = (), **options: Any) -> Record:
    request = Request(f"http://{host}/{path}", SPIDER.parse, **options)
    return Record(request, tuple((scope, None) for scope in (host, *scopes)), f"http://{host}", b"%16s" % path.encode())


async def test_a_report_tells_what_the_last_transaction_left_while_the_job_is_worked_on(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    job, frontier = await opened(tmp_path)
    await frontier.push_many([record(str(i)) for i in range(5)])
    await frontier.push_many([record("x", "b.example", scopes=("proxy",)), record("y", "b.example", ("proxy",))])
    first, second, _ = await frontier.lease_many((("a.example",), "http://a.example"), 3)
    await frontier.acknowledge(first, items=[b"1", b"2"])
    await frontier.acknowledge(second, failure="it is broken")
    job.keep("mine", b"kept")
    await job.commit()
    report = inspect_job(tmp_path)
    assert report.owner is not None
    assert (report.pending, report.leased, report.failed, report.seen, report.items) == (5, 1, 1, 7, 2)
    assert report.scopes == [("a.example", 3), ("b.example", 2), ("proxy", 2)]
    assert report.oldest_lease is not None
    assert (report.oldest_lease.url, report.oldest_lease.since_utc) == ("http://a.example/2", NOON)
    assert report.kept["mine"] == b"kept"
    assert failures(tmp_path, 9) == [Failure("http://a.example/1", "it is broken")]
    abandon(job)
    report = inspect_job(tmp_path)
    assert (report.owner, report.leased) == (None, 1)


async def test_what_failed_is_queued_again_in_its_old_place_as_if_it_had_never_been_tried(tmp_path: Path) -> None:
    lane = (("a.example",), "http://a.example")
    job, frontier = await opened(tmp_path)
    tried = {"mine": (1, 2), "retry_times": 2, "redirect_times": 1, "redirect_urls": ["http://a.example/0"]}
    first = record("1", meta=tried, cb_kwargs={"t": (1,)}, priority=2)
    note(first.request, refused_at=1.0, is_bad_page=True, is_uncounted=True, session="anna")
    await frontier.push_many([first, record("2"), record("3")])
    one, _, three = await frontier.lease_many(lane, 3)
    await frontier.acknowledge(three, failure="timed out")
    await frontier.acknowledge(one, failure="timed out")
    with pytest.raises(JobError, match="is using it"):
        requeue_failed(tmp_path, NOON)
    await job.aclose()
    assert requeue_failed(tmp_path, NOON) == 2
    assert requeue_failed(tmp_path, NOON) == 0
    job, frontier = await opened(tmp_path)
    leases = await frontier.lease_many(lane, 9)
    assert [lease.request.url[-1] for lease in leases] == ["1", "2", "3"]
    request = leases[0].request
    assert request.meta == {"mine": (1, 2)}
    assert request.cb_kwargs == {"t": (1,)}
    # a host that was given up is asked again (B20)
    assert notes_of(request) == RequestNotes(admitted_at=NOON.timestamp(), session="anna")
    assert inspect_job(tmp_path).failed == 0
    await job.aclose()


async def test_a_reason_may_hold_whatever_a_server_sent(tmp_path: Path) -> None:
    job, frontier = await opened(tmp_path)
    await frontier.push_many([record("1")])
    (lease,) = await frontier.lease_many((("a.example",), "http://a.example"), 1)
    await frontier.acknowledge(lease, failure="bad header: \x00 \udcff")
    await job.aclose()
    assert [failure.reason for failure in failures(tmp_path, 1)] == ["bad header: \x00 \\udcff"]


@pytest.mark.parametrize("depth_first", [False, True])
async def test_a_request_that_failed_in_an_earlier_process_never_stands_in_the_way_of_a_later_one(
    tmp_path: Path, depth_first: bool
) -> None:
    for i in range(3):
        job, frontier = await opened(tmp_path, depth_first=depth_first)
        await frontier.push_many([record(str(i))])
        (lease,) = await frontier.lease_many((("a.example",), "http://a.example"), 1)
        await frontier.acknowledge(lease, failure="timed out")
        await job.aclose()
    assert inspect_job(tmp_path).failed == 3


async def test_what_is_pending_comes_out_as_lines_of_json(tmp_path: Path, autojump_clock: MockClock) -> None:
    job, frontier = await opened(tmp_path)
    odd = record("2", meta={(1, 2): {3}, "big": 2**70, "when": NOON}, body=b"\xff", method="POST")
    odd.not_before = trio.current_time() + 60.0
    await frontier.push_many([record("1", priority=5), odd])
    await frontier.push_many([record(str(i)) for i in range(3, 1500)])
    lines = [json.loads(line) for line in export_pending(tmp_path)]
    assert [line["url"].rsplit("/")[-1] for line in lines] == [str(i) for i in range(1, 1500)]
    assert lines[0] == {
        "url": "http://a.example/1",
        "method": "GET",
        "priority": 5,
        "depth": 0,
        "callback": "parse",
        "scopes": ["a.example"],
    }
    assert lines[1]["meta"] == {"(1, 2)": [3], "big": 2**70, "when": "2026-06-01T12:00:00Z"}
    assert (lines[1]["body"], lines[1]["not_before"]) == ("/w==", "2026-06-01T12:01:00Z")
    await job.aclose()


@pytest.mark.parametrize("look", [inspect_job, lambda path: list(export_pending(path)), lambda path: failures(path, 1)])
def test_where_there_is_no_job_nothing_is_made(tmp_path: Path, look: Any) -> None:
    with pytest.raises(UsageError, match=f"^job {tmp_path}: there is no job in this directory"):
        look(tmp_path)
    with pytest.raises(UsageError, match="there is no job"):
        requeue_failed(tmp_path, NOON)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_job_is_an_error_to_who_looks(tmp_path: Path) -> None:
    (tmp_path / "job.db").write_bytes(b"garbage" * 1000)
    with pytest.raises(JobError, match=f"^job {tmp_path}: it is damaged"):
        inspect_job(tmp_path)


async def test_a_record_that_is_none_is_an_error_to_who_looks(tmp_path: Path) -> None:
    job, frontier = await opened(tmp_path)
    await frontier.push_many([record("1")])
    await job.transactions.execute(
        lambda connection: connection.execute("UPDATE request SET record = x'c1'"), lambda _: None
    )
    await job.aclose()
    with pytest.raises(JobError, match=f"^job {tmp_path}: it is damaged \\(its content can't be read"):
        list(export_pending(tmp_path))
    with pytest.raises(JobError, match=f"^job {tmp_path}: its request 1 can't be used"):
        await opened(tmp_path)
