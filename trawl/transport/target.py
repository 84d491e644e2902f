"""A request's URL and fields, taken apart as HTTP/1.1 writes them (RFC 9112, 3)."""

from __future__ import annotations

import re
from base64 import b64encode
from urllib.parse import unquote_to_bytes

import attrs

from trawl.errors import RequestInvalid
from trawl.http import Request

__all__ = ["Target", "wire_fields"]

DEFAULT_PORTS = {"http": 80, "https": 443}

_FRAMING = frozenset({"content-length", "transfer-encoding", "host", "proxy-authorization"})
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9\-._~%!$&'()*+,;=]*)(:[0-9]*)?")  # RFC 9112, 3.2
_BODY_EXPECTED = frozenset({"POST", "PUT", "PATCH"})  # RFC 9110, 8.6


@attrs.frozen
class Target:
    """Where a request goes and what it asks for there.

    Attributes:
        scheme: ``"http"`` or ``"https"``.
        host: Without brackets.
        port: Always known.
        authority: What the ``Host`` field says: the host, with the port if it is not the scheme's own.
        path: The path and query, in ASCII.
        user_info: What stood before the ``@``; empty if nothing did.
    """

    scheme: str
    host: str
    port: int
    authority: str
    path: str
    user_info: str = ""

    @classmethod
    def of(cls, url: str) -> Target:
        """Take an ``http`` or ``https`` URL in normal form apart."""
        scheme, _, rest = url.partition("#")[0].partition("://")
        authority, slash, path = rest.partition("/")
        user_info, _, authority = authority.rpartition("@")
        host, colon, port = authority.rpartition(":")
        if not colon or port.endswith("]"):
            host, port = authority, ""
        number = int(port) if port else DEFAULT_PORTS[scheme]
        return cls(scheme, host.strip("[]"), number, authority, slash + path or "/", user_info)


def wire_fields(request: Request, target: Target, accept_encoding: str | None) -> list[tuple[bytes, bytes]]:
    """The fields as they are sent: the request's own, with those that the connection needs.

    ``Host`` comes first (RFC 9110, 7.2). Lengths are ours to say: what the request has of them is left out. The URL's
    user info becomes ``Authorization: Basic`` (RFC 7617) unless the request has a field of that name.

    Raises:
        RequestInvalid: The request's own ``Host`` is no host and port.
    """
    headers = request.headers.copy()
    if accept_encoding is not None:
        headers.setdefault("Accept-Encoding", accept_encoding)
    if target.user_info:
        headers.setdefault("Authorization", "Basic " + _basic(target.user_info))
    host = headers.get("Host") or target.authority
    if not _HOST.fullmatch(host):
        raise RequestInvalid(f"its Host field {host!r} is no host and port in ASCII")
    fields = [(b"Host", host.encode("ascii"))]
    fields += [field for field in headers.to_wire() if field[0].lower().decode("latin-1") not in _FRAMING]
    if request.body or request.method in _BODY_EXPECTED:
        fields.append((b"Content-Length", str(len(request.body)).encode()))
    return fields


def _basic(user_info: str) -> str:
    user, _, password = user_info.partition(":")
    return b64encode(unquote_to_bytes(user) + b":" + unquote_to_bytes(password)).decode()
