"""What kind of page a response is, under Scrapy's names."""

from __future__ import annotations

import pytest

from trawl.http import HtmlResponse, JsonRequest, JsonResponse, Response, TextResponse, XmlResponse, kind_of

URL = "http://a.example/"
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"


@pytest.mark.parametrize(
    ("content_type", "body", "kind", "classes"),
    [
        ("text/html; charset=utf-8", b"", "html", [TextResponse, HtmlResponse]),
        ("application/xhtml+xml", b"", "html", [TextResponse, HtmlResponse]),
        (None, b"<html>", "html", [TextResponse, HtmlResponse]),
        (None, PNG, "binary", []),
        (None, "\ufefftext".encode("utf-16-le"), "html", [TextResponse, HtmlResponse]),
        ("application/rss+xml", b"", "xml", [TextResponse, XmlResponse]),
        ("application/octet-stream", b"<?xml version='1.0'?><a/>", "xml", [TextResponse, XmlResponse]),
        ("application/json", b"", "json", [TextResponse, JsonResponse]),
        ("text/plain", b"<html>", "text", [TextResponse]),
        ("application/javascript", b"", "text", [TextResponse]),
        ("image/png", PNG, "binary", []),
        ("application/pdf", b"%PDF", "binary", []),
    ],
)
def test_isinstance_asks_for_the_content(
    content_type: str | None, body: bytes, kind: str, classes: list[type[Response]]
) -> None:
    response = Response(URL, headers={"Content-Type": content_type} if content_type else None, body=body)
    assert kind_of(response) == kind
    kinds: list[type[Response]] = [TextResponse, HtmlResponse, XmlResponse, JsonResponse]
    assert [known for known in kinds if isinstance(response, known)] == classes
    assert isinstance(response, Response)


def test_one_made_by_hand_is_what_it_was_made_as() -> None:
    response = HtmlResponse(URL, body="<p>ü</p>", encoding="latin-1")
    assert (response.body, response.css("p::text").get(), response.encoding) == (b"<p>\xfc</p>", "ü", "cp1252")
    assert isinstance(response, TextResponse)
    assert not isinstance(response, XmlResponse)
    assert not isinstance("text", HtmlResponse)
    assert isinstance(response.replace(status=404), HtmlResponse)
    assert XmlResponse(URL, body="<a><b>1</b></a>").xpath("/a/b/text()").get() == "1"
    assert JsonResponse(URL, body='{"a": 1}').json() == {"a": 1}
    assert TextResponse(URL, headers={"Content-Type": "text/csv"}, body=b"a").headers["content-type"] == "text/csv"


def test_a_request_of_json_under_scrapys_name() -> None:
    request = JsonRequest(URL, data={"b": 1, "a": 2})
    assert (request.method, request.body) == ("POST", b'{"a": 2, "b": 1}')
    assert request.headers["content-type"] == "application/json"
    assert JsonRequest(URL).method == "GET"
    assert JsonRequest(URL, data={}, method="PUT", dumps_kwargs={"indent": None}).method == "PUT"
    assert request.replace(dont_filter=True).body == request.body
