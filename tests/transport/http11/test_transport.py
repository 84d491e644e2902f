"""One exchange after another on connections in memory: what is kept, what is dropped, what goes again."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.transport.http11.memory import CLOSES, RESETS, STALLS, Script, Servers, transport_to
from trawl.errors import (
    BodyTooLarge,
    ConnectFailed,
    ConnectTimeout,
    DownloadTimeout,
    ReadTimeout,
    ResponseBroken,
    UnsupportedScheme,
)
from trawl.http import Outcome, Request
from trawl.transport import TransportSettings
from trawl.transport.http11 import Http11Transport
from trawl.transport.http11.network_stream import NetworkStream
from trawl.transport.http11.pool import Origin

URL = "http://a.example/page"
OK = b"HTTP/1.1 200 OK\r\n"
HELLO = OK + b"Content-Length: 5\r\n\r\nhello"
LIMITS = TransportSettings(download_timeout=100.0, download_read_timeout=20.0, download_connect_timeout=10.0)


class Again:
    """Tells of a send that met a dead connection before."""

    needs_new_connection = True

    def __call__(self) -> None:
        """Let it go."""


async def ask(transport: Http11Transport, request: Request | None = None) -> Outcome:
    return await transport.send(request or Request(URL), lambda: None)


def body_of(outcome: Outcome) -> bytes:
    assert outcome.error is None
    assert outcome.response is not None
    return outcome.response.body


async def test_one_connection_takes_one_request_after_another(autojump_clock: MockClock) -> None:
    servers = Servers([[HELLO, HELLO, HELLO]])
    transport = transport_to(servers)
    for path in ("/1", "/2?q=%20#top", ""):
        outcome = await ask(transport, Request(f"http://a.example{path}", headers={"Accept-Encoding": None}))
        assert body_of(outcome) == b"hello"
    assert servers.opened == 1
    assert servers.sent[0] == b"".join(
        b"GET %s HTTP/1.1\r\nHost: a.example\r\n\r\n" % path for path in (b"/1", b"/2?q=%20", b"/")
    )
    assert servers.left_open == 1
    await transport.aclose()
    assert servers.left_open == 0


async def test_an_outcome_tells_when_what_happened(autojump_clock: MockClock) -> None:
    servers = Servers([[2.0, HELLO[:30], 3.0, HELLO[30:-2], 4.0, b"lo", 5.0, HELLO]], connect_seconds=1.0)
    transport = transport_to(servers)
    sent: list[float] = []
    outcome = await transport.send(Request(URL), lambda: sent.append(trio.current_time()))
    assert sent == [1.0]
    assert (outcome.started_at, outcome.sent_at) == (0.0, 1.0)
    assert (outcome.first_byte_at, outcome.ended_at) == (6.0, 10.0)
    assert outcome.response is not None
    assert outcome.response.latency == 6.0
    assert outcome.response.ip_address == "192.0.2.1"
    assert outcome.response.protocol == "HTTP/1.1"
    outcome = await ask(transport)
    assert (outcome.started_at, outcome.sent_at, outcome.ended_at) == (10.0, 10.0, 15.0)


async def test_origins_do_not_share_connections(autojump_clock: MockClock) -> None:
    servers = Servers([[HELLO, HELLO]])
    transport = transport_to(servers)
    for origin in ("http://a.example", "https://a.example", "http://a.example:81", "http://me@a.example") * 2:
        assert body_of(await ask(transport, Request(f"{origin}/"))) == b"hello"
    assert servers.sites == ["http://a.example", "https://a.example", "http://a.example:81", "http://me@a.example"]


async def test_an_idle_connection_that_is_not_quiet_is_not_used(autojump_clock: MockClock) -> None:
    servers = Servers([[HELLO, HELLO]])
    transport = transport_to(servers)
    await ask(transport)
    servers.quiet = False
    assert body_of(await ask(transport, Request(URL, method="POST", body=b"x"))) == b"hello"
    assert (servers.opened, servers.closed) == (2, 1)
    assert servers.sent[0].count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("end", [CLOSES, RESETS])
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
async def test_a_safe_request_goes_again_when_an_old_connection_closes_without_an_answer(
    autojump_clock: MockClock, method: str, end: bytes
) -> None:
    servers = Servers([[HELLO, end], [OK + b"Content-Length: 0\r\n\r\n"]])
    transport = transport_to(servers)
    await ask(transport)
    sent: list[float] = []
    outcome = await transport.send(Request(URL, method=method), lambda: sent.append(trio.current_time()))
    assert outcome.error is None
    assert len(sent) == 2  # going again is a send too
    assert (servers.opened, servers.left_open) == (2, 1)
    assert servers.sent[1].startswith(method.encode())


async def test_what_must_not_go_again_yet_leaves_the_new_connection_to_others(autojump_clock: MockClock) -> None:
    servers = Servers([[HELLO, CLOSES], [HELLO, CLOSES], [HELLO]], connect_seconds=1.0)
    transport = transport_to(servers)
    await ask(transport)
    answers = iter([False, True])
    outcome = await transport.send(Request(URL), lambda: next(answers))
    assert (outcome.response, outcome.error, outcome.sent_at, outcome.first_byte_at) == (None, None, None, None)
    assert (servers.opened, servers.left_open, servers.sent[1]) == (2, 1, b"")
    assert body_of(await ask(transport)) == b"hello"
    assert servers.opened == 2
    # one that met a dead connection before gets a new one
    assert body_of(await transport.send(Request(URL), Again())) == b"hello"
    assert (servers.opened, servers.left_open) == (3, 1)


async def test_a_new_connection_that_was_left_to_others_is_not_tried_again(autojump_clock: MockClock) -> None:
    servers = Servers([[HELLO, CLOSES], [CLOSES], [HELLO]])
    transport = transport_to(servers)
    await ask(transport)
    answers = iter([False, True])
    await transport.send(Request(URL), lambda: next(answers))
    outcome = await transport.send(Request(URL), Again())
    assert type(outcome.error) is ResponseBroken  # else a server that answers nothing would be asked for ever
    assert (servers.opened, servers.left_open) == (2, 0)


async def test_who_finds_a_connection_that_was_left_to_others_dead_goes_again(autojump_clock: MockClock) -> None:
    servers = Servers([[CLOSES], [HELLO]])
    transport = transport_to(servers)
    assert (await transport.send(Request(URL), lambda: True)).sent_at is None  # a scope was closed meanwhile
    await trio.sleep(20)  # longer than the server waits for a request
    assert body_of(await ask(transport)) == b"hello"
    assert (servers.opened, servers.left_open) == (2, 1)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_a_request_that_may_do_something_does_not_go_again(autojump_clock: MockClock, method: str) -> None:
    servers = Servers([[HELLO, CLOSES], [HELLO]])
    transport = transport_to(servers)
    await ask(transport)
    outcome = await ask(transport, Request(URL, method=method))
    assert type(outcome.error) is ResponseBroken
    assert "closed the connection without a response" in str(outcome.error)
    assert (servers.opened, servers.left_open) == (1, 0)


async def test_a_new_connection_that_closes_without_an_answer_is_not_tried_again(autojump_clock: MockClock) -> None:
    servers = Servers([[CLOSES], [HELLO]])
    outcome = await ask(transport_to(servers))
    assert type(outcome.error) is ResponseBroken
    assert servers.opened == 1
    assert servers.left_open == 0


async def test_a_request_does_not_go_again_once_a_byte_of_an_answer_came(autojump_clock: MockClock) -> None:
    servers = Servers([[HELLO, b"HT", CLOSES], [HELLO]])
    transport = transport_to(servers)
    await ask(transport)
    assert type((await ask(transport)).error) is ResponseBroken
    assert servers.opened == 1


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (HELLO, True),
        (OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello", False),
        (OK + b"\r\nhello", False),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", True),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\nevil", False),
    ],
)
async def test_a_connection_is_kept_only_if_both_ends_agree_where_the_response_ends(
    autojump_clock: MockClock, answer: bytes, kept: bool
) -> None:
    servers = Servers([[answer, CLOSES]])
    assert body_of(await ask(transport_to(servers))) == b"hello"
    assert servers.left_open == kept


async def test_a_request_that_says_close_is_the_last_of_its_connection(autojump_clock: MockClock) -> None:
    servers = Servers([[HELLO, HELLO]])
    assert body_of(await ask(transport_to(servers), Request(URL, headers={"Connection": "Close"}))) == b"hello"
    assert servers.left_open == 0


async def test_a_connection_runs_out_when_it_is_idle_for_too_long(autojump_clock: MockClock) -> None:
    servers = Servers([[HELLO, HELLO, HELLO]])
    transport = transport_to(servers, TransportSettings(download_keepalive_timeout=30.0))
    for pause in (29.0, 31.0, 0.0):
        assert body_of(await ask(transport)) == b"hello"
        await trio.sleep(pause)
    assert (servers.opened, servers.left_open) == (2, 1)


async def test_closing_the_transport_closes_what_is_in_use_when_it_is_given_back(autojump_clock: MockClock) -> None:
    servers = Servers([[5.0, HELLO]])
    transport = transport_to(servers)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, transport)
        await trio.sleep(1)
        await transport.aclose()
        await transport.aclose()
        assert servers.left_open == 1
    assert servers.left_open == 0


# Limits of time. Every script would go on for ever.

DROP: list[bytes | float] = [15.0, b"."]
DRIPS: Script = [OK + b"Content-Length: 1000\r\n\r\n", *DROP * 100]


@pytest.mark.parametrize(
    ("script", "connecting", "error", "words", "seconds"),
    [
        ([STALLS], 0.0, ReadTimeout, "nothing came for 20 s", 20.0),
        ([15.0, OK, STALLS], 0.0, ReadTimeout, "nothing came for 20 s", 35.0),
        ([15.0, HELLO[:-2], 15.0, b"l", STALLS], 0.0, ReadTimeout, "nothing came for 20 s", 50.0),
        (DRIPS, 0.0, DownloadTimeout, "not done within 100 s", 100.0),
        ([HELLO], 1000.0, ConnectTimeout, "no connection within 10 s", 10.0),
        ([STALLS], 9.0, ReadTimeout, "nothing came for 20 s", 29.0),
    ],
)
async def test_every_wait_has_its_limit(
    autojump_clock: MockClock, script: Script, connecting: float, error: type[Exception], words: str, seconds: float
) -> None:
    servers = Servers([script], connect_seconds=connecting)
    outcome = await ask(transport_to(servers, LIMITS))
    assert trio.current_time() == seconds
    assert type(outcome.error) is error
    assert words in str(outcome.error)
    assert outcome.ended_at == seconds
    assert servers.left_open == 0


async def test_a_server_that_takes_nothing_is_a_timeout(autojump_clock: MockClock) -> None:
    servers = Servers([[HELLO]], send_hook=trio.sleep_forever)
    outcome = await ask(transport_to(servers, LIMITS), Request(URL, method="POST", body=b"x" * 1000))
    assert type(outcome.error) is ReadTimeout
    assert "the server took nothing for 20 s" in str(outcome.error)
    assert trio.current_time() == 20.0
    assert servers.left_open == 0


async def test_the_whole_limit_goes_before_the_others_and_meta_before_it(autojump_clock: MockClock) -> None:
    servers = Servers([[STALLS]], connect_seconds=2.0)
    outcome = await ask(transport_to(servers, LIMITS), Request(URL, meta={"download_timeout": 3}))
    assert type(outcome.error) is DownloadTimeout
    assert "not done within 3 s" in str(outcome.error)
    assert trio.current_time() == 3.0


@pytest.mark.parametrize("at", [0.5, 1.5, 2.5, 3.5, 4.5, 5.5])
async def test_cancelling_at_any_await_leaves_the_pool_sound(autojump_clock: MockClock, at: float) -> None:
    answer: Script = [1.0, OK, 1.0, b"Content-Length: 5\r\n\r\nhe", 1.0, b"llo", HELLO]

    async def slow() -> None:
        await trio.sleep(1.0)

    servers = Servers([answer], connect_seconds=1.0, send_hook=slow)
    transport = transport_to(servers)
    with trio.move_on_after(at) as scope:
        await ask(transport)
    assert scope.cancelled_caught is (at < 5)
    assert servers.cut == (1 < at < 5), "a request that is under way does not come later"
    assert servers.left_open == (at > 5)
    assert body_of(await ask(transport)) == b"hello"
    assert servers.left_open == 1
    await transport.aclose()
    assert servers.left_open == 0


async def test_a_cancelled_caller_sends_nothing(autojump_clock: MockClock) -> None:
    servers = Servers([[HELLO, HELLO]])
    transport = transport_to(servers)
    await ask(transport)
    with trio.CancelScope() as scope:
        scope.cancel()
        await ask(transport)
    assert scope.cancelled_caught
    assert servers.sent[0].count(b"HTTP/1.1") == 1
    assert servers.left_open == 1


# Expect: 100-continue (RFC 9110, 10.1.1).

BODY = Request(URL, method="PUT", body=b"a body", headers={"Expect": "100-continue"})


@pytest.mark.parametrize(
    ("script", "seconds", "is_sent", "kept"),
    [
        ([b"HTTP/1.1 100 Continue\r\n\r\n", 0.5, HELLO], 0.5, True, True),
        ([3.0, HELLO], 3.0, True, True),
        ([b"HTTP/1.1 102 Processing\r\n\r\n", 3.0, HELLO], 3.0, True, True),
        ([HELLO], 0.0, False, False),
        ([b"HTTP/1.1 100 Continue\r\n\r\n" + HELLO], 0.0, False, False),
    ],
)
async def test_a_body_waits_for_the_servers_word_but_not_for_long(
    autojump_clock: MockClock, script: Script, seconds: float, is_sent: bool, kept: bool
) -> None:
    servers = Servers([script])
    assert body_of(await ask(transport_to(servers), BODY)) == b"hello"
    assert servers.sent[0].endswith(b"a body") is is_sent
    assert trio.current_time() == pytest.approx(seconds)
    assert servers.left_open == kept


async def test_an_answer_that_comes_while_a_body_is_refused_is_read(autojump_clock: MockClock) -> None:
    async def refuses() -> None:
        await trio.lowlevel.checkpoint()
        raise trio.BrokenResourceError from BrokenPipeError(32, "Broken pipe")

    servers = Servers([[HELLO]], send_hook=refuses)
    assert body_of(await ask(transport_to(servers), Request(URL, method="POST", body=b"x"))) == b"hello"
    assert servers.left_open == 0


# Limits of size, and what is not strict.


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 11\r\n\r\n",
        OK + b"\r\n12345678901",
        OK + b"Transfer-Encoding: chunked\r\n\r\nb\r\n12345678901",
    ],
)
async def test_a_body_that_is_too_large_ends_at_the_limit(autojump_clock: MockClock, answer: bytes) -> None:
    servers = Servers([[answer, STALLS]])
    outcome = await ask(transport_to(servers), Request(URL, meta={"download_maxsize": 10}))
    assert type(outcome.error) is BodyTooLarge
    assert trio.current_time() == 0.0
    assert servers.left_open == 0


async def test_a_large_body_is_logged_and_kept(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    servers = Servers([[HELLO]])
    assert body_of(await ask(transport_to(servers), Request(URL, meta={"download_warnsize": 4}))) == b"hello"
    assert "its body has 5 bytes (DOWNLOAD_WARNSIZE is 4)" in caplog.text


@pytest.mark.parametrize(
    "script",
    [
        [HELLO[:-1], CLOSES],
        [HELLO[:-1], RESETS],
        [HELLO[:-1].replace(b"5", b"4") + b"o", CLOSES],
        [OK + b"Transfer-Encoding: chunked\r\n\r\n9\r\nhell", CLOSES],
        [OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\nhell\r\nxyz\r\n"],
    ],
)
async def test_what_came_of_a_broken_body_is_had_if_asked_for(autojump_clock: MockClock, script: Script) -> None:
    servers = Servers([script])
    outcome = await ask(transport_to(servers), Request(URL, meta={"download_fail_on_dataloss": False}))
    assert body_of(outcome) == b"hell"
    assert outcome.response is not None
    assert outcome.response.flags == ["dataloss"]
    assert servers.left_open == 0
    assert type((await ask(transport_to(Servers([script])))).error) is ResponseBroken


@pytest.mark.parametrize("url", ["ftp://a.example/x", "mailto:a@a.example", "data:,x"])
async def test_other_schemes_are_not_fetched(autojump_clock: MockClock, url: str) -> None:
    servers = Servers([[HELLO]])
    outcome = await ask(transport_to(servers), Request(url))
    assert type(outcome.error) is UnsupportedScheme
    assert outcome.sent_at is None
    assert servers.opened == 0


async def test_what_connecting_says_is_the_outcomes_error(autojump_clock: MockClock) -> None:
    async def refused(origin: Origin) -> NetworkStream:
        await trio.lowlevel.checkpoint()
        raise ConnectFailed("no connection: Connection refused")

    outcome = await ask(Http11Transport(TransportSettings(), connect=refused))
    assert str(outcome.error) == f"GET {URL}: no connection: Connection refused"
    assert outcome.sent_at is None


async def test_a_send_is_always_a_checkpoint(autojump_clock: MockClock) -> None:
    transport: Any = transport_to(Servers([[HELLO, HELLO]]))
    for url in (URL, URL, "ftp://a.example/"):
        with trio.testing.assert_checkpoints():
            await ask(transport, Request(url))
    with trio.testing.assert_checkpoints():
        await transport.aclose()
