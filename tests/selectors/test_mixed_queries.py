"""XPath where CSS is expected, and the reverse: one sentence that says what to write."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from cssselect import SelectorError

import trawl
from trawl.http import FormRequest, HtmlResponse
from trawl.links import LinkExtractor
from trawl.loader import ItemLoader
from trawl.selectors import MixedQuery
from trawl.testing import SimulatedWeb, simulate

BODY = "<h1>x</h1><ul class='big'><li><a href='/a'>1</a></li></ul><form></form>"


@pytest.fixture
def page() -> HtmlResponse:
    return HtmlResponse("http://a.example/", body=BODY)


@pytest.mark.parametrize(
    "query",
    ["//h1/text()", "./h1", "h1/text()", "@href", "//a/@href", "h1[@class='x']", "(//a)[1]", "..", "text()"],
)
def test_xpath_given_to_css_is_told(page: HtmlResponse, query: str) -> None:
    with pytest.raises(MixedQuery) as raised:
        page.css(query)
    assert str(raised.value) == f"{query!r} is XPath: write response.xpath(...)"


@pytest.mark.parametrize(
    "query",
    ["h1::text", "a::attr(href)", "ul.big", "ul > li", "ul.big > li", "#id", ".big", "ul.big li", "a[href^='x']"],
)
def test_css_given_to_xpath_is_told_also_where_it_is_xpath_too(page: HtmlResponse, query: str) -> None:
    for _ in range(2):  # by trawl's own way, and by parsel's
        with pytest.raises(MixedQuery) as raised:
            page.xpath(query)
        assert str(raised.value) == f"{query!r} is CSS: write response.css(...)"
        _ = page.selector.namespaces


@pytest.mark.parametrize("query", ["a:nope", "a["])
def test_what_is_neither_is_still_an_error_of_css(page: HtmlResponse, query: str) -> None:
    with pytest.raises(SelectorError) as raised:
        page.css(query)
    assert not isinstance(raised.value, MixedQuery)


@pytest.mark.parametrize("query", ["h1", "//nothing", "count(//a) > 1", "count(//p) > 1", "3 > 2", "//a[. > 3]"])
def test_xpath_that_finds_nothing_is_no_mistake(page: HtmlResponse, query: str) -> None:
    page.xpath(query)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda page: list(page.follow_all(css="//a/@href")), "'//a/@href' is XPath: write follow_all(xpath=...)"),
        (lambda page: list(page.follow_all(xpath="a::text")), "'a::text' is CSS: write follow_all(css=...)"),
        (lambda page: LinkExtractor(restrict_css="//ul"), "'//ul' is XPath: write restrict_xpaths=..."),
        (lambda page: LinkExtractor(restrict_xpaths="ul::text"), "'ul::text' is CSS: write restrict_css=..."),
        (lambda page: LinkExtractor(restrict_xpaths="ul.big"), "'ul.big' is CSS: write restrict_css=..."),
        (lambda page: LinkExtractor(restrict_xpaths="ul > li"), "'ul > li' is CSS: write restrict_css=..."),
        (lambda page: page.css("string(h1)"), "'string(h1)' is XPath: write response.xpath(...)"),
        (lambda page: ItemLoader({}, response=page).nested_css("//h1"), "'//h1' is XPath: write nested_xpath(...)"),
        (lambda page: ItemLoader({}, response=page).nested_xpath("h1.a"), "'h1.a' is CSS: write nested_css(...)"),
        (
            lambda page: ItemLoader({}, response=page).replace_css("t", "//h1"),
            "'//h1' is XPath: write replace_xpath(...)",
        ),
        (lambda page: ItemLoader({}, response=page).get_xpath("h1.a"), "'h1.a' is CSS: write get_css(...)"),
        (lambda page: ItemLoader({}, response=page).add_css("t", "//h1"), "'//h1' is XPath: write add_xpath(...)"),
        (lambda page: ItemLoader({}, response=page).add_xpath("t", "b::text"), "'b::text' is CSS: write add_css(...)"),
        (lambda page: FormRequest.from_response(page, formcss="//form"), "'//form' is XPath: write formxpath=..."),
        (lambda page: FormRequest.from_response(page, formxpath="form.x"), "'form.x' is CSS: write formcss=..."),
        (lambda page: page.css("ul").css("./li"), "'./li' is XPath: write .xpath(...)"),
        (lambda page: trawl.Selector("<a>").xpath("a::text"), "'a::text' is CSS: write .css(...)"),
    ],
)
def test_everything_that_takes_queries_says_what_to_write(
    page: HtmlResponse, ask: Callable[[HtmlResponse], Any], words: str
) -> None:
    with pytest.raises(ValueError, match=r" is (XPath|CSS): write ") as raised:
        ask(page)
    assert str(raised.value) == words


def test_the_log_of_a_crawl_has_one_line_with_the_place(caplog: pytest.LogCaptureFixture) -> None:
    class Mixed(trawl.Spider):
        name = "mixed"
        start_urls = ("http://a.example/",)

        def parse(self, response: trawl.Response) -> Any:
            yield {"title": response.css("//h1/text()").get()}

    web = SimulatedWeb()
    web.add_host("a.example")
    simulate(Mixed, web, errors="collect")
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    line = Mixed.parse.__code__.co_firstlineno + 1
    assert record.getMessage().endswith(
        f"test_mixed_queries.py:{line}: '//h1/text()' is XPath: write response.xpath(...)"
    )
    assert not record.exc_info
