"""The crawl as Scrapy's spiders know it: ``self.crawler``, the argument of ``from_crawler``.

It exists before the crawl runs, and passes calls to the :class:`~trawl.Crawl` from then on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self

import trio
from w3lib.url import canonicalize_url

from trawl.compat.signals import CrawlerSignals
from trawl.http import Request, Response
from trawl.http import fingerprint as own_fingerprint
from trawl.migration import Unsupported
from trawl.observe import Stats

if TYPE_CHECKING:
    from trawl.engine import Crawl

__all__ = ["Crawler", "CrawlerEngine", "RequestFingerprinter", "fingerprint", "status_words"]

_GIVE = "yield the request from a callback, or from start(), which may wait for work and is read while there is room"
_PAUSE = "`spider.crawl.throttling.set(scope, delay=...)` slows a site down, and the throttle backs off by itself"
_PARTS = "it has no counterpart: `spider.crawl` tells what the crawl does"
_MADE = "keep what you make yourself, and give it to whoever needs it"


def fingerprint(
    request: Request, *, include_headers: Iterable[bytes | str] | None = None, keep_fragments: bool = False
) -> bytes:
    """Return Scrapy's fingerprint of a request, 20 bytes, for identifiers that were stored by it.

    The crawl tells requests apart by :func:`trawl.http.fingerprint` instead.

    Args:
        request: The request; its method, URL and body count.
        include_headers: Names of headers that count too.
        keep_fragments: The URL's fragment counts too.
    """
    names = sorted(name.decode() if isinstance(name, bytes) else name for name in include_headers or ())
    headers = {
        name.lower().encode().hex(): [
            value.encode("latin-1").hex() for value in map(str, request.headers.getlist(name))
        ]
        for name in names
        if name in request.headers
    }
    url = canonicalize_url(request.url, keep_fragments=keep_fragments)
    data = {"method": request.method, "url": url, "body": request.body.hex(), "headers": headers}
    return hashlib.sha1(json.dumps(data, sort_keys=True).encode(), usedforsecurity=False).digest()


def status_words(status: int) -> str:
    """Return a status with its words: ``404 Not Found``."""
    known = status in HTTPStatus._value2member_map_
    return f"{status} {HTTPStatus(status).phrase if known else 'Unknown Status'}"


class RequestFingerprinter:
    """Scrapy's ``crawler.request_fingerprinter``, unless ``REQUEST_FINGERPRINTER_CLASS`` names another."""

    def __init__(self, crawler: Crawler | None = None) -> None:
        """Make one; ``crawler`` is not used."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Make one for a crawl."""
        return cls(crawler)

    def fingerprint(self, request: Request) -> bytes:
        """Return :func:`fingerprint` of a request."""
        return fingerprint(request)


class CrawlerEngine:
    """Scrapy's engine as spiders use it: it ends the crawl, fetches, and takes requests when nothing is pending."""

    __slots__ = ("_crawl", "_given")
    if not TYPE_CHECKING:
        schedule = Unsupported(_GIVE)
        pause = Unsupported(_PAUSE)
        unpause = Unsupported(_PAUSE)
        stop = Unsupported("`close_spider(spider, reason)` ends the crawl")
        spider_is_idle = Unsupported("`spider.crawl.is_idle` tells it")
        downloader = Unsupported(_PARTS)
        scraper = Unsupported(_PARTS)
        slot = Unsupported(_PARTS)

    def __init__(self) -> None:
        self._crawl: Crawl | None = None
        self._given: list[Request] | None = None

    def bind(self, crawl: Crawl) -> None:
        """Set the running crawl."""
        self._crawl = crawl

    def close_spider(self, spider: object = None, reason: str = "cancelled") -> None:
        """Send nothing new, let what is in flight end, and finish with ``reason``."""
        self._running().shutdown(reason)

    def crawl(self, request: Request, spider: object = None) -> None:
        """Add a request to the crawl, in a receiver of ``spider_idle``; it is stored when all have been called.

        Raises:
            RuntimeError: No receiver is being called. Elsewhere requests are yielded, and so wait for room.
            TypeError: ``request`` is not a request.
        """
        if not isinstance(request, Request):
            raise TypeError(f"engine.crawl() takes a Request, not {request!r}")
        if self._given is None:
            raise RuntimeError(f"engine.crawl() is for receivers of the signal spider_idle: {_GIVE}")
        self._given.append(request)

    @contextmanager
    def taking(self) -> Generator[list[Request], None, None]:
        """Collect the requests that :meth:`crawl` is given inside the block."""
        given: list[Request] = []
        self._given = given
        try:
            yield given
        finally:
            self._given = None

    async def download(self, request: Request) -> Response:
        """The response to ``request``, through the throttle. A checkpoint; errors are those of ``spider.fetch``."""
        return await self._running().fetch(request)

    async def download_async(self, request: Request) -> Response:
        """The newer name of :meth:`download`. A checkpoint."""
        return await self._running().fetch(request)

    def _running(self) -> Crawl:
        if self._crawl is None:
            raise RuntimeError("the crawl is not running yet: its engine is there from start() on")
        return self._crawl


