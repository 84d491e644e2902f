"""Spiders for feeds: nodes of XML, rows of CSV, and RSS 2.0 with its ancestors, RSS 1.0, and Atom (RFC 4287).

feedparser 6.0 is not used though it knows more dialects: it parses a whole feed at once and without bounds, 0.32 ms an
entry (0.04 here), so that one of 32 MiB would stop the crawl for half a minute; and it removes scripts and attributes
from the HTML of entries. Public through :mod:`trawl.spiders`, the only importer.
"""

from __future__ import annotations

import csv
import inspect
import io
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from copy import deepcopy
from datetime import UTC, date, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import trio
from lxml import etree

from trawl.http import Request, Response, join_url, kind_of, parse_date
from trawl.selectors import Selector, SelectorType, select
from trawl.spiders.sitemap_spider import since_utc
from trawl.spiders.spider import ItemT, Outputs, Spider, is_async, iterate, iterate_async
from trawl.spiders.xml_stream import GzipBody, XmlStream, local_name

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

__all__ = ["CSVFeedSpider", "Enclosure", "FeedEntry", "FeedSpider", "WebFeed", "XMLFeedSpider"]

_ROOTS = frozenset({"rss", "RDF", "feed"})
_ENTRIES = frozenset({"item", "entry"})
_FEED_TYPES = ("application/rss+xml", "application/atom+xml")
_MAX_PARTS = 10_000  # children of one entry that are read
_LONGEST_NUMBER = 18  # digits
_LONGEST_TIME = 100  # characters
_BASE = "{http://www.w3.org/XML/1998/namespace}base"

_T = TypeVar("_T")

LONGEST_ROW = 1_000_000  # characters; a longer row of a CSV file is skipped
MAX_TOLD = 100  # skipped rows of one file that are logged
NODES_A_TURN = 100  # nodes or rows after which other tasks run: a file may have millions without any output


class _RecordSpider(Spider[ItemT]):
    """The base of the spiders for XML nodes and CSV rows: a hook before the records and one after each."""

    def adapt_response(self, response: Response) -> Response:
        """Return the response to parse. Override it to repair a broken file."""
        return response

    def process_results(self, response: Response, results: Any) -> Any:
        """Return the outputs of a record, given as one list. Override it to change or drop some."""
        return results

    async def _outputs(
        self, response: Response, records: Iterable[_T | None], parse: Callable[[Response, _T], Any]
    ) -> AsyncGenerator[Any, None]:
        """Yield what ``parse`` gives for each record; None stands for one that is skipped."""
        sees_results = type(self).process_results is not _RecordSpider.process_results
        for count, record in enumerate(records):
            if not count % NODES_A_TURN:
                await trio.lowlevel.checkpoint()
            if record is None:
                continue
            result = parse(response, record)
            if sees_results:
                result = self.process_results(response, [output async for output in iterate_async(result)])
            async with aclosing(iterate_async(result)) as outputs:
                async for output in outputs:
                    yield output  # noqa: ASYNC119 - who reads this closes it

    def _outputs_of(self, response: Response, results: Iterable[Any]) -> Iterator[Any]:
        """Yield the outputs of several records, all of plain methods."""
        for result in results:
            if is_async(result):
                if inspect.iscoroutine(result):
                    result.close()  # or Python complains that nobody awaited it
                name = type(self).__name__
                raise TypeError(f"{name}: an async method can't be called in a loop of your own: write a plain one")
            yield from iterate(self.process_results(response, list(iterate(result))))


