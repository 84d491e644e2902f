"""Sessions: the jars of one crawl, by the ``cookiejar`` in a request's meta.

Why not ``http.cookiejar``: it reads the machine's clock, which no simulated crawl may, keeps the rules of 1997 (its own
idea of domains, no prefixes) and costs 46 microseconds a page. RFC 6265 with a clock handed in is two hundred lines,
and an empty jar costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from datetime import UTC, datetime

from trawl.cookies.cookie import Cookie, Place, parse_set_cookie
from trawl.cookies.jar import MOST_A_DOMAIN, Jar
from trawl.cookies.suffixes import PublicSuffixes
from trawl.http import Request, Response

__all__ = ["Jars", "NowUtc", "name_of"]

NowUtc = Callable[[], datetime]
"""Wall time; asked only when there is a cookie to judge."""

_LONG_AGO = datetime.min.replace(tzinfo=UTC)  # what is kept without a clock is judged when it is sent
_UNSENDABLE = re.compile("[\x00-\x08\x0a-\x1f\x7f;]")


class Jars:
    """What the sites have set, and what requests bring along.

    A request's own ``cookies`` are kept like those that its host sets for all its paths, and sent again later. With the
    meta key ``dont_merge_cookies`` they are sent and not kept, and nothing is taken from the jar or put into it.

    Args:
        is_public_suffix: Whether nobody may set cookies for a domain; None: by the Public Suffix List.
        is_kept: Whether what sites set is kept at all; if not, requests send what they bring along and no more.
    """

    __slots__ = ("_is_kept", "_is_public_suffix", "_jars")

    def __init__(self, is_public_suffix: Callable[[str], bool] | None = None, *, is_kept: bool = True) -> None:
        self._jars: dict[Hashable, Jar] = {}
        self._is_public_suffix = is_public_suffix or PublicSuffixes()
        self._is_kept = is_kept

    def header(self, request: Request, now_utc: NowUtc) -> str | None:
        """What ``request`` is to say in its ``Cookie`` field; None: what it says already is all.

        A cookie that the request's own field names is not sent twice: the request goes before the jar.

        Raises:
            ValueError: One of the request's cookies can't be sent; the sentence names it.
        """
        own = request.cookies
        if not own and not self._jars:
            return None
        is_merged = self._is_kept and not request.meta_get("dont_merge_cookies")
        jar = self._jars.get(name_of(request)) if is_merged else None
        if not own and not jar:
            return None
        place, now = Place.of(request.url), now_utc()
        if own:
            brought = list(_brought(own, place))
            jar = self._jar(request) if is_merged else Jar()
            for cookie in brought:
                jar.store(cookie, now)
        found = jar.matching(place, now) if jar else []
        written = request.headers.get("Cookie", "")
        names = {pair.partition("=")[0].strip() for pair in written.split(";")} if written else set()
        pairs = [cookie.pair for cookie in found if cookie.name not in names]
        return "; ".join([written, *pairs] if written else pairs) if pairs else None

    def store(self, request: Request, response: Response, now_utc: NowUtc) -> None:
        """Keep what ``response`` sets, where it may (RFC 6265, 5.3)."""
        fields = response.headers.getlist("Set-Cookie")
        if not fields or not self._is_kept or request.meta_get("dont_merge_cookies"):
            return
        place, now, jar = Place.of(request.url), now_utc(), self._jar(request)
        secure: dict[str, list[Cookie]] = {}  # looked up once a domain: a jar may have thousands
        for field in fields[:MOST_A_DOMAIN]:
            cookie = parse_set_cookie(field, place, now, self._is_public_suffix)
            if cookie is None:
                continue
            if not place.is_secure:
                if cookie.domain not in secure:
                    secure[cookie.domain] = jar.secure_near(cookie.domain, now)
                if any(cookie.goes_before(known) for known in secure[cookie.domain]):
                    continue
            jar.store(cookie, now)

    def jar(self, name: Hashable = None) -> Jar:
        """The jar of this name, made if it is not there; None is that of requests that name none."""
        return self._jars.setdefault(name, Jar())

    def keep(self, cookie: Cookie, name: Hashable = None) -> None:
        """Put a cookie that no site has set, of a file say, into the jar of this name."""
        self.jar(name).store(cookie, _LONG_AGO)

    def items(self) -> Iterator[tuple[Hashable, Jar]]:
        """Every jar that was ever used, with its name."""
        return iter(self._jars.items())

    def _jar(self, request: Request) -> Jar:
        return self.jar(name_of(request))


def name_of(request: Request) -> Hashable:
    """The name of a request's jar: meta ``cookiejar``, else its ``session``, else None."""
    name: Hashable = request.meta_get("cookiejar")
    return request.meta_get("session") if name is None else name


def _brought(cookies: Mapping[str, object] | Iterable[Mapping[str, object]], place: Place) -> Iterable[Cookie]:
    """The cookies given with a request: names and values, or one mapping a cookie."""
    if isinstance(cookies, Mapping):
        cookies = [{"name": name, "value": value} for name, value in cookies.items()]
    for given in cookies:
        if given.get("value") is None:
            continue
        name, value = _text(given.get("name", "")), _text(given["value"])
        if _UNSENDABLE.search(name + value) or "=" in name:
            raise ValueError(f"the cookie {name!r} can't be sent: it holds a control character, ';' or '='")
        domain = _text(given.get("domain") or "").removeprefix(".").lower()
        path = _text(given.get("path") or "/")
        yield Cookie(
            name,
            value,
            domain or place.host,
            path if path.startswith("/") else "/",
            is_host_only=not domain,
            is_secure=bool(given.get("secure")),
        )


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value if isinstance(value, str) else str(value)
