"""The engine's hooks of a crawl as a whole: their order, and requests that are given when nothing is pending."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.watched_crawl import crawl_with
from trawl.blocking import InlineBlocking
from trawl.engine import Crawl
from trawl.engine.hooks import Hooks, Store
from trawl.events import Events, ResponseReceived
from trawl.frontier import MemoryFrontier, PushResult, Record
from trawl.http import Request, Response
from trawl.settings import Layer, load
from trawl.testing import SimulatedWeb, Simulation, simulate

HOST = "http://a.example"


class Page(trawl.Spider):
    """One page."""

    name = "page"
    start_urls = (f"{HOST}/0",)

    def parse(self, response: Response, **kwargs: Any) -> Any:
        return {"url": response.url}

    def closed(self, reason: str) -> None:
        Recorded.calls.append("spider.closed")


class Recorded(Hooks):
    """Writes each call down, and gives two more requests."""

    calls: list[str] = []
    more: list[str] = []

    def __init__(self, crawl: Any, check: Any) -> None:
        super().__init__()
        Recorded.calls, Recorded.more = [], [f"{HOST}/1", f"{HOST}/2"]

    def begin(self, events: Events) -> None:
        self.calls.append("begin")
        events.listen(ResponseReceived, lambda event: self.calls.append(event.response.url[-2:]))

    async def opened(self) -> None:
        self.calls.append("opened")

    @property
    def wants_idle(self) -> bool:
        return True

    async def idle(self, store: Store) -> bool:
        self.calls.append("idle")
        await store([Request(self.more.pop(0))])
        return bool(self.more)

    async def closing(self, reason: str) -> None:
        self.calls.append(f"closing {reason}")

    async def closed(self) -> None:
        self.calls.append("closed")


def crawled(monkeypatch: pytest.MonkeyPatch, hooks: type[Hooks]) -> Simulation:
    monkeypatch.setattr("trawl._run.CompatHooks", hooks)
    web = SimulatedWeb()
    web.add_host("a.example")
    return simulate(Page, web, {"ROBOTSTXT_OBEY": False})


def test_hooks_are_called_in_the_order_of_a_crawl(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = crawled(monkeypatch, Recorded)
    ends = ["closing finished", "spider.closed", "closed"]
    assert Recorded.calls == ["begin", "opened", "/0", "idle", "/1", "idle", "/2", *ends]
    assert [item["url"] for item in simulation.items] == [f"{HOST}/{number}" for number in range(3)]


def test_hooks_that_do_nothing_leave_a_crawl_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing(Hooks):
        def __init__(self, crawl: Any, check: Any) -> None:
            super().__init__()

    simulation = crawled(monkeypatch, Nothing)
    assert (len(simulation.items), simulation.reason) == (1, "finished")


class Distant(MemoryFrontier):
    """A frontier that takes a second to store requests."""

    async def push_many(self, records: Sequence[Record]) -> PushResult:
        await trio.sleep(1.0)
        return await super().push_many(records)


async def test_a_crawl_that_is_cancelled_ends_a_hook_that_was_storing_requests(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    went_on: list[bool] = []

    class Stores(Hooks):
        wants_idle = True

        def __init__(self, crawl: Any, check: Any) -> None:
            super().__init__()

        async def idle(self, store: Store) -> bool:
            await store([Request(f"{HOST}/1")])
            went_on.append(True)
            return False

    async def stop(crawl: Crawl) -> None:
        await trio.sleep(3.0)  # the hook is called at 2.5
        crawl.cancel()

    monkeypatch.setattr("trawl._run.CompatHooks", Stores)
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.5)
    run = await crawl_with(
        Page,
        load(Layer("test", {"ROBOTSTXT_OBEY": False})),
        transport=web.transport(),
        blocking=InlineBlocking(),
        frontier=Distant(),
        watchers=[stop],
    )
    assert run.reason == "cancelled"
    assert went_on == []
