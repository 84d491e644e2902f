"""One callback's outputs are taken in bounded batches."""

from __future__ import annotations

import logging
import math

import pytest
import trio

from trawl.engine.callbacks import BATCH, CallbackOutputs, InvalidOutput
from trawl.engine.items import ItemSender
from trawl.engine.limits import ItemLimit
from trawl.engine.state import State
from trawl.errors import DropItem
from trawl.http import Request, Response
from trawl.observe import Stats
from trawl.pipelines import Pipelines


class Store:
    def __init__(self) -> None:
        self.sizes: list[int] = []

    async def push(self, requests: list[Request], *, depth: int, source: Response | None = None) -> None:
        await trio.lowlevel.checkpoint()
        self.sizes.append(len(requests))


class Still(Store):
    """Stores at once, as a frontier in memory does."""

    async def push(self, requests: list[Request], *, depth: int, source: Response | None = None) -> None:
        self.sizes.append(len(requests))


class Sink:
    """Has room for ``room`` items."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.items: list[object] = []

    def put_nowait(self, item: object, page: str = "") -> None:
        if len(self.items) >= self.room:
            raise trio.WouldBlock
        self.items.append(item)

    async def put(self, item: object, page: str = "") -> None:
        await trio.lowlevel.checkpoint()
        self.items.append(item)

    async def write(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


def unlimited() -> ItemLimit:
    return ItemLimit(math.inf, State(1))


def sender(*sinks: Sink, collected: list[object] | None = None, stats: Stats | None = None) -> ItemSender:
    return ItemSender(Pipelines(), None, sinks, collected, stats or Stats(), unlimited())


async def test_a_million_requests_are_never_held_at_once() -> None:  # C4
    store = Store()
    outputs = CallbackOutputs(sender(), store, 1)
    for i in range(10 * BATCH):
        request = Request(f"http://a.example/{i}")
        if not outputs.take_nowait(request):
            await outputs.take(request)
        assert len(outputs.requests) <= BATCH
    assert store.sizes == [BATCH] * 9
    assert len(outputs.requests) == BATCH


async def test_an_item_waits_when_the_sink_has_no_room() -> None:  # C4
    sink = Sink(room=1)
    collected: list[object] = []
    outputs = CallbackOutputs(sender(sink, collected=collected), Store(), 1)
    assert outputs.take_nowait({"a": 1})
    assert not outputs.take_nowait({"b": 2})
    await outputs.take({"b": 2})
    assert sink.items == collected == [{"a": 1}, {"b": 2}]


async def test_every_sink_gets_every_item() -> None:
    first, second = Sink(room=0), Sink(room=0)
    way = sender(first, second)
    assert not way.put_nowait({"a": 1})
    await way.put({"a": 1})
    assert first.items == second.items == [{"a": 1}]


async def test_a_dropped_item_is_logged_as_it_says(caplog: pytest.LogCaptureFixture) -> None:
    class Strict:
        def process_item(self, item: dict[str, str | int | None], spider: object) -> None:
            raise DropItem("not wanted", log_level=item["level"])

    caplog.set_level(logging.DEBUG, "trawl")
    way = ItemSender(Pipelines([Strict()]), None, (), [], Stats(), unlimited())
    for level in (None, "ERROR", "warning", logging.DEBUG):
        await way.put({"level": level})
    assert [record.levelname for record in caplog.records] == ["INFO", "ERROR", "WARNING", "DEBUG"]


async def test_dropped_and_failing_items_are_counted_and_go_no_further(caplog: pytest.LogCaptureFixture) -> None:
    class Picky:
        def process_item(self, item: dict[str, int], spider: object) -> dict[str, int]:
            if item["n"] == 1:
                raise DropItem("not wanted")
            if item["n"] == 2:
                raise KeyError("bug")
            return {"n": item["n"] * 10}

    caplog.set_level(logging.INFO, "trawl")
    stats, collected = Stats(), list[object]()
    way = ItemSender(Pipelines([Picky()]), None, (), collected, stats, unlimited())
    for n in range(4):
        assert not way.put_nowait({"n": n})
        await way.put({"n": n}, f"http://a.example/{n}" if n == 2 else "")
    assert collected == [{"n": 0}, {"n": 30}]
    assert stats.as_dict() == {"item_dropped_count": 1, "item_error_count": 1, "item_scraped_count": 2}
    assert [record.getMessage() for record in caplog.records] == [
        "item dropped: not wanted (of start())",
        "a pipeline failed on an item of http://a.example/2",
    ]


def test_none_is_nothing_and_anything_else_is_refused() -> None:
    outputs = CallbackOutputs(sender(), Store(), 1)
    assert outputs.take_nowait(None)
    with pytest.raises(InvalidOutput, match="not str"):
        outputs.take_nowait("text")


@pytest.mark.parametrize("output", [{"a": 1}, Request("http://a.example/")])
async def test_a_callback_without_end_lets_others_run_whatever_takes_its_outputs(output: object) -> None:  # C4, C5
    outputs = CallbackOutputs(sender(), Still(), 1)
    has_run = trio.Event()

    async def other() -> None:
        has_run.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        for _ in range(3 * BATCH):
            if not outputs.take_nowait(output):
                await outputs.take(output)
        assert has_run.is_set()
