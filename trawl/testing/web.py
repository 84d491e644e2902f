"""A simulated web: hosts and pages that the test describes or WARC files contain.

Each run creates its own transport from the web, with full buckets, no open connections and new random generators. So a
web serves any number of runs, and all of them get the same responses.

Length: the web and its pages, including the actions of a page that a browser renders.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address
from os import PathLike
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urljoin

import trio

from trawl import browser
from trawl.errors import NameNotResolved
from trawl.http import Request, host_scope, normalize_url
from trawl.selectors import Selector
from trawl.testing.hosts import (
    EMPTY_PAGE,
    Failure,
    Handler,
    Host,
    Latency,
    Outage,
    Rendered,
    SimulatedResponse,
    make_page,
    make_redirect,
    scope_of_name,
)
from trawl.testing.limits import RateLimit
from trawl.testing.transport import SimulatedTransport
from trawl.testing.warc import Recording, read_recording
from trawl.transport.resolver import Address

if TYPE_CHECKING:
    from trawl.browser import Opening
    from trawl.spiders import Spider
    from trawl.testing.simulation import Errors, Simulation
    from trawl.transport import TransportSettings

__all__ = ["SimulatedWeb"]

TEST_NETWORK = IPv4Network("198.18.0.0/15")


class SimulatedWeb:
    """Simulated hosts and pages that respond in virtual time.

    >>> web = SimulatedWeb()
    >>> web.add_page("http://a.example/", title="A", links=["/b"])
    >>> web.add_host("slow.example", latency=2.0, outages=[Outage(60.0, 90.0, status=503)])
    >>> web.add_site("big.example", pages=1000, links=10)

    Attributes:
        latest: The latest run on this web; None before the first run.
        recording: The recording that the web replays, and how well its hosts fit it; None without a recording.
    """

    def __init__(self) -> None:
        self.latest: Simulation | None = None
        self.recording: Recording | None = None
        self._hosts: dict[str, Host] = {}
        self._pages: dict[str, SimulatedResponse] = {}
        self._rendered: dict[str, Rendered] = {}
        self._sites: set[str] = set()

    @classmethod
    def from_warc(cls, *paths: str | PathLike[str], latency: Latency | None = None) -> Self:
        """Create a web that replays the responses in WARC files, such as the files of ``WARC_FILE``.

        A request is matched by its method, URL and body. Requests without an exchange get a 404. If a request has
        several exchanges, the last one counts. Each response takes as long as in the recording, and a host refuses
        requests as in the recording, if a rate limit explains its refusals (see :attr:`recording`). You can add more
        hosts and pages.

        Args:
            paths: The files.
            latency: Seconds for responses without a time in the files; None for the host's median.

        Raises:
            ImportError: If warcio is not installed (extra ``warc``).
            OSError: If a file can't be read.
            ValueError: If a file is not a WARC file.
        """
        web = cls()
        web.recording = read_recording(paths, latency)
        for host, options in web.recording.hosts.items():
            web.add_host(host, **options)
        return web

    def add_host(
        self,
        host: str,
        *,
        latency: Latency = 0.0,
        connect: Latency = 0.0,
        keep_alive: float = 75.0,
        limit: RateLimit | Iterable[RateLimit] | None = None,
        handler: Handler | None = None,
        robots: str | bytes | SimulatedResponse | None = None,
        status: int = 200,
        body: str | bytes = EMPTY_PAGE,
        headers: Mapping[str, str] | None = None,
        connect_error: Failure | Callable[[Request], Failure | None] | None = None,
        outages: Iterable[Outage | tuple[float, float]] = (),
        address: str = "",
    ) -> None:
        """Add a host. By default, every path returns status code 200 with an empty HTML page.

        Args:
            host: The host's name. With a port, only this port is added. A request's host is found like its throttling
                scope, by ``host:port`` and then by ``host``.
            latency: Seconds from the send to the last byte, or a function of the request, or a distribution.
            connect: Seconds that a new connection takes before the send. Idle connections are reused.
            keep_alive: Seconds that an idle connection stays open.
            limit: The host's rate limit, or several limits. A request must pass all of them.
            handler: Called with every request that has no page and is not for ``/robots.txt``, when it is sent. It may
                be async, and can read ``url``, ``method``, ``headers`` and ``body`` of the request.
            robots: The text of ``/robots.txt``, or its complete response; None for a 404.
            status: The status code of paths without a page or handler.
            body: The body for these paths.
            headers: The headers for these paths.
            connect_error: The error of new connections, or a function of the request that returns an error or None.
            outages: Outages, or pairs of start and end in seconds since the start of the crawl.
            address: The IP address of the host. Several hosts may have the same address. "" selects an unused address.

        Raises:
            ValueError: If the host already exists or a value is out of range.
            TypeError: If a value has the wrong type.
        """
        name = scope_of_name(host)
        if name in self._hosts and not self._hosts[name].is_implied:
            raise ValueError(f"the host {name} is on this web already")
        self._hosts[name] = Host(
            name=name,
            latency=latency,
            connect=connect,
            keep_alive=keep_alive,
            limit=limit,
            handler=handler,
            robots=robots,
            answer=SimulatedResponse(status, body, headers),
            connect_error=connect_error,
            outages=outages,
            address=address,
        )

    def add_page(
        self,
        url: str,
        links: Iterable[str] = (),
        *,
        title: str = "",
        body: str | bytes | None = None,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        latency: float = 0.0,
        first_byte: float | None = None,
        error: Failure | None = None,
        rendered: Rendered | str | None = None,
    ) -> None:
        """Add a page: HTML with these links, or ``body``. Its host is added if necessary.

        Args:
            url: The URL of the page; scheme and query matter, the fragment does not.
            links: The targets of the page's links, as written in the page.
            title: The title of the page.
            body: The whole body, instead of links and title.
            status: The status code of the page.
            headers: The headers of the page.
            latency: Seconds from the send to the last byte; 0.0 if the host's latency applies.
            first_byte: Seconds from the send to the headers, for a slow body.
            error: An error instead of the last byte.
            rendered: The page after rendering in a browser, for requests with meta ``browser``: the HTML, or a
                :class:`Rendered`; None if no browser may open the page.

        Raises:
            ValueError: If the URL is not valid or a value is out of range.
        """
        page = make_page(links, title) if body is None else body
        self._put(url, SimulatedResponse(status, page, headers, latency, first_byte=first_byte, error=error))
        if rendered is not None:
            address = normalize_url(url).partition("#")[0]
            self._rendered[address] = Rendered(rendered) if isinstance(rendered, str) else rendered

    def add_redirect(self, url: str, to: str, *, status: int = 302, headers: Mapping[str, str] | None = None) -> None:
        """Add a redirect from ``url`` with status code ``status`` and ``Location: to``.

        Its host is added if necessary.
        """
        self._put(url, make_redirect(to, status, headers))

    def add_site(self, host: str, pages: int, *, links: int = 10, **options: Any) -> None:
        """Add a host with a tree of linked pages ``/``, ``/1``, ``/2`` and so on, the same for ``http`` and ``https``.

        Args:
            host: The name of the host.
            pages: Number of pages.
            links: Number of links in a page.
            options: Arguments of :meth:`add_host`.
        """
        self.add_host(host, **options)
        self._sites.add(host)
        for number in range(pages):
            below = range(number * links + 1, min((number + 1) * links + 1, pages))
            self.add_page(f"http://{host}/{number or ''}", [f"/{each}" for each in below], title=f"Page {number}")

    def host_of(self, url: str) -> Host | None:
        """Return the host of a normalized URL, by ``host:port`` and then by ``host``; None if there is none."""
        scope = host_scope(url)
        return self._hosts.get(scope) or self._hosts.get(_without_port(scope))

    async def resolve(self, host: str, port: int) -> Sequence[Address]:
        """Return the address of a host, as the name server of a simulated run. Always a checkpoint.

        By default, hosts have addresses in 198.18.0.0/15, which is reserved for tests (RFC 2544).

        Raises:
            OSError: If the host does not exist. The error is a ``socket.gaierror``.
        """
        await trio.lowlevel.checkpoint()
        literal = _literal(host)
        if literal is None:
            names = [name for name in self._hosts if _without_port(name) == host]
            if not names:
                raise socket.gaierror(socket.EAI_NONAME, f"no host of the simulated web is named {host!r}")
            own = next((self._hosts[name].address for name in names if self._hosts[name].address), "")
            literal = ip_address(own) if own else TEST_NETWORK[1 + list(self._hosts).index(names[0])]
        if literal.version == 4:
            return [Address(socket.AF_INET, (str(literal), port))]
        return [Address(socket.AF_INET6, (str(literal), port, 0, 0))]

    def page_at(self, url: str) -> SimulatedResponse | None:
        """Return the page at a normalized URL, or None."""
        address = url.partition("#")[0]
        page = self._pages.get(address)
        if page is None and address.startswith("https://") and address.split("/", 3)[2] in self._sites:
            return self._pages.get(f"http{address[5:]}")
        return page

    def rendered_at(self, url: str) -> Rendered:
        """Return the page at a URL after rendering in a browser.

        Raises:
            LookupError: If the page has no ``rendered``, so that a test can't mistake the page for the rendered page.
        """
        found = self._rendered.get(normalize_url(url).partition("#")[0])
        if found is None:
            way = f"add_page({url!r}, rendered=...), or let crawl_in_browser() run its scripts"
            raise LookupError(f"the simulated web has no rendered page for {url}: {way}")
        return found

    @asynccontextmanager
    async def open_page(
        self, opening: Opening, *, on_bug: Callable[[Exception], None] | None = None
    ) -> AsyncGenerator[SimulatedPage, None]:
        """Open a simulated page, as the browser of a simulated run. A checkpoint.

        Args:
            opening: How the page is opened.
            on_bug: Called with the error if the page is not described.
        """
        await trio.lowlevel.checkpoint()
        try:
            yield SimulatedPage(self, opening)
        except (LookupError, NotImplementedError) as error:
            if on_bug is not None:
                on_bug(error)
            raise

    def transport(
        self,
        settings: TransportSettings | None = None,
        *,
        seed: int | str = 0,
        begun_at: float | None = None,
    ) -> SimulatedTransport:
        """Create the transport of one run, on the clock of the Trio program that uses it.

        Args:
            settings: Timeouts and the maximum size of bodies; None for the defaults.
            seed: The seed of random numbers.
            begun_at: The time on the run clock at which outages and limits start to count; None for the first send.
        """
        return SimulatedTransport(self, settings, seed=seed, begun_at=begun_at)

    async def crawl(
        self,
        spider_cls: type[Spider],
        settings: Mapping[str, object] | None = None,
        seed: int = 0,
        *,
        errors: Errors = "raise",
        **spider_args: object,
    ) -> Simulation:
        """Run a spider against this web in a Trio program on a virtual clock (``autojump_clock``). A checkpoint.

        The arguments and other errors are those of :func:`trawl.testing.simulate`. Cancelling it cancels the crawl.

        Raises:
            RuntimeError: If the clock of this Trio program is not virtual.
        """
        from trawl.testing.simulation import crawl_web  # noqa: PLC0415 - only a crawl needs the engine

        return await crawl_web(spider_cls, self, settings, seed, errors, spider_args)

    async def crawl_in_browser(
        self,
        spider_cls: type[Spider],
        settings: Mapping[str, object] | None = None,
        seed: int = 0,
        *,
        errors: Errors = "raise",
        **spider_args: object,
    ) -> Simulation:
        """Run a spider against this web, and render its pages in a real Chromium. A checkpoint.

        No request leaves the process, but Chromium runs the scripts of the pages. So the clock must be the real clock,
        and times differ from run to run. ``rendered`` of the pages is not needed. Chromium runs without its sandbox
        unless ``settings`` has ``BROWSER_SANDBOX``. Arguments and errors are those of :meth:`crawl`.

        Raises:
            RuntimeError: If the clock of this Trio program is virtual.
        """
        from trawl.testing.simulation import crawl_web  # noqa: PLC0415 - only a crawl needs the engine

        return await crawl_web(spider_cls, self, settings, seed, errors, spider_args, has_browser=True)

    def unresolved(self, request: Request) -> NameNotResolved:
        """Return the error for a request to a host that is not on this web."""
        known = ", ".join(sorted(self._hosts)[:5]) or "none"
        cause = f"no host of the simulated web is named {host_scope(request.url)!r} (known: {known})"
        return NameNotResolved(cause, url=request.url, method=request.method)

    def _put(self, url: str, page: SimulatedResponse) -> None:
        address = normalize_url(url).partition("#")[0]
        if self.host_of(address) is None:
            name = host_scope(address)
            self._hosts[name] = Host(name=name, is_implied=True)
        self._pages[address] = page

    def __repr__(self) -> str:
        return f"<SimulatedWeb of {len(self._hosts)} hosts and {len(self._pages)} pages>"


class SimulatedPage:
    """An open page of a simulated web: see :class:`trawl.browser.BrowserPage`.

    Its requests go through the crawl like those of a real page. Its scripts are not run: :class:`Rendered` describes
    their effects.
    """

    def __init__(self, web: SimulatedWeb, opening: Opening) -> None:
        self.console: list[str] = []
        self.blocked: int = 0
        self._web = web
        self._opening = opening
        self._blocked = set(opening.blocked)
        self._url = "about:blank"
        self._html = ""
        self._state = Rendered()
        self._frames: dict[str, SimulatedPage] = {}

    async def goto(self, url: str) -> None:
        """Navigate to ``url``, and run the scripts of its page."""
        answer = await self._opening.ask(browser.Asked(url, kind="Document", is_main=True))
        if answer is None:
            from trawl.browser.devtools import CommandFailed  # noqa: PLC0415 - few crawls render pages

            raise CommandFailed(f"Page.navigate: {url}: net::ERR_FAILED")
        location = next((value for name, value in answer.headers if name.lower() == "location"), "")
        if 300 <= answer.status < 400 and location:
            await self.goto(urljoin(url, location))
            return
        self._url, self._html = url, answer.body.decode("utf-8", "replace")
        await self._become(self._web.rendered_at(url))

    async def _become(self, state: Rendered) -> None:
        for stage in state.asks:
            async with trio.open_nursery() as nursery:
                for target in stage:
                    url = urljoin(self._url, target)
                    kind = _KINDS.get(url.partition("?")[0].rpartition(".")[2].lower(), "xhr")
                    if kind in self._blocked:
                        self.blocked += 1
                    else:
                        nursery.start_soon(self._opening.ask, browser.Asked(url, kind=_CHROMIUMS[kind]))
        await trio.sleep(state.seconds)
        self._html = state.html or self._html
        self._url = urljoin(self._url, state.url) if state.url else self._url
        self._state = state
        self._frames.clear()

    async def _act(self, action: str, css: str = "", *, is_optional: bool = False) -> Rendered:
        if css and not await self.has(css):
            raise LookupError(f"no element of {self._url} matches {css!r}")
        effect = self._state.on.get(action)
        if effect is None:
            if is_optional:
                return self._state
            raise LookupError(
                f"the simulated page {self._url} has no effect of {action!r}: name it in Rendered(on=...)"
            )
        await self._become(effect)
        return effect

    def frame(self, css: str) -> SimulatedPage:
        """Return a frame that ``Rendered(frames=...)`` describes."""
        if css not in self._state.frames:
            raise LookupError(f"the simulated page {self._url} has no frame {css!r}: name it in Rendered(frames=...)")
        if css not in self._frames:
            self._frames[css] = SimulatedPage(self._web, self._opening)
            self._frames[css]._url, self._frames[css]._state = self._url, self._state.frames[css]
            self._frames[css]._html = self._state.frames[css].html
        return self._frames[css]

    async def loaded(self) -> None:
        """Return at once, because :meth:`goto` has loaded the page. A checkpoint."""
        await trio.lowlevel.checkpoint()

    async def settled(self, seconds: float = 0.5) -> None:
        """Return after ``seconds`` without a request. A checkpoint."""
        await trio.sleep(seconds)

    async def wait_for(self, css: str) -> None:
        """Return if ``css`` matches; otherwise wait until the page's timeout. A checkpoint."""
        if not await self.has(css):
            await trio.sleep_forever()

    async def wait_for_url(self, pattern: str) -> None:
        """Return if the URL matches; otherwise wait until the page's timeout. A checkpoint."""
        await trio.lowlevel.checkpoint()
        if not fnmatchcase(self._url, pattern):
            await trio.sleep_forever()

    async def has(self, css: str) -> bool:
        """Return True if ``css`` matches now. A checkpoint."""
        await trio.lowlevel.checkpoint()
        return bool(Selector(self._html).css(css))

    async def text(self, css: str) -> str | None:
        """Return the text of the first element that ``css`` matches; None if there is none. A checkpoint."""
        await trio.lowlevel.checkpoint()
        found = Selector(self._html).css(css)
        return "".join(found[0].css("::text").getall()) if found else None

    async def html(self) -> str:
        """Return the HTML as it is now. A checkpoint."""
        await trio.lowlevel.checkpoint()
        return self._html

    async def url(self) -> str:
        """Return the URL. A checkpoint."""
        await trio.lowlevel.checkpoint()
        return self._url

    async def click(self, css: str) -> None:
        """Apply the effect of ``click CSS``. A checkpoint."""
        await self._act(f"click {css}", css)

    async def fill(self, css: str, value: str) -> None:
        """Apply the effect of ``fill CSS``, if there is one. A checkpoint."""
        await self._act(f"fill {css}", css, is_optional=True)

    async def select(self, css: str, value: str) -> None:
        """Apply the effect of ``select CSS``, if there is one. A checkpoint."""
        await self._act(f"select {css}", css, is_optional=True)

    async def press(self, key: str) -> None:
        """Apply the effect of ``press KEY``. A checkpoint."""
        await self._act(f"press {key}")

    async def scroll(self, pixels: float | None = None) -> None:
        """Apply the effect of ``scroll``, if there is one. A checkpoint."""
        await self._act("scroll", is_optional=True)
        await trio.lowlevel.checkpoint()

    async def evaluate(self, script: str) -> Any:
        """Return the value of ``evaluate SCRIPT``. A checkpoint."""
        return (await self._act(f"evaluate {script}")).value

    async def screenshot(self) -> bytes:
        """Return an empty picture. A checkpoint."""
        await trio.lowlevel.checkpoint()
        return b"\x89PNG\r\n\x1a\n"

    async def pdf(self) -> bytes:
        """Return an empty PDF. A checkpoint."""
        await trio.lowlevel.checkpoint()
        return b"%PDF-1.7"

    async def cookies(self) -> list[dict[str, Any]]:
        """Return the cookies with which the page was opened. A checkpoint."""
        await trio.lowlevel.checkpoint()
        return [dict(cookie) for cookie in self._opening.cookies]


_KINDS = {"js": "script", "mjs": "script", "css": "stylesheet", "png": "image", "jpg": "image", "gif": "image",
          "svg": "image", "webp": "image", "woff": "font", "woff2": "font", "ttf": "font", "mp4": "media"}  # fmt: skip
_CHROMIUMS = {"script": "Script", "stylesheet": "Stylesheet", "image": "Image", "font": "Font", "media": "Media",
              "xhr": "XHR"}  # fmt: skip


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _without_port(scope: str) -> str:
    host, colon, port = scope.rpartition(":")
    return host if colon and port.isdigit() and (not host.startswith("[") or host.endswith("]")) else scope
