"""Whatever servers send, however it is cut: an exchange ends, in time, and no connection is lost (C8)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.transport.http11.memory import CLOSES, RESETS, STALLS, Servers, transport_to
from trawl.errors import BodyTooLarge, DownloadTimeout, ReadTimeout, ResponseBroken
from trawl.http import Outcome, Request
from trawl.transport import TransportSettings

LIMITS = TransportSettings(
    download_timeout=100.0, download_read_timeout=20.0, download_connect_timeout=10.0, download_maxsize=2_000
)

ENDS = st.sampled_from([CLOSES, STALLS, RESETS])
METHODS = st.sampled_from(["GET", "HEAD", "POST"])


@st.composite
def responses(draw: st.DrawFn) -> tuple[bytes, bool]:
    """A response that is in order, and whether it needs the end of the connection."""
    body = draw(st.binary(max_size=200))
    fields = draw(
        st.lists(
            st.sampled_from([b"X-A: b", b"Set-Cookie: a=b", b"Server: x", b"X-Empty:", b"Connection: keep-alive"]),
            max_size=4,
        )
    )
    framing = draw(st.sampled_from(["length", "chunks", "end"]))
    interim = draw(st.sampled_from([b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", b"HTTP/1.1 100 C\r\n\r\n"]))
    if framing == "length":
        fields.append(b"Content-Length: %d" % len(body))
    elif framing == "chunks":
        fields.append(b"Transfer-Encoding: chunked")
        sizes = draw(st.lists(st.integers(min_value=1, max_value=50), max_size=5))
        pieces, rest = [], body
        for size in sizes:
            pieces.append(rest[:size])
            rest = rest[size:]
        chunks = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in [*pieces, rest] if piece]
        trailer = draw(st.sampled_from([b"", b"X-Sum: 1\r\n"]))
        body = b"".join(chunks) + b"0\r\n" + trailer + b"\r\n"
    line_end = draw(st.sampled_from([b"\r\n", b"\n"])) if framing != "chunks" else b"\r\n"
    head = line_end.join([b"HTTP/1.1 200 OK", *fields, b"", b""])
    return interim + head + body, framing == "end"


def cut(answer: bytes, marks: list[int]) -> list[bytes | float]:
    """The answer in pieces that end at the marks."""
    bounds = [0, *sorted({mark % (len(answer) + 1) for mark in marks}), len(answer)]
    return [answer[start:end] for start, end in pairwise(bounds) if end > start]


MARKS = st.lists(st.integers(min_value=0, max_value=2_000), max_size=8)


async def exchanged(script: Sequence[bytes | float], method: str) -> Outcome:
    """Ask twice, so that a connection kept wrongly would show; then nothing may be open but what is in the pool."""
    servers = Servers([script, [CLOSES]])
    transport = transport_to(servers, LIMITS)
    outcome = await transport.send(Request("http://a.example/", method=method), lambda: None)
    assert (outcome.response is None) is (outcome.error is not None)
    if outcome.error is not None:
        assert type(outcome.error) in {ResponseBroken, BodyTooLarge, ReadTimeout, DownloadTimeout}
    assert servers.left_open == len(transport._pool)
    assert trio.current_time() <= LIMITS.download_timeout
    await transport.send(Request("http://a.example/", method=method), lambda: None)
    assert servers.left_open == len(transport._pool)
    await transport.aclose()
    assert servers.left_open == 0
    return outcome


def run(script: Sequence[bytes | float], method: str = "GET") -> Outcome:
    return trio.run(partial(exchanged, script, method), clock=MockClock(autojump_threshold=0))


def seen(outcome: Outcome) -> object:
    """What a spider would see."""
    response = outcome.response
    return None if response is None else (response.status, response.headers.items_list(), response.body)


@settings(max_examples=60, deadline=None)
@given(responses(), MARKS, METHODS)
def test_a_response_cut_anywhere_is_the_same_response_c8(
    response: tuple[bytes, bool], marks: list[int], method: str
) -> None:
    answer, _ = response
    if method == "HEAD":
        answer = answer[: answer.rindex(b"\n\r\n") + 3] if b"\n\r\n" in answer else answer
    whole = run([answer, CLOSES], "GET")
    pieces = run([*cut(answer, marks), CLOSES], "GET")
    assert seen(whole) == seen(pieces)
    assert type(whole.error) is type(pieces.error)


@settings(max_examples=25, deadline=None)
@given(responses())
def test_a_response_split_at_every_byte_is_the_same_response_c8(response: tuple[bytes, bool]) -> None:
    answer, _ = response
    outcome = run([*(answer[at : at + 1] for at in range(len(answer))), CLOSES])
    assert outcome.error is None
    assert seen(outcome) == seen(run([answer, CLOSES]))


@settings(max_examples=60, deadline=None)
@given(responses(), st.integers(min_value=0), MARKS, ENDS)
def test_a_response_that_is_cut_short_is_an_error_c8(
    response: tuple[bytes, bool], length: int, marks: list[int], end: bytes
) -> None:
    answer, needs_end = response
    short = answer[: length % len(answer)]
    outcome = run([*cut(short, marks), end])
    head_ends = needs_end and (b"\r\n\r\n" in short.removeprefix(b"HTTP/1.1 100 C\r\n\r\n") or b"\n\n" in short)
    if not (head_ends and end == CLOSES):
        assert outcome.error is not None


@settings(max_examples=80, deadline=None)
@given(
    responses(),
    st.lists(st.tuples(st.integers(min_value=0, max_value=400), st.binary(max_size=4), st.booleans()), max_size=4),
    MARKS,
    ENDS,
    METHODS,
)
def test_a_response_with_errors_in_it_ends_and_loses_no_connection_c8(
    response: tuple[bytes, bool], edits: list[tuple[int, bytes, bool]], marks: list[int], end: bytes, method: str
) -> None:
    answer = bytearray(response[0])
    for at, put, replaces in edits:
        place = at % (len(answer) + 1)
        answer[place : place + (len(put) if replaces else 0)] = put
    run([*cut(bytes(answer), marks), end], method)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=50), max_size=8), ENDS, METHODS)
def test_rubbish_ends_and_loses_no_connection_c8(pieces: list[bytes], end: bytes, method: str) -> None:
    outcome = run([*pieces, end], method)
    if b"HTTP/" not in b"".join(pieces):
        assert outcome.error is not None


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(
        [
            b"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\n",
        ]
    ),
    st.integers(min_value=1, max_value=3_000),
    ENDS,
)
def test_what_is_too_large_ends_at_the_limit_c8(head: bytes, size: int, end: bytes) -> None:
    outcome = run([head, *[b"a" * size] * (3_000 // size + 1), end])
    assert type(outcome.error) is BodyTooLarge


@settings(max_examples=40, deadline=None)
@given(responses(), MARKS, st.integers(min_value=0, max_value=12))
def test_cancelling_at_any_moment_loses_no_connection_c8(
    response: tuple[bytes, bool], marks: list[int], moment: int
) -> None:
    script: list[bytes | float] = []
    for piece in cut(response[0], marks):
        script += [1.0, piece]

    async def main() -> None:
        servers = Servers([[*script, CLOSES], [CLOSES]], connect_seconds=1.0)
        transport = transport_to(servers, LIMITS)
        with trio.move_on_after(moment + 0.5):
            await transport.send(Request("http://a.example/"), lambda: None)
        assert servers.left_open == len(transport._pool)
        await transport.aclose()
        assert servers.left_open == 0

    trio.run(main, clock=MockClock(autojump_threshold=0))
