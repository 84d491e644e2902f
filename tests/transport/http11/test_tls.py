"""TLS as browsers do it: sessions go on, nobody's goodbye is waited for, only HTTP/1.1 is offered."""

from __future__ import annotations

import datetime as dt
import ssl
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.net.badserver import Authority, Connection, clock, is_fine, serving
from trawl.errors import ConnectFailed, ConnectTimeout, ReadTimeout, TLSFailed
from trawl.http import Outcome, Request
from trawl.transport import TransportSettings
from trawl.transport.http11 import Http11Transport
from trawl.transport.http11.network_stream import client_context
from trawl.transport.httpx_transport import HttpxTransport

__all__ = ["clock"]

LIMITS = TransportSettings(download_timeout=100.0, download_read_timeout=20.0, download_connect_timeout=10.0)


async def ask(transport: Http11Transport, url: str, **options: Any) -> Outcome:
    return await transport.send(Request(url, **options), lambda: None)


def secure(connection: Connection) -> Any:
    """The server's end of TLS."""
    return connection.stream


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_connection_is_kept_and_the_next_one_goes_on_with_its_session(
    clock: MockClock, version: ssl.TLSVersion
) -> None:
    reused: list[object] = []

    async def tells(connection: Connection) -> None:
        reused.append((secure(connection).session_reused, secure(connection).selected_alpn_protocol()))
        await connection.answer(b"ok", "200 OK", *(["Connection: close"] if connection.requests == 2 else []))

    authority = Authority()
    context = authority.server()
    context.maximum_version = version
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with serving(tells, context) as server:
        transport = Http11Transport(LIMITS, ssl_context=authority.client())
        for _ in range(4):
            outcome = await ask(transport, server.url)
            assert outcome.error is None
        await transport.aclose()
        await server.all_gone()
        assert server.connected == 2
    assert reused == [(False, "http/1.1")] * 2 + [(True, "http/1.1")] * 2


async def test_cancelling_in_a_handshake_or_an_exchange_closes_the_connection(clock: MockClock) -> None:
    async def stalls(connection: Connection) -> None:
        await connection.until_gone()

    authority = Authority()
    async with serving(stalls, authority.server()) as server:
        transport = Http11Transport(LIMITS, ssl_context=authority.client())
        outcome = await ask(transport, server.url)
        assert type(outcome.error) is ReadTimeout
        with trio.move_on_after(1):
            await ask(transport, server.url)
        await server.all_gone()


@pytest.mark.parametrize(
    ("names", "days", "words"),
    [((), 1, "certificate has expired"), (("other.example",), 10_000, "certificate is refused")],
)
async def test_a_certificate_that_does_not_fit_is_refused(
    clock: MockClock, names: tuple[str, ...], days: int, words: str
) -> None:
    authority = Authority()
    start = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    context = authority.server(*names, not_before=start, not_after=start + dt.timedelta(days=days))
    async with serving(is_fine, context) as server:
        outcome = await ask(Http11Transport(LIMITS, ssl_context=authority.client()), server.url)
        assert type(outcome.error) is TLSFailed
        assert words in str(outcome.error)
        assert server.heads == []
        await server.all_gone()


async def test_a_certificate_that_nobody_known_signed_is_refused_unless_told_otherwise(clock: MockClock) -> None:
    async with serving(is_fine, Authority().server()) as server:
        assert type((await ask(Http11Transport(LIMITS), server.url)).error) is TLSFailed
        lax = Http11Transport(TransportSettings(download_verify_certificates=False))
        assert (await ask(lax, server.url)).error is None
        await lax.aclose()
        await server.all_gone()


@pytest.mark.parametrize(
    ("answer", "error"),
    [(b"HTTP/1.1 400 Bad\r\n\r\n", TLSFailed), (b"", ConnectFailed), (None, ConnectTimeout)],
)
async def test_a_handshake_that_fails_is_no_connection(
    clock: MockClock, answer: bytes | None, error: type[Exception]
) -> None:
    async def handle(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some(10_000)
            if answer is None:
                await stream.receive_some(1)
            elif answer:
                await stream.send_all(answer)

    async with trio.open_nursery() as nursery:
        listeners: Any = await nursery.start(trio.serve_tcp, handle, 0)
        port = listeners[0].socket.getsockname()[1]
        outcome = await ask(Http11Transport(LIMITS, ssl_context=Authority().client()), f"https://127.0.0.1:{port}/")
        nursery.cancel_scope.cancel()
    assert type(outcome.error) is error
    assert outcome.sent_at is None


UNFRAMED = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nhello"
CASES = pytest.mark.parametrize(
    ("answer", "says_goodbye", "flags"),
    [
        (UNFRAMED, True, []),
        (UNFRAMED, False, ["dataloss"]),
        (b"HTTP/1.0 200 OK\r\n\r\nhello", False, ["dataloss"]),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", False, []),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", False, []),
    ],
)


def answering(answer: bytes, *, says_goodbye: bool) -> Any:
    """A server that sends ``answer`` and closes, in the way of TLS or without a word."""

    async def handle(connection: Connection) -> None:
        await connection.send(answer)
        stream: Any = connection.stream
        if says_goodbye:
            await stream.aclose()
        else:
            stream.transport_stream.socket.shutdown(trio.socket.SHUT_WR)
            await connection.until_gone()

    return handle


@CASES
@pytest.mark.parametrize("is_strict", [True, False])
async def test_a_body_that_ends_with_tls_and_no_goodbye_may_be_cut_rfc_9112_9_8(
    clock: MockClock, answer: bytes, says_goodbye: bool, flags: list[str], is_strict: bool
) -> None:
    authority = Authority()
    async with serving(answering(answer, says_goodbye=says_goodbye), authority.server()) as server:
        limits = TransportSettings(download_fail_on_dataloss=is_strict)
        transport = Http11Transport(limits, ssl_context=authority.client())
        response = (await ask(transport, server.url)).response
        assert response is not None
        assert (response.body, response.flags) == (b"hello", flags)
        await transport.aclose()
        await server.all_gone()


@CASES
async def test_so_it_is_over_httpcore(clock: MockClock, answer: bytes, says_goodbye: bool, flags: list[str]) -> None:
    authority = Authority()
    async with serving(answering(answer, says_goodbye=says_goodbye), authority.server()) as server:
        transport = HttpxTransport(TransportSettings(http2_enabled=True), ssl_context=authority.client())
        response = (await transport.send(Request(server.url), lambda: None)).response
        assert response is not None
        assert (response.body, response.flags) == (b"hello", flags)
        await transport.aclose()
        await server.all_gone()


def test_who_is_trusted_can_be_said_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert len(client_context().get_ca_certs()) > 50
    folder = tmp_path_factory.mktemp("trusted")
    (folder / "ca.pem").write_bytes(Authority().ca.cert_pem.bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "ca.pem"))
    assert len(client_context().get_ca_certs()) == 1
    monkeypatch.delenv("SSL_CERT_FILE")
    monkeypatch.setenv("SSL_CERT_DIR", str(folder))
    assert client_context().get_ca_certs() == []
    context = client_context(verifies=False)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)
