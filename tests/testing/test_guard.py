"""A simulated crawl that reaches for the world ends loudly."""

from __future__ import annotations

import contextlib
import importlib
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from trawl.testing import NotSimulated
from trawl.testing.clock import guarded


async def by_trio() -> None:
    await trio.open_tcp_stream("127.0.0.1", 9)


async def by_trio_with_a_name() -> None:
    await trio.open_tcp_stream("localhost", 9)


async def by_trio_socket() -> None:
    trio.socket.socket()


async def by_the_standard_library() -> None:
    socket.create_connection(("127.0.0.1", 9))


async def by_a_name() -> None:
    socket.getaddrinfo("localhost", 80)


async def by_a_thread_of_trio() -> None:
    await trio.to_thread.run_sync(int)


async def by_a_file_in_a_thread() -> None:
    await trio.Path("/").exists()


async def by_a_file_in_a_thread_that_is_there_already() -> None:
    await trio.Path("/").exists()


async def by_a_thread() -> None:
    threading.Thread(target=int).start()


async def by_a_process() -> None:
    subprocess.Popen([sys.executable, "-c", ""])  # noqa: ASYNC220 it never starts


WAYS = [
    by_trio,
    by_trio_with_a_name,
    by_trio_socket,
    by_the_standard_library,
    by_a_name,
    by_a_thread_of_trio,
    by_a_file_in_a_thread,
    by_a_file_in_a_thread_that_is_there_already,
    by_a_thread,
    by_a_process,
]


@pytest.mark.parametrize("touch", WAYS)
async def test_the_world_can_not_be_touched(autojump_clock: MockClock, touch: Callable[[], Awaitable[None]]) -> None:
    if touch is by_a_file_in_a_thread_that_is_there_already:
        await trio.to_thread.run_sync(int)  # Trio keeps a thread for the next one
    with pytest.raises(NotSimulated, match="a simulated crawl would use a real"), guarded():
        await touch()
    assert trio.current_time() == 0.0


async def test_an_error_that_is_caught_on_the_spot_is_raised_at_the_end_and_ends_the_crawl_at_once(
    autojump_clock: MockClock,
) -> None:
    async def careless() -> None:
        with contextlib.suppress(Exception):
            await trio.to_thread.run_sync(int)
        await trio.sleep(1000)

    with pytest.raises(NotSimulated, match=r"a real thread \(int\)"), guarded():
        await careless()
    assert trio.current_time() == 0.0


async def test_an_error_that_a_nursery_wraps_is_raised_bare(autojump_clock: MockClock) -> None:
    with pytest.raises(NotSimulated), guarded():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(by_the_standard_library)


async def test_a_library_may_look_at_its_import_what_sockets_can_do_but_connects_nowhere(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = "import socket\nwith socket.socket() as made:\n    made.bind(('127.0.0.1', 0))\n"
    (tmp_path / "looks_at_sockets.py").write_text(looks)
    (tmp_path / "connects_somewhere.py").write_text("import socket\nsocket.create_connection(('127.0.0.1', 9))\n")
    monkeypatch.syspath_prepend(tmp_path)
    with guarded():
        importlib.import_module("looks_at_sockets")
    with pytest.raises(NotSimulated, match="would use a real"), guarded():
        importlib.import_module("connects_somewhere")


async def test_other_errors_pass() -> None:
    with pytest.raises(KeyError), guarded():
        raise KeyError


async def test_who_is_not_in_the_crawl_is_left_alone() -> None:
    started, done = trio.Event(), trio.Event()

    async def beside() -> None:
        await started.wait()
        assert await trio.to_thread.run_sync(int) == 0
        with trio.socket.socket():
            pass
        done.set()

    original = trio.to_thread.run_sync
    async with trio.open_nursery() as nursery:
        nursery.start_soon(beside)
        with guarded():
            started.set()
            await done.wait()
    assert trio.to_thread.run_sync is original


async def test_guards_side_by_side_leave_trio_as_it_was(autojump_clock: MockClock) -> None:
    original = trio.to_thread.run_sync

    async def run(start: float, end: float) -> None:
        await trio.sleep(start)
        with guarded():
            await trio.sleep(end - start)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, 0, 2)
        nursery.start_soon(run, 1, 3)
        await trio.sleep(2.5)
        assert trio.to_thread.run_sync is not original
    assert trio.to_thread.run_sync is original
    assert await trio.to_thread.run_sync(int) == 0
