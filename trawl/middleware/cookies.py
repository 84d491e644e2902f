"""Cookies on requests and responses, the file that stores them between crawls, and named sessions.

Meta ``session`` puts a request into a session. The request uses the cookie jar with the name of the session, and counts
toward the scope ``session:NAME`` in addition to its other scopes. A session may also have its own proxy and headers. So
two logins, or two proxies, have separate limits, while the limits of the site apply to both.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import trio

from trawl.blocking import Blocking
from trawl.cookies import Cookie, Jar, Jars, NowUtc, from_json, from_netscape, is_netscape, to_json, to_netscape
from trawl.errors import UsageError
from trawl.file_sync import write_file
from trawl.http import Fetch, Headers, Middleware, Outcome, Request, Response, host_of
from trawl.http.notes import note, notes_of
from trawl.http.request import Callback, RequestOptions
from trawl.throttling.scope_resolver import SESSION
from trawl.transport.proxy import Proxy

if TYPE_CHECKING:
    from trawl.middleware.factory import MiddlewareCrawl

__all__ = ["Session", "Sessions", "cookies", "open_cookie_file", "set_cookies"]

logger: logging.Logger = logging.getLogger("trawl.middleware")

WRITE_GRACE = 10.0  # maximum seconds for writing the file


@asynccontextmanager
async def open_cookie_file(
    path: str, jars: Jars, *, blocking: Blocking, now_utc: Callable[[], datetime]
) -> AsyncGenerator[None, None]:
    """Load the cookies of a file into ``jars``. On exit, write the jars to the file, even after a cancellation.

    An empty ``path`` means no file. The file is replaced by a complete new file, so the old file stays intact if the
    process is killed. Only the owner may read the file. UsageError if it can't be used.
    """
    if not path:
        yield
        return
    await blocking.run(_read, path, jars)
    try:
        yield
    finally:
        with trio.move_on_after(WRITE_GRACE, shield=True) as grace:
            try:
                await blocking.run(_write, path, jars, now_utc())
            except OSError:
                logger.exception("COOKIES_FILE: %r could not be written", path)
        if grace.cancelled_caught:
            logger.error("COOKIES_FILE: %r was not written within %g s", path, WRITE_GRACE)


def _read(path: str, jars: Jars) -> None:
    file = Path(path)
    if not file.parent.is_dir():
        raise UsageError(f"COOKIES_FILE: the folder {str(file.parent)!r} does not exist: create it")
    try:
        text = file.read_bytes()
        if is_netscape(path):
            for cookie in from_netscape(text):
                jars.add(cookie)
        else:
            for name, cookie in from_json(text):
                jars.add(cookie, name)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise UsageError(f"COOKIES_FILE: {path!r} can't be read: {error}") from error


def _write(path: str, jars: Jars, now_utc: datetime) -> None:
    if is_netscape(path):
        others = [name for name, jar in jars.items() if name is not None and len(jar)]
        if others:
            logger.warning("COOKIES_FILE: cookies.txt holds only one jar, so %r are not saved: use .json", others)
        text = to_netscape(jars.jar(), now_utc)
    else:
        text = to_json(jars, now_utc)
    write_file(Path(path), text, 0o600)  # only for the owner, because cookies are as secret as passwords


def set_cookies(request: Request, header: str) -> None:
    """Set the ``Cookie`` header of a request; "" removes it."""
    request.headers.pop("Cookie", None)
    if header:
        request.headers["Cookie"] = header


def cookies(jars: Jars, now_utc: NowUtc, *, debug: bool = False) -> Middleware:
    """Return middleware that sends the cookies of ``jars`` and stores the cookies that responses set.

    Cookies are added to a copy of the request, because a retry must not send the cookies of the first attempt. If
    ``debug`` is true (``COOKIES_DEBUG``), the cookies sent and set are logged.
    """

    def around(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            header = jars.header(request, now_utc)
            if header is None:
                outcome = await fetch(request)
            else:
                sent = request.replace()
                set_cookies(sent, header)
                outcome = await fetch(sent)
            response = outcome.response
            if response is not None:
                response.answer(request)  # the spider and the crawl share the meta of this request, not of the copy
                jars.store(request, response, now_utc)
            if debug:
                _log(request, header, outcome)
            return outcome

        return send

    return around


def _log(request: Request, header: str | None, outcome: Outcome) -> None:
    sent = request.headers.get("Cookie") if header is None else header
    if sent:
        logger.info("%r: sent the cookies %r", request, sent)
    for field in () if outcome.response is None else outcome.response.headers.getlist("Set-Cookie"):
        logger.info("%r: received the cookie %r", request, field)


class Session:
    """One session of a crawl, created by :meth:`trawl.spiders.Spider.session`.

    Attributes:
        name: Name of the session, the value of meta ``session`` in its requests.
        proxy: Default proxy of the session's requests; None if there is none.
        headers: Default headers of the session's requests.
    """

    __slots__ = ("_crawl", "_jars", "headers", "name", "proxy")

    def __init__(self, name: str, jars: Jars, crawl: MiddlewareCrawl | None) -> None:
        self.name: str = name
        self.proxy: str | None = None
        self.headers: Headers = Headers()
        self._jars = jars
        self._crawl = crawl

    def __call__(self, request: Request) -> Request:
        """Return a copy of ``request`` in this session."""
        return request.replace(meta={**request.meta, "session": self.name})

    def request(self, url: str, callback: Callback | None = None, **options: Unpack[RequestOptions]) -> Request:
        """Return a new request in this session. The arguments are those of :class:`~trawl.http.request.Request`."""
        return self(Request(url, callback, **options))

    async def fetch(self, request: Request | str) -> Response:
        """Send a request (or URL) in this session from within a callback, and return its response. A checkpoint.

        Raises:
            RuntimeError: If the crawl has not started.
            DownloadError: If there is no response.
            IgnoreRequest: If robots.txt or a middleware refused the request.
        """
        if self._crawl is None:
            raise RuntimeError("the crawl has not started yet: fetch from start() or a callback")
        return await self._crawl.fetch(self.request(request) if isinstance(request, str) else self(request))

    @property
    def scope(self) -> str:
        """The id of the session's throttling scope."""
        return f"{SESSION}{self.name}"

    @property
    def cookies(self) -> Jar:
        """The session's cookies. They can be iterated over, counted and cleared."""
        return self._jars.jar(self.name)

    def set_cookie(self, name: str, value: str, *, url: str) -> None:
        """Store a cookie from another source, such as a browser, for all paths on the host of ``url``."""
        self._jars.add(Cookie(name, value, host_of(url).rstrip(".")), self.name)

    def apply(self, request: Request) -> None:
        """Set the session's proxy and headers on a request of the session, unless the request sets them itself."""
        if self.proxy is None and not self.headers:
            return
        note(request, session=self.name)
        if self.proxy is not None:
            request.meta.setdefault("proxy", self.proxy)
        request.headers.fill(self.headers)

    def remove(self, request: Request) -> None:
        """Remove the proxy and headers that :meth:`apply` has set, because the request is no longer in the session."""
        note(request, session=None)
        if self.proxy is not None and request.meta.get("proxy") == self.proxy:
            del request.meta["proxy"]
        for name in self.headers:
            if request.headers.getlist(name) == self.headers.getlist(name):
                del request.headers[name]

    def __repr__(self) -> str:
        return f"<Session {self.name!r}>"


