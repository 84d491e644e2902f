"""Requests as bytes: the fast way writes what the plain way would."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.errors import RequestInvalid
from trawl.http import Headers, Request
from trawl.transport.http11.message import ParsedUrl, head_bytes, message_of, wire_fields
from trawl.transport.http11.pool import Pool

DEFAULTS = Headers({"Accept-Encoding": "gzip"})

NAMES = st.sampled_from(
    ["Host", "X-A", "accept", "Accept-Encoding", "Authorization", "Connection", "content-length", "Expect", "TE"]
)
VALUES = st.none() | st.sampled_from(["a", "", "close", "100-continue", "é", "x, Close"]) | st.just(["a", "b"])


@given(
    st.sampled_from(["GET", "HEAD", "POST", "DELETE", "PUT"]),
    st.sampled_from(
        [
            "http://a.example/",
            "https://a.example:8443/p?q#f",
            "http://me:pw@a.example/x",
            "http://[::1]:80/?",
            "http://münchen.example/ü",
        ]
    ),
    st.dictionaries(NAMES, VALUES) | st.just({"X-A": "日本"}),
    st.sampled_from([b"", b"body"]),
)
def test_a_request_is_written_as_its_fields_say(method: str, url: str, headers: dict[str, object], body: bytes) -> None:
    request = Request(url, method=method, headers=headers, body=body)
    before = request.headers.items_list()
    pool = Pool(keepalive=1.0, max_idle=1)
    site = pool.origin(request.url[: request.url.find("/", 8)])
    target = ParsedUrl.of(request.url)
    try:
        expected = wire_fields(request, target, "gzip")
    except RequestInvalid as error:  # a Host that is not a host
        with pytest.raises(RequestInvalid, match=re.escape(str(error))):
            message_of(request, site, DEFAULTS)
        return
    message = message_of(request, site, DEFAULTS)
    assert message.head == head_bytes(method.encode(), target.path.encode(), expected)
    assert request.headers.items_list() == before
    connection = request.headers.get("connection", "").lower()
    assert message.is_last is ("close" in connection)
    assert message.expects is (request.headers.get("expect") == "100-continue")


def test_nothing_is_added_where_there_are_no_defaults() -> None:
    site = Pool(keepalive=1.0, max_idle=1).origin("http://a.example")
    message = message_of(Request("http://a.example/x"), site, None)
    assert message.head == b"GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n"
