"""Engine hooks for Scrapy's behavior: spider middleware, extensions, signals of start and end, ``spider_idle``.

When nothing is pending, the receivers of ``spider_idle`` are called. The requests that they pass to
``crawler.engine.crawl(request)`` are stored after all receivers were called, even if the crawl ends in the meantime.
Then the crawl continues if something is pending. If not, the receivers are called again after :data:`PAUSE` seconds if
one has raised ``DontCloseSpider``, as in Scrapy. Otherwise the crawl ends, for the reason of ``CloseSpider`` if any.

Only :mod:`trawl._run` imports these hooks, and passes them to the engine.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import trio

from trawl import scrapy_names
from trawl.engine import Crawl
from trawl.engine.hooks import Hooks, Store
from trawl.errors import CloseSpider, DontCloseSpider, TrawlError, WrittenForScrapy
from trawl.events import Events
from trawl.http import Response
from trawl.middleware.factory import entry_name, make_instance
from trawl.observe import Stats
from trawl.spiders import ItemCheck, Spider
from trawl.spiders.crawler import IDLE, Crawler, accepted

if TYPE_CHECKING:
    from trawl.compat.middleware import SpiderMiddleware

__all__ = ["PAUSE", "CompatHooks", "hears_idle", "ignore_urls"]

logger: logging.Logger = logging.getLogger("trawl.engine")
admission_logger: logging.Logger = logging.getLogger("trawl.admission")


class _LogCounter(logging.Handler):
    """Counts the log entries by level, for Scrapy's statistics such as ``log_count/ERROR``."""

    def __init__(self, stats: Stats) -> None:
        super().__init__()
        self._stats = stats

    def emit(self, record: logging.LogRecord) -> None:
        """Count a log entry."""
        self._stats.inc(f"log_count/{record.levelname}")


PAUSE = 5.0  # seconds until receivers that keep an idle crawl open are called again
SETTING = "EXTENSIONS"
_SCRAPYS = "scrapy."


class CompatHooks(Hooks):
    """The hooks of a crawl for Scrapy's classes and signals. ``check`` checks the items after all other hooks."""

    def __init__(self, crawl: Crawl, check: ItemCheck | None) -> None:
        self._middleware: SpiderMiddleware | None = None
        if chosen := crawl.settings["SPIDER_MIDDLEWARES"]:
            from trawl.compat.middleware import spider_middleware  # noqa: PLC0415 - for crawls with spider middleware

            made = spider_middleware(chosen, crawl)
            self._middleware = made if made.inputs else None
            super().__init__(made.outputs, made.start, check, sees_refused=made.sees_errors)
        else:
            super().__init__(check=check)
        self._crawl = crawl
        self._spider = crawl.spider
        self._log_counter = _LogCounter(crawl.stats) if crawl.settings["SCRAPY_COMPAT"] else None

    def received(self, response: Response) -> TrawlError | None:
        """Pass a response to ``process_spider_input``. Returns the error that this method raised, or None."""
        if self._log_counter is not None and response.request is not None:
            self._crawl.stats.max("request_depth_max", response.request.depth)
        return None if self._middleware is None else self._middleware.received(response)

    def close(self, spider: Spider, reason: str) -> object:
        """Call ``close`` if a moved spider overrides it, and ``closed`` otherwise."""
        if type(spider).close is Spider.close or not self._crawl.settings["SCRAPY_COMPAT"]:
            return super().close(spider, reason)
        close: Any = spider.close
        return close(**accepted(close, {"spider": spider, "reason": reason}))

    def begin(self, events: Events) -> None:
        """Create the extensions, and send signals for events from now on. A moved spider's imports are checked."""
        self._set_time("start_time")
        _make_extensions(self._crawl)
        if self._crawl.settings["SCRAPY_COMPAT"]:
            _check_imports(type(self._spider))
        if (crawler := _crawler_of(self._spider)) is not None:
            crawler.signals.bind(events, self._spider)

    async def opened(self) -> None:
        """Start to count log entries, and send ``engine_started`` and ``spider_opened``. A receiver may await."""
        if self._log_counter is not None:
            logging.getLogger().addHandler(self._log_counter)
        await self._send("engine_started")
        await self._send("spider_opened")

    @property
    def wants_idle(self) -> bool:
        """Whether ``spider_idle`` has a receiver."""
        return hears_idle(self._spider)

    async def idle(self, store: Store) -> bool:
        """Call the receivers of ``spider_idle``, and store the requests that they add."""
        crawler = self._spider.crawler
        with crawler.engine.taking() as given:
            try:
                errors = await crawler.signals.send(IDLE, spider=self._spider)
            finally:
                await store(given)  # noqa: ASYNC102 - store() is shielded until the crawl is cancelled
        if not self._crawl.is_idle:
            return True
        if any(isinstance(error, DontCloseSpider) for error in errors):  # overrides CloseSpider, as in Scrapy
            await trio.sleep(PAUSE)
            return True
        if (closing := next((error for error in errors if isinstance(error, CloseSpider)), None)) is not None:
            self._crawl.shutdown(closing.reason)
        return False

    async def closing(self, reason: str) -> None:
        """Send ``spider_closed``. A checkpoint only if there is a receiver."""
        self._set_time("finish_time")
        try:
            await self._send("spider_closed", reason=reason)
        finally:
            if self._log_counter is not None:
                logging.getLogger().removeHandler(self._log_counter)

    async def closed(self) -> None:
        """Send ``engine_stopped``. A checkpoint only if there is a receiver."""
        await self._send("engine_stopped")

    def _set_time(self, key: str) -> None:
        if self._log_counter is not None:
            now: Any = self._crawl.now_utc()  # only moved crawls have a datetime in their statistics
            self._crawl.stats.set(key, now)

    async def _send(self, signal: str, **given: object) -> None:
        if (crawler := _crawler_of(self._spider)) is not None:
            await crawler.signals.send(signal, spider=self._spider, **given)