class Sessions:
    """The sessions of one crawl, by name."""

    __slots__ = ("_jars", "_sessions")

    def __init__(self, jars: Jars) -> None:
        self._jars = jars
        self._sessions: dict[str, Session] = {}

    def get(
        self,
        name: str,
        crawl: MiddlewareCrawl | None = None,
        *,
        proxy: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Session:
        """Return the session with this name, created if needed; ValueError for an empty name or an invalid option.

        ``proxy`` and ``headers`` become the defaults of the session's requests; None keeps the earlier ones. A session
        that is created without ``crawl`` can't fetch.
        """
        if not name or not isinstance(name, str):
            raise ValueError(f"a session's name must be a non-empty string, not {name!r}")
        if proxy:
            Proxy.of(proxy)
        fields = None if headers is None else Headers(headers)
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = Session(name, self._jars, crawl)
        if proxy is not None:
            session.proxy = proxy
        if fields is not None:
            session.headers = fields
        return session

    def apply(self, request: Request) -> None:
        """Set the proxy and headers of the request's session. Those of the previous session are removed."""
        name, before = request.meta_get("session"), notes_of(request).session
        if before is not None and before != name and (former := self._sessions.get(before)) is not None:
            former.remove(request)
        session = self._sessions.get(name)
        if session is not None:
            session.apply(request)
