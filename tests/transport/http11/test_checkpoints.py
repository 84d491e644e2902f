"""An exchange that is cancelled at each of its checkpoints in turn: whatever it was at, the pool is sound."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import trio

from tests.net.badserver import Authority, Connection, serving
from tests.net.proxies import proxying
from trawl.http import Request
from trawl.transport import HTTP11Transport, TransportRouter, TransportSettings
from trawl.transport.resolver import Address, literal_address

MOST_CHECKPOINTS = 500


class CancelsAt(trio.abc.Instrument):
    """Cancels a scope when the task that entered it is about to take its step of this number."""

    def __init__(self, number: int, scope: trio.CancelScope) -> None:
        self._left = number
        self._scope = scope
        self._task = trio.lowlevel.current_task()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count the steps of the task, and of those that it has started."""
        if task is not self._task and (
            task.parent_nursery is None or task.parent_nursery.parent_task is not self._task
        ):
            return
        self._left -= 1
        if self._left == 0:
            self._scope.cancel()


async def cancelled_everywhere(exchange: Callable[[], Any], settled: Callable[[], Any]) -> int:
    """Run ``exchange`` again and again, cancelling it at its first, second ... step; then ``settled`` each time.

    Returns:
        In how many steps it was cancelled.
    """
    for number in range(1, MOST_CHECKPOINTS):
        with trio.CancelScope() as scope:
            instrument = CancelsAt(number, scope)
            trio.lowlevel.add_instrument(instrument)
            try:
                await exchange()
            finally:
                trio.lowlevel.remove_instrument(instrument)
        await settled()
        if not scope.cancel_called:
            return number - 1
    raise AssertionError("it has no end")


async def answers_slowly(connection: Connection) -> None:
    """In pieces, so that there is something to wait for."""
    for piece in (b"HTTP/1.1 200 OK\r\n", b"Content-Length: 10\r\n\r\n", b"hello", b"hello"):
        await connection.send(piece)
        await trio.lowlevel.checkpoint()
    connection.is_kept = True


async def resolve(host: str, port: int) -> list[Address]:
    await trio.lowlevel.checkpoint()
    return [literal_address("127.0.0.1", port)] * 2  # type: ignore[list-item]  # two, so that they race


WAYS = ["fresh", "idle", "fresh tls", "idle tls", "body", "through a proxy", "through socks"]


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
async def test_cancelling_at_each_checkpoint_leaves_the_pool_sound(way: str) -> None:
    authority = Authority()
    trusted = authority.client()
    is_secure = "tls" in way or "through" in way
    context: ssl.SSLContext | None = authority.server("a.example") if is_secure else None
    async with serving(answers_slowly, context) as server, proxying(names={"a.example": server.port}) as proxy:
        scheme = "https" if is_secure else "http"
        via = {"through a proxy": proxy.url(), "through socks": proxy.url("socks5")}.get(way)
        request = Request(
            f"{scheme}://a.example:{443 if via else server.port}/",
            method="PUT" if way == "body" else "GET",
            body=b"x" * 3_000_000 if way == "body" else b"",
            meta={"proxy": via},
        )
        wires: list[TransportRouter] = []

        async def exchange() -> None:
            wires[:] = [TransportRouter(TransportSettings(), ssl_context=trusted, resolve=resolve)]
            if "idle" in way:
                with trio.CancelScope(shield=True):
                    assert (await wires[0].send(request, lambda: None)).error is None
            outcome = await wires[0].send(request, lambda: None)
            assert outcome.error is None

        async def settled() -> None:
            wire = wires[0]
            outcome = await wire.send(request, lambda: None)  # whatever is in the pool now serves
            assert outcome.error is None
            assert outcome.response is not None
            assert outcome.response.body == b"hellohello"
            await wire.aclose()
            with trio.fail_after(60):
                while server.open or proxy.open:  # noqa: ASYNC110
                    await trio.sleep(0.001)

        steps = await cancelled_everywhere(exchange, settled)
        assert steps >= (3 if way in {"fresh", "idle", "body"} else 5)


async def test_cancelling_a_client_of_httpx_at_each_checkpoint_leaves_no_connection_and_no_place_taken() -> None:
    async with serving(answers_slowly) as server:
        clients: list[httpx.AsyncClient] = []

        async def exchange() -> None:
            transport = HTTP11Transport(resolve=resolve, limits=httpx.Limits(max_connections=1))
            clients[:] = [httpx.AsyncClient(transport=transport, timeout=20.0, trust_env=False)]
            async with clients[0].stream("POST", server.url, content=b"x" * 100_000) as response:
                assert [piece async for piece in response.aiter_raw()]

        async def settled() -> None:
            assert (await clients[0].get(server.url)).content == b"hellohello"
            await clients[0].aclose()
            with trio.fail_after(60):
                while server.open:  # noqa: ASYNC110
                    await trio.sleep(0.001)

        assert await cancelled_everywhere(exchange, settled) >= 5
