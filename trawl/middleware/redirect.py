"""Redirects (RFC 9110, 15.4) and refreshes (HTML, 4.2.5.3): the target replaces the request in the frontier.

docs/explanation/redirects.md has a table of the parts of a request that its target keeps or loses. If a page only
reloads itself, the reload is not followed, because it would never end. If a page sets a cookie and reloads itself, the
reload is followed once, as in browsers.

A page is scanned for ``<meta http-equiv=refresh>`` tag by tag. Tags in a comment, in a ``<template>``, or in an element
whose content is text (``<title>``, ``<textarea>``, ``<style>``, ...) do not count. libxml2, which parses pages for
selectors, treats tags inside ``<title>`` and ``<textarea>`` as elements. ``w3lib.html.get_meta_refresh`` makes the same
error, and recognizes only two of the seven spellings of a refresh.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from html import unescape
from html.entities import html5
from urllib.parse import quote

from trawl.cookies import NowUtc
from trawl.errors import TooManyRedirects, UnsupportedScheme
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
    lacks_path,
    origin_of,
    scheme_of,
)
from trawl.http.headers import field_bytes
from trawl.http.notes import notes_of, set_notes
from trawl.middleware.referrer import POLICIES
from trawl.middleware.settings import MiddlewareSettings
from trawl.throttling.hints import hint_of

__all__ = ["meta_refresh", "meta_refreshes", "parse_refresh", "redirect", "redirected"]

STATUSES = frozenset({301, 302, 303, 307, 308})
CREDENTIAL_HEADERS = ("Authorization", "Cookie", "Proxy-Authorization")  # never sent to another origin
ORIGIN_HEADERS = ("Host", "Origin")  # valid for one origin only

BODY_HEADERS = (  # dropped if the body is dropped (Fetch, 4.4, 12)
    *("Content-Encoding", "Content-Language", "Content-Length", "Content-Location", "Content-Type"),
    "Transfer-Encoding",
)

_REFRESH = frozenset({"refresh"})
HEAD_BYTES = 4096  # number of bytes at the start of a page that are searched for a refresh
# The pattern starts with one fixed byte, because a search for one byte is faster than a search for two. It matches
# attributes as browsers do.
_METAS = re.compile(rb"<[mM][eE][tT][aA][\s/](?:[^>\"']++|\"[^\"]*+\"|'[^']*+'|[\"'])*+")
_ASCII = "".join(map(chr, range(128)))
REASON = "meta refresh"  # the value that stands for a refresh in ``redirect_reasons``


def redirect(
    settings: MiddlewareSettings, now_utc: NowUtc, handled_statuses: Container[int] = frozenset()
) -> Middleware:
    """Return middleware that turns a redirect into a request for its target.

    Redirects are not followed if the spider handles the status code itself (``handled_statuses``, or the meta keys
    ``handle_httpstatus_list`` and ``handle_httpstatus_all``) or sets meta ``dont_redirect``. A request fails if the
    target's scheme is not http or https, or if there are too many redirects.
    """

    def around(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            outcome = await fetch(request)
            response = outcome.response
            if outcome.then is None and response is not None and response.status in STATUSES:
                # Some servers repeat the header, usually with the same value.
                location = next(iter(response.headers.getlist("Location")), "")
                is_wanted = request.meta_get("dont_redirect") or request.wants_status(response.status, handled_statuses)
                if location and not is_wanted:
                    _follow(request, response, outcome, location, settings, now_utc)
            return outcome

        return send

    return around


def _follow(
    request: Request, response: Response, outcome: Outcome, location: str, settings: MiddlewareSettings, now_utc: NowUtc
) -> None:
    """Set the next request of ``outcome``, or set its error if the redirect must not be followed."""
    try:
        url = _target(request.url, location)
    except ValueError:
        return  # the target is not a URL, so the spider gets the response
    if scheme_of(url) not in FETCHED_SCHEMES:
        cause = f"redirected to {url!r}, which is not fetched"
        outcome.response, outcome.error = None, UnsupportedScheme(cause, url=request.url, method=request.method)
    else:
        delay = _delay(response, settings, now_utc)
        target = _set_target(request, outcome, url, response.status, delay, settings)
        if target is not None and lacks_path(location):
            target.lacks_path = True


def _set_target(
    request: Request, outcome: Outcome, url: str, status: int, delay: float, settings: MiddlewareSettings
) -> Request | None:
    """Set and return the next request of ``outcome``. If there are too many redirects, set its error instead."""
    if request.meta_get("redirect_times", 0) >= settings.redirect_max_times:
        cause = f"redirected more than {settings.redirect_max_times} times, then to {url!r}"
        outcome.response, outcome.error = None, TooManyRedirects(cause, url=request.url, method=request.method)
        return None
    adjust, has_jar = settings.redirect_priority_adjust, settings.cookies_enabled
    target = redirected(request, url, status, priority_adjust=adjust, has_jar=has_jar)
    outcome.then = Replace(target, delay, "redirect", is_new_target=True)
    return target


def _target(url: str, location: str) -> str:
    """Return the URL of ``Location``, with the fragment of the request's URL if it has none (RFC 9110, 10.2.2).

    Non-ASCII bytes are percent-encoded without a conversion to another encoding, as in browsers.
    """
    target = join_url(url, location if location.isascii() else quote(field_bytes(location), safe=_ASCII))
    fragment = url.partition("#")[2]
    return f"{target}#{fragment}" if fragment and "#" not in target else target


def redirected(request: Request, url: str, status: int, *, priority_adjust: int = 0, has_jar: bool = False) -> Request:
    """Return the request for a redirect's target ``url``, which is in normal form.

    The ``status`` decides whether it becomes a GET, and ``priority_adjust`` is added to the priority. ``has_jar`` means
    that the request's own cookies were stored in a jar, so the target does not need them.
    """
    headers, method, body = Headers(request.headers), request.method, request.body
    if _becomes_get(method, status):
        method, body = "GET", b""
        _drop(headers, BODY_HEADERS)
    meta = {key: value for key, value in request.meta.items() if key != "delay"}  # drop the delay, which has passed
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
    set_notes(target, notes_of(request).for_target())
    is_same_origin = origin_of(url) == origin_of(request.url)
    # If the request's own cookies are in the jar, drop them here, because the redirect may have changed them in the
    # jar.
    is_in_jar = has_jar and not request.meta_get("dont_merge_cookies")
    if request.cookies and (is_in_jar or not is_same_origin):
        target = target.replace(cookies=None)
    if not is_same_origin:
        _drop(target.headers, CREDENTIAL_HEADERS + ORIGIN_HEADERS)
        if (referer := target.headers.get("Referer")) is not None:
            # Apply the default policy (Referrer Policy, 8.3).
            shortened = POLICIES["strict-origin-when-cross-origin"](referer, url)
            if shortened is None:
                del target.headers["Referer"]
            else:
                target.headers["Referer"] = shortened
    return target


def _becomes_get(method: str, status: int) -> bool:
    """Return True if the target is requested with GET (RFC 9110, 15.4.2 to 15.4.4, as in browsers)."""
    if status == 303:
        return method not in {"GET", "HEAD"}
    return status in {301, 302} and method == "POST"


def _drop(headers: Headers, names: tuple[str, ...]) -> None:
    for name in names:
        headers.pop(name, None)


def _delay(response: Response, settings: MiddlewareSettings, now_utc: NowUtc) -> float:
    """Return the seconds in a redirect's ``Retry-After``, at most ``REDIRECT_MAX_DELAY``."""
    wishes = response.headers.getlist("Retry-After")
    if not wishes or not settings.redirect_max_delay:
        return 0.0
    hint = hint_of(Headers({"Retry-After": wishes, "Date": response.headers.getlist("Date")}), now_utc())
    return 0.0 if hint is None else min(hint.delay, settings.redirect_max_delay)


