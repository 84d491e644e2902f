"""Requests through proxies: a real one of our own on loopback, which forwards, tunnels and speaks SOCKS5."""

from __future__ import annotations

import importlib.util
import ssl
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.net.badserver import Authority, Connection, clock, is_fine, serving
from tests.net.proxies import LoopbackProxy, proxying
from trawl.address_guard import AddressGuard
from trawl.errors import (
    AddressRefused,
    ConnectTimeout,
    ProxyFailed,
    ReadTimeout,
    RequestInvalid,
    ResponseBroken,
    TLSFailed,
)
from trawl.http import Outcome, Request
from trawl.transport import TransportRouter, TransportSettings

__all__ = ["clock"]

LIMITS = TransportSettings(download_timeout=100.0, download_read_timeout=20.0, download_connect_timeout=10.0)
USER = "me:pass%20word"
SCHEMES = pytest.mark.parametrize("scheme", ["http", "socks5", "socks5h"])


def transport(trusted: ssl.SSLContext | None = None, guard: AddressGuard | None = None) -> TransportRouter:
    async def resolve(host: str, port: int) -> list[Any]:
        raise AssertionError(f"{host} was looked up here, not by the proxy")

    async def only_addresses(host: str, port: int) -> Any:
        from trawl.transport.resolver import literal_address

        await trio.lowlevel.checkpoint()
        return [literal_address(host, port) or await resolve(host, port)]

    return TransportRouter(LIMITS, ssl_context=trusted, resolve=only_addresses, guard=guard)


async def ask(wire: TransportRouter, url: str, proxy: str | None, **options: Any) -> Outcome:
    sent: list[float] = []
    outcome = await wire.send(Request(url, meta={"proxy": proxy}, **options), lambda: sent.append(trio.current_time()))
    assert sent[-1:] == ([] if outcome.sent_at is None else [outcome.sent_at])  # two where it went again
    return outcome


def body_of(outcome: Outcome) -> bytes:
    assert outcome.error is None
    assert outcome.response is not None
    return outcome.response.body


async def echoes(connection: Connection) -> None:
    """Tells what it was asked."""
    await connection.answer(connection.head)


async def test_a_plain_request_is_forwarded_with_the_credentials_for_the_proxy_only(clock: MockClock) -> None:
    async with serving(echoes) as server, proxying(names={"a.example": server.port}, user="me:pass word") as proxy:
        wire = transport()
        for _ in range(2):
            head = body_of(await ask(wire, "http://a.example/page?q=1", proxy.url(user=USER)))
            assert head.startswith(b"GET /page?q=1 HTTP/1.1\r\n")
            assert b"\r\nHost: a.example" in head
            assert b"Proxy-Authorization" not in head
        assert proxy.asked == ["GET http://a.example/page?q=1"] * 2
        assert all(b"Proxy-Authorization: Basic bWU6cGFzcyB3b3Jk\r\n" in head for head in proxy.heads)
        assert proxy.connected == 1
        await wire.aclose()
        await proxy.all_gone()


async def test_a_secure_request_goes_through_a_tunnel_and_the_proxy_reads_none_of_it(clock: MockClock) -> None:
    authority = Authority()
    async with (
        serving(echoes, authority.server("a.example")) as server,
        proxying(names={"a.example": server.port}, user="me:pass word") as proxy,
    ):
        wire = transport(authority.client())
        for _ in range(2):
            outcome = await ask(wire, "https://a.example/page", proxy.url(user=USER), headers={"X-Secret": "1"})
            head = body_of(outcome)
            assert b"X-Secret: 1" in head
            assert b"Proxy-Authorization" not in head
        assert proxy.asked == ["CONNECT a.example:443"]
        assert b"Proxy-Authorization: Basic bWU6cGFzcyB3b3Jk\r\n" in proxy.heads[0]
        assert b"X-Secret" not in proxy.heads[0]
        await wire.aclose()
        await proxy.all_gone()


