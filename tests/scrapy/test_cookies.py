"""Cookies of a moved spider: those that Scrapy's middleware sends."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.http import Request as ScrapysRequest
from scrapy.http import Response as ScrapysResponse

from trawl.cookies import Jars
from trawl.http import Request, Response

PLAIN, SAFE = "http://a.example/dir/page", "https://a.example/dir/page"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def now_utc() -> datetime:
    return NOW


@pytest.mark.parametrize(
    "steps",
    [
        [(PLAIN, "a=1; Secure")],
        [(PLAIN, "__Host-a=1; Path=/")],
        [(PLAIN, "__Host-a=1; Path=/; Secure")],
        [(SAFE, "__Host-a=1; Path=/")],
        [(SAFE, "__Host-a=1; Path=/; Secure; Domain=a.example")],
        [(SAFE, "__Secure-a=1; Path=/")],
        [(SAFE, "a=1; Secure; Path=/"), (PLAIN, "a=2; Path=/")],
        [(SAFE, "a=1; Path=/"), (PLAIN, "b=2; Path=/; Secure")],
    ],
)
def test_the_same_cookies_are_sent(steps: list[tuple[str, str]]) -> None:
    scrapys, ours = CookiesMiddleware(), Jars(is_like_scrapy=True)
    for url, field in steps:
        scrapys.process_response(ScrapysRequest(url), ScrapysResponse(url, headers={"Set-Cookie": field}))
        ours.store(Request(url), Response(url, headers={"Set-Cookie": field}), now_utc)
    for url in (PLAIN, SAFE):
        asked = ScrapysRequest(url)
        scrapys.process_request(asked)
        assert (ours.header(Request(url), now_utc) or "").encode() == (asked.headers.get("Cookie") or b"")
