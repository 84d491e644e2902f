"""A spider that reads RSS and Atom."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import date, datetime
from typing import Any

import trio

from trawl.http import Request, Response, kind_of
from trawl.spiders.outputs import ItemT, Outputs
from trawl.spiders.results import each_later
from trawl.spiders.since import since_utc
from trawl.spiders.spider import Spider
from trawl.spiders.web_feed import FeedEntry, WebFeed

__all__ = ["FeedSpider"]

_FEED_TYPES = ("application/rss+xml", "application/atom+xml")


class FeedSpider(Spider[ItemT]):
    """Gives each entry of the feeds at its start URLs to :meth:`parse_entry`, as it is read.

    A start URL may be a page too: the feeds that it names (``<link rel="alternate" type="application/rss+xml">``) are
    read then. (A *feed* is RSS or Atom here; where a crawl's own items go has the same name elsewhere.)

    Attributes:
        feed_since: Leave out entries that were last changed before: a datetime, a date, or a text (``2024-05-01``), in
            UTC unless it says otherwise. Entries that say nothing stay.
        feed_max_bytes: How much of a feed is read, in bytes.
        feed_max_entries: How many of its entries are taken.
    """

    feed_since: str | date | None = None
    feed_max_bytes: int = 32 * 1024 * 1024
    feed_max_entries: int = 10_000

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._since: datetime | None = since_utc(self.name, "feed_since", self.feed_since)

    def parse_entry(self, response: Response, entry: FeedEntry) -> Outputs[ItemT]:
        """What becomes of an entry: override it to follow ``entry.url``, say. By default it is the item itself."""
        return entry  # type: ignore[return-value]  # without an override, entries are the items

    async def _parse(self, response: Response, **kwargs: Any) -> AsyncGenerator[Any, None]:
        feed = WebFeed(response.body, response.url, most_bytes=self.feed_max_bytes)
        if not feed.is_feed:
            if kind_of(response) == "html" and response.meta.get("feed_link") is None:
                for request in self._named_by(response):
                    yield request
            else:
                self.logger.warning("%s is neither RSS nor Atom: ignored", response.url)
            return
        pieces = feed.pieces
        for count, entry in enumerate(feed):
            if feed.pieces > pieces:
                pieces = feed.pieces
                await trio.lowlevel.checkpoint()
            if count >= self.feed_max_entries:
                self.logger.warning("%s: more than %d entries are left out", response.url, self.feed_max_entries)
                return
            if self._since is not None and entry.updated_utc is not None and entry.updated_utc < self._since:
                continue
            async with aclosing(each_later(self.parse_entry(response, entry))) as outputs:
                async for output in outputs:
                    yield output  # noqa: ASYNC119 - who reads this closes it

    def _named_by(self, response: Response) -> list[Request]:
        """Requests for the feeds that a page names."""
        types = " or ".join(f"@type='{kind}'" for kind in _FEED_TYPES)
        links = response.xpath(f"//link[contains(concat(' ', @rel, ' '), ' alternate ')][{types}]")
        requests = list(response.follow_all(links, meta={"feed_link": True}))
        if not requests:
            self.logger.warning("%s is no feed and names none", response.url)
        return requests
