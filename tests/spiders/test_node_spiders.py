"""Spiders for files of many records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import trawl
from trawl.http import Response
from trawl.selectors import Selector
from trawl.spiders import CSVFeedSpider, XMLFeedSpider
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

FAST = {"DOWNLOAD_DELAY": 0.0}
XML = """<?xml version="1.0"?><list xmlns:g="http://g.example/">
<item id="1"><name>One</name><g:price>3</g:price></item><g:item id="2"><name>Two</name></g:item></list>"""


def file(body: str, content_type: str) -> SimulatedWeb:
    web = SimulatedWeb()
    web.add_host("a.example", handler=lambda request: SimulatedResponse(200, body, {"Content-Type": content_type}))
    return web


class Nodes(XMLFeedSpider[Any]):
    name = "nodes"
    start_urls = ["http://a.example/list.xml"]
    namespaces = [("g", "http://g.example/")]

    def parse_node(self, response: Response, selector: Selector) -> Any:
        return {"id": selector.attrib["id"], "name": selector.xpath("name/text()").get()}


@pytest.mark.parametrize("iterator", ["iternodes", "xml"])
def test_each_node_of_a_name_is_a_record(iterator: str) -> None:
    sim = simulate(Nodes, file(XML, "application/xml"), FAST, iterator=iterator)
    assert sim.items == [{"id": "1", "name": "One"}, {"id": "2", "name": "Two"}]


def test_a_prefix_chooses_among_them() -> None:
    assert [item["id"] for item in simulate(Nodes, file(XML, "text/xml"), FAST, itertag="g:item").items] == ["2"]


def test_broken_xml_is_read_as_html() -> None:
    sim = simulate(Nodes, file("<ITEM id=3><name>Three", "text/xml"), FAST, iterator="html")
    assert sim.items == [{"id": "3", "name": "Three"}]


def test_a_file_is_mended_before_and_results_are_seen_after() -> None:
    class Handy(Nodes):
        def adapt_response(self, response: Response) -> Response:
            return response.replace(body=response.body.replace(b"One", b"1"))

        def parse_node(self, response: Response, selector: Selector) -> Iterator[Any]:
            yield super().parse_node(response, selector)
            yield None

        def process_results(self, response: Response, results: list[Any]) -> list[Any]:
            return [{**item, "of": len(results)} for item in results if item]

    items = simulate(Handy, file(XML, "text/xml"), FAST).items
    assert items == [{"id": "1", "name": "1", "of": 2}, {"id": "2", "name": "Two", "of": 2}]


class Rows(CSVFeedSpider[Any]):
    name = "rows"
    start_urls = ["http://a.example/list.csv"]

    async def parse_row(self, response: Response, row: dict[str, str]) -> Any:
        return row


def test_each_row_is_a_record(caplog: pytest.LogCaptureFixture) -> None:
    sim = simulate(Rows, file('\ufeffa,b\n1,"x\ny"\n\n2\n3,z\n', "text/csv"), FAST)
    assert sim.items == [{"a": "1", "b": "x\ny"}, {"a": "3", "b": "z"}]
    assert "line 5: 1 fields, not 2" in caplog.text


def test_how_rows_are_written_may_be_said() -> None:
    class Own(Rows):
        delimiter = ";"
        quotechar = "'"
        headers = ["x", "y"]

    assert simulate(Own, file("1;'a;b'\n", "text/csv"), FAST).items == [{"x": "1", "y": "a;b"}]
    assert simulate(Own, file("", "text/csv"), FAST).items == []


def test_what_has_to_be_written_is_said() -> None:
    with pytest.raises(NotImplementedError, match=r"XMLFeedSpider has no parse_node\(\)"):
        XMLFeedSpider[Any]("x").parse_node(Response("http://a.example/"), Selector("<a/>"))
    with pytest.raises(NotImplementedError, match=r"no parse_row\(\)"):
        CSVFeedSpider[Any]("x").parse_row(Response("http://a.example/"), {})
    assert (trawl.XMLFeedSpider, trawl.CSVFeedSpider) == (XMLFeedSpider, CSVFeedSpider)


# What Scrapy's spiders override.


def test_a_node_is_a_document_of_its_own_or_a_part_of_its_file() -> None:
    class Anywhere(Nodes):
        def parse_node(self, response: Response, selector: Selector) -> Any:
            return {"names": selector.xpath("//name/text()").getall(), "price": selector.xpath("//g:price").get()}

    moved = {**FAST, "SCRAPY_COMPAT": True}
    alone = simulate(Anywhere, file(XML, "text/xml"), moved).items
    assert [item["names"] for item in alone] == [["One"]]
    assert alone[0]["price"] == '<g:price xmlns:g="http://g.example/">3</g:price>'
    for settings, iterator in ((moved, "xml"), (FAST, "iternodes"), (FAST, "xml")):
        whole = simulate(Anywhere, file(XML, "text/xml"), settings, iterator=iterator).items
        assert {tuple(item["names"]) for item in whole} == {("One", "Two")}


def test_a_prefix_of_the_file_needs_no_namespaces() -> None:
    web = file(XML, "text/xml")
    assert [item["id"] for item in simulate(Nodes, web, FAST, itertag="g:item", namespaces=()).items] == ["2"]


def test_the_nodes_of_a_moved_spider_without_prefix_are_in_no_namespace() -> None:
    items = simulate(Nodes, file(XML, "text/xml"), {**FAST, "SCRAPY_COMPAT": True}).items
    assert [item["id"] for item in items] == ["1"]


def test_parse_nodes_may_be_overridden_and_call_the_base() -> None:
    class Some(Nodes):
        def parse_nodes(self, response: Response, nodes: Any) -> Any:
            yield {"url": response.url}
            yield from super().parse_nodes(response, (node for node in nodes if node.attrib["id"] != "1"))

        def process_results(self, response: Response, results: list[Any]) -> list[Any]:
            return [{**item, "seen": True} for item in results]

    items = simulate(Some, file(XML, "text/xml"), FAST).items
    assert items == [{"url": "http://a.example/list.xml"}, {"id": "2", "name": "Two", "seen": True}]


def test_parse_rows_may_be_overridden_and_call_the_base() -> None:
    class Some(Rows):
        def parse_row(self, response: Response, row: dict[str, str]) -> Any:
            yield row

        def parse_rows(self, response: Response) -> Any:
            for row in super().parse_rows(response):
                if row["n"] != "2":
                    yield row

    web = file("n\n1\n2\n3\n", "text/csv")
    assert simulate(Some, web, FAST).items == [{"n": "1"}, {"n": "3"}]


def test_an_async_method_under_an_overridden_loop_is_told(caplog: pytest.LogCaptureFixture) -> None:
    class Later(Nodes):
        async def parse_node(self, response: Response, selector: Selector) -> Any:
            return {}

        def parse_nodes(self, response: Response, nodes: Any) -> Any:
            return super().parse_nodes(response, nodes)

    assert simulate(Later, file(XML, "text/xml"), FAST, errors="collect").items == []
    assert "Later: an async method can't be called in your own loop" in caplog.text
