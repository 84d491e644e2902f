"""Callbacks are stored by the name that the spider has them under, and found again nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from trawl.frontier.record_format import CallbackNames


def elsewhere(response: object) -> None:
    """No method of any spider."""


class Base:
    def parse(self, response: object) -> str:
        return "base"

    def __hidden(self, response: object) -> str:
        return "hidden"

    def hidden(self) -> Callable[..., Any]:
        return self.__hidden

    also = parse


class MySpider(Base):
    settings = dict

    def parse(self, response: object) -> str:
        return "mine"

    @staticmethod
    def static(response: object) -> str:
        return "static"

    @classmethod
    def of_class(cls, response: object) -> str:
        return cls.__name__


def callbacks(spider: MySpider) -> list[Callable[..., Any]]:
    return [spider.parse, spider.hidden(), spider.static, spider.of_class, spider.also]


@pytest.mark.parametrize("which", range(5))
def test_every_method_of_a_spider_has_a_name(which: int) -> None:
    first, second = MySpider(), MySpider()
    name = CallbackNames(first).name_of(callbacks(first)[which], "the callback")
    again = CallbackNames(second).callback(name)
    assert again == callbacks(second)[which]


def test_no_callback_has_no_name() -> None:
    names = CallbackNames(MySpider())
    assert names.name_of(None, "the callback") is None
    assert names.callback(None) is None


@pytest.mark.parametrize(
    "callback",
    [lambda response: None, elsewhere, MySpider().parse, partial(elsewhere), print, MySpider.parse],
    ids=["lambda", "function", "another spider's", "partial", "builtin", "unbound"],
)
def test_what_is_no_method_of_this_spider_is_refused_with_what_to_do(callback: Callable[..., Any]) -> None:
    with pytest.raises(
        ValueError, match=r"^the errback .* is not a method of the spider.*make it a method of MySpider"
    ):
        CallbackNames(MySpider()).name_of(callback, "the errback")


def test_a_method_of_the_base_class_is_not_taken_for_the_spiders_own() -> None:
    spider = MySpider()
    inherited = super(MySpider, spider).parse
    assert CallbackNames(spider).name_of(inherited, "the callback") == "also"


@pytest.mark.parametrize("name", ["gone", "__init__", "__class__", "settings"])
def test_a_stored_name_calls_nothing_but_a_method(name: str) -> None:
    with pytest.raises(LookupError, match=f"the spider MySpider has no method '{name}'"):
        CallbackNames(MySpider()).callback(name)
