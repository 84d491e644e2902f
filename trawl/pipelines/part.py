"""A large file on its way to its shelf: written beside it as it comes, moved to its place when it is whole.

Theory of operation: two tasks know a part. One reads the body from the wire and writes it; the other one, the
pipeline's, waits for the response, puts the file where it belongs and closes the part, which it also does when it is
cancelled, at any time. So the file is touched under one lock only, and when the part has been closed nothing begins any
more: no temporary file comes after its removal. Digests are made of what is written, in the thread that writes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import trio

from trawl.blocking import Blocking
from trawl.errors import BodyNotWritten
from trawl.http import FileResponse, Response
from trawl.pipelines.shelf import Shelf

__all__ = ["CLOSE_GRACE", "Part", "md5_of", "open_part", "sha1_of"]

CLOSE_GRACE = 5.0
"""Seconds that removing a temporary file may wait for the disk."""


class Part:
    """The sink of one request, whose file is a temporary one of a shelf until it is kept."""

    def __init__(self, shelf: Shelf, blocking: Blocking) -> None:
        """A part of which nothing has come; no file is made before something does."""
        self._shelf = shelf
        self._blocking = blocking
        self._lock = trio.Lock()
        self._file: BinaryIO | None = None
        self._temporary: Path | None = None
        self._readable: Path | None = None
        self._is_new = True
        self._is_closed = False
        self._size_bytes = 0
        self._sha1: Any = None
        self._md5: Any = None

    @property
    def size_bytes(self) -> int:
        """How much has been written since the body began."""
        return self._size_bytes

    @property
    def sha1(self) -> str:
        """The SHA-1 of what has been written, in hexadecimal."""
        return str(self._sha1.hexdigest())

    @property
    def md5(self) -> str:
        """The MD5 of what has been written, in hexadecimal."""
        return str(self._md5.hexdigest())

    def begin(self) -> None:
        """What is written from now on is a new body."""
        self._is_new = True

    async def write(self, pieces: Sequence[bytes]) -> None:
        """Write the next pieces, in a thread. Cancelling waits for a write that has begun. Always a checkpoint.

        Raises:
            BodyNotWritten: The disk takes no more, or the part was closed.
        """
        async with self._lock:
            if self._is_closed:
                raise BodyNotWritten("nobody waits for its body any more")
            try:
                await self._blocking.run(self._write, pieces)
            except OSError as error:
                raise BodyNotWritten(f"its body can't be written: {error}") from error

    async def discard(self) -> None:
        """Remove what was written. Always a checkpoint."""
        async with self._lock:
            await self._blocking.run(self._remove)

    async def keep(self, path: str) -> None:
        """Put the file on the shelf; it can be read until the part is closed. Always a checkpoint.

        Raises:
            ValueError: There is none, or the path leads out of the shelf.
            OSError: It can't be put there.
        """
        async with self._lock:
            await self._blocking.run(self._keep, path)

    def open(self) -> BinaryIO:
        """The file, to be read. Blocks.

        Raises:
            ValueError: It is there no more.
        """
        if self._readable is not None:
            with suppress(FileNotFoundError):
                return self._readable.open("rb")
        raise ValueError("the body is there no more: its file was moved or removed")

    async def aclose(self) -> None:
        """Remove what was not kept, and take nothing any more. A checkpoint, and shielded, if a file was made."""
        self._is_closed = True
        if self._temporary is not None or self._file is not None or self._lock.locked():
            with trio.move_on_after(CLOSE_GRACE, shield=True):
                await self.discard()
        self._readable = None

    # What runs in threads, under the lock.

    def _write(self, pieces: Sequence[bytes]) -> None:
        if self._is_new:
            self._remove()
            self._file, self._temporary = self._shelf.begin()
            self._readable = self._temporary
            self._sha1, self._md5 = (hashlib.new(name, usedforsecurity=False) for name in ("sha1", "md5"))
            self._is_new = False
        assert self._file is not None
        content = b"".join(pieces)
        self._sha1.update(content)
        self._md5.update(content)
        self._file.write(content)
        self._file.flush()
        self._size_bytes += len(content)

    def _keep(self, path: str) -> None:
        if self._temporary is None or self._file is None:
            raise ValueError("the body is there no more: its file was moved or removed")
        self._file.close()
        self._file = None
        self._readable = self._shelf.adopt(path, self._temporary)
        if self._readable != self._temporary:
            self._temporary = None

    def _remove(self) -> None:
        file, self._file = self._file, None
        temporary, self._temporary = self._temporary, None
        self._readable, self._size_bytes = None, 0
        if file is not None:
            with suppress(OSError):  # it tries once more to write what it could not
                file.close()
        if temporary is not None:
            temporary.unlink(missing_ok=True)


@asynccontextmanager
async def open_part(shelf: Shelf, blocking: Blocking) -> AsyncGenerator[Part, None]:
    """A part of ``shelf``. Leaving removes what was not kept."""
    part = Part(shelf, blocking)
    try:
        yield part
    finally:
        await part.aclose()


def sha1_of(response: Response) -> str:
    """The SHA-1 of a response's body, in hexadecimal; one that was written is not read back."""
    part = _part_of(response)
    return hashlib.sha1(response.body, usedforsecurity=False).hexdigest() if part is None else part.sha1


def md5_of(response: Response) -> str:
    """The MD5 of a response's body, in hexadecimal; one that was written is not read back."""
    part = _part_of(response)
    return hashlib.md5(response.body, usedforsecurity=False).hexdigest() if part is None else part.md5


def _part_of(response: Response) -> Part | None:
    sink = response.sink if isinstance(response, FileResponse) else None
    return sink if isinstance(sink, Part) else None
