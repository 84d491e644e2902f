"""Our transport in httpx's client, beside httpx's own: the same responses and exceptions; and bodies as streams."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial

import httpx
import pytest
import trio
from trio.testing import MockClock

from tests.net.badserver import BEHAVIOURS, Authority, Behaviour, Connection, clock, is_fine, serving
from tests.transport.http11.test_conformance import ANSWERS, answering
from trawl.transport import HTTP11Transport

__all__ = ["clock"]

TIMES = httpx.Timeout(20.0, connect=10.0, read=20.0, write=20.0, pool=20.0)
Kind = Callable[[], httpx.AsyncBaseTransport]
KINDS: list[Kind] = [partial(kind, verify=False) for kind in (httpx.AsyncHTTPTransport, HTTP11Transport)]
"""Without the certificates of all authorities: httpx reads them, which takes longer than a test."""

DIFFERENT = {
    "101": "httpx gives the stream to whoever asked for it",
    "gzip that is none": "httpx leaves a generator of its own half-read",
    "two responses, chunked": "httpx keeps what came too much for the next response",
}

BAD_BUT_DIFFERENT = {
    "answers_for_now_for_ever": "httpx has no limit for interim responses",
    "changes_the_protocol": "as above",
    "compresses_badly": "as above",
    "says_a_length_too_short": "as above",
    "is_not_http": "httpx waits for the end of the headers",
    "drips": "no limit for the whole",
    "drips_its_headers": "no limit for the whole",
    "sends_for_ever": "no limit of size",
    "sends_a_chunk_without_end": "no limit of size",
    "sends_chunks_without_end": "no limit of size",
    "compresses_a_hundred_times": "httpx undoes as many codings as there are",
}


def client(transport: httpx.AsyncBaseTransport | None = None) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=transport or HTTP11Transport(), timeout=TIMES, trust_env=False)


async def seen(kind: Kind, behaviour: Behaviour, method: str) -> list[object]:
    """What a client sees of two requests, and what the server sees of it."""
    found: list[object] = []
    async with serving(behaviour) as server:
        async with client(kind()) as web:
            for _ in range(2):
                try:
                    response = await web.request(method, server.url, headers={"X-A": "b"})
                except httpx.HTTPError as error:
                    found.append(type(error))
                else:
                    found.append((response.status_code, response.headers.raw, response.content, response.http_version))
        await server.all_gone()
        return [*found, server.connected, [head.replace(str(server.port).encode(), b"") for head in server.heads]]


@pytest.mark.parametrize("name", sorted(ANSWERS.keys() - DIFFERENT))
async def test_an_answer_is_the_same_as_through_httpxs_own_transport(clock: MockClock, name: str) -> None:
    theirs, ours = [await seen(kind, answering(ANSWERS[name]), "GET") for kind in KINDS]
    assert ours == theirs


async def test_what_is_not_http_is_refused_at_once(clock: MockClock) -> None:
    assert (await seen(HTTP11Transport, BEHAVIOURS["is_not_http"], "GET"))[0] is httpx.RemoteProtocolError
    assert trio.current_time() < 1


@pytest.mark.parametrize(
    "name", ["answers_for_now_for_ever", "sends_trailers_without_end", "sends_a_chunk_size_without_end"]
)
async def test_what_frames_a_response_has_an_end(clock: MockClock, name: str) -> None:
    assert (await seen(HTTP11Transport, BEHAVIOURS[name], "GET"))[0] is httpx.RemoteProtocolError


@pytest.mark.parametrize("name", sorted(BEHAVIOURS.keys() - BAD_BUT_DIFFERENT))
async def test_a_bad_server_ends_in_the_same_exception(clock: MockClock, name: str) -> None:
    if name.startswith("sends_") and "header" in name:  # httpx reports what it could not parse, we what we counted
        assert (await seen(HTTP11Transport, BEHAVIOURS[name], "GET"))[0] is httpx.RemoteProtocolError
        return
    theirs, ours = [await seen(kind, BEHAVIOURS[name], "GET") for kind in KINDS]
    assert ours == theirs


@pytest.mark.parametrize("method", ["HEAD", "POST", "DELETE", "OPTIONS"])
async def test_other_methods_are_the_same(clock: MockClock, method: str) -> None:
    async def answers(connection: Connection) -> None:
        await connection.answer(b"" if connection.head.startswith(b"HEAD") else b"hello", "200 OK", "X: y")

    theirs, ours = [await seen(kind, answers, method) for kind in KINDS]
    assert ours == theirs
    assert ours[2] == 1


class Pieces:
    """A body that comes in pieces."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = list(parts)

    def __aiter__(self) -> Pieces:
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        if not self._parts:
            raise StopAsyncIteration
        return self._parts.pop(0)


async def test_a_body_is_sent_as_it_comes(clock: MockClock) -> None:
    received: list[bytes] = []

    async def collects(connection: Connection) -> None:
        body = connection.body
        while b"\r\n0\r\n\r\n" not in body:
            body += await connection.stream.receive_some(1000)
        received.append(body)
        await connection.answer(b"ok")

    async with serving(collects) as server, client() as web:
        for _ in range(2):
            response = await web.post(server.url, content=Pieces(b"hello", b"", b", hello"))
            assert response.text == "ok"
        assert server.connected == 1
    assert received == [b"5\r\nhello\r\n7\r\n, hello\r\n0\r\n\r\n"] * 2


