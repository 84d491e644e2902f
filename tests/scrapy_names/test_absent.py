"""What Scrapy's objects have and trawl's don't says what to use."""

from __future__ import annotations

from typing import Any

import pytest

import trawl
from trawl import scrapy_names
from trawl.http import Request, Response
from trawl.scrapy_names import Unsupported
from trawl.settings import Settings
from trawl.spiders import Crawler
from trawl.spiders.crawler import CrawlerEngine, CrawlerSignals

SCRAPYS: list[tuple[type, list[str]]] = [
    (trawl.Spider, ["state", "handles_request"]),
    (Request, ["encoding", "flags", "to_curl", "to_dict"]),
    (Response, ["certificate"]),
    (
        Settings,
        [
            *("add_to_list", "attributes", "freeze", "frozencopy", "getpriority", "getwithbase", "setmodule"),
        ],
    ),
    (
        Crawler,
        [
            *("crawl", "extensions", "get_addon", "get_downloader_middleware", "get_extension", "get_item_pipeline"),
            *("get_spider_middleware", "logformatter"),
        ],
    ),
    (
        CrawlerEngine,
        [
            *("schedule", "pause", "unpause", "stop", "spider_is_idle", "downloader", "scraper", "slot"),
        ],
    ),
    (
        CrawlerSignals,
        ["send_catch_log", "send_catch_log_async", "send_catch_log_deferred"],
    ),
]


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in SCRAPYS for name in names])
def test_an_attribute_of_scrapys_that_is_not_here_says_what_to_use(kind: type, name: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(kind, name)
    said = str(raised.value)
    assert said.startswith(f"{kind.__name__} has no ")
    assert len(said.partition("which is Scrapy's: ")[2]) > 10


def test_an_instance_may_have_one_of_its_own() -> None:
    class Stated(trawl.Spider[Any]):
        name = "stated"

    class Given(Stated):
        state = ("CA",)

    assert not hasattr(Stated(), "state")
    assert vars(Stated(state="CA"))["state"] == Stated(state="CA").state == "CA"  # type: ignore[attr-defined]
    assert Given().state == ("CA",)


def test_the_name_is_that_under_which_it_stands() -> None:
    class Thing:
        old = Unsupported("use new")

    with pytest.raises(AttributeError, match=r"^Thing has no old, which is Scrapy's: use new$"):
        Thing().old  # noqa: B018 - asking is what is tested


def test_every_hint_is_found_under_its_name_and_no_other() -> None:
    assert all(getattr(scrapy_names, name) is not None for name in scrapy_names.__all__)
    assert not hasattr(scrapy_names, "no_such_hint")