class XMLFeedSpider(_RecordSpider[ItemT]):
    """Calls :meth:`parse_node` with each node of one name in an XML file, which is parsed as a whole.

    Attributes:
        iterator: ``"html"`` parses broken XML as HTML; ``"iternodes"`` and ``"xml"`` mean the same. In a moved spider
            ``"iternodes"`` makes each node a document of its own, so that ``//title`` finds only what is in it.
        itertag: The name of the nodes: with a prefix of ``namespaces``, or of the file's, or without for any namespace.
            In a moved spider one without is in no namespace, as in Scrapy.
        namespaces: Pairs of prefix and namespace, for ``itertag`` and the queries in :meth:`parse_node`.
    """

    iterator: str = "iternodes"
    itertag: str = "item"
    namespaces: Sequence[tuple[str, str]] = ()

    def parse_node(self, response: Response, selector: Selector) -> Any:
        """Handle a node; must be overridden."""
        raise NotImplementedError(f"{type(self).__name__} has no parse_node()")

    def parse_nodes(self, response: Response, nodes: Iterable[Selector]) -> Any:
        """Return the outputs for all nodes of a file. Override it to see them together; each node is parsed in turn."""
        return self._outputs_of(response, (self.parse_node(response, node) for node in nodes))

    def _parse(self, response: Response, **kwargs: Any) -> Any:
        response = self.adapt_response(response)
        nodes = self._nodes(response)
        if type(self).parse_nodes is not XMLFeedSpider.parse_nodes:
            return self.parse_nodes(response, nodes)
        return self._outputs(response, nodes, self.parse_node)

    def _nodes(self, response: Response) -> Iterator[Selector]:
        kind: SelectorType = "html" if self.iterator == "html" else "xml"
        page = select(response.text, kind, response.url)
        for prefix, namespace in self.namespaces:
            page.register_namespace(prefix, namespace)
        prefix, colon, _ = self.itertag.partition(":")
        if colon and prefix not in page.namespaces and (found := _namespace(page, prefix)):
            page.register_namespace(prefix, found)
        is_moved = self.settings["SCRAPY_COMPAT"]
        is_exact = bool(colon) or is_moved
        query = f"//{self.itertag}" if is_exact else f"//*[local-name()='{self.itertag}']"
        # Elements, of which there may be a million: each becomes a selector in its turn.
        for element in page.root.xpath(query, namespaces=page.namespaces):
            root = deepcopy(element) if is_moved and self.iterator == "iternodes" else element
            yield Selector(root=root, type=page.type, namespaces=page.namespaces)


def _namespace(page: Selector, prefix: str) -> str | None:
    """Return the namespace that a file itself gives a prefix, in whichever element."""
    found = page.root.xpath("//namespace::*[name()=$prefix]", prefix=prefix)
    return str(found[0][1]) if found else None


class CSVFeedSpider(_RecordSpider[ItemT]):
    """Calls :meth:`parse_row` with each row of a CSV file, as a dictionary.

    A row with more or fewer fields than the header, or with more than a million characters, is logged and skipped.

    Attributes:
        delimiter: The separator of fields; None: a comma.
        quotechar: The quote around fields; None: ``"``.
        headers: The names of the fields; None: taken from the first row.
    """

    delimiter: str | None = None
    quotechar: str | None = None
    headers: Sequence[str] | None = None

    def parse_row(self, response: Response, row: dict[str, str]) -> Any:
        """Handle a row; must be overridden."""
        raise NotImplementedError(f"{type(self).__name__} has no parse_row()")

    def parse_rows(self, response: Response) -> Any:
        """Return the outputs for all rows of a file. Override it to see them together; each row is parsed in turn."""
        rows = (row for row in self._rows(response) if row is not None)
        return self._outputs_of(response, (self.parse_row(response, row) for row in rows))

    def _parse(self, response: Response, **kwargs: Any) -> Any:
        response = self.adapt_response(response)
        if type(self).parse_rows is not CSVFeedSpider.parse_rows:
            return self.parse_rows(response)
        return self._outputs(response, self._rows(response), self.parse_row)

    def _rows(self, response: Response) -> Iterator[dict[str, str] | None]:
        """Yield the rows, and None for each skipped one."""
        lines = _Lines(response.text.lstrip("\ufeff"))
        rows = csv.reader(lines, delimiter=self.delimiter or ",", quotechar=self.quotechar or '"')
        names = list(self.headers or ())
        left_out = 0
        while True:
            lines.characters = 0
            wrong = ""
            try:
                row = next(rows)
            except StopIteration:
                break
            except csv.Error as error:  # the reader goes on with the next line
                row, wrong = [], str(error)
            if names and row and len(row) != len(names):
                wrong = f"{len(row)} fields, not {len(names)}"
            if wrong:
                left_out += 1
                if left_out <= MAX_TOLD:
                    self.logger.warning("%s, line %d: %s", response.url, rows.line_num, wrong)
            yield dict(zip(names, row, strict=True)) if names and row and not wrong else None
            names = names or row
        if left_out > MAX_TOLD:
            self.logger.warning("%s: %d rows were skipped", response.url, left_out)


class _Lines:
    """The lines of a text for the CSV reader, which takes as many as a row has.

    Attributes:
        characters: The characters taken; set it to 0 for the next row.
    """

    def __init__(self, text: str) -> None:
        self._lines = io.StringIO(text, newline="")
        self.characters: int = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        """Return the next line.

        Raises:
            csv.Error: The row is too long.
        """
        line = next(self._lines)
        self.characters += len(line)
        if self.characters > LONGEST_ROW:
            raise csv.Error(f"a row of more than {LONGEST_ROW} characters")
        return line


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
