"""One page of the browser: a tab whose every request is answered by trawl, and the actions of a spider on it.

``Fetch.enable`` pauses each request of the page, of its frames and of its workers. Chromium itself decides about CORS,
redirects and cookies, as it does with responses from the network::

    Fetch.requestPaused ──► blocked kind? ──► Fetch.failRequest
                        └─► ask(Asked) ──► Fetch.fulfillRequest, or Fetch.failRequest

A page lives as long as its block (:func:`open_page`). Leaving the block, or cancelling it, closes the tab without
waiting for Chromium, which may be busy with a script that never ends.

Length: one page, with each event that Chromium reports about it and each action of a user on it.
"""

from __future__ import annotations

import math
import re
from base64 import b64decode
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from contextvars import copy_context
from functools import partial
from json import dumps
from typing import Any, TypeAlias

import attrs
import trio

from trawl.browser.devtools import GONE, Chromium, CommandFailed
from trawl.browser.devtools import Reply as Params
from trawl.errors import BrowserEnded, PageCrashed

__all__ = ["Answer", "Ask", "Asked", "BrowserFrame", "BrowserPage", "OpenPage", "Opening", "ScriptFailed", "open_page"]

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

MAX_CONSOLE_LINES, MAX_CONSOLE_CHARACTERS = 100, 1000

RETRY_SCRIPT = 0.02
"""If a navigation ends a script, seconds until the script is evaluated again in the new document."""

DOMAINS = ("Page", "Inspector", "Console")
"""Domains of DevTools whose events are wanted. ``Runtime`` is not among them, because pages can detect it."""

_INTERCEPT: tuple[tuple[str, Params], ...] = (
    ("Target.setAutoAttach", {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True}),
    ("Fetch.enable", {"patterns": [{"urlPattern": "*"}]}),
)


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


Ask: TypeAlias = "Callable[[Asked], Awaitable[Answer | None]]"
"""Returns the response to a request of a page; None if the request must fail."""

OpenPage: TypeAlias = "Callable[[Opening], Any]"
"""Returns an asynchronous context manager of a :class:`BrowserPage`, which closes the page on exit."""


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


_FOUND = "(() => { const e = document.querySelector(%s); if (!e) return null; %s })()"

_CENTER = (
    "e.scrollIntoView({block: 'center', behavior: 'instant'});"
    " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]"
)

_CORNER = "const b = e.getBoundingClientRect(); return [b.x + e.clientLeft, b.y + e.clientTop]"

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
    **{"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, ""), "Backspace": (8, ""), "PageDown": (34, "")},
    **{"ArrowDown": (40, ""), "ArrowUp": (38, ""), "Home": (36, ""), "End": (35, ""), "PageUp": (33, "")},
}
"""Virtual key code and text of keys that are not characters."""

_BY_VALUE = {"returnByValue": True, "awaitPromise": True, "userGesture": True}

_NAVIGATED = ("navigated or closed", "context", "collected", "given id", "No node")
"""Words in Chromium's messages if a navigation has ended a script or replaced a frame."""

_Realm: TypeAlias = "tuple[str, str | None]"
"""Where scripts of a frame run: a DevTools session, and the object of the document unless it is the session's own."""


