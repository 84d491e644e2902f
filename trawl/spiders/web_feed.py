"""The entries of RSS 2.0 and its earlier versions, of RSS 1.0, and of Atom (RFC 4287).

An element is read if it has the entry's own namespace or the namespace of one of a few well-known extensions. The
namespaces of all RSS formats are treated as one namespace, because feeds mix them.

feedparser 6.0 knows more dialects, but it parses a whole feed in one call and without limits. It takes 0.32 ms per
entry (this module: 0.08 ms), so a feed of 32 MiB would block the crawl for half a minute. It also removes scripts and
attributes from the HTML of entries.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

import attrs
from lxml import etree

from trawl.http import join_url, parse_date
from trawl.spiders.xml_stream import GzipBody, XmlStream, local_name, namespace_of

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

__all__ = ["FEED_ROOTS", "Enclosure", "FeedEntry", "WebFeed"]

FEED_ROOTS = frozenset({"rss", "RDF", "feed", "Channel"})  # local names of the outermost elements of RSS and Atom
_ENTRIES = frozenset({"item", "entry"})
_MAX_PARTS = 10_000  # maximum number of child elements that are read from one entry
_LONGEST_NUMBER = 18  # digits
_LONGEST_TIME = 100  # characters
_BASE = "{http://www.w3.org/XML/1998/namespace}base"
_ABOUT = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}about"
_RELATIONS = "http://www.iana.org/assignments/relation/"
_XHTML = "http://www.w3.org/1999/xhtml"

_RSS = frozenset(
    {
        "",
        "http://purl.org/rss/1.0/",
        "http://purl.org/net/rss1.1#",
        "http://my.netscape.com/rdf/simple/0.9/",
        "http://channel.netscape.com/rdf/simple/0.9/",
        "http://my.netscape.com/publish/formats/rss-0.91.dtd",
        "http://backend.userland.com/rss",
        "http://backend.userland.com/rss2",
        "http://backend.userland.com/RSS2",
        "http://blogs.law.harvard.edu/tech/rss",
    }
)

_PREFIXES = {
    "http://www.w3.org/2005/atom": "atom:",
    "http://purl.org/atom/ns#": "atom:",
    "http://purl.org/dc/elements/1.0/": "dc:",
    "http://purl.org/dc/elements/1.1/": "dc:",
    "http://purl.org/dc/terms/": "dcterms:",
    "http://purl.org/rss/1.0/modules/content/": "content:",
    "http://www.itunes.com/dtds/podcast-1.0.dtd": "itunes:",
    _XHTML: "xhtml:",
}


@attrs.frozen
class Enclosure:
    """A file that belongs to an entry, for example the audio of a podcast.

    Attributes:
        url: Absolute URL of the file.
        type: Media type according to the feed, or "".
        length: Size in bytes according to the feed, or 0.
    """

    url: str
    type: str = ""
    length: int = 0


@attrs.frozen(kw_only=True)
class FeedEntry:
    """One entry of a feed, which can be used as an item.

    Attributes:
        url: Absolute URL of the entry's page, or "".
        title: Title, as in the feed.
        id: Id in the feed; the URL if the entry has no id.
        published_utc: Time of publication; None if it is missing or can't be parsed.
        updated_utc: Time of the last change; the time of publication if the entry has no such time.
        author: Author, or "".
        summary: Short text, often HTML.
        content: Full text, mostly HTML; "" if the feed has only a summary.
        categories: Subjects.
        enclosures: Files.
        feed_url: URL of the feed.
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
    """An iterator over the entries of a feed. The feed is parsed once, during the iteration."""

    def __init__(self, body: bytes, url: str, *, max_bytes: int, content_type: str | None = None) -> None:
        """Read the start of the feed at ``url``, up to ``max_bytes`` after decompression."""
        self.xml: XmlStream = XmlStream(GzipBody(body, max_bytes), _ENTRIES, url, content_type)
        self._url = url
        self.is_feed: bool = self.xml.root in FEED_ROOTS
        self.count: int = 0  # number of entries read so far

    @property
    def pieces(self) -> int:
        """Number of pieces parsed so far. Let other tasks run each time this number increases."""
        return self.xml.pieces

    def __iter__(self) -> Iterator[FeedEntry]:
        if self.is_feed:
            for element in self.xml:
                if _is_entry(element):
                    self.count += 1
                    yield self._entry(element)

    def _entry(self, element: Element) -> FeedEntry:
        base = _base_of(element, self._url)
        parts = _Elements(element)
        published = parts.time("pubDate", "published", "issued", "dcterms:issued", "dc:date", "date", "atom:published")
        enclosures = [(_joined(base, part.get("url")), part) for part in parts.all("enclosure")]
        enclosures += [(_href(part, base), part) for part in parts.links("enclosure")]
        about = (element.get(_ABOUT) or "").strip()
        url = _link_of(parts, base) or _joined(base, about if "://" in about else "")
        return FeedEntry(
            url=url,
            title=parts.first("title", "dc:title"),
            id=parts.first("guid", "id") or about or parts.first("atom:id", "dc:identifier") or url,
            published_utc=published,
            updated_utc=parts.time("updated", "modified", "atom:updated", "dcterms:modified") or published,
            author=_author_of(parts),
            summary=parts.first("description", "summary", "dc:description", "atom:summary", "itunes:summary"),
            content=parts.first("content:encoded", "content", "atom:content", "xhtml:body"),
            categories=tuple(
                name
                for part in parts.all("category", "dc:subject", "atom:category")
                if (name := str(part.get("term") or _text(part)))
            ),
            enclosures=tuple(
                Enclosure(address, part.get("type", ""), _whole(part.get("length")))
                for address, part in enclosures
                if address
            ),
            feed_url=self._url,
        )


