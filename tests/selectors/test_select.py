from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from operator import methodcaller
from pathlib import Path
from typing import Any

import parsel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.servers.nginx import unavailable
from trawl.http import Response
from trawl.selectors import Selector, SelectorList, SelectorType, select


@pytest.mark.parametrize(
    ("text", "kind", "query", "found"),
    [
        ("<p>a<p>b", "html", "//p/text()", ["a", "b"]),
        ("<A><B>c</B></A>", "html", "//b/text()", ["c"]),
        ("<A><B>c</B></A>", "xml", "//B/text()", ["c"]),
        ("<a><b>c</a>", "xml", "//b/text()", ["c"]),
        ("", "html", "//p", []),
        ("", "xml", "//p", []),
    ],
)
def test_a_text_is_parsed_as_its_kind(text: str, kind: SelectorType, query: str, found: list[str]) -> None:
    assert select(text, kind).xpath(query).getall() == found


def test_json_is_asked_with_jmespath() -> None:
    found = select('{"a": [{"b": 1}, {"b": 2}]}', "json").jmespath("a[*].b")
    assert isinstance(found, SelectorList)
    assert list(map(str, found.getall())) == ["1", "2"]


def test_an_entity_of_xml_is_not_fetched() -> None:
    text = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><a>&x;</a>'
    assert select(text, "xml").xpath("string(/a)").get() in {"", "&x;"}


@given(st.text("<>/ab\x00&;\"'=é"), st.sampled_from(["html", "xml"]))
def test_broken_markup_never_fails(text: str, kind: SelectorType) -> None:
    assert select(text, kind).xpath("count(//a) >= 0").get() == "1"


BROKEN = (
    "<p>a<p>b<table><tr><td>c<td>d</table><b>e<i>f</b>g</i>",
    "<A HREF='x' href=y>&amp;&lt;&nbsp;&#x41;&bogus;</A><img alt='a\nb'><br/>tail<!-- c --><?php echo 1 ?>",
    "<html><head><title>a</title><title>b</title><body class=' x  y '><p class='x'>\x00c\x01\x7f<p class>d</html> z",
    "<svg xmlns='http://www.w3.org/2000/svg'><a xlink:href='z'/></svg><o:p>e</o:p><a:b re:c='d'>f</a:b>",
    "<script>if (a < b) '<p>';</script><style>p > a {}</style><textarea><p></textarea><a href=1>é \U0001f600 \xa0</a>",
    "<ul><li>1 <a href='?a=1&b=2'>one</a><li>2 <a href=#>two</a> and 12 more</ul><form><input name=q value='&quot;'>",
    "<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'><body><a href='q'>r</a></body></html>",
    "<!-- a comment alone -->",
    "\ufeff<p>a byte order mark",
    "plain text",
    " \n\t ",
    "",
)

XPATHS = (
    *("//a", "//a/@href", "//text()", "//*[@class]", "//p//text()", "//comment()", "//processing-instruction()"),
    *("count(//a)", "//a = 1", "string(//title)", "1 div 0", "//a/namespace::*", ".", "..", "/", "//a | //p", "  .  "),
    *("//*[has-class('x')]", "//*[has-class()]", "//*[re:test(@href, '1')]/@href", "set:distinct(//a)", "//o:p"),
    *("re:match(string(//a), '.')", "//*[contains(., 're: ')]", "$a", "//a[$a]", "//a[", "", "nothing(1)", "//a/@*"),
)

CSS = ("a", "a::attr(href)", "*::text", "ul li > a", "p:first-child", ".x", "[href^='?']", "li:contains('2')", "::text")

NO_CSS = ("", "a[", "a::nothing", "a:nothing", "o|p", "re|test")


def told(selector: parsel.Selector, ask: Callable[[parsel.Selector], Any], depth: int = 0) -> Any:
    """Return what a selector answers, in plain values; an error by its type and text."""
    try:
        found = ask(selector)
    except Exception as error:
        return type(error), str(error)
    if not isinstance(found, parsel.SelectorList):
        return found
    return (
        *(found.get(), found.getall(), found.re(r"\w+"), found.re_first(r"(\w)\w*", "none")),
        *([type(each.root).__name__ for each in found], [each.namespaces for each in found]),
        *([repr(each).partition(" ")[2] for each in found], [bool(each) for each in found]),
        [told(each, lambda each: (each.attrib, each.type, each.extract(), each.getall())) for each in found],
        [answers(each, depth - 1) for each in found[:5]] if depth else (),
    )


def answers(selector: parsel.Selector, depth: int = 1) -> list[Any]:
    """Return what a selector answers to every query, and what is selected from that."""
    return [
        *(told(selector, methodcaller("xpath", query), depth) for query in XPATHS),
        *(told(selector, methodcaller("css", query), depth) for query in CSS + NO_CSS),
        told(selector, lambda selector: selector.xpath("//a[@href=$it]", it="x")),
        told(selector, lambda selector: selector.xpath("//o:p", namespaces={"o": "urn:o"})),
        told(selector, lambda selector: selector.xpath("//a", namespaces={})),
        told(selector, lambda selector: selector.xpath(None)),  # type: ignore[arg-type]
        told(selector, lambda selector: selector.xpath([])),  # type: ignore[arg-type]
        told(selector, lambda selector: selector.jmespath("a")),
        told(selector, lambda selector: selector.re("a(.)")),
    ]


