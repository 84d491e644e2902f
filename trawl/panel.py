"""The panel: a page in the browser that shows and steers running crawls. ``trawl crawl --panel [HOST:]PORT``.

Theory of operation. The command opens the socket before the crawl starts, so that the error for a port in use is one
line. The server is Starlette on Hypercorn's Trio worker, and runs in a watcher of the crawl. Each tick of the crawl's
:class:`~trawl.engine.status.StatusKeeper` is one server-sent event with the figures and the visible rows. It is built
once for all readers of the same view, and a slow reader misses ticks, so readers never delay the crawl.

Everybody who can reach the panel can stop the crawl. So it listens on this machine alone, or needs a token as the first
part of every path (not a cookie, which a browser would also send for other sites). Every request passes
:class:`Guard` first: the ``Host`` header must be one of the panel's names, because another site's name may be rebound
to this address, and an order must come from the panel's own page. The page puts everything that comes from websites in
as text, and its Content-Security-Policy allows no other script or style.

Length: the checks of a request are next to what they protect, so that a reader can judge them together.

A job of other processes has a :class:`JobPage`, which asks the processes for everything that it shows.

Only the option ``--panel`` and ``trawl panel`` import this module, which needs the ``panel`` extra.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import re
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import attrs
import msgspec
import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from trawl.engine.steering import MAX_BYTES, Look, Observer, Order, View, effect_of, execute, order_from
from trawl.errors import TrawlError, UsageError
from trawl.observe import CrawlStatus, ScopeStatus
from trawl.telemetry import metrics_page

if TYPE_CHECKING:
    from trawl.engine import Crawl

__all__ = ["Address", "Guard", "Panel", "parse_address"]

T = TypeVar("T")
U = TypeVar("U")

logger: logging.Logger = logging.getLogger("trawl.panel")

Scope: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Callable[[], Awaitable[Any]], Send], Awaitable[None]]

STATIC = Path(__file__).parent / "static"

ROWS = 100
"""Maximum number of scopes in one event."""

TICK = 1.0
"""Seconds between two events of a job."""

MIN_TOKEN = 16
"""Minimum number of characters of a token."""

COLUMNS = ScopeStatus.__struct_fields__

_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html; charset=utf-8"}

HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}
"""Headers of every response of the panel."""


@attrs.frozen
class Address:
    """The address on which the panel listens."""

    socket: socket.socket
    hosts: frozenset[str]  # allowed values of the header `Host`
    # Whether any IP address is allowed as `Host`, because the panel listens on all addresses
    is_any_address: bool = False
    token: str = ""  # first part of every path; "" for none

    @property
    def url(self) -> str:
        """The address of the page."""
        host, port = self.socket.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{port}/{f'{self.token}/' if self.token else ''}"

    def allows(self, host: str) -> bool:
        """Return whether a value of the header ``Host`` is one of the panel's names."""
        host = host.lower()
        port = self.socket.getsockname()[1]
        if port == 80 and ":" not in host.rpartition("]")[2]:
            host += ":80"
        if host in self.hosts:
            return True
        name, _, given = host.rpartition(":")
        # Only a name can be rebound, so an IP address is safe.
        return self.is_any_address and given == str(port) and _is_ip(name.strip("[]"))


