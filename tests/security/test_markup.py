"""Documents that want more than to be read: external entities, bombs of entities, endless nesting.

No file is opened, no address is asked, and what comes out is no larger than a small multiple of what came in.
"""

from __future__ import annotations

import resource
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trawl
from trawl.http import Headers, Response
from trawl.selectors import select
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

SECRET = "the secret of this machine"
TYPES = ["application/xml", "text/html", "application/xhtml+xml", "image/svg+xml", "application/rss+xml"]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file that no page may read."""
    path = tmp_path / "secret.txt"
    path.write_text(SECRET)
    return path


@pytest.fixture(autouse=True)
def sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """Connections that were tried; there must be none."""
    tried: list[object] = []
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: tried.append(address))
    yield tried
    assert tried == []


def page(text: str, content_type: str = "application/xml") -> Response:
    return Response("http://a.example/", 200, Headers({"Content-Type": content_type}), text.encode())


def everything(response: Response) -> str:
    """All that a spider can get out of a page."""
    selector = response.selector
    parts = [selector.get(), *selector.xpath("//text()").getall(), *selector.xpath("//@*").getall()]
    parts += [selector.xpath("string()").get(""), *response.css("*::text").getall()]
    return "\n".join(parts)


def documents(secret: Path) -> dict[str, str]:
    """Ways to ask for what is not on the page."""
    uri = secret.as_uri()
    return {
        "general entity": f'<!DOCTYPE a [<!ENTITY x SYSTEM "{uri}">]><a>&x;</a>',
        "in an attribute": f'<!DOCTYPE a [<!ENTITY x SYSTEM "{uri}">]><a b="&x;">c</a>',
        "public entity": f'<!DOCTYPE a [<!ENTITY x PUBLIC "p" "{uri}">]><a>&x;</a>',
        "parameter entity": f'<!DOCTYPE a [<!ENTITY % x SYSTEM "{uri}"> %x;]><a>b</a>',
        "external subset": f'<!DOCTYPE a SYSTEM "{uri}"><a>b</a>',
        "subset on the network": '<!DOCTYPE a SYSTEM "http://127.0.0.1:9/dtd"><a>b</a>',
        "entity on the network": '<!DOCTYPE a [<!ENTITY x SYSTEM "http://127.0.0.1:9/">]><a>&x;</a>',
        "ftp": '<!DOCTYPE a [<!ENTITY x SYSTEM "ftp://127.0.0.1:9/">]><a>&x;</a>',
        "expect": '<!DOCTYPE a [<!ENTITY x SYSTEM "expect://id">]><a>&x;</a>',
        "xinclude": f'<a xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="{uri}" parse="text"/></a>',
        "stylesheet": f'<?xml-stylesheet type="text/xsl" href="{uri}"?><a>b</a>',
        "schema": f'<a xmlns:x="http://www.w3.org/2001/XMLSchema-instance" x:noNamespaceSchemaLocation="{uri}">b</a>',
        "relative": f'<!DOCTYPE a [<!ENTITY x SYSTEM "{secret.name}">]><a xml:base="{secret.parent.as_uri()}/">&x;</a>',
    }


@pytest.mark.parametrize("content_type", TYPES)
def test_no_document_reads_a_file_or_asks_the_network(secret: Path, content_type: str) -> None:
    for name, document in documents(secret).items():
        for start in ("", '<?xml version="1.0"?>'):
            assert SECRET not in everything(page(start + document, content_type)), name


@pytest.mark.parametrize("query", ["document('{uri}')", "doc('{uri}')", "unparsed-text('{uri}')"])
def test_no_xpath_reads_a_file(secret: Path, query: str) -> None:
    with pytest.raises(ValueError, match="XPath error"):
        page("<a/>").xpath(query.format(uri=secret.as_uri()))


def laughs(depth: int, place: str) -> str:
    """A document of a kilobyte whose entities stand for ten to the power of ``depth`` times three letters."""
    entities = '<!ENTITY e0 "lol">' + "".join(
        f'<!ENTITY e{level} "{f"&e{level - 1};" * 10}">' for level in range(1, depth + 1)
    )
    return f'<?xml version="1.0"?><!DOCTYPE a [{entities}]>' + place.format(f"&e{depth};")


BOMBS = {
    "billion laughs in text": laughs(9, "<a>{}</a>"),
    "billion laughs in an attribute": laughs(9, '<a b="{}">c</a>'),
    "quadratic": '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY x "' + "y" * 50_000 + '">]><a>' + "&x;" * 20_000 + "</a>",
    "quadratic in attributes": '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY x "'
    + "y" * 50_000
    + '">]><a>'
    + '<b c="&x;"/>' * 10_000
    + "</a>",
    "an entity of itself": '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY x "&x;&x;">]><a>&x;</a>',
    "nested": "<a>" * 200_000,
    "nested and closed": "<a>" * 100_000 + "b" + "</a>" * 100_000,
    "attributes": "<a " + " ".join(f'b{number}="c"' for number in range(50_000)) + "/>",
    "one name": "<" + "a" * 1_000_000 + "/>",
    "comments": "<!--" * 100_000,
}


@pytest.mark.parametrize("content_type", ["application/xml", "text/html"])
@pytest.mark.parametrize("name", BOMBS)
def test_no_document_becomes_much_larger_than_it_came(name: str, content_type: str) -> None:
    document = BOMBS[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    selector = page(document, content_type).selector
    most = 5 * len(document) + 1_000_000  # what libxml2 lets entities add: five times the input, or a megabyte
    assert len(selector.get()) < most
    assert len(selector.xpath("string()").get("")) < most
    assert sum(map(len, selector.xpath("//@*").getall())) < most
    if sys.platform == "linux":  # kilobytes there
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000


def test_a_sitemap_of_entities_reads_nothing_and_ends(secret: Path) -> None:
    web = SimulatedWeb()
    sitemap = (
        f'<?xml version="1.0"?><!DOCTYPE urlset [<!ENTITY x SYSTEM "{secret.as_uri()}">{laughs(9, "")[34:-2]}]>'
        "<urlset><url><loc>http://a.example/&x;</loc></url><url><loc>http://a.example/&e9;</loc></url>"
        "<url><loc>http://a.example/page</loc></url></urlset>"
    )

    async def answer(request: trawl.Request) -> SimulatedResponse:
        body = sitemap if request.url.endswith(".xml") else ""
        return SimulatedResponse(body=body, headers={"Content-Type": "application/xml"})

    web.add_host("a.example", handler=answer)

    class Mapped(trawl.SitemapSpider):
        name = "mapped"
        sitemap_urls = ["http://a.example/sitemap.xml"]

        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield {"url": response.url}

    sim = simulate(Mapped, web, {"ROBOTSTXT_OBEY": False})
    assert sim.reason == "finished"
    assert SECRET not in repr(sim.sends)
    assert SECRET.replace(" ", "%20") not in repr(sim.sends)
    assert all(len(send.url) < 2100 for send in sim.sends)


def test_a_selector_of_any_type_takes_any_text() -> None:
    for document in BOMBS.values():
        select(document, "json")
        select(document, "text")
