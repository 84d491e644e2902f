"""The commands ``trawl fetch``, which prints a page, and ``trawl parse``, which prints a callback's items and requests.

They run a complete crawl whose ``start()`` is replaced, as ``trawl shell`` does: :func:`run_single`.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import attrs
import msgspec
import trio
from rich.console import Console

from trawl.browser import BrowserSettings, PageDetails, check_browser, find_chromium
from trawl.cli import FAILED, OK, exit_status
from trawl.cli.crawl_entry import CrawlEntry, CrawlOptions
from trawl.cli.load import check_arguments, load_spider, look_beside, spider_arguments
from trawl.cli.logs import Logs, run_guarded
from trawl.cli.view import CrawlWith
from trawl.errors import SoftBlocked, TrawlError, UsageError
from trawl.feeds import to_json, written_fields
from trawl.http import Fetch, Outcome, Request, Response
from trawl.items import item_fields
from trawl.observe import ObserveSettings, duration_words, printable, times_words
from trawl.settings import Layer, ambient, assignments, load, of_spider
from trawl.settings.check import nearest
from trawl.spiders import CrawlSpider, Spider
from trawl.spiders.crawler import IDLE
from trawl.throttling import ScopeReport, limit_words

__all__ = [
    "browser_version",
    "exchange_lines",
    "fetch_command",
    "fetch_response",
    "parse_command",
    "run_single",
    "set_work",
]

_PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""Status codes after which a retry may succeed."""

UNKEPT: Mapping[str, object] = {"FEEDS": {}, "ITEM_PIPELINES": {}, "JOB_DIR": ""}
"""Settings of these commands, so that they write no feeds and no job."""

HASTY: Mapping[str, object] = {"DOWNLOAD_CONNECT_TIMEOUT": 10.0}
"""A shorter timeout, because someone waits at a terminal. Settings of a project or spider take precedence."""

FIRST_ANSWER: Mapping[str, object] = {"RETRY_ENABLED": False, "ROBOTSTXT_RETRY_TIMES": 0}
"""Settings without retries, so that the first response is shown, even an error. ``--wait`` or ``-s`` overrides them."""


class DefaultSpider(Spider):
    """The spider used without ``--spider``."""

    name = "visitor"


def run_single(options: CrawlOptions, console: Console, act: Callable[[CrawlEntry], int]) -> int:
    """Load the spider, by default :class:`DefaultSpider`, call ``act`` and print its error. Returns the exit status."""
    logged = options.log.layer("WARNING")
    return run_guarded(console, logged, lambda logs: act(_loaded(options, logged, logs)))


def _loaded(options: CrawlOptions, logged: Layer, logs: Logs) -> CrawlEntry:
    arguments = spider_arguments(options.arguments)
    spider = load_spider(options.targets[0]) if options.targets else DefaultSpider
    unkept = Layer("the command", UNKEPT)
    project, environment = ambient(spider=spider)
    # Settings may name the user's classes, so make the modules next to the settings importable.
    if not options.targets and (project.values or environment.values or options.settings):
        look_beside(project.source)
    around = (project, environment, of_spider(spider), logged)
    said = {name for layer in around for name in layer.values}
    hasty = {name: value for name, value in HASTY.items() if name not in said}
    if not options.waits:
        hasty |= FIRST_ANSWER
    layers = (*around, Layer("the command", hasty), assignments(options.settings), unkept)
    settings = load(*layers)
    logs.apply(settings.of(ObserveSettings))
    check_arguments(spider, arguments)
    return CrawlEntry(spider, settings, arguments, layers)


async def fetch_response(crawl: Any, request: Request) -> Response:
    """Send a request in a running crawl. Return even a response that ``SOFT_BLOCK_DETECTOR`` refuses. A checkpoint."""
    try:
        response: Response = await crawl.fetch(request)
    except SoftBlocked as error:
        response = error.response
    return response


def set_work(entry: CrawlEntry, work: Callable[[Any], Awaitable[None]], errors: list[TrawlError]) -> None:
    """Replace ``start()`` of a crawl's spider with ``work``, and collect the trawl errors that ``work`` raises."""

    async def start(self: Spider) -> AsyncGenerator[Any, None]:
        try:
            await work(self)
        except TrawlError as error:
            errors.append(error)
        for request in list[Any]():  # the loop makes this function a generator
            yield request

    set_start(entry, start)


def set_start(entry: CrawlEntry, start: Callable[[Any], AsyncGenerator[Any, None]]) -> None:
    """Replace ``start()`` of a crawl's spider, and disconnect the receivers of ``spider_idle``."""

    def begun(self: Spider) -> AsyncGenerator[Any, None]:
        if (crawler := getattr(self, "crawler", None)) is not None:
            crawler.signals.disconnect_all(IDLE)  # fetching one page must not take work from a queue
        return start(self)

    spider = entry.spider
    made = type(spider.__name__, (spider,), {"start": begun, "__module__": spider.__module__})
    entry.spider = cast("type[Spider]", made)


