"""A job keeps what it is given, and every fault of its directory is one clear error that overwrites nothing."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
import trio

from tests.abandoning import abandon
from trawl.blocking import InlineBlocking, ThreadBlocking
from trawl.clock import WallClock
from trawl.errors import JobError, UsageError
from trawl.frontier import Record
from trawl.frontier.inspect import export_pending, inspect_job
from trawl.frontier.job import Place, Row
from trawl.frontier.job_frontier import JobFrontier, open_frontier
from trawl.frontier.sqlite import SqliteJob, open_job
from trawl.frontier.tables import SCHEMA_VERSION, connect_to_read
from trawl.http import Request

LANE = (("a.example",), "http://a.example")


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no test wait for a database that another program holds."""
    monkeypatch.setattr("trawl.frontier.tables.BUSY_SECONDS", 0.0)


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[SqliteJob]:
    job = await open_job(directory, InlineBlocking())
    try:
        yield job
    finally:
        await job.aclose()


async def frontier_of(job: SqliteJob) -> JobFrontier:
    return await open_frontier(job, object(), WallClock.started(trio.current_time()))


def record(path: str, body: bytes = b"") -> Record:
    return Record(Request(f"http://a.example/{path}", body=body), (("a.example", None),), "http://a.example")


def everything_in(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "lock"}


async def test_what_is_kept_is_there_when_the_job_is_opened_again(tmp_path: Path) -> None:
    async with opened(tmp_path / "new" / "job") as job:
        assert job.is_new
        assert dict(job.kept) == {}
        job.keep("one", b"1")
        job.keep("two", b"2")
        await job.commit()
        job.keep("one", None)
        job.keep("two", b"22")
        assert dict(job.kept) == {"two": b"22"}
    async with opened(tmp_path / "new" / "job") as job:
        assert not job.is_new
        assert dict(job.kept) == {"two": b"22"}


async def test_what_was_kept_after_the_last_transaction_is_lost_by_a_kill_and_nothing_else(tmp_path: Path) -> None:
    job = await open_job(tmp_path, InlineBlocking())
    job.keep("a", b"1")
    await job.commit()
    job.keep("a", b"2")
    abandon(job)
    async with opened(tmp_path) as again:
        assert dict(again.kept) == {"a": b"1"}


async def test_a_hook_is_called_before_each_transaction_and_what_it_keeps_is_in_it(tmp_path: Path) -> None:
    job = await open_job(tmp_path, InlineBlocking())
    calls: list[int] = []

    def hook() -> None:
        calls.append(1)
        job.keep("calls", bytes([len(calls)]))

    job.before_commit(hook)
    await job.commit()
    await job.commit()
    assert await job.outbox_after(0, 1) == []  # reads only
    abandon(job)
    assert len(calls) == 2
    async with opened(tmp_path) as again:
        assert again.kept["calls"] == b"\x02"


async def test_c1_the_outbox_gives_items_in_order_until_they_are_told_to_be_written(tmp_path: Path) -> None:
    async with opened(tmp_path) as job:
        frontier = await frontier_of(job)
        await frontier.push_many([record("1"), record("2"), record("3")])
        first, second, third = await frontier.lease_many(LANE, 3)
        await frontier.spill(second, [b"b1", b"b2"])
        await frontier.spill(third, [b"never"])
        await frontier.acknowledge(first, items=[b"a1", b"a2"])
        await frontier.spill(second, [b"b3"])
        assert job.outbox_end == 2
        await frontier.acknowledge(second, items=[b"b4"])
        await job.give([b"start"])
        expected = [(1, b"a1"), (2, b"a2"), (3, b"b1"), (4, b"b2"), (5, b"b3"), (6, b"b4"), (7, b"start")]
        assert [(one.position, one.item) for one in await job.outbox_after(0, 9)] == expected
        assert [one.position for one in await job.outbox_after(2, 3)] == [3, 4, 5]
        assert await job.outbox_after(7, 9) == []
        assert (job.outbox_start, job.outbox_end) == (0, 7)
        job.outbox_done(5)
        assert job.outbox_start == 5
    async with opened(tmp_path) as job:
        assert (job.outbox_start, job.outbox_end) == (5, 7)
        assert [one.item for one in await job.outbox_after(5, 9)] == [b"b4", b"start"]
        assert await job.outbox_after(7, 9) == []
        job.outbox_done(7)
        await job.commit()
        frontier = await frontier_of(job)
        (again,) = await frontier.lease_many(LANE, 9)  # the third: what it had spilled went with its process
        await frontier.acknowledge(again, items=[b"c1"])
        assert [(one.position, one.item) for one in await job.outbox_after(7, 9)] == [(8, b"c1")]


