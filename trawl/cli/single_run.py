"""Runs a whole crawl, with throttling, robots.txt and middleware, that starts with work of the command's own.

``trawl fetch``, ``trawl parse`` and ``trawl shell`` are this with three kinds of work.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, cast

from rich.console import Console

from trawl.cli.crawl_entry import CrawlEntry, CrawlOptions
from trawl.cli.load import check_arguments, load_spider, look_beside, spider_arguments
from trawl.cli.logs import Logs, log_layer, run_guarded
from trawl.compat.signals import IDLE
from trawl.errors import SoftBlocked, TrawlError
from trawl.http import Request, Response
from trawl.observe import ObserveSettings
from trawl.settings import Layer, ambient, assignments, load, of_spider
from trawl.spiders import Spider

__all__ = [
    "DefaultSpider",
    "fetch_response",
    "run_single",
    "set_start",
    "set_work",
]

UNKEPT: Mapping[str, object] = {"FEEDS": {}, "ITEM_PIPELINES": {}, "JOB_DIR": ""}
"""Such a run writes no feed and no job."""

HASTY: Mapping[str, object] = {"DOWNLOAD_CONNECT_TIMEOUT": 10.0}
"""Someone waits at a terminal. The settings of a project or spider win."""

FIRST_ANSWER: Mapping[str, object] = {"RETRY_ENABLED": False, "ROBOTSTXT_RETRY_TIMES": 0}
"""The first response is shown, whatever its status, unless ``--wait`` or ``-s`` says otherwise."""


class DefaultSpider(Spider):
    """The spider used without ``--spider``."""

    name = "visitor"


def run_single(options: CrawlOptions, console: Console, act: Callable[[CrawlEntry], int]) -> int:
    """Load the spider and its settings, call ``act`` and print its error, if any. Returns the exit status.

    Args:
        options: With one spider, or none for :class:`DefaultSpider`.
        console: Standard error.
        act: Is given the crawl, runs it and returns the exit status.
    """
    logged = log_layer(options.log_level or "WARNING", None)
    return run_guarded(console, logged, lambda logs: act(_loaded(options, logged, logs)))


def _loaded(options: CrawlOptions, logged: Layer, logs: Logs) -> CrawlEntry:
    """Load the spider and its settings, and apply those of the log.

    Raises:
        UsageError: Settings or arguments do not fit.
        SpiderLoadError: The spider can't be loaded.
    """
    arguments = spider_arguments(options.arguments)
    spider = load_spider(options.targets[0]) if options.targets else DefaultSpider
    unkept = Layer("the command", UNKEPT)
    project, environment = ambient(spider=spider)
    if not options.targets:
        look_beside(project.source)
    around = (project, environment, of_spider(spider), logged)
    said = {name for layer in around for name in layer.values}
    hasty = {name: value for name, value in HASTY.items() if name not in said}
    if not options.waits:
        hasty |= FIRST_ANSWER
    layers = (*around, Layer("the command", hasty), assignments(options.settings), unkept)
    settings = load(*layers)
    logs.apply(settings.of(ObserveSettings))
    check_arguments(spider, arguments)
    return CrawlEntry(spider, settings, arguments, layers)


async def fetch_response(crawl: Any, request: Request) -> Response:
    """Fetch a request in a running crawl, including a response that ``SOFT_BLOCK_DETECTOR`` refuses. A checkpoint.

    Raises:
        DownloadError: There is no response.
        IgnoreRequest: robots.txt or a middleware refused the request.
    """
    try:
        response: Response = await crawl.fetch(request)
    except SoftBlocked as error:
        response = error.response
    return response


def set_work(entry: CrawlEntry, work: Callable[[Any], Awaitable[None]], errors: list[TrawlError]) -> None:
    """Have a crawl do ``work`` instead of its spider's start.

    Args:
        entry: The crawl.
        work: Called with the running spider.
        errors: Collects the trawl errors that ``work`` raises.
    """

    async def start(self: Spider) -> AsyncGenerator[Any, None]:
        try:
            await work(self)
        except TrawlError as error:
            errors.append(error)
        for request in list[Any]():  # makes this a generator
            yield request

    set_start(entry, start)


def set_start(entry: CrawlEntry, start: Callable[[Any], AsyncGenerator[Any, None]]) -> None:
    """Give a crawl's spider another start, which ends without asking the receivers of ``spider_idle``.

    Args:
        entry: The crawl.
        start: Called with the running spider.
    """

    def begun(self: Spider) -> AsyncGenerator[Any, None]:
        if (crawler := getattr(self, "crawler", None)) is not None:
            crawler.signals.disconnect_all(IDLE)  # a look at one page must not take work from a queue
        return start(self)

    spider = entry.spider
    made = type(spider.__name__, (spider,), {"start": begun, "__module__": spider.__module__})
    entry.spider = cast("type[Spider]", made)
