"""Rendering: the middleware that turns the response to a request with meta ``browser`` into the rendered page.

The main document is fetched like every other request. Its response is rendered in the request's own task and cancel
scope, after the place of its host was released. Each request of the page becomes a direct fetch, which is admitted,
delayed, checked against robots.txt, cached, sent through the proxy and counted like any other::

    response to meta browser ──► HTML, a wanted status? ── no ──► unchanged
                                 │ yes
                                 ▼
    open page ──► navigate: the received response ──► requests of the page: blocked? third party? too many? shared?
                                                                            └──► crawl.fetch ──► the page
    ready ──► the spider's actions (``run``) ──► HTML, URL, cookies, screenshot ──► close page ──► rendered response

Its order is 570, inside retries (a failed page is retried) and outside of redirects, cookies and the cache. The page's
timeout (:class:`PageTimer`) stops until a browser has started and while requests wait or are in flight, because delays
are the throttle's decision and not a fault of the page.

Length: one page from its response to the rendered response, and everything that its requests share.
"""

from __future__ import annotations

import inspect
import logging
import math
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import islice
from typing import Any, Protocol, cast

import attrs
import msgspec
import trio

from trawl.browser.devtools import CommandFailed
from trawl.browser.page import Answer, Asked, BrowserPage, Opening, OpenPage, ScriptFailed
from trawl.browser.pool import BrowserSettings, HeldTab, Page, current_tab, held_tab
from trawl.cookies import Cookie, Jars, jar_name
from trawl.errors import (
    BodyTooLarge,
    BrowserEnded,
    CloseSpider,
    DownloadError,
    IgnoreRequest,
    PageCrashed,
    PageNotReady,
    RenderError,
    UsageError,
)
from trawl.http import Headers, Outcome, Replace, Request, Response, host_of, is_in_domains, kind_of, scheme_of
from trawl.http.notes import note, notes_of
from trawl.observe import BrowserStatus, Stats
from trawl.passwords import without_passwords
from trawl.scheduler import AdmissionRules, SchedulerSettings
from trawl.tracebacks import contained, contained_error

__all__ = ["PageDetails", "PageTimer", "RenderedResponse", "Rendering", "SharedFiles", "SubRequest"]

logger: logging.Logger = logging.getLogger("trawl.browser")

NOT_PASSED = frozenset(
    {"content-encoding", "content-length", "transfer-encoding", "connection", "keep-alive", "strict-transport-security"}
)
"""Headers of responses that describe the transfer, or would make Chromium ask for another URL."""

NOT_SENT = frozenset({"host", "accept-encoding", "user-agent", "connection", "content-length"})
"""Headers of Chromium that trawl sets itself."""

LAST_LOOK = 1.0
"""Maximum seconds to read the HTML of a page that was not ready in time."""

MAX_SHOWN, MAX_WORDS = 5, 300
"""Maximum number of open pages in a status, and of characters for each."""

FILE_OVERHEAD = 500
"""Bytes of a shared file besides its URL, headers and body."""

NEWER_CSS = re.compile(r":[\w-]+\(|::|\s[is]\s*\]|&", re.IGNORECASE)
"""Parts of selectors that Chromium knows, but perhaps not cssselect."""

SHARED_KINDS = frozenset({"Script", "Stylesheet"})


class PageCrawl(Protocol):
    """The crawl, as rendering uses it."""

    @property
    def stats(self) -> Stats:
        """The statistics."""

    def now_utc(self) -> datetime:
        """Return the wall time."""

    async def fetch(self, request: Request) -> Response:
        """Send a direct fetch. A checkpoint."""

    def why(self, subject: Request) -> Any:
        """Return why a request waits; None if it does not."""

    def shutdown(self, reason: str) -> None:
        """Send nothing new, and finish requests in flight."""


@attrs.define
class SubRequest:
    """A request of a page, as ``response.page.requests`` lists it.

    Attributes:
        url: The URL.
        method: The method.
        kind: The kind of resource, such as ``Script`` or ``XHR``.
        status: The status code; None without a response.
        refused: Why the request was not sent or got no response; "" if it got a response.
        is_shared: True if the response was fetched for another page, or earlier.
        started_at: Event loop time at which the page made the request, in seconds.
        ended_at: Event loop time of the response, in seconds; None until then.
    """

    url: str
    method: str
    kind: str
    status: int | None = None
    refused: str = ""
    is_shared: bool = False
    started_at: float = 0.0
    ended_at: float | None = None


