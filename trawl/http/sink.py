"""Bodies that do not stay in memory: where a large one goes while it comes, and the response that speaks of it.

A request may name a :class:`BodySink`. A successful response to it (2xx) whose body is small stays in memory as ever; a
larger one goes to the sink, piece by piece, and the connection is not read on while a piece is written. What comes back
then is a :class:`FileResponse`. All others, those of errors and redirects for instance, are in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO, Protocol, Self, Unpack

from trawl.http.response import Changes, Response

__all__ = ["BodySink", "FileResponse", "body_bytes"]


class BodySink(Protocol):
    """Takes a large body in place of memory. For one request at a time: a retry begins it anew."""

    @property
    def size_bytes(self) -> int:
        """How much has been written since the body began."""
        ...

    def begin(self) -> None:
        """What is written from now on is a new body; what came before it is of no use."""
        ...

    async def write(self, pieces: Sequence[bytes]) -> None:
        """Write the next pieces. Cancelling waits for a write that has begun. Always a checkpoint.

        Raises:
            BodyNotWritten: It can't be written, or is not wanted any more.
        """
        ...

    async def discard(self) -> None:
        """Remove what was written: the body did not come to its end. Always a checkpoint."""
        ...

    def open(self) -> BinaryIO:
        """The body, to be read. Blocks.

        Raises:
            ValueError: It is there no more.
        """
        ...


class FileResponse(Response):
    """A response whose body is in a file.

    ``body``, and whatever is made of it (``text``, selectors), reads the file back each time, whole and at once; what
    is large is better read from :meth:`open`. The file is there until whoever asked for it has put it where it belongs.

    Attributes:
        sink: The file; None if another body was set.
    """

    __slots__ = ("_own", "sink")

    sink: BodySink | None
    _own: bytes

    def __init__(self, *args: Any, sink: BodySink | None = None, **options: Any) -> None:
        """Make a response; the arguments are those of :class:`~trawl.http.Response`.

        Args:
            args: As ``Response`` takes them.
            sink: Has the body, in place of one that is given.
            options: As ``Response`` takes them.
        """
        super().__init__(*args, **options)
        if sink is not None:
            self._own = b""
            self.sink = sink

    @property
    def body(self) -> bytes:
        """The bytes after decompression, read back from the file.

        Raises:
            ValueError: The file is there no more.
            OSError: It can't be read.
        """
        if self.sink is None:
            return self._own
        with self.sink.open() as file:
            return file.read()

    @body.setter
    def body(self, body: bytes) -> None:
        self._own = body
        self.sink = None

    @property
    def size_bytes(self) -> int:
        """How large the body is, without reading it."""
        return len(self._own) if self.sink is None else self.sink.size_bytes

    def open(self) -> BinaryIO:
        """The file of the body, to be read and closed. Blocks.

        Raises:
            ValueError: It is there no more, or never was: another body was set.
            OSError: It can't be read.
        """
        if self.sink is None:
            raise ValueError(f"{self!r} has its body in memory")
        return self.sink.open()

    def replace(self, **changes: Unpack[Changes]) -> Self:
        """Return a response like this one but for ``changes``; its body is in the same file."""
        if self.sink is None or "body" in changes:
            return super().replace(**changes)
        changes["body"] = b""
        changed = super().replace(**changes)
        changed.sink = self.sink
        return changed


def body_bytes(response: Response) -> int:
    """How large a response's body is; one that is in a file is not read."""
    return response.size_bytes if isinstance(response, FileResponse) else len(response.body)
