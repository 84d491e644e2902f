"""Sitemaps as files."""

from __future__ import annotations

import gzip
from datetime import UTC, date, datetime

import pytest

from trawl.spiders.sitemap_spider import Sitemap, parse_lastmod, sitemaps_in_robots

URLSET = b"""<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:xhtml="http://www.w3.org/1999/xhtml"
  xmlns:image="http://www.google.com/schemas/sitemap-image/1.1">
<url><loc> http://a.example/1?a=1&amp;b=2 </loc><lastmod>2024-05-01</lastmod><priority>0.8</priority>
  <image:image><image:loc>http://a.example/i.jpg</image:loc></image:image>
  <xhtml:link rel="alternate" hreflang="de" href="http://a.example/de/1"/><xhtml:link rel="alternate"/></url>
<url><changefreq>daily</changefreq></url>
<url><loc>http://a.example/2</loc></url>
</urlset>"""


def read(body: bytes, *, entries: int = 1000, is_text: bool = False) -> Sitemap:
    return Sitemap(body, max_bytes=1 << 20, max_entries=entries, is_text=is_text)


def test_the_entries_of_a_file_of_pages() -> None:
    sitemap = read(URLSET)
    assert sitemap.type == "urlset"
    assert list(sitemap) == [
        {
            "loc": "http://a.example/1?a=1&b=2",
            "lastmod": "2024-05-01",
            "priority": "0.8",
            "alternate": ["http://a.example/de/1"],
        },
        {"loc": "http://a.example/2"},
    ]
    assert not sitemap.problem


def test_an_index_and_a_file_without_a_namespace() -> None:
    sitemap = read(b"<sitemapindex><sitemap><loc>http://a.example/s.xml</loc></sitemap></sitemapindex>")
    assert (sitemap.type, list(sitemap)) == ("sitemapindex", [{"loc": "http://a.example/s.xml"}])


def test_a_text_of_one_address_a_line() -> None:
    body = "\ufeffhttp://a.example/1\r\n\r\n http://a.example/2 \n".encode()
    assert [entry["loc"] for entry in read(body, is_text=True)] == ["http://a.example/1", "http://a.example/2"]
    assert read(URLSET, is_text=True).type == "urlset"
    assert len(list(read(URLSET, is_text=True))) == 2


@pytest.mark.parametrize("body", [b"<html><body>404</body></html>", b"<list/>", b"", b"no address"])
def test_what_is_no_sitemap(body: bytes) -> None:
    sitemap = read(body)
    assert (sitemap.type, list(sitemap)) == ("", [])


@pytest.mark.parametrize(("most", "is_cut"), [(1, True), (2, False), (3, False)])
def test_no_more_entries_than_allowed(most: int, is_cut: bool) -> None:
    sitemap = read(URLSET, entries=most)
    assert len(list(sitemap)) == min(most, 2)
    assert bool(sitemap.problem) is is_cut


def test_the_sitemaps_that_a_robots_txt_names() -> None:
    text = "User-agent: *\nSitemap: http://a.example/1.xml # first\n  SITEMAP :  /2.xml\nSitemap:\nSitemaps: x\n"
    assert list(sitemaps_in_robots(text)) == ["http://a.example/1.xml", "/2.xml"]


@pytest.mark.parametrize(
    ("written", "latest"),
    [
        ("2024", datetime(2024, 12, 31, 23, 59, 59, 999_999, UTC)),
        ("2024-02", datetime(2024, 2, 29, 23, 59, 59, 999_999, UTC)),
        ("2024-05-01", datetime(2024, 5, 1, 23, 59, 59, 999_999, UTC)),
        (date(2024, 5, 1), datetime(2024, 5, 1, 23, 59, 59, 999_999, UTC)),
        ("2024-05-01T10:00Z", datetime(2024, 5, 1, 10, tzinfo=UTC)),
        ("2024-05-01T10:00:00.5+02:00", datetime(2024, 5, 1, 8, 0, 0, 500_000, tzinfo=UTC)),
        ("2024-05-01T10:00:00", datetime(2024, 5, 1, 10, tzinfo=UTC)),
        ("2024-13", None),
        ("2024-02-31", None),
        ("yesterday", None),
        ("", None),
    ],
)
def test_a_date_may_mean_its_last_instant(written: str | date, latest: datetime | None) -> None:
    assert parse_lastmod(written) == latest


def test_an_element_of_an_extension_is_no_page_and_a_packed_text_may_shout() -> None:
    other = b"<x:url xmlns:x='urn:x'><x:loc>http://a.example/no</x:loc></x:url>"
    assert [entry["loc"] for entry in read(URLSET.replace(b"<url>", other + b"<url>", 1))] == [
        "http://a.example/1?a=1&b=2",
        "http://a.example/2",
    ]
    assert list(read(gzip.compress(b"HTTP://a.example/1\n"))) == [{"loc": "HTTP://a.example/1"}]
