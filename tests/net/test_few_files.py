"""A process that may open few files (``ulimit -n 64``) loses no page, and blames no host."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.net.badserver import BadServer, Connection, clock, serving
from tests.net.crawls import AT_ONCE
from trawl._run import crawl_with
from trawl.address_guard import AddressGuard
from trawl.http import Response
from trawl.settings import Layer, load
from trawl.transport import Http11Transport, HttpxTransport, TransportRouter, TransportSettings
from trawl.transport import connect as dialling
from trawl.transport.resolver import Address

__all__ = ["clock"]

HOSTS = 30
FILES = 7


@attrs.define
class Files:
    """Opens connections as long as there are fewer than ``most``, and says EMFILE then, as the system does.

    (The system's own limit would hold for the server of the test as well, which is in this process.)
    """

    server: BadServer
    most: int = FILES
    refusals: int = 0
    _made: int = 0

    async def connected(self, address: Address, *options: object) -> trio.SocketStream:
        open_now = self.server.open + self._made - self.server.connected
        if open_now >= self.most:
            self.refusals += 1
            await trio.lowlevel.checkpoint()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self._made += 1
        return await trio.open_tcp_stream("127.0.0.1", self.server.port)


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Callable[[BadServer], Files]:
    def made(server: BadServer) -> Files:
        files = Files(server)
        monkeypatch.setattr(dialling, "_connected", files.connected)
        return files

    return made


def spider_of(server: BadServer, failed: list[Any]) -> type[trawl.Spider]:
    class Pages(trawl.Spider):
        name = "pages"
        start_urls = [f"http://host{number}.example:{server.port}/" for number in range(HOSTS)]

        async def start(self) -> AsyncIterator[Any]:
            for url in self.start_urls:
                yield trawl.Request(url, errback=self.fail)

        def parse(self, response: Response) -> Any:
            return {"url": response.url}

        def fail(self, error: Exception) -> None:
            failed.append(error)

    return Pages


async def resolve(host: str, port: int) -> Sequence[Address]:
    await trio.lowlevel.checkpoint()
    return [Address(socket.AF_INET, ("127.0.0.1", port))]


async def is_kept(connection: Connection) -> None:
    connection.is_kept = True
    await connection.answer(b"<p>fine</p>", "200 OK")


async def is_slow(connection: Connection) -> None:
    connection.is_kept = True
    await trio.sleep(3)
    await connection.answer(b"<p>fine</p>", "200 OK")


@pytest.mark.parametrize("transport", [Http11Transport, HttpxTransport, TransportRouter])
@pytest.mark.parametrize(("answer", "at_once"), [(is_kept, 2), (is_slow, 16)], ids=["idle connections", "all in use"])
async def test_no_page_is_lost_and_no_host_is_blamed(
    clock: MockClock, limited: Callable[[BadServer], Files], transport: Any, answer: Any, at_once: int
) -> None:
    failed: list[Any] = []
    settings = {"CONCURRENT_REQUESTS": at_once, "BACKOFF_EXCEPTIONS": ["trawl.exceptions.DownloadError"]}
    async with serving(answer) as server:
        wire = transport(TransportSettings(), resolve=resolve, guard=AddressGuard(True))
        files = limited(server)
        result = await crawl_with(
            spider_of(server, failed), load(Layer("test", AT_ONCE | settings)), collect=True, transport=wire
        )
        await wire.aclose()
    assert files.refusals
    assert failed == []
    assert len(result.items or ()) == HOSTS
    assert result.stats.get("download_error_count", 0) == 0
    assert result.stats.get("backoff_count", 0) == 0
    assert result.stats["request_count"] == HOSTS


async def test_one_transport_makes_room_for_the_other(clock: MockClock, limited: Callable[[BadServer], Files]) -> None:
    async with serving(is_kept) as server:
        limited(server).most = 1
        wire = TransportRouter(TransportSettings(), resolve=resolve, guard=AddressGuard(True))
        for number, meta in enumerate(({"proxy": server.url}, {}, {"proxy": server.url}, {})):
            request = trawl.Request(f"http://host{number}.example:{server.port}/", meta=meta)
            for _ in range(10):  # until the server has seen that the idle connection is closed
                outcome = await wire.send(request, lambda: None)
                if outcome.response is not None:
                    break
            assert outcome.response is not None
            assert outcome.error is None
        await wire.aclose()
