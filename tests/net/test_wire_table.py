"""What a parser of HTTP leaves to who uses it: the table of corners, a row each, on real sockets and each of our wires.

Every row is asked twice, over TLS too. Nothing is left open, whatever came.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import attrs
import httpx
import pytest
import trio
from trio.testing import MockClock

from tests.net.badserver import MEGABYTE, Authority, Behaviour, Connection, clock, serving
from trawl.errors import DownloadError, ResponseBroken
from trawl.http import Request
from trawl.transport import HTTP11Transport, Http11Transport, HttpxTransport, TransportSettings
from trawl.transport.http11.parser import MAX_FIELDS

__all__ = ["clock"]

AUTHORITY = Authority()
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
HELLO = OK + b"Content-Length: 5\r\n\r\nhello"
HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
EVIL = OK + b"Content-Length: 4\r\n\r\nevil"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: chess\r\nConnection: Upgrade\r\n\r\n"
SETTINGS = TransportSettings(download_timeout=100.0, download_read_timeout=20.0)


# What servers do.


def says(*pieces: bytes) -> Behaviour:
    """Sends ``pieces``, each in a read of its own, and takes the next request."""

    async def answers(connection: Connection) -> None:
        for number, piece in enumerate(pieces):
            await trio.sleep(number and 0.1)
            await connection.send(piece)
        connection.is_kept = True

    return answers


def ends_after(*pieces: bytes) -> Behaviour:
    """Sends ``pieces`` and closes; over TLS without a word, as most servers do."""

    async def answers(connection: Connection) -> None:
        await says(*pieces)(connection)
        connection.is_kept = False

    return answers


async def says_one_header_for_ever(connection: Connection) -> None:
    await connection.send(OK + b"X-Long: ")
    while True:
        await connection.send(b"a" * 65536)


async def leaves_when_it_is_asked_again(connection: Connection) -> None:
    if connection.requests == 1:
        await connection.answer(b"hello")


async def says_nothing_more(connection: Connection) -> None:
    await connection.send(OK + b"Content-Length: 9\r\n\r\nhello")
    await connection.until_gone()


# What is asked, and what comes of it.

Seen = tuple[int, bytes] | str
"""Status and body, or what the error says."""

Ask = Callable[[str, str], Awaitable[Seen]]
"""Asks for a URL by a method."""

T = TypeVar("T")


@asynccontextmanager
async def crawling(kind: type[Http11Transport | HttpxTransport]) -> Any:
    """A crawl's wire."""
    transport = kind(SETTINGS, ssl_context=AUTHORITY.client())

    async def ask(url: str, method: str) -> Seen:
        body = b"x" if method == "POST" else b""
        outcome = await transport.send(Request(url, method=method, body=body), lambda: None)
        if outcome.response is not None:
            return outcome.response.status, outcome.response.body
        assert isinstance(outcome.error, DownloadError)
        assert isinstance(outcome.error, ResponseBroken) or "nothing came" in str(outcome.error)
        return str(outcome.error)

    try:
        yield ask
    finally:
        await transport.aclose()


@asynccontextmanager
async def visiting() -> Any:
    """Ours in httpx's client."""
    transport = HTTP11Transport(AUTHORITY.client())
    async with httpx.AsyncClient(transport=transport, timeout=20.0, trust_env=False) as client:

        async def ask(url: str, method: str) -> Seen:
            try:
                response = await client.request(method, url, content=b"x" if method == "POST" else None)
            except (httpx.RemoteProtocolError, httpx.ReadTimeout) as error:
                return str(error)
            return response.status_code, response.content

        yield ask


WIRES: dict[str, Callable[[], AbstractAsyncContextManager[Ask]]] = {
    "ours": partial(crawling, Http11Transport),
    "httpx's": partial(crawling, HttpxTransport),
    "ours in httpx's client": visiting,
}


@attrs.frozen
class Row:
    """One corner.

    Attributes:
        name: What it is.
        server: What the server does at each request.
        seen: What comes of each of two requests; of an error, one of the things that it may say.
        connected: Connections that the two take.
        method: Of both.
        pause: Seconds between them.
        most_bytes: Memory that an exchange takes at the most; None: that is not the point.
        other: What is seen and how many connections it takes on the wires where it is not the same.
    """

    name: str
    server: Behaviour
    seen: Seen | Sequence[str]
    connected: int
    method: str = "GET"
    pause: float = 0.0
    most_bytes: int | None = None
    other: Mapping[str, tuple[Seen | Sequence[str], int]] = attrs.Factory(dict)


