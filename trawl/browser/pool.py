"""The browsers of a crawl: starts Chromium when a page needs it, replaces it, and keeps the contexts of sessions.

There is one current browser. If it has ended, has rendered ``BROWSER_RECYCLE`` pages or needs more memory than
``BROWSER_RECYCLE_MB``, the next page gets a new browser, and the old browser ends with its last page. A browser runs in
a task of :meth:`Browsers.run`, which the crawl runs alongside its requests.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any, Literal, TypedDict

import trio
from msgspec import Meta, Struct

from trawl.blocking import Blocking
from trawl.browser.devtools import Chromium, CommandFailed, Connection, check_sandbox, find_chromium, open_chromium
from trawl.browser.page import BrowserPage, Opening, open_page
from trawl.errors import BrowserEnded, SettingsError, UsageError
from trawl.http import is_in_domains, normalize_domain

__all__ = ["BrowserSettings", "Browsers", "Page", "check_browser", "shared_hosts"]

logger: logging.Logger = logging.getLogger("trawl.browser")

LAUNCH_TIMEOUT = 30.0
"""Maximum seconds for the start of a browser."""

MAX_FAILURES = 3
"""If this many browsers in a row end before one of their pages is rendered, the crawl ends."""

MEASURE_EVERY = 10.0
"""Seconds between two readings of the browser's memory."""

Blocked = Literal["image", "media", "font", "stylesheet", "script", "xhr", "other"]


class Page(TypedDict, total=False):
    """How a page is rendered: the value of meta ``browser``. A plain dict, so a job can store it.

    >>> trawl.Request("https://shop.example/", meta={"browser": trawl.Page(wait_for=".item")})
    <GET https://shop.example/>
    """

    wait_for: Annotated[str, Meta(description="CSS selector. The page is ready when it matches.")]
    settle: Annotated[
        float,
        Meta(
            ge=0,
            title="s",
            description="Time without a request after which the page is ready if there is no `wait_for`.",
            extra={"absent": "0.5"},
        ),
    ]
    run: Annotated[
        Any,
        Meta(description="Method of the spider, or its name, that is called with the ready page."),
    ]
    timeout: Annotated[
        float, Meta(gt=0, title="s", description="Timeout of the page.", extra={"absent": "BROWSER_TIMEOUT"})
    ]
    block: Annotated[
        list[Blocked],
        Meta(description="Kinds of resources that are not fetched.", extra={"absent": "BROWSER_BLOCK"}),
    ]
    viewport: Annotated[tuple[int, int], Meta(description="Width and height in CSS pixels.")]
    screenshot: Annotated[bool, Meta(description="Take a picture of the whole page.", extra={"absent": "false"})]
    pdf: Annotated[bool, Meta(description="Print the page as a PDF.", extra={"absent": "false"})]


class BrowserSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """The settings of pages that a browser renders."""

    browser_path: Annotated[
        str,
        Meta(
            description="Chromium, or the headless shell of Chromium. Empty: the first of "
            "`chrome-headless-shell`, `chromium-headless-shell`, `chromium` and `google-chrome` on the path, or "
            "Playwright's own."
        ),
    ] = ""
    browser_pages: Annotated[
        int,
        Meta(
            ge=1,
            title="pages",
            description="Maximum number of open pages. This is the concurrency of the scope `browser`.",
        ),
    ] = 4
    browser_timeout: Annotated[
        float,
        Meta(
            gt=0,
            title="s",
            description="Timeout of a page, from its opening until it is ready and the spider's actions have ended. The"
            " time does not run while the browser starts or a request of the page waits or is in flight.",
        ),
    ] = 30.0
    browser_block: Annotated[
        tuple[Blocked, ...],
        Meta(description="Kinds of resources that pages do not need. They fail at once, and nothing is sent."),
    ] = ("image", "media", "font")
    browser_third_party: Annotated[
        Literal["all", "none"] | tuple[str, ...],
        Meta(
            description="Hosts outside the page's own registrable domain to which a page may send requests: `all`, "
            "`none`, or a list of domains. If it is set, the processes of a job share the scopes of these hosts. For "
            "`all`, these are all hosts outside `allowed_domains`."
        ),
    ] = "all"
    browser_requests_limit: Annotated[
        int, Meta(ge=1, title="requests", description="Maximum number of requests of one page. Further ones fail.")
    ] = 200
    browser_share: Annotated[
        int,
        Meta(
            ge=0,
            title="bytes",
            description="Memory for scripts and styles that pages share as long as their `Cache-Control` allows it. 0 "
            "shares nothing.",
        ),
    ] = 64 << 20
    browser_recycle: Annotated[
        int, Meta(ge=1, title="pages", description="Number of pages after which a new browser is started.")
    ] = 1000
    browser_recycle_mb: Annotated[
        int,
        Meta(ge=0, title="MB", description="Memory of a browser from which a new one is started. 0 sets no limit."),
    ] = 2000
    browser_sessions: Annotated[
        int,
        Meta(
            ge=1,
            title="sessions",
            description="Maximum number of sessions whose browser storage (such as `localStorage`) is kept. The least "
            "recently used is dropped. Cookies are always kept.",
        ),
    ] = 8
    browser_sandbox: Annotated[
        bool,
        Meta(
            description="Run Chromium with its sandbox. False also runs as root, where Chromium has no sandbox. Use it "
            "only if all pages are your own, or in a container that holds nothing else."
        ),
    ] = True
    browser_flags: Annotated[tuple[str, ...], Meta(description="More flags for Chromium.")] = ()
    browser_memory_mb: Annotated[
        int, Meta(ge=0, title="MB", description="Memory for the scripts of one page. 0 sets no limit.")
    ] = 512

    def __post_init__(self) -> None:
        for name in self.third_party_names:
            try:
                normalize_domain(name)
            except ValueError as error:
                raise SettingsError(
                    f"BROWSER_THIRD_PARTY must hold domains such as 'cdn.example', not {name!r}", "BROWSER_THIRD_PARTY"
                ) from error

    @property
    def third_party_domains(self) -> frozenset[str]:
        """The domains in ``BROWSER_THIRD_PARTY`` in normal form; none for ``all`` and ``none``."""
        return frozenset(map(normalize_domain, self.third_party_names))

    @property
    def third_party_names(self) -> tuple[str, ...]:
        """The domains in ``BROWSER_THIRD_PARTY`` as they were written."""
        return self.browser_third_party if isinstance(self.browser_third_party, tuple) else ()


class _Lease:
    """A browser while pages use it.

    Attributes:
        chromium: The browser.
        pages: Number of pages so far.
        open: Number of open pages.
    """

    def __init__(self, chromium: Chromium) -> None:
        self.chromium = chromium
        self.pages = 0
        self.open = 0
        self.is_retired = False
        self.has_rendered = False
        self.is_over = trio.Event()
        self.contexts: OrderedDict[str, str] = OrderedDict()  # by session, least recently used first
        self.used: dict[str, int] = {}  # number of open pages by session

    def retire(self) -> None:
        """End the browser as soon as its last page is closed."""
        self.is_retired = True
        if not self.open:
            self.is_over.set()


