"""The browsers of a crawl: starts Chromium when a page needs it, replaces it, and keeps the contexts of sessions.

There is one current browser. If it has ended, has rendered ``BROWSER_RECYCLE`` pages or needs more memory than
``BROWSER_RECYCLE_MB``, the next page gets a new browser, and the old browser ends with its last page. A browser runs in
a task of :meth:`Browsers.run`, which the crawl runs alongside its requests.
"""

from __future__ import annotations

import inspect
import logging
import math
import re
import sys
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable, Container, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import attrs
import trio
from msgspec import Meta, Struct

from trawl.blocking import Blocking
from trawl.errors import BrowserEnded, SettingsError, UsageError
from trawl.http import Fetch, Outcome, Request, is_in_domains, normalize_domain
from trawl.observe import BrowserStatus, Stats

if TYPE_CHECKING:
    from trawl.browser.devtools import Chromium, Connection
    from trawl.browser.page import BrowserPage, Opening
    from trawl.browser.rendering import PageCrawl, Rendering

__all__ = ["BrowserSettings", "Browsers", "Page", "PageRenderer", "check_browser", "shared_hosts"]

logger: logging.Logger = logging.getLogger("trawl.browser")

LAUNCH_TIMEOUT = 30.0
"""Maximum seconds for the start of a browser."""

MAX_FAILURES = 3
"""If this many browsers in a row end before one of their pages is rendered, the crawl ends."""

MEASURE_EVERY = 10.0
"""Seconds between two readings of the browser's memory."""

MENTION = re.compile(r"""["']browser["']|[.](?:render|open_page)[(]""")
"""Source code that renders pages."""


@attrs.define(eq=False)
class HeldTab:
    """A tab that a task holds, also for the tasks that it starts meanwhile; ``outer`` is the tab that it held before.

    The fetches of these tasks get another tab, one at a time, with the lock.
    """

    outer: HeldTab | None
    lock: trio.Lock = attrs.field(factory=trio.Lock)
    is_open: bool = True


held_tab: ContextVar[HeldTab | None] = ContextVar("trawl_held_tab", default=None)


def current_tab() -> HeldTab | None:
    """Return the open tab that this task, or the task that started it, holds; None for none."""
    tab = held_tab.get()
    while tab is not None and not tab.is_open:
        tab = tab.outer
    return tab


Blocked = Literal["image", "media", "font", "stylesheet", "script", "xhr", "other"]


class Page(TypedDict, total=False):
    """How a page is rendered: the value of meta ``browser``. A plain dict, so a job can store it.

    >>> trawl.Request("https://shop.example/", meta={"browser": trawl.Page(wait_for=".item")})
    <GET https://shop.example/>

    Attributes:
        wait_for: CSS selector. The page is ready when it matches.
        settle: Time without a request after which the page is ready if there is no ``wait_for``.
        run: Method of the spider, or its name, that is called with the ready page.
        timeout: Timeout of the page.
        block: Kinds of resources that are not fetched.
        viewport: Width and height in CSS pixels.
        screenshot: Take a picture of the whole page.
        pdf: Print the page as a PDF.
    """

    wait_for: str
    settle: Annotated[float, Meta(ge=0, title="s", extra={"absent": "0.5"})]
    run: Any
    timeout: Annotated[float, Meta(gt=0, title="s", extra={"absent": "BROWSER_TIMEOUT"})]
    block: Annotated[list[Blocked], Meta(extra={"absent": "BROWSER_BLOCK"})]
    viewport: tuple[int, int]
    screenshot: Annotated[bool, Meta(extra={"absent": "false"})]
    pdf: Annotated[bool, Meta(extra={"absent": "false"})]


class BrowserSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """The settings of pages that a browser renders.

    Attributes:
        browser_path: Chromium, or the headless shell of Chromium. Empty: the first of ``chrome-headless-shell``,
            ``chromium-headless-shell``, ``chromium`` and ``google-chrome`` on the path, or Playwright's own.
        browser_pages: Maximum number of open pages. This is the concurrency of the scope ``browser``.
        browser_timeout: Timeout of a page, from its opening until it is ready and the spider's actions have ended. The
            time does not run while the browser starts or a request of the page waits or is in flight.
        browser_block: Kinds of resources that pages do not need. They fail at once, and nothing is sent.
        browser_third_party: Hosts outside the page's own registrable domain to which a page may send requests: ``all``,
            ``none``, or a list of domains. If the spider renders pages, the processes of a job share the scopes of
            these hosts. For ``all``, these are all hosts outside ``allowed_domains``.
        browser_requests_limit: Maximum number of requests of one page. Further ones fail.
        browser_share: Memory for scripts and styles that pages share as long as their ``Cache-Control`` allows it. 0
            shares nothing.
        browser_recycle: Number of pages after which a new browser is started.
        browser_recycle_mb: Memory of a browser from which a new one is started. 0 sets no limit.
        browser_sessions: Maximum number of sessions whose browser storage (such as ``localStorage``) is kept. The least
            recently used is dropped. Cookies are always kept.
        browser_sandbox: Run Chromium with its sandbox. False also runs as root, where Chromium has no sandbox. Use it
            only if all pages are your own, or in a container that holds nothing else.
        browser_flags: More flags for Chromium.
        browser_memory_mb: Memory for the scripts of one page. 0 sets no limit.
    """

    browser_path: str = ""
    browser_pages: Annotated[int, Meta(ge=1, title="pages")] = 4
    browser_timeout: Annotated[float, Meta(gt=0, title="s")] = 30.0
    browser_block: tuple[Blocked, ...] = ("image", "media", "font")
    browser_third_party: Literal["all", "none"] | tuple[str, ...] = "all"
    browser_requests_limit: Annotated[int, Meta(ge=1, title="requests")] = 200
    browser_share: Annotated[int, Meta(ge=0, title="bytes")] = 64 << 20
    browser_recycle: Annotated[int, Meta(ge=1, title="pages")] = 1000
    browser_recycle_mb: Annotated[int, Meta(ge=0, title="MB")] = 2000
    browser_sessions: Annotated[int, Meta(ge=1, title="sessions")] = 8
    browser_sandbox: bool = True
    browser_flags: tuple[str, ...] = ()
    browser_memory_mb: Annotated[int, Meta(ge=0, title="MB")] = 512

    def __post_init__(self) -> None:
        try:
            self.third_party_domains  # noqa: B018 - to check them
        except ValueError as error:
            words = f"BROWSER_THIRD_PARTY must hold domains such as 'cdn.example': {error}"
            raise SettingsError(words, "BROWSER_THIRD_PARTY") from error

    @property
    def third_party_domains(self) -> frozenset[str]:
        """The domains in ``BROWSER_THIRD_PARTY`` in normal form; none for ``all`` and ``none``."""
        named = self.browser_third_party
        return frozenset(map(normalize_domain, named if isinstance(named, tuple) else ()))


@attrs.define(eq=False)
class _Lease:
    """A browser while pages use it: the number of its ``pages`` so far, and of open pages by session (``used``).

    ``contexts`` are the browser contexts of sessions, least recently used first.
    """

    chromium: Chromium
    pages: int = 0
    has_rendered: bool = False
    is_over: trio.Event = attrs.field(factory=trio.Event)
    contexts: OrderedDict[str | None, str] = attrs.field(factory=OrderedDict)
    used: Counter[str | None] = attrs.field(factory=Counter)