async def test_items_that_a_lease_spilled_are_gone_when_it_is_given_back(tmp_path: Path) -> None:
    async with opened(tmp_path) as job:
        frontier = await frontier_of(job)
        await frontier.push_many([record("1")])
        (lease,) = await frontier.lease_many(LANE, 1)
        await frontier.spill(lease, [b"half"])
        await frontier.release([lease])
        (lease,) = await frontier.lease_many(LANE, 1)
        await frontier.acknowledge(lease, items=[b"whole"])
        assert [one.item for one in await job.outbox_after(0, 9)] == [b"whole"]


async def test_what_a_killed_process_has_spilled_is_not_in_the_way_of_the_next(tmp_path: Path) -> None:
    job = await open_job(tmp_path, InlineBlocking())
    frontier = await frontier_of(job)
    await frontier.push_many([record("1")])
    (lease,) = await frontier.lease_many(LANE, 1)
    await frontier.spill(lease, [b"half", b"of it"])
    abandon(job)
    async with opened(tmp_path) as job:
        frontier = await frontier_of(job)
        (lease,) = await frontier.lease_many(LANE, 1)
        await frontier.spill(lease, [b"whole"])
        await frontier.acknowledge(lease)
        assert [one.item for one in await job.outbox_after(0, 9)] == [b"whole"]


def of_any_host(path: str, host: str = "a.example", scope: str = "all") -> Record:
    return Record(Request(f"http://{host}/{path}"), ((scope, None),), "")


async def test_the_crawl_continues_with_other_hosts_while_pages_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without robots.txt, any lane may have pages of several hosts, so all lanes are read."""
    async with opened(tmp_path / "job") as job:
        frontier = await frontier_of(job)
        await frontier.push_many([of_any_host("1", "b.example", "b"), of_any_host("2"), of_any_host("3")])
        leases: list[Record] = []
        read_after = job.read_after
        first = job.number_of((("b",), ""))

        async def read_and_lease(lane: int, place: Place | None) -> list[Row]:
            if lane != first and not leases:
                with trio.fail_after(60):
                    leases.extend(await frontier.lease_many((("b",), ""), 9))
            return await read_after(lane, place)

        monkeypatch.setattr(job, "read_after", read_and_lease)
        assert await frontier.drop("a.example", [], lambda *_: None) == 2
        assert [lease.request.url for lease in leases] == ["http://b.example/1"]
        assert frontier.statistics().pending == 0


async def test_a_page_that_is_found_while_pages_are_dropped_is_not_leased_before_it_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Record(Request("http://a.example/found"), (("a.example", None),), "http://a.example")
    leases: list[list[Record]] = []
    async with opened(tmp_path / "job") as job, trio.open_nursery() as nursery:
        frontier = await frontier_of(job)
        await frontier.push_many([of_any_host("1")])
        read_after = job.read_after

        async def read_and_find(lane: int, place: Place | None) -> list[Row]:
            if frontier.lane_of(found.request) is None:
                await frontier.push_many([found])
            return await read_after(lane, place)

        async def lease() -> None:
            leases.append(await frontier.lease_many(found.lane, 9))

        monkeypatch.setattr(job, "read_after", read_and_find)
        await frontier.drop("a.example", [], lambda *_: nursery.start_soon(lease))
        numbers = frontier.statistics()
        assert (numbers.pending, numbers.leased, numbers.lanes) == (0, 0, 0)
    assert leases == [[]]


async def test_a_page_that_ends_while_pages_are_dropped_is_not_dropped_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lane has pages of several hosts. When the lane was read, the page was still leased."""

    async with opened(tmp_path / "job") as job:
        frontier = await frontier_of(job)
        await frontier.push_many([of_any_host("1"), of_any_host("2"), of_any_host("3")])
        leases = await frontier.lease_many((("all",), ""), 1)
        read_after = job.read_after

        async def read_and_end(lane: int, place: Place | None) -> list[Row]:
            rows = await read_after(lane, place)
            if leases:
                await frontier.acknowledge(leases.pop())
            return rows

        monkeypatch.setattr(job, "read_after", read_and_end)
        assert await frontier.drop("a.example", [], lambda *_: None) == 2
        numbers = frontier.statistics()
        assert (numbers.pending, numbers.leased, numbers.lanes) == (0, 0, 0)
        await frontier.push_many([of_any_host("4")])
        assert len(await frontier.lease_many((("all",), ""), 9)) == 1