class BrowserFrame:
    """A frame of an open page, from :meth:`frame`. All methods are checkpoints.

    The frame is looked up again for each action, so it may navigate. Methods have no timeout: use ``with
    trio.move_on_after(seconds):`` around a call. The timeout of the page (``BROWSER_TIMEOUT``) also ends a call.
    """

    def __init__(self, page: BrowserPage, parent: BrowserFrame | None, css: str) -> None:
        self._page = page
        self._parent = parent
        self._css = css

    def frame(self, css: str) -> BrowserFrame:
        """Return the frame of the first ``<iframe>`` or ``<frame>`` that ``css`` matches, of any site."""
        return BrowserFrame(self._page, self, css)

    async def evaluate(self, script: str) -> Any:
        """Return the value of a JavaScript expression, as JSON allows it. A promise is awaited.

        Raises:
            RuntimeError: If the script raises an error.
            LookupError: If the frame does not exist.
        """
        return (await self._page._run(await self._realm(), script)).get("value")

    async def wait_for(self, css: str) -> None:
        """Return when the CSS selector ``css`` matches. The page reports the match, so there is no polling."""
        if self._parent is not None:
            await self._parent.wait_for(self._css)
        await self._lasting(_UNTIL_MATCH % dumps(css), is_patient=True)

    async def has(self, css: str) -> bool:
        """Return True if the CSS selector ``css`` matches now."""
        return bool(await self.evaluate(f"document.querySelector({dumps(css)}) !== null"))

    async def text(self, css: str) -> str | None:
        """Return the text of the first element that ``css`` matches; None if there is none."""
        found = await self.evaluate(_FOUND % (dumps(css), "return e.textContent"))
        return None if found is None else str(found)

    async def html(self) -> str:
        """Return the HTML of the document as it is now."""
        return str(await self._lasting(_HTML))

    async def url(self) -> str:
        """Return the URL of the document."""
        return str(await self._lasting("document.URL"))

    async def click(self, css: str) -> None:
        """Click on the first element that ``css`` matches.

        Raises:
            LookupError: If ``css`` matches no element.
        """
        if self._parent is not None:
            await self._parent._found(self._css, _CENTER)  # scrolls to the frame
        x, y = await self._found(css, _CENTER)
        left, top = await self._offset()
        where = {"x": left + x, "y": top + y, "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            await self._page.call("Input.dispatchMouseEvent", type=kind, **where)

    async def fill(self, css: str, value: str) -> None:
        """Replace the value of a field, as if a user had typed it.

        Raises:
            LookupError: If ``css`` matches no element.
        """
        await self._found(css, _FILL % (dumps(value), dumps(value)))

    async def select(self, css: str, value: str) -> None:
        """Select the option with this value in a ``<select>``.

        Raises:
            LookupError: If ``css`` matches no element.
        """
        await self.fill(css, value)

    async def _offset(self) -> tuple[float, float]:
        """Return the position of the frame's content in the window."""
        if self._parent is None:
            return 0.0, 0.0
        (x, y), (left, top) = await self._parent._found(self._css, _CORNER), await self._parent._offset()
        return left + x, top + y

    async def _found(self, css: str, script: str) -> Any:
        found = await self.evaluate(_FOUND % (dumps(css), script))
        if found is None:
            raise LookupError(f"no element of {await self.url()} matches {css!r}")
        return found

    async def _realm(self) -> _Realm:
        """Return where the scripts of this frame run, or raise LookupError if its document is not loaded."""
        if self._parent is None:
            return self._page._session, None
        page, realm = self._page, await self._parent._realm()
        element = await page._run(realm, f"document.querySelector({dumps(self._css)})", {"returnByValue": False})
        if "objectId" not in element:
            raise LookupError(f"no frame of {await self._parent.url()} matches {self._css!r}")
        session, described = realm[0], {"objectId": element["objectId"]}
        node = (await page._connection.call(session, "DOM.describeNode", described))["node"]
        if (own := page._frames.get(node.get("frameId", ""))) is not None:  # a frame of another site
            return own, None
        if "contentDocument" not in node:
            raise LookupError(f"{self._css!r} is not a frame of {await self._parent.url()}, or is not loaded")
        wanted = {"backendNodeId": node["contentDocument"]["backendNodeId"]}
        found = await page._connection.call(session, "DOM.resolveNode", wanted)
        return session, str(found["object"]["objectId"])

    async def _lasting(self, script: str, *, is_patient: bool = False) -> Any:
        """Evaluate a script that waits. If a navigation ends the script, evaluate it again in the new document."""
        while True:
            try:
                return await self.evaluate(script)
            except CommandFailed as error:
                if not any(words in str(error) for words in _NAVIGATED):
                    raise
            except LookupError:
                if not is_patient:
                    raise
            await trio.sleep(RETRY_SCRIPT)


class BrowserPage(BrowserFrame):
    """An open page, as it is passed to the method that ``run`` names. It is also the page's main frame.

    Dialogs are dismissed, pop-ups are closed, and downloads are dropped.

    Attributes:
        console: The lines that scripts wrote to the console, at most 100.
        blocked: Number of requests that failed at once because of their kind.
    """

    def __init__(
        self, chromium: Chromium, context: str, target: str, session: str, opening: Opening, nursery: trio.Nursery
    ) -> None:
        super().__init__(self, None, "")
        self.console: list[str] = []
        self.blocked: int = 0
        self._failure: BrowserEnded | PageCrashed | None = None
        self._chromium = chromium
        self._connection = chromium.connection
        self._context = context
        self._target = target
        self._session = session
        self._ask = opening.ask
        self._blocked = ALWAYS_BLOCKED.union(*(KINDS[kind] for kind in opening.blocked))
        self._nursery = nursery
        self._task_context = copy_context()
        self._frames: dict[str, str] = {}  # sessions of frames that have their own process
        self._sessions: set[str] = set()
        self._pending = 0
        self._idle_since = trio.current_time()
        self._waiters = trio.lowlevel.ParkingLot()  # for the end of requests

    # -- actions

    async def call(self, method: str, **params: Any) -> Params:
        """Send any DevTools command to the page, and return its reply.

        Raises:
            RuntimeError: If Chromium refuses the command.
            BrowserEnded: If the browser has ended.
        """
        return await self._connection.call(self._session, method, params)

    async def goto(self, url: str) -> None:
        """Navigate to ``url``, and return when its document is loaded.

        Raises:
            RuntimeError: If the navigation fails, for example because the URL is offsite.
        """
        reply = await self.call("Page.navigate", url=url)
        if reply.get("errorText"):
            raise CommandFailed(f"Page.navigate: {url}: {reply['errorText']}")
        await self.loaded()

    async def loaded(self) -> None:
        """Return when the document and its scripts, styles and frames are loaded."""
        # Ask the page itself, because ``Page.loadEventFired`` is lost in some navigations that change its process.
        await self._lasting(_UNTIL_LOADED)

    async def settled(self, seconds: float = 0.5) -> None:
        """Return when the page is loaded and no request was in flight for ``seconds``."""
        await self.loaded()
        while True:
            idle_at = math.inf if self._pending else self._idle_since + seconds
            if idle_at <= trio.current_time():
                return
            with trio.move_on_at(idle_at):
                await self._waiters.park()

    async def wait_for_url(self, pattern: str) -> None:
        """Return when the URL of the page matches ``pattern``, in which ``*`` stands for any characters."""
        await self._lasting(_UNTIL_URL % dumps(".*".join(re.escape(part) for part in pattern.split("*"))))

    async def press(self, key: str) -> None:
        """Press a key, such as ``Enter`` or ``a``, in the focused element of any frame."""
        code, text = _KEYS.get(key, (0, key))
        values = {"key": key, "windowsVirtualKeyCode": code} if code else {"key": key}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **values, **({"text": text} if text else {}))
        await self.call("Input.dispatchKeyEvent", type="keyUp", **values)

    async def scroll(self, pixels: float | None = None) -> None:
        """Scroll down by ``pixels``; None scrolls to the end of the page."""
        by = "document.documentElement.scrollHeight" if pixels is None else f"scrollY + {float(pixels)}"
        await self.evaluate(f"void window.scrollTo({{top: {by}, behavior: 'instant'}})")

    async def screenshot(self) -> bytes:
        """Return a picture of the whole page, as PNG."""
        return b64decode((await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True))["data"])

    async def pdf(self) -> bytes:
        """Return the page as a PDF."""
        return b64decode((await self.call("Page.printToPDF", printBackground=True))["data"])

    async def cookies(self) -> list[dict[str, Any]]:
        """Return the cookies of the page's context, in the form of DevTools."""
        reply = await self._chromium.call("Storage.getCookies", browserContextId=self._context)
        found: list[dict[str, Any]] = reply["cookies"]
        return found

    async def _run(self, realm: _Realm, script: str, changes: Params | None = None) -> Params:
        """Evaluate a script, and return DevTools' description of its value."""
        session, document = realm
        values: Params = {**_BY_VALUE, **(changes or {})}
        if document is None:
            reply = await self._connection.call(session, "Runtime.evaluate", {"expression": script, **values})
        else:
            values |= {"functionDeclaration": f"function () {{ return ({script}\n) }}", "objectId": document}
            reply = await self._connection.call(session, "Runtime.callFunctionOn", values)
        if (details := reply.get("exceptionDetails")) is not None:
            words = details.get("exception", {}).get("description") or details.get("text", "failed")
            raise ScriptFailed(f"a script failed in the page: {words}")
        found: Params = reply["result"]
        return found

    # -- events

    def _listen(self, session: str) -> None:
        """Receive the events of a session: of the page, of a frame or of a worker."""
        self._sessions.add(session)
        self._connection.handle(session, partial(self._hear, session))

    def _hear(self, session: str, method: str, params: Params) -> None:
        match method:
            case "Fetch.requestPaused":
                self._paused(session, params)
            case "Target.attachedToTarget":
                self._attached(params)
            case "Target.detachedFromTarget":
                self._connection.forget(params["sessionId"])
                self._sessions.discard(params["sessionId"])
                self._frames = {frame: each for frame, each in self._frames.items() if each != params["sessionId"]}
            case "Page.javascriptDialogOpening":
                may_leave = {"accept": params["type"] == "beforeunload"}
                self._connection.post(session, "Page.handleJavaScriptDialog", may_leave)
            case "Console.messageAdded":
                if len(self.console) < MAX_CONSOLE_LINES:
                    message = params["message"]
                    self.console.append(f"{message['level']}: {message['text']}"[:MAX_CONSOLE_CHARACTERS])
            case "Inspector.targetCrashed" if session == self._session:
                self._fail(PageCrashed("the process of the page has ended; its scripts may have used too much memory"))
            case _ if method == GONE:
                self._fail(BrowserEnded("the browser has ended"))
            case _:
                pass

    def _fail(self, failure: BrowserEnded | PageCrashed) -> None:
        self._failure = self._failure or failure
        self._nursery.cancel_scope.cancel()

    def _attached(self, params: Params) -> None:
        """Take over a new frame or worker, which waits until this is done. A pop-up is closed."""
        child, target, post = params["sessionId"], params["targetInfo"], self._connection.post
        if target["type"] == "page":
            post("", "Target.closeTarget", {"targetId": target["targetId"]})
            return
        if target["type"] == "iframe":
            self._frames[target["targetId"]] = child
        self._listen(child)
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
            method = "Fetch.failRequest" if answer is None else "Fetch.fulfillRequest"
            values: Params = {"requestId": number, "errorReason": "Failed"}
            if answer is not None:
                values = {"requestId": number, "responseCode": answer.status, "body": answer.body}
                values["responseHeaders"] = [{"name": name, "value": value} for name, value in answer.headers]
            with suppress(CommandFailed, BrowserEnded):  # the page has navigated, or the browser has ended
                await self._connection.call(session, method, values)
        finally:
            self._pending -= 1
            if not self._pending:
                self._idle_since = trio.current_time()
            self._waiters.unpark_all()


