"""A spider for RSS 2.0 and its ancestors, RSS 1.0, and Atom (RFC 4287).

feedparser 6.0 is not used though it knows more dialects: it parses a whole feed at once and without bounds, 0.32 ms an
entry (0.04 here), so that one of 32 MiB would stop the crawl for half a minute; and it removes scripts and attributes
from the HTML of entries. Public through :mod:`trawl.spiders`, its only importer.
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
from trawl.spiders.xml_stream import GzipBody, XmlStream, local_name

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

__all__ = ["Enclosure", "FeedEntry", "FeedSpider", "WebFeed"]

_ROOTS = frozenset({"rss", "RDF", "feed"})
_ENTRIES = frozenset({"item", "entry"})
_FEED_TYPES = ("application/rss+xml", "application/atom+xml")
_MAX_PARTS = 10_000  # children of one entry that are read
_LONGEST_NUMBER = 18  # digits
_LONGEST_TIME = 100  # characters
_BASE = "{http://www.w3.org/XML/1998/namespace}base"


@attrs.frozen
class Enclosure:
    """A file that belongs to an entry: the audio of a podcast, for example.

    Attributes:
        url: Its absolute URL.
        type: Its media type according to the feed, or "".
        length: Its size in bytes according to the feed, or 0.
    """

    url: str
    type: str = ""
    length: int = 0


@attrs.frozen(kw_only=True)
class FeedEntry:
    """One entry of a feed, which can be used as an item.

    Attributes:
        url: The absolute URL of its page, or "".
        title: Its title, as in the feed.
        id: Its id in the feed; its URL if it has none.
        published_utc: The time of publication; None if it is missing or can't be parsed.
        updated_utc: The time of the last change; the time of publication if there is none.
        author: Its author, or "".
        summary: A short text, often HTML.
        content: The whole text, mostly HTML; "" if the feed has only a summary.
        categories: Its subjects.
        enclosures: Its files.
        feed_url: The URL of the feed.
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
    """An iterator over the entries of a feed, parsed on demand, once.

    Attributes:
        is_feed: The document is RSS or Atom.
    """

    def __init__(self, body: bytes, url: str, *, max_bytes: int) -> None:
        """Read the beginning.

        Args:
            body: The body, which may be gzip.
            url: Its URL, to which links are relative.
            max_bytes: Maximum of bytes to read, unpacked.
        """
        self._xml = XmlStream(GzipBody(body, max_bytes), _ENTRIES, url)
        self._url = url
        self._has_bases = b"xml:base" in body
        self.is_feed: bool = self._xml.root in _ROOTS

    @property
    def pieces(self) -> int:
        """The number of pieces parsed so far; give way to other tasks when it grows."""
        return self._xml.pieces

    def __iter__(self) -> Iterator[FeedEntry]:
        if self.is_feed:
            for element in self._xml:
                yield self._entry(element)

    def _entry(self, element: Element) -> FeedEntry:
        base = self._base_of(element)
        parts = _Elements(element)
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


class _Elements:
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
        """Return the first text that is not empty, by the order of ``names``."""
        for name in names:
            for part in self.all(name):
                if text := _text(part):
                    return text
        return ""


def _text(element: Element) -> str:
    """Return an element's text, or its markup if it is XHTML (RFC 4287, 3.1.1.3)."""
    if element.get("type") == "xhtml" and len(element):
        return "".join(etree.tostring(part, encoding="unicode", with_tail=True) for part in element).strip()
    return "".join(str(text) for text in element.itertext()).strip()


def _link_of(parts: _Elements) -> str:
    for part in parts.links("alternate"):
        return str(part.get("href"))
    guids = [_text(part) for part in parts.all("guid") if part.get("isPermaLink", "true").lower() == "true"]
    return parts.first("link") or next((guid for guid in guids if "://" in guid), "")


def _author_of(parts: _Elements) -> str:
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
    """Parse a time of RSS (RFC 5322) or Atom (RFC 3339), in UTC; None if it is not one."""
    if not text[:4].isdecimal():
        return parse_date(text)
    try:
        time = datetime.fromisoformat(text[:_LONGEST_TIME])
        return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):  # a time in the year 1, east of Greenwich, does not exist in UTC
        return None


class FeedSpider(Spider[ItemT]):
    """Calls :meth:`parse_entry` with each entry of the RSS or Atom feeds at its start URLs.

    A start URL may also be a page: the feeds that it links to (``<link rel="alternate" type="application/rss+xml">``)
    are read then.

    Attributes:
        feed_since: Skip entries last changed before this datetime, date or text (``2024-05-01``), by default in UTC.
            Entries without a time are kept.
        feed_max_bytes: Maximum of bytes read of one feed.
        feed_max_entries: Maximum of entries of one feed.
    """

    feed_since: str | date | None = None
    feed_max_bytes: int = 32 * 1024 * 1024
    feed_max_entries: int = 10_000

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._since: datetime | None = since_utc(self.name, "feed_since", self.feed_since)

    def parse_entry(self, response: Response, entry: FeedEntry) -> Outputs[ItemT]:
        """Handle an entry. Override it to follow ``entry.url``, for example; by default the entry is the item."""
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
        """Return requests for the feeds that a page links to."""
        types = " or ".join(f"@type='{kind}'" for kind in _FEED_TYPES)
        links = response.xpath(f"//link[contains(concat(' ', @rel, ' '), ' alternate ')][{types}]")
        requests = list(response.follow_all(links, meta={"feed_link": True}))
        if not requests:
            self.logger.warning("%s is not a feed and links to none: ignored", response.url)
        return requests
