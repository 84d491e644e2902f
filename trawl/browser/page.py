"""One page of the browser: a tab whose every request is answered by trawl, and the actions of a spider on it.

Theory of operation. ``Fetch.enable`` pauses each request of the page, of its frames and of its workers. A paused
request becomes an :class:`Asked`, and the function ``ask`` returns its :class:`Answer`, or None to let it fail.
Chromium itself decides about CORS, redirects and cookies, as it does with responses from the network::

    Fetch.requestPaused ──► blocked kind? ──► Fetch.failRequest
                        └─► ask(Asked) ──► Fetch.fulfillRequest, or Fetch.failRequest

``ask`` runs in a task that is started in the context of the page's task, not of the task that reads the pipe. The
request is therefore a sub-request of the page.

A page lives as long as its block (:func:`open_page`). Leaving the block, or cancelling it, closes the tab without
waiting for Chromium, which may be busy with a script that never ends.

Length: :class:`BrowserPage` describes each action for users, next to the code of each action.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64decode
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from contextvars import copy_context
from typing import Any, Protocol

import attrs
import trio

from trawl.browser.devtools import GONE, Chromium, CommandFailed
from trawl.browser.devtools import Reply as Params
from trawl.errors import BrowserEnded, PageCrashed

__all__ = [
    "Answer",
    "Ask",
    "Asked",
    "BrowserPage",
    "OpenPage",
    "Opening",
    "ScriptFailed",
    "open_page",
]

KINDS: Mapping[str, frozenset[str]] = {
    "image": frozenset({"Image"}),
    "media": frozenset({"Media", "TextTrack"}),
    "font": frozenset({"Font"}),
    "stylesheet": frozenset({"Stylesheet"}),
    "script": frozenset({"Script"}),
    "xhr": frozenset({"XHR", "Fetch", "EventSource"}),
    "other": frozenset({"Other"}),
}
"""The kinds of ``BROWSER_BLOCK``, with Chromium's names."""

ALWAYS_BLOCKED = frozenset({"Prefetch", "Manifest", "Ping", "CSPViolationReport", "SignedExchange"})
"""Kinds that no page needs to be rendered."""

MAX_CONSOLE_LINES = 100
MAX_CONSOLE_CHARACTERS = 1000

DOMAINS = ("Page", "Inspector", "Console")
"""Domains of DevTools whose events are wanted. ``Runtime`` is not among them, because pages can detect it."""


@attrs.frozen
class Asked:
    """A request of a page.

    Attributes:
        url: The URL, with its fragment.
        method: The method.
        headers: The headers that Chromium would send, ``Cookie`` included.
        kind: Chromium's name for the kind of resource, such as ``Script``.
        body: The body.
        is_main: True if the response becomes the document of the main frame.
    """

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = attrs.field(factory=dict)
    kind: str = "Other"
    body: bytes = b""
    is_main: bool = False


@attrs.frozen
class Answer:
    """The response to a request of a page.

    Attributes:
        status: The status code.
        headers: The headers.
        body: The body, decompressed.
    """

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes


class ScriptFailed(RuntimeError):
    """A script has raised an error in the page."""


Ask = Callable[[Asked], Awaitable["Answer | None"]]
"""Returns the response to a request of a page; None if the request must fail."""


@attrs.frozen(kw_only=True)
class Opening:
    """How a page is opened.

    Attributes:
        ask: Returns the responses to the page's requests.
        cookies: Cookies of the page's context, in the form of DevTools.
        user_agent: The user agent that scripts see; "" for Chromium's own.
        blocked: Kinds of resources that fail at once, by their names in ``BROWSER_BLOCK``.
        viewport: Width and height in CSS pixels; None for Chromium's default.
        session: The name of the session whose storage the page uses; None for separate storage.
        paused: Returns a context manager in which a browser is awaited, so that the page's timeout does not run.
    """

    ask: Ask
    cookies: Sequence[Mapping[str, Any]] = ()
    user_agent: str = ""
    blocked: Iterable[str] = ()
    viewport: tuple[int, int] | None = None
    session: str | None = None
    paused: Callable[[], AbstractContextManager[None]] = nullcontext


