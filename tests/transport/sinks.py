"""A sink in memory, which notes what it is asked for."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable, Sequence
from typing import BinaryIO

import attrs
import trio

__all__ = ["NotingSink"]


@attrs.define
class NotingSink:
    """Takes a body, and may do something before each write.

    Attributes:
        before: Awaited before each write.
        begun: How many bodies have begun.
        discarded: How many were discarded.
        written: The sizes of the writes of the present body.
        content: What was written of the present body.
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
