"""The table of faults: whatever a server does wrong, a crawl gets the mapped error, in time, in bounded memory (C8).

The crawl is the real one over real sockets; only its clock is virtual, so that a minute of silence takes no time. Where
a row names no bytes, memory is not the point.
"""

from __future__ import annotations

import datetime as dt
import gc
import os
import socket
import ssl
import threading
import tracemalloc
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle, islice
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from tests.net.badserver import (
    BEHAVIOURS,
    MEGABYTE,
    Authority,
    BadServer,
    Behaviour,
    Connection,
    bomb,
    clock,
    is_fine,
    serving,
)
from tests.net.crawls import crawled
from trawl.errors import (
    BodyTooLarge,
    ConnectFailed,
    ConnectTimeout,
    DownloadError,
    DownloadTimeout,
    ReadTimeout,
    ResponseBroken,
    TLSFailed,
    TooManyRedirects,
    UnsupportedScheme,
)
from trawl.transport.resolver import Address

__all__ = ["clock"]


@attrs.frozen
class Row:
    """One fault.

    Attributes:
        name: The server's behaviour.
        error: What the errback gets.
        words: What the error says.
        seconds: When it comes.
        most_bytes: What the crawl and the server take at the most meanwhile.
        sends: Requests that the server gets.
    """

    name: str
    error: type[DownloadError]
    words: str
    seconds: float = 0.0
    most_bytes: int | None = None
    sends: int = 1


TABLE = [
    Row("closes_without_an_answer", ResponseBroken, "closed the connection without a response"),
    Row("closes_in_the_headers", ResponseBroken, "closed the connection without a response"),
    Row("closes_in_the_body", ResponseBroken, "body ended early"),
    Row("closes_in_a_chunk", ResponseBroken, "body ended early"),
    Row("half_closes_without_an_answer", ResponseBroken, "closed the connection without a response"),
    Row("half_closes_in_the_body", ResponseBroken, "body ended early"),
    Row("resets", ResponseBroken, "the connection broke: Connection reset by peer"),
    Row("resets_in_the_body", ResponseBroken, "the connection broke: Connection reset by peer"),
    Row("says_a_length_too_short", ResponseBroken, "more came than its Content-Length of 5 bytes"),
    Row("says_a_length_too_long", ResponseBroken, "body ended early"),
    Row("says_a_length_that_is_none", ResponseBroken, "Content-Length"),
    Row("says_two_lengths", ResponseBroken, "Content-Length"),
    Row("is_not_http", ResponseBroken, "the response is not HTTP"),
    Row("sends_binary_rubbish", ResponseBroken, "the response is not HTTP"),
    Row("changes_the_protocol", ResponseBroken, "another protocol"),
    Row("compresses_badly", ResponseBroken, "its gzip data is broken"),
    Row("compresses_a_hundred_times", ResponseBroken, "its body is compressed 100 times"),
    Row("stalls", ReadTimeout, "nothing came for 20 s", 20),
    Row("stalls_in_the_body", ReadTimeout, "nothing came for 20 s", 20),
    Row("drips", DownloadTimeout, "not done within 100 s", 100),
    Row("drips_its_headers", DownloadTimeout, "not done within 100 s", 100),
    Row("sends_headers_for_ever", ResponseBroken, "its headers have no end", 0, 4 * MEGABYTE),
    Row("sends_one_header_for_ever", ResponseBroken, "its headers have no end", 0, 4 * MEGABYTE),
    Row("sends_100_000_headers", ResponseBroken, "its headers have no end", 0, 4 * MEGABYTE),
    Row("answers_for_now_for_ever", ResponseBroken, "its headers have no end", 0, 4 * MEGABYTE),
    Row("sends_for_ever", BodyTooLarge, "passes 200000 bytes", 0, 4 * MEGABYTE),
    Row("sends_a_chunk_without_end", BodyTooLarge, "passes 200000 bytes", 0, 4 * MEGABYTE),
    Row("sends_chunks_without_end", BodyTooLarge, "passes 200000 bytes", 0, 4 * MEGABYTE),
    Row("sends_a_chunk_size_without_end", ResponseBroken, "the framing of its body has no end", 0, 4 * MEGABYTE),
    Row("sends_trailers_without_end", ResponseBroken, "has no end", 0, 4 * MEGABYTE),
    Row("is_larger_than_it_may_be", BodyTooLarge, "100000000000 bytes passes 200000", 0, 4 * MEGABYTE),
    Row("bombs_in_gzip", BodyTooLarge, "once decompressed", 0, 4 * MEGABYTE),
    Row("bombs_in_deflate", BodyTooLarge, "once decompressed", 0, 4 * MEGABYTE),
    Row("bombs_in_br", BodyTooLarge, "once decompressed", 0, 4 * MEGABYTE),
    Row("bombs_in_zstd", BodyTooLarge, "once decompressed", 0, 10 * MEGABYTE),
    Row("redirects_in_a_loop", TooManyRedirects, "redirected more than 5 times", sends=6),
    Row("redirects_to_itself", TooManyRedirects, "redirected more than 5 times", sends=6),
    Row("redirects_ever_further", TooManyRedirects, "redirected more than 5 times", sends=6),
    Row("redirects_to_a_file", UnsupportedScheme, "which is not fetched"),
]


