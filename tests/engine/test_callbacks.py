"""All four kinds of callback, and what may not leak from them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from trawl.engine.callbacks import Shields, consume, leaf_errors, named, without_groups


class Taken:
    """Takes every output; those in ``slow`` need waiting for a second."""

    def __init__(self, *slow: object) -> None:
        self.outputs: list[object] = []
        self.slow = slow

    def take_nowait(self, output: object) -> bool:
        if output in self.slow:
            return False
        self.outputs.append(output)
        return True

    async def take(self, output: object) -> None:
        await trio.sleep(1)
        self.outputs.append(output)


def plain() -> object:
    return {"a": 1}


def several() -> object:
    return [{"a": 1}, {"b": 2}]


def generator() -> Generator[object, None, None]:
    yield {"a": 1}
    yield {"b": 2}


async def asynchronous() -> object:
    await trio.lowlevel.checkpoint()
    return {"a": 1}


async def async_generator() -> AsyncGenerator[object, None]:
    yield {"a": 1}
    await trio.lowlevel.checkpoint()
    yield {"b": 2}


async def returns_generator() -> object:
    return generator()


@pytest.mark.parametrize(
    ("callback", "outputs"),
    [
        (plain, [{"a": 1}]),
        (several, [{"a": 1}, {"b": 2}]),
        (generator, [{"a": 1}, {"b": 2}]),
        (asynchronous, [{"a": 1}]),
        (async_generator, [{"a": 1}, {"b": 2}]),
        (returns_generator, [{"a": 1}, {"b": 2}]),
        (lambda: None, []),
    ],
)
async def test_every_kind_of_callback_gives_its_outputs_in_order(callback: Any, outputs: list[object]) -> None:
    taken = Taken()
    await consume(callback(), taken, Shields())
    assert taken.outputs == outputs


async def test_a_callbacks_deadline_does_not_reach_what_the_engine_awaits(autojump_clock: MockClock) -> None:
    finished: list[bool | str] = []

    async def callback() -> AsyncGenerator[object, None]:
        with trio.move_on_after(0.5) as scope:
            yield "slow"
            await trio.lowlevel.checkpoint()
            finished.append("not cancelled")  # pragma: no cover  # the deadline has passed while the engine waited
        finished.append(scope.cancelled_caught)

    taken = Taken("slow")
    await consume(callback(), taken, Shields())
    assert taken.outputs == ["slow"]
    assert finished == [True]
    assert trio.current_time() == 1


async def test_a_generators_deadline_does_not_reach_the_engine_either(autojump_clock: MockClock) -> None:
    def callback() -> Generator[object, None, None]:
        with trio.move_on_after(0.5):
            yield "slow"

    taken = Taken("slow")
    await consume(callback(), taken, Shields())
    assert taken.outputs == ["slow"]


async def test_cancelling_the_shields_ends_what_waits_under_them(autojump_clock: MockClock) -> None:
    shields = Shields()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(consume, generator(), Taken({"a": 1}), shields)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        shields.cancel()
    assert trio.current_time() == 0


async def test_shields_that_were_cancelled_protect_nothing_any_more() -> None:
    shields = Shields()
    shields.cancel()
    with shields.shielded():
        await trio.sleep_forever()


async def test_a_generator_is_closed_when_an_output_is_refused() -> None:
    closed = []

    class Refusing(Taken):
        def take_nowait(self, output: object) -> bool:
            raise TypeError("not an output")

    def callback() -> Generator[object, None, None]:
        try:
            yield 1
        finally:
            closed.append(True)

    with pytest.raises(TypeError, match="not an output"):
        await consume(callback(), Refusing(), Shields())
    assert closed == [True]


def test_groups_are_unwrapped_to_what_was_raised_in_them() -> None:
    first, second = ValueError("a"), KeyError("b")
    group = BaseExceptionGroup("outer", [ExceptionGroup("inner", [first]), second, GeneratorExit()])
    assert leaf_errors(group) == [first, second]
    assert leaf_errors(first) == [first]


def test_a_callback_is_found_by_its_name_or_the_default() -> None:
    class Spider:
        def parse(self) -> str:
            return "parse"

        def other(self) -> str:
            return "other"

    spider = Spider()
    assert named(spider, None, "parse")() == "parse"
    assert named(spider, "other", "parse")() == "other"
    assert named(spider, spider.other, "parse")() == "other"


async def test_a_group_without_an_error_of_its_own_is_raised_as_it_is() -> None:
    async def closed() -> None:
        await trio.lowlevel.checkpoint()
        raise BaseExceptionGroup("closed", [GeneratorExit()])

    with pytest.raises(BaseExceptionGroup, match="closed"):
        await without_groups(closed())
