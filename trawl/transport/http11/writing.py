"""A request as it is written on the wire (RFC 9112, 3 and 5)."""

from __future__ import annotations

import attrs

from trawl.http import Headers, Request
from trawl.transport.http11.pool import Site
from trawl.transport.target import Target, wire_fields

__all__ = ["Message", "chunk", "head_bytes", "message_of"]

_FRAMING = frozenset({"content-length", "transfer-encoding", "host"})
_NOTED = frozenset({"connection", "expect"})
_BODY_EXPECTED = frozenset({"POST", "PUT", "PATCH"})  # RFC 9110, 8.6

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
    if defaults is not None:
        headers = headers.copy()
        headers.fill(defaults)
    if target.user_info or "Host" in headers:
        return _rare(request, Target.of(request.url), headers)
    message = Message(b"")
    path = request.url[len(site.origin) :].partition("#")[0]
    lines = [f"{request.method} {path or '/'} HTTP/1.1\r\nHost: {target.authority}\r\n"]
    for name, value in headers.items_list():
        key = name.lower()
        if key not in _FRAMING:
            lines.append(f"{name}: {value}\r\n")
            if key in _NOTED:
                _note(message, key, value)
    if request.body or request.method in _BODY_EXPECTED:
        lines.append(f"Content-Length: {len(request.body)}\r\n")
    lines.append("\r\n")
    try:
        message.head = "".join(lines).encode("latin-1")
    except UnicodeEncodeError:
        return _rare(request, Target.of(request.url), headers)
    return message


def _note(message: Message, key: str, value: str) -> None:
    words = {word.strip() for word in value.lower().split(",")}
    if key == "connection":
        message.is_last = "close" in words
    else:
        message.expects = "100-continue" in words


def _rare(request: Request, target: Target, headers: Headers) -> Message:
    """The message of a request that is not simple."""
    fields = wire_fields(request.replace(headers=headers), target, None)
    message = Message(head_bytes(request.method.encode(), target.path.encode("ascii"), fields))
    for key in ("connection", "expect"):
        _note(message, key, headers.get(key, ""))
    return message


def head_bytes(method: bytes, path: bytes, fields: list[tuple[bytes, bytes]]) -> bytes:
    """The start line and the fields, with the blank line after them."""
    lines = [b"%s %s HTTP/1.1\r\n" % (method, path)]
    lines += [b"%s: %s\r\n" % field for field in fields]
    lines.append(b"\r\n")
    return b"".join(lines)


def chunk(piece: bytes) -> bytes:
    """``piece``, not empty, as a chunk (RFC 9112, 7.1)."""
    return b"%x\r\n%s\r\n" % (len(piece), piece)
