"""What stands for what in the path of a feed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

import trawl
from tests.feeds.fakes import STARTED_UTC
from trawl.errors import FeedError
from trawl.feeds import FeedsSettings
from trawl.feeds.options import fill_path, is_numbered, placeholders_in, with_attributes
from trawl.testing import SimulatedWeb, simulate


def test_names_are_filled_in_as_scrapy_writes_them() -> None:
    path = "%(name)s/%(time)s-%(batch_id)d-%(batch)05d-%(batch_time)s-100%.csv"
    there = fill_path(path, name="quotes", time_utc=STARTED_UTC, batch=7, batch_time_utc=STARTED_UTC)
    assert there == "quotes/2025-01-01T12-30-00+00-00-7-00007-2025-01-01T12-30-00+00-00-100%.csv"


def test_what_is_not_given_and_what_is_not_known_stays() -> None:
    assert fill_path("%(batch)d-%(name)s-%(else)s", name="x") == "%(batch)d-x-%(else)s"


def test_the_names_in_a_path_are_known() -> None:
    assert placeholders_in("%(batch_time)s-%(name)s") == {"batch_time", "name"}
    assert is_numbered("%(batch)05d")
    assert not is_numbered("%(batch_time)s")


def test_other_names_are_the_spiders_attributes_as_scrapy_has_it() -> None:
    spider = SimpleNamespace(site_id="s1", page="7", nothing=None, empty="", parse=print)
    feeds = FeedsSettings(feeds={Path("%(site_id)s") / "%(name)s-%(page)03d.csv": {"indent": 1}, "plain.csv": {}})
    assert with_attributes(feeds, spider).feeds == {"s1/%(name)s-007.csv": {"indent": 1}, "plain.csv": {}}
    assert with_attributes(feeds, spider).feed_store_empty is feeds.feed_store_empty
    for path, said in {
        "%(tag)s.csv": "stands for an attribute of the spider, which is none",
        "%(nothing)s.csv": "which is none",
        "%(empty)s.csv": "which is ''",
        "%(parse)s.csv": "which is <built-in",
        "%(site_id)d.csv": "'s1' is not a whole number",
    }.items():
        with pytest.raises(FeedError, match=said):
            with_attributes(FeedsSettings(feeds={path: {}}), spider)


def test_attributes_that_give_two_feeds_one_path_are_refused() -> None:
    feeds = FeedsSettings(feeds={"x.csv": {}, "%(tag)s.csv": {}})
    with pytest.raises(FeedError, match="another feed goes to the same place"):
        with_attributes(feeds, SimpleNamespace(tag="x"))


def test_an_argument_of_the_spider_names_its_feed(tmp_path: Path) -> None:
    class Tagged(trawl.Spider):
        name = "tagged"
        start_urls = ("http://a.example/",)
        tag = "love"

        def parse(self, response: trawl.Response) -> object:
            yield {"a": 1}

    web = SimulatedWeb()
    web.add_host("a.example")
    for more in ({}, {"JOB_DIR": str(tmp_path / "job")}):
        simulate(Tagged, web, settings={"FEEDS": {tmp_path / "%(tag)s.jsonl": {}}, **more})
    assert (tmp_path / "love.jsonl").read_text() == '{"a":1}\n' * 2
