"""What Python says badly about a callback is told with the line and with what to do."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import pytest
import trio

import trawl
from trawl.engine.watchers import _BlockedLoopDetector, report_blocked_loop
from trawl.testing import SimulatedWeb, simulate


def said_of(kind: type[trawl.Spider], caplog: pytest.LogCaptureFixture) -> str:
    """The one error of a crawl, as it is logged."""
    web = SimulatedWeb()
    web.add_page("http://a.example/", links=["/1"])
    sim = simulate(kind, web, {"ROBOTSTXT_OBEY": False}, errors="collect")
    assert sim.stats["spider_exceptions"] == 1
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    error = record.exc_info[1] if record.exc_info else None
    return f"{record.getMessage()}: {error or ''}"


class Base(trawl.Spider):
    name = "base"
    start_urls = ["http://a.example/"]


class YieldedWhole(Base):
    def parse(self, response: trawl.Response) -> Iterator[Any]:
        yield response.follow_all(css="a")


class Delegated(Base):
    def parse(self, response: trawl.Response) -> Iterator[Any]:
        yield from self.links(response)

    def links(self, response: trawl.Response) -> Iterator[Any]:
        yield [response.follow("/1")]


class YieldedWholeAsync(Base):
    async def parse(self, response: trawl.Response) -> AsyncIterator[Any]:
        yield response.follow_all(css="a")


class Coroutine(Base):
    async def parse(self, response: trawl.Response) -> AsyncIterator[Any]:
        other: Any = self.fetch(trawl.Request("http://a.example/1"))
        try:
            yield {"status": other.status}
        finally:
            other.close()


class Asyncio(Base):
    async def parse(self, response: trawl.Response) -> AsyncIterator[Any]:
        await asyncio.sleep(1)
        yield {}


class Awaited:
    """What a future of asyncio's looks like to Trio; a real one needs a loop, and that a socket."""

    _asyncio_future_blocking = True

    def __await__(self) -> Generator[Any, Any, Any]:
        yield self


class Future(Base):
    async def parse(self, response: trawl.Response) -> AsyncIterator[Any]:
        await Awaited()
        yield {}


class Argumentless(Base):
    def parse(self) -> Iterator[Any]:  # type: ignore[override]
        yield {}


class Parseless(Base):
    pass


HERE = r"test_advice\.py:\d+: "


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (YieldedWhole, rf"{HERE}a callback, .* not generator: .*: `yield from` it, or in an async callback"),
        (Delegated, rf"{HERE}a callback, .* not list: .*: `yield from` it"),
        (YieldedWholeAsync, rf"{HERE}a callback, .* not generator: .* yield each of it in a `for` loop"),
        (Coroutine, rf"{HERE}an `await` is missing before the call that gave the coroutine"),
        (Asyncio, rf"{HERE}a crawl runs on Trio, where asyncio does not work: use trio\.sleep\(\)"),
        (Future, rf"{HERE}a crawl runs on Trio, where asyncio does not work"),
        (Argumentless, rf"{HERE}parse\(\) is called with the response: def parse\(self, response\)"),
        (Parseless, rf"{HERE}Parseless has no parse\(\)"),
    ],
)
def test_an_error_of_a_callback_says_where_and_what_to_do(
    kind: type[trawl.Spider], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert re.search(said, said_of(kind, caplog))


def test_the_line_is_the_one_that_yields(caplog: pytest.LogCaptureFixture) -> None:
    line = Delegated.links.__code__.co_firstlineno + 1
    assert f"test_advice.py:{line}: " in said_of(Delegated, caplog)


def test_an_error_that_says_enough_is_left_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Base):
        def parse(self, response: trawl.Response) -> Any:
            raise TypeError("mine")

    assert said_of(Broken, caplog) == "<GET http://a.example/>: the callback failed: mine"


def test_start_is_told_so_too(caplog: pytest.LogCaptureFixture) -> None:
    class Listing(Base):
        async def start(self) -> AsyncIterator[Any]:
            yield [trawl.Request("http://a.example/")]

    web = SimulatedWeb()
    assert simulate(Listing, web, errors="collect").reason == "start_error"
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    line = Listing.start.__code__.co_firstlineno + 1
    assert f"the others go on: test_advice.py:{line}: a callback, and start(), give requests" in record.getMessage()


# A callback that blocks. In real time: it is a thread that notices.


def blocking(seconds: float) -> None:
    time.sleep(seconds)  # a user's line


async def test_a_line_that_holds_up_the_loop_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    crawl: Any = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(report_blocked_loop, crawl, 0.02)
        await trio.sleep(0.01)
        while not caplog.records:  # a busy machine may not let the thread run meanwhile
            blocking(0.06)
            await trio.lowlevel.checkpoint()
        blocking(0.06)
        await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    (record,) = caplog.records
    line = blocking.__code__.co_firstlineno + 1
    assert record.getMessage().startswith(f"test_advice.py:{line}: `time.sleep(seconds)  # a user's line` holds up")
    assert "await self.crawl.blocking.run(function, argument)" in record.getMessage()


async def test_a_loop_that_goes_round_is_not_spoken_of(caplog: pytest.LogCaptureFixture) -> None:
    crawl: Any = None
    with trio.move_on_after(0.05):
        await report_blocked_loop(crawl, 0.02)
    assert caplog.records == []


def test_a_process_that_was_stopped_blames_no_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    detector = _BlockedLoopDetector(threading.get_ident(), 2.0)
    waits = iter([False, True])  # it looks once, in twenty seconds
    monkeypatch.setattr(detector.is_over, "wait", lambda _: next(waits))
    detector.beat -= 20.0
    detector.run()
    assert caplog.records == []
