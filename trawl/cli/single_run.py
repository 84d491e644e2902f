"""Puts something of one's own in the place of a spider's start, in a whole crawl: throttle, robots.txt, middleware.

``trawl fetch``, ``trawl parse`` and ``trawl shell`` are this with three different things to do.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import attrs

from trawl.cli.load import load_spider, look_beside, spider_arguments
from trawl.cli.logs import Logs
from trawl.cli.run import check_arguments, log_layer
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
"""What is tried out leaves nothing behind."""

HASTY: Mapping[str, object] = {"DOWNLOAD_CONNECT_TIMEOUT": 10.0}
"""A person at a terminal soon hears that nobody answers; a project or spider that sets these says otherwise."""

FIRST_ANSWER: Mapping[str, object] = {"RETRY_ENABLED": False, "ROBOTSTXT_RETRY_TIMES": 0}
"""The first answer is shown, whatever it is, unless ``--wait`` or ``-s`` says otherwise: retries are for crawls."""


class DefaultSpider(Spider):
    """The spider of who names none."""

    name = "visitor"


@attrs.frozen(kw_only=True)
class SingleRunOptions:
    """What a person asked for, as it was typed.

    Attributes:
        target: ``--spider``; None: a spider that does nothing of its own.
        arguments: ``-a``: texts ``NAME=VALUE``.
        settings: ``-s``: texts ``NAME=VALUE``.
        log_level: ``--log-level``; None: warnings.
        waits: ``--wait``: pages and robots.txt are asked for again, as in a crawl.
    """

    target: str | None = None
    arguments: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    log_level: str | None = None
    waits: bool = False

    @property
    def logged(self) -> Layer:
        """The settings of the log."""
        return log_layer(self.log_level or "WARNING", None)


@attrs.frozen
class SingleRun:
    """The same, loaded.

    Attributes:
        spider: The class.
        settings: With which it runs.
        arguments: Of its constructor.
        layers: What the settings were loaded from.
    """

    spider: type[Spider]
    settings: Settings
    arguments: Mapping[str, str]
    layers: Sequence[Layer]

    def with_settings(self, source: str, values: Mapping[str, object]) -> SingleRun:
        """The same with other values of some settings; what they warn of was said."""
        return attrs.evolve(self, settings=load(*self.layers, Layer(source, values), tell=lambda warning: None))


def load_single_run(options: SingleRunOptions, logs: Logs) -> SingleRun:
    """Load what was asked for, and set the log up accordingly.

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


async def _nothing() -> AsyncGenerator[Any, None]:  # noqa: ASYNC124 - start() is asynchronous
    for request in list[Any]():
        yield request


async def fetch_response(crawl: Any, request: Request) -> Response:
    """The response to ``request`` in a running crawl, be it one that ``SOFT_BLOCK_DETECTOR`` refuses.

    Raises:
        DownloadError: There is none.
        IgnoreRequest: robots.txt or a middleware refused it.
    """
    try:
        response: Response = await crawl.fetch(request)
    except SoftBlocked as error:
        response = error.response
    return response


def with_work(spider: type[Spider], work: Callable[[Any], Awaitable[None]], errors: list[TrawlError]) -> type[Spider]:
    """``spider``, but for its start: there ``work`` is done on the running spider.

    Args:
        spider: The class.
        work: Given the spider, once it runs.
        errors: Gets what ``work`` raises of trawl's errors.
    """

    async def start(self: Spider) -> AsyncGenerator[Any, None]:
        try:
            await work(self)
        except TrawlError as error:
            errors.append(error)
        async for request in _nothing():
            yield request

    return with_start(spider, start)


def with_start(spider: type[Spider], start: Callable[[Any], AsyncGenerator[Any, None]]) -> type[Spider]:
    """``spider`` with another start. When all is done that comes of it, nobody who hears ``spider_idle`` is asked.

    Args:
        spider: The class.
        start: Given the running spider.
    """

    def begun(self: Spider) -> AsyncGenerator[Any, None]:
        if (crawler := getattr(self, "crawler", None)) is not None:
            crawler.signals.disconnect_all(IDLE)  # who looks at one page takes no work from a queue
        return start(self)

    made = type(spider.__name__, (spider,), {"start": begun, "__module__": spider.__module__})
    return cast("type[Spider]", made)
