"""A request in the form of HTTP/1.1: its target and the headers before its body (RFC 9112, 3 and 5)."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

import attrs

from trawl.errors import RequestInvalid
from trawl.http import Headers, Request

if TYPE_CHECKING:
    from trawl.transport.http11.pool import Origin

__all__ = ["Message", "ParsedUrl", "head_bytes", "message_of", "wire_fields"]

DEFAULT_PORTS = {"http": 80, "https": 443}

_FRAMING = frozenset({"content-length", "transfer-encoding", "host", "proxy-authorization"})
_UNUSUAL = frozenset({"host", "connection", "expect"})
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9\-._~%!$&'()*+,;=]*)(:[0-9]*)?")  # RFC 9112, 3.2
_BODY_EXPECTED = frozenset({"POST", "PUT", "PATCH"})  # RFC 9110, 8.6


@attrs.frozen
class ParsedUrl:
    """The parts of a request's URL (RFC 9112, 3.2).

    ``host`` has no brackets. ``authority`` is the value of ``Host``: the host, with the port unless it is the scheme's
    default. ``path`` has the query, in ASCII. ``user_info`` is the part before the ``@``.
    """

    scheme: str
    host: str
    port: int
    authority: str
    path: str
    user_info: str = ""

    @classmethod
    def of(cls, url: str) -> ParsedUrl:
        """Parse an ``http`` or ``https`` URL in normal form."""
        scheme, _, rest = url.partition("#")[0].partition("://")
        authority, slash, path = rest.partition("/")
        user_info, _, authority = authority.rpartition("@")
        host, colon, port = authority.rpartition(":")
        if not colon or port.endswith("]"):
            host, port = authority, ""
        number = int(port) if port else DEFAULT_PORTS[scheme]
        return cls(scheme, host.strip("[]"), number, authority, slash + path or "/", user_info)


def wire_fields(request: Request, parsed: ParsedUrl, accept_encoding: str | None) -> list[tuple[bytes, bytes]]:
    """Return the headers to send: the request's own headers, and the headers that the connection needs.

    ``Host`` comes first (RFC 9110, 7.2). The body's length is set here, whatever the request sets itself. The URL's
    user info becomes ``Authorization: Basic`` (RFC 7617) unless the request has this header.
    """
    headers = request.headers.copy()
    if accept_encoding is not None:
        headers.setdefault("Accept-Encoding", accept_encoding)
    if parsed.user_info:
        headers.setdefault("Authorization", "Basic " + _basic(parsed.user_info))
    host = headers.get("Host") or parsed.authority
    if not _HOST.fullmatch(host):
        raise RequestInvalid(f"its Host header {host!r} is not a host and port in ASCII")
    fields = [(b"Host", host.encode("ascii"))]
    fields += [field for field in headers.to_wire() if field[0].lower().decode("latin-1") not in _FRAMING]
    if request.body or request.method in _BODY_EXPECTED:
        fields.append((b"Content-Length", str(len(request.body)).encode()))
    return fields


def _basic(user_info: str) -> str:
    user, _, password = user_info.partition(":")
    return b64encode(unquote_to_bytes(user) + b":" + unquote_to_bytes(password)).decode()


@attrs.define
class Message:
    """A request ready to be sent: ``head`` has all bytes before the body.

    With ``is_last``, it asks the server to close the connection; with ``expects``, it has ``Expect: 100-continue`` (RFC
    9110, 10.1.1).
    """

    head: bytes
    is_last: bool = False
    expects: bool = False


def message_of(request: Request, origin: Origin, defaults: Headers | None) -> Message:
    """Return ``request`` as a message. It has the headers of :func:`wire_fields`, but is created faster.

    ``defaults`` are headers to add unless the request has or disables them.
    """
    parsed = origin.parsed
    headers = request.headers
    if parsed.user_info or headers.has_any(_UNUSUAL):
        return _unusual_message(request, defaults)
    path = request.url[len(origin.url) :]
    if "#" in path:
        path = path.partition("#")[0]
    length = f"Content-Length: {len(request.body)}\r\n" if request.body or request.method in _BODY_EXPECTED else ""
    fields = headers.lines(defaults, without=_FRAMING)
    try:
        head = f"{request.method} {path or '/'} HTTP/1.1\r\nHost: {parsed.authority}\r\n{fields}{length}\r\n".encode(
            "latin-1"
        )
    # A header has characters outside of Latin-1, which only the slower function can encode.
    except UnicodeEncodeError:
        return _unusual_message(request, defaults)
    return Message(head)


def _unusual_message(request: Request, defaults: Headers | None) -> Message:
    parsed, headers = ParsedUrl.of(request.url), request.headers.copy()
    if defaults is not None:
        headers.fill(defaults)
    fields = wire_fields(request.replace(headers=headers), parsed, None)
    return Message(
        head_bytes(request.method.encode(), parsed.path.encode("ascii"), fields),
        is_last="close" in _options(headers.get("connection", "")),
        expects="100-continue" in _options(headers.get("expect", "")),
    )


def _options(value: str) -> set[str]:
    return {option.strip() for option in value.lower().split(",")}


def head_bytes(method: bytes, path: bytes, fields: list[tuple[bytes, bytes]]) -> bytes:
    """Return the start line, the headers and the blank line after them."""
    lines = [b"%s %s HTTP/1.1\r\n" % (method, path)]
    lines += [b"%s: %s\r\n" % field for field in fields]
    lines.append(b"\r\n")
    return b"".join(lines)
