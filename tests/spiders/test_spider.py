"""Spiders by themselves: names, arguments, start URLs."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from typing import Any

import pytest

import trawl
from trawl.errors import UsageError
from trawl.http import Request, Response


class Quotes(trawl.Spider):
    name = "quotes"
    start_urls: Any = ("http://a.example/1", "http://a.example/2")


async def test_start_asks_for_each_start_url() -> None:
    assert [request.url async for request in Quotes().start()] == ["http://a.example/1", "http://a.example/2"]


def test_arguments_become_attributes_and_the_name_may_be_given() -> None:
    spider = Quotes("other", tag="love", pages="3")
    assert (spider.name, spider.tag, spider.pages) == ("other", "love", "3")  # type: ignore[attr-defined]
    assert repr(spider) == "<Quotes 'other'>"


def test_start_urls_may_be_set_before_the_base_class_is_made() -> None:
    class Late(trawl.Spider):
        name = "late"

        def __init__(self, domain: str) -> None:
            self.start_urls = [f"http://{domain}/"]
            super().__init__()

    assert Late("a.example").start_urls == ["http://a.example/"]


def test_a_spider_needs_a_name() -> None:
    class Nameless(trawl.Spider):
        pass

    with pytest.raises(ValueError, match="Nameless has no name"):
        Nameless()


@pytest.mark.parametrize(
    ("urls", "words"),
    [
        (["http://a.example/", "a.example"], r"start_urls\[1\].*a\.example"),
        (["ftp://a.example/"], r"start_urls\[0\].*only http and https"),
        (("http://[",), r"start_urls\[0\]"),
        ([None], r"start_urls\[0\]"),
        ("http://a.example/", "not a string"),
    ],
)
def test_start_urls_that_cannot_be_fetched_are_refused_by_their_entry(urls: object, words: str) -> None:
    class Wrong(Quotes):
        start_urls = urls

    with pytest.raises(UsageError, match=words):
        Wrong().check()


def test_start_urls_that_can_be_read_once_only_and_a_start_of_its_own_are_left_alone() -> None:
    class Lazy(Quotes):
        start_urls = (url for url in ["not looked at"])

    class Own(Quotes):
        start_urls = ("nor this",)

        async def start(self) -> AsyncGenerator[Any, None]:
            yield Request("http://a.example/")

    Lazy().check()
    Own().check()
    Quotes().check()


def test_a_spider_without_parse_says_which_page_wanted_it() -> None:
    with pytest.raises(NotImplementedError, match=r"Quotes has no parse\(\).*http://a\.example/"):
        Quotes().parse(Response("http://a.example/"))


def test_a_spider_logs_under_its_name(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        Quotes().log("a word")
        Quotes().logger.warning("another")
    assert [(record.name, record.levelname, record.message) for record in caplog.records] == [
        ("quotes", "DEBUG", "a word"),
        ("quotes", "WARNING", "another"),
    ]


def test_what_belongs_to_a_running_crawl_is_not_there_before() -> None:
    with pytest.raises(RuntimeError, match="not running yet"):
        _ = Quotes().settings


def test_a_spider_runs_in_one_crawl_only() -> None:
    spider = Quotes()
    spider.bind(object())  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="make a new spider for each"):
        spider.bind(object())  # type: ignore[arg-type]


def test_closed_does_nothing_by_default() -> None:
    assert Quotes().closed("finished") is None
