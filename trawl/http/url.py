"""URLs with the rules of browsers (WHATWG URL), and the parts that a crawler needs.

Theory of operation: a URL is parsed once, by ada, when a request is created or a link is joined. The result is in
*normal form*: lower-case scheme and host, IDN in ASCII, dots in paths resolved, no default port, user info and path
percent-encoded. All other functions here take a URL in normal form and only split the string.

HTML forms are encoded as ``application/x-www-form-urlencoded`` (WHATWG URL, 5.2).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv6Address
from urllib.parse import quote_plus, unquote_to_bytes

import ada_url

from trawl.passwords import without_passwords

__all__ = [
    "FETCHED_SCHEMES",
    "Field",
    "Fields",
    "canonicalize_url",
    "encode_form",
    "host_of",
    "host_scope",
    "is_in_domains",
    "is_joinable",
    "join_url",
    "lacks_path",
    "normalize_domain",
    "normalize_url",
    "origin_of",
    "scheme_of",
    "sorted_url",
    "values_of",
    "without_fragment",
]

Field = str | bytes | int | float | Iterable[str | bytes | int | float]
"""The value or values of one name."""

Fields = Mapping[str, Field] | Iterable[tuple[str, Field]]
"""The fields of a form, in order."""

_LINE_END = re.compile(r"\r\n|\r|\n")


def encode_form(fields: Fields) -> str:
    """Return ``fields`` as the body of a form, in UTF-8, with line breaks as CR LF (HTML, 4.10.21.4)."""
    pairs = fields.items() if isinstance(fields, Mapping) else fields
    return "&".join(f"{_quoted(name)}={_quoted(value)}" for name, held in pairs for value in values_of(held))


def values_of(held: Field) -> Iterable[str | bytes | int | float]:
    """Return the values of a name as an iterable, even if there is only one value."""
    return (held,) if isinstance(held, str | bytes | int | float) else held


def _quoted(value: str | bytes | int | float) -> str:
    if isinstance(value, bytes):
        return quote_plus(value, safe="*").replace("~", "%7E")
    return quote_plus(_LINE_END.sub("\r\n", str(value)), safe="*").replace("~", "%7E")


_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"

_NORMAL = re.compile(
    r"https?://"
    rf"(?:(?:[a-z0-9]+(?:-[a-z0-9]+)*\.)*[a-z][a-z0-9]*(?:-[a-z0-9]+)*|(?:{_OCTET}\.){{3}}{_OCTET})"
    r"(?::[1-9]\d{3}|:[1-5]\d{4})?"
    r"(?:/[A-Za-z0-9_~-][A-Za-z0-9_~.-]*|/)+"
    r"(?:\?[A-Za-z0-9_~.=&+%,;:/@!*()-]*)?",
    re.ASCII,
)
"""Matches URLs that are in normal form. Matching is much faster than parsing, and most URLs match."""

_PAGE = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9_~.-]*+")
"""Matches the end of a path that needs no encoding, and is neither ``.`` nor ``..``."""

_PLAIN = re.compile(r"(?:(?:/?[A-Za-z0-9_~-][A-Za-z0-9_~.-]*+)++/?|/)(?:\?[A-Za-z0-9_~.=&+%,;-]*)?")
"""Matches a path, with or without a query, that needs no encoding, and has no ``/.``, ``//``, scheme or fragment."""

_NAME = r"[A-Za-z0-9_.~-]++"
_VALUE = (  # percent-encoded characters are allowed if every query encodes them
    r"[A-Za-z0-9_.~+-]*+(?:%(?:[189A-F][0-9A-F]|0[0-9A-F]|2[1-9A-CF]|3[A-F]|40|5[BCDE]|60|7[BCDF])[A-Za-z0-9_.~+-]*+)*+"
)
_PATH = r"[A-Za-z0-9_~!$&'()*+,=:@/.-]*+(?:%[89A-F][0-9A-F][A-Za-z0-9_~!$&'()*+,=:@/.-]*+)*+"

_CANONICAL = re.compile(
    rf"https?://[a-z0-9.-]++(?::\d++)?/{_PATH}(?:\?{_NAME}={_VALUE}(?:&{_NAME}={_VALUE})*+)?", re.ASCII
)
"""Matches most URLs that are canonical except for the order of their arguments. w3lib takes ten times as long."""

_BASES = 256
"""Number of cached base URLs in normal form. A page's links are joined one after another, so a small cache suffices."""

_LINKS = 16_384
"""Number of cached joined links. The key is the folder of the page with the link. They take about 4 MB."""

_HTTP = ("http://", "https://")
"""Starts of URLs with a path, so that a slash follows at the ninth character or later (or none, in moved crawls)."""

_WITHOUT_PATH = re.compile(r"\s*(?:https?:)?//[^/?#\\\s]+\s*", re.IGNORECASE)