@attrs.define
class PageDetails:
    """Details of a rendered page, in addition to its response: ``response.page``.

    Attributes:
        original: The response as received, before it was rendered.
        requests: The requests of the page, without the main document and blocked kinds.
        console: The lines that scripts wrote to the console.
        blocked: Number of requests that failed at once because of their kind.
        screenshot: A picture of the whole page, as PNG; None if none was wanted.
        pdf: The page as a PDF; None if none was wanted.
    """

    original: Response
    requests: list[SubRequest] = attrs.field(factory=list)
    console: list[str] = attrs.field(factory=list)
    blocked: int = 0
    screenshot: bytes | None = None
    pdf: bytes | None = None


class RenderedResponse(Response):
    """A rendered page: the response as received, but with the final body and URL of the page.

    Attributes:
        page: Details of the rendered page.
    """

    __slots__ = ("page",)

    page: PageDetails | None

    def replace(self, *, cls: type[Response] | None = None, **changes: Any) -> Any:
        """Return a copy of this response with ``changes``. The copy has the same ``page``."""
        changed = super().replace(cls=cls or RenderedResponse, **changes)
        if isinstance(changed, RenderedResponse):
            changed.page = self.page
        return changed


class PageTimer:
    """The timeout of a page. Its time does not run while a browser starts or a request waits or is in flight."""

    def __init__(self, seconds: float) -> None:
        self.seconds: float = seconds
        self.scope: trio.CancelScope = trio.CancelScope(deadline=trio.current_time() + seconds)
        self._pending = 0
        self._left = seconds

    @contextmanager
    def paused(self) -> Generator[None, None, None]:
        """Stop the timer during a block. Blocks of several tasks may overlap."""
        if not self._pending:
            self._left = self.scope.deadline - trio.current_time()
            self.scope.deadline = math.inf
        self._pending += 1
        try:
            yield
        finally:
            self._pending -= 1
            if not self._pending:
                self.scope.deadline = trio.current_time() + self._left