def browser_version() -> str:
    """Return version and path of the Chromium that renders pages, or a message that says how to install or run it."""
    settings, lines = load(*ambient()).of(BrowserSettings), []
    try:
        path = find_chromium(settings.browser_path)
        shown = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=30.0).stdout
        lines.append(f"{shown.strip() or 'Chromium'} ({path})")
        check_browser(settings)
    except (UsageError, OSError, subprocess.TimeoutExpired) as error:
        lines.append(str(error))
    return "\n".join(lines)


def request_lines(response: Response) -> Iterator[str]:
    """Yield a line for each request of a rendered page: its status or refusal, its kind, method and URL."""
    details: PageDetails | None = response.page
    for each in () if details is None else details.requests:
        end = each.status if each.status is not None else "-"
        shared = " (shared)" if each.is_shared else f" ({each.refused})" if each.refused else ""
        yield f"{end:>3} {each.kind:<10} {each.method} {each.url}{shared}"
    if details is not None and details.blocked:
        yield f"  - {details.blocked} blocked (BROWSER_BLOCK)"


def _write_screenshot(details: PageDetails, file: str) -> None:
    assert details.screenshot is not None
    try:
        Path(file).write_bytes(details.screenshot)
    except OSError as error:
        raise UsageError(f"--screenshot: {file!r} can't be written: {error.strerror}") from error


def fetch_command(
    url: str,
    options: CrawlOptions,
    crawl_with: CrawlWith,
    console: Console,
    *,
    has_headers: bool,
    has_requests: bool,
    screenshot: str | None,
    meta: Mapping[str, object],
) -> int:
    """Fetch a URL, and print it. Returns FAILED if there is no response, or its status code is 400 or above."""

    def act(entry: CrawlEntry) -> int:
        request = _request(url, meta={"allow_offsite": True, **meta})
        if "browser" in meta:
            check_browser(entry.settings.of(BrowserSettings))
        response, reports = _fetched(entry, request, crawl_with)
        if (has_requests or screenshot is not None) and response.page is None and response.status < 400:
            raise TrawlError(f"{response.url} is not a page that was rendered, so it has no requests and no picture")
        if screenshot is not None and response.page is not None:
            _write_screenshot(response.page, screenshot)
        if has_headers or has_requests:
            for line in exchange_lines(response, reports) if has_headers else request_lines(response):
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


def _request(url: str, **given: Any) -> Request:
    try:
        return Request(url, **given)
    except ValueError as error:
        raise UsageError(str(error)) from error


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
    if not found:  # the crawl ended before the response
        if exit_status(entry.reason) == FAILED:
            raise TrawlError(f"{request.url} was not fetched: the crawl ended with {entry.reason}")
        raise KeyboardInterrupt  # by Ctrl-C
    return found[0], reports


def exchange_lines(response: Response, reports: Sequence[ScopeReport]) -> Iterator[str]:
    """Yield the lines of ``--headers``: redirects, request, response, sizes, times, and limits that caused delays."""
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
    """Write the body to a pipe or file. On a terminal, print it as text, with control characters escaped."""
    if sys.stdout.isatty():
        print(printable(response.text, keeps_lines=True, is_content=True))
        return
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(response.body)
        sys.stdout.buffer.flush()
    except OSError as error:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - stays open; Python flushes it at exit
        if error.errno != errno.EPIPE:  # EPIPE is not an error, because the reader of the pipe has read enough
            raise TrawlError(f"standard output can't be written: {error.strerror}") from error


HOOKS = "SPIDER_MIDDLEWARES"
MIDDLEWARE = "DOWNLOADER_MIDDLEWARES"
TROUBLE: Mapping[str, str] = {
    "spider_exceptions": "a callback failed; see the log above",
    "httperror_ignored_count": "answered {status}, which is not in handle_httpstatus_list: no callback was called",
    "robots_forbidden": "robots.txt forbids it (-s ROBOTSTXT_OBEY=false)",
    "download_error_count": "it could not be fetched",
    "offsite_filtered": "requests outside allowed_domains were not followed",
}


@attrs.define
class ParsedPage:
    """The outputs of a callback for one response. ``depth`` is the number of links from the first page."""

    url: str
    status: int
    depth: int
    callback: str
    items: list[Any] = attrs.field(factory=list)
    requests: list[Request] = attrs.field(factory=list)

    def lines(self) -> Iterator[str]:
        """Yield the lines to print."""
        yield f"# {self.status} {self.url} (depth {self.depth}, {self.callback})"
        for item in self.items:
            yield f"item     {_written(item)}"
        for request in self.requests:
            target = _target_of(request)
            given = f" {msgspec.json.encode(request.cb_kwargs, enc_hook=repr).decode()}" if request.cb_kwargs else ""
            yield f"request  {request.method} {request.url} -> {target}{given}"
        if not self.items and not self.requests:
            yield "nothing"