_HOSTS = 256
"""Number of cached origins and scopes. The key is the start of the URL, up to the path."""

FETCHED_SCHEMES = frozenset({"http", "https"})
"""The schemes that are fetched. A request with another scheme is dropped and counted when it is scheduled."""


def normalize_url(url: str) -> str:
    """Return the normal form of an absolute ``url`` of any scheme (WHATWG URL, 4.4 and 4.5).

    Raises:
        ValueError: If ``url`` is relative or can't be parsed. The message contains ``url``.
        TypeError: If ``url`` is not a str.
    """
    try:
        if type(url) is str and _is_normal(url):  # not a string from lxml, which keeps its page alive
            return url
        return ada_url.normalize_url(url)
    except (ValueError, AttributeError, TypeError):
        _check_text(url)
        raise ValueError(without_passwords(_complaint(url))) from None


def join_url(base: str, url: str) -> str:
    """Return the normal form of ``url`` as a link on a page whose base URL is ``base``.

    White space around ``url``, and tabs and line breaks inside it, are removed, as in browsers.

    Raises:
        ValueError: If the result is not a valid URL. The message contains the link.
        TypeError: If ``base`` or ``url`` is not a str.
    """
    try:
        folder = _folder_of(base)
        if folder and type(url) is str and (joined := _joined(folder, url)):  # not a string from lxml
            return joined
        return ada_url.join_url(base, url)
    except (ValueError, AttributeError, TypeError):
        _check_text(url)
        _check_text(base)
        raise ValueError(without_passwords(f"the link {url!r} on {base!r} is not a valid URL")) from None


@lru_cache(maxsize=_LINKS)
def _joined(folder: str, url: str) -> str:
    """Return a link joined by concatenation, in a third of the time of parsing; "" if the link needs parsing.

    A link needs parsing if it has dots, a second slash, a character to encode, or another origin.
    """
    root = folder[: folder.find("/", len("https://"))]
    start = len(root) if url.startswith(root) else 0
    if _PLAIN.fullmatch(url, start):
        if url[start] == "/":
            return root + url[start:]
        if start == 0:
            return folder + url
    return ""


@lru_cache(maxsize=_BASES)
def _folder_of(base: str) -> str:
    """Return the folder of ``base`` in normal form, up to the last slash of its path; "" if it is not http or https."""
    normal = base if _is_normal(base) else ada_url.normalize_url(base)
    if not normal.startswith(("http://", "https://")):
        return ""
    path = normal.partition("#")[0].partition("?")[0]
    return path[: path.rfind("/") + 1]


def _is_normal(url: str) -> bool:
    """Return whether ``url`` is certainly in normal form. Fast if another URL in the same folder was checked before."""
    end = url.rfind("/") + 1
    if _PAGE.fullmatch(url, end) and _is_normal_folder(url[:end]):
        return True
    return _NORMAL.fullmatch(url) is not None


@lru_cache(maxsize=_BASES)
def _is_normal_folder(url: str) -> bool:
    return _NORMAL.fullmatch(url) is not None


def is_joinable(base: str, url: str) -> bool:
    """Return whether ``url`` is a valid link on a page whose base URL is ``base``."""
    return ada_url.URL.can_parse(url, base)


def _check_text(url: object) -> None:
    if not isinstance(url, str):
        raise TypeError(f"a URL must be a str, not {type(url).__name__}: {url!r}") from None


def _complaint(url: str) -> str:
    """Return an error message for a URL that can't be parsed, with a suggestion."""
    if "://" in url or url.startswith(("http:", "https:")):
        return f"{url!r} is not a valid URL"
    if url.startswith("//"):
        return f"{url!r} is not an absolute URL: did you mean {'https:' + url!r}?"
    host = url.split("/", 1)[0]
    if "." in host.strip(".") and " " not in host:
        return f"{url!r} is not an absolute URL: did you mean {'https://' + url!r}?"
    return f"{url!r} is not an absolute URL: a scheme such as 'https://' is missing"


def scheme_of(url: str) -> str:
    """Return the scheme of a ``url`` in normal form, in lower case, without the colon."""
    return url[: url.find(":")]


def _authority(url: str) -> str:
    """Return ``host[:port]`` of a ``url`` in normal form, without user info; "" if it has none (``mailto:``)."""
    start = url.find(":") + 1
    if not url.startswith("//", start):
        return ""
    start += 2
    end = url.find("/", start)
    authority = url[start:] if end < 0 else url[start:end]
    if "?" in authority or "#" in authority:  # no path, as is possible if browsers don't know the scheme
        authority = authority.partition("?")[0].partition("#")[0]
    if "@" in authority:  # in normal form, an @ inside user info is %40
        authority = authority.rpartition("@")[2]
    return authority


