"""The middleware of a crawl (the built-in list, which users extend), with the crawl's cookies, sessions and cache.

The order numbers are the same as in Scrapy, so that ``DOWNLOADER_MIDDLEWARES`` of a moved project keeps its order. The
middleware with the lowest number is outermost, next to the engine. The middleware with the highest number is innermost,
next to the transport.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Coroutine, Iterable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import attrs

from trawl.address_guard import is_loopback
from trawl.blocking import Blocking
from trawl.browser import Browsers, BrowserSettings, PageRenderer
from trawl.cache import CacheSettings, open_cache
from trawl.cookies import Jars, NowUtc
from trawl.errors import SettingsError
from trawl.http import Fetch, Headers, Middleware, Outcome, Request, Response, host_of
from trawl.middleware.auth import auth, load_credentials
from trawl.middleware.cookies import Sessions, cookies, open_cookie_file, set_cookies
from trawl.middleware.factory import Adapt, MiddlewareCrawl, load_function, make_middleware, split_setting
from trawl.middleware.proxies import OpenAt, ProxyCooldown, ProxyFailureTransport, check_socks, make_proxy_pool, proxies
from trawl.middleware.redirect import meta_refresh, redirect
from trawl.middleware.referrer import Referrer, load_referrer_policy
from trawl.middleware.retry import SoftBlockTransport, retry
from trawl.middleware.settings import MiddlewareSettings, product
from trawl.observe import Stats
from trawl.transport import OnSent, Transport
from trawl.transport.proxy import EnvironmentProxies

if TYPE_CHECKING:
    from trawl.browser import OpenPage, PageCrawl
    from trawl.cache.cache import Cache

__all__ = [
    "BUILT_IN",
    "AdvisingTransport",
    "BuiltInMiddleware",
    "MiddlewareContext",
    "MiddlewareEntry",
    "MiddlewareStack",
    "compose",
    "default_header_fields",
    "default_headers",
    "layers",
    "open_middleware_stack",
]


def default_header_fields(settings: MiddlewareSettings) -> Headers:
    """Return the default headers, with ``USER_AGENT`` unless ``DEFAULT_REQUEST_HEADERS`` has a ``User-Agent``."""
    fields = _own_fields(settings)
    if _user_agent_of(settings):
        fields["User-Agent"] = settings.user_agent
    return fields


def _user_agent_of(settings: MiddlewareSettings) -> str:
    """Return ``USER_AGENT``; "" if ``DEFAULT_REQUEST_HEADERS`` contains the header."""
    return "" if "user-agent" in {name.lower() for name in settings.default_request_headers} else settings.user_agent


def default_headers(fields: Headers) -> Middleware:
    """Return middleware that adds ``fields`` to the headers, except those that a request sets, or sets to None."""

    def around(fetch: Fetch) -> Fetch:
        def send(request: Request) -> Awaitable[Outcome]:  # needn't be async, because nothing follows the call
            request.headers.fill(fields)
            return fetch(request)

        return send

    return around


logger: logging.Logger = logging.getLogger("trawl.middleware")


@attrs.frozen(kw_only=True)
class MiddlewareContext:
    """The arguments for creating the middleware of a crawl.

    Attributes:
        rng: Draws the jitter of retries.
        now_utc: Returns the wall time, for cookies and dates in headers.
        handled_statuses: Status codes that the spider handles itself.
        spider: The spider, whose ``http_user`` and similar attributes are read; None without a spider.
        stats: The statistics; None without statistics.
        crawl: The argument of ``from_crawler`` of user classes.
        rendering: Renders pages with meta ``browser``; None if no page can be rendered.
        innermost: The cache's middleware, next to the transport; None without a cache.
        removed: Names of disabled built-in middleware.
        adapt: Converts objects with Scrapy's methods to middleware; None to reject such objects.
        open_at: Returns the time from which a throttling scope is open.
    """

    settings: MiddlewareSettings
    rng: random.Random
    now_utc: NowUtc
    jars: Jars
    handled_statuses: Container[int] = frozenset()
    spider: Any = None
    stats: Stats | None = None
    crawl: MiddlewareCrawl | None = None
    rendering: PageRenderer | None = None
    innermost: Middleware | None = None
    removed: frozenset[str] = frozenset()
    adapt: Adapt | None = None
    open_at: OpenAt = lambda scope_id, now: now


@attrs.frozen
class BuiltInMiddleware:
    """An entry of the built-in list.

    Attributes:
        name: Name in ``DOWNLOADER_MIDDLEWARES``, to move or disable the middleware.
        order: Position in the list.
        make: Creates the middleware; returns None if the settings make it unnecessary.
        scrapys: Path of Scrapy's class with the same purpose, which is accepted as a name too; "" if there is none.
    """

    name: str
    order: float
    make: Callable[[MiddlewareContext], Middleware | None]
    scrapys: str = ""


@attrs.frozen
class MiddlewareEntry:
    """A middleware, its name in messages, and its position."""

    name: str
    order: float
    middleware: Middleware

    @property
    def may_respond(self) -> bool:
        """True if the middleware has Scrapy's ``process_request``, which may return a response instead of sending."""
        return getattr(self.middleware, "may_respond", False) is True


