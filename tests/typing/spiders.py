"""Typed spiders and programs as users write them. Checked by mypy, and by the last mypy that supports trio-typing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, assert_type

import trio

import trawl
from trawl.exceptions import CloseSpider, DownloadError, DropItem, HttpError


@dataclass
class Book:
    """An item."""

    title: str
    price: float


class Books(trawl.Spider):
    """A spider with all four kinds of callbacks."""

    name = "books"
    start_urls = ["https://books.toscrape.com/"]
    allowed_domains = ["books.toscrape.com"]
    custom_settings = {"DOWNLOAD_DELAY": 0.5}

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        for url in self.start_urls:
            yield trawl.Request(url, self.parse, errback=self.failed, cb_kwargs={"shelf": 1}, meta={"delay": 1.0})
        yield trawl.Request.json("https://books.toscrape.com/api", {"page": 1})
        yield trawl.Request.form("https://books.toscrape.com/search", {"q": "trio"}, priority=5)

    def parse(self, response: trawl.Response, shelf: int = 0) -> Iterator[Book | trawl.Request]:
        assert_type(response.url, str)
        assert_type(response.status, int)
        assert_type(response.body, bytes)
        assert_type(response.text, str)
        assert_type(response.encoding, str)
        assert_type(response.headers.get("Content-Type"), str | None)
        for title in response.css("h3::text").getall():
            yield Book(title, 1.0)
        yield from response.follow_all(css="li.next a", callback=self.read)
        yield response.follow("page-2.html", self.stream, priority=1)
        yield trawl.Request(response.urljoin("/x")).replace(method="HEAD", dont_filter=True)

    async def read(self, response: trawl.Response) -> Book | None:
        with trio.move_on_after(3):
            other = await self.fetch(trawl.Request("https://books.toscrape.com/price"))
            assert_type(other, trawl.Response)
            return Book(response.css("h1::text").get(""), float(other.json()["price"]))
        return None

    async def stream(self, response: trawl.Response) -> AsyncIterator[dict[str, str]]:
        yield {"title": response.xpath("//h1/text()").get("")}
        raise CloseSpider("enough")

    def one(self, response: trawl.Response) -> dict[str, str]:
        if not response.meta.get("wanted"):
            raise DropItem("not wanted")
        return {"url": response.url}

    def failed(self, error: Exception) -> None:
        if isinstance(error, HttpError):
            self.logger.warning("%s", error.response.status)
        elif isinstance(error, DownloadError):
            self.logger.warning("%s %s %s", error.method, error.url, error.is_retryable)

    def closed(self, reason: str) -> None:
        self.logger.info("%s %s", reason, self.settings["DOWNLOAD_DELAY"])


class OnlyBooks(trawl.Spider[Book]):
    """A spider with a type for its items, which mypy checks."""

    name = "only books"

    async def parse(self, response: trawl.Response) -> AsyncIterator[Book | trawl.Request]:
        yield Book("title", 1.0)
        yield response.follow("/2", self.one)

    def one(self, response: trawl.Response) -> Book | None:
        return None


class NotOnlyBooks(OnlyBooks):
    """A spider whose annotation mypy refuses."""

    async def parse(self, response: trawl.Response) -> AsyncIterator[dict[str, str]]:  # type: ignore[override]
        yield {"title": "x"}


class ByRules(trawl.CrawlSpider[Book]):
    """A crawl spider with a type for its items."""

    name = "by rules"
    rules = (trawl.Rule(trawl.LinkExtractor(allow="/book/"), callback="parse_book"),)

    def parse_book(self, response: trawl.Response) -> Iterator[Book]:
        yield Book("title", 1.0)


def program() -> str:
    """Run a crawl in a synchronous program."""
    result = trawl.run(Books, settings={"DOWNLOAD_DELAY": 0.1}, shelf="top")
    assert_type(result, trawl.CrawlResult)
    assert_type(result.elapsed, float)
    assert_type(result.stats, Mapping[str, Any])
    return result.reason


async def side_by_side() -> None:
    """Run two crawls in one Trio program, with a timeout around them."""
    with trio.move_on_after(60) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trawl.crawl, Books)
            nursery.start_soon(trawl.crawl, Books, {"DOWNLOAD_DELAY": 2.0})
    assert_type(scope.cancelled_caught, bool)


async def streaming() -> int:
    """Read items while the crawl runs."""
    count = 0
    async with trawl.open_crawl(Books, settings={"CONCURRENT_REQUESTS": 4}) as crawl:
        async for item in crawl:
            count += isinstance(item, Book)
    return count