class SharedFiles:
    """Scripts and styles that pages share while they are fresh (RFC 9111, 4.2). No file is fetched twice at once.

    If they need more memory than ``max_bytes``, the least recently used are dropped.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._files: OrderedDict[str, tuple[float, Answer]] = OrderedDict()
        self._coming: dict[str, trio.Event] = {}

    async def get(self, url: str, fetch: Callable[[], Awaitable[Answer | None]]) -> tuple[Answer | None, bool]:
        """Return the file, and True if it was shared. A checkpoint unless the file is fresh."""
        while True:
            found = self._files.get(url)
            if found is not None and found[0] > trio.current_time():
                self._files.move_to_end(url)
                return found[1], True
            coming = self._coming.get(url)
            if coming is None:
                break
            await coming.wait()
            if url not in self._files:  # the file may not be shared, or the page that fetched it was cancelled
                break
        event = self._coming[url] = trio.Event()
        try:
            answer = await fetch()
            if answer is not None:
                self._keep(url, answer)
            return answer, False
        finally:
            if self._coming.get(url) is event:
                del self._coming[url]
            event.set()

    def _keep(self, url: str, answer: Answer) -> None:
        seconds = freshness(answer)
        if seconds <= 0.0 or file_bytes(url, answer) > self._max_bytes:
            return
        before = self._files.pop(url, None)
        self._bytes += file_bytes(url, answer) - (0 if before is None else file_bytes(url, before[1]))
        self._files[url] = trio.current_time() + seconds, answer
        while self._bytes > self._max_bytes:
            dropped_url, (_, dropped) = self._files.popitem(last=False)
            self._bytes -= file_bytes(dropped_url, dropped)


def file_bytes(url: str, answer: Answer) -> int:
    """Return about how much memory a shared file needs, so that very many small files are limited too."""
    headers = sum(len(name) + len(value) for name, value in answer.headers)
    return FILE_OVERHEAD + len(url) + headers + len(answer.body)


def freshness(answer: Answer) -> float:
    """Return the seconds for which other pages may use a response without a new request (RFC 9111, 3 and 4.2.1)."""
    from trawl.cache.policy import directives_of, seconds_of  # noqa: PLC0415 - the package imports its stores

    headers = Headers(answer.headers)
    control = directives_of(headers.getlist("Cache-Control"))
    varies = {name.strip().lower() for name in ",".join(headers.getlist("Vary")).split(",")}
    if answer.status != 200 or control.keys() & {"no-store", "private", "no-cache"} or "Set-Cookie" in headers:
        return 0.0
    if varies - {"accept-encoding", "origin", ""}:
        return 0.0
    return (seconds_of(control.get("max-age")) or 0.0) - (seconds_of(headers.get("Age")) or 0.0)


class Rendering:
    """Renders the pages of one crawl.

    Args:
        settings: The settings.
        jars: The cookies.
        spider: The spider, whose methods ``run`` names.
        open_page: Opens pages.
        crawl: The running crawl; None if the middleware ``browser`` was removed, so that no page is rendered.
        statuses: The status codes that the spider handles besides 2xx.
        measure: Returns the memory of the browser in bytes.
        max_body_bytes: Maximum size of the HTML of a rendered page; 0 for no limit.
    """

    def __init__(
        self,
        settings: BrowserSettings,
        jars: Jars,
        spider: Any,
        open_page: OpenPage,
        *,
        crawl: PageCrawl | None,
        statuses: Container[int],
        measure: Callable[[], int],
        max_body_bytes: int,
    ) -> None:
        self.settings: BrowserSettings = settings
        self.third_party: frozenset[str] = settings.third_party_domains
        self._jars = jars
        self._spider = spider
        self._open_page = open_page
        self._files = SharedFiles(settings.browser_share) if settings.browser_share else None
        self._tabs = trio.Semaphore(settings.browser_pages)
        self._running = crawl
        self._statuses = statuses
        self._visits: dict[_Visit, None] = {}
        self._measure = measure
        self._max_body_bytes = max_body_bytes

    @property
    def crawl(self) -> PageCrawl:
        """The running crawl.

        Raises:
            RuntimeError: If no page can be rendered.
        """
        if self._running is None:
            raise RuntimeError("no page can be rendered: DOWNLOADER_MIDDLEWARES removes the middleware 'browser'")
        return self._running

    @cached_property
    def rules(self) -> AdmissionRules:
        """The spider's allowed domains."""
        return AdmissionRules(SchedulerSettings(), getattr(self._spider, "allowed_domains", None) or ())

    def status(self, stats: Stats) -> BrowserStatus:
        """Return the open pages and the counts of rendered pages."""
        rendered = stats.count("browser/page_count")
        if not rendered and not self._visits:
            return BrowserStatus()
        return BrowserStatus(
            open=len(self._visits),
            tabs=self.settings.browser_pages,
            rendered=rendered,
            requests=stats.count("browser/request_count"),
            memory=self._measure(),
            pages=[visit.words() for visit in islice(self._visits, MAX_SHOWN)],
        )

    def check(self, request: Request) -> None:
        """Check meta ``browser`` of an admitted request. A method in ``run`` is replaced by its name, and {} by True.

        Raises:
            ValueError: If a key is unknown, a value is wrong, or the spider has no such method.
        """
        wanted = request.meta_get("browser")
        if wanted is None or isinstance(wanted, bool):
            return
        if not isinstance(wanted, Mapping):
            raise ValueError(
                "meta browser is reserved for rendered pages: rename your own key, or use True or a trawl.Page, not "
                f"{wanted!r:.100}"
            )
        unknown = sorted(set(wanted) - set(Page.__annotations__))
        if unknown:
            keys = ", ".join(Page.__annotations__)
            raise ValueError(f"meta browser: unknown key {unknown[0]!r}; the keys are {keys}")
        if not wanted:
            request.meta["browser"] = True
            return
        page = dict(wanted)
        if callable(run := page.get("run")):
            page["run"] = run = getattr(run, "__name__", "")
        if run:
            self._action(run)
        try:
            msgspec.convert({key: value for key, value in page.items() if key != "run"}, Page)
        except msgspec.ValidationError as error:
            raise ValueError(f"meta browser: {error}") from error
        _check_css(page.get("wait_for", ""))
        if page != wanted:
            request.meta["browser"] = page

    def _action(self, name: object) -> Callable[[BrowserPage], Awaitable[object]]:
        """Return the spider's method that acts on a page. A stored request can name nothing else."""
        found = getattr(self._spider, name, None) if isinstance(name, str) and not name.startswith("__") else None
        if not inspect.ismethod(found) and not inspect.isfunction(found):
            raise ValueError(f"meta browser: run names {name!r}, and the spider has no such method")
        if not inspect.iscoroutinefunction(found):
            raise ValueError(
                f"meta browser: run names {name!r}, which must be an async method: async def {name}(self, page)"
            )
        return found

    async def process(self, request: Request, outcome: Outcome) -> None:
        """Render the page that a request with meta ``browser`` has fetched. A checkpoint only if it is one."""
        response = outcome.response
        is_fetched = outcome.is_heard or outcome.is_cached  # otherwise, user code has made the response
        if not is_fetched or response is None or outcome.then is not None or outcome.is_trigger:
            return
        is_wanted = 200 <= response.status < 300 or request.wants_status(response.status, self._statuses)
        if is_wanted and _is_document(response):
            await self._render(request, outcome, response)

    async def _render(self, request: Request, outcome: Outcome, response: Response) -> None:
        """Replace the response of ``outcome`` by the rendered page, or by the error."""
        stats = self.crawl.stats
        try:
            # A request that was sent holds a place in the scope "browser", so it waits only for the tabs of render()
            # and open_page(). A cached response holds no place, and may wait for any tab.
            outcome.response = await self._rendered(request, response, is_lent=notes_of(request).has_tab)
            stats.inc("browser/page_count")
        except (RenderError, BodyTooLarge) as error:
            error.url, error.method = request.url, request.method
            error.response = error.response or response
            stats.inc(f"browser/failed/{type(error).__name__}")
            outcome.response, outcome.error = None, error
        except UsageError as error:
            logger.error("%s", error)
            self.crawl.shutdown("browser_failed")
            # The request stays pending, so that a job can be resumed.
            outcome.response, outcome.then = None, Replace(request, reason="retry")
        except _ActionFailed as failed:
            stats.inc("spider_exceptions")
            outcome.response, outcome.error = None, IgnoreRequest(str(failed))
            outcome.error.__cause__ = failed.__cause__
        except ValueError as error:
            outcome.response, outcome.error = None, IgnoreRequest(f"{request!r}: {error}")

    async def render(self, response: Response, options: Mapping[str, Any]) -> RenderedResponse:
        """Render a received response, as :meth:`trawl.engine.crawl.Crawl.render` describes. A checkpoint."""
        request = self._page_request(response, {"browser": dict(options) or True})
        try:
            return await self._rendered(request, response)
        except _ActionFailed as failed:
            raise failed.__cause__ or failed from None

    @asynccontextmanager
    async def open_page(self, response: Response, session: str | None = None) -> AsyncGenerator[BrowserPage, None]:
        """Open a received response, as :meth:`trawl.engine.crawl.Crawl.open_page` describes."""
        request = self._page_request(response, {} if session is None else {"session": session})
        visit = _Visit(self, request, response, PageTimer(math.inf))
        async with self._tab(), self._opened(visit, {}) as page:
            await page.goto(response.url)
            await page.settled()
            yield page

    @asynccontextmanager
    async def _tab(self, *, is_lent: bool = False) -> AsyncGenerator[None, None]:
        """Wait for a tab. A task that has one gets another at once, because it might wait for itself."""
        outer = current_tab()
        async with nullcontext() if is_lent or outer is not None else self._tabs:
            tab = HeldTab(outer)
            held_tab.set(tab)
            try:
                yield
            finally:
                tab.is_open = False  # for tasks that it has started and that are not over yet
                held_tab.set(outer)

    @asynccontextmanager
    async def _opened(self, visit: _Visit, how: Page) -> AsyncGenerator[BrowserPage, None]:
        """Open the page of a visit, with the cookies of its request. On exit, store its cookies and close it."""
        request = visit.request
        is_merged = not request.meta_get("dont_merge_cookies")
        opening = Opening(
            ask=visit.ask,
            cookies=[to_devtools(cookie) for cookie in self._jars.of_page(request)],
            user_agent=visit.user_agent,
            blocked=how.get("block", self.settings.browser_block),
            viewport=how.get("viewport"),
            # The storage of a session contains the session's cookies.
            session=request.meta_get("session") if is_merged else None,
            paused=visit.timer.paused,
        )
        self._visits[visit] = None
        try:
            async with self._open_page(opening) as page:
                before = await page.cookies() if opening.cookies else ()
                yield page
                await self._keep_cookies(request, page, before)
        finally:
            del self._visits[visit]

    def _page_request(self, response: Response, meta: Mapping[str, Any]) -> Request:
        self.crawl  # noqa: B018 - to check it
        if response.request is None or kind_of(response) != "html":
            raise ValueError(f"{response!r} is not a page that a browser can open: it is no HTML, or was not fetched")
        return response.request.replace(meta={**response.request.meta, **meta})

    async def _rendered(self, request: Request, response: Response, *, is_lent: bool = False) -> RenderedResponse:
        """Check meta ``browser``, and render a response, twice if the browser ends the first time. A checkpoint."""
        self.check(request)  # a stored request was not checked in this run
        wanted = request.meta_get("browser")
        how = cast("Page", wanted if isinstance(wanted, Mapping) else {})
        async with self._tab(is_lent=is_lent):
            try:
                return await self._rendered_once(request, response, how)
            except BrowserEnded as error:
                logger.info("%r: %s: it is rendered again", request, error.cause)
            return await self._rendered_once(request, response, how)

    async def _rendered_once(self, request: Request, response: Response, how: Page) -> RenderedResponse:
        visit = _Visit(self, request, response, PageTimer(how.get("timeout", self.settings.browser_timeout)))
        try:
            with visit.timer.scope:
                async with self._opened(visit, how) as page:
                    return await self._act(page, visit, how)
        except (CommandFailed, ScriptFailed) as error:
            raise PageCrashed(f"the page could not be rendered: {error}") from error
        late = PageNotReady(f"the page was not ready within {visit.timer.seconds:g} s of its own time")
        late.response = visit.unready
        raise late

    async def _act(self, page: BrowserPage, visit: _Visit, how: Page) -> RenderedResponse:
        try:
            await page.goto(visit.response.url)
            if wait_for := how.get("wait_for", ""):
                await _wait_for(page, wait_for)
            else:
                await page.settled(how.get("settle", 0.5))
            if run := how.get("run", ""):
                await self._run(run, page)
            details = visit.details
            if how.get("screenshot"):
                details.screenshot = await page.screenshot()
            if how.get("pdf"):
                details.pdf = await page.pdf()
            return await visit.rendered(page)
        except trio.Cancelled:
            if visit.timer.scope.cancel_called:
                with trio.move_on_after(LAST_LOOK, shield=True), suppress(CommandFailed, ScriptFailed):
                    visit.unready = await visit.rendered(page)
            raise

    async def _run(self, name: str, page: BrowserPage) -> None:
        """Call the spider's method with the page. An error of the method is raised as :class:`_ActionFailed`."""
        try:
            with contained:
                await self._action(name)(page)
        except (BrowserEnded, PageCrashed):
            raise
        except Exception as error:
            cause = contained_error(error) or error
            if isinstance(cause, CloseSpider):
                self.crawl.shutdown(cause.reason)
            else:
                logger.error("%s of the spider failed on its page", name, exc_info=cause)
            raise _ActionFailed(f"{name} of the spider failed on its page: {cause!r}") from cause

    async def _keep_cookies(self, request: Request, page: BrowserPage, before: Sequence[Mapping[str, Any]]) -> None:
        """Store the cookies that scripts have set, and remove those that scripts have removed. A checkpoint."""
        found = await page.cookies()
        if not self._jars.is_enabled or request.meta_get("dont_merge_cookies"):
            return
        known = {(each["name"], each["domain"], each["path"]): each for each in before}
        for each in found:
            if known.pop((each["name"], each["domain"], each["path"]), None) != each:
                self._jars.add(from_devtools(each), jar_name(request))
        for removed in known.values():
            expired = attrs.evolve(from_devtools(removed), expires_utc=datetime.fromtimestamp(0, UTC))
            self._jars.jar(jar_name(request)).store(expired, self.crawl.now_utc())


