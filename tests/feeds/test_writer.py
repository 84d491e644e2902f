"""All feeds of a crawl and the one task that writes them."""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.feeds.fakes import STARTED_UTC, Slow, opened, started, write_all
from trawl.blocking import InlineBlocking, ThreadBlocking
from trawl.errors import FeedError, ItemLost
from trawl.feeds import FeedMapping, FeedOptions, Feeds, FeedsSettings, open_feeds
from trawl.feeds.writer import BUFFER_BYTES, FEEDS_CLOSE_GRACE, FLUSH_INTERVAL
from trawl.observe import Stats

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Counting(InlineBlocking):
    """Blocking work inline; counts the calls, and can stand still."""

    def __init__(self) -> None:
        self.calls = 0
        self.is_free = trio.Event()
        self.is_free.set()

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        await self.is_free.wait()
        self.calls += 1
        return await super().run(function, *args)


def on_stream(stream: Slow, blocking: InlineBlocking | None = None, name: str = "jsonl") -> Feeds:
    return Feeds([started(FeedOptions(uri="-", format=name), stream)], blocking or InlineBlocking())


async def test_several_feeds_are_written_at_once_as_the_crawl_runs(autojump_clock: MockClock, tmp_path: Path) -> None:
    paths = [tmp_path / f"out.{name}" for name in ("jsonl", "json", "csv", "xml")]
    settings = FeedsSettings(feeds={str(path): {"overwrite": True} for path in paths})
    feeds = await open_feeds(settings, InlineBlocking(), spider_name="q", started_utc=STARTED_UTC)
    assert not feeds.is_empty
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feeds.write)
        for number in range(3):
            feeds.put_nowait({"n": number})
            await trio.sleep(1)
            assert json.loads(paths[1].read_bytes()) == [{"n": n} for n in range(number + 1)]
        feeds.close()
    assert [len(path.read_bytes().splitlines()) for path in paths] == [3, 5, 4, 6]
    assert [(feed.uri, feed.records) for feed in feeds.all] == [(str(path), 3) for path in paths]


async def test_items_gather_for_one_interval_and_are_written_in_one_piece(autojump_clock: MockClock) -> None:
    stream, blocking = Slow(most=10_000), Counting()
    feeds = on_stream(stream, blocking)
    await feeds.start()
    blocking.calls = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feeds.write)
        for number in range(100):
            await feeds.put({"n": number})
        assert stream.content == b""
        await trio.sleep(FLUSH_INTERVAL * 1.5)
        assert stream.content.count(b"\n") == 100
        assert blocking.calls == 1
        await trio.sleep(60)  # with nothing to write, the writer sleeps
        assert blocking.calls == 1
        feeds.close()


async def test_the_writer_does_not_run_while_nothing_comes(autojump_clock: MockClock) -> None:
    steps = 0

    class Steps(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            nonlocal steps
            steps += 1

    feeds = on_stream(Slow())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feeds.write)
        await wait_all_tasks_blocked()
        instrument = Steps()
        trio.lowlevel.add_instrument(instrument)
        await trio.sleep(3600)
        trio.lowlevel.remove_instrument(instrument)
        feeds.close()
    assert steps < 5


