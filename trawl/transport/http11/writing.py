"""A request as it is written on the wire (RFC 9112, 3 and 5)."""

from __future__ import annotations

import attrs

from trawl.http import Headers, Request
from trawl.transport.http11.pool import Site
from trawl.transport.target import Target, wire_fields

__all__ = ["Message", "chunk", "head_bytes", "message_of"]

_FRAMING = frozenset({"content-length", "transfer-encoding", "host", "proxy-authorization"})
_BODY_EXPECTED = frozenset({"POST", "PUT", "PATCH"})  # RFC 9110, 8.6

_UNUSUAL = frozenset({"host", "connection", "expect"})

LAST_CHUNK = b"0\r\n\r\n"


@attrs.define
class Message:
    """A request ready to be sent.

    Attributes:
        head: Everything before the body.
        is_last: The connection is not to be used afterwards: the request says so.
        expects: The request says ``Expect: 100-continue`` (RFC 9110, 10.1.1).
    """

    head: bytes
    is_last: bool = False
    expects: bool = False


def message_of(request: Request, site: Site, defaults: Headers | None) -> Message:
    """The message that ``request`` is, as :func:`~trawl.transport.target.wire_fields` would have it, but faster.

    Args:
        request: What is asked.
        site: Where.
        defaults: Fields that are added unless the request has them or refuses them.
    """
    target = site.target
    headers = request.headers
    if target.user_info or headers.has_any(_UNUSUAL):
        return _rare(request, defaults)
    path = request.url[len(site.origin) :]
    if "#" in path:
        path = path.partition("#")[0]
    length = f"Content-Length: {len(request.body)}\r\n" if request.body or request.method in _BODY_EXPECTED else ""
    fields = headers.lines(defaults, without=_FRAMING)
    try:
        head = f"{request.method} {path or '/'} HTTP/1.1\r\nHost: {target.authority}\r\n{fields}{length}\r\n".encode(
            "latin-1"
        )
    except UnicodeEncodeError:
        return _rare(request, defaults)
    return Message(head)


def _words(value: str) -> set[str]:
    return {word.strip() for word in value.lower().split(",")}


def _rare(request: Request, defaults: Headers | None) -> Message:
    """The message of a request that is not simple."""
    target, headers = Target.of(request.url), request.headers.copy()
    if defaults is not None:
        headers.fill(defaults)
    fields = wire_fields(request.replace(headers=headers), target, None)
    return Message(
        head_bytes(request.method.encode(), target.path.encode("ascii"), fields),
        is_last="close" in _words(headers.get("connection", "")),
        expects="100-continue" in _words(headers.get("expect", "")),
    )


def head_bytes(method: bytes, path: bytes, fields: list[tuple[bytes, bytes]]) -> bytes:
    """The start line and the fields, with the blank line after them."""
    lines = [b"%s %s HTTP/1.1\r\n" % (method, path)]
    lines += [b"%s: %s\r\n" % field for field in fields]
    lines.append(b"\r\n")
    return b"".join(lines)


def chunk(piece: bytes) -> bytes:
    """``piece``, not empty, as a chunk (RFC 9112, 7.1)."""
    return b"%x\r\n%s\r\n" % (len(piece), piece)
