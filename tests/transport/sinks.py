"""A sink in memory that records its calls."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable, Sequence
from typing import BinaryIO

import attrs
import trio

__all__ = ["NotingSink"]


@attrs.define
class NotingSink:
    """Receives a body, and can await a function before each write.

    Attributes:
        before: Function to await before each write.
        begun: Number of started bodies.
        discarded: Number of discarded bodies.
        written: The sizes of the writes of the current body.
        content: The written part of the current body.
    """

    before: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint
    begun: int = 0
    discarded: int = 0
    written: list[int] = attrs.Factory(list)
    content: bytes = b""

    @property
    def size_bytes(self) -> int:
        return len(self.content)

    def begin(self) -> None:
        self.begun += 1
        self.content = b""
        self.written = []

    async def write(self, pieces: Sequence[bytes]) -> None:
        await self.before()
        self.written.append(sum(map(len, pieces)))
        self.content += b"".join(pieces)

    async def discard(self) -> None:
        await trio.lowlevel.checkpoint()
        self.discarded += 1
        self.content = b""

    def open(self) -> BinaryIO:
        return io.BytesIO(self.content)
