from __future__ import annotations

import pytest

from trawl.cli.load import feeds_layer, spider_arguments
from trawl.errors import UsageError


def test_o_appends_and_capital_o_overwrites() -> None:
    assert feeds_layer(["a.jsonl"], ["b.csv"]).values == {
        "FEEDS": {"a.jsonl": {"overwrite": False}, "b.csv": {"overwrite": True}}
    }


def test_without_feeds_the_setting_is_left_alone() -> None:
    assert feeds_layer([], []).values == {}


@pytest.mark.parametrize(
    ("text", "path", "options"),
    [
        ("out.txt:csv", "out.txt", {"format": "csv"}),
        ("-", "-", {"format": "jsonl"}),
        ("-:json", "-", {"format": "json"}),
        ("a:b.jsonl", "a:b.jsonl", {}),
        (r"C:\out.csv", r"C:\out.csv", {}),
        ("/tmp/12:30", "/tmp/12:30", {}),
        ("out:xyz", "out", {"format": "xyz"}),
    ],
)
def test_a_format_may_follow_a_colon(text: str, path: str, options: dict[str, object]) -> None:
    assert feeds_layer([text], []).values == {"FEEDS": {path: {"overwrite": False, **options}}}


def test_a_feed_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match=r"the feed 'a\.csv' is given twice"):
        feeds_layer(["a.csv"], ["a.csv"])


def test_a_feed_needs_a_name() -> None:
    with pytest.raises(UsageError, match="-O takes FEED or FEED:FORMAT, not ''"):
        feeds_layer([], [""])


def test_spider_arguments_are_texts_and_the_last_counts() -> None:
    assert spider_arguments(["a=1", "b=x=y", "a=2", "c="]) == {"a": "2", "b": "x=y", "c": ""}


@pytest.mark.parametrize("text", ["a", "=1", "a-b=1"])
def test_spider_arguments_need_a_name_and_a_value(text: str) -> None:
    with pytest.raises(UsageError, match="-a takes NAME=VALUE"):
        spider_arguments([text])