class Crawler:
    """A crawl as Scrapy's spiders know it: ``crawler.settings``, ``crawler.stats``, ``crawler.engine``.

    >>> class Counted:
    ...     def __init__(self, stats, most):
    ...         self.stats, self.most = stats, most
    ...
    ...     @classmethod
    ...     def from_crawler(cls, crawler):
    ...         return cls(crawler.stats, crawler.settings.getint("CLOSESPIDER_ITEMCOUNT"))
    ...
    ...     def process_item(self, item, spider):
    ...         self.stats.inc_value("counted/items")
    ...         return item

    Attributes:
        settings: The settings by their upper-case names.
        stats: The statistics, with Scrapy's methods (``inc_value``, ``get_value``, ...) too.
        spidercls: The spider's class.
        spider: The spider, once it is made.
        engine: Ends the crawl, and fetches.
        signals: Sends most of Scrapy's signals; an error says what to use instead of the others.
        request_fingerprinter: Its method ``fingerprint`` returns Scrapy's fingerprint of a request.
    """

    if not TYPE_CHECKING:
        crawl = Unsupported("`await trawl.crawl(Spider)` runs one, `trawl.run(Spider)` too")
        logformatter = Unsupported("the log is as LOG_FORMAT says")
        extensions = Unsupported(_MADE)
        get_addon = Unsupported("there are no add-ons")
        get_downloader_middleware = Unsupported(_MADE)
        get_extension = Unsupported(_MADE)
        get_item_pipeline = Unsupported(_MADE)
        get_spider_middleware = Unsupported(_MADE)

    def __init__(self, settings: Mapping[str, Any], stats: Stats, spidercls: type[Any]) -> None:
        self.settings: Mapping[str, Any] = settings
        self.stats: Stats = stats
        self.spidercls: type[Any] = spidercls
        self.spider: Any = None
        self.engine: CrawlerEngine = CrawlerEngine()
        self.signals: CrawlerSignals = CrawlerSignals()
        self.request_fingerprinter: Any = RequestFingerprinter(self)

    def bind(self, crawl: Crawl) -> None:
        """Set the running crawl."""
        self.engine.bind(crawl)

    def marks(self, *, has_job: bool) -> Callable[[Request], bytes | None]:
        """Return the function that makes the mark by which the crawl sees a request.

        Args:
            has_job: Requests are kept with the marks from one run to the next.

        Raises:
            SettingsError: ``DUPEFILTER_CLASS`` or ``REQUEST_FINGERPRINTER_CLASS`` can't be used.
        """
        if not self.settings["DUPEFILTER_CLASS"] and not self.settings["REQUEST_FINGERPRINTER_CLASS"]:
            return own_fingerprint
        from trawl.compat.classes import marks  # noqa: PLC0415 - for crawls with a class of their own

        return marks(self, has_job=has_job)

    def stop(self) -> None:
        """Send nothing new, let what is in flight end, and finish with ``shutdown``."""
        self.engine.close_spider(self.spider, "shutdown")

    async def stop_async(self) -> None:
        """Scrapy's newer name of :meth:`stop`. A checkpoint; it does not wait for the end."""
        await trio.lowlevel.checkpoint()
        self.stop()
