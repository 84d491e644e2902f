"""A spider for the pages listed in a site's sitemaps (sitemaps.org)."""

from __future__ import annotations

import calendar
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from itertools import islice
from typing import Any

import trio

from trawl.errors import UsageError
from trawl.http import Request, Response
from trawl.http.content import decode_pieces
from trawl.spiders.spider import ItemT, OutputIterable, Spider, check_urls, warn
from trawl.spiders.web_feed import FEED_ROOTS, WebFeed
from trawl.spiders.xml_stream import GzipBody, XmlStream, local_name, namespace_of

__all__ = ["Sitemap", "SitemapSpider", "parse_lastmod", "since_utc", "sitemaps_in_robots"]

ROBOTS_CHARACTERS = 512_000  # maximum number of characters read from a robots.txt; RFC 9309, 2.5, requires 500 KiB
_MAX_PARTS = 10_000  # maximum number of child elements that are read from one entry
_LONGEST_LINE = 65_536  # maximum number of characters read from a line; no real URL is longer
# Maximum number of characters of blank lines in a text file. A file with more is treated as too long.
_MAX_BLANK = 1_048_576
_LINE = re.compile("[^\\s\ufeff][^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]*")  # lines end as in str.splitlines()
_START_BYTES = 4_096  # enough to recognize the kind of a file
_MARKS = b"\xef\xbb\xbf\xfe\xff\0 \t\r\n\f\v"  # bytes that may precede the first character, in any encoding
_KINDS = frozenset({"urlset", "sitemapindex"})
_DATE = re.compile(r"(\d{4})(?:-(\d\d)(?:-(\d\d))?)?")
_DEPTH = "sitemap_depth"
_Pattern = str | re.Pattern[str]


