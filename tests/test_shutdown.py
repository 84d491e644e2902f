"""What signals do to a crawl, one by one; tests/servers sends them to a process."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from trawl._run import crawl_with
from trawl.blocking import InlineBlocking
from trawl.http import Request, Response
from trawl.settings import Layer, load
from trawl.shutdown import Signals
from trawl.testing import SimulatedWeb

FREE = {"DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0, "ROBOTSTXT_OBEY": False}
NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _handlers_are_put_back() -> Iterator[None]:
    before = [signal.getsignal(number) for number in NUMBERS]
    yield
    assert [signal.getsignal(number) for number in NUMBERS] == before


class Slow(trawl.Spider):
    """Pages of ten seconds; what ``script`` says is raised, each at its time."""

    name = "slow"
    script: tuple[tuple[float, signal.Signals], ...] = ()

    async def start(self) -> AsyncGenerator[Any, None]:
        for number in range(5):
            yield Request(f"http://a.example/{number}")
        for at, received in self.script:
            await trio.sleep(at - self.crawl.elapsed)
            signal.raise_signal(received)
        await trio.sleep_forever()

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"url": response.url}


async def crawled(*script: tuple[float, signal.Signals], spider: type[trawl.Spider] = Slow) -> trawl.CrawlResult:
    web = SimulatedWeb()
    web.add_host("a.example", latency=10.0)
    return await crawl_with(
        spider,
        load(Layer("test", FREE)),
        spider_args={"script": script},
        transport=web.transport(),
        blocking=InlineBlocking(),
        collect=True,
        handle_signals=True,
    )


@pytest.mark.parametrize("number", NUMBERS)
async def test_the_first_lets_what_is_in_flight_end(number: signal.Signals, autojump_clock: MockClock) -> None:
    result = await crawled((15.0, number))
    assert result.reason == "shutdown"
    assert len(result.items or ()) == 2
    assert result.elapsed == pytest.approx(20.0)


async def test_callbacks_that_are_waited_for_are_told(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Busy(Slow):
        async def parse(self, response: Response, **kwargs: Any) -> Any:
            await trio.sleep(100.0)
            yield {"url": response.url}

    result = await crawled((15.0, signal.SIGINT), spider=Busy)
    assert result.reason == "shutdown"
    words = "SIGINT: sending nothing new, waiting for 1 in flight and 1 in callbacks; send it again to stop at once"
    assert words in caplog.messages


async def test_the_second_cancels(autojump_clock: MockClock) -> None:
    class Shielded(Slow):
        async def start(self) -> AsyncGenerator[Any, None]:
            yield Request("http://a.example/0")
            self.crawl.stats.set("signalled", True)
            await trio.sleep(15)
            signal.raise_signal(signal.SIGTERM)

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            with trio.CancelScope(shield=True):
                await trio.sleep(8)
            signal.raise_signal(signal.SIGINT)
            await trio.sleep_forever()

    result = await crawled(spider=Shielded)
    assert result.reason == "cancelled"
    assert result.elapsed == pytest.approx(18.0)


async def test_a_terminal_that_says_twice_that_it_is_closed_does_not_cancel(autojump_clock: MockClock) -> None:
    class Twice(Slow):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGHUP)
            yield {"url": response.url}

    result = await crawled(spider=Twice)
    assert result.reason == "shutdown"
    # A signal is heard at the loop's next turn: by then the next page may be on its way, and is waited for.
    assert len(result.items or ()) in (1, 2)


async def test_one_that_comes_before_the_crawl_ends_it_as_it_begins(autojump_clock: MockClock) -> None:
    with Signals():
        signal.raise_signal(signal.SIGTERM)
        await trio.sleep(0.1)
        result = await crawled()
    assert result.reason == "cancelled"
    assert "request_count" not in result.stats


def test_one_that_comes_when_no_loop_runs_interrupts_the_program() -> None:
    for number in NUMBERS:
        with Signals(), pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)


async def test_a_callback_that_never_ends_is_interrupted_by_the_second(autojump_clock: MockClock) -> None:
    class Computes(Slow):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            signal.raise_signal(signal.SIGINT)  # the loop does not hear it
            while True:
                signal.raise_signal(signal.SIGINT)

    with Signals(deaf=0.0), pytest.raises(KeyboardInterrupt):
        await crawled(spider=Computes)


async def test_two_that_come_at_once_are_both_heard(autojump_clock: MockClock) -> None:
    class Both(Slow):
        async def parse(self, response: Response, **kwargs: Any) -> Any:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            await trio.sleep_forever()

    with Signals(deaf=math.inf):
        result = await crawled(spider=Both)
    assert result.reason == "cancelled"


def test_what_is_ignored_because_of_nohup_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_have_no_signals() -> None:
    before = signal.getsignal(signal.SIGTERM)  # whoever measures coverage has one
    seen: list[Any] = []

    def enter() -> None:
        with Signals():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [before]