class Browsers:
    """The browsers of one crawl.

    Args:
        settings: The settings.
        blocking: Makes and removes profiles.

    Attributes:
        launched: Number of browsers that were started.
    """

    def __init__(self, settings: BrowserSettings, blocking: Blocking) -> None:
        self._settings = settings
        self._blocking = blocking
        self._lease: _Lease | None = None
        self._lock = trio.Lock()
        # The nursery of run(). A browser is started by the task of a page, and outlives the page.
        self._nursery: trio.Nursery | None = None
        self._is_running = trio.Event()
        self._failures = 0
        self._last_words = ""
        self._newest: Chromium | None = None  # it may be retired, and run until its last page is closed
        self._measured_at = -math.inf
        self._memory = 0
        self.launched: int = 0

    async def run(self, crawl: object = None) -> None:
        """Run the browsers until cancelled, as a watcher of the crawl. A checkpoint."""
        async with trio.open_nursery() as self._nursery:
            self._is_running.set()
            await trio.sleep_forever()

    async def _run_one(self, *, task_status: trio.TaskStatus[_Lease]) -> None:
        """Run a browser until its lease is over."""
        settings = self._settings
        from trawl.browser.devtools import find_chromium, open_chromium  # noqa: PLC0415 - few crawls render pages

        path = await self._blocking.run(find_chromium, settings.browser_path)
        flags = list(settings.browser_flags)
        if settings.browser_memory_mb:
            flags.append(f"--js-flags=--max-old-space-size={settings.browser_memory_mb}")
        async with open_chromium(
            path, flags, has_sandbox=settings.browser_sandbox, blocking=self._blocking
        ) as chromium:
            lease = _Lease(chromium)
            self._newest, self._measured_at = chromium, -math.inf
            self.launched += 1
            logger.debug("started %s, process %d", path, chromium.pid)
            task_status.started(lease)
            await lease.is_over.wait()

    async def _current(self) -> _Lease:
        """Return the browser for the next page; starts one if needed.

        Raises UsageError if no browser can be started, or several have ended before they rendered a page.
        """
        async with self._lock:
            lease = self._lease
            if lease is not None and lease.chromium.connection.ended is not None:
                self._failures = 0 if lease.has_rendered else self._failures + 1
                self._last_words = lease.chromium.last_words()
                self._retire(lease)
            if self._failures >= MAX_FAILURES:
                last = f": {self._last_words}" if self._last_words else ""
                raise UsageError(f"{MAX_FAILURES} browsers in a row ended before they rendered a page{last}")
            if self._lease is None:
                self._lease = await self._started()
            return self._lease

    def _retire(self, lease: _Lease) -> None:
        """Give the browser no more pages, and end it as soon as its last page is closed."""
        if lease is self._lease:
            self._lease = None
        if not lease.used.total():
            lease.is_over.set()

    async def _started(self) -> _Lease:
        await self._is_running.wait()
        assert self._nursery is not None
        try:
            with trio.move_on_after(LAUNCH_TIMEOUT):
                lease: _Lease = await self._nursery.start(self._run_one)
                return lease
            raise BrowserEnded(f"the browser did not start within {LAUNCH_TIMEOUT:g} s")
        except (BrowserEnded, OSError) as error:
            self._failures += 1
            self._last_words = str(error)
            raise BrowserEnded(str(error)) from error

    @asynccontextmanager
    async def open_page(self, opening: Opening) -> AsyncGenerator[BrowserPage, None]:
        """Open a page. On exit, close it without waiting.

        Raises:
            BrowserEnded: If the browser ends.
            PageCrashed: If the process of the page ends.
            UsageError: If no browser can be started.
        """
        from trawl.browser.page import open_page  # noqa: PLC0415 - few crawls render pages

        with opening.paused():
            lease = await self._current()
        lease.pages += 1
        lease.used[opening.session] += 1
        try:
            async with self._context(lease, opening) as context, open_page(lease.chromium, context, opening) as page:
                yield page
                lease.has_rendered = True
        finally:
            lease.used[opening.session] -= 1
            if lease is not self._lease or self._is_spent(lease):
                self._retire(lease)

    def _is_spent(self, lease: _Lease) -> bool:
        """Return True if the current browser has rendered enough pages or needs too much memory."""
        settings = self._settings
        most = settings.browser_recycle_mb << 20
        return lease.pages >= settings.browser_recycle or (most > 0 and self.memory_bytes() > most)

    def memory_bytes(self) -> int:
        """Return the memory of the newest browser in bytes; 0 if none runs or the system does not report it.

        It is read at most every ten seconds, because reading it takes some milliseconds.
        """
        now = trio.current_time()
        if now - self._measured_at >= MEASURE_EVERY:
            self._measured_at = now
            chromium = self._newest
            self._memory = 0 if chromium is None or chromium.connection.ended else chromium.memory_bytes()
        return self._memory

    @asynccontextmanager
    async def _context(self, lease: _Lease, opening: Opening) -> AsyncGenerator[str, None]:
        """Yield the browser context of a page: its own, or the context of its session."""
        connection = lease.chromium.connection

        def dispose(made: dict[str, Any]) -> None:
            connection.post("", "Target.disposeBrowserContext", {"browserContextId": made["browserContextId"]})

        session = opening.session
        context = lease.contexts.get(session)
        if context is None:
            made = await connection.call("", "Target.createBrowserContext", {"disposeOnDetach": True}, undo=dispose)
            context = str(made["browserContextId"])
            deny = {"behavior": "deny", "browserContextId": context}
            connection.post("", "Browser.setDownloadBehavior", deny)
            if session in lease.contexts:  # another page of the session was faster
                dispose(made)
                context = lease.contexts[session]
        if session is not None:
            lease.contexts[session] = context
            lease.contexts.move_to_end(session)
            if lease.used[session] == 1:  # the jar has all cookies of the session, and some may have been removed there
                connection.post("", "Storage.clearCookies", {"browserContextId": context})
            for other in [each for each in lease.contexts if not lease.used[each]]:
                if len(lease.contexts) <= self._settings.browser_sessions:
                    break
                dispose({"browserContextId": lease.contexts.pop(other)})
                del lease.used[other]
        try:
            if opening.cookies:
                await _set_cookies(connection, context, opening.cookies)
            yield context
        finally:
            if session is None:
                dispose({"browserContextId": context})


