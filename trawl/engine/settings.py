"""Settings of the engine."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

__all__ = ["EngineSettings"]


class EngineSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """The run as a whole.

    Attributes:
        shutdown_timeout: After the first Ctrl-C, or CloseSpider, wait at most this long for requests in flight, then
            cancel them.
        concurrent_callbacks: Maximum number of callbacks that run at once. At this number, no further page is sent, but
            direct fetches are still sent.
        direct_fetches_limit: Maximum number of direct fetches that wait or are in flight at once. Further fetches wait
            until one ends.
        closespider_itemcount: Stop the crawl when this many items have passed the pipelines. No further item is
            delivered. With a job, the remaining items of the same pages wait for the next run. 0 disables the limit.
        closespider_pagecount: Stop the crawl after this many pages. No further page is sent. A page is a complete
            response with any status code, including direct fetches. Redirects, retried responses and robots.txt do not
            count. 0 disables the limit.
        closespider_errorcount: Stop the crawl when this many callbacks have failed. 0 disables the limit.
        closespider_timeout: Stop the crawl after this many seconds. 0 disables the limit.
        closespider_timeout_no_item: Stop the crawl when no item was delivered for this many seconds. 0 disables the
            limit.
        memusage_limit_mb: Stop the crawl with ``memusage_exceeded`` when its process uses more memory than this. 0
            disables the limit.
        memusage_warning_mb: Log one warning when the process uses more memory than this. 0 disables the warning.
        memusage_check_interval_seconds: Time between two measurements of the memory, if a memory limit is set.
        extensions: Classes that connect to the crawl's signals in their ``from_crawler``, or their import paths, each
            with a number. They are created in the order of the numbers. null removes a class.
        watchers: Tasks that run while the crawl runs: async functions of the running crawl, classes with an async
            method ``watch``, their import paths, or names of installed plugins. Each has a number, and they start in
            the order of the numbers. null removes a watcher.
        httperror_allow_all: Pass every response to the callback, whatever its status code.
        httperror_allowed_codes: Status codes outside 2xx that go to the callback instead of the errback, for spiders
            without ``handle_httpstatus_list``.
    """

    shutdown_timeout: Annotated[float, Meta(ge=0, title="s")] = 30.0
    concurrent_callbacks: Annotated[int, Meta(ge=1, title="callbacks")] = 100
    direct_fetches_limit: Annotated[int, Meta(ge=1, title="fetches")] = 1000
    closespider_itemcount: Annotated[int, Meta(ge=0, title="items")] = 0
    closespider_pagecount: Annotated[int, Meta(ge=0, title="pages")] = 0
    closespider_errorcount: Annotated[int, Meta(ge=0, title="errors")] = 0
    closespider_timeout: Annotated[float, Meta(ge=0, title="s")] = 0.0
    closespider_timeout_no_item: Annotated[float, Meta(ge=0, title="s")] = 0.0
    memusage_limit_mb: Annotated[float, Meta(ge=0, title="MiB")] = 0.0
    memusage_warning_mb: Annotated[float, Meta(ge=0, title="MiB")] = 0.0
    memusage_check_interval_seconds: Annotated[float, Meta(gt=0, title="s")] = 60.0
    extensions: dict[Any, float | None] = msgspec.field(default_factory=dict)
    watchers: dict[Any, float | None] = msgspec.field(default_factory=dict)
    httperror_allow_all: bool = False
    httperror_allowed_codes: tuple[int, ...] = ()