async def test_what_waits_is_bounded_and_a_full_buffer_is_written_at_once_c4(autojump_clock: MockClock) -> None:
    stream, blocking = Slow(most=1 << 30), Counting()
    feeds = on_stream(stream, blocking)
    item = {"text": "x" * (BUFFER_BYTES // 4)}
    put = 0

    async def put_many() -> None:
        nonlocal put
        for _ in range(40):
            await feeds.put(item)
            put += 1
        feeds.close()

    blocking.is_free = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feeds.write)
        nursery.start_soon(put_many)
        await wait_all_tasks_blocked()
        assert put <= 9  # two buffers: one that is written, one that gathers
        with pytest.raises(trio.WouldBlock):
            feeds.put_nowait(item)
        assert trio.current_time() < FLUSH_INTERVAL
        blocking.is_free.set()
    assert stream.content.count(b"\n") == 40
    assert trio.current_time() < 2 * FLUSH_INTERVAL


async def test_put_is_a_checkpoint_and_a_cancelled_one_gives_nothing() -> None:
    stream = Slow()
    feeds = on_stream(stream)
    with trio.testing.assert_checkpoints():
        await feeds.put({"n": 1})
    with trio.CancelScope() as scope:
        scope.cancel()
        await feeds.put({"n": 2})
    await write_all(feeds, [])
    assert stream.content == b'{"n":1}\n'


async def test_an_item_that_cannot_be_written_is_logged_and_counted_and_harms_no_other_c9(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream, stats = Slow(), Stats()
    feeds = Feeds([started(FeedOptions(uri="-", format="jsonl"), stream)], InlineBlocking(), stats)
    feeds.put_nowait({"n": 1})
    with pytest.raises(ItemLost, match="its field 'n': a value of type object has no written form"):
        feeds.put_nowait({"n": object()}, "http://a.example/")
    feeds.put_nowait({"n": 3})
    await write_all(feeds, [])
    assert stream.content == b'{"n":1}\n{"n":3}\n'
    assert stats.get("feed_item_errors") == 1
    assert caplog.messages == [
        "feed -: an item of type dict from http://a.example/ is left out: its field 'n': a value of type object has no"
        " written form"
    ]


async def test_after_the_feeds_are_closed_nothing_is_taken() -> None:
    feeds = on_stream(Slow())
    feeds.close()
    with pytest.raises(ValueError, match="the feeds are closed"):
        feeds.put_nowait({"n": 1})
    await feeds.write()


async def test_a_feed_that_fails_ends_the_writer_and_the_others_are_whole(tmp_path: Path) -> None:
    bad = Slow()
    good = await opened(tmp_path / "out.json")
    feeds = Feeds([started(FeedOptions(uri="-", format="jsonl"), bad), *good.all], InlineBlocking())
    bad.error = OSError(errno.ENOSPC, "No space left on device")
    feeds.put_nowait({"n": 1})
    with pytest.raises(FeedError, match="feed -: No space left on device"):
        await feeds.write()
    assert json.loads((tmp_path / "out.json").read_bytes()) == [{"n": 1}]
    assert bad.is_closed
    with pytest.raises(FeedError, match="feed -"):
        feeds.put_nowait({"n": 2})
    with pytest.raises(FeedError, match="feed -"):
        await feeds.put({"n": 2})


async def test_those_that_wait_for_room_hear_of_the_failure(autojump_clock: MockClock) -> None:
    stream, blocking = Slow(), Counting()
    feeds = on_stream(stream, blocking)
    blocking.is_free = trio.Event()
    stream.error = BrokenPipeError(errno.EPIPE, "Broken pipe")
    heard: list[FeedError] = []

    async def put_for_ever() -> None:
        try:
            while True:
                await feeds.put({"text": "x" * BUFFER_BYTES})
        except FeedError as error:
            heard.append(error)

    async def write() -> None:
        with pytest.raises(FeedError):
            await feeds.write()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        nursery.start_soon(put_for_ever)
        await wait_all_tasks_blocked()
        blocking.is_free.set()
    assert [error.uri for error in heard] == ["-"]


async def test_a_second_feed_that_fails_meanwhile_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    streams = [Slow(), Slow()]
    feeds = Feeds(
        [started(FeedOptions(uri=f"{n}", format="jsonl"), stream) for n, stream in enumerate(streams)], InlineBlocking()
    )
    for stream in streams:
        stream.error = BrokenPipeError(errno.EPIPE, "Broken pipe")
    feeds.put_nowait({"n": 1})
    with pytest.raises(FeedError, match="feed 0: its reader has closed it"):
        await feeds.write()
    assert "feed 1: its reader has closed it" in caplog.text


async def test_the_end_of_a_feed_that_fails_is_an_error_too() -> None:
    stream = Slow()
    feeds = on_stream(stream, name="json")
    stream.error = BrokenPipeError(errno.EPIPE, "Broken pipe")
    feeds.close()
    with pytest.raises(FeedError):
        await feeds.write()


async def test_a_cancelled_crawl_still_writes_what_it_has_and_the_end_c5(tmp_path: Path) -> None:
    feeds = await opened(tmp_path / "out.json")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feeds.write)
        await wait_all_tasks_blocked()
        feeds.put_nowait({"n": 1})
        nursery.cancel_scope.cancel()
    assert json.loads((tmp_path / "out.json").read_bytes()) == [{"n": 1}]


async def test_a_reader_that_does_not_read_holds_up_a_cancelled_crawl_for_a_limited_time_c5(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Waits(InlineBlocking):
        async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
            await trio.sleep(0.1)  # what a real write to a full pipe takes
            return function(*args)

    stream = Slow()
    stream.is_stalled = True
    feeds = on_stream(stream, Waits())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feeds.write)
        feeds.put_nowait({"n": 1})
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert trio.current_time() == pytest.approx(1 + FEEDS_CLOSE_GRACE)
    assert stream.is_closed
    assert "feed -: its end could not be written within 5 s and is missing" in caplog.text


async def test_a_reader_that_pauses_at_the_end_of_a_crawl_is_waited_for(autojump_clock: MockClock) -> None:
    class Waits(InlineBlocking):
        async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
            await trio.sleep(0.1)
            return function(*args)

    stream = Slow(most=1000)
    stream.is_stalled = True
    feeds = on_stream(stream, Waits(), "json")
    feeds.put_nowait({"n": 1})
    feeds.close()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feeds.write)
        await trio.sleep(100)
        stream.is_stalled = False
    assert json.loads(stream.content) == [{"n": 1}]


