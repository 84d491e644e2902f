"""What a page can make expensive is done in steps, between which everybody else has a turn, or is bounded.

Each test gives the worst input that is known: it took seconds to minutes of one step.
"""

from __future__ import annotations

import gzip
import importlib
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any, cast

import pytest
import trio
import zstandard
from trio.testing import MockClock

import trawl
from tests.net.badserver import Connection, clock, serving, zeros
from tests.security.steps import TRIES, Steps, is_short
from trawl import CSVFeedSpider, FeedSpider, SitemapSpider, XMLFeedSpider
from trawl.cookies import Cookie, Jars
from trawl.cookies.jars import MAX_COOKIES, MAX_PER_DOMAIN
from trawl.errors import DownloadTimeout
from trawl.http import FormRequest, Headers, Outcome, Request, Response
from trawl.testing import SimulatedResponse, SimulatedWeb, Simulation, simulate
from trawl.transport import Http11Transport, HttpxTransport, TransportSettings
from trawl.transport.http11 import Connect

__all__ = ["clock"]

HOST = "http://a.example"
MEGABYTE = 1 << 20
EMPTY_MEMBER = gzip.compress(b"", mtime=0)
EMPTY_FRAME = zstandard.ZstdCompressor().compress(b"")
Transport = type[Http11Transport | HttpxTransport]


async def answered(
    transport: Transport, codings: str, body: bytes, meta: dict[str, Any] | None = None
) -> tuple[Outcome, Steps]:
    """What becomes of a body over loopback, and the steps that it takes."""

    async def answer(connection: Connection) -> None:
        await connection.answer(body, "200 OK", f"Content-Encoding: {codings}")

    steps = Steps()
    async with serving(answer) as server:
        client = transport(TransportSettings())
        try:
            trio.lowlevel.add_instrument(steps)
            outcome = await client.send(Request(server.url, meta=meta), lambda: None)
            trio.lowlevel.remove_instrument(steps)
        finally:
            await client.aclose()
    return outcome, steps


@pytest.mark.parametrize("transport", [Http11Transport, HttpxTransport])
@pytest.mark.parametrize(("coding", "turns"), [("gzip", 40), ("deflate", 40), ("br", 40), ("zstd", 2)])
async def test_others_have_their_turns_while_a_page_grows(
    clock: MockClock, transport: Transport, coding: str, turns: int
) -> None:
    size = 16 * MEGABYTE
    little, few = await answered(transport, coding, zeros(coding, 100))
    outcome, steps = await answered(transport, coding, zeros(coding, size))
    assert little.error is None
    assert outcome.response is not None
    assert len(outcome.response.body) == size
    assert steps.count - few.count >= turns


@pytest.mark.parametrize("transport", [Http11Transport, HttpxTransport])
@pytest.mark.parametrize(
    ("codings", "body"),
    [
        ("gzip", EMPTY_MEMBER * 30_000),
        ("gzip, gzip", gzip.compress(EMPTY_MEMBER * 30_000, 1)),
        ("gzip, zstd", zstandard.ZstdCompressor().compress(EMPTY_MEMBER * 200_000)),
        ("gzip, br", importlib.import_module("brotli").compress(EMPTY_MEMBER * 30_000, quality=1)),
        ("zstd", EMPTY_FRAME * 50_000),
        ("deflate, zstd", zstandard.ZstdCompressor().compress(b"\x78\x9c" + b"\0\0\0\xff\xff" * 500_000)),
    ],
)
@pytest.mark.long
async def test_many_members_of_nothing_take_no_long_step(
    clock: MockClock, transport: Transport, codings: str, body: bytes
) -> None:
    for _ in range(TRIES):
        outcome, steps = await answered(transport, codings, body, {"download_fail_on_dataloss": False})
        assert outcome.response is not None
        assert outcome.response.body == b""
        if is_short(steps.longest):
            return
    pytest.fail(f"a step took {steps.longest} s of CPU")


