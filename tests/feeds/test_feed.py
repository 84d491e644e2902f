"""One feed: batches, positions, failures in the middle."""

from __future__ import annotations

import errno
import io
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

import attrs
import pytest
import trio

from tests.feeds.fakes import READERS, ROWS, STARTED_UTC, FullDisk, Slow, started
from trawl.blocking import InlineBlocking
from trawl.errors import FeedError
from trawl.feeds import FeedOptions
from trawl.feeds.feed import Feed
from trawl.feeds.storages import FileStorage

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

BLOCKING = InlineBlocking()


def options(path: Path | str, name: str = "jsonl", **changes: Any) -> FeedOptions:
    return attrs.evolve(FeedOptions(uri=str(path), format=name), **changes)


@pytest.mark.parametrize("name", READERS)
async def test_after_each_flush_the_file_parses_and_the_position_is_known_c7(name: str, tmp_path: Path) -> None:
    path = tmp_path / "out"
    feed = started(options(path, name), FileStorage(path))
    style_closing = {"json": b"\n]\n", "xml": b"\n</items>\n"}.get(name, b"")
    for count in range(1, len(ROWS) + 1):
        feed.add(ROWS[count - 1])
        await feed.flush(BLOCKING)
        content = path.read_bytes()
        assert READERS[name](content) == ROWS[:count]
        assert feed.state.position == len(content) - len(style_closing)
    await feed.finish(BLOCKING)
    assert path.read_bytes() == content
    assert (feed.records, feed.format) == (len(ROWS), name)


