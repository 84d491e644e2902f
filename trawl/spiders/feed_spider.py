"""Spiders for feeds: nodes of XML, rows of CSV, and RSS or Atom. Public through :mod:`trawl.spiders`."""

from __future__ import annotations

import csv
import inspect
import io
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from copy import deepcopy
from datetime import date, datetime
from typing import Any, TypeVar

import trio

from trawl.http import Request, Response, kind_of
from trawl.selectors import Selector, SelectorType, select
from trawl.spiders.sitemap_spider import since_utc
from trawl.spiders.spider import ItemT, Outputs, Spider, is_async, iterate, iterate_async, warn
from trawl.spiders.web_feed import Enclosure, FeedEntry, WebFeed
from trawl.spiders.xml_stream import local_name

__all__ = ["CSVFeedSpider", "Enclosure", "FeedEntry", "FeedSpider", "WebFeed", "XMLFeedSpider"]

_FEED_TYPES = ("application/rss+xml", "application/atom+xml")
_T = TypeVar("_T")
LONGEST_ROW = 1_000_000  # maximum number of characters of a CSV row; a longer row is skipped
MAX_TOLD = 100  # maximum number of skipped rows that are logged per file
NODES_A_TURN = 100  # number of nodes or rows after which other tasks run, even if there is no output


class _RecordSpider(Spider[ItemT]):
    """Base of the spiders for XML nodes and CSV rows, with hooks that run before the records and after each record."""

    def adapt_response(self, response: Response) -> Response:
        """Return the response to parse. Override this to repair a broken file."""
        return response

    def process_results(self, response: Response, results: Any) -> Any:
        """Return the outputs of a record, by default the list ``results``. An override may change or drop outputs."""
        return results

    async def _outputs(
        self, response: Response, records: Iterable[_T | None], parse: Callable[[Response, _T], Any]
    ) -> AsyncGenerator[Any, None]:
        """Yield the outputs of ``parse`` for each record. A record of None is skipped."""
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
                    yield output  # noqa: ASYNC119 - the reader closes this

    def _outputs_of(self, response: Response, results: Iterable[Any]) -> Iterator[Any]:
        """Yield the outputs of several records. Overridden methods must be plain methods, not ``async`` methods."""
        for result in results:
            if is_async(result):
                if inspect.iscoroutine(result):
                    result.close()  # otherwise, Python warns that the coroutine was never awaited
                name = type(self).__name__
                raise TypeError(f"{name}: an async method can't be called in your own loop: write a plain method")
            yield from iterate(self.process_results(response, list(iterate(result))))


class XMLFeedSpider(_RecordSpider[ItemT]):
    """Calls :meth:`parse_node` with each node of one name in an XML file. The file is parsed as a whole.

    Attributes:
        iterator: ``"html"`` parses broken XML as HTML. ``"iternodes"`` and ``"xml"`` parse the file as XML. They differ
            only in a moved spider, in which ``"iternodes"`` makes each node a separate document, so that ``//title``
            finds only titles inside of the node.
        itertag: The name of the nodes, with a prefix from ``namespaces`` or from the file. A name without a prefix
            matches any namespace. In a moved spider, it matches only nodes without a namespace, as in Scrapy.
        namespaces: Pairs of prefix and namespace, for ``itertag`` and the queries in :meth:`parse_node`.
    """

    iterator: str = "iternodes"
    itertag: str = "item"
    namespaces: Sequence[tuple[str, str]] = ()

    def parse_node(self, response: Response, selector: Selector) -> Any:
        """Process a node. Must be overridden."""
        raise NotImplementedError(f"{type(self).__name__} has no parse_node()")

    def parse_nodes(self, response: Response, nodes: Iterable[Selector]) -> Any:
        """Return the outputs for all nodes of a file. The nodes are parsed one by one.

        Override this if the spider needs all nodes together.
        """
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
        if kind == "xml" and not _has_ended(response.text, page.root):
            warn(self, response, " ends early: only what could be read of it is parsed")
        # Create selectors one at a time, because there may be a million elements.
        for element in page.root.xpath(query, namespaces=page.namespaces):
            root = deepcopy(element) if is_moved and self.iterator == "iternodes" else element
            yield Selector(root=root, type=page.type, namespaces=page.namespaces)


def _has_ended(text: str, root: Any) -> bool:
    """Return whether the last end tag belongs to the outermost element."""
    name = f"{root.prefix}:{local_name(root)}" if root.prefix else local_name(root)
    return not len(root) or text.startswith(name, text.rfind("</") + 2)


def _namespace(page: Selector, prefix: str) -> str | None:
    """Return the namespace of a prefix that any element of the file declares; None if there is none."""
    found = page.root.xpath("//namespace::*[name()=$prefix]", prefix=prefix)
    return str(found[0][1]) if found else None


