"""Which middleware there is, and in which order."""

from __future__ import annotations

import random
from collections.abc import Container, Iterable

from trawl.cookies import Jars, NowUtc
from trawl.http import Fetch, Middleware
from trawl.middleware.cookies import cookies
from trawl.middleware.default_headers import default_headers
from trawl.middleware.redirect import redirect
from trawl.middleware.retry import retry
from trawl.middleware.settings import MiddlewareSettings

__all__ = ["build", "compose"]


def build(
    settings: MiddlewareSettings,
    *,
    rng: random.Random,
    now_utc: NowUtc,
    handled_statuses: Container[int] = frozenset(),
    jars: Jars | None = None,
) -> list[Middleware]:
    """The middleware of a crawl, outermost first: a request passes them downwards, its outcome upwards.

    Args:
        settings: What each of them does.
        rng: Draws the jitter of retries.
        now_utc: Wall time, for cookies and for dates in headers.
        handled_statuses: Statuses that the spider handles itself.
        jars: The cookies; None: empty jars.
    """
    kept = Jars(is_kept=settings.cookies_enabled) if jars is None else jars
    return [
        # Outside the cookies, so that a redirect's own Set-Cookie is kept before its target is asked for.
        *([redirect(settings, now_utc, handled_statuses)] if settings.redirect_enabled else []),
        *([retry(settings, rng)] if settings.retry_enabled else []),
        default_headers(settings),
        # Innermost: nothing that is kept for later sees what it adds.
        cookies(kept, now_utc),
    ]


def compose(middleware: Iterable[Middleware], fetch: Fetch) -> Fetch:
    """``fetch`` with ``middleware`` around it, the first one outermost."""
    for layer in reversed(list(middleware)):
        fetch = layer(fetch)
    return fetch