@pytest.mark.parametrize("position", [-1, 3])
async def test_no_more_can_be_written_than_there_is(tmp_path: Path, position: int) -> None:
    async with opened(tmp_path) as job:
        await job.give([b"1", b"2"])
        with pytest.raises(ValueError, match="the outbox goes from 0 to 2"):
            job.outbox_done(position)


async def test_a_long_outbox_is_read_in_pieces_of_bounded_size(tmp_path: Path) -> None:  # C4
    async with opened(tmp_path) as job:
        for _ in range(8):
            await job.give([bytes(300_000)])
        first = await job.outbox_after(0, 100)  # no longer in memory
        assert [one.position for one in first] == [1, 2, 3, 4]
        assert [one.position for one in await job.outbox_after(5, 100)] == [6, 7, 8]


async def test_a_second_opening_is_refused_with_the_directory_and_the_owner(tmp_path: Path) -> None:
    async with opened(tmp_path):
        with pytest.raises(JobError, match=f"^job {tmp_path}: process {os.getpid()} is using it") as caught:
            await open_job(tmp_path, InlineBlocking())
        assert caught.value.directory == str(tmp_path)
    async with opened(tmp_path):
        pass


HOLDER = """
import sys, time, trio
from trawl.blocking import InlineBlocking
from trawl.frontier.sqlite import SqliteJob, open_job
async def main():
    await open_job(sys.argv[1], InlineBlocking())
    print("open", flush=True)
    sys.stdin.read()
trio.run(main)
"""


