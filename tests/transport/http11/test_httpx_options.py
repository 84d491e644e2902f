"""The options of httpx's own transport, given to ours: each does the same, side by side where a server can tell."""

from __future__ import annotations

import socket
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from tests.net.badserver import Authority, Connection, clock, deaf_port, is_fine, serving
from trawl.transport import HTTP11Transport
from trawl.transport.resolver import Address

__all__ = ["clock"]

Kind = Callable[..., httpx.AsyncBaseTransport]
KINDS: list[Kind] = [httpx.AsyncHTTPTransport, HTTP11Transport]
both = pytest.mark.parametrize("kind", KINDS)


def client(transport: httpx.AsyncBaseTransport) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=transport, timeout=20.0, trust_env=False)


@both
async def test_verify_false_takes_any_certificate_and_true_none_that_nobody_knows(clock: MockClock, kind: Kind) -> None:
    async with serving(is_fine, Authority().server("other.example")) as server:
        async with client(kind(verify=False)) as web:
            assert (await web.get(server.url)).status_code == 200
        async with client(kind(verify=True)) as web:
            with pytest.raises(httpx.ConnectError):
                await web.get(server.url)


@both
async def test_verify_takes_a_context_or_with_a_warning_a_file(clock: MockClock, kind: Kind, tmp_path: Path) -> None:
    authority = Authority()
    authority.ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    async with serving(is_fine, authority.server()) as server:
        async with client(kind(verify=authority.client())) as web:
            assert (await web.get(server.url)).status_code == 200
        with pytest.warns(DeprecationWarning, match="verify=<str>"):
            transport = kind(verify=str(tmp_path / "ca.pem"))
        async with client(transport) as web:
            assert (await web.get(server.url)).status_code == 200


@both
async def test_cert_is_shown_to_a_server_that_asks_for_it(clock: MockClock, kind: Kind, tmp_path: Path) -> None:
    authority = Authority()
    mine = authority.ca.issue_cert("client@a.example")
    mine.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "both.pem"))
    context = authority.server()
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # with 1.3 the refusal comes after the handshake
    context.verify_mode = ssl.CERT_REQUIRED
    authority.ca.configure_trust(context)

    async def tells(connection: Connection) -> None:
        stream: Any = connection.stream
        await connection.answer(str(bool(stream.getpeercert())).encode())

    async with serving(tells, context) as server:
        with pytest.warns(DeprecationWarning, match="cert="):
            transport = kind(verify=authority.client(), cert=str(tmp_path / "both.pem"))
        async with client(transport) as web:
            assert (await web.get(server.url)).text == "True"


