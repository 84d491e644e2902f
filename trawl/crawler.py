"""Where Scrapy's users look for what runs spiders from a script: ``CrawlerProcess``, over :func:`trawl.crawl`.

Something new is shorter with :func:`trawl.run`, which gives the items and the statistics back.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from trawl._run import CrawlResult, crawl
from trawl.cli.load import load_spider
from trawl.compat import name_advice
from trawl.compat.crawler import Crawler
from trawl.errors import UsageError
from trawl.migration import Absent
from trawl.observe import ObserveSettings
from trawl.settings import Layer, ambient, load
from trawl.spiders import Spider

__all__ = ["AsyncCrawlerProcess", "Crawler", "CrawlerProcess"]

_RESULTS = "`results` has how each crawl ended, once start() has returned"
_ALONE = "start() returns when the last crawl has ended; a Trio program runs `await trawl.crawl(Spider)`"


class CrawlerProcess:
    """Runs spiders side by side, and waits for them.

    ::

        process = CrawlerProcess({"DOWNLOAD_DELAY": 2})
        process.crawl(Books, category="poetry")
        process.crawl(Quotes)
        process.start()

    Args:
        settings: Of all of them; stronger than every other source of settings.
        install_root_handler: Log to standard error as ``LOG_LEVEL`` and ``LOG_FORMAT`` say, unless the program logs
            already.

    Attributes:
        results: How each crawl ended, in the order of :meth:`crawl`, once :meth:`start` has returned.
    """

    if not TYPE_CHECKING:
        create_crawler = Absent(
            "give crawl() the spider's class, whose from_crawler() connects signals; `results[0].stats` are its"
            " statistics, and `trawl.run(Spider).items` its items"
        )
        crawlers = Absent(_RESULTS)
        bootstrap_failed = Absent(_RESULTS)
        join = Absent(_ALONE)
        stop = Absent(_ALONE)

    def __init__(self, settings: Mapping[str, object] | None = None, install_root_handler: bool = True) -> None:
        self._settings = dict(settings or {})
        self._installs = install_root_handler
        self._wanted: list[tuple[type[Spider], dict[str, Any]]] = []
        self.results: list[CrawlResult] = []

    def crawl(self, spider: type[Spider] | str, *args: Any, **kwargs: Any) -> None:
        """Have a spider run at :meth:`start`.

        Args:
            spider: Its class; or what ``trawl crawl`` takes, such as its name, looked for below the working directory.
            args: There are none: arguments of spiders are given by name.
            kwargs: Given to its constructor.

        Raises:
            UsageError: It is no spider of trawl's, or an argument has no name.
            SpiderLoadError: There is no such spider, or it can't be loaded.
        """
        if isinstance(spider, str):
            spider = load_spider(spider)
        given: object = spider
        if not (isinstance(given, type) and issubclass(given, Spider)):
            raise UsageError(f"crawl() takes the class of a spider that derives from trawl.Spider, not {spider!r}")
        if args:
            raise UsageError(f"give {spider.__name__} its arguments by name, not {args[0]!r} alone")
        self._wanted.append((spider, kwargs))

    def start(self, stop_after_crawl: bool = True, install_signal_handlers: bool = True) -> None:
        """Run them all, and return when the last has ended. Ctrl-C cancels them; feeds end on whole records.

        Args:
            stop_after_crawl: Not looked at: nothing runs on when the crawls have ended.
            install_signal_handlers: Not looked at.

        Raises:
            UsageError: A setting, a feed or a start URL can't be used.
            RuntimeError: Trio runs already in this thread: use ``await trawl.crawl(...)``.
        """
        self._log()
        wanted, self._wanted = self._wanted, []
        found: dict[int, CrawlResult] = {}

        async def one(number: int, spider: type[Spider], arguments: Mapping[str, Any]) -> None:
            found[number] = await crawl(spider, self._settings, **arguments)

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                for number, (spider, arguments) in enumerate(wanted):
                    nursery.start_soon(partial(one, number, spider, arguments))

        failure: BaseException | None = None
        try:
            trio.run(main)
        except BaseExceptionGroup as group:
            if len(group.exceptions) > 1:
                raise
            failure = group.exceptions[0]
        if failure is not None:
            raise failure
        self.results = [found[number] for number in range(len(wanted))]

    def _log(self) -> None:
        # What they warn of is said by the crawls.
        values = load(*ambient(), Layer("settings", self._settings), tell=lambda warning: None).of(ObserveSettings)
        if self._installs and values.log_enabled:
            logging.basicConfig(level=values.log_level, format=values.log_format, datefmt=values.log_dateformat)


AsyncCrawlerProcess = CrawlerProcess
"""Scrapy's other name for it."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Advice on a name that only Scrapy's module has."""
        words = "" if name.startswith("__") else name_advice(f"crawler.{name}")
        if words:  # an AttributeError's words would be lost in `from trawl.crawler import ...`
            raise ImportError(f"there is no {name} here: {words}", name=__name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
