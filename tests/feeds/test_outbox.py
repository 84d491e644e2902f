"""C7: the items of a job are in its feeds exactly once, in order, whatever ends the process and when."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.feeds.fake_job import FakeJob
from tests.feeds.fakes import READERS, ROWS, STARTED_UTC, FullDisk
from trawl.blocking import InlineBlocking
from trawl.errors import FeedError, ItemLost, JobError
from trawl.feeds import FeedMapping, Feeds, FeedsSettings
from trawl.feeds.files import TextFile
from trawl.feeds.job_item import to_stored
from trawl.feeds.outbox import MAX_BEHIND, OutboxWriter, open_outbox
from trawl.observe import Stats

FORMATS = list(READERS)
EXPORTERS = {
    "csv": "trawl.exporters.CsvItemExporter",
    "json": "trawl.exporters.JsonItemExporter",
    "jsonl": "trawl.exporters.JsonLinesItemExporter",
    "xml": "trawl.exporters.XmlItemExporter",
}


async def outbox_of(job: FakeJob, feeds: Mapping[Path, FeedMapping], **settings: Any) -> OutboxWriter:
    """The outbox of a job whose feeds are these."""
    values = FeedsSettings(feeds={str(path): options for path, options in feeds.items()}, **settings)
    return (await open_outbox(values, InlineBlocking(), job, spider_name="x", started_utc=STARTED_UTC))[1]


def give(job: FakeJob, outbox: OutboxWriter, *items: object) -> None:
    """Acknowledge a request with these items."""
    job.hold(*[outbox.encode(item) for item in items])
    outbox.acknowledged(len(items))


class Killed(BaseException):
    """The process ends here."""


class Mortal(InlineBlocking):
    """Blocking work until a kill: before the ``steps``-th step of it, or half-way through that one's write."""

    def __init__(self, steps: int, *, is_half: bool = False) -> None:
        self.steps = steps
        self.is_half = is_half

    async def run(self, function: Any, *args: Any) -> Any:  # type: ignore[override]  # mypy can't pass Ts on
        await trio.lowlevel.checkpoint()
        self.steps -= 1
        if self.steps <= 0:
            file = getattr(function, "__self__", None)
            if self.is_half and self.steps == 0 and isinstance(file, TextFile) and function == file.write:
                file._storage.write(file._outgoing_at, file._outgoing[: len(file._outgoing) // 2])
            raise Killed
        return function(*args)


async def run_until_killed(job: FakeJob, path: Path, options: FeedMapping, blocking: InlineBlocking) -> bool:
    """Give each row with an acknowledgement of its own, as far as the process comes; whether it came to the end."""
    values = FeedsSettings(feeds={str(path): options})
    try:
        feeds, outbox = await open_outbox(values, blocking, job, spider_name="x", started_utc=STARTED_UTC)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outbox.write)
            for row in ROWS[len(job._items) :]:
                give(job, outbox, row)
                await trio.sleep(1.0)
            outbox.close()
    except BaseExceptionGroup as group:
        if group.subgroup(Killed) is None:
            raise
        let_go(feeds)
        return False
    except Killed:
        return False
    return True


def let_go(feeds: Feeds) -> None:
    """What the system does for a process that was killed: its files are closed as they are."""
    for feed in feeds.all:
        feed.close()


@pytest.mark.long
@pytest.mark.parametrize("is_half", [False, True])
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(("name", "exporter"), [*[(name, None) for name in FORMATS], *EXPORTERS.items()])
async def test_c7_killed_at_any_write_each_item_is_in_the_file_once(
    tmp_path: Path, autojump_clock: MockClock, name: str, exporter: str | None, overwrite: bool, is_half: bool
) -> None:
    options: FeedMapping = {"format": name, "overwrite": overwrite, "exporter": exporter}
    for steps in range(1, 40):
        job, path = FakeJob(), tmp_path / f"{steps}"
        if await run_until_killed(job, path, options, Mortal(steps, is_half=is_half)):
            break
        left = job.killed()
        assert await run_until_killed(left, path, options, InlineBlocking())
        assert READERS[name](path.read_bytes()) == ROWS
    assert steps > 10


async def test_what_was_in_the_file_before_the_job_stays_where_it_is_not_overwritten(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text('{"old": 1}\n{"hal', encoding="utf-8")
    job = FakeJob()
    outbox = await outbox_of(job, {path: {}})
    give(job, outbox, {"a": 1})
    outbox.close()
    await outbox.write()
    assert path.read_text(encoding="utf-8") == '{"old": 1}\n{"a":1}\n'


async def test_a_file_that_was_shortened_is_refused_and_nothing_is_changed(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    path, job = tmp_path / "out.jsonl", FakeJob()
    outbox = await outbox_of(job, {path: {}})
    give(job, outbox, {"a": 1})
    outbox.close()
    await outbox.write()
    path.write_text("", encoding="utf-8")
    with pytest.raises(FeedError, match=r"out.jsonl.*0 bytes, not the 8"):
        await outbox_of(job.killed(), {path: {}})


async def test_marks_that_cannot_be_read_are_an_error_not_a_second_copy(tmp_path: Path) -> None:
    job = FakeJob()
    job.keep("feeds", b"\xffgarbage")
    with pytest.raises(JobError, match="can't be read"):
        await outbox_of(job, {tmp_path / "out.jsonl": {}})
    assert not (tmp_path / "out.jsonl").exists()


async def test_a_table_without_a_header_keeps_its_columns(tmp_path: Path, autojump_clock: MockClock) -> None:
    path, job = tmp_path / "out.csv", FakeJob()
    options: FeedMapping = {"item_export_kwargs": {"include_headers_line": False}}
    for row in ({"a": 1, "b": 2}, {"b": 4, "a": 3}):
        outbox = await outbox_of(job, {path: options})
        give(job, outbox, row)
        outbox.close()
        await outbox.write()
        job = job.killed()
    assert path.read_bytes() == b"1,2\r\n3,4\r\n"


async def test_a_job_that_goes_on_with_an_item_that_has_no_column_loses_that_item_alone(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    path, job = tmp_path / "out.csv", FakeJob()
    outbox = await outbox_of(job, {path: {}})
    give(job, outbox, {"a": 1})
    outbox.close()
    await outbox.write()
    job = job.killed()
    outbox = await outbox_of(job, {path: {}})
    give(job, outbox, {"url": "u"}, {"a": 2})
    outbox.close()
    await outbox.write()
    assert path.read_bytes() == b"a\r\n1\r\n2\r\n"
    assert "it has none of the feed's columns a, but url" in caplog.text


@dataclasses.dataclass
class Quote:
    """An item of a class that one feed asks for."""

    text: str


async def test_feeds_of_one_class_get_its_items_only(tmp_path: Path, autojump_clock: MockClock) -> None:
    job = FakeJob()
    both, quotes = tmp_path / "all.jsonl", tmp_path / "quotes.csv"
    outbox = await outbox_of(job, {both: {}, quotes: {"item_classes": [Quote]}})
    give(job, outbox, Quote("q"), {"text": "dict"})
    outbox.close()
    await outbox.write()
    assert both.read_text(encoding="utf-8").count("\n") == 2
    assert quotes.read_bytes() == b"text\r\nq\r\n"


async def test_a_feed_that_fails_is_told_to_who_acknowledges_and_the_next_run_goes_on(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    path, job = tmp_path / "out.jsonl", FakeJob()
    values = FeedsSettings(feeds={str(path): {}})
    feeds, outbox = await open_outbox(values, InlineBlocking(), job, spider_name="x", started_utc=STARTED_UTC)
    file = feeds.all[0].file
    assert isinstance(file, TextFile)
    file._storage.close()
    file._storage = FullDisk(path, 20)
    async with trio.open_nursery() as nursery:

        async def write() -> None:
            with pytest.raises(FeedError, match="No space left"):
                await outbox.write()

        nursery.start_soon(write)
        give(job, outbox, {"a": 1}, {"b": "x" * 30})
    with pytest.raises(FeedError, match="No space left"):
        await outbox.room()
    again = await outbox_of(job.killed(), {path: {}})
    again.close()
    await again.write()
    assert path.read_text(encoding="utf-8") == '{"a":1}\n{"b":"%s"}\n' % ("x" * 30)


async def test_who_acknowledges_waits_for_feeds_that_are_far_behind(tmp_path: Path, autojump_clock: MockClock) -> None:
    job = FakeJob()
    outbox = await outbox_of(job, {tmp_path / "out.jsonl": {}})
    give(job, outbox, *[{}] * (MAX_BEHIND + 1))
    with trio.move_on_after(60) as waited:
        await outbox.room()
    assert waited.cancelled_caught
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.write)
        await outbox.room()
        outbox.close()
    assert (tmp_path / "out.jsonl").read_bytes().count(b"\n") == MAX_BEHIND + 1


async def test_items_that_cannot_be_written_are_counted_once_and_left_out(tmp_path: Path) -> None:
    stats = Stats()
    values = FeedsSettings(feeds={str(tmp_path / "out.jsonl"): {}})
    feeds, outbox = await open_outbox(
        values, InlineBlocking(), FakeJob(), spider_name="x", started_utc=STARTED_UTC, stats=stats
    )
    with pytest.raises(ItemLost, match="its field 'a': a value of type object has no written form"):
        outbox.encode({"a": object()})
    assert stats.get("feed_item_errors") == 1
    await feeds.aclose()


async def test_feeds_that_a_later_run_is_not_given_are_told_of(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    job = FakeJob()
    outbox = await outbox_of(job, {tmp_path / "out.jsonl": {}})
    outbox.close()
    await outbox.write()
    job.hold(to_stored({"a": 1}))
    await job.commit()
    with caplog.at_level(logging.WARNING):
        outbox = await outbox_of(job.killed(), {})
    assert outbox.is_empty
    assert "out.jsonl is not in the settings of this run" in caplog.text
    assert "1 items wait for a feed" in caplog.text


async def test_items_beyond_a_limit_wait_for_the_next_run_whatever_ends_this_one(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    path = tmp_path / "out.jsonl"
    job = FakeJob()
    values = FeedsSettings(feeds={str(path): {}})
    feeds, outbox = await open_outbox(values, InlineBlocking(), job, spider_name="x", started_utc=STARTED_UTC)
    job.hold(*[to_stored({"n": n}) for n in range(4)])
    outbox.acknowledged(4, withheld=3)
    await job.commit()
    let_go(feeds)
    job = job.killed()
    outbox = await outbox_of(job, {path: {}})
    assert outbox.withheld == 3
    collected: list[object] = []
    outbox.release(2, collected)
    outbox.close()
    await outbox.write()
    assert path.read_text("utf-8") == '{"n":0}\n{"n":1}\n{"n":2}\n'
    assert collected == [{"n": 1}, {"n": 2}]
    outbox = await outbox_of(job.killed(), {path: {}})
    assert outbox.withheld == 1
    outbox.release(1, None)
    outbox.close()
    await outbox.write()
    assert path.read_text("utf-8").endswith('{"n":2}\n{"n":3}\n')


@asynccontextmanager
async def run_of(job: FakeJob, *paths: Path) -> AsyncGenerator[OutboxWriter, None]:
    """The outbox of a run that copies nothing before it is killed."""
    values = FeedsSettings(feeds={str(path): {} for path in paths})
    feeds, outbox = await open_outbox(values, InlineBlocking(), job, spider_name="x", started_utc=STARTED_UTC)
    try:
        yield outbox
    finally:
        let_go(feeds)


async def test_items_that_a_run_has_released_are_not_counted_again_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    async with run_of(job := FakeJob(), path) as outbox:
        job.hold(*[to_stored({"n": n}) for n in range(4)])
        outbox.acknowledged(4, withheld=3)
        await job.commit()
    async with run_of(job := job.killed(), path) as outbox:
        outbox.release(3, None)
        await job.commit()  # with what counts them
    async with run_of(job.killed(), path) as outbox:
        assert outbox.withheld == 0


async def test_items_that_a_kill_has_kept_out_of_the_outbox_are_withheld_from_nobody(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    async with run_of(job := FakeJob(), path) as outbox:
        outbox.acknowledged(5, withheld=1)
        await job.commit()  # another task's; then the process is killed
    async with run_of(job := job.killed(), path) as outbox:
        assert outbox.withheld == 0
        job.hold(*[to_stored({"n": n}) for n in range(5)])
        outbox.acknowledged(5)
        await job.commit()
    async with run_of(job.killed(), path) as outbox:
        assert outbox.withheld == 0


async def test_a_run_without_its_feed_releases_nothing_and_waits_for_nobody(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trawl.feeds.outbox.MAX_BEHIND", 2)
    path = tmp_path / "out.jsonl"
    outbox = await outbox_of(job := FakeJob(), {path: {}})
    outbox.close()
    await outbox.write()
    job.hold(to_stored({"n": 0}))
    outbox.acknowledged(1, withheld=1)
    await job.commit()
    async with run_of(job := job.killed()) as outbox:
        assert outbox.withheld == 0
        job.hold(*[to_stored({"n": n}) for n in range(1, 5)])
        outbox.acknowledged(4)
        with trio.fail_after(60):
            await outbox.room()
        await job.commit()
    async with run_of(job.killed(), path) as outbox:
        assert outbox.withheld == 1


async def test_items_that_wait_for_a_feed_stay_where_a_run_has_none(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "out.jsonl"
    job = FakeJob()
    outbox = await outbox_of(job, {path: {}})
    outbox.close()
    await outbox.write()
    job.hold(to_stored({"a": 1}))
    await job.commit()
    job = job.killed()
    for feeds in ({}, {path: FeedMapping()}):
        outbox = await outbox_of(job, feeds)
        outbox.close()
        await outbox.write()
        job = job.killed()
    assert path.read_text("utf-8") == '{"a":1}\n'
