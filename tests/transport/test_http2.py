"""HTTP/2 (RFC 9113) against a server of our own, directly and through proxies."""

from __future__ import annotations

import gzip
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from tests.net.badserver import Authority, clock, is_fine, serving
from tests.net.h2server import Exchange, serving_h2
from tests.net.proxies import proxying
from tests.transport.http11.test_transport import Again
from tests.transport.sinks import NotingSink
from trawl.errors import BodyTooLarge, DownloadTimeout, ReadTimeout, ResponseBroken, SettingsError
from trawl.http import FileResponse, Outcome, Request
from trawl.transport import HttpxTransport, TransportRouter, TransportSettings

__all__ = ["clock"]

LIMITS = TransportSettings(
    http2_enabled=True,
    download_timeout=100.0,
    download_read_timeout=20.0,
    download_connect_timeout=10.0,
    download_maxsize=200_000,
)


async def fine(exchange: Exchange) -> None:
    body = f"{exchange.fields[':path']} {exchange.body.decode()}".encode()
    await exchange.answer(body, "200", ("content-type", "text/plain"), ("set-cookie", "a=b"), ("set-cookie", "c=d"))


async def ask(wire: TransportRouter, request: Request) -> Outcome:
    return await wire.send(request, lambda: None)


async def test_requests_share_a_connection_that_speaks_http_2(clock: MockClock) -> None:
    authority = Authority()
    async with serving_h2(fine, authority.server()) as server:
        wire = TransportRouter(LIMITS, ssl_context=authority.client())
        outcome = await ask(wire, Request(f"{server.url}page?q=1"))
        response = outcome.response
        assert response is not None
        assert (response.status, response.body, response.protocol) == (200, b"/page?q=1 ", "HTTP/2")
        assert response.ip_address == "127.0.0.1"
        assert response.headers.getlist("Set-Cookie") == ["a=b", "c=d"]
        assert outcome.sent_at is not None
        assert outcome.first_byte_at is not None
        found: list[Outcome] = []

        async def more(number: int) -> None:
            found.append(await ask(wire, Request(f"{server.url}{number}", method="POST", body=b"x" * number)))

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(more, number)
        assert sorted(one.response.body for one in found if one.response) == sorted(
            f"/{number} {'x' * number}".encode() for number in range(10)
        )
        assert server.connected == 1
        assert server.protocols == ["h2"]
        await wire.aclose()
        await server.all_gone()


async def test_fields_of_the_connection_are_left_out(clock: MockClock) -> None:
    authority = Authority()
    fields = {"Connection": "close", "Keep-Alive": "5", "Upgrade": "x", "Proxy-Authorization": "Basic x", "X-A": "b"}
    async with serving_h2(fine, authority.server()) as server:
        wire = TransportRouter(LIMITS, ssl_context=authority.client())
        assert (await ask(wire, Request(server.url, headers=fields))).error is None
        sent = server.asked[0].fields
        assert sent["x-a"] == "b"
        assert sent[":authority"] == f"127.0.0.1:{server.port}"
        assert {name.lower() for name in fields} & sent.keys() == {"x-a"}
        await wire.aclose()


async def test_a_server_that_speaks_http_1_only_and_plain_urls_are_asked_as_ever(clock: MockClock) -> None:
    authority = Authority()
    context = authority.server()
    context.set_alpn_protocols(["http/1.1"])
    async with serving(is_fine, context) as secure, serving(is_fine) as plain:
        wire = TransportRouter(LIMITS, ssl_context=authority.client())
        for server in (secure, plain):
            outcome = await ask(wire, Request(server.url))
            assert outcome.response is not None
            assert outcome.response.protocol == "HTTP/1.1"
        await wire.aclose()


async def test_http_2_is_not_offered_unless_it_is_set(clock: MockClock) -> None:
    authority = Authority()
    async with serving_h2(fine, authority.server(), protocols=("h2",)) as server:
        wire = TransportRouter(TransportSettings(), ssl_context=authority.client())
        assert isinstance((await ask(wire, Request(server.url))).error, ResponseBroken)  # ALPN finds nothing in common
        assert server.protocols == [None]
        await wire.aclose()


async def test_the_same_is_true_of_one_context_that_both_wires_use(clock: MockClock) -> None:
    authority = Authority()
    trusted = authority.client()
    async with serving_h2(fine, authority.server()) as server:
        two = TransportRouter(LIMITS, ssl_context=trusted)
        one = TransportRouter(TransportSettings(), ssl_context=trusted)
        for wire in (one, two, one, two):
            await ask(wire, Request(server.url))
            await wire.aclose()
        assert server.protocols == ["http/1.1", "h2"] * 2


