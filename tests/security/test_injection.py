"""Nothing that a page or a user gives becomes a line of a request that nobody wrote (RFC 9110, 5.5; RFC 9112, 11.1)."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.cookies import Jars
from trawl.errors import RequestInvalid
from trawl.http import Headers, Request, join_url
from trawl.middleware import redirected
from trawl.transport.http11.message import message_of
from trawl.transport.http11.pool import Pool

NOW = datetime(2025, 1, 1, tzinfo=UTC)
LINE = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+: [^\r\n\0]*")
START = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+ [!-~]+ HTTP/1\.1")

hostile = st.text(st.sampled_from("ab \t\r\n\0\x0b\x85\u2028\u0100\ud800:/@?#%;=é\U0001f600"), max_size=12)


def head_of(request: Request) -> bytes:
    """What goes on the wire before the body."""
    site = Pool(keepalive=0, max_idle=0).origin(re.match(r"[a-z]+://[^/?#]*", request.url)[0])  # type: ignore[index]
    return message_of(request, site, Headers({"Accept-Encoding": "gzip"})).head


def is_one_request(head: bytes) -> bool:
    """Whether a head is one start line, fields and a blank line, each of which is whole."""
    start, *lines = head.split(b"\r\n")
    return (
        lines[-2:] == [b"", b""]
        and START.fullmatch(start) is not None
        and all(LINE.fullmatch(line) for line in lines[:-2])
        and len([line for line in lines if line.lower().startswith(b"host:")]) == 1
        and len([line for line in lines if line.lower().startswith(b"content-length:")]) <= 1
    )


@given(hostile, hostile, hostile, hostile, st.sampled_from(["GET", "POST", "P\r\nX: y", "G T", "\u0130"]))
def test_whatever_a_request_is_made_of_one_request_is_written_or_none(
    path: str, name: str, value: str, user: str, method: str
) -> None:
    try:
        request = Request(f"http://{user}a.example/{path}", method=method, headers={name: value})
        head = head_of(request)
    except (ValueError, RequestInvalid):
        return
    assert is_one_request(head), head


@given(hostile)
def test_a_host_field_is_a_host_or_refused(value: str) -> None:
    try:
        head = head_of(Request("http://a.example/", headers={"Host": value}))
    except (ValueError, RequestInvalid):
        return
    assert is_one_request(head), head


@given(st.dictionaries(hostile, hostile, max_size=3))
def test_cookies_are_one_field_or_refused(cookies: dict[str, str]) -> None:
    try:
        request = Request("http://a.example/", cookies=cookies)
        header = Jars().header(request, lambda: NOW)
        if header is not None:
            request.headers["Cookie"] = header
    except ValueError:
        return
    assert is_one_request(head_of(request))


@given(hostile)
def test_where_a_page_links_or_redirects_to_is_a_url_and_nothing_more(link: str) -> None:
    try:
        url = join_url("http://a.example/dir/page", link)
    except ValueError:
        return
    if url.startswith(("http://", "https://")):
        assert is_one_request(head_of(redirected(Request("http://a.example/"), url, 302)))


@pytest.mark.parametrize("character", ["\r", "\n", "\0", "\x0b", "\x7f", "\x1b"])
def test_a_control_character_in_a_header_is_refused_when_it_is_set(character: str) -> None:
    with pytest.raises(ValueError, match="control character"):
        Request("http://a.example/", headers={"X": f"a{character}b"})
    headers = Headers()
    with pytest.raises(ValueError, match="control character"):
        headers.add("X", f"a{character}b")
    with pytest.raises(ValueError, match="is not a header name"):
        headers[f"X{character}"] = "a"
    with pytest.raises(ValueError, match=r"."):
        Request("http://a.example/", method=f"GET{character}")
