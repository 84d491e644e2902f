from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
import pytest

from trawl.http import FormRequest, Request, Response
from trawl.http.response import LinkTarget
from trawl.links import LinkExtractor

PAGE = """<html><head><link rel=next href="/next"></head><body>
<a href=" b ">b</a><a href="#c">c</a><a name=d>d</a><a href="http://[">e</a><map><area href="f"></map>
<p title=g>g</p><a href="mailto:h@a.example">h</a></body></html>"""


@attrs.frozen
class Found:
    url: str


def page(
    text: str = PAGE, content_type: str = "text/html; charset=utf-8", url: str = "http://a.example/p/"
) -> Response:
    return Response(url, headers={"Content-Type": content_type}, body=text.encode())


def urls(requests: Iterable[Request]) -> list[str]:
    return [request.url for request in requests]


@pytest.mark.parametrize(
    ("link", "url"),
    [
        ("b", "http://a.example/p/b"),
        ("\n /b\t", "http://a.example/b"),
        ("", "http://a.example/p/"),
        ("https://b.example", "https://b.example/"),
        (Found("/b"), "http://a.example/b"),
        ("mailto:x@a.example", "mailto:x@a.example"),
        ("javascript:void(0)", "javascript:void(0)"),
        ("ftp://a.example/x", "ftp://a.example/x"),
    ],
)
def test_follow_takes_a_url_or_a_link(link: LinkTarget, url: str) -> None:
    assert page().follow(link).url == url


@pytest.mark.parametrize(
    ("query", "url"),
    [
        ("a", "http://a.example/p/b"),
        ("link", "http://a.example/next"),
        ("area", "http://a.example/p/f"),
        ("a::attr(href)", "http://a.example/p/b"),
        ("p::attr(title)", "http://a.example/p/g"),
        ("a::text", "http://a.example/p/b"),
    ],
)
def test_follow_takes_a_selector_of_a_link_or_an_attribute(query: str, url: str) -> None:
    response = page()
    assert response.follow(response.css(query)[0]).url == url


@pytest.mark.parametrize(
    ("query", "sentence"),
    [("p", "<p> is not a link"), ("a[name]", "<a> has no href"), ("a", "a list of selectors has many links")],
)
def test_follow_refuses_a_selector_that_is_no_link(query: str, sentence: str) -> None:
    response = page()
    found = response.css(query)
    with pytest.raises(ValueError, match=sentence):
        response.follow(found if query == "a" else found[0])  # type: ignore[arg-type]


