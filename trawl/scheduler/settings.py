"""Settings of the scheduler: what it admits, and in which order.

A module of its own, as in other packages: a msgspec struct is not compiled, and the rules are.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

__all__ = ["SchedulerSettings"]


class SchedulerSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """Admission and order."""

    depth_limit: Annotated[
        int,
        Meta(
            ge=0,
            title="links",
            description="Maximum number of links from the start; requests found deeper are dropped. 0 disables the "
            "limit.",
        ),
    ] = 0
    urllength_limit: Annotated[
        int,
        Meta(
            ge=0,
            title="characters",
            description="Maximum length of a URL; requests with a longer one are dropped. 0 disables the limit.",
        ),
    ] = 2083
    filter_start_urls: Annotated[
        bool,
        Meta(
            description="Request each URL of `start_urls` once, and count it as seen. False: request it as often as it "
            "is listed, and once more where a page links to it, and drop what a `start()` of the spider's own asks of "
            "other sites than `allowed_domains`, as Scrapy does; the default for spiders that were written for "
            "Scrapy.",
        ),
    ] = True
    dupefilter_class: Annotated[
        object,
        Meta(
            description="Class, or its import path, whose `request_seen(request)` says which requests were seen "
            "before, as Scrapy's; one that derives from `trawl.compat.RFPDupeFilter` may override "
            "`request_fingerprint` instead. Empty: URLs, methods and bodies are compared. Not with a job, which "
            "remembers by itself, unless only `request_fingerprint` is overridden.",
        ),
    ] = ""
    request_fingerprinter_class: Annotated[
        object,
        Meta(
            description="Class, or its import path, whose `fingerprint(request)` returns bytes that are the same for "
            "requests that are the same, as Scrapy's. Empty: URL, method and body make them.",
        ),
    ] = ""
    depth_first: Annotated[
        bool,
        Meta(description="Among requests of equal priority to one host, send the newest first instead of the oldest."),
    ] = False
