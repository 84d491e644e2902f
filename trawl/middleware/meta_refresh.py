"""``<meta http-equiv="refresh">`` as a redirect: after its time, in the place of the page that had it.

A page that only reloads itself is a page: following it would never end. One that sets a cookie and then asks for itself
is followed, once, as browsers do.
"""

from __future__ import annotations

import math

from trawl.errors import TooManyRedirects
from trawl.http import FETCHED_SCHEMES, Fetch, FileResponse, Middleware, Outcome, Replace, Request, Response, scheme_of
from trawl.middleware.redirect import redirected
from trawl.middleware.settings import MiddlewareSettings

__all__ = ["meta_refresh"]

HEAD_BYTES = 4096
"""How far into a page a refresh is looked for."""

REASON = "meta refresh"
"""What ``redirect_reasons`` says."""


def meta_refresh(settings: MiddlewareSettings) -> Middleware:
    """Middleware that turns a page with a refresh into the request for its target.

    It shares ``REDIRECT_MAX_TIMES``, ``REDIRECT_PRIORITY_ADJUST``, meta ``dont_redirect`` and the meta of redirects
    with :func:`~trawl.middleware.redirect.redirect`. The target is asked for with GET.
    """

    def around(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            outcome = await fetch(request)
            response = outcome.response
            if (
                response is not None
                and outcome.then is None
                and 200 <= response.status < 300
                and (request.sink is None or not isinstance(response, FileResponse))
                and b"refresh" in response.body[:HEAD_BYTES].lower()
                and not request.meta_get("dont_redirect")
                and request.method != "HEAD"
            ):
                _follow(request, response, outcome, settings)
            return outcome

        return send

    return around


def _follow(request: Request, response: Response, outcome: Outcome, settings: MiddlewareSettings) -> None:
    delay, url = _refresh(response, settings.metarefresh_ignore_tags)
    if delay is None or url is None or delay > settings.metarefresh_maxdelay:
        return
    if scheme_of(url) not in FETCHED_SCHEMES or _is_reload(request, response, url):
        return
    if request.meta_get("redirect_times", 0) >= settings.redirect_max_times:
        cause = f"redirected more than {settings.redirect_max_times} times, then to {url!r}"
        outcome.response, outcome.error = None, TooManyRedirects(cause, url=request.url, method=request.method)
        return
    as_get = 303  # the status whose targets are always asked for with GET
    target = redirected(request, url, as_get, priority_adjust=settings.redirect_priority_adjust)
    target.meta["redirect_reasons"][-1] = REASON
    outcome.then = Replace(target, delay, "redirect", is_new_target=True)


def _refresh(response: Response, ignored: tuple[str, ...]) -> tuple[float | None, str | None]:
    """The seconds and the URL of a page's refresh; None where it has none, or one that means nothing."""
    if "html" not in (response.headers.get("Content-Type") or "html").lower():
        return None, None
    from w3lib.html import get_meta_refresh  # noqa: PLC0415 - few pages get here

    head = response.text[:HEAD_BYTES]
    try:
        delay, url = get_meta_refresh(head, response.base_url, "utf-8", ignored)
        if delay is None or url is None or not math.isfinite(delay):
            return None, None
        return max(0.0, delay), response.urljoin(url)
    except ValueError:  # no number, no URL
        return None, None


def _is_reload(request: Request, response: Response, url: str) -> bool:
    """Whether a page asks for itself without having set a cookie, or for the second time."""
    if url.partition("#")[0] != request.url.partition("#")[0]:
        return False
    return "set-cookie" not in response.headers or request.url in request.meta_get("redirect_urls", ())
