"""What llhttp does by itself, and what becomes of it: the cases as a table, each fed whole and byte by byte."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.security.steps import is_short
from trawl.errors import ResponseBroken
from trawl.transport.http11.parser import MAX_FIELDS, MAX_IDLE_BYTES, ConnectionClosedError, ResponseParser

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
HELLO = OK + b"Content-Length: 5\r\n\r\nhello"


def fed(pieces: Sequence[bytes], *, is_head: bool = False, ends: bool = False) -> tuple[ResponseParser, bytes]:
    """A parser that got ``pieces``, and the body that came out."""
    parser = ResponseParser()
    parser.begin(is_head=is_head)
    body = b""
    for piece in pieces:
        parser.feed(piece)
        body += b"".join(parser.take())
    if ends:
        parser.end()
    return parser, body


def ways(answer: bytes) -> list[list[bytes]]:
    """The answer at once, and byte by byte."""
    return [[answer], [answer[at : at + 1] for at in range(len(answer))]]


HI = b"hello"
KEPT, DROPPED = (True, False), (False, False)
EXCESS, DROPPED_EXCESS = (True, True), (False, True)
WHOLE: list[Any] = [
    pytest.param(HELLO, 200, HI, KEPT, id="a length"),
    pytest.param(OK + b"Content-Length: 0\r\n\r\n", 200, b"", KEPT, id="an empty body"),
    pytest.param(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + HELLO, 200, HI, KEPT, id="103, 200"),
    pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" * 3 + HELLO, 200, HI, KEPT, id="100 three times, 200"),
    pytest.param(b"\r\n\r\n" + HELLO, 200, HI, KEPT, id="blank lines first"),
    pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", KEPT, id="204"),
    pytest.param(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, b"", KEPT, id="304 with length"),
    pytest.param(b"HTTP/1.1 204 No\r\nContent-Length: 2\r\n\r\nok", 204, b"", EXCESS, id="204 with a body"),
    pytest.param(CHUNKED + b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", 200, HI, KEPT, id="chunks"),
    pytest.param(
        OK + b"Transfer-Encoding: Chunked\r\n\r\n5 ;a=b\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", 200, HI, KEPT, id="trailer"
    ),
    pytest.param(
        CHUNKED + b"5\r\nhello\r\n0\r\nContent-Length: 9\r\n\r\n",
        200,
        HI,
        KEPT,
        id="a length among the trailers",
    ),
    pytest.param(OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello", 200, HI, DROPPED, id="close"),
    pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, HI, DROPPED, id="1.0"),
    pytest.param(
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello", 200, HI, KEPT, id="1.0 kept"
    ),
    pytest.param(
        OK + b"Upgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 5\r\n\r\nhello",
        200,
        HI,
        KEPT,
        id="an upgrade that is only offered",
    ),
    pytest.param(HELLO + b"HTTP/1.1 200 OK\r\n\r\n", 200, HI, EXCESS, id="two responses in one read"),
    pytest.param(HELLO + b" and more", 200, HI, EXCESS, id="more than the length"),
    pytest.param(
        OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello!", 200, HI, DROPPED_EXCESS, id="more, then the end"
    ),
    pytest.param(b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", 200, HI, KEPT, id="bare LF"),
    pytest.param(b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello", 200, HI, KEPT, id="no reason"),
    pytest.param(
        OK + b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        200,
        HI,
        DROPPED,
        id="a length and chunks",
    ),
    pytest.param(
        OK + b"Content-Length: 5\r\ncontent-length: 5\r\n\r\nhello", 200, HI, DROPPED, id="a length twice, equal"
    ),
    pytest.param(OK + b"Content-Length: 5, 5\r\n\r\nhello", 200, HI, DROPPED, id="a length twice in one"),
    pytest.param(OK + b"X-A: b\r\n  c\r\nContent-Length: 5\r\n\r\nhello", 200, HI, DROPPED, id="a fold"),
    pytest.param(OK + b"X-A: b\x01c\r\nContent-Length: 5\r\n\r\nhello", 200, HI, DROPPED, id="a control"),
    pytest.param(
        b"HTTP/1.1 103 E\r\nA: b\r\n\r\n" + OK + b"A: b\r\n c\r\nContent-Length: 2\r\n\r\nheH",
        200,
        b"he",
        DROPPED_EXCESS,
        id="a fold after 103, with too much behind it",
    ),
]


@pytest.mark.parametrize(("answer", "status", "body", "keepable_excess"), WHOLE)
def test_a_whole_response_is_complete_without_the_end_of_the_connection(
    answer: bytes, status: int, body: bytes, keepable_excess: tuple[bool, bool]
) -> None:
    for pieces in ways(answer):
        parser, came = fed(pieces)
        assert parser.is_complete
        assert (parser.status, came) == (status, body)
        assert (parser.is_keepable, parser.has_extra_data) == keepable_excess


REFUSED: list[Any] = [
    pytest.param(b"HTTP/1.1 101 S\r\nUpgrade: chess\r\nConnection: Upgrade\r\n\r\n", "another protocol", id="101"),
    pytest.param(b"HTTP/1.1 101 S\r\n\r\n", "another protocol", id="101 without a word"),
    pytest.param(b"SSH-2.0-OpenSSH_9.2p1\r\n", "not HTTP: it starts with b'S", id="ssh"),
    pytest.param(b"ICY 200 OK\r\n\r\n", "not HTTP", id="icy"),
    pytest.param(b"<html>hello</html>", "not HTTP", id="HTTP/0.9"),
    pytest.param(b"HTTP/2 200 OK\r\n\r\n", "broken: Expected dot", id="HTTP/2 on one line"),
    pytest.param(b"HTTP/1.1 99 OK\r\n\r\n", "Invalid status", id="a status of two digits"),
    pytest.param(b"HTTP/1.1 1000 OK\r\n\r\n", "Invalid", id="a status of four digits"),
    pytest.param(OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "Content-Length", id="two lengths"),
    pytest.param(OK + b"Content-Length: 5, 6\r\n\r\nhello", "Content-Length", id="two lengths in one"),
    pytest.param(OK + b"Content-Length: -5\r\n\r\nhello", "Content-Length", id="a negative length"),
    pytest.param(OK + b"Content-Length: +5\r\n\r\nhello", "Content-Length", id="a signed length"),
    pytest.param(OK + b"Content-Length: 99999999999999999999999\r\n\r\n", "Content-Length", id="a length too large"),
    pytest.param(OK + b"Transfer-Encoding: gzip\r\n\r\n", "coding 'gzip' is unknown", id="an unknown coding"),
    pytest.param(OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "is unknown", id="a coding under chunks"),
    pytest.param(OK + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n", "is unknown", id="chunks twice"),
    *(
        pytest.param(OK + b"Transfer-Encoding:" + coding + b"\r\n\r\n", "is unknown|broken", id=f"chunks as {coding!r}")
        for coding in (
            *(
                b"\x0bchunked",
                b"chunked\x0b",
                b" \x0cchunked",
                b"chunked\t",
                b"chunked\t;",
                b"chunked \t ",
                b"chunked;",
            ),
            *(b"\x85chunked", b"\xa0chunked", b"chunked\xa0", b"chunked,", b",chunked", b"chun\tked", b" chunked\x1f"),
            *(b"\r\n \x0bchunked", b"chun\r\n ked", b'"chunked"', b"identity", b"xchunked", b"chunked, chunked", b""),
        )
    ),
    *(
        pytest.param(OK + field + b"\r\n\r\n0\r\n\r\n", "Invalid|broken", id=f"a field that begins {field[:20]!r}")
        for field in (
            b"Transfer-Encoding\t: chunked",
            b"Transfer-Encoding\x0b: chunked",
            b" Transfer-Encoding: chunked",
            b"\tTransfer-Encoding: chunked",
            b"\x0bTransfer-Encoding: chunked",
            b"Transfer-Encoding\r\n : chunked",
        )
    ),
    *(
        pytest.param(
            OK + b"Content-Length:" + length + b"\r\n\r\nhello", "Content-Length", id=f"a length of {length!r}"
        )
        for length in (b"\x0b5", b"5\x0b", b"5 5", b"5\xa0", b"0x5", b"5;", b"5, \x0b5", b"\r\n \x0b5")
    ),
    pytest.param(OK + b"X-A : b\r\nContent-Length: 0\r\n\r\n", "Invalid header", id="a blank before the colon"),
    *(
        pytest.param(OK + name + b" : 5\r\n\r\nhello", "Invalid header", id=f"a blank behind {name.decode()}")
        for name in (b"Content-Length", b"Transfer-Encoding", b"Connection", b"Upgrade", b"Proxy-Connection")
    ),
    pytest.param(OK + b"A: b\r\n c\r\nContent-Length : 5\r\n\r\n", "Invalid|broken", id="such a blank after a fold"),
    *(
        pytest.param(
            b"HTTP/1.1 %b X\r\nContent-Length: 5\r\n\r\nhello" % status + HELLO, "broken", id=f"a body of {status!r}"
        )
        for status in (b"000", b"099", b"100", b"102", b"103", b"150", b"199")
    ),
    pytest.param(
        b"HTTP/1.1 103 E\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + HELLO,
        "broken",
        id="a body of 103, in chunks",
    ),
    pytest.param(OK + b"rubbish\r\nContent-Length: 0\r\n\r\n", "Invalid header", id="no colon"),
    pytest.param(OK + b": x\r\nContent-Length: 0\r\n\r\n", "Invalid header", id="no name"),
    pytest.param(OK + b"X-A: a\0b\r\nContent-Length: 0\r\n\r\n", "contains a NUL", id="a NUL"),
    pytest.param(CHUNKED + b"xyz\r\n", "chunk size", id="a chunk without a size"),
]


@pytest.mark.parametrize(("answer", "words"), REFUSED)
def test_what_is_no_response_is_refused_with_words(answer: bytes, words: str) -> None:
    for pieces in ways(answer):
        with pytest.raises(ResponseBroken, match=words):
            fed(pieces)


def test_interim_responses_are_looked_at_once_however_the_rest_is_cut() -> None:
    interim = b"HTTP/1.1 103 E\r\n\r\n" * 3_000
    folded = OK + b"A: b\r\n c\r\n" + b"X-A: b\r\n" * 300 + b"Content-Length: 5\r\n\r\nhello"
    parser = ResponseParser()
    parser.begin()
    begun = time.thread_time()
    parser.feed(interim)
    for at in range(len(folded)):
        parser.feed(folded[at : at + 1])
    assert is_short(time.thread_time() - begun)
    assert parser.is_complete
    assert b"".join(parser.take()) == b"hello"


def test_a_body_without_a_length_ends_with_the_connection_and_not_before() -> None:
    parser, body = fed([OK + b"\r\nhel", b"lo"])
    assert not parser.is_complete
    parser.end()
    assert (parser.is_complete, parser.is_keepable, body) == (True, False, b"hello")


@pytest.mark.parametrize(
    "start",
    [
        OK + b"Content-Length: 9\r\n\r\nhello",
        CHUNKED + b"5\r\nhello",
        CHUNKED + b"5\r\nhello\r\n0\r\n",
    ],
)
def test_a_body_that_is_cut_is_never_whole(start: bytes) -> None:
    with pytest.raises(ResponseBroken, match="ended early"):
        fed([start], ends=True)


def test_an_end_before_the_first_byte_is_told_apart_from_one_in_the_headers() -> None:
    with pytest.raises(ConnectionClosedError):
        fed([], ends=True)
    with pytest.raises(ResponseBroken, match="without a response"):
        fed([b"HTTP/1.1 2"], ends=True)
    with pytest.raises(ResponseBroken, match="without a response"):
        fed([b"HTTP/1.1 103 E\r\n\r\n"], ends=True)


@pytest.mark.parametrize("framing", [b"", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_the_answer_to_head_ends_with_its_headers(framing: bytes) -> None:
    for pieces in ways(OK + framing + b"\r\n"):
        parser, _ = fed(pieces, is_head=True)
        assert (parser.is_complete, parser.is_keepable, parser.has_extra_data) == (True, True, False)
    for pieces in ways(OK + framing + b"\r\n5"):
        parser, body = fed(pieces, is_head=True)
        assert (parser.is_complete, parser.has_extra_data, body) == (True, True, b"")


@pytest.mark.parametrize(
    ("start", "kept"),
    [
        (b"HTTP/1.1 200 OK\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: x, Close\r\n", False),
        (b"HTTP/1.0 200 OK\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n", True),
    ],
)
def test_a_connection_is_kept_after_head_as_it_would_be_after_get(start: bytes, kept: bool) -> None:
    parser, _ = fed([start + b"\r\n"], is_head=True)
    assert parser.is_keepable is kept


def test_one_parser_reads_one_response_after_another_head_among_them() -> None:
    parser = ResponseParser()
    for is_head in (False, True, False, False, True, True):
        parser.begin(is_head=is_head)
        assert (parser.status, parser.has_head, parser.has_started) == (0, False, False)
        parser.feed(HELLO[:-5] if is_head else HELLO)
        assert parser.is_complete
        assert not parser.has_extra_data
        assert b"".join(parser.take()) == (b"" if is_head else b"hello")


@pytest.mark.parametrize(
    ("start", "piece", "words"),
    [
        (OK + b"X-Long: ", b"a" * 1000, "its headers have no end"),
        (OK, b"X-Again: and again\r\n" * 10, "its headers have no end"),
        (b"", b"HTTP/1.1 103 E\r\n\r\n" * 50, "its headers have no end"),
        (OK + b"X-A: b\r\n c\r\n", b"X-Long: " + b"a" * 1000 + b"\r\n", "its headers have no end"),
        (CHUNKED + b"0\r\n", b"X-Long: " + b"a" * 1000 + b"\r\n", "body has no end"),
        (CHUNKED + b"0\r\nX-L: ", b"a" * 1000, "body has no end"),
        (CHUNKED + b"5;", b"a" * 1000, "body has no end"),
    ],
)
def test_bytes_that_bring_nothing_are_counted(start: bytes, piece: bytes, words: str) -> None:
    with pytest.raises(ResponseBroken, match=words):
        fed([start, *[piece] * (MAX_IDLE_BYTES // len(piece) + 1)])


def test_fields_are_counted_in_the_callback_and_its_error_comes_through() -> None:
    with pytest.raises(ResponseBroken, match=f"more than {MAX_FIELDS} fields") as raised:
        fed([OK + b"X: y\r\n" * (MAX_FIELDS + 1) + b"\r\n"])
    assert type(raised.value) is ResponseBroken
    parser, _ = fed([OK + b"X: y\r\n" * (MAX_FIELDS - 1) + b"Content-Length: 0\r\n\r\n"])
    assert parser.is_complete


def test_fields_come_as_they_were_sent_and_trailers_apart() -> None:
    parser, _ = fed(
        [OK + b"X-A: b\r\nx-a:  c \r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 1\r\n\r\n"],
    )
    assert parser.fields == [(b"X-A", b"b"), (b"x-a", b"c"), (b"Transfer-Encoding", b"chunked")]
    assert parser.trailers == [(b"X-Sum", b"1")]
    parser, _ = fed([OK + b"X-A: b\r\n\t c\r\nContent-Length: 0\r\n\r\n"])
    assert parser.fields[0] == (b"X-A", b"b c")


@given(
    answer=st.sampled_from([param.values[0] for param in WHOLE if not param.values[3][1]]),
    cuts=st.lists(st.integers(min_value=0, max_value=200)),
)
def test_where_a_response_is_cut_into_reads_changes_nothing(answer: bytes, cuts: list[int]) -> None:
    marks = [0, *sorted(cut for cut in cuts if cut < len(answer)), len(answer)]
    pieces = [answer[start:end] for start, end in pairwise(marks) if end > start]
    cut, came = fed(pieces)
    whole, body = fed([answer])
    assert (cut.status, cut.fields, cut.trailers, came) == (whole.status, whole.fields, whole.trailers, body)
    assert (cut.is_complete, cut.is_keepable, cut.has_extra_data) == (True, whole.is_keepable, False)


@given(st.lists(st.binary(max_size=60), max_size=6), st.booleans())
def test_rubbish_is_refused_or_waited_for_and_never_a_response(pieces: list[bytes], is_head: bool) -> None:
    if b"HTTP/" in b"".join(pieces):
        return
    with pytest.raises((ResponseBroken, ConnectionClosedError)):
        fed([piece for piece in pieces if piece], is_head=is_head, ends=True)