@pytest.mark.parametrize(("length", "words"), [("3", "Too much data"), ("9", "Too little data")])
async def test_a_body_of_another_length_than_it_says_is_an_error(clock: MockClock, length: str, words: str) -> None:
    async with serving(is_fine) as server, client() as web:
        with pytest.raises(httpx.LocalProtocolError, match=words):
            await web.post(server.url, content=Pieces(b"hello"), headers={"Content-Length": length})
        assert server.heads == [] or server.bodies == []
        assert (await web.get(server.url)).status_code == 200


async def test_a_field_with_a_line_end_in_it_is_never_sent(clock: MockClock) -> None:
    async with serving(is_fine) as server, client() as web:
        with pytest.raises(httpx.LocalProtocolError, match="Illegal header value"):
            await web.get(server.url, headers={"X-A": "b\r\nX-Evil: c"})
        assert server.heads == []


async def test_a_body_is_read_as_it_comes_and_its_connection_kept_after_it(clock: MockClock) -> None:
    go_on = trio.Event()

    async def waits(connection: Connection) -> None:
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst")
        if connection.requests == 1:
            await go_on.wait()
        await connection.send(b"later")
        connection.is_kept = True

    async with serving(waits) as server, client() as web:
        async with web.stream("GET", server.url) as response:
            stream = response.aiter_raw()
            assert await anext(stream) == b"first"
            go_on.set()
            assert await anext(stream) == b"later"
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
        assert (await web.get(server.url)).content == b"firstlater"
        assert server.connected == 1


async def test_a_body_that_is_not_read_to_its_end_takes_its_connection_with_it(clock: MockClock) -> None:
    async with serving(BEHAVIOURS["stalls_in_the_body"]) as server:
        transport = HTTP11Transport()
        for reads in (False, True):
            response = await transport.handle_async_request(httpx.Request("GET", server.url))
            assert isinstance(response.stream, httpx.AsyncByteStream)
            stream = aiter(response.stream)
            if reads:
                assert await anext(stream) == b"only this"
            await response.aclose()
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
            await server.all_gone()


async def test_cancelling_closes_the_connection_and_frees_the_place(clock: MockClock) -> None:
    async with serving(BEHAVIOURS["stalls_in_the_body"]) as server:
        transport = HTTP11Transport(limits=httpx.Limits(max_connections=1))
        async with client(transport) as web:
            for _ in range(2):
                with trio.move_on_after(1) as scope:
                    await web.get(server.url)
                assert scope.cancelled_caught
                await server.all_gone()


async def test_connections_are_capped_and_waiting_for_one_has_its_limit(clock: MockClock) -> None:
    async with serving(BEHAVIOURS["stalls_in_the_body"]) as server:
        transport = HTTP11Transport(limits=httpx.Limits(max_connections=1))
        async with client(transport) as web, web.stream("GET", server.url):
            with pytest.raises(httpx.PoolTimeout):
                await web.get(server.url)
        assert server.connected == 1


@pytest.mark.parametrize(
    "says", [b"HTTP/1.1 100 Continue\r\n\r\n", b"", b"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n"]
)
async def test_a_body_waits_for_the_servers_word(clock: MockClock, says: bytes) -> None:
    async def handle(stream: trio.SocketStream) -> None:
        head = await stream.receive_some(10_000)
        assert head.endswith(b"\r\n\r\n")
        await stream.send_all(says or b" "[:0])
        body = await stream.receive_some(10_000)
        if body:
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async with trio.open_nursery() as nursery, client() as web:
        listeners = await nursery.start(trio.serve_tcp, handle, 0)
        url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/"
        response = await web.put(url, content=b"a body", headers={"Expect": "100-continue"})
        assert (response.status_code, response.content) == ((417, b"") if b"417" in says else (200, b"a body"))
        nursery.cancel_scope.cancel()


async def test_errors_of_connecting_have_httpxs_names(clock: MockClock) -> None:
    async def nowhere(host: str, port: int) -> list[object]:
        await trio.sleep(1000)
        return []

    authority = Authority()
    async with serving(is_fine, authority.server("other.example")) as server:
        async with client(HTTP11Transport(verify=authority.client())) as web:
            with pytest.raises(httpx.ConnectError, match="certificate is refused"):
                await web.get(server.url)
        async with client(HTTP11Transport(verify=False)) as web:
            assert (await web.get(server.url)).status_code == 200
        await server.all_gone()
    async with client(HTTP11Transport(resolve=nowhere)) as web:  # type: ignore[arg-type]
        with pytest.raises(httpx.ConnectTimeout):
            await web.get("http://a.example/")
        with pytest.raises(httpx.UnsupportedProtocol):
            await web.get("ftp://a.example/")


async def test_tls_and_redirects_and_cookies_work_as_in_any_client(clock: MockClock) -> None:
    async def redirects(connection: Connection) -> None:
        if b"GET /first" in connection.head:
            await connection.answer(b"", "302 Found", "Location: /second?q=1", "Set-Cookie: a=b")
        else:
            await connection.answer(connection.head)

    authority = Authority()
    trusted: ssl.SSLContext = authority.client()
    async with serving(redirects, authority.server()) as server:
        async with client(HTTP11Transport(verify=trusted)) as web:
            response = await web.get(server.url + "first", follow_redirects=True)
            assert response.text.startswith("GET /second?q=1 HTTP/1.1\r\n")
            assert "Cookie: a=b" in response.text
        await server.all_gone()
        assert server.connected == 1
