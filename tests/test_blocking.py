"""Blocking work: in threads in a real run, inline in a simulated one."""

from __future__ import annotations

import threading

import pytest
import trio

from trawl.blocking import Blocking, InlineBlocking, ThreadBlocking


@pytest.mark.parametrize(("blocking", "is_thread"), [(ThreadBlocking(), True), (InlineBlocking(), False)])
async def test_work_is_done_and_its_errors_raised(blocking: Blocking, is_thread: bool) -> None:
    for run in (blocking.run, blocking.run_abandonable):
        thread = await run(threading.get_ident)
        assert (thread != threading.get_ident()) is is_thread
        with pytest.raises(ZeroDivisionError):
            await run(divmod, 1, 0)


async def test_an_abandoned_look_up_does_not_hold_up_its_caller() -> None:
    blocking = ThreadBlocking(threads=1)
    hang = threading.Event()
    with trio.move_on_after(0.01):
        await blocking.run_abandonable(hang.wait)
    assert await blocking.run(divmod, 7, 2) == (3, 1)  # the files' thread is free meanwhile
    hang.set()


async def test_work_on_files_is_waited_for_when_it_is_cancelled() -> None:
    blocking = ThreadBlocking()
    done: list[bool] = []

    def write() -> None:
        trio.from_thread.run_sync(scope.cancel)
        done.append(True)

    with trio.CancelScope() as scope:
        await blocking.run(write)
    assert done == [True]