def _check_imports(spider_class: type[Spider]) -> None:
    """Refuse a project whose loaded modules import names that trawl does not have.

    If Scrapy or Twisted is installed next to trawl, such an import succeeds, and the imported names fail only when they
    are used. Modules in the spider's folder and below are checked. Installed packages are not.
    """
    if not {"scrapy", "twisted"} & sys.modules.keys():
        return
    imports = scrapy_names.imports
    files = imports.project_files(spider_class)
    hints = [hint for path in files if (hint := imports.hint_of_file(path, is_whole=False))]
    if hints:
        raise WrittenForScrapy("; ".join(map(str, hints)), tuple(place for hint in hints for place in hint.places))


def hears_idle(spider: Spider) -> bool:
    """Return whether ``spider_idle`` of the spider's crawler has a receiver."""
    crawler = _crawler_of(spider)
    return crawler is not None and crawler.signals.is_heard(IDLE)


def _crawler_of(spider: Spider) -> Crawler | None:
    """Return the spider's crawler; None if the spider's own ``from_crawler`` did not call the inherited method."""
    return getattr(spider, "crawler", None)


def _make_extensions(crawl: Crawl) -> None:
    """Create the objects that ``EXTENSIONS`` names, in order. The connected signals keep these objects alive."""
    for entry, order in sorted(crawl.settings[SETTING].items(), key=lambda pair: pair[1] or 0.0):
        if order is None:
            continue
        if isinstance(entry, str) and entry.startswith(_SCRAPYS):
            why = scrapy_names.names.name_advice(entry.removeprefix(_SCRAPYS))
            logger.warning("%s: %s has no effect: %s", SETTING, entry_name(entry), why)
        else:
            make_instance(entry, SETTING, crawl)


def ignore_urls(spider: Spider[Any]) -> None:
    """Warn of URLs and ports in ``allowed_domains``, and remove them, because they match nothing in Scrapy."""
    given: Any = spider.allowed_domains
    if isinstance(given, str) or not isinstance(given, Iterable):
        return
    domains = list(given)
    wrong = [name for name in domains if isinstance(name, str) and (":" in name.rpartition("]")[2] or "/" in name)]
    if not wrong:
        return
    words = "%s: allowed_domains: %s: URLs and ports match nothing, as in Scrapy; write the domain alone"
    admission_logger.warning(words, spider.name, ", ".join(map(repr, wrong)))
    kept = [name for name in domains if name not in wrong]
    # An empty list would allow every domain. The domain `none.invalid` has no hosts (RFC 2606, section 2).
    spider.allowed_domains = kept or ["none.invalid"]
