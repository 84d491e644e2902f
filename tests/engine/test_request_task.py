"""The task of a granted request: it can be cancelled before it takes cancels, while it does, and not at all."""

from __future__ import annotations

import trio

import trawl
from trawl.engine.state import RequestTask


def the_task() -> RequestTask:
    return RequestTask(trawl.Request("http://a.example/"))


async def test_a_cancel_ends_the_task_that_takes_cancels() -> None:
    task = the_task()
    with task:
        task.make_cancellable()
        task.cancel()
        await trio.sleep_forever()
    assert task.is_cancelled


async def test_a_cancel_before_the_task_takes_any_is_kept_until_then() -> None:
    task = the_task()
    task.cancel()
    reached = False
    with task:
        await trio.lowlevel.checkpoint()
        reached = True
        task.make_cancellable()
        await trio.sleep_forever()
    assert reached


async def test_a_task_takes_cancels_once() -> None:
    task = the_task()
    with task:
        task.make_cancellable()
        task.make_cancellable()
        task.cancel()
        await trio.sleep_forever()
    await trio.lowlevel.checkpoint()