async def test_what_a_request_itself_says_to_the_proxy_goes_to_the_proxy_only(clock: MockClock) -> None:
    authority = Authority()
    fields = {"Proxy-Authorization": "Basic bWU6cGFzcyB3b3Jk"}
    async with (
        serving(echoes, authority.server("a.example")) as server,
        serving(echoes) as plain,
        proxying(names={"a.example": server.port, "b.example": plain.port}, user="me:pass word") as proxy,
    ):
        wire = transport(authority.client())
        for url, through in (
            ("https://a.example/", proxy.url()),
            ("http://b.example/", proxy.url()),
            (plain.url, None),
        ):
            head = body_of(await ask(wire, url, through, headers=fields))
            assert b"proxy-authorization" not in head.lower()
        assert proxy.asked == ["CONNECT a.example:443", "GET http://b.example/"]
        await wire.aclose()


@pytest.mark.parametrize("is_secure", [False, True])
async def test_socks_carries_every_scheme_and_looks_names_up(clock: MockClock, is_secure: bool) -> None:
    authority = Authority()
    async with (
        serving(echoes, authority.server("a.example") if is_secure else None) as server,
        proxying(names={"a.example": server.port}, user="me:pass word") as proxy,
    ):
        wire = transport(authority.client())
        scheme = "https" if is_secure else "http"
        for _ in range(2):
            head = body_of(await ask(wire, f"{scheme}://a.example/page", proxy.url("socks5h", USER)))
            assert head.startswith(b"GET /page HTTP/1.1\r\n")
        assert proxy.asked == [f"SOCKS a.example:{443 if is_secure else 80}"]
        await wire.aclose()
        await proxy.all_gone()


async def test_a_proxy_may_be_spoken_to_over_tls(clock: MockClock) -> None:
    authority = Authority()
    async with (
        serving(echoes, authority.server("a.example")) as server,
        serving(echoes) as plain,
        proxying(authority.server("127.0.0.1"), names={"a.example": server.port, "b.example": plain.port}) as proxy,
    ):
        wire = transport(authority.client())
        for url in ("https://a.example/", "http://b.example/"):
            assert body_of(await ask(wire, url, proxy.url("https"))).startswith(b"GET / HTTP/1.1\r\n")
        assert [asked.split(" ")[0] for asked in proxy.asked] == ["CONNECT", "GET"]
        await wire.aclose()
        await proxy.all_gone()


async def test_an_address_of_ipv6_is_written_as_such(clock: MockClock) -> None:
    async with proxying() as proxy:
        wire = transport()
        for url, scheme in (("https://[2001:db8::1]/", "http"), ("http://[2001:db8::1]:81/", "socks5")):
            await ask(wire, url, proxy.url(scheme))
        assert proxy.asked == ["CONNECT [2001:db8::1]:443", "SOCKS 2001:db8::1:81"]
        await proxy.all_gone()


async def test_requests_without_a_proxy_go_by_themselves(clock: MockClock) -> None:
    async with serving(is_fine) as server, proxying() as proxy:
        wire = transport()
        for through in (None, ""):
            assert (await ask(wire, server.url, through)).error is None
        assert proxy.connected == 0
        await wire.aclose()


# What goes wrong on the way.


@SCHEMES
async def test_a_proxy_that_is_not_there_is_the_proxys_fault(clock: MockClock, scheme: str) -> None:
    async with proxying() as proxy:
        url = proxy.url(scheme, USER)
    outcome = await ask(transport(), "https://a.example/", url)
    assert isinstance(outcome.error, ProxyFailed)
    assert outcome.error.is_of_proxy
    assert "Connection refused" in str(outcome.error)
    assert "pass" not in str(outcome.error)
    assert outcome.sent_at is None


@pytest.mark.parametrize(
    ("scheme", "words"), [("http", "407 Who are you"), ("socks5", "password"), ("https", "within 10 s")]
)
async def test_a_proxy_that_does_not_know_us_is_the_proxys_fault(clock: MockClock, scheme: str, words: str) -> None:
    async with proxying(user="me:right") as proxy:
        outcome = await ask(transport(), "https://a.example/", proxy.url(scheme, "me:wrong"))
        assert isinstance(outcome.error, ProxyFailed)
        assert outcome.error.is_of_proxy
        assert words in str(outcome.error)
        await proxy.all_gone()