async def test_the_environments_certificates_count_unless_told_otherwise(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = Authority()
    authority.ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    async with serving(is_fine, authority.server()) as server:
        async with client(HTTP11Transport()) as web:
            assert (await web.get(server.url)).status_code == 200
        async with client(HTTP11Transport(trust_env=False)) as web:
            with pytest.raises(httpx.ConnectError):
                await web.get(server.url)


@both
async def test_a_local_address_is_where_connections_come_from(clock: MockClock, kind: Kind) -> None:
    async def tells(connection: Connection) -> None:
        stream: Any = connection.stream
        await connection.answer(stream.socket.getpeername()[0].encode())

    async with serving(tells) as server:
        async with client(kind(local_address="127.0.0.2")) as web:
            assert (await web.get(server.url)).text == "127.0.0.2"
        async with client(kind(local_address="192.0.2.1")) as web:  # not ours
            with pytest.raises(httpx.ConnectError):
                await web.get(server.url)


async def test_a_local_address_of_the_other_family_is_no_connection(clock: MockClock) -> None:
    async with serving(is_fine) as server, client(HTTP11Transport(local_address="::1")) as web:
        with pytest.raises(httpx.ConnectError, match="can't come from ::1"):
            await web.get(server.url)


async def test_socket_options_are_set_before_connecting(clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    option = socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1
    kept: list[int] = []
    connect = trio._socket._SocketType.connect

    async def look(self: Any, address: Any) -> None:
        kept.append(self.getsockopt(*option[:2]))
        await connect(self, address)

    monkeypatch.setattr(trio._socket._SocketType, "connect", look)
    async with serving(is_fine) as server, client(HTTP11Transport(socket_options=[option])) as web:
        assert (await web.get(server.url)).status_code == 200
    assert kept == [1]


@both
async def test_a_unix_socket_stands_for_every_host(clock: MockClock, kind: Kind) -> None:
    heads: list[bytes] = []

    async def handle(stream: trio.SocketStream) -> None:
        async for head in stream:
            heads.append(bytes(head))
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with tempfile.TemporaryDirectory() as folder:  # the path of a Unix socket must be short
        path = f"{folder}/socket"
        sock = trio.socket.socket(socket.AF_UNIX)
        await sock.bind(path)
        sock.listen()
        async with trio.open_nursery() as nursery, client(kind(uds=path)) as web:
            nursery.start_soon(trio.serve_listeners, handle, [trio.SocketListener(sock)])
            for host in ("a.example", "b.example"):
                assert (await web.get(f"http://{host}/")).text == "ok"
            nursery.cancel_scope.cancel()
    assert [b"Host: a.example" in heads[0], b"Host: b.example" in heads[1]] == [True, True]


@both
@pytest.mark.parametrize(("retries", "seconds"), [(0, 0.0), (1, 0.0), (2, 0.5), (4, 3.5)])
async def test_connecting_is_tried_again_after_growing_pauses(
    autojump_clock: MockClock, kind: Kind, retries: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    async def refuse(self: Any, address: Any) -> None:
        nonlocal tries
        tries += 1
        await trio.lowlevel.checkpoint()
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(trio._socket._SocketType, "connect", refuse)
    async with client(kind(retries=retries)) as web:
        with pytest.raises(httpx.ConnectError):
            await web.get("http://127.0.0.1:1/")
    assert tries == retries + 1
    assert trio.current_time() == seconds


async def test_only_connecting_is_tried_again(clock: MockClock) -> None:
    async def closes(connection: Connection) -> None:
        await trio.lowlevel.checkpoint()

    async with serving(closes) as server, client(HTTP11Transport(retries=3)) as web:
        with pytest.raises(httpx.RemoteProtocolError):
            await web.get(server.url)
        assert server.connected == 1


async def test_a_connection_that_came_late_is_used(clock: MockClock) -> None:
    asked: list[str] = []
    with deaf_port() as deaf:
        async with serving(is_fine) as server:

            async def resolve(host: str, port: int) -> list[Address]:
                asked.append(host)
                await trio.lowlevel.checkpoint()
                return [Address(socket.AF_INET, ("127.0.0.1", port if len(asked) > 1 else deaf))]

            async with client(HTTP11Transport(resolve=resolve, retries=1)) as web:
                assert (await web.get(f"http://a.example:{server.port}/")).status_code == 200
    assert asked == ["a.example"] * 2


@both
async def test_limits_keep_so_many_idle_connections(clock: MockClock, kind: Kind) -> None:
    limits = httpx.Limits(max_connections=2, max_keepalive_connections=1)
    async with serving(is_fine) as server, client(kind(limits=limits)) as web:
        for _ in range(2):
            async with web.stream("GET", server.url) as one, web.stream("GET", server.url) as other:
                await one.aread()
                await other.aread()
        assert server.connected == 3  # one of the two was kept


async def test_limits_keep_idle_connections_for_so_long(clock: MockClock) -> None:  # httpx goes by the real clock
    limits = httpx.Limits(keepalive_expiry=5.0)
    async with serving(is_fine) as server, client(HTTP11Transport(limits=limits)) as web:
        for pause in (4.0, 4.0, 6.0, 0.0):
            await web.get(server.url)
            await trio.sleep(pause)
        assert server.connected == 2


@both
async def test_an_idle_connection_makes_room_for_one_to_another_host(clock: MockClock, kind: Kind) -> None:
    limits = httpx.Limits(max_connections=1)
    async with serving(is_fine) as one, serving(is_fine) as other, client(kind(limits=limits)) as web:
        for server in (one, other, one):
            assert (await web.get(server.url)).status_code == 200
        assert (one.connected, other.connected) == (2, 1)


@both
async def test_the_extensions_for_a_target_and_a_servers_name_are_heeded(clock: MockClock, kind: Kind) -> None:
    async def tells(connection: Connection) -> None:
        await connection.answer(connection.head.split(b" ")[1], "200 Fine, thanks")

    authority = Authority()
    async with serving(tells, authority.server("a.example")) as server:
        async with client(kind(verify=authority.client())) as web:
            extensions = {"sni_hostname": "a.example", "target": b"*"}
            response = await web.request("OPTIONS", server.url, extensions=extensions)
            assert response.content == b"*"
            assert response.reason_phrase == "Fine, thanks"
            assert response.http_version == "HTTP/1.1"
        await server.all_gone()
        async with client(kind(verify=authority.client())) as web:
            with pytest.raises(httpx.ConnectError):
                await web.get(server.url)


async def test_connections_with_another_servers_name_are_kept_apart(clock: MockClock) -> None:
    authority = Authority()
    async with serving(is_fine, authority.server("a.example", "127.0.0.1")) as server:
        async with client(HTTP11Transport(verify=authority.client())) as web:
            for name in ("a.example", "", "a.example", ""):
                await web.get(server.url, extensions={"sni_hostname": name} if name else {})
        assert server.connected == 2
