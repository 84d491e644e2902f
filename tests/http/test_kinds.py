"""What kind of page a response is, under Scrapy's names."""

from __future__ import annotations

import pytest

from trawl.http import HtmlResponse, JsonRequest, JsonResponse, Request, Response, TextResponse, XmlResponse, kind_of

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


def test_a_request_of_json_can_be_replaced_by_one_of_other_data() -> None:
    request = JsonRequest(URL, data={"b": 1}, dumps_kwargs={"separators": (",", ":")})
    assert request.dumps_kwargs == {"sort_keys": True, "separators": (",", ":")}
    changed = request.replace(data={"d": 1, "c": 2}, priority=2)
    assert (type(changed), changed.body, changed.priority) == (JsonRequest, b'{"c":2,"d":1}', 2)
    assert changed.copy().replace(data=[1, 2]).body == b"[1,2]"
    assert request.replace(data={"c": 1}, body=b"{}").body == b"{}"
    other = request.replace(data=[1, 2], dumps_kwargs={"indent": 1})
    assert (other.body, other.dumps_kwargs) == (b"[1,2]", {"sort_keys": True, "indent": 1})
    assert other.replace(data=[1]).body == b"[\n 1\n]"
    assert type(request.replace(cls=Request, data=[1])) is Request


def test_a_response_can_be_replaced_by_one_of_another_class() -> None:
    response = Response(URL, 404, {"Content-Type": "text/html"}, b"<a><br>1</br></a>", flags=["seen"])
    page = response.replace(cls=XmlResponse)
    assert type(page) is XmlResponse
    assert (page.status, page.flags, page.xpath("/a/br/text()").get()) == (404, ["seen"], "1")
    assert page.replace(cls=HtmlResponse).selector.type == "html"
    assert page.replace(cls=Response, status=200).status == 200
    assert type(page.replace(cls=None)) is XmlResponse


@pytest.mark.parametrize("encoding", ["gbk", "cp936", "gb2312", "utf-16-le", "cp949", "cp932", "koi8-r", "utf_8"])
@pytest.mark.parametrize("kind", [None, "text/html", "text/xml; charset=ascii", "text/html; charset=iso-8859-1"])
def test_a_given_encoding_overrides_what_a_response_declares(encoding: str, kind: str | None) -> None:
    text = "<p>\u041f</p>"
    body, headers = text.encode(encoding), {"Content-Type": kind} if kind else {}
    assert Response(URL, 200, headers, body).replace(encoding=encoding).text == text
    given = HtmlResponse(URL, 200, headers, body, encoding=encoding)
    assert given.text == given.replace(url="http://b.example/").text == given.copy().text == text
    assert HtmlResponse(URL, 200, headers, text, encoding=encoding).css("p::text").get() == "\u041f"
    assert headers == ({"Content-Type": kind} if kind else {})


def test_an_unknown_encoding_changes_nothing() -> None:
    page = Response(URL, 200, {"Content-Type": "text/html"}, "<p>é".encode("latin-1"))
    assert page.replace(encoding="nonsense").text == page.text == "<p>é"


@pytest.mark.parametrize(
    ("kind", "encoding", "header"),
    [
        (None, "utf-8", "application/octet-stream; charset=utf-8"),  # the type that RFC 9110, 8.3 assumes
        ("text/html; charset=iso-8859-1", "cp936", "text/html; charset=gbk"),
        ('text/html; charset="gbk"; a="b; c";d=e', "utf-8", 'text/html; a="b; c";d=e; charset=utf-8'),
    ],
)
def test_a_replaced_encoding_changes_only_the_charset(kind: str | None, encoding: str, header: str) -> None:
    page = Response(URL, 200, {"Content-Type": kind} if kind else {}, b"<?xml version='1.0'?><a/>")
    changed = page.replace(encoding=encoding)
    assert changed.headers["Content-Type"] == header
    assert kind_of(changed) == kind_of(page)


def test_a_body_of_str_is_utf_8_in_the_header_too() -> None:
    assert HtmlResponse(URL, body="x").headers["Content-Type"] == "text/html; charset=utf-8"
    assert HtmlResponse(URL, body="x", encoding="cp1252").headers["Content-Type"] == "text/html; charset=cp1252"
