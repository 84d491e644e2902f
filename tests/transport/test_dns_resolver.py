"""Names asked of a name server of our own on loopback."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

import dns.asyncresolver
import dns.message
import dns.rcode
import dns.rrset
import pytest
import trio
from trio.testing import MockClock

from tests.net.badserver import clock, is_fine, serving
from trawl.errors import SettingsError
from trawl.http import Request
from trawl.transport import TransportRouter, TransportSettings
from trawl.transport.resolver import Address, AddressList, DnsResolver, ResolverCache

__all__ = ["clock"]

Records = Mapping[tuple[str, str], tuple[int, Sequence[str]] | str]
"""A name and a kind of record: lifetime and values, or what the server does instead."""


class Server:
    """A name server that is running; ``asked`` are the names and kinds it was asked for."""

    def __init__(self, records: Records, sock: trio.socket.SocketType) -> None:
        self.asked: list[tuple[str, str]] = []
        self._records = records
        self._sock = sock

    @property
    def port(self) -> int:
        port: int = self._sock.getsockname()[1]
        return port

    async def serve(self) -> None:
        while True:
            data, peer = await self._sock.recvfrom(4096)
            query = dns.message.from_wire(data)
            question = query.question[0]
            key = question.name.to_text(omit_final_dot=True), question.rdtype.name
            self.asked.append(key)
            known = self._records.get(key, "no such name")
            if known == "silence":
                continue
            answer = dns.message.make_response(query)
            if isinstance(known, str):
                answer.set_rcode(dns.rcode.SERVFAIL if known == "failure" else dns.rcode.NXDOMAIN)
            elif known[1]:
                answer.answer.append(dns.rrset.from_text(question.name, known[0], "IN", key[1], *known[1]))
            await self._sock.sendto(answer.to_wire(), peer)


@asynccontextmanager
async def serving_names(
    records: Records, *, lifetime: float = 30.0
) -> AsyncGenerator[tuple[Server, DnsResolver], None]:
    """Serve ``records``, and ask there."""
    sock = trio.socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sock:
        await sock.bind(("127.0.0.1", 0))
        server = Server(records, sock)
        resolver = dns.asyncresolver.Resolver(configure=False)
        resolver.nameservers, resolver.port = ["127.0.0.1"], server.port
        resolver.lifetime = lifetime  # by the real clock
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.serve)  # noqa: ASYNC113 - bound already
            yield server, DnsResolver(resolver=resolver)
            nursery.cancel_scope.cancel()


BOTH: Records = {
    ("a.example", "A"): (300, ["192.0.2.1", "192.0.2.2"]),
    ("a.example", "AAAA"): (60, ["2001:db8::1"]),
    ("four.example", "A"): (0, ["192.0.2.4"]),
    ("four.example", "AAAA"): (300, []),
    ("nothing.example", "A"): (300, []),
    ("nothing.example", "AAAA"): (300, []),
    ("broken.example", "A"): "failure",
    ("broken.example", "AAAA"): "failure",
    ("half.example", "A"): (300, ["192.0.2.5"]),
    ("half.example", "AAAA"): "failure",
    ("silent.example", "A"): "silence",
    ("silent.example", "AAAA"): "silence",
}


async def test_both_kinds_of_addresses_come_with_the_shorter_lifetime(clock: MockClock) -> None:
    async with serving_names(BOTH) as (server, names):
        found = await names("a.example", 443)
        assert isinstance(found, AddressList)
        assert found.lifetime == 60.0
        assert found[0] == Address(socket.AF_INET6, ("2001:db8::1", 443, 0, 0))
        assert set(found[1:]) == {Address(socket.AF_INET, (f"192.0.2.{last}", 443)) for last in (1, 2)}
        assert sorted(server.asked) == [("a.example", "A"), ("a.example", "AAAA")]


@pytest.mark.parametrize(("name", "address"), [("four.example", "192.0.2.4"), ("half.example", "192.0.2.5")])
async def test_one_kind_is_enough(clock: MockClock, name: str, address: str) -> None:
    async with serving_names(BOTH) as (_, names):
        found = await names(name, 80)
        assert [one.sockaddr[0] for one in found] == [address]
        assert isinstance(found, AddressList)
        assert found.lifetime >= 1.0


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("unknown.example", socket.EAI_NONAME),
        ("nothing.example", socket.EAI_NONAME),
        ("broken.example", socket.EAI_AGAIN),
        ("silent.example", socket.EAI_AGAIN),
        ("a..example", socket.EAI_NONAME),
        (f"{'x' * 64}.example", socket.EAI_NONAME),
    ],
)
async def test_a_name_without_an_address_is_an_error_that_says_whether_it_may_pass(
    clock: MockClock, name: str, code: int
) -> None:
    async with serving_names(BOTH, lifetime=0.1 if "silent" in name else 30.0) as (_, names):
        with pytest.raises(socket.gaierror) as raised:
            await names(name, 80)
        assert raised.value.errno == code


async def test_addresses_and_names_without_a_dot_are_not_asked_for(clock: MockClock) -> None:
    async with serving_names(BOTH) as (server, names):
        assert await names("192.0.2.9", 80) == [Address(socket.AF_INET, ("192.0.2.9", 80))]
        assert "127.0.0.1" in {address.sockaddr[0] for address in await names("localhost", 80)}
        assert server.asked == []


async def test_cancelling_ends_a_look_up(clock: MockClock) -> None:
    async with serving_names(BOTH) as (_, names):
        with trio.move_on_after(1) as scope:
            await names("silent.example", 80)
        assert scope.cancelled_caught


async def test_an_answer_is_remembered_for_as_long_as_it_says(autojump_clock: MockClock) -> None:
    asked: list[float] = []

    async def resolve(host: str, port: int) -> AddressList:
        asked.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        return AddressList([Address(socket.AF_INET, ("192.0.2.1", port))], lifetime=30.0)

    told, fixed = ResolverCache(resolve), ResolverCache(resolve, lifetime=1000.0)
    for cached, times in ((told, [0.0, 35.0]), (fixed, [45.0])):
        for pause in (10.0, 25.0, 10.0):
            await cached("a.example", 80)
            await trio.sleep(pause)
        assert asked == times
        asked.clear()


async def test_a_request_goes_where_the_name_server_says(clock: MockClock) -> None:
    records: Records = {("a.example", "A"): (300, ["127.0.0.1"]), ("a.example", "AAAA"): (300, [])}
    async with serving(is_fine) as server, serving_names(records) as (names_server, names):
        wire = TransportRouter(TransportSettings(), resolve=names)
        for _ in range(2):
            outcome = await wire.send(Request(f"http://a.example:{server.port}/"), lambda: None)
            assert outcome.error is None
        assert len(names_server.asked) == 2  # one look-up, of two kinds
        await wire.aclose()


def test_without_its_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "dns.asyncresolver", None)
    with pytest.raises(SettingsError, match=r"trawl-crawler\[dns\]"):
        DnsResolver()


def test_a_system_without_name_servers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import dns.resolver

    def none(*args: object, **kwargs: object) -> None:
        error: type[Exception] = dns.resolver.NoResolverConfiguration
        raise error("Resolver configuration could not be read")

    monkeypatch.setattr(dns.asyncresolver, "Resolver", none)
    with pytest.raises(SettingsError, match="could not be read"):
        DnsResolver()