class BrowserPage(Protocol):
    """An open page, as it is passed to the method that ``run`` names. All methods are checkpoints.

    Methods have no timeout. Use ``with trio.move_on_after(seconds):`` around a call. The timeout of the page
    (``BROWSER_TIMEOUT``) also ends a call.

    Attributes:
        console: The lines that scripts wrote to the console, at most 100.
        blocked: Number of requests that failed at once because of their kind.
    """

    console: list[str]
    blocked: int

    async def goto(self, url: str) -> None:
        """Navigate to ``url``, and return when its document is loaded."""

    async def loaded(self) -> None:
        """Return when the document and its scripts, styles and frames are loaded."""

    async def settled(self, seconds: float = 0.5) -> None:
        """Return when the page is loaded and no request was in flight for ``seconds``."""

    async def wait_for(self, css: str) -> None:
        """Return when the CSS selector ``css`` matches. The page reports the match, so there is no polling."""

    async def wait_for_url(self, pattern: str) -> None:
        """Return when the URL of the page matches ``pattern``, in which ``*`` stands for any characters."""

    async def has(self, css: str) -> bool:
        """Return True if the CSS selector ``css`` matches now."""
        ...

    async def text(self, css: str) -> str | None:
        """Return the text of the first element that ``css`` matches; None if there is none."""
        ...

    async def html(self) -> str:
        """Return the HTML of the document as it is now."""
        ...

    async def url(self) -> str:
        """Return the URL of the document."""
        ...

    async def click(self, css: str) -> None:
        """Click on the first element that ``css`` matches.

        Raises:
            LookupError: If ``css`` matches no element.
        """

    async def fill(self, css: str, value: str) -> None:
        """Replace the value of a field, as if a user had typed it.

        Raises:
            LookupError: If ``css`` matches no element.
        """

    async def select(self, css: str, value: str) -> None:
        """Select the option with this value in a ``<select>``.

        Raises:
            LookupError: If ``css`` matches no element.
        """

    async def press(self, key: str) -> None:
        """Press a key, such as ``Enter`` or ``a``."""

    async def scroll(self, pixels: float | None = None) -> None:
        """Scroll down by ``pixels``; None scrolls to the end of the page."""

    async def evaluate(self, script: str) -> Any:
        """Return the value of a JavaScript expression, as JSON allows it. A promise is awaited.

        Raises:
            RuntimeError: If the script raises an error.
        """
        ...

    async def screenshot(self) -> bytes:
        """Return a picture of the whole page, as PNG."""
        ...

    async def pdf(self) -> bytes:
        """Return the page as a PDF."""
        ...

    async def cookies(self) -> list[dict[str, Any]]:
        """Return the cookies of the page's context, in the form of DevTools."""
        ...


class OpenPage(Protocol):
    """Opens pages. Its context manager closes the page."""

    def __call__(self, opening: Opening) -> Any:
        """Return an asynchronous context manager of a :class:`BrowserPage`."""


def _quoted(text: str) -> str:
    return json.dumps(text)


_FOUND = "(() => { const e = document.querySelector(%s); if (!e) return null; %s })()"

_CENTER = (
    "e.scrollIntoView({block: 'center', behavior: 'instant'});"
    " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]"
)

_FILL = (
    "e.focus(); const proto = e instanceof HTMLTextAreaElement ? HTMLTextAreaElement.prototype"
    " : e instanceof HTMLSelectElement ? HTMLSelectElement.prototype"
    " : e instanceof HTMLInputElement ? HTMLInputElement.prototype : null;"
    " if (proto) Object.getOwnPropertyDescriptor(proto, 'value').set.call(e, %s); else e.textContent = %s;"
    " e.dispatchEvent(new Event('input', {bubbles: true})); e.dispatchEvent(new Event('change', {bubbles: true}));"
    " return true"
)

_UNTIL_MATCH = (
    "new Promise(done => { const css = %s, look = () => document.querySelector(css) !== null;"
    " if (look()) return done(true);"
    " const o = new MutationObserver(() => { if (look()) { o.disconnect(); done(true) } });"
    " o.observe(document, {childList: true, subtree: true, attributes: true}) })"
)

_UNTIL_LOADED = "document.readyState === 'complete' || new Promise(done => addEventListener('load', () => done(true)))"

