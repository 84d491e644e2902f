"""The command ``trawl fetch``: fetches one URL as a crawl would and prints the body or the headers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import trio
from rich.console import Console

from trawl.cli import FAILED, OK
from trawl.cli.crawl_entry import CrawlEntry, CrawlOptions
from trawl.cli.single_run import fetch_response, run_single, set_work
from trawl.cli.view import CrawlWith
from trawl.errors import TrawlError, UsageError
from trawl.http import Request, Response
from trawl.observe import duration_words, printable, times_words
from trawl.throttling import ScopeReport, limit_words

__all__ = ["exchange_lines", "fetch_command"]

_PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses of which a retry may succeed."""


def fetch_command(
    url: str, options: CrawlOptions, crawl_with: CrawlWith, console: Console, *, has_headers: bool, follows: bool
) -> int:
    """Fetch a URL and print the body, or, instead of it, headers, redirects and delays.

    Returns:
        The exit status: FAILED without a response and for a status of 400 or above.
    """

    def act(entry: CrawlEntry) -> int:
        try:
            request = Request(url, meta={"allow_offsite": True, **({} if follows else {"dont_redirect": True})})
        except ValueError as error:
            raise UsageError(str(error)) from error
        response, reports = _fetched(entry, request, crawl_with)
        if has_headers:
            for line in exchange_lines(response, reports):
                print(printable(line))
        else:
            _print_body(response)
        if response.status < 400:
            return OK
        if not has_headers:
            may_pass = response.status in _PASSING and not options.waits
            advice = " (--wait retries until it is served)" if may_pass else ""
            console.print(f"trawl: {printable(response.url)} answered {response.status}{advice}", soft_wrap=True)
        return FAILED

    return run_single(options, console, act)


def _fetched(entry: CrawlEntry, request: Request, crawl_with: CrawlWith) -> tuple[Response, Sequence[ScopeReport]]:
    errors: list[TrawlError] = []
    found: list[Response] = []
    reports: list[ScopeReport] = []

    async def work(spider: Any) -> None:
        try:
            found.append(await fetch_response(spider.crawl, request))
        finally:
            reports.extend(spider.crawl.report())

    set_work(entry, work, errors)
    trio.run(partial(entry.run, crawl_with, handle_signals=True))
    if errors:
        raise errors[0]
    if not found:  # Ctrl-C
        raise KeyboardInterrupt
    return found[0], reports


def exchange_lines(response: Response, reports: Sequence[ScopeReport]) -> Iterator[str]:
    """Yield the lines of ``--headers``: redirects, request, response, sizes and times, and what delayed it."""
    request = response.request
    assert request is not None
    urls: Sequence[str] = response.meta.get("redirect_urls", ())
    reasons: Sequence[object] = response.meta.get("redirect_reasons", ())
    for url, reason, target in zip(urls, reasons, [*urls[1:], request.url], strict=False):
        yield f"* {reason}: {url} -> {target}"
    yield f"> {request.method} {request.url}"
    yield from (f"> {name}: {value}" for name, value in response.sent_headers.items_list())
    yield ">"
    yield f"< {response.status}"
    yield from (f"< {name}: {value}" for name, value in response.headers.items_list())
    yield "<"
    latency = "" if response.latency is None else f" in {duration_words(response.latency)}"
    yield f"* {len(response.body)} bytes{latency}{', from the cache' if 'cached' in response.flags else ''}"
    if response.times is not None:
        yield f"* {times_words(response.times)}"
    waits = [
        f"* {report.scope}: waited {duration_words(seconds)} for {limit_words(limit)}"
        for report in reports
        for limit, seconds in sorted(report.limited.items(), key=lambda limited: -limited[1])
        if seconds >= 0.05  # less would be shown as 0.0 s
    ]
    yield from waits or ["* not delayed by any limit"]


def _print_body(response: Response) -> None:
    """Write the body's bytes to a pipe or file; print it on a terminal as text with control characters escaped."""
    if sys.stdout.isatty():
        print(printable(response.text, keeps_lines=True))
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(response.body)
    sys.stdout.buffer.flush()
