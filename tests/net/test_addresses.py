"""Limits by resolved address over real sockets: where a request is charged is where it goes."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from functools import partial
from typing import Any

import trio

import trawl
from trawl._run import crawl_with
from trawl.settings import Layer, load
from trawl.transport.resolver import Address

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
SETTINGS = {
    "CONCURRENT_REQUESTS_PER_IP": 1,
    "DOWNLOAD_DELAY": 0.0,
    "DOWNLOAD_DELAY_PER_SLOT": 0.0,
    "ROBOTSTXT_OBEY": False,
}


class Server:
    """Answers anything, and notes which names were asked for and how many were asked at once."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.now = self.most = 0

    async def __call__(self, stream: trio.SocketStream) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        head = bytes(await stream.receive_some(65536))
        await trio.sleep(0.005)
        self.names.append(head.lower().partition(b"host: ")[2].partition(b":")[0].decode())
        self.now -= 1
        await stream.send_all(ANSWER)
        await stream.aclose()


class Fickle:
    """A name server with two addresses for every name: the real one first, and from the second question on last."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        await trio.lowlevel.checkpoint()
        addresses = [Address(socket.AF_INET, ("127.0.0.1", port)), Address(socket.AF_INET, ("127.0.0.2", port))]
        if host in self.asked:
            addresses.reverse()
        self.asked.append(host)
        return addresses


async def test_i05_names_of_one_server_share_its_slots_on_the_wire() -> None:
    server, names = Server(), Fickle()
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, server, 0, host="127.0.0.1")
        [listener] = await nursery.start(serve)
        port = listener.socket.getsockname()[1]

        class Shops(trawl.Spider):
            name = "shops"
            start_urls = [f"http://shop{number}.example:{port}/{page}" for number in range(3) for page in range(2)]

            def parse(self, response: trawl.Response, *args: Any, **kwargs: Any) -> Any:
                yield {"url": response.url}

        result = await crawl_with(Shops, load(Layer("test", SETTINGS)), collect=True, resolve=names)
        nursery.cancel_scope.cancel()
    assert result.items is not None
    assert len(result.items) == 6
    assert sorted(server.names) == [f"shop{number}.example" for number in range(3) for _ in range(2)]
    assert server.most == 1
    assert sorted(names.asked) == ["shop0.example", "shop1.example", "shop2.example"]  # once each