_UNTIL_URL = (  # no event reports every change of the URL by a script
    "new Promise(done => { const wanted = new RegExp('^(' + %s + ')$'),"
    " look = () => { if (!wanted.test(document.URL)) return; clearInterval(timer); done(true) },"
    " timer = setInterval(look, 20); look() })"
)

_HTML = (
    "(document.doctype ? new XMLSerializer().serializeToString(document.doctype) : '')"
    " + (document.documentElement ? document.documentElement.outerHTML : '')"
)

_KEYS: Mapping[str, tuple[int, str]] = {
    "Enter": (13, "\r"),
    "Tab": (9, ""),
    "Escape": (27, ""),
    "Backspace": (8, ""),
    "ArrowDown": (40, ""),
    "ArrowUp": (38, ""),
    "PageDown": (34, ""),
    "PageUp": (33, ""),
    "End": (35, ""),
    "Home": (36, ""),
}
"""Virtual key code and text of keys that are not characters."""

RETRY_SCRIPT = 0.02
"""If a navigation ends a script, seconds until the script is evaluated again in the new document."""


class _ChromiumPage:
    """A page in Chromium: see :class:`BrowserPage`.

    Args:
        chromium: The browser.
        context: The id of the browser context.
        target: The id of the tab, which is also the id of its main frame.
        session: The DevTools session of the tab.
        opening: How the page is opened.
        nursery: Runs the tasks that answer the page's requests.
    """

    def __init__(
        self, chromium: Chromium, context: str, target: str, session: str, opening: Opening, nursery: trio.Nursery
    ) -> None:
        self.console: list[str] = []
        self.blocked: int = 0
        self.failure: RenderFailure | None = None
        self._chromium = chromium
        self._connection = chromium.connection
        self._context = context
        self._target = target
        self._session = session
        self._ask = opening.ask
        self._blocked = ALWAYS_BLOCKED.union(*(KINDS[kind] for kind in opening.blocked))
        self._nursery = nursery
        self._task_context = copy_context()
        self._sessions = {session}
        self._pending = 0
        self._idle_since = trio.current_time()
        self._changed = trio.Event()

    async def call(self, method: str, **params: Any) -> Params:
        """Send a DevTools command to the page, and return its reply. A checkpoint.

        Raises:
            CommandFailed: If Chromium refuses the command.
            BrowserEnded: If the browser has ended.
        """
        return await self._connection.call(self._session, method, params)

    # -- events

    def listen(self) -> None:
        """Receive the events of the page from now on."""
        self._connection.handle(self._session, self._hearer(self._session))

    def forget(self) -> None:
        """Receive no more events."""
        for session in self._sessions:
            self._connection.forget(session)

    def _hearer(self, session: str) -> Callable[[str, Params], None]:
        def hear(method: str, params: Params) -> None:
            self._hear(session, method, params)

        return hear

    def _hear(self, session: str, method: str, params: Params) -> None:
        match method:
            case "Fetch.requestPaused":
                self._paused(session, params)
            case "Target.attachedToTarget":
                self._attached(params)
            case "Target.detachedFromTarget":
                self._connection.forget(params["sessionId"])
                self._sessions.discard(params["sessionId"])
            case "Page.javascriptDialogOpening":
                may_leave = {"accept": params["type"] == "beforeunload"}
                self._connection.post(session, "Page.handleJavaScriptDialog", may_leave)
            case "Console.messageAdded":
                if len(self.console) < MAX_CONSOLE_LINES:
                    message = params["message"]
                    line = f"{message['level']}: {message['text']}"
                    self.console.append(line[:MAX_CONSOLE_CHARACTERS])
            case "Inspector.targetCrashed":
                self._fail(PageCrashed("the process of the page has ended; its scripts may have used too much memory"))
            case _ if method == GONE:
                self._fail(BrowserEnded("the browser has ended"))
            case _:
                pass

    def _fail(self, failure: RenderFailure) -> None:
        if self.failure is None:
            self.failure = failure
        self._nursery.cancel_scope.cancel()

    def _attached(self, params: Params) -> None:
        """Take over a new frame or worker, which waits until this is done. A pop-up is closed."""
        child, kind = params["sessionId"], params["targetInfo"]["type"]
        post = self._connection.post
        if kind == "page":
            post("", "Target.closeTarget", {"targetId": params["targetInfo"]["targetId"]})
            return
        self._sessions.add(child)
        self._connection.handle(child, self._hearer(child))
        for method, values in _INTERCEPT:
            post(child, method, values)
        post(child, "Runtime.runIfWaitingForDebugger")

    def _paused(self, session: str, params: Params) -> None:
        kind, number = params["resourceType"], params["requestId"]
        if kind in self._blocked or params["request"]["url"].partition("?")[0].endswith("/favicon.ico"):
            self.blocked += 1
            self._connection.post(session, "Fetch.failRequest", {"requestId": number, "errorReason": "BlockedByClient"})
            return
        asked = _asked(params, is_main=kind == "Document" and params.get("frameId") == self._target)
        self._pending += 1
        # Run in the context of the page's task, because the request belongs to the page, not to the task that reads the
        # pipe.
        self._task_context.copy().run(self._nursery.start_soon, self._answer, session, number, asked)

    async def _answer(self, session: str, number: str, asked: Asked) -> None:
        try:
            answer = await self._ask(asked)
            if answer is None:
                method, values = "Fetch.failRequest", _FAILED
            else:
                headers = [{"name": name, "value": value} for name, value in answer.headers]
                values = {"responseCode": answer.status, "responseHeaders": headers, "body": answer.body}
                method = "Fetch.fulfillRequest"
            with suppress(CommandFailed, BrowserEnded):  # the page has navigated, or the browser has ended
                await self._connection.call(session, method, {"requestId": number, **values})
        finally:
            self._pending -= 1
            if not self._pending:
                self._idle_since = trio.current_time()
            self._changed.set()
            self._changed = trio.Event()

    # -- actions

    async def goto(self, url: str) -> None:
        reply = await self.call("Page.navigate", url=url)
        if reply.get("errorText"):
            raise CommandFailed("Page.navigate", f"{url}: {reply['errorText']}")
        await self.loaded()

    async def loaded(self) -> None:
        """Return when the document and its scripts, styles and frames are loaded.

        This asks the page itself, because ``Page.loadEventFired`` is lost in some navigations that change the tab's
        process.
        """
        await self._lasting(_UNTIL_LOADED)

    async def settled(self, seconds: float = 0.5) -> None:
        await self.loaded()
        while True:
            idle_at = math.inf if self._pending else self._idle_since + seconds
            if idle_at <= trio.current_time():
                return
            with trio.move_on_at(idle_at):
                await self._changed.wait()

    async def wait_for(self, css: str) -> None:
        await self._lasting(_UNTIL_MATCH % _quoted(css))

    async def wait_for_url(self, pattern: str) -> None:
        await self._lasting(_UNTIL_URL % _quoted(".*".join(re.escape(part) for part in pattern.split("*"))))

    async def has(self, css: str) -> bool:
        return bool(await self.evaluate(f"document.querySelector({_quoted(css)}) !== null"))

    async def text(self, css: str) -> str | None:
        found = await self.evaluate(_FOUND % (_quoted(css), "return e.textContent"))
        return None if found is None else str(found)

    async def html(self) -> str:
        return str(await self._lasting(_HTML))

    async def url(self) -> str:
        return str(await self._lasting("document.URL"))

    async def click(self, css: str) -> None:
        x, y = await self._found(css, _CENTER)
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def fill(self, css: str, value: str) -> None:
        await self._found(css, _FILL % (_quoted(value), _quoted(value)))

    async def select(self, css: str, value: str) -> None:
        await self.fill(css, value)

    async def press(self, key: str) -> None:
        code, text = _KEYS.get(key, (0, key))
        values = {"key": key, "windowsVirtualKeyCode": code} if code else {"key": key}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **values, **({"text": text} if text else {}))
        await self.call("Input.dispatchKeyEvent", type="keyUp", **values)

    async def scroll(self, pixels: float | None = None) -> None:
        by = "document.documentElement.scrollHeight" if pixels is None else f"scrollY + {float(pixels)}"
        await self.evaluate(f"void window.scrollTo({{top: {by}, behavior: 'instant'}})")

    async def evaluate(self, script: str) -> Any:
        reply = await self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, userGesture=True
        )
        if (details := reply.get("exceptionDetails")) is not None:
            words = details.get("exception", {}).get("description") or details.get("text", "failed")
            raise ScriptFailed(f"a script failed in the page: {words}")
        return reply["result"].get("value")

    async def screenshot(self) -> bytes:
        return b64decode((await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True))["data"])

    async def pdf(self) -> bytes:
        return b64decode((await self.call("Page.printToPDF", printBackground=True))["data"])

    async def cookies(self) -> list[dict[str, Any]]:
        reply = await self._chromium.call("Storage.getCookies", browserContextId=self._context)
        found: list[dict[str, Any]] = reply["cookies"]
        return found

    async def _found(self, css: str, script: str) -> Any:
        found = await self.evaluate(_FOUND % (_quoted(css), script))
        if found is None:
            raise LookupError(f"no element of {await self.url()} matches {css!r}")
        return found

    async def _lasting(self, script: str) -> Any:
        """Evaluate a script that waits. If a navigation ends the script, evaluate it again in the new document."""
        while True:
            try:
                return await self.evaluate(script)
            except CommandFailed as error:
                if not any(words in error.message for words in ("navigated or closed", "context", "collected")):
                    raise
                await trio.sleep(RETRY_SCRIPT)