class Sitemap:
    """An iterator over the entries of one file. The file is parsed once, during the iteration.

    An entry is a dictionary with ``loc`` and optionally ``lastmod``, ``changefreq``, ``priority`` and ``alternate``, a
    list of the page's URLs in other languages. ``type`` is ``urlset`` for a list of pages (also for RSS and Atom),
    ``sitemapindex`` for a list of sitemaps, or "" for a file that is not a sitemap.
    """

    def __init__(
        self,
        body: bytes,
        *,
        max_bytes: int,
        max_entries: int,
        is_text: bool = False,
        content_type: str | None = None,
        url: str = "",
    ) -> None:
        """Read the start of a file, which may be gzip. ``max_bytes`` are counted after decompression.

        If ``is_text`` is true, the file may have one URL per line instead of XML, even if its first line is not a URL.
        Links in RSS and Atom are relative to ``url``.
        """
        self._unpacked = GzipBody(body, max_bytes)
        self._max_entries = max_entries
        self._has_too_many = False
        self._pieces = 0
        self.count: int = 0  # number of entries read so far
        self.other_lines: int = 0  # number of lines of text that are not URLs
        self._content_type = content_type
        self._xml: XmlStream | None = None
        self._feed: WebFeed | None = None
        start = b"".join(GzipBody(body, _START_BYTES))
        first = start.lstrip(_MARKS).replace(b"\0", b"")
        if not first.startswith(b"<") and (is_text or first[:8].lower().startswith((b"http://", b"https://"))):
            if b"\0" in start[:2]:  # the file is UTF-16 without a byte order mark
                self._content_type = f"text/plain; charset=utf-16{'be' if start[0] == 0 else 'le'}"
            self.type: str = "urlset"
            return
        self._xml = XmlStream(self._unpacked, frozenset({"url", "sitemap"}), content_type=content_type)
        self.type = self._xml.root if self._xml.root in _KINDS else ""
        if self._xml.root in FEED_ROOTS:
            self.type = "urlset"
            self._feed = WebFeed(body, url, max_bytes=max_bytes, content_type=content_type)
            self._xml = self._feed.xml
            self._unpacked = self._xml.unpacked

    @property
    def problem(self) -> str:
        """The reason why the file was not read completely, as the end of a sentence; "" if it was read completely."""
        if self._has_too_many:
            return f"is longer than {self._max_entries} entries"
        return self._unpacked.problem if self._xml is None else self._xml.problem

    @property
    def pieces(self) -> int:
        """Number of pieces parsed so far. Let other tasks run each time this number increases."""
        return self._pieces if self._xml is None else self._xml.pieces

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if not self.type:
            return
        for count, entry in enumerate(self._entries()):
            if count >= self._max_entries:
                self._has_too_many = True
                return
            self.count = count + 1
            yield entry

    def _entries(self) -> Iterator[dict[str, Any]]:
        if self._feed is not None:
            return self._of_feed(self._feed)
        return self._lines() if self._xml is None else self._elements(self._xml)

    def _of_feed(self, feed: WebFeed) -> Iterator[dict[str, Any]]:
        for entry in feed:
            if entry.url:
                changed = entry.updated_utc
                yield {"loc": entry.url} if changed is None else {"loc": entry.url, "lastmod": changed.isoformat()}

    def _lines(self) -> Iterator[dict[str, Any]]:
        held, blank = "", 0
        for piece in decode_pieces(self._unpacked, self._content_type):
            self._pieces += 1
            blank += len(piece)
            if blank > _MAX_BLANK:
                self._unpacked.is_cut = True
                return
            text = held + piece
            held = ""
            for line in _LINE.finditer(text):
                if line.end() == len(text):  # the line may continue in the next piece
                    held = line[0][:_LONGEST_LINE]
                    break
                blank = 0
                yield from self._address(line[0])
        yield from self._address(held)

    def _address(self, line: str) -> Iterator[dict[str, Any]]:
        """Yield the entry of a line if the line is an absolute URL, because the protocol allows no relative URLs."""
        if "://" in line:
            yield {"loc": line.strip()}
        elif line.strip():
            self.other_lines += 1

    def _elements(self, xml: XmlStream) -> Iterator[dict[str, Any]]:
        for element in xml:
            outer, namespace = element.getparent(), namespace_of(element)
            if namespace and outer is not None and namespace != namespace_of(outer) and "sitemap" not in namespace:
                continue  # the element belongs to an extension
            entry: dict[str, Any] = {}
            for part in islice(element, _MAX_PARTS):
                name = local_name(part)
                if name == "link":
                    if href := part.get("href"):
                        entry.setdefault("alternate", []).append(href.strip())
                elif name and not len(part) and namespace_of(part) in {"", namespace}:
                    entry.setdefault(name, (part.text or "").strip())
            if entry.get("loc"):
                yield entry


def sitemaps_in_robots(text: str) -> Iterator[str]:
    """Yield the URLs in the ``Sitemap`` lines of a robots.txt, as written."""
    for line in text[:ROBOTS_CHARACTERS].splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip().lstrip("\ufeff").lower() == "sitemap" and (address := value.split("#")[0].strip()):
            yield address


def parse_lastmod(written: str | date) -> datetime | None:
    """Return the last time that a date in W3C's format can mean, so that no change is missed; None if invalid."""
    if isinstance(written, date) and not isinstance(written, datetime):
        written = written.isoformat()
    if isinstance(written, str):
        try:
            day = _DATE.fullmatch(written.strip())
            if day is None:
                written = datetime.fromisoformat(written.strip())
            else:
                year, month = int(day[1]), int(day[2] or 12)
                last = int(day[3] or calendar.monthrange(year, month)[1])
                written = datetime(year, month, last, 23, 59, 59, 999_999, tzinfo=UTC)
        except (ValueError, calendar.IllegalMonthError):
            return None
    return written if written.tzinfo is not None else written.replace(tzinfo=UTC)