async def test_without_its_package_http_2_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trawl.transport.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"trawl-crawler\[http2\]"):
        TransportRouter(LIMITS)
    TransportRouter(TransportSettings())


@pytest.mark.parametrize("scheme", ["http", "socks5"])
async def test_http_2_goes_through_proxies(clock: MockClock, scheme: str) -> None:
    authority = Authority()
    async with (
        serving_h2(fine, authority.server("a.example")) as server,
        proxying(names={"a.example": server.port}) as proxy,
    ):
        wire = TransportRouter(LIMITS, ssl_context=authority.client())
        for _ in range(2):
            outcome = await ask(wire, Request("https://a.example/", meta={"proxy": proxy.url(scheme)}))
            assert outcome.response is not None
            assert outcome.response.protocol == "HTTP/2"
        assert len(proxy.asked) == 1
        await wire.aclose()
        await proxy.all_gone()


async def test_bodies_are_decompressed_within_their_limit(clock: MockClock) -> None:
    async def compresses(exchange: Exchange) -> None:
        size = 1_000 if exchange.number == 0 else 1_000_000
        await exchange.answer(gzip.compress(bytes(size)), "200", ("content-encoding", "gzip"))

    authority = Authority()
    async with serving_h2(compresses, authority.server()) as server:
        wire = TransportRouter(LIMITS, ssl_context=authority.client())
        outcome = await ask(wire, Request(server.url))
        assert outcome.response is not None
        assert outcome.response.body == bytes(1_000)
        assert isinstance((await ask(wire, Request(server.url))).error, BodyTooLarge)
        assert (await ask(wire, Request(server.url, meta={"download_maxsize": 0}))).error is None
        await wire.aclose()
        await server.all_gone()


# What servers do wrong.


async def stalls(exchange: Exchange) -> None:
    await trio.sleep_forever()


async def stalls_in_the_body(exchange: Exchange) -> None:
    await exchange.answer(b"only this", ends=False)


async def sends_for_ever(exchange: Exchange) -> None:
    await exchange.answer(b"a" * 10_000_000, ends=False)


async def resets(exchange: Exchange) -> None:
    exchange.connection.reset_stream(exchange.stream_id)
    await exchange.flush()


async def goes_away(exchange: Exchange) -> None:
    exchange.connection.close_connection()
    await exchange.flush()


async def closes(exchange: Exchange) -> None:
    await trio.aclose_forcefully(exchange.stream)


async def talks_rubbish(exchange: Exchange) -> None:
    async with exchange.lock:
        await exchange.stream.send_all(b"\x00\x00\x01\x00\x00\x00\x00\x00\x00x")  # DATA of no stream


async def says_a_length_too_long(exchange: Exchange) -> None:
    await exchange.answer(b"short", "200", ("content-length", "100"))


async def drips(exchange: Exchange) -> None:
    await exchange.answer(b"", ends=False)
    while True:
        await trio.sleep(15)
        exchange.connection.send_data(exchange.stream_id, b".")
        await exchange.flush()


@pytest.mark.parametrize(
    ("behaviour", "error", "seconds"),
    [
        (stalls, ReadTimeout, 20.0),
        (stalls_in_the_body, ReadTimeout, 20.0),
        (drips, DownloadTimeout, 100.0),
        (sends_for_ever, BodyTooLarge, 0.0),
        (resets, ResponseBroken, 0.0),
        (goes_away, ResponseBroken, 0.0),
        (closes, ResponseBroken, 0.0),
        (talks_rubbish, ResponseBroken, 0.0),
        (says_a_length_too_long, ResponseBroken, 0.0),
    ],
)
async def test_what_a_server_does_wrong_is_an_error_in_time(
    clock: MockClock, behaviour: object, error: type[Exception], seconds: float
) -> None:
    assert callable(behaviour)
    authority = Authority()
    async with serving_h2(behaviour, authority.server()) as server:
        wire = HttpxTransport(LIMITS, ssl_context=authority.client())
        began = trio.current_time()
        outcome = await wire.send(Request(server.url), lambda: None)
        assert type(outcome.error) is error
        assert trio.current_time() - began == pytest.approx(seconds, abs=1.0)
        await wire.aclose()
        await server.all_gone()


async def test_a_connection_that_went_away_while_it_was_idle_is_replaced_for_what_is_safe(clock: MockClock) -> None:
    async def once(exchange: Exchange) -> None:
        await fine(exchange)
        await trio.aclose_forcefully(exchange.stream)

    authority = Authority()
    async with serving_h2(once, authority.server()) as server:
        wire = TransportRouter(LIMITS, ssl_context=authority.client())
        for number in range(3):
            assert (await ask(wire, Request(f"{server.url}{number}"))).error is None
        assert server.connected == 3
        assert isinstance((await ask(wire, Request(server.url, method="POST"))).error, ResponseBroken)
        await wire.aclose()