class _ActionFailed(Exception):
    """A method of the spider has failed on its page, because of ``__cause__``."""


def _check_css(css: str) -> None:
    """Check a selector before its page is sent. A selector that only Chromium may know passes."""
    import cssselect  # noqa: PLC0415 - parsel loads it on first use too

    try:
        if css:
            cssselect.parse(css)
    except cssselect.SelectorError as error:
        if not NEWER_CSS.search(css):
            raise ValueError(f"meta browser: wait_for is not a valid CSS selector: {css!r}: {error}") from error


async def _wait_for(page: BrowserPage, css: str) -> None:
    try:
        await page.wait_for(css)
    except ScriptFailed as error:  # a retry would change nothing
        if "is not a valid selector" not in str(error):
            raise
        raise ValueError(f"meta browser: wait_for is not a valid selector: {css!r}") from error


class _Visit:
    """One rendering of a response, with the requests of the page. ``unready`` is the page when its timeout expired."""

    def __init__(self, rendering: Rendering, request: Request, response: Response, timer: PageTimer) -> None:
        self.request: Request = request
        self.response = response
        self.timer = timer
        self.details = PageDetails(response)
        self.unready: Response | None = None
        self.started_at: float = trio.current_time()
        self._rendering = rendering
        sent = response.sent_headers if response.request is not None else request.headers
        self.user_agent: str = sent.get("User-Agent") or ""
        self._pending: list[Request] = []
        self._last: Response = response
        self._is_first = True

    def words(self) -> str:
        """Return the URL and age of the page, and what it waits for."""
        now, waits = trio.current_time(), "runs its scripts"
        if self._pending:
            reason, more = self._rendering.crawl.why(self._pending[0]), len(self._pending) - 1
            waits = f"waits for {self._pending[0].url} ({'in flight' if reason is None else reason.text(now)})"
            waits += f" and {more} more" if more else ""
        return without_passwords(f"{self.response.url}: open for {now - self.started_at:.0f} s, {waits}")[:MAX_WORDS]

    async def ask(self, asked: Asked) -> Answer | None:
        """Return the response to a request of the page; None if it must fail. A checkpoint."""
        response = self.response
        if asked.is_main and self._is_first:
            # This is the navigation to the response's URL. Chromium may write the URL in another way, for example as
            # https.
            self._is_first = False
            await trio.lowlevel.checkpoint()
            return _answer_of(response)
        settings = self._rendering.settings
        row = SubRequest(asked.url, asked.method, asked.kind, started_at=trio.current_time())
        rows, most = self.details.requests, settings.browser_requests_limit
        row.refused = self._objection(asked) if len(rows) < most else "requests_limit"
        if len(rows) <= most:  # the first refused request is listed, too
            rows.append(row)
        if row.refused:
            self._rendering.crawl.stats.inc(f"browser/refused/{row.refused}")
            await trio.lowlevel.checkpoint()
            return None
        try:
            with self.timer.paused():
                answer = await self._answered(asked, row)
        finally:
            row.ended_at = trio.current_time()
        if answer is not None:
            row.status = answer.status
        return answer

    def _objection(self, asked: Asked) -> str:
        """Return why a request of the page is not sent; "" if it is sent."""
        if scheme_of(asked.url) not in ("http", "https"):
            return "scheme"
        from trawl.frontier.parts import domain_of  # noqa: PLC0415 - only for crawls with rendered pages

        host, rendering = host_of(asked.url), self._rendering
        is_named = rendering.settings.browser_third_party == "all" or is_in_domains(host, rendering.third_party)
        if not is_named and domain_of(host) != domain_of(host_of(self.response.url)):
            return "third_party"
        if asked.is_main and not self.request.meta_get("allow_offsite") and rendering.rules.is_outside(host):
            return "offsite_filtered"
        return ""

    async def _answered(self, asked: Asked, row: SubRequest) -> Answer | None:
        files = self._rendering._files
        fields = {name.lower(): value for name, value in asked.headers.items()}
        if files is None or asked.kind not in SHARED_KINDS or asked.method != "GET" or "authorization" in fields:
            return await self._fetched(asked, row)
        key = f"{fields.get('origin', '')} {asked.url}"
        answer, row.is_shared = await files.get(key, partial(self._fetched, asked, row))
        if row.is_shared:
            self._rendering.crawl.stats.inc("browser/shared")
        return answer

    async def _fetched(self, asked: Asked, row: SubRequest) -> Answer | None:
        crawl = self._rendering.crawl
        crawl.stats.inc("browser/request_count")
        try:
            sub = self._sub_request(asked)
            self._pending.append(sub)
            try:
                response = await crawl.fetch(sub)
            finally:
                self._pending.remove(sub)
        except (DownloadError, IgnoreRequest, ValueError) as error:
            words = error.cause if isinstance(error, DownloadError) else str(error)
            row.refused = words.partition(f"{asked.url}>: ")[2] or words
            crawl.stats.inc(f"browser/refused/{type(error).__name__}")
            return None
        if not self.request.meta_get("dont_merge_cookies"):
            name = jar_name(self.request)
            in_jar = Request(sub.url, meta=None if name is None else {"cookiejar": name})
            self._rendering._jars.store(in_jar, response, crawl.now_utc)
        if asked.is_main and _is_document(response):  # a link may also lead to a download
            self._last = response
        return _answer_of(response)

    def _sub_request(self, asked: Asked) -> Request:
        request = self.request
        keys = ("session", "cookiejar", "proxy", "dont_obey_robotstxt", "download_timeout", "dont_cache")
        meta = {key: request.meta[key] for key in keys if request.meta_get(key) is not None}
        headers = {
            name: value
            for name, value in asked.headers.items()
            if name.lower() not in NOT_SENT and not name.lower().startswith("sec-ch-")
        }
        if self.user_agent:
            headers["User-Agent"] = self.user_agent
        sub = Request(
            asked.url,
            method=asked.method,
            headers=headers,
            body=asked.body,
            priority=request.priority,
            meta={
                **meta,
                "dont_merge_cookies": True,  # Chromium has set the right cookies
                "dont_redirect": True,  # Chromium itself follows redirects, so that it can apply CORS
                "dont_detect_soft_block": True,
                "handle_httpstatus_all": True,
            },
        )
        note(sub, is_sub_request=True)
        return sub

    async def rendered(self, page: BrowserPage) -> RenderedResponse:
        """Return the response with the HTML and URL of the page as it is now. A checkpoint."""
        html, url = await page.html(), await page.url()
        details, last = self.details, self._last
        details.console, details.blocked = list(page.console), page.blocked
        body, most = html.encode("utf-8", "replace"), self._rendering._max_body_bytes
        if most and len(body) > most:
            raise BodyTooLarge(f"the rendered page has {len(body)} bytes, more than DOWNLOAD_MAXSIZE ({most})")
        headers = last.headers.copy()
        headers["Content-Type"] = "text/html; charset=utf-8"
        changes: dict[str, Any] = {
            "url": url.partition("#")[0],
            "headers": headers,
            "body": body,
            "request": self.response.request,
            "flags": [*self.response.flags, "browser"],
        }
        rendered: RenderedResponse = last.replace(cls=RenderedResponse, **changes)
        rendered.page = details
        rendered.times = self.response.times
        if self.response.request is not None:
            rendered._sent = self.response._sent
        return rendered


