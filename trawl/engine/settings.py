"""What a user may set about the engine itself."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

__all__ = ["EngineSettings"]


class EngineSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """The run as a whole."""

    shutdown_timeout: Annotated[
        float,
        Meta(
            ge=0,
            title="s",
            description="How long the first Ctrl-C, or CloseSpider, waits for what is in flight before cancelling it.",
        ),
    ] = 30.0
    concurrent_callbacks: Annotated[
        int,
        Meta(
            ge=1,
            title="callbacks",
            description="Callbacks that run at once; at this many no further page is sent, direct fetches are.",
        ),
    ] = 100
    direct_fetches_limit: Annotated[
        int,
        Meta(
            ge=1,
            title="fetches",
            description="Direct fetches that wait or are on their way at once; who asks for more waits to be let in.",
        ),
    ] = 1000
    closespider_itemcount: Annotated[
        int,
        Meta(
            ge=0,
            title="items",
            description="The crawl ends when so many items have come out of the pipelines; not one more is delivered. "
            "With a job the rest of its pages' items wait for the next run. 0: no limit.",
        ),
    ] = 0
    closespider_pagecount: Annotated[
        int,
        Meta(
            ge=0,
            title="pages",
            description="The crawl ends when so many pages have come; none is sent beyond. A page is a whole response "
            "of any status, direct fetches included; redirects, tries that are repeated and robots.txt are none. "
            "0: no limit.",
        ),
    ] = 0
    closespider_errorcount: Annotated[
        int, Meta(ge=0, title="errors", description="The crawl ends when so many callbacks have failed. 0: no limit.")
    ] = 0
    closespider_timeout: Annotated[
        float, Meta(ge=0, title="s", description="The crawl ends so long after it began. 0: no limit.")
    ] = 0.0
    closespider_timeout_no_item: Annotated[
        float,
        Meta(ge=0, title="s", description="The crawl ends when no item was delivered for so long. 0: no limit."),
    ] = 0.0
    memusage_limit_mb: Annotated[
        float,
        Meta(
            ge=0,
            title="MiB",
            description="The crawl ends with `memusage_exceeded` when its process holds more memory than this. "
            "0: no limit.",
        ),
    ] = 0.0
    memusage_warning_mb: Annotated[
        float,
        Meta(ge=0, title="MiB", description="A warning is logged once when its process holds more. 0: none."),
    ] = 0.0
    memusage_check_interval_seconds: Annotated[
        float, Meta(gt=0, title="s", description="How often the memory is measured, where one of its limits is set.")
    ] = 60.0
    extensions: Annotated[
        dict[Any, float | None],
        Meta(
            description="Classes that connect to signals in their `from_crawler`, as Scrapy's extensions do, or their"
            " import paths, with a number: they are made in that order; null takes one out."
        ),
    ] = msgspec.field(default_factory=dict)
    watchers: Annotated[
        dict[Any, float | None],
        Meta(
            description="What runs beside the crawl, as Scrapy's extensions do: async functions of the running crawl, "
            "or classes with an async method `watch`, or their import paths, or names that an installed package gives "
            "them, to a number that orders their start; None leaves one out.",
        ),
    ] = msgspec.field(default_factory=dict)
    httperror_allow_all: Annotated[
        bool, Meta(description="Every response goes to the callback, whatever its status.")
    ] = False
    httperror_allowed_codes: Annotated[
        tuple[int, ...], Meta(description="Statuses outside 2xx that go to the callback in place of the errback.")
    ] = ()