@SCHEMES
async def test_a_host_that_is_not_there_is_not_the_proxys_fault(clock: MockClock, scheme: str) -> None:
    async with serving(is_fine) as server, proxying() as proxy:
        pass
    async with proxying() as proxy:
        outcome = await ask(transport(), f"https://127.0.0.1:{server.port}/", proxy.url(scheme))
        assert isinstance(outcome.error, ProxyFailed)
        assert not outcome.error.is_of_proxy
        assert outcome.error.is_retryable
        await proxy.all_gone()


async def test_a_plain_request_to_a_host_that_is_not_there_gets_the_proxys_page(clock: MockClock) -> None:
    async with serving(is_fine) as server:
        pass
    async with proxying() as proxy:
        wire = transport()
        outcome = await ask(wire, f"http://127.0.0.1:{server.port}/", proxy.url())
        assert outcome.response is not None
        assert outcome.response.status == 502
        await wire.aclose()


@SCHEMES
async def test_a_proxy_that_says_nothing_is_given_up_in_the_time_for_connecting(clock: MockClock, scheme: str) -> None:
    async def silent(stream: trio.SocketStream) -> None:
        while await stream.receive_some(1000):
            pass

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, silent, 0, host="127.0.0.1"))
        url = f"{scheme}://127.0.0.1:{listener.socket.getsockname()[1]}"
        began = trio.current_time()
        outcome = await ask(transport(), "https://a.example/", url)
        assert isinstance(outcome.error, ProxyFailed)
        assert outcome.error.is_of_proxy
        assert trio.current_time() - began <= 20.5
        nursery.cancel_scope.cancel()


@SCHEMES
@pytest.mark.parametrize(
    "answer", [b"\x00", b"garbage\r\n\r\n", b"\x05", b"\x05\x09\x09", b"HTTP/1.1 200 OK\r\n\r\nmore"]
)
async def test_a_proxy_that_answers_rubbish_is_an_error_and_leaves_nothing_open(
    clock: MockClock, scheme: str, answer: bytes
) -> None:
    async with proxying(answer=answer) as proxy:
        wire = transport()
        outcome = await ask(wire, "https://a.example/", proxy.url(scheme))
        assert isinstance(outcome.error, ProxyFailed | TLSFailed | ConnectTimeout)
        await proxy.all_gone()
        await wire.aclose()


@SCHEMES
async def test_cancelling_on_the_way_through_a_proxy_leaves_nothing_open(clock: MockClock, scheme: str) -> None:
    async def silent(connection: Connection) -> None:
        await connection.until_gone()

    async with serving(silent) as server, proxying(names={"a.example": server.port}) as proxy:
        wire = transport()
        with trio.move_on_after(5) as scope:
            await ask(wire, "https://a.example/", proxy.url(scheme))  # the handshake gets no answer
        assert scope.cancelled_caught
        await proxy.all_gone()
        with trio.move_on_after(5) as scope:
            await ask(wire, "http://a.example/", proxy.url(scheme))
        assert scope.cancelled_caught
        await wire.aclose()
        if scheme != "http":  # a proxy that forwards waits for the server, and sees nothing
            await proxy.all_gone()


async def test_a_certificate_is_looked_at_through_a_tunnel_too(clock: MockClock) -> None:
    authority = Authority()
    async with (
        serving(is_fine, authority.server("b.example")) as server,
        proxying(names={"a.example": server.port}) as proxy,
    ):
        outcome = await ask(transport(authority.client()), "https://a.example/", proxy.url())
        assert isinstance(outcome.error, TLSFailed)
        await proxy.all_gone()


