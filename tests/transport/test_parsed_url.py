from __future__ import annotations

import pytest

from trawl.errors import RequestInvalid
from trawl.http import Request
from trawl.transport.http11.message import ParsedUrl, wire_fields


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://a.example", ParsedUrl("http", "a.example", 80, "a.example", "/")),
        ("https://a.example/p?q=1#f", ParsedUrl("https", "a.example", 443, "a.example", "/p?q=1")),
        ("https://a.example:8443/?x=a@b:c", ParsedUrl("https", "a.example", 8443, "a.example:8443", "/?x=a@b:c")),
        ("http://[::1]/", ParsedUrl("http", "::1", 80, "[::1]", "/")),
        ("http://[::1]:81/", ParsedUrl("http", "::1", 81, "[::1]:81", "/")),
        ("http://me:pa%3Ass@a.example/", ParsedUrl("http", "a.example", 80, "a.example", "/", "me:pa%3Ass")),
        ("http://\u00fc.example/\u00e9", ParsedUrl("http", "xn--tda.example", 80, "xn--tda.example", "/%C3%A9")),
    ],
)
def test_a_url_is_taken_apart(url: str, target: ParsedUrl) -> None:
    assert ParsedUrl.of(Request(url).url) == target


def fields_of(request: Request, accept_encoding: str | None = None) -> list[tuple[bytes, bytes]]:
    return wire_fields(request, ParsedUrl.of(request.url), accept_encoding)


def test_host_comes_first_and_the_requests_fields_in_their_order() -> None:
    request = Request("http://a.example:81/", headers={"B": "1", "a": ["2", "3"]})
    assert fields_of(request) == [(b"Host", b"a.example:81"), (b"B", b"1"), (b"a", b"2"), (b"a", b"3")]


def test_a_request_may_name_another_host() -> None:
    assert fields_of(Request("http://127.0.0.1/", headers={"host": "b.example"})) == [(b"Host", b"b.example")]


@pytest.mark.parametrize("host", ["a.example", "a.example:8080", "[::1]", "[::1]:81", "xn--bcher-kva.example", "a_b:"])
def test_a_host_field_that_is_a_host_is_sent(host: str) -> None:
    assert fields_of(Request("http://127.0.0.1/", headers={"Host": host})) == [(b"Host", host.encode())]


@pytest.mark.parametrize(
    "host", ["b\u00fccher.example", "\u4e2d.example", "a b", "a.example/", "me@a.example", "a:b:c", "::1"]
)
def test_a_host_field_that_is_no_host_is_an_error_of_the_request(host: str) -> None:
    with pytest.raises(RequestInvalid, match="its Host header") as caught:
        fields_of(Request("http://127.0.0.1/", headers={"Host": host}))
    assert not caught.value.is_retryable


def test_lengths_are_ours_to_say() -> None:
    headers = {"Content-Length": "99", "Transfer-Encoding": "chunked"}
    assert fields_of(Request("http://a.example/", headers=headers)) == [(b"Host", b"a.example")]
    posted = Request("http://a.example/", method="POST", body="abc", headers=headers)
    assert fields_of(posted) == [(b"Host", b"a.example"), (b"Content-Length", b"3")]
    assert (b"Content-Length", b"0") in fields_of(Request("http://a.example/", method="PUT"))


def test_codings_are_asked_for_unless_the_request_says_otherwise() -> None:
    assert (b"Accept-Encoding", b"gzip") in fields_of(Request("http://a.example/"), "gzip")
    own = Request("http://a.example/", headers={"Accept-Encoding": "br"})
    assert fields_of(own, "gzip") == [(b"Host", b"a.example"), (b"Accept-Encoding", b"br")]
    refused = Request("http://a.example/", headers={"Accept-Encoding": None})
    assert fields_of(refused, "gzip") == [(b"Host", b"a.example")]
    assert "Accept-Encoding" not in Request("http://a.example/").headers


def test_user_info_becomes_basic_authorization_rfc_7617() -> None:
    request = Request("http://me:pa%3Ass@a.example/")
    assert (b"Authorization", b"Basic bWU6cGE6c3M=") in fields_of(request)
    own = Request("http://me:x@a.example/", headers={"Authorization": "Bearer y"})
    assert fields_of(own) == [(b"Host", b"a.example"), (b"Authorization", b"Bearer y")]