class CSVFeedSpider(_RecordSpider[ItemT]):
    """Calls :meth:`parse_row` with each row of a CSV file, as a dictionary.

    A row with more or fewer fields than the header, or with more than a million characters, is logged and skipped.

    Attributes:
        delimiter: The separator of fields; None means a comma.
        quotechar: The quote around fields; None means ``"``.
        headers: The names of the fields; None if the first row contains them.
    """

    delimiter: str | None = None
    quotechar: str | None = None
    headers: Sequence[str] | None = None

    def parse_row(self, response: Response, row: dict[str, str]) -> Any:
        """Process a row. Must be overridden."""
        raise NotImplementedError(f"{type(self).__name__} has no parse_row()")

    def parse_rows(self, response: Response) -> Any:
        """Return the outputs for all rows of a file. The rows are parsed one by one.

        Override this if the spider needs all rows together.
        """
        rows = (row for row in self._rows(response) if row is not None)
        return self._outputs_of(response, (self.parse_row(response, row) for row in rows))

    def _parse(self, response: Response, **kwargs: Any) -> Any:
        response = self.adapt_response(response)
        if type(self).parse_rows is not CSVFeedSpider.parse_rows:
            return self.parse_rows(response)
        return self._outputs(response, self._rows(response), self.parse_row)

    def _rows(self, response: Response) -> Iterator[dict[str, str] | None]:
        """Yield the rows, and None for each skipped row."""
        lines = _Lines(response.text.lstrip("\ufeff"))
        rows = csv.reader(lines, delimiter=self.delimiter or ",", quotechar=self.quotechar or '"')
        names = list(self.headers or ())
        left_out = 0
        while True:
            lines.characters = 0
            wrong = ""
            # Restore the old limit below, because it applies to the whole process, and user code may have set it.
            others = csv.field_size_limit(LONGEST_ROW)
            try:
                row = next(rows)
            except StopIteration:
                break
            except csv.Error as error:  # skip the row; the reader continues with the next line
                row, wrong = [], str(error)
            finally:
                csv.field_size_limit(others)
            if lines.is_open:
                warn(self, response, " ends early: a quote is open since line %d", lines.start)
            if names and row and len(row) != len(names):
                wrong = f"{len(row)} fields, not {len(names)}"
            if wrong:
                left_out += 1
                if left_out <= MAX_TOLD:
                    warn(self, response, ", line %d: %s", rows.line_num, wrong)
            yield dict(zip(names, row, strict=True)) if names and row and not wrong else None
            names = names or row
        if left_out > MAX_TOLD:
            warn(self, response, ": %d rows were skipped", left_out)


class _Lines:
    """The lines of a text, as an iterator for the CSV reader, which may read several lines for one row."""

    def __init__(self, text: str) -> None:
        self._lines = io.StringIO(text, newline="")
        self._count = 0
        self.characters: int = 0  # read for the current row; the caller sets it to 0 before the next row
        self.start: int = 0  # line number of the first line of the current row
        self.is_open: bool = False  # whether the text ended inside of a row

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        """Return the next line; raise ``csv.Error`` if the row is too long."""
        line = next(self._lines, None)
        if line is None:
            self.is_open = self.characters > 0
            raise StopIteration
        self._count += 1
        self.start = self.start if self.characters else self._count
        self.characters += len(line)
        if self.characters > LONGEST_ROW:
            raise csv.Error(f"a row of more than {LONGEST_ROW} characters")
        return line


class FeedSpider(Spider[ItemT]):
    """Calls :meth:`parse_entry` with each entry of the RSS or Atom feeds at its start URLs.

    A start URL may also be a page. In this case, the spider reads the feeds that the page names in ``<link
    rel="alternate" type="application/rss+xml">``.

    Attributes:
        feed_since: A datetime, a date or a string (``2024-05-01``), in UTC by default. Entries whose last change was
            earlier are skipped. Entries without a time are kept.
        feed_max_bytes: Maximum number of bytes read from one feed.
        feed_max_entries: Maximum number of entries read from one feed.
    """

    feed_since: str | date | None = None
    feed_max_bytes: int = 32 * 1024 * 1024
    feed_max_entries: int = 10_000

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._since: datetime | None = since_utc(self.name, "feed_since", self.feed_since)

    def parse_entry(self, response: Response, entry: FeedEntry) -> Outputs[ItemT]:
        """Process an entry. By default, the entry is the item. Override this, for example, to follow ``entry.url``."""
        return entry  # type: ignore[return-value]  # without an override, entries are the items

    async def _parse(self, response: Response, **kwargs: Any) -> AsyncGenerator[Any, None]:
        content_type = response.headers.get("content-type")
        feed = WebFeed(response.body, response.url, max_bytes=self.feed_max_bytes, content_type=content_type)
        if not feed.is_feed:
            if kind_of(response) == "html" and response.meta.get("feed_link") is None:
                for request in self._named_by(response):
                    yield request
            else:
                warn(self, response, " is neither RSS nor Atom: ignored")
            return
        pieces = feed.pieces
        for count, entry in enumerate(feed):
            if feed.pieces > pieces:
                pieces = feed.pieces
                await trio.lowlevel.checkpoint()
            if count >= self.feed_max_entries:
                warn(self, response, ": more than %d entries are left out", self.feed_max_entries)
                return
            if self._since is not None and entry.updated_utc is not None and entry.updated_utc < self._since:
                continue
            async with aclosing(iterate_async(self.parse_entry(response, entry))) as outputs:
                async for output in outputs:
                    yield output  # noqa: ASYNC119 - the reader closes this
        if problem := feed.xml.problem:
            warn(self, response, " %s: only its first %d entries were read", problem, feed.count)

    def _named_by(self, response: Response) -> list[Request]:
        """Return requests for the feeds that a page links to."""
        types = " or ".join(f"@type='{kind}'" for kind in _FEED_TYPES)
        links = response.xpath(f"//link[contains(concat(' ', @rel, ' '), ' alternate ')][{types}]")
        requests = list(response.follow_all(links, meta={"feed_link": True}))
        if not requests:
            warn(self, response, " is not a feed and links to none: ignored")
        return requests
