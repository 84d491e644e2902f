"""The command ``trawl parse``: fetches a page, runs a callback on it and prints its items and requests."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
import trio
from rich.console import Console

from trawl.cli import FAILED, OK
from trawl.cli.crawl_entry import CrawlEntry, CrawlOptions
from trawl.cli.fetch import run_single, set_start
from trawl.cli.view import CrawlWith
from trawl.errors import UsageError
from trawl.feeds import to_json, written_fields
from trawl.http import Fetch, Outcome, Request, Response
from trawl.items import item_fields
from trawl.observe import printable
from trawl.settings import Layer, load
from trawl.settings.check import nearest
from trawl.spiders import CrawlSpider, Spider

if TYPE_CHECKING:
    from trawl._run import CrawlResult

__all__ = ["parse_command"]

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
    """Collects the outputs of callbacks, as a spider middleware.

    Requests are followed to a depth of ``depth`` pages; with 1, none are followed. ``pages`` has one entry per
    callback, in the order of the calls.
    """

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
    """Collects status codes outside 2xx in ``refusals``, as a downloader middleware.

    The status of a robots.txt is collected only if robots.txt is the first page, ``url``.
    """

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
    """Fetch a URL, run a callback on it and print its outputs.

    If ``callback`` is None, the callback for start URLs runs. Requests are followed to a depth of ``depth`` pages; with
    1, none are followed. ``meta`` and ``cb_kwargs`` are JSON. Returns FAILED if no callback was called or a callback
    failed.
    """

    def act(entry: CrawlEntry) -> int:
        method = _checked(entry.spider, callback)
        given: Any = {"meta": _mapping(meta, "--meta"), "cb_kwargs": _mapping(cb_kwargs, "--cb-kwargs")}
        try:
            request = Request(url, dont_filter=True, **given)
        except ValueError as error:
            raise UsageError(str(error)) from error
        pages = OutputCollector(depth)
        answers = HttpErrorCollector(request.url)
        result = _parsed(entry, request, method, pages, answers, crawl_with)
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


def _parsed(
    entry: CrawlEntry,
    request: Request,
    method: str | None,
    pages: OutputCollector,
    answers: HttpErrorCollector,
    crawl_with: CrawlWith,
) -> CrawlResult:
    around = {HOOKS: {**entry.settings[HOOKS], pages: -1}, MIDDLEWARE: {**entry.settings[MIDDLEWARE], answers: -1}}
    # Drop the warnings, because the first load has already shown them.
    entry.settings = load(*entry.layers, Layer("parse", around), tell=lambda warning: None)

    async def start(self: Spider) -> AsyncGenerator[Any, None]:  # noqa: RUF029 - start() is asynchronous
        yield request if method is None else request.replace(callback=getattr(self, method))

    set_start(entry, start)
    return trio.run(partial(entry.run, crawl_with, handle_signals=True))


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
