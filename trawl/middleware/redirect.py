"""Redirects as values: the target takes the request's place in the frontier (RFC 9110, 15.4).

What is carried along and what is dropped is told, row by row, in docs/explanation/redirects.md.

``<meta http-equiv="refresh">`` as a redirect: after its time, in the place of the page that had it.

A page that only reloads itself is a page: following it would never end. One that sets a cookie and then asks for itself
is followed, once, as browsers do.
"""

from __future__ import annotations

import math
from collections.abc import Container

from trawl.cookies import NowUtc
from trawl.errors import DownloadError, TooManyRedirects, UnsupportedScheme
from trawl.http import (
    FETCHED_SCHEMES,
    Fetch,
    FileResponse,
    Headers,
    Middleware,
    Outcome,
    Replace,
    Request,
    Response,
    join_url,
    origin_of,
    scheme_of,
)
from trawl.middleware.settings import MiddlewareSettings
from trawl.throttling.hints import hint_of
from trawl.throttling.outcomes import BAD_PAGE, REFUSALS, REFUSED_AT, UNCOUNTED

__all__ = ["meta_refresh", "redirect", "redirected"]

STATUSES = frozenset({301, 302, 303, 307, 308})

CREDENTIAL_HEADERS = ("Authorization", "Cookie", "Proxy-Authorization")
"""Fields that never leave their origin."""

ORIGIN_HEADERS = ("Host", "Origin")
"""Fields that are true of one origin only."""

SPENT_META = frozenset({"delay", BAD_PAGE, REFUSALS, REFUSED_AT, UNCOUNTED})
"""Meta keys that were for the redirected request only: its delay has passed, and it is what was refused."""

BODY_HEADERS = (
    "Content-Encoding",
    "Content-Language",
    "Content-Length",
    "Content-Location",
    "Content-Type",
    "Transfer-Encoding",
)
"""Fields that go with a body that is dropped (Fetch, 4.4, 12)."""


def redirect(
    settings: MiddlewareSettings, now_utc: NowUtc, handled_statuses: Container[int] = frozenset()
) -> Middleware:
    """Middleware that turns a redirect into the request for its target.

    It is not asked when the spider handles the status itself (``handled_statuses``, or the meta keys
    ``handle_httpstatus_list`` and ``handle_httpstatus_all``) or says ``dont_redirect`` in the meta. A target of another
    scheme than http and https, or a redirect too many, ends the request with an error (C10).
    """

    def around(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            outcome = await fetch(request)
            response = outcome.response
            if outcome.then is None and response is not None and response.status in STATUSES:
                location = response.headers.get("Location")
                if location and not _is_wanted(request, response.status, handled_statuses):
                    _follow(request, response, outcome, location, settings, now_utc)
            return outcome

        return send

    return around


def _is_wanted(request: Request, status: int, handled_statuses: Container[int]) -> bool:
    """Whether the spider wants the redirect itself."""
    return bool(request.meta_get("dont_redirect")) or request.wants_status(status, handled_statuses)


def _follow(
    request: Request,
    response: Response,
    outcome: Outcome,
    location: str,
    settings: MiddlewareSettings,
    now_utc: NowUtc,
) -> None:
    """Put into ``outcome`` what follows from a redirect."""
    try:
        url = _target(request.url, location)
    except ValueError:
        return  # no URL: the response goes to the spider as it is
    url_shown, method = request.url, request.method
    error: DownloadError | None = None
    if scheme_of(url) not in FETCHED_SCHEMES:
        error = UnsupportedScheme(f"redirected to {url!r}, which is not fetched", url=url_shown, method=method)
    elif request.meta_get("redirect_times", 0) >= settings.redirect_max_times:
        times = settings.redirect_max_times
        error = TooManyRedirects(f"redirected more than {times} times, then to {url!r}", url=url_shown, method=method)
    if error is not None:
        outcome.response, outcome.error = None, error
        return
    target = redirected(request, url, response.status, priority_adjust=settings.redirect_priority_adjust)
    outcome.then = Replace(target, _delay(response, settings, now_utc), "redirect", is_new_target=True)


def _target(url: str, location: str) -> str:
    """The URL that ``Location`` means; without a fragment of its own it has the request's (RFC 9110, 10.2.2)."""
    try:
        text = location.encode("latin-1").decode()  # browsers read its bytes as UTF-8
    except UnicodeError:
        text = location
    target = join_url(url, text)
    fragment = url.partition("#")[2]
    return f"{target}#{fragment}" if fragment and "#" not in target else target


def redirected(request: Request, url: str, status: int, *, priority_adjust: int = 0) -> Request:
    """The request for the target of a redirect.

    Args:
        request: What was redirected.
        url: The target, in normal form.
        status: The redirect's status.
        priority_adjust: Added to the priority.
    """
    headers, method, body = Headers(request.headers), request.method, request.body
    if _becomes_get(method, status):
        method, body = "GET", b""
        _drop(headers, BODY_HEADERS)
    meta = {key: value for key, value in request.meta.items() if key not in SPENT_META}
    target = request.replace(
        url=url,
        method=method,
        body=body,
        headers=headers,
        priority=request.priority + priority_adjust,
        meta={
            **meta,
            "redirect_times": request.meta_get("redirect_times", 0) + 1,
            "redirect_urls": [*request.meta_get("redirect_urls", ()), request.url],
            "redirect_reasons": [*request.meta_get("redirect_reasons", ()), status],
        },
    )
    if origin_of(url) == origin_of(request.url):
        return target
    _drop(target.headers, CREDENTIAL_HEADERS + ORIGIN_HEADERS)
    _shorten_referer(target.headers, url)
    return target.replace(cookies=None) if request.cookies else target


def _becomes_get(method: str, status: int) -> bool:
    """Whether the target is asked for with GET (RFC 9110, 15.4.2 to 15.4.4, as browsers do it)."""
    if status == 303:
        return method not in {"GET", "HEAD"}
    return status in {301, 302} and method == "POST"


def _drop(headers: Headers, names: tuple[str, ...]) -> None:
    for name in names:
        headers.pop(name, None)


def _shorten_referer(headers: Headers, url: str) -> None:
    """Tell another origin our origin only, and plain http nothing (Referrer Policy, 8.3: the default policy)."""
    referer = headers.get("Referer")
    if referer is None:
        return
    if scheme_of(referer) == "https" and scheme_of(url) == "http":
        del headers["Referer"]
    elif origin_of(referer) != origin_of(url):
        headers["Referer"] = origin_of(referer) + "/"


def _delay(response: Response, settings: MiddlewareSettings, now_utc: NowUtc) -> float:
    """The seconds that a redirect's ``Retry-After`` asks for, within ``REDIRECT_MAX_DELAY`` (D08)."""
    wishes = response.headers.getlist("Retry-After")
    if not wishes or not settings.redirect_max_delay:
        return 0.0
    hint = hint_of(Headers({"Retry-After": wishes, "Date": response.headers.getlist("Date")}), now_utc())
    return 0.0 if hint is None else min(hint.delay, settings.redirect_max_delay)


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
                _follow_refresh(request, response, outcome, settings)
            return outcome

        return send

    return around


def _follow_refresh(request: Request, response: Response, outcome: Outcome, settings: MiddlewareSettings) -> None:
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
