"""The command ``trawl shell``: an interactive session with a running crawl.

The main thread owns the terminal, because IPython and Ctrl-C need that. The crawl runs in its own thread. Lines with
``await`` run in the crawl's Trio loop, as in a callback.
"""

from __future__ import annotations

import ast
import code
import inspect
import mimetypes
import os
import re
import tempfile
import threading
import traceback
import webbrowser
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from html import escape
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any
from urllib.request import url2pathname

import trio
from rich.console import Console

import trawl
from trawl.browser import BrowserSettings, check_browser
from trawl.cli import OK
from trawl.cli.crawl_entry import CrawlEntry, CrawlOptions
from trawl.cli.fetch import fetch_response, run_single, set_work
from trawl.cli.view import CrawlWith
from trawl.errors import PartLoadError, TrawlError, UsageError
from trawl.http import Request, Response
from trawl.http.content import selector_type
from trawl.observe import printable
from trawl.tracebacks import describe_error, user_place

__all__ = ["Session", "shell_command", "view"]

_FILE = "file://"
_FILES = frozenset({".htm", ".html", ".json", ".txt", ".xml"})
"""File name extensions with which no host name ends."""

BANNER = """\
  response   {response}
  request    {request}
  spider     {spider}
  crawler    settings, stats, signals; trawl is the package
  fetch(x)   fetch a URL or a Request: response and request change
  view()     look at the response in a browser
  await works: await spider.fetch(Request(...)), await trio.sleep(1)"""


class Session:
    """The names and functions that the lines of a session share."""

    def __init__(self, thread: CrawlThread) -> None:
        spider = thread.spider
        self._crawl = spider.crawl
        self.wait_for: Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any] = thread.wait_for
        self.names: dict[str, Any] = {
            "Request": Request,
            "crawl": spider.crawl,
            "crawler": spider.crawler,
            "fetch": self.fetch,
            "request": None,
            "response": None,
            "settings": spider.settings,
            "shelp": lambda: print(self.banner),
            "spider": spider,
            "trawl": trawl,
            "trio": trio,
            "view": self.view,
        }

    def fetch(self, target: str | Request, **options: Any) -> Any:
        """Fetch a URL or a request and set ``response`` and ``request``.

        Args:
            target: A request, a URL with or without ``https://``, or the path of a file.
            options: Arguments of the request. ``redirect=False`` does not follow redirects.

        Returns:
            The response, or in a line with ``await`` a coroutine that returns it.

        Raises:
            UsageError: If the URL is not valid.
            DownloadError: If there is no response.
            IgnoreRequest: If robots.txt or a middleware refused the request.
        """
        request = _request(target, options)
        if trio.lowlevel.in_trio_run():
            return self._fetch(request)
        return self.wait_for(lambda: self._fetch(request))

    async def _fetch(self, request: Request) -> Response:
        if request.url.startswith(_FILE):
            await trio.lowlevel.checkpoint()
            response = _read(request)
        else:
            response = await fetch_response(self._crawl, request)
        self.names.update(response=response, request=response.request)
        return response

    def view(self, response: Response | None = None) -> Path:
        """Show a response in a browser, by default the session's response. Returns the path of a file with its body."""
        shown = response or self.names["response"]
        if shown is None:
            raise UsageError("nothing was fetched yet; call fetch(URL)")
        path = view(shown)
        webbrowser.open(path.as_uri())
        return path

    @property
    def banner(self) -> str:
        """The names and functions of the session, printed when it starts."""
        values = {name: printable(repr(self.names[name])) for name in ("response", "request", "spider")}
        return BANNER.format(**values)

    def run(self, compiled: CodeType) -> Any:
        """Run compiled code. Code that awaits something runs in the crawl. Returns the value of an expression."""
        function = FunctionType(compiled, self.names)
        if compiled.co_flags & inspect.CO_COROUTINE:
            return self.wait_for(function)
        return function()


def view(response: Response) -> Path:
    """Write the body of a response to a file for a browser, with a base URL for relative links. Returns the path."""
    body, ending = response.body, ".txt"
    if selector_type(response.headers.get("content-type"), body) == "html":
        base = f'<base href="{escape(response.url)}">'.encode()
        ending = ".html"
        body = body.replace(b"<head>", b"<head>" + base, 1) if b"<head>" in body else base + body
    with tempfile.NamedTemporaryFile(prefix="trawl-", suffix=ending, delete=False) as file:
        file.write(body)
    return Path(file.name)