async def test_feeds_of_a_crawl_that_never_started_are_closed(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    async with await opened(path) as feeds:
        feeds.put_nowait({"n": 1})
    assert json.loads(path.read_bytes()) == [{"n": 1}]
    await write_all(await opened(path), [{"n": "2"}])  # it is free again


async def test_if_one_feed_cannot_be_opened_none_is_changed(tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_bytes(b'[\n{"a":1}\n]\n')
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "other.json").write_bytes(b"{}")
    for bad, why in (("folder.csv", "Is a directory"), ("other.json", "it contains no array")):
        feeds: dict[str, FeedMapping] = {
            str(old): {"overwrite": True},
            str(new): {},
            str(tmp_path / bad): {},
        }
        with pytest.raises(FeedError, match=rf"feed .*{bad}: .*{why}"):
            await open_feeds(FeedsSettings(feeds=feeds), InlineBlocking(), spider_name="q", started_utc=STARTED_UTC)
        assert old.read_bytes() == b'[\n{"a":1}\n]\n'
        assert not new.exists()


async def test_a_file_that_another_crawl_writes_is_refused(tmp_path: Path) -> None:
    async with await opened(tmp_path / "out.json"):
        with pytest.raises(FeedError, match=r"out\.json: another crawl is writing to it"):
            await opened(tmp_path / "out.json")


async def test_a_device_that_is_full_is_an_error_of_the_feed() -> None:
    feeds = await opened("/dev/full", format="json")
    feeds.put_nowait({"n": 1})
    with pytest.raises(FeedError, match="feed /dev/full: No space left on device"):
        await feeds.write()


async def test_a_device_that_is_full_at_the_start_is_an_error_of_the_feed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: object, position: int, content: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("trawl.feeds.storages.FileStorage.write", full)
    feeds = await opened(tmp_path / "out.json")
    with pytest.raises(FeedError, match="No space left on device"):
        await feeds.write()
    monkeypatch.undo()
    async with await opened(tmp_path / "out.json"):  # the lock was given back
        pass


async def test_standard_output_is_written_in_threads_and_its_closed_pipe_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream, os.fdopen(reading, "rb") as reader:
        monkeypatch.setattr(sys, "stdout", stream)
        settings = FeedsSettings(feeds={"-:csv": {}})
        feeds = await open_feeds(settings, ThreadBlocking(), spider_name="q", started_utc=STARTED_UTC)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(feeds.write)
            feeds.put_nowait({"n": 1})
            feeds.close()
        assert os.read(reading, 100) == b"n\r\n1\r\n"
        feeds = await open_feeds(settings, ThreadBlocking(), spider_name="q", started_utc=STARTED_UTC)
        reader.close()
        feeds.put_nowait({"n": 1})
        with pytest.raises(FeedError, match="feed -: its reader has closed it"):
            await feeds.write()


async def test_without_feeds_items_are_nowhere_and_nothing_fails() -> None:
    feeds = await open_feeds(FeedsSettings(), InlineBlocking(), spider_name="q", started_utc=STARTED_UTC)
    assert feeds.is_empty
    feeds.put_nowait({"n": 1})
    await write_all(feeds, [{"n": "2"}])
    assert feeds.all == ()


async def test_the_end_of_a_feed_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "trawl.feeds"):
        await write_all(await opened(tmp_path / "out.csv"), [{"n": "1"}])
    assert caplog.messages == [f"feed {tmp_path / 'out.csv'}: 1 items written as csv"]


