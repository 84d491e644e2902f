"""Parsed proxy URLs, and proxies from environment variables. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import unquote_to_bytes, urlsplit

import attrs

from trawl.http import host_of, scheme_of

__all__ = ["EnvironmentProxies", "Proxy"]

_PORTS = {"http": 80, "https": 443, "socks5": 1080}
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


@attrs.frozen
class Proxy:
    """A parsed proxy URL. The proxy always looks up host names.

    The scheme is ``"http"``, ``"https"`` (TLS up to the proxy) or ``"socks5"``, and the host has no brackets.
    """

    scheme: str
    host: str
    port: int
    credentials: tuple[bytes, bytes] | None = attrs.field(default=None, repr=False)

    @classmethod
    def of(cls, url: str) -> Proxy:
        """Parse ``http://user:password@host:port``. The default scheme is ``http``, and ``socks5h`` means ``socks5``.

        Raises ValueError if ``url`` is not a proxy URL. The message omits the credentials.
        """
        parts = urlsplit(url.strip() if _SCHEME.match(url.strip()) else f"http://{url.strip()}")
        scheme = "socks5" if parts.scheme in {"socks5h", "socks"} else parts.scheme
        if scheme not in _PORTS:
            raise ValueError(f"a proxy's scheme must be http, https, socks5 or socks5h, not {parts.scheme!r}")
        shown = parts.netloc.rpartition("@")[2]
        try:
            host, port = parts.hostname or "", parts.port
            host.encode("ascii")
        except ValueError:
            raise ValueError(f"{shown!r} is not a host and port of a proxy") from None
        if not host or re.search(r"[\s/\\<>^|%]", host):
            raise ValueError(f"{shown!r} is not a host and port of a proxy")
        credentials = None
        if parts.username is not None:
            credentials = unquote_to_bytes(parts.username), unquote_to_bytes(parts.password or "")
        return cls(scheme, host, port or _PORTS[scheme], credentials)

    def __str__(self) -> str:
        """Return scheme, host and port; never the credentials."""
        return f"{self.scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


@attrs.frozen
class EnvironmentProxies:
    """The proxies named by environment variables, with the rules of curl and Python's urllib.

    The key ``"all"`` of ``by_scheme`` applies to schemes that are not listed. ``exceptions`` are the entries of
    ``no_proxy``.
    """

    by_scheme: Mapping[str, str] = attrs.Factory(dict)
    exceptions: tuple[str, ...] = ()

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> EnvironmentProxies:
        """Read ``http_proxy``, ``https_proxy``, ``all_proxy`` and ``no_proxy``; lower case overrides upper case.

        In a CGI program, ``HTTP_PROXY`` in upper case is ignored, because a client can set it with the header
        ``Proxy``.
        """
        found: dict[str, str] = {}
        for scheme in ("http", "https", "all", "no"):
            is_safe = scheme != "http" or "REQUEST_METHOD" not in environ
            upper = environ.get(f"{scheme.upper()}_PROXY", "") if is_safe else ""
            value = environ.get(f"{scheme}_proxy", upper).strip()
            if value:
                found[scheme] = value
        entries = re.split(r"[,\s]+", found.pop("no", ""))
        return cls(found, tuple(entry.lower() for entry in entries if entry))

    def proxy_for(self, url: str) -> str | None:
        """Return the proxy for ``url``, a URL in normal form; None if it needs no proxy."""
        proxy = self.by_scheme.get(scheme_of(url)) or self.by_scheme.get("all")
        return None if proxy is None or self._is_excepted(url) else proxy

    def _is_excepted(self, url: str) -> bool:
        host = host_of(url).strip("[]").rstrip(".")
        authority = url.partition("://")[2].partition("/")[0].rpartition("@")[2]
        _, colon, port = authority.rpartition(":")
        if not colon or port.endswith("]"):
            port = {"http": "80", "https": "443"}.get(scheme_of(url), "")
        return any(_excepts(entry, host, port) for entry in self.exceptions)


def _excepts(entry: str, host: str, port: str) -> bool:
    """Return whether an entry of ``no_proxy`` matches: a domain with its subdomains, an address, a network or ``*``."""
    if entry == "*":
        return True
    name, colon, wanted = entry.rpartition(":")
    if colon and wanted.isdecimal() and (":" not in name or name.endswith("]")):
        if wanted != port:
            return False
        entry = name
    entry = entry.strip("[]").removeprefix("*").strip(".")
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:
        return bool(entry) and (host == entry or host.endswith(f".{entry}"))