class Browsers:
    """The browsers of one crawl.

    Args:
        settings: The settings.
        blocking: Makes and removes profiles.

    Attributes:
        launched: Number of browsers that were started.
        open: Number of open pages.
    """

    def __init__(self, settings: BrowserSettings, blocking: Blocking) -> None:
        self._settings = settings
        self._blocking = blocking
        self._lease: _Lease | None = None
        self._lock = trio.Lock()
        self._wanted = trio.Event()
        self._answers: list[Callable[[_Lease | Exception], None]] = []
        self._failures = 0
        self._measured_at = -math.inf
        self._memory = 0
        self.launched: int = 0
        self.open: int = 0

    async def run(self, crawl: object = None) -> None:
        """Run the browsers until cancelled, as a watcher of the crawl. A checkpoint."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._wanted.wait()
                self._wanted = trio.Event()
                nursery.start_soon(self._run_one, self._answers.pop())

    async def _run_one(self, answer: Callable[[_Lease | Exception], None]) -> None:
        settings = self._settings
        has_answered = False
        try:
            path = await self._blocking.run(find_chromium, settings.browser_path)
            flags = list(settings.browser_flags)
            if settings.browser_memory_mb:
                flags.append(f"--js-flags=--max-old-space-size={settings.browser_memory_mb}")
            with trio.CancelScope(deadline=trio.current_time() + LAUNCH_TIMEOUT) as launch:
                async with open_chromium(
                    path, flags, has_sandbox=settings.browser_sandbox, blocking=self._blocking
                ) as chromium:
                    launch.deadline = math.inf
                    lease = _Lease(chromium)
                    self.launched += 1
                    logger.debug("started %s, process %d", path, chromium.pid)
                    has_answered = True
                    answer(lease)
                    await lease.is_over.wait()
            if launch.cancelled_caught:
                raise BrowserEnded(f"{path} did not start within {LAUNCH_TIMEOUT:g} s")
        except (BrowserEnded, UsageError, OSError) as error:
            if not has_answered:
                answer(error if isinstance(error, UsageError) else BrowserEnded(str(error)))

    async def _current(self) -> _Lease:
        """Return the browser for the next page; starts one if needed."""
        async with self._lock:
            lease = self._lease
            if lease is not None and (lease.is_retired or lease.chromium.connection.ended is not None):
                if lease.chromium.connection.ended is not None:
                    self._failures = 0 if lease.has_rendered else self._failures + 1
                lease.retire()
                lease = None
            if self._failures >= MAX_FAILURES:
                raise UsageError(f"{MAX_FAILURES} browsers in a row ended before they rendered a page")
            if lease is None:
                self._lease = None
                lease = self._lease = await self._started()
            return lease

    async def _started(self) -> _Lease:
        found: list[_Lease | Exception] = []
        is_answered = trio.Event()

        def answer(result: _Lease | Exception) -> None:
            found.append(result)
            is_answered.set()
            if is_abandoned and isinstance(result, _Lease):
                result.retire()

        is_abandoned = False
        self._answers.append(answer)
        self._wanted.set()
        try:
            await is_answered.wait()
        except trio.Cancelled:
            is_abandoned = True
            if found and isinstance(found[0], _Lease):
                found[0].retire()
            raise
        if isinstance(found[0], Exception):
            self._failures += isinstance(found[0], BrowserEnded)
            raise found[0]
        return found[0]

    @asynccontextmanager
    async def open_page(self, opening: Opening) -> AsyncGenerator[BrowserPage, None]:
        """Open a page. On exit, close it without waiting.

        Raises:
            BrowserEnded: If the browser ends.
            PageCrashed: If the process of the page ends.
            UsageError: If no browser can be started.
        """
        with opening.paused():
            lease = await self._current()
        lease.open += 1
        lease.pages += 1
        self.open += 1
        if opening.session is not None:
            lease.used[opening.session] = lease.used.get(opening.session, 0) + 1
        try:
            async with (
                self._context(lease, opening) as context,
                open_page(lease.chromium, context, opening) as page,
            ):
                yield page
                lease.has_rendered = True
        finally:
            lease.open -= 1
            self.open -= 1
            if opening.session is not None:
                lease.used[opening.session] -= 1
            self._look(lease)
            if lease.is_retired and not lease.open:
                lease.is_over.set()

    def _look(self, lease: _Lease) -> None:
        """Retire a browser that has rendered enough pages or needs too much memory."""
        settings = self._settings
        is_spent = lease.pages >= settings.browser_recycle
        if not is_spent and settings.browser_recycle_mb and lease is self._lease:
            is_spent = self.memory_bytes() > settings.browser_recycle_mb << 20
        if is_spent and not lease.is_retired:
            lease.retire()

    def memory_bytes(self) -> int:
        """Return the memory of the current browser; 0 if none runs or the system does not report it.

        It is read at most every ten seconds, because reading it takes some milliseconds.
        """
        now = trio.current_time()
        if now - self._measured_at >= MEASURE_EVERY:
            self._measured_at = now
            is_running = self._lease is not None and self._lease.chromium.connection.ended is None
            self._memory = self._lease.chromium.memory_bytes() if self._lease is not None and is_running else 0
        return self._memory

    @asynccontextmanager
    async def _context(self, lease: _Lease, opening: Opening) -> AsyncGenerator[str, None]:
        """Yield the browser context of a page: its own, or the context of its session."""
        connection = lease.chromium.connection

        def dispose(made: dict[str, Any]) -> None:
            connection.post("", "Target.disposeBrowserContext", {"browserContextId": made["browserContextId"]})

        session = opening.session
        context = None if session is None else lease.contexts.get(session)
        is_own = session is None
        if context is None:
            made = await connection.call("", "Target.createBrowserContext", {"disposeOnDetach": True}, undo=dispose)
            context = str(made["browserContextId"])
            deny = {"behavior": "deny", "browserContextId": context}
            connection.post("", "Browser.setDownloadBehavior", deny)
            if session is not None:
                if session in lease.contexts:  # another page of the session was faster
                    dispose(made)
                    context = lease.contexts[session]
                lease.contexts[session] = context
        try:
            if session is not None:
                lease.contexts.move_to_end(session)
                for other in [each for each in lease.contexts if not lease.used.get(each)]:
                    if len(lease.contexts) <= self._settings.browser_sessions:
                        break
                    dispose({"browserContextId": lease.contexts.pop(other)})
                    lease.used.pop(other, None)
            if opening.cookies:
                await _set_cookies(connection, context, opening.cookies)
            yield context
        finally:
            if is_own:
                dispose({"browserContextId": context})


async def _set_cookies(connection: Connection, context: str, cookies: Sequence[Mapping[str, Any]]) -> None:
    """Copy cookies into a browser context, except cookies that Chromium refuses."""
    try:
        await connection.call("", "Storage.setCookies", {"browserContextId": context, "cookies": list(cookies)})
    except CommandFailed:  # one of the cookies is not valid for Chromium, so none was set
        for cookie in cookies:
            connection.post("", "Storage.setCookies", {"browserContextId": context, "cookies": [cookie]})


def shared_hosts(
    settings: BrowserSettings, allowed_domains: Iterable[str] | None, *, is_chosen: bool
) -> Callable[[str], bool] | None:
    """Return a test for the hosts that pages in several processes of a job need; None if there are no such hosts.

    Only the settings decide, so that all processes agree.

    Args:
        settings: The settings.
        allowed_domains: The spider's allowed domains.
        is_chosen: True if ``BROWSER_THIRD_PARTY`` is set.
    """
    third = settings.browser_third_party
    if third == "none" or not is_chosen:
        return None
    named = _own_domains(allowed_domains) if third == "all" else settings.third_party_domains

    def is_shared(host: str) -> bool:
        return is_in_domains(host, named) != (third == "all")

    return is_shared


def _own_domains(allowed_domains: object) -> frozenset[str]:
    """Return the domains in normal form, except wrong ones, which the rules of admission report."""
    found = set()
    for name in allowed_domains if isinstance(allowed_domains, Iterable) else ():
        with suppress(ValueError, AttributeError):
            found.add(normalize_domain(name))
    return frozenset(found)


def check_browser(settings: BrowserSettings) -> str:
    """Return the path of the Chromium that these settings use.

    Raises:
        UsageError: If there is no Chromium, or Chromium has no sandbox for this user.
    """
    check_sandbox(has_sandbox=settings.browser_sandbox)
    return find_chromium(settings.browser_path)