WHOLE = (200, b"hello")
LEFT = ("ended early", "peer closed connection")
NO_ANSWER = ("without a response", "the connection broke")
TOO_MUCH = ("more came than its Content-Length of 5 bytes",)
ENDLESS = ("its headers have no end",)
TABLE = [
    # The end of the connection: llhttp says nothing, so a body that is cut would look whole.
    Row("a body ended by the end of the connection", ends_after(OK + b"\r\nhel", b"lo"), WHOLE, 2),
    Row("a length that the end of the connection cuts", ends_after(OK + b"Content-Length: 9\r\n\r\nhello"), LEFT, 2),
    Row("chunks that the end of the connection cuts", ends_after(CHUNKED + b"5\r\nhello\r\n"), LEFT, 2),
    Row("a chunk that the end of the connection cuts", ends_after(CHUNKED + b"9\r\nhello"), LEFT, 2),
    Row("a body that stops before its length", says_nothing_more, ("nothing came", "timed out"), 2),
    # HEAD and what has no body: llhttp waits for the one that the length speaks of.
    Row(
        "HEAD with a length",
        says(OK + b"Content-Encoding: gzip\r\nContent-Length: 5000000000\r\n\r\n"),
        (200, b""),
        1,
        method="HEAD",
    ),
    Row("HEAD with chunks", says(CHUNKED), (200, b""), 1, method="HEAD"),
    Row("HEAD without a length", says(OK + b"\r\n"), (200, b""), 1, method="HEAD"),
    Row("HEAD answered with a body", says(HELLO), (200, b""), 2, method="HEAD"),
    Row("304 with a length", says(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"), (304, b""), 1),
    Row("204", says(b"HTTP/1.1 204 No Content\r\n\r\n"), (204, b""), 1),
    # Responses for now: llhttp calls each of them a whole message.
    Row("103 and 200 in one read", says(HINTS + HELLO), WHOLE, 1),
    Row("103, and 200 later", says(HINTS, HELLO), WHOLE, 1),
    Row("103 three times", says(HINTS, HINTS + HINTS, HELLO), WHOLE, 1),
    Row("103, and the end", ends_after(HINTS), NO_ANSWER, 2),
    # Two responses in one read: llhttp reads on, and the second would answer the next request.
    Row(
        "two responses in one read",
        says(HELLO + EVIL),
        TOO_MUCH,
        2,
        other={"ours in httpx's client": (WHOLE, 2)},  # which has read the body before its end is known
    ),
    Row("two responses in one read, chunked", says(CHUNKED + b"5\r\nhello\r\n0\r\n\r\n" + EVIL), WHOLE, 2),
    Row("two responses, one behind the other", says(HELLO, EVIL), WHOLE, 2, pause=0.2),
    # Another protocol: llhttp raises, and leaves the rest of what came to others.
    Row("101", says(SWITCH), ("another protocol",), 2),
    Row("101 and 200 in one read", says(SWITCH + HELLO), ("another protocol",), 2),
    # What llhttp refuses, and browsers take; the connection goes where two readers might part ways.
    Row("bare LF", says(b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello"), WHOLE, 1),
    Row(
        "a length twice, equal",
        says(OK + b"Content-Length: 5\r\n" * 2 + b"\r\nhello"),
        WHOLE,
        2,
        other={"httpx's": (WHOLE, 1)},
    ),
    Row(
        "a length and chunks",
        says(OK + b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        WHOLE,
        2,
        other={"httpx's": (WHOLE, 1)},
    ),
    # Headers without end: llhttp takes them in silence.
    Row("an endless header", says_one_header_for_ever, ENDLESS, 2, most_bytes=4 * MEGABYTE),
    # An error of ours in a callback: llhttp hides it behind one of its own.
    Row(
        "too many fields",
        says(OK + b"X: y\r\n" * 100 * MAX_FIELDS + b"Content-Length: 5\r\n\r\nhello"),
        (f"more than {MAX_FIELDS} fields", *ENDLESS),
        2,
    ),
    # An idle connection that the server has closed, seen before it is used again, or only then.
    Row("a stale idle connection", ends_after(HELLO), WHOLE, 2, pause=1),
    Row("a stale idle connection, for what may do something", ends_after(HELLO), WHOLE, 2, method="POST", pause=1),
    Row("a connection that ends when it is used again", leaves_when_it_is_asked_again, WHOLE, 2),
]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
async def test_a_corner_of_http_is_what_its_row_says(clock: MockClock, row: Row, tls: bool, wire: str) -> None:
    seen, connected = row.other.get(wire, (row.seen, row.connected))
    async with serving(row.server, AUTHORITY.server() if tls else None) as server, WIRES[wire]() as ask:
        for number in range(2):
            if number and row.most_bytes is not None:  # what is imported on the way is not counted
                tracemalloc.start()
            try:
                found = await ask(server.url, row.method)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            if isinstance(found, str):
                assert any(words in found for words in seen if isinstance(words, str)), found
            else:
                assert found == seen
            assert row.most_bytes is None or peak < row.most_bytes
            await trio.sleep(row.pause)
        assert server.connected == connected
    await server.all_gone()


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
async def test_what_may_do_something_does_not_go_again(clock: MockClock, tls: bool, wire: str) -> None:
    tls_context = AUTHORITY.server() if tls else None
    async with serving(leaves_when_it_is_asked_again, tls_context) as server, WIRES[wire]() as ask:
        assert await ask(server.url, "GET") == WHOLE
        error = await ask(server.url, "POST")
        assert isinstance(error, str)
        assert any(words in error for words in NO_ANSWER)
        assert server.connected == 1
    await server.all_gone()


@pytest.mark.parametrize("wire", WIRES)
async def test_nobodys_goodbye_is_waited_for(clock: MockClock, wire: str) -> None:
    async def never_says_goodbye(connection: Connection) -> None:
        await connection.send(OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello")
        await connection.until_gone()

    async with serving(never_says_goodbye, AUTHORITY.server()) as server:
        began = trio.current_time()
        async with WIRES[wire]() as ask:
            assert await ask(server.url, "GET") == WHOLE
        await server.all_gone()
        assert trio.current_time() - began < 1