def _headers(context: MiddlewareContext) -> Middleware | None:
    fields = _own_fields(context.settings)
    return default_headers(fields) if fields else None


def _own_fields(settings: MiddlewareSettings) -> Headers:
    try:
        return Headers({name: value for name, value in settings.default_request_headers.items() if value is not None})
    except ValueError as error:
        raise SettingsError(f"DEFAULT_REQUEST_HEADERS: {error}", "DEFAULT_REQUEST_HEADERS") from error


def _user_agent(context: MiddlewareContext) -> Middleware | None:
    settings = context.settings
    user_agent = settings.user_agent if "default_headers" in context.removed else _user_agent_of(settings)
    return default_headers(Headers({"User-Agent": user_agent})) if user_agent else None


def _retry(context: MiddlewareContext) -> Middleware | None:
    if not context.settings.retry_enabled:
        return None
    predicate = load_function(context.settings.retry_predicate, "RETRY_PREDICATE", "request", "response", "error")
    return retry(context.settings, context.rng, predicate=predicate, stats=context.stats)


def _meta_refresh(context: MiddlewareContext) -> Middleware | None:
    is_on = context.settings.redirect_enabled and context.settings.metarefresh_enabled
    return meta_refresh(context.settings) if is_on else None


def _redirect(context: MiddlewareContext) -> Middleware | None:
    settings = context.settings
    return redirect(settings, context.now_utc, context.handled_statuses) if settings.redirect_enabled else None


def _auth(context: MiddlewareContext) -> Middleware | None:
    credentials = load_credentials(context.settings.http_auth, context.spider)
    return auth(credentials) if credentials else None


def _cookies(context: MiddlewareContext) -> Middleware | None:
    return cookies(context.jars, context.now_utc, debug=context.settings.cookies_debug)


def _proxies(context: MiddlewareContext) -> Middleware | None:
    settings = context.settings
    rest = ProxyCooldown(settings.rotating_proxy_backoff_base, settings.rotating_proxy_backoff_cap)
    pool = make_proxy_pool(settings.rotating_proxy_list, rest)
    environment = EnvironmentProxies.of(os.environ)
    check_socks(environment.by_scheme.values(), "the environment")
    if not settings.httpproxy_enabled or (pool is None and not environment.by_scheme):
        return None
    tries = settings.rotating_proxy_page_retry_times
    return proxies(pool, environment, page_tries=tries, stats=context.stats, open_at=context.open_at)


def _browser(context: MiddlewareContext) -> Middleware | None:
    if context.rendering is None or context.crawl is None:
        return None
    return context.rendering.middleware(cast("PageCrawl", context.crawl), context.handled_statuses)