def behaviour_of(name: str) -> Behaviour:
    """What a row's server does."""
    return bomb(name.removeprefix("bombs_in_")) if name.startswith("bombs_in_") else BEHAVIOURS[name]


def test_every_bad_behaviour_has_its_row() -> None:
    named = {row.name for row in TABLE if not row.name.startswith("bombs_in_")}
    assert named == set(BEHAVIOURS) - {"is_fine"}


async def peak_of(url: str) -> int:
    """The most bytes that a crawl and its server held at once. The first crawl imports and fills caches on its way."""
    gc.collect()
    tracemalloc.start()
    try:
        await crawled([url])
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
async def test_a_crawl_gets_the_error_in_time_with_the_connection_gone_c8(clock: MockClock, row: Row) -> None:
    async with serving(behaviour_of(row.name)) as server:
        if row.most_bytes is not None:
            assert min([await peak_of(server.url) for _ in range(2)]) < row.most_bytes
        sent = len(server.heads)
        run = await crawled([server.url])
        failed = run.only
        assert type(failed.error) is row.error
        assert row.words in str(failed.error)
        assert str(failed.error).startswith(f"GET {server.url}")
        assert failed.after == pytest.approx(row.seconds, abs=0.5)
        assert len(server.heads) - sent == row.sends
        assert run.result.reason == "finished"
        assert run.result.stats.get("spider_exceptions", 0) == run.result.stats.get("middleware_exceptions", 0) == 0
        await server.all_gone()


# TLS: what the server's end does, and the error. The crawl trusts one authority, named in the environment.

LONG_AGO = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


