"""Each bad server ends in the mapped error, within its time, with the connection gone (C8)."""

from __future__ import annotations

import datetime as dt
import ssl
import tracemalloc

import pytest
import trio
from trio.testing import MockClock

from tests.net.badserver import BEHAVIOURS, BOMB_BYTES, MEGABYTE, Authority, bomb, clock, is_fine, serving
from trawl.errors import (
    BodyTooLarge,
    ConnectFailed,
    ConnectTimeout,
    DownloadError,
    DownloadTimeout,
    ReadTimeout,
    ResponseBroken,
    TLSFailed,
)
from trawl.http import Outcome, Request
from trawl.transport import Http11Transport, HttpxTransport, TransportSettings

__all__ = ["clock"]

LIMITS = TransportSettings(
    download_timeout=100.0, download_read_timeout=20.0, download_connect_timeout=10.0, download_maxsize=MEGABYTE
)


async def ask(url: str, settings: TransportSettings = LIMITS, trusted: ssl.SSLContext | None = None) -> Outcome:
    transport = HttpxTransport(settings, ssl_context=trusted)
    try:
        return await transport.send(Request(url), lambda: None)
    finally:
        await transport.aclose()


@pytest.mark.parametrize(
    ("name", "error", "words", "seconds"),
    [
        ("closes_without_an_answer", ResponseBroken, "closed the connection without a response", 0),
        ("closes_in_the_headers", ResponseBroken, "closed the connection without a response", 0),
        ("closes_in_the_body", ResponseBroken, "body ended early", 0),
        ("closes_in_a_chunk", ResponseBroken, "body ended early", 0),
        ("says_a_length_too_short", ResponseBroken, "more came than its Content-Length of 5 bytes", 0),
        ("says_two_lengths", ResponseBroken, "Content-Length", 0),
        ("sends_headers_for_ever", ResponseBroken, "its headers have no end", 0),
        ("sends_one_header_for_ever", ResponseBroken, "its headers have no end", 0),
        ("sends_100_000_headers", ResponseBroken, "its headers have no end", 0),
        ("is_not_http", ResponseBroken, "the response is not HTTP", 0),
        ("sends_binary_rubbish", ResponseBroken, "the response is not HTTP", 0),
        ("resets", ResponseBroken, "the connection broke: Connection reset by peer", 0),
        ("resets_in_the_body", ResponseBroken, "the connection broke: Connection reset by peer", 0),
        ("stalls", ReadTimeout, "nothing came for 20 s", 20),
        ("stalls_in_the_body", ReadTimeout, "nothing came for 20 s", 20),
        ("drips", DownloadTimeout, "not done within 100 s", 100),
        ("drips_its_headers", DownloadTimeout, "not done within 100 s", 100),
        ("changes_the_protocol", ResponseBroken, "another protocol", 0),
        ("sends_for_ever", BodyTooLarge, "passes 1048576 bytes", 0),
        ("is_larger_than_it_may_be", BodyTooLarge, "100000000000 bytes passes 1048576", 0),
    ],
)
async def test_a_bad_server_ends_in_its_error_in_time_with_the_connection_gone_c8(
    clock: MockClock, name: str, error: type[DownloadError], words: str, seconds: float
) -> None:
    async with serving(BEHAVIOURS[name]) as server:
        began = trio.current_time()
        outcome = await ask(server.url)
        assert trio.current_time() - began == pytest.approx(seconds, abs=0.5)
        assert type(outcome.error) is error
        assert words in str(outcome.error)
        assert str(outcome.error).startswith(f"GET {server.url}: ")
        assert outcome.response is None
        assert outcome.sent_at is not None
        await server.all_gone()


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
async def test_a_bomb_stops_at_the_limit_in_bounded_memory_c8(clock: MockClock, coding: str) -> None:
    async with serving(bomb(coding)) as server:
        await ask(server.url, TransportSettings(download_maxsize=100_000))  # what is imported on the way is not counted
        tracemalloc.start()
        try:
            outcome = await ask(server.url)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert isinstance(outcome.error, BodyTooLarge)
        assert "once decompressed" in str(outcome.error)
        assert peak < BOMB_BYTES * 3 / 4
        await server.all_gone()


async def test_a_body_without_end_takes_no_more_memory_than_its_limit_c8(clock: MockClock) -> None:
    async with serving(BEHAVIOURS["sends_for_ever"]) as server:
        tracemalloc.start()
        try:
            outcome = await ask(server.url)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert isinstance(outcome.error, BodyTooLarge)
        assert peak < 6 * MEGABYTE


