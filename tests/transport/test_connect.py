from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Iterator, Sequence

import pytest
import trio

from tests.net.badserver import clock, deaf_port, is_fine, serving
from trawl.transport import connect as dialling
from trawl.transport import resolver as lookups
from trawl.transport.connect import ConnectOptions, dial, interleaved
from trawl.transport.resolver import Address, ThreadResolver

__all__ = ["clock"]


class Names:
    """A resolver that knows one name."""

    def __init__(self, *addresses: Address) -> None:
        self.addresses = addresses

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        await trio.lowlevel.checkpoint()
        return self.addresses


def four(port: int, host: str = "127.0.0.1") -> Address:
    return Address(socket.AF_INET, (host, port))


def six(port: int) -> Address:
    return Address(socket.AF_INET6, ("::1", port, 0, 0))


def test_families_take_turns_the_first_ones_first() -> None:
    a, b, c, d = four(1), four(2), six(3), six(4)
    assert interleaved([c, d, a, b]) == [c, a, d, b]
    assert interleaved([a, b, c]) == [a, c, b]
    assert interleaved([]) == []


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
async def test_an_address_needs_no_look_up(host: str, family: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "_getaddrinfo", None)
    (address,) = await ThreadResolver()(host, 80)
    assert address.family == family
    assert address.sockaddr[:2] == (host, 80)


async def test_localhost_is_looked_up_by_the_system() -> None:
    addresses = await ThreadResolver()("localhost", 80)
    assert {address.sockaddr[0] for address in addresses} <= {"127.0.0.1", "::1"}
    assert addresses


@pytest.mark.parametrize("host", ["a" * 70 + ".invalid", "."])
async def test_a_name_that_no_dns_can_hold_has_no_address(host: str) -> None:
    with pytest.raises(OSError, match=r".") as caught:
        await ThreadResolver()(host, 80)
    assert isinstance(caught.value, socket.gaierror)


async def test_a_name_without_addresses_is_an_error(clock: object) -> None:
    with pytest.raises(socket.gaierror):
        await dial("a.example", 80, Names())


async def test_an_address_that_refuses_is_passed_over_at_once(clock: object) -> None:
    with deaf_port() as deaf:
        async with serving(is_fine) as server:
            began = trio.current_time()
            async with await dial("a.example", 80, Names(four(deaf), four(server.port))) as stream:
                assert stream.socket.getpeername()[1] == server.port
            assert trio.current_time() == began


async def test_an_address_that_is_silent_is_passed_by_after_a_quarter_of_a_second(
    clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected = dialling._connected

    async def deaf(address: Address, options: ConnectOptions) -> trio.SocketStream:
        if address.sockaddr[0] == "192.0.2.1":
            await trio.sleep(3600)
        return await connected(address, options)

    monkeypatch.setattr(dialling, "_connected", deaf)
    async with serving(is_fine) as server:
        began = trio.current_time()
        async with await dial("a.example", 80, Names(four(80, "192.0.2.1"), four(server.port))):
            assert trio.current_time() - began == pytest.approx(0.25)


async def test_when_every_address_refuses_the_first_refusal_is_told(clock: object) -> None:
    with deaf_port() as one, deaf_port() as other, pytest.raises(OSError, match=r".") as caught:
        await dial("a.example", 80, Names(four(one), four(other)))
    assert caught.value.errno == errno.ECONNREFUSED


async def test_of_two_that_answer_at_once_one_is_kept_and_one_closed(
    clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected, event = dialling._connected, trio.Event()

    async def together(address: Address, options: ConnectOptions) -> trio.SocketStream:
        with trio.CancelScope(shield=True):
            await event.wait()
            stream = await connected(address, options)
            await trio.sleep(1)
        return stream

    monkeypatch.setattr(dialling, "_connected", together)
    async with serving(is_fine) as server, trio.open_nursery() as nursery:

        async def let_go() -> None:
            await trio.sleep(1)
            event.set()

        nursery.start_soon(let_go)
        stream = await dial("a.example", 80, Names(four(server.port), four(server.port)))
        assert server.connected == 2
        await trio.sleep(1)  # the server hears of it
        assert server.open == 1
        await stream.aclose()
        await server.all_gone()


async def test_a_cancelled_look_up_is_left_to_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:

    let_go = threading.Event()

    def hangs(host: str, port: int) -> list[Address]:
        let_go.wait(5)
        return []

    monkeypatch.setattr(lookups, "_getaddrinfo", hangs)
    try:
        with trio.move_on_after(0.02) as scope:
            await ThreadResolver()("hangs.example", 80)
        assert scope.cancelled_caught
    finally:
        let_go.set()


class NameServer:
    """Answers about any name but those that begin with "hangs", until it is told to; counts the questions."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.let_go = threading.Event()

    def look_up(self, host: str, port: int) -> list[Address]:
        self.asked.append(host)
        if host.startswith("hangs"):
            self.let_go.wait(30)
        return [four(port)]


@pytest.fixture
def name_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    server = NameServer()
    monkeypatch.setattr(lookups, "_getaddrinfo", server.look_up)
    yield server
    server.let_go.set()


async def give_up(resolver: ThreadResolver, host: str, server: NameServer) -> None:
    """Ask for a name, and no longer once the name server has been asked."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(resolver, host, 80)
        while host not in server.asked:
            await trio.to_thread.run_sync(lambda: None)
        nursery.cancel_scope.cancel()


async def ended(resolver: ThreadResolver) -> None:
    """Wait for the threads of what was given up."""
    while any(left.is_running for left in resolver._left.values()):
        await trio.to_thread.run_sync(lambda: None)


async def test_names_that_hang_keep_no_other_name_from_being_asked_for(name_server: NameServer) -> None:
    resolver = ThreadResolver()
    for number in range(40):  # more than there are threads for those that are waited for
        await give_up(resolver, f"hangs{number}.example", name_server)
    assert await resolver("answers.example", 80) == [four(80)]
    assert len(resolver._left) == 40


async def test_a_name_that_hangs_takes_one_thread_however_often_it_is_asked_for(name_server: NameServer) -> None:
    resolver = ThreadResolver()
    await give_up(resolver, "hangs.example", name_server)
    for _ in range(3):
        with pytest.raises(socket.gaierror, match="has not ended"):
            await resolver("hangs.example", 443)
    assert name_server.asked == ["hangs.example"]
    name_server.let_go.set()
    await ended(resolver)
    assert await resolver("hangs.example", 443) == [four(443)]
    assert resolver._left == {}


async def test_of_look_ups_that_have_ended_nothing_is_remembered(
    name_server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookups, "MAX_LEFT", 2)
    resolver = ThreadResolver()
    for number in range(2):
        await give_up(resolver, f"hangs{number}.example", name_server)
    name_server.let_go.set()
    await ended(resolver)
    name_server.let_go.clear()
    await give_up(resolver, "hangs2.example", name_server)
    assert list(resolver._left) == ["hangs2.example"]
