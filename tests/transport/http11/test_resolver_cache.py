"""Names are looked up once, whoever waits; failures and cancellations leave nothing behind."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from trawl.transport.resolver import Address, ResolverCache

HERE = Address(socket.AF_INET, ("192.0.2.1", 80))


class SlowNames:
    """Takes a second; names that begin with ``no`` have no address."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        self.asked.append(host)
        await trio.sleep(1)
        if host.startswith("no"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [HERE]


async def test_a_name_is_looked_up_once_for_all_who_wait_and_for_its_lifetime(autojump_clock: MockClock) -> None:
    names = SlowNames()
    resolve = ResolverCache(names, lifetime=60.0)
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(resolve, "a.example", 80)
    assert trio.current_time() == 1.0
    assert await resolve("a.example", 80) == [HERE]
    assert names.asked == ["a.example"]
    await trio.sleep(60)
    await resolve("a.example", 80)
    await resolve("a.example", 443)
    assert names.asked == ["a.example"] * 3


async def test_a_failure_is_told_to_all_who_waited_and_forgotten(autojump_clock: MockClock) -> None:
    names = SlowNames()
    resolve = ResolverCache(names)
    failures = []

    async def ask() -> None:
        with pytest.raises(socket.gaierror) as raised:
            await resolve("no.example", 80)
        failures.append(raised.value)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
    assert trio.current_time() == 1.0
    assert [failure.args for failure in failures] == [(socket.EAI_NONAME, "Name or service not known")] * 3
    assert len(set(map(id, failures))) == 3
    await ask()
    assert len(names.asked) == 2


async def test_when_the_one_who_asks_is_cancelled_another_asks(autojump_clock: MockClock) -> None:
    names = SlowNames()
    resolve = ResolverCache(names)
    found: list[object] = []

    async def give_up() -> None:
        with trio.move_on_after(0.5):
            await resolve("a.example", 80)

    async def wait() -> None:
        found.append(await resolve("a.example", 80))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(give_up)
        await trio.sleep(0.25)
        nursery.start_soon(wait)
        nursery.start_soon(wait)
    assert found == [[HERE], [HERE]]
    assert len(names.asked) == 2
    assert trio.current_time() == 1.5


async def test_names_are_forgotten_when_told_and_when_there_are_too_many(autojump_clock: MockClock) -> None:
    names = SlowNames()
    resolve = ResolverCache(names, max_names=2)
    await resolve("a.example", 80)
    resolve.forget("a.example", 80)
    for host in ("a.example", "b.example", "c.example", "b.example", "a.example"):
        await resolve(host, 80)
    assert names.asked == [f"{name}.example" for name in "aabca"]
