"""Spiders that learn their pages from sitemaps."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from typing import Any

import pytest

import trawl
from trawl.errors import UsageError
from trawl.http import Response
from trawl.spiders import SitemapSpider
from trawl.testing import SimulatedResponse, SimulatedWeb, Simulation, simulate

FAST = {"DOWNLOAD_DELAY": 0.0}
HOST = "http://a.example"


def urlset(*entries: str) -> str:
    return f"<urlset>{''.join(f'<url>{entry}</url>' for entry in entries)}</urlset>"


def loc(path: str, rest: str = "") -> str:
    return f"<loc>{HOST}{path}</loc>{rest}"


def site(files: dict[str, str | bytes]) -> SimulatedWeb:
    """A site that has these files, and an empty page everywhere else."""

    def answer(request: Any) -> SimulatedResponse:
        body = files.get(request.url.removeprefix(HOST), "")
        if not body:
            return SimulatedResponse(200, body, {"Content-Type": "text/html"})
        if isinstance(body, bytes):
            return SimulatedResponse(200, body, {"Content-Type": "application/gzip"})
        return SimulatedResponse(200, body, {"Content-Type": "application/xml" if body[0] == "<" else "text/plain"})

    web = SimulatedWeb()
    robots = files.get("/robots.txt")
    web.add_host("a.example", handler=answer, robots=robots if isinstance(robots, str) else None)
    return web


class Pages(SitemapSpider):
    name = "pages"
    sitemap_urls = [f"{HOST}/sitemap.xml"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"page": response.url.removeprefix(HOST)}


def pages(sim: Simulation) -> list[str]:
    assert sim.reason == "finished"
    assert sim.stats.get("spider_exceptions", 0) == 0
    return [item["page"] for item in sim.items]


def test_the_pages_of_a_sitemap_are_asked_for() -> None:
    web = site({"/sitemap.xml": urlset(loc("/1"), loc("/2"), "<loc>http://[</loc>", "<loc>/3</loc>")})
    assert pages(simulate(Pages, web, FAST)) == ["/1", "/2", "/3"]


def test_start_requests_may_add_pages_to_the_sitemaps() -> None:
    class More(Pages):
        def start_requests(self) -> list[trawl.Request]:
            return [*super().start_requests(), trawl.Request(f"{HOST}/new", self.parse)]

    assert pages(simulate(More, site({"/sitemap.xml": urlset(loc("/1"))}), FAST)) == ["/new", "/1"]


def test_rules_say_who_gets_which_page_and_the_first_wins() -> None:
    class Shop(Pages):
        sitemap_rules = [("/product/", "parse_product"), (re.compile("^.*/category/"), "parse"), ("/p", "parse")]

        def parse_product(self, response: Response) -> dict[str, str]:
            return {"page": f"product {response.url[-1]}"}

    web = site({"/sitemap.xml": urlset(loc("/product/1"), loc("/category/2"), loc("/about"))})
    assert pages(simulate(Shop, web, FAST)) == ["product 1", "/category/2"]


def test_an_index_leads_to_sitemaps_packed_or_not_and_pages_come_before_the_next_sitemap() -> None:
    web = site(
        {
            "/sitemap.xml": f"<sitemapindex><sitemap>{loc('/a.xml')}</sitemap><sitemap>{loc('/b.xml.gz')}</sitemap>"
            f"<sitemap>{loc('/old/c.xml')}</sitemap></sitemapindex>",
            "/a.xml": urlset(loc("/1"), loc("/2")),
            "/b.xml.gz": gzip.compress(urlset(loc("/3")).encode()),
        }
    )

    class Followed(Pages):
        sitemap_follow = [r"a\.example/\w\.xml"]
        custom_settings = {"CONCURRENT_REQUESTS_PER_DOMAIN": 1}

    sim = simulate(Followed, web, FAST)
    assert pages(sim) == ["/1", "/2", "/3"]
    sent = [send.url.removeprefix(HOST) for send in sim.sends]
    assert sent == ["/robots.txt", "/sitemap.xml", "/a.xml", "/1", "/2", "/b.xml.gz", "/3"]


def test_robots_txt_tells_where_sitemaps_are() -> None:
    class Found(Pages):
        sitemap_urls = [f"{HOST}/robots.txt"]

    robots = f"Sitemap: {HOST}/s.xml\nSitemap: /t.txt\n"
    web = site({"/robots.txt": robots, "/s.xml": urlset(loc("/1")), "/t.txt": f"{HOST}/2\n"})
    assert sorted(pages(simulate(Found, web, {**FAST, "ROBOTSTXT_OBEY": False}))) == ["/1", "/2"]


def test_other_languages_only_where_they_are_wanted() -> None:
    web = site({"/sitemap.xml": urlset(loc("/1", f'<link rel="alternate" hreflang="de" href="{HOST}/de/1"/>'))})
    assert pages(simulate(Pages, web, FAST)) == ["/1"]
    assert pages(simulate(Pages, web, FAST, sitemap_alternate_links=True)) == ["/1", "/de/1"]


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        ("2024-05-01", ["/may", "/never"]),
        (date(2024, 5, 2), ["/may", "/never"]),
        (datetime(2024, 6, 1, tzinfo=UTC), ["/never"]),
        (datetime(2024, 6, 1), ["/never"]),
        ("2024-04-30T23:59:59+00:00", ["/april", "/may", "/never"]),
        ("", ["/april", "/may", "/never"]),
    ],
)
def test_what_was_not_changed_since_is_left_out(since: Any, expected: list[str]) -> None:
    entries = urlset(
        loc("/april", "<lastmod>2024-04-30</lastmod>"), loc("/may", "<lastmod>2024-05</lastmod>"), loc("/never")
    )
    assert pages(simulate(Pages, site({"/sitemap.xml": entries}), FAST, sitemap_modified_since=since)) == expected


def test_entries_may_be_chosen_by_hand() -> None:
    class Chosen(Pages):
        def sitemap_filter(self, entries: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
            assert getattr(entries, "type", None) == "urlset"
            for entry in entries:
                if float(entry.get("priority", "0.5")) > 0.6:
                    yield entry

    web = site({"/sitemap.xml": urlset(loc("/1", "<priority>0.9</priority>"), loc("/2"))})
    assert pages(simulate(Chosen, web, FAST)) == ["/1"]


@pytest.mark.parametrize(
    ("body", "limits", "words", "expected"),
    [
        (urlset(loc("/1"), loc("/2")), {"sitemap_max_entries": 1}, "longer than", ["/1"]),
        (urlset(loc("/1"), loc("/2")), {"sitemap_max_bytes": 60}, "longer than", ["/1"]),
        (gzip.compress(urlset(loc("/1")).encode(), mtime=0)[:-12], {}, "gzip data is broken", ["/1"]),
        ("<html>404</html>", {}, "is not a sitemap", []),
        ("http://[", {}, "contains 'http://[', which is not a URL", []),
    ],
    ids=["entries", "bytes", "gzip", "a page", "no URL"],
)
def test_a_file_that_is_too_long_or_none_is_told(
    body: str | bytes, limits: dict[str, Any], words: str, expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    found = pages(simulate(Pages, site({"/sitemap.xml": body}), FAST, **limits))
    assert found == expected
    assert words in caplog.text


def test_indexes_do_not_lead_on_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    files: dict[str, str | bytes] = {
        f"/{n}.xml": f"<sitemapindex><sitemap>{loc(f'/{n + 1}.xml')}</sitemap></sitemapindex>" for n in range(20)
    }

    class Deep(Pages):
        sitemap_urls = [f"{HOST}/0.xml"]
        sitemap_max_depth = 3

    sim = simulate(Deep, site(files), FAST)
    assert [send.url[-6:] for send in sim.sends][1:] == ["/0.xml", "/1.xml", "/2.xml", "/3.xml"]
    assert "an index at depth 4 is not followed" in caplog.text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sitemap_rules": [("(", "parse")]}, r"sitemap_rules\[0\]: '\(' is not a regular expression"),
        ({"sitemap_rules": [("", "parse_x")]}, r"sitemap_rules\[0\]: Pages has no method 'parse_x'"),
        ({"sitemap_follow": ["["]}, r"sitemap_follow\[0\]"),
        ({"sitemap_modified_since": "soon"}, "'soon' is not a date"),
        ({"sitemap_urls": ["a.example"]}, r"sitemap_urls\[0\]"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_sent(
    changes: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in changes.items():
        monkeypatch.setattr(Pages, name, value)
    with pytest.raises(UsageError, match=words):
        Pages().check()


def test_it_is_where_a_user_looks_for_it() -> None:
    assert trawl.SitemapSpider is SitemapSpider


@pytest.mark.parametrize("is_async", [False, True])
def test_what_parses_a_file_may_be_overridden_and_calls_the_base_in_a_loop_of_either_kind(is_async: bool) -> None:
    class Marking(SitemapSpider):
        name = "marking"
        sitemap_urls = (f"{HOST}/sitemap.xml",)

        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield {"url": response.url, "map": response.meta["map"]}

    class Plain(Marking):
        def _parse_sitemap(self, response: Response) -> Any:
            for request in super()._parse_sitemap(response):
                request.meta["map"] = response.url
                yield request

    class Async(Marking):
        async def _parse_sitemap(self, response: Response) -> Any:
            async for request in super()._parse_sitemap(response):
                request.meta["map"] = response.url
                yield request

    sim = simulate(Async if is_async else Plain, site({"/sitemap.xml": urlset(loc("/1"), loc("/2"))}), FAST)
    assert sim.items == [{"url": f"{HOST}/{n}", "map": f"{HOST}/sitemap.xml"} for n in (1, 2)]


def test_another_callback_calls_what_parses_a_file() -> None:
    spider = SitemapSpider("shop")
    page = Response(f"{HOST}/sitemap.xml", body=urlset(loc("/1"), loc("/2")).encode())
    assert [request.url for request in spider._parse_sitemap(page)] == [f"{HOST}/1", f"{HOST}/2"]


def test_the_bytes_of_a_file_may_be_had_otherwise() -> None:
    class Packed(SitemapSpider):
        name = "packed"
        sitemap_urls = (f"{HOST}/sitemap.bin",)

        def _get_sitemap_body(self, response: Response) -> bytes:
            return bytes(byte ^ 1 for byte in response.body)

        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield {"url": response.url}

    packed = bytes(byte ^ 1 for byte in urlset(loc("/1")).encode())
    assert simulate(Packed, site({"/sitemap.bin": packed}), FAST).items == [{"url": f"{HOST}/1"}]