def host_of(url: str) -> str:
    """Return the host of a ``url`` in normal form, without the port, with IPv6 in brackets; "" if it has none."""
    authority = _authority(url)
    if authority.endswith("]"):
        return authority
    return authority.rpartition(":")[0].lower() if ":" in authority else authority.lower()


def origin_of(url: str) -> str:
    """Return the origin of a ``url`` in normal form, such as ``https://a.example:8443`` (RFC 6454, 6.2).

    The default port is left out. For a URL without a host (``mailto:``, ``data:``), the result is the scheme and a
    colon.
    """
    end = url.find("/", 8) if url.startswith(_HTTP) else -1
    return _origin_of(url if end < 0 else url[:end])


@lru_cache(maxsize=_HOSTS)
def _origin_of(url: str) -> str:
    authority = _authority(url)
    return f"{scheme_of(url)}://{authority}" if authority else f"{scheme_of(url)}:"


def host_scope(url: str) -> str:
    """Return the default throttling scope of a ``url`` in normal form.

    The scope is the host in lower case. IDN is in ASCII, and IPv6 is in brackets. User info and a trailing dot are left
    out. ``:port`` is appended if the port is not the scheme's default. So ``http`` and ``https`` URLs of a host share
    one scope. An IPv4 address and its IPv4-mapped IPv6 address share one scope too (RFC 4291, 2.5.5.2).
    """
    end = url.find("/", 8) if url.startswith(_HTTP) else -1
    return _host_scope(url if end < 0 else url[:end])


@lru_cache(maxsize=_HOSTS)
def _host_scope(url: str) -> str:
    scope = _authority(url).lower()
    if scope.startswith("[::ffff:"):
        host, _, port = scope[1:].partition("]")
        carried = IPv6Address(host).ipv4_mapped
        return scope if carried is None else f"{carried}{port}"
    if scope.endswith("."):
        return scope.rstrip(".")
    if ".:" in scope:
        host, _, port = scope.rpartition(":")
        return f"{host.rstrip('.')}:{port}"
    return scope


def lacks_path(url: str) -> bool:
    """Return whether a ``url`` was written without a path: ``http://a.example`` or ``//a.example``."""
    return _WITHOUT_PATH.fullmatch(url) is not None


def without_fragment(url: str) -> str:
    """Return a ``url`` without its fragment, as in a response (Fetch, 2.2.6)."""
    return url.partition("#")[0] if "#" in url else url


def sorted_url(url: str) -> str:
    """Return the canonical form of a ``url`` in normal form, by w3lib's rules and without its fragment.

    Arguments are sorted by name, then by value, and each has a ``=``. Empty arguments are left out, and a space becomes
    ``+``. Unnecessary percent-encoding is decoded, and the remaining percent-encoding is in upper case.
    """
    if "#" in url:
        url = url.partition("#")[0]
    if _CANONICAL.fullmatch(url) is None:
        from w3lib.url import canonicalize_url as canonical  # noqa: PLC0415 - few URLs need it, and it is large

        return canonical(url)
    if "&" not in url:
        return url
    path, mark, query = url.partition("?")
    if "&" not in query:
        return url
    arguments = query.split("&")
    arguments.sort(key=_name_and_value)
    return f"{path}{mark}{'&'.join(arguments)}"


def _name_and_value(argument: str) -> tuple[str, str]:
    """Return the decoded name and value of an argument, one character per byte, which w3lib uses as the sort key."""
    name, _, value = argument.partition("=")
    if "%" in value or "+" in value:
        value = unquote_to_bytes(value.replace("+", " ")).decode("latin-1")
    return name, value


def canonicalize_url(url: str) -> str:
    """Return a form that is equal for different spellings of one URL, by the rules of ``w3lib.url``.

    The result is in normal form without a fragment, with sorted arguments and uniform percent-encoding.

    Raises:
        ValueError: If ``url`` is relative or can't be parsed.
    """
    return sorted_url(normalize_url(url))


def normalize_domain(name: str) -> str:
    """Return a domain in the form of hosts in a normalized URL. A dot in front of it has no meaning.

    Raises:
        ValueError: If ``name`` is a URL, has a port or is no host name.
    """
    plain = name.strip().strip(".")
    if "/" in plain or (":" in plain and not plain.startswith("[")):
        raise ValueError(f"not a domain: {name!r}")
    return host_of(normalize_url(f"http://{plain}/"))


def is_in_domains(host: str, domains: Collection[str]) -> bool:
    """Return True if a host is one of the ``domains``, or a subdomain of one.

    Args:
        host: The host of a normalized URL.
        domains: Domains in normal form. A set is faster.
    """
    host = host.removesuffix(".")
    while host not in domains:
        _, dot, host = host.partition(".")
        if not dot:
            return False
    return True
