"""On a busy machine a write takes a while: a server sees its later end, and delays count from that."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.net.badserver import clock, is_fine, serving
from trawl._run import crawl_with
from trawl.blocking import InlineBlocking
from trawl.http import Request, Response
from trawl.settings import Layer, load
from trawl.transport import HttpxTransport, TransportSettings
from trawl.transport.http11 import Http11Transport

__all__ = ["clock"]

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n"
BUSY = (0.0, 0.03, 0.0, 0.02, 0.04, 0.0, 0.01, 0.03)
"""Seconds that each write takes, in turn."""


class Wire:
    """A connection on which the write takes its time, and what was written when.

    Args:
        busy: Seconds that the writes take, one after another.
        written: The instants at which they had ended.
        is_at_once: The program is held up in the call; otherwise it waits.
        time: The clock that goes on meanwhile.
    """

    peer: str | None = "192.0.2.1"

    def __init__(self, busy: Any, written: list[float], time: MockClock, *, is_at_once: bool) -> None:
        self._busy = busy
        self._written = written
        self._clock = time
        self._is_at_once = is_at_once

    def send_nowait(self, data: bytes) -> int:
        """Write, if that is done at once."""
        if not self._is_at_once:
            return 0
        self._clock.jump(next(self._busy))
        self._written.append(trio.current_time())
        return len(data)

    async def send(self, data: bytes) -> None:
        """Write."""
        await trio.sleep(next(self._busy))
        self._written.append(trio.current_time())

    async def receive_soon(self) -> bytes | None:
        """Nothing is there at once."""
        return None

    async def receive(self) -> bytes:
        """The answer, which takes longer than the delay."""
        await trio.sleep(0.3)
        return ANSWER

    def is_quiet(self) -> bool:
        """It is."""
        return True

    def session(self) -> None:
        """There is no TLS."""

    def close(self, *, is_cut: bool = False) -> None:
        """There is nothing to close."""


class Pages(trawl.Spider):
    name = "pages"
    start_urls = tuple(f"http://a.example/{number}" for number in range(8))

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"url": response.url}


@pytest.mark.parametrize("is_at_once", [True, False])
@pytest.mark.parametrize(
    ("limits", "apart", "of"),
    [
        ({"delay": 0.05, "concurrency": 8}, 0.05, 1),
        ({"delay_per_slot": 0.5, "delay": 0.0, "concurrency": 2}, 0.5, 2),
        ({"quota": 2.0, "window": 0.5, "sliding": True, "concurrency": 8}, 0.5, 2),
        ({"delay": 0.05, "concurrency": 8, "jitter": [0.0, 0.5]}, 0.05, 1),
    ],
)
async def test_what_a_server_sees_is_spaced_however_long_writes_take(
    autojump_clock: MockClock, is_at_once: bool, limits: dict[str, Any], apart: float, of: int
) -> None:
    written: list[float] = []
    busy = iter(BUSY)

    async def connect(site: object) -> Any:
        await trio.lowlevel.checkpoint()
        return Wire(busy, written, autojump_clock, is_at_once=is_at_once)

    settings = {
        "ROBOTSTXT_OBEY": False,
        "RANDOMIZE_DOWNLOAD_DELAY": False,
        "DOWNLOAD_DELAY_PER_SLOT": 0.0,
        "THROTTLING_SCOPES": {"a.example": {"delay": 0.0, **limits}},
    }
    result = await crawl_with(
        Pages,
        load(Layer("test", settings)),
        collect=True,
        transport=Http11Transport(TransportSettings(), connect=connect),
        blocking=InlineBlocking(),
    )
    assert len(result.items or ()) == 8
    assert len(written) == 8
    assert min(later - sooner for sooner, later in zip(written, written[of:], strict=False)) >= apart - 1e-9


async def test_the_transport_for_http2_and_proxies_tells_the_end_of_the_write_too(clock: MockClock) -> None:
    told: list[str] = []

    class Told:
        """Notes what it is told."""

        def __call__(self) -> None:
            told.append("began")

        def written(self) -> None:
            """It has ended."""
            told.append("ended")

    transport = HttpxTransport(TransportSettings())
    async with serving(is_fine) as server:
        await transport.send(Request(server.url), Told())
        await transport.send(Request(server.url), lambda: None)  # who does not want to know is not told
        await transport.aclose()
    assert told[:2] == ["began", "ended"]