@pytest.mark.parametrize("transport", [Http11Transport, HttpxTransport])
@pytest.mark.parametrize("coding", ["", "gzip", "br", "zstd"])
async def test_a_body_may_be_cut_at_its_limit_in_place_of_being_an_error(
    clock: MockClock, transport: type[Http11Transport | HttpxTransport], coding: str
) -> None:
    behaviour = bomb(coding) if coding else BEHAVIOURS["sends_for_ever"]
    async with serving(behaviour) as server:
        client = transport(LIMITS)
        meta = {"download_maxsize": 100_001, "download_truncate": True}
        outcome = await client.send(Request(server.url, meta=meta), lambda: None)
        assert outcome.error is None
        assert outcome.response is not None
        assert outcome.response.flags == ["truncated"]
        assert outcome.response.body == (bytes(100_001) if coding else b"a" * 100_001)
        await client.aclose()
        await server.all_gone()


async def test_a_body_that_is_not_too_large_is_whole_though_it_might_be_cut(clock: MockClock) -> None:
    async with serving(is_fine) as server:
        client = Http11Transport(LIMITS)
        outcome = await client.send(Request(server.url, meta={"download_truncate": True}), lambda: None)
        assert outcome.response is not None
        assert outcome.response.body == b"<title>fine</title>"
        assert outcome.response.flags == []
        await client.aclose()
        await server.all_gone()


async def test_an_expired_certificate_is_refused(clock: MockClock) -> None:
    authority = Authority()
    long_ago = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    expired = authority.server(not_before=long_ago, not_after=long_ago + dt.timedelta(days=1))
    async with serving(is_fine, expired) as server:
        outcome = await ask(server.url, trusted=authority.client())
        assert type(outcome.error) is TLSFailed
        assert "its certificate is refused: certificate has expired" in str(outcome.error)
        assert not outcome.error.is_retryable
        assert outcome.sent_at is None
        await server.all_gone()


async def test_a_certificate_of_another_host_is_refused(clock: MockClock) -> None:
    authority = Authority()
    async with serving(is_fine, authority.server("other.example")) as server:
        outcome = await ask(server.url, trusted=authority.client())
        assert type(outcome.error) is TLSFailed
        assert "certificate is refused" in str(outcome.error)
        assert server.heads == []
        await server.all_gone()


async def test_a_certificate_that_nobody_known_signed_is_refused_unless_told_otherwise(clock: MockClock) -> None:
    async with serving(is_fine, Authority().server()) as server:
        outcome = await ask(server.url)
        assert type(outcome.error) is TLSFailed
        assert server.heads == []
        lax = TransportSettings(download_verify_certificates=False)
        outcome = await ask(server.url, lax)
        assert outcome.response is not None
        assert outcome.response.status == 200
        await server.all_gone()


async def test_https_to_a_server_that_speaks_plain_http_is_a_failed_handshake(clock: MockClock) -> None:
    async def answers_rubbish(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some(1000)
            await stream.send_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    outcome = await ask_a_raw_server(answers_rubbish)
    assert type(outcome.error) is TLSFailed
    assert "the TLS handshake failed: wrong version number (the server may use plain HTTP" in str(outcome.error)


async def test_a_server_that_closes_in_the_handshake_is_no_connection(clock: MockClock) -> None:
    async def closes(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some(1000)

    outcome = await ask_a_raw_server(closes)
    assert type(outcome.error) is ConnectFailed
    assert "during the TLS handshake" in str(outcome.error)
    assert outcome.error.is_retryable


async def test_a_handshake_that_stalls_ends_at_the_connect_timeout(clock: MockClock) -> None:
    async def stalls(stream: trio.SocketStream) -> None:
        async with stream:
            while await stream.receive_some(1000):
                pass

    began = trio.current_time()
    outcome = await ask_a_raw_server(stalls)
    assert type(outcome.error) is ConnectTimeout
    assert "no connection within 10 s" in str(outcome.error)
    assert trio.current_time() - began == pytest.approx(10, abs=0.5)


async def ask_a_raw_server(handler: object) -> Outcome:
    """Ask an https URL of a server that gets the bare connection."""
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, handler, 0)
        port = listeners[0].socket.getsockname()[1]
        outcome = await ask(f"https://127.0.0.1:{port}/", trusted=Authority().client())
        nursery.cancel_scope.cancel()
    return outcome