class Ready:
    """A connection on which the answer is there at once, so that nothing is waited for."""

    peer = None

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def send_nowait(self, data: bytes) -> int:
        return len(data)

    async def send(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_soon(self) -> bytes | None:
        await trio.lowlevel.checkpoint()
        answer, self._answer = self._answer, b""
        return answer

    async def receive(self) -> bytes:
        await trio.lowlevel.checkpoint()
        return b""

    def is_quiet(self) -> bool:
        return True

    def session(self) -> None:
        return None

    def close(self, *, is_cut: bool = False) -> None:
        pass


async def test_the_timeout_holds_while_a_page_is_decompressed(clock: MockClock) -> None:
    body = zeros("gzip", 16 * MEGABYTE)
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    async def connect(site: object) -> Ready:
        await trio.lowlevel.checkpoint()
        return Ready(head + body)

    client = Http11Transport(TransportSettings(download_timeout=5.0), connect=cast("Connect", connect))
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def tick() -> None:
            while True:
                clock.jump(0.5)
                await trio.lowlevel.checkpoint()

        outcome = await client.send(Request(f"{HOST}/"), lambda: None)
        nursery.cancel_scope.cancel()
    assert isinstance(outcome.error, DownloadTimeout)
    assert outcome.ended_at is not None
    assert outcome.ended_at - outcome.started_at <= 6.0


class Watched(trawl.Spider[Any]):
    """Has the steps of its crawl watched."""

    start_urls = [f"{HOST}/file"]
    steps = Steps()

    async def start(self) -> AsyncIterator[Any]:
        trio.lowlevel.add_instrument(self.steps)
        async for output in super().start():
            yield output


class Sitemaps(Watched, SitemapSpider[Any]):
    name = "sitemaps"
    sitemap_urls = [f"{HOST}/file"]
    sitemap_modified_since = "2024-05-01"

    def parse(self, response: Response) -> Any:
        return {"page": response.url}


class Feeds(Watched, FeedSpider[Any]):
    name = "feeds"

    def parse_entry(self, response: Response, entry: Any) -> Any:
        return {"id": entry.id}


class Nodes(Watched, XMLFeedSpider[Any]):
    name = "nodes"

    def parse_node(self, response: Response, selector: Any) -> Any:
        return None


class Rows(Watched, CSVFeedSpider[Any]):
    name = "rows"

    def parse_row(self, response: Response, row: dict[str, str]) -> Any:
        return row


def crawled(spider: type[Watched], body: bytes, content_type: str = "application/xml") -> Simulation:
    """A crawl of a file, none of whose steps was long."""
    web = SimulatedWeb()
    file = SimulatedResponse(200, body, {"Content-Type": content_type})
    web.add_host("a.example", handler=lambda request: file if request.url.endswith("/file") else SimulatedResponse(404))
    for _ in range(TRIES):
        watched: Any = type(spider.__name__, (spider,), {"steps": Steps()})
        sim = simulate(watched, web, {"DOWNLOAD_DELAY": 0.0, "ROBOTSTXT_OBEY": False})
        assert sim.stats.get("spider_exceptions", 0) == 0
        if is_short(watched.steps.longest):
            return sim
    pytest.fail(f"a step took {watched.steps.longest} s of CPU")


OLD = b"<url><loc>/a</loc><lastmod>2001-01-01</lastmod></url>"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (EMPTY_MEMBER * 50_000, "application/gzip"),
        (b"<urlset>" + b"<a/>" * 1_000_000, "application/xml"),
        (b"<urlset><url>" + b"<loc/>" * 500_000, "application/xml"),
        (b"<urlset>" + b"&" * 1_000_000, "application/xml"),
        (b"<urlset>" + b"<a b=''/>" * 300_000, "application/xml"),
        (b"<urlset>" + OLD * 20_000, "application/xml"),
        (b"\n" * 10_000_000, "text/plain"),
        (b"x" * 3_000_000, "text/plain"),
    ],
    ids=["members", "elements", "children", "ampersands", "attributes", "old entries", "blank lines", "one line"],
)
def test_a_sitemap_stops_nobody(body: bytes, content_type: str) -> None:
    assert crawled(Sitemaps, body, content_type).items == []


@pytest.mark.parametrize(
    "body",
    [
        b"<rss><channel>" + b"<a/>" * 1_000_000,
        b"<rss><channel><item><guid>1</guid>" + b"<category/>" * 300_000,
        b"<rss><channel><item><guid>1</guid>" + b"<link/>" * 9_000 + b"</item><item><guid>2</guid></item>",
    ],
    ids=["elements", "children", "links"],
)
def test_a_web_feed_stops_nobody(body: bytes) -> None:
    crawled(Feeds, body)