def meta_refresh(settings: MiddlewareSettings) -> Middleware:
    """Return middleware that turns a page with a refresh into a GET request for its target (HTML, 4.2.5.3).

    The header ``Refresh`` takes precedence over the page's ``<meta>``. The maximum number of redirects, the priority
    and the meta keys are those of :func:`~trawl.middleware.redirect.redirect`.
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
                and (response.headers.has_any(_REFRESH) or _may_refresh(response.body))
                and not request.meta_get("dont_redirect")
                and request.method != "HEAD"
            ):
                _follow_refresh(request, response, outcome, settings)
            return outcome

        return send

    return around


def _follow_refresh(request: Request, response: Response, outcome: Outcome, settings: MiddlewareSettings) -> None:
    declared = _refresh(response, settings.metarefresh_ignore_tags)
    if declared is None:
        return
    delay, url = declared
    if delay > settings.metarefresh_maxdelay or scheme_of(url) not in FETCHED_SCHEMES:
        return
    if _is_reload(request, response, url):
        return
    as_get = 303  # targets of this status code are always requested with GET
    target = _set_target(request, outcome, url, as_get, delay, settings)
    if target is not None:
        target.meta["redirect_reasons"][-1] = REASON


def _refresh(response: Response, ignored: tuple[str, ...]) -> tuple[float, str] | None:
    """Return the seconds and URL of the first valid refresh, from the header or else from the page; None if none."""
    for field in response.headers.getlist("Refresh")[:1]:
        if (declared := _joined(response.url, field)) is not None:
            return declared
    if "html" not in (response.headers.get("Content-Type") or "html").lower() or not _may_refresh(response.body):
        return None
    for content in meta_refreshes(response.text[:HEAD_BYTES], ignored):
        if (declared := _joined(response.base_url, content)) is not None:
            return declared
    return None


def _may_refresh(body: bytes) -> bool:
    return b"refresh" in b"".join(_METAS.findall(body, 0, HEAD_BYTES)).lower()


def _joined(base: str, value: str) -> tuple[float, str] | None:
    """Return the seconds and the absolute URL of a declared refresh; None if it is not valid."""
    declared = parse_refresh(value)
    try:
        return None if declared is None else (declared[0], join_url(base, declared[1]))
    except ValueError:
        return None


def _is_reload(request: Request, response: Response, url: str) -> bool:
    """Return True if a page reloads itself without setting a cookie, or reloads itself for the second time."""
    if url.partition("#")[0] != request.url.partition("#")[0]:
        return False
    return "set-cookie" not in response.headers or request.url in request.meta_get("redirect_urls", ())


_VALUE = re.compile(
    r"[\t\n\f\r ]*(?P<seconds>[0-9]+|(?=\.))[0-9.]*"
    r"(?:\Z|(?=[;,\t\n\f\r ])[\t\n\f\r ]*[;,]?[\t\n\f\r ]*"
    r"(?P<url>(?:[Uu][Rr][Ll][\t\n\f\r ]*=[\t\n\f\r ]*)?(?P<rest>.*)))",
    re.DOTALL,
)

_LONGEST = 15  # digits in the seconds of a refresh; a longer time would never pass

_TEXT_ELEMENTS = frozenset(["title", "textarea", "style", "script", "xmp", "iframe", "noembed", "noframes"])
"""Elements whose content is text (HTML, 13.2.6.4)."""

_TAG = re.compile(r"<(?:!--|(/?)([A-Za-z][^\t\n\f\r />]*)|[!?/])")

_ATTRIBUTE = re.compile(
    r"[\t\n\f\r /]*([^\t\n\f\r />][^\t\n\f\r />=]*)"
    r"(?:[\t\n\f\r ]*=[\t\n\f\r ]*(?:\"([^\"]*)\"|'([^']*)'|([\"'])|([^\t\n\f\r >]*)))?"
)

_TAG_END = re.compile(r"[\t\n\f\r /]*>")
_COMMENT_END = re.compile(r"--!?>|(?<=<!--)-?>")
_BOGUS_END = re.compile(">")
_REFERENCE = re.compile(r"&(?:#[0-9]+;?|#[Xx][0-9A-Fa-f]+;?|([A-Za-z][A-Za-z0-9]*;?)(=?))")


def parse_refresh(value: str) -> tuple[float, str] | None:
    """Return the seconds and the relative URL ("": the page) of a refresh (HTML, 4.2.5.3); None if it is none."""
    match = _VALUE.match(value)
    if match is None:
        return None
    url = match["rest"] or ""
    if url[:1] in {'"', "'"}:
        url = url[1:].partition(url[0])[0]
    return float(match["seconds"][:_LONGEST] or 0), url


def meta_refreshes(head: str, ignored: Iterable[str] = ()) -> Iterator[str]:
    """Yield the ``content`` of each ``<meta http-equiv=refresh>`` of a page or its start, in order.

    The content of the elements ``ignored`` does not count.
    """
    skipped = _TEXT_ELEMENTS.union(name.lower() for name in ignored)
    at = templates = 0
    while (tag := _TAG.search(head, at)) is not None:
        at = tag.end()
        if tag[2] is None:
            end = (_COMMENT_END if tag[0] == "<!--" else _BOGUS_END).search(head, at)
            if end is None:
                return
            at = end.end()
            continue
        name = tag[2].lower()
        attributes, at = _attributes(head, at)
        if at < 0 or name == "plaintext":
            return
        if name == "template":
            templates = max(0, templates + (-1 if tag[1] else 1))
        elif not tag[1] and name in skipped:
            at = _end_of_text(head, at, name)
        elif name == "meta" and not (tag[1] or templates) and _decoded(attributes, "http-equiv").lower() == "refresh":
            yield _decoded(attributes, "content")


def _attributes(head: str, at: int) -> tuple[dict[str, str], int]:
    """Return a tag's attributes (the first of each name), and the position of its end, or -1 if it has no end."""
    attributes: dict[str, str] = {}
    while (end := _TAG_END.match(head, at)) is None:
        match = _ATTRIBUTE.match(head, at)
        if match is None or match[4]:  # the page ends within the tag, or a quoted value has no end
            return attributes, -1
        attributes.setdefault(match[1].lower(), match[2] or match[3] or match[5] or "")
        at = match.end()
    return attributes, end.end()


