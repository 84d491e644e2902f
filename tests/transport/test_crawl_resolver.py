"""Where hosts are: one look-up a host, one answer for limits and connections."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from trawl.transport.resolver import LOOKUP_TIMEOUT, Address, CrawlResolver


class NameServer:
    """Gives the addresses of ``a.example`` in another order each time, and fails for all other names."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.addresses = ["192.0.2.1", "192.0.2.2"]

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        await trio.sleep(0.1)
        self.asked.append(host)
        if host == "six.example":
            return [Address(socket.AF_INET6, ("2001:db8::1", port, 0, 0))]
        if host == "slow.example":
            await trio.sleep(3600)
        if host != "a.example":
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        self.addresses.reverse()
        return [Address(socket.AF_INET, (address, port)) for address in self.addresses]


async def test_i05_connections_go_to_the_address_that_is_charged_whatever_the_port(autojump_clock: MockClock) -> None:
    server = NameServer()
    whereabouts = CrawlResolver(server)
    charged = await whereabouts.address_of("a.example")
    await trio.sleep(86_400)
    for port in (80, 443):
        found = await whereabouts("a.example", port)
        assert [address.sockaddr for address in found] == [("192.0.2.2", port), ("192.0.2.1", port)]
    assert await whereabouts.address_of("a.example:8080") == charged == "192.0.2.2"
    assert server.asked == ["a.example"]


async def test_fifty_that_ask_at_once_are_one_look_up(autojump_clock: MockClock) -> None:
    server = NameServer()
    whereabouts = CrawlResolver(server)
    found: list[str | None] = []

    async def ask() -> None:
        found.append(await whereabouts.address_of("a.example"))

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(ask)
    assert found == ["192.0.2.2"] * 50
    assert server.asked == ["a.example"]


async def test_a_name_without_an_address_has_none_and_is_asked_again(autojump_clock: MockClock) -> None:
    server = NameServer()
    whereabouts = CrawlResolver(server)
    assert await whereabouts.address_of("gone.example") is None
    assert await whereabouts.address_of("gone.example") is None
    assert server.asked == ["gone.example"] * 2
    with pytest.raises(socket.gaierror):
        await whereabouts("gone.example", 80)


async def test_a_look_up_that_takes_too_long_is_given_up(autojump_clock: MockClock) -> None:
    whereabouts = CrawlResolver(NameServer())
    assert await whereabouts.address_of("slow.example") is None
    assert trio.current_time() == pytest.approx(LOOKUP_TIMEOUT)


async def test_ipv6_keeps_flow_and_zone(autojump_clock: MockClock) -> None:
    whereabouts = CrawlResolver(NameServer())
    assert await whereabouts.address_of("six.example") == "2001:db8::1"
    assert [address.sockaddr for address in await whereabouts("six.example", 443)] == [("2001:db8::1", 443, 0, 0)]


async def test_ports_and_brackets_are_left_out_of_the_question(autojump_clock: MockClock) -> None:
    asked: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[Address]:
        await trio.lowlevel.checkpoint()
        asked.append(host)
        return [Address(socket.AF_INET6, (host, port, 0, 0))]

    whereabouts = CrawlResolver(resolve)
    assert await whereabouts.address_of("[::1]:8080") == "::1"
    assert await whereabouts.address_of("[::2]") == "::2"
    assert asked == ["::1", "::2"]