async def test_a_stream_that_is_reset_again_and_again_is_asked_for_twice_at_most(clock: MockClock) -> None:
    async def resets_later(exchange: Exchange) -> None:
        await (fine if exchange.number == 0 else resets)(exchange)

    authority = Authority()
    async with serving_h2(resets_later, authority.server()) as server:
        wire = TransportRouter(LIMITS, ssl_context=authority.client())
        assert (await ask(wire, Request(server.url))).error is None
        sent: list[float] = []
        outcome = await wire.send(Request(server.url), lambda: sent.append(trio.current_time()))
        assert isinstance(outcome.error, ResponseBroken)
        assert len(server.asked) == 3
        assert len(sent) == 2
        answers = iter([False, True])
        held = await wire.send(Request(server.url), lambda: next(answers))
        assert (held.response, held.error, held.sent_at, len(server.asked)) == (None, None, None, 4)
        outcome = await wire.send(Request(server.url), Again())
        assert isinstance(outcome.error, ResponseBroken)
        assert len(server.asked) == 5  # else it might be put off for ever
        await wire.aclose()


async def test_cancelling_one_leaves_the_others_alone(clock: MockClock) -> None:
    async def slow(exchange: Exchange) -> None:
        await trio.sleep(float(exchange.fields[":path"][1:]))
        await fine(exchange)

    authority = Authority()
    async with serving_h2(slow, authority.server()) as server:
        wire = TransportRouter(LIMITS, ssl_context=authority.client())
        await ask(wire, Request(f"{server.url}0"))
        found: list[Outcome] = []

        async def lasting() -> None:
            found.append(await ask(wire, Request(f"{server.url}10")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lasting)
            with trio.move_on_after(5):
                await ask(wire, Request(f"{server.url}15"))
        assert found[0].error is None
        assert (await ask(wire, Request(f"{server.url}1"))).error is None
        assert server.connected == 1
        await wire.aclose()
        await server.all_gone()


async def test_a_large_body_goes_to_the_sink_of_its_request(clock: MockClock) -> None:
    body = b"0123456789" * 100_000

    async def packed(exchange: Exchange) -> None:
        await exchange.answer(gzip.compress(body), "200", ("content-encoding", "gzip"))

    authority = Authority()
    async with serving_h2(packed, authority.server()) as server:
        wire = TransportRouter(LIMITS, ssl_context=authority.client())
        request = Request(server.url, meta={"download_maxsize": 0})
        for limit, is_whole in ((100.0, True), (5.0, False)):
            request.meta["download_timeout"] = limit
            request.sink = sink = NotingSink(partial(trio.sleep, 2))  # three writes
            outcome = await ask(wire, request)
            assert isinstance(outcome.response, FileResponse) is is_whole
            assert isinstance(outcome.error, DownloadTimeout) is not is_whole
            assert sink.content == (body if is_whole else b"")
        await wire.aclose()
        await server.all_gone()


@pytest.mark.parametrize("name", ["x-a", "content-type"])
@pytest.mark.parametrize("value", ["b\r\nset-cookie: evil=1", "b\nc", "b\0c"])
async def test_a_field_that_holds_a_line_end_is_refused(clock: MockClock, name: str, value: str) -> None:
    async def splits(exchange: Exchange) -> None:
        exchange.connection.config.validate_outbound_headers = False
        await exchange.answer(b"x", "200", (name, value))

    authority = Authority()
    async with serving_h2(splits, authority.server()) as server:
        wire = TransportRouter(LIMITS, ssl_context=authority.client())
        outcome = await ask(wire, Request(server.url))
        assert isinstance(outcome.error, ResponseBroken)
        assert "contains a line break" in str(outcome.error)
        await wire.aclose()


@pytest.mark.parametrize("status", ["000", "099"])
async def test_a_status_that_is_none_is_refused(clock: MockClock, status: str) -> None:
    async def answers(exchange: Exchange) -> None:
        exchange.connection.config.validate_outbound_headers = False
        await exchange.answer(b"x", status)

    authority = Authority()
    async with serving_h2(answers, authority.server()) as server:
        wire = TransportRouter(LIMITS, ssl_context=authority.client())
        outcome = await ask(wire, Request(server.url))
        assert isinstance(outcome.error, ResponseBroken)
        await wire.aclose()
