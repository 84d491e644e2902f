"""Which items go to which feed: by class, and by filter; with a job as without."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from tests.feeds.fake_job import FakeJob
from tests.feeds.fakes import STARTED_UTC
from trawl.blocking import InlineBlocking
from trawl.errors import ItemLost, SettingsError
from trawl.feeds import FeedsSettings, open_feeds
from trawl.feeds.outbox import open_outbox
from trawl.items import InvalidItem


@dataclasses.dataclass
class Author:
    name: str


@dataclasses.dataclass
class Book:
    title: str
    price: int


class Cheap:
    """A filter as Scrapy has them."""

    def __init__(self, feed_options: dict[str, Any]) -> None:
        self.limit = len(feed_options["fields"])

    def accepts(self, item: Any) -> bool:
        return isinstance(item, Book) and item.price <= self.limit


def is_dear(item: Any) -> bool:
    return bool(item.price > 1)


ITEMS = [Author("Ursula"), Book("a", 1), Book("b", 3), InvalidItem("http://a.example/", "no price", "Book", {})]


def feeds_in(folder: Path) -> FeedsSettings:
    return FeedsSettings(
        feeds={
            str(folder / "all.json"): {},
            str(folder / "books.json"): {"item_classes": [Book], "fields": ["title"]},
            str(folder / "cheap.json"): {"item_filter": Cheap, "fields": ["title", "price"]},
            str(folder / "dear.json"): {"item_filter": is_dear, "item_classes": [Book], "fields": ["title"]},
            str(folder / "wrong.json"): {"item_classes": ["trawl.items.InvalidItem"], "fields": ["error"]},
        }
    )


def check(folder: Path) -> None:
    assert {path.stem: json.loads(path.read_bytes()) for path in sorted(folder.iterdir())} == {
        "all": [{"name": "Ursula"}, {"title": "a", "price": 1}, {"title": "b", "price": 3}],
        "books": [{"title": "a"}, {"title": "b"}],
        "cheap": [{"title": "a", "price": 1}],
        "dear": [{"title": "b"}],
        "wrong": [{"error": "no price"}],
    }


async def test_items_go_where_their_class_and_the_filters_say(tmp_path: Path, autojump_clock: MockClock) -> None:
    settings = feeds_in(tmp_path)
    async with await open_feeds(settings, InlineBlocking(), spider_name="x", started_utc=STARTED_UTC) as feeds:
        for item in ITEMS:
            await feeds.put(item)
    check(tmp_path)


async def test_filters_see_the_item_itself_with_a_job_too(tmp_path: Path, autojump_clock: MockClock) -> None:
    job = FakeJob()
    _, outbox = await open_outbox(feeds_in(tmp_path), InlineBlocking(), job, spider_name="x", started_utc=STARTED_UTC)
    job.hold(*[outbox.encode(item) for item in ITEMS])
    outbox.acknowledged(len(ITEMS))
    outbox.close()
    await outbox.write()
    check(tmp_path)


async def test_a_filter_that_fails_leaves_the_item_out_of_its_feed(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "out.json"
    settings = FeedsSettings(feeds={str(path): {"item_filter": is_dear}})
    async with await open_feeds(settings, InlineBlocking(), spider_name="x", started_utc=STARTED_UTC) as feeds:
        with pytest.raises(ItemLost, match="item_filter failed"):
            await feeds.put(Author("Ursula"))
        await feeds.put(Book("b", 3))
    assert json.loads(path.read_bytes()) == [{"title": "b", "price": 3}]
    assert "its item_filter failed: AttributeError" in caplog.text


@pytest.mark.parametrize("given", ["nowhere.to.be_found", 3])
async def test_a_filter_that_is_none_is_refused(tmp_path: Path, given: object) -> None:
    settings = FeedsSettings(feeds={str(tmp_path / "x.json"): {"item_filter": given}})
    with pytest.raises(SettingsError, match="item_filter"):
        await open_feeds(settings, InlineBlocking(), spider_name="x", started_utc=STARTED_UTC)