def _is_entry(element: Element) -> bool:
    """Return whether an element is an entry, and not an element of an extension with the same local name."""
    namespace, outer = namespace_of(element), element.getparent()
    if namespace in _RSS or _PREFIXES.get(namespace.lower()) == "atom:":
        return True
    return outer is None or namespace == namespace_of(outer) or local_name(outer) == "RDF"


def _base_of(element: Element, base: str) -> str:
    for outer in (*reversed([*element.iterancestors()]), element):
        base = _joined(base, outer.get(_BASE)) or base
    return base


class _Elements:
    """The child elements of an entry by name. The names of elements from extensions have a prefix."""

    def __init__(self, element: Element) -> None:
        own = namespace_of(element)
        self._parts: dict[str, list[Element]] = {}
        for part in islice(element, _MAX_PARTS):
            namespace = namespace_of(part)
            is_own = namespace == own or (namespace in _RSS and own in _RSS)
            prefix = "" if is_own else _PREFIXES.get(namespace.lower())
            if prefix is not None:
                self._parts.setdefault(prefix + local_name(part), []).append(part)

    def all(self, *names: str) -> list[Element]:
        return [part for name in names for part in self._parts.get(name, ())]

    def links(self, relation: str) -> list[Element]:
        """Return Atom's links with a relation, which may be written as a URL (RFC 4287, section 4.2.7.2)."""
        links = (part for part in self.all("link", "atom:link") if part.get("href"))
        return [part for part in links if part.get("rel", "alternate").lower().removeprefix(_RELATIONS) == relation]

    def first(self, *names: str) -> str:
        """Return the first text that is not empty, in the order of ``names``; "" if there is none."""
        return next((text for part in self.all(*names) if (text := _text(part))), "")

    def time(self, *names: str) -> datetime | None:
        """Return the first text that is a time, in the order of ``names``; None if there is none."""
        return next((time for part in self.all(*names) if (time := _time(_text(part)))), None)


_CONTENT = re.compile(r"<[^>]*>(.*)</[^>]*>", re.DOTALL)


def _text(element: Element) -> str:
    """Return an element's text, or its markup without XHTML's outer ``div`` for XML content (RFC 4287, 4.1.3.3)."""
    if not len(element):
        return (element.text or "").strip()
    kind = element.get("type", "")
    is_markup = kind == "xhtml" or kind.endswith(("/xml", "+xml")) or namespace_of(element) == _XHTML
    if not is_markup:
        return "".join(str(text) for text in element.itertext()).strip()
    is_in_div = kind == "xhtml" and len(element) == 1 and local_name(element[0]) == "div"
    outer = element[0] if is_in_div else element
    for part in outer.iter(f"{{{_XHTML}}}*"):
        part.tag = local_name(part)
    found = _CONTENT.fullmatch(etree.tostring(outer, encoding="unicode", with_tail=False))
    return found[1].strip() if found else ""


def _href(link: Element, base: str) -> str:
    return _joined(_joined(base, link.get(_BASE)) or base, link.get("href"))


def _link_of(parts: _Elements, base: str) -> str:
    """Return the URL of an entry's page. Links in the entry's own format take precedence over links from extensions."""
    links = parts.links("alternate")
    own = [part for part in links if part in parts.all("link")]
    text = parts.first("link")
    if own or (links and not text):
        return _href((own or links)[0], base)
    guids = [_text(part) for part in parts.all("guid") if part.get("isPermaLink", "true").lower() == "true"]
    return _joined(base, text or next((guid for guid in guids if "://" in guid), ""))