@pytest.mark.parametrize(
    ("spider", "body", "content_type"),
    [
        (Nodes, b"<r>" + b"<item/>" * 20_000 + b"</r>", "application/xml"),
        (Rows, b"a,b\n" + b"," * 10_000_000 + b"\n1,2\n", "text/csv"),
        (Rows, b"a,b\n" + b'"x\n",' * 300_000, "text/csv"),
        (Rows, b"a,b\n" + b"\n" * 500_000, "text/csv"),
    ],
    ids=["nodes", "a long row", "a row of many lines", "no rows"],
)
def test_a_file_of_records_stops_nobody(spider: type[Watched], body: bytes, content_type: str) -> None:
    crawled(spider, body, content_type)


def page(text: str) -> Response:
    return Response(f"{HOST}/", 200, Headers({"Content-Type": "text/html"}), text.encode())


def links(response: Response) -> int:
    return len(trawl.LinkExtractor(canonicalize=True).extract_links(response))


def form(response: Response) -> object:
    return FormRequest.from_response(response)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (links, "<base href='http://a.example/" + "a" * 500_000 + "/'>" + "<a href='?1'>" * 2_000),
        (links, "<a href='" + "x" * 1_000_000 + "'>"),
        (form, "<form>" + "<fieldset>" * 200 + "<input name=a>" * 5_000),
        (form, "<form>" + ("<select name=a><option>" * 100 + "</option></select>" * 100) * 50),
    ],
    ids=["a long base", "a long link", "fieldsets", "selects"],
)
def test_a_page_is_read_in_time_by_its_length(read: Callable[[Response], object], text: str) -> None:
    for _ in range(TRIES):
        response = page(text)
        response.selector  # noqa: B018 - parsed once, whoever asks
        begun = time.thread_time()
        read(response)
        took = time.thread_time() - begun
        if is_short(took):
            return
    pytest.fail(f"it took {took} s of CPU")


def test_many_cookies_over_http_are_kept_in_time_where_the_jar_is_full() -> None:
    jars, now = Jars(), datetime(2024, 1, 1, tzinfo=UTC)
    for number in range(MAX_COOKIES):
        jars.jar().store(Cookie("a", "v", f"h{number}.example", is_secure=True), now)
    response = Response(f"{HOST}/", headers=[("Set-Cookie", f"n{number}=v") for number in range(MAX_PER_DOMAIN)])
    for _ in range(TRIES):
        begun = time.thread_time()
        jars.store(Request(f"{HOST}/"), response, lambda: now)
        took = time.thread_time() - begun
        if is_short(took):
            return
    pytest.fail(f"it took {took} s of CPU")


DATES = [
    "Mon, 01 Jan 0001 00:00:00 +1400",
    "0001-01-01T00:00:00+14:00",
    "Mon, 01 Jan 2024 00:00:00 +" + "9" * 50,
    "Mon, 01 Jan " + "1" * 5_000 + " 00:00:00 +0000",
    "2024-13-45",
    "9" * 5_000,
    "Mon, 01 Jan 2024 00:00:00 +" + "1" * 1_000_000,
]


@pytest.mark.parametrize("date", DATES, ids=range(len(DATES)))
@pytest.mark.parametrize("name", ["pubDate", "published", "updated"])
def test_one_bad_date_costs_a_web_feed_no_entry(name: str, date: str) -> None:
    bad = f"<item><guid>1</guid><{name}>{date}</{name}></item>"
    sim = crawled(Feeds, f"<rss><channel>{bad}<item><guid>2</guid></item></channel></rss>".encode())
    assert [item["id"] for item in sim.items] == ["1", "2"]


def test_one_bad_length_costs_a_web_feed_no_entry() -> None:
    bad = f"<item><guid>1</guid><enclosure url='/a' length='{'9' * 5_000}'/></item>"
    sim = crawled(Feeds, f"<rss><channel>{bad}<item><guid>2</guid></item></channel></rss>".encode())
    assert [item["id"] for item in sim.items] == ["1", "2"]


@pytest.mark.parametrize("row", ['"' + "x" * 1_100_000 + '"', "x" * 2_000_000])
def test_one_bad_row_costs_a_csv_file_no_other(row: str) -> None:
    sim = crawled(Rows, f"a,b\n1,2\n{row},y\n3,4\n".encode(), "text/csv")
    assert sim.items == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
