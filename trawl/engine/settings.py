"""Settings of the engine."""

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
            description="After the first Ctrl-C, or CloseSpider, wait at most this long for requests in flight, "
            "then cancel them.",
        ),
    ] = 30.0
    concurrent_callbacks: Annotated[
        int,
        Meta(
            ge=1,
            title="callbacks",
            description="Maximum number of callbacks that run at once. At this number no further page is sent, but "
            "direct fetches are.",
        ),
    ] = 100
    direct_fetches_limit: Annotated[
        int,
        Meta(
            ge=1,
            title="fetches",
            description="Maximum number of direct fetches that wait or are on their way at once. Further fetches wait "
            "until one ends.",
        ),
    ] = 1000
    closespider_itemcount: Annotated[
        int,
        Meta(
            ge=0,
            title="items",
            description="Stop the crawl when this many items have come out of the pipelines; none is delivered beyond. "
            "With a job the remaining items of the same pages wait for the next run. 0 disables the limit.",
        ),
    ] = 0
    closespider_pagecount: Annotated[
        int,
        Meta(
            ge=0,
            title="pages",
            description="Stop the crawl after this many pages; none is sent beyond. A page is a whole response of any "
            "status, direct fetches included; redirects, responses that are retried and robots.txt do not count. "
            "0 disables the limit.",
        ),
    ] = 0
    closespider_errorcount: Annotated[
        int,
        Meta(
            ge=0,
            title="errors",
            description="Stop the crawl when this many callbacks have failed. 0 disables the limit.",
        ),
    ] = 0
    closespider_timeout: Annotated[
        float, Meta(ge=0, title="s", description="Stop the crawl after this many seconds. 0 disables the limit.")
    ] = 0.0
    closespider_timeout_no_item: Annotated[
        float,
        Meta(
            ge=0,
            title="s",
            description="Stop the crawl when no item was delivered for this many seconds. 0 disables the limit.",
        ),
    ] = 0.0
    memusage_limit_mb: Annotated[
        float,
        Meta(
            ge=0,
            title="MiB",
            description="Stop the crawl with `memusage_exceeded` when its process holds more memory than this. "
            "0 disables the limit.",
        ),
    ] = 0.0
    memusage_warning_mb: Annotated[
        float,
        Meta(
            ge=0,
            title="MiB",
            description="Log one warning when the process holds more memory than this. 0 disables it.",
        ),
    ] = 0.0
    memusage_check_interval_seconds: Annotated[
        float,
        Meta(
            gt=0, title="s", description="Seconds between two measurements of the memory, if one of its limits is set."
        ),
    ] = 60.0
    extensions: Annotated[
        dict[Any, float | None],
        Meta(
            description="Classes that connect to the crawl's signals in their `from_crawler`, or their import paths, "
            "with a number: they are made in that order; null takes one out."
        ),
    ] = msgspec.field(default_factory=dict)
    watchers: Annotated[
        dict[Any, float | None],
        Meta(
            description="Tasks beside the crawl: async functions of the running crawl, or classes with an async "
            "method `watch`, or their import paths, or names that an installed package gives them, with a number that "
            "orders their start; null takes one out.",
        ),
    ] = msgspec.field(default_factory=dict)
    httperror_allow_all: Annotated[
        bool, Meta(description="Give every response to the callback, whatever its status.")
    ] = False
    httperror_allowed_codes: Annotated[
        tuple[int, ...],
        Meta(
            description="Statuses outside 2xx that go to the callback instead of the errback, for spiders without "
            "`handle_httpstatus_list`."
        ),
    ] = ()
