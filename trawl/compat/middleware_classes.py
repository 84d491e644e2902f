"""Scrapy's downloader middleware classes that projects derive from: their methods and attributes, for ``super()``.

A subclass is an entry of ``DOWNLOADER_MIDDLEWARES`` like any class with Scrapy's methods, and its base is taken out by
None, as in Scrapy. The classes themselves, by path or as objects, name the built-in middleware
(:data:`trawl.middleware.BUILT_IN`). :mod:`trawl.compat` exports them, and loads this module when one is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Coroutine
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar, Self

import msgspec

from trawl.compat.crawler import status_words
from trawl.errors import DownloadError, IgnoreRequest, NotConfigured
from trawl.http import Fetch, Middleware, Outcome, Request, Response
from trawl.middleware import MiddlewareSettings, get_retry_request
from trawl.middleware.redirect import meta_refresh, redirect
from trawl.transport.proxy import EnvironmentProxies

__all__ = [
    "BaseRedirectMiddleware",
    "HttpProxyMiddleware",
    "MetaRefreshMiddleware",
    "RedirectMiddleware",
    "RetryMiddleware",
    "UserAgentMiddleware",
]


class UserAgentMiddleware:
    """Sets ``User-Agent`` on requests that have none.

    Attributes:
        user_agent: The value; empty for none.
    """

    scrapys_path: ClassVar[str] = "useragent.UserAgentMiddleware"

    def __init__(self, user_agent: str = "Scrapy") -> None:
        self.user_agent: str = user_agent

    @classmethod
    def from_crawler(cls, crawler: Any) -> Self:
        """Make it for a crawl, with ``USER_AGENT``."""
        made = cls(crawler.settings["USER_AGENT"])
        crawler.signals.connect(made.spider_opened, signal="spider_opened")
        return made

    def spider_opened(self, spider: Any) -> None:
        """Take the spider's ``user_agent``, if it has one."""
        self.user_agent = getattr(spider, "user_agent", self.user_agent)

    def process_request(self, request: Request, spider: Any = None) -> Any:
        """Set the field."""
        if self.user_agent:
            request.headers.setdefault("User-Agent", self.user_agent)


class RetryMiddleware:
    """Sends failed requests again, at most ``max_retry_times`` times. The throttle's backoff holds for them too.

    Attributes:
        max_retry_times: ``RETRY_TIMES``.
        retry_http_codes: ``RETRY_HTTP_CODES``.
        priority_adjust: ``RETRY_PRIORITY_ADJUST``.
        exceptions_to_retry: Classes of errors; of trawl's, only those that may pass are retried.
    """

    scrapys_path: ClassVar[str] = "retry.RetryMiddleware"
    EXCEPTIONS_TO_RETRY: ClassVar[tuple[type[Exception], ...]] = (DownloadError,)
    crawler: Any

    def __init__(self, settings: Any) -> None:
        if not settings.getbool("RETRY_ENABLED"):
            raise NotConfigured
        self.max_retry_times: int = settings.getint("RETRY_TIMES")
        self.retry_http_codes: set[int] = {int(code) for code in settings.getlist("RETRY_HTTP_CODES")}
        self.priority_adjust: int = settings.getint("RETRY_PRIORITY_ADJUST")
        self.exceptions_to_retry: tuple[type[Exception], ...] = self.EXCEPTIONS_TO_RETRY

    @classmethod
    def from_crawler(cls, crawler: Any) -> Self:
        """Make it for a crawl.

        Raises:
            NotConfigured: ``RETRY_ENABLED`` is off.
        """
        made = cls(crawler.settings)
        made.crawler = crawler
        return made

    def process_response(self, request: Request, response: Response, spider: Any = None) -> Any:
        """Return the request once more for a status in ``retry_http_codes``; otherwise the response."""
        if request.meta.get("dont_retry") or response.status not in self.retry_http_codes:
            return response
        return self._retry(request, status_words(response.status), spider) or response

    def process_exception(self, request: Request, exception: Exception, spider: Any = None) -> Any:
        """Return the request once more for an error that may pass; otherwise None."""
        may_pass = getattr(exception, "is_retryable", True)
        if may_pass and isinstance(exception, self.exceptions_to_retry) and not request.meta.get("dont_retry"):
            return self._retry(request, exception, spider)
        return None

    def _retry(self, request: Request, reason: Any, spider: Any = None) -> Request | None:
        return get_retry_request(
            request,
            spider=spider or self.crawler.spider,
            reason=reason,
            max_retry_times=request.meta.get("max_retry_times", self.max_retry_times),
            priority_adjust=self.priority_adjust,
        )


