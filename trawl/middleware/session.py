"""Named sessions. Each has its own cookies, throttling scope and, optionally, proxy and headers.

Meta ``session`` puts a request into a session. The request uses the cookie jar with the session's name, and counts
toward the scope ``session:NAME`` in addition to its other scopes. So two logins, or two proxies, have separate limits,
while the limits of the site apply to both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Unpack

from trawl.cookies import Cookie, Jar, Jars
from trawl.http import Headers, Request, Response, host_of
from trawl.http.notes import note, notes_of
from trawl.http.request import Callback, RequestOptions
from trawl.throttling.scope_resolver import SESSION
from trawl.transport.proxy import Proxy

if TYPE_CHECKING:
    from trawl.middleware.factory import MiddlewareCrawl

__all__ = ["Session", "Sessions"]


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
    """The sessions of one crawl, by name.

    Args:
        jars: The cookies.
    """

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
        """Return the session with this name, which is created if needed. Each argument except None replaces an option.

        Args:
            name: Name of the session.
            crawl: Sends the direct fetches of a new session; None if the session can't fetch.
            proxy: Default proxy of the session's requests.
            headers: Default headers of the session's requests.

        Raises:
            ValueError: If the name is empty, or the proxy or a header is not valid.
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