def _asked(params: Params, *, is_main: bool) -> Asked:
    request = params["request"]
    entries = request.get("postDataEntries") if request.get("hasPostData") else None
    body = b"".join(b64decode(entry["bytes"]) for entry in entries or () if "bytes" in entry)
    url = request["url"] + request.get("urlFragment", "")
    kind, text = params["resourceType"], request.get("postData", "")
    return Asked(url, request["method"], request["headers"], kind, body or text.encode(), is_main)


@asynccontextmanager
async def open_page(chromium: Chromium, context: str, opening: Opening) -> AsyncGenerator[BrowserPage, None]:
    """Open a page in a browser context. On exit, close it without waiting.

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
    try:
        session = (await chromium.call("Target.attachToTarget", targetId=made["targetId"], flatten=True))["sessionId"]
        async with trio.open_nursery() as nursery:
            page = BrowserPage(chromium, context, made["targetId"], session, opening, nursery)
            page._listen(session)
            try:
                await _set_up(page, opening)
                yield page
            except Exception as error:
                failure = error  # raised below, because the nursery would wrap the error in a group
            finally:  # inside the nursery, because a later event must not start a task in a closed nursery
                for session in page._sessions:
                    connection.forget(session)
            nursery.cancel_scope.cancel()
        if page._failure is not None:
            raise page._failure from failure
        if failure is not None:
            raise failure
    finally:
        close(made)


async def _set_up(page: BrowserPage, opening: Opening) -> None:
    commands: list[tuple[str, Params]] = [(f"{domain}.enable", {}) for domain in DOMAINS]
    if opening.user_agent:
        commands.append(("Emulation.setUserAgentOverride", {"userAgent": opening.user_agent}))
    if opening.viewport is not None:
        size = {"width": opening.viewport[0], "height": opening.viewport[1], "deviceScaleFactor": 1, "mobile": False}
        commands.append(("Emulation.setDeviceMetricsOverride", size))
    *first, last = *commands, *_INTERCEPT
    for method, values in first:
        page._connection.post(page._session, method, values)
    await page.call(last[0], **last[1])
