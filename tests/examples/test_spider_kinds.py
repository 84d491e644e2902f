"""examples/catalogue.py, changed.py and releases.py, each against a small copy of its site, on the virtual clock."""

from __future__ import annotations

from examples.catalogue import Book, Catalogue
from examples.changed import Changed
from examples.releases import Releases
from tests.examples.sandboxes import BOOKS, add_books
from trawl.cli.checks import check_spider
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate


def test_catalogue_reads_every_book_once() -> None:
    web = SimulatedWeb()
    add_books(web)
    sim = simulate(Catalogue, web)
    assert sorted(sim.items, key=str) == sorted(
        (Book(title, float(price), shelf) for title, shelf, price, _, _ in BOOKS.values()), key=str
    )
    assert len(sim.sends) == 1 + 2 + len(BOOKS)  # robots.txt, lists, books


def test_changed_reads_the_pages_that_a_sitemap_says_have_changed() -> None:
    sitemap = """<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
        <url><loc>http://a.example/old</loc><lastmod>2024-04-30</lastmod></url>
        <url><loc>http://a.example/new</loc><lastmod>2024-05-02</lastmod></url></urlset>"""
    web = SimulatedWeb()
    web.add_host("a.example", robots="User-agent: *\nAllow: /\nSitemap: /sitemap.xml\n")
    web.add_page("http://a.example/sitemap.xml", body=sitemap, headers={"Content-Type": "application/xml"})
    web.add_page("http://a.example/new", body="<title> New </title>")
    sim = simulate(Changed, web, site="http://a.example/", since="2024-05-01")
    assert sim.items == [{"url": "http://a.example/new", "title": "New"}]


def test_releases_reads_the_feeds_of_packages() -> None:
    def feed(version: str, day: str) -> SimulatedResponse:
        entry = f"<item><title>{version}</title><pubDate>{day} May 2024 10:00:00 GMT</pubDate></item>"
        body = f"<rss><channel>{entry}<item><title>no time</title></item></channel></rss>"
        return SimulatedResponse(200, body, {"Content-Type": "application/rss+xml"})

    web = SimulatedWeb()
    web.add_host("pypi.org", handler=lambda request: feed(*(("1.0", "01") if "trio" in request.url else ("2.0", "02"))))
    assert simulate(Releases, web, packages="trio,parsel").items == [
        {"package": "trio", "version": "1.0", "day": "2024-05-01"},
        {"package": "parsel", "version": "2.0", "day": "2024-05-02"},
    ]


def test_trawl_check_finds_nothing_wrong_with_them() -> None:
    assert [check_spider(spider) for spider in (Catalogue, Changed, Releases)] == [[], [], []]
