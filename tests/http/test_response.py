from __future__ import annotations

import json
import math
from typing import Any

import pytest

from trawl.http import Headers, HtmlResponse, Request, Response

JSON = {"Content-Type": "application/json"}


def test_a_response_has_defaults() -> None:
    response = Response("http://a.example/")
    assert (response.status, response.body, response.text, dict(response.headers)) == (200, b"", "", {})
    assert (response.request, response.flags, response.latency) == (None, [], None)
    assert (response.ip_address, response.protocol) == (None, None)
    assert repr(response) == "<200 http://a.example/>"


def test_a_response_shows_what_its_request_carries() -> None:
    request = Request("http://a.example/", meta={"a": 1}, cb_kwargs={"b": 2})
    response = Response("http://a.example/", request=request)
    response.meta["c"] = 3
    assert request.meta == {"a": 1, "c": 3}
    assert response.cb_kwargs is request.cb_kwargs


@pytest.mark.parametrize("name", ["meta", "cb_kwargs"])
def test_a_response_without_a_request_says_so(name: str) -> None:
    with pytest.raises(AttributeError, match=f"<200 http://a.example/> has no {name}: it was made without a request"):
        getattr(Response("http://a.example/"), name)


def test_a_body_is_bytes() -> None:
    with pytest.raises(TypeError, match="the body of a response must be bytes, not str"):
        Response("http://a.example/", body="text")  # type: ignore[arg-type]


def test_headers_from_the_wire_are_taken_as_they_are() -> None:
    headers = Headers.from_wire([(b"A b", b"\x00")])
    assert Response("http://a.example/", headers=headers).headers is headers
    with pytest.raises(ValueError, match="'A b' is not a header name"):
        Response("http://a.example/", headers={"A b": "c"})


def test_text_is_decoded_once() -> None:
    response = Response("http://a.example/", headers={"Content-Type": "text/html; charset=latin1"}, body=b"\xe9")
    assert (response.text, response.encoding) == ("é", "cp1252")
    assert response.text is response.text


def test_a_picture_has_text_too() -> None:
    response = Response("http://a.example/", headers={"Content-Type": "image/png"}, body=b"\x89PNG\x00")
    assert response.text == "‰PNG\x00"
    assert response.css("a").getall() == []


def test_a_page_is_parsed_once() -> None:
    response = Response("http://a.example/", body=b"<title>a</title><p>b<p>c")
    assert response.css("title::text").get() == "a"
    assert response.xpath("//p[.=$text]/text()", text="c").getall() == ["c"]
    assert response.selector is response.selector


def test_xml_and_json_are_parsed_as_what_they_are() -> None:
    xml = Response("http://a.example/", headers={"Content-Type": "text/xml"}, body=b"<a><B>c</B></a>")
    assert (xml.xpath("//B/text()").get(), xml.xpath("//b").get()) == ("c", None)
    values: list[object] = [2]
    assert Response("http://a.example/", headers=JSON, body=b'{"a": [1, 2]}').jmespath("a[1]").getall() == values


def test_a_wrong_query_is_refused() -> None:
    response = Response("http://a.example/", body=b"<p>")
    with pytest.raises(ValueError, match="XPath error"):
        response.xpath("//[")
    with pytest.raises(ValueError, match="Cannot use css on a Selector of type 'json'"):
        Response("http://a.example/", headers=JSON, body=b"{}").css("a")


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a": [1, null, "\xc3\xa9"]}', {"a": [1, None, "é"]}),
        (b"\xef\xbb\xbf[1]", [1]),
        ("[1]".encode("utf-16"), [1]),
        (b"[Infinity]", [math.inf]),
        (b"123456789012345678901234567890", 123456789012345678901234567890),
        (b'"\\ud800"', "\ud800"),
    ],
)
def test_json_is_read(body: bytes, value: object) -> None:
    assert Response("http://a.example/", headers=JSON, body=body).json() == value


@pytest.mark.parametrize("body", [b"", b"{", b"<html>", b"[1,]"])
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(json.JSONDecodeError):
        Response("http://a.example/", body=body).json()


def told(response: Response) -> dict[str, Any]:
    """All that a response holds, by name."""
    names = ("url", "status", "headers", "body", "request", "flags", "latency", "ip_address", "protocol")
    return {name: getattr(response, name) for name in names}


def test_a_copy_has_the_attributes_that_a_subclass_names_as_in_scrapy() -> None:
    class Priced(HtmlResponse):
        attributes = (*HtmlResponse.attributes, "price")

        def __init__(self, *args: Any, price: int = 0, **options: Any) -> None:
            super().__init__(*args, **options)
            self.price = price

    page = Priced("http://a.example/", body="<p>", price=3)
    assert page.replace(url="http://b.example/").price == 3
    assert page.replace(price=4).price == 4  # type: ignore[call-overload]


def test_replace_changes_only_what_it_is_told() -> None:
    request = Request("http://a.example/")
    response = Response(
        "http://a.example/", 404, {"A": "1"}, b"<p>a", request, ["cached"], 0.5, ip_address="::1", protocol="HTTP/1.1"
    )
    assert response.css("p::text").get() == "a"
    other = response.replace(body=b"<p>b")
    assert told(other) == {**told(response), "body": b"<p>b"}
    assert other.css("p::text").get() == "b"
    other.headers["A"] = "2"
    other.flags.append("x")
    assert (response.headers["A"], response.flags) == ("1", ["cached"])
    assert told(response.copy()) == told(response)


@pytest.mark.parametrize("kind", [{}, {"Content-Type": "text/html"}, {"Content-Type": "text/plain; charset=utf-8"}])
def test_json_is_queried_whatever_it_is_said_to_be(kind: dict[str, str]) -> None:
    response = Response("http://a.example/", headers=kind, body=b' {"a": {"b": [1, "x"]}}')
    assert response.jmespath("a.b[1]").get() == "x"
    assert response.jmespath("a.c").get() is None
    assert Response("http://a.example/", headers=kind, body=b"<p>a</p>").jmespath("a").get() is None


def test_a_status_of_text_and_no_body_or_flags_are_taken_as_in_scrapy() -> None:
    response = Response("http://a.example/", "404", body=None, flags=None)  # type: ignore[arg-type]
    assert (response.status, response.body, response.flags) == (404, b"", [])
    with pytest.raises(ValueError, match="invalid literal"):
        Response("http://a.example/", "x")  # type: ignore[arg-type]
