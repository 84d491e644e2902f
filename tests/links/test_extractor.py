"""Which links an extractor takes from a page."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.http import HtmlResponse, Response
from trawl.links import IGNORED_EXTENSIONS, Link, LinkExtractor

PAGE = """
<html><head><title>Links</title></head><body>
<div id="menu" class="nav main"><a href="/">Home</a> <a href="/about.html" rel="nofollow">About <b>us</b></a></div>
<div id="list">
  <a href="item/1?b=2&amp;a=1">One</a> <a href="item/2">Two</a> <a href="item/2">Two again</a>
  <a href=" item/3 ">Three</a> <a href="http://shop.b.example/x">Shop</a> <a href="https://B.example:8443/y">Port</a>
  <a href="photo.JPG">Photo</a> <a href="sheet.pdf?page=1">Sheet</a> <a href="#top">Top</a>
  <a href="mailto:a@a.example">Mail</a> <a href="javascript:go('/hidden')">Go</a> <a href="http://[broken/">Broken</a>
  <a href="ftp://f.example/file">Old</a> <a>Nothing</a>
</div>
<map><area href="/area" alt="A part"></map>
<img src="/small.png" srcset="/small.png 1x, /large.png 2x"><picture><source srcset="/a.avif, /b.avif 2x"></picture>
</body></html>
"""


def page(body: str = PAGE, url: str = "http://a.example/dir/", content_type: str = "text/html") -> Response:
    return Response(url, headers={"Content-Type": f"{content_type}; charset=utf-8"}, body=body.encode())


def found(response: Response | None = None, **options: Any) -> list[str]:
    return [link.url for link in LinkExtractor(**options).extract_links(response or page())]


def test_all_links_of_a_page_in_its_order_each_once() -> None:
    assert found() == [
        "http://a.example/",
        "http://a.example/about.html",
        "http://a.example/dir/item/1?b=2&a=1",
        "http://a.example/dir/item/2",
        "http://a.example/dir/item/3",
        "http://shop.b.example/x",
        "https://b.example:8443/y",
        "http://a.example/dir/#top",
        "ftp://f.example/file",
        "http://a.example/area",
    ]


def test_a_link_has_the_words_in_it_and_says_whether_it_wants_to_be_followed() -> None:
    assert LinkExtractor(restrict_css="#menu").extract_links(page()) == [
        Link("http://a.example/", "Home"),
        Link("http://a.example/about.html", "About us", nofollow=True),
    ]


def test_rel_is_a_list_of_words_in_any_case() -> None:
    rels = ("external NoFollow", "nofollower", "a,nofollow")
    body = "".join(f'<a href="/{i}" rel="{rel}">x</a>' for i, rel in enumerate(rels))
    assert [link.nofollow for link in LinkExtractor().extract_links(page(body))] == [True, False, True]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"allow": r"/item/\d"}, ["item/1?b=2&a=1", "item/2", "item/3"]),
        ({"allow": (r"item/1", re.compile("ITEM/2", re.I))}, ["item/1?b=2&a=1", "item/2"]),
        ({"allow": "item", "deny": [r"/1\b", r"/2$"]}, ["item/3"]),
        ({"allow": "item", "restrict_text": "^T"}, ["item/2", "item/3"]),
        ({"allow": "item", "unique": False}, ["item/1?b=2&a=1", "item/2", "item/2", "item/3"]),
        ({"allow": "item/1", "canonicalize": True}, ["item/1?a=1&b=2"]),
        ({"allow": "#", "canonicalize": True}, [""]),
        ({"allow": r"\.(jpg|pdf)", "deny_extensions": []}, ["sheet.pdf?page=1"]),
        ({"allow": r"(?i)\.(jpg|pdf)", "deny_extensions": "pdf"}, ["photo.JPG"]),
    ],
)
def test_which_links_are_let_through(options: dict[str, Any], expected: list[str]) -> None:
    assert found(**options) == [f"http://a.example/dir/{path}" for path in expected]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"allow_domains": "b.example"}, ["http://shop.b.example/x", "https://b.example:8443/y"]),
        ({"allow_domains": ["B.example:8443"]}, ["https://b.example:8443/y"]),
        ({"allow_domains": ["example"], "deny_domains": ["a.example", "f.example"], "deny": ":8443"},
         ["http://shop.b.example/x"]),
        ({"allow_domains": ["ample"]}, []),
    ],
)  # fmt: skip
def test_domains_hold_for_what_is_below_them_and_for_any_port(options: dict[str, Any], expected: list[str]) -> None:
    assert found(**options) == expected


@pytest.mark.parametrize("domains", ["allow_domains", "deny_domains"])
def test_a_link_without_a_host_lies_in_no_domain(domains: str) -> None:
    body = page('<a href="file:///x">x</a><a href="http://a.example/y">y</a><a href="http://c.example/">z</a>')
    expected = {
        "allow_domains": ["http://a.example/y"],
        "deny_domains": ["file:///x", "http://c.example/"],
    }
    assert found(body, **{domains: "a.example"}) == expected[domains]


@pytest.mark.parametrize("domain", ["bücher.example", "Bücher.example.", ".xn--bcher-kva.example", "BÜCHER.example"])
def test_domains_are_the_same_in_all_their_spellings(domain: str) -> None:
    body = page('<a href="http://bücher.example/">x</a><a href="http://w.bücher.example.:81/">y</a><a href="/z">z</a>')
    assert found(body, allow_domains=domain) == ["http://xn--bcher-kva.example/", "http://w.xn--bcher-kva.example.:81/"]
    assert found(body, allow_domains=f"w.{domain.strip('.')}:81") == ["http://w.xn--bcher-kva.example.:81/"]


def test_the_words_of_links_that_lie_in_each_other_are_bounded() -> None:
    body = page("".join(f'<a href="/{i}"><b>' for i in range(100)) + "word " * 10_000)
    links = LinkExtractor().extract_links(body)
    assert len(links) == 100
    assert {len(link.text) for link in links} == {10_000}


def test_it_looks_only_inside_parts_of_the_page_and_takes_a_part_that_is_a_link() -> None:
    assert found(restrict_xpaths=["//div[has-class('nav')]", "//map"]) == [
        "http://a.example/",
        "http://a.example/about.html",
        "http://a.example/area",
    ]
    assert found(restrict_css=("#menu a + a", "#list a[href$='2']"), restrict_xpaths="//map/area") == [
        "http://a.example/area",
        "http://a.example/about.html",
        "http://a.example/dir/item/2",
    ]
    assert found(restrict_xpaths=["//a/@href", "string(//title)", "//nothing", "re:test('a', 'a')"]) == []


def test_other_elements_and_attributes() -> None:
    assert found(tags="img", attrs=("src", "srcset"), deny_extensions=()) == [
        "http://a.example/small.png",
        "http://a.example/large.png",
    ]
    assert found(tags=["source"], attrs="srcset", deny_extensions=()) == [
        "http://a.example/a.avif",
        "http://a.example/b.avif",
    ]
    assert found(tags="area") == ["http://a.example/area"]


def test_a_function_may_change_an_address_or_leave_it_out() -> None:
    def opened(value: str) -> str | None:
        match = re.search(r"javascript:go\('(.*?)'\)", value)
        return match[1] if match else None

    assert found(process_value=opened) == ["http://a.example/hidden"]
    seen: list[str] = []
    found(page('<base href="/b/"><a href="c">x</a>'), process_value=seen.append)
    assert seen == ["http://a.example/b/c"]


def test_links_are_relative_to_the_base_of_the_page() -> None:
    assert found(page('<base href="http://c.example/x/"><a href="y">y</a>')) == ["http://c.example/x/y"]


def test_white_space_is_kept_only_where_it_is_wanted() -> None:
    response = page('<a href="\u00a0x">x</a><a href=" y ">y</a>')
    assert found(response) == ["http://a.example/dir/%C2%A0x", "http://a.example/dir/y"]
    seen: list[str] = []
    found(response, strip=False, process_value=seen.append)
    assert seen[1] == "http://a.example/dir/y "


def test_a_query_is_sent_in_the_encoding_of_the_page() -> None:
    body = '<a href="/&hearts;?c=&euro;">x</a>'.encode("iso8859-15")
    response = Response("http://a.example/", headers={"Content-Type": "text/html; charset=iso-8859-15"}, body=body)
    assert found(response) == ["http://a.example/%E2%99%A5?c=%A4"]


def test_links_in_xhtml_and_in_xml_with_a_namespace() -> None:
    body = '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><body><a href="/x">x</a></body></html>'
    for content_type in ("application/xhtml+xml", "application/xml"):
        assert found(page(body, content_type=content_type)) == ["http://a.example/x"]


def test_a_page_of_json_has_no_links() -> None:
    assert found(page('{"a": "http://b.example/"}', content_type="application/json")) == []


@pytest.mark.parametrize(
    ("options", "url", "expected"),
    [
        ({"allow": "item"}, "http://a.example/item/1", True),
        ({"allow": "item"}, "http://a.example/", False),
        ({"allow": "item", "deny": "1$"}, "http://a.example/item/1", False),
        ({"allow_domains": "a.example"}, "http://www.a.example/", True),
        ({"allow_domains": "a.example"}, "http://b.example/", False),
        ({"deny_domains": "a.example"}, "http://www.a.example/", False),
        ({}, "http://a.example/photo.jpg", True),
        ({}, "not a url", False),
    ],
)
def test_an_address_is_matched_without_a_page(options: dict[str, Any], url: str, expected: bool) -> None:
    assert LinkExtractor(**options).matches(url) is expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"allow": "("}, "allow: '\\(' is not a regular expression"),
        ({"deny": ["a", "["]}, "deny"),
        ({"restrict_xpaths": "//["}, "is not XPath"),
        ({"restrict_css": "a["}, "is not CSS"),
    ],
)
def test_what_it_cannot_use_is_refused_when_it_is_made(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LinkExtractor(**options)


def test_what_is_no_page_is_left_out_by_its_ending() -> None:
    assert {"jpg", "pdf", "zip", "css", "tar.gz", "webp"} <= set(IGNORED_EXTENSIONS)
    assert found(page('<a href="/a.tar.gz">x</a><a href="/pdf">y</a><a href="/a.zip/b">z</a>')) == [
        "http://a.example/pdf",
        "http://a.example/a.zip/b",
    ]


@given(st.text(max_size=60), st.sampled_from(["href", "srcset"]))
def test_whatever_an_attribute_holds_only_whole_urls_come_out(value: str, attribute: str) -> None:
    body = page("<a>x</a>")
    body.selector.root.xpath("//a")[0].attrib[attribute] = "".join(
        character for character in value if character.isprintable() and not 0xD800 <= ord(character) < 0xE000
    )
    for link in LinkExtractor(attrs=attribute, deny_extensions=()).extract_links(body):
        assert link.url.partition(":")[0] in {"http", "https", "ftp", "file"}
        assert LinkExtractor().matches(link.url)


def test_every_element_and_attribute_may_hold_links_but_for_those_denied() -> None:
    body = b"<p id=a><a href=b title=c>x</a><!-- c --><img src=d><area href=e></p>"
    page = HtmlResponse("http://a.example/", body=body)

    def paths(**options: Any) -> list[str]:
        links = LinkExtractor(deny_extensions=[], **options).extract_links(page)
        return [link.url.removeprefix("http://a.example/") for link in links]

    assert paths(tags="*", attrs="*") == ["a", "b", "c", "d", "e"]
    assert paths(tags="*", attrs="*", deny_tags=["img"], deny_attrs="id") == ["b", "c", "e"]
    assert paths(tags="*") == ["b", "e"]
    assert paths(deny_tags="area") == ["b"]
    assert paths(attrs=("href", "title"), deny_attrs="href") == ["c"]
    assert paths(deny_tags=("a", "area")) == []
