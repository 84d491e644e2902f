"""A small proxy on loopback with forwarding, tunnels (CONNECT) and SOCKS5, which records its requests."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from ipaddress import IPv6Address
from typing import Any

import attrs
import trio

__all__ = ["LoopbackProxy", "proxying"]

GONE = (trio.BrokenResourceError, trio.ClosedResourceError)


@attrs.define
class LoopbackProxy:
    """A running proxy.

    Attributes:
        port: Its port on 127.0.0.1.
        names: Known host names with their ports.
        user: The required credentials, ``user:password``; empty for none.
        answer: The response to all requests; empty for normal operation.
        asked: The requests: ``CONNECT host:port``, ``GET url`` or ``SOCKS host:port``.
        heads: The heads of the HTTP requests that it has read.
        open: Number of open connections.
        connected: Number of connections so far.
    """

    port: int
    names: dict[str, int] = attrs.Factory(dict)
    user: str = ""
    answer: bytes = b""
    asked: list[str] = attrs.Factory(list)
    heads: list[bytes] = attrs.Factory(list)
    open: int = 0
    connected: int = 0

    def url(self, scheme: str = "http", user: str = "") -> str:
        """Return the proxy URL."""
        return f"{scheme}://{user + '@' if user else ''}127.0.0.1:{self.port}"

    async def all_gone(self) -> None:
        """Wait until every connection is closed. Fails after 5 (virtual) seconds."""
        with trio.fail_after(5):
            while self.open:  # noqa: ASYNC110
                await trio.sleep(0.01)

    async def handle(self, stream: trio.abc.Stream) -> None:
        """Serve one connection."""
        self.connected += 1
        self.open += 1
        try:
            first = await stream.receive_some(10_000)
            if self.answer:
                await stream.send_all(self.answer)
                while await stream.receive_some(10_000):
                    pass
            elif first[:1] == b"\x05":
                await self._socks(stream, bytes(first))
            elif first:
                await self._http(stream, bytes(first))
        except GONE:
            pass
        finally:
            self.open -= 1
            await trio.aclose_forcefully(stream)

    async def _http(self, stream: trio.abc.Stream, head: bytes) -> None:
        while head:
            while b"\r\n\r\n" not in head:
                if not (more := await stream.receive_some(10_000)):
                    return
                head += more
            self.heads.append(head)
            method, target = head.split(b" ")[:2]
            self.asked.append(f"{method.decode()} {target.decode()}")
            if self.user and self._credentials(head) != self.user:
                await stream.send_all(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            if method == b"CONNECT":
                host, _, port = target.decode().rpartition(":")
                yes, no = b"HTTP/1.1 200 Connected\r\n\r\n", b"HTTP/1.1 502 No\r\n\r\n"
                await self._tunnel(stream, host, int(port), yes, no)
                return
            await self._forward(stream, head, target.decode())
            head = bytes(await stream.receive_some(10_000))

    def _credentials(self, head: bytes) -> str:
        from base64 import b64decode

        lines = [line for line in head.split(b"\r\n") if line.lower().startswith(b"proxy-authorization: basic ")]
        return b64decode(lines[0].split(b" ")[2]).decode() if lines else ""

    async def _forward(self, stream: trio.abc.Stream, head: bytes, url: str) -> None:
        authority, _, path = url.partition("://")[2].partition("/")
        host, _, port = authority.partition(":")
        lines = head.replace(url.encode(), b"/" + path.encode(), 1).split(b"\r\n")
        kept = [line for line in lines if not line.lower().startswith((b"proxy-authorization:", b"connection:"))]
        kept.insert(1, b"Connection: close")
        try:
            remote = await self._dial(host, int(port or 80))
        except OSError:
            await stream.send_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            return
        async with remote:
            await remote.send_all(b"\r\n".join(kept))
            received = b""
            while not _is_whole(received) and (piece := await remote.receive_some(10_000)):
                received += piece
        await stream.send_all(received)

    async def _socks(self, stream: trio.abc.Stream, greeting: bytes) -> None:
        """Serve a SOCKS5 connection (RFC 1928), with user name and password if required (RFC 1929)."""
        method = 2 if self.user else 0
        if method not in greeting[2:]:
            await stream.send_all(b"\x05\xff")
            return
        await stream.send_all(bytes([5, method]))
        if self.user:
            if not (told := bytes(await stream.receive_some(1000))):
                return
            name = told[2 : 2 + told[1]]
            is_right = name + b":" + told[3 + told[1] :] == self.user.encode()
            await stream.send_all(bytes([1, not is_right]))
            if not is_right:
                return
        wish = bytes(await stream.receive_some(1000))
        if not wish:
            return
        if wish[3] == 1:
            host = ".".join(str(byte) for byte in wish[4:8])
        elif wish[3] == 3:
            host = wish[5 : 5 + wish[4]].decode()
        else:
            host = str(IPv6Address(wish[4:20]))
        port = int.from_bytes(wish[-2:], "big")
        self.asked.append(f"SOCKS {host}:{port}")
        rest = b"\x00\x01\x00\x00\x00\x00\x00\x00"
        await self._tunnel(stream, host, port, b"\x05\x00" + rest, b"\x05\x05" + rest)

    async def _dial(self, host: str, port: int) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self.names.get(host, port))

    async def _tunnel(self, stream: trio.abc.Stream, host: str, port: int, yes: bytes, no: bytes) -> None:
        try:
            remote = await self._dial(host, port)
        except OSError:
            await stream.send_all(no)
            return
        await stream.send_all(yes)

        async def pass_on(source: trio.abc.Stream, sink: trio.abc.Stream) -> None:
            with suppress(*GONE):
                while piece := await source.receive_some(10_000):
                    await sink.send_all(piece)
            nursery.cancel_scope.cancel()

        async with remote, trio.open_nursery() as nursery:
            nursery.start_soon(pass_on, stream, remote)
            nursery.start_soon(pass_on, remote, stream)


def _is_whole(response: bytes) -> bool:
    head, end, body = response.partition(b"\r\n\r\n")
    lengths = [int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    return bool(end) and lengths == [len(body)]


@asynccontextmanager
async def proxying(tls: ssl.SSLContext | None = None, **options: Any) -> AsyncGenerator[LoopbackProxy, None]:
    """Run a proxy while the block runs.

    Args:
        tls: The context of a proxy with TLS; None for a proxy without TLS.
        options: Attributes of :class:`LoopbackProxy`.
    """
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    proxy = LoopbackProxy(listener.socket.getsockname()[1], **options)

    async def handle(plain: trio.SocketStream) -> None:
        await proxy.handle(plain if tls is None else trio.SSLStream(plain, tls, server_side=True))

    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, handle, [listener])
        try:
            yield proxy
        finally:
            nursery.cancel_scope.cancel()
