"""A crawl that finds nothing on pages with scripts suggests that JavaScript makes the content."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

import trawl
from trawl.http import Response
from trawl.loader import ItemLoader
from trawl.testing import SimulatedWeb, simulate

EMPTY = "<html><body><div id=app></div><SCRIPT src='/app.js'></SCRIPT></body></html>"
PLAIN = "<html><body><p>Nothing here.</p></body></html>"
FULL = "<html><body><h1>Emma</h1><script>track()</script></body></html>"


def of_parts(self: Any, response: Response) -> Any:
    for part in response.css("h1"):
        yield {"title": part.css("::text").get()}


def of_empty_fields(self: Any, response: Response) -> Any:
    yield {"title": response.css("h1::text").get(), "tags": response.xpath("//b/text()").getall(), "text": ""}


def that_fails(self: Any, response: Response) -> Any:
    return {"title": response.css("h1::text").get().strip()}  # type: ignore[union-attr]


def with_xpath_as_css(self: Any, response: Response) -> Any:
    return {"title": response.css("//h1/text()").get()}


def with_css_as_xpath(self: Any, response: Response) -> Any:
    for part in response.css("div"):
        yield from ({"title": each} for each in part.xpath("h1 > b.big"))


def with_mixed_links(self: Any, response: Response) -> Any:
    yield from response.follow_all(css="//a/@href")


def with_wrong_xpath(self: Any, response: Response) -> Any:
    return {"title": response.xpath("//h1[").get()}


def with_wrong_css(self: Any, response: Response) -> Any:
    return {"title": response.css("h1:[").get()}


def with_a_wrong_pattern(self: Any, response: Response) -> Any:
    return {"title": response.css("div").re("(")}


def with_a_loader(self: Any, response: Response) -> Any:
    loader = ItemLoader({}, response=response)
    loader.add_css("title", "//h1/text()")
    return loader.load_item()


async def with_a_nursery(self: Any, response: Response) -> Any:
    async with trio.open_nursery():
        yield {"title": response.css("//h1/text()").get()}


async def of_later(self: Any, response: Response) -> Any:
    for text in response.css("h1::text").getall():
        yield {"title": text}


def without_selectors(self: Any, response: Response) -> Any:
    return {"length": len(response.body)} if b"<h1>" in response.body else None


def with_links(self: Any, response: Response) -> Any:
    _ = response.css("h1").get()
    yield response.follow("/next", self.last)


def hint(parse: Callable[..., Any], body: str, caplog: pytest.LogCaptureFixture, pages: int = 1) -> list[str]:
    urls = [f"http://a.example/{number}" for number in range(pages)]
    spider = type(
        "S", (trawl.Spider,), {"name": "s", "start_urls": urls, "parse": parse, "last": lambda self, page: None}
    )
    web = SimulatedWeb()
    for url in urls:
        web.add_page(url, body=body)
    web.add_page("http://a.example/next", body=PLAIN)
    simulate(spider, web, {"ROBOTSTXT_OBEY": False}, errors="collect")
    return [record.getMessage() for record in caplog.records if "JavaScript" in record.getMessage()]


@pytest.mark.parametrize("parse", [of_parts, of_empty_fields, that_fails, of_later])
def test_pages_with_scripts_and_without_what_is_wanted_are_told_once(
    parse: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    [message] = hint(parse, EMPTY, caplog, pages=3)
    assert message.startswith("3 HTML pages with scripts gave nothing that the selectors look for, http://a.example/")
    assert "the content may be made by JavaScript" in message


@pytest.mark.parametrize(
    ("parse", "body"),
    [
        (of_parts, PLAIN),
        (of_parts, FULL),
        (of_empty_fields, FULL),
        (without_selectors, EMPTY),
        (with_links, EMPTY),
        (with_xpath_as_css, EMPTY),
        (with_css_as_xpath, EMPTY),
        (with_mixed_links, EMPTY),
        (with_wrong_xpath, EMPTY),
        (with_wrong_css, EMPTY),
        (with_a_wrong_pattern, EMPTY),
        (with_a_loader, EMPTY),
        (with_a_nursery, EMPTY),
    ],
)
def test_other_pages_are_not(parse: Callable[..., Any], body: str, caplog: pytest.LogCaptureFixture) -> None:
    assert hint(parse, body, caplog) == []


def test_one_page_with_content_is_enough(caplog: pytest.LogCaptureFixture) -> None:
    class Some(trawl.Spider):
        name = "some"
        start_urls = ("http://a.example/1", "http://a.example/2")
        parse = of_parts

    web = SimulatedWeb()
    web.add_page("http://a.example/1", body=EMPTY)
    web.add_page("http://a.example/2", body=FULL)
    simulate(Some, web)
    assert "JavaScript" not in caplog.text