class HttpProxyMiddleware:
    """Sets meta ``proxy`` on requests that have none, from the environment's proxies.

    Attributes:
        auth_encoding: Kept for subclasses; credentials are sent as UTF-8.
    """

    scrapys_path: ClassVar[str] = "httpproxy.HttpProxyMiddleware"

    def __init__(self, auth_encoding: str | None = "latin-1") -> None:
        self.auth_encoding = auth_encoding
        self._environment = EnvironmentProxies.of(os.environ)

    @classmethod
    def from_crawler(cls, crawler: Any) -> Self:
        """Make it for a crawl.

        Raises:
            NotConfigured: ``HTTPPROXY_ENABLED`` is off.
        """
        if not crawler.settings.getbool("HTTPPROXY_ENABLED"):
            raise NotConfigured
        return cls()

    def process_request(self, request: Request, spider: Any = None) -> Any:
        """Set the proxy; the transport reads name and password from it."""
        if "proxy" not in request.meta and (proxy := self._environment.proxy_for(request.url)):
            request.meta["proxy"] = proxy


class BaseRedirectMiddleware:
    """Follows what :meth:`process_response` takes for a redirect.

    Attributes:
        max_redirect_times: ``REDIRECT_MAX_TIMES``.
        priority_adjust: ``REDIRECT_PRIORITY_ADJUST``.
    """

    enabled_setting: str = "REDIRECT_ENABLED"
    crawler: Any = None

    def __init__(self, settings: Any) -> None:
        if not settings.getbool(self.enabled_setting):
            raise NotConfigured
        self._settings: MiddlewareSettings = settings.of(MiddlewareSettings)
        self.max_redirect_times: int = settings.getint("REDIRECT_MAX_TIMES")
        self.priority_adjust: int = settings.getint("REDIRECT_PRIORITY_ADJUST")

    @classmethod
    def from_crawler(cls, crawler: Any) -> Self:
        """Make it for a crawl.

        Raises:
            NotConfigured: The setting that :attr:`enabled_setting` names is off.
        """
        made = cls(crawler.settings)
        made.crawler = crawler
        return made

    def _values(self) -> MiddlewareSettings:
        changes = {"redirect_max_times": self.max_redirect_times, "redirect_priority_adjust": self.priority_adjust}
        return msgspec.structs.replace(self._settings, **changes)


class RedirectMiddleware(BaseRedirectMiddleware):
    """Follows redirects by status and ``Location``."""

    scrapys_path: ClassVar[str] = "redirect.RedirectMiddleware"

    def process_response(self, request: Request, response: Response, spider: Any = None) -> Any:
        """Return the request for a redirect's target; otherwise the response.

        Raises:
            IgnoreRequest: There were too many redirects, or the target is not fetched.
        """
        crawler = self.crawler
        handled = getattr(getattr(crawler, "spider", None), "handle_httpstatus_list", ())
        now_utc = getattr(crawler, "now_utc", partial(datetime.now, UTC))  # a test's crawler has none
        return _answered(redirect(self._values(), now_utc, frozenset(handled)), request, response)


class MetaRefreshMiddleware(BaseRedirectMiddleware):
    """Follows ``<meta http-equiv="refresh">``."""

    scrapys_path: ClassVar[str] = "redirect.MetaRefreshMiddleware"
    enabled_setting = "METAREFRESH_ENABLED"

    def process_response(self, request: Request, response: Response, spider: Any = None) -> Any:
        """Return the request for a page's refresh; otherwise the response.

        Raises:
            IgnoreRequest: There were too many redirects, or the target is not fetched.
        """
        return _answered(meta_refresh(self._values()), request, response)


def _answered(middleware: Middleware, request: Request, response: Response) -> Request | Response:
    """Return what a middleware that awaits only ``fetch`` makes of a response."""

    async def fetch(sent: Request) -> Outcome:  # noqa: ASYNC124 - a Fetch is asynchronous
        return Outcome(sent, response=response)

    wired: Fetch = fetch
    outcome = _at_once(middleware(wired)(request))
    if outcome.error is not None:
        raise IgnoreRequest(str(outcome.error)) from outcome.error
    follow = outcome.then
    return response if follow is None else follow.request


def _at_once(awaitable: Awaitable[Any]) -> Any:
    assert isinstance(awaitable, Coroutine)
    try:
        awaitable.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a middleware of a redirect waited")
