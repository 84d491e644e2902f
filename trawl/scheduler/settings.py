"""Settings of the scheduler: which requests it admits, and in which order it sends them.

This is a separate module, as in other packages, because the admission rules are compiled but a msgspec struct is not.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

__all__ = ["SchedulerSettings"]


class SchedulerSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """Admission and order.

    Attributes:
        depth_limit: Maximum number of links from a start request. Deeper requests are dropped. 0 disables the limit.
        urllength_limit: Maximum length of a URL. Requests with longer URLs are dropped. 0 disables the limit.
        filter_start_urls: Request each URL of ``start_urls`` once, and mark it as seen. False requests a URL as often
            as it is listed, and again if a page links to it. False also drops requests of the spider's own ``start()``
            to sites outside ``allowed_domains``, as in Scrapy. False is the default for spiders that were written for
            Scrapy.
        dupefilter_class: Class, or its import path, whose ``request_seen(request)`` decides which requests were seen
            before, as in Scrapy. A class that derives from ``trawl.compat.RFPDupeFilter`` may override
            ``request_fingerprint`` instead. Empty: URLs, methods and bodies are compared. A job stores seen marks
            itself, so with a job only ``request_fingerprint`` may be overridden.
        request_fingerprinter_class: Class, or its import path, whose ``fingerprint(request)`` returns equal bytes for
            equal requests, as in Scrapy. Empty: the fingerprint is computed from URL, method and body.
        depth_first: Among requests of equal priority to one host, send the newest first instead of the oldest.
    """

    depth_limit: Annotated[int, Meta(ge=0, title="links")] = 0
    urllength_limit: Annotated[int, Meta(ge=0, title="characters")] = 2083
    filter_start_urls: bool = True
    dupefilter_class: object = ""
    request_fingerprinter_class: object = ""
    depth_first: bool = False
