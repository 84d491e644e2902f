from __future__ import annotations

from typing import Any

import pytest

import trawl
from trawl.errors import SpiderLoadError, UsageError
from trawl.observe import Stats
from trawl.settings import load
from trawl.spiders import Crawler, Spider, make_spider


class Shop(Spider):
    name = "shop"

    def __init__(self, pages: str = "1", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pages = int(pages)


def make(spider: type[Spider], **arguments: Any) -> Spider:
    return make_spider(spider, arguments, Crawler(load(), Stats(), spider))


def test_a_spider_is_made_with_its_arguments() -> None:
    made = make(Shop, pages="3", tag="a")
    assert isinstance(made, Shop)
    assert (made.pages, getattr(made, "tag", "")) == (3, "a")


def test_a_constructor_that_fails_is_told_in_one_line_that_names_its_own() -> None:
    line = r"^test_making.py, line \d+: Shop can't be made: ValueError: .*'x'$"
    with pytest.raises(SpiderLoadError, match=line) as caught:
        make(Shop, pages="x")
    assert isinstance(caught.value.__cause__, ValueError)


def test_only_the_first_line_of_the_error_is_told() -> None:
    class Long(Shop):
        def __init__(self, **kwargs: Any) -> None:
            raise RuntimeError("first\nsecond")

    class Silent(Shop):
        def __init__(self, **kwargs: Any) -> None:
            raise KeyError

    with pytest.raises(SpiderLoadError, match=r"Long can't be made: RuntimeError: first$"):
        make(Long)
    with pytest.raises(SpiderLoadError, match=r"Silent can't be made: KeyError$"):
        make(Silent)


def test_a_class_that_no_file_has_is_told_too() -> None:
    def fail(self: object, **kwargs: Any) -> None:
        raise OSError("no")

    nowhere = type("Nowhere", (Spider,), {"name": "nowhere", "__init__": fail, "__module__": "builtins"})
    with pytest.raises(SpiderLoadError, match=r"test_making.py, line \d+: Nowhere can't be made: OSError: no"):
        make(nowhere)


def test_what_trawl_says_itself_is_left_as_it_is() -> None:
    class Wrong(Shop):
        start_urls = ["a.example"]

    with pytest.raises(UsageError, match="start_urls"):
        make(Wrong)
    with pytest.raises(SpiderLoadError, match="can't be made"):
        trawl.run(Shop, pages="x")