BUILT_IN: tuple[BuiltInMiddleware, ...] = (
    BuiltInMiddleware("default_headers", 400, _headers, "defaultheaders.DefaultHeadersMiddleware"),
    BuiltInMiddleware("user_agent", 500, _user_agent, "useragent.UserAgentMiddleware"),
    BuiltInMiddleware("retry", 550, _retry, "retry.RetryMiddleware"),
    # Inside of retries, so that a page that could not be rendered is sent again.
    BuiltInMiddleware("browser", 570, _browser),
    BuiltInMiddleware("meta_refresh", 580, _meta_refresh, "redirect.MetaRefreshMiddleware"),
    # Outside of the cookies, so that the cookies in a redirect's response are stored before the target is requested.
    BuiltInMiddleware("redirect", 600, _redirect, "redirect.RedirectMiddleware"),
    # Inside of all middleware that creates requests from other requests, so that credentials are not copied.
    BuiltInMiddleware("auth", 650, _auth, "httpauth.HttpAuthMiddleware"),
    BuiltInMiddleware("cookies", 700, _cookies, "cookies.CookiesMiddleware"),
    BuiltInMiddleware("proxies", 750, _proxies, "httpproxy.HttpProxyMiddleware"),
    BuiltInMiddleware("cache", 900, lambda context: context.innermost, "httpcache.HttpCacheMiddleware"),
)
"""The built-in middleware, outermost first. A request passes the list from the first entry to the last, and its outcome
passes it in reverse.
"""


def layers(context: MiddlewareContext) -> list[MiddlewareEntry]:
    """Return the middleware of a crawl, including user middleware, outermost first.

    Raises:
        SettingsError: If an entry of ``DOWNLOADER_MIDDLEWARES`` is not middleware, or credentials are not complete.
    """
    orders, own = split_setting(context.settings.downloader_middlewares, BUILT_IN, context.spider)
    context = attrs.evolve(context, removed=frozenset(name for name, order in orders.items() if order is None))
    found = [
        MiddlewareEntry(name, order, make_middleware(entry, context.crawl, context.spider, context.adapt))
        for name, entry, order in own
    ]
    for each in BUILT_IN:
        order = orders.get(each.name, each.order)
        middleware = None if order is None else each.make(context)
        if order is not None and middleware is not None:
            found.append(MiddlewareEntry(each.name, order, middleware))
    found.sort(key=lambda layer: layer.order)  # the sort is stable, so at equal orders user middleware is outermost
    logger.debug("middleware, outermost first: %s", ", ".join(f"{layer.name} {layer.order:g}" for layer in found))
    return found


def compose(middleware: Iterable[Middleware], fetch: Fetch) -> Fetch:
    """Wrap ``fetch`` in ``middleware``. The first middleware becomes the outermost."""
    for layer in reversed(list(middleware)):
        fetch = layer(fetch)
    return fetch


Prepare = Callable[[Request, Response | None], None]


@attrs.frozen(kw_only=True)
class MiddlewareStack:
    """The middleware of one crawl, with its cookies, sessions and cache.

    Attributes:
        cache: The cache; None if it is disabled.
        prepare: Function that is called with each admitted request and the response from which the request was created.
        browsers: The browsers of the crawl; None if pages are not rendered in a browser, as in a simulation.
        adapt: Converts objects with Scrapy's methods to middleware; None to reject such objects.
    """

    settings: MiddlewareSettings
    spider: Any
    jars: Jars
    sessions: Sessions
    cache: Cache | None
    prepare: Prepare
    rendering: PageRenderer
    browsers: Browsers | None = None
    adapt: Adapt | None = None

    def middleware(self, crawl: MiddlewareCrawl, open_at: OpenAt) -> list[MiddlewareEntry]:
        """Return the middleware, outermost first. ``open_at`` returns the time from which a throttling scope is open.

        Raises:
            SettingsError: If an entry of ``DOWNLOADER_MIDDLEWARES`` is not middleware, or credentials are not complete.
        """
        context = MiddlewareContext(
            settings=self.settings,
            rng=crawl.random("middleware"),
            now_utc=crawl.now_utc,
            jars=self.jars,
            handled_statuses=frozenset(self.spider.handle_httpstatus_list),
            spider=self.spider,
            stats=crawl.stats,
            crawl=crawl,
            rendering=self.rendering,
            innermost=None if self.cache is None else self.cache.middleware,
            adapt=self.adapt,
            open_at=open_at,
        )
        return layers(context)

    def wire(self, transport: Transport) -> Transport:
        """Return the transport, wrapped so that it detects banned proxies and soft blocks.

        Raises:
            SettingsError: If ``SOFT_BLOCK_DETECTOR`` does not name a callable.
        """
        if self.settings.rotating_proxy_list:
            transport = ProxyFailureTransport(transport, self.settings.rotating_proxy_ban_codes)
        detector = load_function(self.settings.soft_block_detector, "SOFT_BLOCK_DETECTOR", "response")
        return transport if detector is None else SoftBlockTransport(transport, detector)