async def test_a_second_process_is_refused_and_the_lock_dies_with_its_owner(tmp_path: Path) -> None:
    holder = subprocess.Popen(  # noqa: ASYNC220 - it is waited for a line and an end only
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(JobError, match=f"process {holder.pid} is using it; a job is for one process at a time"):
            await open_job(tmp_path, InlineBlocking())
        holder.kill()
        holder.wait()
    async with opened(tmp_path) as job:
        assert not job.is_new


async def test_a_full_disk_ends_the_writing_and_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    job = await open_job(tmp_path, InlineBlocking())
    frontier = await frontier_of(job)
    await frontier.push_many([record("1"), record("2")])
    first, second = await frontier.lease_many(LANE, 2)
    await job.transactions.execute(lambda connection: connection.execute("PRAGMA max_page_count = 20"), lambda _: None)
    await frontier.acknowledge(first, items=[b"a"])
    with pytest.raises(JobError, match=f"^job {tmp_path}: the disk is full") as caught:
        await frontier.acknowledge(second, [record("child", bytes(200_000))], items=[b"b"])
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    with pytest.raises(JobError, match="the disk is full"):
        await frontier.push_many([record("3")])
    with pytest.raises(JobError, match="the disk is full"):
        await job.commit()
    await frontier.release([second])  # an ending crawl gives back what it has, and closes
    await frontier.aclose()
    await job.aclose()
    assert inspect_job(tmp_path).last_error == "the disk is full. Nothing is lost: free some space and start it again"
    async with opened(tmp_path) as again:
        assert again.last_error == "the disk is full. Nothing is lost: free some space and start it again"
        assert inspect_job(tmp_path).last_error == ""  # it can be written again
        frontier = await frontier_of(again)
        (lease,) = await frontier.lease_many(LANE, 9)
        assert lease.request.url == second.request.url
        assert [one.item for one in await again.outbox_after(0, 9)] == [b"a"]


async def test_one_of_a_batch_that_fails_takes_all_of_it_along(tmp_path: Path) -> None:
    job = await open_job(tmp_path, InlineBlocking())
    frontier = await frontier_of(job)
    await frontier.push_many([record(str(i)) for i in range(5)])
    leases = await frontier.lease_many(LANE, 5)
    await job.transactions.execute(lambda connection: connection.execute("PRAGMA max_page_count = 20"), lambda _: None)
    failures: list[str] = []

    async def acknowledge(lease: Record, body: bytes) -> None:
        try:
            await frontier.acknowledge(lease, [record("child", body)])
        except JobError as error:
            failures.append(str(error))

    async with trio.open_nursery() as nursery:
        for lease in leases:
            nursery.start_soon(acknowledge, lease, bytes(200_000 if lease is leases[2] else 1))
    assert len(failures) == 5
    assert frontier.statistics().leased == 5
    await job.aclose()
    async with opened(tmp_path) as again:
        assert (await frontier_of(again)).statistics().pending == 5


async def test_a_database_that_another_program_holds_is_an_error_and_not_a_wait(tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass
    with closing(sqlite3.connect(tmp_path / "job.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(JobError, match=f"^job {tmp_path}: another program locks its database"):
            await open_job(tmp_path, InlineBlocking())
        other.execute("ROLLBACK")
    async with opened(tmp_path) as job:
        with closing(sqlite3.connect(tmp_path / "job.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(JobError, match="another program locks its database"):
                await job.commit()


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A directory whose permissions count, for root too: what runs in it runs as nobody.

    It is below ``/var/tmp``, which everybody can reach; the folder of temporary files may be root's alone.
    """
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        directory = Path(name)
        directory.chmod(0o777)
        is_root = os.geteuid() == 0
        if is_root:
            os.seteuid(65534)
        try:
            yield directory / "job"
        finally:
            if is_root:
                os.seteuid(0)
            for folder in (directory / "job").rglob(""):
                folder.chmod(0o777)


async def test_a_job_that_can_not_be_written_is_an_error(unprivileged: Path) -> None:
    async with opened(unprivileged) as job:
        await (await frontier_of(job)).push_many([record("1")])
    before = everything_in(unprivileged)
    (unprivileged / "job.db").chmod(0o444)
    with pytest.raises(JobError, match=f"^job {unprivileged}: it can't be written .*permissions"):
        await open_job(unprivileged, InlineBlocking())
    (unprivileged / "lock").chmod(0o444)
    with pytest.raises(JobError, match=f"^job {unprivileged}: it can't be written .*permissions"):
        await open_job(unprivileged, InlineBlocking())
    assert {name: blob for name, blob in everything_in(unprivileged).items() if name in before} == before


async def test_a_directory_that_can_not_be_made_is_an_error(unprivileged: Path) -> None:
    os.mkdir(unprivileged, 0o555)
    with pytest.raises(JobError, match=f"^job {unprivileged / 'sub'}: it can't be written"):
        await open_job(unprivileged / "sub", InlineBlocking())
    with pytest.raises(JobError, match=f"^job {unprivileged}: it can't be written"):
        await open_job(unprivileged, InlineBlocking())


async def test_a_job_at_rest_can_be_looked_at_where_nothing_can_be_written(unprivileged: Path) -> None:
    async with opened(unprivileged) as job:
        await (await frontier_of(job)).push_many([record("1"), record("2")])
    before = everything_in(unprivileged)
    os.chmod(unprivileged, 0o555)
    assert inspect_job(unprivileged).pending == 2
    assert len(list(export_pending(unprivileged))) == 2
    assert everything_in(unprivileged) == before


async def full_job(directory: Path) -> None:
    async with opened(directory) as job:
        frontier = await frontier_of(job)
        await frontier.push_many([record(str(i), bytes(1000)) for i in range(100)])


async def leased_of(directory: Path) -> list[Record]:
    async with opened(directory) as job:
        return await (await frontier_of(job)).lease_many(LANE, 200)


@pytest.mark.parametrize(
    "damage",
    [
        lambda blob: b"garbage, and long enough to be taken for a file of something" * 20,
        lambda blob: b"\x00" * 100 + blob[100:],
        lambda blob: blob[:10_000],
        lambda blob: blob[:4096] + random.Random(7).randbytes(len(blob) - 4096),
        lambda blob: blob[:8192] + b"\xff" * (len(blob) - 8192),
    ],
    ids=["garbage", "no header", "truncated", "noise after the header", "noise after the schema"],
)
async def test_a_damaged_job_is_an_error_and_is_left_as_it_is(tmp_path: Path, damage: object) -> None:
    assert callable(damage)
    await full_job(tmp_path)
    path = tmp_path / "job.db"
    path.write_bytes(damage(path.read_bytes()))
    before = path.read_bytes()
    with pytest.raises(JobError, match=rf"^job {tmp_path}: it is damaged \(.*Nothing was overwritten"):
        await leased_of(tmp_path)
    assert path.read_bytes() == before


async def test_an_empty_database_beside_a_log_with_something_in_it_is_damaged(tmp_path: Path) -> None:
    job = await open_job(tmp_path, InlineBlocking())
    job.keep("a", b"1")
    await job.commit()
    log = (tmp_path / "job.db-wal").read_bytes()
    assert log
    await job.aclose()
    (tmp_path / "job.db").write_bytes(b"")
    (tmp_path / "job.db-wal").write_bytes(log)
    with pytest.raises(JobError, match="it is damaged"):
        await open_job(tmp_path, InlineBlocking())
    assert (tmp_path / "job.db-wal").read_bytes() == log


def changed(directory: Path, *statements: str) -> None:
    with closing(sqlite3.connect(directory / "job.db", isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


async def test_a_job_of_a_newer_version_is_refused_with_both_versions(tmp_path: Path) -> None:
    await full_job(tmp_path)
    changed(tmp_path, f"PRAGMA user_version = {SCHEMA_VERSION + 1}", "CREATE TABLE more (x)")
    before = everything_in(tmp_path)
    message = (
        rf"^job {tmp_path}: a newer trawl wrote it \(version {SCHEMA_VERSION + 1}; this one reads {SCHEMA_VERSION}\)"
    )
    with pytest.raises(JobError, match=message):
        await open_job(tmp_path, InlineBlocking())
    assert everything_in(tmp_path) == before


async def test_a_job_of_an_older_version_goes_on_and_is_one_of_this_version_from_its_first_transaction(
    tmp_path: Path,
) -> None:
    await full_job(tmp_path)
    changed(tmp_path, "PRAGMA user_version = 1", "DELETE FROM state WHERE name IN ('requests', 'seen')")
    job = await open_job(tmp_path, InlineBlocking())
    abandon(job)
    assert version_of(tmp_path) == 1  # nothing was written, so the older trawl can still go on with it
    job = await open_job(tmp_path, InlineBlocking())
    job.keep("some", b"thing")
    await job.aclose()
    assert version_of(tmp_path) == SCHEMA_VERSION == 2


def version_of(directory: Path) -> int:
    with closing(sqlite3.connect(directory / "job.db")) as connection:
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER evil AFTER DELETE ON request BEGIN DELETE FROM request; END",
        "CREATE VIEW evil AS SELECT * FROM kept",
        "DROP TABLE failed",
    ],
)
async def test_tables_that_are_not_ours_to_the_letter_are_refused(tmp_path: Path, statement: str) -> None:
    await full_job(tmp_path)
    changed(tmp_path, statement)
    with pytest.raises(JobError, match="its tables differ from trawl's"):
        await open_job(tmp_path, InlineBlocking())


async def test_a_directory_of_something_else_is_a_wrong_use_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=rf"^job {tmp_path}: it contains other files \(notes\.txt\)"):
        await open_job(tmp_path, InlineBlocking())
    assert os.listdir(tmp_path) == ["notes.txt"]
    with pytest.raises(UsageError, match="it is not a directory"):
        await open_job(tmp_path / "notes.txt", InlineBlocking())
    with pytest.raises(UsageError, match="a part of its path is not a directory"):
        await open_job(tmp_path / "notes.txt" / "job", InlineBlocking())


async def test_a_database_of_something_else_is_a_wrong_use(tmp_path: Path) -> None:
    changed(tmp_path, "CREATE TABLE theirs (x)")
    before = everything_in(tmp_path)
    with pytest.raises(UsageError, match=r"job\.db is not a job of trawl"):
        await open_job(tmp_path, InlineBlocking())
    assert everything_in(tmp_path) == before


async def test_a_job_whose_maker_was_killed_before_its_first_transaction_is_new_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / "job.db").touch()
    async with opened(tmp_path) as job:
        assert job.is_new
    said = f"job {tmp_path}: its job.db is empty, as after a kill before the first write: the job starts again"
    assert caplog.messages == [said]
    async with opened(tmp_path) as job:
        assert not job.is_new
    assert caplog.messages == [said]


async def test_a_failed_opening_gives_the_lock_back(tmp_path: Path) -> None:
    (tmp_path / "job.db").write_bytes(b"garbage" * 1000)
    for _ in range(2):
        with pytest.raises(JobError, match="it is damaged"):
            await open_job(tmp_path, InlineBlocking())


async def test_closing_twice_is_closing_once_and_a_cancelled_closing_closes(tmp_path: Path) -> None:
    job = await open_job(tmp_path, ThreadBlocking())
    job.keep("a", b"1")
    with trio.CancelScope() as scope:
        scope.cancel()
        await job.aclose()
    await job.aclose()
    async with opened(tmp_path) as again:
        assert again.kept["a"] == b"1"


@pytest.mark.skipif(sys.platform == "win32", reason="permissions as Unix has them")
async def test_a_new_job_is_for_its_owner_only(tmp_path: Path) -> None:
    async with opened(tmp_path / "job"):
        assert (tmp_path / "job").stat().st_mode & 0o077 == 0
    shared = tmp_path / "shared"
    shared.mkdir(0o755)
    async with opened(shared):
        assert shared.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(sys.platform == "win32", reason="permissions as Unix has them")
async def test_a_job_that_others_may_read_is_warned_of_and_left_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path / "job"):
        pass
    assert "chmod" not in caplog.text
    (tmp_path / "job").chmod(0o755)
    async with opened(tmp_path / "job"):
        assert (tmp_path / "job").stat().st_mode & 0o777 == 0o755
    assert f"`chmod 700 {tmp_path / 'job'}` prevents that" in caplog.text


async def test_who_looks_at_a_job_at_rest_leaves_no_file_behind(tmp_path: Path) -> None:
    async with opened(tmp_path) as job:
        await (await frontier_of(job)).push_many([record("1")])
    before = everything_in(tmp_path)
    assert list(before) == ["job.db"]
    assert inspect_job(tmp_path).pending == 1
    assert len(list(export_pending(tmp_path))) == 1
    assert everything_in(tmp_path) == before


async def test_who_looks_at_a_job_can_not_change_it(tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass
    with closing(connect_to_read(tmp_path)) as connection, pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("DELETE FROM kept")
