"""A `{name}` that a string without its `f` leaves in a URL is warned of once."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

import trawl
from trawl.http import Response
from trawl.testing import SimulatedWeb, simulate


def warnings(urls: list[str], caplog: pytest.LogCaptureFixture, body: str = "", found: str = "") -> list[str]:
    class Asks(trawl.Spider):
        name = "asks"
        start_urls = urls

        def parse(self, response: Response) -> Any:
            if found and response.url.endswith("/"):
                yield response.follow(found)

    web = SimulatedWeb()
    web.add_host("a.example", body=body)
    simulate(Asks, web, {"ROBOTSTXT_OBEY": False})
    return [record.getMessage() for record in caplog.records if "its URL has" in record.getMessage()]


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example/{page}",
        "http://a.example/{page}/x",
        "http://a.example/?page={page}",
        "http://a.example/#{page}",
    ],
)
def test_a_name_in_braces_is_told(url: str, caplog: pytest.LogCaptureFixture) -> None:
    [message] = warnings([url, f"{url}/again"], caplog)
    assert message.endswith(
        'its URL has {page} in it: put an f before the string, f"...{page}...", to have the value there'
    )


def test_of_one_that_a_callback_gives_the_page_is_told(caplog: pytest.LogCaptureFixture) -> None:
    [message] = warnings(["http://a.example/"], caplog, found="/list/{self.page}")
    assert "(found on http://a.example/)" in message


def test_a_link_that_is_on_the_page_so_is_not(caplog: pytest.LogCaptureFixture) -> None:
    assert warnings(["http://a.example/"], caplog, body="<a href='/{page}'>", found="/{page}") == []


@pytest.mark.parametrize("url", ["http://a.example/%7Bpage%7D/x", "http://a.example/?q=%7bpage%7d"])
def test_braces_that_are_percent_encoded_are_meant_so(url: str, caplog: pytest.LogCaptureFixture) -> None:
    assert warnings([url, "http://a.example/"], caplog, found=url) == []


def test_a_compressed_sitemap_may_list_such_a_page(caplog: pytest.LogCaptureFixture) -> None:
    class Pages(trawl.SitemapSpider):
        name = "pages"
        sitemap_urls = ("http://a.example/sitemap.xml.gz",)

        def parse(self, response: Response) -> None: ...

    web = SimulatedWeb()
    web.add_page("http://a.example/{page}", body="x")
    sitemap = gzip.compress(b"<urlset><url><loc>http://a.example/{page}</loc></url></urlset>")
    web.add_page("http://a.example/sitemap.xml.gz", body=sitemap, headers={"Content-Type": "application/gzip"})
    simulate(Pages, web, {"ROBOTSTXT_OBEY": False})
    assert "its URL has" not in caplog.text


@pytest.mark.parametrize("url", ["http://a.example/{}", "http://a.example/{1}", 'http://a.example/?q={"a":1}'])
def test_other_braces_are_not(url: str, caplog: pytest.LogCaptureFixture) -> None:
    assert warnings([url], caplog) == []
