"""The engine's hooks of a crawl as a whole: their order, and requests that are given when nothing is pending."""

from __future__ import annotations

from typing import Any

import pytest

import trawl
from trawl.engine.hooks import Hooks, Store
from trawl.events import Events, ResponseReceived
from trawl.http import Request, Response
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

    def __init__(self, crawl: Any, check: Any, **settings: Any) -> None:
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
        def __init__(self, crawl: Any, check: Any, **settings: Any) -> None:
            super().__init__()

    simulation = crawled(monkeypatch, Nothing)
    assert (len(simulation.items), simulation.reason) == (1, "finished")
