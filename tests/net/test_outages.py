"""Names that can't be looked up and networks that go away: the crawl goes on with the rest, and loses nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.net.badserver import clock, is_fine, read_request, serving
from tests.net.crawls import crawled
from trawl.errors import ConnectFailed, ConnectTimeout, DownloadError, NameNotResolved, ReadTimeout, ResponseBroken
from trawl.http import Response
from trawl.testing import Outage, SimulatedWeb, simulate
from trawl.transport import resolver
from trawl.transport.resolver import Address

__all__ = ["clock"]

HANGING = 30
"""Names that hang: more than there are threads for look-ups that are waited for."""


@pytest.fixture
def hanging_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of which no name server tells anything, for as long as the test lasts."""
    let_go = threading.Event()

    def hang(host: str, port: int) -> list[Address]:
        let_go.wait(60)
        return []

    monkeypatch.setattr(resolver, "_getaddrinfo", hang)
    yield [f"http://hangs{number}.example/" for number in range(HANGING)]
    let_go.set()


async def test_names_that_hang_end_in_time_and_hold_nobody_up(clock: MockClock, hanging_names: list[str]) -> None:
    async with serving(is_fine) as server:
        fine = [f"{server.url}{number}" for number in range(20)]
        run = await crawled([*hanging_names, *fine])
    assert sorted(url for url, _ in run.pages) == sorted(fine)
    assert max(after for _, after in run.pages) < 5
    assert sorted(failed.url for failed in run.failed) == sorted(hanging_names)
    assert {type(failed.error) for failed in run.failed} == {ConnectTimeout}
    assert {round(failed.after) for failed in run.failed} == {10}
    assert run.result.reason == "finished"


async def test_names_that_hang_are_given_up_after_their_retries_and_the_crawl_ends(
    clock: MockClock, hanging_names: list[str]
) -> None:
    settings = {"RETRY_ENABLED": True, "BACKOFF_EXCEPTIONS": [ConnectFailed, ConnectTimeout], "ROBOTSTXT_OBEY": True}
    run = await crawled(hanging_names, settings)
    assert len(run.failed) == HANGING
    assert run.pages == []
    assert run.result.elapsed < 600
    assert run.result.reason == "finished"


async def test_a_name_without_an_address_is_an_error_of_its_own() -> None:
    # on the real clock: a look-up in a thread may take longer than a clock that jumps would wait for it
    async with serving(is_fine) as server:
        run = await crawled(["http://nowhere.invalid/", server.url])
    assert len(run.pages) == 1
    assert [type(failed.error) for failed in run.failed] == [NameNotResolved]
    assert "the name 'nowhere.invalid' has no address" in str(run.failed[0].error)


ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Blinking:
    """A server that is gone for a while: its port closed, its connections reset.

    Attributes:
        url: Its address.
        answered: Requests that were answered.
    """

    def __init__(self, listener: trio.SocketListener, *, most: int, down: float) -> None:
        self._listener = listener
        self._most = most
        self._down = down
        self._enough = trio.Event()
        self.port: int = listener.socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self.answered = 0

    async def _handle(self, stream: trio.SocketStream) -> None:
        try:
            async with stream:
                while await read_request(stream) is not None:
                    await stream.send_all(ANSWER)
                    self.answered += 1
                    if self.answered == self._most:
                        self._enough.set()
        except trio.BrokenResourceError:
            pass

    async def run(self) -> None:
        """Serve ``most`` requests, be gone for ``down`` seconds, and serve the rest."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, self._handle, [self._listener])
            await self._enough.wait()
            nursery.cancel_scope.cancel()
        await trio.sleep(self._down)
        await trio.serve_tcp(self._handle, self.port, host="127.0.0.1")


async def test_a_server_that_goes_and_comes_back_costs_time_and_no_page(clock: MockClock) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    server = Blinking(listener, most=25, down=45.0)
    settings = {
        "RETRY_ENABLED": True,
        "BACKOFF_EXCEPTIONS": [ConnectFailed, ConnectTimeout, ResponseBroken],
        "DOWNLOAD_DELAY": 0.1,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 4,
    }
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        urls = [f"{server.url}{number}" for number in range(60)]
        run = await crawled(urls, settings)
        nursery.cancel_scope.cancel()
    assert sorted(url for url, _ in run.pages) == sorted(urls)
    assert run.failed == []
    assert run.result.stats["backoff_count"] > 0
    assert run.result.stats.get("retry_max_reached", 0) == 0
    assert run.result.elapsed > 45
    refused = run.result.stats["download_error_count"]
    assert refused < 20  # it backed off: at ten requests a second it would have been 450


class Everywhere(trawl.Spider):
    """Ten pages of each of twenty hosts."""

    name = "everywhere"
    start_urls = tuple(f"http://{host}.example/{page}" for page in range(10) for host in range(20))

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"url": response.url}


@pytest.mark.parametrize(
    "error",
    [ConnectFailed, NameNotResolved, ConnectTimeout, ReadTimeout, ResponseBroken],
    ids=lambda kind: kind.__name__,
)
def test_a_network_that_goes_and_comes_back_costs_time_and_no_page(error: type[DownloadError]) -> None:
    web = SimulatedWeb()
    for host in range(20):
        web.add_host(f"{host}.example", latency=0.2, outages=[Outage(4.0, 300.0, error=error)])
    sim = simulate(Everywhere, web, {"ROBOTSTXT_OBEY": False, "CONCURRENT_REQUESTS": 40})
    assert sorted(item["url"] for item in sim.items) == sorted(Everywhere.start_urls)
    assert sim.stats["download_error_count"] > 0
    assert sim.stats.get("retry_max_reached", 0) == 0
    assert sim.elapsed > 300
