from __future__ import annotations

import gzip
import logging
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from tests.net.badserver import BEHAVIOURS, Authority, Connection, clock, is_fine, serving
from trawl.errors import (
    BodyTooLarge,
    ConnectFailed,
    ConnectTimeout,
    DownloadTimeout,
    NameNotResolved,
    ReadTimeout,
    ResponseBroken,
    UnsupportedScheme,
)
from trawl.http import Outcome, Request, Response
from trawl.transport import HttpxTransport, TransportSettings
from trawl.transport.resolver import Address

__all__ = ["clock"]


def nothing() -> None:
    """Nobody wants to know that it was sent."""


@asynccontextmanager
async def transport_of(settings: TransportSettings | None = None) -> AsyncGenerator[HttpxTransport, None]:
    transport = HttpxTransport(settings or TransportSettings())
    try:
        yield transport
    finally:
        await transport.aclose()


async def ask(request: Request, settings: TransportSettings | None = None) -> Outcome:
    async with transport_of(settings) as transport:
        return await transport.send(request, nothing)


async def answer(request: Request, settings: TransportSettings | None = None) -> Response:
    outcome = await ask(request, settings)
    assert outcome.error is None
    assert outcome.response is not None
    return outcome.response


async def test_a_page_comes_whole_with_all_that_is_known_of_it(clock: MockClock) -> None:
    async with serving(is_fine) as server:
        request = Request(server.url + "path?q=1#top", headers={"X-Mine": "1"})
        response = await answer(request)
    assert (response.status, response.body, response.url) == (200, b"<title>fine</title>", server.url + "path?q=1")
    assert response.request is request
    assert response.headers["content-type"] == "text/html"
    assert (response.ip_address, response.protocol, response.flags) == ("127.0.0.1", "HTTP/1.1", [])
    lines = server.heads[0].split(b"\r\n")
    assert lines[0] == b"GET /path?q=1 HTTP/1.1"
    assert lines[1] == f"Host: 127.0.0.1:{server.port}".encode()
    assert b"X-Mine: 1" in lines
    assert b"Accept-Encoding: gzip, deflate, br, zstd" in lines


async def test_the_instants_of_an_exchange_are_told(clock: MockClock) -> None:
    async def slow(connection: Connection) -> None:
        await trio.sleep(2)
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
        await trio.sleep(3)
        await connection.send(b"ok")
        connection.is_kept = True

    sent_at: list[float] = []
    async with serving(slow) as server, transport_of() as transport:
        await trio.sleep(10)
        outcome = await transport.send(Request(server.url), lambda: sent_at.append(trio.current_time()))
        assert sent_at == [10.0]
        assert (outcome.started_at, outcome.sent_at, outcome.first_byte_at, outcome.ended_at) == (10, 10, 12, 15)
        assert outcome.latency == 2.0
        assert outcome.response is not None
        assert outcome.response.latency == 2.0


async def test_a_request_is_sent_when_its_connection_is_there_not_before(clock: MockClock) -> None:
    class Slow:
        def __init__(self, port: int) -> None:
            self.port = port

        async def __call__(self, host: str, port: int) -> Sequence[Address]:
            await trio.sleep(4)
            return [Address(socket.AF_INET, ("127.0.0.1", self.port))]

    async with serving(is_fine) as server:
        transport = HttpxTransport(TransportSettings(), resolve=Slow(server.port))
        first = await transport.send(Request("http://a.example/"), nothing)
        again = await transport.send(Request("http://a.example/"), nothing)
        await transport.aclose()
    assert (first.started_at, first.sent_at, first.latency) == (0.0, 4.0, 4.0)
    assert (again.started_at, again.sent_at, again.latency) == (4.0, 4.0, 0.0)
    assert server.connected == 1
    assert server.heads[0].split(b"\r\n")[1] == b"Host: a.example"


async def test_a_connection_is_used_again_and_given_up_when_it_has_been_idle(clock: MockClock) -> None:
    async with serving(is_fine) as server, transport_of() as transport:
        for _ in range(3):
            await transport.send(Request(server.url), nothing)
        assert server.connected == 1
        await transport.aclose()
        await transport.aclose()
        await server.all_gone()


async def test_nothing_but_throttling_caps_the_connections_i07(clock: MockClock) -> None:
    arrived = trio.Event()

    async def together(connection: Connection) -> None:
        if connection.number == 29:
            arrived.set()
        await arrived.wait()
        await connection.answer(b"ok")

    async with serving(together) as server, transport_of() as transport:
        async with trio.open_nursery() as nursery:
            for _ in range(30):
                nursery.start_soon(transport.send, Request(server.url), nothing)
        assert server.connected == 30


async def test_a_body_is_posted_with_its_length(clock: MockClock) -> None:
    async with serving(is_fine) as server:
        await answer(Request.json(server.url, {"a": 1}))
    assert server.bodies == [b'{"a":1}']
    assert server.heads[0].startswith(b"POST / HTTP/1.1\r\n")
    assert b"Content-Length: 7" in server.heads[0].split(b"\r\n")


async def test_a_compressed_body_is_decompressed_unless_told_otherwise(clock: MockClock) -> None:
    packed = gzip.compress(b"text")

    async def compressed(connection: Connection) -> None:
        await connection.answer(packed, "200 OK", "Content-Encoding: gzip")

    async with serving(compressed) as server:
        assert (await answer(Request(server.url))).body == b"text"
        raw = await answer(Request(server.url), TransportSettings(compression_enabled=False))
        assert raw.body == packed
        assert b"Accept-Encoding" not in server.heads[1]


async def test_a_body_without_a_length_ends_with_its_connection(clock: MockClock) -> None:
    async def old(connection: Connection) -> None:
        await connection.send(b"HTTP/1.0 200 OK\r\n\r\nall of it")

    async with serving(old) as server:
        response = await answer(Request(server.url))
        assert (response.body, response.protocol) == (b"all of it", "HTTP/1.0")


