"""What this floor gives one crawl: its middleware, its cookies, its sessions, its cache."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import attrs

from trawl.blocking import Blocking
from trawl.cache import CacheSettings, open_cache
from trawl.cookies import Jars
from trawl.http import Middleware, Request, Response
from trawl.middleware.cookie_file import kept_in_file
from trawl.middleware.default_headers import headers_of
from trawl.middleware.loading import function
from trawl.middleware.proxies import Bans
from trawl.middleware.referrer import Referrer, policy_of
from trawl.middleware.session import Sessions
from trawl.middleware.settings import MiddlewareSettings
from trawl.middleware.soft_block import SoftBlocks
from trawl.middleware.stack import Kit, layers
from trawl.middleware.surroundings import Surroundings
from trawl.observe import Stats
from trawl.transport import Transport

if TYPE_CHECKING:
    from trawl.cache.cache import Cache

__all__ = ["Outfit", "open_outfit"]

Prepare = Callable[[Request, Response | None], None]


@attrs.frozen(kw_only=True)
class Outfit:
    """The middleware of one crawl and what belongs to it.

    Attributes:
        settings: What each does.
        spider: Whose ``http_user`` and ``handle_httpstatus_list`` count.
        jars: The cookies.
        sessions: The named sessions.
        cache: The cache; None: there is none.
        prepare: What is done to each request that is let in.
    """

    settings: MiddlewareSettings
    spider: Any
    jars: Jars
    sessions: Sessions
    cache: Cache | None
    prepare: Prepare

    def middleware(self, crawl: Surroundings) -> list[Middleware]:
        """The middleware, outermost first.

        Raises:
            SettingsError: An entry of ``DOWNLOADER_MIDDLEWARES`` is none.
            UsageError: The spider's credentials are not complete.
        """
        kit = Kit(
            settings=self.settings,
            rng=crawl.random("middleware"),
            now_utc=crawl.now_utc,
            jars=self.jars,
            handled_statuses=frozenset(self.spider.handle_httpstatus_list),
            spider=self.spider,
            stats=crawl.stats,
            crawl=crawl,
            innermost=None if self.cache is None else self.cache.middleware,
        )
        return [layer.middleware for layer in layers(kit)]

    def wire(self, transport: Transport) -> Transport:
        """The transport, with what judges its responses behind it: bans of proxies, and ``SOFT_BLOCK_DETECTOR``.

        Raises:
            SettingsError: It names nothing that can be called.
        """
        if self.settings.rotating_proxy_list:
            transport = Bans(transport, self.settings.rotating_proxy_ban_codes)
        detector = function(self.settings.soft_block_detector, "SOFT_BLOCK_DETECTOR")
        return transport if detector is None else SoftBlocks(transport, detector)


@asynccontextmanager
async def open_outfit(
    settings: MiddlewareSettings,
    cache: CacheSettings,
    *,
    spider: Any,
    stats: Stats,
    blocking: Blocking,
    now_utc: Callable[[], datetime],
) -> AsyncGenerator[Outfit, None]:
    """What this floor gives one crawl; leaving writes the cookies and closes the cache.

    Args:
        settings: The settings of this floor.
        cache: The settings of the cache.
        spider: The spider.
        stats: Where everything is counted.
        blocking: How files are read and written.
        now_utc: Wall time.

    Raises:
        UsageError: The cookies' file, or the cache's, can't be used; or a setting names what there is not.
    """
    jars = Jars(is_kept=settings.cookies_enabled)
    sessions = Sessions(settings.sessions, jars)
    prepare = _prepare(settings, sessions)
    async with (
        kept_in_file(settings.cookies_file, jars, blocking=blocking, now_utc=now_utc),
        open_cache(
            cache,
            name=spider.name,
            blocking=blocking,
            now_utc=now_utc,
            stats=stats,
            unkept=settings.retry_http_codes if settings.retry_enabled else (),
            dress=_dress(settings, jars, now_utc),
        ) as opened,
    ):
        yield Outfit(settings=settings, spider=spider, jars=jars, sessions=sessions, cache=opened, prepare=prepare)


def _prepare(settings: MiddlewareSettings, sessions: Sessions) -> Prepare:
    """What is done to a request when it is let in: its session dresses it, and the page that had it is told."""
    referrer = Referrer(policy_of(settings.referrer_policy)) if settings.referer_enabled else None

    def prepare(request: Request, source: Response | None) -> None:
        if request.has_meta:
            sessions.dress(request)
        if source is not None and referrer is not None:
            referrer.refer(request, source)

    return prepare


def _dress(settings: MiddlewareSettings, jars: Jars, now_utc: Callable[[], datetime]) -> Callable[[Request], Request]:
    """A request as the built-in middleware would send it, for a cache that is asked before the middleware is."""
    defaults = headers_of(settings)

    def dress(request: Request) -> Request:
        dressed = request.replace()
        dressed.headers.fill(defaults)
        cookies = jars.header(request, now_utc)
        if cookies is not None:
            dressed.headers["Cookie"] = cookies
        return dressed

    return dress
