"""A cookie, parsed from ``Set-Cookie`` (RFC 6265, 5.1 to 5.3, with the prefixes and limits of 6265bis), or from a file.

A file of cookies is either JSON, which contains all jars, or the ``cookies.txt`` of browsers, curl and wget, which
contains one jar. Expired cookies are left out. Session cookies are saved, because logins depend on them. Keep the file
as secret as a password.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

import attrs
import msgspec

from trawl.http import host_of, scheme_of
from trawl.http.headers import field_bytes

if TYPE_CHECKING:
    from trawl.cookies.jars import Jars

__all__ = [
    "Cookie",
    "RequestUrl",
    "cookie_domain",
    "domain_matches",
    "from_json",
    "from_netscape",
    "is_netscape",
    "is_too_long",
    "parse_cookie_date",
    "parse_set_cookie",
    "path_matches",
    "to_json",
    "to_netscape",
]

MAX_BYTES = 4096  # maximum size of name and value; a longer cookie is refused (6265bis, 5.6)
MAX_ATTRIBUTE_BYTES = 1024  # maximum size of an attribute's value; a longer attribute is ignored (6265bis, 5.6)
MAX_SECONDS = 400 * 24 * 3600  # maximum age of a cookie; a longer age is reduced (6265bis, 5.5)

_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f]")
_MAX_AGE = re.compile(r"-?[0-9]+")
_TOKENS = re.compile(r"[^\x09\x20-\x2f\x3b-\x40\x5b-\x60\x7b-\x7e]+")
_TIME = re.compile(r"(\d{1,2}):(\d{1,2}):(\d{1,2})(?!\d)")
_DAY = re.compile(r"(\d{1,2})(?!\d)")
_YEAR = re.compile(r"(\d{2,4})(?!\d)")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def parse_cookie_date(text: str) -> datetime | None:
    """Return a date, parsed as leniently as in browsers (RFC 6265, 5.1.1); None if it is not a date."""
    time: tuple[int, int, int] | None = None
    day = month = year = None
    for token in _TOKENS.findall(text):
        if time is None and (found := _TIME.match(token)):
            time = int(found[1]), int(found[2]), int(found[3])
        elif day is None and (found := _DAY.match(token)):
            day = int(found[1])
        elif month is None and token[:3].lower() in _MONTHS:
            month = _MONTHS.index(token[:3].lower()) + 1
        elif year is None and (found := _YEAR.match(token)):
            year = int(found[1])
            year += 2000 if year < 70 else 1900 if year < 100 else 0
    if time is None or day is None or month is None or year is None or year < 1601:
        return None
    with suppress(ValueError):
        return datetime(year, month, day, *time, tzinfo=UTC)
    return None


@attrs.frozen
class RequestUrl:
    """The parts of a request's URL that decide which cookies apply.

    Attributes:
        host: Host in lower case, without port.
        path: Path of the URL, without the query.
        is_secure: True if the scheme is ``https``.
    """

    host: str
    path: str
    is_secure: bool

    @classmethod
    def from_url(cls, url: str) -> RequestUrl:
        """Return the parts of a URL in normal form."""
        path = url.partition("://")[2].partition("/")[2].partition("?")[0].partition("#")[0]
        return cls(host_of(url).rstrip("."), f"/{path}", scheme_of(url) == "https")

    @property
    def default_path(self) -> str:
        """The directory of ``path``. A cookie that sets no path gets this path (RFC 6265, 5.1.4)."""
        return self.path.rpartition("/")[0] or "/"

    @property
    def is_address(self) -> bool:
        """True if the host is an IP address, which has no parent domain."""
        with suppress(ValueError):
            return bool(ip_address(self.host.strip("[]")))
        return False


@attrs.frozen
class Cookie:
    """A cookie.

    Attributes:
        name: Name; may be empty.
        value: Value as written by the server.
        domain: Host that receives the cookie, with its subdomains unless ``is_host_only``.
        path: Path that receives the cookie, with all paths below it.
        is_host_only: True if subdomains of ``domain`` do not receive the cookie.
        is_secure: True if the cookie is sent only over https.
        expires_utc: Time of expiry; None for the end of the crawl.
        is_http_only: True if scripts of a rendered page must not see the cookie.
        same_site: ``strict``, ``lax`` or ``none``, for rendered pages; "" if the server set no such value.
    """

    name: str
    value: str
    domain: str
    path: str = "/"
    is_host_only: bool = True
    is_secure: bool = False
    expires_utc: datetime | None = None
    is_http_only: bool = False
    same_site: str = ""

    @property
    def pair(self) -> str:
        """The cookie as written in a ``Cookie`` header."""
        return f"{self.name}={self.value}" if self.name else self.value

    def is_sent_to(self, target: RequestUrl) -> bool:
        """Return True if path and scheme match ``target`` (RFC 6265, 5.4). The jar checks the host."""
        return (target.is_secure or not self.is_secure) and path_matches(target.path, self.path)

    def shadows(self, secure: Cookie) -> bool:
        """Return True if this cookie, set over plain http, would replace or precede a secure cookie.

        Such a cookie is refused (6265bis, 5.7, 11), so that an attacker on the network can't overwrite a cookie that
        was set over https.
        """
        return secure.name == self.name and path_matches(self.path, secure.path)

    def is_expired(self, now_utc: datetime) -> bool:
        """Return True if the cookie has expired."""
        return self.expires_utc is not None and self.expires_utc <= now_utc


def path_matches(asked: str, path: str) -> bool:
    """Return True if ``asked`` is ``path`` or below it (RFC 6265, 5.1.4)."""
    return asked == path or (asked.startswith(path) and (path.endswith("/") or asked[len(path) : len(path) + 1] == "/"))


def domain_matches(host: str, domain: str) -> bool:
    """Return True if ``host`` is ``domain`` or below it (RFC 6265, 5.1.3)."""
    return host == domain or host.endswith("." + domain)


def parse_set_cookie(
    text: str,
    target: RequestUrl,
    now_utc: datetime,
    is_public_suffix: Callable[[str], bool],
    *,
    is_browsers: bool = True,
) -> Cookie | None:
    """Return the cookie of a ``Set-Cookie`` header; None if the cookie is refused.

    Args:
        text: The header's value.
        target: The URL of the request.
        now_utc: The wall time, at which ``Max-Age`` starts.
        is_public_suffix: Returns True for a domain below which many parties register names (``co.uk``).
        is_browsers: True to refuse the same cookies as browsers: ``Secure`` cookies over plain http, and cookies that
            break the rules of their name prefix.
    """
    pair, *parts = text.split(";")
    name, equals, value = pair.partition("=")
    name, value = (name.strip(" \t"), value.strip(" \t")) if equals else ("", name.strip(" \t"))
    if not (name or value) or _CONTROL.search(text) or is_too_long(name, value):
        return None
    attributes = _attributes(parts)
    is_secure = "secure" in attributes
    domain = cookie_domain(attributes.get("domain", ""), target, is_public_suffix)
    if domain is None or (is_browsers and is_secure and not target.is_secure):
        return None
    path, same_site = attributes.get("path", ""), attributes.get("samesite", "").lower()
    cookie = Cookie(
        name,
        value,
        domain or target.host,
        path if path.startswith("/") else target.default_path,
        is_host_only=not domain,
        is_secure=is_secure,
        expires_utc=_expiry(attributes, now_utc),
        is_http_only="httponly" in attributes,
        same_site=same_site if same_site in {"strict", "lax", "none"} else "",  # 6265bis, 5.6.7
    )
    return cookie if not is_browsers or _meets_prefix(cookie, attributes) else None


_CHECKS: Mapping[str, Callable[[str], object]] = {"expires": parse_cookie_date, "max-age": _MAX_AGE.fullmatch}


def _attributes(parts: list[str]) -> dict[str, str]:
    """Return the attributes by lower-case name. A repeated attribute has its last valid value (6265bis, 5.6)."""
    attributes: dict[str, str] = {}
    for part in parts:
        name, _, value = part.partition("=")
        name, value = name.strip(" \t").lower(), value.strip(" \t")
        check = _CHECKS.get(name) if name in attributes else None
        if len(value) <= MAX_ATTRIBUTE_BYTES and (check is None or check(value) is not None):
            attributes[name] = value
    return attributes


def is_too_long(name: str, value: str) -> bool:
    """Return True if a cookie is refused for its size (6265bis, 5.6)."""
    return len(field_bytes(name + value)) > MAX_BYTES


def cookie_domain(
    written: str, target: RequestUrl, is_public_suffix: Callable[[str], bool], *, takes_foreign: bool = False
) -> str | None:
    """Return a cookie's domain; "" for this host only, None if the cookie is refused (RFC 6265, 5.3, 5 and 6).

    A request's own cookie may be for another site. With ``takes_foreign``, only public suffixes are refused.
    """
    domain = written.removeprefix(".").lower()
    if not domain or domain == target.host:
        return "" if not domain or target.is_address or is_public_suffix(domain) else domain
    is_foreign = target.is_address or not domain_matches(target.host, domain)
    return None if (is_foreign and not takes_foreign) or is_public_suffix(domain) else domain


def _expiry(attributes: dict[str, str], now_utc: datetime) -> datetime | None:
    """Return the time of expiry. ``Max-Age`` overrides ``Expires`` (RFC 6265, 5.3, 3)."""
    latest = now_utc + timedelta(seconds=MAX_SECONDS)
    max_age = attributes.get("max-age", "")
    if _MAX_AGE.fullmatch(max_age):
        seconds = int(max_age[:15])
        return now_utc if seconds <= 0 else min(latest, now_utc + timedelta(seconds=min(seconds, MAX_SECONDS)))
    moment = parse_cookie_date(attributes["expires"]) if "expires" in attributes else None
    return None if moment is None else min(moment, latest)


def _meets_prefix(cookie: Cookie, attributes: dict[str, str]) -> bool:
    """Return False if a ``__Host-`` or ``__Secure-`` cookie breaks its rules (6265bis, 4.1.3 and 5.7, 20 to 22).

    If a cookie has no name, its value counts as the name, because a ``Cookie`` header does not show the difference.
    """
    name = (cookie.name or cookie.value).lower()
    if not name.startswith(("__host-", "__secure-")):
        return True
    if not cookie.name or not cookie.is_secure:
        return False
    return name.startswith("__secure-") or (cookie.is_host_only and attributes.get("path") == "/")


NETSCAPE_HEADER = "# Netscape HTTP Cookie File"  # curl and http.cookiejar recognize the format by this line
_HTTP_ONLY = "#HttpOnly_"


def is_netscape(path: str) -> bool:
    """Return True if a file name ends in ``.txt``, as ``cookies.txt`` does."""
    return path.lower().endswith(".txt")


class _JsonCookie(msgspec.Struct, omit_defaults=True):
    name: str
    value: str
    domain: str
    path: str
    host_only: bool
    secure: bool
    expires: float | None
    http_only: bool = False
    same_site: str = ""


class _JsonJar(msgspec.Struct):
    name: str | int | bool | None
    cookies: list[_JsonCookie]


class _JsonFile(msgspec.Struct):
    trawl_cookies: int  # the version of the format
    jars: list[_JsonJar]


def to_json(jars: Jars, now_utc: datetime) -> bytes:
    """Return all jars as JSON. A jar is left out unless its name is a string, a number or None."""
    written = []
    for name, jar in jars.items():
        saved = [_json_cookie(cookie) for cookie in jar if not cookie.is_expired(now_utc)]
        if saved and (name is None or isinstance(name, str | int)):
            written.append(_JsonJar(name, saved))
    return msgspec.json.format(msgspec.json.encode(_JsonFile(1, written)), indent=1) + b"\n"


def from_json(text: bytes) -> Iterator[tuple[Hashable, Cookie]]:
    """Yield the cookies of a JSON file, each with the name of its jar.

    Raises:
        ValueError: If ``text`` is not a JSON file of cookies.
    """
    try:
        read = msgspec.json.decode(text, type=_JsonFile)
    except (msgspec.DecodeError, UnicodeError) as error:
        is_json = isinstance(error, msgspec.ValidationError)
        what = "its JSON has another structure" if is_json else "not JSON"
        raise ValueError(f"it is not a file of cookies: {what}: {error}") from error
    if read.trawl_cookies != 1:
        raise ValueError(f"it is of version {read.trawl_cookies}, and only 1 is known")
    for jar in read.jars:
        for each in jar.cookies:
            expires_utc = None if each.expires is None else _moment(int(each.expires))
            place = each.domain, each.path, each.host_only, each.secure
            yield jar.name, Cookie(each.name, each.value, *place, expires_utc, each.http_only, each.same_site)


def _json_cookie(cookie: Cookie) -> _JsonCookie:
    expires = None if cookie.expires_utc is None else cookie.expires_utc.timestamp()
    place = cookie.domain, cookie.path, cookie.is_host_only, cookie.is_secure
    return _JsonCookie(cookie.name, cookie.value, *place, expires, cookie.is_http_only, cookie.same_site)


def to_netscape(cookies: Iterable[Cookie], now_utc: datetime) -> bytes:
    """Return one jar as a ``cookies.txt``, without cookies that contain a tab or line break."""
    lines = [NETSCAPE_HEADER, ""]
    for cookie in cookies:
        if cookie.is_expired(now_utc):
            continue
        expires = 0 if cookie.expires_utc is None else int(cookie.expires_utc.timestamp())
        domain = cookie.domain if cookie.is_host_only else f".{cookie.domain}"
        flags = str(not cookie.is_host_only).upper(), cookie.path, str(cookie.is_secure).upper(), str(expires)
        fields = (f"{_HTTP_ONLY}{domain}" if cookie.is_http_only else domain, *flags, cookie.name, cookie.value)
        if not any(character in field for field in fields for character in "\t\r\n"):
            lines.append("\t".join(fields))
    return b"".join(field_bytes(line) + b"\n" for line in lines)


def from_netscape(text: bytes) -> Iterator[Cookie]:
    """Yield the cookies of a ``cookies.txt``.

    Raises:
        ValueError: If a line does not have seven fields.
    """
    # Decode each line as Latin-1, because each character of a cookie stands for one byte of its header.
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.decode("latin-1")
        is_http_only = line.startswith(_HTTP_ONLY)
        line = line.removeprefix(_HTTP_ONLY)
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) == 6:
            fields.append("")  # wget omits the tab before an empty value
        if len(fields) != 7 or not fields[4].strip().lstrip("-").isdigit():
            raise ValueError(f"line {number} does not have the seven fields, between tabs, of a cookies.txt")
        domain, below, path, secure, expires, name, value = fields
        yield Cookie(
            name,
            value,
            domain.removeprefix(".").lower(),
            path or "/",
            is_host_only=below.upper() != "TRUE",
            is_secure=secure.upper() == "TRUE",
            expires_utc=_moment(int(expires)) if int(expires) > 0 else None,
            is_http_only=is_http_only,
        )


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(min(seconds, 253_402_300_799), UTC)  # the last second of the year 9999
