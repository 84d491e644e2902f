"""Runs a whole crawl, with throttling, robots.txt and middleware, that starts with work of the command's own.

``trawl fetch``, ``trawl parse`` and ``trawl shell`` are this with three kinds of work.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import attrs

from trawl.cli.load import check_arguments, load_spider, look_beside, spider_arguments
from trawl.cli.logs import Logs, log_layer
from trawl.compat.signals import IDLE
from trawl.errors import SoftBlocked, TrawlError
from trawl.http import Request, Response
from trawl.observe import ObserveSettings
from trawl.settings import Layer, Settings, ambient, assignments, load, of_spider
from trawl.spiders import Spider

__all__ = [
    "DefaultSpider",
    "SingleRun",
    "SingleRunOptions",
    "fetch_response",
    "load_single_run",
    "with_start",
    "with_work",
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


@attrs.frozen(kw_only=True)
class SingleRunOptions:
    """The options that the three commands share, as typed.

    Attributes:
        target: ``--spider``; None means :class:`DefaultSpider`.
        arguments: ``-a NAME=VALUE``.
        settings: ``-s NAME=VALUE``.
        log_level: ``--log-level``; None means WARNING.
        waits: ``--wait``: retry pages and robots.txt, as a crawl does.
    """

    target: str | None = None
    arguments: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    log_level: str | None = None
    waits: bool = False

    @property
    def logged(self) -> Layer:
        """The settings of the log, as a layer."""
        return log_layer(self.log_level or "WARNING", None)


@attrs.frozen
class SingleRun:
    """A spider that is loaded and ready to run.

    Attributes:
        spider: The class.
        settings: The settings it runs with.
        arguments: The arguments of its constructor.
        layers: The layers of the settings.
    """

    spider: type[Spider]
    settings: Settings
    arguments: Mapping[str, str]
    layers: Sequence[Layer]

    def with_settings(self, source: str, values: Mapping[str, object]) -> SingleRun:
        """Return a copy with further settings, without repeating warnings about the others."""
        return attrs.evolve(self, settings=load(*self.layers, Layer(source, values), tell=lambda warning: None))


def load_single_run(options: SingleRunOptions, logs: Logs) -> SingleRun:
    """Load the spider and its settings, and apply those of the log.

    Raises:
        UsageError: Settings or arguments do not fit.
        SpiderLoadError: The spider can't be loaded.
    """
    arguments = spider_arguments(options.arguments)
    spider = load_spider(options.target) if options.target else DefaultSpider
    unkept = Layer("the command", UNKEPT)
    project, environment = ambient(spider=spider)
    if not options.target:
        look_beside(project.source)
    around = (project, environment, of_spider(spider), options.logged)
    said = {name for layer in around for name in layer.values}
    hasty = {name: value for name, value in HASTY.items() if name not in said}
    if not options.waits:
        hasty |= FIRST_ANSWER
    layers = (*around, Layer("the command", hasty), assignments(options.settings), unkept)
    settings = load(*layers)
    logs.apply(settings.of(ObserveSettings))
    check_arguments(spider, arguments)
    return SingleRun(spider, settings, arguments, layers)


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


def with_work(spider: type[Spider], work: Callable[[Any], Awaitable[None]], errors: list[TrawlError]) -> type[Spider]:
    """Return ``spider`` with ``work`` instead of its start.

    Args:
        spider: The class.
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

    return with_start(spider, start)


def with_start(spider: type[Spider], start: Callable[[Any], AsyncGenerator[Any, None]]) -> type[Spider]:
    """Return ``spider`` with another start, which ends without asking the receivers of ``spider_idle``.

    Args:
        spider: The class.
        start: Called with the running spider.
    """

    def begun(self: Spider) -> AsyncGenerator[Any, None]:
        if (crawler := getattr(self, "crawler", None)) is not None:
            crawler.signals.disconnect_all(IDLE)  # a look at one page must not take work from a queue
        return start(self)

    made = type(spider.__name__, (spider,), {"start": begun, "__module__": spider.__module__})
    return cast("type[Spider]", made)