class Adding(InlineBlocking):
    """Blocking work during which one more item comes, for twenty times."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.left = 20

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        result = await super().run(function, *args)
        if self.left:
            self.left -= 1
            self.feed.add({"n": self.left})
        return result


@pytest.mark.parametrize(
    ("uri", "name", "batch", "written"),
    [("o", "jsonl", 0, 1), ("o", "sqlite", 0, 1), ("o%(batch)d", "jsonl", 1, 2)],
)
async def test_what_comes_while_a_feed_writes_waits_for_its_next_turn(
    uri: str, name: str, batch: int, written: int, tmp_path: Path
) -> None:
    feed = Feed(options(tmp_path / uri, name, batch_items=batch), started_utc=STARTED_UTC)
    feed.open()
    feed.locate()
    feed.start()
    for number in range(written):
        feed.add({"n": number})
    await feed.flush(Adding(feed))
    assert feed.records == written
    await feed.finish(BLOCKING)
    assert feed.records > written


@pytest.mark.parametrize("step", ["flush", "sync"])
async def test_a_flush_after_a_cancelled_one_writes_all_that_was_added_before_it(step: str) -> None:
    class Interrupted(Slow):
        def write(self, position: int, content: memoryview) -> int:
            scope.cancel()
            return super().write(position, content)

    scope = trio.CancelScope()
    stream = Interrupted(most=3)
    feed = started(FeedOptions(uri="-", format="jsonl"), stream)
    feed.add({"n": 1})
    with scope:
        await feed.flush(BLOCKING)
    assert scope.cancelled_caught
    feed.add({"n": 2})
    await getattr(feed, step)(BLOCKING)
    assert stream.content == b'{"n":1}\n{"n":2}\n'


async def test_a_feed_parses_before_its_first_item_c7(tmp_path: Path) -> None:
    feed = started(options(tmp_path / "out", "json"), FileStorage(tmp_path / "out"))
    assert json.loads((tmp_path / "out").read_bytes()) == []
    feed.close()


@pytest.mark.parametrize("name", READERS)
async def test_a_full_disk_is_an_error_that_names_the_feed_and_leaves_whole_records_c7(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / "out"
    target = FullDisk(path, 10_000)
    feed = started(options(path, name), target)
    feed.add(ROWS[0])
    await feed.flush(BLOCKING)
    before = path.read_bytes()
    target.room = len(before) + 5
    feed.add(ROWS[1])
    with pytest.raises(FeedError, match="No space left on device") as caught:
        await feed.flush(BLOCKING)
    assert str(caught.value) == f"feed {path}: No space left on device"
    assert caught.value.uri == str(path)
    assert path.read_bytes() == before
    await feed.finish(BLOCKING)
    assert READERS[name](path.read_bytes()) == ROWS[:1]


async def test_a_disk_with_no_room_for_the_brackets_is_told_at_the_start(tmp_path: Path) -> None:
    target = FullDisk(tmp_path / "out", 2)
    with pytest.raises(FeedError, match="No space left"):
        started(options(tmp_path / "out", "json"), target)
    target.close()


async def test_a_file_that_cannot_even_be_cut_back_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "out"
    target = FullDisk(path, 10_000)
    feed = started(options(path, "json"), target)
    target.room = 0
    feed.add(ROWS[0])
    with pytest.raises(FeedError):
        await feed.flush(BLOCKING)
    assert "the partial record at its end can't be removed" in caplog.text
    feed.close()


@pytest.mark.parametrize("name", READERS)
async def test_a_stream_gets_the_same_bytes_as_a_file(name: str, tmp_path: Path) -> None:
    stream = Slow()
    streamed = started(options("-", name), stream)
    filed = started(options(tmp_path / "out", name), FileStorage(tmp_path / "out"))
    for feed in (streamed, filed):
        for row in ROWS:
            feed.add(row)
            await feed.flush(BLOCKING)
        await feed.finish(BLOCKING)
    assert stream.content == (tmp_path / "out").read_bytes()
    assert stream.is_closed


async def test_a_broken_pipe_is_an_error_of_the_feed() -> None:
    stream = Slow()
    feed = started(options("-"), stream)
    stream.error = BrokenPipeError(errno.EPIPE, "Broken pipe")
    feed.add({"a": 1})
    with pytest.raises(FeedError, match="feed -: its reader has closed it"):
        await feed.flush(BLOCKING)


async def test_the_end_of_a_stream_that_broke_is_an_error_of_the_feed() -> None:
    stream = Slow()
    feed = started(options("-", "json"), stream)
    stream.error = BrokenPipeError(errno.EPIPE, "Broken pipe")
    with pytest.raises(FeedError):
        await feed.finish(BLOCKING)
    assert stream.is_closed


@pytest.mark.parametrize("name", READERS)
async def test_a_flush_that_is_cancelled_goes_on_from_the_same_byte(name: str) -> None:
    class Interrupted(Slow):
        def write(self, position: int, content: memoryview) -> int:
            scope.cancel()  # heard at the next checkpoint, before the next write
            return super().write(position, content)

    stream = Interrupted(most=3)
    feed = started(options("-", name), stream)
    for row in ROWS:
        feed.add(row)
    cancelled = 0
    while not stream.is_closed:
        with trio.CancelScope() as scope:
            await feed.finish(BLOCKING)
        cancelled += scope.cancelled_caught
    assert cancelled == -(len(stream.content) // -3) or name in ("json", "xml")
    assert READERS[name](stream.content) == ROWS


async def test_a_short_write_to_a_file_that_is_cancelled_goes_on_from_the_same_byte(tmp_path: Path) -> None:
    class Short(FileStorage):
        def write(self, position: int, content: memoryview) -> int:
            if position:
                scope.cancel()
            return super().write(position, content[:5])

    scope = trio.CancelScope()
    feed = started(options(tmp_path / "out"), Short(tmp_path / "out"))
    feed.add({"a": "long enough"})
    with scope:
        await feed.flush(BLOCKING)
    assert scope.cancelled_caught
    feed.add({"a": "and another"})
    await feed.finish(BLOCKING)
    assert (tmp_path / "out").read_bytes() == b'{"a":"long enough"}\n{"a":"and another"}\n'


async def test_an_item_is_written_as_it_was_when_it_was_added() -> None:
    stream = Slow()
    feed = started(options("-"), stream)
    item = {"n": 1}
    feed.add(item)
    item["n"] = 2
    feed.add(item)
    await feed.finish(BLOCKING)
    assert stream.content == b'{"n":1}\n{"n":2}\n'


async def test_only_the_wanted_fields_are_written_under_the_wanted_names() -> None:
    stream = Slow()
    feed = started(options("-", fields=(("b", "B"), ("a", "a"))), stream)
    feed.add({"a": 1, "b": 2, "c": 3})
    feed.add({"c": 3, "b": 4})
    await feed.finish(BLOCKING)
    assert stream.content == b'{"B":2,"a":1}\n{"B":4}\n'


async def test_a_field_without_a_column_is_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    stream = Slow()
    feed = started(options("-", "csv"), stream)
    with caplog.at_level(logging.WARNING, "trawl.feeds"):
        for row in ({"a": 1}, {"a": 2, "late": 3}, {"a": None, "late": 4}, {"a": 5, "later": 6}):
            feed.add(row)
            await feed.flush(BLOCKING)
    await feed.finish(BLOCKING)
    assert stream.content == b"a\r\n1\r\n2\r\n\r\n5\r\n".replace(b"\r\n\r\n", b'\r\n""\r\n')
    assert [message.split(" has ")[0] for message in caplog.messages] == [
        "feed -: field 'late'",
        "feed -: field 'later'",
    ]


async def test_fields_that_were_left_out_on_purpose_are_not_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    feed = started(options("-", "csv", fields=(("a", "a"),)), Slow())
    feed.add({"a": 1, "b": 2})
    assert caplog.messages == []


async def test_the_first_item_with_a_field_tells_the_columns() -> None:
    stream = Slow()
    feed = started(options("-", "csv"), stream)
    with pytest.raises(ValueError, match="it has no field"):
        feed.add({})
    with pytest.raises(ValueError, match="its field 'b'"):
        feed.add({"b": object()})
    await feed.flush(BLOCKING)
    feed.add({"a": 1})
    await feed.finish(BLOCKING)
    assert stream.content == b"a\r\n1\r\n"


async def test_an_item_that_has_none_of_the_columns_is_refused_and_the_file_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_bytes(b"a,b\r\n1,2\r\n")
    feed = started(options(path, "csv"), FileStorage(path))
    for item in ({}, {"url": "u", "title": "t"}):
        with pytest.raises(ValueError, match=r"has none of the feed's columns a,b, but (no fields|url,title);"):
            feed.add(item)
    feed.close()
    assert path.read_bytes() == b"a,b\r\n1,2\r\n"


async def test_a_table_is_continued_by_items_that_have_some_of_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_bytes(b"a,b\r\n1,2\r\n")
    feed = started(options(path, "csv"), FileStorage(path))
    feed.add({"b": 4, "c": 5})
    await feed.finish(BLOCKING)
    assert path.read_bytes() == b"a,b\r\n1,2\r\n,4\r\n"


async def test_only_items_of_the_wanted_classes_are_written() -> None:
    @attrs.define
    class Book:
        title: str

    stream = Slow()
    feed = started(options("-", item_classes=(Book,)), stream)
    assert feed.add({"title": "no"}) == 0
    assert feed.add(Book("yes")) > 0
    await feed.finish(BLOCKING)
    assert stream.content == b'{"title":"yes"}\n'


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("jsonl", b""),
        ("json", b"[\n]\n"),
        ("csv", b""),
        ("xml", b'<?xml version="1.0" encoding="utf-8"?>\n<items>\n</items>\n'),
    ],
)
async def test_a_feed_without_items_is_a_document_without_items(name: str, content: bytes, tmp_path: Path) -> None:
    stream = Slow()
    await started(options("-", name), stream).finish(BLOCKING)
    assert stream.content == content
    await started(options(tmp_path / "out", name), FileStorage(tmp_path / "out")).finish(BLOCKING)
    assert (tmp_path / "out").read_bytes() == content


async def test_a_table_without_items_has_its_header_if_the_columns_are_known(tmp_path: Path) -> None:
    feed = started(options(tmp_path / "out", "csv", fields=(("a", "a"),)), FileStorage(tmp_path / "out"))
    await feed.finish(BLOCKING)
    assert (tmp_path / "out").read_bytes() == b"a\r\n"


async def test_a_feed_without_items_leaves_nothing_where_that_is_wanted(tmp_path: Path) -> None:
    stream = Slow()
    await started(options("-", "json", store_empty=False), stream).finish(BLOCKING)
    assert stream.content == b""
    new, old, kept = tmp_path / "new", tmp_path / "old", tmp_path / "kept"
    for path in (old, kept):
        path.write_bytes(b'[\n{"a":1}\n]\n')
    for path, overwrite in ((new, False), (old, True), (kept, False)):
        feed = started(options(path, "json", store_empty=False, overwrite=overwrite), FileStorage(path))
        await feed.finish(BLOCKING)
    assert [path.exists() for path in (new, old, kept)] == [False, False, True]
    assert json.loads(kept.read_bytes()) == [{"a": 1}]


async def test_a_file_that_cannot_be_read_is_an_error_of_the_feed(tmp_path: Path) -> None:
    class Unreadable(FileStorage):
        def reader(self) -> io.BufferedReader:
            raise OSError(errno.EIO, "Input/output error")

    target = Unreadable(tmp_path / "out")
    with pytest.raises(FeedError, match="out: Input/output error"):
        started(options(tmp_path / "out"), target)
    target.close()