@pytest.mark.parametrize("text", BROKEN)
def test_a_selector_answers_as_parsels_does(text: str) -> None:
    selector = select(text, base_url="http://a.example/b")
    assert isinstance(selector, parsel.Selector)
    theirs = parsel.Selector(text=text, type="html", base_url="http://a.example/b")
    assert selector.root.getroottree().docinfo.URL == theirs.root.getroottree().docinfo.URL
    assert answers(selector) == answers(theirs)


@given(st.lists(st.sampled_from(["<p>", "</p>", "<a href=", "'x'", ">", "<", "&amp", "\x00", "é", "<!--", "--", "t"])))
def test_a_selector_of_any_markup_answers_as_parsels_does(pieces: list[str]) -> None:
    text = "".join(pieces)
    queries = [methodcaller("xpath", query) for query in ("//*", "//@*", "//text()", "//a")]
    ours, theirs = select(text), parsel.Selector(text=text, type="html")
    assert [told(ours, ask, 0) for ask in queries] == [told(theirs, ask, 0) for ask in queries]


@pytest.mark.servers
def test_a_selector_of_a_real_page_answers_as_parsels_does() -> None:
    paths = sorted(Path("/usr/share/doc/python3.11/html").rglob("*.html"))[::10]
    if not paths:
        unavailable("Python's documentation", "python3.11-doc")
    queries = [
        *(methodcaller("css", query) for query in ("a::attr(href)", "a", "title::text")),
        *(methodcaller("xpath", query) for query in XPATHS[:14]),
    ]
    for path in paths:
        text = path.read_text(encoding="utf-8")[:60_000]  # as long as parsel's take
        ours, theirs = select(text), parsel.Selector(text=text, type="html")
        assert ours.get() == theirs.get()
        for ask in queries:
            found, expected = ask(ours), ask(theirs)
            assert found.getall() == expected.getall(), path
            assert found.xpath("@class | text()").getall() == expected.xpath("@class | text()").getall(), path


def test_what_cannot_be_encoded_is_refused_as_parsel_does() -> None:
    with pytest.raises(UnicodeEncodeError):
        select("<p>\ud800</p>")
    assert select("<p>a</p>").css("p::text").get() == "a"


def test_a_namespace_of_one_selector_is_nobody_elses() -> None:
    page = select("<p>a</p><p>b</p>")
    first, second = page.css("p")
    first.register_namespace("o", "urn:o")
    second.namespaces["p"] = "urn:p"
    assert first.xpath("//o:a").getall() == []
    assert second.xpath("//p:a").getall() == []
    assert first.xpath(".").xpath("//o:a").getall() == []
    for one in (page, second, page.css("p")[0], select("<p>c</p>")):
        assert "o" not in one.namespaces
        with pytest.raises(ValueError, match="Undefined namespace prefix"):
            one.xpath("//o:a")


def test_a_function_of_the_users_is_called_and_can_be_removed() -> None:
    page = select("<p>a</p>")
    parsel.xpathfuncs.set_xpathfunc("shout", lambda context, words: "".join(words).upper())
    try:
        assert page.xpath("shout(//p/text())").get() == "A"
    finally:
        parsel.xpathfuncs.set_xpathfunc("shout", None)
    with pytest.raises(ValueError, match="Unregistered function"):
        page.xpath("shout(//p/text())")


def test_elements_are_dropped_and_changed_in_the_page() -> None:
    page = select("<div><p>a</p>tail<p>b</p></div>")
    page.css("p")[0].drop()
    assert page.css("div").get() == "<div>tail<p>b</p></div>"
    page.remove_namespaces()
    with pytest.raises(parsel.selector.CannotRemoveElementWithoutRoot):
        page.css("p::text")[0].drop()


def test_a_subclass_makes_its_own_kind() -> None:
    class Mine(Selector):
        __slots__ = ()

    assert [type(each) for each in Mine(text="<p>a</p>").css("p")] == [Mine]


def test_threads_parse_at_the_same_time() -> None:
    texts = [f"<p>{number}</p>" + f"<a href={number}>{number}</a>" * 2_000 for number in range(16)]

    def links(text: str) -> tuple[str | None, set[str]]:
        page = select(text)
        return page.css("p::text").get(), set(page.css("a::attr(href)").getall())

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(links, texts)) == [(str(number), {str(number)}) for number in range(16)]


@pytest.mark.parametrize(("body", "kind"), [("<p>a</p>", "text/html"), ("<r><p>a</p></r>", "application/xml")])
def test_a_selector_is_made_of_a_response_as_in_scrapy(body: str, kind: str) -> None:
    page = Response("http://a.example/", headers={"Content-Type": kind}, body=body.encode())
    for selector in (Selector(page), Selector(response=page)):
        assert (selector.type, selector.xpath("//p/text()").getall()) == (page.selector.type, ["a"])
        assert selector.root.base == "http://a.example/"
    assert Selector(page, type="xml").type == "xml"
    assert Selector("<p>b").css("p::text").get() == "b"
