"""Where connections come from: ``DOWNLOAD_BIND_ADDRESS`` and ``bindaddress``, on every way that a request may take."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.net.badserver import Authority, BadServer, Connection, clock, serving
from tests.transport.test_connect import Names, four, six
from trawl.errors import ConnectFailed, ProxyFailed, RequestInvalid, SettingsError
from trawl.http import Outcome, Request
from trawl.settings import Layer, assignments, load
from trawl.transport import TransportRouter, TransportSettings
from trawl.transport.connect import ConnectOptions, dial
from trawl.transport.settings import BindAddress

__all__ = ["clock"]

AUTHORITY = Authority()
WAYS = pytest.mark.parametrize("way", ["own", "own TLS", "httpx", "proxy"])


def near_end(connection: Connection) -> tuple[str, int]:
    """What the server sees of us."""
    stream: Any = connection.stream
    if not isinstance(stream, trio.SocketStream):
        stream = stream.transport_stream
    host, port = stream.socket.getpeername()[:2]
    return host, port


async def tells(connection: Connection) -> None:
    """Answers with the address that it was asked from."""
    await connection.answer(near_end(connection)[0].encode())


async def ask(wire: TransportRouter, way: str, server: BadServer, **meta: Any) -> Outcome:
    if way == "proxy":
        return await wire.send(Request("http://a.example/", meta={"proxy": server.url, **meta}), lambda: None)
    return await wire.send(Request(server.url, meta=meta), lambda: None)


async def asked(way: str, bind: Any, *requests: dict[str, Any]) -> list[str | Exception]:
    """What each request is answered, or its error."""
    settings = TransportSettings(download_bind_address=bind, http2_enabled=way == "httpx")
    async with serving(tells, AUTHORITY.server() if way in ("own TLS", "httpx") else None) as server:
        wire = TransportRouter(settings, ssl_context=AUTHORITY.client())
        found: list[str | Exception] = []
        for meta in requests:
            outcome = await ask(wire, way, server, **meta)
            found.append(outcome.response.body.decode() if outcome.response else outcome.error or ValueError())
        await wire.aclose()
        await server.all_gone()
    return found


@WAYS
async def test_connections_come_from_where_the_setting_says(clock: MockClock, way: str) -> None:
    assert await asked(way, "127.0.0.2", {}, {}) == ["127.0.0.2"] * 2
    assert await asked(way, ("127.0.0.3", 0), {}) == ["127.0.0.3"]
    assert await asked(way, None, {}) == ["127.0.0.1"]


@WAYS
async def test_a_requests_own_address_goes_before_it_and_no_connection_from_another_serves_it(
    clock: MockClock, way: str
) -> None:
    metas: list[dict[str, Any]] = [{}, {"bindaddress": "127.0.0.4"}, {"bindaddress": ["127.0.0.5", 0]}, {}]
    assert await asked(way, "127.0.0.2", *metas) == ["127.0.0.2", "127.0.0.4", "127.0.0.5", "127.0.0.2"]


async def test_a_request_with_its_own_address_asks_for_its_own_path(clock: MockClock) -> None:
    async def tells_path(connection: Connection) -> None:
        await connection.answer(connection.head.split(b" ")[1])

    async with serving(tells_path) as server:
        wire = TransportRouter(TransportSettings())
        outcome = await wire.send(Request(f"{server.url}a/b?c=1", meta={"bindaddress": "127.0.0.2"}), lambda: None)
        assert outcome.response is not None
        assert outcome.response.body == b"/a/b?c=1"
        await wire.aclose()


@WAYS
async def test_an_address_that_is_none_is_that_requests_error(clock: MockClock, way: str) -> None:
    (error,) = await asked(way, None, {"bindaddress": "shop.example"})
    assert isinstance(error, RequestInvalid)
    words = "its bindaddress must be an address of this machine, or an address and a port, not 'shop.example'"
    assert words in str(error)


@WAYS
async def test_an_address_that_is_not_ours_is_no_connection_and_says_why(clock: MockClock, way: str) -> None:
    (error,) = await asked(way, None, {"bindaddress": "192.0.2.1"})  # it may be again: a line that is down, say
    assert isinstance(error, ProxyFailed if way == "proxy" else ConnectFailed)
    assert "it can't come from 192.0.2.1 (Cannot assign requested address)" in str(error)


async def test_one_port_serves_one_connection_after_another(clock: MockClock) -> None:
    with socket.socket() as probe:  # of an address that nobody else on this machine uses
        probe.bind(("127.0.0.6", 0))
        port: int = probe.getsockname()[1]
    ends: list[tuple[str, int]] = []

    async def notes(connection: Connection) -> None:
        ends.append(near_end(connection))
        await connection.answer()

    for _ in range(2):
        async with serving(notes) as server:
            wire = TransportRouter(TransportSettings(download_bind_address=("127.0.0.6", port)))
            outcome = await ask(wire, "own", server)
            assert outcome.error is None
            await wire.aclose()  # we close first, so that the system keeps the port for a minute
            await server.all_gone()
    assert ends == [("127.0.0.6", port)] * 2


async def test_a_port_that_is_taken_is_named(clock: MockClock) -> None:
    async with serving(tells) as server:
        with socket.create_server(("127.0.0.6", 0)) as taken:
            port = taken.getsockname()[1]
            wire = TransportRouter(TransportSettings(download_bind_address=("127.0.0.6", port)))
            outcome = await ask(wire, "own", server)
            await wire.aclose()
    assert isinstance(outcome.error, ConnectFailed)
    assert f"it can't come from 127.0.0.6 port {port} (Address already in use)" in str(outcome.error)


async def test_of_a_hosts_addresses_those_of_the_same_family_are_reached(clock: MockClock) -> None:
    async with serving(tells) as server:
        names = Names(six(server.port), four(server.port))
        stream = await dial("a.example", server.port, names, None, ConnectOptions(BindAddress("127.0.0.2")))
        assert stream.socket.getsockname()[0] == "127.0.0.2"
        await stream.aclose()


def test_an_address_that_this_machine_has_not_is_refused_at_the_start() -> None:
    words = "DOWNLOAD_BIND_ADDRESS: no connection can come from 192.0.2.1: Cannot assign requested address"
    with pytest.raises(SettingsError, match=words):
        TransportRouter(TransportSettings(download_bind_address="192.0.2.1"))
    with pytest.raises(SettingsError, match="no connection can come from 2001:db8::1"):
        TransportRouter(TransportSettings(download_bind_address="2001:db8::1"))


@pytest.mark.parametrize("wrong", ["shop.example", "", "127.0.0.1:80", ("127.0.0.1", -1), ["::1", 70_000], 5, [1]])
def test_what_is_no_address_is_refused_by_name(wrong: object) -> None:
    with pytest.raises(SettingsError, match=r"^DOWNLOAD_BIND_ADDRESS(\[0\])? must (be|have)"):
        load(Layer("x", {"DOWNLOAD_BIND_ADDRESS": wrong}))


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("127.0.0.2", BindAddress("127.0.0.2")),
        ("::1", BindAddress("::1")),
        ('["127.0.0.2", 4000]', BindAddress("127.0.0.2", 4000)),
        ("null", None),
    ],
)
def test_it_can_be_given_as_text(text: str, end: BindAddress | None) -> None:
    assert load(assignments([f"DOWNLOAD_BIND_ADDRESS={text}"])).of(TransportSettings).bind_address == end