@pytest.mark.parametrize("name", ["closes_in_the_body", "resets_in_the_body", "closes_in_a_chunk"])
async def test_half_a_body_is_taken_with_a_flag_where_that_is_wanted(clock: MockClock, name: str) -> None:
    async with serving(BEHAVIOURS[name]) as server:
        lax = TransportSettings(download_fail_on_dataloss=False)
        response = await answer(Request(server.url), lax)
        assert response.flags == ["dataloss"]
        response = await answer(Request(server.url, meta={"download_fail_on_dataloss": False}))
        assert response.flags == ["dataloss"]
        strict = await ask(Request(server.url, meta={"download_fail_on_dataloss": True}), lax)
        assert isinstance(strict.error, ResponseBroken)
        await server.all_gone()


async def test_a_limit_holds_even_where_half_a_body_would_do(clock: MockClock) -> None:
    async with serving(BEHAVIOURS["sends_for_ever"]) as server:
        lax = TransportSettings(download_fail_on_dataloss=False, download_maxsize=100_000)
        assert isinstance((await ask(Request(server.url), lax)).error, BodyTooLarge)
        await server.all_gone()


async def test_a_request_has_limits_of_its_own(clock: MockClock) -> None:
    async with serving(is_fine) as server:
        small = TransportSettings(download_maxsize=3)
        assert isinstance((await ask(Request(server.url), small)).error, BodyTooLarge)
        assert (await answer(Request(server.url, meta={"download_maxsize": 0}), small)).status == 200
    async with serving(BEHAVIOURS["stalls"]) as server:
        outcome = await ask(Request(server.url, meta={"download_timeout": 7}))
        assert isinstance(outcome.error, DownloadTimeout)
        assert outcome.ended_at == 7.0


async def test_a_large_body_is_logged(clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(is_fine) as server:
        with caplog.at_level(logging.WARNING, "trawl.transport"):
            await answer(Request(server.url), TransportSettings(download_warnsize=18))
    assert "its body has 19 bytes (DOWNLOAD_WARNSIZE is 18)" in caplog.text


async def test_cancelling_drops_the_connection(clock: MockClock) -> None:
    async with serving(BEHAVIOURS["stalls_in_the_body"]) as server, transport_of() as transport:
        with trio.move_on_after(3) as scope:
            await transport.send(Request(server.url), nothing)
        assert scope.cancelled_caught
        assert trio.current_time() == 3.0
        await server.all_gone()


async def test_a_server_that_refuses_is_no_connection(clock: MockClock) -> None:
    async with serving(is_fine) as server:
        pass
    outcome = await ask(Request(server.url))
    assert type(outcome.error) is ConnectFailed
    assert "no connection: Connection refused" in str(outcome.error)
    assert outcome.sent_at is None


async def test_a_name_without_an_address_is_told_by_its_name(clock: MockClock) -> None:
    async def nobody(host: str, port: int) -> Sequence[Address]:
        await trio.lowlevel.checkpoint()
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    transport = HttpxTransport(TransportSettings(), resolve=nobody)
    outcome = await transport.send(Request("http://nowhere.example/"), nothing)
    assert type(outcome.error) is NameNotResolved
    expected = "GET http://nowhere.example/: the name 'nowhere.example' has no address (Name or service not known)"
    assert str(outcome.error) == expected


async def test_a_name_that_is_never_found_ends_at_the_connect_timeout(clock: MockClock) -> None:
    async def hangs(host: str, port: int) -> Sequence[Address]:
        await trio.sleep(3600)
        return []

    transport = HttpxTransport(TransportSettings(), resolve=hangs)
    outcome = await transport.send(Request("http://slow.example/"), nothing)
    assert type(outcome.error) is ConnectTimeout
    assert outcome.ended_at == 30.0


@pytest.mark.parametrize("url", ["ftp://a.example/", "mailto:a@b.example", "data:,x"])
async def test_a_scheme_that_is_not_ours_is_an_outcome_too(url: str) -> None:
    outcome = await ask(Request(url))
    assert type(outcome.error) is UnsupportedScheme
    assert outcome.sent_at is None


async def test_a_server_that_takes_nothing_ends_at_the_read_timeout(clock: MockClock) -> None:
    async def deaf(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, deaf, 0)
        port = listeners[0].socket.getsockname()[1]
        outcome = await ask(Request(f"http://127.0.0.1:{port}/", method="POST", body=bytes(20_000_000)))
        assert type(outcome.error) is ReadTimeout
        assert "the server took nothing for 60 s" in str(outcome.error)
        nursery.cancel_scope.cancel()


async def test_an_answer_before_the_whole_request_is_heard(clock: MockClock) -> None:
    async def refuses(stream: trio.SocketStream) -> None:
        await stream.receive_some(1000)
        await stream.send_all(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await stream.send_eof()
        while await stream.receive_some(1_000_000):
            pass

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, refuses, 0)
        port = listeners[0].socket.getsockname()[1]
        response = await answer(Request(f"http://127.0.0.1:{port}/", method="POST", body=bytes(2_000_000)))
        assert response.status == 413
        nursery.cancel_scope.cancel()


async def test_https_is_verified_against_who_is_trusted(clock: MockClock) -> None:
    authority = Authority()
    async with serving(is_fine, authority.server()) as server:
        transport = HttpxTransport(TransportSettings(), ssl_context=authority.client())
        outcomes = [await transport.send(Request(server.url), nothing) for _ in range(2)]
        await transport.aclose()
        assert [outcome.response.status for outcome in outcomes if outcome.response] == [200, 200]
        assert server.connected == 1
        await server.all_gone()