@asynccontextmanager
async def talking(answer: bytes | None) -> AsyncGenerator[BadServer, None]:
    """A server without TLS at an https URL: it answers a hello with ``answer``, or with silence, or closes."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    server = BadServer(listener.socket.getsockname()[1], "https")

    async def handle(stream: trio.SocketStream) -> None:
        server.moved(+1)
        async with stream:
            await stream.receive_some(10_000)
            if answer:
                await stream.send_all(answer)
            while answer is None and await stream.receive_some(10_000):
                pass
        server.moved(-1)

    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, handle, [listener])
        yield server
        nursery.cancel_scope.cancel()


def context_of(name: str, authority: Authority) -> ssl.SSLContext:
    """The context of a server with something wrong."""
    if name == "expired":
        return authority.server(not_before=LONG_AGO, not_after=LONG_AGO + dt.timedelta(days=1))
    if name == "not yet":
        return authority.server(not_before=dt.datetime(2200, 1, 1, tzinfo=dt.UTC))
    if name == "of another host":
        return authority.server("other.example")
    return Authority().server()  # signed by nobody known


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """An authority that crawls trust."""
    made = Authority()
    (tmp_path / "ca.pem").write_bytes(made.ca.cert_pem.bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    return made


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("expired", "certificate has expired"),
        ("not yet", "certificate is not yet valid"),
        ("of another host", "IP address mismatch"),
        ("of nobody", "unable to get local issuer certificate"),
    ],
)
async def test_a_certificate_that_does_not_fit_ends_the_request_before_it_is_sent(
    clock: MockClock, authority: Authority, name: str, words: str
) -> None:
    async with serving(is_fine, context_of(name, authority)) as server:
        failed = (await crawled([server.url])).only
        assert type(failed.error) is TLSFailed
        assert words in str(failed.error)
        assert server.heads == []
        await server.all_gone()
        lax = await crawled([server.url], {"DOWNLOAD_VERIFY_CERTIFICATES": False})
        assert len(lax.pages) == 1
        await server.all_gone()


async def test_a_certificate_that_fits_is_taken(clock: MockClock, authority: Authority) -> None:
    async with serving(is_fine, authority.server()) as server:
        assert len((await crawled([server.url])).pages) == 1
        await server.all_gone()


@pytest.mark.parametrize(
    ("answer", "error", "words", "seconds"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", TLSFailed, "wrong version number", 0),
        (b"SSH-2.0-OpenSSH_9.2\r\n", TLSFailed, "the TLS handshake failed", 0),
        (b"\x15\x03\x03\x00\x02\x02\x28", TLSFailed, "handshake failure", 0),  # RFC 8446, 6: an alert
        (b"\x15\x03\x03\x00\x02\x02\x46", TLSFailed, "alert protocol version", 0),  # speaks none that is secure
        (b"", ConnectFailed, "closed the connection during the TLS handshake", 0),
        (None, ConnectTimeout, "no connection within 10 s", 10),
    ],
)
async def test_a_server_without_tls_at_an_https_url_is_a_failed_connection(
    clock: MockClock, authority: Authority, answer: bytes | None, error: type[DownloadError], words: str, seconds: float
) -> None:
    async with talking(answer) as server:
        failed = (await crawled([server.url])).only
        assert type(failed.error) is error
        assert words in str(failed.error)
        assert failed.after == pytest.approx(seconds, abs=0.5)
        await server.all_gone()


async def test_a_server_with_tls_at_an_http_url_is_not_http(clock: MockClock, authority: Authority) -> None:
    async with talking(b"\x15\x03\x01\x00\x02\x02\x46") as server:  # what OpenSSL says to a plain request
        failed = (await crawled([server.url.replace("https:", "http:")])).only
        assert type(failed.error) is ResponseBroken
        assert "the response is not HTTP" in str(failed.error)
        await server.all_gone()


ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 20\r\n\r\n<title>whole</title>"


@pytest.mark.parametrize("ends", ["resets", "closes"])
@pytest.mark.parametrize("is_tls", [False, True], ids=["http", "https"])
async def test_an_answer_that_breaks_off_at_any_byte_is_an_error(
    clock: MockClock, authority: Authority, ends: str, is_tls: bool
) -> None:
    async def breaks_off(connection: Connection) -> None:
        await connection.send(ANSWER[: int(connection.head.split(b" ")[1][1:])])
        if ends == "resets":
            await BEHAVIOURS["resets"](connection)

    async with serving(breaks_off, authority.server() if is_tls else None) as server:
        run = await crawled([f"{server.url}{cut}" for cut in range(len(ANSWER))])
        assert run.pages == []
        assert {type(failed.error) for failed in run.failed} == {ResponseBroken}
        assert len(run.failed) == len(server.heads) == len(ANSWER)
        await server.all_gone()


# Many of them: nothing stays open.


@attrs.frozen
class Open:
    """What is open in this process.

    Attributes:
        tasks: Trio's tasks.
        waiting: Tasks that wait for a socket.
        files: File descriptors, sockets among them.
        threads: Threads.
    """

    tasks: int
    waiting: int
    files: int
    threads: int

    @classmethod
    def now(cls) -> Open:
        """Count."""
        gc.collect()
        statistics = trio.lowlevel.current_statistics()
        io = statistics.io_statistics
        waiting = getattr(io, "tasks_waiting_read", 0) + getattr(io, "tasks_waiting_write", 0)
        return cls(statistics.tasks_living, waiting, len(os.listdir("/proc/self/fd")), threading.active_count())


def by_path(behaviours: dict[str, Behaviour]) -> Behaviour:
    """A server that does what the path says: ``/stalls/7``."""

    async def behave(connection: Connection) -> None:
        await behaviours[connection.head.split(b" ")[1].decode("ascii").split("/")[1]](connection)

    return behave


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files as Linux shows them")
@pytest.mark.parametrize("requests", [111, pytest.param(10_000, marks=pytest.mark.sweep)])
async def test_after_thousands_of_faults_no_task_socket_thread_or_file_is_open(
    clock: MockClock, authority: Authority, requests: int
) -> None:
    behaviours = {row.name: behaviour_of(row.name) for row in TABLE if not row.name.startswith("redirects_")}
    async with AsyncExitStack() as stack:
        plain = await stack.enter_async_context(serving(by_path(behaviours)))
        secure = await stack.enter_async_context(serving(by_path(behaviours), authority.server()))
        expired = await stack.enter_async_context(serving(is_fine, context_of("expired", authority)))
        silent = await stack.enter_async_context(talking(None))
        servers = [plain, secure, expired, silent]
        urls = [f"{server.url}{name}/" for name in behaviours for server in (plain, secure)]
        urls += [expired.url, silent.url, "http://127.0.0.1:1/", "http://nowhere.invalid/"]
        everything = (f"{url}{number}" for number, url in enumerate(cycle(urls)))
        await crawled(urls[:2])
        before = Open.now()
        run = await crawled(islice(everything, requests), resolve=nobody)
        assert run.pages == []
        assert len(run.failed) == requests
        assert run.result.stats["download_error_count"] == requests
        for server in servers:
            await server.all_gone()
        after = Open.now()
        assert attrs.evolve(after, threads=0) == attrs.evolve(before, threads=0)
        assert after.threads <= before.threads


async def nobody(host: str, port: int) -> Sequence[Address]:
    """Knows addresses and no names."""
    await trio.lowlevel.checkpoint()
    if host == "127.0.0.1":
        return [Address(socket.AF_INET, (host, port))]
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