async def test_feeds_whose_crawl_is_cancelled_as_it_begins_are_closed(tmp_path: Path) -> None:
    feeds = await opened(tmp_path / "out.jsonl")
    with trio.CancelScope() as scope:
        scope.cancel()
        async with feeds:
            await trio.sleep_forever()
    await write_all(await opened(tmp_path / "out.jsonl"), [{"n": "1"}])  # refused, were it open


async def test_an_item_for_which_a_table_has_no_column_is_in_the_other_feeds_and_lost_where_there_is_none(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    table, lines = tmp_path / "out.csv", tmp_path / "out.jsonl"
    table.write_bytes(b"a\r\n1\r\n")
    settings = FeedsSettings(feeds={str(lines): {}, str(table): {}})
    both = await open_feeds(settings, InlineBlocking(), spider_name="q", started_utc=STARTED_UTC)
    await write_all(both, [{"url": "u"}, {"a": "2"}])
    assert (table.read_bytes(), lines.read_bytes()) == (b"a\r\n1\r\n2\r\n", b'{"url":"u"}\n{"a":"2"}\n')
    alone = await opened(table)
    with pytest.raises(ItemLost, match="none of the feed's columns a, but url"):
        alone.put_nowait({"url": "u"})
    await write_all(alone, [{"a": "3"}])
    assert table.read_bytes() == b"a\r\n1\r\n2\r\n3\r\n"


@pytest.mark.parametrize("name", ["json", "jsonl", "csv", "xml", "sqlite"])
async def test_feeds_that_were_opened_and_never_started_leave_all_as_it_was(
    name: str, autojump_clock: MockClock, tmp_path: Path
) -> None:
    old, new = tmp_path / f"old.{name}", tmp_path / f"new.{name}"
    await write_all(await opened(old), [{"a": "1"}])
    before = old.read_bytes()
    for path in (old, new):
        async with await opened(path, overwrite=True):
            assert old.read_bytes() == before
    assert (old.read_bytes(), new.exists()) == (before, False)


async def test_what_was_put_before_they_were_started_is_written_when_they_are_closed(tmp_path: Path) -> None:
    async with await opened(tmp_path / "out.jsonl", overwrite=True) as feeds:
        feeds.put_nowait({"a": 1})
    assert (tmp_path / "out.jsonl").read_bytes() == b'{"a":1}\n'
