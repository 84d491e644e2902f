"""Spiders that read RSS and Atom."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import trawl
from trawl.errors import UsageError
from trawl.http import Response
from trawl.spiders import FeedEntry, FeedSpider
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

FAST = {"DOWNLOAD_DELAY": 0.0}
RSS = "<rss><channel>{}</channel></rss>"
ITEM = "<item><title>{0}</title><link>/{0}</link><pubDate>{1} May 2024 00:00:00 GMT</pubDate></item>"
PAGE = """<html><head><link rel="alternate" type="application/rss+xml" href="/feed">
<link rel="alternate" type="text/html" hreflang="de" href="/de"></head></html>"""


class News(FeedSpider[Any]):
    name = "news"
    start_urls = ["http://a.example/feed"]


def site(feed: str = RSS.format(ITEM.format("one", "01") + ITEM.format("two", "02"))) -> SimulatedWeb:
    def answer(request: Any) -> SimulatedResponse:
        if request.url.endswith("/feed"):
            return SimulatedResponse(200, feed, {"Content-Type": "application/rss+xml"})
        page = PAGE if request.url.endswith("/home") else "<p>x</p>"
        return SimulatedResponse(200, page, {"Content-Type": "text/html"})

    web = SimulatedWeb()
    web.add_host("a.example", handler=answer)
    return web


def test_entries_are_items_where_nothing_else_is_said() -> None:
    sim = simulate(News, site(), FAST)
    assert [(item.title, item.url) for item in sim.items] == [
        ("one", "http://a.example/one"),
        ("two", "http://a.example/two"),
    ]


def test_an_entry_may_be_followed_by_a_callback_of_any_kind() -> None:
    class Followed(News):
        async def parse_entry(self, response: Response, entry: FeedEntry) -> AsyncIterator[Any]:
            yield {"entry": entry.title}
            yield response.follow(entry.url, self.parse_article, cb_kwargs={"title": entry.title})

        def parse_article(self, response: Response, title: str) -> dict[str, str]:
            return {"article": title}

    items = simulate(Followed, site(), FAST).items
    assert items == [{"entry": "one"}, {"entry": "two"}, {"article": "one"}, {"article": "two"}]


def test_a_page_leads_to_the_feeds_that_it_names(caplog: pytest.LogCaptureFixture) -> None:
    class Home(News):
        start_urls = ["http://a.example/home"]

    assert [item.title for item in simulate(Home, site(), FAST).items] == ["one", "two"]
    Home.start_urls = ["http://a.example/other"]
    assert simulate(Home, site(), FAST).items == []
    assert "http://a.example/other is not a feed and links to none" in caplog.text
    Home.start_urls = ["http://a.example/home"]
    assert simulate(Home, site(PAGE), FAST).items == []
    assert "http://a.example/feed is neither RSS nor Atom" in caplog.text


@pytest.mark.parametrize("since", ["2024-05-02", "2024-05-01T12:00:00+00:00"])
def test_old_entries_are_left_out(since: str) -> None:
    assert [item.title for item in simulate(News, site(), FAST, feed_since=since).items] == ["two"]


def test_a_feed_is_read_in_bounds(caplog: pytest.LogCaptureFixture) -> None:
    assert [item.title for item in simulate(News, site(), FAST, feed_max_entries=1).items] == ["one"]
    assert "more than 1 entries are left out" in caplog.text


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="feed_since: 'soon' is not a date or time"):
        News(feed_since="soon")


def test_it_is_where_a_user_looks_for_it() -> None:
    assert (trawl.FeedSpider, trawl.FeedEntry) == (FeedSpider, FeedEntry)