async def test_what_goes_wrong_behind_the_proxy_is_told_as_without_one(clock: MockClock) -> None:
    async def stalls(connection: Connection) -> None:
        await connection.until_gone()

    async def closes(connection: Connection) -> None:
        await trio.lowlevel.checkpoint()

    authority = Authority()
    for behaviour, error in ((stalls, ReadTimeout), (closes, ResponseBroken)):
        async with (
            serving(behaviour, authority.server("a.example")) as server,
            proxying(names={"a.example": server.port}) as proxy,
        ):
            outcome = await ask(transport(authority.client()), "https://a.example/", proxy.url())
            assert type(outcome.error) is error
            await proxy.all_gone()


async def test_a_tunnel_that_was_closed_while_it_was_idle_is_opened_again_for_what_is_safe(clock: MockClock) -> None:
    async def answers_once(connection: Connection) -> None:
        if connection.requests == 1:
            await connection.answer(b"ok")

    authority = Authority()
    async with (
        serving(answers_once, authority.server("a.example")) as server,
        proxying(names={"a.example": server.port}) as proxy,
    ):
        wire = transport(authority.client())
        for _ in range(3):
            assert body_of(await ask(wire, "https://a.example/", proxy.url())) == b"ok"
        assert len(proxy.asked) == 3
        assert type((await ask(wire, "https://a.example/", proxy.url(), method="POST")).error) is ResponseBroken
        await wire.aclose()
        await proxy.all_gone()


@pytest.mark.parametrize(
    "proxy", ["ftp://a.example", "http://", "http://a b", "http://a.example:port", "http://ä.example"]
)
async def test_what_is_no_proxy_is_an_error_of_the_request(clock: MockClock, proxy: str) -> None:
    outcome = await ask(transport(), "http://a.example/", proxy)
    assert isinstance(outcome.error, RequestInvalid)


async def test_socks_without_its_package_names_the_extra(clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    from trawl.transport import httpx_transport as module

    monkeypatch.setattr(module, "find_spec", lambda name: None)
    outcome = await ask(transport(), "http://a.example/", "socks5://127.0.0.1:1")
    assert "trawl-crawler[socks]" in str(outcome.error)
    assert importlib.util.find_spec("socksio") is not None


async def test_a_guard_looks_at_addresses_in_urls_and_never_at_the_proxys_own(clock: MockClock) -> None:
    async with serving(echoes) as server, proxying(names={"a.example": server.port}) as proxy:
        wire = transport(guard=AddressGuard(False))
        assert (await ask(wire, "http://a.example/", proxy.url())).error is None
        for url in ("http://127.0.0.1/", "https://[::1]/", "http://169.254.169.254/latest"):
            outcome = await ask(wire, url, proxy.url())
            assert isinstance(outcome.error, AddressRefused)
        assert proxy.connected == 1
        await wire.aclose()


async def test_of_many_proxies_those_used_longest_ago_are_let_go(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trawl.transport import httpx_backend

    monkeypatch.setattr(httpx_backend, "MAX_PROXIES", 1)
    async with serving(echoes) as server, proxying() as one, proxying() as other:
        wire = transport()
        for proxy in (one, other):
            assert (await ask(wire, server.url, proxy.url("socks5"))).error is None
        await one.all_gone()
        assert other.open == 1
        await wire.aclose()
        await other.all_gone()


async def test_of_many_proxies_that_are_all_in_use_none_is_let_go(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trawl.transport import httpx_backend

    monkeypatch.setattr(httpx_backend, "MAX_PROXIES", 1)
    everyone_asks, has_both, outcomes = trio.Event(), trio.Event(), []

    async def together(connection: Connection) -> None:
        (has_both if everyone_asks.is_set() else everyone_asks).set()
        await has_both.wait()
        await echoes(connection)

    async with serving(together) as server, proxying() as one, proxying() as other:
        wire = transport()

        async def through(proxy: LoopbackProxy) -> None:
            outcomes.append(await ask(wire, server.url, proxy.url()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(through, one)
            await everyone_asks.wait()
            nursery.start_soon(through, other)
        assert [outcome.error for outcome in outcomes] == [None, None]
        await wire.aclose()
        await one.all_gone()
        await other.all_gone()
