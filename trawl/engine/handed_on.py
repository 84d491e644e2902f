"""What a crawl keeps in the meta of one request, and is not handed on with it.

Scrapy's users write ``meta=response.meta``. Beside what is theirs, that has what the crawl counts for the one request
that was answered: how often it was tried, where it was redirected, since when a server refuses it, that it was a start.
The next request begins anew. What a request was given that differs from the answered one's is left: a request that is
tried again by a callback counts its tries there.
"""

from __future__ import annotations

from trawl.http import Request

__all__ = ["CRAWLS_OWN", "forget_the_last"]

CRAWLS_OWN: frozenset[str] = frozenset(
    (
        *("download_latency", "is_start_request", "redirect_reasons", "redirect_times", "redirect_urls", "retry_times"),
        *("throttling_admitted_at", "throttling_bad_page", "throttling_refused_at"),
    )
)
"""The keys that are meant for one request alone."""


def forget_the_last(request: Request, last: Request | None) -> None:
    """Take out of the meta of ``request`` what was handed on from ``last``, the one whose callback gave it.

    A request that is tried again (``retry_times`` differs) is the same one still, and keeps all.
    """
    meta, before = request.extras()[2], None if last is None else last.extras()[2]
    if not meta or not before or meta.get("retry_times") != before.get("retry_times"):
        return
    for key in CRAWLS_OWN & meta.keys() & before.keys():
        if meta[key] == before[key]:
            del meta[key]
