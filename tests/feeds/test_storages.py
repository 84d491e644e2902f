"""Files, pipes, devices and a standard output of any kind."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.feeds.fakes import opened
from trawl.blocking import ThreadBlocking
from trawl.errors import FeedError
from trawl.feeds.storages import (
    FileStorage,
    PipeStorage,
    StreamStorage,
    TerminalStorage,
    TextStorage,
    open_standard_output,
    open_storage,
)
from trawl.shutdown import Signals


def write(target: FileStorage | PipeStorage | StreamStorage | TextStorage, position: int, content: bytes) -> int:
    return target.write(position, memoryview(content))


def test_a_file_is_written_at_a_position_and_cut(tmp_path: Path) -> None:
    target = open_storage(tmp_path / "new" / "folder" / "f")
    assert isinstance(target, FileStorage)
    assert target.is_new
    assert write(target, 0, b"abcdef") == 6
    assert write(target, 2, b"X") == 1
    target.cut(4)
    assert target.size == 4
    target.close()
    target.close()
    assert (tmp_path / "new" / "folder" / "f").read_bytes() == b"abXd"


def test_two_crawls_cannot_write_one_file(tmp_path: Path) -> None:
    first = FileStorage(tmp_path / "f")
    with pytest.raises(BlockingIOError, match="another crawl is writing to it"):
        FileStorage(tmp_path / "f")
    first.close()
    FileStorage(tmp_path / "f").close()


def test_a_file_system_without_locks_is_written_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    target = FileStorage(tmp_path / "f")
    assert write(target, 0, b"x") == 1
    target.close()


def test_a_folder_is_no_target(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        open_storage(tmp_path)


def test_a_full_pipe_takes_what_it_has_room_for_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trawl.feeds.storages.PIPE_WAIT", 0.001)
    reading, writing = os.pipe()
    target = StreamStorage(writing, is_owned=True)
    try:
        big = b"x" * (1 << 20)
        taken = write(target, 0, big)
        assert 0 < taken < len(big)
        assert write(target, 0, big) == 0
        assert len(os.read(reading, 1 << 16)) == 1 << 16
        assert write(target, 0, b"y" * 5000) == 5000
    finally:
        target.close()
        target.close()
        os.close(reading)


def test_a_pipe_without_a_reader_is_broken() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    target = StreamStorage(writing, is_owned=True)
    with pytest.raises(BrokenPipeError):
        write(target, 0, b"x")
    target.close()


def test_a_pipe_that_never_blocks_is_waited_for_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trawl.feeds.storages.PIPE_WAIT", 0.001)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    target = StreamStorage(writing, is_owned=True)
    big = b"x" * (1 << 20)
    assert write(target, 0, big) < len(big)
    assert write(target, 0, big) == 0
    target.close()
    os.close(reading)


def reads(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK)


async def test_a_named_pipe_waits_for_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trawl.feeds.storages.PIPE_WAIT", 0.001)
    path = tmp_path / "pipe"
    os.mkfifo(path)
    opened: list[object] = []

    async def open_it() -> None:
        opened.append(await ThreadBlocking().run(open_storage, path))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(open_it)
        await trio.testing.wait_all_tasks_blocked()
        assert opened == []
        reading = reads(path)
    (target,) = opened
    assert isinstance(target, PipeStorage)
    assert write(target, 0, b"x" * 10) == 10
    assert os.read(reading, 100) == b"x" * 10
    target.close()
    target.close()
    os.close(reading)


async def test_waiting_for_the_reader_of_a_named_pipe_can_be_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trawl.feeds.storages.PIPE_WAIT", 0.001)
    os.mkfifo(tmp_path / "pipe")
    with trio.move_on_after(0.02) as scope:
        await ThreadBlocking().run(open_storage, tmp_path / "pipe")
    assert scope.cancelled_caught


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_for_the_reader_of_a_named_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr("trawl.feeds.storages.PIPE_WAIT", 0.001)
    path = tmp_path / "pipe"
    os.mkfifo(path)

    async def main() -> FileStorage | StreamStorage | PipeStorage:
        trio.lowlevel.spawn_system_task(raise_it)
        return await ThreadBlocking().run(open_storage, path)

    async def raise_it() -> None:
        signal.raise_signal(number)

    with Signals():
        target = trio.run(main)
    assert write(target, 0, b"x") == 0  # nobody reads
    reading = reads(path)
    assert write(target, 0, b"x") == 1
    target.close()
    os.close(reading)


def test_a_device_is_a_stream() -> None:
    target = open_storage(Path("/dev/null"))
    assert isinstance(target, StreamStorage)
    assert write(target, 0, b"x" * 10_000) == 10_000
    target.close()


def test_standard_output_sent_to_a_file_is_written_where_it_stands(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb", buffering=0) as file:
        file.write(b"before\n")
        target = StreamStorage(file.fileno(), is_owned=False)
        assert write(target, 0, b"x" * 100_000) == 100_000
        target.close()
        file.write(b"\nafter")
    assert (tmp_path / "out").stat().st_size == 7 + 100_000 + 6


def test_a_closed_standard_output_takes_no_feed_also_after_the_command_has_opened_one_in_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open(os.devnull, "w", encoding="utf-8") as null:
        for stream in (None, null):
            monkeypatch.setattr(sys, "stdout", stream)
            with pytest.raises(FeedError, match="there is no standard output"):
                open_standard_output()


def test_standard_output_comes_after_what_was_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "out").open("w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        print("before")
        target = open_standard_output()
        write(target, 0, b"item\n")
        target.close()
        print("after")
    assert (tmp_path / "out").read_text() == "before\nitem\nafter\n"


def test_a_standard_output_without_a_descriptor_is_written_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (io.TextIOWrapper(io.BytesIO()), io.StringIO()):
        monkeypatch.setattr(sys, "stdout", stream)
        target = open_standard_output()
        assert isinstance(target, TextStorage)
        assert write(target, 0, "é\n".encode()) == 3
        target.close()
        stream.seek(0)
        assert stream.read() == "é\n"


def test_no_standard_output_is_an_error_of_the_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(FeedError, match="feed -: there is no standard output"):
        open_standard_output()


def test_on_a_terminal_the_control_characters_of_pages_are_spelled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    pty = pytest.importorskip("pty")
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        target = open_standard_output()
        assert isinstance(target, TerminalStorage)
        content = "a\x1b]0;owned\x07\x9b31m,\u202eb\r\nnext\tline\n".encode() + b"\xff"
        assert target.write(0, memoryview(content)) == len(content)
        shown = os.read(master, 10_000).decode()
        target.close()
    os.close(master)
    assert shown == "a\\x1b]0;owned\\x07\\x9b31m,\\u202eb\r\nnext\tline\r\n\\xff"


def test_what_a_terminal_has_no_room_for_is_offered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trawl.feeds.storages.PIPE_WAIT", 0.0)
    read, write = os.pipe()
    target = TerminalStorage(write)
    content = ("\x1b" * 100_000 + "\n").encode()
    came = b""
    while not (done := target.write(0, memoryview(content))):
        came += os.read(read, 65_536)
    assert done == len(content)
    os.close(write)
    while more := os.read(read, 65_536):
        came += more
    os.close(read)
    assert came == b"\\x1b" * 100_000 + b"\n"


@pytest.mark.parametrize("name", ["out.jsonl", "out.sqlite", "out.parquet"])
@pytest.mark.parametrize("below", ["", "more"])
async def test_a_file_in_place_of_the_folder_is_told_as_that(tmp_path: Path, name: str, below: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FeedError, match=r"Not a directory"):
        await opened(tmp_path / "file" / below / name)
    assert (tmp_path / "file").read_bytes() == b""
