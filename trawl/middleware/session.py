"""Named sessions: each with its own cookies, its own throttling scope and, if wanted, its own proxy and fields.

A request is in a session by the ``session`` in its meta. Its cookies are those of the jar of that name, and it is
charged to the scope ``session:NAME`` besides what it is charged to anyway, so that two logins, or two proxies, have
limits each, and the site still has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, Unpack

from trawl.cookies import Cookie, Jar, Jars
from trawl.errors import SettingsError
from trawl.http import Headers, Request, Response, host_of
from trawl.http.request import Callback, RequestOptions
from trawl.middleware.settings import SessionConfig
from trawl.throttling.scope_amounts import SESSION
from trawl.transport.proxy import Proxy

__all__ = ["Session", "Sessions", "session_scope"]

SESSION_APPLIED = "_dressed_by_session"
"""In the meta of a request that was given a proxy or fields by a session: its name. Another session takes them off."""


def session_scope(name: str) -> str:
    """The id of a session's throttling scope."""
    return f"{SESSION}{name}"


class _Crawl(Protocol):
    """What sessions need of the running crawl."""

    async def fetch(self, request: Request) -> Response:
        """The response to a request, in its turn."""
        ...


class Session:
    """One session of a crawl; :meth:`trawl.spiders.Spider.session` gives it.

    Attributes:
        name: What meta ``session`` of its requests says.
        proxy: The proxy of its requests, where they name none; None for none.
        headers: Fields of its requests that don't have them.
    """

    __slots__ = ("_crawl", "_jars", "headers", "name", "proxy")

    def __init__(self, name: str, jars: Jars, crawl: _Crawl | None) -> None:
        self.name: str = name
        self.proxy: str | None = None
        self.headers: Headers = Headers()
        self._jars = jars
        self._crawl = crawl

    def __call__(self, request: Request) -> Request:
        """``request`` in this session: a copy."""
        return request.replace(meta={**request.meta, "session": self.name})

    def request(self, url: str, callback: Callback | None = None, **options: Unpack[RequestOptions]) -> Request:
        """A new request in this session; the arguments are those of :class:`~trawl.http.request.Request`."""
        return self(Request(url, callback, **options))

    async def fetch(self, request: Request | str) -> Response:
        """The response to a request (or URL) in this session, in the middle of a callback. A checkpoint.

        Raises:
            RuntimeError: The crawl has not begun.
            DownloadError: There is no response.
            IgnoreRequest: robots.txt or a middleware refused it.
        """
        if self._crawl is None:
            raise RuntimeError("the crawl has not begun yet")
        return await self._crawl.fetch(self.request(request) if isinstance(request, str) else self(request))

    @property
    def scope(self) -> str:
        """The id of its throttling scope."""
        return session_scope(self.name)

    @property
    def cookies(self) -> Jar:
        """Its cookies: to be iterated over, counted or cleared."""
        return self._jars.jar(self.name)

    def set_cookie(self, name: str, value: str, *, url: str) -> None:
        """Put a cookie that was got by other means, a browser say, for the host of ``url`` and all its paths."""
        cookie = Cookie(name, value, host_of(url).rstrip("."))
        self._jars.add(cookie, self.name)

    def apply(self, request: Request) -> None:
        """Give a request of this session what the session has and the request does not."""
        if self.proxy is None and not self.headers:
            return
        request.meta[SESSION_APPLIED] = self.name
        if self.proxy is not None:
            request.meta.setdefault("proxy", self.proxy)
        request.headers.fill(self.headers)

    def remove(self, request: Request) -> None:
        """Take off a request what it was given here, and still has: it is in another session now, or in none."""
        del request.meta[SESSION_APPLIED]
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
        config: What the setting ``SESSIONS`` says.
        jars: The cookies.
    """

    __slots__ = ("_config", "_crawl", "_jars", "_sessions", "_set_limits")

    def __init__(self, config: Mapping[str, SessionConfig], jars: Jars) -> None:
        self._config = config
        self._jars = jars
        self._sessions: dict[str, Session] = {}
        self._crawl: _Crawl | None = None
        self._set_limits: Callable[..., object] | None = None

    def bind(self, crawl: _Crawl, set_limits: Callable[..., object]) -> None:
        """Tie the sessions to a running crawl, and make those that the settings name.

        Raises:
            SettingsError: The throttling of one has an unknown limit, or a value out of its range; or its name, a
                field or its proxy is none.
        """
        self._crawl = crawl
        self._set_limits = set_limits
        for name, config in self._config.items():
            try:
                self.get(name, **config)
            except ValueError as error:
                raise SettingsError(f"SESSIONS[{name!r}]: {error}", "SESSIONS") from error

    def get(
        self,
        name: str,
        *,
        proxy: str | None = None,
        headers: Mapping[str, str] | None = None,
        throttling: Mapping[str, Any] | None = None,
    ) -> Session:
        """The session of this name, made if it is not there yet; what is given here replaces what it had.

        Args:
            name: Its name.
            proxy: The proxy of its requests.
            headers: Fields of its requests.
            throttling: Limits of its scope, by the keys of ``THROTTLING_SCOPES``.

        Raises:
            ValueError: The name is empty; the proxy is none, or a field's name or value can't be.
            SettingsError: A limit is unknown, or out of its range.
        """
        if not name or not isinstance(name, str):
            raise ValueError(f"a session's name is a text that is not empty, not {name!r}")
        if proxy:
            Proxy.of(proxy)
        fields = None if headers is None else Headers(headers)
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = Session(name, self._jars, self._crawl)
        if proxy is not None:
            session.proxy = proxy
        if fields is not None:
            session.headers = fields
        if throttling and self._set_limits is not None:
            self._set_limits(session.scope, **throttling)
        return session

    def apply(self, request: Request) -> None:
        """Give a request what its session has, if it is in one that is known, and nothing that another one has."""
        name, before = request.meta_get("session"), request.meta_get(SESSION_APPLIED)
        if before is not None and before != name and (former := self._sessions.get(before)) is not None:
            former.remove(request)
        session = self._sessions.get(name)
        if session is not None:
            session.apply(request)
