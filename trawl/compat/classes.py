"""Scrapy's classes that projects name or derive from: downloader middleware and duplicate filters.

A subclass of a middleware is an entry of ``DOWNLOADER_MIDDLEWARES`` like any class with Scrapy's methods. As in Scrapy,
None for the base class removes the base class. If an entry is one of these classes itself, as a path or as an object,
it means the built-in middleware (:data:`trawl.middleware.BUILT_IN`).

A duplicate filter that only defines which requests are equal returns marks, and the frontier stores the marks, even in
a job. A filter that remembers requests itself, for example in a database, is called once per request. Jobs can't rely
on such a filter, so a job with such a filter is refused.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from typing import Any, ClassVar, Self

import msgspec

from trawl.errors import DownloadError, IgnoreRequest, NotConfigured, SettingsError
from trawl.http import Fetch, Middleware, Outcome, Request, Response
from trawl.http.request import FINGERPRINT_BYTES
from trawl.http.request import fingerprint as own_fingerprint
from trawl.middleware import MiddlewareSettings, get_retry_request
from trawl.middleware.factory import entry_name, make_instance
from trawl.middleware.redirect import meta_refresh, redirect
from trawl.spiders.crawler import Crawler, RequestFingerprinter, status_words
from trawl.tracebacks import contained
from trawl.transport.proxy import EnvironmentProxies

__all__ = [
    "BaseDupeFilter",
    "BaseRedirectMiddleware",
    "HttpProxyMiddleware",
    "MetaRefreshMiddleware",
    "RFPDupeFilter",
    "RedirectMiddleware",
    "RetryMiddleware",
    "UserAgentMiddleware",
    "marks",
    "set_fingerprinter",
]


class UserAgentMiddleware:
    """Sets the ``User-Agent`` header of requests that do not have one.

    Attributes:
        user_agent: The value of the header. If it is empty, the header is not set.
    """

    scrapys_path: ClassVar[str] = "useragent.UserAgentMiddleware"

    def __init__(self, user_agent: str = "Scrapy") -> None:
        self.user_agent: str = user_agent

    @classmethod
    def from_crawler(cls, crawler: Any) -> Self:
        """Create the middleware for a crawl, with ``USER_AGENT``."""
        made = cls(crawler.settings["USER_AGENT"])
        crawler.signals.connect(made.spider_opened, signal="spider_opened")
        return made

    def spider_opened(self, spider: Any) -> None:
        """Use the spider's ``user_agent``, if the spider has one."""
        self.user_agent = getattr(spider, "user_agent", self.user_agent)

    def process_request(self, request: Request, spider: Any = None) -> Any:
        """Set the header."""
        if self.user_agent:
            request.headers.setdefault("User-Agent", self.user_agent)


class RetryMiddleware:
    """Retries failed requests at most ``max_retry_times`` times. The throttle's backoff also applies to retries.

    Errors of trawl are only retried if they are retryable (``is_retryable``).

    Attributes:
        max_retry_times: ``RETRY_TIMES``.
        retry_http_codes: ``RETRY_HTTP_CODES``.
        priority_adjust: ``RETRY_PRIORITY_ADJUST``.
        exceptions_to_retry: Error classes to retry.
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
        """Create the middleware for a crawl; NotConfigured if ``RETRY_ENABLED`` is false."""
        made = cls(crawler.settings)
        made.crawler = crawler
        return made

    def process_response(self, request: Request, response: Response, spider: Any = None) -> Any:
        """Return a retry for a status code in ``retry_http_codes``, otherwise the response."""
        if request.meta.get("dont_retry") or response.status not in self.retry_http_codes:
            return response
        return self._retry(request, status_words(response.status), spider) or response

    def process_exception(self, request: Request, exception: Exception, spider: Any = None) -> Any:
        """Return a retry for a retryable error, otherwise None."""
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
    """Sets the meta key ``proxy`` to a proxy from the environment, for requests that do not have this key.

    Attributes:
        auth_encoding: Only for subclasses. Credentials are always sent as UTF-8.
    """

    scrapys_path: ClassVar[str] = "httpproxy.HttpProxyMiddleware"

    def __init__(self, auth_encoding: str | None = "latin-1") -> None:
        self.auth_encoding = auth_encoding
        self._environment = EnvironmentProxies.of(os.environ)

    @classmethod
    def from_crawler(cls, crawler: Any) -> Self:
        """Create the middleware for a crawl; NotConfigured if ``HTTPPROXY_ENABLED`` is false."""
        if not crawler.settings.getbool("HTTPPROXY_ENABLED"):
            raise NotConfigured
        return cls()

    def process_request(self, request: Request, spider: Any = None) -> Any:
        """Set the proxy. The transport reads user name and password from the proxy's URL."""
        if "proxy" not in request.meta and (proxy := self._environment.proxy_for(request.url)):
            request.meta["proxy"] = proxy


