"""The waiter of one robots.txt, which parses the file before its place is released, and the body of a long file."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Sequence
from io import BytesIO
from typing import BinaryIO

import trio

from trawl.errors import DownloadError
from trawl.http import Outcome, Response
from trawl.robots import RobotsFile
from trawl.scheduler import Attempt

__all__ = ["PackedBody", "RobotsWaiter", "end_unread"]


def end_unread(attempt: Attempt) -> None:
    """End a direct fetch that is not pending, because the robots.txt of its origin can't be read."""
    request = attempt.request
    error = DownloadError("robots.txt could not be read", url=request.url, method=request.method)
    attempt.options.waiter.deliver(Outcome(request, error=error))


class PackedBody:
    """A sink that stores a long robots.txt compressed, because many may wait to be parsed at the same time."""

    __slots__ = ("_packed", "size_bytes")

    memory_bytes = 16_384

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start a new body."""
        self._packed: list[bytes] = []
        self.size_bytes: int = 0

    async def write(self, pieces: Sequence[bytes]) -> None:
        """Append chunks of the body. Always a checkpoint."""
        for piece in pieces:
            self._packed.append(zlib.compress(piece, 1))  # separately, because a compressor takes 268 kB
            self.size_bytes += len(piece)
        await trio.lowlevel.checkpoint()

    async def discard(self) -> None:
        """Forget the body. Always a checkpoint."""
        self.begin()
        await trio.lowlevel.checkpoint()

    def open(self) -> BinaryIO:
        """Return the whole body as a file in memory."""
        return BytesIO(b"".join(map(zlib.decompress, self._packed)))


class RobotsWaiter:
    """Waits for one robots.txt."""

    __slots__ = ("_heard", "_parse", "_read", "attempt", "parent")

    def __init__(
        self, parse: Callable[[Response], Awaitable[RobotsFile]], heard: Callable[[Outcome, RobotsFile | None], None]
    ) -> None:
        self._parse = parse
        self._heard = heard
        self._read: tuple[Response, RobotsFile] | None = None
        self.attempt: Attempt | None = None
        self.parent: Attempt | None = None

    async def read(self, response: Response | None) -> None:
        """Parse a received file. Call it before the place is released. A checkpoint if the file is long.

        A site with many hosts could send files faster than they are parsed, so places bound the number of waiting
        files.
        """
        if response is not None:
            self._read = response, await self._parse(response)

    def deliver(self, outcome: Outcome) -> None:
        """Process the outcome."""
        read, self._read, self.attempt = self._read, None, None
        # A middleware may have replaced the response.
        self._heard(outcome, read[1] if read is not None and read[0] is outcome.response else None)
