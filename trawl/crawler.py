"""``CrawlerProcess``, which runs spiders from a script as in Scrapy, on top of :func:`trawl.crawl`.

New code is shorter with :func:`trawl.run`, which returns the items and the statistics. Nothing in trawl imports this
module. It is here because Scrapy users know this path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import trio

from trawl._run import CrawlResult, crawl
from trawl.cli.load import load_spider
from trawl.engine.callbacks import without_groups
from trawl.errors import UsageError
from trawl.scrapy_names import Unsupported
from trawl.scrapy_names.names import name_advice
from trawl.settings import Layer, Settings, ambient, load, of_spider
from trawl.spiders import Spider
from trawl.spiders.crawler import Crawler
from trawl.user_files import is_imported_for_spiders
from trawl.utils import configure_logging

__all__ = ["AsyncCrawlerProcess", "Crawler", "CrawlerProcess"]

_RESULTS = "`results` has how each crawl ended, once start() has returned"
_ALONE = "start() returns when the last crawl has ended; a Trio program runs `await trawl.crawl(Spider)`"


class CrawlerProcess:
    """Runs spiders at the same time, and waits for them.

    ::

        process = CrawlerProcess({"DOWNLOAD_DELAY": 2})
        process.crawl(Books, category="poetry")
        process.crawl(Quotes)
        process.start()

    Args:
        settings: Settings of all crawls. They override the project's settings. A spider's ``custom_settings`` override
            both, as in Scrapy.
        install_root_handler: True to log to standard error with ``LOG_LEVEL`` and ``LOG_FORMAT``, unless the program
            has configured logging.

    Attributes:
        results: Result of each crawl, in the order of the calls of :meth:`crawl`. Set when :meth:`start` returns.
    """

    if not TYPE_CHECKING:
        create_crawler = Unsupported(
            "give crawl() the spider's class, whose from_crawler() connects signals; `results[0].stats` are its"
            " statistics, and `trawl.run(Spider).items` its items"
        )
        crawlers = Unsupported(_RESULTS)
        bootstrap_failed = Unsupported(_RESULTS)
        join = Unsupported(_ALONE)
        stop = Unsupported(_ALONE)

    def __init__(self, settings: Mapping[str, object] | None = None, install_root_handler: bool = True) -> None:
        self._settings = dict(settings.own if isinstance(settings, Settings) else settings or {})
        self._installs = install_root_handler
        self._wanted: list[tuple[type[Spider], dict[str, Any]]] = []
        self.results: list[CrawlResult] = []

    def crawl(self, spider: type[Spider] | str, *args: Any, **kwargs: Any) -> None:
        """Add a spider to run. :meth:`start` runs it.

        Args:
            spider: The spider's class, or a string as for ``trawl crawl``, such as its name, which is looked up below
                the working directory.
            args: Not supported. Pass the arguments of spiders by name.
            kwargs: Arguments of the spider's constructor.

        Raises:
            UsageError: If ``spider`` is not a trawl spider, or an argument has no name.
            SpiderLoadError: If there is no such spider, or it can't be loaded.
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
        """Run the spiders, and return when all crawls have ended. Ctrl-C cancels them; feeds end with whole records.

        While a command such as ``trawl check`` imports the script for its spiders, nothing is sent.

        Args:
            stop_after_crawl: Ignored, because nothing keeps running after the crawls.
            install_signal_handlers: Ignored.

        Raises:
            UsageError: If a setting, a feed or a start URL can't be used.
            RuntimeError: If Trio already runs in this thread. Use ``await trawl.crawl(...)`` instead.
        """
        if not is_imported_for_spiders.get():
            configure_logging(self._settings, self._installs)
        wanted, self._wanted = self._wanted, []
        found: dict[int, CrawlResult] = {}

        async def one(number: int, spider: type[Spider], arguments: Mapping[str, Any]) -> None:
            settings = load(*ambient(spider=spider), Layer("settings", self._settings), of_spider(spider))
            found[number] = await crawl(spider, settings, **arguments)

        async def every() -> None:
            async with trio.open_nursery() as nursery:
                for number, (spider, arguments) in enumerate(wanted):
                    nursery.start_soon(one, number, spider, arguments)

        async def main() -> None:
            await without_groups(every())

        trio.run(main)
        self.results = [found[number] for number in range(len(wanted))]


AsyncCrawlerProcess = CrawlerProcess
"""Scrapy's other name for :class:`CrawlerProcess`."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Raise an error with advice on a name that only Scrapy's module has."""
        words = "" if name.startswith("__") else name_advice(f"crawler.{name}")
        if words:  # `from trawl.crawler import ...` would lose the message of an AttributeError
            raise ImportError(f"there is no {name} here: {words}", name=__name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
