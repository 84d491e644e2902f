"""Side by side with the transport over httpx, on real sockets: the same requests, responses and errors."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import pytest
from trio.testing import MockClock

from tests.net.badserver import BEHAVIOURS, MEGABYTE, Behaviour, Connection, bomb, clock, serving
from trawl.http import Outcome, Request
from trawl.transport import HttpxTransport, TransportSettings
from trawl.transport.base import Transport
from trawl.transport.http11 import Http11Transport

__all__ = ["clock"]

LIMITS = TransportSettings(
    download_timeout=100.0, download_read_timeout=20.0, download_connect_timeout=10.0, download_maxsize=MEGABYTE
)
LAX = TransportSettings(download_read_timeout=20.0, download_fail_on_dataloss=False, compression_enabled=False)

KINDS: list[Callable[[TransportSettings], Transport]] = [HttpxTransport, Http11Transport]

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
GZIP = gzip.compress(b"hello" * 100)

ANSWERS: dict[str, bytes] = {
    "a length": OK + b"Content-Type: text/html\r\nContent-Length: 5\r\n\r\nhello",
    "an empty body": OK + b"Content-Length: 0\r\n\r\n",
    "the end of the connection": OK + b"\r\nhello",
    "1.0": b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "chunks": CHUNKED + b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    "chunks with extensions and trailers": CHUNKED + b"5;a=b\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n",
    "chunks with blanks": CHUNKED + b"5 \r\nhello\r\n0\r\n\r\n",
    "chunks cut": CHUNKED + b"9\r\nhello",
    "chunks without the last": CHUNKED + b"5\r\nhello\r\n",
    "chunks of rubbish": CHUNKED + b"xyz\r\nhello",
    "a length cut": OK + b"Content-Length: 9\r\n\r\nhello",
    "more than a length": OK + b"Content-Length: 5\r\n\r\nhello, hello",
    "two responses": OK + b"Content-Length: 5\r\n\r\nhello" + OK + b"Content-Length: 4\r\n\r\nevil",
    "two responses, chunked": CHUNKED + b"5\r\nhello\r\n0\r\n\r\n" + OK + b"Content-Length: 4\r\n\r\nevil",
    "204": b"HTTP/1.1 204 No Content\r\n\r\n",
    "304 with a length": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n",
    "103 first": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK + b"Content-Length: 5\r\n\r\nhello",
    "100 first": b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 5\r\n\r\nhello",
    "101": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: chess\r\nConnection: Upgrade\r\n\r\n",
    "404": b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello",
    "999": b"HTTP/1.1 999 Denied\r\nContent-Length: 5\r\n\r\nhello",
    "no reason": b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello",
    "bare LF": b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
    "cookies": OK + b"Set-Cookie: a=b\r\nX: y\r\nset-cookie: c=d\r\nContent-Length: 0\r\n\r\n",
    "Latin-1": OK + b"X: caf\xe9\r\nContent-Length: 0\r\n\r\n",
    "an empty field": OK + b"X:\r\nY:  \r\nContent-Length: 0\r\n\r\n",
    "a fold": OK + b"X: a\r\n  b\r\nContent-Length: 5\r\n\r\nhello",
    "a length twice": OK + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "a length and another": OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "a length and chunks": OK + b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "a length that is none": OK + b"Content-Length: five\r\n\r\nhello",
    "a length with a sign": OK + b"Content-Length: +5\r\n\r\nhello",
    "an unknown transfer coding": OK + b"Transfer-Encoding: gzip\r\n\r\nhello",
    "a blank before the colon": OK + b"X : y\r\nContent-Length: 5\r\n\r\nhello",
    "no colon": OK + b"rubbish\r\nContent-Length: 5\r\n\r\nhello",
    "a NUL": OK + b"X: a\0b\r\nContent-Length: 5\r\n\r\nhello",
    "a control character": OK + b"X: a\x01b\r\nContent-Length: 5\r\n\r\nhello",
    "a status of four digits": b"HTTP/1.1 2000 OK\r\nContent-Length: 5\r\n\r\nhello",
    "an upgrade that is offered": OK + b"Upgrade: h2\r\nConnection: Upgrade\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/0.9": b"<html>hello</html>",
    "gzip": OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(GZIP) + GZIP,
    "gzip cut": OK + b"Content-Encoding: gzip\r\n\r\n" + GZIP[:-9],
    "gzip that is none": OK + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
    "an unknown coding": OK + b"Content-Encoding: rot13\r\nContent-Length: 5\r\n\r\nuryyb",
    "too large": OK + b"Content-Length: 2000000\r\n\r\n",
    "nothing": b"",
}


UNBEARABLE = {"answers_for_now_for_ever", "sends_chunks_without_end"}
"""What httpcore's parser has no limit for, or takes half a minute to read to the limit."""