class PageRenderer:
    """Renders the pages of one crawl. The code for it is loaded when a page is rendered or checked for the first time.

    Args:
        parts: The arguments of :class:`~trawl.browser.rendering.Rendering` before its crawl.
        options: Its other arguments.
    """

    def __init__(self, *parts: Any, **options: Any) -> None:
        self._parts = parts
        self._options: dict[str, Any] = {"crawl": None, "statuses": (), **options}
        self._made: Rendering | None = None

    def made(self) -> Rendering:
        """Return the renderer, which is made on the first call."""
        if self._made is None:
            from trawl.browser.rendering import Rendering  # noqa: PLC0415 - few crawls render pages

            self._made = Rendering(*self._parts, **self._options)
        return self._made

    def middleware(self, crawl: PageCrawl, statuses: Container[int]) -> Callable[[Fetch], Fetch]:
        """Return the middleware. ``statuses`` are the codes that the spider handles besides 2xx."""
        self._options |= {"crawl": crawl, "statuses": statuses}

        def around(fetch: Fetch) -> Fetch:
            async def send(request: Request) -> Outcome:
                outcome = await fetch(request)
                if request.meta_get("browser"):
                    await self.made().process(request, outcome)
                return outcome

            return send

        return around

    def check(self, request: Request) -> None:
        """Check meta ``browser`` of an admitted request, as :meth:`~trawl.browser.rendering.Rendering.check` says."""
        wanted = request.meta_get("browser")
        if wanted is not None and not isinstance(wanted, bool):
            self.made().check(request)

    def status(self, stats: Stats) -> BrowserStatus:
        """Return the open pages and the counts of rendered pages."""
        return BrowserStatus() if self._made is None else self._made.status(stats)


async def _set_cookies(connection: Connection, context: str, cookies: Sequence[Mapping[str, Any]]) -> None:
    """Copy cookies into a browser context, except cookies that Chromium refuses."""
    from trawl.browser.devtools import CommandFailed  # noqa: PLC0415 - few crawls render pages

    try:
        await connection.call("", "Storage.setCookies", {"browserContextId": context, "cookies": list(cookies)})
    except CommandFailed:  # one of the cookies is not valid for Chromium, so none was set
        for cookie in cookies:
            connection.post("", "Storage.setCookies", {"browserContextId": context, "cookies": [cookie]})


def shared_hosts(settings: BrowserSettings, spider: Any, *, is_chosen: bool) -> Callable[[str], bool | None] | None:
    """Return a test for the hosts that pages in several processes of a job need; None if there are no such hosts.

    Only the settings and the source of the spider decide, so that all processes agree. The test returns None instead of
    True for hosts that are shared only if their limits allow it, because ``BROWSER_THIRD_PARTY`` does not name them.

    Args:
        settings: The settings.
        spider: The spider. Without ``BROWSER_THIRD_PARTY``, its source must mention rendered pages.
        is_chosen: True if ``BROWSER_THIRD_PARTY`` is set.
    """
    third = settings.browser_third_party
    if third == "none" or not (is_chosen or _mentions_pages(type(spider))):
        return None
    named = settings.third_party_domains
    if third == "all":  # all hosts outside the spider's own domains; the rules of admission report wrong domains
        allowed, own = spider.allowed_domains, set()
        for name in allowed if isinstance(allowed, Iterable) else ():
            with suppress(ValueError, AttributeError):
                own.add(normalize_domain(name))
        named = frozenset(own)

    def is_shared(host: str) -> bool | None:
        is_wanted = is_in_domains(host, named) != (third == "all")
        return None if is_wanted and not is_chosen else is_wanted

    return is_shared


def _mentions_pages(spider: type) -> bool:
    """Return True if the module of a spider or of its bases mentions meta ``browser``, or a method that renders."""
    for name in {cls.__module__ for cls in spider.__mro__}:
        if name.partition(".")[0] not in ("trawl", "builtins", "typing"):
            with suppress(OSError, TypeError, KeyError):  # a module without source
                if MENTION.search(inspect.getsource(sys.modules[name])):
                    return True
    return False


def check_browser(settings: BrowserSettings) -> str:
    """Return the path of the Chromium that these settings use.

    Raises:
        UsageError: If there is no Chromium, or Chromium has no sandbox for this user.
    """
    from trawl.browser.devtools import check_sandbox, find_chromium  # noqa: PLC0415 - few crawls render pages

    check_sandbox(has_sandbox=settings.browser_sandbox)
    return find_chromium(settings.browser_path)
