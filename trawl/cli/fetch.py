"""The command ``trawl fetch``: one response, through all that a crawl puts between itself and a server."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import trio
from rich.console import Console

from trawl.cli import FAILED, OK
from trawl.cli.logs import Logs
from trawl.cli.run import run_guarded
from trawl.cli.single_run import SingleRun, SingleRunOptions, fetch_response, load_single_run, with_work
from trawl.cli.view import CrawlWith
from trawl.errors import TrawlError, UsageError
from trawl.http import Request, Response
from trawl.observe import duration_words, printable, times_words
from trawl.throttling import ScopeReport, limit_words

__all__ = ["fetch_command", "told"]

_PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which another try may go better."""


def fetch_command(
    url: str, options: SingleRunOptions, crawl_with: CrawlWith, console: Console, *, has_headers: bool, follows: bool
) -> int:
    """Fetch a URL and print the body, or what went to and fro; the exit status.

    Args:
        url: What is fetched.
        options: Whose settings count.
        crawl_with: Runs the crawl.
        console: Standard error.
        has_headers: Print the headers, redirects and what throttled it in place of the body.
        follows: Whether redirects are followed.
    """

    def act(logs: Logs) -> int:
        ready = load_single_run(options, logs)
        try:
            request = Request(url, meta={"allow_offsite": True, **({} if follows else {"dont_redirect": True})})
        except ValueError as error:
            raise UsageError(str(error)) from error
        response, reports = _fetched(ready, request, crawl_with)
        if has_headers:
            for line in told(response, reports):
                print(printable(line))
        else:
            _print_body(response)
        if response.status < 400:
            return OK
        if not has_headers:
            may_pass = response.status in _PASSING and not options.waits
            advice = " (--wait sends it again until it is served)" if may_pass else ""
            console.print(f"trawl: {printable(response.url)} answered {response.status}{advice}", soft_wrap=True)
        return FAILED

    return run_guarded(console, options.logged, act)


def _fetched(ready: SingleRun, request: Request, crawl_with: CrawlWith) -> tuple[Response, Sequence[ScopeReport]]:
    errors: list[TrawlError] = []
    found: list[Response] = []
    reports: list[ScopeReport] = []

    async def work(spider: object) -> None:
        crawl = getattr(spider, "crawl")  # noqa: B009 - any spider's
        try:
            found.append(await fetch_response(crawl, request))
        finally:
            reports.extend(crawl.report())

    async def main() -> None:
        spider = with_work(ready.spider, work, errors)
        await crawl_with(spider, ready.settings, spider_args=ready.arguments, handle_signals=True)

    trio.run(main)
    if errors:
        raise errors[0]
    if not found:  # Ctrl-C
        raise KeyboardInterrupt
    return found[0], reports


def told(response: Response, reports: Sequence[ScopeReport]) -> Iterator[str]:
    """What went to and fro, a line each: redirects, the request, the response, and what made it wait.

    Args:
        response: The last response.
        reports: What the scopes did.
    """
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
        if seconds >= 0.05  # less is told as 0.0 s
    ]
    yield from waits or ["* no limit made it wait"]


def _print_body(response: Response) -> None:
    """The body as it came, to a pipe or file; on a terminal as text whose control characters are spelled out."""
    if sys.stdout.isatty():
        print(printable(response.text, keeps_lines=True))
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(response.body)
    sys.stdout.buffer.flush()