def test_follow_refuses_what_is_no_link_at_all() -> None:
    with pytest.raises(ValueError, match="it is None"):
        page().follow(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a link must be a str, a Link or a selector, not int: 5"):
        page().follow(5)  # type: ignore[arg-type]
    comment = page("<p><!-- a --></p>").xpath("//comment()")[0]
    with pytest.raises(ValueError, match="is neither an element nor an attribute"):
        page().follow(comment)
    with pytest.raises(ValueError, match="is not a valid URL"):
        page().follow("http://[")


def test_follow_hands_its_options_to_the_request() -> None:
    def parse(response: Response) -> None: ...

    options: dict[str, Any] = {"meta": {"a": 1}, "priority": 2, "cb_kwargs": {"b": 3}, "dont_filter": True}
    request = page().follow("b", parse, method="POST", **options)
    assert (request.callback, request.method) == (parse, "POST")
    assert {name: getattr(request, name) for name in options} == options


def test_follow_all_goes_through_a_query_and_leaves_out_what_makes_no_url() -> None:
    wanted = ["http://a.example/p/b", "http://a.example/p/#c", "mailto:h@a.example"]
    assert urls(page().follow_all(css="a")) == wanted
    assert urls(page().follow_all(css="a::attr(href)")) == wanted
    assert urls(page().follow_all(xpath="//a")) == wanted
    assert urls(page().follow_all(page().css("a"))) == wanted


@pytest.mark.parametrize("query", ["a", "body > a", "a[name], a", "a:not([name])", "map area, a", "*", "p, link, area"])
def test_follow_all_follows_what_the_elements_of_a_query_link_to(query: str) -> None:
    found = [each for each in page().css(query) if each.root.tag in {"a", "area", "link"}]
    assert urls(page().follow_all(css=query)) == urls(page().follow_all(found))


@pytest.mark.parametrize(
    "link", ["b", " b ", "/", "//b.example", "https://b.example/c", "?q=1#f", "..", "mailto:x@a.example"]
)
def test_follow_all_makes_the_requests_that_follow_makes(link: str) -> None:
    def parse(response: Response) -> None: ...

    def slots(request: Request) -> dict[str, object]:
        return {name: getattr(request, name) for name in Request.__slots__ if name != "__weakref__"}

    [request] = page().follow_all([link], parse)
    assert slots(request) == slots(page().follow(link, parse))
    assert request.lacks_path is (link == "//b.example")


def test_follow_all_refuses_a_callback_that_is_none() -> None:
    with pytest.raises(TypeError, match="callback must be a function or None"):
        list(page().follow_all(["x"], "parse"))  # type: ignore[arg-type]


def test_follow_all_takes_links_of_every_kind() -> None:
    links: list[LinkTarget] = ["x", Found("y"), page().css("area")[0], "http://["]
    assert urls(page().follow_all(links)) == ["http://a.example/p/x", "http://a.example/p/y", "http://a.example/p/f"]
    assert urls(page().follow_all(iter(["x"]))) == ["http://a.example/p/x"]
    assert urls(page().follow_all([])) == []


def test_follow_all_takes_exactly_one_source() -> None:
    for given in ({}, {"css": "a", "xpath": "//a"}, {"urls": [], "css": "a"}):
        with pytest.raises(ValueError, match="exactly one of urls, css and xpath"):
            page().follow_all(**given)


def test_follow_all_does_not_hide_a_wrong_option() -> None:
    with pytest.raises(ValueError, match="is not an HTTP method"):
        list(page().follow_all(["x"], method="a b"))


def test_follow_all_gives_each_request_meta_of_its_own() -> None:
    one, two = page().follow_all(["x", "y"], meta={"a": 1})
    one.meta["a"] = 2
    assert two.meta == {"a": 1}


@pytest.mark.parametrize(
    ("head", "base"),
    [
        ("", "http://a.example/p/"),
        ("<base href='/q/'>", "http://a.example/q/"),
        ("<BASE HREF='//b.example'>", "http://b.example/"),
        ("<base target=x><base href=/q/><base href=/r/>", "http://a.example/q/"),
        ("<!-- <base href=/q/> -->", "http://a.example/p/"),
        ("<script>'<base href=/q/>'</script>", "http://a.example/p/"),
        ("<base href='http://['>", "http://a.example/p/"),
        ("<base href='data:,x'>", "http://a.example/p/"),
        ("<base href='javascript:x'>", "http://a.example/p/"),
        (f"<style>{' ' * 9000}</style><base href='/q/'>", "http://a.example/q/"),
    ],
)
def test_links_are_relative_to_the_base_of_the_page(head: str, base: str) -> None:
    response = page(f"<html><head>{head}</head><body><a href=b></a>")
    assert response.base_url == base
    assert response.urljoin("b") == f"{base}b"
    assert urls(response.follow_all(css="a")) == [f"{base}b"]


def test_links_are_relative_to_the_base_of_the_page_also_where_a_part_of_it_is_asked() -> None:
    response = page("<html><head><base href='/q/'></head><body><main><a href=b></a></main><a href=c></a>")
    response.selector.root = response.css("main")[0].root
    assert urls(response.follow_all(css="a")) == ["http://a.example/q/b"]


def test_a_base_in_xml_is_no_base() -> None:
    response = page("<feed><base href='/q/'/><link href='b'/></feed>", "application/atom+xml")
    assert urls(response.follow_all(xpath="//link")) == ["http://a.example/p/b"]


def test_a_link_in_a_namespace_is_a_link() -> None:
    response = page("<feed xmlns='http://www.w3.org/2005/Atom'><link href='b'/></feed>", "application/atom+xml")
    assert urls(response.follow_all(xpath="//*[local-name()='link']")) == ["http://a.example/p/b"]


def test_a_query_is_sent_in_the_encoding_of_the_page() -> None:
    response = Response("http://a.example/", headers={"Content-Type": "text/html; charset=latin1"}, body=b"")
    assert response.follow("/é?é").url == "http://a.example/%C3%A9?%E9"
    assert page().follow("/é?é").url == "http://a.example/%C3%A9?%C3%A9"


@pytest.mark.parametrize(("label", "sent"), [("gb2312", "%80&b=%26%23128512%3B"), ("gb18030", "%A2%E3&b=%949%FC6")])
def test_links_and_forms_of_gbk_are_not_sent_in_gb18030(label: str, sent: str) -> None:
    body = '<a href="/?a=€&b=😀">x</a><form action="/"><input name=a value="€"><input name=b value="😀"></form>'
    page = Response(
        "http://a.example/", body=body.encode("gb18030"), headers={"Content-Type": f"text/html; charset={label}"}
    )
    assert page.encoding == "gb18030"
    assert page.follow(page.css("a")[0]).url == f"http://a.example/?a={sent}"
    assert LinkExtractor().extract_links(page)[0].url == f"http://a.example/?a={sent}"
    assert FormRequest.from_response(page).url == f"http://a.example/?a={sent}"
