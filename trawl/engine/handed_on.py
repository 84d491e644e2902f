"""What a crawl keeps in the meta of one request, and is not handed on with it.

Scrapy's users write ``meta=response.meta``. Beside what is theirs, that has what the crawl counts for the one request
that was answered: how often it was tried, where it was redirected, since when a server refuses it, that it was a start.
The next request begins anew. What a request was given that differs from the answered one's is left: a request that is
tried again by a callback counts its tries there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trawl.http import Request

__all__ = ["CRAWLS_OWN", "forget_the_last"]

CRAWLS_OWN: frozenset[str] = frozenset(
    (
        *("download_latency", "is_start_request", "redirect_reasons", "redirect_times", "redirect_urls", "retry_times"),
        "proxy_retry_times",
        *("throttling_admitted_at", "throttling_bad_page", "throttling_refusals", "throttling_refused_at"),
        "throttling_uncounted",
    )
)
"""The keys that are meant for one request alone."""


def forget_the_last(requests: Iterable[Request], last: Request | None) -> None:
    """Take out of the meta of ``requests`` what was handed on from ``last``, the one whose callback gave them.

    A request that is tried again (``retry_times`` differs) is the same one still, and keeps all.
    """
    if last is None or not last.has_meta:
        return
    for request in requests:
        if request.has_meta:
            _forget(request.meta, last.meta)


def _forget(meta: dict[str, Any], before: dict[str, Any]) -> None:
    if meta.get("retry_times") != before.get("retry_times"):
        return
    for key in CRAWLS_OWN & meta.keys() & before.keys():
        if meta[key] == before[key]:
            del meta[key]