@asynccontextmanager
async def open_middleware_stack(
    settings: MiddlewareSettings,
    cache: CacheSettings,
    *,
    spider: Any,
    stats: Stats,
    blocking: Blocking,
    now_utc: Callable[[], datetime],
    adapt: Adapt | None = None,
    max_body_bytes: int = 0,
    browser: BrowserSettings | None = None,
    open_page: OpenPage | None = None,
) -> AsyncGenerator[MiddlewareStack, None]:
    """Open the middleware of one crawl. On exit, also by cancellation, write the cookies and close the cache.

    ``adapt`` converts objects with Scrapy's methods to middleware; without it, they are rejected. ``max_body_bytes``
    limits a body from the cache or the browser; 0 for no limit. Without ``open_page``, pages are opened in Chromium.

    Raises:
        UsageError: If the file of cookies or of the cache can't be used, or a setting names a missing object.
    """
    jars = Jars(is_enabled=settings.cookies_enabled, is_like_scrapy=settings.cookies_like_scrapy)
    sessions = Sessions(jars)
    rendered = browser or BrowserSettings()
    browsers = Browsers(rendered, blocking) if open_page is None else None
    opens, measure = (open_page, lambda: 0) if browsers is None else (browsers.open_page, browsers.memory_bytes)
    rendering = PageRenderer(rendered, jars, spider, opens, measure=measure, max_body_bytes=max_body_bytes)
    prepare = _prepare(settings, sessions, rendering)
    async with (
        open_cookie_file(settings.cookies_file, jars, blocking=blocking, now_utc=now_utc),
        open_cache(
            cache,
            name=spider.name,
            blocking=blocking,
            now_utc=now_utc,
            stats=stats,
            ignored_statuses=settings.retry_http_codes if settings.retry_enabled else (),
            prepare=_dress(settings, jars, now_utc),
            max_body_bytes=max_body_bytes,
        ) as opened,
    ):
        yield MiddlewareStack(
            settings=settings,
            spider=spider,
            jars=jars,
            sessions=sessions,
            cache=opened,
            prepare=prepare,
            rendering=rendering,
            browsers=browsers,
            adapt=adapt,
        )


def _prepare(settings: MiddlewareSettings, sessions: Sessions, rendering: PageRenderer) -> Prepare:
    """Return the function that applies an admitted request's session, checks its page, and sets its ``Referer``."""
    referrer = Referrer(load_referrer_policy(settings.referrer_policy)) if settings.referer_enabled else None

    def prepare(request: Request, source: Response | None) -> None:
        if request.has_meta:
            sessions.apply(request)
            rendering.check(request)
        if source is not None and referrer is not None:
            referrer.refer(request, source)

    return prepare


def _dress(settings: MiddlewareSettings, jars: Jars, now_utc: Callable[[], datetime]) -> Callable[[Request], Request]:
    """Return a function that adds default headers and cookies, for a cache lookup before the middleware runs."""
    defaults = default_header_fields(settings)

    def dress(request: Request) -> Request:
        dressed = request.replace()
        dressed.headers.fill(defaults)
        header = jars.header(request, now_utc)
        if header is not None:
            set_cookies(dressed, header)
        return dressed

    return dress


class AdvisingTransport:
    """A transport that suggests ``CONTACT`` once, when a request without it is sent to another machine."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._is_given = False

    # This method is not async, because it runs for each page, and another coroutine would cost time.
    def send(self, request: Request, on_sent: OnSent) -> Coroutine[Any, Any, Outcome]:
        """Send ``request``. Always a checkpoint."""
        if not self._is_given and request.headers.get("User-Agent") == product():
            host = host_of(request.url)
            if not is_loopback(host):
                self._is_given = True
                logger.info(
                    "%s gets requests with the name %r, which does not identify you: set CONTACT to a URL or e-mail "
                    "address where site owners can reach you",
                    host, product(),
                )  # fmt: skip
        return self._transport.send(request, on_sent)

    async def aclose(self) -> None:
        """Close the transport."""
        await self._transport.aclose()