_FAILED: Params = {"errorReason": "Failed"}

RenderFailure = BrowserEnded | PageCrashed

_INTERCEPT: tuple[tuple[str, Params], ...] = (
    ("Fetch.enable", {"patterns": [{"urlPattern": "*"}]}),
    ("Target.setAutoAttach", {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True}),
)


def _asked(params: Params, *, is_main: bool) -> Asked:
    request = params["request"]
    body = b""
    if request.get("hasPostData"):
        entries = request.get("postDataEntries")
        if entries:
            body = b"".join(b64decode(entry["bytes"]) for entry in entries if "bytes" in entry)
        else:
            body = request.get("postData", "").encode()
    url = request["url"] + request.get("urlFragment", "")
    return Asked(url, request["method"], request["headers"], params["resourceType"], body, is_main)


@asynccontextmanager
async def open_page(chromium: Chromium, context: str, opening: Opening) -> AsyncGenerator[_ChromiumPage, None]:
    """Open a page in a browser context. On exit, close it without waiting.

    Args:
        chromium: The browser.
        context: The id of the browser context.
        opening: How the page is opened.

    Raises:
        BrowserEnded: If the browser ends. The block is cancelled.
        PageCrashed: If the process of the page ends. The block is cancelled.
        CommandFailed: If Chromium can't open the page.
    """
    connection = chromium.connection

    def close(target: Params) -> None:
        connection.post("", "Target.closeTarget", {"targetId": target["targetId"]})

    values = {"url": "about:blank", "browserContextId": context, **({"hidden": True} if chromium.is_hidden else {})}
    made = await connection.call("", "Target.createTarget", values, undo=close)
    failure: Exception | None = None
    page: _ChromiumPage | None = None
    try:
        attached = await chromium.call("Target.attachToTarget", targetId=made["targetId"], flatten=True)
        session = attached["sessionId"]
        async with trio.open_nursery() as nursery:
            page = _ChromiumPage(chromium, context, made["targetId"], session, opening, nursery)
            page.listen()
            try:
                await _set_up(page, session, connection.post, opening)
                yield page
            except Exception as error:
                failure = error  # raised below, because the nursery would wrap the error in a group
            finally:  # inside the nursery, because a later event must not start a task in a closed nursery
                page.forget()
            nursery.cancel_scope.cancel()
        if page.failure is not None:
            raise page.failure from failure
        if failure is not None:
            raise failure
    finally:
        close(made)


async def _set_up(
    page: _ChromiumPage, session: str, post: Callable[[str, str, Mapping[str, Any]], int], opening: Opening
) -> None:
    for domain in DOMAINS:
        post(session, f"{domain}.enable", {})
    if opening.user_agent:
        post(session, "Emulation.setUserAgentOverride", {"userAgent": opening.user_agent})
    if opening.viewport is not None:
        width, height = opening.viewport
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        post(session, "Emulation.setDeviceMetricsOverride", size)
    for method, values in _INTERCEPT[1:]:
        post(session, method, values)
    method, values = _INTERCEPT[0]
    await page.call(method, **values)
