"""A spider that reads RSS and Atom.

The entries of RSS and Atom: RSS 2.0 and its ancestors, RSS 1.0, Atom (RFC 4287).

Read here and not with feedparser, which knows more dialects: it parses a whole feed at once, a hundred times slower,
and rewrites the HTML in it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from datetime import UTC, date, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import attrs
import trio
from lxml import etree

from trawl.http import Request, Response, join_url, kind_of, parse_date
from trawl.spiders.results import ItemT, Outputs, iterate_async
from trawl.spiders.sitemap_spider import since_utc
from trawl.spiders.spider import Spider
from trawl.spiders.xml_stream import GunzippedBody, XmlStream, local_name

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

__all__ = ["Enclosure", "FeedEntry", "FeedSpider", "WebFeed"]

_ROOTS = frozenset({"rss", "RDF", "feed"})

_ENTRIES = frozenset({"item", "entry"})

_MAX_PARTS = 10_000
"""Children of one entry that are looked at."""

_LONGEST_NUMBER = 18

_LONGEST_TIME = 100

_BASE = "{http://www.w3.org/XML/1998/namespace}base"


@attrs.frozen
class Enclosure:
    """A file that comes with an entry: a podcast's sound, say.

    Attributes:
        url: Where it is.
        type: Its media type, as the feed says; "" where it says none.
        length: Its size in bytes, as the feed says; 0 where it says none.
    """

    url: str
    type: str = ""
    length: int = 0


@attrs.frozen(kw_only=True)
class FeedEntry:
    """One entry of a feed, an item as it is.

    Attributes:
        url: Where it leads, absolute; "" where it leads nowhere.
        title: Its title, as the feed has it.
        id: What the feed knows it by; its URL where it has no other.
        published_utc: When it was published; None where the feed says nothing that can be read.
        updated_utc: When it was changed last; when it was published, where the feed says no more.
        author: Who wrote it; "" if unknown.
        summary: A few words, often HTML.
        content: The whole text, mostly HTML; "" where the feed has only a summary.
        categories: Its subjects.
        enclosures: Files that come with it.
        feed_url: The feed.
    """

    url: str
    title: str
    id: str
    published_utc: datetime | None
    updated_utc: datetime | None
    author: str
    summary: str
    content: str
    categories: tuple[str, ...]
    enclosures: tuple[Enclosure, ...]
    feed_url: str


class WebFeed:
    """The entries of a feed, read as they are asked for, once.

    Attributes:
        is_feed: It is RSS or Atom.
    """

    def __init__(self, body: bytes, url: str, *, max_bytes: int) -> None:
        """Begin to read.

        Args:
            body: As it was sent.
            url: Where it came from: what its links are relative to.
            max_bytes: How much of it is read.
        """
        self._xml = XmlStream(GunzippedBody(body, max_bytes), _ENTRIES, url)
        self._url = url
        self._has_bases = b"xml:base" in body
        self.is_feed: bool = self._xml.root in _ROOTS

    @property
    def pieces(self) -> int:
        """How much has been read, in pieces: where it grows, it is time to let others run."""
        return self._xml.pieces

    def __iter__(self) -> Iterator[FeedEntry]:
        if self.is_feed:
            for element in self._xml:
                yield self._entry(element)

    def _entry(self, element: Element) -> FeedEntry:
        base = self._base_of(element)
        parts = _ChildElements(element)
        published = _time(parts.first("pubDate", "published", "issued", "date"))
        enclosures = [(part.get("url"), part) for part in parts.all("enclosure")]
        enclosures += [(part.get("href"), part) for part in parts.links("enclosure")]
        url = _joined(base, _link_of(parts))
        return FeedEntry(
            url=url,
            title=parts.first("title"),
            id=parts.first("guid", "id") or url,
            published_utc=published,
            updated_utc=_time(parts.first("updated", "modified")) or published,
            author=_author_of(parts),
            summary=parts.first("description", "summary"),
            content=parts.first("encoded", "content"),
            categories=tuple(name for part in parts.all("category", "subject") if (name := _category(part))),
            enclosures=tuple(
                Enclosure(_joined(base, address), part.get("type", ""), _whole(part.get("length")))
                for address, part in enclosures
                if address
            ),
            feed_url=self._url,
        )

    def _base_of(self, element: Element) -> str:
        base = self._url
        if self._has_bases:
            for outer in (*reversed([*element.iterancestors()]), element):
                base = _joined(base, outer.get(_BASE)) or base
        return base


class _ChildElements:
    """The children of an entry by their local names."""

    def __init__(self, element: Element) -> None:
        self._parts: dict[str, list[Element]] = {}
        for part in islice(element, _MAX_PARTS):
            self._parts.setdefault(local_name(part), []).append(part)

    def all(self, *names: str) -> list[Element]:
        return [part for name in names for part in self._parts.get(name, ())]

    def links(self, relation: str) -> list[Element]:
        return [part for part in self.all("link") if part.get("rel", "alternate") == relation and part.get("href")]

    def first(self, *names: str) -> str:
        """The text of the first part of one of the names that has some, the first name first."""
        for name in names:
            for part in self.all(name):
                if text := _text(part):
                    return text
        return ""


def _text(element: Element) -> str:
    """What an element says: its text, or its markup where it is XHTML (RFC 4287, 3.1.1.3)."""
    if element.get("type") == "xhtml" and len(element):
        return "".join(etree.tostring(part, encoding="unicode", with_tail=True) for part in element).strip()
    return "".join(str(text) for text in element.itertext()).strip()


def _link_of(parts: _ChildElements) -> str:
    for part in parts.links("alternate"):
        return str(part.get("href"))
    guids = [_text(part) for part in parts.all("guid") if part.get("isPermaLink", "true").lower() == "true"]
    return parts.first("link") or next((guid for guid in guids if "://" in guid), "")


def _author_of(parts: _ChildElements) -> str:
    for author in parts.all("author"):
        names = [_text(part) for part in author if local_name(part) == "name"]
        return next(iter(names), "") or _text(author)
    return parts.first("creator")


def _category(part: Element) -> str:
    return str(part.get("term") or _text(part))


def _joined(base: str, address: str | None) -> str:
    try:
        return join_url(base, address.strip()) if address else ""
    except ValueError:
        return ""


def _whole(text: str | None) -> int:
    return int(text) if text and len(text) <= _LONGEST_NUMBER and text.strip().isdecimal() else 0


def _time(text: str) -> datetime | None:
    """A time as RSS (RFC 5322) or Atom (RFC 3339) writes it, in UTC; None for what is none."""
    if not text[:4].isdecimal():
        return parse_date(text)
    try:
        time = datetime.fromisoformat(text[:_LONGEST_TIME])
        return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):  # one of the year 1, east of Greenwich, has none in UTC
        return None


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
        feed = WebFeed(response.body, response.url, max_bytes=self.feed_max_bytes)
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
            async with aclosing(iterate_async(self.parse_entry(response, entry))) as outputs:
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
