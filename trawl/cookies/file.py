"""Files of cookies: JSON, which holds every jar, or the ``cookies.txt`` that browsers, curl and wget exchange.

``cookies.txt`` has one jar only, hence the format of our own. Expired cookies are left out. Session cookies are saved:
logins consist of them. Such a file is as secret as a password. Public through :mod:`trawl.cookies`, its only importer.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from trawl.cookies.cookie import Cookie
from trawl.cookies.jars import Jars

__all__ = ["from_json", "from_netscape", "is_netscape", "to_json", "to_netscape"]

NETSCAPE_HEADER = "# Netscape HTTP Cookie File"  # by which curl and Python's http.cookiejar recognize the format
_HTTP_ONLY = "#HttpOnly_"
_SAVED_NAMES = (str, int, type(None))


def is_netscape(path: str) -> bool:
    """Return True if a file of this name is a ``cookies.txt``: it ends in ``.txt``."""
    return path.lower().endswith(".txt")


def to_json(jars: Jars, now_utc: datetime) -> bytes:
    """Return every jar as JSON: a list of objects with ``name`` (a string, a number or null) and ``cookies``.

    Jars with other names can't be written and are left out.
    """
    written = [
        {"name": name, "cookies": [_as_object(cookie) for cookie in kept]}
        for name, jar in jars.items()
        if isinstance(name, _SAVED_NAMES) and (kept := [each for each in jar if not each.is_expired(now_utc)])
    ]
    return msgspec.json.format(msgspec.json.encode({"trawl_cookies": 1, "jars": written}), indent=1) + b"\n"


def from_json(text: bytes) -> Iterator[tuple[Hashable, Cookie]]:
    """Yield the cookies of a JSON file, each with the name of its jar.

    Raises:
        ValueError: It is not such a file.
    """
    try:
        read: Any = msgspec.json.decode(text)
        if read["trawl_cookies"] != 1:
            raise ValueError(f"it is of version {read['trawl_cookies']!r}, and only 1 is known")
        for jar in read["jars"]:
            for each in jar["cookies"]:
                yield jar["name"], _from_object(each)
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, UnicodeError) as error:
        why = f"not JSON: {error}" if isinstance(error, msgspec.DecodeError) else "its JSON has another structure"
        raise ValueError(f"it is not a file of cookies: {why}") from error


def to_netscape(cookies: Iterable[Cookie], now_utc: datetime) -> bytes:
    """Return one jar as a ``cookies.txt``, without cookies that contain a tab or line end."""
    lines = [NETSCAPE_HEADER, ""]
    for cookie in cookies:
        if cookie.is_expired(now_utc):
            continue
        expires = 0 if cookie.expires_utc is None else int(cookie.expires_utc.timestamp())
        domain = cookie.domain if cookie.is_host_only else f".{cookie.domain}"
        flags = _flag(not cookie.is_host_only), cookie.path, _flag(cookie.is_secure), str(expires)
        fields = (domain, *flags, cookie.name, cookie.value)
        if not any(character in field for field in fields for character in "\t\r\n"):
            lines.append("\t".join(fields))
    return ("\n".join(lines) + "\n").encode()


def from_netscape(text: bytes) -> Iterator[Cookie]:
    """Yield the cookies of a ``cookies.txt``.

    Raises:
        ValueError: A line does not have seven fields.
    """
    for number, line in enumerate(text.decode("utf-8", "surrogateescape").splitlines(), 1):
        if line.startswith(_HTTP_ONLY):
            line = line[len(_HTTP_ONLY) :]  # noqa: PLW2901
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
        )


def _flag(is_so: bool) -> str:
    return "TRUE" if is_so else "FALSE"


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(min(seconds, 253_402_300_799), UTC)  # the last second of the year 9999


def _as_object(cookie: Cookie) -> dict[str, object]:
    expires = None if cookie.expires_utc is None else cookie.expires_utc.timestamp()
    return {
        "name": cookie.name,
        "value": cookie.value,
        "domain": cookie.domain,
        "path": cookie.path,
        "host_only": cookie.is_host_only,
        "secure": cookie.is_secure,
        "expires": expires,
    }


def _from_object(each: Any) -> Cookie:
    name, value, domain, path = texts = [each[key] for key in ("name", "value", "domain", "path")]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a cookie's name, value, domain and path are strings")
    expires = each["expires"]
    return Cookie(
        name,
        value,
        domain,
        path,
        is_host_only=bool(each["host_only"]),
        is_secure=bool(each["secure"]),
        expires_utc=None if expires is None else _moment(int(expires)),
    )
