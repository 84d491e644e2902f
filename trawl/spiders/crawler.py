"""The crawl under the name, and with the words, that Scrapy's spiders know it by: ``self.crawler``.

A thin face of :class:`~trawl.spiders.RunningCrawl`, there before the crawl runs, because ``from_crawler`` is given it.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any

from trawl.errors import UsageError
from trawl.http import Request, Response
from trawl.observe import Stats
from trawl.spiders.running import RunningCrawl

__all__ = ["SENT", "Crawler", "CrawlerEngine", "CrawlerSignals"]

SENT: frozenset[str] = frozenset({"spider_opened", "spider_closed"})
"""The signals that are sent here as Scrapy sends them; every project that it begins connects the first."""

logger: logging.Logger = logging.getLogger("trawl.spiders")


class CrawlerEngine:
    """What spiders ask of Scrapy's engine: to end the crawl, and to fetch."""

    __slots__ = ("_crawl",)

    def __init__(self) -> None:
        self._crawl: RunningCrawl | None = None

    def bind(self, crawl: RunningCrawl) -> None:
        """Name the crawl, once it runs."""
        self._crawl = crawl

    def close_spider(self, spider: object = None, reason: str = "cancelled") -> None:
        """Send nothing new, let what is in flight end, and finish with ``reason``."""
        self._running().shutdown(reason)

    async def download(self, request: Request) -> Response:
        """The response to ``request``, through the throttle. A checkpoint; errors are those of ``spider.fetch``."""
        return await self._running().fetch(request)

    async def download_async(self, request: Request) -> Response:
        """The newer name of :meth:`download`. A checkpoint."""
        return await self._running().fetch(request)

    def _running(self) -> RunningCrawl:
        if self._crawl is None:
            raise RuntimeError("the crawl is not running yet: its engine is there from start() on")
        return self._crawl


class CrawlerSignals:
    """Two of Scrapy's signals, ``spider_opened`` and ``spider_closed``; for each other one, what takes its place."""

    __slots__ = ("_receivers",)

    def __init__(self) -> None:
        self._receivers: list[tuple[object, Callable[..., Any]]] = []

    def connect(self, receiver: Callable[..., Any], signal: object = None, **options: object) -> None:
        """Have ``receiver`` called, with as many of ``spider`` and ``reason`` as it takes; it may be ``async``.

        Args:
            receiver: Called when the signal is sent. What it raises is logged.
            signal: ``trawl.signals.spider_opened`` or ``trawl.signals.spider_closed``.
            options: Scrapy's others, which are not looked at.

        Raises:
            UsageError: It is another signal; the sentence says what to write instead.
        """
        if not isinstance(signal, str) or signal not in SENT:
            raise UsageError(
                f"there is no signal {signal}: there are spider_opened and spider_closed; for others a watcher"
                " (WATCHERS) reads crawl.events(ItemScraped, ...); the guide 'Watch a crawl' has the whole list"
            )
        self._receivers.append((signal, receiver))

    async def send(self, signal: str, **given: object) -> None:
        """Call those that are connected, in order. A checkpoint only where one of them is."""
        for wanted, receiver in self._receivers:
            if wanted != signal:
                continue
            try:
                result = receiver(**_taken(receiver, given))
                if inspect.isawaitable(result):
                    await result
            except Exception:
                logger.exception("what is connected to %s failed: %r", signal, receiver)


def _taken(receiver: Callable[..., Any], given: Mapping[str, object]) -> Mapping[str, object]:
    """Those of ``given`` that a function takes by name."""
    parameters = inspect.signature(receiver).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return given
    return {name: value for name, value in given.items() if name in parameters}


class Crawler:
    """A crawl as Scrapy's spiders see it: ``crawler.settings``, ``crawler.stats``, ``crawler.engine``.

    Attributes:
        settings: The settings by their upper-case names.
        stats: The statistics, with Scrapy's methods (``inc_value``, ``get_value``, ...) too.
        spidercls: The spider's class.
        spider: The spider, once it is made.
        engine: Ends the crawl, and fetches.
        signals: Sends ``spider_opened`` and ``spider_closed``; says what takes the place of the others.
    """

    def __init__(self, settings: Mapping[str, Any], stats: Stats, spidercls: type[Any]) -> None:
        self.settings: Mapping[str, Any] = settings
        self.stats: Stats = stats
        self.spidercls: type[Any] = spidercls
        self.spider: Any = None
        self.engine: CrawlerEngine = CrawlerEngine()
        self.signals: CrawlerSignals = CrawlerSignals()
