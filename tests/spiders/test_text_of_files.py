"""Feeds, sitemaps, XML and CSV in any encoding, and files that end early."""

from __future__ import annotations

import csv
import gzip
from typing import Any

import pytest

import trawl
from trawl.testing import SimulatedWeb, simulate

URL = "http://h.example/file"


class News(trawl.FeedSpider):
    name = "news"
    start_urls = (URL,)

    def parse_entry(self, response: trawl.Response, entry: Any) -> Any:
        return {"title": entry.title}


class Map(trawl.SitemapSpider):
    name = "map"
    sitemap_urls = (URL,)

    def parse(self, response: trawl.Response) -> Any:
        return {"url": response.url}


class Rows(trawl.CSVFeedSpider):
    name = "rows"
    start_urls = (URL,)

    def parse_row(self, response: trawl.Response, row: dict[str, str]) -> Any:
        return {"a": row["a"][:3]}


class Nodes(trawl.XMLFeedSpider):
    name = "nodes"
    start_urls = (URL,)
    itertag = "title"

    def parse_node(self, response: trawl.Response, selector: trawl.Selector) -> Any:
        return {"title": selector.xpath("string()").get()}


def read(spider: type[trawl.Spider[Any]], body: bytes, content_type: str = "text/xml", url: str = URL) -> list[Any]:
    web = SimulatedWeb()
    web.add_page(url, body=body, headers={"Content-Type": content_type})
    for page in ("/a", "/b"):
        web.add_page(f"http://h.example{page}", body="")
    return [next(iter(item.values())) for item in simulate(spider, web, {"DOWNLOAD_DELAY_PER_SLOT": 0}).items]


def rss(title: bytes, declared: str = "") -> bytes:
    declaration = f'<?xml version="1.0" encoding="{declared}"?>\n'.encode() if declared else b""
    items = b"<item><title>" + title + b"</title></item><item><title>second</title></item>"
    return declaration + b"<rss><channel>" + items + b"</channel></rss>"


@pytest.mark.parametrize("spider", [News, Nodes])
@pytest.mark.parametrize(
    ("declared", "content_type", "body", "title"),
    [
        ("gb2312", "text/xml", b"\xd6\xec\xe9\x46\xbb\xf9", "朱镕基"),
        ("GBK", "application/octet-stream", b"\x80", "€"),
        ("shift_jis", "text/xml", b"\x87\x40\xee\xe0", "①髙"),
        ("x-sjis", "text/xml", b"\x93\xfa\x96\x7b", "日本"),
        ("euc-jp", "application/rss+xml", b"\xad\xa1", "①"),
        ("iso-2022-jp", "text/xml", b"\x1b$B-!\x1b(B", "①"),
        ("euc-kr", "text/xml", b"\x8c\x63", "똠"),
        ("big5", "text/xml", b"\x87\x7a", "㡵"),
        ("us-ascii", "text/xml", b"caf\xe9", "café"),
        ("iso-8859-1", "text/xml", b"\x93quoted\x94 \x805", "“quoted” €5"),
        ("utf-16", "text/xml", b"caf\xc3\xa9", "café"),
        ("nonsense", "text/xml", b"caf\xc3\xa9", "café"),
        ("", "text/xml", b"caf\xe9", "café"),
        ("", "text/xml; charset=windows-1251", b"\xcf\xf0\xe8", "При"),
        ("iso-8859-1", "application/xml; charset=utf-8", b"\xd0\x9f", "П"),
        ("utf-8", "text/xml; charset=utf-16", b"caf\xc3\xa9", "café"),
        ("utf-8", "text/xml", b"a\x0bb\xffc\xef\xbf\xbed", "a\ufffdb\ufffdc\ufffdd"),
    ],
)
def test_a_feed_is_read_in_the_encoding_that_a_page_would_be(
    spider: type[trawl.Spider[Any]], declared: str, content_type: str, body: bytes, title: str
) -> None:
    if spider is Nodes and content_type == "application/octet-stream":
        content_type = "text/xml"  # what nodes are of is no page
    assert read(spider, rss(body, declared), content_type) == [title, "second"]


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-16", "utf-32-le", "utf-32-be", "utf-32"])
def test_a_feed_in_utf_16_or_utf_32_is_read_with_and_without_a_byte_order_mark(codec: str) -> None:
    body = rss("café".encode(), "utf-16").decode().encode(codec)
    assert read(News, body) == read(News, gzip.compress(body)) == ["café", "second"]


@pytest.mark.parametrize("spider", [News, Nodes])
@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("declared", ["utf-16", ""])
@pytest.mark.parametrize(
    "content_type", ["text/xml; charset=utf-16", "application/rss+xml; charset=UTF-16LE", "text/xml"]
)
def test_the_first_bytes_of_xml_tell_the_byte_order_of_utf_16(
    spider: type[trawl.Spider[Any]], codec: str, declared: str, content_type: str
) -> None:
    body = rss("café".encode(), declared).decode().encode(codec)
    assert read(spider, body, content_type) == ["café", "second"]


def test_one_wrong_character_costs_no_entry(caplog: pytest.LogCaptureFixture) -> None:
    items = b"".join(b"<item><title>%d</title></item>" % number for number in range(20))
    bad = b"<item><title>\xe9\x46\x00\x01&#1;&nbsp;&</title></item>"
    body = b'<?xml version="1.0" encoding="gb2312"?><rss><channel>' + items + bad + items + b"</channel></rss>"
    assert len(read(News, body)) == 41
    assert not caplog.messages