class BaseRedirectMiddleware:
    """Follows the redirects that :meth:`process_response` returns.

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
        """Create the middleware for a crawl; NotConfigured if the setting in :attr:`enabled_setting` is false."""
        made = cls(crawler.settings)
        made.crawler = crawler
        return made

    def _values(self) -> MiddlewareSettings:
        changes = {"redirect_max_times": self.max_redirect_times, "redirect_priority_adjust": self.priority_adjust}
        return msgspec.structs.replace(self._settings, **changes)


class RedirectMiddleware(BaseRedirectMiddleware):
    """Follows redirects by status code and ``Location`` header."""

    scrapys_path: ClassVar[str] = "redirect.RedirectMiddleware"

    def process_response(self, request: Request, response: Response, spider: Any = None) -> Any:
        """Return the request for a redirect's target, or the response.

        Raises:
            IgnoreRequest: If there were too many redirects, or the target can't be fetched.
        """
        crawler = self.crawler
        handled = getattr(getattr(crawler, "spider", None), "handle_httpstatus_list", ())
        now_utc = getattr(crawler, "now_utc", partial(datetime.now, UTC))  # a test's crawler may lack this method
        return _answered(redirect(self._values(), now_utc, frozenset(handled)), request, response)


class MetaRefreshMiddleware(BaseRedirectMiddleware):
    """Follows ``<meta http-equiv="refresh">``."""

    scrapys_path: ClassVar[str] = "redirect.MetaRefreshMiddleware"
    enabled_setting = "METAREFRESH_ENABLED"

    def process_response(self, request: Request, response: Response, spider: Any = None) -> Any:
        """Return the request for a page's refresh, or the response; IgnoreRequest as for a redirect."""
        return _answered(meta_refresh(self._values()), request, response)


def _answered(middleware: Middleware, request: Request, response: Response) -> Request | Response:
    """Return the response or request that a middleware makes from a response. It must await only ``fetch``."""

    async def fetch(sent: Request) -> Outcome:  # noqa: RUF029 - a Fetch is asynchronous
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


logger: logging.Logger = logging.getLogger("trawl.admission")

FILTER, FINGERPRINTER = "DUPEFILTER_CLASS", "REQUEST_FINGERPRINTER_CLASS"

_SCRAPYS = ("scrapy.dupefilters.", "trawl.dupefilters.")
_DEFAULTS = {f"{root}.utils.request.RequestFingerprinter" for root in ("scrapy", "trawl")}


class BaseDupeFilter:
    """A duplicate filter that accepts all requests."""

    @classmethod
    def from_crawler(cls, crawler: Any) -> Self:
        """Create the filter for a crawl."""
        return cls()

    def request_seen(self, request: Request) -> bool:
        """Return whether a request was seen before, and remember it. Not called for requests with ``dont_filter``."""
        return False

    def open(self) -> Any:
        """Called before the crawl starts."""

    def close(self, reason: str) -> Any:
        """Called when the crawl has ended for ``reason``."""

    def log(self, request: Request, spider: Any) -> None:
        """Called with each duplicate."""


