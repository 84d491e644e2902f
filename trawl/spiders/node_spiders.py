"""Spiders for XML nodes and CSV rows. Public through :mod:`trawl.spiders`, the only importer."""

from __future__ import annotations

import csv
import inspect
import io
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from copy import deepcopy
from typing import Any, TypeVar

import trio

from trawl.http import Response
from trawl.selectors import Selector, SelectorType, select
from trawl.spiders.results import ItemT, is_async, iterate, iterate_async
from trawl.spiders.spider import Spider

__all__ = ["CSVFeedSpider", "XMLFeedSpider"]

_T = TypeVar("_T")

LONGEST_ROW = 1_000_000  # characters; a longer row of a CSV file is skipped
MAX_TOLD = 100  # skipped rows of one file that are logged
NODES_A_TURN = 100  # nodes or rows after which other tasks run: a file may have millions without any output


class _RecordSpider(Spider[ItemT]):
    """The base of both: a hook before the records and one after each."""

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
