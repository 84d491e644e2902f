"""Crawls over the real transport, for tests of faulty servers, names and networks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import attrs
import trio

import trawl
from trawl._run import crawl_with
from trawl.errors import TrawlError
from trawl.http import Response
from trawl.settings import Layer, load
from trawl.transport.resolver import Resolve

__all__ = ["AT_ONCE", "Failed", "Run", "crawled"]

AT_ONCE = {
    "DOWNLOAD_DELAY": 0.0,
    "DOWNLOAD_DELAY_PER_SLOT": 0.0,
    "CONCURRENT_REQUESTS": 64,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 64,
    "ROBOTSTXT_OBEY": False,
    "RETRY_ENABLED": False,
    "BACKOFF_EXCEPTIONS": [],
    "BACKOFF_HTTP_CODES": [],
    "DOWNLOAD_TIMEOUT": 100.0,
    "DOWNLOAD_READ_TIMEOUT": 20.0,
    "DOWNLOAD_CONNECT_TIMEOUT": 10.0,
    "DOWNLOAD_MAXSIZE": 200_000,
    "REDIRECT_MAX_TIMES": 5,
}
"""Settings of a crawl without delays that sends each request once."""


@attrs.frozen
class Failed:
    """A failure that an errback received.

    Attributes:
        url: The URL of the request.
        error: The error.
        after: Seconds since the start of the crawl.
    """

    url: str
    error: TrawlError
    after: float


@attrs.define
class Run:
    """The result of a crawl.

    Attributes:
        result: The crawl's result.
        pages: The URLs with a response, with the seconds since the start of the crawl.
        failed: The failures that errbacks received.
    """

    result: trawl.CrawlResult
    pages: list[tuple[str, float]]
    failed: list[Failed]

    @property
    def only(self) -> Failed:
        """Return the only failure of a crawl without other results."""
        assert self.pages == []
        (failed,) = self.failed
        return failed


async def crawled(
    urls: Iterable[str],
    settings: Mapping[str, object] | None = None,
    *,
    resolve: Resolve | None = None,
    spider: type[trawl.Spider] = trawl.Spider,
) -> Run:
    """Crawl each of ``urls`` once. ``start()`` yields them, so that they may be private addresses."""
    began = trio.current_time()
    pages: list[tuple[str, float]] = []
    failed: list[Failed] = []

    class Pages(spider):  # type: ignore[misc, valid-type]
        name = "pages"

        async def start(self) -> AsyncIterator[Any]:
            for url in urls:
                yield trawl.Request(url, errback=self.fail, dont_filter=True)

        def parse(self, response: Response, **kwargs: Any) -> Any:
            pages.append((response.url, trio.current_time() - began))
            yield {"url": response.url}
            yield from super().parse(response) if spider is not trawl.Spider else ()

        def fail(self, error: TrawlError) -> None:
            failed.append(Failed(error.request.url, error, trio.current_time() - began))

    result = await crawl_with(
        Pages, load(Layer("test", {**AT_ONCE, **(settings or {})})), collect=True, resolve=resolve
    )
    return Run(result, pages, failed)
