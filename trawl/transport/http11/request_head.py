"""A request whose body is a stream, and what can go wrong with it.

A request as it is written on the wire (RFC 9112, 3 and 5).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum
from math import inf

import attrs

from trawl.http import Headers, Request
from trawl.transport.http11.pool import Origin
from trawl.transport.target import Target, wire_fields

__all__ = ["Failure", "Message", "StreamError", "StreamedRequest", "Timeouts", "chunk", "head_bytes", "message_of"]

_FRAMING = frozenset({"content-length", "transfer-encoding", "host", "proxy-authorization"})

_BODY_EXPECTED = frozenset({"POST", "PUT", "PATCH"})  # RFC 9110, 8.6

_UNUSUAL = frozenset({"host", "connection", "expect"})

LAST_CHUNK = b"0\r\n\r\n"


@attrs.define
class Message:
    """A request ready to be sent.

    Attributes:
        head: Everything before the body.
        is_last: The connection is not to be used afterwards: the request says so.
        expects: The request says ``Expect: 100-continue`` (RFC 9110, 10.1.1).
    """

    head: bytes
    is_last: bool = False
    expects: bool = False


def message_of(request: Request, origin: Origin, defaults: Headers | None) -> Message:
    """The message that ``request`` is, as :func:`~trawl.transport.target.wire_fields` would have it, but faster.

    Args:
        request: What is asked.
        origin: Where.
        defaults: Fields that are added unless the request has them or refuses them.
    """
    target = origin.target
    headers = request.headers
    if target.user_info or headers.has_any(_UNUSUAL):
        return _rare(request, defaults)
    path = request.url[len(origin.url) :]
    if "#" in path:
        path = path.partition("#")[0]
    length = f"Content-Length: {len(request.body)}\r\n" if request.body or request.method in _BODY_EXPECTED else ""
    fields = headers.lines(defaults, without=_FRAMING)
    try:
        head = f"{request.method} {path or '/'} HTTP/1.1\r\nHost: {target.authority}\r\n{fields}{length}\r\n".encode(
            "latin-1"
        )
    except UnicodeEncodeError:
        return _rare(request, defaults)
    return Message(head)


def _words(value: str) -> set[str]:
    return {word.strip() for word in value.lower().split(",")}


def _rare(request: Request, defaults: Headers | None) -> Message:
    """The message of a request that is not simple."""
    target, headers = Target.of(request.url), request.headers.copy()
    if defaults is not None:
        headers.fill(defaults)
    fields = wire_fields(request.replace(headers=headers), target, None)
    return Message(
        head_bytes(request.method.encode(), target.path.encode("ascii"), fields),
        is_last="close" in _words(headers.get("connection", "")),
        expects="100-continue" in _words(headers.get("expect", "")),
    )


def head_bytes(method: bytes, path: bytes, fields: list[tuple[bytes, bytes]]) -> bytes:
    """The start line and the fields, with the blank line after them."""
    lines = [b"%s %s HTTP/1.1\r\n" % (method, path)]
    lines += [b"%s: %s\r\n" % field for field in fields]
    lines.append(b"\r\n")
    return b"".join(lines)


def chunk(piece: bytes) -> bytes:
    """``piece``, not empty, as a chunk (RFC 9112, 7.1)."""
    return b"%x\r\n%s\r\n" % (len(piece), piece)


class Failure(Enum):
    """What went wrong, under the names that httpx has for it."""

    POOL_TIMEOUT = "PoolTimeout"
    CONNECT_TIMEOUT = "ConnectTimeout"
    CONNECT = "ConnectError"
    WRITE_TIMEOUT = "WriteTimeout"
    READ_TIMEOUT = "ReadTimeout"
    READ = "ReadError"
    RESPONSE = "RemoteProtocolError"
    REQUEST = "LocalProtocolError"
    SCHEME = "UnsupportedProtocol"


class StreamError(Exception):
    """An exchange that failed.

    Attributes:
        failure: How.
    """

    def __init__(self, failure: Failure, words: str) -> None:
        super().__init__(words)
        self.failure = failure


@attrs.frozen
class Timeouts:
    """The longest waits of one exchange, in seconds.

    Attributes:
        pool: For a place, if the number of connections is capped.
        connect: For a connection with its TLS handshake.
        write: For the server to take a piece.
        read: For the server to send a piece.
    """

    pool: float = inf
    connect: float = inf
    write: float = inf
    read: float = inf


@asynccontextmanager
async def _closing(body: AsyncIterable[bytes]) -> AsyncGenerator[AsyncIterator[bytes], None]:
    """The pieces of ``body``; a generator is closed in the end, so that it is not left half-read."""
    pieces = aiter(body)
    try:
        yield pieces
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()


@attrs.frozen
class StreamedRequest:
    """A request whose body is a stream.

    Attributes:
        method: In upper case.
        origin: As ``https://a.example:8443``.
        path: The path and query.
        fields: As they are to be sent, ``Host`` and what frames the body among them.
        body: The body's pieces, read once.
        timeouts: The longest waits.
        server_name: Whose certificate is asked for, if it is not the host's.
    """

    method: bytes
    origin: str
    path: bytes
    fields: list[tuple[bytes, bytes]]
    body: AsyncIterable[bytes]
    timeouts: Timeouts = Timeouts()
    server_name: str = ""

    def field(self, name: bytes) -> bytes:
        """What the request says under ``name``, in lower case; empty if it says nothing."""
        return b",".join(value for key, value in self.fields if key.lower() == name).lower()

    @property
    def has_body(self) -> bool:
        """Whether a body is announced (RFC 9112, 6)."""
        return bool(self.field(b"transfer-encoding")) or self.field(b"content-length") not in {b"", b"0"}

    def head(self) -> bytes:
        """What goes before the body.

        Raises:
            StreamError: It would be more lines than it has fields: there is a line end in one of them.
        """
        head = head_bytes(self.method, self.path, self.fields)
        lines = len(self.fields) + 2
        if head.count(b"\n") != lines or head.count(b"\r") != lines or b"\0" in head:
            raise StreamError(Failure.REQUEST, "Illegal header value: a control character")
        return head

    async def written(self, *, with_head: bool = True) -> AsyncGenerator[bytes, None]:
        """The request as it goes on the wire; the head comes with the first piece of the body, unless it was sent.

        Raises:
            StreamError: The body is not as long as it says.
        """
        waiting = self.head() if with_head else b""
        is_chunked = bool(self.field(b"transfer-encoding"))
        left = int(self.field(b"content-length") or 0)
        async with _closing(self.body) as pieces:
            async for piece in pieces:
                left -= len(piece)
                if not is_chunked and left < 0:
                    raise StreamError(Failure.REQUEST, "Too much data for declared Content-Length")
                if piece:
                    yield waiting + (chunk(piece) if is_chunked else piece)  # noqa: ASYNC119 - its reader closes it
                    waiting = b""
        if not is_chunked and left > 0:
            raise StreamError(Failure.REQUEST, "Too little data for declared Content-Length")
        if is_chunked or waiting:
            yield waiting + (LAST_CHUNK if is_chunked else b"")