def since_utc(spider: str, attribute: str, value: str | date | None) -> datetime | None:
    """Return an attribute's date or time (ISO 8601) as an aware datetime (default: UTC); None if it is empty."""
    if not value:
        return None
    try:
        begun = datetime.fromisoformat(value.isoformat() if isinstance(value, date) else value)
    except ValueError as error:
        raise UsageError(f"{spider}: {attribute}: {value!r} is not a date or time in ISO 8601") from error
    return begun if begun.tzinfo is not None else begun.replace(tzinfo=UTC)


class SitemapSpider(Spider[ItemT]):
    """Fetches the pages listed in sitemaps, in indexes of sitemaps, and in sitemaps that robots.txt files name.

    Files may be XML, text with one URL per line, RSS or Atom, and may be compressed with gzip. They are parsed in
    pieces, with limits. The sitemaps of an index are fetched after the pages that are already known. So even for a site
    with millions of pages, only some of the URLs are in memory at the same time.

    Attributes:
        sitemap_urls: The sitemaps, indexes or robots.txt files to start with.
        sitemap_rules: Pairs of a regular expression and a callback (or its name). The first expression that is found in
            a page's URL determines the callback of the page.
        sitemap_follow: Regular expressions. Sitemaps of an index are read only if one of them matches their URL.
        sitemap_alternate_links: Whether pages in other languages (``<xhtml:link rel="alternate">``) are fetched.
        sitemap_modified_since: A datetime, a date or a string (``2024-05-01``), in UTC by default. Entries whose last
            change was earlier are skipped. Entries without a time are kept.
        sitemap_max_bytes: Maximum number of bytes read from one file, after decompression. The protocol allows 50 MiB.
        sitemap_max_entries: Maximum number of entries read from one file. The protocol allows 50,000.
        sitemap_max_depth: Maximum depth of nested indexes. The protocol does not allow nesting.
    """

    sitemap_urls: Sequence[str] = ()
    sitemap_rules: Sequence[tuple[_Pattern, str | Callable[..., Any]]] = (("", "parse"),)
    sitemap_follow: Sequence[_Pattern] = ("",)
    sitemap_alternate_links: bool = False
    sitemap_modified_since: str | date | None = None
    sitemap_max_bytes: int = 128 * 1024 * 1024
    sitemap_max_entries: int = 500_000
    sitemap_max_depth: int = 5

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._callbacks: list[tuple[re.Pattern[str], Callable[..., Any]]] = [
            (self._compiled(f"sitemap_rules[{i}]", pattern), self._method(f"sitemap_rules[{i}]", callback))
            for i, (pattern, callback) in enumerate(self.sitemap_rules)
        ]
        self._follow: list[re.Pattern[str]] = [
            self._compiled(f"sitemap_follow[{i}]", pattern) for i, pattern in enumerate(self.sitemap_follow)
        ]
        since = self.sitemap_modified_since
        self._since: datetime | None = since_utc(self.name, "sitemap_modified_since", since)

    def check(self) -> None:
        """Check the sitemap URLs in the same way as start URLs; raise UsageError if a URL can't be fetched."""
        super().check()
        check_urls(self.name, "sitemap_urls", self.sitemap_urls)

    def start_requests(self) -> Iterable[Any]:
        """Yield the requests for ``sitemap_urls``."""
        for url in self.sitemap_urls:
            yield Request(url, self._parse_sitemap)

    def sitemap_filter(self, entries: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
        """Return the entries to use.

        ``entries.type`` shows whether these are pages or sitemaps. Override this method to select entries.

        Other tasks of the crawl run between the yielded entries, but not while this method searches for the next entry.
        """
        return entries

    def _get_sitemap_body(self, response: Response) -> bytes | None:
        """Return the file to parse. The name is Scrapy's. Spiders override the method to unpack other formats."""
        return response.body

    def _parse_sitemap(self, response: Response) -> Any:
        return OutputIterable(self._outputs(response), self._in_turns)

    async def _in_turns(self, outputs: Iterator[Request | None]) -> AsyncGenerator[Request, None]:
        """Yield the requests, and execute a checkpoint for each None, so that other tasks run."""
        for output in outputs:
            if output is None:
                await trio.lowlevel.checkpoint()
            else:
                yield output

    def _outputs(self, response: Response) -> Iterator[Request | None]:
        """Yield the requests for the entries of a file, and None after each piece without a request."""
        depth = response.meta.get(_DEPTH, 0) if response.request is not None else 0
        if response.url.partition("?")[0].endswith("/robots.txt"):
            named = self._sitemaps(response, sitemaps_in_robots(response.text), depth)
            yield from (request for request in named if request is not None)
            return
        sitemap = self._opened(response)
        if not sitemap.type:
            warn(self, response, " is not a sitemap: ignored")
            return
        pieces = sitemap.pieces
        for each in self._requests(response, sitemap, depth):
            if sitemap.pieces > pieces:  # yield None, because any number of entries may have no request
                pieces = sitemap.pieces
                yield None
            if each is not None:
                yield each
        if sitemap.other_lines:
            warn(self, response, ": %d lines that are not whole URLs are ignored", sitemap.other_lines)
        if problem := sitemap.problem:
            warn(self, response, " %s: only its first %d entries were read", problem, sitemap.count)

    def _requests(self, response: Response, sitemap: Sitemap, depth: int) -> Iterator[Request | None]:
        """Yield the requests for a file's entries, and None for each entry without a request."""
        addresses = self._addresses(self.sitemap_filter(sitemap))
        if sitemap.type == "sitemapindex":
            wanted = (url if url and any(each.search(url) for each in self._follow) else None for url in addresses)
            yield from self._sitemaps(response, wanted, depth + 1)
        else:
            yield from self._pages(response, addresses)

    def _opened(self, response: Response) -> Sitemap:
        content_type = response.headers.get("content-type", "")
        path = response.url.partition("?")[0].lower()
        is_text = content_type.lower().startswith("text/plain") or path.endswith((".txt", ".txt.gz"))
        return Sitemap(
            self._get_sitemap_body(response) or b"",
            max_bytes=self.sitemap_max_bytes,
            max_entries=self.sitemap_max_entries,
            is_text=is_text,
            content_type=content_type,
            url=response.url,
        )

    def _sitemaps(self, response: Response, addresses: Iterable[str | None], depth: int) -> Iterator[Request | None]:
        if depth > self.sitemap_max_depth:
            warn(self, response, ": an index at depth %d is not followed", depth)
            return
        for address in addresses:
            request = None if address is None else self._request(response, address, self._parse_sitemap)
            if request is not None:
                request.meta[_DEPTH] = depth
                request.priority = -1
            yield request

    def _pages(self, response: Response, addresses: Iterable[str | None]) -> Iterator[Request | None]:
        for address in addresses:
            found = (callback for pattern, callback in self._callbacks if address and pattern.search(address))
            callback = next(found, None)
            yield None if address is None or callback is None else self._request(response, address, callback)

    def _request(self, response: Response, address: str, callback: Callable[..., Any]) -> Request | None:
        try:
            return Request(address, callback, base=response.url)
        except ValueError:
            warn(self, response, " contains %r, which is not a URL: ignored", address)
            return None

    def _addresses(self, entries: Iterable[dict[str, Any]]) -> Iterator[str | None]:
        since = self._since
        for entry in entries:
            if since and (changed := parse_lastmod(entry.get("lastmod", ""))) and changed < since:
                yield None
                continue
            yield entry["loc"]
            if self.sitemap_alternate_links:
                yield from entry.get("alternate", ())

    def _compiled(self, what: str, pattern: _Pattern) -> re.Pattern[str]:
        try:
            return re.compile(pattern)
        except re.error as error:
            raise UsageError(f"{self.name}: {what}: {pattern!r} is not a regular expression: {error}") from error

    def _method(self, what: str, callback: str | Callable[..., Any]) -> Callable[..., Any]:
        method = getattr(self, callback, None) if isinstance(callback, str) else callback
        if not callable(method):
            raise UsageError(f"{self.name}: {what}: {type(self).__name__} has no method {callback!r}")
        return method