def answering(answer: bytes) -> Behaviour:
    """A server that sends ``answer`` and closes."""

    async def answers(connection: Connection) -> None:
        await connection.send(answer)

    return answers


def seen(outcome: Outcome) -> tuple[object, ...]:
    """Everything about an outcome that a spider could see, but the words of errors."""
    response = outcome.response
    if response is None:
        return type(outcome.error), outcome.sent_at is not None, outcome.first_byte_at is not None
    facts = (response.status, response.url, response.body, response.flags, response.ip_address, response.protocol)
    return (*facts, response.headers.items_list())


async def compared(
    behaviour: Behaviour, settings: TransportSettings, *, method: str = "GET", body: bytes = b""
) -> None:
    """Ask the same of two servers of one kind, twice; the outcomes and what the servers got are the same."""
    outcomes: list[list[object]] = []
    heads: list[list[bytes]] = []
    connected = []
    for kind in KINDS:
        async with serving(behaviour) as server:
            transport = kind(settings)
            request = Request(server.url + "#top", method=method, body=body, headers={"X-A": ["b", "c"]})
            both = [await transport.send(request, lambda: None) for _ in range(2)]
            await transport.aclose()
            await server.all_gone()
            here = str(server.port).encode()
            outcomes.append([tuple(str(fact).replace(str(server.port), "") for fact in seen(one)) for one in both])
            heads.append([head.replace(here, b"") for head in server.heads] + server.bodies)
            connected.append(server.connected)
    assert outcomes[0] == outcomes[1]
    assert heads[0] == heads[1]
    assert connected[0] == connected[1]


@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_is_the_same_through_both_transports(clock: MockClock, name: str) -> None:
    await compared(answering(ANSWERS[name]), LIMITS)


@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_is_the_same_when_nothing_is_strict(clock: MockClock, name: str) -> None:
    await compared(answering(ANSWERS[name]), LAX)


@pytest.mark.parametrize(
    "name", ["a length", "the end of the connection", "chunks", "204", "103 first", "gzip", "nothing"]
)
async def test_the_answer_to_head_is_the_same(clock: MockClock, name: str) -> None:
    head, end, _ = ANSWERS[name].rpartition(b"\r\n\r\n") if name != "chunks" else (CHUNKED[:-4], b"\r\n\r\n", b"")
    await compared(answering(head + end), LIMITS, method="HEAD")


@pytest.mark.parametrize("name", sorted(BEHAVIOURS.keys() - UNBEARABLE))
async def test_a_bad_server_ends_in_the_same_error_c8(clock: MockClock, name: str) -> None:
    await compared(BEHAVIOURS[name], LIMITS)


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd"])
async def test_a_bomb_ends_in_the_same_error_c8(clock: MockClock, coding: str) -> None:
    await compared(bomb(coding), LIMITS)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("body", [b"", b"x", b"x" * MEGABYTE])
async def test_a_request_with_a_body_is_the_same_and_its_connection_is_kept(
    clock: MockClock, method: str, body: bytes
) -> None:
    await compared(BEHAVIOURS["is_fine"], LIMITS, method=method, body=body)