class _Console(code.InteractiveConsole):
    """Python's own console, with ``await`` at the top level."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.names)
        self._session = session
        self.compile.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

    def write(self, data: str) -> None:
        super().write(printable(data, keeps_lines=True))

    def runcode(self, compiled: CodeType) -> None:
        try:
            self._session.run(compiled)
        except SystemExit:
            raise
        except TrawlError as error:  # a traceback through the crawl does not help
            self.write(f"{type(error).__name__}: {error}\n")
        except BaseException as error:  # noqa: ASYNC103 - this thread runs no Trio task
            trace = error.__traceback__
            while trace is not None and trace.tb_frame.f_code.co_filename != self.filename:
                trace = trace.tb_next  # showtraceback() is not used, because its hook may print a page's text unescaped
            self.write("".join(traceback.format_exception(type(error), error, trace)))


def converse(session: Session, line: str | None) -> None:
    """Run ``line`` and print its value. Without ``line``, read lines until they end, in IPython if it is installed."""
    if line is not None:
        _run_once(session, line)
    elif find_spec("IPython") is not None:
        _ipython(session)
    else:
        _Console(session).interact(session.banner, "")


def _request(target: str | Request, options: dict[str, Any]) -> Request:
    if not options.pop("redirect", True):
        meta = target.meta if isinstance(target, Request) else {}
        options["meta"] = {**meta, **options.get("meta", {}), "dont_redirect": True}
    if isinstance(target, Request):
        return target.replace(**options) if options else target
    if target.startswith((".", "/")) or os.path.isfile(target):
        target = Path(target).resolve().as_uri()
    elif Path(target.partition("/")[0]).suffix in _FILES:
        raise UsageError(f"{target}: no such file")
    try:
        return Request(target if "://" in target else f"https://{target}", **options)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _read(request: Request) -> Response:
    path = Path(url2pathname(request.url.removeprefix(_FILE)))
    kind, _ = mimetypes.guess_type(path.name)
    try:
        body = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from error
    return Response(request.url, body=body, headers={"Content-Type": kind} if kind else {}, request=request)


def _run_once(session: Session, line: str) -> None:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        compiled = compile(line, "<-c>", "eval", flags)
    except SyntaxError:
        try:
            compiled = compile(line, "<-c>", "exec", flags)
        except SyntaxError as error:
            raise UsageError(f"-c: {error}") from error
    try:
        value = session.run(compiled)
    except TrawlError:
        raise
    except Exception as error:
        where = user_place(error)
        raise PartLoadError(f"-c: {f'{where}: ' if where else ''}{describe_error(error)}") from error
    if value is not None:
        print(printable(value if isinstance(value, str) else repr(value), keeps_lines=True))


def _ipython(session: Session) -> None:
    from IPython.terminal.embed import InteractiveShellEmbed  # noqa: PLC0415  # this import takes half a second

    class Shell(InteractiveShellEmbed):
        def _showtraceback(self, etype: Any, evalue: Any, stb: Any) -> None:
            print(_with_colors(self.InteractiveTB.stb2text(stb)))

    shell = ipython_shell(partial(Shell, exit_msg=""), session)
    shell()


_COLOR = re.compile("(\x1b\\[[0-9;]*m)")


def _with_colors(text: str) -> str:
    """Return a traceback with its colors. Other control characters are escaped, because they may come from a page."""
    parts = _COLOR.split(text)
    return "".join(part if i % 2 else printable(part, keeps_lines=True) for i, part in enumerate(parts))


def ipython_shell(kind: Any, session: Session) -> Any:
    """Return an IPython shell for a session. Its lines with ``await`` run in the crawl."""
    shell = kind(user_ns=session.names, banner1=session.banner + "\n")
    shell.autoawait = True
    shell.loop_runner = lambda coroutine: session.wait_for(lambda: coroutine)
    return shell


def shell_command(
    url: str | None,
    options: CrawlOptions,
    crawl_with: CrawlWith,
    console: Console,
    *,
    code: str | None,
    is_rendered: bool = False,
) -> int:
    """Open a shell on a running crawl, with the page at ``url``, or run ``code``. Returns the exit status."""

    def act(entry: CrawlEntry) -> int:
        if is_rendered:
            check_browser(entry.settings.of(BrowserSettings))
        with CrawlThread(entry, crawl_with) as thread:
            session = Session(thread)
            if url is not None:
                session.fetch(url, **({"meta": {"browser": True}} if is_rendered else {}))
            converse(session, code)
        return OK

    return run_single(options, console, act)


class CrawlThread:
    """A crawl that waits for work in its own thread; a context manager. ``spider`` is the running spider."""

    def __init__(self, entry: CrawlEntry, crawl_with: CrawlWith) -> None:
        self._entry = entry
        self._crawl_with = crawl_with
        self._thread = threading.Thread(target=self._run, name="trawl shell", daemon=True)
        self._begun = threading.Event()
        self._over = trio.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._error: BaseException | None = None
        self.spider: Any = None

    def __enter__(self) -> CrawlThread:
        self._thread.start()
        self._begun.wait()
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, *exc: object) -> None:
        if self._token is not None:
            with suppress(trio.RunFinishedError):  # the crawl has ended by itself
                self._token.run_sync_soon(self._over.set)
        self._thread.join()

    def wait_for(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Call ``make``, run its coroutine in the crawl, and return the result. Ctrl-C cancels the coroutine."""
        scope = trio.CancelScope()

        async def cancellable() -> Any:
            with scope:
                return await make()

        assert self._token is not None
        try:
            return trio.from_thread.run(cancellable, trio_token=self._token)
        except KeyboardInterrupt:
            self._token.run_sync_soon(scope.cancel)
            raise

    def _run(self) -> None:
        errors: list[TrawlError] = []
        set_work(self._entry, self._work, errors)
        try:
            trio.run(self._entry.run, self._crawl_with)
        except BaseException as error:  # noqa: ASYNC103 - the waiting thread raises it
            self._error = error
        finally:
            self._begun.set()

    async def _work(self, spider: Any) -> None:
        self.spider = spider
        self._token = trio.lowlevel.current_trio_token()
        self._begun.set()
        await self._over.wait()