def _written(item: object) -> str:
    """Return the item as a feed writes it. Values that a feed can't write are replaced by their ``repr``."""
    try:
        return to_json(written_fields(item)).decode()
    except Exception:  # a library that defines the item or a value may raise anything
        return msgspec.json.encode(item_fields(item), enc_hook=repr).decode()


class OutputCollector:
    """Collects the outputs of callbacks, as a spider middleware. Follows requests to a depth of ``depth`` pages."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self.pages: list[ParsedPage] = []

    async def __call__(self, response: Response | None, outputs: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        """Collect ``outputs``, and pass on items and the requests to follow."""
        page = ParsedPage("", 0, 0, "errback")
        if response is not None:
            target = "parse" if response.request is None else _target_of(response.request)
            page = ParsedPage(response.url, response.status, response.meta.get("depth", 0), target)
        self.pages.append(page)
        async for output in outputs:
            if isinstance(output, Request):
                page.requests.append(output)
                if page.depth + 1 >= self._depth:
                    continue
            elif output is not None:
                page.items.append(output)
            yield output  # noqa: ASYNC119 - the engine reads hooks with aclosing


class HttpErrorCollector:
    """Collects statuses outside 2xx, as a downloader middleware; of a robots.txt only if ``url`` is its URL."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.refusals: dict[str, None] = {}

    def __call__(self, fetch: Fetch) -> Fetch:
        """Wrap ``fetch``."""

        async def send(request: Request) -> Outcome:
            outcome = await fetch(request)
            response = outcome.response if outcome.then is None else None
            is_page = request.url == self._url or not request.url.endswith("/robots.txt")
            if is_page and response is not None and not 200 <= response.status < 300:
                self.refusals[str(response.status)] = None
            return outcome

        return send


def parse_command(
    url: str,
    options: CrawlOptions,
    crawl_with: CrawlWith,
    console: Console,
    *,
    callback: str | None,
    depth: int,
    meta: str | None,
    cb_kwargs: str | None,
) -> int:
    """Fetch a URL, run a callback and print its outputs. Returns FAILED if no callback was called, or it failed."""

    def act(entry: CrawlEntry) -> int:
        method = _checked(entry.spider, callback)
        given: Any = {"meta": _mapping(meta, "--meta"), "cb_kwargs": _mapping(cb_kwargs, "--cb-kwargs")}
        request = _request(url, dont_filter=True, **given)
        pages, answers = OutputCollector(depth), HttpErrorCollector(request.url)
        around = {HOOKS: {**entry.settings[HOOKS], pages: -1}, MIDDLEWARE: {**entry.settings[MIDDLEWARE], answers: -1}}
        # Drop the warnings, because the first load has already shown them.
        entry.settings = load(*entry.layers, Layer("parse", around), tell=lambda warning: None)

        async def start(self: Spider) -> AsyncGenerator[Any, None]:  # noqa: RUF029 - start() is asynchronous
            yield request if method is None else request.replace(callback=getattr(self, method))

        set_start(entry, start)
        result = trio.run(partial(entry.run, crawl_with, handle_signals=True))
        for page in pages.pages:
            for line in page.lines():
                print(printable(line))
        statuses = ", ".join(answers.refusals)
        found = [words.format(status=statuses) for key, words in TROUBLE.items() if result.stats.get(key)]
        for words in found:
            console.print(f"trawl: {words}", style="red", soft_wrap=True)
        has_failed = not pages.pages or result.stats.get("spider_exceptions")
        return FAILED if has_failed else OK

    return run_single(options, console, act)


def _checked(spider: type[Spider], callback: str | None) -> str | None:
    if callback is None or callable(getattr(spider, callback, None)):
        return callback
    methods = [name for name in vars(spider) if not name.startswith("_") and callable(getattr(spider, name))]
    close = nearest(callback, methods)
    hint = f"did you mean {close}?" if close else f"it has {', '.join(methods) or 'no callbacks'}"
    raise UsageError(f"{spider.__name__} has no callback {callback!r}; {hint}")


def _mapping(text: str | None, option: str) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{option} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{option} takes a JSON object, not {text}")
    return value


def _target_of(request: Request) -> str:
    """Return the name of a request's callback. For a crawl spider, return the rule's number and callback."""
    callback: Any = request.callback
    spider = getattr(callback, "__self__", None)
    if isinstance(spider, CrawlSpider) and (rule := spider.rule_of(request)) is not None:
        name = f", {_name_of(rule.callback)}" if rule.callback else ""
        return f"rules[{request.meta['rule']}]{name}"
    return _name_of(callback)


def _name_of(callback: object) -> str:
    if isinstance(callback, str):
        return callback
    return getattr(callback, "__name__", None) or "parse"
