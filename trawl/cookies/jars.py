"""Cookie jars by session (RFC 6265, 5.3 and 5.4), with limits and with the Public Suffix List.

``http.cookiejar`` of Python 3.11 is not used, because it treats 8 of 20 tested ``Set-Cookie`` headers differently than
RFC 6265bis. It accepts cookies for ``co.uk`` and ``github.io``, ``Secure`` cookies and ``__Host-`` names over plain
http, and cookies of any size. It reads ``time.time()``, which does not work in a simulated crawl, and takes twice as
long.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from trawl.cookies.cookie import Cookie, RequestUrl, cookie_domain, domain_matches, is_too_long, parse_set_cookie
from trawl.http import Request, Response, check_cookie

if TYPE_CHECKING:
    from tldextract import TLDExtract

__all__ = ["Jar", "Jars", "NowUtc", "is_public_suffix", "jar_name"]

logger: logging.Logger = logging.getLogger("trawl.cookies")

MAX_PER_DOMAIN = 180  # maximum number of cookies for one domain, as in browsers
MAX_COOKIES = 20_000  # maximum in a jar; above it, the domain whose first cookie is oldest is dropped

Key = tuple[str, str, bool]
"""Name, path and ``is_host_only``. Together they identify a cookie of a domain (6265bis, 5.7, 23)."""


class Jar:
    """Cookies by domain, name and path, in order of creation. A lookup takes one step per label of the host.

    Args:
        is_like_scrapy: Whether subdomains receive each cookie, as in Scrapy.
    """

    __slots__ = ("_count", "_created", "_domains", "_is_like_scrapy")

    def __init__(self, *, is_like_scrapy: bool = False) -> None:
        self._is_like_scrapy = is_like_scrapy
        # Each cookie has a number, in order of creation, because the cookies of one response have the same time.
        self._domains: dict[str, dict[Key, tuple[int, Cookie]]] = {}
        self._count = 0
        self._created = 0

    def __len__(self) -> int:
        return self._count

    def store(self, cookie: Cookie, now_utc: datetime) -> None:
        """Store a cookie, which replaces a cookie with the same name, domain and path.

        If the replaced cookie had not expired, the new cookie gets the creation time of the replaced cookie (6265bis,
        5.7, 23). If the new cookie has expired, the replaced cookie is only removed.
        """
        kept = self._domains.setdefault(cookie.domain, {})
        key = cookie.name, cookie.path, cookie.is_host_only and not self._is_like_scrapy
        self._count -= len(kept)
        if (replaced := kept.get(key)) is not None and replaced[1].is_expired(now_utc):
            del kept[key]
            replaced = None
        if cookie.is_expired(now_utc):
            kept.pop(key, None)
        else:
            self._created += replaced is None
            kept[key] = self._created if replaced is None else replaced[0], cookie
            if len(kept) > MAX_PER_DOMAIN:
                _make_room(kept, now_utc)
        self._count += len(kept)
        if not kept:
            del self._domains[cookie.domain]
        while self._count > MAX_COOKIES:
            self._count -= len(self._domains.pop(next(iter(self._domains))))

    def secure_near(self, domain: str, now_utc: datetime) -> list[Cookie]:
        """Return the unexpired secure cookies of a domain, its parent domains and its subdomains."""
        near = [other for other in self._domains if other.endswith(domain) and domain_matches(other, domain)]
        above = domain
        while above := above.partition(".")[2]:
            near.append(above)
        kept = (cookie for other in near for _, cookie in self._domains.get(other, {}).values())
        return [cookie for cookie in kept if cookie.is_secure and not cookie.is_expired(now_utc)]

    def __iter__(self) -> Iterator[Cookie]:
        """Iterate over the cookies in order of creation."""
        found = [each for kept in self._domains.values() for each in kept.values()]
        found.sort(key=itemgetter(0))
        return (cookie for _, cookie in found)

    def forget(self, is_gone: Callable[[str], bool]) -> None:
        """Remove the cookies of the domains for which ``is_gone`` returns true."""
        for domain in [domain for domain in self._domains if is_gone(domain)]:
            self._count -= len(self._domains.pop(domain))

    def clear(self) -> None:
        """Remove all cookies."""
        self._domains.clear()
        self._count = 0

    def matching(self, target: RequestUrl, now_utc: datetime) -> list[Cookie]:
        """Return the cookies to send to ``target``, longer paths first, then older cookies (6265bis, 5.8.3, 2)."""
        found: list[tuple[int, Cookie]] = []
        domain, is_own = target.host, True
        while domain:
            for each in self._domains.get(domain, {}).values():
                cookie = each[1]
                if (is_own or not cookie.is_host_only) and cookie.is_sent_to(target) and not cookie.is_expired(now_utc):
                    found.append(each)
            domain, is_own = domain.partition(".")[2], self._is_like_scrapy
        found.sort(key=lambda kept: (-len(kept[1].path), kept[0]))
        return [cookie for _, cookie in found]


def _make_room(kept: dict[Key, tuple[int, Cookie]], now_utc: datetime) -> None:
    """Drop expired cookies, then the oldest cookies above the limit."""
    for key in [key for key, (_, cookie) in kept.items() if cookie.is_expired(now_utc)]:
        del kept[key]
    while len(kept) > MAX_PER_DOMAIN:
        del kept[next(iter(kept))]


def is_public_suffix(domain: str) -> bool:
    """Return True if names directly below ``domain`` belong to different parties, as for ``com``, ``github.io``."""
    return "." not in domain or _suffix_list().extract_str(domain).suffix == domain


@lru_cache(maxsize=1)
def _suffix_list() -> TLDExtract:
    """Return the Public Suffix List, loaded when first needed, never from the network."""
    from tldextract import TLDExtract  # noqa: PLC0415 - takes 0.1 s, and few crawls need it

    return TLDExtract(suffix_list_urls=(), cache_dir=None, include_psl_private_domains=True)


NowUtc = Callable[[], datetime]
"""Returns the wall time. Called only if there are cookies."""

_LONG_AGO = datetime.min.replace(tzinfo=UTC)  # for cookies added without a clock; expiry is checked when they are sent


class Jars:
    """The jars of a crawl, by meta ``cookiejar`` or ``session``.

    A request's own ``cookies`` are stored as if the host had set them for all its paths, so later requests send them
    too. Cookies of an https request are secure unless they specify otherwise. With meta ``dont_merge_cookies``, a
    request sends only its own cookies, and the jar is neither read nor changed.

    With ``is_like_scrapy``, a request's cookies are stored as if its response had set them, that is, for the request's
    directory and not for other sites. The cookies of the jar replace the request's own header ``Cookie``. If the jar is
    disabled, or with ``dont_merge_cookies``, only the request's own header is sent. A cookie without ``Domain`` is also
    sent to subdomains. A ``Secure`` cookie may be set over plain http, but is sent only over https. A cookie set over
    plain http may replace a ``Secure`` cookie. Name prefixes have no rules.

    Args:
        is_enabled: True to store cookies. If False, requests send only their own cookies.
        is_like_scrapy: True to treat cookies like Scrapy.

    Attributes:
        is_enabled: True if cookies are stored (``COOKIES_ENABLED``).
        changes: Number of times that cookies were stored. If it has increased, there may be new cookies to save.
    """

    __slots__ = ("_is_like_scrapy", "_jars", "changes", "is_enabled")

    def __init__(self, *, is_enabled: bool = True, is_like_scrapy: bool = False) -> None:
        self._jars: dict[Hashable, Jar] = {}
        self.changes: int = 0
        self.is_enabled: bool = is_enabled
        self._is_like_scrapy = is_like_scrapy

    def header(self, request: Request, now_utc: NowUtc) -> str | None:
        """Return the ``Cookie`` header for ``request``; "" for no header, None to leave the request unchanged.

        A cookie in the request's own header overrides a cookie of the jar with the same name.

        Raises:
            ValueError: If one of the request's cookies can't be sent.
        """
        if not request.has_cookies and not self._jars and not self._is_like_scrapy:
            return None
        is_merged = self.is_enabled and not request.meta_get("dont_merge_cookies")
        written = request.headers.get("Cookie", "")
        if self._is_like_scrapy:
            pairs = [cookie.pair for cookie in self._found(request, now_utc)] if is_merged else []
            return "; ".join(pairs) if pairs or (written and is_merged) else None
        names = {pair.partition("=")[0].strip() for pair in written.split(";")} if written else set()
        found = self._found(request, now_utc, is_merged=is_merged)
        pairs = [cookie.pair for cookie in found if cookie.name not in names]
        return "; ".join([written, *pairs] if written else pairs) if pairs else None

    def _found(self, request: Request, now_utc: NowUtc, *, is_merged: bool = True) -> list[Cookie]:
        """Return the cookies to send. If ``is_merged``, first store the request's own cookies in its jar."""
        own = request.cookies
        jar = self._jars.get(jar_name(request)) if is_merged else None
        if not own and not jar:
            return []
        target, now = RequestUrl.from_url(request.url), now_utc()
        if own:
            brought = list(self._brought(request, target))
            jar = self.jar(jar_name(request)) if is_merged else Jar(is_like_scrapy=self._is_like_scrapy)
            for cookie in brought:
                jar.store(cookie, now)
            self.changes += is_merged
        return jar.matching(target, now) if jar else []

    def _brought(self, request: Request, target: RequestUrl) -> Iterator[Cookie]:
        """Yield the cookies of a request, given as a mapping of names to values or as one mapping per cookie."""
        cookies: Any = request.cookies
        if isinstance(cookies, Mapping):
            cookies = [{"name": name, "value": value} for name, value in cookies.items()]
        for given in cookies:
            if given.get("value") is None:
                continue
            if given.get("name") is None:
                logger.warning("%r: a cookie without a name is not sent: %r", request, given)
                continue
            name, value = _text(given["name"]), _text(given["value"])
            if self._is_like_scrapy:
                value = value.strip(" \t")
            check_cookie(name, value)  # the cookies may have changed since the request was created
            written = _text(given.get("domain") or "")
            domain = cookie_domain(written, target, is_public_suffix, takes_foreign=not self._is_like_scrapy)
            if domain is None:
                words = "%r: its cookie %r is not stored, because %r is another site's domain"
                logger.warning(words, request, name, given["domain"])
                continue
            path = _text(given.get("path") or "")
            if not path.startswith("/"):
                path = target.default_path if self._is_like_scrapy else "/"
            is_secure = bool(given.get("secure", target.is_secure))
            yield Cookie(name, value, domain or target.host, path, is_host_only=not domain, is_secure=is_secure)

    def store(self, request: Request, response: Response, now_utc: NowUtc) -> None:
        """Store the cookies that ``response`` sets, except refused cookies (RFC 6265, 5.3)."""
        fields = response.headers.getlist("Set-Cookie")
        if not fields or not self.is_enabled or request.meta_get("dont_merge_cookies"):
            return
        target, now, jar = RequestUrl.from_url(request.url), now_utc(), self.jar(jar_name(request))
        self.changes += 1
        is_browsers = not self._is_like_scrapy
        # Secure cookies by domain. Each domain is looked up once, because a jar may have thousands of cookies.
        secure: dict[str, list[Cookie]] = {}
        for field in fields[:MAX_PER_DOMAIN]:
            cookie = parse_set_cookie(field, target, now, is_public_suffix, is_browsers=is_browsers)
            if cookie is None:
                continue
            if is_browsers and not target.is_secure:
                if cookie.domain not in secure:
                    secure[cookie.domain] = jar.secure_near(cookie.domain, now)
                if any(cookie.shadows(known) for known in secure[cookie.domain]):
                    continue
            jar.store(cookie, now)

    def jar(self, name: Hashable = None) -> Jar:
        """Return the jar with this name, which is created if needed. None is the name of the default jar."""
        return self._jars.setdefault(name, Jar(is_like_scrapy=self._is_like_scrapy))

    def of_page(self, request: Request) -> list[Cookie]:
        """Return the cookies of a page that a browser opens for ``request``: those of its jar, and its own.

        If the request does not merge cookies, the page has only the request's own cookies.
        """
        target = RequestUrl.from_url(request.url)
        is_merged = self.is_enabled and not request.meta_get("dont_merge_cookies")
        found = list(self.jar(jar_name(request)) if is_merged else self._brought(request, target))
        for pair in request.headers.get("Cookie", "").split(";"):
            name, _, value = pair.strip().partition("=")
            if name:
                found.append(Cookie(name, value, target.host, "/", is_host_only=True, is_secure=target.is_secure))
        return found

    def add(self, cookie: Cookie, name: Hashable = None) -> None:
        """Store a cookie from another source, such as a file, in the jar ``name``, unless the cookie is too long."""
        if not is_too_long(cookie.name, cookie.value):
            self.jar(name).store(cookie, _LONG_AGO)

    def items(self) -> Iterator[tuple[Hashable, Jar]]:
        """Iterate over the jars with their names."""
        return iter(self._jars.items())


def jar_name(request: Request) -> Hashable:
    """Return the name of a request's jar: meta ``cookiejar``, or else meta ``session``, or else None."""
    name: Hashable = request.meta_get("cookiejar")
    return request.meta_get("session") if name is None else name


def _text(value: object) -> str:
    """Return a string with one character for each byte to send. A given string is encoded as UTF-8 first."""
    if not isinstance(value, bytes):
        value = str(value).encode()
    return value.decode("latin-1")