def _end_of_text(head: str, at: int, name: str) -> int:
    """Return the position after an element whose content is text. The content starts at ``at``."""
    # Only for a script: 1 inside a comment of the script, 2 inside a script in this comment, otherwise 0 (HTML,
    # 13.2.5.17 to 13.2.5.31).
    depth = 0
    for found in re.finditer(rf"<(/?){re.escape(name)}(?=[\t\n\f\r />])|<!--(?!-?>)|-->", head[at:], re.IGNORECASE):
        is_end = found[1] == "/"
        if is_end and depth < 2:
            return at + found.end()
        if name == "script":
            what = found.group()
            depth = 1 if is_end else (depth or 1) if what == "<!--" else 0 if what == "-->" else 2 * bool(depth)
    return len(head)


def _decoded(attributes: dict[str, str], name: str) -> str:
    """Return the value of an attribute with its character references decoded (HTML, 13.2.5.73)."""
    return _REFERENCE.sub(_character, attributes.get(name, ""))


def _character(reference: re.Match[str]) -> str:
    name, equals = reference[1], reference[2]
    if name is None:
        return unescape(reference[0])
    # Before "=", a reference without a semicolon is the name of an argument, as in "?a=1&copy=2".
    is_known = name in html5 and (name.endswith(";") or not equals)
    return html5[name] + equals if is_known else reference[0]
