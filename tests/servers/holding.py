"""A server on loopback that responds to some requests at once and delays the others until it is released."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

__all__ = ["Holding", "serving"]

PAGE = b"<title>a page</title>"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s" % (len(PAGE), PAGE)


class Holding:
    """A running server.

    Attributes:
        url: Its URL without a path.
        asked: The requested paths, in order.
    """

    def __init__(self, at_once: float) -> None:
        self.url = ""
        self.asked: list[str] = []
        self._at_once = at_once
        self._released = trio.Event()
        self._arrived = trio.Condition()

    def release(self) -> None:
        """Respond to the delayed requests and to all further requests."""
        self._released.set()

    async def until_asked(self, times: int) -> None:
        """Wait until this number of requests has arrived. A checkpoint."""
        async with self._arrived:
            while len(self.asked) < times:
                await self._arrived.wait()

    async def converse(self, stream: trio.SocketStream) -> None:
        """Respond to the requests of one connection."""
        text = b""
        try:
            while read := await stream.receive_some():
                text += read
                while b"\r\n\r\n" in text:
                    head, _, text = text.partition(b"\r\n\r\n")
                    await self._note(head.split(b" ", 2)[1].decode("ascii"))
                    if len(self.asked) > self._at_once:
                        await self._released.wait()
                    await stream.send_all(ANSWER)
        except trio.BrokenResourceError:
            return  # the crawl has closed the connection

    async def _note(self, path: str) -> None:
        async with self._arrived:
            self.asked.append(path)
            self._arrived.notify_all()


@asynccontextmanager
async def serving(at_once: float = math.inf) -> AsyncIterator[Holding]:
    """Run a server that responds to the first ``at_once`` requests and delays the others."""
    server = Holding(at_once)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, server.converse, 0)
        port = next(iter(listeners)).socket.getsockname()[1]
        server.url = f"http://127.0.0.1:{port}"
        yield server
        nursery.cancel_scope.cancel()