class RFPDupeFilter(BaseDupeFilter):
    """A filter that compares fingerprints.

    Args:
        path: Not used, because a job stores the seen marks itself.
        debug: ``DUPEFILTER_DEBUG``, for subclasses.
        fingerprinter: Computes the fingerprints; None for Scrapy's fingerprinter.
    """

    def __init__(self, path: str | None = None, debug: bool = False, *, fingerprinter: Any = None) -> None:
        self.fingerprinter: Any = fingerprinter or RequestFingerprinter()
        self.debug: bool = debug
        self._seen: set[str] = set()

    @classmethod
    def from_crawler(cls, crawler: Any) -> Self:
        """Create the filter for a crawl, with ``crawler.request_fingerprinter``."""
        debug = bool(crawler.settings.get("DUPEFILTER_DEBUG"))
        return cls(None, debug, fingerprinter=crawler.request_fingerprinter)

    def request_seen(self, request: Request) -> bool:
        """Return whether a request with the same fingerprint was seen before, and remember it."""
        mark = self.request_fingerprint(request)
        is_seen = mark in self._seen
        self._seen.add(mark)
        return is_seen

    def request_fingerprint(self, request: Request) -> str:
        """Return a string that is the same for equal requests."""
        found: bytes = self.fingerprinter.fingerprint(request)
        return found.hex()


def set_fingerprinter(crawler: Crawler) -> None:
    """Set ``crawler.request_fingerprinter`` to an instance of ``REQUEST_FINGERPRINTER_CLASS``, if it is set."""
    fingerprinter = crawler.settings[FINGERPRINTER]
    if fingerprinter and fingerprinter not in _DEFAULTS:
        crawler.request_fingerprinter = _made(fingerprinter, FINGERPRINTER, "fingerprint", crawler)


def marks(crawler: Crawler, *, has_job: bool) -> Callable[[Request], bytes | None]:
    """Return the function that makes seen marks, for ``DUPEFILTER_CLASS`` and ``REQUEST_FINGERPRINTER_CLASS``.

    A request with the mark None is always new. A request with an empty mark is always a duplicate.
    """
    chosen, fingerprinter = crawler.settings[FILTER], crawler.settings[FINGERPRINTER]
    set_fingerprinter(crawler)
    if isinstance(chosen, str) and chosen.startswith(_SCRAPYS):
        ours = {"BaseDupeFilter": BaseDupeFilter, "RFPDupeFilter": RFPDupeFilter}
        chosen = ours.get(chosen.rpartition(".")[2], chosen)
    if not chosen or chosen is RFPDupeFilter:
        if not fingerprinter or fingerprinter in _DEFAULTS:
            return own_fingerprint
        return _safe(lambda request: _mark(crawler.request_fingerprinter.fingerprint(request)), chosen or fingerprinter)
    found = _made(chosen, FILTER, "request_seen", crawler)
    kind = type(found)
    if kind is BaseDupeFilter:
        return lambda request: None
    if isinstance(found, RFPDupeFilter) and kind.request_seen is RFPDupeFilter.request_seen:
        return _safe(lambda request: _mark(found.request_fingerprint(request).encode()), chosen)
    if has_job:
        words = f"{FILTER}: {entry_name(chosen)} remembers requests itself, which does not work with a job: "
        raise SettingsError(f"{words}override only request_fingerprint, or crawl without JOB_DIR", FILTER)
    return _safe(_asked(found, crawler), chosen)


def _safe(mark: Callable[[Request], bytes | None], entry: Any) -> Callable[[Request], bytes | None]:
    """Return a version of ``mark`` that logs its errors. After an error, the request is dropped, as in Scrapy."""

    def marked(request: Request) -> bytes | None:
        try:
            with contained:
                return mark(request)
        except Exception:
            logger.exception("%r is dropped: %s failed", request, entry_name(entry))
            return b""

    return marked


def _asked(found: Any, crawler: Crawler) -> Callable[[Request], bytes | None]:
    """Open a filter that remembers requests itself, and return the function that calls it."""
    if hasattr(found, "open"):
        found.open()
    if hasattr(found, "close"):
        crawler.signals.connect(found.close, signal="spider_closed")

    def mark(request: Request) -> bytes | None:
        if not found.request_seen(request):
            return None
        if hasattr(found, "log"):
            found.log(request, crawler.spider)
        return b""

    return mark


def _mark(fingerprint: bytes) -> bytes:
    return blake2b(fingerprint, digest_size=FINGERPRINT_BYTES).digest()


def _made(entry: Any, setting: str, method: str, crawler: Crawler) -> Any:
    found = make_instance(entry, setting, crawler)
    if not callable(getattr(found, method, None)):
        raise SettingsError(f"{setting}: {entry_name(entry)} has no method {method}(request)", setting)
    return found