def parse_address(text: str, token: str = "", option: str = "--panel") -> Address:
    """Open the socket of ``--panel [HOST:]PORT``; port 0 is any free port. ``option`` is its name in messages.

    Raises UsageError if the text is not an address, the port is in use, the ``panel`` extra is not installed, or an
    address that other machines can reach has no token.
    """
    host, _, port_text = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not port_text.isascii() or not port_text.isdecimal() or int(port_text) > 65_535:
        raise UsageError(f"{option} {text!r}: write [HOST:]PORT, for example 8100 or 127.0.0.1:8100")
    if token and not re.fullmatch(rf"[A-Za-z0-9_-]{{{MIN_TOKEN},}}", token):
        raise UsageError(f"PANEL_TOKEN: use at least {MIN_TOKEN} letters, digits, - and _")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, int(port_text), type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise UsageError(f"{option} {text}: there is no such address: {error}") from error
    ip = ipaddress.ip_address(str(address[0]).partition("%")[0])
    if not ip.is_loopback and not token:
        raise UsageError(
            f"{option} {text}: other machines can reach this address, and everybody who opens the panel can stop the"
            f" crawl: set PANEL_TOKEN to a secret of at least {MIN_TOKEN} characters, or leave the host out"
        )
    listening = socket.socket(family, kind)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(100)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            words = "the port is in use: choose another one, or 0 for a free one"
            raise UsageError(f"{option} {text}: {words}") from error
        raise UsageError(f"{option} {text}: it can't listen there: {error.strerror or error}") from error
    port = listening.getsockname()[1]
    names = [host, str(ip), *(["localhost", "127.0.0.1", "::1"] if ip.is_loopback or ip.is_unspecified else [])]
    if ip.is_unspecified:
        names.append(socket.gethostname())
    hosts = frozenset([f"[{name}]:{port}" if ":" in name else f"{name}:{port}".lower() for name in names])
    return Address(listening, hosts, is_any_address=ip.is_unspecified, token=token)


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class Guard:
    """Checks the host, the origin and the token of every request, and adds the headers of :data:`HEADERS`."""

    def __init__(self, app: App, address: Address) -> None:
        self._app = app
        self._address = address

    async def __call__(self, scope: Scope, receive: Callable[[], Awaitable[Any]], send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def guarded(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        status, path = self._judge(scope)
        if status:
            start = {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]}
            await guarded(start)
            await send({"type": "http.response.body", "body": f"{status}\n".encode()})
            return
        await self._app({**scope, "path": path, "raw_path": path.encode()}, receive, guarded)

    def _judge(self, scope: Scope) -> tuple[int, str]:
        """Return the status code of a refusal, or 0, and the path without the token."""
        given = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        headers = dict(given)
        hosts = [value for name, value in given if name == "host"]
        if len(hosts) != 1 or not self._address.allows(hosts[0]):
            return 421, ""
        origin = headers.get("origin")
        if origin is not None and not (
            origin.startswith("http://") and self._address.allows(origin.removeprefix("http://"))
        ):
            return 403, ""
        path: str = scope["path"]
        if scope["method"] not in ("GET", "HEAD") and not _is_own(headers):
            return 403, ""
        if self._address.token:
            first, _, rest = path[1:].partition("/")
            if not secrets.compare_digest(first.encode("utf-8", "replace"), self._address.token.encode()):
                return 404, ""
            path = f"/{rest}"
        return 0, path


def _is_own(headers: Mapping[str, str]) -> bool:
    """Return whether an order comes from the panel's page, or from a program that is not a browser."""
    is_json = headers.get("content-type", "").partition(";")[0].strip() == "application/json"
    return is_json and headers.get("sec-fetch-site", "same-origin") == "same-origin"


def view_of(query: Mapping[str, str]) -> View:
    """Return the view of a query. Values that do not fit are replaced by the defaults."""
    sort, offset = query.get("sort", ""), query.get("offset", "")
    return View(
        sort=sort if sort in COLUMNS and sort not in ("statuses", "latency") else "sends",
        is_descending=query.get("down", "1") == "1",
        text=query.get("text", "")[:100].lower(),
        offset=int(offset) if offset.isascii() and offset.isdecimal() and len(offset) < 10 else 0,
        count=ROWS,
    )


def _event(look: Look, offset: int) -> bytes:
    """Return a server-sent event."""
    table = {"total": look.total, "offset": offset, "rows": [msgspec.structs.astuple(row) for row in look.rows]}
    return b"data: " + msgspec.json.encode((look.status, table, look.items, look.notes)) + b"\n\n"


class _Readers:
    """The readers of a page. ``when_none`` is called when the last reader leaves."""

    def __init__(self, when_none: Callable[[], None] = lambda: None) -> None:
        self._when_none = when_none
        self._readers: list[trio.CancelScope] = []
        self._is_closed = False

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with trio.CancelScope() as scope:
            self._readers.append(scope)
            try:
                yield
            finally:
                self._readers.remove(scope)
                if not self._readers:
                    self._when_none()

    def close(self) -> None:
        """End the streams of all readers, also of later ones, because the crawl has ended."""
        self._is_closed = True
        for scope in self._readers:
            scope.cancel()


class CrawlPage(_Readers):
    """One crawl of this process in the panel. Items are only received while there are readers."""

    def __init__(self, crawl: Crawl) -> None:
        self.crawl: Crawl = crawl
        self._observer = Observer(crawl)
        super().__init__(self._observer.close)
        self._messages: dict[View, bytes] = {}
        self._built_at = -1

    async def stream(self, view: View, send: Send) -> None:
        """Send one server-sent event per tick until cancelled, or until the crawl ends. A slow reader misses ticks."""
        keeper, last = self.crawl.status_keeper, -1
        with self._reading():
            while not self._is_closed:
                if keeper.ticks == last:
                    await keeper.changed()
                last = keeper.ticks
                await send({"type": "http.response.body", "body": self._message(view), "more_body": True})

    def _message(self, view: View) -> bytes:
        """Return the event for a view. It is built once per tick for all readers of the view."""
        keeper = self.crawl.status_keeper
        if keeper.ticks != self._built_at:
            self._built_at = keeper.ticks
            self._messages.clear()
        found = self._messages.get(view)
        if found is None:
            rows, total = keeper.page(view)
            look = Look(status=keeper.latest, rows=rows, total=total, items=self._observer.items())
            found = self._messages[view] = _event(look, view.offset)
        return found

    async def why(self, subject: str) -> tuple[str, Sequence[str]]:
        """Return in one line why a URL, a scope or a host waits, and what its host has asked for. A checkpoint."""
        await trio.lowlevel.checkpoint()
        return self._observer.why(subject)

    async def steer(self, order: Order, *, is_preview: bool) -> str:
        """Execute an order, or only look at its effect. Returns the effect. A checkpoint."""
        await trio.lowlevel.checkpoint()
        return effect_of(self.crawl, order) if is_preview else await execute(self.crawl, order, "panel")


class _JobLink(Protocol):
    """The connection to the processes of a job, as in :mod:`trawl.cli.job`. Its methods block."""

    def look(self, view: View) -> Look: ...
    def why(self, subject: str) -> tuple[str, Sequence[str]]: ...
    def effect_of(self, order: Order) -> str: ...
    def order(self, order: Order) -> str: ...


class JobPage(_Readers):
    """A job in the panel, as its processes describe it. Without ``status``, their statuses are summed up."""

    crawl = None

    def __init__(self, link: _JobLink, status: Callable[[], CrawlStatus] | None = None) -> None:
        super().__init__()
        self._link = link
        self._status = status
        self._messages: dict[View, tuple[float, bytes]] = {}
        self._turns = trio.Lock()

    async def stream(self, view: View, send: Send) -> None:
        """Send one server-sent event per second until cancelled. A slow reader misses some."""
        with self._reading():
            while not self._is_closed:
                await send({"type": "http.response.body", "body": await self._message(view), "more_body": True})
                await trio.sleep(TICK)

    async def _message(self, view: View) -> bytes:
        """Return the event for a view. The processes are asked once for all readers of the view. A checkpoint."""
        async with self._turns:
            now = trio.current_time()
            self._messages = {each: made for each, made in self._messages.items() if made[0] > now - TICK * 0.9}
            if view not in self._messages:
                self._messages[view] = now, await self._new(view)
            return self._messages[view][1]

    async def _new(self, view: View) -> bytes:
        try:
            look = await _in_thread(self._link.look, view)
        except TrawlError as error:
            look = Look(status=CrawlStatus(state="unknown"), notes=[str(error)])
        if self._status is not None:
            look = msgspec.structs.replace(look, status=self._status())
        return _event(look, view.offset)

    async def why(self, subject: str) -> tuple[str, Sequence[str]]:
        """Return in one line why a URL, a scope or a host waits, and what its host has asked for. A checkpoint."""
        return await _in_thread(self._link.why, subject)

    async def steer(self, order: Order, *, is_preview: bool) -> str:
        """Give all processes an order, or only look at its effect. Returns words for the operator. A checkpoint."""
        return await _in_thread(self._link.effect_of if is_preview else self._link.order, order)


async def _in_thread(act: Callable[[T], U], given: T) -> U:
    return await trio.to_thread.run_sync(act, given, abandon_on_cancel=True)


class Panel:
    """The panel of the running crawls of a command."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._pages: dict[str, CrawlPage | JobPage] = {}

    def close(self) -> None:
        """Close the socket."""
        self._address.socket.close()

    async def watch(self, crawl: Crawl) -> None:
        """Show a crawl until cancelled, and run the server. A watcher, for a single crawl."""
        with self.showing(crawl.spider.name, CrawlPage(crawl)):
            await self.serve()

    async def show(self, crawl: Crawl) -> None:
        """Show a crawl until cancelled. A watcher, for one of several crawls."""
        with self.showing(crawl.spider.name, CrawlPage(crawl)):
            await trio.sleep_forever()

    async def show_job(self, name: str, link: _JobLink, status: Callable[[], CrawlStatus] | None = None) -> None:
        """Show a job until cancelled, under its name or that of its spider, and run the server."""
        with self.showing(name, JobPage(link, status)):
            await self.serve()

    @contextmanager
    def showing(self, name: str, page: CrawlPage | JobPage) -> Iterator[None]:
        """Show a page while the block runs."""
        while name in self._pages:
            name += "'"
        self._pages[name] = page
        try:
            yield
        finally:
            page.close()
            del self._pages[name]

    async def serve(self) -> None:
        """Run the server until cancelled. If it fails, the error is logged and the crawls continue."""
        logger.warning("panel: %s", self._address.url)
        try:
            app: Any = Guard(self.app(), self._address)
            await serve(app, self._config(), mode="asgi", shutdown_trigger=trio.sleep_forever)
        except Exception:
            logger.exception("the panel has failed; the crawl continues without it")

    def _config(self) -> Config:
        config = Config()
        # The server closes the descriptor that it gets, so give it a duplicate.
        config.bind = [f"fd://{self._address.socket.dup().detach()}"]
        config.accesslog = config.errorlog = None
        config.include_server_header = False
        config.graceful_timeout, config.shutdown_timeout = 0.2, 0.5
        return config

    def app(self) -> Starlette:
        """Return the application behind the guard."""
        return Starlette(
            routes=[
                Route("/", partial(self._file, name="index.html")),
                Route("/s/{name}", self._file),
                Route("/crawls", self._crawls),
                Route("/events", self._events),
                Route("/why", self._why),
                Route("/metrics", self._metrics),
                Route("/preview", partial(self._order, is_preview=True), methods=["POST"]),
                Route("/order", self._order, methods=["POST"]),
            ]
        )

    async def _file(self, request: Request, name: str = "") -> Response:
        name = name or request.path_params["name"]
        if name not in FILES:
            return Response(status_code=404)
        return Response((STATIC / name).read_bytes(), media_type=_TYPES[Path(name).suffix])

    async def _crawls(self, request: Request) -> Response:
        return JSONResponse(sorted(self._pages))

    async def _events(self, request: Request) -> Response:
        page = self._page(request)
        if page is None:
            return JSONResponse({"error": "no such crawl"}, 404)
        return _EventStream(partial(page.stream, view_of(request.query_params)))

    async def _why(self, request: Request) -> Response:
        page, subject = self._page(request), request.query_params.get("of", "")[:2000]
        if page is None or not subject:
            return JSONResponse({"error": "name a URL, a scope or a host"}, 400)
        try:
            words, host = await page.why(subject)
        except TrawlError as error:
            return JSONResponse({"error": str(error)}, 400)
        return JSONResponse({"why": words, "host": host})

    async def _metrics(self, request: Request) -> Response:
        crawls = [page.crawl for page in self._pages.values() if page.crawl is not None]
        if not crawls:
            return JSONResponse({"error": "no crawl runs in this process: its processes have metrics"}, 404)
        try:
            content, kind = await metrics_page(crawls, request.headers.get("accept", ""))
        except UsageError as error:
            return JSONResponse({"error": str(error)}, 404)
        return Response(content, headers={"Content-Type": kind})

    async def _order(self, request: Request, *, is_preview: bool = False) -> Response:
        page = self._page(request)
        if page is None:
            return JSONResponse({"error": "no such crawl"}, 404)
        body = b""
        async for some in request.stream():
            body += some
            if len(body) > MAX_BYTES:
                return JSONResponse({"error": "too long"}, 413)
        try:
            effect = await page.steer(order_from(body), is_preview=is_preview)
        except TrawlError as error:
            return JSONResponse({"error": str(error)}, 400)
        return JSONResponse({"effect": effect})

    def _page(self, request: Request) -> CrawlPage | JobPage | None:
        name = request.query_params.get("crawl")
        return next(iter(self._pages.values()), None) if name is None else self._pages.get(name)


FILES: Sequence[str] = ("index.html", "panel.css", "panel.js", "uPlot.iife.min.js", "uPlot.min.css")
"""The files of the page."""


class _EventStream(Response):
    """A response of server-sent events, which ends when its reader has gone."""

    media_type = "text/event-stream"

    def __init__(self, stream: Callable[[Send], Awaitable[None]]) -> None:
        super().__init__()
        self._stream = stream

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the events until the reader has gone or the crawl has ended. A checkpoint."""
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async with trio.open_nursery() as nursery:

            async def until_gone() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                nursery.cancel_scope.cancel()

            nursery.start_soon(until_gone)
            await self._stream(send)
            nursery.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