@pytest.mark.parametrize("label", ["gb2312", "shift_jis", "utf-16"])
def test_a_sitemap_is_read_in_the_encoding_that_a_page_would_be(label: str) -> None:
    strange = {"gb2312": b"\xe9\x46", "shift_jis": b"\x87\x40"}.get(label, b"\xc3\xa9")
    body = f'<?xml version="1.0" encoding="{label}"?><urlset><url><loc>/a</loc><n>'.encode() + strange
    assert read(Map, body + b"</n></url><url><loc>/b</loc></url></urlset>") == [f"http://h.example/{n}" for n in "ab"]


TEXT = "http://h.example/a\nhttp://h.example/b\n"


@pytest.mark.parametrize(
    ("body", "content_type", "name"),
    [
        (TEXT.encode(), "text/plain", "/file"),
        (TEXT.encode(), "application/octet-stream", "/file.txt"),
        (TEXT.encode(), "application/octet-stream", "/file"),
        (gzip.compress(TEXT.encode(), mtime=0), "application/gzip", "/urls.txt.gz"),
        (gzip.compress(TEXT.encode(), mtime=0), "application/x-gzip", "/file"),
        (TEXT.encode("utf-16"), "text/plain", "/file"),
        (TEXT.encode("utf-16-le"), "text/plain", "/file"),
        (TEXT.encode("utf-16-be"), "text/plain", "/file"),
        (TEXT.encode("utf-16-be"), "text/plain; charset=utf-16be", "/file"),
    ],
)
def test_a_sitemap_may_be_text_that_is_packed_or_in_utf_16(
    body: bytes, content_type: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"http://h.example{name}"
    monkeypatch.setattr(Map, "sitemap_urls", (url,))
    assert read(Map, body, content_type, url) == ["http://h.example/a", "http://h.example/b"]


def test_lines_that_are_no_urls_make_no_requests(caplog: pytest.LogCaptureFixture) -> None:
    body = b"# addresses\n\nhttp://h.example/a\nnothing\n"
    assert read(Map, body, "text/plain") == ["http://h.example/a"]
    assert "2 lines that are not whole URLs are ignored" in caplog.text


def test_a_warning_about_a_sitemap_names_no_password(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = "http://user:secret@h.example/map.txt"
    monkeypatch.setattr(Map, "sitemap_urls", (url,))
    read(Map, b"http://h.example/a\nnothing\n", "text/plain", url)
    [warning] = [each.getMessage() for each in caplog.records if "whole URLs" in each.getMessage()]
    assert "secret" not in warning


@pytest.mark.parametrize(
    "body",
    [
        b"<rss><channel><link>/no</link><item><link>/a</link></item>"
        b"<item><guid>http://h.example/b</guid></item></channel></rss>",
        b'<feed xmlns="http://www.w3.org/2005/Atom"><link href="/no"/>'
        b'<entry><link href="/a"/></entry><entry><link href="/b"/></entry></feed>',
    ],
)
def test_rss_and_atom_are_sitemaps(body: bytes) -> None:
    assert sorted(read(Map, body)) == ["http://h.example/a", "http://h.example/b"]


def test_the_time_of_a_feeds_entry_counts_as_the_last_change() -> None:
    body = b"<rss><channel><item><link>/a</link><pubDate>Wed, 01 May 2024 10:00:00 GMT</pubDate></item></channel></rss>"
    web = SimulatedWeb()
    web.add_page(URL, body=body, headers={"Content-Type": "application/rss+xml"})
    web.add_page("http://h.example/a", body="")
    assert len(simulate(Map, web, sitemap_modified_since="2024-05-01").items) == 1
    assert simulate(Map, web, sitemap_modified_since="2024-05-02").items == []


def test_only_a_sitemaps_own_elements_count() -> None:
    other = b"<x:loc>/b</x:loc>"
    body = b"<urlset xmlns='s' xmlns:x='x'><url>" + other + b"<loc>/a</loc>" + other
    assert read(Map, body + b"<x:i><url><loc>/b</loc></url></x:i></url></urlset>") == ["http://h.example/a"]


FEED = rss(b"first")


@pytest.mark.parametrize(
    ("spider", "body", "limits", "found", "words"),
    [
        (
            News,
            FEED[:-10],
            {},
            2,
            "ends early, or is not valid XML after some point: only its first 2 entries were read",
        ),
        (News, FEED[:55], {}, 1, "only its first 1 entries were read"),
        (News, gzip.compress(FEED, mtime=0)[:-12], {}, 2, "ends early, as its gzip data is broken"),
        (News, FEED, {"feed_max_bytes": 60}, 1, "is longer than 60 bytes"),
        (Map, b"<urlset><url><loc>/a</loc></url><url>", {}, 1, "only its first 1 entries were read"),
        (Map, FEED.replace(b"title", b"link")[:-10], {}, 2, "only its first 2 entries were read"),
        (Nodes, FEED[:-10], {}, 2, "ends early"),
        (Rows, b'a,b\n1,2\n3,"4\n5,6\n', {}, 2, "ends early: a quote is open since line 3"),
    ],
)
def test_a_file_that_ends_early_gives_what_could_be_read_and_a_warning(
    spider: type[trawl.Spider[Any]],
    body: bytes,
    limits: Any,
    found: int,
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    web = SimulatedWeb()
    web.add_page(URL, body=body, headers={"Content-Type": "text/xml"})
    web.add_page("http://h.example/a", body="")
    assert len(simulate(spider, web, **limits).items) == found
    assert words in caplog.text


def test_a_field_of_csv_may_be_as_long_as_a_row() -> None:
    before = csv.field_size_limit()
    body = b"a,b\n1," + b"x" * 200_000 + b"\n2,y\n3," + b"x" * 1_000_001 + b"\n4,z\n"
    assert read(Rows, body, "text/csv") == ["1", "2", "4"]
    assert csv.field_size_limit() == before
