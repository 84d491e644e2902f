"""What every wire does where a request must not go after all: nothing is sent, and nothing is lost by it."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.net.badserver import Authority, Connection, clock, is_fine, serving
from tests.net.h2server import serving_h2
from tests.net.proxies import proxying
from tests.transport.http11.memory import Servers, transport_to
from tests.transport.test_http2 import fine
from trawl.http import Outcome, Request
from trawl.testing import SimulatedWeb
from trawl.testing.transport import SimulatedTransport
from trawl.transport import Http11Transport, HttpxTransport, Transport, TransportRouter, TransportSettings

__all__ = ["clock"]

KINDS = pytest.mark.parametrize("kind", [Http11Transport, HttpxTransport])
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
SETTINGS = TransportSettings(http2_enabled=True)


async def held(wire: Transport, request: Request) -> Outcome:
    """Ask, and say that it must not go."""
    asked: list[None] = []

    def on_sent() -> bool:
        asked.append(None)
        return True

    outcome = await wire.send(request, on_sent)
    assert asked == [None]
    assert (outcome.response, outcome.error, outcome.sent_at, outcome.first_byte_at) == (None, None, None, None)
    assert outcome.ended_at == trio.current_time()
    return outcome


async def sent(wire: Transport, request: Request) -> bytes:
    outcome = await wire.send(request, lambda: False)
    assert outcome.error is None
    assert outcome.sent_at is not None
    assert outcome.response is not None
    return outcome.response.body


async def test_a_connection_that_nothing_was_sent_on_is_the_next_requests(autojump_clock: MockClock) -> None:
    servers = Servers([[HELLO, HELLO]], connect_seconds=2.0)
    wire = transport_to(servers)
    await held(wire, Request("http://a.example/1"))
    assert trio.current_time() == 2.0
    assert (servers.sent, servers.left_open) == ([b""], 1)
    assert await sent(wire, Request("http://a.example/2")) == b"hello"
    await held(wire, Request("http://a.example/3"))  # on a connection that was there
    assert await sent(wire, Request("http://a.example/4")) == b"hello"
    assert trio.current_time() == 2.0
    assert [line for line in servers.sent[0].split(b"\r\n") if b"HTTP/1.1" in line] == [
        b"GET /2 HTTP/1.1",
        b"GET /4 HTTP/1.1",
    ]
    await wire.aclose()
    assert (servers.opened, servers.left_open) == (1, 0)


async def test_a_cancelled_caller_leaves_the_pool_sound_all_the_same(autojump_clock: MockClock) -> None:
    servers = Servers([[HELLO, HELLO]])
    wire = transport_to(servers)
    with trio.CancelScope() as scope:

        def on_sent() -> bool:
            scope.cancel()
            return True

        await wire.send(Request("http://a.example/1"), on_sent)
    assert servers.left_open == 1
    assert await sent(wire, Request("http://a.example/2")) == b"hello"
    assert servers.opened == 1


@KINDS
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
async def test_a_server_hears_nothing_of_a_request_that_must_not_go(clock: MockClock, kind: Any, tls: bool) -> None:
    authority = Authority()
    async with serving(is_fine, authority.server() if tls else None) as server:
        wire = kind(TransportSettings(), ssl_context=authority.client())
        for number in range(3):
            await held(wire, Request(f"{server.url}held"))
            assert await sent(wire, Request(f"{server.url}{number}")) == b"<title>fine</title>"
        assert [head.split(b" ")[1] for head in server.heads] == [b"/0", b"/1", b"/2"]
        await wire.aclose()
        await server.all_gone()


async def test_over_http_2_the_connection_and_those_who_share_it_go_on(clock: MockClock) -> None:
    authority = Authority()
    async with serving_h2(fine, authority.server()) as server:
        wire = TransportRouter(SETTINGS, ssl_context=authority.client())
        for number in range(3):
            await held(wire, Request(f"{server.url}held"))
            assert await sent(wire, Request(f"{server.url}{number}")) == f"/{number} ".encode()
        await wire.aclose()
        await server.all_gone()
        assert server.connected == 1


@pytest.mark.parametrize("scheme", ["http", "socks5"])
async def test_through_a_proxy_nothing_of_it_is_sent_either(clock: MockClock, scheme: str) -> None:
    async with serving(is_fine) as server, proxying(names={"a.example": server.port}) as proxy:
        wire = TransportRouter(TransportSettings())
        request = Request("http://a.example/", meta={"proxy": proxy.url(scheme)})
        await held(wire, request)
        assert server.heads == []
        assert await sent(wire, request) == b"<title>fine</title>"
        await wire.aclose()
        await proxy.all_gone()


async def test_a_simulated_wire_notes_no_send_and_keeps_the_connection(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.5, connect=2.0)
    wire = SimulatedTransport(web)
    await held(wire, Request("http://a.example/1"))
    assert (trio.current_time(), wire.send_log.rows) == (2.0, [])
    await sent(wire, Request("http://a.example/2"))
    assert trio.current_time() == 2.5
    assert [row.url for row in wire.send_log.rows] == ["http://a.example/2"]


async def early(wire: Transport, request: Request, seconds: float) -> Outcome:
    """Ask so many seconds before it may go."""
    opens_at = None

    def on_sent() -> float | bool:
        nonlocal opens_at
        if opens_at is None:
            opens_at = trio.current_time() + seconds
        return opens_at if trio.current_time() < opens_at else False

    outcome = await wire.send(request, on_sent)
    assert outcome.sent_at == opens_at
    return outcome


@KINDS
async def test_a_request_that_is_early_waits_connected_and_the_wait_counts_for_nothing(
    clock: MockClock, kind: Any
) -> None:
    async with serving(is_fine) as server:
        wire = kind(TransportSettings(download_timeout=1.0, download_read_timeout=1.0))
        for number in range(2):  # on a new connection, and on one that was there
            outcome = await early(wire, Request(f"{server.url}{number}"), 3.0)
            assert outcome.error is None
            assert outcome.response is not None
            assert outcome.latency is not None
            assert outcome.latency < 1.0
        assert [head.split(b" ")[1] for head in server.heads] == [b"/0", b"/1"]
        await wire.aclose()
        await server.all_gone()


async def test_a_request_whose_connection_is_closed_while_it_waits_uses_no_turn(clock: MockClock) -> None:
    async def leaves_soon(connection: Connection) -> None:
        await connection.answer(b"hello")
        await trio.sleep(1.0)
        connection.is_kept = False

    async with serving(leaves_soon) as server:
        wire = Http11Transport(TransportSettings())
        assert await sent(wire, Request(f"{server.url}0")) == b"hello"
        asked: list[float] = []

        def on_sent() -> float | bool:
            asked.append(trio.current_time())
            return asked[0] + 3.0 if len(asked) == 1 else False

        outcome = await wire.send(Request(f"{server.url}1"), on_sent)
        assert outcome.is_deferred
        assert len(asked) == 1
        assert await sent(wire, Request(f"{server.url}2")) == b"hello"
        assert len(server.heads) == 2
        await wire.aclose()
        await server.all_gone()


@pytest.mark.parametrize("waits", [True, False])
async def test_by_httpx_one_whose_new_connection_is_closed_while_it_waits_goes_again(
    clock: MockClock, waits: bool
) -> None:
    connections: list[trio.SocketStream] = []

    async def serve(stream: trio.SocketStream) -> None:
        connections.append(stream)
        if len(connections) == 1:
            if waits:
                await trio.sleep(1.0)
            else:
                await stream.receive_some()
            await stream.aclose()
            return
        await stream.receive_some()
        await stream.send_all(HELLO)

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        wire = HttpxTransport(TransportSettings())
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/"
        asked: list[float] = []

        def on_sent() -> float | bool:
            asked.append(trio.current_time())
            return asked[0] + 3.0 if waits and len(asked) == 1 else False

        outcome = await wire.send(Request(url), on_sent)
        assert (outcome.response is not None) == waits  # cut off after it was read, it may have been acted on
        assert len(asked) == (3 if waits else 1)  # the second send is told of as well
        await wire.aclose()
        nursery.cancel_scope.cancel()


async def test_over_http_2_a_request_that_is_early_gives_its_turn_up(clock: MockClock) -> None:
    authority = Authority()
    async with serving_h2(fine, authority.server()) as server:
        wire = TransportRouter(SETTINGS, ssl_context=authority.client())
        outcome = await wire.send(Request(f"{server.url}0"), lambda: trio.current_time() + 1.0)
        assert outcome.is_deferred
        assert await sent(wire, Request(f"{server.url}1")) == b"/1 "
        await wire.aclose()
        await server.all_gone()
