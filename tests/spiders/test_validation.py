"""Items are held to a type in whole crawls: what is not valid is kept with why and where from, or dropped."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import trawl
from trawl.errors import SettingsError
from trawl.items import InvalidItem
from trawl.spiders.item_check import item_type_of
from trawl.testing import SimulatedWeb, simulate


@dataclasses.dataclass
class Quote:
    text: str
    likes: int = 0


class Quotes(trawl.Spider[Quote]):
    name = "quotes"
    start_urls = ["http://a.example/"]

    def parse(self, response: Any) -> Any:
        yield {"text": "good"}
        yield {"text": "bad", "likes": "many"}
        yield Quote("fine", 3)
        yield response.follow("/2", callback=self.more)

    def more(self, response: Any) -> Any:
        return {"likes": 1}


class Below(Quotes):
    name = "below"


def web() -> SimulatedWeb:
    made = SimulatedWeb()
    made.add_host("a.example")
    return made


@pytest.mark.parametrize("spider", [Quotes, Below])
def test_items_are_held_to_the_type_that_the_spider_names(spider: Any, caplog: pytest.LogCaptureFixture) -> None:
    result = simulate(spider, web(), settings={"ITEM_TYPE": "spider"})
    assert result.items == [Quote("good"), Quote("fine", 3)]
    assert result.stats["item_invalid_count"] == 2
    assert result.stats["item_scraped_count"] == 2
    assert "an item of http://a.example/2 is not a valid Quote: Object missing required field `text`" in caplog.text


class Seen:
    """A pipeline that needs the fields of quotes."""

    def process_item(self, item: Any) -> Any:
        item.text = item.text.upper()
        return item


@pytest.mark.parametrize("job", [False, True])
def test_what_is_not_valid_can_go_to_a_feed_of_its_own(tmp_path: Path, job: bool) -> None:
    settings: dict[str, object] = {
        "ITEM_TYPE": Quote,
        "INVALID_ITEMS": "keep",
        "ITEM_PIPELINES": {Seen: 1},
        "FEEDS": {
            str(tmp_path / "quotes.json"): {},
            str(tmp_path / "invalid.json"): {"item_classes": [InvalidItem]},
        },
    }
    if job:
        settings["JOB_DIR"] = str(tmp_path / "job")
    simulate(Quotes, web(), settings=settings)
    assert [item["text"] for item in json.loads((tmp_path / "quotes.json").read_bytes())] == ["GOOD", "FINE"]
    assert json.loads((tmp_path / "invalid.json").read_bytes()) == [
        {
            "url": "http://a.example/",
            "error": "Expected `int`, got `str` - at `$.likes`",
            "type": "Quote",
            "item": {"text": "bad", "likes": "many"},
        },
        {
            "url": "http://a.example/2",
            "error": "Object missing required field `text`",
            "type": "Quote",
            "item": {"likes": 1},
        },
    ]


def test_items_of_start_are_looked_at_too() -> None:
    class Starting(Quotes):
        async def start(self) -> AsyncIterator[Any]:
            yield {"text": 3}
            yield {"text": "a"}

    assert simulate(Starting, web(), settings={"ITEM_TYPE": "spider"}).items == [Quote("a")]


class Plain(trawl.Spider):
    name = "plain"
    start_urls = ["http://a.example/"]


@pytest.mark.parametrize(
    ("kind", "why"),
    [("spider", "Plain has no type of items"), (int, "is not a type of item"), ("no.where", "ITEM_TYPE")],
)
def test_a_type_that_can_not_be_is_told_before_anything_is_sent(kind: object, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        simulate(Plain, web(), settings={"ITEM_TYPE": kind})


def test_the_type_of_a_spider_is_found_in_its_class() -> None:
    assert item_type_of(Below) is Quote
    assert item_type_of(Plain) is None
