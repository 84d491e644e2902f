"""Sockets without Trio's streams around them, and who answers to a name."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from tests.net.badserver import clock, deaf_port
from trawl.errors import ConnectFailed, NameNotResolved
from trawl.transport.http11.network_stream import TcpStream
from trawl.transport.http11.pool import ConnectionFactory, Pool
from trawl.transport.resolver import Address

__all__ = ["clock"]


@asynccontextmanager
async def connected() -> AsyncGenerator[tuple[TcpStream, trio.SocketStream], None]:
    """A wire and the stream at its other end."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    wire = TcpStream(await trio.testing.open_stream_to_socket_listener(listeners[0]))
    stream = await listeners[0].accept()
    async with listeners[0], stream:
        yield wire, stream
    wire.close()


async def test_bytes_go_both_ways_and_an_end_is_empty() -> None:
    async with connected() as (wire, stream):
        assert wire.peer == "127.0.0.1"
        await wire.send(b"question")
        assert await stream.receive_some(100) == b"question"
        await stream.send_all(b"answer")
        assert await wire.receive() == b"answer"
        await stream.aclose()
        assert await wire.receive() == b""


async def test_a_wire_is_quiet_until_something_comes_or_ends() -> None:
    async with connected() as (wire, stream):
        assert wire.is_quiet()
        await stream.send_all(b"unasked")
        await trio.lowlevel.wait_readable(wire._fd)
        assert not wire.is_quiet()
        assert await wire.receive() == b"unasked"
        assert wire.is_quiet()
        await stream.aclose()
        await trio.lowlevel.wait_readable(wire._fd)
        assert not wire.is_quiet()
    assert not wire.is_quiet()


@pytest.mark.parametrize("is_cut", [False, True])
async def test_what_is_not_sent_when_a_wire_is_cut_is_never_sent(is_cut: bool) -> None:
    async with connected() as (wire, stream):
        sent = 0
        while more := wire.send_nowait(bytes(1 << 20)):
            sent += more
        wire.close(is_cut=is_cut)
        received = 0
        try:
            while some := await stream.receive_some(1 << 20):
                received += len(some)
        except trio.BrokenResourceError:
            assert is_cut
        assert (received < sent) is is_cut


async def test_more_than_the_socket_takes_is_sent_as_the_peer_takes_it() -> None:
    sent = bytes(range(256)) * 40_000
    received = bytearray()

    async def take(stream: trio.SocketStream) -> None:
        while len(received) < len(sent):
            received.extend(await stream.receive_some(1_000_000))

    async with connected() as (wire, stream), trio.open_nursery() as nursery:
        with trio.move_on_after(0.01) as scope:
            await wire.send(sent)
        assert scope.cancelled_caught
    async with connected() as (wire, stream), trio.open_nursery() as nursery:
        nursery.start_soon(take, stream)
        await wire.send(sent)
    assert received == sent


async def test_closing_wakes_who_waits_and_is_safe_to_do_twice() -> None:
    async def wait(wire: TcpStream) -> None:
        with pytest.raises(trio.ClosedResourceError):
            await wire.receive()

    async with connected() as (wire, _), trio.open_nursery() as nursery:
        nursery.start_soon(wait, wire)
        await trio.testing.wait_all_tasks_blocked()
        wire.close()
        wire.close()


async def test_a_name_without_an_address_is_told_apart_from_one_where_nobody_answers(clock: MockClock) -> None:
    with deaf_port() as port:
        asked: list[str] = []

        async def resolve(host: str, port: int) -> Sequence[Address]:
            await trio.lowlevel.checkpoint()
            asked.append(host)
            if host == "no.example":
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            return [Address(socket.AF_INET, ("127.0.0.1", port))]

        connect = ConnectionFactory(resolve)
        pool = Pool(keepalive=1.0, max_idle=1)
        with pytest.raises(NameNotResolved, match=r"the name 'no\.example' has no address"):
            await connect(pool.origin("http://no.example"))
        for _ in range(2):
            with pytest.raises(ConnectFailed, match="no connection: Connection refused"):
                await connect(pool.origin(f"http://a.example:{port}"))
        assert asked == ["no.example", "a.example", "a.example"]