def _is_document(response: Response) -> bool:
    """Return True if a browser shows a response. It would download an attachment instead (RFC 6266, 4.2)."""
    is_file = response.headers.get("Content-Disposition", "").lower().lstrip().startswith("attachment")
    return not is_file and bool(response.body) and kind_of(response) == "html"


def _answer_of(response: Response) -> Answer:
    fields = [
        (name, value)
        for name in response.headers
        if name.lower() not in NOT_PASSED
        for value in response.headers.getlist(name)
    ]
    return Answer(response.status, fields, response.body)


def to_devtools(cookie: Cookie) -> dict[str, Any]:
    """Return a cookie in the form of DevTools (``Network.CookieParam``)."""
    made: dict[str, Any] = {
        "name": cookie.name,
        "value": cookie.value,
        "domain": cookie.domain if cookie.is_host_only else f".{cookie.domain}",
        "path": cookie.path,
        "secure": cookie.is_secure,
        "httpOnly": cookie.is_http_only,
    }
    if cookie.same_site in ("strict", "lax", "none"):
        made["sameSite"] = cookie.same_site.capitalize()
    if cookie.expires_utc is not None:
        made["expires"] = cookie.expires_utc.timestamp()
    return made


def from_devtools(found: Mapping[str, Any]) -> Cookie:
    """Return a cookie that DevTools has reported (``Network.Cookie``)."""
    domain = str(found["domain"])
    expires = float(found.get("expires", -1))
    return Cookie(
        str(found["name"]),
        str(found["value"]),
        domain.removeprefix(".").lower(),
        str(found["path"]),
        is_host_only=not domain.startswith("."),
        is_secure=bool(found.get("secure")),
        expires_utc=datetime.fromtimestamp(min(expires, 253_402_300_799), UTC) if expires > 0 else None,
        is_http_only=bool(found.get("httpOnly")),
        same_site=str(found.get("sameSite", "")).lower(),
    )
