"""The site of the histories: many hosts with their own addresses, and a log of the requests with their times.

The site runs in the Trio loop of the test's process. The kernel records the arrival times of requests, so they are
correct even if a busy machine makes the site wait.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from tests.histories.world import World

__all__ = ["Hit", "Site", "serving"]

LATENCY = 0.02
"""Seconds that a response takes."""

SO_TIMESTAMPING = 37
_SOFTWARE = (1 << 3) | (1 << 4)  # SOF_TIMESTAMPING_RX_SOFTWARE, SOF_TIMESTAMPING_SOFTWARE


@attrs.frozen
class Hit:
    """A request that the site received.

    Attributes:
        at: Arrival time, in seconds since the epoch.
        until: Time just before its response was written, or at which its connection closed, in seconds since the
            epoch.
        host: The requested host.
        path: The requested path.
    """

    at: float
    until: float
    host: str
    path: str


class Site:
    """The server of a world.

    Attributes:
        world: The pages.
        hits: The received requests.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.hits: list[Hit] = []
        self._failed: set[tuple[int, str]] = set()

    async def listen(self, host: int, listener: trio.socket.SocketType) -> None:
        """Serve the connections of one host. Does not return."""
        async with trio.open_nursery() as nursery:
            while True:
                connection, _ = await listener.accept()
                nursery.start_soon(self._converse, host, connection)

    async def _converse(self, host: int, connection: trio.socket.SocketType) -> None:
        text = b""
        with connection:
            try:
                while True:
                    read, beside, _, _ = await connection.recvmsg(65536, 256)
                    if not read:
                        return
                    at = _stamp(beside)
                    text += read
                    while b"\r\n\r\n" in text:
                        head, _, text = text.partition(b"\r\n\r\n")
                        await self._answer(host, head.split(b" ", 2)[1].decode("ascii"), at, connection)
            except OSError:
                return  # the client was killed

    async def _answer(self, host: int, path: str, at: float, connection: trio.socket.SocketType) -> None:
        until: float | None = None
        try:
            await trio.sleep(LATENCY)
            text = self._page(host, path)
            until = time.time()  # before the client has it, because a busy machine may make the site wait after that
            while text:
                text = text[await connection.send(text) :]
        finally:
            self.hits.append(Hit(at, until or time.time(), self.world.hosts[host], path))

    def _page(self, host: int, path: str) -> bytes:
        if self.world.fails_first(path) and (host, path) not in self._failed:
            self._failed.add((host, path))
            return b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n"
        target = self.world.target(host, path)
        if target is not None:
            return f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode("ascii")
        links = "".join([f'<a href="{url}">x</a>' for url in self.world.links(host, path)])
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(links)}\r\n\r\n"
        return (head + links).encode("ascii")


def _stamp(beside: Sequence[tuple[int, int, bytes]]) -> float:
    """Return the arrival time from the kernel, or the current time if the kernel has none."""
    for level, kind, data in beside:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPING):
            seconds, nanoseconds = struct.unpack_from("qq", data)
            return float(seconds + nanoseconds / 1e9)
    return time.time()


@asynccontextmanager
async def serving(hosts: Sequence[str], pages: int) -> AsyncIterator[Site]:
    """Serve a site on these addresses of this machine, all on the same port."""
    port, listeners = 0, []
    try:
        for host in hosts:
            listener = trio.socket.socket()
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if sys.platform == "linux":
                listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, _SOFTWARE)  # connections inherit it
            await listener.bind((host, port))
            listener.listen(512)
            port = listener.getsockname()[1]
        site = Site(World(hosts, pages, port))
        async with trio.open_nursery() as nursery:
            for number, listener in enumerate(listeners):
                nursery.start_soon(site.listen, number, listener)
            yield site
            nursery.cancel_scope.cancel()
    finally:
        for listener in listeners:
            listener.close()