def _author_of(parts: _Elements) -> str:
    for author in parts.all("author", "atom:author"):
        names = [_text(part) for part in author if local_name(part) == "name"]
        if found := next(iter(names), "") or _text(author):
            return found
    return parts.first("dc:creator", "itunes:author")


def _joined(base: str, address: str | None) -> str:
    try:
        return join_url(base, address.strip()) if address else ""
    except ValueError:
        return ""


def _whole(text: str | None) -> int:
    return int(text) if text and len(text) <= _LONGEST_NUMBER and text.strip().isdecimal() else 0


_HALF_DAY = re.compile(r"(?<![:.\d])(\d{1,2})(:\d\d(?::\d\d(?:\.\d+)?)?)?\s*([ap])(?:m\b|\.m\.)", re.IGNORECASE)
_DAY = re.compile(r"[^:]*\d{4}")
_TIME_OF_DAY = re.compile(
    r"([^:]*?\d{1,2}:\d\d(?::\d\d)?)(?:\.\d+)?"
    r"\s*(?:(?:GMT|UTC)?\s*([+-]\d\d):?(\d\d)(?:\s+[a-z]{1,5})?|([a-z]+))?"  # the zone
    r"\s*(\d{4})?\s*(?:\([^)]*\))?",  # the year, and a comment
    re.IGNORECASE,
)
_ZONE_AFTER_ISO = re.compile(r"((?::\d\d){1,2}(?:\.\d+)?)\s*([+-]\d\d:?\d\d)?\s*([a-z]{1,5})", re.IGNORECASE)
_HOURS_OF_ZONES = {"EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7}

_ZONES = {name: f"{hours:+03}00" for name, hours in _HOURS_OF_ZONES.items()} | dict.fromkeys(
    ("UT", "UTC", "GMT", "Z"), "+0000"
)
"""Offsets of named zones (RFC 5322, section 4.3). Other single letters are unknown zones, because they have been used
with either sign.
"""

_PART_OF_YEAR = re.compile(r"\d{4}(?:-\d\d)?")
_DAY_LENGTH = len("2024-05-01")
_NOON = 12
_LEAP_SECOND = re.compile(r"(:\d\d):60(?!\d)")  # RFC 5322, 3.3; RFC 3339, 5.7


def _time(text: str) -> datetime | None:
    """Return a time from RSS (RFC 5322) or Atom (RFC 3339) in UTC; None if it is not a time, or its zone is unknown.

    Both formats may have a 12-hour clock with ``AM`` or ``PM``, and named zones.
    """
    if len(text) > _LONGEST_TIME:
        return None
    text = _of_24_hours(_LEAP_SECOND.sub(r"\1:59", text))
    if not text[:4].isdecimal():
        return _time_of_rss(text)
    try:
        if _PART_OF_YEAR.fullmatch(text):
            text = f"{text}-01-01"[:_DAY_LENGTH]
        if text[_DAY_LENGTH : _DAY_LENGTH + 1] not in {"", "T", "t", " "}:
            return None
        if zone := _ZONE_AFTER_ISO.fullmatch(text, _DAY_LENGTH + len("T10")):
            text = text[: zone.end(1)] + (zone[2] or _ZONES.get(zone[3].upper(), zone[3]))
        time = datetime.fromisoformat(text.upper())
        return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).astimezone(UTC)
    # For example, the first hours of the year 1 in a zone east of Greenwich can't be converted to UTC.
    except (ValueError, OverflowError):
        return None


def _of_24_hours(text: str) -> str:
    """Return ``text`` with its hour on the 24-hour clock; unchanged if it has no ``AM`` or ``PM``."""
    half = _HALF_DAY.search(text)
    if half is None or not 1 <= (hour := int(half[1])) <= _NOON:
        return text
    hour = hour % _NOON + (_NOON if half[3] in "pP" else 0)
    return f"{text[: half.start()]}{hour:02}{half[2] or ':00'}{text[half.end() :]}"


def _time_of_rss(text: str) -> datetime | None:
    if _DAY.fullmatch(text):
        return parse_date(f"{text} 00:00 GMT")
    found = _TIME_OF_DAY.fullmatch(text)
    if found is None:
        return None
    offset = f"{found[2]}{found[3]}" if found[2] else _ZONES.get((found[4] or "UT").upper())
    return None if offset is None else parse_date(f"{found[1]} {offset} {found[5] or ''}".strip())
