"""Spiders for files of many records: XML by its nodes, CSV by its rows, as Scrapy has them."""

from __future__ import annotations

import csv
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Any

from trawl.http import Response
from trawl.selectors import Selector, SelectorType, select
from trawl.spiders.outputs import ItemT
from trawl.spiders.results import each_later
from trawl.spiders.spider import Spider

__all__ = ["CSVFeedSpider", "XMLFeedSpider"]


class _RecordSpider(Spider[ItemT]):
    """What both have in common: a hook before the records and one after each."""

    def adapt_response(self, response: Response) -> Response:
        """The response that is read: override it to mend a broken file before."""
        return response

    def process_results(self, response: Response, results: Any) -> Any:
        """What a record gave, as one list, on its way."""
        return results

    async def _outputs(self, response: Response, result: Any) -> AsyncGenerator[Any, None]:
        """The outputs of one record."""
        if type(self).process_results is not _RecordSpider.process_results:
            result = self.process_results(response, [output async for output in each_later(result)])
        async with aclosing(each_later(result)) as outputs:
            async for output in outputs:
                yield output  # noqa: ASYNC119 - who reads this closes it


class XMLFeedSpider(_RecordSpider[ItemT]):
    """Gives each node of a name in an XML file to :meth:`parse_node`. The file is parsed whole.

    Attributes:
        iterator: ``"html"`` reads broken XML as HTML; ``"iternodes"`` and ``"xml"`` mean the same.
        itertag: The name of the nodes, with a prefix of ``namespaces`` or without: then whatever their namespace is.
        namespaces: Pairs of a prefix and a namespace, for ``itertag`` and for the queries in :meth:`parse_node`.
    """

    iterator: str = "iternodes"
    itertag: str = "item"
    namespaces: Sequence[tuple[str, str]] = ()

    def parse_node(self, response: Response, selector: Selector) -> Any:
        """What becomes of a node; it has to be written."""
        raise NotImplementedError(f"{type(self).__name__} has no parse_node()")

    async def _parse(self, response: Response, **kwargs: Any) -> AsyncGenerator[Any, None]:
        response = self.adapt_response(response)
        kind: SelectorType = "html" if self.iterator == "html" else "xml"
        page = select(response.text, kind, response.url)
        for prefix, namespace in self.namespaces:
            page.register_namespace(prefix, namespace)
        query = f"//{self.itertag}" if ":" in self.itertag else f"//*[local-name()='{self.itertag}']"
        for node in page.xpath(query):
            async with aclosing(self._outputs(response, self.parse_node(response, node))) as outputs:
                async for output in outputs:
                    yield output  # noqa: ASYNC119 - who reads this closes it


class CSVFeedSpider(_RecordSpider[ItemT]):
    """Gives each row of a CSV file to :meth:`parse_row`, as a dictionary.

    A row with more or fewer fields than the header is logged and left out.

    Attributes:
        delimiter: Between fields; None: a comma.
        quotechar: Around fields; None: ``"``.
        headers: The names of the fields; None: the first row has them.
    """

    delimiter: str | None = None
    quotechar: str | None = None
    headers: Sequence[str] | None = None

    def parse_row(self, response: Response, row: dict[str, str]) -> Any:
        """What becomes of a row; it has to be written."""
        raise NotImplementedError(f"{type(self).__name__} has no parse_row()")

    async def _parse(self, response: Response, **kwargs: Any) -> AsyncGenerator[Any, None]:
        response = self.adapt_response(response)
        for row in self._rows(response):
            async with aclosing(self._outputs(response, self.parse_row(response, row))) as outputs:
                async for output in outputs:
                    yield output  # noqa: ASYNC119 - who reads this closes it

    def _rows(self, response: Response) -> Iterable[dict[str, str]]:
        lines = response.text.lstrip("\ufeff").splitlines(keepends=True)
        rows = csv.reader(lines, delimiter=self.delimiter or ",", quotechar=self.quotechar or '"')
        names = list(self.headers or next(rows, ()))
        for row in rows:
            if not row:
                continue
            if len(row) != len(names):
                self.logger.warning("%s, line %d: %d fields, not %d", response.url, rows.line_num, len(row), len(names))
                continue
            yield dict(zip(names, row, strict=True))
